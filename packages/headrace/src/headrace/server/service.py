"""What all routes work with: the lake, who is logged in, sessions, statements and their results."""

from __future__ import annotations

import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypeVar

import anyio
import anyio.to_thread

from headrace import running
from headrace.catalog.records import AuditEntry, Job, User
from headrace.catalog.store import Store
from headrace.errors import Cancelled, Dangerous, Forbidden, HeadraceError, ServiceFault, TooBusy, Unauthenticated
from headrace.security import passwords
from headrace.security.own_jobs import is_own
from headrace.security.roles import LOCAL_USER, Principal, Role
from headrace.security.tokens import digest_of
from headrace.server.auth import Authenticator, Caller, bearer, now
from headrace.server.metrics import Metrics
from headrace.server.models import Login, LoneStatementRequest, Statement
from headrace.server.results import ResultFiles, gone
from headrace.server.sessions import OpenSession, Sessions
from headrace.server.statements import About, Outcome, Statements, Tracked, missing
from headrace.settings import Settings
from headrace.sql import statements as sql
from headrace.sql.parser import parse

if TYPE_CHECKING:
    from headrace.compute.clusters import LiveJob
    from headrace.engine import Lake

Given = TypeVar("Given")

_CHANGES_ACCESS = (
    sql.CreateUser, sql.AlterUser, sql.DropUser, sql.GrantPrivilege, sql.CreateToken, sql.DropToken,
)  # fmt: skip
_SUBMITTED_AT_ONCE = 40
_ENDED_AT_ONCE = 20
_LOGINS_AT_ONCE = 4
_LOGINS_WAITING = 50
"""Argon2 takes 64 MiB and a core for each: a storm of logins must leave both to the others."""
_TIDY_SECONDS = 15.0
_PRUNE_EVERY = timedelta(days=1)
_LOOK_SECONDS = 0.05
_AUDITED_LENGTH = 4000
_LONGEST_TASK = timedelta(days=366)
"""A token of a run ends with it; this is for one whose end nobody sees."""
_JOB_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
_log = logging.getLogger(__name__)


class Service:
    """One server. It exists before its lake is open, so that /health can answer from the beginning."""

    def __init__(self, settings: Settings, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self.local_token = f"hs_{secrets.token_urlsafe(32)}"
        self.stopping = False
        """No new work is taken; what was begun goes on for a while."""
        self.stopped = threading.Event()
        """Nobody is waited for any more."""
        self.authenticator = Authenticator(self.local_token)
        files = ResultFiles(
            settings.path,
            zone=settings.timezone,
            rows_max=settings.result_rows_max,
            bytes_max=settings.result_bytes_kept,
        )
        self.statements = Statements(files, bytes_kept=settings.result_bytes_kept, clock=clock)
        self.sessions = Sessions(
            self.statements, zone=settings.timezone, idle_seconds=settings.session_idle_seconds, clock=clock
        )
        self.metrics = Metrics(self._gauges, self._gauges_of_tables)
        self.url: str | None = None
        """Where programs of this machine find it, once it listens."""
        self.connections: Callable[[], int] = lambda: 0
        """How many clients are connected; whoever listens for it tells."""
        self._lake: Lake | None = None
        self._audit_pruned: datetime | None = None
        self._logins_at_once = anyio.CapacityLimiter(_LOGINS_AT_ONCE)
        self.submitting = anyio.CapacityLimiter(_SUBMITTED_AT_ONCE)
        self.ending = anyio.CapacityLimiter(_ENDED_AT_ONCE)
        """Threads for what writes to the operations database: when that is locked for a minute, those who look at
        results and tokens go on in others, and so do those who cancel."""

    # ------------------------------------------------------------------ the lake

    def begin(self, lake: Lake) -> str | None:
        """Serve this lake from now on. On its first start an administrator is made, whose password is returned:
        nobody can read it anywhere later."""
        self.statements.files.prepare()
        self.statements.ended.append(self._follow)
        password = _first_administrator(lake)
        lake.on_access_changed(self._access_changed)
        self._lake = lake
        return password

    @property
    def lake(self) -> Lake:
        """The open lake. Raises while the server starts."""
        if self._lake is None:
            raise ServiceFault("The server is starting.", hint="Try again in a few seconds.")
        return self._lake

    @contextmanager
    def task_access(self, maker: Principal) -> Iterator[dict[str, str]]:
        """For a program that a task runs: where the server is, and a token that ends with the run. It may what its
        maker may, and makes nothing that outlives it."""
        if self.url is None:
            yield {}
            return
        # Who opened the lake's own files is no user here; the local token, which lies beside them, is an administrator.
        name = LOCAL_USER if maker.unlimited else maker.name
        role: Role = "admin" if maker.unlimited else maker.role
        logins = self.authenticator.logins
        token, _ = logins.add(Principal(name, role, by_token=True), logins.endings(name), _LONGEST_TASK)
        try:
            yield {"HEADRACE_SERVICE": self.url, "HEADRACE_TOKEN": token}
        finally:
            logins.end(digest_of(token))

    def accepting(self) -> Lake:
        """The lake, for new work. Raises while the server stops or Spark is away."""
        lake = self.lake
        if self.stopping:
            raise ServiceFault("The server is stopping.", hint="Connect again when it has been started.")
        if not lake.spark_is_up:
            raise ServiceFault("Spark is being started again.", hint="Try again in half a minute.")
        return lake

    def health(self) -> Literal["ok", "starting", "degraded"]:
        if self._lake is None and not self.stopping:
            return "starting"
        return "ok" if self._lake is not None and not self.stopping and self._lake.spark_is_up else "degraded"

    async def drain(self, grace: float, patience: float) -> None:
        """Take no new work; give what runs so much grace, then cancel it and wait for that, then let all waiting
        clients go."""
        self.stopping = True
        lake = self._lake
        if lake is not None and lake.scheduler is not None:
            lake.scheduler.pause()
        with anyio.move_on_after(grace):
            await _all_ended(self.statements.in_flight(), grace)
            while lake is not None and lake.compute.jobs():  # Also what the schedule began.
                await anyio.sleep(_LOOK_SECONDS)
        left = self.statements.in_flight()
        for statement in left:
            await self.off_loop(statement.cancel, self.ending)
        await _all_ended(left, patience)
        self.stopped.set()
        for statement in self.statements.in_flight():
            statement.wake_all()
        if lake is not None:
            await self._write_failures(lake.store, patience)

    async def _write_failures(self, store: Store, patience: float) -> None:
        """All that is still to be told of failed logins, unless the database keeps us for too long."""

        def work() -> None:
            try:
                self.authenticator.write_failures(store, everything=True)
            except HeadraceError as fault:
                _log.warning("That logins failed could not be written to the audit log: %s", fault.message)

        with anyio.move_on_after(patience):
            await anyio.to_thread.run_sync(work, limiter=self.ending, abandon_on_cancel=True)

    async def off_loop(self, work: Callable[[], Given], among: anyio.CapacityLimiter | None = None) -> Given:
        """Do what blocks in a thread: one `among` so many, or one of those for quick looks."""
        return await anyio.to_thread.run_sync(work, limiter=among)

    # ------------------------------------------------------------------ who asks

    async def caller(self, authorization: str | None) -> Caller:
        token = bearer(authorization)
        store = self.lake.store
        known = self.authenticator.known(token)
        if known is not None:
            return known
        return await self.off_loop(lambda: self.authenticator.by_api_token(token, store))

    async def login(self, username: str, password: str, address: str) -> Login:
        store = self.lake.store

        def work() -> Login:
            token, expires_at, user = self.authenticator.login(username, password, address, store)
            return Login(token=token, expires_at=expires_at, username=user.name, role=user.role)

        await anyio.sleep(self.authenticator.turn(username, address))
        if self._logins_at_once.statistics().tasks_waiting >= _LOGINS_WAITING:
            raise TooBusy("Too many logins wait already.", hint="Try again in a moment.", retry_after=2.0)
        try:
            made = await anyio.to_thread.run_sync(work, limiter=self._logins_at_once)
        except Unauthenticated:
            self.metrics.login_failed()
            _log.warning("Failed login as %s from %s.", username, address)
            raise
        _log.info("Login of %s from %s.", made.username, address)
        return made

    def _access_changed(self, user: str) -> None:
        """The user has another password or role, or is gone. Who sets a password of their own stays logged in; when
        nobody can tell, everything of the user's ends."""
        try:
            found = self.lake.store.users.user(user)
        except HeadraceError as fault:
            _log.warning("All logins and sessions of %s end, because the user cannot be looked up: %s", user, fault)
            found = None
        self.authenticator.logins.end_all(user, but=None if found is None else self._login_at_work(found))
        self.sessions.end_unlike(user, None if found is None else found.role)
        if found is None:
            self.statements.forget_user(user)

    def _login_at_work(self, user: User) -> str | None:
        """The user's own login whose statement this thread runs, as long as it has the role that the user has now."""
        job = running.current()
        live = None if job is None else self.lake.compute.live(job.id)
        login = None if live is None else self.sessions.login_of(live.job.session_id, user.name)
        held = None if login is None else self.authenticator.logins.find(login)
        return login if held is not None and held.role == user.role else None

    # ------------------------------------------------------------------ statements

    def begin_session(
        self, caller: Caller, *, schema: str | None, vcluster: str | None, query_tag: str | None = None
    ) -> OpenSession:
        """A new session for the caller. Blocks until Spark has made it."""
        lake, user = self.accepting(), caller.principal
        session = self.sessions.add(
            user,
            lambda session_id: lake.session(
                user, schema=schema, vcluster=vcluster, query_tag=query_tag, session_id=session_id
            ),
            login=caller.digest,
        )
        try:
            # From here on, whoever takes the user's rights away ends it. What was taken before is seen now.
            self.require_still(caller)
        except BaseException:
            self.sessions.end(session)
            raise
        return session

    def require_still(self, caller: Caller) -> None:
        """Raise unless the caller has the same rights as when the request came in. Blocks."""
        self.authenticator.require_still(caller, self.lake.store)

    async def execute(
        self,
        caller: Caller,
        session: OpenSession,
        text: str,
        *,
        wait_seconds: float,
        query_tag: str | None,
        address: str,
    ) -> Statement:
        """Run one statement of SQL."""

        def submit() -> tuple[LiveJob, About]:
            live = session.session.submit(text, query_tag)
            return live, _about(text, address)

        return await self.run(caller, session, submit, wait_seconds=wait_seconds)

    async def execute_alone(self, caller: Caller, asked: LoneStatementRequest, *, address: str) -> Statement:
        """Run one statement in a session of its own, which ends with it."""
        session = await self.off_loop(
            lambda: self.begin_session(caller, schema=asked.schema_name, vcluster=asked.vcluster), self.submitting
        )

        def submit() -> tuple[LiveJob, About]:
            live = session.session.submit(asked.sql, asked.query_tag)
            live.on_done(lambda _: self.sessions.end(session))
            return live, _about(asked.sql, address)

        try:
            return await self.run(caller, session, submit, wait_seconds=asked.wait_seconds)
        except BaseException:
            # It was refused, or whoever asked has gone; a statement that runs ends its session itself.
            if not self.statements.of_session(session.id):
                self.sessions.end(session)
            raise

    async def run(
        self,
        caller: Caller,
        session: OpenSession,
        submit: Callable[[], tuple[LiveJob, About]],
        *,
        wait_seconds: float,
    ) -> Statement:
        """Have `submit` start a job of the session, and wait for it so long."""
        self.accepting()

        def submitted() -> Tracked:
            self.require_still(caller)
            tracked = self.statements.submit(session.user, session.id, submit)
            if not self.sessions.is_open(session):  # Who ended it did not know of this statement yet.
                tracked.cancel()
            return tracked

        return await self.waited(await self.off_loop(submitted, self.submitting), wait_seconds)

    async def waited(self, tracked: Tracked, seconds: float) -> Statement:
        if not self.stopped.is_set():
            await tracked.wait(seconds)
        self.sessions.touch(tracked.session_id)
        return tracked.answer()

    def tracked(self, job_id: str, user: Principal) -> Tracked | None:
        return self.statements.find(job_id, user)

    async def required(self, job_id: str, user: Principal) -> Tracked:
        """The user's own statement, with its result. One of which only the record is left has none any more."""
        tracked = self.statements.find(job_id, user)
        if tracked is None:
            await self.record(job_id, user)
            raise gone(job_id)
        return tracked

    async def record(self, job_id: str, user: Principal) -> Job:
        """The record of a job of the user's that is no longer followed."""
        store = self.lake.store

        def own() -> Job | None:
            job = store.jobs.get(job_id)
            return job if job is not None and is_own(store, user, job) else None

        job = await self.off_loop(own) if _JOB_ID.fullmatch(job_id) else None
        if job is None:
            raise missing(job_id)
        return job

    def _follow(self, tracked: Tracked, outcome: Outcome) -> None:
        """In the job's thread: counts, and lines of the audit log."""
        ended = outcome.job
        if outcome.error is not None and not isinstance(outcome.error, Cancelled):
            _log.info("The statement of job %s failed: %s.", ended.id, outcome.error.code)
        self.metrics.statement_ended(ended)
        if tracked.about.refreshes and outcome.kept is not None:
            for mode in self.statements.files.column(outcome.kept, "refresh_mode"):
                self.metrics.refreshed(str(mode))
        refused = isinstance(outcome.error, (Forbidden, Dangerous))
        code = tracked.about.code
        if not refused and not tracked.about.changes_access and code is None:
            return
        how = "refused" if refused else "succeeded" if outcome.error is None else f"failed ({outcome.error.code})"
        self.lake.store.users.audit(
            AuditEntry(
                at=now(),
                user=tracked.user.name,
                address=tracked.about.address,
                action="REFUSED" if refused else "STATEMENT" if code is None else "CODE",
                detail=f"{how}: {ended.text[:_AUDITED_LENGTH]}{'' if code is None else f', SHA-256 {code}'}",
            )
        )

    # ------------------------------------------------------------------ housekeeping

    async def keep_tidy(self) -> None:
        """Until cancelled: end idle sessions, drop old results and logins."""
        while True:
            await anyio.sleep(_TIDY_SECONDS)
            try:
                await self.off_loop(self.tidy)
            except Exception:
                _log.exception("Tidying failed; it is tried again.")

    def tidy(self) -> None:
        self.sessions.end_idle()
        self.statements.forget_old()
        self.authenticator.logins.forget_expired()
        if self._lake is not None:
            self.authenticator.write_failures(self._lake.store)
            self._prune_audit(self._lake.store)

    def _prune_audit(self, store: Store) -> None:
        """Once a day."""
        at = now()
        if self._audit_pruned is None or not timedelta(0) <= at - self._audit_pruned < _PRUNE_EVERY:
            store.users.prune_audit(at - timedelta(days=self.settings.audit_days))
            self._audit_pruned = at

    def _gauges(self) -> Iterator[tuple[str, str, str, tuple[tuple[str, float], ...]]]:
        lake = self.lake
        names = [cluster.name for cluster in lake.store.clusters.all()]
        running = tuple((name, float(lake.compute.running(name))) for name in names)
        waiting = tuple((name, float(lake.compute.waiting(name))) for name in names)
        yield "headrace_running_jobs", "Jobs at work", "vcluster", running
        yield "headrace_queued_jobs", "Jobs that wait for a place", "vcluster", waiting
        yield "headrace_sessions", "Open sessions", "", (("", float(len(self.sessions))),)
        up = float(lake.spark_is_up)
        yield "headrace_spark_up", "1 while Spark runs, 0 while it is started again", "", (("", up),)
        loads = lake.loads.committer.conditions()
        yield "headrace_waiting_rows", "Rows that are received and not committed", "", (
            ("", float(sum(each.rows for each in loads))),
        )  # fmt: skip
        oldest = max((each.waits_seconds for each in loads), default=0.0)
        yield "headrace_waiting_rows_seconds", "How long the oldest of them waits", "", (("", oldest),)
        failing = sum(each.is_well is False for each in loads)
        yield "headrace_failing_loads", "Tables whose rows cannot be committed", "", (("", float(failing)),)
        if lake.scheduler is None:
            return
        status = lake.scheduler.status()
        ends = tuple((state, float(count)) for state, count in sorted(status.ends.items()))
        yield "headrace_scheduled_runs", "Scheduled runs that have ended since the start", "state", ends
        yield "headrace_pending_runs", "Scheduled runs that wait or run", "", (("", float(len(status.runs))),)

    def _gauges_of_tables(self) -> Iterator[tuple[str, str, str, tuple[tuple[str, float], ...]]]:
        """For administrators: a table's name is not for those who may not see the table."""
        lake = self.lake
        if lake.scheduler is None:
            return
        lags = tuple(
            (str(fact.name), fact.lag_seconds)
            for fact in lake.watched.facts()
            if fact.lag_seconds is not None and fact.on_schedule and not fact.suspended
        )
        yield "headrace_lag_seconds", "How far a scheduled table is behind", "table", lags


async def _all_ended(statements: list[Tracked], seconds: float) -> None:
    """Until all have ended, or so long."""
    with anyio.move_on_after(seconds):
        for statement in statements:
            await statement.wait(seconds)


def _first_administrator(lake: Lake) -> str | None:
    users = lake.store.users
    if users.count_admins():
        return None
    password = passwords.generated()
    first = User(name=LOCAL_USER, role="admin", password_hash=passwords.hashed(password), created_at=now())
    users.put(first, new=users.user(LOCAL_USER) is None)
    return password


def _about(text: str, address: str) -> About:
    statement = parse(text)
    return About(
        address=address,
        changes_access=isinstance(statement, _CHANGES_ACCESS),
        refreshes=isinstance(statement, sql.RefreshDynamicTables),
    )
