"""How a set of loads gets into its table, exactly once.

Every set has a number, which is written into its records before anything else; from then on it stays the same set. Its
rows are appended in one commit that carries the number (Delta's `txn`), its bad rows in one commit to the table of
rejects that carries it as well. Delta lets each number in once. So whatever happens on the way, the same steps are done
again: what is there already is left out, and in the end the records say so.

Which rows are bad is decided once for a commit, and written down before it: what a condition says may change with the
time, and every row must end up in one of the two tables.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from headrace import failpoints
from headrace.catalog.loads import LoadKind, LoadStore
from headrace.catalog.records import Load
from headrace.errors import Bug, NotAllowed, NotFound
from headrace.loading.fitting import Fit, fit
from headrace.loading.notes import Held, Note, app_id, find_sequence
from headrace.loading.shapes import Shape, Shapes
from headrace.loading.spool import RowFile, Spool, SpoolFault, Verdict
from headrace.names import TableName
from headrace.storage.delta import DeltaLogs, require_sequence

REJECTS_SUFFIX = "_rejects"
_MOST_REJECTS = 9
_LONGEST_NAME = 200
REJECTS_SCHEMA = pa.schema(
    [
        ("batch_id", pa.string()), ("row_number", pa.int64()), ("row", pa.string()), ("error", pa.string()),
        ("received_at", pa.timestamp("us", tz="UTC")),
    ]
)  # fmt: skip

Files = tuple[tuple[RowFile, Fit], ...]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Numbered:
    """What a commit carries."""

    app_id: str
    sequence: int
    note: str


@dataclass(frozen=True)
class Found:
    """Where a table is now, and what it is called."""

    path: str
    table: TableName


class Writer(Protocol):
    """What only Spark does. Commits through anything else would not be safe beside its own."""

    def judge(self, files: Files, folder: str) -> None:
        """Write the rows that do not fit to Parquet files in a new folder, as a Verdict has them."""

    def append(self, path: str, files: Files, unfit: Sequence[str], carries: Numbered) -> None:
        """Append all rows but those in the files `unfit`. Raises when there is no table: none is created."""

    def existing(self, tables: Sequence[TableName]) -> list[str]:
        """Where those of these tables are that there are, whatever their columns are."""

    def rejects_path(self, table: TableName, comment: str) -> str:
        """Where the table of rejects is, which is created if need be. Raises NotAllowed when something else has the
        name, or the table could not take every reject."""

    def append_rejects(self, path: str, rows: str, carries: Numbered) -> None:
        """Append the rejects in a Parquet file to a table of rejects, which must be there."""

    def find(self, table: TableName, table_id: str) -> Found | None:
        """The table with this id; None when the catalog has none. Raises when that cannot be said."""


class TableMoved(NotFound):
    """The table is not where it was."""

    usual_hint = "SHOW TABLES lists what there is."


def table_name(load: Load) -> TableName:
    return TableName(load.workspace, load.schema_name, load.name)


def batch_name(load: Load) -> str:
    """What the table of rejects calls a load: the client's batch id, or the file."""
    return load.key if load.kind == "BATCH" else load.path


def rejects_names(table: TableName) -> list[TableName]:
    """Where rejects may go: the first, or when somebody has made something else of that, the next.

    >>> [each.table for each in rejects_names(TableName("main", "public", "t"))][:3]
    ['t_rejects', 't_rejects_2', 't_rejects_3']
    """
    suffixes = [REJECTS_SUFFIX, *(f"{REJECTS_SUFFIX}_{number}" for number in range(2, _MOST_REJECTS + 1))]
    return [TableName(table.workspace, table.schema, f"{table.table[: _LONGEST_NAME - len(s)]}{s}") for s in suffixes]


def files_name(kind: LoadKind, sequence: int) -> str:
    """What the files for a commit are called."""
    return f"{'batches' if kind == 'BATCH' else 'copy'}-{sequence}"


class Commits:
    """The protocol. One set of a table and kind at a time: its callers see to that."""

    def __init__(
        self,
        store: LoadStore,
        logs: DeltaLogs,
        shapes: Shapes,
        spool: Spool,
        writer: Writer,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._logs = logs
        self._shapes = shapes
        self._spool = spool
        self._writer = writer
        self._clock = clock

    def is_in(self, load: Load) -> bool:
        """Whether the commit with the number of this load is in its table. Raises TableMoved."""
        if load.sequence is None:
            return False
        return self._reached(load.table_path, app_id(load.kind, load.table_id), load.sequence)

    def next_number(self, load: Load) -> int:
        """The number of a commit with this load, if it were made now."""
        self.shape(load)
        return (self._logs.sequence(load.table_path, app_id(load.kind, load.table_id)) or 0) + 1

    def finish(self, loads: Sequence[Load], files: Callable[[], tuple[RowFile, ...]]) -> list[Load]:
        """Bring a set with its number into its table, as far as it is not there. `files` gives its rows for Spark, and
        is asked only when they are needed. Raises TableMoved; after any error the same can be tried again."""
        first = loads[0]
        sequence = first.sequence
        if sequence is None or any((each.sequence, each.kind) != (sequence, first.kind) for each in loads):
            raise Bug("A set of loads must have one number.")
        app, path = app_id(first.kind, first.table_id), first.table_path
        version: int | None = None
        verdict = Verdict()
        if any(load.rows or load.rejected for load in loads):
            if self._reached(path, app, sequence):
                version, verdict = self._as_written(loads, files)
            else:
                verdict = self._append(loads, files(), app, sequence)
                found = find_sequence(self._logs, path, first.kind, sequence)
                version = None if found is None else found[0]
        if verdict.counts or any(load.rejected for load in loads):
            self._append_rejects(loads, verdict, app, sequence)
        return self._record(loads, verdict.counts, version)

    # ------------------------------------------------------------------ the table

    def _append(self, loads: Sequence[Load], files: tuple[RowFile, ...], app: str, sequence: int) -> Verdict:
        first = loads[0]
        shape = self.shape(first)
        fitted = _fitted(files, shape)
        verdict = self._judged(loads, fitted)
        note = Note(first.kind, sequence, shape.version, _held(loads, verdict))
        failpoints.watch_for_file("mid-load", first.table_path)
        try:
            unfit = verdict.files if verdict.counts else ()
            self._writer.append(first.table_path, fitted, unfit, Numbered(app, sequence, note.text()))
        except BaseException:
            # What failed after the commit has not failed.
            if not self._reached(first.table_path, app, sequence):
                raise
        failpoints.reach("load-after-commit")
        require_sequence(self._logs.sequence(first.table_path, app), sequence, first.table_path)
        return verdict

    def _judged(self, loads: Sequence[Load], files: Files) -> Verdict:
        """A new verdict: until the commit is there, an older one does not count."""
        name = files_name(loads[0].kind, loads[0].sequence or 0)
        folder = self._spool.verdict_folder(loads[0].table_id, name)
        doubtful = tuple((file, how) for file, how in files if not how.is_plain)
        if not doubtful:
            return Verdict()
        self._writer.judge(doubtful, folder)
        return self._spool.keep_verdict(loads, name)

    def shape(self, load: Load) -> Shape:
        """What the table takes now. Raises TableMoved."""
        try:
            shape = self._shapes.now(load.table_path)
        except NotFound as missing:
            raise TableMoved(missing.message) from missing
        if shape.table_id != load.table_id:
            raise TableMoved(f"The table at {load.table_path} is another one now.")
        return shape

    def _as_written(
        self, loads: Sequence[Load], files: Callable[[], tuple[RowFile, ...]]
    ) -> tuple[int | None, Verdict]:
        """The version that an earlier attempt made, and what did not fit then. A verdict that was lost is given anew,
        by the columns and conditions of then."""
        first = loads[0]
        assert first.sequence is not None
        found = find_sequence(self._logs, first.table_path, first.kind, first.sequence)
        version = None if found is None else found[0]
        kept = self._spool.verdict(loads, files_name(first.kind, first.sequence))
        if kept is not None:
            return version, kept
        try:
            shape = self.shape(first) if found is None else self._shapes.at(first.table_path, found[1].based_on)
        except TableMoved:
            raise
        except NotFound:
            shape = self.shape(first)
        try:
            return version, self._judged(loads, _fitted(files(), shape))
        except SpoolFault as fault:
            _log.error("%s Its rows are in %s.", fault.message, table_name(first))
            return version, Verdict()

    def _reached(self, path: str, app: str, sequence: int) -> bool:
        try:
            return (self._logs.sequence(path, app) or 0) >= sequence
        except NotFound as missing:
            raise TableMoved(missing.message) from missing

    # ------------------------------------------------------------------ the rejects

    def _append_rejects(self, loads: Sequence[Load], verdict: Verdict, app: str, sequence: int) -> None:
        first = loads[0]
        names = rejects_names(table_name(first))
        if not any(self._has_rejects(path, app, sequence) for path in self._writer.existing(names)):
            path = self._rejects_path(table_name(first), names)
            pieces = (piece for pieces in (self._rejects(loads), _unfit(verdict, loads)) for piece in pieces)
            rows = self._spool.rejects_for_spark(
                first.table_id, files_name(first.kind, sequence), pieces, REJECTS_SCHEMA
            )
            note = Note(first.kind, sequence, -1, tuple(Held(load.id) for load in loads))
            self._writer.append_rejects(path, rows, Numbered(app, sequence, note.text()))
            require_sequence(self._logs.sequence(path, app), sequence, path)
        failpoints.reach("load-after-rejects")

    def _has_rejects(self, path: str, app: str, sequence: int) -> bool:
        """Whether an earlier attempt has put the rejects there, also if somebody has changed the table since."""
        try:
            return (self._logs.sequence(path, app) or 0) >= sequence
        except (NotFound, DeltaError):
            return False

    def _rejects_path(self, table: TableName, names: Sequence[TableName]) -> str:
        """The first place that can take the rejects. Whatever somebody has made of the others: no row waits for it."""
        problems: list[str] = []
        for name in names:
            comment = " ".join([f"Rows that did not fit {table}, with the reason.", *problems[:1]])
            try:
                path = self._writer.rejects_path(name, comment)
            except NotAllowed as problem:
                problems.append(problem.message)
                continue
            if problems:
                _log.warning("Rejected rows of %s go to %s. %s", table, name, " ".join(problems))
            return path
        raise NotAllowed(
            f"There is no place for rejected rows of {table}. {problems[0]}", hint=f"Rename {names[0]} or drop it."
        )

    def _rejects(self, loads: Sequence[Load]) -> Iterator[pa.RecordBatch]:
        """Rows that were bad when they came, as the table of rejects has them."""
        for load in loads:
            try:
                for piece in self._spool.read_rejects(load) if load.rejected else ():
                    yield _of_load(load, piece.columns)
            except SpoolFault as fault:
                _log.error("%s Of %s rejected rows of %s, some are lost.", fault.message, load.rejected, load.key)

    # ------------------------------------------------------------------ the records

    def _record(self, loads: Sequence[Load], fewer: Mapping[int, int], version: int | None) -> list[Load]:
        """`fewer` is how many rows of each load did not fit in the end, by its place."""
        first = loads[0]
        assert first.sequence is not None
        now = self._clock()
        finished = [
            load.model_copy(
                update={
                    "state": "COMMITTED",
                    "committed_at": now,
                    "version": version,
                    "rows": load.rows - fewer.get(place, 0),
                    "rejected": load.rejected + fewer.get(place, 0),
                }
            )
            for place, load in enumerate(loads)
        ]
        failpoints.reach("load-before-finish")
        self._store.change(finished)
        failpoints.reach("load-after-finish")
        self._spool.remove(finished)
        self._spool.remove_prepared(first.table_id, files_name(first.kind, first.sequence))
        return finished


def _held(loads: Sequence[Load], verdict: Verdict) -> tuple[Held, ...]:
    """The loads as their table's log knows them, also when nobody else does any more."""
    fewer = verdict.counts
    return tuple(
        Held(load.id, load.key, load.digest, load.rows - fewer.get(place, 0), load.rejected + fewer.get(place, 0))
        for place, load in enumerate(loads)
    )


def _unfit(verdict: Verdict, loads: Sequence[Load]) -> Iterator[pa.RecordBatch]:
    """Rows that turned out to be bad at the commit, as the table of rejects has them."""
    for batch in verdict.batches():
        for place in pc.unique(batch.column(0)).to_pylist():
            yield _of_load(loads[place], batch.filter(pc.equal(batch.column(0), place)).columns[1:])


def _of_load(load: Load, columns: Sequence[pa.Array]) -> pa.RecordBatch:
    name, received = pa.scalar(batch_name(load), pa.string()), pa.scalar(load.received_at, REJECTS_SCHEMA.types[4])
    count = len(columns[0])
    every = [pa.repeat(name, count), *columns, pa.repeat(received, count)]
    return pa.RecordBatch.from_arrays(every, schema=REJECTS_SCHEMA)


def _fitted(files: tuple[RowFile, ...], shape: Shape) -> Files:
    return tuple((file, fit(file.spooled, shape)) for file in files)
