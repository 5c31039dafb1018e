"""A small lake for the scheduler, without Spark: definitions, a store in memory, jobs that end when a test says so, and
a clock that moves when a test says so."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from headrace.catalog.records import SKIPPED, DynamicTable, Job, Mark, RefreshRecord, Task, TaskRun
from headrace.compute.jobs import LiveJob
from headrace.errors import Bug, Cancelled, EnvironmentFault, HeadraceError, NotFound, QueryFailed
from headrace.names import TableName
from headrace.plan.query import BoundText, Query, Source
from headrace.result import Result, done
from headrace.schedule.live import ByHandEnd
from headrace.schedule.recounting import resumed
from headrace.schedule.scheduler import Scheduler

START = datetime(2025, 3, 1, 12, 0, 30, tzinfo=timezone.utc)
"""Half a minute after a tick."""
NOON = START - timedelta(seconds=30)


def tick(minutes: float) -> datetime:
    """So many minutes after noon."""
    return NOON + timedelta(minutes=minutes)


def path_of(name: str) -> str:
    return f"/lake/{name}"


def a_table(name: str, *reads: str, **changes: Any) -> DynamicTable:
    sources = tuple(
        Source(workspace="main", schema_name="public", table=each, path=path_of(each), kind="dynamic") for each in reads
    )
    plain = Source(workspace="main", schema_name="public", table="raw", path="/lake/raw", kind="table")
    query = Query(
        text="SELECT",
        resolved_text="",
        bound=BoundText(pieces=("x",)),
        sources=(plain, *sources),
        columns=(),
        plan=None,
    )
    values: dict[str, Any] = {
        "id": f"table-{name}",
        "workspace": "main",
        "schema_name": "public",
        "name": name,
        "query": query,
        "storage_path": path_of(name),
        "created_at": START,
        "modified_at": START,
    }
    return DynamicTable(**{**values, **changes})


def a_task(name: str, *after: str, **changes: Any) -> Task:
    values: dict[str, Any] = {
        "id": f"task-{name}",
        "workspace": "main",
        "schema_name": "public",
        "name": name,
        "body": f"INSERT INTO {name} VALUES (1)",
        "after": tuple(TableName("main", "public", each) for each in after),
        "created_at": START,
        "modified_at": START,
    }
    return Task(**{**values, **changes})


class Clock:
    """Wall-clock time and time that only goes forward."""

    def __init__(self) -> None:
        self.time = START
        self.seconds = 1000.0

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)
        self.seconds += seconds

    def put_to(self, time: datetime) -> None:
        """Somebody sets the clock; no time passes."""
        self.time = time


class Faults:
    """Makes calls of the store fail: before they did anything, or after."""

    def __init__(self) -> None:
        self.plan: Iterator[str] = itertools.repeat("")
        self.calls: list[str] = []

    def during(self, name: str, work: Callable[[], Any]) -> Any:
        self.calls.append(name)
        what = next(self.plan, "")
        if what == "before":
            raise EnvironmentFault(f"The database is away ({name}).")
        result = work()
        if what == "after":
            raise EnvironmentFault(f"The database went away ({name}).")
        return result


class MemoryMarks:
    def __init__(self, faults: Faults) -> None:
        self.rows: dict[str, Mark] = {}
        self.claims: list[tuple[str, datetime]] = []
        self.resets: list[Mark] = []
        self.idle: list[RefreshRecord] = []
        self.suspended: dict[str, str] = {}
        """What the refresh of a job is said to have led to."""
        self._faults = faults

    def all(self) -> list[Mark]:
        return self._faults.during("marks.all", lambda: list(self.rows.values()))

    def claim(self, marks: Sequence[Mark]) -> frozenset[str]:
        assert all(mark.state == "CLAIMED" for mark in marks)

        def work() -> frozenset[str]:
            moved = self._moved(marks)
            self.claims += [(mark.object_id, mark.tick) for mark in marks if mark.object_id in moved]
            return moved

        return self._faults.during("marks.claim", work)

    def end(self, marks: Sequence[Mark], *, suspends: str | None = None) -> frozenset[str]:
        assert not any(mark.state == "CLAIMED" for mark in marks)

        def work() -> frozenset[str]:
            if suspends is not None:
                self.suspended |= {mark.job_id or "": suspends for mark in marks}
            return self._moved(marks)

        return self._faults.during("marks.end", work)

    def record_idle(self, records: Sequence[RefreshRecord], marks: Sequence[Mark]) -> frozenset[str]:
        def work() -> frozenset[str]:
            moved = self._moved(marks)
            self.idle += [record for record in records if record.table_id in moved]
            return moved

        return self._faults.during("marks.record_idle", work)

    def reset(self, marks: Sequence[Mark]) -> None:
        if marks:
            self._faults.during("marks.reset", lambda: self.rows.update({mark.object_id: mark for mark in marks}))
            self.resets += marks

    def drop(self, object_ids: Sequence[str]) -> None:
        if object_ids:
            self._faults.during("marks.drop", lambda: [self.rows.pop(each, None) for each in object_ids])

    def _moved(self, marks: Sequence[Mark]) -> frozenset[str]:
        for mark in marks:
            known = self.rows.get(mark.object_id)
            ends = (
                known is not None
                and known.tick == mark.tick
                and (known.state, mark.state != "CLAIMED") == ("CLAIMED", True)
            )
            if known is None or known.tick < mark.tick or ends:
                self.rows[mark.object_id] = mark
        return frozenset(mark.object_id for mark in marks if self.rows[mark.object_id] == mark)


class MemoryRuns:
    def __init__(self, faults: Faults, marks: MemoryMarks) -> None:
        self.rows: dict[str, TaskRun] = {}
        self._marks = marks
        self._faults = faults

    def add(self, run: TaskRun) -> None:
        self.add_all([run])

    def add_all(self, runs: Sequence[TaskRun]) -> None:
        def work() -> None:
            for run in runs:
                if run.id in self.rows:
                    raise Bug(f"The task run {run.id} was recorded twice.")
                self.rows[run.id] = run

        self._faults.during("runs.add", work)

    def update(self, run: TaskRun) -> bool:
        def work() -> bool:
            known = self.rows.get(run.id)
            if known is None or known.state in ("SUCCEED", "FAILED", "SKIPPED", "CANCELLED"):
                return False
            if (run.state, known.state) == ("QUEUED", "RUNNING"):
                return False
            self.rows[run.id] = run
            return True

        return self._faults.during("runs.update", work)

    def begin(self, run: TaskRun, job_id: str | None, now: datetime) -> bool:
        """Called by jobs: faults are for the scheduler."""
        known = self.rows.get(run.id)
        if known is None:
            return False
        if known.state not in ("WAITING", "QUEUED") and (known.state, known.job_id) != ("RUNNING", job_id):
            return False
        self.rows[run.id] = run.model_copy(update={"state": "RUNNING", "job_id": job_id, "started_at": now})
        return True

    def count_unfinished(self, task_id: str) -> int:
        own = [run for run in self.rows.values() if run.task_id == task_id]
        return self._faults.during(
            "runs.count", lambda: sum(run.state in ("WAITING", "QUEUED", "RUNNING") for run in own)
        )

    def get(self, run_id: str) -> TaskRun | None:
        return self._faults.during("runs.get", lambda: self.rows.get(run_id))

    def recent(self, limit: int | None = None, task_id: str | None = None) -> list[TaskRun]:
        own = [run for run in self.rows.values() if task_id in (None, run.task_id)]
        ordered = sorted(own, key=lambda run: (run.tick, run.id), reverse=True)
        return self._faults.during("runs.recent", lambda: ordered[:limit])

    def beyond_marks(self) -> list[TaskRun]:
        def work() -> list[TaskRun]:
            marks = {each: mark.tick for each, mark in self._marks.rows.items()}
            own = (run for run in self.rows.values() if run.task_id in marks and run.tick > marks[run.task_id])
            return sorted(own, key=lambda run: (run.tick, run.id))

        return self._faults.during("runs.beyond_marks", work)

    def unfinished(self) -> list[TaskRun]:
        own = [run for run in self.rows.values() if run.state in ("WAITING", "QUEUED", "RUNNING")]
        return self._faults.during("runs.unfinished", lambda: sorted(own, key=lambda run: (run.tick, run.id)))


class MemoryTasks:
    def __init__(self, faults: Faults) -> None:
        self.rows: dict[str, Task] = {}
        self._faults = faults

    def all(self) -> list[Task]:
        return self._faults.during("tasks.all", lambda: list(self.rows.values()))


class MemoryStore:
    def __init__(self) -> None:
        self.faults = Faults()
        self.definitions: dict[str, DynamicTable] = {}
        self.marks = MemoryMarks(self.faults)
        self.tasks = MemoryTasks(self.faults)
        self.task_runs = MemoryRuns(self.faults, self.marks)

    def tables(self) -> list[DynamicTable]:
        return self.faults.during("tables", lambda: list(self.definitions.values()))

    def put_table(self, table: DynamicTable) -> None:
        self.definitions[table.id] = table

    def put_task(self, task: Task) -> None:
        self.tasks.rows[task.id] = task


class Begun:
    """A job that somebody submitted."""

    def __init__(
        self, name: str, tick: datetime, clock: Clock, run: TaskRun | None, number: int, store: Any = None
    ) -> None:
        self.name, self.tick, self.run, self._clock, self._store = name, tick, run, clock, store
        record = Job(
            id=f"job-{number}", status="QUEUED", creator="ann", text=name, vcluster="default", submitted_at=clock.now()
        )
        self.live = LiveJob(record, lambda: done(""), lambda job, reason: self.cancelled_for(reason))

    def cancelled_for(self, reason: HeadraceError) -> None:
        if self.heeds_cancel:
            self.end(reason)

    heeds_cancel = True

    def run_now(self) -> None:
        """It gets its slot."""
        self.live.move("RUNNING", started_at=self._clock.now())
        if self.run is not None:
            self._store.task_runs.begin(self.run, self.live.id, self._clock.now())

    def end(self, error: HeadraceError | None = None, result: Result | None = None) -> None:
        if self.live.claim_end():
            if self.live.job.status == "QUEUED":
                self.run_now()
            status = "SUCCEED" if error is None else "CANCELLED" if isinstance(error, Cancelled) else "FAILED"
            ended = self.live.job.model_copy(update={"status": status, "ended_at": self._clock.now()})
            self.live.settle(ended, result or done("Done.") if error is None else None, error)


class DoubleOfWork:
    """Remembers what it was asked to do. Tables in `idle_tables` have nothing to do."""

    def __init__(self, store: Any, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._numbers = itertools.count(1)
        self.idle_tables: set[str] = set()
        self.idle_error: Exception | None = None
        self.idle_calls: list[list[str]] = []
        self.refuse: dict[str, Exception] = {}
        """What submitting a job for this table or task raises."""
        self.jobs: list[Begun] = []
        """In the order of their beginning."""
        self.targets: dict[str, datetime | None] = {}
        self.suspensions: list[tuple[str, str]] = []
        self.suspend_errors: list[Exception] = []
        self.ends: list[tuple[str, Mark]] = []
        self.ends_by_hand: list[tuple[str, ByHandEnd]] = []
        self.at_once: Callable[[str, datetime], HeadraceError | bool | None] = lambda name, tick: False
        """How a job ends as soon as it is submitted: with None well, with an error badly, with False not yet."""

    def idle(self, tables: list[DynamicTable], ticks: Mapping[str, datetime]) -> list[RefreshRecord]:
        self.idle_calls.append(sorted(table.name for table in tables))
        assert sorted(ticks) == sorted(table.id for table in tables)
        if self.idle_error is not None:
            raise self.idle_error
        return [self._no_data(table) for table in tables if table.name in self.idle_tables]

    def _no_data(self, table: DynamicTable) -> RefreshRecord:
        return RefreshRecord(
            job_id=f"idle-{next(self._numbers)}", table_id=table.id, workspace=table.workspace,
            schema_name=table.schema_name, name=table.name, vcluster="default", start_time=self._clock.now(),
            end_time=self._clock.now(), state="SUCCEED", trigger="SYSTEM_SCHEDULED", refresh_mode="NO_DATA",
        )  # fmt: skip

    def refresh(self, table: DynamicTable, tick: datetime, completion_target: datetime | None) -> LiveJob:
        self.targets[table.name] = completion_target
        return self._submitted(table.name, tick, None)

    def run_task(self, task: Task, run: TaskRun) -> LiveJob:
        return self._submitted(task.name, run.tick, run)

    def _submitted(self, name: str, tick: datetime, run: TaskRun | None) -> LiveJob:
        if name in self.refuse:
            raise self.refuse[name]
        job = Begun(name, tick, self._clock, run, next(self._numbers), self._store)
        self.jobs.append(job)
        error = self.at_once(name, tick)
        if not isinstance(error, bool):
            job.end(error)
        return job.live

    def suspend(self, table: DynamicTable, reason: str) -> None:
        if self.suspend_errors:
            raise self.suspend_errors.pop(0)
        self.suspensions.append((table.name, reason))
        self._store.put_table(table.model_copy(update={"suspended": True, "suspended_reason": reason}))

    def ended(self, object_id: str, mark: Mark) -> None:
        self.ends.append((object_id.partition("-")[2], mark))

    def ended_by_hand(self, object_id: str, end: ByHandEnd) -> None:
        self.ends_by_hand.append((object_id.partition("-")[2], end))


class World:
    """All of it, with short names for what tests do."""

    def __init__(self, store: Any = None) -> None:
        self.clock = Clock()
        self.store = MemoryStore() if store is None else store
        self.work = DoubleOfWork(self.store, self.clock)
        self.scheduler = self._new_scheduler()

    def _new_scheduler(self) -> Scheduler:
        return Scheduler(self.store, self.clock.now, self.work, monotonic=self.clock.monotonic)

    # ---- definitions

    def table(self, name: str, *reads: str, minutes: float | None = 1, **changes: Any) -> DynamicTable:
        table = a_table(name, *reads, interval_seconds=None if minutes is None else int(minutes * 60), **changes)
        return self._put_table(table)

    def task(self, name: str, *after: str, minutes: float | None = None, **changes: Any) -> Task:
        task = a_task(name, *after, interval_seconds=None if minutes is None else int(minutes * 60), **changes)
        self.store.put_task(task)
        self.scheduler.changed()
        return task

    def _put_table(self, table: DynamicTable) -> DynamicTable:
        self.store.put_table(table)
        self.scheduler.changed()
        return table

    def alter(self, name: str, **changes: Any) -> None:
        for table in self.store.tables():
            if table.name == name:
                self._put_table(table.model_copy(update=changes))
        for task in self.store.tasks.all():
            if task.name == name:
                self.store.put_task(task.model_copy(update=changes))
        self.scheduler.changed()

    def suspend(self, name: str, reason: str = "Suspended by the user.") -> None:
        self.alter(name, suspended=True, suspended_reason=reason)

    def resume(self, name: str) -> None:
        """As ALTER … RESUME does."""
        for kind in ("table", "task"):
            self.scheduler.recount(f"{kind}-{name}", lambda mark, kind=kind: resumed(mark, at_once=kind == "table"))
        self.alter(name, suspended=False, suspended_reason=None)

    def refreshed_by_hand(self, name: str, job: Begun | None = None) -> None:
        """As REFRESH DYNAMIC TABLE does, by itself or in a job."""
        self.scheduler.refreshed(f"table-{name}", None if job is None else job.live.id)

    def drop(self, name: str) -> None:
        self.store.definitions.pop(f"table-{name}", None)
        self.store.tasks.rows.pop(f"task-{name}", None)
        self.scheduler.changed()

    # ---- time

    def look(self) -> float:
        return self.scheduler.look()

    def advance(self, minutes: float) -> None:
        """Let time pass, then look."""
        self.clock.advance(minutes * 60)
        self.look()

    def restart(self) -> None:
        """Another process: nothing is left in memory, and no job."""
        self.work.jobs = []
        self.scheduler = self._new_scheduler()

    # ---- jobs

    @property
    def at_work(self) -> list[str]:
        """The names of what runs now, in the order of their beginning."""
        return [job.name for job in self.work.jobs if not job.live.done]

    @property
    def begun(self) -> list[tuple[str, datetime]]:
        """All jobs there were since the start of the process."""
        return [(job.name, job.tick) for job in self.work.jobs]

    def job(self, name: str) -> Begun:
        return next(job for job in self.work.jobs if job.name == name and not job.live.done)

    def end(self, *names: str) -> None:
        """These jobs succeed; then look."""
        for name in names:
            self.job(name).end()
        self.look()

    def fail(self, name: str, message: str = "boom") -> None:
        self.job(name).end(QueryFailed(message))
        self.look()

    def end_all(self) -> None:
        """Until nothing is at work."""
        while self.at_work:
            self.end(*self.at_work)

    def fail_from_now_on(self, *names: str) -> None:
        self.work.at_once = lambda name, tick: QueryFailed("boom") if name in names else None

    def succeed_from_now_on(self) -> None:
        self.work.at_once = lambda name, tick: None

    # ---- what is known

    def skips(self, name: str) -> list[str | None]:
        """Why refreshes of the table were not made, as its history tells."""
        return [each.reason for each in self.store.marks.idle if each.name == name and each.technique == SKIPPED]

    def mark(self, name: str) -> Mark:
        for mark in self.store.marks.all():
            if mark.object_id.partition("-")[2] == name:
                return mark
        raise NotFound(f"{name} has no mark.")

    def marks(self) -> dict[str, str]:
        """Name and state."""
        return {mark.object_id.partition("-")[2]: mark.state for mark in self.store.marks.all()}

    def runs(self, name: str) -> list[TaskRun]:
        """The task's history, oldest first."""
        return sorted(self.store.task_runs.recent(None, f"task-{name}"), key=lambda run: (run.created_at, run.id))

    def states(self, name: str) -> list[str]:
        return [run.state for run in self.runs(name)]

    def waiting(self) -> dict[str, tuple[str, ...]]:
        """What waits, and for what."""
        return {
            run.name.table: tuple(each.table for each in run.waits_for)
            for run in self.scheduler.status().runs
            if run.state == "WAITING"
        }
