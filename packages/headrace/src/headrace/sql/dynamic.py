"""Statements about dynamic tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn

from headrace.errors import SyntaxFault, UserError
from headrace.sql.cursor import Cursor
from headrace.sql.spark_statement import QUERY_STARTS
from headrace.sql.statements import (
    CreateDynamicTable,
    DeclaredColumn,
    DropDynamicTable,
    ExplainIncremental,
    ExplainRefresh,
    Parts,
    RefreshDynamicTables,
    RefreshMode,
    TargetLag,
    VerifyDynamicTable,
)
from headrace.sql.tokens import Kind, Token
from headrace.sql.unavailable import REFRESH_PARTITION, refuse_part

_CREATE_FORM = (
    "CREATE [OR REPLACE] DYNAMIC TABLE [IF NOT EXISTS] name [(column [COMMENT 'c'], …)] [PARTITIONED BY (column, …)] "
    "[CLUSTERED BY (column, …)] [COMMENT 'c'] [PROPERTIES ('k'='v', …)] "
    "[REFRESH [START WITH ts] [INTERVAL n MINUTE] [VCLUSTER name]] [REFRESH_MODE = AUTO|INCREMENTAL|FULL] "
    "[TARGET_LAG = 'n unit' | DOWNSTREAM] AS query"
)
_CLAUSE_WORDS = ("PARTITIONED", "CLUSTERED", "COMMENT", "PROPERTIES", "TBLPROPERTIES", "REFRESH", "REFRESH_MODE")
_SECONDS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400}
SMALLEST_INTERVAL = 60
_AMOUNT = re.compile(r"\s*([0-9]{1,9})\s*([A-Za-z]*)\s*")


def parse_create(cursor: Cursor) -> CreateDynamicTable:
    cursor.form = _CREATE_FORM
    cursor.expect("CREATE")
    or_replace = cursor.accept("OR", "REPLACE")
    cursor.expect("DYNAMIC", "TABLE")
    at = cursor.token()
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    if or_replace and if_not_exists:
        raise SyntaxFault(
            "OR REPLACE and IF NOT EXISTS exclude each other.",
            hint="Keep one of them.",
            position=cursor.position(at),
        )
    name = cursor.name()
    columns = _columns(cursor) if cursor.sees("(") else ()
    clauses = _clauses(cursor)
    query, offset = _query(cursor)
    return CreateDynamicTable(
        cursor.text, name, query, offset, columns, or_replace=or_replace, if_not_exists=if_not_exists, **clauses
    )


def _columns(cursor: Cursor) -> tuple[DeclaredColumn, ...]:
    cursor.expect("(")
    columns: list[DeclaredColumn] = []
    while True:
        name = cursor.identifier("a column name")
        comment = cursor.string("the comment in quotes") if cursor.accept("COMMENT") else None
        columns.append(DeclaredColumn(name, comment))
        if cursor.accept(")"):
            return tuple(columns)
        if not cursor.accept(","):
            raise cursor.fault("COMMENT, ',' or ')' (columns take their types from the query)")


def _clauses(cursor: Cursor) -> dict[str, Any]:
    """The clauses up to and including AS, as arguments of CreateDynamicTable."""
    found: dict[str, Any] = {}
    seen: set[Callable[[Cursor], dict[str, Any]]] = set()
    while not cursor.accept("AS"):
        start = cursor.token()
        parser = _CLAUSES.get(start.upper)
        if parser is None:
            raise cursor.fault("a clause or AS")
        if parser in seen:
            _given_twice(cursor, start)
        seen.add(parser)
        found |= parser(cursor)
    return found


def _given_twice(cursor: Cursor, start: Token) -> NoReturn:
    raise SyntaxFault(f"{start.upper} is given twice.", hint=cursor.hint, position=cursor.position(start))


def _partitioned_by(cursor: Cursor) -> dict[str, Any]:
    cursor.expect("PARTITIONED", "BY")
    return {"partitioned_by": cursor.identifiers("a column name")}


def _clustered_by(cursor: Cursor) -> dict[str, Any]:
    cursor.expect("CLUSTERED", "BY")
    return {"clustered_by": cursor.identifiers("a column name")}


def _comment(cursor: Cursor) -> dict[str, Any]:
    return {"comment": comment_text(cursor)}


def _properties(cursor: Cursor) -> dict[str, Any]:
    cursor.next()
    return {"properties": cursor.properties()}


def _refresh_mode(cursor: Cursor) -> dict[str, Any]:
    return {"refresh_mode": refresh_mode(cursor)}


def _target_lag(cursor: Cursor) -> dict[str, Any]:
    return {"target_lag": target_lag(cursor)}


def target_lag(cursor: Cursor) -> TargetLag:
    """TARGET_LAG = 'n unit' | DOWNSTREAM; seconds, or DOWNSTREAM."""
    cursor.expect("TARGET_LAG", "=")
    literal = cursor.token()
    if cursor.accept("DOWNSTREAM"):
        return "DOWNSTREAM"
    seconds = seconds_in(cursor.string("'n unit' or DOWNSTREAM"))
    if seconds is None:
        raise UserError(
            "TARGET_LAG is written as 'n unit' or DOWNSTREAM.",
            hint="Write TARGET_LAG = '10 minutes'.",
            position=cursor.position(literal),
        )
    if seconds < SMALLEST_INTERVAL:
        raise UserError(
            "TARGET_LAG is too short: the smallest is 1 minute.",
            hint="Write TARGET_LAG = '1 minute', or refresh by hand with REFRESH DYNAMIC TABLE.",
            position=cursor.position(literal),
        )
    return seconds


def seconds_in(text: str) -> int | None:
    """The seconds of `5 minutes`; None when it is no amount of time.

    >>> seconds_in("5 minutes"), seconds_in("1 DAY"), seconds_in("soon")
    (300, 86400, None)
    """
    amount = _AMOUNT.fullmatch(text)
    unit = None if amount is None else _unit_seconds(amount.group(2))
    return None if amount is None or unit is None else int(amount.group(1)) * unit


def _refresh(cursor: Cursor) -> dict[str, Any]:
    """REFRESH with its parts in any order."""
    cursor.expect("REFRESH")
    found: dict[str, Any] = {}
    while cursor.sees_any("START", "INTERVAL", "VCLUSTER"):
        start = cursor.token()
        key, value = _refresh_part(cursor)
        if key in found:
            _given_twice(cursor, start)
        found[key] = value
    if not found:
        raise cursor.fault("START WITH, INTERVAL or VCLUSTER")
    return found


def _refresh_part(cursor: Cursor) -> tuple[str, Any]:
    if cursor.accept("START"):
        cursor.expect("WITH")
        return "start_with", _start_with(cursor)
    if cursor.sees("INTERVAL"):
        return "interval_seconds", refresh_interval(cursor)
    cursor.expect("VCLUSTER")
    return "vcluster", cursor.identifier("the name of a virtual cluster")


def _start_with(cursor: Cursor) -> str:
    """The timestamp up to the next part or clause; `now() + INTERVAL 1 DAY` goes on at its INTERVAL."""
    start = cursor.token()
    stops = ("INTERVAL", "VCLUSTER", "AS", "TARGET_LAG", *_CLAUSE_WORDS)
    cursor.text_until("a timestamp", *stops)
    while cursor.sees("INTERVAL") and cursor.token(-1).text in ("+", "-"):
        cursor.next()
        cursor.text_until("an interval", *stops)
    return cursor.text[start.start : cursor.token(-1).end]


def refresh_interval(cursor: Cursor) -> int:
    """INTERVAL 5 MINUTE, INTERVAL '5' MINUTE or INTERVAL '5 minutes', in seconds."""
    cursor.expect("INTERVAL")
    at = cursor.token()
    if at.kind is Kind.STRING:
        amount = _AMOUNT.fullmatch(at.value)
        if amount is None:
            raise cursor.fault("a number and a unit")
        cursor.next()
        count, unit = int(amount.group(1)), amount.group(2)
    else:
        count, unit = cursor.integer("a number"), ""
    seconds = _unit_seconds(unit or cursor.token().text)
    if seconds is None:
        raise cursor.fault("SECOND, MINUTE, HOUR or DAY")
    if not unit:
        cursor.next()
    if count * seconds < SMALLEST_INTERVAL:
        raise UserError(
            "The refresh interval is too short: the smallest is 1 minute.",
            hint="Write REFRESH INTERVAL 1 MINUTE, or refresh by hand with REFRESH DYNAMIC TABLE.",
            position=cursor.position(at),
        )
    return count * seconds


def _unit_seconds(unit: str) -> int | None:
    return _SECONDS.get(unit.upper().removesuffix("S"))


def refresh_mode(cursor: Cursor) -> RefreshMode:
    cursor.expect("REFRESH_MODE", "=")
    for mode in ("AUTO", "INCREMENTAL", "FULL"):
        if cursor.accept(mode):
            return mode
    raise cursor.fault("AUTO, INCREMENTAL or FULL")


def comment_text(cursor: Cursor) -> str:
    cursor.expect("COMMENT")
    cursor.accept("=")
    return cursor.string("the comment in quotes")


_CLAUSES: dict[str, Callable[[Cursor], dict[str, Any]]] = {
    "PARTITIONED": _partitioned_by,
    "CLUSTERED": _clustered_by,
    "COMMENT": _comment,
    "PROPERTIES": _properties,
    "TBLPROPERTIES": _properties,
    "REFRESH": _refresh,
    "REFRESH_MODE": _refresh_mode,
    "TARGET_LAG": _target_lag,
}


def _query(cursor: Cursor) -> tuple[str, int]:
    if not cursor.sees_any(*QUERY_STARTS):
        raise cursor.fault("a query")
    start = cursor.token().start
    return cursor.text_until("a query"), start


def parse_refresh(cursor: Cursor) -> RefreshDynamicTables:
    cursor.form = "REFRESH DYNAMIC TABLE name [, …] [FULL]"
    cursor.expect("REFRESH", "DYNAMIC", "TABLE")
    names = [cursor.name()]
    while cursor.accept(","):
        names.append(cursor.name())
    at = cursor.token()
    partition: dict[str, str] = {}
    if cursor.accept("PARTITION"):
        partition = cursor.properties()
        refuse_part(REFRESH_PARTITION, cursor, at)
    full = cursor.accept("FULL")
    cursor.end()
    return RefreshDynamicTables(cursor.text, tuple(names), partition, full)


def dynamic_table_name(cursor: Cursor, *verbs: str) -> Parts:
    cursor.expect(*verbs, "DYNAMIC", "TABLE")
    return cursor.name()


def parse_drop(cursor: Cursor) -> DropDynamicTable:
    cursor.form = "DROP DYNAMIC TABLE [IF EXISTS] name"
    cursor.expect("DROP", "DYNAMIC", "TABLE")
    if_exists = cursor.accept("IF", "EXISTS")
    name = cursor.name()
    cursor.end()
    return DropDynamicTable(cursor.text, name, if_exists)


def parse_explain_refresh(cursor: Cursor) -> ExplainRefresh:
    cursor.form = "EXPLAIN REFRESH DYNAMIC TABLE name"
    name = dynamic_table_name(cursor, "EXPLAIN", "REFRESH")
    cursor.end()
    return ExplainRefresh(cursor.text, name)


def parse_explain_incremental(cursor: Cursor) -> ExplainIncremental:
    cursor.form = "EXPLAIN INCREMENTAL query"
    cursor.expect("EXPLAIN", "INCREMENTAL")
    query, offset = _query(cursor)
    return ExplainIncremental(cursor.text, query, offset)


def parse_verify(cursor: Cursor) -> VerifyDynamicTable:
    cursor.form = "VERIFY DYNAMIC TABLE name"
    name = dynamic_table_name(cursor, "VERIFY")
    cursor.end()
    return VerifyDynamicTable(cursor.text, name)


def refuse_materialized(cursor: Cursor) -> NoReturn:
    """CREATE MATERIALIZED VIEW, as others call a dynamic table."""
    cursor.index = next(i for i, token in enumerate(cursor.tokens) if token.upper == "MATERIALIZED")
    fault = cursor.fault("DYNAMIC TABLE")
    fault.hint = "Write CREATE DYNAMIC TABLE name AS query. REFRESH DYNAMIC TABLE, or a schedule, keeps it up to date."
    raise fault


def refuse_explain_create(cursor: Cursor) -> NoReturn:
    """EXPLAIN CREATE DYNAMIC TABLE: what it would tell is told of the query alone."""
    cursor.index = 1
    fault = cursor.fault("INCREMENTAL and a query")
    fault.hint = "Write EXPLAIN INCREMENTAL query: it tells how a dynamic table of that query would be maintained."
    raise fault


def refuse_bare_dynamic(cursor: Cursor) -> NoReturn:
    """A verb with DYNAMIC that none of the statements above takes."""
    cursor.index = next(i for i, token in enumerate(cursor.tokens) if token.upper == "DYNAMIC") + 1
    raise cursor.fault("TABLE")
