"""Sessions with the lake: on a server one for each of dbt's threads, taken up again by the next node.

An embedded lake is opened once in the process; its threads have sessions of their own, too. A session in which a node
has left something (a setting, a current schema, a temporary view) is closed with the node: the next one must not find
it.
"""

from __future__ import annotations

import math
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from dbt.adapters.events.logging import AdapterLogger

from dbt.adapters.headrace.building import TEMPORARY
from dbt.adapters.headrace.column import quote
from dbt.adapters.headrace.credentials import HeadraceCredentials
from dbt.adapters.headrace.cursor import Cursor, first_words, without_comments_before
from headrace.errors import Cancelled, Forbidden, HeadraceError, NotFound, QueryFailed, RefreshRunning, SessionReset
from headrace.result import Result
from headrace.sql.parser import parse
from headrace.sql.statements import SparkStatement

if TYPE_CHECKING:
    from headrace.client import RemoteLake
    from headrace.compute.jobs import LiveJob
    from headrace.lake_session import LakeSession
    from headrace.settings import Settings

_log = AdapterLogger("Headrace")
_LEAVE_STATE = ("SET", "RESET", "USE", "DECLARE", "CACHE", "UNCACHE", "EXECUTE", "BEGIN")
_TEMPORARY = ("TEMP", "TEMPORARY")
_ONLY_READ = ("DESC", "DESCRIBE", "SHOW", "SELECT", "WITH", "EXPLAIN")
_ONLY_LOOK = ("SELECT", "DESC", "DESCRIBE", "SHOW")
_OWN_VIEW = re.compile(
    rf"(?:create or replace temporary view|drop view if exists)\s+`([^`.]+{TEMPORARY}[^`.]*)`(?!\.)", re.IGNORECASE
)
_CANCEL_SECONDS = 3.0
_CANCEL_PAUSE = 1.0
_LOOK_SECONDS = 0.05
# Another writer committed first: nothing of the statement was done, and doing it again is what Delta asks for.
_CONFLICT = re.compile(
    r"DELTA_(CONCURRENT_\w+|METADATA_CHANGED|PROTOCOL_CHANGED)|Concurrent(Append|Delete\w*)Exception"
)
_REFRESH_PAUSE = 0.5
_LONGEST_REFRESH_PAUSE = 5.0
_CONFLICT_PAUSES = (0.2, 0.5, 1.0, 2.0, 4.0)


class Turns:
    """Tables whose writers in this process got into each other's way. From then on they take turns: a statement that
    loses a race was computed for nothing, and with many threads one may lose every time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: dict[tuple[str, ...], threading.Lock] = {}

    def of(self, text: str) -> threading.Lock | None:
        """What the statement has to wait for."""
        return self._of.get(_written(text)) if self._of else None

    def begin(self, text: str) -> threading.Lock | None:
        """The statement has lost a race."""
        table = _written(text)
        with self._lock:
            return self._of.setdefault(table, threading.Lock()) if table else None


TURNS = Turns()


class Session:
    """One session of the lake, with the face of a database connection. dbt commits nothing: each statement is committed
    when it succeeds."""

    def __init__(self, credentials: HeadraceCredentials) -> None:
        self._credentials = credentials
        self.tag: str | None = None
        """What SHOW JOBS shows beside the statements: the node, unless the profile has a tag of its own."""
        self.leaves_streams = False
        """Whether what runs next shall leave the table streams that it reads where they are."""
        self.remembered: dict[str, list[tuple[str, str, str]]] = {}
        """The columns of relations that the node has asked for, with types and comments, while nothing was changed."""
        self._left_state = False
        self._own_views: set[str] = set()
        self._streams_stay: bool | None = False
        """As the lake has it; None when that is not known."""
        self._guard = threading.Lock()
        self._busy = 0
        self._cancelled = False
        self._tidying = False
        self._has_schema = False

    # What the two kinds of lake do in their own ways

    @property
    def zone(self) -> ZoneInfo:
        """In which timestamps without a zone are."""
        raise NotImplementedError

    @property
    def home(self) -> str:
        """The lake's own workspace."""
        raise NotImplementedError

    def _run(self, text: str) -> Result:
        raise NotImplementedError

    def _run_python(self, code: str, name: str) -> Result:
        raise NotImplementedError

    def _cancel(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    # What they share

    @property
    def has_state(self) -> bool:
        """Whether the next node would find something of this one: more than the views that the adapter makes for itself
        and drops."""
        return self._left_state or bool(self._own_views)

    def run(self, text: str) -> Result:
        """One statement. One that lost a race of commits is tried again, and the refresh of a table that is just being
        refreshed waits for its turn, however long that takes."""
        pause = _REFRESH_PAUSE
        try:
            while True:
                try:
                    return self._guarded(lambda: self._run(text), text)
                except RefreshRunning as running:
                    if self._cancelled:
                        raise
                    if pause == _REFRESH_PAUSE:
                        _log.info(f"{running.message} Waiting for it to end.")
                    self._wait_unless_cancelled(pause)
                    pause = min(2 * pause, _LONGEST_REFRESH_PAUSE)
        finally:
            self._note(text)

    def _wait_unless_cancelled(self, seconds: float) -> None:
        """The statement that follows is what says that it was cancelled."""
        end = time.monotonic() + seconds
        while not self._cancelled and time.monotonic() < end:
            time.sleep(min(_LOOK_SECONDS, seconds))

    def _note(self, text: str) -> None:
        """What a statement leaves in the session."""
        words = first_words(text)
        if words and words[0] not in _ONLY_READ:
            self.remembered.clear()
        own = _OWN_VIEW.match(without_comments_before(text))
        if own is None:
            self._left_state = self._left_state or leaves_state(text)
        elif words[0] == "DROP":
            self._own_views.discard(own[1].lower())
        else:
            self._own_views.add(own[1].lower())

    def run_python(self, code: str, name: str) -> Result:
        """Have a Python model run on the lake's Spark. It may make temporary views, or set what it likes."""
        try:
            with self._begun():
                return self._in_session(lambda: self._run_python(code, name), "")
        finally:
            self._left_state = True
            self.remembered.clear()

    def _guarded(self, work: Callable[[], Result], text: str) -> Result:
        """Do what can be cancelled from another thread, and again what lost a race."""
        with self._begun():
            turn = TURNS.of(text)
            for pause in _CONFLICT_PAUSES:
                try:
                    with self._in_turn(turn):
                        return self._in_session(work, text)
                except QueryFailed as error:
                    if self._cancelled or not _CONFLICT.search(error.message):
                        raise
                turn = TURNS.begin(text)
                time.sleep(pause * random.uniform(0.5, 1.5))
                self._require_wanted()
            with self._in_turn(turn):
                return self._in_session(work, text)

    @contextmanager
    def _begun(self) -> Iterator[None]:
        """From here on there is something to cancel. What was cancelled before does not begin."""
        with self._guard:
            self._require_wanted()
            self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1

    def _require_wanted(self) -> None:
        if self._cancelled and not self._tidying:
            raise Cancelled("dbt was interrupted before this statement began.")

    @contextmanager
    def _in_turn(self, turn: threading.Lock | None) -> Iterator[None]:
        if turn is None:
            yield
            return
        while not turn.acquire(timeout=_LOOK_SECONDS):
            if self._cancelled and not self._tidying:
                raise Cancelled("dbt was interrupted while this statement waited for another.")
        try:
            yield
        finally:
            turn.release()

    def _in_session(self, work: Callable[[], Result], text: str) -> Result:
        """The lake may have ended the session, or Spark may have begun anew; then the statement was not run. Where the
        node had left nothing in it, another one does as well."""
        try:
            self._agree_on_streams(text)
            return work()
        except SessionReset:
            self._has_schema, self._streams_stay = False, None
            if self.has_state:
                raise
        self._use_schema()
        self._agree_on_streams(text)
        return work()

    def _agree_on_streams(self, text: str) -> None:
        if self._streams_stay is not self.leaves_streams and not only_looks(text):
            self._run(f"SET move_streams = {'false' if self.leaves_streams else 'true'}")
            self._streams_stay = self.leaves_streams

    def begin_node(self) -> None:
        """Before a node uses it: no earlier cancel counts, and names without a schema mean the profile's."""
        self._cancelled = self._tidying = self._left_state = self.leaves_streams = False
        self.remembered.clear()
        if not self._has_schema:
            self._use_schema()

    def _use_schema(self) -> None:
        wanted = f"{quote(self._credentials.database)}.{quote(self._credentials.schema)}"
        try:
            self._run(f"USE {wanted}")
            self._has_schema = True
        except (NotFound, Forbidden):
            # dbt creates it before the first model. Who may see nothing of a schema is not told that it is not there.
            pass

    def cursor(self) -> Cursor:
        return Cursor(self)

    def tell_cancelled(self) -> None:
        """From another thread: nothing of the node begins after this."""
        with self._guard:
            self._cancelled = True

    def cancel(self) -> None:
        """Cancel what runs, from another thread; nothing of the node begins after this. A statement that is just being
        handed over is waited for: only then is there something to cancel. Where that takes long, dbt goes on with
        other sessions meanwhile."""
        self.tell_cancelled()
        if not self._cancels_until(time.monotonic() + _CANCEL_SECONDS, _LOOK_SECONDS):
            rest = (math.inf, _CANCEL_PAUSE)
            threading.Thread(target=self._cancels_until, args=rest, name="cancel", daemon=True).start()

    def _cancels_until(self, deadline: float, pause: float) -> bool:
        """Whether nothing runs any more."""
        while time.monotonic() < deadline:
            with self._guard:
                if self._tidying or not self._busy or not self._cancelled:
                    return True
                self._cancel()
            time.sleep(pause)
        return False

    @contextmanager
    def tidying(self) -> Iterator[None]:
        """What runs in here clears away what the node has left: also after a cancel, and none reaches it."""
        with self._guard:
            self._tidying = True
        try:
            yield
        finally:
            self._tidying = False

    def commit(self) -> None:
        """Nothing is left to do."""

    def rollback(self) -> None:
        """Nothing can be undone."""

    @property
    def tag_in_use(self) -> str | None:
        return self._credentials.query_tag or self.tag


class RemoteSession(Session):
    """A session on a server."""

    def __init__(self, credentials: HeadraceCredentials, lake: RemoteLake) -> None:
        super().__init__(credentials)
        self._lake = lake

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self._lake.timezone)

    @property
    def home(self) -> str:
        # A session that asks for no schema begins in the lake's own.
        return (self._lake.schema or self._credentials.database).split(".")[0]

    def _run(self, text: str) -> Result:
        return self._lake.run("statements", self._body(sql=text))

    def _run_python(self, code: str, name: str) -> Result:
        return self._lake.run("python", self._body(code=code, name=name))

    def _cancel(self) -> None:
        self._lake.cancel()

    def close(self) -> None:
        self._lake.close()

    def _body(self, **fields: str) -> dict[str, Any]:
        return {**fields, "query_tag": self.tag_in_use} if self.tag_in_use else dict(fields)


class EmbeddedSession(Session):
    """A session of a lake that is open in this process."""

    def __init__(self, credentials: HeadraceCredentials, session: LakeSession, settings: Settings) -> None:
        super().__init__(credentials)
        self._session = session
        self._settings = settings
        self._jobs: set[LiveJob] = set()

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self._settings.timezone)

    @property
    def home(self) -> str:
        return self._settings.workspace

    def _run(self, text: str) -> Result:
        return self._result(self._session.submit(text, self.tag_in_use))

    def _run_python(self, code: str, name: str) -> Result:
        from headrace.session.code import work_of

        work = work_of(code, name)
        return self._result(self._session.submit_work(work.run, text=work.text, query_tag=self.tag_in_use))

    def _result(self, job: LiveJob) -> Result:
        self._jobs.add(job)
        try:
            job.wait()
        finally:
            self._jobs.discard(job)
        if job.error is not None:
            raise job.error
        assert job.result is not None, "a job that has ended has a result or an error"
        job.result.job_id = job.id  # type: ignore[attr-defined]
        return job.result

    def _cancel(self) -> None:
        for job in tuple(self._jobs):
            job.cancel()

    def close(self) -> None:
        self._session.close()


def only_looks(text: str) -> bool:
    """Whether it is certain that this is one statement which moves no stream, whatever the session says of them.

    >>> [only_looks(text) for text in ("select 1;", "select 1; insert into t values (1)", "with a as (table t) from a")]
    [True, False, False]
    """
    words = first_words(text)
    return bool(words) and words[0] in _ONLY_LOOK and ";" not in text.rstrip("; \n")


def leaves_state(text: str) -> bool:
    """Whether the next statement of the session could find something of this one.

    >>> [leaves_state(text) for text in ("set time zone 'UTC'", "use other", "create temporary function f", "select 1")]
    [True, True, True, False]
    """
    words = first_words(text)
    return bool(words) and (words[0] in _LEAVE_STATE or any(word in _TEMPORARY for word in words))


def _written(text: str) -> tuple[str, ...]:
    """The table that a statement writes; nothing for what writes none, or many."""
    try:
        statement = parse(text)
    except HeadraceError:
        return ()
    writes = statement.writes if isinstance(statement, SparkStatement) else ()
    return tuple(part.lower() for part in writes[0].parts) if len(writes) == 1 else ()


def in_zone(moment: datetime, zone: ZoneInfo) -> datetime:
    """A result's timestamps are in the lake's zone without saying so."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)
