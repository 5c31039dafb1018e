"""Code of users in a thread of its own, which can be broken off in the middle of a loop.

Not in the job's thread: what is broken off may be a call of Spark's, and the connection of that thread is of no use
afterwards. It ends with the thread.
"""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Callable

from pyspark import InheritableThread

from headrace import running

LEAVE_SECONDS = 10.0
"""What was stopped and goes on for so long, as in a long sleep, is left alone."""
_LOOK_SECONDS = 0.05
_AGAIN_SECONDS = 1.0
_log = logging.getLogger(__name__)


class Interrupted(BaseException):
    """The job of this code was stopped. No Exception: code that catches those must not live on by it."""


def interruptible(work: Callable[[], None], name: str) -> None:
    """Do the work for the job of this thread. When that is stopped, the work is broken off wherever it is."""
    job = running.current()
    if job is None:
        work()
        return
    failed: list[BaseException] = []

    def within() -> None:
        try:
            with running.begin(job):
                work()
        except BaseException as error:  # It is raised again in the job's thread.
            failed.append(error)

    thread = InheritableThread(within, name=f"code-{job.id}", daemon=True)
    thread.start()
    _wait(thread, job, name)
    if job.stopped is not None:
        raise job.stopped
    if failed:
        raise failed[0]


def _wait(thread: threading.Thread, job: running.Running, name: str) -> None:
    stopped_at = told_at = None
    while thread.is_alive():
        thread.join(_LOOK_SECONDS)
        now = time.monotonic()
        if job.stopped is None:
            continue
        stopped_at = now if stopped_at is None else stopped_at
        if now - stopped_at > LEAVE_SECONDS:
            _log.warning("The code %s of job %s does not end, and is left alone.", name, job.id)
            return
        if told_at is None or now - told_at > _AGAIN_SECONDS:
            told_at = now
            if thread.is_alive():  # The number of one that is gone is soon another's.
                _raise_in(thread)


def _raise_in(thread: threading.Thread) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Interrupted))
