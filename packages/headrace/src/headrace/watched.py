"""What alerts are told about every dynamic table and task: from the operations database, and of runs by hand."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Literal

from headrace.alerts.incidents import LOADING, Fact
from headrace.catalog.records import DynamicTable, Mark, RefreshRecord, Task, is_by_hand
from headrace.catalog.store import Store
from headrace.errors import HeadraceError, TimedOut
from headrace.loading.committer import Condition
from headrace.schedule.freshness import lag_seconds
from headrace.schedule.live import ByHandEnd
from headrace.schedule.timing import timing_of_table

_JUMP_SECONDS = 60.0
"""A clock that has gone further than the time that passed, or less far, by more than this was set."""


class Watched:
    """Looks when it is asked. How runs by hand ended is kept in memory: after a restart, what was told goes on until
    the next run ends."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], datetime],
        *,
        loads: Callable[[], Iterable[Condition]] = lambda: (),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`loads` tells of rows on their way into tables."""
        self._store = store
        self._loads = loads
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._by_hand: dict[str, ByHandEnd] = {}
        self._looked = (clock(), monotonic())
        self._since = clock()
        """Since when all tables have had the chance to be refreshed: the start, or the last jump of the clock."""
        self._resumed: dict[str, datetime] = {}
        self._suspended: frozenset[str] = frozenset()

    def ended_by_hand(self, object_id: str, end: ByHandEnd) -> None:
        """Somebody has refreshed the table, or run the task. From any thread."""
        with self._lock:
            self._by_hand[object_id] = end

    def facts(self) -> list[Fact]:
        """All there are."""
        marks = {mark.object_id: mark for mark in self._store.marks.all()}
        refreshed = self._store.latest_refreshes(took_all=True)
        tables, tasks = self._store.tables(), self._store.tasks.all()
        with self._lock:
            self._note_chances(tables)
            known = {table.id for table in tables} | {task.id for task in tasks}
            # One that a scheduled run has overtaken is over, also while the next run is at work.
            ends = {each: end for each, end in self._by_hand.items() if each in known}
            self._by_hand = {each: end for each, end in ends.items() if not _is_newer(marks.get(each), end)}
            of_tables = [self._of_table(table, marks.get(table.id), refreshed.get(table.id)) for table in tables]
            of_tasks = [self._fact(task, "TASK", marks.get(task.id)) for task in tasks]
        return [*of_tables, *of_tasks, *map(_of_loads, self._loads())]

    def _note_chances(self, tables: Iterable[DynamicTable]) -> None:
        """Right after a start, a jump of the clock or RESUME a table is far behind, and nobody is to blame."""
        now, elapsed = self._clock(), self._monotonic()
        (before, then), self._looked = self._looked, (now, elapsed)
        if abs((now - before).total_seconds() - (elapsed - then)) > _JUMP_SECONDS:
            self._since, self._resumed = now, {}
        suspended = frozenset(table.id for table in tables if table.suspended)
        self._resumed |= dict.fromkeys(self._suspended - suspended, now)
        self._suspended = suspended

    def _of_table(self, table: DynamicTable, mark: Mark | None, last: RefreshRecord | None) -> Fact:
        found = self._fact(table, "TABLE", mark)
        now = self._clock()
        since = max(self._since, self._resumed.get(table.id, self._since))
        had_its_turn = mark is not None and mark.state != "CLAIMED" and mark.at > since
        chance = math.inf if had_its_turn else max(0.0, (now - since).total_seconds())
        lag = lag_seconds(table, last, now)
        return replace(found, lag_seconds=lag, chance_seconds=chance, on_schedule=_is_on_schedule(table))

    def _fact(self, one: DynamicTable | Task, kind: Literal["TABLE", "TASK"], mark: Mark | None) -> Fact:
        found = _by_schedule(one, kind, mark)
        end = self._by_hand.get(one.id)
        if end is None:
            return found
        if end.state == "SUCCEED":
            # A backfill is about old times: by schedule it may fail all the same.
            is_well = not (end.backfill and found.state == "FAILED")
            return replace(found, state="SUCCEED", error=None, timed_out=False, job_id=None) if is_well else found
        timed_out = end.error_code == TimedOut.code
        return replace(
            found,
            state="FAILED",
            error=end.error,
            timed_out=timed_out,
            held_up=False,
            job_id=end.job_id,
            asked_for=True,
        )


def _of_loads(found: Condition) -> Fact:
    state: Literal["SUCCEED", "FAILED"] | None = (
        None if found.is_well is None else "SUCCEED" if found.is_well else "FAILED"
    )
    return Fact(
        object_id=f"{LOADING}{found.table_id}",
        name=found.table,
        kind="LOADING",
        state=state,
        error=found.trouble,
        on_schedule=False,
    )


def _is_newer(mark: Mark | None, end: ByHandEnd) -> bool:
    """Whether a scheduled run has ended after that one."""
    return mark is not None and mark.state in ("SUCCEED", "FAILED") and mark.at > end.at


def _by_schedule(one: DynamicTable | Task, kind: Literal["TABLE", "TASK"], mark: Mark | None) -> Fact:
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
