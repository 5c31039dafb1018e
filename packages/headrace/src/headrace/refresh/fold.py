"""Folding one table (the policy is storage/maintenance.py's)."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from headrace import failpoints
from headrace.catalog.records import DynamicTable
from headrace.ivm.layout import WEIGHT, live_rows
from headrace.refresh.stored import read_stored
from headrace.storage.delta import DeltaLogs
from headrace.storage.maintenance import needs_fold


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
    (
        live.coalesce(spark.sparkContext.defaultParallelism if (note.live_rows or 0) > 100_000 else 1)
        .write.format("delta")
        .mode("overwrite")
        .option("dataChange", "false")
        .option("userMetadata", folded.text())
        .save(table.storage_path)
    )
    failpoints.reach("after-fold")
    return reason or "on request"
