"""Statements about tables and schemas that we run ourselves."""

from __future__ import annotations

from headrace.sql.cursor import Cursor
from headrace.sql.shows import limit_clause, schema_name
from headrace.sql.spark_statement import parse_spark
from headrace.sql.statements import (
    CreateSchema,
    DescribeHistory,
    DescribeJob,
    DescribeTable,
    DropSchema,
    DropTable,
    RestoreTable,
    Statement,
    UseSchema,
    Vacuum,
)
from headrace.sql.tokens import Kind

_SCHEMA_WORDS = ("SCHEMA", "DATABASE", "NAMESPACE")
_NOT_A_TABLE = ("CATALOG", "DATABASE", "DETAIL", "FUNCTION", "NAMESPACE", "PROCEDURE", "QUERY", "SCHEMA")
_QUERIES = ("SELECT", "WITH", "VALUES", "FROM")


def parse_describe(cursor: Cursor) -> Statement:
    """DESC of a table or its history; of a query, function, schema, column or partition it is Spark's."""
    start = cursor.index
    cursor.next()
    is_keyword = cursor.token(1).text not in ("", ".")
    if cursor.sees("(") or (is_keyword and cursor.sees_any(*_NOT_A_TABLE, *_QUERIES)):
        return parse_spark(cursor)
    if is_keyword and cursor.sees("HISTORY"):
        return _describe_history(cursor)
    if cursor.sees("JOB") and (cursor.token(1).is_name or cursor.token(1).kind in (Kind.STRING, Kind.NUMBER)):
        return _describe_job(cursor)
    cursor.form = "DESC [TABLE] [EXTENDED] name"
    if cursor.sees("DYNAMIC", "TABLE"):
        cursor.next()
    for word in ("TABLE", "EXTENDED", "FORMATTED"):
        if cursor.sees(word) and cursor.token(1).is_name:
            cursor.next()
    extended = cursor.token(-1).upper in ("EXTENDED", "FORMATTED") and cursor.index > start + 1
    name = cursor.name()
    if cursor.token().is_name:
        return parse_spark(cursor)
    cursor.end()
    return DescribeTable(cursor.text, name, extended)


def _describe_history(cursor: Cursor) -> DescribeHistory:
    cursor.form = "DESC HISTORY name [LIMIT n]"
    cursor.expect("HISTORY")
    name = cursor.name()
    limit = limit_clause(cursor)
    cursor.end()
    return DescribeHistory(cursor.text, name, limit)


def _describe_job(cursor: Cursor) -> DescribeJob:
    cursor.form = "DESC JOB 'id', with the id in quotes; or DESC TABLE job column, for a table of that name"
    cursor.expect("JOB")
    job_id = cursor.string("the job's id in quotes")
    cursor.end()
    return DescribeJob(cursor.text, job_id)


def parse_restore(cursor: Cursor) -> RestoreTable:
    cursor.form = "RESTORE TABLE name TO {TIMESTAMP AS OF timestamp | VERSION AS OF n}"
    cursor.expect("RESTORE")
    cursor.accept("TABLE")
    name = cursor.name()
    cursor.accept("TO")
    if cursor.accept("VERSION", "AS", "OF"):
        version = cursor.integer("a version number")
        cursor.end()
        return RestoreTable(cursor.text, name, version, None)
    if cursor.accept("TIMESTAMP", "AS", "OF"):
        return RestoreTable(cursor.text, name, None, cursor.text_until("a timestamp"))
    raise cursor.fault("TIMESTAMP AS OF or VERSION AS OF")


def parse_vacuum(cursor: Cursor) -> Statement:
    """VACUUM of a table by its name; of a path, or with an inventory, it is Spark's."""
    cursor.form = "VACUUM name [LITE | FULL] [RETAIN n HOURS] [DRY RUN]"
    cursor.expect("VACUUM")
    if cursor.token().kind is Kind.STRING or cursor.sees("delta", "."):
        return parse_spark(cursor)
    name = cursor.name()
    if cursor.sees("USING"):
        return parse_spark(cursor)
    kind = cursor.next().upper if cursor.sees_any("LITE", "FULL") else ""
    hours = None
    if cursor.accept("RETAIN"):
        hours = cursor.integer("a number of hours")
        if not cursor.accept("HOURS"):
            cursor.expect("HOUR")
    dry_run = cursor.accept("DRY", "RUN")
    cursor.end()
    return Vacuum(cursor.text, name, kind, hours, dry_run)


def parse_drop_table(cursor: Cursor) -> DropTable:
    """PURGE is read and changes nothing: a dropped table's files go away with it."""
    cursor.expect("DROP")
    is_view = cursor.next().upper == "VIEW"
    cursor.form = f"DROP {'VIEW' if is_view else 'TABLE'} [IF EXISTS] name"
    if_exists = cursor.accept("IF", "EXISTS")
    name = cursor.name()
    if not is_view:
        cursor.accept("PURGE")
    cursor.end()
    return DropTable(cursor.text, name, if_exists, is_view)


def parse_use(cursor: Cursor) -> Statement:
    cursor.form = "USE [SCHEMA] schema"
    cursor.expect("USE")
    if cursor.sees("CATALOG") and cursor.token(1).is_name:
        return parse_spark(cursor)
    if cursor.sees_any(*_SCHEMA_WORDS) and cursor.token(1).is_name:
        cursor.next()
    parts = schema_name(cursor)
    cursor.end()
    return UseSchema(cursor.text, parts)


def parse_create_schema(cursor: Cursor) -> CreateSchema:
    cursor.form = "CREATE SCHEMA [IF NOT EXISTS] name [COMMENT 'c']"
    cursor.index += 2
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    parts = schema_name(cursor)
    comment = None
    if cursor.accept("COMMENT"):
        cursor.accept("=")
        comment = cursor.string("the comment in quotes")
    cursor.end()
    return CreateSchema(cursor.text, parts, if_not_exists, comment)


def parse_drop_schema(cursor: Cursor) -> DropSchema:
    cursor.form = "DROP SCHEMA [IF EXISTS] name [CASCADE | RESTRICT]"
    cursor.index += 2
    if_exists = cursor.accept("IF", "EXISTS")
    parts = schema_name(cursor)
    cascade = cursor.accept("CASCADE")
    if not cascade:
        cursor.accept("RESTRICT")
    cursor.end()
    return DropSchema(cursor.text, parts, if_exists, cascade)
