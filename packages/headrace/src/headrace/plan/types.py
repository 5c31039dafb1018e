"""Spark's types as SQL text, and what can be done with their values."""

from __future__ import annotations

import re

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from headrace.names import quote_if_needed

_INCOMPARABLE = re.compile(r"\b(MAP<|VARIANT|GEOMETRY|GEOGRAPHY)", re.I)
_FLOATING = re.compile(r"\b(FLOAT|DOUBLE)\b", re.I)
_UNSTORABLE = re.compile(r"\b(INTERVAL|VOID|TIME\()", re.I)


def type_text(kind: DataType) -> str:
    """The type as SQL reads it back: PySpark's own text quotes no field's name.

    >>> from pyspark.sql.types import IntegerType
    >>> type_text(ArrayType(StructType().add("a", IntegerType()).add("b c", MapType(IntegerType(), IntegerType()))))
    'array<struct<a:int,`b c`:map<int,int>>>'
    """
    if isinstance(kind, StructType):
        return f"struct<{','.join(f'{quote_if_needed(each.name)}:{type_text(each.dataType)}' for each in kind)}>"
    if isinstance(kind, ArrayType):
        return f"array<{type_text(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{type_text(kind.keyType)},{type_text(kind.valueType)}>"
    return kind.simpleString()


def has_floats(type_text: str) -> bool:
    """Whether values of the type are floats, or have floats in them: then two that are equal need not be the same, for
    one zero may be negative.

    >>> has_floats("ARRAY<DOUBLE>"), has_floats("decimal(10,2)")
    (True, False)
    """
    return _FLOATING.search(type_text) is not None


def comparable(type_text: str) -> bool:
    """Whether values of the type have a hash and an equality.

    >>> comparable("array<int>"), comparable("MAP<INT, INT>")
    (True, False)
    """
    return _INCOMPARABLE.search(type_text) is None


def storable(type_text: str) -> bool:
    """Whether a table can hold values of the type, if only in a hidden column.

    >>> storable("DATE"), storable("INTERVAL DAY")
    (True, False)
    """
    return _UNSTORABLE.search(type_text) is None
