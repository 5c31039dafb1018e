"""What a start does about the end before it: unfinished refreshes are settled from the tables' own logs.

A refresh whose commit carries its sequence succeeded, whatever the operations database knew; any other left nothing.
"""

from __future__ import annotations

from datetime import datetime

from headrace.catalog.records import DynamicTable, Profile, RefreshRecord
from headrace.catalog.store import Store
from headrace.errors import NotFound
from headrace.refresh.stored import CommitNote, read_stored
from headrace.storage.delta import DeltaLogs

INTERRUPTED = "The process ended before this refresh was committed; the table kept its previous contents."


def settle_unfinished(store: Store, logs: DeltaLogs, now: datetime) -> list[RefreshRecord]:
    """Give every unfinished refresh its end and free every lease: the caller holds the lake, so nobody is at work."""
    settled = [settle(store, logs, record, now) for record in store.unfinished()]
    for table in store.tables():
        lease = store.lease(table.id)
        if lease is not None:
            store.release_lease(table.id, lease.fencing)
    return settled


def settle(store: Store, logs: DeltaLogs, record: RefreshRecord, now: datetime) -> RefreshRecord:
    table = store.table_by_id(record.table_id)
    intent = next((i for i in store.intents(record.table_id) if i.job_id == record.job_id), None)
    note = _note(logs, table) if table is not None else None
    if intent is not None and note is not None and note.sequence >= intent.sequence and note.job_id == record.job_id:
        ended = record.model_copy(
            update={
                "state": "SUCCEED",
                "end_time": now,
                "refresh_mode": note.mode,
                "technique": note.technique,
                "reason": note.reason,
                "rows_inserted": note.rows_inserted,
                "rows_deleted": note.rows_deleted,
                "profile": Profile(sequence=intent.sequence, recovered=True),
            }
        )
        store.finish_refresh(ended, settle=(record.table_id, intent.sequence))
        return ended
    if intent is not None:
        store.forget_intent(record.table_id, intent.sequence)
    ended = record.model_copy(update={"state": "FAILED", "end_time": now, "error_message": INTERRUPTED})
    store.finish_refresh(ended)
    return ended


def _note(logs: DeltaLogs, table: DynamicTable) -> CommitNote | None:
    try:
        return read_stored(logs, table).note
    except NotFound:
        return None
