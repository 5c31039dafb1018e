"""How long the files of a table must be kept: whoever reads its changes still needs those since its own frontier."""

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
    needs = []
    for table in store.tables():
        if not any(source.path == path for source in table.query.sources):
            continue
        note = read_stored(logs, table).note
        version = None if note is None else note.frontier.version_of(path)
        if version is None or version >= newest:
            continue
        commits = logs.commits(path, version - 1, version)
        if commits:
            age = now.timestamp() - commits[0].timestamp / 1000
            needs.append(Need(str(table.table_name), math.ceil(age / 3600) + _SPARE_HOURS))
    return max(needs, key=lambda need: need.hours, default=None)
