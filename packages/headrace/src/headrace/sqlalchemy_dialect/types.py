"""Column types, to and fro."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import types as sqltypes
from sqlalchemy.sql import compiler
from sqlalchemy.types import TypeEngine, UserDefinedType

_SIMPLE: dict[str, type[TypeEngine[Any]]] = {
    "boolean": sqltypes.BOOLEAN,
    "tinyint": sqltypes.SMALLINT,
    "smallint": sqltypes.SMALLINT,
    "int": sqltypes.INTEGER,
    "integer": sqltypes.INTEGER,
    "bigint": sqltypes.BIGINT,
    "float": sqltypes.REAL,
    "double": sqltypes.DOUBLE,
    "string": sqltypes.String,
    "binary": sqltypes.LargeBinary,
    "date": sqltypes.DATE,
    "timestamp": sqltypes.TIMESTAMP,
    "timestamp_ntz": sqltypes.TIMESTAMP,
    "void": sqltypes.NullType,
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_CHARACTERS = re.compile(r"(?:var)?char\((\d+)\)")


class SparkType(UserDefinedType[Any]):
    """A type that only Spark has a name for, such as array<int>. Its values pass as they are."""

    cache_ok = True

    def __init__(self, text: str) -> None:
        self.text = text

    def get_col_spec(self, **options: Any) -> str:
        return self.text


def from_text(text: str) -> TypeEngine[Any]:
    """The type that DESC TABLE shows.

    >>> from_text("decimal(10,2)"), from_text("bigint"), from_text("array<int>").text
    (DECIMAL(precision=10, scale=2), BIGINT(), 'array<int>')
    """
    kind = text.strip().lower()
    if kind in _SIMPLE:
        return _SIMPLE[kind]()
    if (match := _DECIMAL.fullmatch(kind)) is not None:
        return sqltypes.DECIMAL(int(match[1]), int(match[2]))
    if (match := _CHARACTERS.fullmatch(kind)) is not None:
        return sqltypes.String(int(match[1]))
    return SparkType(text)


class TypeCompiler(compiler.GenericTypeCompiler):
    """The types of CREATE TABLE and CAST."""

    def visit_INTEGER(self, type_: Any, **options: Any) -> str:  # noqa: N802 — SQLAlchemy calls these so
        return "INT"

    def visit_FLOAT(self, type_: Any, **options: Any) -> str:  # noqa: N802
        # Python's float has 53 bits; a FLOAT of Spark's has 24.
        return "FLOAT" if type_.precision is not None and type_.precision <= 24 else "DOUBLE"

    def visit_REAL(self, type_: Any, **options: Any) -> str:  # noqa: N802
        return "FLOAT"

    def visit_DOUBLE(self, type_: Any, **options: Any) -> str:  # noqa: N802
        return "DOUBLE"

    visit_DOUBLE_PRECISION = visit_DOUBLE  # noqa: N815

    def visit_DECIMAL(self, type_: Any, **options: Any) -> str:  # noqa: N802
        # Spark's own default is (10, 0), which would cut every fraction off.
        precision = 38 if type_.precision is None else type_.precision
        scale = type_.scale if type_.scale is not None else 10 if type_.precision is None else 0
        return f"DECIMAL({precision}, {scale})"

    visit_NUMERIC = visit_DECIMAL  # noqa: N815

    def visit_STRING(self, type_: Any, **options: Any) -> str:  # noqa: N802
        return "STRING"

    visit_VARCHAR = visit_NVARCHAR = visit_CHAR = visit_NCHAR = visit_TEXT = visit_CLOB = visit_STRING  # noqa: N815
    visit_UUID = visit_uuid = visit_JSON = visit_TIME = visit_STRING  # noqa: N815

    def visit_BLOB(self, type_: Any, **options: Any) -> str:  # noqa: N802
        return "BINARY"

    visit_BINARY = visit_VARBINARY = visit_large_binary = visit_BLOB  # noqa: N815

    def visit_DATETIME(self, type_: Any, **options: Any) -> str:  # noqa: N802
        return "TIMESTAMP"

    visit_TIMESTAMP = visit_DATETIME  # noqa: N815
