"""CSV as rows of a table: fields are texts until they meet their column's type.

A field that is empty and not in quotes is NULL; one in quotes is a text. Quotes inside quotes are doubled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from headrace.errors import BadSetting
from headrace.loading import columnar
from headrace.loading.checked import BadBatch, Checked, Reject, joined, row_text, shown
from headrace.loading.shapes import Shape
from headrace.loading.types import Column, Scalar, arrow_type, is_loadable
from headrace.loading.values import Bad, text_reader

_MOST_FIELDS = 5000
_PIECE_LINES = 500
_BLOCK = 8 * 1024**2
_MOST_UNEVEN, _MOST_UNEVEN_TEXT = 500_000, 128 * 1024**2
"""Rows with too many or too few fields that are kept in memory until the next good one, and their characters."""
_REFUSED = (pa.ArrowException, columnar.Doubtful, ValueError, OverflowError)


@dataclass(frozen=True)
class CsvOptions:
    """With the names that Spark's reader has for them."""

    header: bool = False
    sep: str = ","
    quote: str = '"'
    escape: str = ""
    null_value: str = ""
    multi_line: bool = False


_NAMES = {
    "header": "header", "sep": "sep", "delimiter": "sep", "quote": "quote", "escape": "escape",
    "nullvalue": "null_value", "multiline": "multi_line",
}  # fmt: skip


def csv_options(given: Mapping[str, str]) -> CsvOptions:
    """Raises BadSetting for an option that is not known, or has a value that means nothing."""
    found: dict[str, Any] = {}
    for name, text in given.items():
        field = _NAMES.get(name.lower())
        if field is None:
            known = "header, sep, quote, escape, nullValue, multiLine, encoding"
            raise BadSetting(f"There is no option {shown(name)} for CSV.", hint=f"There are: {known}.")
        if field in ("header", "multi_line"):
            if text.lower() not in ("true", "false"):
                raise BadSetting(
                    f"The option {name} is true or false, not {shown(text)}.", hint=f"Write '{name}'='true'."
                )
            found[field] = text.lower() == "true"
        elif field != "null_value" and (
            len(text.encode()) > 1 or text in ("\n", "\r") or (field == "sep" and not text)
        ):
            raise BadSetting(
                f"The option {name} is one ASCII character, not {shown(text)}.", hint="Such as ',' or '\\t'."
            )
        else:
            found[field] = text
    return CsvOptions(**found)


def with_line_feeds(block: bytes, options: CsvOptions) -> bytes:
    """The same lines, each with a line feed at its end: a carriage return alone ends one, too, unless it stands inside
    of quotes. One at the very end of the block stays; it may have lost its line feed.

    >>> with_line_feeds(b'a,b\\r1,"x\\ry"\\r2,z\\r\\n', CsvOptions())
    b'a,b\\n1,"x\\ry"\\n2,z\\r\\n'
    """
    if block.count(b"\r") == block.count(b"\r\n") + block.endswith(b"\r"):
        return block
    return _lone_return(options).sub(lambda found: b"\n" if found[0] == b"\r" else found[0], block)


@lru_cache
def _lone_return(options: CsvOptions) -> re.Pattern[bytes]:
    """What ends a line without a line feed; or a text in quotes, to be passed over."""
    lone = rb"\r(?!\n|\Z)"
    if not options.quote:
        return re.compile(lone)
    quote, sep = (b"\\x%02x" % ord(each) for each in (options.quote, options.sep))
    literal = b"" if options.escape in ("", options.quote) else b"\\x%02x" % ord(options.escape)
    escaped = literal and literal + b"[^\\n]|"
    inside = b"(?:%s[^%s%s\\n]|%s%s)*" % (escaped, quote, literal, quote, quote)
    return re.compile(b"(?<![^%s\\r\\n])%s%s%s|%s" % (sep, quote, inside, quote, lone))


class CsvRows:
    """Reads CSV into the columns of one table. `names` are those of the fields, in their order."""

    def __init__(self, names: Sequence[str], shape: Shape, zone: ZoneInfo, options: CsvOptions) -> None:
        self._options = options
        self._zone = zone
        self._fields = len(names)
        self._sources = _sources(names, shape)
        self.columns = tuple(
            c
            for c in shape.columns
            if c.role != "computed" and is_loadable(c.type) and (c.name in self._sources or c.role == "given")
        )
        self.schema = pa.schema([pa.field(c.name, arrow_type(c.type)) for c in self.columns])

    def check(self, block: bytes, first: int = 1) -> Checked:
        """Whole lines, each of them a row. `first` is the number of the first."""
        lines = block.split(b"\n")
        parsed = self._parsed(lines)
        if parsed is not None:
            return self._fitted(parsed, range(first, first + len(lines)), lambda place: row_text(lines[place]))
        if len(lines) > 1:
            size = _PIECE_LINES if len(lines) > _PIECE_LINES else 1
            pieces = range(0, len(lines), size)
            return _together([self.check(b"\n".join(lines[at : at + size]), first + at) for at in pieces], self.schema)
        line = lines[0]
        if not line.strip(b" \t\r"):
            return Checked(self.schema.empty_table(), pa.chunked_array([], pa.int64()))
        reject = Reject(first, row_text(line), self._fault(line))
        return Checked(self.schema.empty_table(), pa.chunked_array([], pa.int64()), (reject,))

    def stream(self, source: pa.NativeFile, skip: int) -> Iterator[Checked]:
        """Rows whose texts may have line breaks, after `skip` of them."""
        wrong: list[Reject] = []
        uneven: set[int] = set()
        kept = 0

        def keep(row: arrow_csv.InvalidRow) -> str:
            nonlocal kept
            if row.number is None or row.number > skip:
                wrong.append(Reject((row.number or 0) - skip, row_text(row.text), self._uneven(row.actual_columns)))
                uneven.add(wrong[-1].number)
                kept += len(wrong[-1].row)
            return "error" if is_too_much() else "skip"

        def is_too_much() -> bool:
            return len(wrong) > _MOST_UNEVEN or kept > _MOST_UNEVEN_TEXT

        try:
            reader = arrow_csv.open_csv(
                source, read_options=self._reading(_BLOCK, skip), parse_options=self._parsing(keep, lines=False),
                convert_options=self._converting(),
            )  # fmt: skip
            number = 0
            for batch in reader:
                numbers: list[int] = []
                while len(numbers) < batch.num_rows:
                    number += 1
                    if number not in uneven:
                        numbers.append(number)
                rows = pa.Table.from_batches([batch])
                found = self._fitted(rows, numbers, lambda place, rows=rows: _written(rows, place))  # type: ignore[misc]
                yield Checked(found.rows, found.numbers, (*found.rejects, *wrong))
                uneven = {each for each in uneven if each > number}
                wrong.clear()
                kept = 0
        except pa.ArrowInvalid as error:
            if is_too_much():
                raise BadBatch(
                    f"More than {len(wrong) - 1:,} rows that have not {self._fields} fields follow one another; so "
                    "many cannot be kept in memory.",
                    hint="Look at the options 'sep' and 'quote'. Without multiLine, any number of them is put aside.",
                ) from None
            raise BadBatch(f"It cannot be read as CSV: {str(error).splitlines()[0][:200]}.") from None
        if wrong:
            yield Checked(self.schema.empty_table(), pa.chunked_array([], pa.int64()), tuple(wrong))

    # ------------------------------------------------------------------ fields

    def _parsed(self, lines: list[bytes]) -> pa.Table | None:
        """The fields of each line as bytes; None when some line is not one row of so many fields."""
        uneven = False

        def note(_: arrow_csv.InvalidRow) -> str:
            nonlocal uneven
            uneven = True
            return "skip"

        block = b"\n".join(lines) + b"\n"
        try:
            found = arrow_csv.read_csv(
                pa.BufferReader(block), read_options=self._reading(len(block) + 1, 0),
                parse_options=self._parsing(note, lines=True), convert_options=self._converting(),
            )  # fmt: skip
        except pa.ArrowInvalid:
            return None
        if uneven or found.num_rows != len(lines) or any(map(_has_line_breaks, found.columns)):
            return None
        return found

    def _reading(self, block: int, skip: int) -> arrow_csv.ReadOptions:
        names = [f"f{place}" for place in range(self._fields)]
        return arrow_csv.ReadOptions(
            column_names=names, block_size=block, use_threads=False, skip_rows_after_names=skip
        )

    def _parsing(self, invalid: Callable[[arrow_csv.InvalidRow], str], *, lines: bool) -> arrow_csv.ParseOptions:
        return _parsing(self._options, lines=lines, invalid_row_handler=invalid)

    def _converting(self) -> arrow_csv.ConvertOptions:
        return _converting(self._options, self._fields)

    def _uneven(self, fields: int) -> str:
        return f"The row has {fields} fields, not {self._fields}."

    def _fault(self, line: bytes) -> str:
        """Why one line is not one row."""
        counted: list[int] = []

        def count(row: arrow_csv.InvalidRow) -> str:
            counted.append(row.actual_columns)
            return "skip"

        try:
            arrow_csv.read_csv(
                pa.BufferReader(line + b"\n"), read_options=self._reading(len(line) + 2, 0),
                parse_options=self._parsing(count, lines=True), convert_options=self._converting(),
            )  # fmt: skip
        except pa.ArrowInvalid as error:
            if not counted:
                return f"The row cannot be read: {str(error).splitlines()[0][:200]}."
        return (
            self._uneven(counted[0])
            if counted
            else "A quote is not closed; with multiLine a text may have line breaks."
        )

    # ------------------------------------------------------------------ columns

    def _fitted(self, fields: pa.Table, numbers: Sequence[int], row: Callable[[int], str]) -> Checked:
        wrong: dict[int, list[str]] = {}
        arrays = []
        for column, field in zip(self.columns, self.schema, strict=True):
            place = self._sources.get(column.name)
            if place is None:
                arrays.append(pa.chunked_array([pa.nulls(fields.num_rows, field.type)]))
                continue
            found, bad = self._column(fields.column(place), column)
            arrays.append(found)
            for at, reason in bad.items():
                wrong.setdefault(at, []).append(reason)
        rows, places = (
            pa.Table.from_arrays(arrays, schema=self.schema),
            pa.chunked_array([pa.array(numbers, pa.int64())]),
        )
        if not wrong:
            return Checked(rows, places)
        mask = pa.array([at not in wrong for at in range(fields.num_rows)], pa.bool_())
        rejects = tuple(Reject(numbers[at], row(at), joined(wrong[at])) for at in sorted(wrong))
        return Checked(rows.filter(mask), places.filter(mask), rejects)

    def _column(self, fields: pa.ChunkedArray, column: Column) -> tuple[pa.ChunkedArray, dict[int, str]]:
        target = arrow_type(column.type)
        missing: dict[int, str] = {}
        if not column.nullable and fields.null_count:
            reason = f"Column {column.name}: it is {column.sql} NOT NULL, and the field is empty."
            missing = dict.fromkeys(pc.indices_nonzero(pc.is_null(fields)).to_pylist(), reason)
        if isinstance(column.type, Scalar):
            try:
                found = columnar.from_texts(pc.cast(fields, pa.string()), column.type, self._zone)
                return found, missing
            except _REFUSED:
                pass  # One by one, then.
        read = text_reader(column.type, self._zone)
        values: list[Any] = []
        for at, field in enumerate(fields.to_pylist()):
            value = None
            if field is not None:
                try:
                    value = read(field.decode("utf-8"))
                except UnicodeDecodeError:
                    missing[at] = f"Column {column.name}: {shown(field)} is no UTF-8."
                except Bad as bad:
                    missing[at] = bad.told(column.name)
            values.append(value)
        return pa.chunked_array([pa.array(values, target)]), missing


def _has_line_breaks(column: pa.ChunkedArray) -> bool:
    """A quote that is never closed takes the end of the line into its text."""
    return any(b"\n" in bytes(buffer) for chunk in column.chunks if (buffer := chunk.buffers()[2]) is not None)


def fields_of(head: bytes, shape: Shape, options: CsvOptions) -> list[str] | None:
    """What the fields of a row are called: as the first row says, or else as the table's columns in their order. None
    for a file without rows. `head` is a file's beginning, with the whole of its first row."""
    counts: set[int] = set()

    def count(row: arrow_csv.InvalidRow) -> str:
        counts.add(row.actual_columns)
        return "skip"

    try:
        first = arrow_csv.read_csv(
            pa.BufferReader(head + b"\n"),
            read_options=arrow_csv.ReadOptions(
                autogenerate_column_names=True, block_size=len(head) + 2, use_threads=False
            ),
            parse_options=_parsing(options, lines=not options.multi_line, invalid_row_handler=count),
            convert_options=_converting(options, _MOST_FIELDS),
        )
    except pa.ArrowInvalid as error:
        if "mpty" in str(error):
            return None
        raise BadBatch(f"It cannot be read as CSV: {str(error).splitlines()[0][:200]}.") from None
    if options.header:
        if first.num_columns > _MOST_FIELDS:
            raise BadBatch(f"It has {first.num_columns} fields in a row; {_MOST_FIELDS} are possible.")
        return [(value[0].as_py() or b"").decode("utf-8", "replace") for value in first.columns]
    columns = [column for column in shape.columns if column.role != "computed"]
    if min(counts | {first.num_columns}) > len(columns):
        raise BadBatch(
            f"Its rows have {first.num_columns} fields, and the table has {len(columns)} columns to load.",
            hint="Look at the options 'sep' and 'quote'; if the first line has the names, write 'header'='true'.",
        )
    # The first row may be the wrong one. It only tells whether the file has columns that the table can fill itself.
    left_out = columns[first.num_columns :]
    given = columns[: first.num_columns] if all(column.role == "default" for column in left_out) else columns
    return [column.name for column in given]


def _sources(names: Sequence[str], shape: Shape) -> dict[str, int]:
    """Which field each column is."""
    found: dict[str, int] = {}
    for place, name in enumerate(names):
        column = shape.by_name.get(name.strip().lower())
        if column is None:
            raise BadBatch(f"There is no column {shown(name)}.", hint="The names stand in the file's first line.")
        if column.role == "computed":
            raise BadBatch(f"Column {column.name} is computed by the table; it cannot be loaded.")
        if not is_loadable(column.type):
            raise BadBatch(f"Column {column.name}: values of the type {column.sql} can only be written with SQL.")
        if column.name in found:
            raise BadBatch(f"Column {column.name} is given twice.")
        found[column.name] = place
    for column in shape.columns:
        if column.name not in found and column.role == "given" and not column.nullable:
            raise BadBatch(f"Column {column.name}: it is {column.sql} NOT NULL, and the file does not give it.")
    return found


def _parsing(options: CsvOptions, *, lines: bool, **more: Any) -> arrow_csv.ParseOptions:
    escaped = options.escape not in ("", options.quote)
    return arrow_csv.ParseOptions(
        delimiter=options.sep,
        quote_char=options.quote or False,
        double_quote=True,
        escape_char=options.escape if escaped else False,
        newlines_in_values=not lines,
        ignore_empty_lines=True,
        **more,
    )


def _converting(options: CsvOptions, fields: int) -> arrow_csv.ConvertOptions:
    return arrow_csv.ConvertOptions(
        column_types={f"f{place}": pa.binary() for place in range(fields)},
        null_values=["", options.null_value],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        check_utf8=False,
    )


def _together(pieces: Sequence[Checked], schema: pa.Schema) -> Checked:
    rows = pa.concat_tables([schema.empty_table(), *(piece.rows for piece in pieces)])
    numbers = pa.chunked_array([chunk for piece in pieces for chunk in piece.numbers.chunks], pa.int64())
    return Checked(rows, numbers, tuple(reject for piece in pieces for reject in piece.rejects))


def _written(fields: pa.Table, place: int) -> str:
    values = [column[place].as_py() for column in fields.columns]
    texts = [None if value is None else value.decode("utf-8", "replace") for value in values]
    return row_text(json.dumps(texts, ensure_ascii=False))
