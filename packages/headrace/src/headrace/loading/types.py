"""The types of a table's columns, as Delta writes them in its log, and what they are called in SQL and in Arrow."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

ScalarKind = Literal[
    "boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "string", "binary", "date",
    "timestamp", "timestamp_ntz",
]  # fmt: skip

WHOLE: dict[str, int] = {"byte": 8, "short": 16, "integer": 32, "long": 64}
"""Kinds of whole numbers, with their bits."""

_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_SQL = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT"}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_LENGTH = re.compile(r"(char|varchar)\((\d+)\)")
_DECLARED = "__CHAR_VARCHAR_TYPE_STRING"
"""Where Spark notes that a string column was declared as CHAR or VARCHAR."""


@dataclass(frozen=True)
class Scalar:
    kind: ScalarKind
    precision: int = 0
    scale: int = 0
    longest: int | None = None
    """Characters that a VARCHAR or CHAR may have."""
    padded: bool = False
    """A CHAR is filled up with spaces."""


@dataclass(frozen=True)
class Array:
    element: Type
    nulls: bool


@dataclass(frozen=True)
class Map:
    key: Type
    value: Type
    nulls: bool
    """Whether a value may be NULL; a key never is."""


@dataclass(frozen=True)
class Field:
    name: str
    type: Type
    nullable: bool


@dataclass(frozen=True)
class Struct:
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Other:
    """A type whose values can only be written by SQL, such as VARIANT."""

    name: str


Type = Scalar | Array | Map | Struct | Other


def parsed(declared: Any, metadata: Mapping[str, Any] | None = None) -> Type:
    """The type that stands in a Delta schema, from its JSON.

    >>> parsed({"type": "array", "elementType": "decimal(10,2)", "containsNull": True})
    Array(element=Scalar(kind='decimal', precision=10, scale=2, longest=None, padded=False), nulls=True)
    """
    if isinstance(declared, Mapping):
        kind = declared.get("type")
        if kind == "array":
            return Array(parsed(declared["elementType"]), bool(declared["containsNull"]))
        if kind == "map":
            value = parsed(declared["valueType"])
            return Map(parsed(declared["keyType"]), value, bool(declared["valueContainsNull"]))
        if kind == "struct":
            return Struct(
                tuple(
                    Field(str(f["name"]), parsed(f["type"], f.get("metadata")), bool(f["nullable"]))
                    for f in declared["fields"]
                )
            )
        return Other(str(kind))
    return _scalar(str(declared), metadata or {})


def _scalar(name: str, metadata: Mapping[str, Any]) -> Type:
    found = _DECIMAL.fullmatch(name)
    if found:
        return Scalar("decimal", int(found[1]), int(found[2]))
    if name == "string":
        length = _LENGTH.fullmatch(str(metadata.get(_DECLARED, "")))
        return Scalar("string", longest=int(length[2]), padded=length[1] == "char") if length else Scalar("string")
    return Scalar(name) if name in _ARROW else Other(name)  # type: ignore[arg-type]


def arrow_type(kind: Type) -> pa.DataType:
    """How values of the type are kept in Arrow. That a part must not be NULL is not said there, but checked before."""
    if isinstance(kind, Scalar):
        return pa.decimal128(kind.precision, kind.scale) if kind.kind == "decimal" else _ARROW[kind.kind]
    if isinstance(kind, Array):
        return pa.list_(pa.field("element", arrow_type(kind.element)))
    if isinstance(kind, Map):
        return pa.map_(arrow_type(kind.key), arrow_type(kind.value))
    if isinstance(kind, Struct):
        return pa.struct([pa.field(f.name, arrow_type(f.type)) for f in kind.fields])
    return pa.null()


def sql_name(kind: Type) -> str:
    """How SQL writes the type.

    >>> sql_name(Map(Scalar("string"), Array(Scalar("integer"), True), True))
    'MAP<STRING, ARRAY<INT>>'
    """
    if isinstance(kind, Scalar):
        if kind.kind == "decimal":
            return f"DECIMAL({kind.precision},{kind.scale})"
        if kind.longest is not None:
            return f"{'CHAR' if kind.padded else 'VARCHAR'}({kind.longest})"
        return _SQL.get(kind.kind, kind.kind.upper())
    if isinstance(kind, Array):
        return f"ARRAY<{sql_name(kind.element)}>"
    if isinstance(kind, Map):
        return f"MAP<{sql_name(kind.key)}, {sql_name(kind.value)}>"
    if isinstance(kind, Struct):
        return f"STRUCT<{', '.join(f'{f.name}: {sql_name(f.type)}' for f in kind.fields)}>"
    return kind.name.upper()


def parts(kind: Type) -> Iterator[Type]:
    """The type and all types inside it."""
    yield kind
    if isinstance(kind, Array):
        yield from parts(kind.element)
    elif isinstance(kind, Map):
        yield from parts(kind.key)
        yield from parts(kind.value)
    elif isinstance(kind, Struct):
        for each in kind.fields:
            yield from parts(each.type)


def is_loadable(kind: Type) -> bool:
    return not any(isinstance(part, Other) for part in parts(kind))


Role = Literal["given", "default", "computed"]


@dataclass(frozen=True)
class Column:
    name: str
    type: Type
    nullable: bool
    declared: str
    """The type as the log has it, in JSON."""
    role: Role = "given"
    """`default`: the table fills it in where a batch leaves it out. `computed`: only the table does."""
    expression: str | None = None
    """What the table fills it in with, in SQL; None for an identity column."""

    @property
    def sql(self) -> str:
        return sql_name(self.type)


def columns_of(schema: str) -> tuple[Column, ...]:
    """The columns of a Delta schema in JSON."""
    return tuple(_column(field) for field in json.loads(schema)["fields"])


def _column(field: Mapping[str, Any]) -> Column:
    metadata: Mapping[str, Any] = field.get("metadata") or {}
    role: Role = "given"
    expression = None
    if "delta.generationExpression" in metadata:
        role, expression = "computed", str(metadata["delta.generationExpression"])
    elif "delta.identity.start" in metadata:
        role = "default" if _is_true(metadata.get("delta.identity.allowExplicitInsert")) else "computed"
    elif "CURRENT_DEFAULT" in metadata:
        role, expression = "default", str(metadata["CURRENT_DEFAULT"])
    return Column(
        str(field["name"]),
        parsed(field["type"], metadata),
        bool(field["nullable"]),
        json.dumps(_bare(field["type"]), sort_keys=True),
        role,
        expression,
    )


def _bare(declared: Any) -> Any:
    """The type without notes about its parts, such as those of column mapping: two types are alike without them."""
    if not isinstance(declared, Mapping):
        return declared
    found = {key: _bare(value) for key, value in declared.items()}
    if declared.get("type") == "struct":
        found["fields"] = [
            {"name": f["name"], "type": _bare(f["type"]), "nullable": f["nullable"], "metadata": {}}
            for f in declared["fields"]
        ]
    return found


def _is_true(value: Any) -> bool:
    return str(value).lower() == "true"
