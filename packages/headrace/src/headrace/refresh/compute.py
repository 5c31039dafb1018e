"""Computing what a refresh appends or writes, as storage rows. No commits here."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import cache

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from headrace.catalog.records import DynamicTable
from headrace.errors import Bug
from headrace.ivm import stages as stages_module
from headrace.ivm.evaluate import Leaf, Read, evaluate, values
from headrace.ivm.keeping import kept_rows, stored_texts
from headrace.ivm.layout import (
    Layout,
    LiveRows,
    cut_rows,
    grouped_root,
    layout_of,
    live_local,
    live_rows,
    schema_text,
    select_live,
)
from headrace.ivm.rules import RULES, bag, grouped, inner_join
from headrace.ivm.sources import SourceRange, read_delta, read_version, relation_rows
from headrace.ivm.stages import Kept, Ordered, Stages
from headrace.names import quote
from headrace.optimisations import LOCAL_ROWS
from headrace.plan.dates import at_date, plan_at
from headrace.plan.nodes import Plan, Values
from headrace.plan.query import Query, Slot
from headrace.plan.render import render, subquery
from headrace.refresh.stored import Stored
from headrace.storage.arrow import committable, for_delta
from headrace.storage.delta import DeltaLogs


@dataclass(frozen=True)
class Computed:
    """Storage rows to append. `removals` is how many tombstones there must be among them, where that is known."""

    rows: DataFrame
    technique: str
    removals: int | None = None


def changes_of(
    spark: SparkSession, logs: DeltaLogs, table: DynamicTable, stored: Stored, stages: Stages, sequence: int
) -> Computed | None:
    """The storage rows of an incremental refresh; None when nothing below the root changed."""
    plan = table.query.plan
    if plan is None or stored.note is None:
        raise Bug("An incremental refresh needs a plan and a frontier.")
    layout = layout_of(table.query)
    at, counts = (table.storage_path, stored.version), (stored.note.live_rows or 0, stored.note.tombstones)

    @cache
    def live() -> LiveRows:
        return live_table(spark, logs, at, layout, counts, local=stages.uses(LOCAL_ROWS))

    root = grouped_root(plan)
    if root is not None:
        found = grouped.refresh(stages, root, plan, layout, live(), sequence)
        if found is None:
            return None
        return Computed(found.rows, "RECOMPUTE_KEYS" if found.recomputed else "FOLD_STATE")
    result = bag.refresh(stages, plan, layout, lambda: live().rows, sequence)
    if result is None:
        return None
    return Computed(result.rows, "APPEND" if result.appends_only else "REPLACE_ROWS", result.removals)


def live_table(
    spark: SparkSession,
    logs: DeltaLogs,
    at: tuple[str, int],
    layout: Layout,
    counts: tuple[int, int],
    *,
    local: bool,
) -> LiveRows:
    """The live rows of a storage table, `at` a path and version, with so many live rows and tombstones; those of a
    small one as local rows, which saves Spark a scan, an anti-join and their jobs."""
    live, tombstones = counts
    if local and live + 2 * tombstones <= stages_module.LOCAL_ROWS and committable(layout.columns):
        try:
            rows = live_local(for_delta(logs.rows(*at), layout.columns))
            found = spark.createDataFrame(rows, schema=schema_text(layout.columns)).coalesce(1)
            return LiveRows(found, in_driver=True)
        except (ValueError, OverflowError):
            pass  # A date beyond the year 9999 in a file's statistics: Python has none. Spark reads it.
    return LiveRows(live_rows(read_delta(spark, logs, *at), tombstones=tombstones > 0), in_driver=False)


def taken_over(
    spark: SparkSession, logs: DeltaLogs, before: DynamicTable, after: DynamicTable, stored: Stored, sequence: int
) -> DataFrame | str | None:
    """The storage rows of a table with another query, from those it stores now, without reading a source. When they do
    not tell enough, why, or None where that takes many words."""
    if stored.note is None:
        return None
    frontier = stored.note.frontier

    def is_new(index: int, column: str) -> bool:
        source = after.query.sources[index]
        version = frontier.version_of(source.path)
        if source.kind != "table" or version is None or logs.snapshot(source.path).renames_columns:
            return False
        return column.lower() not in {name.lower() for name in read_delta(spark, logs, source.path, version).columns}

    texts = stored_texts(before.query, after.query, is_new)
    if texts is None or isinstance(texts, str):
        return texts
    live = live_rows(read_delta(spark, logs, before.storage_path, stored.version))
    return kept_rows(live, texts, after.query, sequence)


def stages_of(
    spark: SparkSession,
    logs: DeltaLogs,
    ranges: tuple[SourceRange, ...],
    plan: Plan,
    dates: tuple[str | None, str | None],
    off: frozenset[str],
    kept: Kept,
    ordered: Ordered,
) -> Stages:
    return Stages(spark, logs, ranges, RULES, plan.root, dates, off, kept, ordered, inner_join.matching)


def whole(
    spark: SparkSession,
    logs: DeltaLogs,
    query: Query,
    versions: dict[str, int],
    date: str | None,
    layout: Layout,
    sequence: int,
) -> DataFrame:
    """The storage rows of a full refresh: all rows of the query with these versions of its sources, on this day."""
    root = None
    if query.plan is not None:
        root = grouped_root(query.plan.model_copy(update={"root": plan_at(query.plan.root, date)}))
    if root is None or query.plan is None:
        rows = evaluated(spark, logs, query, versions, date)
        return bag.whole(rows, layout, sequence, searchable=query.plan is not None)

    rows = evaluate(root.aggregate.child, leaves_at(spark, logs, query, versions))
    return grouped.whole(rows, root, query.plan, layout, sequence)


def leaves_at(spark: SparkSession, logs: DeltaLogs, query: Query, versions: dict[str, int]) -> Read:
    """How to read the leaves of the query's plan with every source at its version."""

    def read(leaf: Leaf) -> DataFrame:
        if isinstance(leaf, Values):
            return values(spark, leaf)
        source = query.sources[leaf.source]
        version = versions[source.path]
        span = SourceRange(source.path, source.kind == "dynamic", None, version, True, False, None)
        return relation_rows(leaf, read_version(spark, logs, span, version))

    return read


def evaluated(
    spark: SparkSession, logs: DeltaLogs, query: Query, versions: dict[str, int], date: str | None
) -> DataFrame:
    """The query's own text, evaluated by Spark with every source at its version, on the given day.

    The sources are put in as temporary views over their files, which spares Spark from rebuilding each table's state.
    Where the text needs the table's own name (a column written as `schema.table.column`), VERSION AS OF does it. A day
    cannot be put into a SQL function that may name current_date: then the plan is evaluated, which has its body."""
    if date is not None and query.plan is not None and any(each.kind == "function" for each in query.definitions):
        rows = evaluate(plan_at(query.plan.root, date), leaves_at(spark, logs, query, versions))
        return rows.selectExpr(*(f"{quote(own.name)} AS {quote(public)}" for public, own in query.plan.columns))
    views = {index: f"__hr_{uuid.uuid4().hex}" for index in range(len(query.sources))}
    for index, view in views.items():
        source = query.sources[index]
        span = SourceRange(source.path, source.kind == "dynamic", None, versions[source.path], True, False, None)
        rows = cut_rows(read_version(spark, logs, span, versions[source.path]), source.cut)
        # A column that the query does not read may have another name by now.
        present = {name.lower() for name in rows.columns}
        public = [quote(column.name) for column in source.columns if column.name.lower() in present]
        (rows.select(*public) if public else rows).createTempView(view)
    try:
        rows = spark.sql(_on(date, render(query.bound, lambda slot: _aliased(views[slot.source], slot.alias))))
    except AnalysisException:
        rows = spark.sql(_on(date, pinned_text(query, versions)))
    finally:
        for view in views.values():
            spark.catalog.dropTempView(view)
    names = [column.name for column in query.columns]
    if len(rows.columns) > len(names):  # `schema.table.*`, and a column came since.
        rows = rows.select(*map(quote, names))
    return rows.toDF(*names)


def _on(date: str | None, text: str) -> str:
    return text if date is None else at_date(text, date)


def _aliased(name: str, alias: str | None) -> str:
    return name if alias is None else f"{name} AS {quote(alias)}"


def pinned_text(query: Query, versions: dict[str, int]) -> str:
    """The query's own text with every source at its version: what Spark itself evaluates."""

    def table_at(slot: Slot) -> str:
        source = query.sources[slot.source]
        version = versions[source.path]
        if source.kind == "table":
            return f"{slot.spark_name} VERSION AS OF {version}"
        stored = f"delta.{quote(source.path)} VERSION AS OF {version}"
        return subquery(select_live(source.columns, source.hides_groups, stored, source.cut), slot.alias)

    return render(query.bound, table_at)
