"""The rows of a CSV file as SQL."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.dbapi.literals import literal as _literal

if TYPE_CHECKING:
    import agate

_LARGEST = 2**63
_LONGEST = 10**38
_DOUBLES = ("double", "float", "real")
_TEXTS = ("string", "text", "varchar", "char")
_BATCH_BYTES = 400_000
"""A server takes statements of a million characters; this leaves room for what stands around the rows."""


def literal(value: Any) -> str:
    """A value as Spark writes it: whole numbers as such, whatever agate made of them.

    >>> literal(Decimal("9007199254740993")), literal("O'Brien"), literal(None), literal("")
    ('9007199254740993', "'O\\\\'Brien'", 'NULL', "''")
    """
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return f"{int(value)}" if abs(value) < _LARGEST else f"{int(value)}BD"
    if isinstance(value, (datetime.time, datetime.timedelta)):
        return _literal(str(value))
    return _literal(value)


def number_type(values: Iterable[Any]) -> str:
    """The type of a column of numbers.

    >>> number_type([Decimal(1), None]), number_type([Decimal("1.5")]), number_type([Decimal(2**70)])
    ('bigint', 'double', 'decimal(38,0)')
    >>> number_type([Decimal("1e40")])
    'double'
    """
    present = [Decimal(value) for value in values if value is not None]
    if any(value != value.to_integral_value() or abs(value) >= _LONGEST for value in present):
        return "double"
    return "bigint" if all(-_LARGEST <= value < _LARGEST for value in present) else "decimal(38,0)"


@dataclass(frozen=True)
class Seed:
    """A seed's rows as SQL."""

    types: list[str]
    """Of its columns, in order."""
    batches: list[str]
    """Texts to stand after VALUES, each short enough for one statement."""


def read(
    table: agate.Table, model: Mapping[str, Any], asked: Mapping[str, str], inferred: Callable[[int], str | None]
) -> Seed:
    """What dbt has read, with the types that are asked for or inferred."""
    rows = [list(row) for row in table.rows]
    _restore_texts(rows, table, model, asked)
    wanted = {name.lower(): kind for name, kind in asked.items()}
    others = {
        place for place, name in enumerate(table.column_names) if not _is_text(wanted.get(name.lower()) or "string")
    }
    texts = _restore_empty_texts(rows, table, model, others)
    types = [
        wanted.get(name.lower()) or ("string" if place in texts else inferred(place) or "string")
        for place, name in enumerate(table.column_names)
    ]
    return Seed(types, _batches(rows, types))


def _batches(rows: Sequence[Sequence[Any]], types: Sequence[str]) -> list[str]:
    writers = [_writer(kind, [row[place] for row in rows]) for place, kind in enumerate(types)]
    found: list[str] = []
    texts: list[str] = []
    size = 0
    for row in rows:
        text = "(" + ", ".join(write(value) for write, value in zip(writers, row, strict=True)) + ")"
        if texts and size + len(text) > _BATCH_BYTES:
            found.append(", ".join(texts))
            texts, size = [], 0
        texts.append(text)
        size += len(text) + 2
    if texts:
        found.append(", ".join(texts))
    return found


def _writer(kind: str, values: Iterable[Any]) -> Callable[[Any], str]:
    """How the values of a column are written. Spark finds one type for all numbers of VALUES, and of decimals of many
    sizes it is one that takes digits away: doubles are written as such, and other numbers as texts that are cast."""
    numbers = [value for value in values if value is not None]
    if not numbers or not all(isinstance(value, Decimal) for value in numbers):
        return literal
    if kind.strip().lower() in _DOUBLES:
        return _double
    is_long = any(value != value.to_integral_value() or abs(value) >= _LARGEST for value in numbers)
    return _number_as_text if is_long else literal


def _double(value: Decimal | None) -> str:
    """
    >>> _double(Decimal("1e-20")), _double(Decimal(3)), _double(Decimal("1e999")), _double(None)
    ('1e-20D', '3.0D', "double('inf')", 'NULL')
    """
    if value is None:
        return "NULL"
    number = float(value)
    return f"{number!r}D" if math.isfinite(number) else f"double('{number}')"


def _number_as_text(value: Decimal | None) -> str:
    """
    >>> _number_as_text(Decimal("1.50")), _number_as_text(Decimal("1e25")), _number_as_text(None)
    ("'1.50'", "'10000000000000000000000000'", 'NULL')
    """
    return "NULL" if value is None else f"'{value:f}'"


def _is_text(kind: str) -> bool:
    """
    >>> _is_text("VARCHAR(20)"), _is_text("decimal(10,2)")
    (True, False)
    """
    return kind.strip().lower().startswith(_TEXTS)


def _restore_empty_texts(
    rows: list[list[Any]], table: agate.Table, model: Mapping[str, Any], others: set[int]
) -> set[int]:
    """dbt reads every empty cell as NULL. In a column of texts, one that stands in quotes is an empty text; a column
    that has nothing else is one of texts, unless another type is asked for, as of the `others`. Gives the places of
    those columns."""
    import agate

    raw = _raw_cells(model)
    if len(raw) != len(rows):
        return set()
    changed: set[int] = set()
    for place, kind in enumerate(table.column_types):
        if place in others:
            continue
        if not isinstance(kind, agate.Text) and any(row[place] is not None for row in rows):
            continue
        for row, cells in zip(rows, raw, strict=True):
            if place < len(cells) and cells[place] == ("", True) and row[place] is None:
                row[place] = ""
                changed.add(place)
    return changed


def _restore_texts(
    rows: list[list[Any]], table: agate.Table, model: Mapping[str, Any], asked: Mapping[str, str]
) -> None:
    """dbt leaves a column as it stands only where column_types spells its name just as the file does."""
    spelled_otherwise = {name.lower() for name, kind in asked.items() if kind and _is_text(kind)} - {
        name.lower() for name in asked if name in table.column_names
    }
    places = [place for place, name in enumerate(table.column_names) if name.lower() in spelled_otherwise]
    raw = _raw_cells(model) if places else []
    for row, cells in zip(rows, raw, strict=False):
        for place in places:
            if place < len(cells) and row[place] is not None:
                row[place] = cells[place][0]


def _raw_cells(model: Mapping[str, Any]) -> list[Sequence[tuple[str, bool]]]:
    """The file as it is, without its first line."""
    root, file = model.get("root_path"), model.get("original_file_path")
    path = Path(str(root)) / str(file)
    if not root or not file or not path.is_file():
        return []
    delimiter = str((model.get("config") or {}).get("delimiter") or ",")
    return list(_cells(path.read_text(encoding="utf-8-sig"), delimiter))[1:]


def _cells(text: str, delimiter: str) -> Iterator[Sequence[tuple[str, bool]]]:
    """The records of a CSV text: each cell with whether it stood in quotes, which Python's reader does not tell.

    >>> list(_cells('a,b\\n"",\\n"x ""y""\\n,",z', ","))
    [[('a', False), ('b', False)], [('', True), ('', False)], [('x "y"\\n,', True), ('z', False)]]
    >>> len(list(_cells("a\\n\\n1\\n", ",")))  # A blank line is a record, too: dbt reads it as NULLs.
    3
    """
    record: list[tuple[str, bool]] = []
    place, end = 0, len(text)
    while place < end:
        if text[place] == '"':
            value: list[str] = []
            place += 1
            while place < end:
                if text[place] != '"':
                    value.append(text[place])
                    place += 1
                elif text[place + 1 : place + 2] == '"':
                    value.append('"')
                    place += 2
                else:
                    break
            place += 1
            record.append(("".join(value), True))
        else:
            start = place
            while place < end and text[place] != delimiter and text[place] not in "\r\n":
                place += 1
            record.append((text[start:place], False))
        if place < end and text[place] == delimiter:
            place += 1
            if place < end and text[place] not in "\r\n":
                continue
            record.append(("", False))
        if place >= end or text[place] in "\r\n":
            place += 2 if text[place : place + 2] == "\r\n" else 1
            yield record
            record = []
    if record:
        yield record
