"""What the scheduler is about, for those who ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from headrace.catalog.records import MarkState, TaskTrigger
from headrace.names import TableName
from headrace.schedule.items import Item
from headrace.schedule.live import LiveRun


@dataclass(frozen=True)
class PendingRun:
    """A run that has not ended."""

    object_id: str
    name: TableName
    kind: Literal["TABLE", "TASK"]
    tick: datetime
    state: Literal["WAITING", "QUEUED", "RUNNING"]
    """WAITING is for others, or for the next attempt; QUEUED is for a slot of its virtual cluster."""
    trigger: TaskTrigger = "SCHEDULE"
    merged: int = 0
    attempt: int = 1
    job_id: str | None = None
    waits_for: tuple[TableName, ...] = ()


@dataclass(frozen=True)
class Status:
    """All of it at the end of the newest look."""

    runs: tuple[PendingRun, ...] = ()
    """By schedule and by hand."""
    next_ticks: Mapping[str, datetime] = field(default_factory=dict)
    """By the id of the table or task; those that are suspended or run by hand only have none."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Why those that cannot run at all cannot, by id."""
    ends: Mapping[MarkState, int] = field(default_factory=dict)
    """How many scheduled runs ended how, since the start."""
    paused: bool = False
    looked_at: datetime | None = None
    look_seconds: float = 0.0
    fault: str | None = None
    """Why the newest look could not be finished; it is tried again."""

    def run_of(self, object_id: str) -> PendingRun | None:
        """The run by schedule of this table or task, else one by hand."""
        own = [run for run in self.runs if run.object_id == object_id]
        return next((run for run in own if run.trigger in ("SCHEDULE", "AFTER")), own[0] if own else None)


def pending_run(live: LiveRun, items: Mapping[str, Item]) -> PendingRun:
    """The run as others see it."""
    job, run = live.job, live.run
    state: Literal["WAITING", "QUEUED", "RUNNING"] = "WAITING"
    if job is not None:
        state = "QUEUED" if job.job.status in ("SETUP", "RESUMING_CLUSTER", "QUEUED") else "RUNNING"
    return PendingRun(
        object_id=live.item.id,
        name=live.item.name,
        kind=live.item.kind,
        tick=live.tick,
        state=state,
        trigger="SCHEDULE" if run is None else run.trigger,
        merged=live.merged,
        attempt=1 if run is None else run.attempt,
        job_id=None if job is None else job.id,
        waits_for=tuple(items[each].name for each in live.waits_for if each in items),
    )
