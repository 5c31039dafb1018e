"""What a statement gives back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from headrace.collecting import Limit, first_rows
from headrace.errors import QueryFailed

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType


_FEW_ROWS = 1000
"""So many are collected as they are, however long they may be."""


class Result:
    """Columns and rows. A statement that gives no rows of its own gives one row with a sentence, `status`."""

    def __init__(self, table: pa.Table, *, zone: str = "UTC", truncated: bool = False) -> None:
        self._table = table
        self._zone = ZoneInfo(zone)
        self.truncated = truncated
        """Whether there were more rows than were wanted."""

    @property
    def columns(self) -> list[str]:
        return list(self._table.column_names)

    @cached_property
    def rows(self) -> list[tuple[Any, ...]]:
        """The rows as plain Python values; timestamps are in the lake's time zone, without saying so."""
        columns = [self._values(name, column) for name, column in zip(self.columns, self._table.columns, strict=True)]
        return list(zip(*columns, strict=True)) if columns else []

    def show(self) -> None:
        """Print the rows for a person."""
        from headrace.display import print_result

        print_result(self)

    def to_arrow(self) -> pa.Table:
        return self._table

    def to_pandas(self) -> pandas.DataFrame:
        try:
            return self._table.to_pandas()
        except (ValueError, OverflowError, pa.ArrowException) as error:
            if isinstance(error, MemoryError):
                raise
            raise _unholdable(self._unholdable_column(), error) from error

    def __iter__(self) -> Any:
        return iter(self.rows)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __repr__(self) -> str:
        return f"<Result of {len(self)} rows: {', '.join(self.columns)}>"

    def _values(self, name: str, column: pa.ChunkedArray) -> list[Any]:
        try:
            return [self._plain(value) for value in column.to_pylist()]
        except (ValueError, OverflowError) as error:
            raise _unholdable(name, error) from error

    def _unholdable_column(self) -> str | None:
        """The first column that pandas does not take."""
        for place, name in enumerate(self.columns):
            try:
                self._table.select([place]).to_pandas()
            except (ValueError, OverflowError, pa.ArrowException):
                return name
        return None

    def _plain(self, value: Any) -> Any:
        if isinstance(value, datetime) and value.tzinfo is not None:
            return value.astimezone(self._zone).replace(tzinfo=None)
        return value


def _unholdable(name: str | None, error: Exception) -> QueryFailed:
    """For a value that Arrow has and Python has not: a year before 1 or after 9999, a text that is no UTF-8."""
    column = "A column" if name is None else f"The column {name}"
    if isinstance(error, UnicodeError) or (isinstance(error, pa.ArrowException) and not isinstance(error, ValueError)):
        return QueryFailed(
            f"{column} has a text that Python cannot hold: it is no UTF-8.",
            hint=f"to_arrow() gives it as it is; CAST({name or '…'} AS BINARY) in the query gives its bytes.",
        )
    return QueryFailed(
        f"{column} has a value that Python cannot hold: {error}.",
        hint=f"to_arrow() gives it as it is; CAST({name or '…'} AS STRING) in the query gives it as text.",
    )


def from_frame(rows: DataFrame, zone: str, limit: Limit | None = None) -> Result:
    """The rows of a DataFrame, computed now, as many as the limit allows. Types that Arrow has no word for come as
    text."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    odd = (T.DayTimeIntervalType, T.YearMonthIntervalType, T.CalendarIntervalType, T.VariantType, T.NullType)
    fields = rows.schema.fields
    sendable = [
        T.StringType() if isinstance(field.dataType, odd) else _without_void(field.dataType) for field in fields
    ]
    if any(kind != field.dataType for kind, field in zip(sendable, fields, strict=True)):
        names = [f"c{position}" for position in range(len(fields))]
        plain = rows.toDF(*names)
        picked = [
            F.col(name).cast(kind) if kind != field.dataType else F.col(name)
            for name, kind, field in zip(names, sendable, fields, strict=True)
        ]
        rows = plain.select(*picked).toDF(*(field.name for field in fields))
    local = _local(rows) if limit is None or _has_local_leaves(rows) else None
    if local is not None:
        return _cut(local, zone, limit)
    try:
        return _collected(rows, zone, limit)
    except pa.ArrowInvalid:
        # PySpark refuses NULLs inside fields that a command (OPTIMIZE, for one) declares as never NULL.
        nested = (T.StructType, T.ArrayType, T.MapType)
        texts = [
            F.col(f"`{field.name}`").cast("string") if isinstance(field.dataType, nested) else F.col(f"`{field.name}`")
            for field in fields
        ]
        return _collected(rows.select(*texts), zone, limit)


def _collected(rows: DataFrame, zone: str, limit: Limit | None) -> Result:
    if limit is None or _gives_few(rows, limit):
        return _cut(rows.toArrow(), zone, limit)
    table, more = first_rows(rows, limit)
    return Result(table, zone=zone, truncated=more)


def _cut(table: pa.Table, zone: str, limit: Limit | None) -> Result:
    wanted = table if limit is None else table.slice(0, limit.rows)
    return Result(wanted, zone=zone, truncated=wanted.num_rows < table.num_rows)


def _gives_few(rows: DataFrame, limit: Limit) -> bool:
    """Whether the query itself says that it gives few rows, as one with a LIMIT does."""
    plan: Any = rows._jdf.queryExecution().analyzed()
    most = plan.maxRows()
    return bool(most.isDefined()) and int(str(most.get())) <= min(limit.rows, _FEW_ROWS)


def _has_local_leaves(rows: DataFrame) -> bool:
    """Whether all rows may stand in the plan itself. Other plans are not optimised to find that out: what is run is
    another one."""
    plan: Any = rows._jdf.queryExecution().analyzed()
    leaves = plan.collectLeaves()
    return all(
        str(leaves.apply(place).nodeName()) in ("LocalRelation", "OneRowRelation", "CommandResult")
        for place in range(leaves.size())
    )


def _without_void(kind: DataType) -> DataType:
    """The type with texts in place of values that have none, as those of array() and map(): Arrow wants them nullable,
    and a map's keys never are."""
    from pyspark.sql import types as T

    if isinstance(kind, T.NullType):
        return T.StringType()
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_without_void(kind.elementType), kind.containsNull)
    if isinstance(kind, T.MapType):
        return T.MapType(_without_void(kind.keyType), _without_void(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, T.StructType):
        return T.StructType(
            [T.StructField(each.name, _without_void(each.dataType), each.nullable, each.metadata) for each in kind]
        )
    return kind


def _local(rows: DataFrame) -> pa.Table | None:
    """The rows that stand in the plan itself, as those of a SHOW or VALUES: had without a task of Spark's, and so also
    while all its cores are busy. None for any other."""
    from pyspark.sql.conversion import LocalDataToArrowConversion
    from pyspark.sql.pandas.types import to_arrow_schema

    plan: Any = rows._jdf.queryExecution().optimizedPlan()
    if str(plan.nodeName()) not in ("LocalRelation", "CommandResult"):
        return None
    if "timestamp" in rows.schema.simpleString() and (time.timezone or time.daylight):
        return None  # PySpark hands such rows over in the time of this machine, where an hour may come twice.
    try:
        found = rows.collect()
    except (ValueError, OverflowError, OSError):  # A moment that Python's datetime does not know.
        return None
    if not found:
        return to_arrow_schema(rows.schema, timezone="UTC").empty_table()
    return LocalDataToArrowConversion.convert(found, rows.schema, use_large_var_types=False)


def from_rows(columns: Sequence[tuple[str, pa.DataType]], rows: Sequence[Sequence[Any]], zone: str = "UTC") -> Result:
    """Rows that we made ourselves, for SHOW, DESC and the like."""
    arrays = [pa.array([row[position] for row in rows], type=kind) for position, (_, kind) in enumerate(columns)]
    return Result(pa.table(arrays, names=[name for name, _ in columns]), zone=zone)


def done(status: str) -> Result:
    """For a statement that gives no rows."""
    return from_rows([("status", pa.string())], [(status,)])


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number of things, for people.

    >>> counted(1, "row"), counted(0, "row"), counted(2, "ordered copy", "ordered copies")
    ('1 row', '0 rows', '2 ordered copies')
    """
    return f"{number} {one if number == 1 else many or f'{one}s'}"
