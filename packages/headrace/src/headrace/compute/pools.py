"""What Spark knows of a job: the pool that its tasks run in, a tag on everything it starts, and how it is stopped.

A cluster's pool has its size as weight: while two clusters want more cores than there are, each gets its share. Pools
are never removed, and a pool's weight never changes: a cluster of another size has another pool.

Local properties belong to the calling thread, on both sides: PySpark pins each of its threads to one of the JVM's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from headrace.catalog.records import VCluster
from headrace.compute.jobs import LiveJob
from headrace.storage.meter import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)
_POOL = "spark.scheduler.pool"
_INTERRUPT = "spark.job.interruptOnCancel"
_AGAIN_SECONDS = 0.2


def pool_name(cluster: VCluster) -> str:
    """
    >>> from datetime import datetime, timezone
    >>> pool_name(VCluster(name="etl", size=4, created_at=datetime(2025, 1, 1, tzinfo=timezone.utc)))
    'etl@4'
    """
    return f"{cluster.name}@{cluster.size}"


def tag_of(job_id: str) -> str:
    return f"headrace-{job_id}"


class SparkWork:
    """Marks what a thread does in Spark as the work of a job. Without a Spark there is nothing to mark; and one that
    has died must not keep a job from its end: the work itself will find out."""

    def __init__(self, spark: Callable[[], SparkSession | None]) -> None:
        self._spark = spark
        self._pools_of: tuple[Any, set[str]] = (None, set())

    @contextmanager
    def marked(self, job_id: str, cluster: VCluster) -> Iterator[Callable[[], dict[str, int]]]:
        """Until the block ends, what this thread starts in Spark is the job's. Gives a function that counts it."""
        context = self._context()
        if context is None:
            yield dict
            return
        tag = tag_of(job_id)
        before: dict[str, str | None] = {}
        try:
            before = {key: context.getLocalProperty(key) for key in (_POOL, _INTERRUPT)}
            self._ensure_pool(context, cluster)
            context.setLocalProperty(_POOL, pool_name(cluster))
            context.setLocalProperty(_INTERRUPT, "true")
            context.addJobTag(tag)
        except (Py4JError, OSError) as error:
            _log.warning("Spark could not be told about the job %s: %s", job_id, error)
        try:
            yield lambda: counted(context, tag)
        finally:
            try:
                context.removeJobTag(tag)
                for key, value in before.items():
                    context.setLocalProperty(key, value)
            except (Py4JError, OSError) as error:
                _log.warning("Spark could not be told that the job %s has ended: %s", job_id, error)

    def cancel(self, job_id: str) -> None:
        """Stop what the job does in Spark at this moment."""
        context = self._context()
        if context is None:
            return
        try:
            context.cancelJobsWithTag(tag_of(job_id))
        except (Py4JError, OSError) as error:
            _log.warning("Spark could not be asked to stop the job %s: %s", job_id, error)

    def _context(self) -> Any:
        return getattr(self._spark(), "sparkContext", None)

    def _ensure_pool(self, context: Any, cluster: VCluster) -> None:
        """Add the cluster's pool, with its weight: Spark would make one by itself, with a weight of 1.

        No lock: two threads may both add it. Then the later one is used, and the other has the same weight.
        """
        owner, known = self._pools_of
        if owner is not context:
            known = set()
            self._pools_of = (context, known)
        name = pool_name(cluster)
        if name in known:
            return
        if context.getConf().get("spark.scheduler.mode", "FIFO").upper() == "FAIR":
            scheduler = context._jvm.org.apache.spark.scheduler
            root = context._jsc.sc().taskScheduler().rootPool()
            if root.getSchedulableByName(name) is None:
                root.addSchedulable(scheduler.Pool(name, scheduler.SchedulingMode.FAIR(), 0, cluster.size))
        known.add(name)


class Stopper:
    """Stops the Spark work of jobs that nobody wants any more, again and again until they have ended: a statement may
    start its next Spark job right after one was stopped. One thread does it for all, while there are any."""

    def __init__(self, cancel: Callable[[str], None]) -> None:
        self._cancel = cancel
        self._lock = threading.Condition()
        self._jobs: set[LiveJob] = set()
        self._thread: threading.Thread | None = None

    def stop(self, job: LiveJob) -> None:
        with self._lock:
            self._jobs.add(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="stop-jobs", daemon=True)
                self._thread.start()
            self._lock.notify()

    def abandon(self) -> None:
        """Spark is gone: a thread that waits for its answer waits forever. The next job to stop gets another one."""
        with self._lock:
            self._thread = None
            self._jobs.clear()

    def _run(self) -> None:
        me = threading.current_thread()
        while True:
            with self._lock:
                if self._thread is not me:
                    return
                self._jobs = {job for job in self._jobs if not job.done}
                if not self._jobs:
                    self._thread = None
                    return
                jobs = list(self._jobs)
            for job in jobs:
                self._cancel(job.id)
            with self._lock:
                self._lock.wait(_AGAIN_SECONDS)
