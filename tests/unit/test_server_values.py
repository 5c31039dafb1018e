from __future__ import annotations

import json
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from headrace.server.values import plain, type_name

UTC = ZoneInfo("UTC")
TOKYO = ZoneInfo("Asia/Tokyo")
YEAR_10000 = 253402300800 * 1_000_000


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([True, None], pa.bool_(), [True, None]),
        ([2**53, 2**53 + 1, -(2**63)], pa.int64(), [2**53, "9007199254740993", "-9223372036854775808"]),
        ([1.5, float("nan"), float("-inf")], pa.float64(), [1.5, "NaN", "-Infinity"]),
        ([Decimal("1E+3"), Decimal("-0.10")], pa.decimal128(38, 2), ["1000.00", "-0.10"]),
        (["a\0é", ""], pa.string(), ["a\0é", ""]),
        ([b"\x00\xff"], pa.binary(), ["AP8="]),
        ([date(2024, 2, 29)], pa.date32(), ["2024-02-29"]),
        ([time(1, 2, 3)], pa.time64("us"), ["01:02:03"]),
        ([datetime(2024, 1, 2, 3, 4, 5, 6)], pa.timestamp("us"), ["2024-01-02T03:04:05.000006"]),
        ([datetime(2024, 1, 2, tzinfo=timezone.utc)], pa.timestamp("us", "UTC"), ["2024-01-02T09:00:00+09:00"]),
        ([[1, None, 2**60]], pa.list_(pa.int64()), [[1, None, "1152921504606846976"]]),
        ([[(1, "x")], None], pa.map_(pa.int32(), pa.string()), [{"1": "x"}, None]),
        ([{"a": Decimal("1.0"), "b": None}], pa.struct([("a", pa.decimal128(3, 1)), ("b", pa.string())]),
         [{"a": "1.0", "b": None}]),
        ([None, None], pa.null(), [None, None]),
    ],
)  # fmt: skip
def test_a_value_as_json_writes_it(values: list[Any], kind: pa.DataType, expected: list[Any]) -> None:
    found = plain(pa.array(values, kind), TOKYO)
    assert found == expected
    json.dumps(found, allow_nan=False)


def test_years_that_python_does_not_have() -> None:
    moments = pa.array([YEAR_10000, 0, None], pa.timestamp("us", "UTC"))
    assert plain(moments, UTC) == ["10000-01-01T00:00:00.000000+00:00", "1970-01-01T00:00:00+00:00", None]
    assert plain(pa.array([5_000_000], pa.date32()), UTC) == ["15659-07-15"]
    inside = pa.array([[YEAR_10000]], pa.list_(pa.timestamp("us")))
    assert plain(inside, UTC) == [["10000-01-01T00:00:00.000000"]]


def test_the_first_moment_of_the_calendar_in_a_zone_to_the_west() -> None:
    first = pa.array([datetime(1, 1, 1, tzinfo=timezone.utc)], pa.timestamp("us", "UTC"))
    assert plain(first, ZoneInfo("America/New_York"))[0].startswith("0001-01-01T00:00:00")


def test_text_that_is_no_utf_8() -> None:
    text = pa.array([b"\xffa", b"ok"], pa.binary()).view(pa.string())
    assert plain(text, UTC) == ["\ufffda", "ok"]
    in_struct = pa.StructArray.from_arrays([text], names=["t"])
    assert plain(in_struct, UTC) == [{"t": "\ufffda"}, {"t": "ok"}]


def test_a_struct_with_two_fields_of_one_name() -> None:
    both = pa.StructArray.from_arrays([pa.array([1]), pa.array(["x"])], names=["a", "a"])
    assert plain(both, UTC) == [[1, "x"]]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.int8(), "tinyint"),
        (pa.large_string(), "string"),
        (pa.timestamp("us"), "timestamp_ntz"),
        (pa.map_(pa.string(), pa.list_(pa.int32())), "map<string,array<int>>"),
        (pa.null(), "void"),
    ],
)
def test_type_names(kind: pa.DataType, name: str) -> None:
    assert type_name(kind) == name
