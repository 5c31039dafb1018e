"""PySpark's types as SQL text, without PySpark.

Types travel as text and are read by Spark's own parser: the JSON form of a type may name a Python class to be loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.errors import NotAllowed
from headrace.names import quote

_OTHER_NAMES = {"null": "void"}


def type_text(written: Any) -> str:
    """The SQL of a type in the form of `DataType.jsonValue()`.

    >>> type_text({"type": "array", "elementType": "integer", "containsNull": True})
    'array<integer>'
    """
    if isinstance(written, str):
        return _OTHER_NAMES.get(written, written)
    kind = written.get("type") if isinstance(written, Mapping) else None
    if kind == "struct":
        return f"struct<{', '.join(_field(each) for each in written['fields'])}>"
    if kind == "array":
        return f"array<{type_text(written['elementType'])}>"
    if kind == "map":
        return f"map<{type_text(written['keyType'])}, {type_text(written['valueType'])}>"
    raise NotAllowed("A type that is a class of this program cannot be sent to a server.", hint="Use the types of SQL.")


def _field(written: Mapping[str, Any]) -> str:
    never_null = "" if written.get("nullable", True) else " NOT NULL"
    return f"{quote(written['name'])}: {type_text(written['type'])}{never_null}"
