"""What a table's own log knows of its loads, where the operations database does not: a new one, or an older copy.

The table says how many commits of loads it has had (`txn`). Where the records do not know the last of them, the
commits' notes tell what they hold. That is written down oldest first: cut short, it goes on from there the next time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

from headrace.catalog.loads import LoadKind, LoadStore
from headrace.catalog.records import Load
from headrace.loading.notes import Held, Note, app_id, noted
from headrace.names import TableName
from headrace.storage.commits import Commit
from headrace.storage.delta import DeltaLogs

KEPT_DAYS = 7
"""For so long a batch id is known again after its rows were committed."""


def recall(
    store: LoadStore,
    logs: DeltaLogs,
    kind: LoadKind,
    table: TableName,
    path: str,
    table_id: str,
    since: datetime | None = None,
) -> bool:
    """Write down which loads the table holds that the records lack, of commits `since` then if that is given. False,
    and nothing is written, when the log does not have all the commits that are asked for."""
    last = logs.sequence(path, app_id(kind, table_id)) or 0
    newest = store.last_sequence(table_id, kind)
    found: list[tuple[Commit, Note]] = []
    for commit, note in noted(logs, path, kind) if newest < last else ():
        if note.sequence <= newest or (since is not None and _time_of(commit) < since):
            break
        if note.sequence <= last:
            found.append((commit, note))
    if since is None and len(found) < last - newest:
        return False
    for commit, note in reversed(found):
        for held in note.held:
            if held.key is not None:
                store.add(_load(kind, table, path, table_id, commit, note, held, held.key))
    return True


class BatchIds:
    """The batch ids that a table's commits name, asked for once a table: before the first batch for it is taken, and
    before the first one is committed."""

    def __init__(self, store: LoadStore, logs: DeltaLogs, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._logs = logs
        self._clock = clock
        self._lock = threading.Lock()
        self._recalled: set[str] = set()

    def recall(self, table: TableName, path: str, table_id: str) -> None:
        with self._lock:
            if table_id in self._recalled:
                return
            since = self._clock() - timedelta(days=KEPT_DAYS)
            recall(self._store, self._logs, "BATCH", table, path, table_id, since)
            self._recalled.add(table_id)


def _time_of(commit: Commit) -> datetime:
    return datetime.fromtimestamp(commit.timestamp / 1000, timezone.utc)


def _load(
    kind: LoadKind, table: TableName, path: str, table_id: str, commit: Commit, note: Note, held: Held, key: str
) -> Load:
    return Load(
        id=held.id,
        table_path=path,
        table_id=table_id,
        workspace=table.workspace,
        schema_name=table.schema,
        name=table.table,
        kind=kind,
        key=key,
        digest=held.digest,
        state="COMMITTED",
        sequence=note.sequence,
        rows=held.rows,
        rejected=held.rejected,
        received_at=_time_of(commit),
        committed_at=_time_of(commit),
        version=commit.version,
    )
