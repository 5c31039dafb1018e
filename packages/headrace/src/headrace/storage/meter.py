"""Counting what a piece of work made Spark do: jobs, bytes and rows read and written.

The numbers come from Spark's own status store. A session without one (Spark Connect) gives none, and none is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from headrace import running

COUNTED = ("rows_written", "bytes_written", "rows_read", "bytes_read", "commits")
"""What a job notes itself (`running.count`) where no Spark does it, and its commits wherever."""
_ASKED_JOBS = 200
_GROUP = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")


class Meter:
    """`with Meter(spark, name) as meter: …`, then `meter.readings()`."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self._name = name
        self._context: Any = getattr(spark, "sparkContext", None)
        self._before: dict[str, str | None] = {}
        self._noted: dict[str, int] = {}

    def __enter__(self) -> Meter:
        self._noted = _noted()
        if self._context is not None:
            self._before = {key: self._context.getLocalProperty(key) for key in _GROUP}
            self._context.setJobGroup(self._name, f"headrace {self._name}", interruptOnCancel=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._context is not None:
            for key, value in self._before.items():
                self._context.setLocalProperty(key, value)

    def jobs(self) -> list[int]:
        """The ids of the jobs started."""
        return [] if self._context is None else list(self._context.statusTracker().getJobIdsForGroup(self._name))

    def readings(self) -> dict[str, int]:
        """Jobs started, commits, and bytes and rows that were read and written, also by this thread without Spark."""
        if self._context is None:
            return {}
        found = readings(self._context, self.jobs())
        return found | {name: found.get(name, 0) + noted - self._noted[name] for name, noted in _noted().items()}


def _noted() -> dict[str, int]:
    job = running.current()
    return {} if job is None else {name: job.counts.get(name, 0) for name in COUNTED}


def counted(context: Any, tag: str) -> dict[str, int]:
    """What Spark did under a tag. Asking takes about a millisecond a Spark job: of very many, only their number is
    told, and nothing where Spark does not answer."""
    try:
        jobs = list(context._jsc.sc().statusTracker().getJobIdsForTag(tag))
        return readings(context, jobs) if len(jobs) <= _ASKED_JOBS else {"spark_jobs": len(jobs)}
    except (Py4JError, OSError):
        return {}


def readings(context: Any, jobs: Sequence[int]) -> dict[str, int]:
    """How many these Spark jobs are, and the bytes and rows that their stages read and wrote into tables."""
    totals = {"spark_jobs": len(jobs), "bytes_read": 0, "rows_read": 0, "bytes_written": 0, "rows_written": 0}
    tracker = context.statusTracker()
    store = context._jsc.sc().statusStore()
    for job in jobs:
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info is not None else ():
            try:
                attempt = store.lastStageAttempt(stage)
            except Py4JError:
                continue
            totals["bytes_read"] += int(attempt.inputBytes())
            totals["rows_read"] += int(attempt.inputRecords())
            totals["bytes_written"] += int(attempt.outputBytes())
            totals["rows_written"] += int(attempt.outputRecords())
    return totals
