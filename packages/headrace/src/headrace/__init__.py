"""Headrace: an incremental lakehouse on Apache Spark.

>>> import headrace
>>> lake = headrace.open("lake")  # doctest: +SKIP
>>> lake.sql("SELECT 1").rows  # doctest: +SKIP
[(1,)]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.engine import Lake
    from headrace.opening import connect, open
    from headrace.result import Result

__all__ = ["Lake", "Result", "connect", "open"]
__version__ = "0.1.0"

_HOMES = {"Lake": "engine", "Result": "result", "connect": "opening", "open": "opening"}


def __getattr__(name: str) -> Any:
    """The public names, loaded when first used: `headrace --help` and make's look for Java must not wait for Arrow."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"headrace.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")
