"""The first rows of a DataFrame, so many and no more: for clients, who are not given all.

Spark's own LIMIT would bring all rows into one part, or sort them in memory. Here each part of the result gives at most
as many rows as are wanted, and Spark is told to stop as soon as enough have come. Parts come in any order: of a sorted
result a row counts only when all that stand before it are there.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PART = "__hr_part"
_LARGEST = 2**31 - 1


@dataclass(frozen=True)
class Limit:
    """How much of a result is wanted at most."""

    rows: int
    size: int
    """In bytes."""


def first_rows(rows: DataFrame, limit: Limit) -> tuple[pa.Table, bool]:
    """The first rows as PySpark's `toArrow` would give them, and whether there are more."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.errors.exceptions.captured import unwrap_spark_exception
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.serializers import ArrowCollectSerializer
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.util import _load_from_socket

    schema = to_arrow_schema(rows.schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")
    parts: Any = _at_most(rows, limit.rows + 1).select("*", F.spark_partition_id().alias(_PART))
    found = Parts(limit, ordered=_sorts(parts._jdf.queryExecution().optimizedPlan()))
    context: Any = rows.sparkSession.sparkContext
    tag = f"headrace-rows-{uuid.uuid4().hex}"
    context.addJobTag(tag)
    try:
        port, secret, server = parts._jdf.collectAsArrowToPython()
    finally:
        context.removeJobTag(tag)
    serializer: Any = ArrowCollectSerializer
    try:
        with _load_from_socket((port, secret), serializer()) as batches:
            for batch in batches:
                if isinstance(batch, pa.RecordBatch) and found.add(batch):
                    break
    finally:
        if found.enough:  # Not before the stream is closed: Spark's scheduler itself writes to it.
            context.cancelJobsWithTag(tag)
        try:
            with unwrap_spark_exception():
                server.getResult()
        except (PySparkException, Py4JError):
            if not found.enough:
                raise
    wanted, more = found.wanted()
    return (pa.Table.from_batches(wanted) if wanted else schema.empty_table()).cast(schema), more


def _at_most(rows: DataFrame, number: int) -> DataFrame:
    """So many rows of each part. Where the query has a LIMIT of its own, the lower one is the only one."""
    from pyspark.sql import DataFrame

    plan: Any = rows._jdf.queryExecution().analyzed()
    number = min(number, _LARGEST)
    if str(plan.nodeName()) == "GlobalLimit":
        return rows.limit(number)
    session: Any = rows.sparkSession
    jvm = session._jvm
    catalyst = jvm.org.apache.spark.sql.catalyst
    whole = jvm.org.apache.spark.sql.types.DataTypes.IntegerType
    most = catalyst.expressions.Literal.create(number, whole)
    limited = catalyst.plans.logical.LocalLimit(most, plan)
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, limited), session)


def _sorts(plan: Any) -> bool:
    """Whether the order of the rows may mean something."""
    while plan.children().size() == 1:
        if str(plan.nodeName()) == "Sort":
            return True
        plan = plan.children().head()
    return False


class Parts:
    """Batches of rows as they come, each with the number of its part in a last column. Those of one part come one after
    the other; a part without rows does not come at all."""

    def __init__(self, limit: Limit, *, ordered: bool) -> None:
        self._limit = limit
        self._ordered = ordered
        self._batches: dict[int, list[pa.RecordBatch]] = {}
        self._all = _Sum()
        self._before = _Sum()
        """Of the parts before `_next`, which are all there."""
        self._next = 0
        self._sums: dict[int, _Sum] = {}
        self._left_out = False
        self.enough = False
        """Whether no other row is needed."""

    def add(self, batch: pa.RecordBatch) -> bool:
        """Keep the batch; whether it was the last that is needed."""
        part = int(batch.column(batch.num_columns - 1)[0].as_py())
        kept = batch.select(list(range(batch.num_columns - 1)))
        self._batches.setdefault(part, []).append(kept)
        own = self._sums.setdefault(part, _Sum())
        for total in (self._all, own):
            total.add(kept.num_rows, kept.nbytes)
        if not self._ordered:
            self.enough = self._all.exceeds(self._limit)
            return self.enough
        while self._next != part and self._next in self._sums:
            done = self._sums[self._next]
            self._before.add(done.rows, done.size)
            self._next += 1
        present = self._sums.get(self._next, _Sum())
        self.enough = _Sum(self._before.rows + present.rows, self._before.size + present.size).exceeds(self._limit)
        if not self.enough and self._all.exceeds(Limit(2 * self._limit.rows, 2 * self._limit.size)):
            self._leave_out()
        return self.enough

    def _leave_out(self) -> None:
        """What comes after enough others is not needed, whatever is still missing before it."""
        kept = _Sum()
        for part in sorted(self._batches):
            if kept.exceeds(self._limit):
                del self._batches[part]
                self._left_out = True
            else:
                kept.add(self._sums[part].rows, self._sums[part].size)
        self._all = kept

    def wanted(self) -> tuple[list[pa.RecordBatch], bool]:
        """The batches in order, cut to the limit, and whether there are more rows."""
        found: list[pa.RecordBatch] = []
        taken = _Sum()
        for part in sorted(self._batches):
            for batch in self._batches[part]:
                rows = min(batch.num_rows, self._limit.rows - taken.rows)
                room = self._limit.size - taken.size
                if batch.nbytes > room:
                    rows = min(rows, max(int(batch.num_rows * room / batch.nbytes), 0 if found else 1))
                if rows:
                    found.append(batch.slice(0, rows))
                if rows < batch.num_rows:
                    return found, True
                taken.add(rows, batch.nbytes)
        return found, self._left_out or self.enough


@dataclass
class _Sum:
    rows: int = 0
    size: int = 0

    def add(self, rows: int, size: int) -> None:
        self.rows += rows
        self.size += size

    def exceeds(self, limit: Limit) -> bool:
        return self.rows > limit.rows or self.size > limit.size
