"""How long the files of a table must be kept: whoever reads its changes still needs those since its own frontier or
offset."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime

from headrace.catalog.store import CatalogReader
from headrace.refresh.stored import read_stored
from headrace.storage.delta import DeltaLogs

_SPARE_HOURS = 1
"""A commit's files are written before the commit."""


@dataclass(frozen=True)
class Need:
    """The one who has to go back furthest, and how far."""

    name: str
    hours: int


def need_of(store: CatalogReader, logs: DeltaLogs, path: str, now: datetime) -> Need | None:
    """Who still needs old files of the table at `path`; None when everybody is up to date."""
    newest = logs.effective(path)
    cursors: list[tuple[str, int]] = []
    for table in store.tables():
        if any(source.path == path for source in table.query.sources):
            note = read_stored(logs, table).note
            version = None if note is None else note.frontier.version_of(path)
            if version is not None:
                cursors.append((str(table.table_name), version))
    cursors += [
        (f"the table stream {stream.table_name}", stream.offset)
        for stream in store.streams.all()
        if stream.source_path == path
    ]
    unread = {f"the table stream {stream.table_name}" for stream in store.streams.all() if stream.initial}
    needs = []
    for name, version in cursors:
        if version >= newest and name not in unread:
            continue
        commits = logs.commits(path, version - 1, version) or logs.history(path)[-1:]
        if commits:
            age = now.timestamp() - commits[0].timestamp / 1000
            needs.append(Need(name, math.ceil(age / 3600) + _SPARE_HOURS))
    return max(needs, key=lambda need: need.hours, default=None)
