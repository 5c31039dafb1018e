"""Runs that somebody asked for with EXECUTE TASK: outside of the schedule, one after the other for each task.

A run by hand takes those along that run after it, each once and in their order. A backfill does not: it computes old
periods of one task.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from datetime import datetime

from headrace.catalog.records import TaskRun
from headrace.names import TableName
from headrace.schedule.attempts import FINISHED, mark_state_of, reason_of
from headrace.schedule.deciding import reason_below
from headrace.schedule.items import Item
from headrace.schedule.live import LiveRun, new_run
from headrace.schedule.performing import Performer

DROPPED = "The task was dropped."


class ByHand:
    """Only for the scheduler's thread, but for `ask`."""

    def __init__(self, performer: Performer, clock: Callable[[], datetime]) -> None:
        self._performer = performer
        self._clock = clock
        self._asked: deque[TaskRun] = deque()
        self.runs: list[LiveRun] = []
        """In the order in which they were asked for."""

    def ask(self, runs: Iterable[TaskRun]) -> None:
        """Have these runs, which are recorded, made. From any thread."""
        self._asked.extend(runs)

    @property
    def has_news(self) -> bool:
        return bool(self._asked)

    def known(self) -> set[str]:
        """The ids of all runs that are here or on their way."""
        return {live.run.id for live in self.runs if live.run is not None} | {run.id for run in list(self._asked)}

    def at_work(self) -> frozenset[str]:
        """The tasks of which a run goes on at this moment."""
        return frozenset(live.item.id for live in self.runs if live.job is not None)

    def take_over(self, lives: Iterable[LiveRun]) -> None:
        """Go on with what an earlier process left. A run that it never looked at is as good as new."""
        left = list(lives)
        linked = {each for live in left for each in live.after_runs}
        for live in left:
            run = live.run
            assert run is not None
            fresh = run.trigger == "MANUAL" and run.state == "WAITING" and run.attempt == 1 and run.id not in linked
            if fresh:
                self._asked.append(run)
            else:
                self.runs.append(live)

    def take_in(self, items: Mapping[str, Item]) -> None:
        """Put what was asked for into the line, with what follows it."""
        while self._asked:
            run = self._asked[0]
            item = items.get(run.task_id) or gone(run)
            live = LiveRun(item, run.tick, run=run, recorded=True)
            self.runs.append(live)
            if run.trigger == "MANUAL":
                self.runs += self._followers(live, items)
            self._asked.popleft()

    def cancel(self, task_id: str, reason: str) -> list[TaskRun]:
        """End the runs of the task that somebody asked for and that wait, also for their next attempt. What has a job
        goes on, and so do those after a run by hand of another task."""
        ended = []
        for live in self.runs:
            assert live.run is not None
            waits = live.job is None and live.outcome is None
            if live.item.id == task_id and live.run.trigger in ("MANUAL", "BACKFILL") and waits:
                self._performer.give_up(live, "CANCELLED", reason)
                ended.append(live.run)
        return ended

    def watch(self, items: Mapping[str, Item]) -> list[LiveRun]:
        """See what became of the runs; those that have ended leave the line, and are given."""
        for live in self.runs:
            if live.item.id not in items and live.job is None and live.outcome is None:
                self._performer.give_up(live, "CANCELLED", DROPPED)
            self._performer.watch(live)
        for live in self.runs:  # Upstream first: a skip goes on downwards in one pass.
            if live.outcome is not None:
                self._tell_followers(live)
            self._performer.save(live)
        ended = [live for live in self.runs if live.outcome is not None]
        self.runs = [live for live in self.runs if live.outcome is None]
        return ended

    def begin(self, items: Mapping[str, Item], at_work: Set[str], now: float, *, backfills: bool) -> None:
        """Make the attempts whose turn has come: of each task the first in line, unless it is `at_work`. A backfill
        lets others go first."""
        taken = set(at_work) | self.at_work()
        for live in self.runs:
            assert live.run is not None
            if (live.run.trigger == "BACKFILL") is not backfills or live.outcome is not None or live.job is not None:
                continue
            if live.item.id in taken or live.item.id not in items or live.tick > self._clock():
                continue
            if live.after_runs:
                continue  # It stands in nobody's way until those have ended.
            taken.add(live.item.id)
            if live.retry_at is None or live.retry_at <= now:
                self._performer.begin(live)

    def _followers(self, root: LiveRun, items: Mapping[str, Item]) -> list[LiveRun]:
        """The runs after this one, down to the last, each waiting for those of its upstream that are among them."""
        assert root.run is not None
        waves = {root.item.id: root.run.id}
        found = []
        for item in items.values():
            before = item.upstream & waves.keys()
            if item.follows and before and not item.suspended and item.problem is None and item.id not in waves:
                run = new_run(item, root.tick, "AFTER", self._clock())
                run = run.model_copy(update={"in_process": root.run.in_process})
                after = {waves[each] for each in before}
                found.append(LiveRun(item, root.tick, run=run, after_runs=after, waits_for=tuple(sorted(before))))
                waves[item.id] = run.id
        return found

    def _tell_followers(self, ended: LiveRun) -> None:
        run = ended.run
        assert run is not None
        assert run.state in FINISHED
        for live in self.runs:
            if run.id not in live.after_runs or live.outcome is not None:
                continue
            live.after_runs.discard(run.id)
            live.waits_for = tuple(each for each in live.waits_for if each != ended.item.id)
            if run.state != "SUCCEED":
                reason = reason_below(ended.item.name, mark_state_of(run), reason_of(run))
                self._performer.give_up(live, "SKIPPED", reason)


def gone(run: TaskRun) -> Item:
    """What is left of a task that was dropped: its name."""
    return Item(run.task_id, TableName(run.workspace, run.schema_name, run.name), "TASK", run.created_at)
