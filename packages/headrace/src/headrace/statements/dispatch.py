"""One statement in, one result out."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame

from headrace.errors import (
    AlreadyExists,
    EnvironmentFault,
    HeadraceError,
    NotAllowed,
    NotFound,
    Position,
    QueryFailed,
    SyntaxFault,
)
from headrace.ivm.layout import layout_of, select_live
from headrace.names import TableName, quote, quote_text
from headrace.plan.query import shown_rows
from headrace.refresh.runner import KEEP_ROWS
from headrace.result import Result, done, from_frame
from headrace.settings import Settings
from headrace.sql import rewrite
from headrace.sql import statements as sql
from headrace.sql.parser import parse
from headrace.sql.tokens import position_at, scan
from headrace.statements import (
    altering,
    creating,
    describe,
    dropping,
    explaining,
    listing,
    storing,
    streaming,
    vacuuming,
)
from headrace.statements.context import Context
from headrace.storage.delta import local_path
from headrace.storage.errors import short_message
from headrace.streams.settling import Target

_MOVES_STREAMS = ("INSERT", "MERGE", "UPDATE", "DELETE", "CREATE TABLE", "REPLACE TABLE")
QUERIES = ("SELECT", "TABLE", "VALUES", "MAP", "REDUCE", "(")
_WRITES_ROWS = ("INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "COPY")


def execute(context: Context, text: str) -> Result:
    """Run one statement."""
    return _run(context, parse(text))


def _run(context: Context, statement: sql.Statement) -> Result:
    handler: Callable[[Context, Any], Result] | None = _HANDLERS.get(type(statement))
    try:
        if handler is not None and isinstance(statement, _OF_OWN_MEANING):
            with context.own_meaning():
                return handler(context, statement)
        return handler(context, statement) if handler is not None else _spark(context, statement)
    except (PySparkException, Py4JJavaError) as error:
        raise as_query_failure(error, statement.text) from error


def as_query_failure(error: PySparkException | Py4JJavaError, text: str) -> HeadraceError:
    """Spark's refusal in our form, with the position when Spark gives one."""
    message = short_message(error)
    if "No space left on device" in message:
        return EnvironmentFault(f"The disk is full: {message}", hint="Free some space, then try again.")
    if isinstance(error, Py4JJavaError):
        return QueryFailed(message)
    position = _position(error, message, text)
    name = error.getCondition()
    message = re.sub(r"\s*\(line \d+, pos \d+\)", "", message)
    message = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", message).split("SQLSTATE:")[0].strip()
    if isinstance(error, ParseException):
        return SyntaxFault(message, position=position)
    if name == "TABLE_OR_VIEW_NOT_FOUND":
        return NotFound(message, hint="SHOW TABLES and SHOW TABLE STREAMS list what there is.", position=position)
    if name in ("TABLE_OR_VIEW_ALREADY_EXISTS", "DELTA_TABLE_ALREADY_EXISTS"):
        return AlreadyExists(message, position=position)
    kind = f" [{name}]" if name else ""
    return QueryFailed(f"{message}{kind}", position=position)


def _position(error: PySparkException, message: str, text: str) -> Position | None:
    told = f"{message} {getattr(error, '_desc', None) or ''}"
    match = re.search(r"\(line (\d+), pos (\d+)\)", told) or re.search(r"line (\d+),? pos (\d+)", told)
    if match:
        return Position(int(match.group(1)), int(match.group(2)) + 1)
    if isinstance(error, AnalysisException):
        try:
            contexts = error.getQueryContext()
            start = contexts[0].startIndex() if contexts else -1
        except (AttributeError, IndexError, Py4JError, PySparkException):  # A DataFrame has no text.
            return None
        if 0 <= start < len(text):
            line = text.count("\n", 0, start) + 1
            return Position(line, start - (text.rfind("\n", 0, start) + 1) + 1)
    return None


# ---------------------------------------------------------------------- dynamic tables


def _create_dynamic(context: Context, statement: sql.CreateDynamicTable) -> Result:
    existed = context.dynamic(statement.name) is not None
    table, record = creating.create(context, statement)
    if record is not None:
        how = f" ({table.query.unsupported}: each refresh is FULL)" if table.query.plan is None else ""
        rows = shown_rows(record.rows_inserted or 0, table.query.cut)
        if record.technique == KEEP_ROWS:
            kept = f"its {rows} {'row was' if rows == 1 else 'rows were'} kept and its columns computed from them"
            return done(f"Dynamic table {table.table_name} replaced; {kept}, without reading a source.")
        if existed:
            all_rows = f"{rows} {'row was' if rows == 1 else 'rows were'}"
            return done(f"Dynamic table {table.table_name} replaced; its {all_rows} computed from the sources{how}.")
        return done(f"Dynamic table {table.table_name} created with {rows} {'row' if rows == 1 else 'rows'}{how}.")
    if existed and statement.if_not_exists:
        return done(f"Dynamic table {table.table_name} exists already; nothing was done.")
    if existed:
        return done(f"Dynamic table {table.table_name} replaced; its query is the same, so its data was kept.")
    return done(f"Dynamic table {table.table_name} created; its first refresh will load it.")


def _refresh(context: Context, statement: sql.RefreshDynamicTables) -> Result:
    tables = [context.require_dynamic(name) for name in statement.names]
    records = []
    for position, table in enumerate(tables):
        context.progress.tell(f"Refreshing {table.table_name}", position / len(tables))
        records.append(context.runner.refresh(table))
        if records[-1].refresh_mode != "NO_DATA":
            context.runner.tidy(table)
    return listing.history_rows(context, records)


def _alter(context: Context, statement: sql.AlterDynamicTable) -> Result:
    return done(altering.alter(context, statement))


def _drop_dynamic(context: Context, statement: sql.DropDynamicTable) -> Result:
    name = context.resolve(statement.name)
    dropped = dropping.drop(context, statement.name, statement.if_exists)
    return done(f"Dynamic table {name} dropped." if dropped else f"There is no dynamic table {name}; nothing was done.")


# ---------------------------------------------------------------------- schemas and tables


def _use(context: Context, statement: sql.UseSchema) -> Result:
    workspace, schema, database = context.require_database(statement.parts)
    context.spark.catalog.setCurrentDatabase(database)
    return done(f"The current schema is {workspace}.{schema}.")


def _create_schema(context: Context, statement: sql.CreateSchema) -> Result:
    workspace, schema, database = context.database(statement.parts)
    if workspace.lower() not in {name.lower() for name in context.workspaces()}:
        context.store.add_workspace(workspace.lower())
    guard = "IF NOT EXISTS " if statement.if_not_exists else ""
    comment = f" COMMENT {quote_text(statement.comment)}" if statement.comment else ""
    existed = context.spark.catalog.databaseExists(database)
    context.spark.sql(f"CREATE SCHEMA {guard}{quote(database)}{comment}")
    return done(f"Schema {workspace}.{schema} {'exists already; nothing was done' if existed else 'created'}.")


def _drop_schema(context: Context, statement: sql.DropSchema) -> Result:
    workspace, schema, database = context.database(statement.parts)
    inside = [t for t in context.store.tables() if t.table_name.database(context.home) == database]
    if inside and not statement.cascade:
        raise NotAllowed(
            f"Schema {workspace}.{schema} holds {len(inside)} dynamic tables.", hint="Drop them first, or add CASCADE."
        )
    for table in inside:
        dropping.drop_table(context, table)
    if statement.cascade:
        streaming.drop_streams_in(context, database)
    guard = "IF EXISTS " if statement.if_exists else ""
    cascade = " CASCADE" if statement.cascade else ""
    context.spark.sql(f"DROP SCHEMA {guard}{quote(database)}{cascade}")
    return done(f"Schema {workspace}.{schema} dropped.")


def _drop_table(context: Context, statement: sql.DropTable) -> Result:
    name = context.resolve(statement.name)
    if context.store.table(name) is not None:
        raise NotAllowed(f"{name} is a dynamic table.", hint=f"Write DROP DYNAMIC TABLE {name}.")
    stream = context.store.streams.named(name)
    if stream is not None:
        raise streaming.refuse(stream, f"DROP {'VIEW' if statement.is_view else 'TABLE'}")
    kind = "VIEW" if statement.is_view else "TABLE"
    guard = "IF EXISTS " if statement.if_exists else ""
    spark_name = _spark_name(context, statement.name, name)
    existed = context.spark.catalog.tableExists(spark_name)
    context.spark.sql(f"DROP {kind} {guard}{spark_name}")
    return done(f"{kind.capitalize()} {name} {'dropped' if existed else 'does not exist; nothing was done'}.")


def _spark_name(context: Context, parts: tuple[str, ...], name: TableName) -> str:
    """A one-part name stays so: it may be a temporary view."""
    return quote(parts[0]) if len(parts) == 1 else name.spark(context.home)


def _restore(context: Context, statement: sql.RestoreTable) -> Result:
    name = context.resolve(statement.name)
    table = context.store.table(name)
    stream = context.store.streams.named(name)
    if stream is not None:
        raise streaming.refuse(stream, "RESTORE")
    if table is None and not context.exists(name):
        raise NotFound(f"There is no table {name}.", hint="SHOW TABLES lists them.")
    place = f"delta.{quote(table.storage_path)}" if table is not None else name.spark(context.home)
    when = (
        f"VERSION AS OF {statement.version}"
        if statement.version is not None
        else f"TIMESTAMP AS OF {statement.timestamp}"
    )
    path = table.storage_path if table is not None else _delta_path(context, name)
    before = None if path is None else _restored_version(context, path, statement)
    undone = [] if path is None or before is None else streaming.undone_readings(context, path, before)
    result = from_frame(context.spark.sql(f"RESTORE TABLE {place} TO {when}"), context.settings.timezone)
    if table is not None:
        context.logs.forget(table.storage_path)
        storing.set_storage_properties(context, table)
    return done(" ".join([f"Table {name} restored to version {before}.", *undone])) if undone else result


def _delta_path(context: Context, name: TableName) -> str | None:
    located = context.locate(name.database(context.home), name.table)
    return None if located is None else located.source.path


def _restored_version(context: Context, path: str, statement: sql.RestoreTable) -> int | None:
    """Which version a table will be like; None when streams have never been read into it."""
    if not context.store.streams.into(path):
        return None
    if statement.timestamp is None:
        return statement.version
    return streaming.version_at(context, path, statement.timestamp)


# ---------------------------------------------------------------------- Spark's own


def _select_from_show(context: Context, statement: sql.SelectFromShow) -> Result:
    shown = _run(context, statement.show)
    view = f"__hr_show_{uuid.uuid4().hex[:8]}"
    context.spark.createDataFrame(shown.to_arrow()).createOrReplaceTempView(view)
    try:
        return execute(context, f"{statement.before}{view}{statement.after}")
    finally:
        context.spark.catalog.dropTempView(view)


def _spark(context: Context, statement: sql.Statement) -> Result:
    assert isinstance(statement, sql.SparkStatement)
    return _spark_rows(context, statement, prepared_text(context, statement))


def prepared_text(context: Context, statement: sql.SparkStatement) -> str:
    """The text for Spark to run, once it is certain that it may."""
    _refuse_writes(context, statement)
    _refuse_reflection(statement.text)
    _refuse_own_settings(statement.text)
    text = statement.text
    if statement.verb in ("CREATE TABLE", "ALTER TABLE", "REPLACE TABLE"):
        text = rewrite.table_properties(text)
    text = rewrite.time_travel(text, lambda parts, version, moment: _past(context, parts, version, moment))
    if statement.verb == "CREATE VIEW":
        text = rewrite.stream_has_data(text, _refuse_in_view)
    text = rewrite.stream_has_data(text, lambda parts: streaming.has_data(context, context.require_stream(parts)))
    return rewrite.spark_names(
        text, context.home, frozenset(name.lower() for name in context.workspaces()),
        lambda parts: context.resolve(parts).spark(context.home),
    )  # fmt: skip


def _spark_rows(context: Context, statement: sql.SparkStatement, text: str) -> Result:
    """Run it; when the lake has table streams, in a way that knows which it reads."""
    if not context.store.streams.all():
        return _shown(context, context.spark.sql(text))
    if statement.verb in _MOVES_STREAMS:
        return _shown(context, context.streams.run(text, tuple(_targets(context, statement))))
    if statement.verb not in QUERIES:
        context.streams.refresh_named(text)
        return _shown(context, context.spark.sql(text))
    rows = context.streams.frame(text)
    with context.streams.explained(rows):
        return _shown(context, rows)


def _shown(context: Context, rows: DataFrame) -> Result:
    return from_frame(rows, context.settings.timezone) if rows.columns else done("Done.")


def _targets(context: Context, statement: sql.SparkStatement) -> Iterator[Target]:
    creates = statement.verb in ("CREATE TABLE", "REPLACE TABLE")
    keeps = statement.verb == "CREATE TABLE"
    for target in statement.writes:
        parts = target.parts
        if len(parts) == 2 and parts[0].lower() == "delta":
            yield Target(parts[1], path=os.path.normpath(local_path(parts[1])), kept_if_there=keeps)
        elif len(parts) == 3 and parts[0].lower() == "spark_catalog":
            shown, database, table = ".".join(parts), parts[1].lower(), parts[2].lower()
            yield Target(shown, database, table, may_be_new=creates, kept_if_there=keeps)
        elif len(parts) == 1 and not creates and context.is_temporary(parts[0]):
            yield Target(f"the temporary view {parts[0]}")
        else:
            name = context.resolve(parts)
            yield Target(str(name), name.database(context.home), name.table, may_be_new=creates, kept_if_there=keeps)


def _refuse_in_view(parts: tuple[str, ...]) -> bool:
    raise NotAllowed(
        "STREAM_HAS_DATA cannot stand in a view: it is answered when a statement is run.",
        hint="Ask it in the statement that needs the answer.",
    )


def _refuse_reflection(text: str) -> None:
    """reflect() calls any method of any Java class in Spark's own process."""
    tokens = scan(text)
    for token, following in pairwise(tokens):
        if token.upper in ("REFLECT", "TRY_REFLECT", "JAVA_METHOD") and following.text == "(":
            raise NotAllowed(
                f"{token.text}() is not allowed: it runs Java code in the process that holds the lake.",
                hint="Use an SQL function or a Python function.",
                position=position_at(text, token.start),
            )


def _refuse_own_settings(text: str) -> None:
    """Spark takes any word for a setting, and would say nothing."""
    found = re.match(r"\s*SET\s+(\w+)\s*=", text, re.IGNORECASE)
    if found and found[1].lower() in Settings.model_fields:
        name = found[1].lower()
        raise NotAllowed(
            f"{name} is a setting of the lake, not of a session.",
            hint=f"Set it where the lake is opened: {name} in headrace.toml, or HEADRACE_{name.upper()}.",
            position=position_at(text, found.start(1)),
        )


def _past(context: Context, parts: tuple[str, ...], version: int | None, moment: str | None) -> str | None:
    """A dynamic table as it was: its live rows in an earlier version of its storage."""
    table = context.dynamic(parts) if 1 <= len(parts) <= 3 else None
    if table is None:
        return None
    when = f"VERSION AS OF {version}" if version is not None else f"TIMESTAMP AS OF {moment}"
    place = f"delta.{quote(table.storage_path)} {when}"
    return f"({select_live(table.query.columns, layout_of(table.query).hides_groups, place, table.query.cut)})"


def refuse_write(context: Context, parts: tuple[str, ...], method: str) -> None:
    """The same for a write that is no statement."""
    if context.dynamic(parts) is not None or context.stream(parts) is not None:
        what = "table stream" if context.stream(parts) is not None else "dynamic table"
        raise NotAllowed(
            f"{context.resolve(parts)} is a {what}: {method} cannot write it.", hint="Write another table."
        )


def _refuse_writes(context: Context, statement: sql.SparkStatement) -> None:
    for target in statement.writes:
        if not 1 <= len(target.parts) <= 3:
            continue
        verb = statement.verb.split()[0]
        stream = context.stream(target.parts)
        if stream is not None:
            raise streaming.refuse(stream, statement.verb, target.position)
        table = context.dynamic(target.parts)
        if table is None:
            continue
        if verb == "REFRESH":
            written = "REFRESH TABLE" if statement.verb == "REFRESH TABLE" else "REFRESH"
            raise NotAllowed(
                f"{written} does not refresh the dynamic table {table.table_name}.",
                hint=f"Write REFRESH DYNAMIC TABLE {table.name}.",
                position=target.position,
            )
        if verb in _WRITES_ROWS:
            raise NotAllowed(
                f"{verb} on the dynamic table {table.table_name} is not allowed: its rows are what its query says.",
                hint="Change the rows of its sources, then REFRESH DYNAMIC TABLE; or change the query with "
                "CREATE OR REPLACE DYNAMIC TABLE.",
                position=target.position,
            )
        raise NotAllowed(
            f"{statement.verb} cannot be used on the dynamic table {table.table_name}.",
            hint="Use ALTER DYNAMIC TABLE, CREATE OR REPLACE DYNAMIC TABLE or DROP DYNAMIC TABLE.",
            position=target.position,
        )


_OF_OWN_MEANING = (
    sql.CreateDynamicTable, sql.RefreshDynamicTables, sql.AlterDynamicTable, sql.VerifyDynamicTable,
    sql.ExplainIncremental,
)  # fmt: skip

_HANDLERS: dict[type, Callable[[Context, Any], Result]] = {
    sql.CreateDynamicTable: _create_dynamic,
    sql.RefreshDynamicTables: _refresh,
    sql.AlterDynamicTable: _alter,
    sql.DropDynamicTable: _drop_dynamic,
    sql.ExplainRefresh: explaining.explain_refresh,
    sql.ExplainIncremental: explaining.explain_incremental,
    sql.VerifyDynamicTable: explaining.verify_table,
    sql.ShowDynamicTables: listing.show_dynamic_tables,
    sql.ShowRefreshHistory: listing.show_history,
    sql.CreateStream: streaming.create,
    sql.AlterStream: streaming.alter,
    sql.DropStream: streaming.drop,
    sql.ShowStreams: streaming.show,
    sql.DescribeStream: streaming.describe,
    sql.ShowTables: listing.show_tables,
    sql.ShowCreateTable: listing.show_create,
    sql.SelectFromShow: _select_from_show,
    sql.DescribeTable: describe.describe,
    sql.DescribeHistory: describe.describe_history,
    sql.DescribeJob: explaining.describe_job,
    sql.RestoreTable: _restore,
    sql.Vacuum: vacuuming.vacuum,
    sql.DropTable: _drop_table,
    sql.UseSchema: _use,
    sql.CreateSchema: _create_schema,
    sql.DropSchema: _drop_schema,
}
