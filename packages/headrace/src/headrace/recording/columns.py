"""Columns and windows that are written down: PySpark's names and operators, without PySpark."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn

from headrace.errors import NotAllowed
from headrace.recording import allowed
from headrace.recording.tree import Call, Function, NewWindow, Node, Query
from headrace.recording.values import recorded


class Column:
    """An expression over the columns of a DataFrame. Two columns are compared by the server: `==` gives a column."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def _recorded_node(self) -> Node:
        return self._node

    def _call(self, method: str, *arguments: Any, **named: Any) -> Column:
        return Column(Call(self._node, method, recorded(arguments), recorded(named)))

    def _from_left(self, method: str, other: Any) -> Column:
        return Column(Call(Function("lit", (recorded(other),)), method, (self._node,)))

    # ---- operators

    def __add__(self, other: Any) -> Column:
        return self._call("+", other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Column:
        return self._call("-", other)

    def __rsub__(self, other: Any) -> Column:
        return self._from_left("-", other)

    def __mul__(self, other: Any) -> Column:
        return self._call("*", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Column:
        return self._call("/", other)

    def __rtruediv__(self, other: Any) -> Column:
        return self._from_left("/", other)

    def __mod__(self, other: Any) -> Column:
        return self._call("%", other)

    def __rmod__(self, other: Any) -> Column:
        return self._from_left("%", other)

    def __pow__(self, other: Any) -> Column:
        return self._call("**", other)

    def __rpow__(self, other: Any) -> Column:
        return self._from_left("**", other)

    def __eq__(self, other: object) -> Column:  # type: ignore[override]
        return self._call("==", other)

    def __ne__(self, other: object) -> Column:  # type: ignore[override]
        return self._call("!=", other)

    __hash__ = object.__hash__

    def __lt__(self, other: Any) -> Column:
        return self._call("<", other)

    def __le__(self, other: Any) -> Column:
        return self._call("<=", other)

    def __gt__(self, other: Any) -> Column:
        return self._call(">", other)

    def __ge__(self, other: Any) -> Column:
        return self._call(">=", other)

    def __and__(self, other: Any) -> Column:
        return self._call("&", other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Column:
        return self._call("|", other)

    __ror__ = __or__

    def __invert__(self) -> Column:
        return self._call("~")

    def __neg__(self) -> Column:
        return self._call("negative")

    def __getitem__(self, item: Any) -> Column:
        if isinstance(item, slice):
            if item.step is not None:
                raise NotAllowed("A slice of a column has no step.", hint="Write column[start:length].")
            return self._call("substr", item.start, item.stop)
        return self._call("[]", item)

    # ---- what Python would do behind one's back

    def __bool__(self) -> NoReturn:
        raise NotAllowed(
            "A column is neither true nor false: its values are known to the server only.",
            hint="Write & for and, | for or, ~ for not, with each comparison in parentheses.",
        )

    def __contains__(self, item: object) -> NoReturn:
        raise NotAllowed("`in` cannot look into a column.", hint="Write column.contains(…) or column.isin(…).")

    def __iter__(self) -> NoReturn:
        raise TypeError("A column cannot be iterated.")

    # ---- methods

    def transform(self, function: Callable[[Column], Column]) -> Column:
        return function(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"A column has no attribute {name!r}.")
        if name in allowed.COLUMN_METHODS:
            return lambda *arguments, **named: self._call(name, *arguments, **named)
        return self[name]  # As in PySpark: a field of a struct.

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *(name for name in allowed.COLUMN_METHODS if name.isidentifier())})

    def __repr__(self) -> str:
        return f"Column<{told(self._node)}>"


class WindowSpec:
    """Which rows a window function sees."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def _recorded_node(self) -> Node:
        return self._node

    def __getattr__(self, name: str) -> Any:
        method = allowed.spelled(allowed.WINDOW_METHODS, name)
        if method is None:
            raise AttributeError(f"A window has no attribute {name!r}.")
        return lambda *arguments: WindowSpec(Call(self._node, method, recorded(arguments)))

    def __repr__(self) -> str:
        return f"WindowSpec<{told(self._node)}>"


class _Window:
    """PySpark's Window: where a window begins."""

    unboundedPreceding = max(-sys.maxsize, -(1 << 63))  # noqa: N815 - PySpark's names
    unboundedFollowing = min(sys.maxsize, (1 << 63) - 1)  # noqa: N815
    currentRow = 0  # noqa: N815

    def __getattr__(self, name: str) -> Any:
        method = allowed.spelled(allowed.WINDOW_METHODS, name)
        if method is None:
            raise AttributeError(f"Window has no attribute {name!r}.")
        return lambda *arguments: WindowSpec(NewWindow(method, recorded(arguments)))


Window = _Window()


def told(node: Node) -> str:
    """A plan for a person, on one line."""
    texts: list[str] = []
    _tell(node, texts, depth=0)
    return "".join(texts)


_SHOWN_DEPTH = 12
_BETWEEN = allowed.OPERATORS - {"~", "negative", "[]"}


def _tell(value: Any, texts: list[str], depth: int) -> None:
    if depth > _SHOWN_DEPTH:
        texts.append("…")
        return
    match value:
        case Function("col" | "column", (str() as name,)):
            texts.append(name)
        case Function("lit", (Node(),)) | Function("lit", (_,)):
            _tell(value.arguments[0], texts, depth + 1)
        case Function(name, arguments):
            texts.append(f"{name}(")
            _tell_all(arguments, texts, depth)
            texts.append(")")
        case Call(on, method, (other,)) if method in _BETWEEN:
            texts.append("(")
            _tell(on, texts, depth + 1)
            texts.append(f" {method} ")
            _tell(other, texts, depth + 1)
            texts.append(")")
        case Call(on, method, arguments):
            _tell(on, texts, depth + 1)
            texts.append(f".{method}(")
            _tell_all(arguments, texts, depth)
            texts.append(")")
        case Query(text):
            texts.append(f"sql({text!r})")
        case Node():
            texts.append(str(getattr(value, "item", getattr(value, "name", type(value).__name__.lower()))))
        case _:
            texts.append(repr(value))


def _tell_all(values: tuple[Any, ...], texts: list[str], depth: int) -> None:
    for place, each in enumerate(values):
        if place:
            texts.append(", ")
        _tell(each, texts, depth + 1)
