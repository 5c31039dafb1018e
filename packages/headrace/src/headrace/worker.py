"""The process of a virtual cluster with a Spark master of its own: `python -m headrace.worker`, started by the lake.

It has no catalog. It evaluates queries that come with the versions of their sources, and refreshes dynamic tables by
the same protocol, leases and operations database as the lake's own process; what needs the catalog it sends back before
anything is written. It ends with the lake's process: when its standard input closes, or that process is not its parent
any more, it kills its JVM and itself at once, in the middle of whatever it does. That is what refreshes are made for.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol
from zoneinfo import ZoneInfo

import pyarrow as pa

from headrace import running
from headrace.compute.messages import (
    Answer,
    Cancel,
    Done,
    End,
    Failed,
    Fault,
    NotHere,
    NotStarted,
    Ready,
    Request,
    RunQuery,
    RunRefresh,
    Start,
    Told,
    Work,
    line,
    read_request,
)
from headrace.compute.workers import RESULTS
from headrace.errors import EnvironmentFault, HeadraceError
from headrace.progress import Progress, ProgressEvent
from headrace.running import Running
from headrace.storage.java import JavaFound
from headrace.storage.lock import LakeLock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.catalog.records import DynamicTable, RefreshRecord

_WATCH_SECONDS = 0.25
_PROBE_SECONDS = 5.0
_KILL_SECONDS = 5.0
_ADDRESS = re.compile(r"([^:,/]+|\[[0-9a-fA-F:]+\]):(\d+)")
_log = logging.getLogger(__name__)


class Elsewhere(BaseException):
    """This needs the catalog. No Exception, because a refresh would write down its failure; this is none."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Engine(Protocol):
    """What does the work. Each call of `query` and `refresh` is on a thread of its own."""

    application: str

    def query(self, request: RunQuery) -> bool:
        """Whether there are more rows than were wanted."""

    def refresh(self, request: RunRefresh) -> RefreshRecord: ...
    def fault(self, error: Exception) -> HeadraceError | None:
        """The error in our words, if it is one that can be expected."""

    def cancel(self, request_id: str) -> None:
        """Stop what Spark does for this request now; called again and again until the request has ended."""

    def has_ended(self) -> bool: ...
    def stop(self, patience: float) -> None: ...


OpenEngine = Callable[[Start, Progress], Engine]


class Channel:
    """The pipes to the lake's process. What else this process prints goes to its log."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._requests = os.fdopen(os.dup(0), "rb")
        self._answers = os.fdopen(os.dup(1), "wb")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        self._lock = threading.Lock()

    def receive(self) -> Request | None:
        """The next request; None when the lake's process is gone."""
        text = self._requests.readline()
        return read_request(text) if text.endswith(b"\n") else None

    def send(self, answer: Answer) -> None:
        with self._lock:
            try:
                self._answers.write(line(answer))
                self._answers.flush()
            except OSError:
                _end_at_once()


class Worker:
    """Takes requests until it is told to end."""

    def __init__(self, channel: Channel, open_engine: OpenEngine) -> None:
        self._channel = channel
        self._open_engine = open_engine
        self._engine: Engine | None = None
        self._lock = threading.Lock()
        self._jobs: dict[str, Running] = {}
        self._told_to_end = threading.Event()
        self._patience = 0.0
        self._parent = 0

    def run(self) -> int:
        start = self._channel.receive()
        if not isinstance(start, Start):
            return 2
        self._parent = start.parent
        threading.Thread(target=self._listen, name="listen", daemon=True).start()
        threading.Thread(target=self._watch, name="watch", daemon=True).start()
        progress = Progress()
        progress.listen(self._tell)
        try:
            LakeLock(start.settings.path).acquire()
            engine = self._engine = self._open_engine(start, progress)
        except Exception as error:
            if not isinstance(error, HeadraceError):
                _log.exception("The start failed in a way that nobody foresaw.")
            self._channel.send(NotStarted(fault=Fault.of(error)))
            return 1
        self._channel.send(Ready(application=engine.application))
        self._told_to_end.wait()
        engine.stop(self._patience)
        return 0

    def _tell(self, event: ProgressEvent) -> None:
        job = running.current()
        if job is not None:
            self._channel.send(Told(id=job.id, text=event.text, fraction=event.fraction))

    # ---- threads that listen and watch

    def _listen(self) -> None:
        while True:
            try:
                request = self._channel.receive()
            except ValueError:
                _log.exception("A request that cannot be read.")
                continue
            if request is None:
                _end_at_once()
            elif isinstance(request, RunQuery | RunRefresh):
                job = Running(id=request.id)
                with self._lock:
                    self._jobs[request.id] = job
                threading.Thread(target=self._perform, args=(request, job), name=request.id, daemon=True).start()
            elif isinstance(request, Cancel):
                self._cancel(request)
            elif isinstance(request, End):
                self._patience = request.patience
                self._told_to_end.set()

    def _cancel(self, request: Cancel) -> None:
        with self._lock:
            job = self._jobs.get(request.id)
        if job is not None:
            job.stop(request.reason.error())
            self._stop_work(request.id)

    def _watch(self) -> None:
        """End with the lake's process, and with Spark. What was cancelled may have begun another piece of work."""
        while not self._told_to_end.wait(_WATCH_SECONDS):
            if os.getppid() != self._parent:
                _end_at_once()
            if self._engine is None:
                continue
            if self._has_ended(self._engine):
                _log.error("Spark has ended; so does this process.")
                _end_at_once()
            with self._lock:
                stopped = [request_id for request_id, job in self._jobs.items() if job.stopped is not None]
            for request_id in stopped:
                self._stop_work(request_id)

    def _stop_work(self, request_id: str) -> None:
        try:
            if self._engine is not None:
                self._engine.cancel(request_id)
        except Exception:
            _log.exception("The work for %s could not be stopped.", request_id)

    def _has_ended(self, engine: Engine) -> bool:
        try:
            return engine.has_ended()
        except Exception:
            _log.exception("Spark does not answer.")
            return True

    # ---- the work

    def _perform(self, request: Work, job: Running) -> None:
        try:
            hides = isinstance(request, RunRefresh) and request.hides_rows
            with running.begin(job), running.hiding(lambda: hides):
                answer = self._answer(request, job)
        finally:
            with self._lock:
                del self._jobs[request.id]
        if answer is not None:
            self._channel.send(answer)

    def _answer(self, request: Work, job: Running) -> Answer | None:
        engine = self._engine
        assert engine is not None
        record, truncated = None, False
        try:
            running.require_wanted()
            if isinstance(request, RunQuery):
                truncated = bool(engine.query(request))
            else:
                record = engine.refresh(request)
        except Elsewhere as refusal:
            return NotHere(id=request.id, why=refusal.why)
        except Exception as error:
            if self._has_ended(engine):
                return None  # The whole process ends in a moment, which says more than what py4j made of it.
            told = job.stopped or (error if isinstance(error, HeadraceError) else engine.fault(error))
            if told is None:
                _log.exception("%s failed in a way that nobody foresaw.", request.id)
            return Failed(id=request.id, fault=Fault.of(told or error), phases=job.phases, counts=job.counts)
        return Done(id=request.id, record=record, truncated=truncated, phases=job.phases, counts=job.counts)


class SparkEngine:
    """A Spark session on the cluster's master, and a runner of refreshes over the lake's operations database."""

    def __init__(self, start: Start, progress: Progress) -> None:
        # Spark is loaded only now: what goes wrong before needs no second of waiting.
        from headrace.catalog.store import Store
        from headrace.refresh.runner import Runner
        from headrace.storage.delta import DeltaLogs
        from headrace.storage.spark import start_spark

        settings = start.settings
        self._zone = settings.timezone
        self._results = settings.path / RESULTS
        shutil.rmtree(self._results, ignore_errors=True)
        self._results.mkdir(parents=True, mode=0o700)
        require_reachable(settings.spark_master)
        off = frozenset(settings.optimisations_off)
        self._logs = DeltaLogs(off)
        self._readable: set[tuple[str, int]] = set()
        self._progress = progress
        self._spark = start_spark(
            settings, [Path(jar) for jar in start.jars], java=JavaFound(Path(start.java[0]), start.java[1])
        )
        self.application = str(self._spark.sparkContext.applicationId)
        self._store = Store.open(settings.database_url)
        self._runner = Runner(
            self._spark,
            self._store,
            self._logs,
            owner=f"{socket.gethostname()}:{os.getpid()}",
            lease_seconds=settings.lease_seconds,
            rebind=_needs_catalog,
            reloaded=_needs_catalog,
            progress=progress,
            zone=ZoneInfo(settings.timezone),
            clock=lambda: datetime.now(timezone.utc),
            off=off,
            definition=self._definition,
        )

    def query(self, request: RunQuery) -> bool:
        from pyspark.errors import AnalysisException, IllegalArgumentException

        from headrace.errors import NotFound
        from headrace.refresh.compute import evaluated
        from headrace.result import from_frame
        from headrace.storage.errors import short_message

        with _tagged(self._spark, request.id):
            session = self._spark.newSession()
            for key, value in request.settings.items():
                session.conf.set(key, value)
            try:
                with running.phase("analysis"):
                    rows = evaluated(session, self._logs, request.query, request.versions, None)
                    types = tuple(field.dataType.simpleString() for field in rows.schema.fields)
            except (AnalysisException, IllegalArgumentException, NotFound) as error:
                raise Elsewhere(f"it cannot be read there ({short_message(error)})") from error
            if types != request.types:
                raise Elsewhere("its columns would have other types there")
            with running.phase("execution"):
                found = from_frame(rows, self._zone, request.limit)
            running.require_wanted()
            self._write(found.to_arrow(), self._results / f"{request.id}.arrow")
            return found.truncated

    def _write(self, rows: pa.Table, file: Path) -> None:
        try:
            with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
                writer.write_table(rows)
        except OSError as error:
            file.unlink(missing_ok=True)
            raise EnvironmentFault(
                f"The result could not be written to {file}: {error.strerror or error}.",
                hint="Free some space on the lake's disk, then try again.",
            ) from error

    def _definition(self, table_id: str) -> DynamicTable:
        """The table as it is now, without the views that its query goes through: the lake has looked whether they are
        as they were, and here there are none to look at."""
        table = self._store.table_by_id(table_id)
        if table is None or table.stale_reason is not None:
            raise Elsewhere("its definition has just changed")
        return table.model_copy(update={"query": table.query.model_copy(update={"definitions": ()})})

    def refresh(self, request: RunRefresh) -> RefreshRecord:
        table = self._definition(request.table_id)
        if table.generation != request.generation:
            raise Elsewhere("its definition has just changed")
        # The lake's process may have rewritten these in ways that a kept handle does not follow.
        for path in (table.storage_path, *(source.path for source in table.query.sources)):
            self._logs.forget(path)
        with _tagged(self._spark, request.id):
            with running.phase("analysis"):
                self._require_readable(table)
            with running.phase("execution"):
                record = self._runner.refresh(table, request.occasion)
            if record.refresh_mode != "NO_DATA":
                self._tidy(table, request.folds)
        return record

    def _require_readable(self, table: DynamicTable) -> None:
        """Most full refreshes evaluate the query's text. Where that names a column as schema.table.column, it takes
        the catalog to find it: better known before the refresh has begun."""
        from pyspark.errors import AnalysisException

        from headrace.ivm.layout import grouped_root
        from headrace.refresh.compute import evaluated
        from headrace.storage.errors import short_message

        key, plan = (table.id, table.generation), table.query.plan
        if key in self._readable or (plan is not None and grouped_root(plan) is not None):
            return
        versions = {source.path: self._logs.snapshot(source.path).version for source in table.query.sources}
        try:
            evaluated(self._spark, self._logs, table.query, versions, None)
        except AnalysisException as error:
            raise Elsewhere(f"its query cannot be read there ({short_message(error)})") from error
        self._readable.add(key)

    def _tidy(self, table: DynamicTable, folds: bool) -> None:
        """The refresh is done and right, whatever comes of this."""
        try:
            self._runner.tidy(table, folds=folds)
        except HeadraceError as error:
            self._progress.tell(f"{table.table_name}: not tidied: {error.message}")

    def fault(self, error: Exception) -> HeadraceError | None:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        from headrace.statements.dispatch import as_query_failure

        if not isinstance(error, PySparkException | Py4JJavaError):
            return None
        told = as_query_failure(error, "")
        told.position = None  # One in the text that was made for this process.
        return told

    def cancel(self, request_id: str) -> None:
        self._spark.sparkContext.cancelJobsWithTag(_tag(request_id))

    def has_ended(self) -> bool:
        from headrace.storage.spark import java_process_has_ended

        context: Any = self._spark.sparkContext
        return java_process_has_ended() or bool(context._jsc.sc().isStopped())

    def stop(self, patience: float) -> None:
        from headrace.storage.spark import stop_spark

        stop_spark(patience=max(patience - 1, 1))
        self._store.close()


@contextmanager
def _tagged(spark: SparkSession, request_id: str) -> Iterator[None]:
    """Until the block ends, what Spark does for this thread carries the request's tag; then it is counted."""
    from headrace.storage.meter import counted

    context = spark.sparkContext
    context.addJobTag(_tag(request_id))
    context.setInterruptOnCancel(True)
    try:
        yield
    finally:
        context.removeJobTag(_tag(request_id))
        running.count(counted(context, _tag(request_id)))


def _tag(request_id: str) -> str:
    return f"headrace-{request_id}"


def _needs_catalog(table: DynamicTable) -> NoReturn:
    raise Elsewhere("a source changed its columns, so its query must be read again")


def require_reachable(master: str) -> None:
    """Whether anybody listens at a standalone master's address: Spark would ask for a minute."""
    if not master.startswith("spark://"):
        return
    reason = "it names no host and port"
    for host, port in _ADDRESS.findall(master.removeprefix("spark://")):
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_PROBE_SECONDS).close()
            return
        except (OSError, OverflowError) as error:
            reason = f"{host}:{port} cannot be reached ({getattr(error, 'strerror', None) or error})"
    raise EnvironmentFault(
        f"{reason}.", hint="Check that the master runs, that its address is right, and that no firewall is between."
    )


def _end_at_once(code: int = 3) -> NoReturn:
    """The JVM first: it would notice by itself that we are gone, but perhaps only after its next commit."""
    module = sys.modules.get("pyspark.core.context")
    process = getattr(getattr(module and module.SparkContext, "_gateway", None), "proc", None)
    if process is not None:
        try:
            process.kill()
            process.wait(_KILL_SECONDS)
        except Exception:
            _log.exception("The JVM could not be ended.")
    os._exit(code)


def main(open_engine: OpenEngine = SparkEngine) -> NoReturn:
    os.umask(0o077)
    channel = Channel()
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    code = 1
    try:
        code = Worker(channel, open_engine).run()
    except BaseException:
        _log.exception("The process fails.")
    finally:
        sys.stderr.flush()
        _end_at_once(code)


if __name__ == "__main__":
    main()
