"""The one facade: opening a lake and running statements. Wiring only."""

from __future__ import annotations

import getpass
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from headrace import running
from headrace import settings as settings_module
from headrace.catalog.store import Store
from headrace.errors import EnvironmentFault, HeadraceError, UserError
from headrace.progress import Progress, ProgressEvent
from headrace.result import Result, done
from headrace.security.roles import Principal
from headrace.sql.split import split_statements
from headrace.storage.jars import ensure_jars
from headrace.storage.java import check_java
from headrace.storage.lock import LakeLock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.compute.jobs import LiveJob
    from headrace.lake_session import LakeSession
    from headrace.loading.receiving import Form, Receipt
    from headrace.schedule.live import ByHandEnd
    from headrace.schedule.scheduler import Scheduler
    from headrace.scheduled import Access
    from headrace.statements.context import Context

_log = logging.getLogger(__name__)
_STOP_SECONDS = 30.0
_WATCH_SECONDS = 0.5
_LOOK_SECONDS = 0.1
_RETURN_SECONDS = 120.0


def _now() -> datetime:
    return datetime.now(timezone.utc)


def open(path: str | Path | None = None, **settings: Any) -> Lake:
    """Open the lake in this folder, creating it if need be. One process at a time holds a lake."""
    return Lake(settings_module.load(path, **settings))


class Lake:
    """An open lake. Use it as a context manager, or call `close()`."""

    def __init__(self, settings: settings_module.Settings, *, wanted: Callable[[], None] = lambda: None) -> None:
        """`wanted` is called again and again while jars are fetched, and raises when the lake is no longer wanted."""
        from headrace.compute.clusters import Compute
        from headrace.compute.jobs import settle_unfinished
        from headrace.compute.workers import Workers
        from headrace.loading.loader import Loader
        from headrace.schedule.adopting import settle_broken_off

        self._java = check_java()
        self.settings = settings
        self._progress = Progress()
        self._closed = False
        self._owner = f"{socket.gethostname()}:{os.getpid()}"
        self._access_listeners: list[Callable[[str], None]] = []
        self._watching = threading.Event()
        self._spark_lost = False
        self.scheduler: Scheduler | None = None
        self.task_access: Access = lambda maker: nullcontext({})
        """The variables with which the program of a task reaches the server, as long as the block lasts. A server sets
        it: without one there is nothing to reach."""
        self.generation = 0
        """Grows each time Spark is started again: whoever holds a session of an older one must take another."""
        self._lock = LakeLock(settings.path)
        self._lock.acquire()
        try:
            self._jars = ensure_jars(Path(settings.jars), java=self._java, wanted=wanted)
            wanted()
            self.store = Store.open(settings.database_url)
            try:
                settle_unfinished(self.store.jobs, self._owner, _now())
                settle_broken_off(self.store.task_runs, self.store.tasks.all(), _now())
                self.compute = Compute(self.store, _now, spark=lambda: None if self._spark_lost else self.spark)
                self.workers = Workers(
                    settings,
                    self._jars,
                    self._java,
                    in_use=lambda name: self.compute.state(name) != "SUSPENDED",
                )
                self.loads = Loader(
                    self.store.loads,
                    settings.path,
                    _now,
                    zone=ZoneInfo(settings.timezone),
                    home=settings.workspace,
                    spark=self._new_spark_session,
                    submit=self._submit_load,
                    taken=lambda name: self.store.table(name) is not None or self.store.streams.named(name) is not None,
                )
                self._start()
            except BaseException:
                self.store.close()
                raise
        except BaseException:
            self._lock.release()
            raise

    def _start(self) -> None:
        # Spark and everything that imports it is loaded here, not with the package: `headrace --help` stays quick.
        from headrace.statements.startup import prepare
        from headrace.storage.spark import start_spark, stop_spark

        self._stop_spark = stop_spark
        self.spark: SparkSession = start_spark(self.settings, self._jars, java=self._java)
        try:
            self._context = self._new_context()
            prepare(self._context)
            self.loads.recover()
        except BaseException:
            stop_spark()
            raise

    def _new_context(self) -> Context:
        from headrace.refresh.runner import Runner
        from headrace.scheduled import ScheduledWork
        from headrace.statements.context import DECIDE_MEANING, Context
        from headrace.statements.reading import rebind
        from headrace.statements.replacing import adopt
        from headrace.storage.delta import DeltaLogs

        off = frozenset(self.settings.optimisations_off)
        logs = DeltaLogs(off)
        meaning = {key: str(self.spark.conf.get(key)) for key in DECIDE_MEANING}
        context = Context(self.spark, self.store, logs, self.settings, self._progress, _now, meaning)
        context.user = Principal(_system_user(), "admin", unlimited=True)
        context.compute = self.compute
        context.workers = self.workers
        context.loads = self.loads
        context.find_scheduler = lambda: self.scheduler
        context.task_work = lambda guarded: ScheduledWork(self, guarded=guarded, queued=False)
        context.access_changed = self._tell_access_changed
        context.runner = Runner(
            self.spark,
            self.store,
            logs,
            owner=self._owner,
            lease_seconds=self.settings.lease_seconds,
            # Reading a query sets the current schema: in a session that no statement of another thread uses.
            rebind=lambda table: rebind(context.new_session(), table),
            reloaded=lambda table: adopt(context, table),
            progress=self._progress,
            zone=ZoneInfo(self.settings.timezone),
            clock=_now,
            off=off,
        )
        return context

    # ------------------------------------------------------------------ statements

    def sql(self, text: str) -> Result:
        """Run one or more statements separated by `;` and give the last one's result."""
        results = list(self.statements(text))
        return results[-1] if results else done("There was no statement.")

    def statements(self, text: str) -> Iterator[Result]:
        """Run the statements one by one, giving each one's result."""
        from headrace.lake_session import run_here

        self._require_open()
        for part in split_statements(text):
            try:
                yield run_here(self._context, part.text)
            except HeadraceError as error:
                if error.position is not None:
                    error.position = part.in_script(error.position)
                raise

    def session(
        self,
        user: Principal,
        *,
        schema: str | None = None,
        vcluster: str | None = None,
        query_tag: str | None = None,
        guarded: bool = True,
        session_id: str | None = None,
    ) -> LakeSession:
        """A session of this lake for one user, whose statements run as jobs of a virtual cluster."""
        from headrace.lake_session import LakeSession, asked

        self._require_open()
        return asked(
            self,
            lambda: LakeSession(
                self, user, schema=schema, vcluster=vcluster, query_tag=query_tag, guarded=guarded,
                session_id=session_id,
            ),
        )  # fmt: skip

    def require_loadable(self, user: Principal, name: str) -> None:
        """Raise unless this user may send rows to a table of this name."""
        from headrace.lake_session import asked
        from headrace.statements.copying import loadable

        self._require_open()
        self.require_spark()
        asked(self, lambda: loadable(self._context.for_user(user), name))

    def load_rows(self, user: Principal, name: str, body: bytes, form: Form, batch_id: str | None) -> Receipt:
        """Take a batch of rows for a table. When this returns they are on disk, and will be in the table."""
        from headrace.lake_session import asked
        from headrace.statements.copying import receive

        self._require_open()
        self.require_spark()
        return asked(self, lambda: receive(self._context.for_user(user), name, body, form, batch_id))

    def _submit_load(self, work: Callable[[], Result], text: str) -> LiveJob:
        from headrace.lake_session import told

        self.require_spark()
        return self.compute.submit(
            lambda: told(work), ready=self.await_spark, text=text, creator=_system_user(), vcluster="default"
        )

    def _new_spark_session(self) -> SparkSession:
        from headrace.plan.jvm import cloned

        return cloned(self.spark)

    def cancel(self) -> None:
        """Stop the statements that run now in this lake's own session."""
        self.spark.sparkContext.cancelAllJobs()

    def names(self, user: Principal | None = None) -> list[str]:
        """Schemas and tables that the user may see, for completion."""
        from headrace.lake_session import asked

        self._require_open()
        return asked(self, lambda: sorted(self._seen_names(user)))

    def _seen_names(self, user: Principal | None) -> set[str]:
        from pyspark.errors import AnalysisException

        from headrace.statements.permitting import viewer

        context = self._context if user is None else self._context.for_user(user)
        sees = viewer(context)
        found: set[str] = set()
        for database in self.spark.catalog.listDatabases():
            try:
                listed = [table.name for table in self.spark.catalog.listTables(database.name)]
            except AnalysisException:
                continue  # It was dropped a moment ago.
            tables = [name for name in listed if sees(context.name_of(database.name, name))]
            if tables or context.user.is_admin:
                found |= {database.name, *tables}
        return found

    def on_progress(self, listener: Callable[[ProgressEvent], None]) -> None:
        """Call `listener` with every step of long work."""
        self._progress.listen(listener)

    def on_access_changed(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the name of a user whose password, role or existence changed."""
        self._access_listeners.append(listener)

    def _tell_access_changed(self, user: str) -> None:
        for listener in self._access_listeners:
            listener(user)

    # ------------------------------------------------------------------ what runs by itself

    def start_scheduler(self, *, guarded: bool, clock: Callable[[], datetime] = _now, thread: bool = True) -> Scheduler:
        """From now on, refresh dynamic tables and run tasks at their times. Statements of tasks are `guarded` as those
        of a server's sessions. Without its `thread`, everything happens when `look` is called."""
        from headrace.alerts.watch import AlertWatch
        from headrace.schedule.scheduler import Scheduler
        from headrace.scheduled import ScheduledWork
        from headrace.watched import Watched

        self._require_open()
        if self.scheduler is not None:
            return self.scheduler
        self.watched = Watched(self.store, clock, loads=self.loads.committer.conditions)
        self.alerts = AlertWatch(self.store, self.settings, clock, self.watched.facts)

        def ended_by_hand(object_id: str, end: ByHandEnd) -> None:
            self.watched.ended_by_hand(object_id, end)
            self.alerts.wake()

        work = ScheduledWork(
            self, guarded=guarded, ended=lambda object_id, mark: self.alerts.wake(), ended_by_hand=ended_by_hand
        )
        self.scheduler = Scheduler(self.store, clock, work)
        if thread:
            self.compute.keep_tidy()
            self.scheduler.start()
            self.alerts.start()
        return self.scheduler

    def stop_scheduler(self, patience: float = 5.0) -> None:
        """Begin nothing more. What runs goes on."""
        if self.scheduler is not None:
            self.scheduler.close(patience)
            self.alerts.close(patience)
            self.scheduler = None

    # ------------------------------------------------------------------ Spark's death and return

    @property
    def spark_is_up(self) -> bool:
        from headrace.storage.spark import java_process_has_ended

        # The process is asked itself: who sees a statement fail must not find all well before the watch has looked.
        return not (self._spark_lost or self._closed or java_process_has_ended())

    def keep_spark_alive(self) -> None:
        """From now on, start Spark again whenever its Java process ends."""
        threading.Thread(target=self._watch, name="spark-watch", daemon=True).start()

    def await_spark(self) -> None:
        """For a job that got its slot while Spark is started again: wait for its return, for a while."""
        if self.spark_is_up:
            return
        deadline = time.monotonic() + _RETURN_SECONDS
        with running.resuming():
            while not self.spark_is_up and time.monotonic() < deadline:
                running.require_wanted()
                time.sleep(_LOOK_SECONDS)
        self.require_spark()

    def require_spark(self) -> None:
        """Raise when Spark is down at the moment."""
        if not self.spark_is_up:
            raise EnvironmentFault(
                "Spark's Java process has ended and is being started again.", hint="Try again in half a minute."
            )

    def _watch(self) -> None:
        from headrace.storage.spark import has_stopped

        while not self._watching.wait(_WATCH_SECONDS):
            if has_stopped(self.spark):
                self._rebuild()

    def _rebuild(self) -> None:
        """The jobs that were at work end now; then Spark is started again, until that works or the lake is closed."""
        from headrace.lake_session import spark_gone

        self._spark_lost = True
        if self.scheduler is not None:
            self.scheduler.pause()
        _log.error("Spark's Java process has ended; it is started again.")
        self.compute.spark_lost(spark_gone)
        pause = 1.0
        while not self._closed:
            try:
                # A start gives every unfinished refresh its end: nobody may be at work.
                self.workers.end_all(1.0)
                self._stop_spark(patience=1)
                self._start()
            except Exception:
                _log.exception("Spark could not be started again; the next try is in %s seconds.", pause)
                if self._watching.wait(pause):
                    return
                pause = min(pause * 2, 60.0)
                continue
            if self._watching.is_set():  # Closed while it started: nobody else would end it.
                self._stop_spark()
                return
            self.generation += 1
            self._spark_lost = False
            if self.scheduler is not None:
                self.scheduler.resume()
            _log.warning("Spark runs again.")
            return

    # ------------------------------------------------------------------ closing

    def close(self, patience: float = _STOP_SECONDS) -> None:
        """Stop Spark and give the lake free, within so many seconds. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        self._watching.set()
        try:
            try:
                self.stop_scheduler(patience / 12)
                self.loads.close(patience / 12)
                self.compute.close(patience / 3)
                self.workers.close(patience / 6)
            finally:
                self._stop_spark(patience=patience / 2)
        finally:
            self.store.close()
            self._lock.release()

    def _require_open(self) -> None:
        if self._closed:
            raise UserError("This lake is closed.", hint="Open it again: headrace.open(path).")

    def __enter__(self) -> Lake:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # A user id without a name, as in many containers.
        return str(os.getuid())
