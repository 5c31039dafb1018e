"""All virtual clusters of a lake and the jobs that live on them.

A job's record is written when it is submitted, when it starts and when it ends, by whichever thread brings that about
and never under a lock. What happens between belongs to memory: a process that dies leaves its jobs to
`settle_unfinished`.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from headrace import running
from headrace.catalog.records import Job, RefreshRecord, State, VCluster
from headrace.catalog.store import Store
from headrace.compute.jobs import LiveJob, as_error, new_job_id, status_of
from headrace.compute.pools import SparkWork, Stopper
from headrace.compute.queue import Cluster
from headrace.compute.queue import State as ClusterState
from headrace.errors import Bug, Cancelled, HeadraceError, NotFound, TooBusy, UserError, spark_ended
from headrace.interrupts import interrupts_deferred
from headrace.result import Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Compute", "LiveJob"]

_log = logging.getLogger(__name__)
_DAY_SECONDS = 86400.0
_BEFORE_RUNNING: tuple[State, ...] = ("SETUP", "RESUMING_CLUSTER", "QUEUED")


@dataclass
class _Outcome:
    """What came of a job's work. `cause` is what was raised, `error` what is told of it."""

    result: Result | None = None
    error: HeadraceError | None = None
    cause: BaseException | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    """What it read and gave, as the record has it."""


class Compute:
    """Takes jobs, runs them on their clusters, and lets others look, wait and cancel."""

    def __init__(
        self,
        store: Store,
        clock: Callable[[], datetime],
        *,
        spark: Callable[[], SparkSession | None],
        kept_days: int = 7,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        """Of no other process, also where all of them have the same number."""
        self._store = store
        self._clock = clock
        self._kept = timedelta(days=kept_days)
        self._monotonic = monotonic
        self._spark = SparkWork(spark)
        self._stopper = Stopper(self._spark.cancel)
        self._lock = threading.Lock()
        self._live: dict[str, tuple[LiveJob, Cluster]] = {}
        self._unsaved: dict[str, tuple[Job, bool]] = {}
        self._closed = False
        self._watcher: threading.Thread | None = None
        self._tidies = False
        self._woken = threading.Event()
        self._clusters = {record.name: self._new_cluster(record) for record in store.clusters.all()}
        self._prune_at = 0.0
        self._prune()

    # ------------------------------------------------------------------ jobs

    def submit(
        self,
        work: Callable[[], Result],
        *,
        text: str,
        creator: str,
        vcluster: str,
        query_tag: str | None = None,
        session_id: str | None = None,
        priority: int = 0,
        refresh: tuple[RefreshRecord, ...] = (),
        queued: bool = True,
        after: LiveJob | None = None,
    ) -> LiveJob:
        """Have the work run on a cluster as soon as it has a slot, and `after` another has ended; or, not `queued`, at
        once and beside the slots.

        The first refresh has the job's id, as the work will find it.
        """
        cluster = self._cluster(vcluster)
        job = self._new_job(
            work, text=text, creator=creator, cluster=cluster, query_tag=query_tag, session_id=session_id,
            priority=priority, refresh=refresh,
        )  # fmt: skip
        if not queued:
            self._enter(job, cluster, cluster.welcome)
            thread = threading.Thread(target=self._perform, args=(job, cluster), name=f"job-{job.id}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                self._end(job, _Outcome(error=TooBusy(f"No thread could be started: {error}.", retry_after=5.0)))
            return job
        resumes = self._enter(job, cluster, cluster.admit)
        try:
            self._tell_refreshes(job, "SETUP")
            if resumes:
                job.move("RESUMING_CLUSTER")
                self._tell_refreshes(job, "RESUMING_CLUSTER")
            job.move("QUEUED")
            self._tell_refreshes(job, "QUEUED")
            self._store.jobs.add(job.job)
            job.recorded = True
        except BaseException as error:
            cluster.withdraw(job)
            self._forget(job, as_error(job, error))
            raise
        if after is not None and not after.done:
            cluster.hold(job)
            after.on_done(lambda _: self._enqueue(job, cluster))
        else:
            self._enqueue(job, cluster)
        return job

    def _enqueue(self, job: LiveJob, cluster: Cluster) -> None:
        if not cluster.enqueue(job):
            self._end(job, _Outcome(error=job.running.stopped))

    def run_here(
        self, work: Callable[[], Result], *, text: str, creator: str, vcluster: str, query_tag: str | None = None
    ) -> Result:
        """Run the work as a job in this thread, without waiting for a slot; what is part of a job already stays so.
        Such a job is recorded when it ends."""
        if running.current() is not None:
            return work()
        cluster = self._cluster(vcluster)
        job = self._new_job(work, text=text, creator=creator, cluster=cluster, query_tag=query_tag)
        self._enter(job, cluster, cluster.welcome)
        outcome = self._worked(job, cluster)
        with interrupts_deferred() as interrupted:
            self._end(job, outcome)
            job.wait()  # Another may be about to end it.
        if interrupted.is_set():
            raise KeyboardInterrupt
        if outcome.cause is not None and not isinstance(outcome.cause, Exception):
            raise outcome.cause
        if job.error is not None:
            raise job.error from (outcome.cause if outcome.cause is not job.error else job.error.__cause__)
        if job.result is None:
            raise Bug(f"The job {job.id} ended without a result.")
        return job.result

    def live(self, job_id: str) -> LiveJob | None:
        """The job, if it has not ended yet."""
        with self._lock:
            found = self._live.get(job_id)
        return None if found is None else found[0]

    def jobs(self) -> list[LiveJob]:
        """Those that have not ended, in the order of their submission."""
        with self._lock:
            return [job for job, _ in self._live.values()]

    def cancel(self, job_id: str, by: str) -> LiveJob:
        """Have the job end CANCELLED. One that runs has ended only when its thread has left it."""
        job = self.live(job_id)
        if job is None:
            if self._store.jobs.get(job_id) is None:
                raise NotFound(f"There is no job '{job_id}'.", hint="SHOW JOBS lists them.")
            raise UserError(f"The job '{job_id}' has ended already.", hint="DESC JOB tells how.")
        self._stop(job, Cancelled(f"The job was cancelled by {by}."))
        return job

    def spark_lost(self, reason: str) -> None:
        """Every running job ends now; its thread may be stuck in a call that Spark will never answer."""
        self._stopper.abandon()
        for job in self.jobs():
            if job.began is not None:
                job.running.stop(spark_ended(reason))
                self._end(job, _Outcome(error=job.running.stopped))

    # ------------------------------------------------------------------ clusters

    def state(self, name: str) -> ClusterState:
        return self._cluster(name).state()

    def running(self, name: str) -> int:
        return self._cluster(name).counts()[0]

    def waiting(self, name: str) -> int:
        return self._cluster(name).counts()[1]

    def suspend(self, name: str, force: bool) -> None:
        """Take no new jobs. Those that are here are finished first, or with `force` cancelled."""
        cluster = self._cluster(name)
        reason = Cancelled(f"The virtual cluster {cluster.record.name} was suspended by force.") if force else None
        self._stopped(cluster.suspend(reason))

    def resume(self, name: str) -> None:
        self._cluster(name).resume()
        self._watch()

    def changed(self, record: VCluster) -> None:
        """A cluster is new or has other settings. Whether it is suspended is told by `suspend` and `resume`."""
        with self._lock:
            cluster = self._clusters.setdefault(record.name, self._new_cluster(record))
        cluster.changed(record)
        self._watch()

    def dropped(self, name: str) -> None:
        """A cluster is gone; what was left on it is cancelled."""
        with self._lock:
            cluster = self._clusters.pop(name.lower(), None)
        if cluster is not None:
            reason = f"The virtual cluster {cluster.record.name} was dropped."
            refusal = partial(NotFound, reason, hint="SHOW VCLUSTERS lists them.")
            self._stopped(cluster.close(Cancelled(reason), refusal))

    # ------------------------------------------------------------------ time

    def tick(self) -> float:
        """Do what time has brought: runtime limits, clusters without work, old records. Gives the seconds until the
        next of these."""
        due = [self._prune_at - self._monotonic()]
        with self._lock:
            clusters = list(self._clusters.values())
        for cluster in clusters:
            late, next_look = cluster.look()
            for job in late:
                self._stopper.stop(job)
            if next_look is not None:
                due.append(next_look)
        if due[0] <= 0:
            self._prune()
            due[0] = _DAY_SECONDS
        return min(due)

    def close(self, patience: float) -> None:
        """Cancel every job and wait for their threads, so many seconds at most; then they end without them."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            clusters = list(self._clusters.values())
        reason = Cancelled("The lake was closed before this had ended.")
        for cluster in clusters:
            self._stopped(cluster.close(reason, _lake_is_closed))
        deadline = time.monotonic() + patience
        for job in self.jobs():
            job.running.stop(reason)
            self._stopper.stop(job)
        for job in self.jobs():
            if not job.wait(max(0.0, deadline - time.monotonic())):
                self._end(job, _Outcome(error=job.running.stopped))
        self._save_unsaved()
        self._woken.set()
        if self._watcher is not None:
            self._watcher.join(max(1.0, deadline - time.monotonic()))

    def keep_tidy(self) -> None:
        """From now on, old records are deleted each day: of a lake that stays open."""
        self._tidies = True
        self._watch()

    def _watch(self) -> None:
        """Have somebody look at the clock, when there is something that it decides."""
        with self._lock:
            timed = self._tidies or any(cluster.is_timed for cluster in self._clusters.values())
            if self._closed or not timed:
                return
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._keep_looking, name="compute-clock", daemon=True)
                self._watcher.start()
        self._woken.set()

    def _keep_looking(self) -> None:
        pause = 0.0
        while True:
            self._woken.wait(pause)
            self._woken.clear()
            if self._closed:
                return
            try:
                pause = self.tick()
            except Exception:
                _log.exception("Looking after the virtual clusters failed.")
                pause = 1.0

    def _prune(self) -> None:
        self._prune_at = self._monotonic() + _DAY_SECONDS
        self._store.prune(self._clock(), jobs=self._kept)

    # ------------------------------------------------------------------ the way of a job

    def _new_job(
        self,
        work: Callable[[], Result],
        *,
        text: str,
        creator: str,
        cluster: Cluster,
        query_tag: str | None = None,
        session_id: str | None = None,
        priority: int = 0,
        refresh: Iterable[RefreshRecord] = (),
    ) -> LiveJob:
        now = self._clock()
        record = Job(
            id=new_job_id(now),
            status="SETUP",
            creator=creator,
            text=text,
            vcluster=cluster.record.name,
            priority=priority,
            query_tag=query_tag,
            session_id=session_id,
            owner=self.owner,
            submitted_at=now,
        )
        refreshes = tuple(
            each.model_copy(update={"job_id": each.job_id if position else record.id})
            for position, each in enumerate(refresh)
        )
        job = LiveJob(record, work, self._stop, refresh=refreshes)
        job.running.resumes = partial(self._resumes, job, cluster)
        return job

    def _enter(self, job: LiveJob, cluster: Cluster, let_in: Callable[[LiveJob], bool | None]) -> bool:
        """Make the job known, if the cluster lets it in."""
        answer = let_in(job)
        with self._lock:
            if not self._closed:
                self._live[job.id] = (job, cluster)
                return bool(answer)
        cluster.withdraw(job)
        cluster.left(job)
        raise _lake_is_closed()

    def _forget(self, job: LiveJob, error: HeadraceError) -> None:
        """Its submission failed."""
        if job.claim_end():
            with self._lock:
                self._live.pop(job.id, None)
            self._settle_refreshes(job, self._clock(), error.message)
            job.settle(job.job, None, error)

    def _perform(self, job: LiveJob, cluster: Cluster) -> None:
        self._end(job, self._worked(job, cluster))

    def _worked(self, job: LiveJob, cluster: Cluster) -> _Outcome:
        """The work itself, on this thread; whatever it raises."""
        if cluster.is_timed:
            self._watch()
        counts: dict[str, int] = {}
        try:
            with running.begin(job.running), self._spark.marked(job.id, cluster.record) as readings:
                try:
                    running.require_wanted()
                    if job.recorded:
                        self._store.jobs.update(job.job)
                    result = job.work()
                    counts |= {"output_rows": len(result), "output_bytes": int(result.to_arrow().nbytes)}
                finally:
                    counts |= _summed(readings(), job.running.counts)
        except BaseException as error:  # A thread outlives what it runs, and a job always has an end.
            return _Outcome(error=as_error(job, error), cause=error, counts=counts)
        return _Outcome(result, counts=counts)

    def _resumes(self, job: LiveJob, cluster: Cluster, begins: bool) -> None:
        """The job, at work, waits for its cluster, or has waited: its time begins anew."""
        if not begins:
            cluster.start_again(job)
            if cluster.is_timed:
                self._watch()
            return
        job.move("RESUMING_CLUSTER")
        for record in job.refresh:
            try:
                present = self._store.refresh(record.job_id)
                if present is not None and present.state in _BEFORE_RUNNING:
                    self._store.start_refresh(present.model_copy(update={"state": "RESUMING_CLUSTER"}))
            except Exception:
                _log.exception("That the refresh %s waits for its cluster could not be written down.", record.job_id)

    def _stop(self, job: LiveJob, reason: HeadraceError) -> None:
        with self._lock:
            place = self._live.get(job.id)
        if place is None:
            return
        if place[1].stop(job, reason):
            self._end(job, _Outcome(error=reason))
        elif job.began is not None:
            self._stopper.stop(job)

    def _stopped(self, jobs: tuple[list[LiveJob], list[LiveJob]]) -> None:
        """What a cluster has stopped: jobs that waited, and jobs at work."""
        waited, at_work = jobs
        for job in waited:
            self._end(job, _Outcome(error=job.running.stopped))
        for job in at_work:
            self._stopper.stop(job)

    def _end(self, job: LiveJob, outcome: _Outcome) -> None:
        """Give the job its end, once: record, refreshes, slot, and then those who wait for it."""
        if not job.claim_end():
            return
        error, result = outcome.error, outcome.result
        changes: dict[str, object] = {
            "status": status_of(error),
            "ended_at": self._clock(),
            "phases": {name: round(seconds, 6) for name, seconds in list(job.running.phases.items())},
            **outcome.counts,
        }
        if error is not None:
            changes |= {"error_code": error.code, "error_message": error.kept}
        ended = job.job.model_copy(update=changes)
        self._save(ended, job.recorded)
        self._settle_refreshes(job, self._clock(), ended.error_message)
        with self._lock:
            _, cluster = self._live.pop(job.id)
        cluster.left(job)
        job.settle(ended, result, error)
        if cluster.is_timed:
            self._watch()

    # ------------------------------------------------------------------ records

    def _save(self, ended: Job, recorded: bool) -> None:
        """Write the end down. A database that is away must not keep anybody from a result: it gets it later."""
        try:
            self._store.jobs.update(ended) if recorded else self._store.jobs.add(ended)
        except Exception:
            _log.exception("The end of the job %s (%s) could not be written down yet.", ended.id, ended.status)
            with self._lock:
                self._unsaved[ended.id] = (ended, recorded)
            return
        self._save_unsaved()

    def _save_unsaved(self) -> None:
        with self._lock:
            unsaved, self._unsaved = self._unsaved, {}
        for number, (ended, recorded) in enumerate(unsaved.values()):
            try:
                self._store.jobs.update(ended) if recorded else self._store.jobs.add(ended)
            except Exception:
                _log.exception("The end of the job %s could not be written down yet.", ended.id)
                with self._lock:
                    self._unsaved |= dict(list(unsaved.items())[number:])
                return

    def _tell_refreshes(self, job: LiveJob, state: State) -> None:
        for record in job.refresh:
            self._store.start_refresh(record.model_copy(update={"state": state}))

    def _settle_refreshes(self, job: LiveJob, now: datetime, reason: str | None) -> None:
        """Those that the work never took over must not stand in the history as if they waited still."""
        for record in job.refresh:
            try:
                present = self._store.refresh(record.job_id)
                if present is None or present.state not in _BEFORE_RUNNING:
                    continue
                told = reason or "The job ended without refreshing this table."
                self._store.finish_refresh(
                    present.model_copy(update={"state": "FAILED", "end_time": now, "error_message": told})
                )
            except Exception:
                _log.exception("The end of the refresh %s could not be written down.", record.job_id)

    # ------------------------------------------------------------------ names

    def _new_cluster(self, record: VCluster) -> Cluster:
        return Cluster(record, self._perform, self._clock, self._monotonic)

    def _cluster(self, name: str) -> Cluster:
        with self._lock:
            found = self._clusters.get(name.lower())
        if found is not None:
            return found
        record = self._store.clusters.named(name)
        if record is None:
            known = ", ".join(cluster.name for cluster in self._store.clusters.all())
            raise NotFound(f"There is no virtual cluster '{name}'.", hint=f"There are: {known}.")
        with self._lock:
            return self._clusters.setdefault(record.name, self._new_cluster(record))


def _summed(here: Mapping[str, int], elsewhere: Mapping[str, int]) -> dict[str, int]:
    """What the lake's Spark did for a job, and what was done without it. Of very many Spark jobs only their number is
    known: then nothing is told of the rest.

    >>> _summed({"spark_jobs": 1, "rows_read": 5}, {"spark_jobs": 2, "rows_read": 7}), _summed({}, {"rows_written": 1})
    ({'spark_jobs': 3, 'rows_read': 12}, {'rows_written': 1})
    >>> _summed({"spark_jobs": 900}, {"spark_jobs": 2, "rows_read": 7})
    {'spark_jobs': 902}
    """
    both = (here, elsewhere)
    partial = any("spark_jobs" in each and "rows_read" not in each for each in both)
    names = ["spark_jobs"] if partial else list({**here, **elsewhere})
    return {name: sum(each.get(name, 0) for each in both) for name in names}


def _lake_is_closed() -> UserError:
    return UserError("This lake is being closed; it takes no new statements.", hint="Open it again, then try again.")
