"""The functions of PySpark, written down: `from headrace.recording import functions as F`.

`headrace.functions` gives these where no lake is open in the process, and PySpark's own where one is. Import this
module instead only in a program that has both: an open lake, and a session over a URL.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from headrace.errors import NotAllowed
from headrace.recording import allowed
from headrace.recording.columns import Column, Window
from headrace.recording.tree import Function, Lambda, Parameter
from headrace.recording.values import recorded

__all__ = ["Column", "Window", "broadcast"]


def broadcast(rows: Any) -> Any:
    """The DataFrame, with the hint that it is small enough to be sent to every worker in a join."""
    return rows.hint("broadcast")


def __getattr__(name: str) -> Any:
    spelled = allowed.spelled(allowed.FUNCTIONS, name)
    if spelled is None:
        refused = allowed.spelled(allowed.FUNCTIONS_REFUSED, name)
        if refused is not None:
            raise refusal(refused)
        raise AttributeError(f"module 'headrace.functions' has no function {name!r}")
    return function(spelled)


def __dir__() -> list[str]:
    return sorted({*allowed.FUNCTIONS, *__all__})


def refusal(name: str) -> NotAllowed:
    """Why a function cannot be written down."""
    return NotAllowed(
        f"{name} cannot be used over a URL: {allowed.FUNCTIONS_REFUSED[name]}.",
        hint=f"PySpark's {name} is called where a lake is open in this process: headrace.open(path) first, then "
        f"headrace.functions.{name}.",
    )


@cache
def function(name: str) -> Callable[..., Column]:
    """What writes down the calls of one function."""

    def call(*arguments: Any, **named: Any) -> Column:
        given = tuple(_given(each) for each in arguments)
        return Column(Function(name, given, {key: _given(each) for key, each in named.items()}))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"PySpark's `{name}`, written down for a server."
    return call


def _given(value: Any) -> Any:
    if isinstance(value, Column) or not inspect.isroutine(value):
        return recorded(value)
    return _lambda(value)


def _lambda(function: Callable[..., Any]) -> Lambda:
    """The function is called here, once, with columns that stand for its parameters."""
    parameters = tuple(Parameter() for _ in inspect.signature(function).parameters)
    if not 1 <= len(parameters) <= 3:
        raise NotAllowed("A function of columns has one to three parameters.", hint="Such as lambda x: x + 1.")
    found = function(*map(Column, parameters))
    if not isinstance(found, Column):
        raise NotAllowed("A function of columns must give a column.", hint="F.lit(value) makes one of a value.")
    return Lambda(parameters, found._recorded_node())
