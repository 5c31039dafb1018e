"""Arrow tables on their way from Spark into a Delta commit."""

from __future__ import annotations

import re

import pyarrow as pa

from headrace.errors import Bug
from headrace.plan.nodes import Column

_SIMPLE = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)", re.I)


def arrow_type(type_text: str) -> pa.DataType | None:
    """The Arrow type of a simple Spark type; None for the others, which Spark writes itself."""
    match = _DECIMAL.fullmatch(type_text)
    if match:
        return pa.decimal128(int(match.group(1)), int(match.group(2)))
    return _SIMPLE.get(type_text.lower())


def committable(columns: tuple[Column, ...]) -> bool:
    """Whether rows of these columns can be committed without Spark."""
    return all(arrow_type(column.type) is not None for column in columns)


def for_delta(rows: pa.Table | None, columns: tuple[Column, ...]) -> pa.Table:
    """The rows with exactly the storage table's columns and types; no rows when None."""
    fields = []
    for column in columns:
        kind = arrow_type(column.type)
        if kind is None:
            raise Bug(f"A {column.type} column cannot be committed without Spark.")
        fields.append(pa.field(column.name, kind))
    schema = pa.schema(fields)
    return schema.empty_table() if rows is None else rows.select(schema.names).cast(schema)
