"""Staged evaluation: each operator's changeset is computed once, and what several steps need is materialized first.

Small changesets become local rows; their keys are then pushed into the reads of the other inputs as literals, where
Delta's file statistics can skip. Larger ones are cached for the time of the refresh.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.ivm.changeset import Changes
from headrace.ivm.evaluate import Leaf, evaluate, values
from headrace.ivm.sources import SourceRange, read_version, relation_changes, relation_rows
from headrace.names import quote
from headrace.plan.dates import depends_on_date, own_texts_at, plan_at
from headrace.plan.nodes import Filter, Node, Project, Relation, Values, walk
from headrace.storage.delta import DeltaLogs

LOCAL_ROWS = 20_000
"""Up to so many rows are held in the driver as local rows."""
PUSHED_KEYS = 500
"""Up to so many distinct key values are pushed down as literals."""
_FIRST_YEAR = 1900
"""Dates long ago have other calendars on their way from Python to the JVM."""

Operator = TypeVar("Operator")
Rule = Callable[["Stages", Operator], Changes | None]


class Uncertain(Exception):
    """The changes cannot be computed with certainty, for the reason given: the refresh must compute the whole query."""


class Stages:
    """One refresh's view of its sources: rows before, rows after, and changes of any node of the plan."""

    def __init__(
        self,
        spark: SparkSession,
        logs: DeltaLogs,
        sources: Sequence[SourceRange],
        rules: dict[type, Rule[Any]],
        dates: tuple[str | None, str | None] = (None, None),
    ) -> None:
        """`dates` are the days that current_date stands for, at the old frontier and at the new one."""
        self.spark = spark
        self.old_date, self.new_date = dates
        self._logs = logs
        self._read_already: dict[tuple[str, int], DataFrame] = {}
        self.sources = sources
        self._rules = rules
        self._cached: list[DataFrame] = []
        known = [source.rows for source in sources if source.changed]
        self.small = all(rows is not None for rows in known) and sum(rows or 0 for rows in known) <= LOCAL_ROWS
        """The change is known, from the commits' own metrics, to fit in the driver."""
        self.applied: list[str] = []
        """The rules that ran, for the profile."""

    def old(self, node: Node) -> DataFrame:
        """The node's rows at the old frontier."""
        return evaluate(plan_at(node, self.old_date), lambda relation: self._read(relation, old=True))

    def new(self, node: Node) -> DataFrame:
        """The node's rows at the new frontier."""
        return evaluate(plan_at(node, self.new_date), lambda relation: self._read(relation, old=False))

    def changes(self, node: Node) -> Changes | None:
        """The node's changeset; None when nothing below it changed, and Spark then never hears of it."""
        if not self.changed(node):
            return None
        if isinstance(node, Relation):
            found = relation_changes(self.spark, node, self.sources[node.source])
            if found is not None and self.small:
                # One partition needs no exchange before an aggregate or a join.
                found = found.over(found.rows.coalesce(1))
        else:
            self.applied.append(node.kind)
            # Filter and project look at both days themselves.
            today = node if isinstance(node, Filter | Project) else own_texts_at(node, self.new_date)
            found = self._rules[type(node)](self, today)
        return found

    def materialized(self, node: Node) -> Changes | None:
        """The node's changeset, computed now; None when it turned out empty."""
        found = self.changes(node)
        return None if found is None else self.materialize(found)

    def materialize(self, changes: Changes) -> Changes | None:
        if self.small:
            local = self.local(changes.rows)
            if local is not None:
                return None if local.num_rows == 0 else self.from_local(local, changes)
        return Changes(self.cache(changes.rows), changes.insert_only)

    def from_local(self, table: pa.Table, changes: Changes) -> Changes:
        rows = self.spark.createDataFrame(table, schema=changes.rows.schema)
        return Changes(rows.coalesce(1), changes.insert_only, table)

    def local(self, rows: DataFrame) -> pa.Table | None:
        """The rows as an Arrow table, or None when there are too many to hold."""
        table = rows.limit(LOCAL_ROWS + 1).toArrow()
        return table if table.num_rows <= LOCAL_ROWS else None

    def cache(self, rows: DataFrame) -> DataFrame:
        kept = rows.persist()
        self._cached.append(kept)
        return kept

    @property
    def new_day(self) -> bool:
        return self.old_date != self.new_date

    def changed(self, node: Node) -> bool:
        if self.new_day and depends_on_date(node):
            return True
        return any(self.sources[below.source].changed for below in walk(node) if isinstance(below, Relation))

    def narrowed(self, rows: DataFrame, texts: Sequence[str], changes: Changes, keys: Sequence[str]) -> DataFrame:
        """`rows` with what cannot match the few keys of a small changeset already left out.

        `texts` are the key expressions over `rows`, `keys` those over the changeset. This only ever saves reading:
        the join or grouping that follows decides what matches."""
        if changes.local is None:
            return rows
        for text, key in zip(texts, keys, strict=True):
            name = key.strip("`")
            if name in changes.local.column_names:
                values = changes.local.column(name)
            else:
                values = changes.rows.selectExpr(f"{key} AS k").toArrow().column(0)
            condition = _one_of(text, values)
            if condition is not None:
                rows = rows.where(condition)
        return rows

    def close(self) -> None:
        for rows in self._cached:
            rows.unpersist()
        self._cached.clear()

    def _read(self, relation: Leaf, *, old: bool) -> DataFrame:
        if isinstance(relation, Values):
            return values(self.spark, relation)
        source = self.sources[relation.source]
        if old and source.old is not None:
            version = source.old_rows if source.old_rows is not None else source.old
        else:
            version = source.new_rows if source.new_rows is not None else source.new
        rows = self._read_already.get((source.path, version))
        if rows is None:
            rows = read_version(self.spark, self._logs, source, version)
            self._read_already[source.path, version] = rows
        return relation_rows(relation, rows)


def _one_of(text: str, values: pa.ChunkedArray) -> SparkColumn | None:
    """`text` IN the values, NULL included when it is among them; None when that cannot be said in few literals."""
    distinct = values.unique().to_pylist()
    present = [value for value in distinct if value is not None]
    if len(present) > PUSHED_KEYS or not all(map(_pushable, present)):
        return None
    expression = F.expr(text)
    condition = expression.isin(present) if present else F.lit(False)
    return condition | expression.isNull() if len(present) < len(distinct) else condition


def _pushable(value: object) -> bool:
    if isinstance(value, datetime.datetime):
        return False
    if isinstance(value, datetime.date):
        return value.year >= _FIRST_YEAR
    return isinstance(value, int | str)


def names_of(node: Node) -> list[str]:
    return [quote(column.name) for column in node.output]
