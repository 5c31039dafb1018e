"""Rows as text for people: a table when it fits the screen, if need be with its last column wrapped; else one block a
row."""

from __future__ import annotations

import base64
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Protocol, TextIO

from rich.cells import cell_len, chop_cells

NULL = "NULL"
_LEAST_VALUE = 16
"""So much room the values of a list of properties should have before it becomes blocks."""


class Rows(Protocol):
    @property
    def columns(self) -> list[str]: ...

    @property
    def rows(self) -> list[tuple[Any, ...]]: ...


def print_result(result: Rows, *, out: TextIO | None = None, vertical: bool | None = None) -> None:
    """Print rows to `out`. `vertical` says which layout; left open, it is the one that fits the screen."""
    out = out or sys.stdout
    width = shutil.get_terminal_size((80, 24)).columns if out.isatty() else None
    for line in lines(result.columns, result.rows, width=width, vertical=vertical):
        out.write(f"{line}\n")


def lines(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, width: int | None = None, vertical: bool | None = None
) -> Iterator[str]:
    """The lines to print. Without a width nothing is too wide: the text goes to a file or another program.

    >>> print(*lines(["event", "n"], [("view", 12), (None, 3)]), sep="\\n")
     event |  n
    -------+----
     view  | 12
     NULL  |  3
    (2 rows)
    """
    if _is_status(columns, rows):
        yield as_text(rows[0][0])
        return
    properties = list(columns) in (["property", "value"], ["item", "value"])
    # Whether a property that has no value is a NULL or an empty text is the same to whoever reads it.
    texts = [[NULL if properties and value == "" else as_text(value) for value in row] for row in rows]
    if len(columns) == 1 and any("\n" in row[0] for row in texts):
        # A plan or a script: its own lines are the layout.
        for row in texts:
            yield from map(printable, row[0].splitlines())
        return
    cells = [[printable(text.replace("\n", "⏎")) for text in row] for row in texts]
    heads = [printable(column) for column in columns]
    widths = [max(map(cell_len, (head, *column))) for head, *column in zip(heads, *cells, strict=True)]
    numeric = _numeric(rows, len(columns))
    needed = sum(width + 3 for width in widths) - 1
    too_wide = width is not None and needed > width
    if rows and vertical is None and width is not None and not numeric[-1]:
        room = width - needed + widths[-1]
        least = max(cell_len(heads[-1]), _LEAST_VALUE if properties else width // 3)
        has_lines = properties and any("\n" in row[-1] for row in texts)
        if room >= least and (too_wide or has_lines):
            last = [_wrapped(row[-1], room) for row in texts]
            widths[-1] = max(cell_len(heads[-1]), *(cell_len(part) for parts in last for part in parts))
            cells = [line for row, parts in zip(cells, last, strict=True) for line in _with_last(row, parts)]
            too_wide = False
    if rows and (too_wide if vertical is None else vertical):
        yield from _blocks(heads, texts)
    else:
        yield from _grid(heads, cells, widths, numeric)
    yield f"({len(rows)} row{'' if len(rows) == 1 else 's'})"


def as_text(value: Any) -> str:
    """One value as a person writes it.

    >>> as_text(None), as_text(True), as_text(Decimal("1E+2")), as_text([1, None]), as_text(datetime(2024, 1, 2, 3))
    ('NULL', 'true', '100', '[1, null]', '2024-01-02 03:00:00')
    """
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, datetime):
        return value.isoformat(
            sep=" ", timespec="auto" if value.microsecond % 1000 or not value.microsecond else "milliseconds"
        )
    if isinstance(value, (date, time, timedelta)):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).hex().upper()
    if isinstance(value, (list, tuple, Mapping)):
        return as_json(value)
    return str(value)


def as_json(value: Any) -> str:
    """One value as JSON. A decimal keeps all its digits; what JSON has no number for (NaN) is a text.

    >>> as_json({"a": Decimal("1.10"), "b": [None, float("inf")], "c": b"hi"})
    '{"a": 1.10, "b": [null, "inf"], "c": "aGk="}'
    """
    if isinstance(value, Decimal):
        return f"{value:f}" if value.is_finite() else json.dumps(str(value))
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return json.dumps(str(value))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(as_text(key))}: {as_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(as_json, value)) + "]"
    if isinstance(value, (bytes, bytearray)):
        return json.dumps(base64.b64encode(value).decode())
    if value is None or isinstance(value, (bool, int, float, str)):
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(as_text(value), ensure_ascii=False)


def duration(seconds: float | None) -> str:
    """Short enough for a column, and exact enough to compare with another.

    >>> [duration(s) for s in (0.4, 90, 150, 300, 5400, 90000, 864000, 183845, None)]
    ['0s', '90s', '2m30s', '5m', '1h30m', '25h', '10d', '2d03h', '']
    """
    if seconds is None:
        return ""
    whole = int(seconds)
    if whole < 120:
        return f"{whole}s"
    unit, units = (1, "ms") if whole < 3600 else (60, "hm") if whole < 48 * 3600 else (3600, "dh")
    big, rest = divmod(whole // unit, 24 if units == "dh" else 60)
    return f"{big}{units[0]}{rest:02d}{units[1]}" if rest else f"{big}{units[0]}"


def elapsed(took: timedelta | None) -> str:
    """How long something took: as `duration`, with what is less than a second.

    >>> [elapsed(timedelta(seconds=s)) for s in (0.0042, 3.25, 75.0, 7200.0)]
    ['0.00s', '3.2s', '75s', '2h']
    """
    if took is None:
        return ""
    total = took.total_seconds()
    return f"{total:.2f}s" if total < 1 else f"{total:.1f}s" if total < 60 else duration(total)


def printable(text: str) -> str:
    """Text without characters that could move the cursor or colour the screen.

    >>> printable("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "    " if c == "\t" else f"\\x{ord(c):02x}" for c in text)


def _is_status(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> bool:
    """What a statement without rows of its own answers."""
    return list(columns) == ["status"] and len(rows) == 1


def _numeric(rows: Sequence[Sequence[Any]], count: int) -> list[bool]:
    """Which columns hold numbers, to be set to the right."""
    found = []
    for position in range(count):
        kinds = {type(row[position]) for row in rows if row[position] is not None}
        found.append(bool(kinds) and kinds <= {int, float, Decimal})
    return found


def _grid(
    heads: Sequence[str], cells: Sequence[Sequence[str]], widths: Sequence[int], numeric: Sequence[bool]
) -> Iterator[str]:
    yield _row(heads, widths, numeric)
    yield "+".join("-" * (width + 2) for width in widths)
    for row in cells:
        yield _row(row, widths, numeric)


def _with_last(row: Sequence[str], parts: Sequence[str]) -> Iterator[list[str]]:
    """The row with the first of these as its last cell, and a line for each of the others."""
    for number, part in enumerate(parts):
        yield [*(row[:-1] if number == 0 else [""] * (len(row) - 1)), part]


def _wrapped(text: str, width: int) -> list[str]:
    """The lines of the text, those that are too long in several: cut at a blank where there is one.

    >>> _wrapped("BEGIN\\n  SELECT count(*) FROM orders;", 16)
    ['BEGIN', '  SELECT', 'count(*) FROM', 'orders;']
    """
    found = []
    for rest in map(printable, text.split("\n")):
        while (first := next(iter(chop_cells(rest[: 2 * width], width)), "")) != rest:
            blank = rest.rfind(" ", 0, len(first) + 1)
            end = blank if rest[: max(blank, 0)].strip() else max(1, len(first))
            found.append(rest[:end])
            rest = rest[end:].lstrip(" ")
        found.append(rest)
    return found


def _row(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    parts = []
    for cell, width, right in zip(cells, widths, numeric, strict=True):
        space = " " * (width - cell_len(cell))
        parts.append(f" {space}{cell} " if right else f" {cell}{space} ")
    return "|".join(parts).rstrip()


def _blocks(heads: Sequence[str], texts: Sequence[Sequence[str]]) -> Iterator[str]:
    widest = max(map(cell_len, heads))
    for number, row in enumerate(texts, start=1):
        title = f"-[ row {number} ]"
        yield title + "-" * max(0, widest + 12 - len(title))
        for head, text in zip(heads, row, strict=True):
            first, *rest = [printable(line) for line in text.split("\n")]
            yield f"{head}{' ' * (widest - cell_len(head))} | {first}".rstrip()
            for line in rest:
                yield f"{' ' * widest} | {line}".rstrip()
