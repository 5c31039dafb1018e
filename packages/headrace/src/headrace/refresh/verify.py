"""VERIFY: does a dynamic table equal its query, evaluated by Spark itself at the table's frontier?

Two-way EXCEPT ALL, in one pass, between the public contents and the query's own text with every source at its recorded
version. Rows that do not match exactly get a second look when there are floating-point columns: those may differ by
1e-9 of their size, because a sum depends on the order of its terms.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.catalog.records import DynamicTable
from headrace.errors import NotAllowed
from headrace.ivm.evaluate import evaluate
from headrace.ivm.maintainable import CHANCY
from headrace.ivm.sources import SourceRange, read_version
from headrace.ivm.ties import has_ties, is_by_chance
from headrace.names import quote
from headrace.plan.certainty import Origins, carriers, deciding_texts, is_only_sorted, named_in
from headrace.plan.dates import plan_at
from headrace.plan.nodes import Aggregate, Node, Window, walk
from headrace.plan.query import OutputColumn, Query
from headrace.plan.types import has_floats
from headrace.plan.zeros import with_zeros_told_apart
from headrace.refresh.compute import evaluated, leaves_at
from headrace.refresh.outlook import SOURCE_GONE
from headrace.refresh.stored import Stored, read_stored, readable_versions
from headrace.storage.delta import DeltaLogs

TOLERANCE = 1e-9
_MOST_COMPARED = 200_000
_Both = tuple[DataFrame, DataFrame]


@dataclass(frozen=True)
class Verdict:
    """`missing` rows are in the query but not in the table, `unexpected` ones the other way round. `ambiguous` means
    that they differ where the query has more than one right answer: rows are equal in the ORDER BY of a window function
    whose value depends on their order, or a function such as first() may choose."""

    equal: bool
    ambiguous: bool
    rows: int
    missing: int
    unexpected: int
    version: int
    sources: dict[str, int]


def verify(spark: SparkSession, logs: DeltaLogs, table: DynamicTable) -> Verdict:
    """Compare the table with its query at the frontier that the table's last commit records."""
    stored = read_stored(logs, table)
    why = _unverifiable(logs, table, stored)
    gone = next((source.name for source in table.query.sources if not logs.exists(source.path)), None)
    if why is None and gone is not None:
        why = f"{gone}, which it reads, does not exist any more"
    if why is not None or stored.note is None:
        raise NotAllowed(
            f"{table.table_name} cannot be verified: {why}.",
            hint=f"Run REFRESH DYNAMIC TABLE {table.table_name} first." if gone is None else SOURCE_GONE,
        )
    frontier = stored.note.frontier
    versions = readable_versions(logs, table.query, frontier)
    expected = evaluated(spark, logs, table.query, versions, frontier.date)
    itself = SourceRange(table.storage_path, True, None, stored.version, True, False, None)
    actual = read_version(spark, logs, itself, stored.version)
    expected = expected.selectExpr(
        *(f"CAST({quote(c.name)} AS {c.type}) AS {quote(c.name)}" for c in table.query.columns)
    )
    compared = _compare(expected, actual, table.query.columns)
    shown = {source.name: frontier.version_of(source.path) or 0 for source in table.query.sources}
    equal = not compared.missing and not compared.unexpected
    ambiguous = not equal and _ambiguous(spark, logs, table.query, versions, frontier.date, (expected, actual))
    return Verdict(equal, ambiguous, *compared, stored.version, shown)


def _ambiguous(
    spark: SparkSession, logs: DeltaLogs, query: Query, versions: dict[str, int], date: str | None, both: _Both
) -> bool:
    """Whether the rows differ only in what the query leaves to chance."""
    if query.plan is None:
        return False
    plan = with_zeros_told_apart(query.plan, None)
    root = plan_at(plan.root, date)
    read = leaves_at(spark, logs, query, versions)

    def by_chance(node: Node) -> Origins:
        if isinstance(node, Aggregate):
            open_calls = [
                call
                for call in node.calls
                if (call.function in CHANCY or call.chance is not None) and not is_only_sorted(plan, call)
            ]
            rows = evaluate(node.child, read) if open_calls else None
            return {call.name: call.function for call in open_calls if rows is None or is_by_chance(rows, node, call)}
        if isinstance(node, Window) and node.order and has_ties(evaluate(node.child, read), node):
            return {function.name: "ties" for function in node.functions}
        return {}

    doubtful = carriers(root, by_chance)
    if not doubtful:
        return False
    if any(named_in(doubtful, *deciding_texts(node)) is not None for node in walk(root)):
        return True
    certain = {public for public, column in query.plan.columns if column.name not in doubtful}
    compared = _compare(*both, [column for column in query.columns if column.name in certain])
    return not compared.missing and not compared.unexpected


def _unverifiable(logs: DeltaLogs, table: DynamicTable, stored: Stored) -> str | None:
    """Why the contents have nothing to be compared with."""
    if stored.note is None:
        return stored.distrust or "it was never loaded"
    if stored.note.generation != table.generation:
        return "its query was replaced and not loaded since"
    names = {source.path: source.name for source in table.query.sources}
    for source in stored.note.frontier.sources:
        if logs.exists(source.path) and logs.snapshot(source.path).table_id != source.table_id:
            return f"{names.get(source.path, source.path)} was dropped and created again since its last refresh"
    return None


class _Compared(NamedTuple):
    rows: int
    missing: int
    unexpected: int


def _compare(expected: DataFrame, actual: DataFrame, columns: Sequence[OutputColumn]) -> _Compared:
    """EXCEPT ALL both ways in one pass: rows of the query count +1, rows of the table −1, equal rows must cancel."""
    comparable = [_comparable(column.name, column.type) for column in columns]
    names = [quote(column.name) for column in columns]
    both = expected.selectExpr(*comparable, "1 AS __hr_side").union(actual.selectExpr(*comparable, "-1 AS __hr_side"))
    balance = both.groupBy(*names).agg(
        F.expr("sum(__hr_side) AS __hr_net"), F.expr("count_if(__hr_side < 0) AS __hr_rows")
    )
    found = balance.selectExpr(
        "coalesce(sum(__hr_rows), 0)",
        "coalesce(sum(CASE WHEN __hr_net > 0 THEN __hr_net END), 0)",
        "coalesce(sum(CASE WHEN __hr_net < 0 THEN -__hr_net END), 0)",
    ).first()
    assert found is not None
    compared = _Compared(*(int(number) for number in found))
    floating = [i for i, column in enumerate(columns) if has_floats(column.type)]
    if not floating or not (compared.missing and compared.unexpected):
        return compared
    uneven = balance.where("__hr_net <> 0").limit(_MOST_COMPARED + 1).drop("__hr_rows").collect()
    if len(uneven) > _MOST_COMPARED:
        return compared  # Too many to pair up: they are reported as they are.
    left = [row[:-1] for row in uneven for _ in range(max(row[-1], 0))]
    right = [row[:-1] for row in uneven for _ in range(max(-row[-1], 0))]
    return _Compared(compared.rows, *_unmatched(left, right, floating))


def _comparable(name: str, type_text: str) -> str:
    """EXCEPT cannot compare maps, nor variants; the sorted entries of one and the JSON of the other say the same."""
    column = quote(name)
    if type_text.lower() == "variant":
        return f"to_json({column}) AS {column}"
    return f"array_sort(map_entries({column})) AS {column}" if type_text.lower().startswith("map<") else column


def _unmatched(left: Sequence[Any], right: Sequence[Any], floating: list[int]) -> tuple[int, int]:
    """How many rows on each side have no partner that is equal but for a rounding of the floating columns."""
    waiting: dict[str, list[list[Any]]] = defaultdict(list)
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


def _split(row: Any, floating: list[int]) -> tuple[str, list[Any]]:
    rest = [value for position, value in enumerate(row) if position not in floating]
    return repr(rest), [row[position] for position in floating]


def _close(one: Any, other: Any) -> bool:
    """Whether two values are equal but for a rounding of the numbers in them."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_close, one, other))
    if not isinstance(one, float) or not isinstance(other, float):
        return bool(one == other)
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=1e-300)
