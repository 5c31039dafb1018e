"""How much waits for each table, in memory: so that looking whether anything is due costs nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from headrace.catalog.records import Load
from headrace.errors import TooBusy
from headrace.names import TableName

MOST_BYTES = 1024**3
"""That may wait for one table."""
_RETRY_SECONDS = 30.0


@dataclass(frozen=True)
class Waiting:
    """Batches that are not in their table yet."""

    table_id: str
    table: TableName
    batches: int
    rows: int
    bytes: int
    since: float
    """When the oldest of them came, by a clock that nobody sets."""


class Backlog:
    def __init__(
        self, clock: Callable[[], datetime], monotonic: Callable[[], float], most_bytes: int = MOST_BYTES
    ) -> None:
        self._clock = clock
        self._monotonic = monotonic
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._loads: dict[str, dict[str, Load]] = {}
        self._came: dict[str, float] = {}
        self._reserved: dict[str, int] = {}

    def tables(self) -> list[Waiting]:
        """Those with anything waiting, the longest wait first."""
        with self._lock:
            found = [self._summed(table_id, loads) for table_id, loads in self._loads.items()]
        return sorted(found, key=lambda waiting: waiting.since)

    def add(self, loads: Iterable[Load]) -> None:
        """How long one has waited already is told by its record: once, so that a clock that is set later on makes it
        wait no longer."""
        now, elapsed = self._clock(), self._monotonic()
        with self._lock:
            for load in loads:
                self._loads.setdefault(load.table_id, {})[load.id] = load
                self._came.setdefault(load.id, elapsed - max(0.0, (now - load.received_at).total_seconds()))

    def remove(self, loads: Iterable[Load]) -> None:
        with self._lock:
            for load in loads:
                table = self._loads.get(load.table_id, {})
                table.pop(load.id, None)
                self._came.pop(load.id, None)
                if not table:
                    self._loads.pop(load.table_id, None)

    def of(self, table_id: str) -> dict[str, Load]:
        """What waits for a table, by id."""
        with self._lock:
            return dict(self._loads.get(table_id, {}))

    def _summed(self, table_id: str, loads: dict[str, Load]) -> Waiting:
        every = list(loads.values())
        return Waiting(
            table_id,
            TableName(every[0].workspace, every[0].schema_name, every[0].name),
            len(every),
            sum(load.rows for load in every),
            sum(load.bytes for load in every),
            min(self._came[load.id] for load in every),
        )

    @contextmanager
    def room(self, table_id: str, size: int) -> Iterator[None]:
        """Keep room for so many bytes until the block ends. Raises TooBusy when there is none."""
        with self._lock:
            taken = self._reserved.get(table_id, 0) + size
            if sum(load.bytes for load in self._loads.get(table_id, {}).values()) + taken > self._most_bytes:
                raise TooBusy(
                    f"{self._most_bytes // 1024**2} MiB of rows wait for this table already.",
                    hint="They are committed once a minute; send this batch again after that.",
                    retry_after=_RETRY_SECONDS,
                )
            self._reserved[table_id] = taken
        try:
            yield
        finally:
            with self._lock:
                left = self._reserved[table_id] - size
                if left > 0:
                    self._reserved[table_id] = left
                else:
                    del self._reserved[table_id]
