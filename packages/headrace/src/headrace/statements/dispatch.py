"""One statement in, one result out."""

from __future__ import annotations

import os
import re
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame

from headrace.catalog.records import ASKED_FOR, DynamicTable, Occasion, RefreshRecord
from headrace.collecting import Limit
from headrace.errors import (
    AlreadyExists,
    Bug,
    EnvironmentFault,
    HeadraceError,
    NotAllowed,
    NotFound,
    Position,
    QueryFailed,
    RefreshRunning,
    SyntaxFault,
    UserError,
)
from headrace.ivm.layout import layout_of, select_live
from headrace.names import quote, require_plain
from headrace.plan.jvm import active
from headrace.plan.query import shown_rows
from headrace.refresh.runner import BY_HAND, KEEP_ROWS
from headrace.result import Result, done, from_frame
from headrace.running import hiding, phase, require_wanted
from headrace.settings import Settings
from headrace.sql import rewrite
from headrace.sql import statements as sql
from headrace.sql.parser import parse
from headrace.sql.tokens import position_at, scan
from headrace.statements import (
    alerts,
    altering,
    clusters,
    copying,
    counting,
    creating,
    describe,
    dropping,
    elsewhere,
    explaining,
    failures,
    freshness,
    guarding,
    jobs,
    listing,
    permitting,
    storing,
    streaming,
    tables,
    task_execution,
    task_listing,
    tasks,
    users,
    vacuuming,
)
from headrace.statements.context import Context, no_workspace
from headrace.statements.reaching import FORMATS
from headrace.storage.errors import short_message
from headrace.storage.paths import local_path
from headrace.streams.settling import Target

_MOVES_STREAMS = ("INSERT", "MERGE", "UPDATE", "DELETE", "CREATE TABLE", "REPLACE TABLE")
QUERIES = ("SELECT", "TABLE", "VALUES", "MAP", "REDUCE", "(")
_UNKNOWN_WORKSPACE = re.compile(r"requires a single-part namespace, but got (?:identifier\s+)?`?([^`.\s]+)")
"""Spark takes a workspace that is not there for a further part of the name."""
_RENAMES = re.compile(r"\bRENAME\s+TO\b", re.IGNORECASE)
_WRITES_ROWS = ("INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "COPY")


def execute(context: Context, text: str) -> Result:
    """Run one statement."""
    return run(context, parse(text))


def run(context: Context, statement: sql.Statement) -> Result:
    """Run one statement, if its user may."""
    with active(context.spark):
        return _run(context, statement)


def _run(context: Context, statement: sql.Statement) -> Result:
    handler: Callable[[Context, Any], Result] | None = _HANDLERS.get(type(statement))
    try:
        with phase("checking"):
            _check(context, statement)
        if handler is None:
            return _spark(context, statement)
        own_meaning = context.own_meaning() if isinstance(statement, _OF_OWN_MEANING) else nullcontext()
        with own_meaning, hiding(lambda: permitting.tells_hidden_rows(context, statement)):
            result = handler(context, statement)
        if isinstance(statement, _CHANGES_SCHEDULE) and context.scheduler is not None:
            context.scheduler.changed()
        return result
    except (AnalysisException, ParseException) as error:
        raise as_query_failure(error, statement.text) from error
    except (PySparkException, Py4JJavaError, pa.ArrowException) as error:
        if permitting.tells_hidden_rows(context, statement):
            raise permitting.without_rows(_condition(error)) from None
        if isinstance(error, pa.ArrowException):
            raise
        raise as_query_failure(error, statement.text) from error


def _condition(error: Exception) -> str | None:
    return error.getCondition() if isinstance(error, PySparkException) else None


def _check(context: Context, statement: sql.Statement) -> None:
    guarding.refuse_dangerous(context, statement)
    try:
        permitting.require(context, statement)
    except (PySparkException, Py4JJavaError):
        # The names were permitted, and Spark does not like what is done to them: ours are the better words for that.
        if isinstance(statement, sql.SparkStatement):
            _refuse_writes(context, statement)
        raise


def as_query_failure(error: PySparkException | Py4JJavaError, text: str) -> HeadraceError:
    """Spark's refusal in our form, with the position when Spark gives one."""
    message = short_message(error)
    if "No space left on device" in message:
        return EnvironmentFault(f"The disk is full: {message}", hint="Free some space, then try again.")
    collided = "Another statement changed the same table meanwhile: run it again."
    if isinstance(error, Py4JJavaError):
        return QueryFailed(message, hint=collided if message.startswith("[DELTA_CONCURRENT_") else None)
    position = _position(error, message, text)
    name = error.getCondition()
    hint = collided if (name or message.lstrip("[")).startswith("DELTA_CONCURRENT_") else None
    message = re.sub(r"\s*\(line \d+, pos \d+\)", "", message)
    message = re.sub(r"^\[[A-Z0-9_.]+\]\s*", "", message).split("SQLSTATE:")[0].strip()
    if isinstance(error, ParseException):
        return SyntaxFault(message, position=position)
    workspace = _UNKNOWN_WORKSPACE.search(message)
    if workspace:
        return no_workspace(workspace[1], position)
    if name == "TABLE_OR_VIEW_NOT_FOUND":
        return NotFound(message, hint="SHOW TABLES and SHOW TABLE STREAMS list what there is.", position=position)
    if name in ("TABLE_OR_VIEW_ALREADY_EXISTS", "DELTA_TABLE_ALREADY_EXISTS"):
        return AlreadyExists(
            message, hint="Choose another name, or write IF NOT EXISTS or OR REPLACE.", position=position
        )
    kind = f" [{name}]" if name else ""
    return QueryFailed(f"{message}{kind}", hint=hint, position=position)


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
        require_wanted()
        context.progress.tell(f"Refreshing {table.table_name}", position / len(tables))
        if statement.full:
            table = context.store.change_table(table.id, _to_be_computed_anew)
        with failures.noting_failure(context, table):
            records.append(refresh_table(context, table, BY_HAND))
        failures.note_success(context, table)
    return listing.history_rows(context, records)


def _to_be_computed_anew(table: DynamicTable) -> DynamicTable:
    return table.model_copy(update={"stale_reason": table.stale_reason or ASKED_FOR})


def refresh_table(context: Context, table: DynamicTable, occasion: Occasion) -> RefreshRecord:
    """On its virtual cluster's own Spark, or here."""
    try:
        with hiding(lambda: permitting.hides_rows(context, table)):
            return elsewhere.refresh(context, table, occasion) or _refresh_here(context, table, occasion)
    finally:
        storing.keep_up(context, table)  # What was altered while it ran.


def _refresh_here(context: Context, table: DynamicTable, occasion: Occasion) -> RefreshRecord:
    record = context.runner.refresh(table, occasion)
    if record.refresh_mode != "NO_DATA":
        cluster = context.store.clusters.named(table.vcluster)
        with suppress(RefreshRunning):  # The next refresh has begun already: it tidies, then.
            context.runner.tidy(table, folds=cluster is None or cluster.type == "GENERAL")
    return record


def _alter(context: Context, statement: sql.AlterDynamicTable) -> Result:
    name = context.resolve(statement.name)
    told = altering.alter(context, statement)
    if isinstance(statement.action, sql.RenameTable):
        tables.drop_grants(context, name)
    return done(told)


def _drop_dynamic(context: Context, statement: sql.DropDynamicTable) -> Result:
    name = context.resolve(statement.name)
    dropped = dropping.drop(context, statement.name, statement.if_exists)
    if dropped:
        tables.drop_grants(context, name)
    return done(f"Dynamic table {name} dropped." if dropped else f"There is no dynamic table {name}; nothing was done.")


def _show_streams(context: Context, statement: sql.ShowStreams) -> Result:
    """All of them, or those that a query reads, directly or through views."""
    if statement.read_by is None:
        return streaming.show(context, statement)
    query = parse(statement.read_by)
    if not isinstance(query, sql.SparkStatement) or query.verb not in QUERIES:
        raise NotAllowed("SHOW TABLE STREAMS READ BY needs a query.", hint="Write a SELECT after READ BY.")
    guarding.refuse_dangerous(context, query)
    permitting.require(context, query)
    rows = context.streams.frame(prepared_text(context, query)) if context.store.streams.all() else None
    return streaming.show(context, statement, read=frozenset() if rows is None else context.streams.read_by(rows))


# ---------------------------------------------------------------------- Spark's own


def _whole(context: Context, show: sql.Statement) -> sql.Statement:
    """The list without the limit that it has for people: a query counts on all of it."""
    if isinstance(show, sql.ShowJobs) and show.limit is None:
        return replace(show, limit=sys.maxsize)
    return show


def _select_from_show(context: Context, statement: sql.SelectFromShow) -> Result:
    shown = run(context, _whole(context, statement.show))
    if shown.truncated:
        raise UserError(
            f"The list in the parentheses has more than {len(shown):,} rows; the settings result_rows_max and "
            "result_bytes_max allow no more.",
            hint="Write a WHERE or a LIMIT inside the parentheses.",
        )
    view = f"__hr_show_{uuid.uuid4().hex[:8]}"
    context.spark.createDataFrame(shown.to_arrow()).createOrReplaceTempView(view)
    try:
        return execute(context, f"{statement.before}{view}{statement.after}")
    finally:
        context.spark.catalog.dropTempView(view)


def _spark(context: Context, statement: sql.Statement) -> Result:
    assert isinstance(statement, sql.SparkStatement)
    text = prepared_text(context, statement)
    found = _elsewhere(context, statement, text)
    result = found if found is not None else _spark_rows(context, statement, text)
    if statement.verb in ("ALTER TABLE", "ALTER VIEW") and _RENAMES.search(statement.text):
        for target in statement.writes:
            tables.drop_grants(context, context.resolve(target.parts))
    return permitting.narrowed_to_visible(context, statement, result)


def _elsewhere(context: Context, statement: sql.SparkStatement, text: str) -> Result | None:
    """Its rows from a cluster's own Spark. What failed there was analysed here: its error is one about rows."""
    try:
        return elsewhere.query(context, statement, text)
    except (QueryFailed, Bug) as error:
        if permitting.tells_hidden_rows(context, statement):
            condition = re.search(r" \[([A-Z0-9_.]+)\]$", error.message)
            raise permitting.without_rows(None if condition is None else condition[1]) from None
        raise


def prepared_text(context: Context, statement: sql.SparkStatement) -> str:
    """The text for Spark to run, once it is certain that it may."""
    _refuse_writes(context, statement)
    guarding.refuse_dangerous(context, statement)
    _refuse_odd_names(statement)
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
    if statement.verb == "INSERT":
        return _inserted(context, statement, text)
    if not context.store.streams.all():
        limit = context.result_limit if statement.verb in QUERIES else None
        return _shown(context, _analysed(context, statement, text), limit)
    if statement.verb in _MOVES_STREAMS:
        return _shown(context, _moving_streams(context, statement, text))
    if statement.verb not in QUERIES:
        context.streams.refresh_named(text)
        return _shown(context, _analysed(context, statement, text))
    with phase("analysis"):
        rows = context.streams.frame(text)
    with context.streams.explained(rows):
        return _shown(context, rows, context.result_limit)


def _inserted(context: Context, statement: sql.SparkStatement, text: str) -> Result:
    """INSERT, and how many rows that were."""
    counting.forget(context.spark)
    has_streams = bool(context.store.streams.all())
    rows = (_moving_streams if has_streams else _analysed)(context, statement, text)
    counted = counting.inserted(context, rows.sparkSession, tuple(_targets(context, statement)))
    return _shown(context, rows) if counted is None else counted


def _moving_streams(context: Context, statement: sql.SparkStatement, text: str) -> DataFrame:
    with phase("execution"):
        return context.streams.run(text, tuple(_targets(context, statement)))


def _analysed(context: Context, statement: sql.SparkStatement, text: str) -> DataFrame:
    """Spark runs a command when it has analysed it; a query waits to be asked for its rows."""
    with phase("analysis" if statement.verb in QUERIES else "execution"):
        return context.spark.sql(text)


def _shown(context: Context, rows: DataFrame, limit: Limit | None = None) -> Result:
    with phase("execution"):
        return from_frame(rows, context.settings.timezone, limit) if rows.columns else done("Done.")


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


def _refuse_odd_names(statement: sql.SparkStatement) -> None:
    """Delta would write the table's first version before the catalog refuses its name, also into another's folder."""
    new = statement.verb in ("CREATE TABLE", "REPLACE TABLE", "CREATE VIEW")
    if any(token.upper in ("TEMP", "TEMPORARY") for token in scan(statement.text)[1:5]):
        new = False
    for target in statement.writes if new else ():
        if len(target.parts) > 1 and target.parts[-2].lower() in FORMATS:
            continue  # A path, which is another question.
        require_plain(target.parts[-1], "view" if statement.verb == "CREATE VIEW" else "table")
    renamed = _RENAMES.search(statement.text) if statement.verb in ("ALTER TABLE", "ALTER VIEW") else None
    if renamed is not None:
        words = scan(statement.text[renamed.end() :])
        last = next((at for at, word in enumerate(words) if at % 2 and word.text != "."), len(words)) - 1
        if words and words[last].is_name:
            require_plain(words[last].value, "table")


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
                hint=f"Write REFRESH DYNAMIC TABLE {table.table_name}.",
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

_CHANGES_SCHEDULE = (sql.CreateDynamicTable, sql.AlterDynamicTable, sql.DropDynamicTable, sql.DropSchema)

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
    sql.ShowStreams: _show_streams,
    sql.SetMoveStreams: streaming.set_moving,
    sql.DescribeStream: streaming.describe,
    sql.ShowTables: listing.show_tables,
    sql.ShowCreateTable: listing.show_create,
    sql.SelectFromShow: _select_from_show,
    sql.DescribeTable: describe.describe,
    sql.DescribeHistory: describe.describe_history,
    sql.DescribeJob: explaining.describe_job,
    sql.RestoreTable: tables.restore,
    sql.Vacuum: vacuuming.vacuum,
    sql.DropTable: tables.drop_table,
    sql.UseSchema: tables.use,
    sql.CreateSchema: tables.create_schema,
    sql.DropSchema: tables.drop_schema,
    sql.CopyInto: copying.copy_into,
    sql.CreateVcluster: clusters.create,
    sql.AlterVcluster: clusters.alter,
    sql.DropVcluster: clusters.drop,
    sql.UseVcluster: clusters.use,
    sql.DescribeVcluster: clusters.describe,
    sql.ShowVclusters: clusters.show,
    sql.ShowJobs: jobs.show,
    sql.CancelJob: jobs.cancel,
    sql.SetQueryTag: jobs.set_query_tag,
    sql.CreateUser: users.create_user,
    sql.AlterUser: users.alter_user,
    sql.DropUser: users.drop_user,
    sql.ShowUsers: users.show_users,
    sql.GrantPrivilege: users.grant,
    sql.ShowGrants: users.show_grants,
    sql.CreateToken: users.create_token,
    sql.DropToken: users.drop_token,
    sql.ShowTokens: users.show_tokens,
    sql.CreateTask: tasks.create,
    sql.AlterTask: tasks.alter,
    sql.DropTask: tasks.drop,
    sql.ExecuteTask: task_execution.execute,
    sql.DescribeTask: task_listing.describe,
    sql.ShowTasks: task_listing.show,
    sql.ShowTaskHistory: task_listing.show_history,
    sql.ShowFreshness: freshness.show,
    sql.CreateAlert: alerts.create,
    sql.AlterAlert: alerts.alter,
    sql.DropAlert: alerts.drop,
    sql.ShowAlerts: alerts.show,
    sql.ShowAlertHistory: alerts.show_history,
}
