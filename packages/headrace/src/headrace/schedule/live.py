"""Runs that have not ended, as the scheduler's thread knows them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from headrace.catalog.records import Mark, MarkState, RefreshRecord, Task, TaskRun, TaskTrigger
from headrace.compute.jobs import LiveJob
from headrace.schedule.deciding import Pending
from headrace.schedule.items import Item


@dataclass(frozen=True)
class Outcome:
    """How a scheduled run ended, or why it was not made."""

    state: MarkState
    reason: str | None = None
    job_id: str | None = None
    code: str | None = None
    """That of the error, when it failed."""
    held_up: bool = False
    """Whether it failed for want of what all runs need."""


@dataclass(frozen=True)
class ByHandEnd:
    """How a refresh or run that somebody asked for ended."""

    state: Literal["SUCCEED", "FAILED"]
    at: datetime
    error: str | None = None
    error_code: str | None = None
    job_id: str | None = None
    backfill: bool = False
    """Whether it was for times that are long past."""


@dataclass
class LiveRun:
    """One run of one item, from the moment it is due until its end is written down. What is written to the operations
    database is kept here until it is known to stand there: a step that failed is done again at the next look."""

    item: Item
    """As it was when the run was made."""
    tick: datetime
    merged: int = 0
    run: TaskRun | None = None
    """Its row in the history; a table's refresh writes its own."""
    recorded: bool = False
    """Whether that row is known to be there."""
    tried_to_record: bool = False
    changed: bool = False
    """Whether the row there is not as `run` is."""
    begun: bool = False
    """Whether an attempt was made."""
    job: LiveJob | None = None
    """The attempt that goes on."""
    running_since: float | None = None
    timed_out_at: float | None = None
    """When its job was told to stop, because its time was over."""
    retry_at: float | None = None
    """When the next attempt is due."""
    lost: int = 0
    """How many jobs of it ended because Spark did."""
    refused_since: float | None = None
    """Since when no job could be submitted, for want of what all jobs need."""
    waits_for: tuple[str, ...] = ()
    """The ids of the items that hold it up."""
    after_runs: set[str] = field(default_factory=set)
    """By hand only: the runs that must succeed first."""
    outcome: Outcome | None = None
    end: Mark | None = None
    """The mark that its end leaves, made once."""
    skip: RefreshRecord | None = None
    """With that mark: what the history is to tell of a table that is skipped from now on."""

    @property
    def pending(self) -> Pending:
        return Pending(self.tick, self.merged, self.begun or self.outcome is not None)


def new_run(task: Item | Task, tick: datetime, trigger: TaskTrigger, now: datetime, merged: int = 0) -> TaskRun:
    """A run of the task that waits for its turn. Ids sort by time."""
    name = task.name if isinstance(task, Item) else task.table_name
    return TaskRun(
        id=f"{now:%Y%m%d%H%M%S}{now.microsecond // 1000:03d}{uuid.uuid4().hex[:16]}",
        task_id=task.id,
        workspace=name.workspace,
        schema_name=name.schema,
        name=name.table,
        tick=tick,
        trigger=trigger,
        state="WAITING",
        merged=merged,
        created_at=now,
    )
