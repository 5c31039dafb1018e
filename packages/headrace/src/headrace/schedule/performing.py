"""Making attempts at a run, one after the other, until it has ended: refreshes and tasks, by schedule and by hand.

Every step can be done again. A run changes here first and its row in the history after that, so a database that is
away for a while holds up the schedule and loses nothing of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from headrace.catalog.records import RunState
from headrace.compute.jobs import LiveJob
from headrace.errors import Bug, Cancelled, EnvironmentFault, HeadraceError, RefreshRunning, TooBusy
from headrace.schedule import attempts
from headrace.schedule.attempts import FINISHED, Failure
from headrace.schedule.definitions import Definitions
from headrace.schedule.live import LiveRun, Outcome
from headrace.schedule.work import Runs, Work

LONGEST_REASON = 2000

_REFUSED_SECONDS = 60.0
"""So long it is tried to submit a job while Spark or the database is away, or the queue full."""
_REFUSED_PAUSE = 2.0
_MOST_LOST = 2
_STOP_SECONDS = 60.0
"""So long a job has to stop."""
_LOOK_SECONDS = 1.0
"""Nobody tells when a job that waited begins."""
_log = logging.getLogger(__name__)


class Performer:
    """Takes runs from their first attempt to their outcome. Only for the scheduler's thread."""

    def __init__(
        self,
        runs: Runs,
        work: Work,
        definitions: Definitions,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self._runs = runs
        self._work = work
        self._definitions = definitions
        self._clock = clock
        self._monotonic = monotonic
        self._wake = wake
        self._stuck: dict[str, LiveJob] = {}

    def begin(self, live: LiveRun) -> None:
        """Make an attempt. Whatever keeps it from being a job is its failure."""
        self.save(live)
        live.begun, live.retry_at, live.waits_for = True, None, ()
        try:
            job = self._submitted(live)
        except (EnvironmentFault, TooBusy) as fault:
            self._refused(live, fault)
            return
        except HeadraceError as error:
            self.fail(live, Failure.of(error))
            return
        except Exception as error:
            _log.exception("%s could not be started.", live.item.name)
            self.fail(live, Failure(Bug.code, attempts.clean(f"{type(error).__name__}: {error}")))
            return
        live.job, live.running_since, live.timed_out_at, live.refused_since = job, None, None, None
        job.on_done(lambda _: self._wake())
        if live.run is not None:
            live.run = live.run.model_copy(update={"state": "QUEUED", "job_id": job.id})
            live.changed = True
            self.save(live)

    def watch(self, live: LiveRun) -> None:
        """See how far its job is: whether it began, takes too long, or has ended."""
        job = live.job
        if job is None:
            return
        if job.done:
            self._job_ended(live, job)
        elif live.run is not None and job.job.status == "RUNNING":
            if live.running_since is None:
                live.running_since = self._monotonic()
                started = live.run.started_at or job.job.started_at
                live.run = live.run.model_copy(update={"state": "RUNNING", "started_at": started})
                live.changed = True
            self._watch_time(live, job, live.running_since)

    def stuck(self) -> frozenset[str]:
        """The items of which a job goes on that was given up: no other may run beside it."""
        self._stuck = {each: job for each, job in self._stuck.items() if not job.done}
        return frozenset(self._stuck)

    def _watch_time(self, live: LiveRun, job: LiveJob, since: float) -> None:
        """Have a job stop whose time is over. One that does not is given up after a while: somebody must hear of it,
        and code that is stuck may be so for ever."""
        limit, now = live.item.timeout_seconds, self._monotonic()
        if not limit or now < since + limit:
            return
        if live.timed_out_at is None:
            live.timed_out_at = now
            job.cancel()
        elif now >= live.timed_out_at + _STOP_SECONDS:
            _log.error("The job %s of %s does not stop; its run is given up.", job.id, live.item.name)
            self._stuck[live.item.id], live.job = job, None
            self.fail(live, attempts.timed_out(limit, job.id))

    def save(self, live: LiveRun) -> None:
        """Bring its row in the history up to date."""
        if live.run is None:
            return
        if not live.recorded:
            # An attempt to write it that failed may have written it.
            if not (live.tried_to_record and self._runs.get(live.run.id) is not None):
                live.tried_to_record, live.changed = True, False
                self._runs.add(live.run)
            live.recorded = True
        if live.changed:
            self._runs.update(live.run)
            live.changed = False

    def give_up(self, live: LiveRun, state: RunState, reason: str) -> None:
        """End the run without a further attempt. One that failed already stays failed."""
        if live.run is None:
            live.outcome = Outcome("SKIPPED", attempts.clean(reason)[:LONGEST_REASON])
            return
        tried = live.run.attempt > 1
        live.run = attempts.not_run(live.run, "FAILED" if tried else state, reason[:LONGEST_REASON], self._clock())
        live.changed = True
        self._finish(live)

    def seconds_left(self, live: LiveRun) -> float | None:
        """Until it must be looked at again, if nobody tells before that."""
        if live.retry_at is not None:
            left = live.retry_at - self._monotonic()
            return left if left > 0 else _LOOK_SECONDS  # Something holds it up.
        if live.job is None or live.run is None:
            return None
        if live.running_since is None:
            return _LOOK_SECONDS
        limit = live.item.timeout_seconds
        if not limit:
            return None
        until = live.running_since + limit if live.timed_out_at is None else live.timed_out_at + _STOP_SECONDS
        return until - self._monotonic()

    # ------------------------------------------------------------------ one attempt

    def _submitted(self, live: LiveRun) -> LiveJob:
        """The attempt as a job."""
        if live.run is not None:
            return self._work.run_task(self._definitions.tasks[live.item.id], live.run)
        target = live.item.next_tick(max(live.tick, self._clock()))
        return self._work.refresh(self._definitions.tables[live.item.id], live.tick, target)

    def _refused(self, live: LiveRun, fault: EnvironmentFault | TooBusy) -> None:
        now = self._monotonic()
        if live.refused_since is None:
            live.refused_since = now
            _log.warning("%s cannot be started, and is tried again: %s", live.item.name, fault.message)
        if now - live.refused_since < _REFUSED_SECONDS:
            live.retry_at = now + _REFUSED_PAUSE
        elif live.run is None and isinstance(fault, TooBusy):
            # The queue is full, which is no fault of the table; its next tick is the next try.
            self.give_up(live, "SKIPPED", fault.message)
        else:
            self.fail(live, Failure.of(fault))

    def _job_ended(self, live: LiveRun, job: LiveJob) -> None:
        error, live.job = job.error, None
        if live.run is None and isinstance(error, EnvironmentFault) and live.lost < _MOST_LOST:
            # Spark ended under it, or has not come back yet: no fault of the table, unless it is the one that does it.
            live.lost += 1
            live.retry_at = self._monotonic() + _REFUSED_PAUSE
            return
        if live.run is None:
            live.outcome = _outcome_of_refresh(live, error, job.id)
            return
        live.run = live.run.model_copy(update={"started_at": live.run.started_at or job.job.started_at})
        if error is None:
            live.run = attempts.succeeded(live.run, job.result, self._clock())
            live.changed = True
            self._finish(live)
        elif live.timed_out_at is not None and isinstance(error, Cancelled):
            self.fail(live, attempts.timed_out(live.item.timeout_seconds))
        else:
            self.fail(live, Failure.of(error))

    def fail(self, live: LiveRun, failure: Failure) -> None:
        """An attempt has failed; a task may have another."""
        live.refused_since = None
        if live.run is None:
            told = failure.message[:LONGEST_REASON]
            live.outcome = Outcome("FAILED", told, code=failure.code, held_up=failure.held_up)
            return
        live.run = attempts.failed(live.run, failure, retries=live.item.retries, now=self._clock())
        live.changed = True
        if live.run.state in FINISHED:
            self._finish(live)
        else:
            self.wait_for_retry(live)

    def wait_for_retry(self, live: LiveRun) -> None:
        """Its last attempt failed, and there is another."""
        assert live.run is not None
        live.begun = True
        live.retry_at = self._monotonic() + attempts.retry_pause(live.run.attempt - 1)

    def _finish(self, live: LiveRun) -> None:
        run = live.run
        assert run is not None
        live.job = live.retry_at = None
        reason = attempts.reason_of(run)
        live.outcome = Outcome(
            attempts.mark_state_of(run), reason and reason[:LONGEST_REASON], run.job_id, run.error_code
        )


def _outcome_of_refresh(live: LiveRun, error: HeadraceError | None, job_id: str) -> Outcome:
    if error is None:
        return Outcome("SUCCEED", job_id=job_id)
    # That names are told once: what reads this knows which table it is about.
    told = attempts.clean(error.kept).removeprefix(f"The refresh of {live.item.name} failed: ")[:LONGEST_REASON]
    if isinstance(error, RefreshRunning | Cancelled):
        # Somebody refreshes it by hand, or did not want it refreshed: no fault of the table.
        return Outcome("SKIPPED", told, job_id)
    return Outcome("FAILED", told, job_id, error.code, attempts.is_held_up(error))
