"""All that is on its way into the tables of one lake: what takes it in, and what brings it there."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from headrace.catalog.loads import LoadStore
from headrace.loading.backlog import MOST_BYTES, Backlog
from headrace.loading.commits import Writer, files_name
from headrace.loading.committer import COMMIT_ROWS, COMMIT_SECONDS, Committer, Submit
from headrace.loading.copying import Copies
from headrace.loading.receiving import Receiver
from headrace.loading.shapes import Shapes
from headrace.loading.spool import Spool
from headrace.names import TableName
from headrace.storage.delta import DeltaLogs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = "loads"
"""In the lake."""


class Loader:
    """`spark` gives a session for a commit, and `submit` has a commit run as a job; both are asked only then. It holds
    no session itself, so it lives as long as its lake, through every new start of Spark. `taken` says which names have
    a meaning that Spark's catalog does not know."""

    def __init__(
        self,
        store: LoadStore,
        lake: Path,
        clock: Callable[[], datetime],
        *,
        zone: ZoneInfo,
        home: str,
        spark: Callable[[], SparkSession],
        submit: Submit,
        writer: Writer | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        seconds: float = COMMIT_SECONDS,
        rows: int = COMMIT_ROWS,
        most_bytes: int = MOST_BYTES,
        taken: Callable[[TableName], bool] = lambda name: False,
    ) -> None:
        from headrace.loading.writing import SparkWriter

        self.logs = DeltaLogs()
        self._store = store
        self._spool = Spool(lake / FOLDER)
        backlog, shapes = Backlog(clock, monotonic, most_bytes), Shapes(self.logs)
        writer = writer or SparkWriter(spark, self.logs, shapes, home, taken)
        self.committer = Committer(
            store, self.logs, shapes, self._spool, backlog, writer, clock, submit,
            monotonic=monotonic, seconds=seconds, rows=rows,
        )  # fmt: skip
        self.receiver = Receiver(
            store, self._spool, shapes, backlog, clock, zone,
            is_in=self.committer.is_in, recall=self.committer.batch_ids.recall,
            received=self.committer.wake, mended=self.committer.mended,
        )  # fmt: skip
        self.copies = Copies(store, self.logs, shapes, self._spool, writer, clock, zone)
        self._recovered = False

    def recover(self) -> None:
        """What an earlier process left. For the start of a lake, when Spark is there and before anything is received;
        calling it again does nothing."""
        if self._recovered:
            return
        self._recovered = True
        self.committer.recover()
        self.copies.recover()
        waiting = self._store.waiting()
        kept = [(load.table_id, files_name(load.kind, load.sequence)) for load in waiting if load.sequence is not None]
        self._spool.tidy(waiting, kept)

    def start(self) -> None:
        """Commit what is received, by itself, from now on."""
        self.committer.start()

    def close(self, patience: float = 5.0) -> None:
        self.committer.close(patience)
