"""DROP DYNAMIC TABLE."""

from __future__ import annotations

from headrace.catalog.records import DynamicTable
from headrace.statements.context import Context
from headrace.statements.elsewhere import alone
from headrace.statements.storing import remove_storage


def drop(context: Context, parts: tuple[str, ...], if_exists: bool) -> bool:
    """Whether there was something to drop."""
    name = context.resolve(parts)
    table = context.store.table(name)
    if table is None:
        if if_exists and not context.exists(name):
            return False
        context.require_dynamic(parts)
        return False
    with alone(context, table):
        drop_table(context, table)
    return True


def drop_table(context: Context, table: DynamicTable) -> None:
    remove_storage(context, table)
    context.spark.sql(f"DROP VIEW IF EXISTS {table.table_name.spark(context.home)}")
    context.store.drop_table(table.id)
