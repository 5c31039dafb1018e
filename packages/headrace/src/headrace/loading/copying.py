"""COPY INTO: files into a table, each once.

All files of a statement go into one commit, under one number. The rows are checked and put into files for Spark first;
only then are the loads recorded, with their number; then the commit is made. A statement that fails before its commit
has loaded nothing, and leaves nothing behind.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal
from zoneinfo import ZoneInfo

from deltalake.exceptions import DeltaError

from headrace import failpoints, running
from headrace.catalog.loads import LoadStore
from headrace.catalog.records import Load
from headrace.errors import HeadraceError, NotAllowed, NotFound
from headrace.loading.checked import BadBatch
from headrace.loading.commits import Commits, TableMoved, Writer, files_name, table_name
from headrace.loading.files import FileReader, SourceFile
from headrace.loading.recalling import recall
from headrace.loading.receiving import new_id, require_loadable
from headrace.loading.shapes import Shape, Shapes, identity_columns
from headrace.loading.spool import RowFile, Spool, Spooled
from headrace.names import TableName
from headrace.storage.delta import DeltaLogs

_LOOK_SECONDS = 0.2
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Copied:
    """What became of one file. `error` is the first reason why a row was rejected."""

    file: str
    state: Literal["LOADED", "SKIPPED", "EMPTY"]
    rows: int = 0
    rejected: int = 0
    error: str | None = None
    note: str | None = None
    """What else whoever loads it should know."""


LOADED_BEFORE = "It was loaded before. FORCE = TRUE loads it again, besides the rows that are there."
CHANGED = "It was loaded before, and has changed since: all of its rows are in the table now, besides those."


@dataclass(frozen=True)
class _Read:
    """A file whose rows are ready."""

    load: Load
    error: str | None


class Copies:
    """One statement a table at a time; the others wait."""

    def __init__(
        self,
        store: LoadStore,
        logs: DeltaLogs,
        shapes: Shapes,
        spool: Spool,
        writer: Writer,
        clock: Callable[[], datetime],
        zone: ZoneInfo,
    ) -> None:
        self._store = store
        self._logs = logs
        self._shapes = shapes
        self._spool = spool
        self._commits = Commits(store, logs, shapes, spool, writer, clock)
        self._clock = clock
        self._zone = zone
        self._guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    def copy(
        self,
        table: TableName,
        path: str,
        files: Sequence[SourceFile],
        reader: FileReader,
        *,
        force: bool = False,
        creator: str = "",
    ) -> list[Copied]:
        """Load files that were not loaded before, or with `force` all of them."""
        shape = self._shapes.now(path)
        require_loadable(table, shape)
        with self._turn(shape.table_id):
            self._settle(shape.table_id)
            self._remember(table, path, shape, force)
            before = {} if force else self._store.of_paths(shape.table_id, [file.path for file in files])
            fresh = [file for file in files if not self._is_known(file, before.get(file.path, ()))]
            loaded = self._load(table, path, shape, fresh, reader, force, creator) if fresh else {}
            for each in loaded.keys() & before.keys():
                loaded[each] = replace(loaded[each], note=CHANGED)
        return [loaded.get(file.path, Copied(file.path, "SKIPPED", note=LOADED_BEFORE)) for file in files]

    @contextmanager
    def _turn(self, table_id: str) -> Iterator[None]:
        with self._guard:
            lock = self._locks.setdefault(table_id, threading.Lock())
        while not lock.acquire(timeout=_LOOK_SECONDS):
            running.require_wanted()
        try:
            yield
        finally:
            lock.release()

    # ------------------------------------------------------------------ what was loaded before

    def _remember(self, table: TableName, path: str, shape: Shape, force: bool) -> None:
        """Where the operations database is a new or an older one, the table's commits tell, as far as the log has
        them. With `force` they are written down all the same: the next commit would hide that the records lack them."""
        if not recall(self._store, self._logs, "FILE", table, path, shape.table_id) and not force:
            raise NotAllowed(
                f"It is not known which files were loaded into {table}: the operations database does not have them, "
                "and the table's log goes back too little.",
                hint="Move away what was loaded, then write FORCE = TRUE.",
            )

    def _is_known(self, file: SourceFile, before: Sequence[Load]) -> bool:
        """Whether one of these loads of its path had the same contents. The next time its size and time say so."""
        if any(file.is_as(load) for load in before):
            return True
        alike = [load for load in before if file.may_be(load)]
        digest = file.digest() if alike else None
        same = next((load for load in alike if load.digest == digest), None)
        if same is not None:
            self._store.rekey(same.id, file.key)
        return same is not None

    # ------------------------------------------------------------------ loading

    def _load(
        self,
        table: TableName,
        path: str,
        shape: Shape,
        files: Sequence[SourceFile],
        reader: FileReader,
        force: bool,
        creator: str,
    ) -> dict[str, Copied]:
        statement = new_id(self._clock())
        sequence = self._commits.next_number(_load(statement, table, path, shape, "", self._clock()))
        name = files_name("FILE", sequence)
        before = self._store.with_keys(shape.table_id, "FILE", [file.key for file in files]) if force else {}
        read: list[_Read] = []
        try:
            with self._spool.parquet(shape.table_id, name) as writer:
                for place, file in enumerate(files):
                    running.require_wanted()
                    running.tell(f"Reading {file.path}", place / len(files))
                    # In the order of their ids: so the files for Spark name them.
                    load = _load(f"{statement}-{place:05d}", table, path, shape, file.key, self._clock())
                    key = file.key_again(load.id) if file.key in before else file.key
                    known = {"key": key, "digest": file.digest(), "creator": creator, "sequence": sequence}
                    load = load.model_copy(update=known)
                    rows = 0
                    with self._spool.rejects_writer(load) as rejects:
                        for checked in reader.rows(file, shape, self._zone):
                            running.require_wanted()
                            spooled = Spooled.of(shape, checked.rows.column_names)
                            writer.write(place, checked.numbers, checked.rows, spooled)
                            rejects.write(checked.rejects)
                            rows += checked.rows.num_rows
                    counts = {"rows": rows, "rejected": rejects.count, "bytes": file.size}
                    read.append(_Read(load.model_copy(update=counts), rejects.first))
            _require_alike(writer.files, shape)
            running.tell("Writing")
            self._commit([each.load for each in read], writer.files)
        except BaseException:
            self._give_up([each.load for each in read], name)
            raise
        told = {load.id: load for load in self._store.ids(each.load.id for each in read).values()}
        return {
            file.path: _copied(file, told.get(each.load.id, each.load), each.error)
            for file, each in zip(files, read, strict=True)
        }

    def _commit(self, loads: list[Load], files: tuple[RowFile, ...]) -> None:
        """Files without rows go along: the next time they are known. With nothing but these there is no commit."""
        if not any(load.rows or load.rejected for load in loads):
            ended = {"state": "COMMITTED", "sequence": None, "committed_at": self._clock()}
            self._store.add_all([load.model_copy(update=ended) for load in loads])
            return
        self._store.add_all(loads)
        failpoints.reach("load-after-sequence")
        try:
            self._commits.finish(loads, lambda: files)
        except TableMoved as moved:
            raise NotFound(
                f"{table_name(loads[0])} was dropped, renamed or replaced while files were read; nothing was loaded.",
                hint="SHOW TABLES lists what there is now.",
            ) from moved

    def _give_up(self, loads: list[Load], name: str) -> None:
        """A statement has failed. Unless its commit was made, nothing has happened."""
        if not loads or self._is_in(loads):
            return
        try:
            self._store.forget([load.id for load in loads])
        except HeadraceError as error:
            _log.warning("What a COPY INTO that failed has left will be looked at later: %s", error)
            return
        self._spool.remove(loads)
        self._spool.remove_prepared(loads[0].table_id, name)

    # ------------------------------------------------------------------ after a crash

    def recover(self) -> None:
        """Give every statement that was cut short its end."""
        for table_id in sorted({load.table_id for load in self._store.waiting(kind="FILE")}):
            try:
                self._settle(table_id)
            except (HeadraceError, DeltaError, OSError) as error:
                _log.warning("A COPY INTO that was cut short will be looked at later: %s", error)

    def _settle(self, table_id: str) -> None:
        """Statements whose commit is in the table are brought to their end; the others never happened."""
        sets: dict[int, list[Load]] = {}
        for load in self._store.waiting(table_id, "FILE"):
            sets.setdefault(load.sequence or 0, []).append(load)
        for sequence, loads in sorted(sets.items()):
            name = files_name("FILE", sequence)
            ordered = sorted(loads, key=lambda load: load.id)
            if self._is_in(ordered):
                # A load's place among them is what the files say.
                self._commits.finish(ordered, lambda name=name: self._spool.found_parquet(table_id, name))  # type: ignore[misc]
            else:
                self._give_up(ordered, name)

    def _is_in(self, loads: list[Load]) -> bool:
        try:
            return self._commits.is_in(loads[0])
        except TableMoved:
            return False


def _load(load_id: str, table: TableName, path: str, shape: Shape, key: str, now: datetime) -> Load:
    return Load(
        id=load_id,
        table_path=path,
        table_id=shape.table_id,
        workspace=table.workspace,
        schema_name=table.schema,
        name=table.table,
        kind="FILE",
        key=key,
        state="RECEIVED",
        rows=0,
        received_at=now,
    )


def _require_alike(files: tuple[RowFile, ...], shape: Shape) -> None:
    """Delta numbers the rows of a commit itself, or takes the numbers that all of them bring."""
    own = identity_columns(shape)
    if len({own & file.spooled.names for file in files}) > 1:
        raise BadBatch(
            f"Some files have the column {sorted(own)[0]}, which the table numbers itself, and others have not.",
            hint="Load them in two statements.",
        )


def _copied(file: SourceFile, load: Load, error: str | None) -> Copied:
    empty = not load.rows and not load.rejected
    return Copied(file.path, "EMPTY" if empty else "LOADED", load.rows, load.rejected, error)
