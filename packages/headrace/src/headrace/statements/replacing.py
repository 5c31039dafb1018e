"""Giving a dynamic table another query (OR REPLACE, ADD COLUMN, RENAME COLUMN): all of it or nothing.

In this order, while the table's lease is held: the new definition goes into the operations database, with a reason why
the contents are stale; the new contents are committed; the new definition goes beside them into the storage table; the
view is made. A process that dies before the commit leaves the old contents with the old definition beside them, and
`settle_replacement` goes back to it at the next start; one that dies after the commit leaves the new contents, and what
is missing is done then.
"""

from __future__ import annotations

from headrace.catalog.records import ASKED_FOR, DynamicTable, RefreshRecord
from headrace.refresh.runner import KEEP_ROWS
from headrace.refresh.stored import Stored
from headrace.statements import failures
from headrace.statements.context import Context
from headrace.statements.storing import create_view, kept_definition, set_storage_properties


def replace_query(context: Context, before: DynamicTable, changed: DynamicTable, reason: str) -> RefreshRecord:
    """Load `changed`, the table `before` with another query; on failure everything is as before. Where the stored rows
    tell what the new columns are, they are kept, and then refreshed like those of any table."""
    stale = changed.model_copy(update={"generation": before.generation + 1, "stale_reason": reason})
    record = context.runner.refresh(stale, before=before)
    if record.technique == KEEP_ROWS:
        context.runner.refresh(stale.model_copy(update={"stale_reason": None}))
    failures.note_success(context, stale)
    return record


def adopt(context: Context, table: DynamicTable) -> None:
    """The contents are those of this definition now: keep it beside them, and make its view. The mark goes last: who
    is cut short before that does all of it again."""
    loaded = _fresh(context.store.table_by_id(table.id) or table)
    set_storage_properties(context, loaded)
    create_view(context, loaded)
    context.store.change_table(table.id, _fresh)


def _fresh(table: DynamicTable) -> DynamicTable:
    return table.model_copy(update={"stale_reason": None})


def settle_replacement(context: Context, table: DynamicTable, stored: Stored) -> None:
    """Finish or undo a replacement that was cut short."""
    if table.stale_reason in (None, ASKED_FOR) or stored.note is None:
        return  # What was asked for is still to be done; the definition is the old one.
    if stored.note.generation == table.generation:
        adopt(context, table)
        return
    before = kept_definition(context, table.storage_path)
    if before is not None and before.id == table.id and before.generation == stored.note.generation:
        context.store.put_table(before)
