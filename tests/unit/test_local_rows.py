"""Rows that a client sends inside a plan: small on the way, and never large in the server."""

from __future__ import annotations

import resource
from collections.abc import Callable

import pyarrow as pa
import pytest

from headrace.errors import UserError
from headrace.recording.plans import MAX_ROWS_BYTES
from headrace.session.local_rows import MOST_ROWS, read_arrow


def stream(table: pa.Table, **options: object) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def test_plain_rows() -> None:
    table = pa.table(
        {
            "n": [1, 2, None],
            "text": ["a", None, "c"],
            "choice": pa.array(["x", "y", "x"]).dictionary_encode(),
            "list": [[1], [], None],
            "struct": [{"a": 1, "b": None}, None, {"a": 3, "b": [None]}],
            "map": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int32())),
            "nothing": pa.nulls(3),
        }
    )
    assert read_arrow(stream(table)).equals(table)
    empty = table.slice(0, 0)
    assert read_arrow(stream(empty)).num_rows == 0


def many(value: object, count: int) -> pa.Array:
    """One value of a dictionary, named so often."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int8()), pa.array([value]))


HUGE = 2**31 - 1
BOMBS: dict[str, Callable[[], bytes]] = {
    "compressed": lambda: stream(pa.table({"a": pa.array([bytes(2**26)])}), compression="zstd"),
    "nulls": lambda: stream(pa.table({"a": pa.nulls(HUGE)})),
    "nulls in many columns": lambda: stream(pa.table({f"a{n}": pa.nulls(MOST_ROWS) for n in range(20)})),
    "nulls in a list": lambda: stream(
        pa.table({"a": pa.ListArray.from_arrays(pa.array([0, HUGE], pa.int32()), pa.nulls(HUGE))})
    ),
    "nulls in lists of a size": lambda: stream(
        pa.table({"a": pa.FixedSizeListArray.from_arrays(pa.nulls(2**30), 2**20)})
    ),
    "nulls in structs": lambda: stream(
        pa.table({"a": pa.StructArray.from_arrays([pa.nulls(MOST_ROWS)] * 20, [str(n) for n in range(20)])})
    ),
    "a dictionary": lambda: stream(pa.table({"a": many("x" * 2**20, 1000)})),
    "a dictionary of lists": lambda: stream(pa.table({"a": many([0] * 2**17, 1000)})),
    "a dictionary in a list": lambda: stream(
        pa.table({"a": pa.ListArray.from_arrays(pa.array([0, 1000], pa.int32()), many("x" * 2**20, 1000))})
    ),
    "views of one text": lambda: stream(pa.table({"a": pa.array(["x" * 2**20], pa.string_view())})),
    "runs": lambda: stream(pa.table({"a": pa.RunEndEncodedArray.from_arrays([MOST_ROWS], ["x" * 2**20])})),
    "bits": lambda: stream(pa.table({"a": pa.array([False] * (MOST_ROWS + 1))})),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_what_means_more_than_it_weighs(bomb: str) -> None:
    data = BOMBS[bomb]()
    assert len(data) <= MAX_ROWS_BYTES
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError) as raised:
        read_arrow(data)
    assert raised.value.hint
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100 * 1024, f"{grown} KiB more"


@pytest.mark.parametrize("data", [b"", bytes(100), b"\xff" * 4 + bytes(4), b"ARROW1"])
def test_what_is_no_stream(data: bytes) -> None:
    with pytest.raises(UserError, match="rows") as raised:
        read_arrow(data)
    assert raised.value.hint
