"""A script into its statements."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import Position
from headrace.sql.tokens import Token, position_at, scan


@dataclass(frozen=True)
class StatementText:
    """One statement of a script. The comments before it belong to it: dbt says there which model it runs."""

    text: str
    offset: int
    line: int
    column: int

    def in_script(self, position: Position) -> Position:
        """A position inside this statement as a position in the whole script."""
        column = position.column + self.column - 1 if position.line == 1 else position.column
        return Position(position.line + self.line - 1, column)


def split_statements(text: str) -> list[StatementText]:
    """Split at every `;` outside strings, quoted names and comments; what is empty or only a comment is left out.

    >>> [s.text for s in split_statements("select ';'; -- done\\n ;select 2")]
    ["select ';'", 'select 2']
    """
    statements: list[StatementText] = []
    begin = 0
    last: Token | None = None
    for token in (*scan(text), None):
        if token is not None and token.text != ";":
            last = token
            continue
        if last is not None:
            statements.append(_statement(text, begin, last.end))
        begin, last = (token.end if token else begin), None
    return statements


def _statement(text: str, begin: int, end: int) -> StatementText:
    start = begin + len(text[begin:end]) - len(text[begin:end].lstrip())
    place = position_at(text, start)
    return StatementText(text[start:end], start, place.line, place.column)
