"""SHOW, alone and inside a query."""

from __future__ import annotations

import dataclasses
import difflib
import re
from typing import Literal

from headrace.errors import SyntaxFault
from headrace.sql.cursor import Cursor
from headrace.sql.rewrite import trigger_names
from headrace.sql.spark_statement import parse_spark
from headrace.sql.statements import (
    Parts,
    SelectFromShow,
    ShowAlertHistory,
    ShowAlerts,
    ShowCreateTable,
    ShowDynamicTables,
    ShowFreshness,
    ShowGrants,
    ShowJobs,
    ShowRefreshHistory,
    ShowStreams,
    ShowTables,
    ShowTaskHistory,
    ShowTasks,
    ShowTokens,
    ShowUsers,
    ShowVclusters,
    Statement,
)
from headrace.sql.tokens import Kind
from headrace.sql.unavailable import refuse_unavailable

_ROWS_FORM = "[LIKE 'pattern' | WHERE condition] [LIMIT n]"
_FILTER_FORM = f"[IN schema] {_ROWS_FORM}"
_REFRESH_HISTORY = (("DYNAMIC", "TABLE", "REFRESH"), ("DYNAMIC", "TABLE", "HISTORY"), ("REFRESH",))
# Words that would make more of a WHERE clause than a condition.
_NO_CONDITION = ("UNION", "EXCEPT", "MINUS", "INTERSECT", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE")
_READS_A_SHOW = ("SELECT", "WITH", "FROM", "INSERT", "(")
# fmt: off
_SHOWABLE = (
    "ALERT", "ALERTS", "ALL", "CACHED", "CATALOGS", "COLLATIONS", "COLUMNS", "CREATE", "CURRENT", "DATABASES",
    "DYNAMIC", "FRESHNESS", "FUNCTIONS", "GRANTS", "JOBS", "NAMESPACES", "PARTITIONS", "PROCEDURES", "SCHEMAS",
    "SYSTEM", "TABLE", "TABLES", "TASK", "TASKS", "TBLPROPERTIES", "TOKENS", "USER", "USERS", "VCLUSTERS", "VIEWS",
)
# fmt: on


def parse_show(cursor: Cursor) -> Statement:
    """Any SHOW; those that are not ours come back as a SparkStatement."""
    refuse_unavailable(cursor)
    # The history without all of its words is told how it is written, not handed to Spark.
    if any(cursor.sees("SHOW", *words) for words in _REFRESH_HISTORY):
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
        cursor.form = f"SHOW TABLE STREAMS {{READ BY query | {_FILTER_FORM}}}"
        return _read_streams(cursor) if cursor.accept("READ", "BY") else ShowStreams(cursor.text, *_filters(cursor))
    if cursor.accept("SHOW", "CREATE", "TABLE"):
        cursor.form = "SHOW CREATE TABLE name"
        name = cursor.name()
        cursor.end()
        return ShowCreateTable(cursor.text, name)
    return _about_the_schedule(cursor) or _about_the_server(cursor) or _others(cursor)


def _others(cursor: Cursor) -> Statement:
    """Spark's own. A word that is nearly one of those that can be shown is a slip, and not for Spark to judge."""
    word = "".join(token.upper for token in cursor.tokens[1:2])
    near = difflib.get_close_matches(word, _SHOWABLE, n=1)
    if near and word not in _SHOWABLE:
        cursor.index = 1
        fault = cursor.fault("what to show")
        fault.hint = f"Did you mean SHOW {near[0]}?"
        raise fault
    return parse_spark(cursor)


def _read_streams(cursor: Cursor) -> ShowStreams:
    begin = cursor.token().start
    if cursor.at_end:
        raise cursor.fault("a query")
    before = re.sub(r"[^\n]", " ", cursor.text[:begin])
    return ShowStreams(cursor.text, read_by=before + cursor.text[begin:])


def _about_the_schedule(cursor: Cursor) -> Statement | None:
    """SHOW of freshness, tasks and alerts."""
    if cursor.accept("SHOW", "FRESHNESS"):
        cursor.form = f"SHOW FRESHNESS {_FILTER_FORM}"
        return ShowFreshness(cursor.text, *_filters(cursor))
    if cursor.accept("SHOW", "TASKS"):
        cursor.form = f"SHOW TASKS {_FILTER_FORM}"
        return ShowTasks(cursor.text, *_filters(cursor))
    if cursor.accept("SHOW", "TASK"):
        cursor.form = "SHOW TASK HISTORY [WHERE condition] [LIMIT n]"
        return ShowTaskHistory(cursor.text, *_history(cursor))
    if cursor.accept("SHOW", "ALERTS"):
        cursor.form = f"SHOW ALERTS {_ROWS_FORM}"
        return ShowAlerts(cursor.text, *_rows(cursor))
    if cursor.accept("SHOW", "ALERT"):
        cursor.form = "SHOW ALERT HISTORY [WHERE condition] [LIMIT n]"
        return ShowAlertHistory(cursor.text, *_history(cursor))
    return None


def _history(cursor: Cursor) -> tuple[str | None, int | None]:
    cursor.expect("HISTORY")
    where, limit = _where(cursor), limit_clause(cursor)
    cursor.end()
    return where, limit


def _about_the_server(cursor: Cursor) -> Statement | None:
    """SHOW of virtual clusters, jobs, users, grants and tokens."""
    if cursor.accept("SHOW", "VCLUSTERS"):
        cursor.form = f"SHOW VCLUSTERS {_ROWS_FORM}"
        return ShowVclusters(cursor.text, *_rows(cursor))
    if cursor.accept("SHOW", "JOBS"):
        cursor.form = f"SHOW JOBS [IN VCLUSTER name] {_ROWS_FORM}"
        vcluster: str | None = None
        if cursor.accept("IN") or cursor.accept("FROM"):
            cursor.expect("VCLUSTER")
            vcluster = cursor.identifier("the name of a virtual cluster").lower()
        return ShowJobs(cursor.text, vcluster, *_rows(cursor, "IN VCLUSTER" if vcluster is None else None))
    if cursor.accept("SHOW", "USERS"):
        cursor.form = f"SHOW USERS {_ROWS_FORM}"
        return ShowUsers(cursor.text, *_rows(cursor))
    if cursor.accept("SHOW", "GRANTS"):
        return _grants(cursor)
    if cursor.accept("SHOW", "TOKENS"):
        cursor.form = "SHOW TOKENS [WHERE condition] [LIMIT n]"
        where, limit = _where(cursor), limit_clause(cursor)
        cursor.end()
        return ShowTokens(cursor.text, where, limit)
    return None


def _grants(cursor: Cursor) -> ShowGrants:
    cursor.form = "SHOW GRANTS [TO user | ON {SCHEMA schema | TABLE table}]"
    if cursor.accept("ON"):
        kind, parts = granted_object(cursor)
        cursor.end()
        return ShowGrants(cursor.text, kind=kind, object=parts)
    user = cursor.identifier("a user's name").lower() if cursor.accept("TO") else ""
    if not cursor.at_end:
        raise cursor.fault("the end of the statement" if user else "TO, ON or the end of the statement")
    return ShowGrants(cursor.text, user)


def granted_object(cursor: Cursor) -> tuple[Literal["SCHEMA", "TABLE"], Parts]:
    """What stands after ON in statements about grants."""
    kind: Literal["SCHEMA", "TABLE"] = "SCHEMA" if cursor.sees_any("SCHEMA", "DATABASE") else "TABLE"
    if not cursor.sees_any("SCHEMA", "DATABASE", "TABLE"):
        raise cursor.fault("SCHEMA or TABLE")
    cursor.next()
    return kind, cursor.name() if kind == "TABLE" else schema_name(cursor)


def _refresh_history(cursor: Cursor) -> ShowRefreshHistory:
    cursor.form = "SHOW DYNAMIC TABLE REFRESH HISTORY [WHERE condition] [LIMIT n]"
    cursor.expect("SHOW", "DYNAMIC", "TABLE", "REFRESH")
    return ShowRefreshHistory(cursor.text, *_history(cursor))


def _filters(cursor: Cursor) -> tuple[Parts | None, str | None, str | None, int | None]:
    schema: Parts | None = None
    if cursor.accept("IN") or cursor.accept("FROM"):
        schema = schema_name(cursor)
    return schema, *_rows(cursor, "IN")


def _rows(cursor: Cursor, before: str | None = None) -> tuple[str | None, str | None, int | None]:
    """[LIKE 'pattern'] [WHERE condition] [LIMIT n]; `before` is what could have come in front."""
    like: str | None = None
    if cursor.accept("LIKE") or cursor.token().kind is Kind.STRING:
        like = cursor.string("a pattern in quotes")
    where, limit = _where(cursor), limit_clause(cursor)
    if not cursor.at_end:
        could = f"{before}, LIKE" if before else "LIKE"
        raise cursor.fault(f"{could}, WHERE, LIMIT or the end of the statement")
    return like, where, limit


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
    if isinstance(shown, ShowRefreshHistory):
        head, tail = trigger_names(head), trigger_names(tail)
    if before == "AS":
        return SelectFromShow(text, f"{head}(SELECT * FROM ", own, f"){tail}")
    return SelectFromShow(text, head, own, tail)
