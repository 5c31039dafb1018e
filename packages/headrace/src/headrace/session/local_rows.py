"""Rows that a client sends inside a plan, as an Arrow stream of a few MiB.

They can mean far more than that: buffers may be compressed, NULLs without a type have no bytes, one value of a
dictionary stands in many rows, and columns may share their bytes. So what counts is the room that they take once each
value stands for itself.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import UserError
from headrace.loading.arrow_messages import require_plain
from headrace.loading.checked import BadBatch
from headrace.recording.values import bad_plan

MOST_ROWS = 1_000_000
MOST_BYTES = 64 * 1024**2
"""In memory, with every value spelt out."""
_REFERENCE = 8
"""Bytes by which a value is found, at least, whatever it is."""
_IN_PARTS = "Send them in parts, or load them: COPY INTO, or POST /v1/tables/{name}/rows."


def read_arrow(data: bytes) -> pa.Table:
    """The rows of a stream; their size is known before anything is unpacked."""
    buffer = pa.py_buffer(data)
    try:
        require_plain(buffer)
    except BadBatch as error:
        raise bad_plan(f"its rows cannot be used ({error.message.rstrip('.')})") from None
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    try:
        with pa.ipc.open_stream(buffer, options=pa.ipc.IpcReadOptions(ensure_native_endian=False)) as reader:
            for batch in reader:
                rows += batch.num_rows
                if rows > MOST_ROWS:
                    raise UserError(f"These are more than {MOST_ROWS:,} rows.", hint=_IN_PARTS)
                batch.validate(full=True)
                size += sum(spelt_out(column) for column in batch.columns)
                if size > MOST_BYTES:
                    raise UserError(f"These rows take more than {MOST_BYTES // 1024**2} MiB in memory.", hint=_IN_PARTS)
                batches.append(batch)
            return pa.Table.from_batches(batches, reader.schema)
    except _NoSize as error:
        raise UserError(
            f"Rows with a column of {error} cannot be sent.", hint="Cast it to a plain type first: table.cast(…)."
        ) from None
    except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError, NotImplementedError) as error:
        raise bad_plan(f"its rows are no Arrow stream ({type(error).__name__})") from None


class _NoSize(ValueError):
    """Of a type whose values may all be the same bytes: views, runs and unions."""


def spelt_out(array: pa.Array) -> int:
    """The bytes of an array whose every value stands for itself. Raises _NoSize, and pyarrow's errors for an array that
    is not what it says.

    >>> spelt_out(pa.nulls(1000)), pa.nulls(1000).nbytes
    (8000, 0)
    >>> long = pa.array(["x" * 100]).dictionary_encode().take(pa.array([0] * 50))
    >>> spelt_out(long) >= 5000, spelt_out(pa.array([True] * 80))
    (True, 80)
    """
    kind, kinds = array.type, pa.types
    if isinstance(array, pa.ExtensionArray):
        return spelt_out(array.storage)
    if kinds.is_null(kind):
        return _REFERENCE * len(array)
    if kinds.is_dictionary(kind):
        return _REFERENCE * len(array) + _decoded(array.dictionary, array.indices)
    if kinds.is_struct(kind):
        return len(array) + sum(spelt_out(part) for part in array.flatten())
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind) or kinds.is_map(kind):
        return _REFERENCE * len(array) + spelt_out(array.values)
    if kinds.is_nested(kind) or kinds.is_string_view(kind) or kinds.is_binary_view(kind):
        raise _NoSize(f"the type {kind}")
    if kinds.is_run_end_encoded(kind):
        raise _NoSize(f"the type {kind}")
    return max(int(array.nbytes), len(array))


def _decoded(values: pa.Array, indices: pa.Array) -> int:
    """The bytes of these values, each as often as it is named."""
    kind, kinds = values.type, pa.types
    if kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_binary(kind) or kinds.is_large_binary(kind):
        return int(pc.sum(pc.take(pc.binary_length(values), indices)).as_py() or 0)
    if kinds.is_primitive(kind) or kinds.is_fixed_size_binary(kind) or kinds.is_decimal(kind):
        return len(indices) * (int(kind.bit_width) // 8 + 1)
    if kinds.is_null(kind):
        return 0
    raise _NoSize(f"a dictionary of {kind}")
