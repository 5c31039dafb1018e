"""A line: jobs of which one runs at a time, in the order in which they came. Those of a session are one.

A job has its turn when nobody is before it any more. One that is cancelled while it waits leaves the line, and that
brings nobody behind it nearer to the one at work.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.compute.jobs import LiveJob

_log = logging.getLogger(__name__)


class Line:
    """Jobs that have not ended. Each is given its turn once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[LiveJob, bool] = {}
        """In their order, and whether each has arrived."""
        self._when_empty: list[Callable[[], None]] = []

    def join(self, job: LiveJob) -> None:
        """Take a place at the end. Until the job has arrived, it has no turn, and those behind it wait."""
        with self._lock:
            self._jobs[job] = False

    def arrive(self, job: LiveJob) -> bool:
        """The job is ready for its turn: whether that has come. One that has left the line waits for nobody."""
        with self._lock:
            if job not in self._jobs:
                return True
            self._jobs[job] = True
            return self._first() is job

    def leave(self, job: LiveJob) -> LiveJob | None:
        """The job has ended. Gives the one whose turn has come by that."""
        with self._lock:
            was_first = self._first() is job
            self._jobs.pop(job, None)
            first = self._first()
            following = first if was_first and first is not None and self._jobs[first] else None
            waiting: list[Callable[[], None]] = []
            if first is None:
                waiting, self._when_empty = self._when_empty, []
        for listener in waiting:
            try:
                listener()
            except Exception:
                _log.exception("What was to follow the job %s failed.", job.id)
        return following

    def when_empty(self, listener: Callable[[], None]) -> None:
        """Call the listener once, when no job is left: now, or in the thread that ends the last one."""
        with self._lock:
            if self._jobs:
                self._when_empty.append(listener)
                return
        listener()

    def _first(self) -> LiveJob | None:
        return next(iter(self._jobs), None)
