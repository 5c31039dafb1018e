"""Schemas, and what Spark cannot be left alone with about tables: USE, CREATE and DROP SCHEMA, DROP TABLE and VIEW,
RESTORE."""

from __future__ import annotations

from contextlib import nullcontext

from headrace.errors import NotAllowed, NotFound
from headrace.names import TableName, quote, quote_text, require_plain
from headrace.result import Result, done, from_frame
from headrace.security.rights import object_of
from headrace.sql import statements as sql
from headrace.statements import dropping, elsewhere, storing, streaming, tasks, users
from headrace.statements.context import Context


def use(context: Context, statement: sql.UseSchema) -> Result:
    workspace, schema, database = context.require_database(statement.parts)
    context.spark.catalog.setCurrentDatabase(database)
    return done(f"The current schema is {workspace}.{schema}.")


def create_schema(context: Context, statement: sql.CreateSchema) -> Result:
    workspace, schema, database = context.database(statement.parts)
    require_plain(schema, "schema")
    if workspace.lower() not in {name.lower() for name in context.workspaces()}:
        context.store.add_workspace(workspace.lower())
    guard = "IF NOT EXISTS " if statement.if_not_exists else ""
    comment = f" COMMENT {quote_text(statement.comment)}" if statement.comment else ""
    existed = context.spark.catalog.databaseExists(database)
    if existed:
        context.spark.sql(f"CREATE SCHEMA {guard}{quote(database)}{comment}")
    else:
        # Without IF NOT EXISTS: of two who create it at once, one has made it, and only that one gets it.
        context.spark.sql(f"CREATE SCHEMA {quote(database)}{comment}")
        users.granted_to_creator(context, workspace, schema)
    return done(f"Schema {workspace}.{schema} {'exists already; nothing was done' if existed else 'created'}.")


def drop_schema(context: Context, statement: sql.DropSchema) -> Result:
    workspace, schema, database = context.database(statement.parts)
    inside = [t for t in context.store.tables() if t.table_name.database(context.home) == database]
    if inside and not statement.cascade:
        raise NotAllowed(
            f"Schema {workspace}.{schema} holds {len(inside)} dynamic tables.", hint="Drop them first, or add CASCADE."
        )
    planned = tasks.tasks_in(context, database)
    if planned and not statement.cascade:
        raise NotAllowed(
            f"Schema {workspace}.{schema} holds {len(planned)} {'task' if len(planned) == 1 else 'tasks'}.",
            hint="Drop them first, or add CASCADE.",
        )
    for table in inside:
        with elsewhere.alone(context, table):
            dropping.drop_table(context, table)
    if statement.cascade:
        streaming.drop_streams_in(context, database)
        tasks.drop_tasks_in(context, database)
    guard = "IF EXISTS " if statement.if_exists else ""
    cascade = " CASCADE" if statement.cascade else ""
    context.spark.sql(f"DROP SCHEMA {guard}{quote(database)}{cascade}")
    canonical = context.name_of(database, "")
    context.store.users.drop_grants_on("SCHEMA", f"{canonical.workspace}.{canonical.schema}")
    return done(f"Schema {workspace}.{schema} dropped.")


def drop_table(context: Context, statement: sql.DropTable) -> Result:
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
    temporary = len(statement.name) == 1 and context.is_temporary(statement.name[0])
    context.spark.sql(f"DROP {kind} {guard}{spark_name}")
    if existed and not temporary:
        drop_grants(context, name)
    return done(f"{kind.capitalize()} {name} {'dropped' if existed else 'does not exist; nothing was done'}.")


def drop_grants(context: Context, name: TableName) -> None:
    """Who could read a table may not read another that gets its name."""
    context.store.users.drop_grants_on("TABLE", object_of(context.name_of(name.database(context.home), name.table)))


def _spark_name(context: Context, parts: tuple[str, ...], name: TableName) -> str:
    """A one-part name stays so: it may be a temporary view."""
    return quote(parts[0]) if len(parts) == 1 else name.spark(context.home)


def restore(context: Context, statement: sql.RestoreTable) -> Result:
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
    with elsewhere.alone(context, table) if table is not None else nullcontext():
        result = from_frame(context.spark.sql(f"RESTORE TABLE {place} TO {when}"), context.settings.timezone)
        if table is not None:
            context.logs.forget(table.storage_path)
            storing.set_storage_properties(context, context.store.table_by_id(table.id) or table)
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
