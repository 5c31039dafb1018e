"""Headrace: an incremental lakehouse on Apache Spark.

>>> import headrace
>>> lake = headrace.open("lake")  # doctest: +SKIP
>>> lake.sql("SELECT 1").rows  # doctest: +SKIP
[(1,)]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.engine import Lake, open
    from headrace.result import Result

__all__ = ["Lake", "Result", "open"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The public names, loaded when first used: `headrace --help` and make's look for Java must not wait for Arrow."""
    if name in __all__:
        from headrace import engine, result

        return getattr(result if name == "Result" else engine, name)
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")
