"""JSON lines as rows of a table.

Arrow's own reader takes nearly every batch, at a million rows a second. It stops at the first thing that it does not
like, and likes a little more than we do; so what it gives is looked at once more, and where there is any doubt, pieces
of the batch are read again by it, and then line by line. `values` says what a value may be; the two ways must agree,
and a test makes up lines to see that they do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from headrace.loading import columnar
from headrace.loading.checked import (
    MOST_ROWS,
    BadBatch,
    Checked,
    Gathered,
    Reject,
    joined,
    range_of,
    row_text,
    shown,
    too_many_bytes,
    too_many_rows,
)
from headrace.loading.shapes import Shape
from headrace.loading.types import Column, Scalar, arrow_type, is_loadable, parts
from headrace.loading.values import Bad, Reader, decoded, reader

_BOM = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"
_PIECES = (1000, 50)
"""Lines that are tried together when not all can be."""
_SMALLEST_BLOCK = 1024
_LONGEST_LINE = 4 * 1024**2
_MOST_PADDING = 256 * 1024**2
"""Bytes that the CHARs of a batch may be filled up with."""
_AS_TEXT = ("date", "timestamp", "timestamp_ntz", "binary")
_IN_PARTS = ("boolean", "byte", "short", "integer", "long", "double", "decimal", "string")
"""Kinds that Arrow reads right also inside arrays and structs."""


def check(body: bytes, shape: Shape, zone: ZoneInfo) -> Checked:
    """Every line of a batch. Raises BadBatch when there is none, and BatchTooLarge when there are too many."""
    body = body.removeprefix(_BOM).strip(_BLANK)
    if not body:
        raise BadBatch("The batch has no rows.", hint="Send one JSON object a line.")
    lines = body.count(b"\n") + 1
    if lines > MOST_ROWS:
        raise too_many_rows(lines)
    return Lines(shape, zone, _MOST_PADDING).check(body)


@dataclass(frozen=True)
class _Given:
    """Which of the columns that have a default stand in some lines."""

    first: int
    count: int
    columns: frozenset[str]


class Lines:
    """Reads JSON lines into the columns of one table; can be used for one piece after the other."""

    def __init__(self, shape: Shape, zone: ZoneInfo, most_padding: int | None = None) -> None:
        self._shape = shape
        self._most_padding = most_padding
        self._padding = 0
        self._zone = zone
        self.columns = tuple(c for c in shape.columns if c.role != "computed" and is_loadable(c.type))
        self.schema = pa.schema([pa.field(c.name, arrow_type(c.type)) for c in self.columns])
        self._readers: dict[str, tuple[int, Column, Reader]] = {
            column.name.lower(): (place, column, reader(column.type, zone)) for place, column in enumerate(self.columns)
        }
        self._required = [c for c in self.columns if not c.nullable and c.role == "given"]
        self._defaults = frozenset(c.name for c in self.columns if c.role == "default")
        self._left_out: frozenset[str] | None = None
        self._quick = all(_is_quick(column) for column in self.columns)
        self._padded = [
            (place, column.type.longest)
            for place, column in enumerate(self.columns)
            if isinstance(column.type, Scalar) and column.type.padded and column.type.longest is not None
        ]

    def check(self, body: bytes, first: int = 1) -> Checked:
        """`first` is the number of the first line."""
        found = Gathered(self.schema)
        given: list[_Given] = []
        whole = self._quickly(body)
        if whole is not None:
            found.add(whole, range_of(first, whole.num_rows))
            given.append(_Given(first, whole.num_rows, self._defaults))
        else:
            given = self._in_pieces(body.split(b"\n"), first, found, _PIECES)
        checked = found.checked()
        return self._without_doubtful(checked, given, body, first) if self._defaults else checked

    def _in_pieces(self, lines: list[bytes], first: int, found: Gathered, sizes: tuple[int, ...]) -> list[_Given]:
        """The pieces that go the quick way, and the others in smaller pieces, down to the single line."""
        if not sizes or not self._quick:
            return self._one_by_one(lines, first, found)
        given: list[_Given] = []
        for place in range(0, len(lines), sizes[0]):
            some, start = lines[place : place + sizes[0]], first + place
            piece = self._quickly(b"\n".join(some))
            if piece is None:
                given += self._in_pieces(some, start, found, sizes[1:])
            else:
                found.add(piece, range_of(start, piece.num_rows))
                given.append(_Given(start, piece.num_rows, self._defaults))
        return given

    # ------------------------------------------------------------------ the quick way

    def _quickly(self, body: bytes) -> pa.Table | None:
        """The rows, if all of them are beyond doubt."""
        lines = body.count(b"\n") + 1
        body = body.removesuffix(b"\r")  # Its line feed is what the lines were told apart by.
        if not self._quick or not body.startswith(b"{") or not body.endswith(b"}") or _has_long_line(body):
            return None
        # With this, every line is one object, and no object has two lines.
        if body.count(b"}\n{") + body.count(b"}\r\n{") != lines - 1:
            return None
        spelling = self._spelling(body)
        if spelling is None:
            return None
        wanted = pa.schema([pa.field(spelling[c.name], _read_as(c)) for c in self.columns])
        try:
            rows = pj.read_json(
                pa.BufferReader(body),
                # In one block: an object must not lie on the border of two.
                read_options=pj.ReadOptions(block_size=max(len(body) + 1, _SMALLEST_BLOCK)),
                parse_options=pj.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="error"),
            )
            if rows.num_rows != lines:
                return None
            rows.validate(full=True)
            counts = ((rows.column(spelling[self.columns[p].name]), longest) for p, longest in self._padded)
            padding = sum((len(found) - found.null_count) * longest for found, longest in counts)
            self._require_room(padding)
            arrays = [
                columnar.from_read(rows.column(spelling[column.name]), column.type, self._zone)
                for column in self.columns
            ]
        except (pa.ArrowException, columnar.Doubtful, ValueError, OverflowError):
            return None
        for column, array in zip(self.columns, arrays, strict=True):
            if array.null_count and (not column.nullable or column.role == "default"):
                return None
        self._padding += padding
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _require_room(self, padding: int) -> None:
        if self._most_padding is not None and self._padding + padding > self._most_padding:
            raise too_many_bytes(self._most_padding)

    def _spelling(self, body: bytes) -> dict[str, str] | None:
        """How the first line writes the columns' names: in which case, that is."""
        end = body.find(b"\n")
        try:
            first = decoded((body if end < 0 else body[:end]).decode("utf-8"))
        except ValueError:
            return None
        spelling = {column.name: column.name for column in self.columns}
        for name in first if isinstance(first, dict) else ():
            known = self._readers.get(name.lower())
            if known is None:
                return None
            spelling[known[1].name] = name
        return spelling

    # ------------------------------------------------------------------ line by line

    def _one_by_one(self, lines: list[bytes], start: int, found: Gathered) -> list[_Given]:
        taken: list[list[Any]] = []
        given: list[_Given] = []
        for number, line in enumerate(lines, start):
            if not line.strip(_BLANK):
                continue
            try:
                values, defaults = self._line(line)
            except ValueError as error:
                found.rejects.append(Reject(number, row_text(line), str(error)))
                continue
            padding = sum(longest for place, longest in self._padded if values[place] is not None)
            self._require_room(padding)
            self._padding += padding
            taken.append(values)
            given.append(_Given(number, 1, defaults))
        by_column = list(zip(*taken, strict=True)) if taken else [()] * len(self.columns)
        arrays = [pa.array(values, field.type) for values, field in zip(by_column, self.schema, strict=True)]
        found.add(pa.Table.from_arrays(arrays, schema=self.schema), [each.first for each in given])
        return given

    def _line(self, line: bytes) -> tuple[list[Any], frozenset[str]]:
        """One row, and which columns with a default it gives. Raises ValueError with all that is wrong with it."""
        if len(line) > _LONGEST_LINE:
            raise ValueError(f"The row is longer than {_LONGEST_LINE // 1024**2} MiB.")
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"The row is no UTF-8 (byte {error.start + 1}).") from None
        try:
            row = decoded(text.strip(" \t\r"))
        except ValueError as error:
            raise ValueError(f"The row is no valid JSON: {error}.") from None
        if not isinstance(row, dict):
            raise ValueError("The row is no JSON object: { … }.")
        values: list[Any] = [None] * len(self.columns)
        seen: set[str] = set()
        wrong: list[str] = []
        for name, value in row.items():
            known = self._readers.get(name.lower())
            if known is None:
                wrong += self._unknown(name, value)
                continue
            place, column, read = known
            if column.name in seen:
                wrong.append(f"Column {column.name} is given twice.")
            seen.add(column.name)
            if value is not None:
                try:
                    values[place] = read(value)
                except Bad as bad:
                    wrong.append(bad.told(column.name))
            elif not column.nullable:
                wrong.append(f"Column {column.name}: it is {column.sql} NOT NULL, and the row has null.")
        wrong += [
            f"Column {column.name}: it is {column.sql} NOT NULL, and the row does not give it."
            for column in self._required
            if column.name not in seen
        ]
        if wrong:
            raise ValueError(joined(wrong))
        return values, self._defaults & seen

    def _unknown(self, name: str, value: Any) -> Iterator[str]:
        column = self._shape.by_name.get(name.lower())
        if column is None:
            yield f"There is no column {shown(name)}."
        elif column.role == "computed":
            yield f"Column {column.name} is computed by the table; leave it out."
        elif value is not None:
            yield f"Column {column.name}: values of the type {column.sql} can only be written with SQL."
        elif not column.nullable:
            yield f"Column {column.name}: it is {column.sql} NOT NULL, and the row has null."

    # ------------------------------------------------------------------ columns that may be left out

    def _without_doubtful(self, checked: Checked, given: list[_Given], body: bytes, first: int) -> Checked:
        """The table fills a column with a default in when no row gives it. Where only some do, nobody can say what the
        others mean. The first rows decide."""
        if self._left_out is None and given:
            self._left_out = self._defaults.difference(*(each.columns for each in given))
        left_out = self._left_out or frozenset()
        wanted = self._defaults - left_out
        doubtful = {
            number: sorted(each.columns ^ wanted)[0]
            for each in given
            if each.columns != wanted
            for number in range(each.first, each.first + each.count)
        }
        rows, numbers = checked.rows.drop_columns(sorted(left_out)), checked.numbers
        lines = body.split(b"\n") if doubtful else []
        rejects = [
            Reject(
                number,
                row_text(lines[number - first]),
                f"Column {name} has a default: give it in every row (null is a value), or in none.",
            )
            for number, name in doubtful.items()
        ]
        kept = pc.invert(pc.is_in(numbers, pa.array(list(doubtful), pa.int64())))
        merged = sorted((*checked.rejects, *rejects), key=lambda reject: reject.number)
        return Checked(rows.filter(kept), numbers.filter(kept), tuple(merged))


def _has_long_line(body: bytes) -> bool:
    """From one line break to the last one that may follow it, so that few are looked for."""
    start = 0
    while len(body) - start > _LONGEST_LINE:
        end = body.rfind(b"\n", start, start + _LONGEST_LINE + 1)
        if end < 0:
            return True
        start = end + 1
    return False


def _is_quick(column: Column) -> bool:
    if isinstance(column.type, Scalar):
        return True
    kinds = [part for part in parts(column.type) if isinstance(part, Scalar)]
    return columnar.allows_nulls(column.type) and all(k.kind in _IN_PARTS and k.longest is None for k in kinds)


def _read_as(column: Column) -> pa.DataType:
    """What Arrow is told to find."""
    if isinstance(column.type, Scalar):
        if column.type.kind in _AS_TEXT:
            return pa.string()
        if column.type.kind == "float":
            return pa.float64()
    return arrow_type(column.type)
