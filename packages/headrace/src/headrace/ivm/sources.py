"""Reading sources: their rows at a version, and their changes between two versions, from Delta's change feed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from headrace.ivm.changeset import WEIGHT, Changes, net_if_comparable
from headrace.ivm.layout import VISIBLE, live_rows
from headrace.ivm.layout import WEIGHT as STORED_WEIGHT
from headrace.names import quote
from headrace.plan.nodes import Relation
from headrace.storage.delta import DeltaLogs
from headrace.storage.spread import Spans


@dataclass(frozen=True)
class SourceRange:
    """One source between two versions. `old` is None when nothing was computed from it before."""

    path: str
    is_dynamic: bool
    old: int | None
    new: int
    changed: bool
    insert_only: bool
    rows: int | None
    """How many rows the commits between the versions touched, when their metrics tell."""
    old_rows: int | None = None
    new_rows: int | None = None
    """Later versions with the same rows, where those of `old` and `new` may have been vacuumed away."""


def read_version(spark: SparkSession, logs: DeltaLogs, source: SourceRange, version: int) -> DataFrame:
    """All rows of a source at a version, with its own column names."""
    rows = read_delta(spark, logs, source.path, version)
    if not source.is_dynamic:
        return rows
    live = live_rows(rows)
    return live.where(VISIBLE) if VISIBLE in live.columns else live


def read_delta(spark: SparkSession, logs: DeltaLogs, path: str, version: int, within: Spans | None = None) -> DataFrame:
    """A Delta table at a version; files whose statistics say that they have no row `within` may be left out.

    Spark's own time travel rebuilds the table's state with a job for every read; where the log's file list is all there
    is to it, naming the files is the same read at a fifth of the time (docs/adr/0010)."""
    plain = logs.plain_files(path, version, within)
    if plain is None:
        return spark.read.format("delta").option("versionAsOf", version).load(path)
    schema = StructType.fromJson(json.loads(plain.schema))
    return spark.read.schema(schema).parquet(*plain.files) if plain.files else spark.createDataFrame([], schema)


def relation_rows(relation: Relation, rows: DataFrame) -> DataFrame:
    """A source's rows under the relation's column names."""
    return rows.select(*_columns(relation))


def relation_changes(spark: SparkSession, logs: DeltaLogs, relation: Relation, source: SourceRange) -> Changes | None:
    """The source's changes under the relation's column names; None when it did not change."""
    if not source.changed or source.old is None:
        return None
    terms, only_added = _feed(spark, logs, source)
    if source.is_dynamic:
        # A dynamic table's storage is itself a changelog: a row's own weight counts, and a tombstone that is
        # removed (by a full refresh) gives its row back.
        terms = [(rows, sign * F.col(STORED_WEIGHT).cast("int")) for rows, sign in terms]
        terms = [(rows.where(VISIBLE) if VISIBLE in rows.columns else rows, sign) for rows, sign in terms]
    found = reduce(DataFrame.union, [rows.select(*_columns(relation), sign.alias(WEIGHT)) for rows, sign in terms])
    if not only_added:
        # Files that were replaced as a whole, as by INSERT OVERWRITE: most of their rows may be there again.
        found = net_if_comparable(found, relation.output)
    return Changes(found, source.insert_only and only_added)


def _columns(relation: Relation) -> list[Column]:
    """Without the metadata that they have in the source. It would go with them into hidden columns and state tables,
    and Delta would take these, too, for generated ones, identity columns and the like."""
    return [F.col(quote(own)).alias(column.name, metadata={}) for own, column in relation.columns]


def _feed(spark: SparkSession, logs: DeltaLogs, source: SourceRange) -> tuple[list[tuple[DataFrame, Column]], bool]:
    """The change feed as rows, each with its sign, and whether no file of it says otherwise than that rows came.

    Delta's own reader looks at the table's state for every read; where the log's file lists are all there is to it,
    naming the files is the same read at a fraction of the time (docs/adr/0010)."""
    assert source.old is not None
    sign = F.when(F.col("_change_type").isin("insert", "update_postimage"), 1).otherwise(-1)
    plain = logs.plain_changes(source.path, source.old, source.new)
    if plain is None or not (plain.added or plain.removed or plain.changed):
        feed = (
            spark.read.format("delta")
            .option("readChangeFeed", "true")
            .option("startingVersion", source.old + 1)
            .option("endingVersion", source.new)
            .load(source.path)
        )
        return [(feed, sign)], True
    schema = StructType.fromJson(json.loads(plain.schema))
    with_type = StructType([*schema.fields, StructField("_change_type", StringType())])
    kinds = ((plain.added, schema, F.lit(1)), (plain.removed, schema, F.lit(-1)), (plain.changed, with_type, sign))
    terms = [(spark.read.schema(kind).parquet(*files), weight) for files, kind, weight in kinds if files]
    return terms, not plain.removed
