"""What becomes of a task's run when one attempt at it has ended: pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from headrace.catalog.records import MarkState, RunState, TaskRun
from headrace.compute.jobs import INTERRUPTED
from headrace.errors import Cancelled, EnvironmentFault, HeadraceError, TimedOut, with_hint
from headrace.result import Result

FINISHED: tuple[RunState, ...] = ("SUCCEED", "FAILED", "SKIPPED", "CANCELLED")
LONGEST_OUTPUT = 64 * 1024

_FIRST_PAUSE = 10.0
_LONGEST_PAUSE = 300.0


@dataclass(frozen=True)
class Failure:
    """Why an attempt did not succeed."""

    code: str
    message: str
    output: str | None = None
    """The end of what it printed."""
    held_up: bool = False
    """Whether it is no fault of what was to be run."""

    @classmethod
    def of(cls, error: HeadraceError) -> Failure:
        output = getattr(error, "output", None)
        printed = clean(output)[-LONGEST_OUTPUT:] if isinstance(output, str) else None
        return cls(error.code, clean(error.kept), printed, is_held_up(error))


def is_held_up(error: HeadraceError) -> bool:
    """Whether this is a fault of what surrounds all runs. Where Spark ended each time that a run was tried, the run may
    be the reason."""
    return isinstance(error, EnvironmentFault) and not error.spark_ended


SERVER_ENDED = Failure("INTERRUPTED", INTERRUPTED)


def timed_out(seconds: int, stuck: str | None = None) -> Failure:
    """`stuck` is the id of a job that does not stop."""
    told = f"The run took longer than its TIMEOUT of {seconds} seconds"
    if stuck is None:
        return Failure(TimedOut.code, f"{told}.")
    what_next = "It is not run again until that has ended; a restart of the server ends it."
    return Failure(TimedOut.code, with_hint(f"{told}, and its job {stuck} does not stop.", what_next))


def retry_pause(failed: int) -> float:
    """Seconds to wait after so many failed attempts.

    >>> [retry_pause(failed) for failed in (1, 2, 3, 6, 1000)]
    [10.0, 20.0, 40.0, 300.0, 300.0]
    """
    return min(_FIRST_PAUSE * 2.0 ** (min(failed, 10) - 1), _LONGEST_PAUSE)


def succeeded(run: TaskRun, result: Result | None, now: datetime) -> TaskRun:
    told = {"error_code": None, "error_message": None, "output": _said(result)}
    return run.model_copy(update={**told, "state": "SUCCEED", "ended_at": now})


def failed(run: TaskRun, failure: Failure, *, retries: int, now: datetime) -> TaskRun:
    """The run after an attempt that failed: ended, or WAITING for the next one with what this one said. One that was
    cancelled is not tried again."""
    told = {"error_code": failure.code, "error_message": failure.message, "output": failure.output}
    if failure.code == Cancelled.code:
        return run.model_copy(update={**told, "state": "CANCELLED", "ended_at": now})
    if run.attempt <= retries:
        return run.model_copy(update={**told, "state": "WAITING", "attempt": run.attempt + 1})
    return run.model_copy(update={**told, "state": "FAILED", "ended_at": now})


def not_run(run: TaskRun, state: RunState, reason: str, now: datetime) -> TaskRun:
    """The run ends without an attempt, or without a further one."""
    return run.model_copy(update={"state": state, "reason": clean(reason), "ended_at": now})


def mark_state_of(run: TaskRun) -> MarkState:
    """How a finished run leaves its mark. A cancelled one is a tick left out on somebody's wish, no failure."""
    return run.state if run.state == "SUCCEED" or run.state == "FAILED" else "SKIPPED"


def reason_of(run: TaskRun) -> str | None:
    """Why it did not succeed."""
    return None if run.state == "SUCCEED" else run.reason or run.error_message


def clean(text: str) -> str:
    """Without halves of characters, which no database takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _said(result: Result | None) -> str | None:
    """What the last statement or the program said: its one value, or how many rows it gave."""
    if result is None:
        return None
    if len(result) == 1 and len(result.columns) == 1:
        return clean(str(result.rows[0][0]))[-LONGEST_OUTPUT:]
    return f"{len(result)} {'row' if len(result) == 1 else 'rows'}"
