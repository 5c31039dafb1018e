"""Taking over what an earlier process left pending, or what a look that failed may have written.

A table's tick is run again: a refresh does nothing twice. A task's run that had begun counts as a failed attempt, since
nobody knows how far it came; one that only waited, for others or for a slot, goes on waiting. Which of the two it is,
its row tells: a run is RUNNING there before its work begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from headrace.catalog.records import Mark, Task, TaskRun
from headrace.schedule import attempts
from headrace.schedule.attempts import FINISHED, SERVER_ENDED, Failure
from headrace.schedule.by_hand import gone
from headrace.schedule.deciding import reason_below
from headrace.schedule.items import Item
from headrace.schedule.live import LiveRun, Outcome, new_run
from headrace.schedule.performing import Performer
from headrace.schedule.work import Runs

BY_CLOCK = ("SCHEDULE", "AFTER")
_PROCESS_ENDED = Failure(SERVER_ENDED.code, SERVER_ENDED.message.replace("The server", "The process", 1))
_NEVER_BEGUN = "The process that had asked for it ended."
_LOOKED_THROUGH = 100
"""The run of a claimed tick is among the newest of its task."""


def settle_broken_off(runs: Runs, tasks: Iterable[Task], now: datetime) -> None:
    """When a lake is opened, no run goes on: those that did have failed, with RETRY for the next server to try again.
    What a program asked for in its own process ended with it; what a server left waiting waits for the next one."""
    retries = {task.id: task.retries for task in tasks}
    for run in runs.unfinished():
        if run.in_process and run.state == "RUNNING":
            runs.update(attempts.failed(run, _PROCESS_ENDED, retries=0, now=now))
        elif run.in_process:
            runs.update(attempts.not_run(run, "CANCELLED" if run.attempt == 1 else "FAILED", _NEVER_BEGUN, now))
        elif run.state == "RUNNING":
            runs.update(attempts.failed(run, SERVER_ENDED, retries=retries.get(run.task_id, 0), now=now))


class Adopter:
    """Makes runs of marks that are CLAIMED and of rows that are unfinished."""

    def __init__(self, runs: Runs, performer: Performer, items: Mapping[str, Item], now: datetime) -> None:
        self._runs = runs
        self._performer = performer
        self._items = items
        self._now = now

    def scheduled(self, claimed: Iterable[Mark], unfinished: list[TaskRun]) -> list[LiveRun]:
        """The runs of these ticks. What belongs to them is taken from `unfinished`."""
        return [
            self._of_task(self._items[mark.object_id], mark, unfinished)
            if self._items[mark.object_id].kind == "TASK"
            else LiveRun(self._items[mark.object_id], mark.tick, mark.merged)
            for mark in claimed
            if mark.object_id in self._items
        ]

    def by_hand(self, unfinished: list[TaskRun]) -> list[LiveRun]:
        """The runs that belong to no tick: by hand, those after them, and leftovers."""
        lives = [self._live(run) for run in sorted(unfinished, key=lambda run: run.created_at)]
        for live in lives:
            if live.run is not None and live.run.trigger == "AFTER" and live.outcome is None:
                self._link(live, lives)
        return lives

    def _of_task(self, item: Item, mark: Mark, unfinished: list[TaskRun]) -> LiveRun:
        for run in unfinished:
            if (run.task_id, run.tick) == (item.id, mark.tick) and run.trigger in BY_CLOCK:
                unfinished.remove(run)
                return self._live(run)
        for run in self._runs.recent(_LOOKED_THROUGH, item.id):
            if run.tick == mark.tick and run.trigger in BY_CLOCK and run.created_at >= mark.at:
                return self._live(run)  # It has ended; only its mark does not know.
        run = new_run(item, mark.tick, "AFTER" if item.follows else "SCHEDULE", self._now, mark.merged)
        return LiveRun(item, mark.tick, mark.merged, run=run)

    def _live(self, run: TaskRun) -> LiveRun:
        """The run as it stands. An attempt that went on has failed; the job of one that was QUEUED never began."""
        item = self._items.get(run.task_id) or gone(run)
        live = LiveRun(item, run.tick, run.merged, run=run, recorded=True)
        if run.state in FINISHED:
            live.outcome = Outcome(attempts.mark_state_of(run), attempts.reason_of(run), run.job_id, run.error_code)
        elif run.state == "RUNNING":
            self._performer.fail(live, SERVER_ENDED)
        else:
            if run.state == "QUEUED":
                live.run, live.changed = run.model_copy(update={"state": "WAITING", "job_id": None}), True
            if run.attempt > 1:
                self._performer.wait_for_retry(live)
        return live

    def _link(self, live: LiveRun, lives: list[LiveRun]) -> None:
        """Have a run wait for those before it that go on, or be skipped for one that did not succeed."""
        for each in live.item.upstream:
            before = [other.run for other in lives if other.item.id == each and other.tick == live.tick]
            found = next((run for run in before if run is not None), None)
            if found is None:
                recent = self._runs.recent(_LOOKED_THROUGH, each) if self._items[each].kind == "TASK" else []
                found = next((run for run in recent if run.tick == live.tick), None)
            if found is None or found.state == "SUCCEED":
                continue
            if found.state in FINISHED:
                reason = reason_below(self._items[each].name, attempts.mark_state_of(found), attempts.reason_of(found))
                self._performer.give_up(live, "SKIPPED", reason)
                return
            live.after_runs.add(found.id)
