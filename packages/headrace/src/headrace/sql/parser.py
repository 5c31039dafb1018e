"""One statement's text into one of the dataclasses in `statements`."""

from __future__ import annotations

from collections.abc import Callable

from headrace.errors import SyntaxFault
from headrace.sql import alerts, compute, copying, dynamic, dynamic_alter, shows, streams, tables, tasks, users
from headrace.sql.cursor import Cursor
from headrace.sql.spark_statement import parse_spark
from headrace.sql.split import statement_end
from headrace.sql.statements import Statement
from headrace.sql.tokens import Token, position_at, scan
from headrace.sql.unavailable import refuse_unavailable

# The first row whose words begin the statement parses it.
_STARTS: tuple[tuple[tuple[str, ...], Callable[[Cursor], Statement]], ...] = (
    (("CREATE", "DYNAMIC", "TABLE"), dynamic.parse_create),
    (("CREATE", "OR", "REPLACE", "DYNAMIC", "TABLE"), dynamic.parse_create),
    (("REFRESH", "DYNAMIC", "TABLE"), dynamic.parse_refresh),
    (("ALTER", "DYNAMIC", "TABLE"), dynamic_alter.parse_alter),
    (("DROP", "DYNAMIC", "TABLE"), dynamic.parse_drop),
    (("CREATE", "DYNAMIC"), dynamic.refuse_bare_dynamic),
    (("CREATE", "OR", "REPLACE", "DYNAMIC"), dynamic.refuse_bare_dynamic),
    (("CREATE", "MATERIALIZED"), dynamic.refuse_materialized),
    (("CREATE", "OR", "REPLACE", "MATERIALIZED"), dynamic.refuse_materialized),
    (("REFRESH", "DYNAMIC"), dynamic.refuse_bare_dynamic),
    (("ALTER", "DYNAMIC"), dynamic.refuse_bare_dynamic),
    (("DROP", "DYNAMIC"), dynamic.refuse_bare_dynamic),
    (("EXPLAIN", "REFRESH"), dynamic.parse_explain_refresh),
    (("EXPLAIN", "INCREMENTAL"), dynamic.parse_explain_incremental),
    (("EXPLAIN", "CREATE", "DYNAMIC"), dynamic.refuse_explain_create),
    (("EXPLAIN", "CREATE", "OR", "REPLACE", "DYNAMIC"), dynamic.refuse_explain_create),
    (("VERIFY",), dynamic.parse_verify),
    (("CREATE", "VCLUSTER"), compute.parse_create),
    (("CREATE", "OR", "REPLACE", "VCLUSTER"), compute.parse_create),
    (("ALTER", "VCLUSTER"), compute.parse_alter),
    (("DROP", "VCLUSTER"), compute.parse_drop),
    (("SUSPEND", "VCLUSTER"), compute.refuse_verb_first),
    (("RESUME", "VCLUSTER"), compute.refuse_verb_first),
    (("SUSPEND", "DYNAMIC", "TABLE"), compute.refuse_verb_first),
    (("RESUME", "DYNAMIC", "TABLE"), compute.refuse_verb_first),
    (("USE", "VCLUSTER"), compute.parse_use),
    (("DESC", "VCLUSTER"), compute.parse_describe),
    (("DESCRIBE", "VCLUSTER"), compute.parse_describe),
    (("CANCEL",), compute.parse_cancel),
    (("CREATE", "TASK"), lambda cursor: tasks.parse_create(cursor, parse)),
    (("CREATE", "OR", "REPLACE", "TASK"), lambda cursor: tasks.parse_create(cursor, parse)),
    (("ALTER", "TASK"), tasks.parse_alter),
    (("DROP", "TASK"), tasks.parse_drop),
    (("EXECUTE", "TASK"), tasks.parse_execute),
    (("DESC", "TASK"), tasks.parse_describe),
    (("DESCRIBE", "TASK"), tasks.parse_describe),
    (("CREATE", "ALERT"), alerts.parse_create),
    (("CREATE", "OR", "REPLACE", "ALERT"), alerts.parse_create),
    (("ALTER", "ALERT"), alerts.parse_alter),
    (("DROP", "ALERT"), alerts.parse_drop),
    (("CREATE", "USER"), users.parse_create_user),
    (("CREATE", "OR", "REPLACE", "USER"), users.parse_create_user),
    (("ALTER", "USER"), users.parse_alter_user),
    (("DROP", "USER"), users.parse_drop_user),
    (("GRANT",), users.parse_grant),
    (("REVOKE",), users.parse_grant),
    (("CREATE", "TOKEN"), users.parse_create_token),
    (("DROP", "TOKEN"), users.parse_drop_token),
    (("SHOW",), shows.parse_show),
    (("DESC",), tables.parse_describe),
    (("DESCRIBE",), tables.parse_describe),
    (("RESTORE",), tables.parse_restore),
    (("VACUUM",), tables.parse_vacuum),
    (("DROP", "TABLE"), tables.parse_drop_table),
    (("DROP", "VIEW"), tables.parse_drop_table),
    (("COPY", "INTO"), copying.parse_copy),
    (("USE",), tables.parse_use),
    (("CREATE", "SCHEMA"), tables.parse_create_schema),
    (("CREATE", "DATABASE"), tables.parse_create_schema),
    (("DROP", "SCHEMA"), tables.parse_drop_schema),
    (("DROP", "DATABASE"), tables.parse_drop_schema),
)


def parse(text: str) -> Statement:
    """Parse one statement; a final `;` and comments are allowed. Faults carry a position in the given text.

    What is not ours comes back as a SparkStatement, whose text only Spark can judge.
    """
    tokens = _one_statement(text, scan(text))
    cursor = Cursor(text[: tokens[-1].end], tokens)
    refuse_unavailable(cursor)
    streams.refuse_bare_stream(cursor)
    if streams.is_about_stream(cursor):
        return streams.parse_stream(cursor)
    if streams.is_about_moving(cursor):
        return streams.parse_moving(cursor)
    if compute.is_about_query_tag(cursor):
        return compute.parse_query_tag(cursor)
    for words, parser in _STARTS:
        if cursor.sees(*words):
            return parser(cursor)
    return shows.parse_select_from_show(cursor) or parse_spark(cursor)


def _one_statement(text: str, tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    end = len(tokens)
    while end and tokens[end - 1].text == ";":
        end -= 1
    if not end:
        raise SyntaxFault(
            "Syntax error: expected a statement, found nothing.",
            hint="Write one, such as SHOW TABLES.",
            position=position_at(text, 0),
        )
    first = statement_end(tokens[:end])
    if first < end:
        raise SyntaxFault(
            "Syntax error: expected the end of the statement, found ';'.",
            hint="Write one statement at a time here; lake.sql and `headrace sql` take several.",
            position=position_at(text, tokens[first].start),
        )
    return tokens[:end]
