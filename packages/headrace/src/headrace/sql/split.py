"""A script into its statements."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Split at every `;` outside strings, quoted names, comments and the BEGIN … END of a task; what is empty or only
    a comment is left out.

    >>> [s.text for s in split_statements("select ';'; -- done\\n ;select 2")]
    ["select ';'", 'select 2']
    """
    tokens = scan(text)
    statements: list[StatementText] = []
    begin = index = 0
    while index < len(tokens):
        end = statement_end(tokens, index)
        if end > index:
            statements.append(_statement(text, begin, tokens[end - 1].end))
        begin = tokens[end].end if end < len(tokens) else begin
        index = end + 1
    return statements


def statement_end(tokens: Sequence[Token], start: int = 0) -> int:
    """Where the `;` is that ends the statement with this first token; the number of tokens when it has none."""
    index = start
    begin = task_begin(tokens, start)
    if begin is not None:
        end = task_end(tokens, begin)
        index = len(tokens) if end is None else end
    while index < len(tokens) and tokens[index].text != ";":
        index += 1
    return index


def is_ended(tokens: Sequence[Token]) -> bool:
    """Whether the last of the statements has its `;`."""
    index = 0
    while index < len(tokens):
        index = statement_end(tokens, index)
        if index == len(tokens):
            return False
        index += 1
    return True


def task_begin(tokens: Sequence[Token], start: int = 0) -> int | None:
    """Where the BEGIN is, in a CREATE TASK … AS BEGIN that starts here; None for anything else."""
    words = [token.upper for token in tokens[start : start + 4]]
    task = 3 if words[1:3] == ["OR", "REPLACE"] else 1
    if words[:1] != ["CREATE"] or words[task : task + 1] != ["TASK"]:
        return None
    for index in range(start + task + 1, len(tokens) - 1):
        if tokens[index].text == ";":
            return None
        if tokens[index].upper == "AS":
            return index + 1 if tokens[index + 1].upper == "BEGIN" else None
    return None


def task_end(tokens: Sequence[Token], begin: int) -> int | None:
    """Where the END of this BEGIN is. It stands where a statement would begin: so it is no END of a CASE, and no
    column of that name."""
    for index in range(begin + 1, len(tokens)):
        if tokens[index].upper == "END" and (index == begin + 1 or tokens[index - 1].text == ";"):
            return index
    return None


def _statement(text: str, begin: int, end: int) -> StatementText:
    start = begin + len(text[begin:end]) - len(text[begin:end].lstrip())
    place = position_at(text, start)
    return StatementText(text[start:end], start, place.line, place.column)
