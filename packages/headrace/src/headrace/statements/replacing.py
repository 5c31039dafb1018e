"""Giving a dynamic table another query (OR REPLACE, ADD COLUMN, RENAME COLUMN): all of it or nothing.

In this order, while the table's lease is held: the new definition goes into the operations database, with a reason why
the contents are stale; the new contents are committed; the new definition goes beside them into the storage table; the
view is made. A process that dies before the commit leaves the old contents with the old definition beside them, and
`settle_replacement` goes back to it at the next start; one that dies after the commit leaves the new contents, and what
is missing is done then.

Where the stored rows were taken over, an ordinary refresh follows. If that fails, the rows of before are committed once
more, as they were, with the definition of before: a replacement like the first one.
"""

from __future__ import annotations

import logging

from headrace import running
from headrace.catalog.records import ASKED_FOR, DynamicTable, RefreshRecord
from headrace.compute.jobs import new_job_id
from headrace.errors import HeadraceError
from headrace.refresh.runner import KEEP_ROWS
from headrace.refresh.stored import Stored
from headrace.statements import failures
from headrace.statements.context import Context
from headrace.statements.storing import create_view, kept_definition, set_storage_properties
from headrace.storage.errors import short_message

_log = logging.getLogger(__name__)


def replace_query(context: Context, before: DynamicTable, changed: DynamicTable, reason: str) -> RefreshRecord:
    """Load `changed`, the table `before` with another query; on failure everything is as before. Where the stored rows
    tell what the new columns are, they are kept, and then refreshed like those of any table."""
    stale = changed.model_copy(update={"generation": before.generation + 1, "stale_reason": reason})
    record = context.runner.refresh(stale, before=before)
    if record.technique == KEEP_ROWS:
        try:
            context.runner.refresh(stale.model_copy(update={"stale_reason": None}))
        except BaseException as error:
            _undo(context, before, stale, record.job_id, error)
            raise
    failures.note_success(context, stale)
    return record


def _undo(context: Context, before: DynamicTable, after: DynamicTable, job_id: str, error: BaseException) -> None:
    """Everything is as before the job that gave the table its query; where it cannot be, the error says so."""
    reason = f"{after.stale_reason} The refresh after that failed, and it was undone."
    back = before.model_copy(update={"generation": after.generation + 1, "stale_reason": reason})
    try:
        # A job of its own: the one that failed may have been cancelled.
        with running.begin(running.Running(new_job_id(context.clock()))):
            context.runner.refresh(back, before=after, undoing=job_id)
    except Exception as failure:
        _log.exception("The replacement of the query of %s could not be undone.", before.table_name)
        if isinstance(error, HeadraceError):
            error.message += f" The new definition stays, because it could not be undone: {short_message(failure)}"
            error.hint = "CREATE OR REPLACE DYNAMIC TABLE gives it another query."


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
