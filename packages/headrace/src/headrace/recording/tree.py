"""What was called, as immutable nodes: a tree, in which a DataFrame that is used twice is one node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.recording import allowed
from headrace.recording.allowed import Kind
from headrace.recording.values import nodes_in


@dataclass(frozen=True, eq=False)
class Node:
    """One call. Two nodes are never equal: a DataFrame is itself and no other."""

    @property
    def kind(self) -> Kind:
        return "frame"

    def parts(self) -> Iterator[Node]:
        """The nodes that this one is made of."""
        return iter(())


@dataclass(frozen=True, eq=False)
class Table(Node):
    """session.table(name)"""

    name: str
    consume: bool = True


@dataclass(frozen=True, eq=False)
class Query(Node):
    """session.sql(text), of a query"""

    text: str


@dataclass(frozen=True, eq=False)
class LocalTable(Node):
    """session.create_dataframe(…) of an Arrow table or a pandas DataFrame, as an Arrow stream."""

    arrow: bytes
    schema: Any = None
    pandas: bool = False
    """Whether it was one of pandas: PySpark reads some values of these in another way."""


@dataclass(frozen=True, eq=False)
class LocalRows(Node):
    """session.create_dataframe(…) of rows as Python values; Spark finds their types."""

    rows: tuple[Any, ...]
    schema: Any = None


@dataclass(frozen=True, eq=False)
class Kept(Node):
    """The rows that an earlier `cache_result()` of this session keeps on the server."""

    name: str


@dataclass(frozen=True, eq=False)
class Call(Node):
    """A method of what another node gives."""

    on: Node
    method: str
    arguments: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)
    _kind: Kind = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_kind", allowed.METHODS[self.on.kind][self.method])

    @property
    def kind(self) -> Kind:
        return self._kind

    def parts(self) -> Iterator[Node]:
        yield self.on
        yield from nodes_in((self.arguments, self.named))


@dataclass(frozen=True, eq=False)
class Part(Node):
    """One of the parts of randomSplit."""

    on: Node
    weights: tuple[float, ...]
    seed: int
    place: int

    def parts(self) -> Iterator[Node]:
        yield self.on


@dataclass(frozen=True, eq=False)
class Function(Node):
    """A function of `headrace.functions`."""

    name: str
    arguments: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        return "column"

    def parts(self) -> Iterator[Node]:
        return nodes_in((self.arguments, self.named))


@dataclass(frozen=True, eq=False)
class ColumnOf(Node):
    """df["name"], or df[0]"""

    of: Node
    item: str | int

    @property
    def kind(self) -> Kind:
        return "column"

    def parts(self) -> Iterator[Node]:
        yield self.of


@dataclass(frozen=True, eq=False)
class NewWindow(Node):
    """Window.partitionBy(…), and the other three"""

    method: str
    arguments: tuple[Any, ...] = ()

    @property
    def kind(self) -> Kind:
        return "window"

    def parts(self) -> Iterator[Node]:
        return nodes_in(self.arguments)


@dataclass(frozen=True, eq=False)
class Parameter(Node):
    """What a lambda is called with."""

    @property
    def kind(self) -> Kind:
        return "column"


@dataclass(frozen=True, eq=False)
class Lambda(Node):
    """A function of columns, for transform, filter, aggregate and the like."""

    parameters: tuple[Parameter, ...]
    body: Node

    @property
    def kind(self) -> Kind:
        return "lambda"

    def parts(self) -> Iterator[Node]:
        yield from self.parameters
        yield self.body


def in_order(root: Node) -> list[Node]:
    """Every node once, each after its parts. Without recursion: a plan may be deeper than Python's stack."""
    done: dict[Node, None] = {}
    waiting: list[tuple[Node, Iterator[Node]]] = [(root, root.parts())]
    entered = {root}
    while waiting:
        node, parts = waiting[-1]
        following = next((part for part in parts if part not in entered), None)
        if following is None:
            waiting.pop()
            done[node] = None
        else:
            entered.add(following)
            waiting.append((following, following.parts()))
    return list(done)


def parameters_of(ordered: Sequence[Node]) -> dict[Node, frozenset[Parameter]]:
    """Which parameters of lambdas around it each node needs."""
    needed: dict[Node, frozenset[Parameter]] = {}
    for node in ordered:
        if isinstance(node, Parameter):
            needed[node] = frozenset((node,))
            continue
        inside: frozenset[Parameter] = frozenset().union(*(needed[part] for part in node.parts()))
        needed[node] = inside - frozenset(node.parameters) if isinstance(node, Lambda) else inside
    return needed


def texts_in(ordered: Sequence[Node]) -> Iterator[str]:
    """The SQL that stands inside calls: each text is an expression."""
    for node in ordered:
        if isinstance(node, Function) and node.name == "expr":
            yield from _texts((node.arguments, node.named))
        if isinstance(node, Call) and node.kind == "frame" and node.method in ("filter", "where", "selectExpr"):
            yield from _texts((node.arguments, node.named))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _texts(each)
