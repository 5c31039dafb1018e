"""What alerts are told about every dynamic table and task, from the operations database."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Literal

from headrace.alerts.incidents import Fact
from headrace.catalog.records import DynamicTable, Mark, RefreshRecord, Task, is_by_hand
from headrace.catalog.store import Store
from headrace.errors import HeadraceError, TimedOut
from headrace.schedule.freshness import lag_seconds
from headrace.schedule.timing import timing_of_table


class Watched:
    """Looks when it is asked."""

    def __init__(self, store: Store, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock

    def facts(self) -> list[Fact]:
        """All there are."""
        marks = {mark.object_id: mark for mark in self._store.marks.all()}
        refreshed = self._store.latest_refreshes(took_all=True)
        tables = [self._of_table(table, marks.get(table.id), refreshed.get(table.id)) for table in self._store.tables()]
        return [*tables, *(self._of_task(task, marks.get(task.id)) for task in self._store.tasks.all())]

    def _of_table(self, table: DynamicTable, mark: Mark | None, last: RefreshRecord | None) -> Fact:
        found = self._fact(table, "TABLE", mark)
        lag = lag_seconds(table, last, self._clock())
        return replace(found, lag_seconds=lag, on_schedule=_is_on_schedule(table))

    def _of_task(self, task: Task, mark: Mark | None) -> Fact:
        return self._fact(task, "TASK", mark)

    def _fact(self, one: DynamicTable | Task, kind: Literal["TABLE", "TASK"], mark: Mark | None) -> Fact:
        failed = mark is not None and (mark.failures > 0 or mark.held_up)
        # With an error and no failures it was resumed, and has not run since: neither.
        is_well = mark is not None and not failed and mark.error is None
        return Fact(
            object_id=one.id,
            name=one.table_name,
            kind=kind,
            state="FAILED" if failed else "SUCCEED" if is_well else None,
            error=None if mark is None else mark.error,
            timed_out=mark is not None and failed and mark.error_code == TimedOut.code,
            held_up=mark is not None and mark.held_up,
            job_id=None if mark is None or mark.state != "FAILED" else mark.job_id,
            suspended=one.suspended,
            suspended_reason=one.suspended_reason,
            # Failures suspend tables only.
            by_hand=one.suspended and (kind == "TASK" or is_by_hand(one.suspended_reason)),
        )


def _is_on_schedule(table: DynamicTable) -> bool:
    try:
        return table.target_lag == "DOWNSTREAM" or timing_of_table(table) is not None
    except HeadraceError:
        return False
