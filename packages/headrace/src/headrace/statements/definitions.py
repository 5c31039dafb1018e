"""CREATE, ALTER and DROP of dynamic tables."""

from __future__ import annotations

import getpass
import json
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from deltalake import DeltaTable
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import DeltaError
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from headrace import failpoints
from headrace.catalog.records import DynamicTable, RefreshRecord
from headrace.errors import (
    AlreadyExists,
    BadSetting,
    HeadraceError,
    NotAllowed,
    NotFound,
    Position,
    Unsupported,
    UserError,
)
from headrace.ivm.layout import layout_of, schema_text, select_live, without_plan_if_unstorable
from headrace.names import TableName, quote, quote_text
from headrace.plan.catalyst import read_query
from headrace.plan.query import Query
from headrace.refresh.fold import partition_columns
from headrace.sql import statements as sql
from headrace.sql.tokens import position_at, scan
from headrace.statements.context import Context
from headrace.storage.errors import short_message

DEFINITION = "headrace.definition"
DROPPED = ".dropped"
FOLDER = "dynamic-tables"
"""Under the warehouse. Spark allows no table name with a dash, so no table can ever lie there."""


def create(context: Context, statement: sql.CreateDynamicTable) -> tuple[DynamicTable, RefreshRecord | None]:
    """The new (or kept, or replaced) table, and the record of its load when there was one."""
    name = context.resolve(statement.name)
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
    _refuse_cycle(context, wanted)
    _require_rule(wanted)
    if existing is not None:
        return _replace(context, existing, wanted)
    return wanted, _create(context, wanted)


def read(context: Context, text: str, statement: str, offset: int) -> Query:
    """The query, read by Spark; positions of errors are those in the whole statement."""
    try:
        query = read_query(context.spark, text, locate=context.locate, database_of=context.database_of)
        return without_plan_if_unstorable(query)
    except HeadraceError as error:
        if error.position is not None:
            start = position_at(statement, offset)
            at = error.position
            column = at.column + start.column - 1 if at.line == 1 else at.column
            error.position = Position(at.line + start.line - 1, column)
        raise


def _definition(
    context: Context, statement: sql.CreateDynamicTable, name: TableName, existing: DynamicTable | None
) -> DynamicTable:
    vcluster = statement.vcluster or (existing.vcluster if existing is not None else "default")
    require_vcluster(context, vcluster)
    check_properties(statement.properties)
    query = _with_columns(read(context, statement.query, statement.text, statement.query_offset), statement.columns)
    for column in (*statement.partitioned_by, *statement.clustered_by):
        if column.lower() not in {c.name.lower() for c in query.columns}:
            raise NotFound(f"The query has no column '{column}' to partition or cluster by.")
    now = context.clock()
    table_id = existing.id if existing is not None else uuid.uuid4().hex
    return DynamicTable(
        id=table_id,
        workspace=name.workspace,
        schema_name=name.schema,
        name=name.table,
        query=query,
        database=context.spark.catalog.currentDatabase(),
        storage_path=existing.storage_path if existing is not None else _storage_path(context, name, table_id),
        comment=_kept(statement.comment, existing.comment if existing is not None else None),
        column_comments=_column_comments(statement, query, existing),
        properties=statement.properties,
        partitioned_by=statement.partitioned_by,
        clustered_by=statement.clustered_by,
        interval_seconds=statement.interval_seconds,
        start_with=_moment(context, statement.start_with),
        vcluster=vcluster.lower(),
        refresh_mode=statement.refresh_mode or "AUTO",
        creator=existing.creator if existing is not None else getpass.getuser(),
        created_at=existing.created_at if existing is not None else now,
        modified_at=now,
        generation=existing.generation if existing is not None else 1,
        suspended=existing.suspended if existing is not None else False,
        suspended_reason=existing.suspended_reason if existing is not None else None,
    )


def _kept(wanted: str | None, before: str | None) -> str | None:
    return before if wanted is None else wanted


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


def renamed(query: Query, names: list[str]) -> Query:
    if len({name.lower() for name in names}) < len(names):
        raise UserError("Two columns would have the same name.", hint="Choose names that differ.")
    taken = [name for name in names if name.lower().startswith("__hr_")]
    if taken:
        raise NotAllowed(f"Column names that start with __hr_ are Headrace's own: '{taken[0]}'.")
    outputs = tuple(c.model_copy(update={"name": n}) for c, n in zip(query.columns, names, strict=True))
    plan = query.plan
    if plan is not None:
        pairs = tuple((name, unique) for name, (_, unique) in zip(names, plan.columns, strict=True))
        plan = plan.model_copy(update={"columns": pairs})
    return query.model_copy(update={"columns": outputs, "plan": plan})


def _moment(context: Context, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        found = context.spark.sql(f"SELECT CAST(unix_micros(CAST({text} AS TIMESTAMP)) AS BIGINT)").first()
    except PySparkException as error:
        raise UserError(f"START WITH needs a timestamp: {short_message(error)}") from error
    if found is None or found[0] is None:
        raise UserError(f"START WITH needs a timestamp, and {text} is none.")
    return datetime.fromtimestamp(found[0] / 1_000_000, tz=context.clock().tzinfo)


def require_vcluster(context: Context, name: str) -> None:
    if not context.store.has_vcluster(name):
        known = ", ".join(context.store.vclusters())
        raise NotFound(f"There is no virtual cluster '{name}'.", hint=f"Known ones: {known}.")


def check_properties(properties: dict[str, str]) -> None:
    initialize = properties.get("initialize")
    if initialize is not None and initialize.lower() not in ("on_create", "on_schedule"):
        raise BadSetting(f"The property initialize is 'on_create' or 'on_schedule', not '{initialize}'.")
    days = properties.get("data_retention_days")
    if days is not None and not re.fullmatch(r"[1-9]\d{0,4}", days):
        raise BadSetting(f"The property data_retention_days is a number of days, not '{days}'.")


def _require_rule(table: DynamicTable) -> None:
    if table.refresh_mode == "INCREMENTAL" and table.query.plan is None:
        raise Unsupported(
            f"incremental refresh not supported: {table.query.unsupported}.",
            hint="Simplify the query, or let it refresh whole: REFRESH_MODE = AUTO or FULL.",
        )


def _refuse_cycle(context: Context, table: DynamicTable) -> None:
    by_path = {other.storage_path: other for other in context.store.tables()}
    seen: set[str] = set()
    waiting = [(source.path, [table.table_name, source.name]) for source in table.query.sources]
    while waiting:
        path, trail = waiting.pop()
        if path == table.storage_path:
            raise NotAllowed(
                f"This would be a cycle: {' reads '.join(str(step) for step in trail)}.",
                hint="A dynamic table cannot read itself, not even through others.",
            )
        upstream = by_path.get(path)
        if upstream is not None and path not in seen:
            seen.add(path)
            waiting += [(source.path, [*trail, source.name]) for source in upstream.query.sources]


# ---------------------------------------------------------------------- storage


def _storage_path(context: Context, name: TableName, table_id: str) -> str:
    readable = re.sub(r"[^A-Za-z0-9_]+", "_", f"{name.database(context.home)}.{name.table}")[:80]
    return str(Path(context.settings.warehouse).absolute() / FOLDER / f"{readable}-{table_id[:12]}")


def _create(context: Context, table: DynamicTable) -> RefreshRecord | None:
    create_storage(context, table)
    failpoints.reach("create-after-storage")
    record: RefreshRecord | None = None
    try:
        context.store.put_table(table)
        if table.properties.get("initialize", "on_create").lower() != "on_schedule":
            record = context.runner.refresh(table)
        failpoints.reach("create-after-load")
        create_view(context, table)
    except BaseException:
        context.store.drop_table(table.id)
        remove_storage(context, table)
        raise
    return record


def create_storage(context: Context, table: DynamicTable) -> None:
    """The empty storage table; its first version already carries the definition."""
    layout = layout_of(table.query)
    structure = StructType.fromDDL(schema_text(layout.columns))
    configuration = {
        "delta.enableChangeDataFeed": "true",
        **_retention(context, table),
        DEFINITION: definition_text(table),
    }
    Path(table.storage_path).parent.mkdir(parents=True, exist_ok=True)
    try:
        DeltaTable.create(
            table.storage_path,
            schema=DeltaSchema.from_json(structure.json()),
            partition_by=list(partition_columns(table)),
            configuration=configuration,
            raise_if_key_not_exists=False,
        )
    except (DeltaError, ValueError, TypeError):
        # Types that delta-rs does not know (variant, for example).
        writer = (
            context.spark.createDataFrame([], schema_text(layout.columns))
            .write.format("delta")
            .partitionBy(*partition_columns(table))
        )
        for key, value in configuration.items():
            if key.startswith("delta."):
                writer = writer.option(key, value)
        writer.save(table.storage_path)
        set_storage_properties(context, table)


def _retention(context: Context, table: DynamicTable) -> dict[str, str]:
    days = table.properties.get("data_retention_days", str(context.settings.data_retention_days))
    return {
        "delta.deletedFileRetentionDuration": f"interval {days} days",
        "delta.logRetentionDuration": f"interval {days} days",
    }


def definition_text(table: DynamicTable) -> str:
    return json.dumps(json.loads(table.model_dump_json()), separators=(",", ":"))


def set_storage_properties(context: Context, table: DynamicTable) -> None:
    """Keep the definition beside the data, so that the operations database can be rebuilt from it."""
    DeltaTable(table.storage_path).alter.set_table_properties(
        {DEFINITION: definition_text(table), **_retention(context, table)}, raise_if_not_exists=False
    )
    context.logs.forget(table.storage_path)


def create_view(context: Context, table: DynamicTable) -> None:
    """The public name: a view over the live rows. Spark itself refuses DML on it."""
    columns = ", ".join(
        quote(c.name) + (f" COMMENT {quote_text(comment)}" if (comment := table.column_comments.get(c.name)) else "")
        for c in table.query.columns
    )
    comment = f" COMMENT {quote_text(table.comment)}" if table.comment else ""
    body = select_live(table.query.columns, layout_of(table.query).hides_groups, f"delta.{quote(table.storage_path)}")
    name = table.table_name.spark(context.home)
    context.spark.sql(f"CREATE OR REPLACE VIEW {name} ({columns}){comment} AS {body}")


def remove_storage(context: Context, table: DynamicTable) -> None:
    """Rename first, which is atomic: a crash leaves a folder that the next start knows to be dropped."""
    storage = Path(table.storage_path)
    context.logs.forget(table.storage_path)
    if storage.exists():
        gone = storage.with_name(storage.name + DROPPED)
        shutil.rmtree(gone, ignore_errors=True)
        storage.rename(gone)
        failpoints.reach("drop-after-rename")
        shutil.rmtree(gone, ignore_errors=True)


# ---------------------------------------------------------------------- replacing, altering, dropping


def _replace(
    context: Context, existing: DynamicTable, wanted: DynamicTable
) -> tuple[DynamicTable, RefreshRecord | None]:
    """OR REPLACE: a changed query is loaded anew; the same query keeps its data, whatever else changed."""
    if same_meaning(existing.query, wanted.query) and existing.partitioned_by == wanted.partitioned_by:
        kept = wanted.model_copy(update={"query": wanted.query, "stale_reason": existing.stale_reason})
        save(context, kept)
        create_view(context, kept)
        return kept, None
    changed = wanted.model_copy(
        update={"generation": existing.generation + 1, "stale_reason": "The query was replaced."}
    )
    context.store.put_table(changed)
    try:
        record = context.runner.refresh(changed)
    except BaseException:
        context.store.put_table(existing)
        raise
    loaded = changed.model_copy(update={"stale_reason": None})
    save(context, loaded)
    create_view(context, loaded)
    return loaded, record


def same_meaning(one: Query, other: Query) -> bool:
    """Whether two queries give the same columns in the same way from the same tables."""
    return (
        one.bound == other.bound
        and [(c.name, c.type) for c in one.columns] == [(c.name, c.type) for c in other.columns]
        and [source.path for source in one.sources] == [source.path for source in other.sources]
    )


def save(context: Context, table: DynamicTable) -> None:
    """The definition, in both places where it is kept."""
    set_storage_properties(context, table)
    context.store.put_table(table)


def rebind(context: Context, table: DynamicTable) -> DynamicTable:
    """The table with its query read again, after a source changed. Its columns must come out the same."""
    with _current_database(context, table.database):
        fresh = read(context, table.query.text, table.query.text, 0)
    if len(fresh.columns) == len(table.query.columns):
        fresh = renamed(fresh, [column.name for column in table.query.columns])
    old = [(column.name, column.type) for column in table.query.columns]
    new = [(column.name, column.type) for column in fresh.columns]
    if old != new:
        raise UserError(
            f"The columns of {table.table_name} would change, because a source changed: "
            f"from {_shown(old)} to {_shown(new)}.",
            hint=f"CREATE OR REPLACE DYNAMIC TABLE {table.table_name} with the columns you want.",
        )
    return table.model_copy(update={"query": fresh, "generation": table.generation + 1})


@contextmanager
def _current_database(context: Context, database: str) -> Iterator[None]:
    before = context.spark.catalog.currentDatabase()
    context.spark.catalog.setCurrentDatabase(database)
    try:
        yield
    finally:
        context.spark.catalog.setCurrentDatabase(before)


def _shown(columns: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {type_text.lower()}" for name, type_text in columns)


def alter(context: Context, statement: sql.AlterDynamicTable) -> str:
    """Apply one change of settings; gives the sentence to print."""
    table = context.require_dynamic(statement.name)
    action = statement.action
    name = table.table_name
    update: dict[str, object] = {"modified_at": context.clock()}
    if isinstance(action, sql.Suspend):
        update |= {"suspended": True, "suspended_reason": "Suspended by the user."}
        told = f"{name} is suspended: it is refreshed only by hand until it is resumed."
    elif isinstance(action, sql.Resume):
        update |= {"suspended": False, "suspended_reason": None}
        told = f"{name} is resumed."
    elif isinstance(action, sql.SetComment):
        update["comment"] = action.comment
        told = f"The comment of {name} is set."
    elif isinstance(action, sql.SetProperties):
        check_properties(action.properties)
        update["properties"] = {**table.properties, **action.properties}
        told = f"The properties of {name} are set."
    elif isinstance(action, sql.UnsetProperties):
        update["properties"] = {k: v for k, v in table.properties.items() if k not in action.keys}
        told = f"The properties of {name} are unset."
    elif isinstance(action, sql.SetInterval):
        update["interval_seconds"] = action.seconds
        told = f"{name} refreshes every {action.seconds} seconds."
    elif isinstance(action, sql.SetVcluster):
        require_vcluster(context, action.vcluster)
        update["vcluster"] = action.vcluster.lower()
        told = f"{name} refreshes on {action.vcluster}."
    elif isinstance(action, sql.SetRefreshMode):
        update["refresh_mode"] = action.refresh_mode
        told = f"The refresh mode of {name} is {action.refresh_mode}."
    elif isinstance(action, sql.CommentColumn):
        column = _column(table, action.column)
        update["column_comments"] = {**table.column_comments, column: action.comment}
        told = f"The comment of {name}.{column} is set."
    elif isinstance(action, sql.RenameColumn):
        return _rename_column(context, table, action)
    elif isinstance(action, sql.AddColumn):
        return _add_column(context, table, action)
    else:
        raise Unsupported(f"{type(action).__name__} is not available yet.")
    changed = table.model_copy(update=update)
    _require_rule(changed)
    save(context, changed)
    if isinstance(action, sql.SetComment | sql.CommentColumn):
        create_view(context, changed)
    return told


def _column(table: DynamicTable, name: str) -> str:
    found = next((c.name for c in table.query.columns if c.name.lower() == name.lower()), None)
    if found is None:
        known = ", ".join(column.name for column in table.query.columns)
        raise NotFound(f"{table.table_name} has no column '{name}'.", hint=f"It has {known}.")
    return found


def _rename_column(context: Context, table: DynamicTable, action: sql.RenameColumn) -> str:
    old = _column(table, action.old)
    names = [action.new if column.name == old else column.name for column in table.query.columns]
    query = renamed(table.query, names)
    comments = {action.new if name == old else name: text for name, text in table.column_comments.items()}
    update: dict[str, object] = {
        "column_comments": comments,
        "partitioned_by": tuple(action.new if c.lower() == old.lower() else c for c in table.partitioned_by),
        "clustered_by": tuple(action.new if c.lower() == old.lower() else c for c in table.clustered_by),
    }
    _rebuild(context, table, query, update, f"Column {old} was renamed to {action.new}.")
    return f"Column {old} of {table.table_name} is now {action.new}."


def _add_column(context: Context, table: DynamicTable, action: sql.AddColumn) -> str:
    if any(column.name.lower() == action.name.lower() for column in table.query.columns):
        raise AlreadyExists(f"{table.table_name} has a column '{action.name}' already.")
    expression = action.expression if action.type is None else f"CAST({action.expression} AS {action.type})"
    text = with_column(table.query.text, f"{expression} AS {quote(action.name)}")
    with _current_database(context, table.database):
        query = read(context, text, text, 0)
    query = renamed(query, [*(column.name for column in table.query.columns), action.name])
    _rebuild(context, table, query, {}, f"Column {action.name} was added.")
    return f"Column {action.name} is added to {table.table_name}."


def with_column(text: str, item: str) -> str:
    """The query with one more item at the end of its outermost SELECT list."""
    depth = 0
    inside = False
    before = ""
    starts: list[int] = []
    combined = False
    for token in scan(text):
        word = token.text.upper()
        depth += {"(": 1, ")": -1}.get(word, 0)
        if depth == 0 and word == "SELECT":
            inside = True
        elif depth == 0 and inside and word == "FROM" and before != "DISTINCT":
            starts.append(token.start)
        combined = combined or (depth == 0 and word in ("UNION", "INTERSECT", "EXCEPT", "MINUS"))
        before = word
    if starts and not combined:
        return f"{text[: starts[0]].rstrip()}, {item} {text[starts[0] :]}"
    raise Unsupported(
        "A column can be added to a query with one outermost SELECT … FROM.",
        hint="Write the whole query anew with CREATE OR REPLACE DYNAMIC TABLE.",
    )


def _rebuild(context: Context, table: DynamicTable, query: Query, update: dict[str, object], reason: str) -> None:
    """Give the table another query and load it; on failure everything is as before."""
    changed = table.model_copy(
        update={
            "query": query,
            "generation": table.generation + 1,
            "stale_reason": reason,
            "modified_at": context.clock(),
            **update,
        }
    )
    _require_rule(changed)
    context.store.put_table(changed)
    try:
        context.runner.refresh(changed)
    except BaseException:
        context.store.put_table(table)
        raise
    loaded = changed.model_copy(update={"stale_reason": None})
    save(context, loaded)
    create_view(context, loaded)


def drop(context: Context, parts: tuple[str, ...], if_exists: bool) -> bool:
    """Whether there was something to drop."""
    name = context.resolve(parts)
    table = context.store.table(name)
    if table is None:
        if if_exists and not context.exists(name):
            return False
        context.require_dynamic(parts)
        return False
    drop_table(context, table)
    return True


def drop_table(context: Context, table: DynamicTable) -> None:
    remove_storage(context, table)
    context.spark.sql(f"DROP VIEW IF EXISTS {table.table_name.spark(context.home)}")
    context.store.drop_table(table.id)
