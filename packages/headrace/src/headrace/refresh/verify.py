"""VERIFY: does a dynamic table equal its query, evaluated by Spark itself at the table's frontier?

Two-way EXCEPT ALL between the public contents and the query's own text with every source at its recorded version. Rows
that do not match exactly get a second look when there are floating-point columns: those may differ by 1e-9 of their
size, because a sum depends on the order of its terms.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.catalog.records import DynamicTable
from headrace.errors import NotAllowed
from headrace.ivm.layout import layout_of, select_live
from headrace.names import quote
from headrace.refresh.compute import pinned_text
from headrace.refresh.stored import read_stored
from headrace.storage.delta import DeltaLogs

TOLERANCE = 1e-9
_MOST_COMPARED = 200_000


@dataclass(frozen=True)
class Verdict:
    """`missing` rows are in the query but not in the table, `unexpected` ones the other way round."""

    equal: bool
    rows: int
    missing: int
    unexpected: int
    version: int
    sources: dict[str, int]


def verify(spark: SparkSession, logs: DeltaLogs, table: DynamicTable, today: str) -> Verdict:
    """Compare the table with its query at the frontier that the table's last commit records."""
    stored = read_stored(logs, table)
    if stored.note is None:
        why = stored.distrust or "it was never loaded"
        raise NotAllowed(
            f"{table.table_name} cannot be verified: {why}.", hint=f"Run REFRESH DYNAMIC TABLE {table.table_name} first."
        )
    frontier = stored.note.frontier
    if frontier.date is not None and frontier.date != today:
        raise NotAllowed(
            f"{table.table_name} was computed for {frontier.date}, and its query uses current_date, which is {today} now.",
            hint=f"Run REFRESH DYNAMIC TABLE {table.table_name} first.",
        )
    versions = {source.path: logs.readable(source.path, source.version) for source in frontier.sources}
    names = [column.name for column in table.query.columns]
    expected = spark.sql(pinned_text(table.query, versions)).toDF(*names)
    place = f"delta.{quote(table.storage_path)} VERSION AS OF {stored.version}"
    actual = spark.sql(select_live(table.query.columns, layout_of(table.query).hides_groups, place))
    expected = expected.selectExpr(*(f"CAST({quote(c.name)} AS {c.type}) AS {quote(c.name)}" for c in table.query.columns))
    missing, unexpected = _differences(expected, actual, table)
    rows = actual.count()
    shown = {source.name: frontier.version_of(source.path) or 0 for source in table.query.sources}
    return Verdict(missing == 0 and unexpected == 0, rows, missing, unexpected, stored.version, shown)


def _differences(expected: DataFrame, actual: DataFrame, table: DynamicTable) -> tuple[int, int]:
    comparable = [_comparable(column.name, column.type) for column in table.query.columns]
    expected, actual = expected.selectExpr(*comparable), actual.selectExpr(*comparable)
    missing, unexpected = expected.exceptAll(actual), actual.exceptAll(expected)
    floating = [
        position
        for position, column in enumerate(table.query.columns)
        if column.type.lower() in ("float", "double")
    ]
    if not floating:
        return missing.count(), unexpected.count()
    left, right = missing.limit(_MOST_COMPARED).collect(), unexpected.limit(_MOST_COMPARED).collect()
    return _unmatched(left, right, floating)


def _comparable(name: str, type_text: str) -> str:
    """EXCEPT cannot compare maps; their sorted entries say the same."""
    column = quote(name)
    return f"array_sort(map_entries({column})) AS {column}" if type_text.lower().startswith("map<") else column


def _unmatched(left: Sequence[Any], right: Sequence[Any], floating: list[int]) -> tuple[int, int]:
    """How many rows on each side have no partner that is equal but for a rounding of the floating columns."""
    waiting: dict[str, list[list[float | None]]] = defaultdict(list)
    for row in right:
        key, values = _split(row, floating)
        waiting[key].append(values)
    alone = 0
    for row in left:
        key, values = _split(row, floating)
        partner = next((v for v in waiting[key] if all(map(_close, values, v))), None)
        if partner is None:
            alone += 1
        else:
            waiting[key].remove(partner)
    return alone, sum(map(len, waiting.values()))


def _split(row: Any, floating: list[int]) -> tuple[str, list[float | None]]:
    rest = [value for position, value in enumerate(row) if position not in floating]
    return repr(rest), [row[position] for position in floating]


def _close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=1e-300)
