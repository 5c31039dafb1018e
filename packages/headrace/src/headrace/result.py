"""What a statement gives back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pyarrow as pa

if TYPE_CHECKING:
    import pandas
    from pyspark.sql import DataFrame


class Result:
    """Columns and rows. A statement that gives no rows of its own gives one row with a sentence, `status`."""

    def __init__(self, table: pa.Table, *, zone: str = "UTC") -> None:
        self._table = table
        self._zone = ZoneInfo(zone)

    @property
    def columns(self) -> list[str]:
        return list(self._table.column_names)

    @cached_property
    def rows(self) -> list[tuple[Any, ...]]:
        """The rows as plain Python values; timestamps are in the lake's time zone, without saying so."""
        columns = [[self._plain(value) for value in column.to_pylist()] for column in self._table.columns]
        return list(zip(*columns, strict=True)) if columns else []

    def show(self) -> None:
        """Print the rows for a person."""
        from headrace.display import print_result

        print_result(self)

    def to_arrow(self) -> pa.Table:
        return self._table

    def to_pandas(self) -> pandas.DataFrame:
        return self._table.to_pandas()

    def __iter__(self) -> Any:
        return iter(self.rows)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __repr__(self) -> str:
        return f"<Result of {len(self)} rows: {', '.join(self.columns)}>"

    def _plain(self, value: Any) -> Any:
        if isinstance(value, datetime) and value.tzinfo is not None:
            return value.astimezone(self._zone).replace(tzinfo=None)
        return value


def from_frame(rows: DataFrame, zone: str) -> Result:
    """The rows of a DataFrame, computed now. Types that Arrow has no word for come as text."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    odd = (T.DayTimeIntervalType, T.YearMonthIntervalType, T.CalendarIntervalType, T.VariantType, T.NullType)
    fields = rows.schema.fields
    if any(isinstance(field.dataType, odd) for field in fields):
        names = [f"c{position}" for position in range(len(fields))]
        plain = rows.toDF(*names)
        picked = [
            F.col(name).cast("string") if isinstance(field.dataType, odd) else F.col(name)
            for name, field in zip(names, fields, strict=True)
        ]
        rows = plain.select(*picked).toDF(*(field.name for field in fields))
    try:
        return Result(rows.toArrow(), zone=zone)
    except pa.ArrowInvalid:
        # PySpark refuses NULLs inside fields that a command (OPTIMIZE, for one) declares as never NULL.
        nested = (T.StructType, T.ArrayType, T.MapType)
        texts = [
            F.col(f"`{field.name}`").cast("string") if isinstance(field.dataType, nested) else F.col(f"`{field.name}`")
            for field in fields
        ]
        return Result(rows.select(*texts).toArrow(), zone=zone)


def from_rows(columns: Sequence[tuple[str, pa.DataType]], rows: Sequence[Sequence[Any]], zone: str = "UTC") -> Result:
    """Rows that we made ourselves, for SHOW, DESC and the like."""
    arrays = [pa.array([row[position] for row in rows], type=kind) for position, (_, kind) in enumerate(columns)]
    return Result(pa.table(arrays, names=[name for name, _ in columns]), zone=zone)


def done(status: str) -> Result:
    """For a statement that gives no rows."""
    return from_rows([("status", pa.string())], [(status,)])
