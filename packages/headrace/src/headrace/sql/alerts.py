"""Statements about alerts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from headrace.errors import BadSetting, SyntaxFault, UserError
from headrace.sql.cursor import Cursor
from headrace.sql.dynamic import comment_text, seconds_in
from headrace.sql.statements import AlterAlert, CreateAlert, DropAlert, Resume, Suspend
from headrace.sql.tokens import Kind, Token

Event = Literal["FAILURE", "TIMEOUT", "LAG", "SUSPENSION"]

MOST_TARGETS = 10

_CREATE_FORM = (
    "CREATE [OR REPLACE] ALERT name ON {FAILURE | TIMEOUT | SUSPENSION | LAG > 'n unit'} [, …] "
    "[FOR DYNAMIC TABLE table | FOR TASK task | FOR ALL] NOTIFY {'https://…' | 'mailto:address'} [, …] [COMMENT 'c']"
)
_EVENTS: tuple[Event, ...] = ("FAILURE", "TIMEOUT", "SUSPENSION", "LAG")
_LONGEST_LAG = 366 * 86400


class _Discreet(Cursor):
    """Its faults do not repeat what is in quotes: an address that alerts go to may be a secret, and faults are shown,
    logged and kept."""

    def fault(self, expected: str) -> SyntaxFault:
        if self.token().kind not in (Kind.STRING, Kind.QUOTED):
            return super().fault(expected)
        return SyntaxFault(
            f"Syntax error: expected {expected}, found something in quotes.", hint=self.hint, position=self.position()
        )


def parse_create(cursor: Cursor) -> CreateAlert:
    """FOR, NOTIFY and COMMENT may stand in any order."""
    cursor = _Discreet(cursor.text, cursor.tokens, _CREATE_FORM)
    cursor.expect("CREATE")
    or_replace = cursor.accept("OR", "REPLACE")
    cursor.expect("ALERT")
    name = _name(cursor)
    cursor.expect("ON")
    events, lag_seconds = _events(cursor)
    clauses: dict[str, Any] = {}
    found: dict[str, Token] = {}
    while not cursor.at_end:
        at = cursor.token()
        parser = _CLAUSES.get(at.upper)
        if parser is None:
            could = [word for word in _CLAUSES if word not in found]
            if "NOTIFY" in found:
                could.append("the end of the statement")
            raise cursor.fault(" or ".join([", ".join(could[:-1]), could[-1]]) if len(could) > 1 else could[0])
        if at.upper in found:
            raise SyntaxFault(f"{at.upper} is given twice.", hint=cursor.hint, position=cursor.position(at))
        found[at.upper] = at
        clauses |= parser(cursor)
    if "NOTIFY" not in found:
        raise cursor.fault("NOTIFY")
    if clauses.get("kind") == "TASK" and "LAG" in events:
        raise UserError(
            "A task has no lag: LAG is about dynamic tables.",
            hint="Leave LAG out, or name a dynamic table.",
            position=cursor.position(found["FOR"]),
        )
    return CreateAlert(cursor.text, name, events, lag_seconds=lag_seconds, or_replace=or_replace, **clauses)


def parse_alter(cursor: Cursor) -> AlterAlert:
    cursor.form = "ALTER ALERT name {SUSPEND | RESUME}"
    cursor.expect("ALTER", "ALERT")
    name = _name(cursor)
    action: Suspend | Resume
    if cursor.accept("SUSPEND"):
        action = Suspend()
    elif cursor.accept("RESUME"):
        action = Resume()
    else:
        raise cursor.fault("SUSPEND or RESUME")
    cursor.end()
    return AlterAlert(cursor.text, name, action)


def parse_drop(cursor: Cursor) -> DropAlert:
    cursor.form = "DROP ALERT [IF EXISTS] name"
    cursor.expect("DROP", "ALERT")
    if_exists = cursor.accept("IF", "EXISTS")
    name = _name(cursor)
    cursor.end()
    return DropAlert(cursor.text, name, if_exists)


def _name(cursor: Cursor) -> str:
    return cursor.identifier("the name of an alert").lower()


def _events(cursor: Cursor) -> tuple[tuple[Event, ...], int | None]:
    """The events, with the threshold of LAG."""
    events: list[Event] = []
    lag: int | None = None
    while True:
        at = cursor.token()
        event = _event(cursor)
        if event in events:
            raise SyntaxFault(f"{event} is given twice.", hint=cursor.hint, position=cursor.position(at))
        events.append(event)
        if event == "LAG":
            lag = _lag(cursor)
        if not cursor.accept(","):
            return tuple(events), lag


def _event(cursor: Cursor) -> Event:
    for event in _EVENTS:
        if cursor.accept(event):
            return event
    raise cursor.fault("FAILURE, TIMEOUT, SUSPENSION or LAG > 'n unit'")


def _lag(cursor: Cursor) -> int:
    cursor.expect(">")
    at = cursor.token()
    seconds = seconds_in(cursor.string("'n unit', such as '10 minutes'"))
    if seconds is None or not 1 <= seconds <= _LONGEST_LAG:
        raise BadSetting(
            "The threshold of LAG is no amount of time that can be used.",
            hint="Write a number and SECOND, MINUTE, HOUR or DAY, such as LAG > '10 minutes'; at most 366 days.",
            position=cursor.position(at),
        )
    return seconds


# The clauses


def _for(cursor: Cursor) -> dict[str, Any]:
    cursor.expect("FOR")
    if cursor.accept("ALL"):
        return {"kind": "ALL"}
    if cursor.accept("DYNAMIC"):
        cursor.expect("TABLE")
        return {"kind": "TABLE", "object": cursor.name("the name of a dynamic table")}
    if cursor.accept("TASK"):
        return {"kind": "TASK", "object": cursor.name("the name of a task")}
    raise cursor.fault("DYNAMIC TABLE, TASK or ALL")


def _notify(cursor: Cursor) -> dict[str, Any]:
    """Whether an address can be used is asked when the statement runs: that depends on the settings."""
    cursor.expect("NOTIFY")
    targets: list[str] = []
    while True:
        at = cursor.token()
        target = cursor.string("'https://…' or 'mailto:address' in quotes")
        if target not in targets:
            targets.append(target)
        if len(targets) > MOST_TARGETS:
            raise BadSetting(
                f"An alert can go to at most {MOST_TARGETS} addresses.",
                hint="Create a second alert, or notify one address that tells the others.",
                position=cursor.position(at),
            )
        if not cursor.accept(","):
            return {"notify": tuple(targets)}


def _comment(cursor: Cursor) -> dict[str, Any]:
    return {"comment": comment_text(cursor)}


_CLAUSES: dict[str, Callable[[Cursor], dict[str, Any]]] = {"FOR": _for, "NOTIFY": _notify, "COMMENT": _comment}
