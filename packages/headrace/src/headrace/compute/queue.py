"""One virtual cluster: who waits for it, who runs on it, and its threads.

Everything here happens under the cluster's lock, and is quick: neither the database nor Spark is ever asked under it.
A job is *arriving* while its submission is being written down, then it waits, then it holds a slot. Guests run beside
the slots: the statements that must work while all else is busy or suspended, and those of an embedded lake.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable
from datetime import datetime
from typing import Literal

from headrace.catalog.records import VCluster
from headrace.compute.jobs import LiveJob
from headrace.errors import HeadraceError, NotAllowed, TimedOut, TooBusy

ROOM = 1000
"""How many jobs may wait for one cluster, and how many guests it may have."""

_log = logging.getLogger(__name__)

State = Literal["RUNNING", "SUSPENDING", "SUSPENDED", "RESUMING"]


class Waiting:
    """Jobs in the order in which they will run: the higher priority first, among equals the one that came first."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, LiveJob]] = []
        self._arrivals = itertools.count()

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, job: LiveJob) -> None:
        heapq.heappush(self._heap, (-job.job.priority, next(self._arrivals), job))

    def take(self) -> LiveJob:
        return heapq.heappop(self._heap)[2]

    def remove(self, job: LiveJob) -> bool:
        kept = [entry for entry in self._heap if entry[2] is not job]
        found = len(kept) < len(self._heap)
        if found:
            heapq.heapify(kept)
            self._heap = kept
        return found

    def clear(self) -> list[LiveJob]:
        """Give all of them up, in their order."""
        jobs = [entry[2] for entry in sorted(self._heap)]
        self._heap = []
        return jobs


class Cluster:
    """`perform` runs one job to its end on the calling thread, never raises, and calls `left` before it tells others
    of the end: so who has seen a job end finds its slot free."""

    def __init__(
        self,
        record: VCluster,
        perform: Callable[[LiveJob, Cluster], None],
        clock: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._lock = threading.Condition()
        self._record = record
        self._perform = perform
        self._clock = clock
        self._monotonic = monotonic
        self._state: State = "SUSPENDED" if record.suspended else "RUNNING"
        self._arriving: set[LiveJob] = set()
        self._held: set[LiveJob] = set()
        """Jobs that wait for another one's end before they wait for a slot."""
        self._waiting = Waiting()
        self._running: dict[LiveJob, threading.Thread] = {}
        self._guests: set[LiveJob] = set()
        self._workers: set[threading.Thread] = set()
        self._numbers = itertools.count(1)
        self._idle_since = monotonic()
        self._closed: Callable[[], HeadraceError] | None = None

    @property
    def record(self) -> VCluster:
        return self._record

    @property
    def is_timed(self) -> bool:
        """Whether time alone can change something here."""
        return self._record.runtime_limit_seconds > 0 or self._record.auto_suspend_seconds > 0

    def counts(self) -> tuple[int, int]:
        """Jobs that run in a slot, and jobs that wait for one."""
        with self._lock:
            return len(self._running), len(self._waiting) + len(self._arriving) + len(self._held)

    def state(self) -> State:
        with self._lock:
            self._suspend_if_idle()
            return self._state

    # ---- a job's way in

    def admit(self, job: LiveJob) -> bool:
        """Let the job in, or say why not. True when the cluster has to resume for it."""
        with self._lock:
            self._require_open()
            name = self._record.name
            if self._state == "SUSPENDING":
                raise NotAllowed(
                    f"The virtual cluster {name} is being suspended: it finishes its jobs and takes no new ones.",
                    hint=f"Wait, write ALTER VCLUSTER {name} RESUME, or USE VCLUSTER another.",
                )
            if self._state == "SUSPENDED" and not self._record.auto_resume:
                raise NotAllowed(
                    f"The virtual cluster {name} is suspended, and does not resume by itself.",
                    hint=f"Write ALTER VCLUSTER {name} RESUME, or USE VCLUSTER another.",
                )
            if len(self._waiting) + len(self._arriving) + len(self._held) >= ROOM:
                raise TooBusy(
                    f"{ROOM} jobs wait for the virtual cluster {name} already.",
                    hint="Try again later, or use another virtual cluster.",
                    retry_after=5.0,
                )
            self._arriving.add(job)
            if self._state == "SUSPENDED":
                self._state = "RESUMING"
            return self._state == "RESUMING"

    def withdraw(self, job: LiveJob) -> None:
        """Its submission failed."""
        with self._lock:
            self._arriving.discard(job)
            self._arrived()
            self._rest()

    def hold(self, job: LiveJob) -> None:
        """Keep it back until it is enqueued."""
        with self._lock:
            self._arriving.discard(job)
            self._arrived()
            self._held.add(job)

    def enqueue(self, job: LiveJob) -> bool:
        """Have it wait for a slot. False when it was stopped on its way here: then it is the caller's to end."""
        with self._lock:
            self._arriving.discard(job)
            self._held.discard(job)
            self._arrived()
            if job.running.stopped is not None:
                self._rest()
                return False
            self._waiting.put(job)
            self._staff()
            self._lock.notify()
            return True

    def welcome(self, job: LiveJob) -> None:
        """Let it run beside the slots, from now on."""
        with self._lock:
            self._require_open()
            if len(self._guests) >= ROOM:
                raise TooBusy(f"{ROOM} statements run at once already.", hint="Try again later.", retry_after=5.0)
            self._guests.add(job)
            self._start(job)

    def start_again(self, job: LiveJob) -> None:
        """It had to wait for the cluster itself, and has its runtime from now on."""
        with self._lock:
            job.began = self._monotonic()
            job.move("RUNNING")

    # ---- its way out

    def left(self, job: LiveJob) -> None:
        """It has ended: its slot is free, although its thread may be stuck in it. Then another takes its place."""
        with self._lock:
            self._guests.discard(job)
            worker = self._running.pop(job, None)
            if worker is None:
                return
            if worker is not threading.current_thread():
                self._workers.discard(worker)
            self._staff()
            self._rest()
            self._lock.notify_all()

    def stop(self, job: LiveJob, reason: HeadraceError) -> bool:
        """Have a job end for this reason. True when it only waited, and so is the caller's to end."""
        with self._lock:
            job.running.stop(reason)
            waited = self._waiting.remove(job) or job in self._held
            self._held.discard(job)
            if waited:
                self._rest()
            return waited

    # ---- the cluster's own changes

    def changed(self, record: VCluster) -> None:
        """Other settings; whether it is suspended is not one of them."""
        with self._lock:
            self._record = record
            self._staff()
            self._lock.notify_all()

    def resume(self) -> None:
        with self._lock:
            self._require_open()
            if self._state != "RESUMING":
                self._state = "RUNNING"
                self._idle_since = self._monotonic()
            self._staff()

    def suspend(self, reason: HeadraceError | None) -> tuple[list[LiveJob], list[LiveJob]]:
        """Take no new jobs; finish those that are here, or with a reason stop them: gives those that waited, which are
        the caller's to end, and those at work."""
        with self._lock:
            self._require_open()
            if self._state != "SUSPENDED":
                self._state = "SUSPENDING"
            stopped = self._stop_all(reason) if reason is not None else ([], [])
            self._rest()
            return stopped

    def close(self, reason: HeadraceError, refusal: Callable[[], HeadraceError]) -> tuple[list[LiveJob], list[LiveJob]]:
        """Stop everything, for good; who comes later gets the refusal. Gives what `suspend` gives, and the guests."""
        with self._lock:
            self._closed = refusal
            waiting, at_work = self._stop_all(reason)
            for guest in self._guests:
                guest.running.stop(reason)
            self._lock.notify_all()
            return waiting, [*at_work, *self._guests]

    def look(self) -> tuple[list[LiveJob], float | None]:
        """What time has brought: gives the jobs that have run for too long, stopped now, and the seconds after which
        the next look is due. A cluster without work for long enough is suspended."""
        with self._lock:
            now = self._monotonic()
            late: list[LiveJob] = []
            due: list[float] = []
            limit = self._record.runtime_limit_seconds
            for job in (*self._running, *self._guests) if limit else ():
                if job.running.stopped is not None or job.began is None or job.running.is_resuming:
                    continue
                remaining = job.began + limit - now
                if remaining > 0:
                    due.append(remaining)
                    continue
                job.running.stop(
                    TimedOut(
                        f"The job ran longer than the {limit} seconds that the virtual cluster {self._record.name} "
                        "allows.",
                        hint="An administrator sets the limit: "
                        f"ALTER VCLUSTER {self._record.name} SET QUERY_RUNTIME_LIMIT_IN_SECOND = …",
                    )
                )
                late.append(job)
            idle = self._suspend_if_idle()
            return late, min(due if idle is None else [*due, idle], default=None)

    # ---- under the lock

    def _require_open(self) -> None:
        if self._closed is not None:
            raise self._closed()

    def _is_idle(self) -> bool:
        return not (self._arriving or self._held or len(self._waiting) or self._running)

    def _arrived(self) -> None:
        if self._state == "RESUMING":
            self._state = "RUNNING"

    def _rest(self) -> None:
        """What the end of the last job means."""
        if not self._is_idle():
            return
        self._idle_since = self._monotonic()
        if self._state == "SUSPENDING":
            self._state = "SUSPENDED"
            self._lock.notify_all()

    def _suspend_if_idle(self) -> float | None:
        """Suspend the cluster if it has had no work for long enough; or the seconds until then, if time tells."""
        patience = self._record.auto_suspend_seconds
        if not patience or self._state != "RUNNING" or not self._is_idle():
            return None
        remaining = self._idle_since + patience - self._monotonic()
        if remaining > 0:
            return remaining
        self._state = "SUSPENDED"
        self._lock.notify_all()
        return None

    def _stop_all(self, reason: HeadraceError) -> tuple[list[LiveJob], list[LiveJob]]:
        waiting, at_work = [*self._waiting.clear(), *self._held], list(self._running)
        self._held.clear()
        for job in (*waiting, *at_work, *self._arriving):
            job.running.stop(reason)
        return waiting, at_work

    def _start(self, job: LiveJob) -> None:
        job.began = self._monotonic()
        job.move("RUNNING", started_at=self._clock())

    def _staff(self) -> None:
        """As many threads as there are jobs, up to the slots."""
        wanted = min(self._record.max_concurrency, len(self._running) + len(self._waiting))
        while len(self._workers) < wanted and self._closed is None:
            name = f"vc-{self._record.name}-{next(self._numbers)}"
            worker = threading.Thread(target=self._serve, name=name, daemon=True)
            try:
                worker.start()
            except RuntimeError:
                _log.exception("No thread could be started for the virtual cluster %s.", self._record.name)
                return  # The next job that comes or ends tries again.
            self._workers.add(worker)

    # ---- on a worker's thread

    def _serve(self) -> None:
        while (job := self._next()) is not None:
            self._perform(job, self)
            del job  # While this thread waits for the next, the result of the last must not stay in memory.

    def _next(self) -> LiveJob | None:
        """The next job for this thread; None when it is to end."""
        worker = threading.current_thread()
        with self._lock:
            while worker in self._workers:
                slots = self._record.max_concurrency
                if len(self._waiting) and len(self._running) < slots:
                    job = self._waiting.take()
                    self._running[job] = worker
                    self._start(job)
                    return job
                if self._closed is not None or self._state == "SUSPENDED" or len(self._workers) > slots:
                    self._workers.discard(worker)
                    break
                self._lock.wait()
            return None
