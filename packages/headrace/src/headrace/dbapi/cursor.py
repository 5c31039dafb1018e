"""Running statements and fetching their rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.dbapi.exceptions import DataError, InterfaceError, ProgrammingError, translated
from headrace.dbapi.literals import Template, row_template, template
from headrace.dbapi.types import Column
from headrace.dbapi.types import description as described
from headrace.errors import QueryFailed
from headrace.result import Result
from headrace.sql.split import split_statements
from headrace.sql.tokens import scan

if TYPE_CHECKING:
    from headrace.dbapi.connection import Connection

Parameters = Mapping[str, Any] | Sequence[Any]
Row = tuple[Any, ...]

_QUERIES = ("SELECT", "WITH", "VALUES", "FROM", "TABLE", "")
_CHANGES = ("INSERT", "UPDATE", "DELETE", "MERGE")
_FETCHED_ROWS = 1000
_INSERTED_ROWS = 2000
_INSERTED_BYTES = 512 * 1024


class Cursor:
    """One statement after another. Values are written into the statement's text, at `%(name)s` with a mapping and at
    `%s` with a sequence; without values the text is taken as it is."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1
        self.description: list[Column] | None = None
        self.rowcount = -1
        self.lastrowid: None = None
        self.job_id: str | None = None
        """The server's name for the last statement, for DESC JOB."""
        self._rows: Iterator[Row] | None = None
        self._closed = False

    def execute(self, operation: str, parameters: Parameters | None = None) -> Cursor:
        """Run one statement. With parameters, `%%` stands for a percent sign."""
        self._require_open()
        self._run(operation if parameters is None else template(operation).filled(parameters))
        return self

    def executemany(self, operation: str, seq_of_parameters: Iterable[Parameters]) -> Cursor:
        """Run the statement for each set of values. Rows of an `INSERT … VALUES (…)` are inserted together: up to
        2,000 at a time make one commit."""
        self._require_open()
        batched = row_template(operation)
        texts: Iterator[str]
        if batched is not None:
            texts = _inserts(*batched, seq_of_parameters)
        else:
            each = template(operation)
            texts = (each.filled(values) for values in seq_of_parameters)
        total = 0
        self._forget()
        for text in texts:
            self._run(text)
            total = total + self.rowcount if self.rowcount >= 0 and total >= 0 else -1
        self._forget()
        self.rowcount = total
        return self

    def fetchone(self) -> Row | None:
        return next(self._fetched(), None)

    def fetchmany(self, size: int | None = None) -> list[Row]:
        return list(islice(self._fetched(), self.arraysize if size is None else size))

    def fetchall(self) -> list[Row]:
        return list(self._fetched())

    def __iter__(self) -> Iterator[Row]:
        return self._fetched()

    def cancel(self) -> None:
        """Cancel the statement that runs, from another thread."""
        self.connection.cancel()

    def setinputsizes(self, sizes: Any) -> None:
        """Does nothing: sizes need not be told."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Does nothing: sizes need not be told."""

    def close(self) -> None:
        self._forget()
        self._closed = True

    def __enter__(self) -> Cursor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------------ one statement

    def _run(self, text: str) -> None:
        self._forget()
        with translated():
            found = split_statements(text)
            if len(found) > 1:
                raise ProgrammingError(f"A cursor runs one statement at a time, and these are {len(found)}.")
            if not found:
                return
            result = self.connection.lake.sql(text)
        self.job_id = getattr(result, "job_id", None)
        word = scan(found[0].text)[0].upper
        if word in _CHANGES and result.columns[:1] == ["num_affected_rows"]:
            self.rowcount = int(result.rows[0][0])
        elif word in _QUERIES or result.columns != ["status"]:
            # A statement without rows of its own gives one row with a sentence; here it has none.
            table = result.to_arrow()
            self.description = described(table.schema)
            self.rowcount = table.num_rows
            self._rows = _plain_rows(table, _zone(self.connection.lake))

    def _fetched(self) -> Iterator[Row]:
        self._require_open()
        if self._rows is None:
            raise ProgrammingError("There are no rows to fetch: no statement that gives rows was run.")
        return self._rows

    def _forget(self) -> None:
        self.description, self.rowcount, self._rows, self.job_id = None, -1, None, None

    def _require_open(self) -> None:
        if self._closed:
            raise InterfaceError("This cursor is closed.")
        self.connection._require_open()


def _inserts(head: str, row: Template, many: Iterable[Parameters]) -> Iterator[str]:
    """Statements of as many rows as fit into one."""
    rows: list[str] = []
    size = 0
    for values in many:
        text = row.filled(values)
        length = len(text.encode())
        if rows and (len(rows) == _INSERTED_ROWS or size + length > _INSERTED_BYTES):
            yield head + ", ".join(rows)
            rows, size = [], 0
        rows.append(text)
        size += length
    if rows:
        yield head + ", ".join(rows)


def _plain_rows(table: pa.Table, zone: str) -> Iterator[Row]:
    """The rows as Python values, made as they are fetched."""
    for batch in table.to_batches(max_chunksize=_FETCHED_ROWS):
        try:
            rows = Result(pa.Table.from_batches([batch]), zone=zone).rows
        except QueryFailed as error:  # A year that Python's calendar does not have, text that is no UTF-8.
            raise DataError(str(error), code=error.code, hint=error.hint) from error
        yield from rows


def _zone(lake: Any) -> str:
    """The lake's time zone, in which timestamps are shown."""
    return str(getattr(lake, "timezone", None) or lake.settings.timezone)
