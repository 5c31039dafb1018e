"""One look after the other: write down what has ended, then claim and begin what is due, upstream first.

Memory follows the operations database: a run is pending here once its tick is claimed there, and gone from here once
its end stands there. After a look that failed the marks are read again, since what was being written may have been.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime

from headrace.catalog.records import SKIPPED, Mark, MarkState, Occasion, RefreshRecord, Task, TaskRun
from headrace.compute.jobs import new_job_id
from headrace.errors import EnvironmentFault, NotAllowed, RefreshRunning
from headrace.schedule.adopting import BY_CLOCK, Adopter
from headrace.schedule.attempts import not_run
from headrace.schedule.by_hand import DROPPED, ByHand
from headrace.schedule.deciding import Begin, Forget, Reset, Skip, Wait, cause_of, decide
from headrace.schedule.definitions import READ_EVERY, Definitions
from headrace.schedule.items import Item
from headrace.schedule.live import ByHandEnd, LiveRun, new_run
from headrace.schedule.performing import LONGEST_REASON, Performer
from headrace.schedule.recounting import refreshed
from headrace.schedule.work import ScheduleStore, Work

MOST_RUNS = 1000
"""So many runs of a task may be asked for at once, and so many may wait."""
FAILURES_ALLOWED = 5
"""After so many scheduled refreshes that failed in a row a table is suspended; after a RESUME it has as many again."""

_AGAIN_SECONDS = 1.0
_ROUNDS = 3
_SUSPEND_TRIES = 5
_log = logging.getLogger(__name__)


class Looking:
    """What the scheduler's thread knows and does. Only `ask` may be called from others."""

    def __init__(
        self,
        store: ScheduleStore,
        clock: Callable[[], datetime],
        work: Work,
        monotonic: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._work = work
        self._monotonic = monotonic
        self.definitions = Definitions(store, monotonic)
        self._performer = Performer(store.task_runs, work, self.definitions, clock, monotonic, wake)
        self._by_hand = ByHand(self._performer, clock)
        self._marks: dict[str, Mark] = {}
        self._pending: dict[str, LiveRun] = {}
        self._had: dict[str, list[datetime]] = {}
        """Ticks of tasks beyond their marks that were run all the same: the clock was put back."""
        self._asking = threading.Lock()
        self._withdrawn: set[str] = set()
        """Runs by hand of which who asked was told that there are none."""
        self.in_doubt = True
        """Whether the marks must be read: at first, and after a look that failed."""
        self.ends: Counter[MarkState] = Counter()
        """How many scheduled runs ended how."""
        self._not_yet: set[str] = set()
        """Tables that cannot be suspended in this look."""
        self._suspend_tries: Counter[str] = Counter()
        self._may_begin: Callable[[], bool] = lambda: True

    def ask(self, task: Task, runs: Sequence[TaskRun]) -> None:
        """Have these runs of the task made by hand: all of them, or none and an error."""
        with self._asking:  # A look must not find them in the store before they are here.
            waiting = self._store.task_runs.count_unfinished(task.id)
            if waiting + len(runs) > MOST_RUNS:
                raise NotAllowed(
                    f"{waiting} runs of {task.table_name} have not ended; with {len(runs)} more these would be over "
                    f"{MOST_RUNS}.",
                    hint=f"Wait until some have ended, or end those that wait: EXECUTE TASK {task.table_name} CANCEL.",
                )
            try:
                self._store.task_runs.add_all(runs)
            except BaseException:
                # They may have been written all the same.
                self._withdrawn |= {run.id for run in runs}
                self.in_doubt = True
                raise
            self._by_hand.ask(runs)

    def cancel(self, task_id: str, reason: str) -> list[TaskRun]:
        """End the runs of the task by hand that wait, those that an earlier process left included."""
        self.look(lambda: False)
        ended = self._by_hand.cancel(task_id, reason)
        self._by_hand.watch(self.definitions.items)
        return ended

    def change_mark(self, object_id: str, change: Callable[[Mark], Mark]) -> None:
        """Let the mark be another, here and in the store. One that nobody has stays so."""
        known = self._marks if not self.in_doubt else {mark.object_id: mark for mark in self._store.marks.all()}
        before = known.get(object_id)
        if before is None or change(before) == before:
            return
        self._store.marks.reset([change(before)])
        self._marks[object_id] = change(before)
        if object_id in self._pending:
            self._pending[object_id].end = None  # It counted from the other one.

    def refreshed(self, table_id: str, job_id: str | None) -> None:
        """Somebody has refreshed the table, in this job: it works. Where it has no times, this is a run of it, which
        others may run after; one that a task has made is of the time of that task's run, so that who refreshes what it
        runs after does not run for ever."""
        self.change_mark(table_id, refreshed)
        self.ended_by_hand(table_id, ByHandEnd("SUCCEED", self._clock()))
        self.definitions.bring_up_to_date()
        item = self.definitions.items.get(table_id)
        if item is None or item.roots or table_id in self._pending:
            return
        if not any(other.follows and table_id in other.upstream for other in self.definitions.items.values()):
            return
        now = self._clock()
        maker = next((live for live in self.runs() if live.job is not None and live.job.id == job_id), None)
        tick = now if maker is None else maker.tick
        before = self._marks.get(table_id)
        if before is None or before.tick < tick or before.tick > now:
            mark = Mark(object_id=table_id, tick=tick, state="SUCCEED", at=now)
            self._store.marks.reset([mark])
            self._marks[table_id] = mark

    def next_tick(self, item: Item, now: datetime) -> datetime | None:
        """When its turn comes by the clock, unless that was its turn already."""
        had = set(self._had.get(item.id, ()))
        tick = item.next_tick(now)
        while tick in had:
            tick = item.next_tick(tick)
        return tick

    def runs(self) -> list[LiveRun]:
        """All that have not ended, by schedule and by hand."""
        return [*self._pending.values(), *self._by_hand.runs]

    def look(self, may_begin: Callable[[], bool]) -> None:
        """Do everything that is due now; while nothing may begin, only what those that have begun need."""
        now = self._clock()
        self._may_begin = may_begin
        self._not_yet.clear()
        reread = self.definitions.bring_up_to_date()
        if self.in_doubt:
            self._read_marks(now)
        if reread:
            self._drop_marks()
        self._by_hand.take_in(self.definitions.items)
        ended = self._by_hand.watch(self.definitions.items)
        for live in ended:
            self._tell_by_hand(live, now)
        for live in ended:
            # One that worked counts as one by schedule would, unless it was for times long past.
            if live.run is not None and (live.run.state, live.run.trigger == "BACKFILL") == ("SUCCEED", False):
                self.change_mark(live.item.id, refreshed)
        for live in self._pending.values():
            self._performer.watch(live)
        self._write_ends(now)
        if may_begin():
            self._begin_again()
            self._begin_by_hand(backfills=False)
        # Each round ends or begins something, or is the last.
        for _ in range(_ROUNDS * (len(self.definitions.items) + len(self._pending) + 1)):
            if not may_begin() or not self._round(now):
                break
        if may_begin():
            self._begin_by_hand(backfills=True)

    def seconds_left(self) -> float:
        """Until it must be looked at again, the clock's ticks apart."""
        pauses = [READ_EVERY, *([0.0] if self._by_hand.has_news else [])]
        for live in self.runs():
            if live.job is not None and live.job.done:
                pauses.append(0.0)
            elif live.outcome is not None:
                pauses.append(_AGAIN_SECONDS if live.item.id in self._not_yet else 0.0)
            elif live.tick > self._clock():  # By hand, for a time to come.
                pauses.append((live.tick - self._clock()).total_seconds())
            elif (left := self._performer.seconds_left(live)) is not None:
                pauses.append(left)
        return max(0.0, min(pauses))

    def _round(self, now: datetime) -> bool:
        """Decide and act; False when nothing came of it but waiting."""
        self._write_ends(now)
        pending = {each: live.pending for each, live in self._pending.items()}
        steps = decide(self.definitions.items, self._marks, pending, now, self._busy(), self._had)
        self._reset([step for step in steps if isinstance(step, Reset)], now)
        for step in steps:
            if isinstance(step, Forget):
                self._performer.give_up(self._pending[step.item], "CANCELLED", DROPPED)
            elif isinstance(step, Skip):
                if step.item not in self._pending:
                    self._pending[step.item] = self._new(step, now)
                self._performer.give_up(self._pending[step.item], "SKIPPED", step.reason)
        self._begin([step for step in steps if isinstance(step, Begin)], now)
        waits = [step for step in steps if isinstance(step, Wait)]
        if len(waits) < len(steps):
            return True
        self._claim(waits, now)
        for wait in waits:
            if wait.item in self._pending:
                self._pending[wait.item].waits_for = wait.on
                self._performer.save(self._pending[wait.item])
        return False

    # ------------------------------------------------------------------ beginning

    def _begin(self, steps: list[Begin], now: datetime) -> None:
        """Begin these runs. Refreshes without anything to do end here, all of them in one transaction, and need no
        claim: their marks go to the end at once."""
        tables = [step for step in steps if self.definitions.items[step.item].kind == "TABLE"]
        idle = self._idle(tables)
        if idle:
            found = [step for step in tables if step.item in idle]
            marks = [self._mark(step, "SUCCEED", now, job_id=idle[step.item].job_id) for step in found]
            self._finished(marks, self._store.marks.record_idle(list(idle.values()), marks))
        rest = [step for step in steps if step.item not in idle]
        self._claim(rest, now)
        for step in rest:
            live = self._pending.get(step.item)
            # One that was refused may have been adopted, and have a past of its own.
            if live is not None and not live.pending.begun:
                self._performer.begin(live)

    def _idle(self, steps: list[Begin]) -> dict[str, RefreshRecord]:
        """The records of those that have nothing to do, by table."""
        if not steps:
            return {}
        ticks = {step.item: step.tick for step in steps}
        try:
            records = self._work.idle([self.definitions.tables[each] for each in ticks], ticks)
        except Exception:
            _log.exception("It could not be seen which tables have nothing to do; all of them are refreshed.")
            return {}
        now = self._clock()
        found = {}
        for record in records:
            if record.table_id in ticks:
                tick = ticks[record.table_id]
                target = self.definitions.items[record.table_id].next_tick(max(tick, now))
                found[record.table_id] = record.model_copy(update={"tick": tick, "completion_target": target})
        return found

    def _claim(self, steps: Sequence[Begin | Wait], now: datetime) -> None:
        """Make the runs that are new pending. What somebody else has claimed is looked at again."""
        new = [step for step in steps if step.item not in self._pending]
        if not new:
            return
        marks = {step.item: self._mark(step, "CLAIMED", now) for step in new}
        claimed = self._store.marks.claim(list(marks.values()))
        for step in new:
            if step.item in claimed:
                self._marks[step.item] = marks[step.item]
                self._pending[step.item] = self._new(step, now)
        if len(claimed) < len(new):
            self._read_marks(now)

    def _new(self, step: Begin | Wait | Skip, now: datetime) -> LiveRun:
        item = self.definitions.items[step.item]
        run = None
        if item.kind == "TASK":
            run = new_run(item, step.tick, "AFTER" if item.follows else "SCHEDULE", now, step.merged)
        return LiveRun(item, step.tick, step.merged, run=run)

    def _begin_again(self) -> None:
        """Make the next attempts that are due; what was suspended or dropped meanwhile has none."""
        busy = self._busy()
        for live in self._pending.values():
            if not live.begun or live.job is not None or live.outcome is not None:
                continue
            item = self.definitions.items.get(live.item.id)
            if item is None:
                self._performer.give_up(live, "CANCELLED", DROPPED)
            elif item.suspended:
                self._performer.give_up(live, "SKIPPED", "It was suspended before the next attempt.")
            elif live.item.id not in busy and live.retry_at is not None and live.retry_at <= self._monotonic():
                self._performer.begin(live)

    def _begin_by_hand(self, *, backfills: bool) -> None:
        at_work = {each for each, live in self._pending.items() if live.job is not None} | self._busy()
        self._by_hand.begin(self.definitions.items, at_work, self._monotonic(), backfills=backfills)

    def _busy(self) -> frozenset[str]:
        """Those of which something runs outside of the schedule: by hand, or a job that was given up and does not stop,
        or what had their name and was dropped meanwhile."""
        items = self.definitions.items
        old = {live.item.name for live in self.runs() if live.job is not None and live.item.id not in items}
        renewed = {item.id for item in items.values() if item.name in old} if old else set()
        return self._by_hand.at_work() | self._performer.stuck() | renewed

    # ------------------------------------------------------------------ ending

    def _tell_by_hand(self, live: LiveRun, now: datetime) -> None:
        """Say how a run of a task by hand ended."""
        assert live.outcome is not None
        assert live.run is not None
        outcome, backfill = live.outcome, live.run.trigger == "BACKFILL"
        if outcome.state == "FAILED":
            tick = live.tick.isoformat(sep=" ")
            _log.warning("The run of %s at %s by hand failed: %s", live.item.name, tick, outcome.reason)
            self.ended_by_hand(
                live.item.id, ByHandEnd("FAILED", now, outcome.reason, outcome.code, outcome.job_id, backfill)
            )
        elif outcome.state == "SUCCEED":
            self.ended_by_hand(live.item.id, ByHandEnd("SUCCEED", now, backfill=backfill))

    def ended_by_hand(self, object_id: str, end: ByHandEnd) -> None:
        """Tell whoever listens. From any thread."""
        try:
            self._work.ended_by_hand(object_id, end)
        except Exception:
            _log.exception("Somebody who listens for the end of runs by hand failed.")

    def _write_ends(self, now: datetime) -> None:
        """Write down the runs that have ended: a task's row first, so that a crash before the mark repeats nothing."""
        for live in self._pending.values():
            self._performer.save(live)
        ended = [live for live in self._pending.values() if live.outcome is not None]
        gone = [live for live in ended if live.item.id not in self.definitions.items]
        if gone:
            self._store.marks.drop([live.item.id for live in gone])
            for live in gone:
                del self._pending[live.item.id]
                self._marks.pop(live.item.id, None)
        marks = [self._end_of(live, now) for live in ended if live.item.id in self.definitions.items]
        plain = [mark for mark in marks if not self._is_one_too_many(mark)]
        skips = [live.skip for live in ended if live.skip is not None]
        if skips:
            self._finished(plain, self._store.marks.record_idle(skips, plain))
        elif plain:
            self._finished(plain, self._store.marks.end(plain))
        for mark in marks:
            if self._is_one_too_many(mark) and mark.object_id not in self._not_yet:
                reason = self._suspension(mark)
                if self._suspended(mark, reason):
                    self._finished([mark], self._store.marks.end([mark], suspends=reason))
                    self.definitions.bring_up_to_date()
                else:
                    self._not_yet.add(mark.object_id)

    def _end_of(self, live: LiveRun, now: datetime) -> Mark:
        if live.end is None:
            assert live.outcome is not None
            outcome = live.outcome
            before = self._marks.get(live.item.id)
            live.end = self._mark(
                live, outcome.state, now,
                reason=outcome.reason, job_id=outcome.job_id, code=outcome.code, held_up=outcome.held_up,
            )  # fmt: skip
            told = None if before is None else before.skipped_for
            live.skip = None if live.end.skipped_for in (None, told) else self._skip(live, now)
        return live.end

    def _skip(self, live: LiveRun, now: datetime) -> RefreshRecord:
        """What the history says of a refresh that was not made."""
        assert live.outcome is not None
        reason = live.outcome.reason or "nobody said why."
        table = self.definitions.tables[live.item.id]
        occasion = Occasion(trigger="SYSTEM_SCHEDULED", tick=live.tick)
        record = RefreshRecord.begun(table, occasion, job_id=new_job_id(now), at=now, state="SUCCEED")
        told = {
            "end_time": now, "refresh_mode": "NO_DATA", "technique": SKIPPED, "rows_inserted": 0, "rows_deleted": 0,
            "reason": f"Skipped: {reason[:1].lower()}{reason[1:]}",
        }  # fmt: skip
        return record.model_copy(update=told)

    def _mark(
        self,
        run: Begin | Wait | LiveRun,
        state: MarkState,
        now: datetime,
        *,
        reason: str | None = None,
        job_id: str | None = None,
        code: str | None = None,
        held_up: bool = False,
    ) -> Mark:
        object_id = run.item.id if isinstance(run, LiveRun) else run.item
        before = self._marks.get(object_id)
        if state == "SUCCEED":
            before = None
        failures = 0 if before is None else before.failures
        error, error_code = (None, None) if before is None else (before.error, before.error_code)
        if state == "FAILED":
            error, error_code = reason, code
        skipped_for = None if before is None or state == "FAILED" else before.skipped_for
        if state == "SKIPPED" and job_id is None and object_id in self.definitions.tables:
            skipped_for = cause_of(reason or "")
        return Mark(
            object_id=object_id,
            tick=run.tick,
            state=state,
            failures=failures + (state == "FAILED" and not held_up),
            held_up=held_up if state == "FAILED" else before is not None and before.held_up,
            error=error,
            error_code=error_code,
            merged=run.merged,
            reason=reason,
            skipped_for=skipped_for,
            job_id=job_id,
            at=now,
        )

    def _finished(self, marks: Sequence[Mark], written: frozenset[str]) -> None:
        if len(written) < len(marks):
            self.in_doubt = True  # Somebody else has moved them.
        for mark in marks:
            self._marks[mark.object_id] = mark
            self._pending.pop(mark.object_id, None)
            self.ends[mark.state] += 1
            self._log_end(mark)
            try:
                self._work.ended(mark.object_id, mark)
            except Exception:
                _log.exception("Somebody who listens for the end of scheduled runs failed.")

    def _log_end(self, mark: Mark) -> None:
        if mark.state not in ("FAILED", "SKIPPED"):
            return
        item = self.definitions.items.get(mark.object_id)
        what = "refresh" if item is None or item.kind == "TABLE" else "run"
        _log.log(
            logging.WARNING if mark.state == "FAILED" else logging.INFO,
            "The scheduled %s of %s at %s %s: %s",
            what, mark.object_id if item is None else item.name, mark.tick.isoformat(sep=" "),
            "failed" if mark.state == "FAILED" else "was skipped", mark.reason or "nobody said why.",
        )  # fmt: skip

    def _is_one_too_many(self, mark: Mark) -> bool:
        table = mark.object_id in self.definitions.tables
        counts = mark.state == "FAILED" and not mark.held_up
        return table and counts and mark.failures >= FAILURES_ALLOWED

    def _suspension(self, mark: Mark) -> str:
        """Why the table is suspended."""
        name = self.definitions.tables[mark.object_id].table_name
        reason = f"Five scheduled refreshes in a row failed; mend it, then ALTER DYNAMIC TABLE {name} RESUME. "
        return f"{reason}The last error: {mark.reason}"[:LONGEST_REASON]

    def _suspended(self, mark: Mark, reason: str) -> bool:
        """Suspend the table; False when that must be tried again, before anybody hears of the failure."""
        if not self._may_begin():
            return False  # To write it down needs what refreshes need.
        table = self.definitions.tables[mark.object_id]
        try:
            self._work.suspend(table, reason)
        except (EnvironmentFault, RefreshRunning) as error:
            _log.warning("%s could not be suspended yet: %s", table.table_name, error.message)
            return False
        except Exception:
            _log.exception("%s could not be suspended.", table.table_name)
            self._suspend_tries[table.id] += 1
            if self._suspend_tries[table.id] < _SUSPEND_TRIES:
                return False
        self._suspend_tries.pop(table.id, None)
        self.definitions.changed()
        return True

    # ------------------------------------------------------------------ marks

    def _read_marks(self, now: datetime) -> None:
        """Read how far everything has come, and take over what is pending there and not here."""
        with self._asking:
            self._read_had()
            marks = {mark.object_id: mark for mark in self._store.marks.all()}
            here = self._by_hand.known() | {live.run.id for live in self._pending.values() if live.run is not None}
            unfinished = [run for run in self._store.task_runs.unfinished() if run.id not in here]
            for run in [run for run in unfinished if run.id in self._withdrawn]:
                self._store.task_runs.update(not_run(run, "CANCELLED", "It could not be asked for.", now))
                unfinished.remove(run)
            adopter = Adopter(self._store.task_runs, self._performer, self.definitions.items, now)
            claimed = [mark for each, mark in marks.items() if mark.state == "CLAIMED" and each not in self._pending]
            scheduled = adopter.scheduled(claimed, unfinished)
            self._by_hand.take_over(adopter.by_hand(unfinished))
            self._marks = marks
            self._pending |= {live.item.id: live for live in scheduled}
            self._withdrawn.clear()
            self.in_doubt = False

    def _read_had(self) -> None:
        """Read which ticks beyond its mark a task was run at: an INSERT that is done again doubles its rows. A refresh
        does nothing twice, so tables need no such list, and are kept fresh."""
        runs = self._store.task_runs.beyond_marks()
        self._had = {}
        for run in runs:
            if run.trigger in BY_CLOCK and run.state != "SKIPPED":
                self._had.setdefault(run.task_id, []).append(run.tick)

    def _drop_marks(self) -> None:
        """Forget the marks of what is gone."""
        items = self.definitions.items
        gone = [each for each in self._marks if each not in items]
        self._store.marks.drop(gone)
        for each in gone:
            del self._marks[each]

    def _reset(self, steps: list[Reset], now: datetime) -> None:
        if not steps:
            return
        marks = []
        for step in steps:
            name = self.definitions.items[step.item].name
            _log.warning(
                "The schedule of %s stands at %s, which has not come yet: the clock was wrong. It goes on from %s; "
                "a tick that a task has had is not done again.",
                name, step.was.isoformat(), step.tick.isoformat(),
            )  # fmt: skip
            known = self._marks.get(step.item) or Mark(
                object_id=step.item, tick=step.tick, state="SKIPPED", reason="The clock was put back.", at=now
            )
            marks.append(known.model_copy(update={"tick": step.tick, "merged": 0, "at": now}))
        self._store.marks.reset(marks)
        self._marks |= {mark.object_id: mark for mark in marks}
        self._read_had()
