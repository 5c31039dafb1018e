"""Arrow streams from strangers, against a table's columns."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from headrace.loading import arrow_rows
from headrace.loading.checked import BadBatch, BatchTooLarge, Checked
from unit.test_loading_rows import BERLIN, UTC, array_of, column, map_of, shape, struct_of


def stream(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def check(values: pa.Array, kind: Any, zone: ZoneInfo = UTC, **options: Any) -> Checked:
    return arrow_rows.check(stream(pa.table({"c": values})), shape(column("c", kind, **options)), zone)


def taken(values: pa.Array, kind: Any, zone: ZoneInfo = UTC) -> list[Any]:
    found = check(values, kind, zone)
    assert not found.rejects, found.rejects
    return list(found.rows.column(0).to_pylist())


def errors(values: pa.Array, kind: Any, zone: ZoneInfo = UTC, **options: Any) -> dict[int, str]:
    return {reject.number: reject.error for reject in check(values, kind, zone, **options).rejects}


def moment(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)  # type: ignore[arg-type]


def test_numbers() -> None:
    assert taken(pa.array([1, None, -5], pa.int64()), "byte") == [1, None, -5]
    assert taken(pa.array([1, 2**63 - 1], pa.uint64()), "long") == [1, 2**63 - 1]
    assert taken(pa.array([1.0, -2.0]), "integer") == [1, -2]
    assert taken(pa.array([1, 2], pa.int8()), "double") == [1.0, 2.0]
    assert taken(pa.array([0.1]), "float") == [pytest.approx(0.1, abs=1e-7)]
    assert taken(pa.array([float("nan"), float("inf")]), "double")[1] == float("inf")
    assert taken(pa.array([Decimal("1.50")], pa.decimal128(20, 4)), "decimal(5,2)") == [Decimal("1.50")]
    assert taken(pa.array([123, -5], pa.int64()), "decimal(5,2)") == [Decimal("123.00"), Decimal("-5.00")]
    assert taken(pa.array([7], pa.uint64()), "decimal(38,30)") == [Decimal(7)]
    assert "no TINYINT" in errors(pa.array([1, 300], pa.int32()), "byte")[2]
    assert set(errors(pa.array([1.0, 1.5, float("nan"), 1e300]), "integer")) == {2, 3, 4}
    assert set(errors(pa.array([2**53 + 1, 5], pa.int64()), "double")) == {1}
    assert set(errors(pa.array([1e39, 1.0]), "float")) == {1}
    assert set(errors(pa.array([1000, 1], pa.int64()), "decimal(5,2)")) == {1}
    assert set(errors(pa.array([Decimal("1.505"), Decimal("1.500")], pa.decimal128(10, 3)), "decimal(5,2)")) == {1}


def test_times() -> None:
    assert taken(pa.array([date(2026, 1, 31)]), "date") == [date(2026, 1, 31)]
    assert taken(pa.array([0, 1769817600000], pa.timestamp("ms", "Asia/Tokyo")), "timestamp")[1] == moment(2026, 1, 31)
    naive = pa.array([datetime(2026, 7, 1, 12)], pa.timestamp("us"))
    assert taken(naive, "timestamp", UTC) == [moment(2026, 7, 1, 12)]
    assert taken(naive, "timestamp", BERLIN) == [moment(2026, 7, 1, 10)]
    assert taken(naive, "timestamp_ntz") == [datetime(2026, 7, 1, 12)]
    assert taken(pa.array([datetime(2050, 7, 1, 12)], pa.timestamp("s")), "timestamp", BERLIN) == [
        moment(2050, 7, 1, 10)
    ]
    twice = pa.array(
        [datetime(2026, 10, 25, 2, 30), datetime(2026, 1, 1), datetime(2050, 3, 27, 2, 30)], pa.timestamp("us")
    )
    assert set(errors(twice, "timestamp", BERLIN)) == {1, 3}
    assert set(errors(pa.array([1, 1000], pa.timestamp("ns", "UTC")), "timestamp")) == {1}, "nanoseconds would be lost"
    assert set(errors(pa.array([2**62, 0], pa.timestamp("us", "UTC")), "timestamp")) == {1}
    assert set(errors(pa.array([2**62, 0], pa.timestamp("s", "UTC")), "timestamp")) == {1}
    assert set(errors(pa.array([2**30, 0], pa.date32()), "date")) == {1}


def test_texts_and_bytes() -> None:
    assert taken(pa.array(["a", None], pa.large_string()), "string") == ["a", None]
    assert taken(pa.array([b"ab"], pa.binary(2)), "binary") == [b"ab"]
    assert taken(pa.array(["x", "y", "x", None]).dictionary_encode(), "string") == ["x", "y", "x", None]
    limited = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(2)"}
    assert set(errors(pa.array(["ab", "abc"]), "string", **limited)) == {2}


def test_parts() -> None:
    lists = pa.array([[1, None], [], None], pa.large_list(pa.int64()))
    assert taken(lists, array_of("integer")) == [[1, None], [], None]
    assert set(errors(lists, array_of("integer", nulls=False))) == {1}
    assert set(errors(pa.array([[1], [2**40]], pa.list_(pa.int64())), array_of("integer"))) == {2}
    assert taken(pa.array([[1, 2]], pa.list_(pa.int8(), 2)), array_of("integer")) == [[1, 2]]
    maps = pa.array([[("a", 1)], [("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int32()))
    assert errors(maps, map_of("string", "long"))[2].endswith("it has a key twice.")
    assert taken(maps.slice(0, 1), map_of("string", "long")) == [[("a", 1)]]
    kind = struct_of(column("x", "long", nullable=False), column("y", "string"))
    structs = pa.array(
        [{"x": 1, "y": None}, {"x": None, "y": "b"}, None], pa.struct([("x", pa.int8()), ("y", pa.string())])
    )
    found = check(structs, kind)
    assert found.rows.column(0).to_pylist() == [{"x": 1, "y": None}, None]
    assert [reject.number for reject in found.rejects] == [2]
    assert set(errors(pa.array([[2**62]], pa.list_(pa.timestamp("us", "UTC"))), array_of("timestamp"))) == {1}


def test_null_in_a_column_that_must_not_be() -> None:
    assert errors(pa.array([1, None], pa.int32()), "integer", nullable=False) == {
        2: "Column c: it is INT NOT NULL, and the row has null."
    }
    assert set(errors(pa.nulls(3), "integer", nullable=False)) == {1, 2, 3}
    assert taken(pa.nulls(2), "decimal(5,2)") == [None, None]


@pytest.mark.parametrize(
    ("values", "kind", "words"),
    [
        (pa.array(["1"]), "integer", "Column c: string cannot become INT"),
        (pa.array([1]), "string", "int64 cannot become STRING"),
        (pa.array([1.5]), "decimal(5,2)", "double cannot become DECIMAL(5,2)"),
        (pa.array([b"x"]), "string", "binary cannot become STRING"),
        (pa.array([datetime(2026, 1, 1)], pa.timestamp("us", "UTC")), "timestamp_ntz", "it has a time zone"),
        (pa.array([datetime(2026, 1, 1)], pa.timestamp("us")), "date", "cannot become DATE"),
        (pa.array([[datetime(2026, 1, 1)]], pa.list_(pa.timestamp("us"))), array_of("timestamp"), "needs a time zone"),
        (pa.array([1]), array_of("integer"), "it is no list"),
        (pa.array([[None]], pa.list_(pa.null())), array_of("integer"), "null type"),
        (pa.array([{"y": 1}]), struct_of(column("x", "long")), "its fields are y"),
        (pa.array([{}], pa.struct([])), struct_of(column("x", "long")), "its fields are none"),
        (pa.array([1], pa.duration("s")), "long", "cannot become BIGINT"),
        (pa.array(["x"], pa.string_view()), "string", "cannot become STRING"),
        (pa.array([True]), "long", "bool cannot become BIGINT"),
        (pa.array([1]), "boolean", "cannot become BOOLEAN"),
        (pa.array([1]), "variant", "only be written with SQL"),
    ],
)
def test_columns_of_another_kind_are_refused_whole(values: pa.Array, kind: Any, words: str) -> None:
    with pytest.raises(BadBatch) as raised:
        check(values, kind)
    assert words in raised.value.message


def test_columns_by_name() -> None:
    wide = shape(
        column("id", "long", nullable=False), column("note", "string"), column("d", "integer", CURRENT_DEFAULT="1"),
        column("g", "long", **{"delta.generationExpression": "id + 1"}),
    )  # fmt: skip
    found = arrow_rows.check(stream(pa.table({"ID": [1, 2]})), wide, UTC)
    assert found.rows.to_pylist() == [{"id": 1, "note": None}, {"id": 2, "note": None}]
    for table, words in (
        (pa.table({"id": [1], "x": [1]}), 'no column "x"'),
        (pa.table([[1], [2]], names=["id", "ID"]), "Column id is given twice"),
        (pa.table([[1], [2]], names=["id", "id"]), "Column id is given twice"),
        (pa.table({"note": ["a"]}), "BIGINT NOT NULL, and the batch does not give it"),
        (pa.table({"id": [1], "g": [1]}), "computed by the table"),
        (pa.table({"id": pa.array([], pa.int64())}), "no rows"),
        (pa.table({}), "NOT NULL"),
    ):
        with pytest.raises(BadBatch, match=words):
            arrow_rows.check(stream(table), wide, UTC)


def test_what_is_no_plain_stream() -> None:
    one = shape(column("c", "string"))
    table = pa.table({"c": ["x" * 1000] * 100})
    whole = stream(table)
    for body, words in (
        (b"", "no Arrow stream|cannot be read"),
        (b"garbage", "cannot be read"),
        (b"\xff\xff\xff\xff" + b"\0" * 100, "no Arrow stream|cannot be read"),
        (whole[: len(whole) // 2], "cannot be read"),
        (b'{"c": 1}', "cannot be read"),
        (stream(table, compression="zstd"), "compressed"),
    ):
        with pytest.raises(BadBatch, match=words):
            arrow_rows.check(body, one, UTC)
    with pytest.raises(BatchTooLarge):
        arrow_rows.check(stream(pa.table({"c": pa.nulls(100_001)})), one, UTC)
    bomb = pa.DictionaryArray.from_arrays(pa.array([0] * 90_000, pa.int8()), pa.array(["x" * 1_000_000]))
    with pytest.raises(BadBatch, match="too large"):
        arrow_rows.check(stream(pa.table({"c": bomb})), one, UTC)


def test_texts_that_are_no_utf8() -> None:
    bad = pa.array([b"\xff", b"ok"], pa.binary())
    table = pa.table({"c": bad.view(pa.string())})
    with pytest.raises(BadBatch, match="cannot be read"):
        arrow_rows.check(stream(table), shape(column("c", "string")), UTC)


_FUZZ = """
import random, sys
from zoneinfo import ZoneInfo
from headrace.errors import HeadraceError
from headrace.loading import arrow_rows
from unit.test_loading_arrow import fuzzed
body, shape = fuzzed()
rng = random.Random(int(sys.argv[1]))
taken = 0
for number in range(int(sys.argv[2])):
    changed = bytearray(body)
    for _ in range(rng.choice((1, 1, 2, 8))):
        place = rng.randrange(len(changed))
        changed[place] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
    if rng.random() < 0.2:
        del changed[rng.randrange(len(changed)) :]
    try:
        arrow_rows.check(bytes(changed), shape, ZoneInfo("UTC"))
        taken += 1
    except HeadraceError:
        pass
print(taken)
"""


def fuzzed() -> tuple[bytes, Any]:
    """A stream with many kinds of columns, and a table for it."""
    naive = datetime(2026, 1, 1)
    columns: dict[str, tuple[pa.Array, Any]] = {
        "i": (pa.array([1, None, 3], pa.int32()), "integer"),
        "u": (pa.array([1, None, 3], pa.uint64()), "decimal(20,0)"),
        "f": (pa.array([1, None, 3], pa.float16()), "double"),
        "s": (pa.array(["a", "bc", None]), "string"),
        "S": (pa.array(["a", "bc", None], pa.large_string()), "string"),
        "d": (pa.array(["x", "y", "x"]).dictionary_encode(), "string"),
        "e": (pa.array([b"ab", None, b"cd"], pa.binary(2)), "binary"),
        "l": (pa.array([[1], [], [2, 3]], pa.list_(pa.int64())), array_of("long")),
        "L": (pa.array([["x"], None, []], pa.large_list(pa.string())), array_of("string")),
        "k": (pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int16(), 2)), array_of("integer")),
        "m": (pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int32())), map_of("string", "integer")),
        "t": (pa.array([0, 1, 2], pa.timestamp("us", "UTC")), "timestamp"),
        "w": (pa.array([naive, None, naive], pa.timestamp("ns")), "timestamp"),
        "y": (pa.array([0, 86_400_000, None], pa.date64()), "date"),
        "n": (pa.array([Decimal(1), None, Decimal(2)], pa.decimal128(5, 2)), "decimal(5,2)"),
        "r": (pa.array([{"x": 1}, None, {"x": 2}], pa.struct([("x", pa.int64())])), struct_of(column("x", "long"))),
        "b": (pa.array([True, None, False]), "boolean"),
        "z": (pa.nulls(3), "string"),
    }
    names = [f"{name}{place}" for place, name in enumerate(columns)]
    table = pa.table([values for values, _ in columns.values()], names=names)
    return stream(table), shape(*(column(n, kind) for n, (_, kind) in zip(names, columns.values(), strict=True)))


@pytest.mark.timeout(120)
def test_bytes_changed_at_random_never_bring_the_process_down() -> None:
    """In a process of its own: what Arrow does with bad bytes would end this one."""
    paths = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "packages/headrace/src")]
    seed = str(random.Random(os.environ.get("HEADRACE_TEST_SEED", "1")).randrange(10**6))
    done = subprocess.run(
        [sys.executable, "-c", _FUZZ, seed, "3000"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, f"seed {seed}, exit {done.returncode}: {done.stderr[-2000:]}"
    assert int(done.stdout) > 0


def test_dictionaries_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_rows, "_MOST_BYTES", 100_000)
    for kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(1000)):
        values = pa.array(["x" * 1000] if "string" in str(kind) else [b"x" * 1000], kind)
        ours = "string" if "string" in str(kind) else "binary"

        def batch(rows: int, values: pa.Array = values) -> pa.Array:
            return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int8()), values)

        one = shape(column("c", ours), column("d", ours))
        arrow_rows.check(stream(pa.table({"c": batch(60)})), one, UTC)
        chunks = pa.chunked_array([batch(60), batch(60)])
        with pytest.raises(BadBatch, match="dictionaries are too large"):
            arrow_rows.check(stream(pa.table({"c": chunks})), one, UTC)
        with pytest.raises(BadBatch, match="dictionaries are too large"):
            arrow_rows.check(stream(pa.table({"c": batch(60), "d": batch(60)})), one, UTC)


def test_rows_that_are_too_large_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_rows, "_MOST_BYTES", 100_000)
    with pytest.raises(BatchTooLarge, match="In memory"):
        check(pa.array(["x" * 1000] * 101), "string")
    char = {"__CHAR_VARCHAR_TYPE_STRING": "char(1000)"}
    assert check(pa.array(["x"] * 90), "string", **char).rows.num_rows == 90
    assert check(pa.array([None] * 200, pa.string()), "string", **char).rows.num_rows == 200
    with pytest.raises(BatchTooLarge, match="In memory"):
        check(pa.array(["x"] * 101), "string", **char)
