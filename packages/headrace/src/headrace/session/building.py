"""Recorded nodes become PySpark's objects.

The names of methods and functions that are called here come from `headrace.recording.allowed`, never from a plan: a
plan only chooses among them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame as SparkFrame
from pyspark.sql import Row as SparkRow
from pyspark.sql import Window, functions
from pyspark.sql.types import DataType as SparkType

from headrace.errors import HeadraceError, NotAllowed, UserError
from headrace.recording import allowed
from headrace.recording.columns import Column, WindowSpec
from headrace.recording.rows import Row
from headrace.recording.tree import (
    Call,
    ColumnOf,
    Function,
    Lambda,
    NewWindow,
    Node,
    Parameter,
    Part,
    in_order,
    parameters_of,
)
from headrace.recording.values import WRITTEN_BY, DataType
from headrace.storage.spark import java_process_has_ended

Leaf = Callable[[Node], SparkFrame]
"""Makes the DataFrame of a node that is made of no others."""

_OPERATORS: Mapping[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
    "**": operator.pow,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "&": operator.and_,
    "|": operator.or_,
    "~": operator.invert,
    "negative": operator.neg,
    "[]": operator.getitem,
}
_MISTAKES = (TypeError, ValueError, AttributeError, AssertionError, LookupError, ArithmeticError, Py4JError)
"""What PySpark makes of arguments that it does not expect."""


def build(root: Node, leaf: Leaf, before_reading: Callable[[SparkFrame], None] = lambda _: None) -> Any:
    """What the node describes. `before_reading` is told each DataFrame whose rows a method is about to read."""
    ordered = in_order(root)
    builder = _Builder(leaf, before_reading, parameters_of(ordered))
    found: dict[Node, Any] = {}
    builder.fill(found, ordered, frozenset())
    return found[root]


def native(value: Any) -> Any:
    """A value for PySpark: columns that were written down before a lake was open become columns of PySpark."""
    if isinstance(value, (Column, WindowSpec)):
        return build(value._recorded_node(), _no_frame)
    if isinstance(value, list):
        return [native(each) for each in value]
    if type(value) is tuple:
        return tuple(native(each) for each in value)
    if type(value) is dict:
        return {key: native(each) for key, each in value.items()}
    return value


def native_row(value: Any) -> Any:
    """A row of values for `createDataFrame`."""
    return _Builder(_no_frame, lambda _: None, {}).value(value, {})


def _no_frame(_: Node) -> SparkFrame:
    raise NotAllowed(
        "A column of a server's DataFrame cannot be used in one of a lake in this process.",
        hint="Name the column: F.col('name').",
    )


class _Builder:
    def __init__(
        self,
        leaf: Leaf,
        before_reading: Callable[[SparkFrame], None],
        needed: Mapping[Node, frozenset[Parameter]],
    ) -> None:
        self._leaf = leaf
        self._before_reading = before_reading
        self._needed = needed

    def fill(self, found: dict[Node, Any], ordered: Sequence[Node], bound: frozenset[Parameter]) -> None:
        """Build what needs no other parameters than these. What needs more belongs to a lambda, which is called
        later."""
        for node in ordered:
            if node not in found and self._needed[node] <= bound:
                found[node] = self._built(node, found, bound)

    def _built(self, node: Node, found: dict[Node, Any], bound: frozenset[Parameter]) -> Any:
        match node:
            case Call(on, method, arguments, named):
                if method in allowed.EAGER_METHODS:
                    self._before_reading(found[_frame_under(on)])
                call = _method(found[on], node)
                with mistakes(method):
                    return call(*self.value(arguments, found), **self.value(dict(named), found))
            case Function(name, arguments, named) if name in allowed.FUNCTIONS:
                with mistakes(name):
                    return getattr(functions, name)(*self.value(arguments, found), **self.value(dict(named), found))
            case ColumnOf(of, item):
                with mistakes(str(item)):
                    return found[of][item]
            case Part(on, weights, seed, place):
                with mistakes("randomSplit"):
                    return found[on].randomSplit(list(weights), seed)[place]
            case NewWindow(method, arguments) if method in allowed.WINDOW_METHODS:
                with mistakes(method):
                    return getattr(Window, method)(*self.value(arguments, found))
            case Lambda():
                return self._called_later(node, found, bound)
            case _ if node.kind == "frame":
                return self._leaf(node)
            case _:
                raise NotAllowed(
                    f"A plan cannot hold a {type(node).__name__} here.",
                    hint=WRITTEN_BY,
                )

    def _called_later(self, node: Lambda, found: dict[Node, Any], bound: frozenset[Parameter]) -> Callable[..., Any]:
        """PySpark looks at the number of parameters."""

        def body(*given: Any) -> Any:
            inside: dict[Node, Any] = {**found}
            inside.update(zip(node.parameters, given, strict=True))
            self.fill(inside, in_order(node.body), bound | frozenset(node.parameters))
            return inside[node.body]

        if len(node.parameters) == 1:
            return lambda x: body(x)
        if len(node.parameters) == 2:
            return lambda x, y: body(x, y)
        return lambda x, y, z: body(x, y, z)

    def value(self, value: Any, found: Mapping[Node, Any]) -> Any:
        if isinstance(value, Node):
            return found[value]
        if isinstance(value, DataType):
            return SparkType.fromDDL(value.text)
        if isinstance(value, Row):
            row = SparkRow(*(self.value(each, found) for each in value))
            row.__fields__ = list(value.__fields__)
            return row
        if isinstance(value, list):
            return [self.value(each, found) for each in value]
        if isinstance(value, tuple):
            return tuple(self.value(each, found) for each in value)
        if isinstance(value, dict):
            return {key: self.value(each, found) for key, each in value.items()}
        return value


def _frame_under(node: Node) -> Node:
    while node.kind == "groups" and isinstance(node, Call):
        node = node.on
    return node


def _method(receiver: Any, node: Call) -> Callable[..., Any]:
    if node.on.kind == "column" and node.method in allowed.OPERATORS:
        operation = _OPERATORS[node.method]
        return lambda *arguments: operation(receiver, *arguments)
    if node.method not in allowed.METHODS[node.on.kind]:
        raise NotAllowed(
            f"A {node.on.kind} has no method {node.method!r} in a plan.",
            hint=WRITTEN_BY,
        )
    method: Callable[..., Any] = getattr(receiver, node.method)
    return method


@contextmanager
def mistakes(name: str) -> Iterator[None]:
    """Arguments that do not fit are the user's mistake; PySpark has many ways to say so."""
    try:
        yield
    except (HeadraceError, PySparkException, Py4JJavaError, Py4JNetworkError):
        raise
    except _MISTAKES as error:
        if java_process_has_ended():
            raise
        told = str(error).strip().splitlines()
        raise UserError(
            f"{name} cannot be called like this: {told[0] if told else type(error).__name__}.",
            hint="PySpark's documentation tells what it takes.",
        ) from error
