"""The one who looks at the clock and has everything run that is due.

All decisions are made in one thread, in looks: what has ended is written down, then what is due is claimed and begun,
upstream first. Whoever else has something to say (a job that ends, a statement that changes a table) only wakes that
thread. A look that fails, because the database is away, is tried again and finds everything as it left it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal

from headrace.catalog.records import Mark, Task, TaskRun
from headrace.errors import EnvironmentFault, HeadraceError, UserError
from headrace.schedule.attempts import clean
from headrace.schedule.live import ByHandEnd, new_run
from headrace.schedule.looking import MOST_RUNS, Looking
from headrace.schedule.performing import LONGEST_REASON
from headrace.schedule.status import Status, pending_run
from headrace.schedule.work import ScheduleStore, Work

_LONGEST_PAUSE = 10.0
_SETTLE_SECONDS = 0.05
_log = logging.getLogger(__name__)


class Scheduler:
    """`start` has a thread look; without it, `look` does everything that is due when it is called."""

    def __init__(
        self,
        store: ScheduleStore,
        clock: Callable[[], datetime],
        work: Work,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`monotonic` is for pauses and limits, which a clock that is put right must not change."""
        self._clock = clock
        self._looks = Looking(store, clock, work, monotonic, self.wake)
        self._looking = threading.Lock()
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._paused = False
        self._thread: threading.Thread | None = None
        self._failed_looks = 0
        self._status = Status()

    # ------------------------------------------------------------------ for others, from any thread

    def start(self) -> None:
        """Look whenever there is something to do, in a thread of its own."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep_looking, name="scheduler", daemon=True)
            self._thread.start()

    def close(self, patience: float = 10.0) -> None:
        """Begin nothing more, write down what has ended so far, and wait for that, so many seconds. Jobs that go on are
        left to others: how they end is not looked at any more, and seen to at the next start."""
        self._closing.set()
        self._woken.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(patience)

    def wake(self) -> None:
        """Look soon: something has happened."""
        self._woken.set()

    def changed(self) -> None:
        """A table or task is new, different or gone."""
        self._looks.definitions.changed()
        self.wake()

    def pause(self) -> None:
        """Begin nothing until `resume`. Ticks that come meanwhile are merged."""
        self._paused = True
        self.wake()

    def resume(self) -> None:
        self._paused = False
        self.wake()

    def status(self) -> Status:
        return self._status

    def execute(self, task: Task, ticks: Sequence[datetime], trigger: Literal["MANUAL", "BACKFILL"]) -> list[TaskRun]:
        """Have the task run once for each of these times, one after the other in this order, also while it is
        suspended. Gives the runs as they stand in the history: WAITING."""
        if len(ticks) > MOST_RUNS:
            raise UserError(
                f"These are {len(ticks)} runs of {task.table_name}; {MOST_RUNS} may be asked for at once.",
                hint="Take a shorter time, and the rest when that is done.",
            )
        now = self._clock()
        runs = [new_run(task, tick, trigger, now) for tick in ticks]
        self._looks.ask(task, runs)
        self.wake()
        return runs

    def cancel(self, task: Task, reason: str) -> list[TaskRun]:
        """End the runs of the task that were asked for by hand and have no job yet. Gives them as they are now."""
        with self._looking:
            try:
                ended = self._looks.cancel(task.id, reason)
            except BaseException:
                self._looks.in_doubt = True
                raise
        self.wake()
        return ended

    def recount(self, object_id: str, change: Callable[[Mark], Mark]) -> None:
        """Change how the schedule of a table or task stands, as somebody outside of it wants."""
        with self._looking:
            try:
                self._looks.change_mark(object_id, change)
            except BaseException:
                self._looks.in_doubt = True
                raise
        self.wake()

    def refreshed(self, table_id: str, job_id: str | None) -> None:
        """Somebody has refreshed the table by hand, or a task has, in the job with this id."""
        with self._looking:
            try:
                self._looks.refreshed(table_id, job_id)
            except BaseException:
                self._looks.in_doubt = True
                raise
        self.wake()

    def failed_by_hand(self, table_id: str, error: HeadraceError, job_id: str | None) -> None:
        """A refresh of the table that somebody asked for has failed."""
        told = clean(error.kept)[:LONGEST_REASON]
        self._looks.ended_by_hand(table_id, ByHandEnd("FAILED", self._clock(), told, error.code, job_id))

    def settle(self, patience: float) -> bool:
        """Look until nothing more happens at this time of the clock; False when that takes longer than so many seconds,
        or a look fails. For those who do without the thread."""
        deadline = time.monotonic() + patience
        while True:
            self._woken.clear()
            pause = self.look()
            if self._failed_looks:
                return False
            at_work = any(live.job is not None for live in self._looks.runs())
            if not at_work and pause > 0:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if at_work:
                self._woken.wait(min(_SETTLE_SECONDS, left))

    # ------------------------------------------------------------------ looking

    def look(self) -> float:
        """Do everything that is due now. Gives the seconds until the next look, if nobody wakes before."""
        with self._looking:
            began = time.monotonic()
            fault = None
            try:
                self._looks.look(self._may_begin)
                pause = self._pause()
                self._failed_looks = 0
            except Exception as error:
                pause = self._after_failure(error)
                fault = error.message if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
            self._status = self._new_status(time.monotonic() - began, fault)
            return pause

    def _keep_looking(self) -> None:
        while not self._closing.is_set():
            self._woken.clear()
            self._woken.wait(self.look())
        self.look()

    def _may_begin(self) -> bool:
        return not self._paused and not self._closing.is_set()

    def _after_failure(self, error: Exception) -> float:
        self._looks.in_doubt = True
        self._failed_looks += 1
        pause = min(2.0 ** min(self._failed_looks - 1, 10), _LONGEST_PAUSE)
        if isinstance(error, EnvironmentFault):
            _log.warning("The schedule is held up, and tried again in %s seconds: %s", pause, error.message)
        else:
            _log.error("Looking after the schedule failed; it is tried again in %s seconds.", pause, exc_info=error)
        return pause

    # ------------------------------------------------------------------ telling

    def _pause(self) -> float:
        now = self._clock()
        ticks = [] if self._paused else [(tick - now).total_seconds() for tick in self._next_ticks(now).values()]
        return max(0.0, min([self._looks.seconds_left(), *ticks]))

    def _next_ticks(self, now: datetime) -> dict[str, datetime]:
        items = self._looks.definitions.items.values()
        ticks = ((item.id, self._looks.next_tick(item, now)) for item in items if not item.suspended)
        return {each: tick for each, tick in ticks if tick is not None}

    def _new_status(self, seconds: float, fault: str | None) -> Status:
        items = self._looks.definitions.items
        now = self._clock()
        return Status(
            runs=tuple(pending_run(live, items) for live in self._looks.runs()),
            next_ticks=self._next_ticks(now),
            problems={item.id: item.problem for item in items.values() if item.problem is not None},
            ends=dict(self._looks.ends),
            paused=self._paused,
            looked_at=now,
            look_seconds=seconds,
            fault=fault,
        )
