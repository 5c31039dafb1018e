"""Computing what a refresh appends or writes, as storage rows. No commits here."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from headrace.catalog.records import DynamicTable
from headrace.errors import Bug
from headrace.ivm.evaluate import evaluate
from headrace.ivm.layout import Layout, grouped_root, layout_of, live_rows, select_live
from headrace.ivm.rules import RULES, bag, grouped
from headrace.ivm.sources import SourceRange, relation_rows
from headrace.ivm.stages import Stages
from headrace.names import quote
from headrace.plan.nodes import Relation
from headrace.plan.query import Query, Slot
from headrace.plan.render import render
from headrace.refresh.stored import Stored


@dataclass(frozen=True)
class Computed:
    """Storage rows to append. `removals` is how many tombstones there must be among them, where that is known."""

    rows: DataFrame
    technique: str
    removals: int | None = None


def changes_of(
    spark: SparkSession, table: DynamicTable, stored: Stored, stages: Stages, sequence: int
) -> Computed | None:
    """The storage rows of an incremental refresh; None when nothing below the root changed."""
    plan = table.query.plan
    if plan is None or stored.note is None:
        raise Bug("An incremental refresh needs a plan and a frontier.")
    layout = layout_of(table.query)
    contents = spark.read.format("delta").option("versionAsOf", stored.version).load(table.storage_path)
    live = live_rows(contents, tombstones=stored.note.tombstones > 0)
    root = grouped_root(plan)
    if root is not None:
        found = grouped.refresh(stages, root, plan, layout, live, sequence)
        if found is None:
            return None
        return Computed(found.rows, "RECOMPUTE_KEYS" if found.recomputed else "FOLD_STATE")
    result = bag.refresh(stages, plan, layout, live, sequence)
    if result is None:
        return None
    return Computed(result.rows, "APPEND" if result.appends_only else "REPLACE_ROWS", result.removals)


def stages_of(spark: SparkSession, ranges: tuple[SourceRange, ...]) -> Stages:
    return Stages(spark, ranges, RULES)


def whole(
    spark: SparkSession, query: Query, versions: dict[str, int], layout: Layout, sequence: int
) -> DataFrame:
    """The storage rows of a full refresh: all rows of the query with these versions of its sources."""
    root = grouped_root(query.plan)
    if root is None or query.plan is None:
        rows = spark.sql(pinned_text(query, versions)).toDF(*(column.name for column in query.columns))
        return bag.whole(rows, layout, sequence, searchable=query.plan is not None)

    def read(relation: Relation) -> DataFrame:
        source = query.sources[relation.source]
        version = versions[source.path]
        span = SourceRange(source.path, source.kind == "dynamic", None, version, True, False, None)
        return relation_rows(spark, relation, span, version)

    return grouped.whole(evaluate(root.aggregate.child, read), root, query.plan, layout, sequence)


def pinned_text(query: Query, versions: dict[str, int]) -> str:
    """The query's own text with every source at its version: what Spark itself evaluates."""

    def table_at(slot: Slot) -> str:
        source = query.sources[slot.source]
        version = versions[source.path]
        if source.kind == "table":
            return f"{slot.spark_name} VERSION AS OF {version}"
        stored = f"delta.{quote(source.path)} VERSION AS OF {version}"
        text = f"({select_live(source.columns, source.hides_groups, stored)})"
        return text if slot.alias is None else f"{text} AS {quote(slot.alias)}"

    return render(query.bound, table_at)
