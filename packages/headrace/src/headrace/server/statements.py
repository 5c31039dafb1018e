"""The statements that clients have sent: at work as jobs, then ended with a result on disk or an error.

A client that waits costs no thread: the job's own thread, when it ends, wakes whoever waits on the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace import running
from headrace.catalog.records import Job
from headrace.errors import (
    Bug,
    Cancelled,
    EnvironmentFault,
    HeadraceError,
    NotFound,
    QueryFailed,
    TooBusy,
    UserError,
    split_hint,
)
from headrace.security.roles import Principal
from headrace.server import models
from headrace.server.problems import NotReady, fault_of, sound
from headrace.server.results import Kept, ResultFiles, gone

if TYPE_CHECKING:
    from headrace.compute.clusters import LiveJob

IN_FLIGHT_PER_USER = 200
KEEP_SECONDS = 600.0
_ENDED_KEPT = 10_000
_ENDED_BYTES = 64 * 1024**2
"""Of what is remembered of statements that have ended, besides their rows: texts, errors, names of columns."""
_ONE_KEPT = 2048
_FINAL = ("SUCCEED", "FAILED", "CANCELLED")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """How a statement ended."""

    job: Job
    error: HeadraceError | None = None
    kept: Kept | None = None
    unkept: HeadraceError | None = None
    """Why there is no result although the statement succeeded."""


@dataclass(frozen=True)
class About:
    """What is to be remembered of a statement for counts and the audit log."""

    address: str | None = None
    changes_access: bool = False
    refreshes: bool = False
    code: str | None = None
    """The digest of the Python code that it runs."""


class Tracked:
    """One statement of a client. It lets go of the job, and of the rows in memory, as soon as that has ended."""

    def __init__(self, user: Principal, session_id: str, live: LiveJob, about: About, used: float) -> None:
        self.id = live.id
        self.about = about
        self.user = user
        self.session_id = session_id
        self.used = used
        self._live: LiveJob | None = live
        self._lock = threading.Lock()
        self._outcome: Outcome | None = None
        self.size = 0
        """About how many bytes it takes in memory, once it has ended."""
        self.counted = False
        """Whether it stands among those that have ended."""
        self._wake: list[Callable[[], None]] = []

    @property
    def outcome(self) -> Outcome | None:
        return self._outcome

    def end(self, outcome: Outcome) -> None:
        """Called once, from any thread."""
        with self._lock:
            self._outcome, self._live = outcome, None
            self.size = _size(outcome)
            waiting, self._wake = self._wake, []
        for wake in waiting:
            wake()

    def wake_all(self) -> None:
        """Let those who wait go, although it has not ended."""
        with self._lock:
            waiting, self._wake = self._wake, []
        for wake in waiting:
            wake()

    def result_dropped(self) -> None:
        with self._lock:
            if self._outcome is not None:
                self._outcome = Outcome(self._outcome.job, self._outcome.error, None, gone(self.id))

    def cancel(self) -> None:
        live = self._live
        # A statement that takes away its own user's rights is let to its end.
        current = running.current()
        if live is not None and (current is None or current.id != self.id):
            try:
                live.cancel()
            except UserError:
                pass  # It has just ended.

    async def wait(self, seconds: float) -> None:
        """Until it has ended or the time is over, without a thread."""
        loop = asyncio.get_running_loop()
        awake = asyncio.Event()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(awake.set)
            except RuntimeError:
                pass  # The loop is closed: the server has stopped, and nobody waits any more.

        with self._lock:
            if self._outcome is not None or seconds <= 0:
                return
            self._wake.append(wake)
        try:
            await asyncio.wait_for(awake.wait(), seconds)
        except asyncio.TimeoutError:
            pass
        finally:
            with self._lock:
                if wake in self._wake:
                    self._wake.remove(wake)

    def kept(self) -> Kept:
        """The result on disk. What stands in its way is raised."""
        outcome = self._outcome
        if outcome is None:
            raise NotReady(f"The job {self.id} has not ended.", hint="Ask for its status with ?wait_seconds=60 first.")
        if outcome.error is not None:
            raise outcome.error
        if outcome.kept is None:
            raise outcome.unkept or gone(self.id)
        return outcome.kept

    def answer(self) -> models.Statement:
        outcome, live = self._outcome, self._live
        if outcome is not None:
            return _ended(outcome)
        if live is None:  # It ended between the two looks.
            return self.answer()
        return _at_work(live)


class Statements:
    """All statements of this server's clients, by job. Those that ended are kept for a while after the last look."""

    def __init__(self, files: ResultFiles, *, bytes_kept: int, clock: Callable[[], float]) -> None:
        self.files = files
        self._bytes_kept = bytes_kept
        self._clock = clock
        self._lock = threading.Lock()
        self._tracked: dict[str, Tracked] = {}
        self._in_flight: Counter[str] = Counter()
        self._ended_count = self._ended_size = 0
        self.ended: list[Callable[[Tracked, Outcome], None]] = []
        """Called in the job's thread after a statement has ended, before its clients know."""

    def submit(self, user: Principal, session_id: str, submit: Callable[[], tuple[LiveJob, About]]) -> Tracked:
        """Have `submit` start a job, and follow it. Blocks while the job is put into its queue."""
        with self._lock:
            if self._in_flight[user.name] >= IN_FLIGHT_PER_USER:
                raise TooBusy(
                    f"{user.name} has {IN_FLIGHT_PER_USER} statements that have not ended.",
                    hint="Wait for some of them, or cancel them.",
                    retry_after=2.0,
                )
            self._in_flight[user.name] += 1
        try:
            live, about = submit()
        except BaseException:
            self._no_longer_in_flight(user.name)
            raise
        tracked = Tracked(user, session_id, live, about, self._clock())
        with self._lock:
            self._tracked[tracked.id] = tracked
        live.on_done(lambda *_: self._end(tracked, live))
        return tracked

    def find(self, job_id: str, user: Principal) -> Tracked | None:
        """The user's own statement, under the role in which it was sent: a token with less than its user's rights does
        not see what the user was given. A look at it keeps its result for longer."""
        with self._lock:
            tracked = self._tracked.get(job_id)
            if tracked is None or tracked.user != user:
                return None
            # The order of the dictionary is that of the last look.
            self._tracked[job_id] = self._tracked.pop(job_id)
            tracked.used = self._clock()
            return tracked

    def of_session(self, session_id: str) -> list[Tracked]:
        """Those that have not ended."""
        with self._lock:
            return [t for t in self._tracked.values() if t.session_id == session_id and t.outcome is None]

    def in_flight(self) -> list[Tracked]:
        with self._lock:
            return [t for t in self._tracked.values() if t.outcome is None]

    def forget_user(self, user: str) -> None:
        """The user is gone: so are the results, and what still runs is cancelled. The statement by which users drop
        themselves is let to its end."""
        current = running.current()
        theirs = [t for t in self._all() if t.user.name == user and (current is None or t.id != current.id)]
        self._forget(iter(theirs))
        for tracked in theirs:
            tracked.cancel()

    def forget_old(self) -> None:
        """Let go of what nobody asked about for ten minutes."""
        limit = self._clock() - KEEP_SECONDS
        self._forget(t for t in self._all() if t.outcome is not None and t.used < limit)

    def _end(self, tracked: Tracked, live: LiveJob) -> None:
        """In the job's thread, which begins no other job before the rows are on disk: so the rows in memory are those
        of as many jobs as there are threads, however many results wait to be fetched."""
        try:
            outcome = self._outcome(live)
        except Exception as error:
            _log.exception("The end of job %s could not be written down.", tracked.id)
            outcome = Outcome(live.job, Bug(f"The result of job {tracked.id} was lost: {error}."))
        for listener in self.ended:
            try:
                listener(tracked, outcome)
            except Exception:
                _log.exception("Something that follows job %s failed.", tracked.id)
        tracked.used = self._clock()
        tracked.end(outcome)
        self._no_longer_in_flight(tracked.user.name)
        with self._lock:
            forgotten = tracked.id not in self._tracked
            if not forgotten:
                tracked.counted = True
                self._ended_size += tracked.size
                self._ended_count += 1
        self._forget(iter(self._too_many()))
        if outcome.kept is None:
            return
        if forgotten:
            self.files.drop(outcome.kept)
        else:
            self._make_room()

    def _too_many(self) -> list[Tracked]:
        """Those that were asked about longest ago, so that what is remembered of the rest fits; the newest stays."""
        with self._lock:
            count, size = self._ended_count - _ENDED_KEPT, self._ended_size - _ENDED_BYTES
            if count <= 0 and size <= 0:
                return []
            found: list[Tracked] = []
            for tracked in self._tracked.values():
                if (count <= 0 and size <= 0) or len(found) == self._ended_count - 1:
                    break
                if tracked.counted:
                    count, size = count - 1, size - tracked.size
                    found.append(tracked)
            return found

    def _outcome(self, live: LiveJob) -> Outcome:
        job, error, result = live.job, live.error, live.result
        if error is not None or result is None:
            return Outcome(job, error or _recorded_error(job) or Bug(f"Job {job.id} ended without a result."))
        try:
            return Outcome(job, kept=self.files.write(result))
        except EnvironmentFault as fault:
            _log.error("%s", fault.message)
            return Outcome(job, unkept=fault)

    def _make_room(self) -> None:
        """Drop the results that were asked for longest ago until the rest fits."""
        with self._lock:
            found = [(t, o.kept) for t in self._tracked.values() if (o := t.outcome) is not None and o.kept is not None]
            total = sum(kept.size for _, kept in found)
            dropped = []
            for tracked, kept in found[:-1]:
                if total <= self._bytes_kept:
                    break
                total -= kept.size
                dropped.append((tracked, kept))
        for tracked, kept in dropped:
            tracked.result_dropped()
            self.files.drop(kept)

    def _all(self) -> list[Tracked]:
        with self._lock:
            return list(self._tracked.values())

    def _forget(self, unwanted: Iterator[Tracked]) -> None:
        for tracked in unwanted:
            with self._lock:
                if self._tracked.pop(tracked.id, None) is not None and tracked.counted:
                    self._ended_count -= 1
                    self._ended_size -= tracked.size
            if tracked.outcome is not None and tracked.outcome.kept is not None:
                self.files.drop(tracked.outcome.kept)

    def _no_longer_in_flight(self, user: str) -> None:
        with self._lock:
            self._in_flight[user] -= 1
            if self._in_flight[user] <= 0:
                del self._in_flight[user]


def _size(outcome: Outcome) -> int:
    """What grows with the statement: its text, its error, and what is known of its result."""
    job, kept = outcome.job, outcome.kept
    texts = [job.text, job.error_message or ""]
    if kept is not None:
        texts += [text for column in kept.columns for text in (column.name, column.type)]
    return _ONE_KEPT + sum(map(sys.getsizeof, texts)) + (0 if kept is None else sys.getsizeof(0) * len(kept.starts))


def recorded(job: Job) -> models.Statement:
    """A statement of which only the record is left."""
    return _ended(Outcome(job, _recorded_error(job)))


def missing(job_id: str) -> NotFound:
    return NotFound(f"There is no job {sound(job_id)[:100]} of yours.", hint="SHOW JOBS lists them.")


def _recorded_error(job: Job) -> HeadraceError | None:
    if job.status == "CANCELLED":
        return Cancelled(job.error_message or "The job was cancelled.")
    if job.status != "FAILED":
        return None
    message, hint = split_hint(job.error_message or "The job failed.")
    error = QueryFailed(message, hint=hint)
    error.code = job.error_code or error.code
    return error


def _ended(outcome: Outcome) -> models.Statement:
    job, kept = outcome.job, outcome.kept
    status = job.status
    if outcome.error is not None and status not in ("FAILED", "CANCELLED"):
        status = "FAILED"
    return models.Statement(
        job_id=job.id,
        session_id=job.session_id,
        status=status,
        sql=sound(job.text),
        vcluster=sound(job.vcluster),
        query_tag=None if job.query_tag is None else sound(job.query_tag),
        progress=None,
        phases=job.phases,
        columns=None if kept is None else list(kept.columns),
        row_count=job.output_rows if kept is None else kept.row_count,
        truncated=kept is not None and kept.truncated,
        error=None if outcome.error is None else fault_of(outcome.error),
        start_time=job.started_at,
        end_time=job.ended_at,
    )


def _at_work(live: LiveJob) -> models.Statement:
    job, now = live.job, live.running
    # It has ended for its clients when its rows are on disk.
    status = "RUNNING" if job.status in _FINAL else job.status
    return models.Statement(
        job_id=job.id,
        session_id=job.session_id,
        status=status,
        sql=sound(job.text),
        vcluster=sound(job.vcluster),
        query_tag=None if job.query_tag is None else sound(job.query_tag),
        progress=None if now.text is None else models.ProgressNow(text=sound(now.text), fraction=now.fraction),
        phases=dict(now.phases),
        columns=None,
        row_count=None,
        truncated=False,
        error=None,
        start_time=job.started_at,
        end_time=None,
    )
