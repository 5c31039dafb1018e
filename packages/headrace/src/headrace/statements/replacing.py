"""Giving a dynamic table another query (OR REPLACE, ADD COLUMN, RENAME COLUMN): all of it or nothing.

In this order: the new definition goes into the operations database, with a reason why the contents are stale; the new
contents are committed; the new definition goes beside them into the storage table; the view is made. A process that
dies before the commit leaves the old contents with the old definition beside them, and `settle_replacement` goes back
to it at the next start; one that dies after the commit leaves the new contents, and what is missing is done then.
"""

from __future__ import annotations

from headrace.catalog.records import DynamicTable, RefreshRecord
from headrace.refresh.runner import KEEP_ROWS
from headrace.refresh.stored import Stored
from headrace.statements.context import Context
from headrace.statements.storing import create_view, kept_definition, save


def replace_query(context: Context, before: DynamicTable, changed: DynamicTable, reason: str) -> RefreshRecord:
    """Load `changed`, the table `before` with another query; on failure everything is as before. Where the stored rows
    tell what the new columns are, they are kept, and then refreshed like those of any table."""
    stale = changed.model_copy(update={"generation": before.generation + 1, "stale_reason": reason})
    context.store.put_table(stale)
    try:
        record = context.runner.refresh(stale, before=before)
    except BaseException:
        context.store.put_table(before)
        raise
    if record.technique == KEEP_ROWS:
        context.runner.refresh(stale.model_copy(update={"stale_reason": None}))
    return record


def adopt(context: Context, table: DynamicTable) -> None:
    """The contents are those of this definition now: keep it beside them, and make its view."""
    loaded = table.model_copy(update={"stale_reason": None})
    save(context, loaded)
    create_view(context, loaded)


def settle_replacement(context: Context, table: DynamicTable, stored: Stored) -> None:
    """Finish or undo a replacement that was cut short."""
    if table.stale_reason is None or stored.note is None:
        return
    if stored.note.generation == table.generation:
        adopt(context, table)
        return
    before = kept_definition(context, table.storage_path)
    if before is not None and before.id == table.id and before.generation == stored.note.generation:
        context.store.put_table(before)
