"""A lake whose scheduler runs by a clock that a test moves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from headrace import Lake
from headrace.result import Result
from headrace.schedule.scheduler import Scheduler

_PATIENCE = 120.0


class Clock:
    """Begins on a full minute of today."""

    def __init__(self) -> None:
        self._now = datetime.now(timezone.utc).replace(second=0, microsecond=0) + timedelta(minutes=1, seconds=1)

    def __call__(self) -> datetime:
        return self._now

    def forward(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)


class Scheduled:
    """The lake, its clock, and the scheduler, which looks only when it is asked to."""

    def __init__(self, lake: Lake, clock: Clock, scheduler: Scheduler) -> None:
        self.lake = lake
        self.clock = clock
        self.scheduler = scheduler

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lake, name)

    def sql(self, text: str) -> Result:
        return self.lake.sql(text)

    def settle(self) -> None:
        """Everything that is due at this time is done."""
        assert self.scheduler.settle(_PATIENCE), self.scheduler.status()

    def minutes(self, count: int) -> None:
        for _ in range(count):
            self.clock.forward(60)
            self.settle()


@pytest.fixture
def scheduled(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scheduled]:
    with _scheduled(lake, monkeypatch, guarded=False) as made:
        yield made


@pytest.fixture
def guarded(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scheduled]:
    """As on a server: what tasks do is judged as what its users do."""
    with _scheduled(lake, monkeypatch, guarded=True) as made:
        yield made


@contextmanager
def _scheduled(lake: Lake, monkeypatch: pytest.MonkeyPatch, *, guarded: bool) -> Iterator[Scheduled]:
    clock = Clock()
    context = lake._context
    monkeypatch.setattr(context, "clock", clock)
    monkeypatch.setattr(context.runner, "_clock", clock)
    for timed in (lake.compute, *lake.compute._clusters.values()):
        monkeypatch.setattr(timed, "_clock", clock)
    scheduler = lake.start_scheduler(guarded=guarded, clock=clock, thread=False)
    try:
        yield Scheduled(lake, clock, scheduler)
    finally:
        lake.stop_scheduler()
