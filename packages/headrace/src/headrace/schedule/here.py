"""EXECUTE TASK in a lake that a program has opened: the same runs as by hand on a server, with those after them, limits
and further attempts, and somebody who waits until all of them have ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal

from headrace import running
from headrace.catalog.records import Task, TaskRun
from headrace.errors import HeadraceError, TaskFailed, UserError, kind_of, split_hint
from headrace.schedule.attempts import reason_of
from headrace.schedule.by_hand import ByHand
from headrace.schedule.definitions import Definitions
from headrace.schedule.live import LiveRun, new_run
from headrace.schedule.performing import Performer
from headrace.schedule.work import ScheduleStore, Work

_LONGEST_PAUSE = 0.5
"""Whoever stops the statement itself tells nobody."""
_STOP_SECONDS = 30.0
_HINT = "SHOW TASK HISTORY has all of its runs, and what they printed."


class Here:
    """Only for the thread that asks."""

    def __init__(
        self,
        store: ScheduleStore,
        clock: Callable[[], datetime],
        work: Work,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wait: Callable[[threading.Event, float], object] = threading.Event.wait,
    ) -> None:
        self._runs = store.task_runs
        self._clock = clock
        self._monotonic = monotonic
        self._wait = wait
        self._woken = threading.Event()
        self._definitions = Definitions(store, monotonic)
        self._performer = Performer(self._runs, work, self._definitions, clock, monotonic, self._woken.set)
        self._line = ByHand(self._performer, clock)

    def execute(self, task: Task, ticks: Sequence[datetime], trigger: Literal["MANUAL", "BACKFILL"]) -> list[TaskRun]:
        """Run the task once for each of these times. Gives the runs, and those after them, when all have ended; raises
        what the first of those that were asked for ended with, if it was not success."""
        self._definitions.bring_up_to_date()
        now = self._clock()
        asked = [new_run(task, tick, trigger, now).model_copy(update={"in_process": True}) for tick in ticks]
        self._runs.add_all(asked)
        self._line.ask(asked)
        self._line.take_in(self._definitions.items)
        lives = list(self._line.runs)
        try:
            while self._line.runs:
                self._step()
        except BaseException:
            self._stop()
            raise
        wanted = {run.id for run in asked}
        ended = [live.run for live in lives if live.run is not None]
        for run in ended:
            if run.id in wanted and run.state != "SUCCEED":
                raise _error_of(run)
        return ended

    def _step(self) -> None:
        running.require_wanted()
        self._woken.clear()
        self._line.watch(self._definitions.items)
        for backfills in (False, True):
            self._line.begin(self._definitions.items, self._performer.stuck(), self._monotonic(), backfills=backfills)
        if self._line.runs and not any(_has_news(live) for live in self._line.runs):
            left = (self._performer.seconds_left(live) for live in self._line.runs)
            pauses = [seconds for seconds in left if seconds is not None]
            self._wait(self._woken, max(0.0, min([_LONGEST_PAUSE, *pauses])))

    def _stop(self) -> None:
        """Nobody waits any more: what runs is cancelled, what waits is given up. What does not end in time is settled
        when the lake is opened next."""
        for live in self._line.runs:
            if live.job is not None:
                live.job.cancel()
            elif live.outcome is None:
                self._performer.give_up(live, "CANCELLED", "It was interrupted.")
        deadline = self._monotonic() + _STOP_SECONDS
        for live in self._line.runs:
            if live.job is not None:
                live.job.wait(max(0.0, deadline - self._monotonic()))
        self._line.watch(self._definitions.items)


def _has_news(live: LiveRun) -> bool:
    return live.outcome is not None or (live.job is not None and live.job.done)


def _error_of(run: TaskRun) -> HeadraceError:
    told, hint = split_hint(reason_of(run) or f"The run ended {run.state}.")
    if run.error_code == TaskFailed.code:
        return TaskFailed(told, hint=hint or _HINT, output=run.output or "")
    return (kind_of(run.error_code or "") or UserError)(told, hint=hint or _HINT)
