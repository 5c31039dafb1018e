"""State tables: the groups of an aggregate inside a query, kept from one refresh of a dynamic table to the next.

They lie in the folder `_state` of the table's own storage, one Delta table for each aggregate, in the layout of a
grouped table without public columns. Each commit carries the versions of the sources that the groups come from.

A state table is only ever a shortcut. One that is missing, or stands at other versions than the dynamic table, is not
used: it is made again first, at the old frontier, or the refresh computes the groups it needs from the sources. So
nothing depends on its commit being in step with the dynamic table's: it moves on after it, and a crash between leaves
a state table that nobody uses.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyarrow.lib import ArrowException
from pydantic import ValidationError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace import running
from headrace.catalog.records import DynamicTable, Frontier
from headrace.errors import HeadraceError
from headrace.ivm import stages as stages_module
from headrace.ivm.evaluate import evaluate
from headrace.ivm.layout import WEIGHT, Grouped, Layout, LiveRows, grouped_layout, live_rows, schema_text
from headrace.ivm.matching import kept_aggregates
from headrace.ivm.rules import grouped as grouped_rule
from headrace.ivm.sources import read_delta
from headrace.ivm.stages import Stages, state_key
from headrace.ivm.ties import told_ties
from headrace.optimisations import LOCAL_ROWS
from headrace.plan.nodes import Aggregate, Frozen, Plan, Relation, walk
from headrace.progress import Progress
from headrace.refresh.compute import leaves_at, live_table
from headrace.refresh.fold import by_keys
from headrace.refresh.stored import readable_versions
from headrace.storage.arrow import committable, for_delta
from headrace.storage.delta import DeltaLogs
from headrace.storage.errors import short_message
from headrace.storage.maintenance import needs_fold

FOLDER = "_state"
WORTH = 5
"""A state table is worth having when it has so many times fewer groups than its sources have rows."""
_HARMLESS = ("VACUUM START", "VACUUM END", "OPTIMIZE")
_APP = "headrace-state"
_FAILURES = (PySparkException, Py4JJavaError, DeltaError, OSError, ValueError, ArrowException, HeadraceError)


class StateNote(Frozen):
    """What each commit to a state table carries as `userMetadata`."""

    versions: dict[str, str]
    """`table id@version` of every source below the aggregate."""
    sequence: int
    live_rows: int | None = None
    """None after a whole write: the commit's own metrics tell then."""
    tombstones: int = 0
    appends: int = 0
    worth_keeping: bool = True


@dataclass(frozen=True)
class StateTable:
    """One state table as it is now."""

    path: str
    note: StateNote
    version: int


class StateTables:
    """The state tables of one dynamic table."""

    def __init__(self, spark: SparkSession, logs: DeltaLogs, table: DynamicTable, progress: Progress) -> None:
        self._spark = spark
        self._logs = logs
        self._table = table
        self._progress = progress
        self._folder = Path(table.storage_path) / FOLDER
        self.made: set[str] = set()
        """The keys of the aggregates for which one was made."""

    def kept(self, at: Frontier, off: frozenset[str]) -> stages_module.Kept:
        """How to find the live groups of an aggregate at this frontier, or to make the table that has them."""
        seen: dict[str, LiveRows | None] = {}

        def find(node: Aggregate, *, make: bool = False) -> LiveRows | None:
            key = state_key(node)
            if key not in seen:
                seen[key] = self._live_at(node, at, off)
            if seen[key] is None and make and key not in self.made:
                present = self.find(node)
                if present is None or present.note.worth_keeping:
                    self._tell("computing the groups of an aggregate, which are kept from now on")
                    self.made.add(key)
                    self._or_none(node, partial(self._make, node, at))
                    seen[key] = self._live_at(node, at, off)
            return seen[key]

        return find

    def _live_at(self, node: Aggregate, at: Frontier, off: frozenset[str]) -> LiveRows | None:
        found = self.find(node)
        if found is None or not found.note.worth_keeping or not self.is_at(node, found, at):
            return None
        try:
            return self._live(node, found, local=LOCAL_ROWS not in off)
        except _FAILURES as error:
            self._tell(f"a state table cannot be read: {short_message(error)}")
            return None

    def find(self, node: Aggregate) -> StateTable | None:
        path = self._path(node)
        try:
            if not Path(path).is_dir() or not self._logs.exists(path):
                return None
            commits = self._logs.recent(path)
        except _FAILURES as error:
            self._tell(f"a state table cannot be read: {short_message(error)}")
            return None
        last = next((commit for commit in commits if commit.operation not in _HARMLESS), None)
        try:
            note = StateNote.model_validate(json.loads((last and last.user_metadata) or "")["headrace_state"])
        except (ValueError, KeyError, TypeError, ValidationError):
            return None
        if note.live_rows is None and last is not None:
            note = note.model_copy(update={"live_rows": last.rows_written})
        return StateTable(path, note, commits[0].version)

    def is_at(self, node: Aggregate, found: StateTable, frontier: Frontier) -> bool:
        return found.note.versions == self._versions(node, frontier)

    def advance(self, stages: Stages, old: Frontier, new: Frontier) -> None:
        """Bring the state tables to the new frontier: those that the refresh used, and those whose sources have other
        versions with the same rows."""
        for node, found in self.all():
            if not self.is_at(node, found, old):
                continue  # Another process made it meanwhile.
            stands = not self.is_at(node, found, new) and not stages.changed(node)
            _, groups = stages.new_states.get(state_key(node), (node, None))
            if state_key(node) in stages.new_states or stands:
                try:
                    self._append(node, found, groups, new, stages)
                except _FAILURES as error:
                    self._tell(f"a state table did not move on: {short_message(error)}")

    def fold(self) -> None:
        """Fold those that need it."""
        self._remove_unused()
        for node, found in self.all():
            if _fold_is_due(found):
                self._or_none(node, partial(self._fold, node, found))

    def discard(self) -> bool:
        """Remove all of them: what reads them failed. Whether there were any."""
        folders = list(self._folder.iterdir()) if self._folder.is_dir() else []
        for folder in folders:
            self._logs.forget(str(folder))
            shutil.rmtree(folder, ignore_errors=True)
        return bool(folders)

    def _remove_unused(self) -> None:
        """Those of a query that was replaced."""
        used = {Path(self._path(node)) for node in self._aggregates()}
        for folder in self._folder.iterdir() if self._folder.is_dir() else ():
            if folder not in used:
                shutil.rmtree(folder, ignore_errors=True)

    def _tell(self, text: str) -> None:
        self._progress.tell(f"{self._table.table_name}: {text}")

    def need_folding(self) -> bool:
        return self._folder.is_dir() and any(_fold_is_due(found) for _, found in self.all())

    def all(self) -> list[tuple[Aggregate, StateTable]]:
        """The state tables there are, each with its aggregate."""
        return [(node, found) for node in self._aggregates() if (found := self.find(node)) is not None]

    def size(self) -> tuple[int, int, int]:
        """How many state tables there are, and their groups and bytes, tombstones included."""
        if not self._folder.is_dir():
            return 0, 0, 0
        kept = [found for _, found in self.all() if found.note.worth_keeping]
        sizes = [self._logs.statistics(found.path) for found in kept]
        return len(kept), sum(found.note.live_rows or 0 for found in kept), sum(size for _, size in sizes)

    def _aggregates(self) -> list[Aggregate]:
        plan = self._table.query.plan
        nodes = kept_aggregates(plan.root) if plan is not None else []
        return list({state_key(node): node for _, node in nodes}.values())

    def _or_none(self, node: Aggregate, work: Callable[[], None]) -> None:
        """Do it, or have no state table for this aggregate."""
        try:
            work()
        except _FAILURES as error:
            running.require_wanted()
            self._tell(f"the groups of an aggregate are not kept: {short_message(error)}")
            self._logs.forget(self._path(node))
            shutil.rmtree(self._path(node), ignore_errors=True)

    def _path(self, node: Aggregate) -> str:
        """Named after the aggregate and the tables it reads."""
        sources = [self._table.query.sources[n.source].path for n in walk(node) if isinstance(n, Relation)]
        return str(self._folder / hashlib.sha256("\n".join((state_key(node), *sources)).encode()).hexdigest()[:16])

    def _versions(self, node: Aggregate, at: Frontier) -> dict[str, str]:
        sources = self._table.query.sources
        paths = {sources[below.source].path for below in walk(node) if isinstance(below, Relation)}
        return {source.path: f"{source.table_id}@{source.version}" for source in at.sources if source.path in paths}

    def _live(self, node: Aggregate, found: StateTable, *, local: bool) -> LiveRows:
        note = found.note
        return live_table(
            self._spark,
            self._logs,
            (found.path, found.version),
            _layout(node),
            (note.live_rows or 0, note.tombstones),
            local=local,
        )

    def _append(
        self, node: Aggregate, found: StateTable, groups: DataFrame | None, at: Frontier, stages: Stages
    ) -> None:
        layout, sequence = _layout(node), found.note.sequence + 1
        plan, grouped = Plan(root=node, columns=()), Grouped(aggregate=node, finish=())
        rows = None if groups is None else grouped_rule.replacements(groups, grouped, plan, layout, sequence)
        moved = found.note.model_copy(update={"versions": self._versions(node, at), "sequence": sequence})
        local = None if rows is None or not stages.small else stages.local(rows)
        if committable(layout.columns) and (rows is None or local is not None):
            weights = [] if local is None else local.column(WEIGHT).to_pylist()
            note = _counted(moved, sum(w > 0 for w in weights), sum(w < 0 for w in weights))
            self._logs.append(found.path, for_delta(local, layout.columns), _APP, sequence, _text(note))
            return
        if rows is None:
            rows = self._spark.createDataFrame([], schema_text(layout.columns))
        kept = stages.cache(rows)
        counts = kept.selectExpr(f"count_if({WEIGHT} > 0)", f"count_if({WEIGHT} < 0)").first()
        assert counts is not None
        self._write(kept, found.path, _counted(moved, counts[0], counts[1]), "append")

    def _make(self, node: Aggregate, at: Frontier) -> None:
        self._remove_unused()
        versions = readable_versions(self._logs, self._table.query, at)
        leaves = leaves_at(self._spark, self._logs, self._table.query, versions)
        rows = evaluate(node.child, leaves, certain=True)
        layout = _layout(node)
        whole = grouped_rule.whole(rows, Grouped(aggregate=node, finish=()), Plan(root=node, columns=()), layout, 1)
        if self.find(node) is None:
            self._logs.forget(self._path(node))
            shutil.rmtree(self._path(node), ignore_errors=True)
        path, note = self._path(node), StateNote(versions=self._versions(node, at), sequence=1)
        try:
            sources = sum(self._logs.statistics(source_path)[0] for source_path in note.versions)
            self._write(by_keys(whole, Grouped(aggregate=node, finish=()), sources), path, note, "overwrite")
            groups, _ = self._logs.statistics(path)
            is_worth_it = groups * WORTH <= sources
        except (PySparkException, Py4JJavaError) as error:
            if told_ties(error) is None:
                raise
            is_worth_it = False  # What was computed once cannot be told by computing it again.
        if not is_worth_it:
            nothing = self._spark.createDataFrame([], schema_text(layout.columns))
            self._write(nothing, path, note.model_copy(update={"worth_keeping": False}), "overwrite")
        self._logs.remove_old_files(path)

    def _fold(self, node: Aggregate, found: StateTable) -> None:
        live = live_rows(read_delta(self._spark, self._logs, found.path, found.version))
        folded = found.note.model_copy(update={"tombstones": 0, "appends": 0, "sequence": found.note.sequence + 1})
        count = found.note.live_rows or 0
        rows = live.coalesce(1) if count <= stages_module.LOCAL_ROWS else live
        self._write(by_keys(rows, Grouped(aggregate=node, finish=()), count), found.path, folded, "overwrite")
        self._logs.remove_old_files(found.path)

    def _write(self, rows: DataFrame, path: str, note: StateNote, mode: str) -> None:
        writer = rows.write.format("delta").mode(mode).option("userMetadata", _text(note))
        if mode == "overwrite":
            writer = writer.option("overwriteSchema", "true")
        writer.save(path)
        running.count({"commits": 1})
        self._logs.forget(path)


def _layout(node: Aggregate) -> Layout:
    return grouped_layout(Grouped(aggregate=node, finish=()))


def _fold_is_due(found: StateTable) -> bool:
    return needs_fold(found.note.live_rows or 0, found.note.tombstones, found.note.appends) is not None


def _counted(note: StateNote, added: int, removed: int) -> StateNote:
    return note.model_copy(
        update={
            "live_rows": (note.live_rows or 0) + added - removed,
            "tombstones": note.tombstones + removed,
            "appends": note.appends + 1,
        }
    )


def _text(note: StateNote) -> str:
    return json.dumps({"headrace_state": note.model_dump()}, separators=(",", ":"))
