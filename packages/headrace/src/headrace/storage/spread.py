"""Which values are in which files of a Delta table, as the statistics in its log tell."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from headrace.storage.paths import file_path

Spans = Mapping[str, Sequence[tuple[Any, Any]]]
"""Of columns, the ranges that matter."""


@dataclass(frozen=True)
class Reach:
    """Where the values of a column lie."""

    least: Any
    most: Any
    opened: float
    """Which share of the table is in the files that may have a value, for values spread evenly from least to most."""

    def covered(self, spans: Sequence[tuple[Any, Any]]) -> float:
        """The share of what lies between least and most that is in these ranges.

        >>> Reach(1, 100, 1.0).covered([(0, 9), (91, 95)])
        0.14
        """
        low, high = _number(self.least), _number(self.most)
        met = [(max(_number(a), low), min(_number(b), high)) for a, b in spans]
        return sum(b - a + 1 for a, b in met if b >= a) / (high - low + 1)


def reach_of(actions: pa.Table, column: str) -> Reach | None:
    try:
        ends = [actions.column(f"{end}.{column}").to_pylist() for end in ("min", "max")]
    except (KeyError, OverflowError, ValueError):
        return None  # There are none; or a date that Python has no value for.
    sizes = actions.column("size_bytes").to_pylist()
    files = list(zip(*ends, sizes, strict=True))
    if len(files) < 2 or any(value is None for low, high, _ in files for value in (low, high)):
        return None  # How the rows of a single file lie, it does not tell.
    least, most = min(low for low, _, _ in files), max(high for _, high, _ in files)
    if not all(isinstance(end, int | datetime.date) for end in (least, most)):
        return None
    if any(isinstance(end, bool | datetime.datetime) for end in (least, most)):
        return None
    width = _number(most) - _number(least) + 1
    opened = sum(size * (_number(high) - _number(low) + 1) for low, high, size in files)
    return Reach(least, most, opened / (width * max(sum(sizes), 1)))


def files_outside(path: str, table: DeltaTable, within: Spans) -> set[str]:
    """The files that have no row in one of the ranges, as far as their statistics tell."""
    actions = pa.table(table.get_add_actions(flatten=True))
    names = [os.path.normpath(file_path(path, {"path": name})) for name in actions.column("path").to_pylist()]
    found: set[str] = set()
    for column, spans in within.items():
        try:
            ends = [actions.column(f"{end}.{column}").to_pylist() for end in ("min", "max")]
        except (KeyError, OverflowError, ValueError):
            continue  # There are none; or a date that Python has no value for.
        for name, least, most in zip(names, *ends, strict=True):
            known = least is not None and most is not None
            if known and not any(low <= most and least <= high for low, high in spans):
                found.add(name)
    return found


def _number(value: Any) -> int:
    return value.toordinal() if isinstance(value, datetime.date) else int(value)
