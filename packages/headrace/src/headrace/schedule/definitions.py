"""The dynamic tables and tasks there are, read again when somebody says that they changed, and now and then."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headrace.catalog.records import DynamicTable, Task
from headrace.schedule.items import Item, items_of
from headrace.schedule.work import ScheduleStore

READ_EVERY = 10.0
"""Seconds after which changes that nobody told of are seen."""


class Definitions:
    """Read by the scheduler's thread only; `changed` may be called by any."""

    def __init__(self, store: ScheduleStore, monotonic: Callable[[], float]) -> None:
        self._store = store
        self._monotonic = monotonic
        self._stale = threading.Event()
        self._read_at: float | None = None
        self.tables: dict[str, DynamicTable] = {}
        self.tasks: dict[str, Task] = {}
        self.items: dict[str, Item] = {}

    def changed(self) -> None:
        self._stale.set()

    def bring_up_to_date(self) -> bool:
        """Whether they had to be read."""
        if not self._stale.is_set() and self._read_at is not None and self._monotonic() < self._read_at + READ_EVERY:
            return False
        self._stale.clear()
        try:
            tables, tasks = self._store.tables(), self._store.tasks.all()
        except BaseException:
            self._stale.set()
            raise
        self.tables = {table.id: table for table in tables}
        self.tasks = {task.id: task for task in tasks}
        self.items = items_of(tables, tasks)
        self._read_at = self._monotonic()
        return True
