"""The functions of PySpark under one more address: `from headrace import functions as F`.

Every function of `pyspark.sql.functions` is here under its own name, and under that name in snake_case.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as _functions

_SPELLINGS = {name.replace("_", "").lower(): name for name in reversed(dir(_functions)) if not name.startswith("_")}


def __getattr__(name: str) -> Any:
    found = getattr(_functions, name, None)
    if found is None and not name.startswith("_"):
        spelled = _SPELLINGS.get(name.replace("_", "").lower())
        found = None if spelled is None else getattr(_functions, spelled)
    if found is None:
        raise AttributeError(f"module 'headrace.functions' has no function {name!r}")
    return found


def __dir__() -> list[str]:
    return [name for name in dir(_functions) if not name.startswith("_")]
