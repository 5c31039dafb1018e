"""How a reading ends: its number is looked for in the target's log, and its streams move or stay."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from headrace.catalog.records import Reading, StreamRange
from headrace.catalog.store import Store
from headrace.errors import NotAllowed, NotFound
from headrace.plan.jvm import Jvm, optional
from headrace.storage.delta import DeltaLogs
from headrace.storage.paths import local_path
from headrace.streams.traces import Traces


@dataclass(frozen=True)
class Target:
    """The table that a statement writes, as Spark's catalog knows it, or by its path."""

    shown: str
    database: str = ""
    table: str = ""
    path: str | None = None
    may_be_new: bool = False
    """Whether the statement creates the table when there is none."""
    kept_if_there: bool = False
    """Whether it leaves a table alone that is there already, as CREATE TABLE IF NOT EXISTS does."""


class Readings:
    """All readings of an open lake, from the first note to the last."""

    def __init__(
        self, spark: SparkSession, store: Store, logs: DeltaLogs, clock: Callable[[], datetime], traces: Traces
    ) -> None:
        self._spark = spark
        self._store = store
        self._logs = logs
        self._clock = clock
        self._traces = traces
        self._numbering = threading.Lock()
        self._not_ended: set[int] = set()
        """Readings of this process that run now, or could not be given their end."""

    def begin(self, ranges: tuple[StreamRange, ...], target: Target, path: str | None) -> Reading:
        """Written down, before the statement runs."""
        with self._numbering:  # Two that began at once must not get the same number.
            return self._begin(ranges, target, path)

    def _begin(self, ranges: tuple[StreamRange, ...], target: Target, path: str | None) -> Reading:
        now = self._clock()
        reading = Reading(
            id=self._store.streams.next_reading(now),
            ranges=ranges,
            target=target.shown,
            target_path=path,
            target_before=None if path is None else self._newest(path),
            target_database=target.database,
            target_table=target.table,
            began_at=now,
        )
        self._not_ended.add(reading.id)
        self._store.streams.begin(reading)
        return reading

    def finish(self, reading: Reading, target: Target) -> None:
        """The statement has ended well. One that had nothing to write made no commit; it has read its changes all the
        same. Only one that would have created a table, and found it there, did nothing."""
        path = reading.target_path or self.path_of(target)
        written = None if path is None else self._commit_of(path, reading)
        if written is None and target.kept_if_there and reading.target_path is not None:
            self._forget(reading)
        else:
            self._finish(reading, path, written)

    def deliver(self, ranges: tuple[StreamRange, ...]) -> None:
        """A program has taken the rows."""
        now = self._clock()
        with self._numbering:
            moved = self._store.streams.deliver(ranges, now, self._store.streams.next_reading(now))
        self._traces.leave(moved)

    def settle_all(self) -> None:
        """Give every reading that was cut short its end; the lake is being opened."""
        for reading in self._store.streams.unfinished():
            self.settle(reading)

    def settle_of(self, stream_ids: Iterable[str]) -> None:
        """Likewise those of some streams; the caller holds these."""
        if not self._not_ended:
            return
        wanted = set(stream_ids)
        for reading in self._store.streams.unfinished():
            if wanted & {part.stream_id for part in reading.ranges}:
                self.settle(reading)

    def settle(self, reading: Reading) -> bool:
        """Whether the reading's commit is in its target."""
        target = Target(reading.target, reading.target_database, reading.target_table, reading.target_path)
        try:
            path = self.path_of(target)
        except NotAllowed:
            path = None  # Another has made a table of that name since.
        if path is None:
            self._remove_unregistered(reading)
        written = None if path is None else self._commit_of(path, reading)
        if path is not None and written is not None:
            self._finish(reading, path, written)
            return True
        self._forget(reading)
        return False

    def _forget(self, reading: Reading) -> None:
        self._store.streams.forget(reading.id)
        self._not_ended.discard(reading.id)

    def _finish(self, reading: Reading, path: str | None, written: int | None) -> None:
        ended = reading.model_copy(update={"target_path": path, "target_version": written})
        moved = self._store.streams.finish(ended, self._clock())
        self._not_ended.discard(reading.id)
        self._traces.leave(moved)

    def _commit_of(self, path: str, reading: Reading) -> int | None:
        """The version that carries the reading's mark. Long before a log is cleaned up, its readings are settled."""
        try:
            newest = self._newest(path)
        except NotFound:
            return None
        before = -1 if reading.target_before is None else reading.target_before
        commits = self._logs.commits(path, before, newest)
        for commit in self._logs.history(path) if commits is None else commits:
            if mark_of(reading) in (commit.user_metadata or ""):
                return commit.version
        return None

    def _newest(self, path: str) -> int:
        return self._logs.snapshot(path).version

    def _remove_unregistered(self, reading: Reading) -> None:
        """CREATE TABLE … AS committed its first version and died before the catalog knew: nobody can see that table,
        and its folder would be in the way of the next attempt."""
        if not reading.target_table or not self._spark.catalog.databaseExists(reading.target_database):
            return
        database = unquote(local_path(self._spark.catalog.getDatabase(reading.target_database).locationUri))
        folder = Path(database) / reading.target_table
        if folder.exists() and self._commit_of(str(folder), reading) is not None:
            self._logs.forget(str(folder))
            shutil.rmtree(folder)

    def path_of(self, target: Target) -> str | None:
        """Where the target's log is; None when there is no such table yet."""
        if target.path is not None:
            return target.path
        jvm = Jvm(self._spark)
        identifier = jvm.catalyst.TableIdentifier(target.table, jvm.root.scala.Some(target.database))
        catalog = jvm.state.catalog()
        try:
            found = catalog.getTableMetadata(identifier)
        except AnalysisException:
            return None
        if str(optional(found.provider())).lower() != "delta":
            raise no_delta(target)
        return unquote(local_path(str(found.location().toString())))


def no_delta(target: Target) -> NotAllowed:
    return NotAllowed(
        f"{target.shown} is no Delta table: a table stream moves with the commit of the table that it is written to.",
        hint="Write the changes to a Delta table.",
    )


def mark_of(reading: Reading) -> str:
    """What the reading's commit carries."""
    return f"headrace-reading:{reading.id}"
