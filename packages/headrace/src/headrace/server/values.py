"""Values and types of a result for JSON.

JSON has one kind of number, and most readers keep 53 bits of it. What does not fit, or has no form in JSON, is text:
no digit is lost on the way.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from headrace.names import quote_if_needed

_SAFE = 2**53
_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
    pa.null(): "void",
}
_AS_THEY_ARE = (pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string, pa.types.is_null)


def type_name(kind: pa.DataType) -> str:
    """The type as SQL writes it.

    >>> type_name(pa.list_(pa.decimal128(10, 2))), type_name(pa.struct([("at", pa.timestamp("us", "UTC"))]))
    ('array<decimal(10,2)>', 'struct<at:timestamp>')
    """
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_time(kind):
        return "time"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{quote_if_needed(field.name)}:{type_name(field.type)}' for field in kind)}>"
    return str(kind)


def plain(column: pa.Array, zone: ZoneInfo) -> list[Any]:
    """The column's values as JSON can write them.

    >>> plain(pa.array([1, 2**60]), ZoneInfo("UTC")), plain(pa.array([Decimal("1.10"), None]), ZoneInfo("UTC"))
    ([1, '1152921504606846976'], ['1.10', None])
    """
    try:
        values = column.to_pylist()
        if any(test(column.type) for test in _AS_THEY_ARE):
            return list(values)
        return [_plain(value, column.type, zone) for value in values]
    except (ValueError, OverflowError):
        # A year that Python's calendar does not have, text that is no UTF-8, a struct with two fields of one name.
        return [_carefully(scalar, zone) for scalar in column]


def _plain(value: Any, kind: pa.DataType, zone: ZoneInfo) -> Any:
    if value is None:
        return None
    simple = _SIMPLE.get(type(value))
    if simple is not None:
        return simple(value)
    if isinstance(value, datetime):  # Also pandas' own, for nanoseconds.
        return (value if value.tzinfo is None else value.astimezone(zone)).isoformat()
    if pa.types.is_map(kind):
        return {_key(_plain(k, kind.key_type, zone)): _plain(v, kind.item_type, zone) for k, v in value}
    if isinstance(value, list):
        return [_plain(item, kind.value_type, zone) for item in value]
    if isinstance(value, dict):
        return {field.name: _plain(value[field.name], field.type, zone) for field in kind}
    return str(value)


def _carefully(scalar: pa.Scalar, zone: ZoneInfo) -> Any:
    """One value at a time, by its type: slower, and nothing stops it."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return scalar.as_buffer().to_pybytes().decode("utf-8", "replace")
    if pa.types.is_struct(kind):
        items = [_carefully(scalar[position], zone) for position in range(kind.num_fields)]
        names = [field.name for field in kind]
        return dict(zip(names, items, strict=True)) if len(set(names)) == len(names) else items
    if pa.types.is_map(kind):
        pairs = scalar.values
        keys, items = (pairs.field(position) for position in (0, 1))
        return {_key(_carefully(k, zone)): _carefully(v, zone) for k, v in zip(keys, items, strict=True)}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_carefully(item, zone) for item in scalar.values]
    try:
        return _plain(scalar.as_py(), kind, zone)
    except (ValueError, OverflowError):
        return _far(scalar)


def _far(scalar: pa.Scalar) -> str:
    """A date or time outside the years 1 to 9999, as Arrow writes it: in UTC, where it has a zone."""
    text = str(pc.cast(scalar, pa.string()).as_py())
    return text.replace(" ", "T", 1).replace("Z", "+00:00")


def _key(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _whole(value: int) -> int | str:
    return value if -_SAFE <= value <= _SAFE else str(value)


def _float(value: float) -> float | str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _bytes(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _moment(value: date | time) -> str:
    return value.isoformat()


_SIMPLE: dict[type, Callable[[Any], Any]] = {
    bool: bool,
    int: _whole,
    float: _float,
    str: str,
    Decimal: lambda value: f"{value:f}",
    bytes: _bytes,
    date: _moment,
    time: _moment,
    timedelta: str,
}
