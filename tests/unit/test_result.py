"""Results whose values Python, or Arrow, has no word for."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from headrace import dbapi
from headrace.dbapi.cursor import _plain_rows
from headrace.errors import QueryFailed
from headrace.result import Result, _without_void
from headrace.statements.dispatch import as_query_failure

_FAR = pa.array([3_000_000], pa.int32()).cast(pa.date32())
_EARLY = pa.array([-1_000_000], pa.int32()).cast(pa.date32())
_LATE = pa.array([2**60], pa.int64()).cast(pa.timestamp("us", "UTC"))
_NO_TEXT = pa.array([b"\xff"]).view(pa.string())
_LAST_HOUR = pa.array([253_402_300_799_000_000], pa.int64()).cast(pa.timestamp("us", "UTC"))


def table_of(odd: pa.Array) -> pa.Table:
    return pa.table({"fine": pa.array([1] * len(odd)), "odd": odd})


@pytest.mark.parametrize(
    ("odd", "way"),
    [
        (_FAR, "CAST(odd AS STRING)"),
        (_EARLY, "CAST(odd AS STRING)"),
        (_LATE, "CAST(odd AS STRING)"),
        (_LAST_HOUR, "CAST(odd AS STRING)"),
        (pa.array([[None]], pa.list_(pa.date32())).from_arrays([0, 1], _FAR), "CAST(odd AS STRING)"),
        (_NO_TEXT, "CAST(odd AS BINARY)"),
    ],
)
def test_a_value_that_python_cannot_hold_is_told(odd: Any, way: str) -> None:
    table = table_of(odd)
    with pytest.raises(QueryFailed, match="The column odd has a") as told:
        Result(table, zone="Asia/Tokyo").rows  # noqa: B018
    assert told.value.hint is not None
    assert "to_arrow()" in told.value.hint
    assert way in told.value.hint
    assert Result(table).to_arrow() is table
    with pytest.raises(dbapi.DataError, match="The column odd has a") as failed:
        list(_plain_rows(table, "Asia/Tokyo"))
    assert failed.value.code == "QUERY_FAILED"


@pytest.mark.parametrize("odd", [_FAR, _EARLY, _NO_TEXT])
def test_pandas_cannot_hold_it_either(odd: Any) -> None:
    with pytest.raises(QueryFailed, match="The column odd has a"):
        Result(table_of(odd)).to_pandas()


def test_rows_before_the_odd_one_can_be_fetched() -> None:
    days = pa.array([1] * 1000 + [3_000_000], pa.int32()).cast(pa.date32())
    rows = _plain_rows(table_of(days), "UTC")
    assert sum(1 for _, _ in zip(range(1000), rows, strict=False)) == 1000
    with pytest.raises(dbapi.DataError):
        next(rows)


def test_values_without_a_type_are_texts_for_arrow() -> None:
    void = T.NullType()
    inside = T.StructType([T.StructField("v", void, False), T.StructField("n", T.LongType(), False)])
    for kind in (T.ArrayType(void, False), T.MapType(void, void, False), T.ArrayType(inside, False)):
        with pytest.raises(ValueError, match="null type field"):
            to_arrow_schema(T.StructType([T.StructField("c", kind, False)]))
        to_arrow_schema(T.StructType([T.StructField("c", _without_void(kind), False)]))
    same = T.MapType(T.StringType(), T.ArrayType(T.LongType(), False), False)
    assert _without_void(same) == same


class Conflict(PySparkException):
    def getCondition(self) -> str:  # noqa: N802 - PySpark's name
        return "DELTA_CONCURRENT_APPEND.WITH_PARTITION_HINT"


def test_a_conflict_of_two_writes_says_what_to_do() -> None:
    told = as_query_failure(Conflict("Files were added by a concurrent update."), "UPDATE t SET a = 1")
    assert told.hint == "Another statement changed the same table meanwhile: run it again."
    assert as_query_failure(PySparkException("Something else."), "SELECT 1").hint is None
