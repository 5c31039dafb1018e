"""Work in the JVM that is waited for until it has ended there, whoever interrupts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from headrace.interrupts import interrupts_deferred

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_SECONDS = 0.2

Outcome = TypeVar("Outcome")


def to_its_end(session: SparkSession, work: Callable[[], Outcome]) -> Outcome:
    """Whoever interrupts a commit, once or often, waits until it has ended in the JVM: before that, nobody can say
    how."""
    from pyspark.util import InheritableThread

    found: list[Outcome] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            failed.append(error)

    worker = InheritableThread(target=run)
    with interrupts_deferred() as interrupted:
        worker.start()
        while worker.is_alive():
            worker.join(_LOOK_SECONDS)
            if interrupted.is_set():
                session.sparkContext.cancelAllJobs()
    if interrupted.is_set():
        raise KeyboardInterrupt
    if failed:
        raise failed[0]
    return found[0]
