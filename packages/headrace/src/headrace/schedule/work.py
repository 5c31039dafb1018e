"""What the scheduler needs from others: somebody who does the work, and a store that remembers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from headrace.catalog.records import DynamicTable, Mark, RefreshRecord, Task, TaskRun
from headrace.catalog.schedules import MarkStore
from headrace.compute.jobs import LiveJob
from headrace.schedule.live import ByHandEnd


class Work(Protocol):
    """Does what is due. Called in the scheduler's thread, so all of it must be quick: what takes time is a job."""

    def idle(self, tables: list[DynamicTable], ticks: Mapping[str, datetime]) -> Sequence[RefreshRecord]:
        """The finished NO_DATA records of those tables that have nothing to do; they are not written down yet. `ticks`
        has the tick of each table by its id."""
        ...

    def refresh(self, table: DynamicTable, tick: datetime, completion_target: datetime | None) -> LiveJob:
        """Have the table refreshed. What this raises counts as a failed refresh."""
        ...

    def run_task(self, task: Task, run: TaskRun) -> LiveJob:
        """Have the task's body run. What this raises counts as a failed attempt. The run's row is RUNNING before the
        body begins: after a crash, one that is not is run, and one that is is not."""
        ...

    def suspend(self, table: DynamicTable, reason: str) -> None:
        """Take the table out of the schedule; once more does nothing."""
        ...

    def ended(self, object_id: str, mark: Mark) -> None:
        """A scheduled run has ended, as its mark says."""
        ...

    def ended_by_hand(self, object_id: str, end: ByHandEnd) -> None:
        """A refresh or run that somebody asked for has ended, well or not."""
        ...


class Tasks(Protocol):
    """The tasks there are."""

    def all(self) -> list[Task]: ...


class Runs(Protocol):
    """The history of task runs."""

    def add(self, run: TaskRun) -> None: ...
    def add_all(self, runs: Sequence[TaskRun]) -> None: ...
    def update(self, run: TaskRun) -> bool: ...
    def count_unfinished(self, task_id: str) -> int: ...
    def get(self, run_id: str) -> TaskRun | None: ...
    def recent(self, limit: int | None = None, task_id: str | None = None) -> list[TaskRun]: ...
    def unfinished(self) -> list[TaskRun]: ...
    def beyond_marks(self) -> list[TaskRun]: ...


class ScheduleStore(Protocol):
    """The part of the operations database that the scheduler uses."""

    @property
    def marks(self) -> MarkStore: ...
    @property
    def tasks(self) -> Tasks: ...
    @property
    def task_runs(self) -> Runs: ...
    def tables(self) -> list[DynamicTable]: ...
