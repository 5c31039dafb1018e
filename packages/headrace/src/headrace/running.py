"""The job that this thread works on: where its time goes, and whether anybody still wants it.

A job is one executed statement. Its thread is the only one that works for it; others may look, or cancel it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from headrace.errors import Cancelled, HeadraceError


@dataclass
class Running:
    """One job while it runs."""

    id: str
    vcluster: str | None = None
    """Where it was submitted to, and runs."""
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds of each phase, in the order in which they began."""
    text: str | None = None
    fraction: float | None = None
    """What the job told last, and how far it was."""
    counts: dict[str, int] = field(default_factory=dict)
    """What was done for it without the lake's own Spark, by the names that a job's record has for it."""
    resumes: Callable[[bool], None] = lambda _: None
    """Told when it begins to wait for its cluster, and when it has waited."""
    is_resuming: bool = False
    _ended: HeadraceError | None = None
    _id_taken: bool = False

    def stop(self, reason: HeadraceError | None = None) -> None:
        """Have the job end with this error at its next look. The first reason stays."""
        if self._ended is None:
            self._ended = reason or Cancelled("The job was cancelled.")

    @property
    def stopped(self) -> HeadraceError | None:
        return self._ended

    def take_id(self) -> str | None:
        """The job's id, for the first refresh that it makes; None for the others."""
        taken, self._id_taken = self._id_taken, True
        return None if taken else self.id

    def give_back_id(self) -> None:
        """The refresh that took the id was not made after all."""
        self._id_taken = False


_here = threading.local()


def current() -> Running | None:
    """The job of this thread."""
    return getattr(_here, "job", None)


@contextmanager
def begin(job: Running) -> Iterator[Running]:
    """Until the block ends, this thread works for the job."""
    before = current()
    _here.job = job
    try:
        yield job
    finally:
        _here.job = before


def require_wanted() -> None:
    """Raise when the job of this thread has been stopped. Called where going on would be a new piece of work."""
    job = current()
    if job is not None and job.stopped is not None:
        raise job.stopped


def tell(text: str, fraction: float | None = None) -> None:
    """Keep what the job tells, for those who ask how far it is."""
    job = current()
    if job is not None:
        job.text, job.fraction = text, fraction


def count(done: Mapping[str, int]) -> None:
    """Add to what was done for the job of this thread without the lake's own Spark."""
    job = current()
    if job is not None:
        for name, number in done.items():
            job.counts[name] = job.counts.get(name, 0) + number


@contextmanager
def resuming() -> Iterator[None]:
    """Until the block ends, the job of this thread waits for its cluster to be there: that is no time of its own."""
    job = current()
    if job is None:
        yield
        return
    job.is_resuming = True
    job.resumes(True)
    try:
        yield
    finally:
        job.is_resuming = False
        job.resumes(False)


@contextmanager
def hiding(hides: Callable[[], bool]) -> Iterator[None]:
    """Until the block ends, errors in this thread tell nothing of rows if `hides` says so; it is asked when there is an
    error to tell."""
    before = getattr(_here, "hides", None)
    _here.hides = hides
    try:
        yield
    finally:
        _here.hides = before


def hides_rows() -> bool:
    """Whether an error in this thread may quote a row that is not for those who are told of it."""
    hides: Callable[[], bool] | None = getattr(_here, "hides", None)
    return hides is not None and hides()


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Count the time of the block to this phase of the job, if there is one."""
    job = current()
    if job is None:
        yield
        return
    began = time.monotonic()
    job.phases.setdefault(name, 0.0)
    try:
        yield
    finally:
        job.phases[name] += time.monotonic() - began
