"""Counting what a piece of work made Spark do: jobs, stages, bytes and rows read.

The numbers come from Spark's own status store. A session without one (Spark Connect) gives none, and none is shown.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession


class Meter:
    """`with Meter(spark, name) as meter: …`, then `meter.readings()`."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self._name = name
        self._context: Any = getattr(spark, "sparkContext", None)

    def __enter__(self) -> Meter:
        if self._context is not None:
            self._context.setJobGroup(self._name, f"headrace {self._name}", interruptOnCancel=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._context is not None:
            for key in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
                self._context.setLocalProperty(key, None)

    def jobs(self) -> list[int]:
        """The ids of the jobs started."""
        return [] if self._context is None else list(self._context.statusTracker().getJobIdsForGroup(self._name))

    def readings(self) -> dict[str, int]:
        """Jobs started, and bytes and rows that their stages read."""
        if self._context is None:
            return {}
        tracker = self._context.statusTracker()
        jobs = self.jobs()
        totals = {"spark_jobs": len(jobs), "bytes_read": 0, "rows_read": 0}
        store = self._context._jsc.sc().statusStore()
        for job in jobs:
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                try:
                    attempt = store.lastStageAttempt(stage)
                except Py4JError:
                    continue
                totals["bytes_read"] += int(attempt.inputBytes())
                totals["rows_read"] += int(attempt.inputRecords())
        return totals
