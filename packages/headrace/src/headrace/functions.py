"""The functions of PySpark under one more address: `from headrace import functions as F`.

Every function of `pyspark.sql.functions` is here under its own name, and under that name in snake_case.

Which one is called is decided at the call. While Spark runs in this process, that is, while a lake is open in it, it
is PySpark's own: its columns go with all that PySpark has. Otherwise the call is written down (`headrace.recording`),
which takes neither Java nor PySpark: a session over a URL sends it, and a lake that is opened later replays it. So
columns can be made before there is a session of either kind. What cannot be written down, such as `udf`, is refused
until a lake is open here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from headrace.recording import allowed
from headrace.recording import columns as _columns
from headrace.recording import functions as _recorded
from headrace.recording.functions import broadcast

__all__ = ["Window", "broadcast"]


def __getattr__(name: str) -> Any:
    spelled = allowed.spelled(allowed.FUNCTIONS, name)
    if spelled is not None:
        return _function(spelled)
    refused = allowed.spelled(allowed.FUNCTIONS_REFUSED, name)
    if refused is not None:
        return _embedded_only(refused)
    found = None if name.startswith("_") else getattr(_pyspark(), name, None)
    if found is None:
        raise AttributeError(f"module 'headrace.functions' has no function {name!r}")
    return found


def __dir__() -> list[str]:
    return sorted({*allowed.FUNCTIONS, *allowed.FUNCTIONS_REFUSED, *__all__})


def spark_is_here() -> bool:
    """Whether Spark runs in this process."""
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.SparkContext._active_spark_context is not None


def _pyspark() -> Any:
    from pyspark.sql import functions

    return functions


@cache
def _function(name: str) -> Callable[..., Any]:
    recorded = _recorded.function(name)

    def call(*arguments: Any, **named: Any) -> Any:
        if spark_is_here() and not any(_are_recorded((*arguments, *named.values()))):
            return getattr(_pyspark(), name)(*arguments, **named)
        return recorded(*arguments, **named)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"PySpark's `{name}`."
    return call


@cache
def _embedded_only(name: str) -> Callable[..., Any]:
    """A function that cannot be written down: PySpark's own, or the reason why not."""

    def call(*arguments: Any, **named: Any) -> Any:
        if spark_is_here() and not any(_are_recorded((*arguments, *named.values()))):
            return getattr(_pyspark(), name)(*arguments, **named)
        raise _recorded.refusal(name)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"PySpark's `{name}`, where a lake is open in this process."
    return call


def _are_recorded(values: tuple[Any, ...]) -> Iterator[bool]:
    """A column that was written down can only become part of another one that is."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _are_recorded(tuple(value))
        else:
            yield isinstance(value, _columns.Column)


class _Window:
    """`Window` of PySpark, by the same rule as the functions."""

    unboundedPreceding = _columns.Window.unboundedPreceding  # noqa: N815 - PySpark's names
    unboundedFollowing = _columns.Window.unboundedFollowing  # noqa: N815
    currentRow = _columns.Window.currentRow  # noqa: N815

    def __getattr__(self, name: str) -> Any:
        method = allowed.spelled(allowed.WINDOW_METHODS, name)
        if method is None:
            raise AttributeError(f"Window has no attribute {name!r}.")

        def call(*arguments: Any) -> Any:
            if spark_is_here() and not any(_are_recorded(arguments)):
                from pyspark.sql import Window as SparkWindow

                return getattr(SparkWindow, method)(*arguments)
            return getattr(_columns.Window, method)(*arguments)

        return call


Window = _Window()
