"""A job on its way from its submission to its end, and the jobs that an earlier process left unfinished."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any

from headrace.catalog.jobs import JobStore
from headrace.catalog.records import Job, JobStatus, RefreshRecord
from headrace.compute.line import Line
from headrace.errors import Bug, Cancelled, HeadraceError
from headrace.result import Result
from headrace.running import Running

INTERRUPTED = (
    "The server ended while it ran. If it wrote a table, DESC HISTORY of that table tells whether its commit was made."
)

LONGEST_TEXT = 16_384
"""Characters of a statement that its record keeps."""
_log = logging.getLogger(__name__)


def new_job_id(now: datetime) -> str:
    """Sorts by time, as people expect of a job list."""
    return f"{now:%Y%m%d%H%M%S}{now.microsecond // 1000:03d}{uuid.uuid4().hex[:8]}"


def head_of(text: str) -> str:
    """As much of a statement as is kept of it: many may be megabytes long, and each is kept for days.

    >>> head_of("SELECT 1"), head_of("x" * 20_000)[-23:]
    ('SELECT 1', 'xx… (20,000 characters)')
    """
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}… ({len(text):,} characters)"


class LiveJob:
    """One job of this process, for whoever waits for it. Its result is kept nowhere else.

    Its states follow each other in one order, but that a job at work may have to wait for its cluster; and it ends
    once: the first who claims the end has it, and what a thread brings after that is dropped.
    """

    def __init__(
        self,
        job: Job,
        work: Callable[[], Result],
        cancel: Callable[[LiveJob, HeadraceError], None],
        *,
        ready: Callable[[], None] | None = None,
        refresh: tuple[RefreshRecord, ...] = (),
        line: Line | None = None,
    ) -> None:
        self._job = job
        self._ready = ready
        self._work: Callable[[], Result] | None = work
        self._cancel = cancel
        self._claim = threading.Lock()
        self._listening = threading.Lock()
        self._listeners: list[Callable[[LiveJob], None]] = []
        self._ended = threading.Event()
        self.running = Running(id=job.id, vcluster=job.vcluster)
        """How far it is, and whether it is still wanted."""
        self.refresh = refresh
        """Refreshes that stand in the history from the moment of submission, until the work takes them over."""
        self.line = line or Line()
        """Which jobs it comes after, and before: those of its session."""
        self.recorded = False
        """Whether the operations database knows it already."""
        self.began: float | None = None
        """When it got its slot, on the clock that only runs forward."""
        self.at_work = False
        """Whether what its work needs was there, and the work has begun."""
        self.result: Result | None = None
        self.error: HeadraceError | None = None

    @property
    def id(self) -> str:
        return self._job.id

    @property
    def job(self) -> Job:
        """The record as it is now."""
        return self._job

    @property
    def done(self) -> bool:
        return self._ended.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it has ended, after at most so many seconds."""
        return self._ended.wait(seconds)

    def cancel(self) -> None:
        """Have it end CANCELLED, unless it ends by itself first."""
        self._cancel(self, Cancelled("The job was cancelled."))

    def on_done(self, listener: Callable[[LiveJob], None]) -> None:
        """Call the listener once, when the job has ended, in the thread that ended it: until it returns, that thread
        begins no other job. A job that has ended already calls it here and now."""
        with self._listening:
            if not self.done:
                self._listeners.append(listener)
                return
        self._tell(listener)

    def prepare(self) -> None:
        """Wait for what its work needs."""
        if self._ready is not None:
            self._ready()
        self.at_work = True

    def work(self) -> Result:
        assert self._work is not None
        return self._work()

    # ---- for those who run it

    def move(self, status: JobStatus, **changes: Any) -> None:
        """To another state before the end; after that, there is none."""
        with self._listening:
            if not self.done:
                self._job = self._job.model_copy(update={"status": status, **changes})

    def claim_end(self) -> bool:
        """Whether the caller, and nobody before, is the one to end it."""
        return self._claim.acquire(blocking=False)

    def settle(self, ended: Job, result: Result | None, error: HeadraceError | None) -> None:
        """Tell those who wait. Only for who has claimed the end."""
        self._work = self._ready = None  # They hold a whole session.
        with self._listening:
            self._job, self.result, self.error = ended, result, error
            self._ended.set()
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            self._tell(listener)

    def _tell(self, listener: Callable[[LiveJob], None]) -> None:
        try:
            listener(self)
        except Exception:
            _log.exception("Somebody who waited for the job %s could not be told of its end.", self.id)


def as_error(job: LiveJob, error: BaseException) -> HeadraceError:
    """What the job ends with. Work that was stopped fails in many ways, all of them for that reason."""
    if job.running.stopped is not None:
        return job.running.stopped
    if isinstance(error, HeadraceError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return Cancelled("The job was interrupted.")
    _log.error("The job %s failed in a way that nobody foresaw.", job.id, exc_info=error)
    lines = str(error).strip().splitlines()
    return Bug(f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__)


def status_of(error: HeadraceError | None) -> JobStatus:
    if error is None:
        return "SUCCEED"
    return "CANCELLED" if isinstance(error, Cancelled) else "FAILED"


def settle_unfinished(jobs: JobStore, owner: str, now: datetime) -> list[Job]:
    """Give an end to every job that its process left unfinished. Those of `owner`, who lives, are left alone."""
    settled = []
    for job in jobs.unfinished():
        if job.owner == owner:
            continue
        ended = job.model_copy(
            update={"status": "FAILED", "ended_at": now, "error_code": "INTERRUPTED", "error_message": INTERRUPTED}
        )
        if jobs.update(ended):
            settled.append(ended)
    return settled
