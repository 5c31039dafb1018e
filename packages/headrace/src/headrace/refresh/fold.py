"""Folding one table (the policy is storage/maintenance.py's)."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from headrace import failpoints
from headrace.catalog.records import DynamicTable
from headrace.ivm.layout import WEIGHT, Grouped, grouped_root, live_rows
from headrace.names import quote
from headrace.refresh.stored import read_stored
from headrace.storage.delta import DeltaLogs
from headrace.storage.maintenance import needs_fold

_ONE_FILE = 100_000
"""Up to so many rows are folded into one file."""
RANGES = 1_000_000
"""From so many rows on, each file gets a range of keys. Finding the ranges takes Spark a job more."""


def partition_columns(table: DynamicTable) -> tuple[str, ...]:
    """The columns of PARTITIONED BY that get folders of their own, with the query's own spelling.

    Text does not: Delta stores an empty partition value as NULL, and the contents would be wrong. It is clustered by
    instead."""
    spelled = {column.name.lower(): column for column in table.query.columns}
    wanted = [spelled[name.lower()] for name in table.partitioned_by]
    return tuple(column.name for column in wanted if column.type.lower() not in ("string", "binary"))


def clustered(rows: DataFrame, table: DynamicTable, at_most: int) -> DataFrame:
    """CLUSTERED BY: whole writes put near values into the same files, where statistics can skip them. Groups lie in the
    order of their keys unless told otherwise: the next changes look them up by these. `at_most` is how
    many rows there may be, as far as is known."""
    folders = {name.lower() for name in partition_columns(table)}
    texts = [name for name in table.partitioned_by if name.lower() not in folders]
    names = [quote(name) for name in (*texts, *table.clustered_by)]
    if names:
        return rows.repartitionByRange(*names).sortWithinPartitions(*names)
    root = grouped_root(table.query.plan)
    return rows if root is None else by_keys(rows, root, at_most)


def by_keys(groups: DataFrame, grouped: Grouped, at_most: int) -> DataFrame:
    """The rows of groups in the order of their keys: a lookup then reads few files, and few pages of them."""
    names = [name for name, _ in grouped.key_columns]
    if not names:
        return groups
    ranges = groups.repartitionByRange(*names) if at_most >= RANGES else groups
    return ranges.sortWithinPartitions(*names)


def fold_is_due(logs: DeltaLogs, table: DynamicTable) -> bool:
    note = read_stored(logs, table).note
    return note is not None and needs_fold(note.live_rows or 0, note.tombstones, note.appends_since_fold) is not None


def fold(spark: SparkSession, logs: DeltaLogs, table: DynamicTable, *, force: bool = False) -> str | None:
    """Rewrite the storage without tombstones when the policy (or `force`) asks for it; gives the reason."""
    stored = read_stored(logs, table)
    note = stored.note
    if note is None:
        return None
    reason = needs_fold(note.live_rows or 0, note.tombstones, note.appends_since_fold)
    if reason is None and not force:
        return None
    failpoints.reach("fold-start")
    contents = spark.read.format("delta").option("versionAsOf", stored.version).load(table.storage_path)
    live = live_rows(contents).where(f"{WEIGHT} > 0")
    folded = replace(note, tombstones=0, appends_since_fold=0, fold=True)
    count = note.live_rows or 0
    few = count <= _ONE_FILE and not table.clustered_by
    (
        clustered(live.coalesce(1) if few else live, table, count)
        .write.format("delta")
        .mode("overwrite")
        .partitionBy(*partition_columns(table))
        .option("dataChange", "false")
        .option("userMetadata", folded.text())
        .save(table.storage_path)
    )
    failpoints.reach("after-fold")
    return reason or "on request"
