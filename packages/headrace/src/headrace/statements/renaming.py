"""ALTER DYNAMIC TABLE … RENAME TO.

The old view goes first, then the definition gets its new name, then the new view is made: a process that dies in
between leaves a table without its view, and the next start makes that. The storage stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.catalog.records import DynamicTable
from headrace.errors import AlreadyExists, NotAllowed
from headrace.names import TableName, require_plain
from headrace.statements.context import Context
from headrace.statements.elsewhere import alone
from headrace.statements.storing import create_view, set_storage_properties


def rename(context: Context, table: DynamicTable, name: TableName) -> str:
    """Give it another name; the sentence to print."""
    require_plain(name.table, "dynamic table")
    context.require_database((name.workspace, name.schema))
    if context.exists(name) or context.store.table(name) is not None:
        raise AlreadyExists(f"{name} exists already.", hint="Choose another name, or drop it.")
    with alone(context, table):
        present = context.store.table_by_id(table.id) or table
        _refuse_named(context, present)
        _give_name(context, present, name)
    return f"Dynamic table {table.table_name} is now {name}."


def _give_name(context: Context, table: DynamicTable, name: TableName) -> None:
    changed = {"workspace": name.workspace, "schema_name": name.schema, "name": name.table}
    try:
        context.spark.sql(f"DROP VIEW IF EXISTS {table.table_name.spark(context.home)}")
        renamed = context.store.change_table(
            table.id, lambda present: present.model_copy(update={**changed, "modified_at": context.clock()})
        )
        set_storage_properties(context, renamed)
    finally:
        create_view(context, context.store.table_by_id(table.id) or table)


def _refuse_named(context: Context, table: DynamicTable) -> None:
    """Whatever reads it, or waits for it, has its name written down."""
    found = sorted(_naming(context, table))
    if found:
        shown = ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
        raise NotAllowed(
            f"{table.table_name} cannot get another name: {shown} would not find it any more.",
            hint="Drop them or let them name another table first, then make them anew.",
        )


def _naming(context: Context, table: DynamicTable) -> Iterator[str]:
    for other in context.store.tables():
        if any(source.path == table.storage_path for source in other.query.sources):
            yield f"the dynamic table {other.table_name}"
    for stream in context.store.streams.all():
        if stream.source_path == table.storage_path:
            yield f"the table stream {stream.table_name}"
    for task in context.store.tasks.all():
        if table.table_name in task.after:
            yield f"the task {task.table_name}"
    for alert in context.store.alerts.all():
        if alert.kind == "TABLE" and alert.object == table.table_name:
            yield f"the alert {alert.name}"
