"""Virtual clusters with a Spark master of their own, seen from the lake: one process each, `python -m headrace.worker`.

A JVM has one master, so such a cluster cannot share the lake's. Its process is started by the first job that needs it
and kept until the cluster is suspended, dropped or changed, or the lake closed. When this process ends, however that
happens, the others end with it: their standard input closes.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from headrace import running
from headrace.catalog.records import DynamicTable, Occasion, RefreshRecord, VCluster
from headrace.collecting import Limit
from headrace.compute.messages import RunQuery, RunRefresh, Start
from headrace.compute.process import END_SECONDS, LOOK_SECONDS, Process, Settle, Tell
from headrace.errors import Bug, EnvironmentFault, NotFound, UserError
from headrace.plan.query import Query
from headrace.result import Result
from headrace.settings import Settings
from headrace.storage import lock
from headrace.storage.java import JavaFound
from headrace.storage.spark import end_orphan as end_java_orphan

COMMAND = (sys.executable, "-m", "headrace.worker")
FOLDER = "workers"
RESULTS = "results"
"""In a process' own folder: the rows of queries, each until it is read."""
_WATCH_SECONDS = 1.0
_PLAIN_NAME = re.compile(r"[a-z0-9_]{1,64}")
_log = logging.getLogger(__name__)


class Workers:
    """All processes of a lake, by the name of their cluster."""

    def __init__(
        self,
        settings: Settings,
        jars: Sequence[Path],
        java: JavaFound,
        *,
        in_use: Callable[[str], bool] = lambda _: True,
        command: Sequence[str] = COMMAND,
    ) -> None:
        """`in_use` says whether a cluster may have a process: a suspended one may not (NotFound: it was dropped).

        Whatever an earlier process of this lake has left running is ended here, so this comes before anybody settles
        what is unfinished."""
        self._settings = settings
        self._jars = jars
        self._java = java
        self._in_use = in_use
        self._command = tuple(command)
        self._folder = settings.path / FOLDER
        self._lock = threading.Lock()
        self._processes: dict[str, Process] = {}
        self._closed = threading.Event()
        self._watcher: threading.Thread | None = None
        _end_orphans(self._folder)

    def run_query(
        self,
        cluster: VCluster,
        query: Query,
        versions: Mapping[str, int],
        settings: Mapping[str, str],
        types: Sequence[str],
        *,
        tell: Tell,
        limit: Limit | None = None,
    ) -> Result:
        """The rows of a query whose sources are read at these versions, as many as the limit allows. Raises NotThere,
        Ended, or its own error."""
        request = RunQuery(
            id=uuid.uuid4().hex,
            query=query,
            versions=dict(versions),
            settings=dict(settings),
            types=tuple(types),
            limit=limit,
        )
        with self._claimed(cluster, tell) as process:
            done = process.ask(request, tell)
            rows = _taken(process.folder / RESULTS / f"{request.id}.arrow")
            return Result(rows, zone=self._settings.timezone, truncated=done.truncated)

    def refresh(
        self,
        cluster: VCluster,
        table: DynamicTable,
        occasion: Occasion,
        job_id: str,
        *,
        folds: bool,
        tell: Tell,
        settle: Settle,
    ) -> RefreshRecord:
        """Refresh the table there, and tidy it. Raises as `run_query` does. If the process ends before it has
        answered, `settle` is called; also when the job was cancelled before, and this left the refresh alone."""
        request = RunRefresh(
            id=job_id,
            table_id=table.id,
            generation=table.generation,
            occasion=occasion,
            folds=folds,
            hides_rows=running.hides_rows(),
        )
        with self._claimed(cluster, tell) as process:
            record = process.ask(request, tell, settle).record
        if record is None:
            raise Bug(f"The refresh {job_id} on {cluster.name} gave no record.")
        return record

    def running(self) -> dict[str, int]:
        """The processes there are: the name of the cluster, and the process' number."""
        with self._lock:
            return {name: process.pid for name, process in self._processes.items() if not process.is_over}

    def end(self, name: str, patience: float = END_SECONDS) -> None:
        """End the cluster's process, if there is one; what still runs there fails."""
        with self._lock:
            process = self._processes.get(name)
        if process is not None:
            process.end(patience)
            with self._lock:
                if self._processes.get(name) is process:
                    del self._processes[name]

    def end_all(self, patience: float = END_SECONDS) -> None:
        """End every process, all at the same time. The next job starts a new one."""
        threads = [threading.Thread(target=self.end, args=(name, patience)) for name in self.running()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def close(self, patience: float = END_SECONDS) -> None:
        """End every process and start none any more."""
        with self._lock:
            self._closed.set()
        self.end_all(patience)

    @contextmanager
    def _claimed(self, cluster: VCluster, tell: Tell) -> Iterator[Process]:
        """The cluster's process, ready; it is not ended for want of work while the block runs."""
        process = self._process(cluster)
        try:
            process.wait_until_ready(tell)
            yield process
        finally:
            process.release()

    def _process(self, cluster: VCluster) -> Process:
        """A claimed process with these properties. One with others is ended first, once its jobs are through."""
        while True:
            with self._lock:
                if self._closed.is_set():
                    raise UserError("This lake is closed.", hint="Open it again: headrace.open(path).")
                found = self._processes.get(cluster.name)
                if found is None or found.is_over:
                    found = self._started(cluster)
                    self._processes[cluster.name] = found
                    self._watch()
                if found.properties == cluster.properties and found.claim():
                    return found
            if found.is_idle:
                self.end(cluster.name)
            running.require_wanted()
            time.sleep(LOOK_SECONDS)

    def _started(self, cluster: VCluster) -> Process:
        folder = self._folder / _folder_name(cluster.name)
        start = Start(
            cluster=cluster.name,
            settings=settings_of(self._settings, cluster, folder),
            jars=tuple(map(str, self._jars)),
            java=(str(self._java.path), self._java.version),
            parent=os.getpid(),
        )
        return Process(cluster, folder, start, self._command, suspended=not self._may_run(cluster.name))

    # ---- processes that nobody needs any more

    def _watch(self) -> None:
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._keep_looking, name="workers-watch", daemon=True)
            self._watcher.start()

    def _keep_looking(self) -> None:
        while not self._closed.wait(_WATCH_SECONDS):
            with self._lock:
                processes = list(self._processes.items())
            for name, process in processes:
                try:
                    if process.is_idle and self._is_unwanted(name, process):
                        self.end(name)
                except Exception:
                    _log.exception("Looking after the process of the virtual cluster %s failed.", name)

    def _is_unwanted(self, name: str, process: Process) -> bool:
        """Its cluster was suspended after it was started, or dropped. One that was started for a cluster which was
        suspended all the time (an embedded lake does not resume it) stays as long as the cluster itself would."""
        try:
            in_use = self._in_use(name)
        except NotFound:
            return True
        if in_use:
            process.suspended = False
            return False
        return not process.suspended or 0 < process.auto_suspend_seconds <= process.idle_seconds

    def _may_run(self, name: str) -> bool:
        try:
            return self._in_use(name)
        except NotFound:
            return True


def settings_of(lake: Settings, cluster: VCluster, folder: Path) -> Settings:
    """The settings of the cluster's own Spark: the lake's, the cluster's properties over them, and no metastore."""
    own = {key: value for key, value in cluster.properties.items() if key != "spark.master"}
    patience = {
        "spark.rpc.lookupTimeout": "30s",
        "spark.hadoop.yarn.resourcemanager.connect.max-wait.ms": "30000",
        "spark.hadoop.ipc.client.connect.max.retries": "3",
    }
    fixed = {"spark.sql.catalogImplementation": "in-memory", "spark.app.name": f"headrace {cluster.name}"}
    return lake.model_copy(
        update={
            "path": folder,
            "warehouse": folder / "warehouse",
            "log_file": folder / "logs" / "headrace.log",
            "spark_master": cluster.spark_master or lake.spark_master,
            "spark_settings": patience | lake.spark_settings | own | fixed,
        }
    )


def _folder_name(cluster: str) -> str:
    """A cluster's name as that of a folder; an unusual one by its digest."""
    return cluster if _PLAIN_NAME.fullmatch(cluster) else f"x-{hashlib.sha256(cluster.encode()).hexdigest()[:16]}"


def _taken(file: Path) -> pa.Table:
    """The rows in the file, which is gone afterwards: what is still read of it stays mapped."""
    try:
        with pa.memory_map(str(file)) as source:
            return pa.ipc.open_file(source).read_all()
    finally:
        file.unlink(missing_ok=True)


def _end_orphans(folder: Path) -> None:
    """End what outlived its lake's process. Each should have ended by itself; one that hangs might still commit."""
    for own in sorted(folder.iterdir()) if folder.is_dir() else ():
        deadline = time.monotonic() + END_SECONDS
        while (found := lock.holder(own)) is not None:
            if found.host == socket.gethostname() and found.pid > 0:
                try:
                    os.kill(found.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if time.monotonic() > deadline:
                raise EnvironmentFault(
                    f"A process of an earlier run ({found}) still works on this lake and does not end.",
                    hint=f"End it with `kill -9 {found.pid}` on {found.host}, then try again.",
                )
            time.sleep(0.05)
        end_java_orphan(own)
        shutil.rmtree(own / RESULTS, ignore_errors=True)
