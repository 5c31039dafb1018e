"""What a task runs: statements, a Python file or a command line."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import PurePosixPath
from typing import Literal

from headrace.errors import BadSetting, HeadraceError, NotAllowed, Position, SyntaxFault
from headrace.sql.cursor import Cursor
from headrace.sql.scheduled_time import with_scheduled_time
from headrace.sql.split import StatementText, split_statements, task_end
from headrace.sql.statements import (
    AlterUser,
    CreateAlert,
    CreateToken,
    CreateUser,
    Statement,
    UseSchema,
    UseVcluster,
)
from headrace.sql.tokens import Token, position_at, scan

Parse = Callable[[str], Statement]
TaskKind = Literal["SQL", "PYTHON", "SHELL"]

_SOME_TIME = datetime(2000, 1, 1, tzinfo=timezone.utc)


def parse_body(cursor: Cursor, parse: Parse) -> tuple[TaskKind, str, int]:
    """What the task runs, and where that begins in the text."""
    start = cursor.token()
    if cursor.accept("PYTHON"):
        return "PYTHON", _python(cursor), start.start
    if cursor.accept("SHELL"):
        return "SHELL", _shell(cursor), start.start
    if cursor.sees("BEGIN"):
        end = task_end(cursor.tokens, cursor.index)
        if end is None:
            raise _without_end(cursor)
        offset, until = start.end, cursor.tokens[end].start
        cursor.index = end + 1
        cursor.end()
    else:
        if cursor.at_end:
            raise cursor.fault("a statement, BEGIN, PYTHON or SHELL")
        offset, until = start.start, len(cursor.text)
    body = cursor.text[offset:until].strip()
    offset += len(cursor.text[offset:until]) - len(cursor.text[offset:until].lstrip())
    parts = split_statements(body)
    if not parts:
        cursor.index -= 1
        raise cursor.fault("a statement")
    for part in parts:
        _check(part, cursor.text, offset, parse)
    return "SQL", body, offset


def _without_end(cursor: Cursor) -> SyntaxFault:
    last = cursor.tokens[-1]
    if last.upper == "END":
        return SyntaxFault(
            "Syntax error: expected ';' before END.",
            hint="Every statement of the task ends with ';', the last one too.",
            position=cursor.position(last),
        )
    return SyntaxFault("Syntax error: this BEGIN has no END.", hint=cursor.hint, position=cursor.position())


def _check(part: StatementText, text: str, offset: int, parse: Parse) -> None:
    """Raise unless a part of the body is a statement that a task may run."""
    place = position_at(text, offset + part.offset)
    in_whole = StatementText(part.text, offset + part.offset, place.line, place.column)
    try:
        _refuse_by_words(part.text)
        with_scheduled_time(part.text, _SOME_TIME)
        statement = parse(part.text)
        refused = next(((what, hint) for kinds, what, hint in _REFUSED if isinstance(statement, kinds)), None)
        if refused is not None:
            raise NotAllowed(refused[0], hint=refused[1], position=_first(part.text))
    except HeadraceError as error:
        if error.position is not None:
            error.position = in_whole.in_script(error.position)
        raise


def _refuse_by_words(text: str) -> None:
    """Tasks in tasks, before they are parsed: there would be no end to it."""
    words = [token.upper for token in scan(text)[:4]]
    about = 3 if words[1:3] == ["OR", "REPLACE"] else 1
    if words[:1] == ["BEGIN"]:
        raise NotAllowed(
            "A block of statements cannot stand in a task's own.",
            hint="Write the statements one after the other.",
            position=_first(text),
        )
    if words[0] in ("CREATE", "ALTER", "DROP", "EXECUTE") and words[about : about + 1] == ["TASK"]:
        raise NotAllowed(
            f"{words[0]} TASK cannot stand in a task.",
            hint="Let one task run after another: CREATE TASK … AFTER ….",
            position=_first(text),
        )


def _first(text: str) -> Position:
    return position_at(text, scan(text)[0].start)


_REFUSED: tuple[tuple[type[Statement] | tuple[type[Statement], ...], str, str], ...] = (
    (
        UseSchema,
        "USE cannot stand in a task: its statements begin in the schema that is current when it is created.",
        "Write names with their schema: schema.table.",
    ),
    (
        UseVcluster,
        "USE VCLUSTER cannot stand in a task: it runs on the one that CREATE TASK … VCLUSTER names.",
        "Write CREATE TASK … VCLUSTER name.",
    ),
    (
        (CreateUser, AlterUser, CreateToken, CreateAlert),
        "A statement with a password, a token or an alert's addresses cannot stand in a task, where others could read "
        "it.",
        "Run it by itself.",
    ),
)


def _python(cursor: Cursor) -> str:
    """The file and its arguments, as one command line."""
    at = cursor.token()
    file = cursor.string("the file in quotes")
    path = PurePosixPath(file)
    if not file or path.is_absolute() or ".." in path.parts or file.startswith("-"):
        raise BadSetting(
            f"'{file}' is no file of the folder 'tasks' in the lake.",
            hint="Put the file there, and write its path from there: PYTHON 'load.py'.",
            position=cursor.position(at),
        )
    arguments = [file]
    cursor.accept(",")
    while not cursor.at_end:
        arguments.append(cursor.string("an argument in quotes"))
        if not cursor.at_end:
            cursor.expect(",")
    _refuse_nul(cursor, at, arguments)
    return shlex.join(arguments)


def _shell(cursor: Cursor) -> str:
    at = cursor.token()
    line = cursor.string("the command line in quotes").strip()
    cursor.end()
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise BadSetting(
            f"The command line cannot be read: {error}.",
            hint="Quotes in it must be closed, as in a shell.",
            position=cursor.position(at),
        ) from None
    if not words or not words[0]:
        raise BadSetting("The command line is empty.", hint="Write SHELL 'sh load.sh'.", position=cursor.position(at))
    _refuse_nul(cursor, at, words)
    return line


def _refuse_nul(cursor: Cursor, at: Token, words: list[str]) -> None:
    if any("\0" in word for word in words):
        raise BadSetting(
            "A command line cannot contain the character NUL.", hint="Take it out.", position=cursor.position(at)
        )
