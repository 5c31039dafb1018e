"""SHOW TABLES, SHOW DYNAMIC TABLES, SHOW DYNAMIC TABLE REFRESH HISTORY."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException

from headrace import running
from headrace.catalog.records import DynamicTable, RefreshRecord, TableStream
from headrace.errors import NotFound, QueryFailed
from headrace.names import TableName, quote, quote_text
from headrace.plan.jvm import Jvm, items
from headrace.refresh.ordered import OrderedCopies
from headrace.refresh.states import StateTables
from headrace.result import Result, from_frame, from_rows
from headrace.sql import statements as sql
from headrace.sql.rewrite import trigger_names
from headrace.statements.context import Context
from headrace.statements.permitting import require_condition, require_frame, viewer
from headrace.storage.errors import short_message

_TEXT = pa.string()
_TIME = pa.timestamp("us", tz="UTC")
_FLAG = pa.bool_()
_PLACE = "__hr_place"
PAGE = 2000
"""So many rows of a long list are looked at at once."""

_TABLES = [
    ("schema_name", _TEXT), ("table_name", _TEXT), ("is_view", _FLAG), ("is_materialized_view", _FLAG),
    ("is_external", _FLAG), ("is_dynamic", _FLAG),
]  # fmt: skip
_DYNAMIC = [
    ("workspace_name", _TEXT), ("schema_name", _TEXT), ("name", _TEXT), ("refresh_mode", _TEXT),
    ("refresh_interval_second", pa.int64()), ("target_lag_second", _TEXT), ("refresh_vc", _TEXT), ("state", _TEXT),
    ("suspended_reason", _TEXT),
    ("incremental", _FLAG), ("full_refresh_reason", _TEXT), ("created_time", _TIME), ("creator", _TEXT),
    ("comment", _TEXT), ("state_bytes", pa.int64()),
]  # fmt: skip
_HISTORY = [
    ("workspace_name", _TEXT), ("schema_name", _TEXT), ("name", _TEXT), ("virtual_cluster", _TEXT),
    ("start_time", _TIME), ("end_time", _TIME), ("duration", _TEXT), ("state", _TEXT), ("refresh_trigger", _TEXT),
    ("suspended_reason", _TEXT), ("refresh_mode", _TEXT), ("error_message", _TEXT), ("source_tables", _TEXT),
    ("stats", _TEXT), ("completion_target", _TIME), ("job_id", _TEXT), ("technique", _TEXT), ("reason", _TEXT),
]  # fmt: skip


def show_tables(context: Context, statement: sql.ShowTables) -> Result:
    _, schema, database = context.require_database(statement.schema)
    dynamic = {table.name for table in context.store.tables() if table.table_name.database(context.home) == database}
    streams = {
        stream.name for stream in context.store.streams.all() if stream.table_name.database(context.home) == database
    }
    rows = []
    sees = viewer(context)
    for name, kind in _in_catalog(context, database):
        if name.lower() in streams or not sees(context.name_of(database, name)):
            continue
        is_dynamic = name.lower() in dynamic
        rows.append((schema, name, kind == "VIEW" and not is_dynamic, False, kind == "EXTERNAL", is_dynamic))
    rows = [row for row in sorted(rows) if matches(row[1], statement.like)]
    return narrowed(context, from_rows(_TABLES, rows, context.settings.timezone), statement.where, statement.limit)


def _in_catalog(context: Context, database: str) -> list[tuple[str, str]]:
    """Names and kinds (MANAGED, EXTERNAL, VIEW), in one question to the metastore. Spark's own list opens every table
    for it, which takes a twentieth of a second each."""
    catalog = Jvm(context.spark).state.catalog()
    found = catalog.getTablesByName(catalog.listTables(database, "*", False))
    return [(str(each.identifier().table()), str(each.tableType().name())) for each in items(found)]


def show_dynamic_tables(context: Context, statement: sql.ShowDynamicTables) -> Result:
    wanted = context.require_database(statement.schema)[2] if statement.schema is not None else None
    rows = []
    sees = viewer(context)
    for table in context.store.tables():
        if wanted is not None and table.table_name.database(context.home) != wanted:
            continue
        if not matches(table.name, statement.like) or not sees(table.table_name):
            continue
        rows.append(
            (
                table.workspace, table.schema_name, table.name, table.refresh_mode, table.interval_seconds,
                None if table.target_lag is None else str(table.target_lag), table.vcluster,
                "SUSPENDED" if table.suspended else "ACTIVE", table.suspended_reason,
                table.query.plan is not None and table.refresh_mode != "FULL",
                "REFRESH_MODE is FULL" if table.refresh_mode == "FULL" else table.query.unsupported,
                table.created_at, table.creator, table.comment,
                _state_bytes(context, table),
            )
        )  # fmt: skip
    return narrowed(context, from_rows(_DYNAMIC, rows, context.settings.timezone), statement.where, statement.limit)


def _state_bytes(context: Context, table: DynamicTable) -> int:
    """Of what is kept beside the table: state tables and ordered copies."""
    states = StateTables(context.spark, context.logs, table, context.progress)
    copies = OrderedCopies(context.spark, context.logs, table, context.progress)
    return states.size()[2] + copies.size()[1]


def show_history(context: Context, statement: sql.ShowRefreshHistory) -> Result:
    sees = viewer(context)
    context.runner.settle_unwritten()
    where = None if statement.where is None else trigger_names(statement.where)
    picks = where is not None or not context.user.is_admin
    size = PAGE if picks or statement.limit is None else min(PAGE, max(1, statement.limit))
    pages = (
        history_rows(context, [each for each in page if sees(TableName(each.workspace, each.schema_name, each.name))])
        for page in context.store.history_pages(size)
    )
    return gathered(context, pages, where, statement.limit)


def history_rows(context: Context, records: Sequence[RefreshRecord]) -> Result:
    """Refreshes in the history's columns."""
    return from_rows(_HISTORY, [_history_row(record) for record in records], context.settings.timezone)


def _history_row(record: RefreshRecord) -> tuple[Any, ...]:
    sources = [{"schema": s.schema, "table_name": s.table, "workspace": s.workspace} for s in record.source_tables]
    stats = None
    if record.rows_inserted is not None or record.rows_deleted is not None:
        stats = json.dumps(
            {"rows_deleted": str(record.rows_deleted or 0), "rows_inserted": str(record.rows_inserted or 0)},
            separators=(",", ":"),
        )
    return (
        record.workspace, record.schema_name, record.name, record.vcluster.upper(), record.start_time, record.end_time,
        _duration(record), record.state, record.trigger, record.suspended_reason, record.refresh_mode,
        record.error_message, json.dumps(sources, separators=(",", ":")), stats, record.completion_target,
        record.job_id, record.technique, record.reason,
    )  # fmt: skip


def _duration(record: RefreshRecord) -> str | None:
    """Days, then hours, minutes and seconds to the nanosecond: `0 00:00:00.327000000`."""
    if record.end_time is None:
        return None
    took = record.end_time - record.start_time
    hours, rest = divmod(took.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{took.days} {hours:02d}:{minutes:02d}:{seconds:02d}.{took.microseconds:06d}000"


def matches(name: str, pattern: str | None) -> bool:
    """SQL's % and _, and Spark's * and |; names are compared without regard to case."""
    if pattern is None:
        return True
    return any(_matches(name.lower(), re.split("[%*]", choice.strip().lower())) for choice in pattern.split("|"))


def _matches(name: str, pieces: list[str]) -> bool:
    """Piece by piece, each where it first fits: a pattern of many % takes no longer for it.

    >>> _matches("orders_2024", ["ord", "_", "4"]), _matches("ab", ["a", "c"]), _matches("a", ["a"])
    (True, False, True)
    """
    if len(pieces) == 1:
        return _fits(name, 0, pieces[0]) and len(name) == len(pieces[0])
    first, *middle, last = pieces
    if len(name) < len(first) + len(last) or not _fits(name, 0, first) or not _fits(name, len(name) - len(last), last):
        return False
    at, end = len(first), len(name) - len(last)
    for piece in middle:
        at = next((place for place in range(at, end - len(piece) + 1) if _fits(name, place, piece)), -1) + len(piece)
        if at < len(piece):
            return False
    return True


def _fits(name: str, place: int, piece: str) -> bool:
    return place + len(piece) <= len(name) and all(
        wanted in ("_", found) for wanted, found in zip(piece, name[place:], strict=False)
    )


def narrowed(context: Context, result: Result, where: str | None, limit: int | None) -> Result:
    """WHERE over the printed columns is Spark's to evaluate; LIMIT is ours.

    Spark does it without a job, for a SHOW must be answered while everything is busy: rows this few become part of the
    plan, the optimizer filters them, and collecting them as rows (not as Arrow) needs no task. Only the places of the
    rows that remain come back, so that no value goes through Spark's types.
    """
    table = result.to_arrow()
    if where is not None:
        places = pa.array(range(table.num_rows), type=pa.int64())
        try:
            require_condition(context, where)
            rows = context.spark.createDataFrame(table.append_column(_PLACE, places)).where(where)
            require_frame(context, rows)
            table = table.take(pa.array([row[0] for row in rows.select(_PLACE).collect()], type=pa.int64()))
        except PySparkException as error:
            shown = ", ".join(name for name in result.columns if not name.startswith("__hr_"))
            raise QueryFailed(
                f"The condition cannot be used: {short_message(error)}", hint=f"Columns: {shown}."
            ) from error
    return Result(table if limit is None else table.slice(0, limit), zone=context.settings.timezone)


def gathered(context: Context, pages: Iterable[Result], where: str | None, limit: int | None) -> Result:
    """The first rows of a long list that fulfil the condition, page by page: memory holds a page, and what is left of
    those before it. That is bounded as every result is; `truncated` says that there was more."""
    most = context.result_limit
    kept: list[pa.Table] = []
    rows = size = 0
    for page in pages:
        running.require_wanted()
        table = narrowed(context, page, where, None if limit is None else limit - rows).to_arrow()
        if most is not None and (rows + table.num_rows > most.rows or size + table.nbytes > most.size):
            kept.append(table.slice(0, _fitting(table, most.rows - rows, most.size - size)))
            return Result(pa.concat_tables(kept), zone=context.settings.timezone, truncated=True)
        kept.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
        if limit is not None and rows >= limit:
            break
    return Result(pa.concat_tables(kept), zone=context.settings.timezone)


def _fitting(table: pa.Table, rows: int, size: int) -> int:
    """How many of the first rows fit, at most so many, into so many bytes."""
    fits = min(rows, int(table.num_rows))
    while fits > 0 and table.slice(0, fits).nbytes > size:
        fits //= 2
    return fits


def show_create(context: Context, statement: sql.ShowCreateTable) -> Result:
    table = context.dynamic(statement.name)
    stream = context.stream(statement.name)
    if stream is not None:
        return from_rows([("createtab_stmt", _TEXT)], [(_create_stream(stream),)])
    if table is None:
        name = context.resolve(statement.name)
        if not context.exists(name):
            raise NotFound(f"There is no table {name}.", hint="SHOW TABLES lists them.")
        found = context.spark.sql(f"SHOW CREATE TABLE {name.spark(context.home)}")
        return from_frame(found, context.settings.timezone)
    columns = ", ".join(
        quote(c.name)
        + (f" COMMENT {quote_text(table.column_comments[c.name])}" if c.name in table.column_comments else "")
        for c in table.query.columns
    )
    lines = [
        f"CREATE DYNAMIC TABLE {'.'.join(map(quote, (table.workspace, table.schema_name, table.name)))} ({columns})"
    ]
    for keyword, names in (("PARTITIONED BY", table.partitioned_by), ("CLUSTERED BY", table.clustered_by)):
        if names:
            lines.append(f"{keyword} ({', '.join(map(quote, names))})")
    if table.comment is not None:
        lines.append(f"COMMENT {quote_text(table.comment)}")
    if table.properties:
        pairs = ", ".join(f"{quote_text(k)}={quote_text(v)}" for k, v in sorted(table.properties.items()))
        lines.append(f"PROPERTIES ({pairs})")
    refresh = [f"START WITH TIMESTAMP '{table.start_with:%Y-%m-%d %H:%M:%S%z}'"] if table.start_with else []
    refresh += [f"INTERVAL {table.interval_seconds} SECOND"] if table.interval_seconds else []
    lines.append(" ".join(["REFRESH", *refresh, f"VCLUSTER {quote(table.vcluster)}"]))
    lines.append(f"REFRESH_MODE = {table.refresh_mode}")
    if table.target_lag is not None:
        lag = table.target_lag if table.target_lag == "DOWNSTREAM" else f"'{table.target_lag} seconds'"
        lines.append(f"TARGET_LAG = {lag}")
    lines.append(f"AS {table.query.resolved_text}")
    return from_rows([("createtab_stmt", _TEXT)], [("\n".join(lines),)])


def _create_stream(stream: TableStream) -> str:
    """The stream as it is now: at its present offset."""

    def full(name: TableName) -> str:
        return ".".join(map(quote, (name.workspace, name.schema, name.table)))

    comment = f"\nCOMMENT {quote_text(stream.comment)}" if stream.comment is not None else ""
    initial = str(stream.initial).upper()
    return (
        f"CREATE TABLE STREAM {full(stream.table_name)} ON TABLE {full(stream.source)} VERSION AS OF {stream.offset}"
        f"{comment}\nWITH PROPERTIES ('TABLE_STREAM_MODE'='{stream.mode}', 'SHOW_INITIAL_ROWS'='{initial}')"
    )
