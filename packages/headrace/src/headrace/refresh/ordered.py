"""Ordered copies: what a query reads of a big source, in the order of a column by which it looks rows up.

A source lies in one order. Looking its rows up by another column opens all of its files, however few the rows are. So
the columns that the query reads are kept once more in the order of that one, in the folder `_ordered` of the table's
own storage, as two Delta tables for each copy:

    rows      those of the source at some version, in order; never changed
    changes   what came and went since, with a weight; each commit says which version of the source it leads to

    source at v  =  rows  +  changes up to the commit of v

A copy is only ever a shortcut. It tells nothing but what a source has at a version, so it is brought to the versions of
a refresh when that first looks something up in it, and whether the refresh commits does not matter to it. One that
cannot be is made again, or the source itself is read.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from operator import or_
from pathlib import Path
from typing import Any

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyarrow.lib import ArrowException
from pydantic import ValidationError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace import running
from headrace.catalog.records import DynamicTable
from headrace.errors import HeadraceError
from headrace.ivm.changeset import WEIGHT, net, weighted
from headrace.ivm.layout import schema_text
from headrace.ivm.sources import SourceRange, read_delta, relation_changes
from headrace.ivm.stages import CHANGED_BYTES, CHANGED_ROWS, Lookup
from headrace.names import quote
from headrace.plan.nodes import Column, Frozen, Relation, walk
from headrace.plan.types import comparable, storable
from headrace.progress import Progress
from headrace.storage.arrow import committable, for_delta
from headrace.storage.delta import DeltaLogs
from headrace.storage.errors import short_message

FOLDER = "_ordered"
ROWS_PER_FILE = 250_000
MANY_FILES = 400
"""A lookup opens few files, and the log's file list stays short."""
MANY_COMMITS = 16
"""After so many commits their small files are put together."""
AGAIN = 4
"""A copy is made again when a source has changed by one row in so many since."""
_REMEMBERED = 3 * MANY_COMMITS
_APP = "headrace-ordered"
_FAILURES = (PySparkException, Py4JJavaError, DeltaError, OSError, ValueError, ArrowException, HeadraceError)
_KEY = "c0"
_PLAIN = {
    "delta.enableChangeDataFeed": "false",
    "delta.enableDeletionVectors": "false",
    "delta.autoOptimize.autoCompact": "false",
    "delta.columnMapping.mode": "none",
}
"""Whatever the defaults of the session are, the files are as they were written."""


class CopyNote(Frozen):
    """What the commit of the rows carries as `userMetadata`."""

    source: str
    name: str
    table_id: str
    digest: str
    """Of the columns' names and types in the source."""
    version: int
    key: str
    columns: tuple[tuple[str, str], ...]
    """Names and types in the source, the key first; the copy calls them c0, c1, …"""


class ChangeNote(Frozen):
    """What each commit of the changes carries."""

    rows_id: str
    """The table id of the rows that these change."""
    version: int
    """Of the source, after these changes."""
    sequence: int
    changed: int = 0
    """Rows in all commits so far."""
    removes: bool = False
    """Whether one of them takes rows away."""


@dataclass(frozen=True)
class Copy:
    """One copy as it is now."""

    folder: Path
    note: CopyNote
    changes: tuple[tuple[int, ChangeNote], ...]
    """The commits of the changes, newest first: the version there, and what leads up to it."""

    @property
    def rows(self) -> str:
        return str(self.folder / "rows")

    @property
    def tail(self) -> str:
        return str(self.folder / "changes")

    @property
    def newest(self) -> ChangeNote:
        return self.changes[0][1]

    def at(self, version: int) -> tuple[int, ChangeNote] | None:
        """The commit that leads to a version of the source."""
        return next((each for each in self.changes if each[1].version == version), None)


class OrderedCopies:
    """The ordered copies of one dynamic table."""

    def __init__(self, spark: SparkSession, logs: DeltaLogs, table: DynamicTable, progress: Progress) -> None:
        self._spark = spark
        self._logs = logs
        self._table = table
        self._progress = progress
        self._folder = Path(table.storage_path) / FOLDER
        self._ready: dict[tuple[str, str], Copy | None] = {}
        self.made: set[str] = set()
        """The folders of those that were made."""

    def lookup(self, wanted: Lookup, *, old: bool) -> DataFrame | None:
        """The rows of a source in these ranges of a column, at the old or the new frontier; None without a copy."""
        place = (wanted.source.path, wanted.key)
        if place not in self._ready:
            self._ready[place] = self._or_none(wanted)
        copy = self._ready[place]
        version = wanted.source.old if old or not wanted.source.changed else wanted.source.new
        found = None if copy is None or version is None else copy.at(version)
        return None if copy is None or found is None else self._rows(copy, found, wanted)

    def all(self) -> list[Copy]:
        return [copy for folder in self._folders() if (copy := self._read(folder)) is not None]

    def size(self) -> tuple[int, int]:
        """How many there are, and their bytes."""
        sizes = [size for copy in self.all() if (size := self.bytes(copy)) is not None]
        return len(sizes), sum(sizes)

    def bytes(self, copy: Copy) -> int | None:
        """The size of one; None when it was removed meanwhile."""
        try:
            return sum(self._logs.statistics(path)[1] for path in (copy.rows, copy.tail))
        except _FAILURES:
            return None

    def rows(self, copy: Copy) -> int | None:
        """The rows of one, without what changed since it was made; None when it was removed meanwhile."""
        try:
            return self._logs.statistics(copy.rows)[0]
        except _FAILURES:
            return None

    def remove_unused(self) -> None:
        """Those of a query that was replaced, of a source that was dropped, and those that cannot be read."""
        sources = {source.path: place for place, source in enumerate(self._table.query.sources)}
        for folder in self._folders():
            copy = self._read(folder)
            place = None if copy is None else sources.get(copy.note.source)
            if copy is None or place is None or not self._is_of_source(copy, place):
                self._remove(folder)

    def _is_of_source(self, copy: Copy, place: int) -> bool:
        if sorted(copy.note.columns) != sorted(self._columns(place)):
            return False
        try:
            return self._logs.snapshot(copy.note.source).table_id == copy.note.table_id
        except _FAILURES:
            return False

    def discard(self) -> bool:
        """Remove all of them: what reads them failed. Whether there were any."""
        folders = self._folders()
        for folder in folders:
            self._remove(folder)
        return bool(folders)

    # ------------------------------------------------------------------ bringing one up to date

    def _or_none(self, wanted: Lookup) -> Copy | None:
        columns = [*wanted.columns]
        if not all(comparable(kind) and storable(kind) and "NOT NULL" not in kind for _, kind in columns):
            return None
        try:
            copy = self._present(wanted)
            if copy is None:
                copy = self._make(wanted)
            return self._moved_on(copy, wanted.source)
        except _FAILURES as error:
            running.require_wanted()
            self._tell(f"no ordered copy of {self._name(wanted)} is kept: {short_message(error)}")
            self._remove(self._place(wanted))
            return None

    def _present(self, wanted: Lookup) -> Copy | None:
        """The copy, at the old frontier or with that in its past; None where it has to be made."""
        source = wanted.source
        assert source.old is not None
        copy = self._read(self._place(wanted))
        if copy is None or copy.note.table_id != self._logs.snapshot(source.path).table_id:
            return None
        if copy.note.digest != self._digest(wanted, source.new):
            return None
        most = self._logs.statistics(copy.rows)[0] // AGAIN
        if copy.newest.changed > most:
            return None
        if copy.at(source.old) is None:
            if copy.newest.version > source.old:
                return None
            commits = self._logs.commits(source.path, copy.newest.version, source.old)
            if commits is None or not self._logs.snapshot_at(source.path, source.old).tracks_changes:
                return None
            rows = [commit.rows for commit in commits if commit.changes != "none"]
            if any(commit.restored is not None for commit in commits) or None in rows:
                return None
            missed = sum(each or 0 for each in rows)
            if copy.newest.changed + missed > most:
                return None
            copy = self._appended(copy, source, source.old, few=self._is_few(source.path, missed))
        if copy.newest.version == source.old and len(copy.changes) > MANY_COMMITS:
            self._logs.compact(copy.tail)
            copy = self._again(copy)
        return copy

    def _is_few(self, path: str, rows: int) -> bool:
        """Whether so many changes of a table fit in the driver."""
        of, size = self._logs.statistics(path)
        return rows <= CHANGED_ROWS and rows * size // max(of, 1) <= CHANGED_BYTES

    def _moved_on(self, copy: Copy, source: SourceRange) -> Copy:
        if not source.changed or copy.at(source.new) is not None:
            return copy
        return self._appended(copy, source, source.new, few=True)  # Lookups are for small changes only.

    def _appended(self, copy: Copy, source: SourceRange, upto: int, *, few: bool) -> Copy:
        """The copy with the changes of the source up to a version."""
        before = copy.newest
        columns = _columns_of(copy.note)
        pairs = tuple((own, column) for (own, _), column in zip(copy.note.columns, columns, strict=True))
        span = replace(
            source, old=before.version, new=upto, changed=True, insert_only=False, old_rows=None, new_rows=None
        )
        found = relation_changes(self._spark, self._logs, Relation(source=0, columns=pairs), span)
        assert found is not None
        stored = (*columns, Column(name=WEIGHT, type="int"))
        rows = found.rows.selectExpr(*(f"CAST({column.name} AS {column.type}) AS {column.name}" for column in stored))
        local = rows.coalesce(1).limit(CHANGED_ROWS + 1).toArrow() if few and committable(stored) else None
        moved = before.model_copy(update={"version": upto, "sequence": before.sequence + 1})
        if local is not None and local.num_rows <= CHANGED_ROWS:
            removes = any(weight < 0 for weight in local.column(WEIGHT).to_pylist())
            moved = _counted(moved, local.num_rows, removes)
            self._logs.append(copy.tail, for_delta(local, stored), _APP, moved.sequence, _text(moved))
        else:
            kept = rows.persist()
            try:
                counts = kept.selectExpr("count(*)", f"count_if({WEIGHT} < 0)").first()
                assert counts is not None
                moved = _counted(moved, counts[0], counts[1] > 0)
                kept.write.format("delta").mode("append").option("userMetadata", _text(moved)).save(copy.tail)
                running.count({"commits": 1})
                self._logs.forget(copy.tail)
            finally:
                kept.unpersist()
        return self._again(copy)

    def _make(self, wanted: Lookup) -> Copy:
        source, folder = wanted.source, self._place(wanted)
        assert source.old is not None
        self._tell(f"sorting {self._name(wanted)}, to be kept so from now on")
        self.remove_unused()
        self._remove(folder)
        self.made.add(folder.name)
        pairs = [(wanted.key, kind) for own, kind in wanted.columns if own == wanted.key]
        pairs += [(own, kind) for own, kind in wanted.columns if own != wanted.key]
        note = CopyNote(
            source=source.path,
            name=next(each.name for each in self._table.query.sources if each.path == source.path),
            table_id=self._logs.snapshot(source.path).table_id,
            digest=self._digest(wanted, source.old),
            version=source.old,
            key=wanted.key,
            columns=tuple(pairs),
        )
        columns = _columns_of(note)
        version = source.old if source.old_rows is None else source.old_rows
        rows = read_delta(self._spark, self._logs, source.path, version)
        rows = rows.select(
            *(F.col(quote(own)).cast(c.type).alias(c.name) for (own, _), c in zip(pairs, columns, strict=True))
        )
        files = min(max(self._logs.statistics(source.path)[0] // ROWS_PER_FILE, 1), MANY_FILES)
        rows = rows.repartitionByRange(files, _KEY).sortWithinPartitions(_KEY)
        rows.write.format("delta").options(**_PLAIN).option("userMetadata", _text(note)).save(str(folder / "rows"))
        first = ChangeNote(rows_id=self._logs.snapshot(str(folder / "rows")).table_id, version=source.old, sequence=1)
        nothing = self._spark.createDataFrame([], schema_text((*columns, Column(name=WEIGHT, type="int"))))
        nothing.write.format("delta").options(**_PLAIN).option("userMetadata", _text(first)).save(
            str(folder / "changes")
        )
        running.count({"commits": 2})
        return Copy(folder, note, ((0, first),))

    # ------------------------------------------------------------------ reading one

    def _rows(self, copy: Copy, at: tuple[int, ChangeNote], wanted: Lookup) -> DataFrame:
        names = [column.name for column in _columns_of(copy.note)]
        within = {_KEY: wanted.ranges}
        place, state = at
        inside = reduce(or_, (F.col(_KEY).between(low, high) for low, high in wanted.ranges))
        rows = read_delta(self._spark, self._logs, copy.rows, self._logs.snapshot(copy.rows).version, within)
        rows = rows.where(inside).select(*names)
        if state.changed:
            tail = read_delta(self._spark, self._logs, copy.tail, place, within).where(inside)
            if state.removes:
                both = weighted(rows, 1).unionByName(tail)
                rows = net(both, names).where(f"{WEIGHT} > 0").select(*names)
            else:
                rows = rows.union(tail.select(*names))
        return rows.toDF(*(own for own, _ in copy.note.columns))

    def _read(self, folder: Path) -> Copy | None:
        rows, changes = str(folder / "rows"), str(folder / "changes")
        try:
            if not (self._logs.exists(rows) and self._logs.exists(changes)):
                return None
            (first,) = self._logs.history(rows)
            note = CopyNote.model_validate(_noted(first.user_metadata))
            found = tuple(self._changes(changes))
            same = self._logs.snapshot(rows).table_id
        except (*_FAILURES, KeyError, TypeError):
            return None
        # Each commit of the changes follows the one before it, or somebody else was at work on them, too.
        in_turn = all(
            later.sequence == earlier.sequence + 1 and later.version > earlier.version
            for (_, later), (_, earlier) in pairwise(found)
        )
        usable = found and in_turn and all(each.rows_id == same for _, each in found)
        return Copy(folder, note, found) if usable else None

    def _changes(self, path: str) -> Iterator[tuple[int, ChangeNote]]:
        """The commits since small files were last put together, newest first. The version to read is that of the last
        commit that left all rows as they were."""
        same: int | None = None
        together = False
        for commit in self._logs.history(path, _REMEMBERED):
            same = commit.version if same is None else same
            together = together or commit.operation == "OPTIMIZE"
            if commit.changes == "none" and not commit.user_metadata:
                continue
            try:
                note = ChangeNote.model_validate(_noted(commit.user_metadata))
            except (ValueError, KeyError, TypeError, ValidationError):
                return  # Somebody else's: what is there, nobody knows.
            yield same, note
            same = None
            if together:
                return  # The files of older versions are gone.

    def _again(self, copy: Copy) -> Copy:
        found = self._read(copy.folder)
        if found is None:
            raise ValueError(f"{copy.folder} cannot be read")
        return found

    # ------------------------------------------------------------------ names

    def _columns(self, place: int) -> list[tuple[str, str]]:
        plan = self._table.query.plan
        nodes = walk(plan.root) if plan is not None else []
        return columns_read([node for node in nodes if isinstance(node, Relation) and node.source == place])

    def _place(self, wanted: Lookup) -> Path:
        told = json.dumps([wanted.source.path, wanted.key, sorted(wanted.columns)])
        return self._folder / hashlib.sha256(told.encode()).hexdigest()[:16]

    def _digest(self, wanted: Lookup, version: int) -> str:
        names = tuple(own for own, _ in wanted.columns)
        return self._logs.snapshot_at(wanted.source.path, version).digest(names)

    def _name(self, wanted: Lookup) -> str:
        name = next(each.name for each in self._table.query.sources if each.path == wanted.source.path)
        return f"{name} by {wanted.key}"

    def _folders(self) -> list[Path]:
        return sorted(self._folder.iterdir()) if self._folder.is_dir() else []

    def _remove(self, folder: Path) -> None:
        for part in ("rows", "changes"):
            self._logs.forget(str(folder / part))
        shutil.rmtree(folder, ignore_errors=True)

    def _tell(self, text: str) -> None:
        self._progress.tell(f"{self._table.table_name}: {text}")


def columns_read(relations: list[Relation]) -> list[tuple[str, str]]:
    """The columns of a source that a query reads in any of its places, with their types."""
    return sorted({(own, column.type) for relation in relations for own, column in relation.columns})


def _columns_of(note: CopyNote) -> tuple[Column, ...]:
    return tuple(Column(name=f"c{place}", type=kind) for place, (_, kind) in enumerate(note.columns))


def _counted(note: ChangeNote, rows: int, removes: bool) -> ChangeNote:
    return note.model_copy(update={"changed": note.changed + rows, "removes": note.removes or removes})


def _noted(metadata: str | None) -> Any:
    return json.loads(metadata or "")["headrace_ordered"]


def _text(note: CopyNote | ChangeNote) -> str:
    return json.dumps({"headrace_ordered": note.model_dump()}, separators=(",", ":"))
