"""CREATE, ALTER, DROP, SHOW and DESC of table streams, and what STREAM_HAS_DATA says."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from headrace.catalog.records import StreamRange, TableStream
from headrace.catalog.streams import A_PROGRAM
from headrace.errors import AlreadyExists, HeadraceError, NotAllowed, NotFound, Position, StaleStream, UserError
from headrace.names import TableName, parse_parts, quote_text
from headrace.plan.types import comparable
from headrace.result import Result, done, from_rows
from headrace.sql import statements as sql
from headrace.statements.context import Context
from headrace.statements.listing import matches, narrowed
from headrace.statements.permitting import viewer
from headrace.statements.vacuuming import retention_hours
from headrace.storage.delta import Snapshot
from headrace.streams.ranges import stale_after
from headrace.streams.view import STREAM_COLUMNS

_TEXT = pa.string()
_TIME = pa.timestamp("us", tz="UTC")
_STREAMS = [
    ("workspace_name", _TEXT), ("schema_name", _TEXT), ("name", _TEXT), ("table_name", _TEXT), ("mode", _TEXT),
    ("show_initial_rows", pa.bool_()), ("offset", pa.int64()), ("has_data", pa.bool_()), ("stale", pa.bool_()),
    ("stale_after", _TIME), ("created_time", _TIME), ("creator", _TEXT), ("comment", _TEXT), ("last_read_into", _TEXT),
]  # fmt: skip


def create(context: Context, statement: sql.CreateStream) -> Result:
    name = context.resolve(statement.name)
    present = context.store.streams.named(name)
    if present is not None and statement.if_not_exists:
        return done(f"Table stream {name} exists already; nothing was done.")
    if present is None and context.exists(name):
        raise AlreadyExists(f"{name} exists already, and is no table stream.", hint="Choose another name.")
    if present is not None and not statement.or_replace:
        raise AlreadyExists(
            f"The table stream {name} exists already.", hint="Drop it, write OR REPLACE, or choose another name."
        )
    stream = _new(context, statement, name)
    context.streams.traces.leave([stream])
    if present is None:
        context.store.streams.put(stream)
    else:
        with context.streams.lock(present.id):
            context.store.streams.replace(present.id, stream)
            context.streams.traces.remove(present.id)
    try:
        context.streams.create_view(stream)
    except BaseException:
        context.store.streams.drop(stream.id)
        context.streams.traces.remove(stream.id)
        raise
    after = f"{stream.source} after version {stream.offset}"
    first = f"it begins with the rows of {stream.source} at version {stream.offset}, then" if stream.initial else "it"
    return done(f"Table stream {name} {'replaced' if present else 'created'}: {first} reads the changes of {after}.")


def _new(context: Context, statement: sql.CreateStream, name: TableName) -> TableStream:
    table = context.resolve(statement.table)
    dynamic = context.store.table(table)
    if dynamic is not None and dynamic.query.cut is not None:
        raise NotAllowed(
            f"{table} ends with LIMIT: which rows it shows depends on rows that did not change.",
            hint="Make the stream on a dynamic table without LIMIT.",
        )
    is_stream = context.store.streams.named(table) is not None
    located = None if is_stream else context.locate(table.database(context.home), table.table)
    if is_stream:
        raise NotAllowed(f"{table} is itself a table stream.", hint="Make the new one on the table that it reads.")
    if located is None and context.exists(table):
        raise NotAllowed(
            f"{table} is a view, or no Delta table: it has no changes of its own.",
            hint="Make the stream on a Delta table or a dynamic table, or turn the view into a dynamic table.",
        )
    if located is None:
        raise NotFound(f"There is no table {table}.", hint="SHOW TABLES lists what there is.")
    path = located.source.path
    snapshot = context.logs.snapshot(path)
    _refuse_columns(snapshot, [column.name for column in located.source.columns], table)
    if dynamic is not None:
        for column in dynamic.query.columns:
            if not comparable(column.type):
                raise NotAllowed(
                    f"The column {column.name} of {table} has the type {column.type.lower()}, whose values cannot be "
                    "compared: what changed in a refresh cannot be told.",
                    hint="Leave the column out of the dynamic table, or make the stream on its source.",
                )
    if not snapshot.tracks_changes:
        raise NotAllowed(
            f"{table} does not track its changes.",
            hint=f"Write ALTER TABLE {table} SET PROPERTIES ('change_tracking'='true'), then create the stream.",
        )
    offset = snapshot.version
    if statement.version is not None:
        offset = statement.version
    elif statement.timestamp is not None:
        offset = version_at(context, path, statement.timestamp)
    _require_readable(context, path, table, offset, snapshot.version)
    now = context.clock()
    return TableStream(
        id=uuid.uuid4().hex,
        workspace=name.workspace,
        schema_name=name.schema,
        name=name.table,
        source=table,
        source_path=path,
        source_table_id=snapshot.table_id,
        is_dynamic=dynamic is not None,
        mode=statement.mode,
        show_initial_rows=statement.show_initial_rows,
        offset=offset,
        initial=statement.show_initial_rows,
        offset_moved_at=now,
        comment=statement.comment,
        creator=context.user.name,
        created_at=now,
    )


def _refuse_columns(snapshot: Snapshot, columns: list[str], table: TableName) -> None:
    taken = sorted({name.lower() for name in columns} & set(STREAM_COLUMNS))
    if taken:
        raise NotAllowed(
            f"{table} has a column {taken[0]}, and so has every stream.", hint="Rename the table's column."
        )


def version_at(context: Context, path: str, expression: str) -> int:
    """The newest version that was committed at or before a moment."""
    row = context.spark.sql(f"SELECT unix_millis(CAST({expression} AS TIMESTAMP)) AS at").first()
    moment = None if row is None else row["at"]
    if moment is None:
        raise UserError(
            f"{expression} is no timestamp.", hint="Write, for example, TIMESTAMP AS OF '2026-01-31 12:00:00'."
        )
    if moment > context.clock().timestamp() * 1000:
        raise UserError(f"{expression} is in the future.", hint="Choose a moment that has passed, or a version.")
    commits = context.logs.history(path)
    found = next((commit.version for commit in commits if commit.timestamp <= moment), None)
    if found is None:
        oldest = _shown(commits[-1].timestamp)
        raise UserError(
            f"The table's history begins at {oldest}, after {expression}.", hint="Choose a later moment, or a version."
        )
    return found


def _require_readable(context: Context, path: str, table: TableName, offset: int, newest: int) -> None:
    if offset > newest:
        raise UserError(f"{table} has no version {offset}; its newest is {newest}.", hint="DESC HISTORY lists them.")
    gone = StaleStream(
        f"The log of {table} no longer has all versions after {offset}.", hint="DESC HISTORY lists those it has."
    )
    if context.logs.commits(path, offset, newest) is None:
        raise gone
    try:
        tracked = offset == newest or context.logs.snapshot_at(path, offset + 1).tracks_changes
    except NotFound:
        raise gone from None
    if not tracked:
        raise NotAllowed(
            f"{table} did not track its changes after version {offset}.",
            hint="Start at a version from which it did; DESC HISTORY shows when change tracking was set.",
        )


def alter(context: Context, statement: sql.AlterStream) -> Result:
    stream = context.require_stream(statement.name)
    with context.streams.lock(stream.id):
        context.streams.readings.settle_of([stream.id])
        stream = context.require_stream(statement.name)
        if isinstance(statement.action, sql.SetComment):
            context.store.streams.put(stream.model_copy(update={"comment": statement.action.comment}))
            return done(f"Table stream {stream.table_name} has a new comment.")
        version = statement.action.version
        newest = context.logs.snapshot(stream.source_path).version
        _require_readable(context, stream.source_path, stream.source, version, newest)
        changed = {"offset": version, "initial": False, "lost": None, "offset_moved_at": context.clock()}
        context.store.streams.put(stream.model_copy(update=changed | {"read_into": None}))
        context.streams.traces.leave([stream])
    dropped = " Its initial rows will not be read any more." if stream.initial else ""
    return done(
        f"Table stream {stream.table_name} moved from version {stream.offset} to {version}: "
        f"it reads the changes after that.{dropped}"
    )


def drop(context: Context, statement: sql.DropStream) -> Result:
    name = context.resolve(statement.name)
    stream = context.store.streams.named(name)
    if stream is None:
        if statement.if_exists:
            return done(f"There is no table stream {name}; nothing was done.")
        context.require_stream(statement.name)
    else:
        _forget(context, stream)
    return done(f"Table stream {name} dropped.")


def _forget(context: Context, stream: TableStream) -> None:
    with context.streams.lock(stream.id):
        context.streams.drop_view(stream)
        context.store.streams.drop(stream.id)
        context.streams.traces.remove(stream.id)


def forget_lost(context: Context) -> None:
    """A stream's offset is in the operations database alone. If that was lost, so is the stream: its view, which would
    go on showing the same changes, is dropped. If it is an older one, the offset is not to be trusted."""
    known = {stream.id: stream for stream in context.store.streams.all()}
    views = {stream.table_name.spark(context.home) for stream in known.values()}
    for trace in context.streams.traces.all():
        stream = known.get(trace.stream_id)
        if stream is None:
            if trace.view and trace.view not in views:
                context.spark.sql(f"DROP VIEW IF EXISTS {trace.view}")
                context.progress.tell(
                    f"The table stream {trace.view} is gone, because the operations database does not know its offset. "
                    "Create it again."
                )
            context.streams.traces.remove(trace.stream_id)
        elif trace.last_reading > stream.last_reading and stream.lost is None:
            why = "its offset was moved after the operations database, now in use, had been copied"
            context.store.streams.put(stream.model_copy(update={"lost": why}))


def drop_streams_in(context: Context, database: str) -> None:
    for stream in context.store.streams.all():
        if stream.table_name.database(context.home) == database:
            _forget(context, stream)


def set_moving(context: Context, statement: sql.SetMoveStreams) -> Result:
    context.streams.moves = statement.moves
    if statement.moves:
        return done("Statements of this session move the table streams that they read.")
    return done("Statements of this session leave the table streams that they read where they are.")


def show(context: Context, statement: sql.ShowStreams, read: frozenset[str] | None = None) -> Result:
    """Those that are wanted; with `read`, of the streams with these ids."""
    wanted = context.require_database(statement.schema)[2] if statement.schema is not None else None
    rows = []
    sees = viewer(context)
    for stream in context.store.streams.all():
        if wanted is not None and stream.table_name.database(context.home) != wanted:
            continue
        if read is not None and stream.id not in read:
            continue
        if not matches(stream.name, statement.like) or not sees(stream.table_name):
            continue
        fresh, after = _freshness(context, stream)
        try:
            has = fresh and has_data(context, stream)
        except (HeadraceError, PySparkException, Py4JJavaError):
            fresh, has = False, False
        rows.append(
            (
                stream.workspace, stream.schema_name, stream.name, str(stream.source), stream.mode,
                stream.show_initial_rows, stream.offset, has, not fresh, after,
                stream.created_at, stream.creator, stream.comment, _read_into(stream, sees),
            )
        )  # fmt: skip
    found = from_rows(_STREAMS, rows, context.settings.timezone)
    return narrowed(context, found, statement.where, statement.limit)


def describe(context: Context, statement: sql.DescribeStream) -> Result:
    stream = context.require_stream(statement.name)
    problem = None
    count: int | None = None
    try:
        rows = context.streams.table(stream.table_name.spark(context.home))
        with context.streams.explained(rows):
            count = rows.count()
    except StaleStream as error:
        problem = error.message
    _, after = _freshness(context, stream)
    lines: list[tuple[str, Any]] = [
        ("workspace", stream.workspace),
        ("schema", stream.schema_name),
        ("name", stream.name),
        ("table", stream.source),
        ("mode", stream.mode),
        ("show_initial_rows", str(stream.show_initial_rows).lower()),
        ("offset", f"version {stream.offset}"),
        ("offset_moved_time", _shown(int(stream.offset_moved_at.timestamp() * 1000))),
        ("last_read_into", _read_into(stream, viewer(context)) or ""),
        ("changes_waiting", "" if count is None else count),
        ("stale", "false" if problem is None else f"true: {problem}"),
        ("stale_after", "" if after is None else _shown(int(after.timestamp() * 1000))),
        ("creator", stream.creator),
        ("created_time", _shown(int(stream.created_at.timestamp() * 1000))),
        ("comment", stream.comment or ""),
    ]
    return from_rows([("property", _TEXT), ("value", _TEXT)], [(key, str(value)) for key, value in lines])


def _read_into(stream: TableStream, sees: Callable[[TableName], bool]) -> str | None:
    """Where the rows went that the stream gave last, for somebody who may see that table."""
    if stream.read_into in (None, A_PROGRAM):
        return stream.read_into
    try:
        parts = parse_parts(stream.read_into)
    except UserError:
        parts = ()
    # Without a name, it is a path: nothing was granted on that.
    name = TableName(*parts) if len(parts) == 3 else TableName("", "", stream.read_into)
    return stream.read_into if sees(name) else "another table"


def _freshness(context: Context, stream: TableStream) -> tuple[bool, datetime | None]:
    """Whether the stream can be read, and until when that is certain."""
    try:
        context.streams.waiting(stream)
        return True, stale_after(context.logs, stream, retention_hours(context, stream.source_path))
    except HeadraceError:
        return False, None


def has_data(context: Context, stream: TableStream) -> bool:
    """Whether a read would give a row. Mostly the log tells; where it does not, one row is looked for."""
    waiting = context.streams.waiting(stream)
    if not waiting.changed and not stream.initial:
        return False
    if waiting.surely_has_data:
        return True
    rows = context.streams.table(stream.table_name.spark(context.home))
    with context.streams.explained(rows):
        return not rows.isEmpty()


def undone_readings(context: Context, path: str, version: int) -> list[str]:
    """Sentences about the changes that a RESTORE to this version takes out of a table that streams were read into."""
    found: dict[str, StreamRange] = {}
    kept = _lineage(context, path, version)
    lost = _lineage(context, path, context.logs.snapshot(path).version) - kept
    for reading in context.store.streams.into(path):
        if reading.target_version in lost:
            for part in reading.ranges:
                found.setdefault(part.stream_id, part)
    sentences = []
    for stream_id, part in found.items():
        stream = context.store.streams.by_id(stream_id)
        if stream is not None:
            again = f"ALTER TABLE STREAM {stream.table_name} SET OFFSET VERSION AS OF {part.after}"
            if part.initial:
                again = (
                    f"CREATE OR REPLACE TABLE STREAM {stream.table_name} ON TABLE {stream.source} VERSION AS OF "
                    f"{part.after} WITH PROPERTIES ('TABLE_STREAM_MODE'='{stream.mode}', 'SHOW_INITIAL_ROWS'='TRUE')"
                )
            sentences.append(
                f"What was read from the table stream {stream.table_name} after version {part.after} of its table is "
                f"no longer in it; to read it again: {again}."
            )
    return sentences


def _lineage(context: Context, path: str, version: int) -> set[int]:
    """The versions whose writes a version's rows come from: what was restored away in between is not among them."""
    restored = {commit.version: commit.restored for commit in context.logs.history(path) if commit.restored is not None}
    found: set[int] = set()
    while version >= 0:
        found.add(version)
        back = restored.get(version)
        if isinstance(back, str):
            try:
                back = version_at(context, path, quote_text(back))
            except UserError:
                back = None  # The files have other times now, as in a copied lake.
        version = version - 1 if back is None else min(back, version - 1)
    return found


def refuse(stream: TableStream, verb: str, position: Position | None = None) -> NotAllowed:
    """A statement that treats a stream as a table or view."""
    first = verb.split()[0]
    if first in ("CREATE", "REPLACE"):
        return NotAllowed(
            f"The name {stream.table_name} is taken by a table stream.", hint="Choose another name.", position=position
        )
    if first == "DROP":
        hint = f"Write DROP TABLE STREAM {stream.table_name}."
    elif first == "ALTER":
        hint = "ALTER TABLE STREAM can set its offset and its comment; CREATE OR REPLACE TABLE STREAM makes it anew."
    else:
        hint = f"It has no rows of its own; the table that it reads is {stream.source}."
    return NotAllowed(
        f"{stream.table_name} is a table stream; {verb} does not apply to it.", hint=hint, position=position
    )


def _shown(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, tz=timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
