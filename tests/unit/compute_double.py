"""Virtual clusters without Spark: plain functions as work, and time that passes when a test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

from headrace import running
from headrace.catalog.records import Job, VCluster
from headrace.catalog.store import Store
from headrace.compute.clusters import Compute
from headrace.compute.jobs import LiveJob
from headrace.result import Result, done

START = datetime(2025, 3, 1, 12, tzinfo=timezone.utc)
PATIENCE = 20.0


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


class Gate:
    """Work that has begun and goes on until it is let go, or until nobody wants it any more."""

    def __init__(self, *, heeds: bool = True) -> None:
        self.began = threading.Event()
        self.open = threading.Event()
        self._heeds = heeds

    def __call__(self) -> Result:
        self.began.set()
        while not self.open.wait(0.005):
            if self._heeds:
                running.require_wanted()
        return done("through the gate")

    def wait_until_begun(self) -> Gate:
        assert self.began.wait(PATIENCE)
        return self


def a_compute(store: Store, clock: Clock) -> Compute:
    return Compute(store, clock.now, spark=lambda: None, monotonic=clock.monotonic)


def a_cluster(compute: Compute, store: Store, name: str = "small", **options: Any) -> VCluster:
    cluster = VCluster(
        **{"name": name, "max_concurrency": 1, "auto_suspend_seconds": 0, "created_at": START, **options}
    )
    store.clusters.put(cluster, new=True)
    compute.changed(cluster)
    return cluster


def submit(compute: Compute, work: Callable[[], Result], vcluster: str = "small", **options: Any) -> LiveJob:
    return compute.submit(work, **{"text": "SELECT 1", "creator": "ada", "vcluster": vcluster, **options})


def ended(job: LiveJob) -> LiveJob:
    assert job.wait(PATIENCE)
    return job


def stored(store: Store, job: LiveJob) -> Job:
    record = store.jobs.get(job.id)
    assert record is not None
    return record
