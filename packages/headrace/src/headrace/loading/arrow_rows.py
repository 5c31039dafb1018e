"""Rows in Arrow's own form as rows of a table.

A column of another kind is the whole batch's fault: nothing of it is taken. A value that does not fit is its row's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from headrace.loading import columnar
from headrace.loading.arrow_messages import require_plain, unreadable
from headrace.loading.checked import (
    MOST_ROWS,
    BadBatch,
    Checked,
    Reject,
    joined,
    range_of,
    row_text,
    shown,
    too_many_bytes,
    too_many_rows,
)
from headrace.loading.columnar import Doubtful
from headrace.loading.shapes import Shape
from headrace.loading.types import (
    WHOLE,
    Array,
    Column,
    Map,
    Scalar,
    Struct,
    Type,
    arrow_type,
    is_loadable,
    parts,
    sql_name,
)

_MOST_BYTES = 256 * 1024**2
"""That the rows of a batch may have in memory, and the values of all dictionaries once they stand in every row."""
_REFUSED = (pa.ArrowException, Doubtful, ValueError, OverflowError)


def check(body: bytes, shape: Shape, zone: ZoneInfo) -> Checked:
    """Every row of a batch. Raises BadBatch when its form or its columns do not fit."""
    buffer = pa.py_buffer(body)
    require_plain(buffer)
    try:
        reader = pa.ipc.open_stream(buffer, options=pa.ipc.IpcReadOptions(ensure_native_endian=False))
        fitter = Fitter(reader.schema, shape, zone)
        batches, rows = [], 0
        for batch in reader:
            rows += batch.num_rows
            if rows > MOST_ROWS:
                raise too_many_rows(rows)
            batch.validate(full=True)
            batches.append(batch)
    except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError, NotImplementedError) as error:
        raise unreadable(error) from None
    if not rows:
        raise BadBatch("The batch has no rows.")
    table = pa.Table.from_batches(batches, reader.schema)
    fitter.require_room(table)
    return fitter.check(table)


class Fitter:
    """Brings Arrow tables of one schema into the columns of a table."""

    def __init__(self, given: pa.Schema, shape: Shape, zone: ZoneInfo) -> None:
        self._zone = zone
        self._sources: dict[str, int] = {}
        for place, field in enumerate(given):
            column = shape.by_name.get(field.name.lower())
            _require_usable(field, column)
            assert column is not None
            if column.name in self._sources:
                raise BadBatch(f"Column {column.name} is given twice.")
            self._sources[column.name] = place
            reason = unlike(field.type, column.type, zone)
            if reason is not None:
                raise BadBatch(f"Column {column.name}: {field.type} cannot become {column.sql}: {reason}.")
        for column in shape.columns:
            if column.name not in self._sources and column.role == "given" and not column.nullable:
                raise BadBatch(f"Column {column.name}: it is {column.sql} NOT NULL, and the batch does not give it.")
        wanted = [c for c in shape.columns if c.role != "computed" and is_loadable(c.type)]
        # What the table fills in is left out; what it does not is NULL.
        self.columns = tuple(c for c in wanted if c.name in self._sources or c.role == "given")
        self.schema = pa.schema([pa.field(c.name, arrow_type(c.type)) for c in self.columns])

    def require_room(self, rows: pa.Table) -> None:
        """Raise BatchTooLarge for rows that are far larger in memory than in their stream: columns can share bytes
        there, and a CHAR is filled up."""
        plain = [column for column in rows.columns if not pa.types.is_dictionary(column.type)]
        size = sum(column.nbytes for column in plain) + _decoded_size(rows)
        for column in self.columns:
            place = self._sources.get(column.name)
            if place is not None and isinstance(column.type, Scalar):
                size += columnar.padding(rows.column(place), column.type)
        if size > _MOST_BYTES:
            raise too_many_bytes(_MOST_BYTES)

    def check(self, rows: pa.Table, first: int = 1) -> Checked:
        """`first` is the number of the first row."""
        _decoded_size(rows)
        wrong: dict[int, list[str]] = {}
        arrays = []
        for column, field in zip(self.columns, self.schema, strict=True):
            place = self._sources.get(column.name)
            if place is None:
                arrays.append(pa.chunked_array([pa.nulls(rows.num_rows, field.type)]))
                continue
            given = _plain(column.name, rows.column(place))
            found, bad = self._converted(given, column)
            arrays.append(found)
            for row, reason in bad.items():
                wrong.setdefault(row, []).append(reason)
        numbers = pa.chunked_array([range_of(first, rows.num_rows)])
        fitted = pa.Table.from_arrays(arrays, schema=self.schema)
        if not wrong:
            return Checked(fitted, numbers)
        mask = pa.array([row not in wrong for row in range(rows.num_rows)], pa.bool_())
        rejects = tuple(Reject(first + row, row_text(_written(rows, row)), joined(wrong[row])) for row in sorted(wrong))
        return Checked(fitted.filter(mask), numbers.filter(mask), rejects)

    def _converted(self, given: pa.ChunkedArray, column: Column) -> tuple[pa.ChunkedArray, dict[int, str]]:
        """The column in its own type, with NULL for what is wrong, and why each of these is."""
        convert: Callable[[pa.ChunkedArray], pa.ChunkedArray]
        convert = lambda part: _fitted(part, column.type, self._zone)  # noqa: E731
        bad: dict[int, str] = {}
        pieces: list[pa.Array] = []
        _search(given, convert, 0, pieces, bad)
        wrong = {row: _told(column, given, row, reason) for row, reason in bad.items()}
        if not column.nullable and given.null_count:
            missing = pc.indices_nonzero(pc.is_null(given)).to_pylist()
            reason = f"Column {column.name}: it is {column.sql} NOT NULL, and the row has null."
            wrong |= dict.fromkeys(missing, reason)
        return pa.chunked_array(pieces, arrow_type(column.type)), wrong


def _require_usable(field: pa.Field, column: Column | None) -> None:
    if column is None:
        raise BadBatch(f"There is no column {shown(field.name)}.", hint="DESC TABLE shows the table's columns.")
    if column.role == "computed":
        raise BadBatch(f"Column {column.name} is computed by the table; leave it out.")
    if not is_loadable(column.type):
        raise BadBatch(f"Column {column.name}: values of the type {column.sql} can only be written with SQL.")


def _search(
    given: pa.ChunkedArray,
    convert: Callable[[pa.ChunkedArray], pa.ChunkedArray],
    start: int,
    pieces: list[pa.Array],
    bad: dict[int, str],
) -> None:
    """Convert all, or halves, or halves of these: so few bad values cost few steps."""
    try:
        pieces.extend(convert(given).chunks)
        return
    except _REFUSED as error:
        if len(given) <= 1:
            bad[start] = _reason(error)
            pieces.extend(convert(pa.chunked_array([pa.nulls(len(given), given.type)])).chunks)
            return
    half = len(given) // 2
    for place, count in ((0, half), (half, len(given) - half)):
        # Taken, not sliced: a cast of a slice looks at the parts of all values.
        _search(pc.take(given, range_of(place, count)), convert, start + place, pieces, bad)


def _reason(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["it does not fit"])[0].rstrip(".")[:200]


def _told(column: Column, given: pa.ChunkedArray, row: int, reason: str) -> str:
    return f"Column {column.name}: {shown(_value(given, row))} is no {column.sql}: {reason}."


def _value(column: pa.ChunkedArray, row: int) -> Any:
    try:
        return column[row].as_py()
    except _REFUSED:
        return "a value that cannot be shown"


def _written(rows: pa.Table, row: int) -> str:
    values = {name: _value(column, row) for name, column in zip(rows.column_names, rows.columns, strict=True)}
    return json.dumps(values, ensure_ascii=False, default=str)


# ---------------------------------------------------------------------- types


def unlike(given: pa.DataType, wanted: Type, zone: ZoneInfo | None) -> str | None:
    """Why no value of an Arrow type can be one of the column's; None when they can. `zone` is None inside of others."""
    if pa.types.is_dictionary(given):
        return unlike(given.value_type, wanted, zone) if zone is not None else "dictionaries cannot be parts of values"
    if pa.types.is_null(given):
        return None if zone is not None else "a null type cannot be part of values"
    if isinstance(wanted, Scalar):
        return _unlike_scalar(given, wanted, zone)
    if isinstance(wanted, Array):
        return unlike(given.value_type, wanted.element, None) if columnar.is_list(given) else "it is no list"
    if isinstance(wanted, Map):
        if not pa.types.is_map(given):
            return "it is no map"
        return unlike(given.key_type, wanted.key, None) or unlike(given.item_type, wanted.value, None)
    if isinstance(wanted, Struct):
        return _unlike_struct(given, wanted)
    return "values of this type can only be written with SQL"


def _unlike_struct(given: pa.DataType, wanted: Struct) -> str | None:
    if not pa.types.is_struct(given):
        return "it is no struct"
    names = [field.name for field in given]
    if names != [field.name for field in wanted.fields]:
        return f"its fields are {', '.join(names)[:200] or 'none'}"
    found = (unlike(theirs.type, ours.type, None) for theirs, ours in zip(given, wanted.fields, strict=True))
    return next((reason for reason in found if reason is not None), None)


def _unlike_scalar(given: pa.DataType, wanted: Scalar, zone: ZoneInfo | None) -> str | None:
    whole, kinds = pa.types.is_integer(given), pa.types
    is_text = kinds.is_string(given) or kinds.is_large_string(given)
    is_bytes = kinds.is_binary(given) or kinds.is_large_binary(given) or kinds.is_fixed_size_binary(given)
    if wanted.kind in WHOLE:
        fits = whole or (zone is not None and kinds.is_floating(given))
    elif wanted.kind == "decimal":
        # Arrow takes any scale from a stream, and breaks down when it casts one that cannot be.
        sound = kinds.is_decimal(given) and 0 <= given.scale <= given.precision
        fits = sound or (zone is not None and whole)
    elif wanted.kind == "double":
        fits = kinds.is_floating(given) or whole
    elif wanted.kind == "float":
        fits = kinds.is_floating(given) if zone is not None else given in (pa.float16(), pa.float32())
    elif wanted.kind in ("timestamp", "timestamp_ntz"):
        return _unlike_moment(given, wanted, zone)
    else:
        fits = {
            "boolean": kinds.is_boolean(given), "string": is_text, "binary": is_bytes, "date": kinds.is_date(given),
        }[wanted.kind]  # fmt: skip
    return None if fits else "it is of another kind"


def _unlike_moment(given: pa.DataType, wanted: Scalar, zone: ZoneInfo | None) -> str | None:
    if not pa.types.is_timestamp(given):
        return "it is of another kind"
    if wanted.kind == "timestamp_ntz":
        return None if given.tz is None else "it has a time zone, and the column has none"
    if given.tz is None and zone is None:
        return "as a part of other values it needs a time zone"
    return None


def _decoded_size(rows: pa.Table) -> int:
    """Bytes of all columns that have a dictionary, once its values stand in every row. Raises BadBatch when these are
    too many."""
    size = 0
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if not pa.types.is_dictionary(column.type):
            continue
        kind, kinds = column.type.value_type, pa.types
        if kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_binary(kind) or kinds.is_large_binary(kind):
            try:
                lengths = (pc.take(pc.binary_length(chunk.dictionary), chunk.indices) for chunk in column.chunks)
                size += sum(pc.sum(found).as_py() or 0 for found in lengths)
            except pa.ArrowException as error:
                raise _unreadable_dictionary(name, error) from None
        elif kinds.is_primitive(kind) or kinds.is_fixed_size_binary(kind) or kinds.is_decimal(kind):
            size += len(column) * kind.bit_width // 8
    if size > _MOST_BYTES:
        raise BadBatch("The dictionaries are too large for the rows.", hint="Send fewer rows at once.")
    return size


def _unreadable_dictionary(name: str, error: Exception) -> BadBatch:
    return BadBatch(f"Column {name}: its dictionary cannot be read: {_reason(error)}.")


def _plain(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without a dictionary."""
    if not pa.types.is_dictionary(column.type):
        return column
    kind = column.type.value_type
    if columnar.is_list(kind) or pa.types.is_struct(kind) or pa.types.is_map(kind) or pa.types.is_dictionary(kind):
        raise BadBatch(f"Column {name}: a dictionary of {kind} is not taken.", hint="Send the values themselves.")
    try:
        return pc.cast(column, kind)
    except pa.ArrowException as error:
        raise _unreadable_dictionary(name, error) from None


# ---------------------------------------------------------------------- values


def _fitted(given: pa.ChunkedArray, wanted: Type, zone: ZoneInfo) -> pa.ChunkedArray:
    """Raises one of _REFUSED when some value does not fit."""
    target = arrow_type(wanted)
    if pa.types.is_null(given.type):
        return pa.chunked_array([pa.nulls(len(given), target)])
    if isinstance(wanted, Scalar):
        return _fitted_scalar(given, wanted, target, zone)
    found = pc.cast(given, target)
    for leaf in columnar.leaves(found):
        if pa.types.is_timestamp(leaf.type):
            columnar.moments(leaf)
        elif pa.types.is_date(leaf.type):
            columnar.days(leaf)
    if not columnar.allows_nulls(wanted) or any(isinstance(p, Scalar) and p.longest for p in parts(wanted)):
        for value in found.to_pylist(maps_as_pydicts=None):
            reason = _wrong_inside(value, wanted)
            if reason is not None:
                raise Doubtful(reason)
    return found


def _fitted_scalar(given: pa.ChunkedArray, wanted: Scalar, target: pa.DataType, zone: ZoneInfo) -> pa.ChunkedArray:
    if wanted.kind == "float" and given.type == pa.float64():
        return columnar.singles(given)
    if wanted.kind == "decimal" and pa.types.is_integer(given.type):
        # Arrow asks that the type has room for the largest number of 64 bits, whatever the numbers are.
        return pc.cast(pc.cast(given, pa.decimal256(20 + wanted.scale, wanted.scale)), target)
    if wanted.kind == "timestamp" and given.type.tz is None:
        return columnar.moments(columnar.in_zone(columnar.moments(pc.cast(given, pa.timestamp("us"))), zone))
    found = pc.cast(given, target)
    if wanted.kind in ("timestamp", "timestamp_ntz"):
        return columnar.moments(found)
    if wanted.kind == "date":
        return columnar.days(found)
    return columnar.fitting(found, wanted) if wanted.kind == "string" else found


def _wrong_inside(value: Any, kind: Type) -> str | None:
    """Why a value with parts is none of its type, after its parts were converted."""
    if value is None:
        return None
    if isinstance(kind, Scalar):
        too_long = kind.longest is not None and len(value) > kind.longest
        return f"a text in it has more than {kind.longest} characters" if too_long else None
    if isinstance(kind, Array):
        return _wrong_among([(item, kind.element, kind.nulls) for item in value])
    if isinstance(kind, Map):
        keys = [json.dumps(key, default=str) for key, _ in value]
        if len(set(keys)) < len(keys):
            return "it has a key twice"
        items = [(item, kind.value, kind.nulls) for _, item in value]
        return _wrong_among([*items, *((key, kind.key, False) for key, _ in value)])
    if isinstance(kind, Struct):
        return _wrong_among([(value[field.name], field.type, field.nullable) for field in kind.fields])
    return f"it is no {sql_name(kind)}"


def _wrong_among(values: list[tuple[Any, Type, bool]]) -> str | None:
    for value, kind, nullable in values:
        reason = f"a {sql_name(kind)} in it must not be NULL" if value is None and not nullable else None
        reason = reason or _wrong_inside(value, kind)
        if reason is not None:
            return reason
    return None
