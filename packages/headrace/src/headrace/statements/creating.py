"""CREATE DYNAMIC TABLE, with OR REPLACE and IF NOT EXISTS."""

from __future__ import annotations

import uuid
from datetime import datetime

from pyspark.errors import PySparkException

from headrace import failpoints
from headrace.catalog.records import DynamicTable, RefreshRecord
from headrace.errors import AlreadyExists, EnvironmentFault, HeadraceError, NotFound, RefreshRunning, UserError
from headrace.names import TableName, require_plain
from headrace.plan.query import Query
from headrace.sql import statements as sql
from headrace.statements.checking import check_properties, refuse_cycle, require_rule, require_vcluster
from headrace.statements.context import Context
from headrace.statements.elsewhere import alone
from headrace.statements.reading import read, renamed
from headrace.statements.replacing import replace_query
from headrace.statements.storing import (
    create_storage,
    create_view,
    remove_storage,
    set_storage_properties,
    storage_path,
)
from headrace.storage.errors import is_of_surroundings, short_message

_MEND_SURROUNDINGS = "Free some space or raise the limit on the server's machine, then create it again."
_START_WITH = "Write START WITH TIMESTAMP '2026-01-31 06:00:00'."


def create(context: Context, statement: sql.CreateDynamicTable) -> tuple[DynamicTable, RefreshRecord | None]:
    """The new (or kept, or replaced) table, and the record of its load when there was one."""
    try:
        return _created(context, statement)
    except AlreadyExists:
        # Somebody may have created it meanwhile. Then it is there, and the statement says what to do with it.
        is_there = context.store.table(context.resolve(statement.name)) is not None
        if not is_there or not (statement.or_replace or statement.if_not_exists):
            raise
    return _created(context, statement)


def _created(context: Context, statement: sql.CreateDynamicTable) -> tuple[DynamicTable, RefreshRecord | None]:
    name = context.resolve(statement.name)
    require_plain(name.table, "dynamic table")
    context.require_database((name.workspace, name.schema))
    existing = context.store.table(name)
    if existing is not None and statement.if_not_exists:
        return existing, None
    if existing is not None and not statement.or_replace:
        raise AlreadyExists(
            f"The dynamic table {name} exists already.", hint="Write CREATE OR REPLACE, or IF NOT EXISTS."
        )
    if existing is None and context.exists(name):
        raise AlreadyExists(
            f"{name} exists already and is not a dynamic table.", hint="Choose another name, or drop it."
        )
    wanted = _definition(context, statement, name, existing)
    refuse_cycle(context, wanted)
    require_rule(wanted)
    if existing is not None:
        return _replace(context, existing, wanted)
    return wanted, _create(context, wanted)


def _definition(
    context: Context, statement: sql.CreateDynamicTable, name: TableName, existing: DynamicTable | None
) -> DynamicTable:
    vcluster = statement.vcluster or (existing.vcluster if existing is not None else "default")
    require_vcluster(context, vcluster)
    check_properties(statement.properties)
    query = _with_columns(read(context, statement.query, statement.text, statement.query_offset), statement.columns)
    for column in (*statement.partitioned_by, *statement.clustered_by):
        if column.lower() not in {c.name.lower() for c in query.columns}:
            raise NotFound(
                f"The query has no column '{column}' to partition or cluster by.",
                hint=f"It has {', '.join(c.name for c in query.columns)}.",
            )
    now = context.clock()
    table_id = existing.id if existing is not None else uuid.uuid4().hex
    return DynamicTable(
        id=table_id,
        workspace=name.workspace,
        schema_name=name.schema,
        name=name.table,
        query=query,
        database=context.spark.catalog.currentDatabase(),
        storage_path=existing.storage_path if existing is not None else storage_path(context, name, table_id),
        comment=statement.comment,
        column_comments=_column_comments(statement, query, existing),
        properties=statement.properties,
        partitioned_by=statement.partitioned_by,
        clustered_by=statement.clustered_by,
        interval_seconds=statement.interval_seconds,
        start_with=_moment(context, statement.start_with),
        target_lag=statement.target_lag,
        vcluster=vcluster.lower(),
        refresh_mode=statement.refresh_mode or "AUTO",
        creator=context.user.name,  # Also of a replaced one: in whose name its query reads.
        created_at=existing.created_at if existing is not None else now,
        modified_at=now,
        generation=existing.generation if existing is not None else 1,
        suspended=existing.suspended if existing is not None else False,
        suspended_reason=existing.suspended_reason if existing is not None else None,
    )


def _column_comments(statement: sql.CreateDynamicTable, query: Query, existing: DynamicTable | None) -> dict[str, str]:
    """Comments of columns that stay survive OR REPLACE; the statement's own win."""
    names = {column.name for column in query.columns}
    before = existing.column_comments if existing is not None else {}
    kept = {name: comment for name, comment in before.items() if name in names}
    return kept | {c.name: c.comment for c in statement.columns if c.comment is not None}


def _with_columns(query: Query, columns: tuple[sql.DeclaredColumn, ...]) -> Query:
    """The query with its columns under the names that CREATE lists."""
    if not columns:
        return query
    if len(columns) != len(query.columns):
        raise UserError(
            f"The column list names {len(columns)} columns, and the query returns {len(query.columns)}.",
            hint="List every column of the query, in order, or none.",
        )
    return renamed(query, [column.name for column in columns])


def _moment(context: Context, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        found = context.spark.sql(f"SELECT CAST(unix_micros(CAST({text} AS TIMESTAMP)) AS BIGINT)").first()
    except PySparkException as error:
        raise UserError(f"START WITH needs a timestamp: {short_message(error)}", hint=_START_WITH) from error
    if found is None or found[0] is None:
        raise UserError(f"START WITH needs a timestamp, and {text} is none.", hint=_START_WITH)
    return datetime.fromtimestamp(found[0] / 1_000_000, tz=context.clock().tzinfo)


def _create(context: Context, table: DynamicTable) -> RefreshRecord | None:
    record: RefreshRecord | None = None
    try:
        create_storage(context, table)
        failpoints.reach("create-after-storage")
        context.store.put_table(table)
        if table.properties.get("initialize", "on_create").lower() != "on_schedule":
            record = context.runner.refresh(table)
        failpoints.reach("create-after-load")
        create_view(context, table)
    except BaseException as error:
        _leave_nothing(context, table)
        if is_of_surroundings(error) and not isinstance(error, HeadraceError):
            raise EnvironmentFault(
                f"{table.table_name} could not be created: {short_message(error)}", hint=_MEND_SURROUNDINGS
            ) from error
        raise
    return record


def _leave_nothing(context: Context, table: DynamicTable) -> None:
    try:
        context.store.drop_table(table.id)
    except EnvironmentFault:
        # The disk is full, say: the operations database can be written when the storage is gone.
        remove_storage(context, table)
        context.store.drop_table(table.id)
    else:
        remove_storage(context, table)


def _replace(
    context: Context, existing: DynamicTable, wanted: DynamicTable
) -> tuple[DynamicTable, RefreshRecord | None]:
    """OR REPLACE: a changed query is loaded anew; the same query keeps its data, whatever else changed."""
    if same_meaning(existing.query, wanted.query) and existing.partitioned_by == wanted.partitioned_by:
        with alone(context, existing):
            kept = context.store.change_table(existing.id, lambda present: _with_settings(present, existing, wanted))
            set_storage_properties(context, kept)
            create_view(context, kept)
        return kept, None
    return wanted, replace_query(context, existing, wanted, "The query was replaced.")


def _with_settings(present: DynamicTable, existing: DynamicTable, wanted: DynamicTable) -> DynamicTable:
    """Nobody else gives it another query now; one who just did has the better right."""
    if present.generation != existing.generation:
        raise RefreshRunning(
            f"{existing.table_name} was replaced by somebody else meanwhile.",
            hint="Look at it with SHOW CREATE TABLE, then try again.",
        )
    return present.with_changes(existing, wanted.model_copy(update={"stale_reason": existing.stale_reason}))


def same_meaning(one: Query, other: Query) -> bool:
    """Whether two queries give the same columns in the same way from the same tables."""
    return (
        one.bound == other.bound
        and one.cut == other.cut
        and one.definitions == other.definitions
        and [(c.name, c.type) for c in one.columns] == [(c.name, c.type) for c in other.columns]
        and [source.path for source in one.sources] == [source.path for source in other.sources]
    )
