"""What a column holds, in the words of PEP 249."""

from __future__ import annotations

import time
from datetime import date, datetime
from datetime import time as clock_time

import pyarrow as pa

from headrace.names import quote_if_needed

Date = date
Time = clock_time
Timestamp = datetime
Binary = bytes


def DateFromTicks(ticks: float) -> date:  # noqa: N802 — PEP 249 calls it so
    return date(*time.localtime(ticks)[:3])


def TimeFromTicks(ticks: float) -> clock_time:  # noqa: N802
    return clock_time(*time.localtime(ticks)[3:6])


def TimestampFromTicks(ticks: float) -> datetime:  # noqa: N802
    return datetime(*time.localtime(ticks)[:6])  # noqa: DTZ001 — a local time without a zone is what PEP 249 says


class TypeSet:
    """Equal to the type code of every column whose type is among these.

    >>> NUMBER == "decimal(10,2)", STRING == "bigint"
    (True, False)
    """

    def __init__(self, *names: str) -> None:
        self._names = frozenset(names)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return other.partition("(")[0].partition("<")[0] in self._names
        return self is other

    def __hash__(self) -> int:
        return hash(self._names)


STRING = TypeSet("string")
BINARY = TypeSet("binary")
NUMBER = TypeSet("tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "boolean")
DATETIME = TypeSet("date", "timestamp", "timestamp_ntz", "time")
ROWID = TypeSet()

_NAMES: dict[pa.DataType, str] = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
    pa.null(): "void",
}


def type_code(kind: pa.DataType) -> str:
    """The type as SQL writes it.

    >>> type_code(pa.list_(pa.decimal128(10, 2))), type_code(pa.struct([("a b", pa.int32())]))
    ('array<decimal(10,2)>', 'struct<`a b`:int>')
    """
    plain = _NAMES.get(kind)
    if plain is not None:
        return plain
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is not None else "timestamp_ntz"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{type_code(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_code(kind.key_type)},{type_code(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return "struct<" + ",".join(f"{quote_if_needed(field.name)}:{type_code(field.type)}" for field in kind) + ">"
    return str(kind)


Column = tuple[str, str, None, None, int | None, int | None, bool | None]


def description(schema: pa.Schema) -> list[Column]:
    """PEP 249's seven facts of each column."""
    found: list[Column] = []
    for field in schema:
        decimal = pa.types.is_decimal(field.type)
        precision, scale = (field.type.precision, field.type.scale) if decimal else (None, None)
        found.append((field.name, type_code(field.type), None, None, precision, scale, None))
    return found
