"""Whole columns at once: from texts and from Arrow's types to a column's own type.

Whatever these functions give is what `values` would give, one by one. Where they are not certain they raise Doubtful,
and the caller looks at the values one by one.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from headrace.loading.types import WHOLE, Array, Map, Scalar, Struct, Type, arrow_type, parts
from headrace.loading.values import FIRST_MICROSECOND, LAST_MICROSECOND

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_FIRST_KNOWN, _LAST_KNOWN = 0, 2_114_380_800_000_000
"""1970 until 2037, in microseconds."""
_UTC = pa.timestamp("us", tz="UTC")
_NAIVE = pa.timestamp("us")
_WHOLE = r"^-?(?:0|[1-9][0-9]{0,18})$"
_NUMBER = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$"
_EXACT = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)$"


class Doubtful(Exception):
    """Some value is none of its type, or may be none."""


def allows_nulls(kind: Type) -> bool:
    """Whether NULL may stand everywhere inside the type. A map's keys are not for this module."""
    for part in parts(kind):
        if isinstance(part, Map) or (isinstance(part, Array) and not part.nulls):
            return False
        if isinstance(part, Struct) and not all(field.nullable for field in part.fields):
            return False
    return True


def from_read(column: pa.ChunkedArray, kind: Type, zone: ZoneInfo) -> pa.ChunkedArray:
    """What Arrow has read from JSON, as the column's own type."""
    if not isinstance(kind, Scalar):
        require_finite(column)
        return column
    if kind.kind in ("float", "double"):
        require_finite(column)
        return singles(column) if kind.kind == "float" else column
    if kind.kind in ("date", "timestamp", "timestamp_ntz", "binary", "string"):
        return from_texts(column, kind, zone)
    return column


def from_texts(column: pa.ChunkedArray, kind: Scalar, zone: ZoneInfo) -> pa.ChunkedArray:
    """Texts as values of the type."""
    wanted = arrow_type(kind)
    if kind.kind == "string":
        return fitting(column, kind)
    if kind.kind == "binary":
        return _decoded(column)
    if kind.kind == "boolean":
        words = pc.utf8_lower(column)
        _require(pc.all(pc.is_in(words, pa.array(["true", "false"]))).as_py(), "it must be true or false")
        return pc.equal(words, "true")
    if kind.kind == "date":
        return days(pc.cast(column, wanted))
    if kind.kind in ("timestamp", "timestamp_ntz"):
        return _moments(column, zone if kind.kind == "timestamp" else None)
    if kind.kind in WHOLE:
        _require_all(column, _WHOLE)
        return pc.cast(column, wanted)
    if kind.kind == "decimal":
        _require_all(column, _EXACT)
        return pc.cast(column, wanted)
    _require_all(column, _NUMBER)
    numbers = pc.cast(column, pa.float64())
    require_finite(numbers)
    return singles(numbers) if kind.kind == "float" else numbers


def _require(holds: bool | None, reason: str) -> None:
    """None stands for "there was no value"."""
    if holds is False:
        raise Doubtful(reason)


def _require_all(column: pa.ChunkedArray, pattern: str) -> None:
    _require(pc.all(pc.match_substring_regex(column, pattern)).as_py(), "it must be a number")


def fitting(column: pa.ChunkedArray, kind: Scalar) -> pa.ChunkedArray:
    """Texts that are no longer than the type allows; a CHAR is filled up."""
    if kind.longest is None:
        return column
    longest = pc.max(pc.utf8_length(column)).as_py()
    if longest is not None and longest > kind.longest:
        raise Doubtful(f"it has more than {kind.longest} characters")
    return pc.utf8_rpad(column, kind.longest) if kind.padded else column


def padding(column: pa.ChunkedArray, kind: Scalar) -> int:
    """At most so many bytes are added when a CHAR is filled up."""
    return (len(column) - column.null_count) * kind.longest if kind.padded and kind.longest is not None else 0


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        values = [
            None if text is None else base64.b64decode(text.encode("ascii"), validate=True)
            for text in column.to_pylist()
        ]
    except (binascii.Error, ValueError):
        raise Doubtful("it must be base64") from None
    return pa.chunked_array([values], pa.binary())


def days(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Days of the years 1 to 9999."""
    _require_between(pc.cast(column, pa.int32()), _FIRST_DAY, _LAST_DAY)
    return column


def moments(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Moments of the years 1 to 9999."""
    _require_between(pc.cast(column, pa.int64()), FIRST_MICROSECOND, LAST_MICROSECOND)
    return column


def _require_between(numbers: pa.ChunkedArray, low: int, high: int) -> None:
    found = pc.min_max(numbers).as_py()
    if found["min"] is not None and (found["min"] < low or found["max"] > high):
        raise Doubtful("it is outside the years 1 to 9999")


def _moments(column: pa.ChunkedArray, zone: ZoneInfo | None) -> pa.ChunkedArray:
    """Arrow takes texts that all name an offset, or texts of which none does."""
    if zone is None:
        return moments(pc.cast(column, _NAIVE))
    try:
        return moments(pc.cast(column, _UTC))
    except pa.ArrowInvalid:
        return moments(in_zone(moments(pc.cast(column, _NAIVE)), zone))


def in_zone(column: pa.ChunkedArray, zone: ZoneInfo) -> pa.ChunkedArray:
    """Local times as moments; those that do not exist or exist twice are refused."""
    found = pc.min_max(pc.cast(column, pa.int64())).as_py()
    if zone.key == "UTC" or found["min"] is None:
        return pc.cast(pc.assume_timezone(column, "UTC"), _UTC)
    if found["min"] >= _FIRST_KNOWN and found["max"] <= _LAST_KNOWN:
        placed = pc.assume_timezone(column, zone.key, ambiguous="raise", nonexistent="raise")
        return pc.cast(placed, _UTC)
    values = [None if count is None else _placed(count, zone) for count in pc.cast(column, pa.int64()).to_pylist()]
    return pa.chunked_array([pa.array(values, _UTC)])


def _placed(count: int, zone: ZoneInfo) -> int:
    """One local time, in microseconds, as a moment. Arrow knows the rules of a zone only until 2037."""
    local = datetime(1970, 1, 1) + timedelta(microseconds=count)  # noqa: DTZ001
    offsets = {local.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta(0) for fold in (0, 1)}
    if len(offsets) > 1:
        raise Doubtful(f"it does not exist in the time zone {zone.key}, or exists twice")
    return count - offsets.pop() // timedelta(microseconds=1)


def require_finite(column: pa.ChunkedArray) -> None:
    """Wherever there are floating-point numbers inside."""
    for leaf in leaves(column):
        if pa.types.is_floating(leaf.type):
            _require(pc.all(pc.is_finite(leaf)).as_py(), "it is no number, or too large")


def leaves(column: pa.ChunkedArray | pa.Array) -> Iterator[pa.Array]:
    """The arrays of values that are in no value's parts."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    for chunk in chunks:
        if pa.types.is_struct(chunk.type):
            for child in chunk.flatten():
                yield from leaves(child)
        elif pa.types.is_map(chunk.type):
            entries = pc.list_flatten(chunk.cast(pa.list_(pa.struct([chunk.type.key_field, chunk.type.item_field]))))
            yield from leaves(entries)
        elif is_list(chunk.type):
            yield from leaves(pc.list_flatten(chunk))
        else:
            yield chunk


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def singles(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers of double precision in single; one that becomes infinite was too large."""
    found = pc.cast(column, pa.float32(), safe=False)
    _require(pc.all(pc.equal(pc.is_inf(found), pc.is_inf(column))).as_py(), "it is too large")
    return found
