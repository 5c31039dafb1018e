"""Values of nested types, taken by the names of their fields.

Spark casts one struct to another by the places of the fields: from `struct<a,b>` to `struct<b,a>` it swaps what they
hold, and says nothing. So where the fields of two types stand in different orders, a struct is put together anew, field
by field; in arrays and maps as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from dbt_common.exceptions import DbtRuntimeError

from dbt.adapters.headrace.column import quote
from headrace.dbapi.literals import literal

_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`:\s<>,]+))\s*:?\s*")
_NESTED = re.compile(r"\s*(struct|array|map)\s*<", re.IGNORECASE)


@dataclass(frozen=True)
class Struct:
    fields: tuple[tuple[str, Kind], ...]


@dataclass(frozen=True)
class Array:
    element: Kind


@dataclass(frozen=True)
class Map:
    key: Kind
    value: Kind


Kind = str | Struct | Array | Map
"""A type; one without parts is its text."""


def has_fields(type_text: str) -> bool:
    return "struct<" in type_text.lower()


def read(type_text: str) -> Kind:
    """
    >>> read("array<struct<a:int,`b c`:decimal(10,2)>>")
    Array(element=Struct(fields=(('a', 'int'), ('b c', 'decimal(10,2)'))))
    """
    kind, end = _kind_at(type_text, 0)
    if type_text[end:].strip():
        raise DbtRuntimeError(f"The type {type_text} cannot be read.")
    return kind


def value_of(value: Any, type_text: str) -> str:
    """A value that YAML has, or a text with an expression, as an expression of that type.

    >>> value_of([1, None], "array<int>"), value_of("'array(\\\\'a\\\\')'", "array<string>")
    ('array(1, NULL)', "array('a')")
    >>> value_of({"a": [{"b": 1}]}, "struct<a:array<struct<b:int,c:int>>>")
    "named_struct('a', array(named_struct('b', 1, 'c', NULL)))"
    """
    if not isinstance(value, str):
        return _written(value, read(type_text))
    text = value.strip()
    is_quoted = len(text) > 1 and text[0] == text[-1] == "'"
    return text[1:-1].replace("\\'", "'").replace("\\\\", "\\") if is_quoted else text


def _written(value: Any, kind: Kind) -> str:
    match kind, value:
        case Array(element), list():
            parts = [_written(each, element) for each in value]
            return f"array({', '.join(parts)})"
        case Map(key, of), dict():
            parts = [part for one, other in value.items() for part in (_written(one, key), _written(other, of))]
            return f"map({', '.join(parts)})"
        case Struct(fields), dict():
            given = {str(name).lower(): each for name, each in value.items()}
            parts = [part for name, of in fields for part in (literal(name), _written(given.get(name.lower()), of))]
            return f"named_struct({', '.join(parts)})"
    return literal(value)


def _kind_at(text: str, place: int) -> tuple[Kind, int]:
    nested = _NESTED.match(text, place)
    if nested is None:
        return _plain_at(text, place)
    word, place = nested[1].lower(), nested.end()
    if word == "struct":
        return _fields_at(text, place)
    first, place = _kind_at(text, place)
    if word == "array":
        return Array(first), place + 1
    second, place = _kind_at(text, place + 1)
    return Map(first, second), place + 1


def _plain_at(text: str, place: int) -> tuple[Kind, int]:
    """Up to the comma or bracket that ends it; those in parentheses are its own."""
    end, depth = place, 0
    while end < len(text) and (depth or text[end] not in ",>"):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    return text[place:end].strip().lower(), end


def _fields_at(text: str, place: int) -> tuple[Struct, int]:
    fields: list[tuple[str, Kind]] = []
    while place < len(text) and text[place] != ">":
        name = _NAME.match(text, place)
        if name is None:
            raise DbtRuntimeError(f"The type {text} cannot be read.")
        kind, place = _kind_at(text, name.end())
        fields.append((name[1].replace("``", "`") if name[1] else name[2], kind))
        place += text[place : place + 1] == ","
    return Struct(tuple(fields)), place + 1


def written(kind: Kind) -> str:
    """The SQL of a type."""
    if isinstance(kind, Struct):
        return f"struct<{','.join(f'{quote(name)}:{written(each)}' for name, each in kind.fields)}>"
    if isinstance(kind, Array):
        return f"array<{written(kind.element)}>"
    return f"map<{written(kind.key)},{written(kind.value)}>" if isinstance(kind, Map) else kind


def same_fields(one: str, other: str) -> bool:
    """Whether two types differ in the order and the spelling of their fields at most.

    >>> same_fields("struct<a:int,b:map<int,struct<c:int,d:int>>>", "struct<B:map<int,struct<d:int,c:int>>,a:int>")
    True
    >>> same_fields("struct<a:int,b:int>", "struct<a:int,c:int>")
    False
    """
    return one == other or (has_fields(one) and _sorted(read(one)) == _sorted(read(other)))


def _sorted(kind: Kind) -> Kind:
    if isinstance(kind, Struct):
        return Struct(tuple(sorted(((name.lower(), _sorted(each)) for name, each in kind.fields), key=str)))
    if isinstance(kind, Array):
        return Array(_sorted(kind.element))
    return Map(_sorted(kind.key), _sorted(kind.value)) if isinstance(kind, Map) else kind


def by_name(value: str, given: str, wanted: str, *, leaves_out: bool = False) -> str:
    """An expression for a value of the type `given` as one of `wanted`, each field from the one of its name, or NULL.
    What fields only the given type has is left out, or is an error.

    >>> by_name("s", "struct<b:int,a:int>", "struct<a:int,b:int>")
    "if(s is null, null, named_struct('a', s.`a`, 'b', s.`b`))"
    >>> by_name("n", "int", "bigint")
    'cast(n as bigint)'
    """
    return _taken(value, read(given), read(wanted), value, leaves_out, 1)


def _taken(value: str, given: Kind, wanted: Kind, shown: str, leaves_out: bool, depth: int) -> str:
    if given == wanted:
        return value
    if isinstance(given, Struct) and isinstance(wanted, Struct):
        return _taken_struct(value, given, wanted, shown, leaves_out, depth)
    each = f"__dbt_{depth}"
    if isinstance(given, Array) and isinstance(wanted, Array):
        inner = _taken(each, given.element, wanted.element, f"{shown}[]", leaves_out, depth + 1)
        return f"transform({value}, {each} -> {inner})"
    if isinstance(given, Map) and isinstance(wanted, Map):
        keys, values = f"{each}_key", f"{each}_value"
        key = _taken(keys, given.key, wanted.key, f"{shown}.key", leaves_out, depth + 1)
        inner = _taken(values, given.value, wanted.value, f"{shown}.value", leaves_out, depth + 1)
        taken = value if key == keys else f"transform_keys({value}, ({keys}, {values}) -> {key})"
        return taken if inner == values else f"transform_values({taken}, ({keys}, {values}) -> {inner})"
    return f"cast({value} as {written(wanted)})"


def _taken_struct(value: str, given: Struct, wanted: Struct, shown: str, leaves_out: bool, depth: int) -> str:
    there = {name.lower(): (name, kind) for name, kind in given.fields}
    more = there.keys() - {name.lower() for name, _ in wanted.fields}
    if more and not leaves_out:
        raise DbtRuntimeError(
            f"{shown} has fields that the table's column does not have: {', '.join(sorted(more))}. Set "
            "on_schema_change to sync_all_columns, run the model once with --full-refresh, or leave the fields out."
        )
    parts: list[str] = []
    for name, kind in wanted.fields:
        if name.lower() in there:
            own, its_kind = there[name.lower()]
            taken = _taken(f"{value}.{quote(own)}", its_kind, kind, f"{shown}.{own}", leaves_out, depth)
        else:
            taken = f"cast(null as {written(kind)})"
        parts += [literal(name), taken]
    return f"if({value} is null, null, named_struct({', '.join(parts)}))"
