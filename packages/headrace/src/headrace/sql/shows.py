"""SHOW, alone and inside a query."""

from __future__ import annotations

import dataclasses

from headrace.errors import SyntaxFault
from headrace.sql.cursor import Cursor
from headrace.sql.spark_statement import parse_spark
from headrace.sql.statements import (
    Parts,
    SelectFromShow,
    ShowCreateTable,
    ShowDynamicTables,
    ShowRefreshHistory,
    ShowStreams,
    ShowTables,
    Statement,
)
from headrace.sql.tokens import Kind
from headrace.sql.unavailable import refuse_unavailable

_FILTER_FORM = "[IN schema] [LIKE 'pattern' | WHERE condition] [LIMIT n]"
# Words that would make more of a WHERE clause than a condition.
_NO_CONDITION = ("UNION", "EXCEPT", "MINUS", "INTERSECT", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE")
_READS_A_SHOW = ("SELECT", "WITH", "FROM", "INSERT", "(")
# fmt: off
_SHOWABLE = (
    "ALL", "CATALOGS", "COLUMNS", "CREATE", "CURRENT", "DATABASES", "DYNAMIC", "FUNCTIONS", "GRANTS", "JOBS",
    "NAMESPACES", "PARTITIONS", "SCHEMAS", "SYSTEM", "TABLE", "TABLES", "TASKS", "TBLPROPERTIES", "TOKENS", "USER",
    "USERS", "VCLUSTERS", "VIEWS",
)
# fmt: on


def parse_show(cursor: Cursor) -> Statement:
    """Any SHOW; those that are not ours come back as a SparkStatement."""
    refuse_unavailable(cursor)
    if cursor.sees("SHOW", "DYNAMIC", "TABLE", "REFRESH"):
        return _refresh_history(cursor)
    if cursor.sees("SHOW", "DYNAMIC"):
        cursor.form = f"SHOW DYNAMIC TABLES {_FILTER_FORM}"
        cursor.index += 2
        cursor.expect("TABLES")
        return ShowDynamicTables(cursor.text, *_filters(cursor))
    if cursor.accept("SHOW", "TABLES"):
        cursor.form = f"SHOW TABLES {_FILTER_FORM}"
        return ShowTables(cursor.text, *_filters(cursor))
    if cursor.accept("SHOW", "TABLE", "STREAMS"):
        cursor.form = f"SHOW TABLE STREAMS {_FILTER_FORM}"
        return ShowStreams(cursor.text, *_filters(cursor))
    if cursor.accept("SHOW", "CREATE", "TABLE"):
        cursor.form = "SHOW CREATE TABLE name"
        name = cursor.name()
        cursor.end()
        return ShowCreateTable(cursor.text, name)
    return parse_spark(cursor)


def _refresh_history(cursor: Cursor) -> ShowRefreshHistory:
    cursor.form = "SHOW DYNAMIC TABLE REFRESH HISTORY [WHERE condition] [LIMIT n]"
    cursor.expect("SHOW", "DYNAMIC", "TABLE", "REFRESH", "HISTORY")
    where, limit = _where(cursor), limit_clause(cursor)
    cursor.end()
    return ShowRefreshHistory(cursor.text, where, limit)


def _filters(cursor: Cursor) -> tuple[Parts | None, str | None, str | None, int | None]:
    schema: Parts | None = None
    if cursor.accept("IN") or cursor.accept("FROM"):
        schema = schema_name(cursor)
    like: str | None = None
    if cursor.accept("LIKE") or cursor.token().kind is Kind.STRING:
        like = cursor.string("a pattern in quotes")
    where, limit = _where(cursor), limit_clause(cursor)
    if not cursor.at_end:
        raise cursor.fault("IN, LIKE, WHERE, LIMIT or the end of the statement")
    return schema, like, where, limit


def schema_name(cursor: Cursor) -> Parts:
    """One part, or two with the workspace first."""
    start = cursor.token()
    parts = cursor.name("a schema name")
    if len(parts) > 2:
        raise SyntaxFault(
            f"'{'.'.join(parts)}' has three parts; a schema name has one or two.",
            hint="Write schema or workspace.schema.",
            position=cursor.position(start),
        )
    return parts


def _where(cursor: Cursor) -> str | None:
    if not cursor.accept("WHERE"):
        return None
    condition = cursor.text_until("a condition", "LIMIT", *_NO_CONDITION)
    if cursor.sees_any(*_NO_CONDITION):
        raise cursor.fault("LIMIT or the end of the statement")
    return condition


def limit_clause(cursor: Cursor) -> int | None:
    return cursor.integer("a number of rows") if cursor.accept("LIMIT") else None


def parse_select_from_show(cursor: Cursor) -> SelectFromShow | None:
    """The query as the text around its first `(SHOW …)`; None when it has none."""
    if not cursor.sees_any(*_READS_A_SHOW):
        return None
    for index in range(1, len(cursor.tokens) - 1):
        if cursor.tokens[index].upper == "SHOW" and cursor.tokens[index - 1].text == "(":
            found = _around_show(cursor, index)
            if found is not None:
                return found
    return None


def _around_show(cursor: Cursor, show: int) -> SelectFromShow | None:
    tokens, text = cursor.tokens, cursor.text
    first = show
    while first > 0 and tokens[first - 1].text == "(":
        first -= 1
    before = tokens[first - 1].upper or tokens[first - 1].text if first else ""
    if before not in ("FROM", "JOIN", ",", "AS") or (before != "FROM" and tokens[show + 1].upper not in _SHOWABLE):
        return None
    if tokens[show + 1].kind is not Kind.WORD:
        return None
    cursor.index = show - 1
    cursor.skip_parentheses()
    last = cursor.index - 1
    # The inner cursor keeps the text before the SHOW, so that its faults point into the whole statement.
    inner = Cursor(text[: tokens[last - 1].end], tokens[show:last])
    shown = parse_show(inner)
    for _ in range(show - 1 - first):
        cursor.expect(")")
    own = dataclasses.replace(shown, text=shown.text[tokens[show].start :])
    head, tail = text[: tokens[first].start], text[cursor.token(-1).end :]
    if before == "AS":
        return SelectFromShow(text, f"{head}(SELECT * FROM ", own, f"){tail}")
    return SelectFromShow(text, head, own, tail)
