"""Rows from outside, against a table's columns: what is taken, and what is said of the rest."""

from __future__ import annotations

import base64
import json
import math
import re
import time
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.loading import json_rows
from headrace.loading.checked import BadBatch, BatchTooLarge, Checked
from headrace.loading.json_rows import Lines
from headrace.loading.shapes import Shape
from headrace.loading.types import columns_of

UTC = ZoneInfo("UTC")
BERLIN = ZoneInfo("Europe/Berlin")


def column(name: str, kind: Any, *, nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def shape(*columns: dict[str, Any]) -> Shape:
    return Shape("/t", "id", 0, columns_of(json.dumps({"type": "struct", "fields": columns})))


def array_of(element: Any, *, nulls: bool = True) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": nulls}


def map_of(key: str, value: Any, *, nulls: bool = True) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": nulls}


def struct_of(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def check(body: str | bytes, *columns: dict[str, Any], zone: ZoneInfo = UTC) -> Checked:
    return json_rows.check(body.encode() if isinstance(body, str) else body, shape(*columns), zone)


def taken(kind: Any, value: str, zone: ZoneInfo = UTC) -> Any:
    """What becomes of one value, in a batch of its own and among others; both ways must agree."""
    found = check(f'{{"c": {value}}}', column("c", kind), zone=zone)
    if found.rejects:
        raise ValueError(found.rejects[0].error)
    beside = check(f'{{"c": {value}}}\n{{"c": {value}, "no": 1}}', column("c", kind), zone=zone)
    assert len(beside.rejects) == 1
    assert beside.rows.column(0).cast(found.rows.column(0).type).equals(found.rows.column(0)) or _nan(found)
    return found.rows.column(0)[0].as_py()


def _nan(found: Checked) -> bool:
    value = found.rows.column(0)[0].as_py()
    return isinstance(value, float) and math.isnan(value)


def moment(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("byte", "-128", -128),
        ("byte", "127", 127),
        ("short", "32767", 32767),
        ("integer", "2147483647", 2**31 - 1),
        ("long", "-9223372036854775808", -(2**63)),
        ("long", '"9223372036854775807"', 2**63 - 1),
        ("integer", "1.0", 1),
        ("integer", "1e3", 1000),
        ("integer", '"7"', 7),
        ("integer", "-0", 0),
        ("double", "1", 1.0),
        ("double", "1e-999", 0.0),
        ("double", '"NaN"', math.nan),
        ("double", '"-Infinity"', -math.inf),
        ("double", '"1.5"', 1.5),
        ("float", "0.1", 0.10000000149011612),
        ("float", "3.4028234e38", 3.4028234663852886e38),
        ("decimal(10,2)", "1.5", Decimal("1.50")),
        ("decimal(10,2)", '"12345678.99"', Decimal("12345678.99")),
        ("decimal(10,2)", "1.500", Decimal("1.50")),
        ("decimal(10,2)", "1e2", Decimal("100.00")),
        ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
        ("decimal(2,2)", "0.99", Decimal("0.99")),
        ("decimal(10,2)", "0e99999", Decimal("0.00")),
        ("boolean", "true", True),
        ("string", '"ü\\u0000"', "ü\0"),
        ("string", '""', ""),
        ("string", '"NULL"', "NULL"),
        ("binary", '"AP8="', b"\x00\xff"),
        ("binary", '""', b""),
        ("date", '"0001-01-01"', date(1, 1, 1)),
        ("date", '"9999-12-31"', date(9999, 12, 31)),
        ("date", '"2024-02-29"', date(2024, 2, 29)),
        ("timestamp", '"2026-01-31T10:00:00Z"', moment(2026, 1, 31, 10)),
        ("timestamp", '"2026-01-31 10:00:00.123456+02:30"', moment(2026, 1, 31, 7, 30, 0, 123456)),
        ("timestamp", '"2026-01-31T10:00:00.123456000Z"', moment(2026, 1, 31, 10, 0, 0, 123456)),
        ("timestamp", '"2026-01-31T10:00-0130"', moment(2026, 1, 31, 11, 30)),
        ("timestamp", '"2026-01-31"', moment(2026, 1, 31)),
        ("timestamp_ntz", '"2026-01-31T10:00:00.5"', datetime(2026, 1, 31, 10, 0, 0, 500000)),
        (array_of("integer"), "[1, null, 3]", [1, None, 3]),
        (array_of("integer"), "[]", []),
        (array_of(array_of("string")), '[["a"], null, []]', [["a"], None, []]),
        (map_of("string", "integer"), '{"a": 1, "b": null}', [("a", 1), ("b", None)]),
        (map_of("integer", "string"), '{"1": "a", "-2": "b"}', [(1, "a"), (-2, "b")]),
        (map_of("boolean", "date"), '{"true": "2026-01-31"}', [(True, date(2026, 1, 31))]),
        (struct_of(column("x", "integer"), column("Y", "string")), '{"X": 1}', {"x": 1, "Y": None}),
        (
            struct_of(column("at", array_of("timestamp"))),
            '{"at": ["2026-01-31T00:00:00Z"]}',
            {"at": [moment(2026, 1, 31)]},
        ),
    ],
)
def test_values_that_are_taken(kind: Any, value: str, expected: Any) -> None:
    found = taken(kind, value)
    assert found == expected or (isinstance(expected, float) and math.isnan(expected) and math.isnan(found))


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("byte", "128", "c: 128 is no TINYINT: it must be between -128 and 127"),
        ("integer", "2147483648", "no INT: it must be between"),
        ("long", "9223372036854775808", "no BIGINT"),
        ("integer", "1.5", "1.5 is no INT: it must be a whole number"),
        ("integer", "true", "no INT"),
        ("integer", '"1,000"', "no INT"),
        ("integer", '"٣"', "no INT"),
        ("integer", '"007"', "no INT"),
        ("integer", '""', "no INT"),
        ("integer", '" 1"', "no INT"),
        ("integer", "1e999999999", "no INT"),
        ("integer", "1e-999999999", "no INT"),
        ("integer", "1" * 5000, "more than 1000 characters"),
        ("integer", "[1]", '["1"] is no INT'),
        ("integer", "{}", "no INT"),
        ("integer", "1e99999999999999999999", "no INT"),
        ("double", "1e400", "no DOUBLE: it is too large"),
        ("double", "NaN", "NaN is no JSON"),
        ("double", "-Infinity", "no JSON"),
        ("double", '"nan"', "no DOUBLE"),
        ("double", "true", "no DOUBLE"),
        ("double", '"0x10"', "no DOUBLE"),
        ("float", "3.5e38", "no FLOAT: it is too large"),
        ("decimal(10,2)", "1.005", "more than 2 digits after the point"),
        ("decimal(10,2)", "123456789", "more than 8 digits before"),
        ("decimal(10,2)", "1e99999", "more than 8"),
        ("decimal(10,2)", "1e-99999", "after the point"),
        ("decimal(10,2)", '"1,5"', "no DECIMAL(10,2)"),
        ("decimal(10,2)", '"NaN"', "must be a number"),
        ("decimal(10,2)", "1e99999999999999999999", "exponent"),
        ("decimal(10,2)", "true", "must be a number"),
        ("boolean", "1", "1 is no BOOLEAN: it must be true or false"),
        ("boolean", '"true"', "no BOOLEAN"),
        ("string", "1", "1 is no STRING: it must be a text"),
        ("string", "true", "no STRING"),
        ("string", "{}", "no STRING"),
        ("string", '"\\ud800"', "surrogate"),
        ("binary", '"AP8"', "base64"),
        ("binary", '"A P8="', "base64"),
        ("binary", '"ü"', "base64"),
        ("binary", "1", "base64"),
        ("date", '"2026-1-31"', "no DATE"),
        ("date", '"2026-02-30"', "no such day"),
        ("date", '"0000-01-01"', "no such day"),
        ("date", "20260131", "no DATE"),
        ("date", '"2026-01-31T00:00:00Z"', "no DATE"),
        ("date", '"31.01.2026"', "no DATE"),
        ("date", '"10000-01-01"', "no DATE"),
        ("timestamp", "1767225600", "does not tell its unit"),
        ("timestamp", '"2026-01-31T10:00:00.1234567Z"', "more than 6 digits"),
        ("timestamp", '"2026-01-31T24:00:00Z"', "no such time"),
        ("timestamp", '"2026-01-31T10:00:60Z"', "no such time"),
        ("timestamp", '"2026-01-31T10:00:00+25:00"', "offset"),
        ("timestamp", '"0000-06-01T00:00:00Z"', "no such time"),
        ("timestamp", '"0001-01-01T00:00:00+01:00"', "years 1 to 9999"),
        ("timestamp", '"2026-01-31T10:00:00 Europe/Berlin"', "such as"),
        ("timestamp", '"now"', "such as"),
        ("timestamp", "true", "such as"),
        ("timestamp_ntz", '"2026-01-31T10:00:00Z"', "names a time zone, and the column has none"),
        (array_of("integer"), "1", "no ARRAY<INT>: it must be an array"),
        (array_of("integer"), '[1, "x"]', 'c[1]: "x" is no INT'),
        (array_of("integer", nulls=False), "[1, null]", "c[1]: null is no INT: it must not be NULL"),
        (map_of("string", "integer"), "[]", "no MAP<STRING, INT>: it must be an object"),
        (map_of("integer", "integer"), '{"x": 1}', 'c (a key): "x" is no INT'),
        (map_of("integer", "integer"), '{"1": 1, "1.0": 2}', "twice"),
        (map_of("string", "integer", nulls=False), '{"a": null}', 'c["a"]'),
        (map_of("string", "string"), '{"a": 1}', 'c["a"]: 1 is no STRING'),
        (struct_of(column("x", "integer")), '{"y": 1}', 'no field "y"'),
        (struct_of(column("x", "integer")), '{"x": 1, "X": 2}', "twice"),
        (struct_of(column("x", "integer", nullable=False)), "{}", "c.x: null is no INT"),
        (struct_of(column("x", "integer", nullable=False)), '{"x": null}', "c.x"),
        ("string", '{"a": 1, "a": 2}', 'the key "a" is given twice'),
        ("variant", "1", "VARIANT can only be written with SQL"),
        ("interval day to second", '"1"', "only be written with SQL"),
    ],
)
def test_values_that_are_refused(kind: Any, value: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as raised:
        taken(kind, value)
    assert len(str(raised.value)) < 400


def test_times_without_a_zone() -> None:
    at = '"2026-07-01T12:00:00"'
    assert taken("timestamp", at, UTC) == moment(2026, 7, 1, 12)
    assert taken("timestamp", at, BERLIN) == moment(2026, 7, 1, 10)
    for doubtful in ('"2026-03-29T02:30:00"', '"2026-10-25T02:30:00"'):
        with pytest.raises(ValueError, match="does not exist in the time zone Europe/Berlin, or exists twice"):
            taken("timestamp", doubtful, BERLIN)
    assert taken("timestamp", '"2026-10-25T02:30:00+01:00"', BERLIN) == moment(2026, 10, 25, 1, 30)
    assert taken("timestamp", '"1850-01-01T00:00:00"', BERLIN) == moment(1849, 12, 31, 23, 6, 32)
    with pytest.raises(ValueError, match="years 1 to 9999"):
        taken("timestamp", '"0001-01-01T00:00:00"', ZoneInfo("Asia/Tokyo"))


def test_texts_of_limited_length() -> None:
    varchar = column("v", "string", __CHAR_VARCHAR_TYPE_STRING="varchar(3)")
    char = column("c", "string", __CHAR_VARCHAR_TYPE_STRING="char(3)")
    found = check('{"v": "üüü", "c": "a"}\n{"v": "abcd"}\n{"c": "abcd"}', varchar, char)
    assert found.rows.to_pylist() == [{"v": "üüü", "c": "a  "}]
    assert [r.error for r in found.rejects] == [
        'Column v: "abcd" is no VARCHAR(3): it has 4 characters.',
        'Column c: "abcd" is no CHAR(3): it has 4 characters.',
    ]
    assert check('{"v": "abc", "c": "a"}', varchar, char).rows.to_pylist() == [{"v": "abc", "c": "a  "}]


def test_rows_that_are_none() -> None:
    lines = [
        b'{"a": 1}',
        b"",
        b"[1]",
        b"null",
        b'{"a": 1',
        b'{"a": 1} {"a": 2}',
        b'{"a": 1}}',
        b"\xff\xfe",
        b'{"a": "\xff"}',
        b"[" * 50_000,
        b'{"x":' * 50_000,
        b'{"a": 1, "A": 2}',
        b'{"b": null, "a": 2}',
        b'{"a": 1, "b": "x", "c": 1, "d": 2, "e": 3}',
        b'{"a": 01}',
        b"{'a': 1}",
        b'{"a": 1,}',
        b'{"a": NaN}',
        b"\0",
        b'  {"A": 3}\t\r',
        b'{"b": "only"}',
        b'{"\\ud800": 1, "a": 1}',
    ]
    found = check(b"\n".join(lines), column("a", "integer", nullable=False), column("b", "string"))
    assert dict(zip(found.numbers.to_pylist(), found.rows.column("a").to_pylist(), strict=True)) == {1: 1, 13: 2, 20: 3}
    errors = {reject.number: reject.error for reject in found.rejects}
    assert set(errors) == set(range(3, len(lines) + 1)) - {13, 20}
    assert "no JSON object" in errors[3]
    assert "no valid JSON" in errors[5]
    assert "no UTF-8" in errors[8]
    assert "nested too deeply" in errors[10]
    assert "nested too deeply" in errors[11]
    assert errors[12] == "Column a is given twice."
    assert "There is no column" in errors[14]
    assert "NOT NULL, and the row does not give it" in errors[21]
    assert all(len(reject.row) <= 65_536 for reject in found.rejects)
    assert all(reject.error.encode() and reject.row.encode() for reject in found.rejects), "all of it can be written"


def test_many_mistakes_in_a_row_are_told_shortly() -> None:
    columns = [column(f"c{n}", "integer") for n in range(9)]
    row = json.dumps({f"c{n}": "x" * 1000 for n in range(9)})
    error = check(row, *columns).rejects[0].error
    assert error.endswith("And 6 more.")
    assert len(error) < 500


def test_batches_that_are_none() -> None:
    for body in (b"", b"\n\n  \r\n", b"\xef\xbb\xbf"):
        with pytest.raises(BadBatch, match="no rows"):
            check(body, column("a", "integer"))
    with pytest.raises(BatchTooLarge, match="100,001 rows"):
        check(b'{"a":1}\n' * 100_001, column("a", "integer"))
    assert check(b'\xef\xbb\xbf{"a":1}\r\n{"a":2}\r\n', column("a", "integer")).rows.num_rows == 2


def test_long_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    longest, size = "x" * (4 * 1024**2 - len('{"a": ""}')), []
    decode = json_rows.decoded
    monkeypatch.setattr(json_rows, "decoded", lambda text: size.append(len(text)) or decode(text))
    for body in (
        f'{{"a": "{longest}"}}\n{{"a": "{longest}x"}}\n{{"a": "y"}}',
        f'{{"a": "{longest}x"}}\n{{"a": "{longest}"}}\n{{"a": "y"}}',
        f'{{"a": "y"}}\n{{"a": "{longest}"}}\n{{"a": "{longest}x"}}',
    ):
        found = check(body, column("a", "string"))
        assert sorted(len(value) for value in found.rows.column(0).to_pylist()) == [1, len(longest)]
        (reject,) = found.rejects
        assert (len(reject.row), reject.error) == (65_536, "The row is longer than 4 MiB.")
    assert max(size) == 4 * 1024**2, "what is longer is not decoded"
    assert check(f'{{"a": "{longest}x"}}', column("a", "string")).rejects


def test_names_in_another_case_go_the_quick_way() -> None:
    lines = Lines(shape(column("userId", "long"), column("At", "timestamp")), UTC)
    rows = lines._quickly(b'{"userid":1,"AT":"2026-01-31T00:00:00Z"}\n{"userid":2}')
    assert rows is not None
    assert rows.column_names == ["userId", "At"]


def test_defaults_computed_columns_and_other_types() -> None:
    columns = (
        column("a", "integer"),
        column("d", "integer", nullable=False, CURRENT_DEFAULT="7"),
        column("g", "integer", **{"delta.generationExpression": "a + 1"}),
        column("i", "long", nullable=False, **{"delta.identity.start": 1, "delta.identity.allowExplicitInsert": False}),
        column("v", "variant"),
    )
    assert check('{"a": 1}\n{"a": null}', *columns).rows.to_pylist() == [{"a": 1}, {"a": None}]
    found = check('{"a": 1, "d": 2}\n{"a": 2, "d": 3, "v": null}\n{"a": 3}', *columns)
    assert found.rows.to_pylist() == [{"a": 1, "d": 2}, {"a": 2, "d": 3}]
    assert found.rejects[0].error == "Column d has a default: give it in every row (null is a value), or in none."
    assert found.rejects[0].row == '{"a": 3}'
    errors = [r.error for r in check('{"a":1,"g":2}\n{"a":1,"i":2}\n{"a":1,"v":2}\n{"a":1,"d":null}', *columns).rejects]
    assert errors[0] == "Column g is computed by the table; leave it out."
    assert errors[1] == "Column i is computed by the table; leave it out."
    assert errors[2] == "Column v: values of the type VARIANT can only be written with SQL."
    assert errors[3] == "Column d: it is INT NOT NULL, and the row has null."


def test_pieces_of_a_file_agree_about_defaults() -> None:
    lines = Lines(shape(column("a", "integer"), column("d", "integer", CURRENT_DEFAULT="7")), UTC)
    assert lines.check(b'{"a": 1}').rows.to_pylist() == [{"a": 1}]
    later = lines.check(b'{"a": 2}\n{"a": 3, "d": null}\n{"a": 4, "d": 5}', 2)
    assert later.rows.to_pylist() == [{"a": 2}]
    assert [reject.number for reject in later.rejects] == [3, 4]


# ---------------------------------------------------------------------- the quick way and the careful one

_texts = st.one_of(
    st.text(max_size=12),
    st.from_regex(r"[+-]?[0-9]{0,4}\.?[0-9]{0,4}([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.from_regex(
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}(:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,8})?)?)?)?"
        r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)?",
        fullmatch=True,
    ),
    st.datetimes().map(lambda d: d.isoformat()),
    st.datetimes(timezones=st.just(timezone(timedelta(hours=5)))).map(lambda d: d.isoformat()),
    st.dates().map(str),
    st.binary(max_size=6).map(lambda b: base64.b64encode(b).decode()),
    st.sampled_from(
        [
            "NaN",
            "Infinity",
            "true",
            "2026-03-29T02:30:00",
            "2026-10-25T02:30:00",
            "2026-01-01T00:00:00+24:00",
            "0000-01-01",
        ]
    ),
)
_numbers = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.integers(-300, 300).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**10), max_value=10**10).map(str),
    st.sampled_from(
        ["1e400", "1e-400", "-0", "-0.0", "1E5", "NaN", "-Infinity", "1.0", "3.4e38", "3.5e38", "0.1", "1e2"]
    ),
)
_values = st.recursive(
    st.one_of(_numbers, _texts.map(json.dumps), st.sampled_from(["null", "true", "false"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]"),
        st.dictionaries(st.sampled_from(["x", "y", "X", "z"]), inner, max_size=3).map(
            lambda d: "{" + ",".join(f'"{k}":{v}' for k, v in d.items()) + "}"
        ),
    ),
    max_leaves=4,
)
_KINDS: list[Any] = [
    "boolean",
    "byte",
    "integer",
    "long",
    "float",
    "double",
    "decimal(6,2)",
    "decimal(38,10)",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    array_of("integer"),
    array_of("double"),
    array_of("decimal(6,2)"),
    array_of("timestamp"),
    struct_of(column("x", "double"), column("y", array_of("string"))),
    map_of("string", "integer"),
    struct_of(column("x", "integer", nullable=False)),
]


_LIKELY: dict[str, st.SearchStrategy[str]] = {
    "boolean": st.sampled_from(["true", "false"]),
    "byte": st.integers(-130, 130).map(str),
    "integer": st.integers(-(2**31) - 2, 2**31 + 1).map(str),
    "long": st.integers(-(2**63) - 2, 2**63 + 1).map(str),
    "float": _numbers,
    "double": _numbers,
    "decimal(6,2)": st.one_of(
        st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-10_001, max_value=10_001).map(str),
        st.from_regex(r"[+-]?[0-9]{0,4}\.?[0-9]{0,3}([eE][+-]?[0-9])?", fullmatch=True).map(json.dumps),
    ),
    "decimal(38,10)": st.decimals(allow_nan=False, allow_infinity=False, places=10).map(str),
    "string": st.text(max_size=12).map(json.dumps),
    "binary": st.binary(max_size=6).map(lambda b: json.dumps(base64.b64encode(b).decode())),
    "date": st.dates().map(lambda day: f'"{day}"'),
    "timestamp": _texts.map(json.dumps),
    "timestamp_ntz": _texts.map(json.dumps),
}


def _likely(kind: Any) -> st.SearchStrategy[str]:
    """Texts of JSON that are mostly values of the type."""
    if isinstance(kind, str):
        return st.one_of(_LIKELY[kind], _LIKELY[kind], _LIKELY[kind], st.just("null"))
    if kind["type"] == "array":
        return st.lists(_likely(kind["elementType"]), max_size=3).map(lambda items: f"[{','.join(items)}]")
    if kind["type"] == "struct":
        parts = {field["name"]: _likely(field["type"]) for field in kind["fields"]}
        return st.fixed_dictionaries({}, optional=parts).map(
            lambda d: "{" + ",".join(f'"{k}":{v}' for k, v in d.items()) + "}"
        )
    return _values


@st.composite
def _batches(draw: st.DrawFn) -> tuple[Any, list[str]]:
    kind = draw(st.sampled_from(_KINDS))
    return kind, draw(st.lists(_values if draw(st.integers(0, 9)) == 0 else _likely(kind), min_size=1, max_size=3))


@settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))
@given(_batches(), st.sampled_from([UTC, BERLIN]), st.booleans())
def test_the_quick_way_agrees_with_the_careful_one(
    batch: tuple[Any, list[str]], zone: ZoneInfo, nullable: bool
) -> None:
    kind, values = batch
    lines = Lines(shape(column("c", kind, nullable=nullable)), zone)
    body = "\n".join(f'{{"c":{value}}}' for value in values).encode("utf-8", "surrogatepass")
    quick = lines._quickly(body)
    if quick is None:
        return
    lines._quick = False
    careful = lines.check(body)
    assert not careful.rejects, f"only the quick way takes {body!r}: {careful.rejects}"
    same = careful.rows.cast(quick.schema).equals(quick) or repr(careful.rows.to_pylist()) == repr(quick.to_pylist())
    assert same, f"{body!r}: {careful.rows.to_pylist()} or {quick.to_pylist()}"


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(_KINDS), st.binary(max_size=60))
def test_no_bytes_break_it(kind: Any, body: bytes) -> None:
    try:
        found = json_rows.check(body, shape(column("c", kind)), UTC)
    except BadBatch:
        return
    assert found.rows.num_rows + len(found.rejects) == len([line for line in body.split(b"\n") if line.strip(b" \t\r")])


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_the_quick_way_is_taken_for_every_piece_of_a_file(end: bytes) -> None:
    """The last line of a piece has lost its line feed."""
    found = Lines(shape(column("a", "integer")), UTC)._quickly(end.join([b'{"a":1}', b'{"a":2}', b""])[:-1])
    assert found is not None
    assert found.to_pylist() == [{"a": 1}, {"a": 2}]


def test_the_quick_way_is_taken() -> None:
    kinds = [
        "boolean",
        "long",
        "float",
        "double",
        "decimal(6,2)",
        "string",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
    ]
    row = dict(
        zip(
            kinds,
            [True, 1, 0.5, 0.1, 1.25, "ü", "AP8=", "2026-01-31", "2026-01-31T00:00:00Z", "2026-01-31T00:00:00"],
            strict=True,
        )
    )
    wide = shape(
        *(column(kind.replace("(", "_").replace(",", "_").replace(")", ""), kind) for kind in kinds),
        column("p", array_of("integer")),
    )
    named = {kind.replace("(", "_").replace(",", "_").replace(")", ""): value for kind, value in row.items()}
    rows = Lines(wide, UTC)._quickly(json.dumps({**named, "p": [1, 2]}).encode())
    assert rows is not None
    assert rows.schema.types[:2] == [pa.bool_(), pa.int64()]


def test_many_keys_that_are_given_twice() -> None:
    names = [f'"k{number}": 1' for number in range(100_000)]
    started = time.monotonic()
    found = check(f"{{{', '.join([*names, names[-1]])}}}", column("c", "integer"))
    assert 'the key "k99999" is given twice' in found.rejects[0].error
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("beside", [column("d", "string"), column("d", map_of("string", "string"))])
def test_chars_are_not_filled_up_without_end(beside: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_rows, "_MOST_PADDING", 100_000)
    char = column("c", "string", __CHAR_VARCHAR_TYPE_STRING="char(1000)")
    line, other = '{"c": "x"}', '{"c": "x", "no": 1}'
    assert check("\n".join([line] * 100), char, beside).rows.num_rows == 100
    assert check("\n".join(['{"c": null}'] * 200), char, beside).rows.num_rows == 200
    assert check("\n".join([line] * 100 + [other]), char, beside).rows.num_rows == 100
    for lines in ([line] * 101, [*[line] * 60, other, *[line] * 60]):
        with pytest.raises(BatchTooLarge, match="In memory"):
            check("\n".join(lines), char, beside)
