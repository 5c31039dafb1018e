"""The one facade: opening a lake and running statements. Wiring only."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from headrace import settings as settings_module
from headrace.catalog.store import Store
from headrace.errors import UserError
from headrace.progress import Progress, ProgressEvent
from headrace.result import Result, done
from headrace.sql.split import split_statements
from headrace.storage.jars import ensure_jars
from headrace.storage.java import check_java
from headrace.storage.lock import LakeLock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _now() -> datetime:
    return datetime.now(timezone.utc)


def open(path: str | Path | None = None, **settings: Any) -> Lake:
    """Open the lake in this folder, creating it if need be. One process at a time holds a lake."""
    return Lake(settings_module.load(path, **settings))


class Lake:
    """An open lake. Use it as a context manager, or call `close()`."""

    def __init__(self, settings: settings_module.Settings) -> None:
        java = check_java()
        self.settings = settings
        self._progress = Progress()
        self._closed = False
        self._lock = LakeLock(settings.path)
        self._lock.acquire()
        try:
            jars = ensure_jars(Path(settings.jars), java=java)
            self._store = Store.open(settings.database_url)
            try:
                self._start(jars, java)
            except BaseException:
                self._store.close()
                raise
        except BaseException:
            self._lock.release()
            raise

    def _start(self, jars: list[Path], java: Any) -> None:
        # Spark and everything that imports it is loaded here, not with the package: `headrace --help` stays quick.
        from headrace.refresh.runner import Runner
        from headrace.statements.context import DECIDE_MEANING, Context
        from headrace.statements.reading import rebind
        from headrace.statements.replacing import adopt
        from headrace.statements.startup import prepare
        from headrace.storage.delta import DeltaLogs
        from headrace.storage.spark import start_spark, stop_spark

        self._stop_spark = stop_spark
        self.spark: SparkSession = start_spark(self.settings, jars, java=java)
        try:
            off = frozenset(self.settings.optimisations_off)
            logs = DeltaLogs(off)
            meaning = {key: str(self.spark.conf.get(key)) for key in DECIDE_MEANING}
            context = Context(self.spark, self._store, logs, self.settings, self._progress, _now, meaning)
            context.runner = Runner(
                self.spark,
                self._store,
                logs,
                owner=f"{socket.gethostname()}:{os.getpid()}",
                lease_seconds=self.settings.lease_seconds,
                rebind=lambda table: rebind(context, table),
                reloaded=lambda table: adopt(context, table),
                progress=self._progress,
                zone=ZoneInfo(self.settings.timezone),
                clock=_now,
                off=off,
            )
            self._context = context
            prepare(context)
        except BaseException:
            stop_spark()
            raise

    def sql(self, text: str) -> Result:
        """Run one or more statements separated by `;` and give the last one's result."""
        results = list(self.statements(text))
        return results[-1] if results else done("There was no statement.")

    def statements(self, text: str) -> Iterator[Result]:
        """Run the statements one by one, giving each one's result."""
        from headrace.errors import HeadraceError
        from headrace.statements.dispatch import execute

        self._require_open()
        for part in split_statements(text):
            try:
                yield execute(self._context, part.text)
            except HeadraceError as error:
                if error.position is not None:
                    error.position = part.in_script(error.position)
                raise

    def names(self) -> list[str]:
        """Schemas and tables, for completion."""
        self._require_open()
        found: set[str] = set()
        for database in self.spark.catalog.listDatabases():
            found.add(database.name)
            found |= {table.name for table in self.spark.catalog.listTables(database.name)}
        return sorted(found)

    def on_progress(self, listener: Callable[[ProgressEvent], None]) -> None:
        """Call `listener` with every step of long work."""
        self._progress.listen(listener)

    def close(self) -> None:
        """Stop Spark and give the lake free. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            self._stop_spark()
        finally:
            self._store.close()
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
