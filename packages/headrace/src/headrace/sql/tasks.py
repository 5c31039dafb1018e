"""Statements about tasks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

from headrace.errors import BadSetting, SyntaxFault
from headrace.sql import tables
from headrace.sql.cursor import Cursor
from headrace.sql.dynamic import SMALLEST_INTERVAL, comment_text, seconds_in
from headrace.sql.statements import (
    AlterTask,
    CreateTask,
    DescribeTask,
    DropTask,
    ExecuteTask,
    Parts,
    Resume,
    SetTaskOptions,
    Statement,
    Suspend,
)
from headrace.sql.task_bodies import Parse, parse_body
from headrace.sql.tokens import Kind, Token

Clauses = dict[str, Callable[[Cursor], dict[str, Any]]]

_OPTIONS_FORM = (
    "[SCHEDULE = 'n unit' | 'USING CRON minute hour day month weekday zone'] [AFTER name, …] [VCLUSTER name] "
    "[TIMEOUT = 'n unit'] [RETRY n] [COMMENT 'c']"
)
_CREATE_FORM = (
    f"CREATE [OR REPLACE] TASK [IF NOT EXISTS] name {_OPTIONS_FORM} "
    "AS {statement | BEGIN statement; … END | PYTHON 'file.py' ['argument', …] | SHELL 'command line'}"
)
_ALTER_FORM = (
    "ALTER TASK name {SUSPEND | RESUME | SET option = value [, …]}, the options being SCHEDULE, AFTER (name, …), "
    "VCLUSTER, TIMEOUT, RETRY and COMMENT"
)
_EXECUTE_FORM = "EXECUTE TASK name {[AT timestamp | FROM timestamp TO timestamp] [PREVIEW] | CANCEL}"
_WHAT = "a task's name"
_CRON = re.compile(r"\s*USING\s+CRON\b\s*(.*?)\s*", re.IGNORECASE | re.DOTALL)
_CRON_HINT = "Write SCHEDULE = 'USING CRON 0 9 * * MON-FRI Europe/Berlin': five fields, then the time zone."
_LONGEST_SECONDS = 366 * 86400
_MOST_RETRIES = 100


def parse_create(cursor: Cursor, parse: Parse) -> CreateTask:
    """`parse` is for the statements of the task: each of them must be one, and a fault points into the whole text."""
    cursor.form = _CREATE_FORM
    cursor.expect("CREATE")
    or_replace = cursor.accept("OR", "REPLACE")
    cursor.expect("TASK")
    at = cursor.token()
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    if or_replace and if_not_exists:
        raise SyntaxFault(
            "OR REPLACE and IF NOT EXISTS exclude each other.",
            hint="Keep one of them.",
            position=cursor.position(at),
        )
    name = cursor.name(_WHAT)
    options: dict[str, Any] = {}
    seen: set[str] = set()
    while not cursor.accept("AS"):
        _clause(cursor, _CREATED, options, seen, "a clause or AS")
    kind, body, offset = parse_body(cursor, parse)
    return CreateTask(
        cursor.text, name, kind, body, offset, or_replace=or_replace, if_not_exists=if_not_exists, **options
    )


def parse_alter(cursor: Cursor) -> AlterTask:
    cursor.form = _ALTER_FORM
    cursor.expect("ALTER", "TASK")
    name = cursor.name(_WHAT)
    action: Suspend | Resume | SetTaskOptions
    if cursor.accept("SUSPEND"):
        action = Suspend()
    elif cursor.accept("RESUME"):
        action = Resume()
    elif cursor.accept("SET"):
        action = _set(cursor)
    else:
        raise cursor.fault("SUSPEND, RESUME or SET")
    cursor.end()
    return AlterTask(cursor.text, name, action)


def _set(cursor: Cursor) -> SetTaskOptions:
    options: dict[str, Any] = {}
    seen: set[str] = set()
    expected = ", ".join(list(_ALTERED)[:-1]) + f" or {list(_ALTERED)[-1]}"
    _clause(cursor, _ALTERED, options, seen, expected)
    while not cursor.at_end:
        after_comma = cursor.accept(",")
        _clause(cursor, _ALTERED, options, seen, expected if after_comma else "',' or the end of the statement")
    return SetTaskOptions(options)


def parse_drop(cursor: Cursor) -> DropTask:
    cursor.form = "DROP TASK [IF EXISTS] name"
    cursor.expect("DROP", "TASK")
    if_exists = cursor.accept("IF", "EXISTS")
    name = cursor.name(_WHAT)
    cursor.end()
    return DropTask(cursor.text, name, if_exists)


def parse_execute(cursor: Cursor) -> ExecuteTask:
    cursor.form = _EXECUTE_FORM
    cursor.expect("EXECUTE", "TASK")
    name = cursor.name(_WHAT)
    at = start = end = None
    if cursor.accept("AT"):
        at = cursor.text_until("a timestamp", "PREVIEW")
    elif cursor.accept("FROM"):
        start = cursor.text_until("a timestamp", "TO", "PREVIEW")
        cursor.expect("TO")
        end = cursor.text_until("a timestamp", "PREVIEW")
    bare = at is None and start is None
    preview = cursor.accept("PREVIEW")
    cancel = bare and not preview and cursor.accept("CANCEL")
    if not cursor.at_end:
        bare = bare and not preview and not cancel
        raise cursor.fault(
            "AT, FROM, PREVIEW, CANCEL or the end of the statement" if bare else "the end of the statement"
        )
    return ExecuteTask(cursor.text, name, at, start, end, preview, cancel)


def parse_describe(cursor: Cursor) -> Statement:
    """`DESC task` alone means a table of that name."""
    if not cursor.token(2).is_name and cursor.token(2).kind is not Kind.STRING:
        return tables.parse_describe(cursor)
    cursor.form = "DESC TASK name"
    cursor.index += 2
    name = cursor.name(_WHAT)
    cursor.end()
    return DescribeTask(cursor.text, name)


# Clauses


def _clause(cursor: Cursor, known: Clauses, options: dict[str, Any], seen: set[str], expected: str) -> None:
    """Take one `KEYWORD [=] value`."""
    at = cursor.token()
    if at.upper not in known:
        raise cursor.fault(expected)
    if at.upper in seen:
        raise SyntaxFault(f"{at.upper} is given twice.", hint=cursor.hint, position=cursor.position(at))
    seen.add(at.upper)
    options |= known[at.upper](cursor)


def _schedule(cursor: Cursor) -> dict[str, Any]:
    _keyword(cursor, "SCHEDULE")
    at = cursor.token()
    text = cursor.string("'n unit' or 'USING CRON …'")
    cron = _CRON.fullmatch(text)
    if cron is not None:
        expression, zone = _cron(cursor, at, cron.group(1))
        return {"interval_seconds": None, "cron": expression, "zone": zone}
    seconds = _seconds(cursor, at, text, "SCHEDULE", "'5 minutes', or 'USING CRON 0 9 * * * UTC'")
    if seconds < SMALLEST_INTERVAL:
        raise BadSetting(
            "The schedule is too short: the smallest is 1 minute.",
            hint="Write SCHEDULE = '1 minute'.",
            position=cursor.position(at),
        )
    return {"interval_seconds": seconds, "cron": None, "zone": None}


def _cron(cursor: Cursor, at: Token, text: str) -> tuple[str, str]:
    """The five fields and the zone. What the fields mean is for the scheduler to say."""
    fields = text.split()
    if len(fields) != 6:
        raise BadSetting(
            f"USING CRON takes five fields and a time zone; here are {len(fields)} words.",
            hint=_CRON_HINT,
            position=cursor.position(at),
        )
    *expression, zone = fields
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):  # A folder of zones is found, and is none.
        raise BadSetting(f"There is no time zone '{zone}'.", hint=_CRON_HINT, position=cursor.position(at)) from None
    return " ".join(expression), zone


def _timeout(cursor: Cursor) -> dict[str, Any]:
    _keyword(cursor, "TIMEOUT")
    at = cursor.token()
    seconds = _seconds(cursor, at, cursor.string("'n unit'"), "TIMEOUT", "'10 minutes'")
    if not seconds:
        raise BadSetting("TIMEOUT cannot be 0.", hint="Leave it out for none.", position=cursor.position(at))
    return {"timeout_seconds": seconds}


def _seconds(cursor: Cursor, at: Token, text: str, what: str, example: str) -> int:
    seconds = seconds_in(text)
    if seconds is None:
        raise BadSetting(f"{what} cannot be '{text}'.", hint=f"Write {example}.", position=cursor.position(at))
    if seconds > _LONGEST_SECONDS:
        raise BadSetting(
            f"{what} cannot be more than 366 days.", hint="Write a shorter time.", position=cursor.position(at)
        )
    return seconds


def _retry(cursor: Cursor) -> dict[str, Any]:
    _keyword(cursor, "RETRY")
    at = cursor.token()
    retries = cursor.integer(f"a number from 0 to {_MOST_RETRIES}")
    if retries > _MOST_RETRIES:
        raise BadSetting(
            f"RETRY cannot be {retries}.",
            hint=f"It is a number from 0 to {_MOST_RETRIES}.",
            position=cursor.position(at),
        )
    return {"retries": retries}


def _vcluster(cursor: Cursor) -> dict[str, Any]:
    _keyword(cursor, "VCLUSTER")
    return {"vcluster": cursor.identifier("the name of a virtual cluster").lower()}


def _comment(cursor: Cursor) -> dict[str, Any]:
    return {"comment": comment_text(cursor)}


def _after(cursor: Cursor) -> dict[str, Any]:
    """AFTER a, b or AFTER (a, b)."""
    _keyword(cursor, "AFTER")
    if cursor.sees("("):
        return {"after": _in_parentheses(cursor)}
    found = [_predecessor(cursor)]
    while cursor.accept(","):
        found.append(_predecessor(cursor))
    return {"after": tuple(found)}


def _altered_after(cursor: Cursor) -> dict[str, Any]:
    """AFTER (a, b), AFTER () for none, or AFTER a: a comma goes on with the next option."""
    _keyword(cursor, "AFTER")
    return {"after": _in_parentheses(cursor) if cursor.sees("(") else (_predecessor(cursor),)}


def _in_parentheses(cursor: Cursor) -> tuple[Parts, ...]:
    cursor.expect("(")
    found: list[Parts] = []
    while not cursor.accept(")"):
        if found and not cursor.accept(","):
            raise cursor.fault("',' or ')'")
        found.append(_predecessor(cursor))
    return tuple(found)


def _predecessor(cursor: Cursor) -> Parts:
    return cursor.name("the name of a task or dynamic table")


def _or_none(clause: Callable[[Cursor], dict[str, Any]], none: dict[str, Any]) -> Callable[[Cursor], dict[str, Any]]:
    """The clause, or NONE in the place of its value, to take it away."""

    def parse(cursor: Cursor) -> dict[str, Any]:
        ahead = 2 if cursor.token(1).text == "=" else 1
        if cursor.token(ahead).upper != "NONE":
            return clause(cursor)
        cursor.index += ahead + 1
        return none

    return parse


def _keyword(cursor: Cursor, word: str) -> None:
    cursor.expect(word)
    cursor.accept("=")


_CREATED: Clauses = {
    "SCHEDULE": _schedule,
    "AFTER": _after,
    "VCLUSTER": _vcluster,
    "TIMEOUT": _timeout,
    "RETRY": _retry,
    "COMMENT": _comment,
}
_ALTERED: Clauses = {
    **_CREATED,
    "SCHEDULE": _or_none(_schedule, {"interval_seconds": None, "cron": None, "zone": None}),
    "AFTER": _altered_after,
    "TIMEOUT": _or_none(_timeout, {"timeout_seconds": 0}),
}
