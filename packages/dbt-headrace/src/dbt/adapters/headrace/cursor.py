"""What dbt runs statements with, and takes their rows from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace.dbapi.literals import template
from headrace.dbapi.types import description as described
from headrace.errors import HeadraceError, Position, UserError
from headrace.result import Result
from headrace.sql.split import split_statements

if TYPE_CHECKING:
    from dbt.adapters.headrace.sessions import Session

_QUERIES = ("SELECT", "WITH", "VALUES", "FROM", "TABLE", "(")
_BEGINNING = re.compile(r"(?:\s+|--[^\n]*|/\*.*?\*/)*", re.DOTALL)
_COMMENT = re.compile(r"\s*(/\*.*?\*/)", re.DOTALL)
_COMMENT_BEHIND = re.compile(r"(/\*(?:(?!\*/|/\*).)*\*/)[\s;]*\Z", re.DOTALL)
_LINES_OF_DBT = re.compile(r"/\*.*?\*/\n", re.DOTALL)


class Cursor:
    """Runs statements and holds the rows of the last one."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.description: list[tuple[Any, ...]] | None = None
        self.rowcount = -1
        self.job_id: str | None = None
        self.status = "OK"
        """What the statement says of itself."""
        self._rows: Iterator[tuple[Any, ...]] = iter(())
        self._is_cut = False

    def execute(self, text: str, bindings: Sequence[Any] | None = None) -> None:
        """Run the statements of the text, one after the other. What one of them gives is not forgotten for a setting
        that follows it."""
        if bindings:
            text = template(text).filled(bindings)
        self.description, self.rowcount, self.job_id, self.status = None, -1, None, "OK"
        self._rows = iter(())
        comment = _node_comment(text)
        for number, part in enumerate(split_statements(text)):
            try:
                sets = first_words(part.text)[:1] in (["SET"], ["RESET"])
                # Behind it, where it moves no position; but all that follows SET is the value.
                is_told = sets or (number == 0 and part.text.lstrip().startswith("/*")) or comment in part.text
                result = self._session.run(part.text if is_told else f"{part.text}\n{comment}".rstrip())
                if number == 0 or not sets:
                    self._take(part.text, result)
            except HeadraceError as error:
                if error.position is not None:
                    error.position = _in_the_file(part.in_script(error.position), text)
                raise

    def _take(self, text: str, result: Result) -> None:
        self.job_id = getattr(result, "job_id", None)
        self._is_cut = getattr(result, "truncated", False)
        word = next(iter(first_words(text)), "")
        self.description, self.rowcount, self._rows, self.status = None, -1, iter(()), "OK"
        if word not in _QUERIES and result.columns[:1] == ["num_affected_rows"]:
            self.rowcount = int(result.rows[0][0])
        elif word in _QUERIES or result.columns != ["status"]:
            table = result.to_arrow()
            self.description = list(described(table.schema))
            self.rowcount = table.num_rows if word != "REFRESH" else _refreshed_rows(result)
            self._rows = iter(result.rows)
        else:
            self.status = str(result.rows[0][0]) if result.rows else "OK"
            self._count_rows()

    def _count_rows(self) -> None:
        """A table that was loaded says in its sentence with how many rows."""
        told = re.search(r"(?:created with|its) (\d+) rows", self.status)
        if told:
            self.rowcount = int(told[1])

    def fetchone(self) -> tuple[Any, ...] | None:
        return next(self._rows, None)

    def fetchmany(self, size: int) -> list[tuple[Any, ...]]:
        return [row for _, row in zip(range(size), self._rows, strict=False)]

    def fetchall(self) -> list[tuple[Any, ...]]:
        if self._is_cut:
            raise UserError(
                f"The result has more than the {self.rowcount:,} rows that the server gives.",
                hint="Ask for fewer, or let whoever runs the server set result_rows_max.",
            )
        return list(self._rows)

    def close(self) -> None:
        self._rows = iter(())


def first_words(text: str, count: int = 5) -> list[str]:
    """The first words of a statement, in capitals, without what comments say.

    >>> first_words("/* {\\"app\\": \\"dbt\\"} */ -- why\\n create or replace temp view v as select 1")
    ['CREATE', 'OR', 'REPLACE', 'TEMP', 'VIEW']
    >>> first_words("(select 1)")[0]
    '('
    """
    return [word.upper() for word in re.findall(r"\w+|\(", without_comments_before(text)[:200])[:count]]


def without_comments_before(text: str) -> str:
    """From the statement's first word on."""
    found = _BEGINNING.match(text)
    return text[found.end() if found else 0 :]


def _node_comment(text: str) -> str:
    """What dbt has put before a text of several statements, or behind it.

    >>> _node_comment("/* {\\"node_id\\": \\"model.a.b\\"} */ set x = 1; select 1")
    '/* {"node_id": "model.a.b"} */'
    >>> _node_comment("select '/*' as a;\\n/* run by ann */;")
    '/* run by ann */'
    """
    found = _COMMENT.match(text) or _COMMENT_BEHIND.search(text)
    return found[1] if found else ""


def _in_the_file(position: Position, text: str) -> Position:
    """Where that is in the text without the comment that dbt puts before it: so it is written under target/run.

    >>> _in_the_file(Position(3, 5), '/* {"app": "dbt"} */\\nselect\\n  1/0')
    Position(line=2, column=5)
    """
    found = _LINES_OF_DBT.match(text)
    lines = found[0].count("\n") if found else 0
    return Position(position.line - lines, position.column) if position.line > lines else position


def _refreshed_rows(result: Result) -> int:
    """How many rows a refresh put in or took out."""
    place = result.columns.index("stats")
    told = [json.loads(row[place]) for row in result.rows if row[place]]
    return sum(int(count) for each in told for count in each.values())
