"""Spark's parsed plans without Spark: as much of a node, a sequence and an option as the readers of plans ask for."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any


class Seq:
    def __init__(self, *values: Any) -> None:
        self._values = values

    def size(self) -> int:
        return len(self._values)

    def apply(self, index: int) -> Any:
        return self._values[index]


class Option:
    def __init__(self, value: Any = None) -> None:
        self._value = value

    def isDefined(self) -> bool:  # noqa: N802
        return self._value is not None

    def get(self) -> Any:
        return self._value


class Node:
    """A node of a plan, or an expression. What it is made of is what Scala's product has, in this order."""

    def __init__(
        self, kind: str, *children: Node, subqueries: tuple[Node, ...] = (), start: int | None = None, **fields: Any
    ) -> None:
        self._kind, self._children, self._subqueries = kind, children, subqueries
        self._start, self._fields = start, fields

    def __getattr__(self, name: str) -> Any:
        if name not in self._fields:
            raise AttributeError(f"{self._kind} has no {name}")
        return lambda: self._fields[name]

    def getClass(self) -> Any:  # noqa: N802
        return SimpleNamespace(getSimpleName=lambda: self._kind)

    def children(self) -> Seq:
        return Seq(*self._children)

    def subqueries(self) -> Seq:
        return Seq(*self._subqueries)

    def expressions(self) -> Seq:
        return Seq(*(value for value in self._fields.values() if isinstance(value, Call)))

    def productArity(self) -> int:  # noqa: N802
        return len(self._children) + len(self._fields)

    def productElement(self, place: int) -> Any:  # noqa: N802
        return [*self._children, *self._fields.values()][place]

    def origin(self) -> Any:
        return SimpleNamespace(startIndex=lambda: Option(self._start), stopIndex=lambda: Option(self._start))


class Call(Node):
    """A call of a function, by the parts of its name, over other calls."""

    def __init__(self, *name: str, over: tuple[Call, ...] = ()) -> None:
        super().__init__("UnresolvedFunction", *over, nameParts=Seq(*name))

    def containsPattern(self, _: Any) -> bool:  # noqa: N802
        return True


def relation(*parts: str, start: int | None = None, given: tuple[str, ...] = ()) -> Node:
    """A table that a query names, with these options."""
    options = SimpleNamespace(keySet=lambda: given)
    return Node(
        "UnresolvedRelation", multipartIdentifier=Seq(*parts), options=options, isStreaming=False, start=start
    )  # fmt: skip


class Jvm:
    """Knows the plan of each text that is to be parsed."""

    def __init__(self, plans: Mapping[str, Node] | None = None, state: Any = None) -> None:
        self._plans = dict(plans or {})
        self.parsed: list[str] = []
        self.state = state or SimpleNamespace(functionRegistry=lambda: SimpleNamespace(functionExists=lambda _: False))
        self.root = SimpleNamespace(
            py4j=SimpleNamespace(reflection=SimpleNamespace(TypeUtil=SimpleNamespace(isInstanceOf=self._is_a)))
        )

    def parse(self, text: str) -> Node:
        self.parsed.append(text)
        return self._plans[text]

    def pattern(self, name: str) -> str:
        return name

    def object(self, _: str) -> Any:
        return SimpleNamespace(
            isSQLFunction=lambda name: name.startswith("sqlFunction."), fromCatalogFunction=lambda stored, _: stored
        )

    def function_identifier(self, name: str) -> str:
        return name

    @staticmethod
    def _is_a(wanted: str, value: Any) -> bool:
        return isinstance(value, Option) if wanted == "scala.Option" else isinstance(value, Node)
