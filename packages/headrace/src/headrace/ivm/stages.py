"""Staged evaluation: each operator's changeset is computed once, and what several steps need is materialized first.

Small changesets become local rows; their keys are then pushed into the reads of the other inputs as literals, where
Delta's file statistics can skip. Larger ones are cached for the time of the refresh.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace import optimisations
from headrace.ivm.changeset import WEIGHT, Changes
from headrace.ivm.evaluate import Leaf, evaluate, values
from headrace.ivm.layout import Grouped, LiveRows, folds_exactly, group_values, grouped_layout
from headrace.ivm.narrowing import names_passed, one_of, passed_up, spans
from headrace.ivm.sharing import canonical
from headrace.ivm.sources import SourceRange, read_delta, read_version, relation_changes, relation_rows
from headrace.names import quote
from headrace.plan.certainty import carriers
from headrace.plan.dates import depends_on_date, own_texts_at, plan_at
from headrace.plan.nodes import Aggregate, Filter, InnerJoin, Node, Project, Relation, Values, walk
from headrace.plan.types import storable
from headrace.storage.delta import DeltaLogs
from headrace.storage.spread import Reach, Spans

LOCAL_ROWS = 20_000
"""Up to so many rows of a dynamic table are held in the driver as local rows."""
CHANGED_ROWS = 200_000
CHANGED_BYTES = 32_000_000
"""A change of up to so many source rows, in so many bytes of files, is computed in one task, and held in the driver
where it is needed more than once."""
LISTED_KEYS = 5_000_000
"""Of a larger change, the keys are held in the driver, up to so many, to say which files have any of them."""
_ONE_LOOK = ("byte", "short", "integer", "long", "date", "string", "boolean")
"""Types of which equal values are the same in every way, as 0.0 and -0.0 are not."""
_RANGED = ("byte", "short", "integer", "long", "date")
BIG_ROWS = 50_000
"""From so many source rows on, it pays to compute a changeset first and read only what its keys can match."""

STATE_ROWS = 500_000
"""From so many source rows on, the groups of an aggregate inside a query are kept."""

ORDERED_ROWS = 5_000_000
"""From so many rows on, a source is kept in another order, where rows are looked up by that."""
_SCATTERED = 0.5
"""The files that may have a value are so large a share of the source: it does not lie in the order of the column."""
_SELECTIVE = 0.125
"""Ranges that cover no more of a column's span are worth looking up in its order."""

Operator = TypeVar("Operator")
Rule = Callable[["Stages", Operator], Changes | None]


class Kept(Protocol):
    """Finds the state table of an inner aggregate at the old frontier. With `make`, one that is not there is made
    first, if it is worth having."""

    def __call__(self, node: Aggregate, *, make: bool = False) -> LiveRows | None: ...


def nothing_kept(node: Aggregate, *, make: bool = False) -> LiveRows | None:
    """Without state tables."""
    return None


@dataclass(frozen=True)
class Lookup:
    """Rows of a source that are looked for: those in the ranges of a column."""

    source: SourceRange
    columns: tuple[tuple[str, str], ...]
    """All that the query reads of the source, each with its type."""
    key: str
    ranges: Sequence[tuple[Any, Any]]


class Ordered(Protocol):
    """Finds rows of a source, at the old or the new frontier, in a copy that lies in the order of the lookup's column;
    None where there can be none."""

    def __call__(self, wanted: Lookup, *, old: bool) -> DataFrame | None: ...


def nothing_ordered(wanted: Lookup, *, old: bool) -> DataFrame | None:
    """Without ordered copies."""
    return None


class JoinMatching(Protocol):
    """The rows of a join for which the texts are one of the wanted rows; None where the join may as well be read."""

    def __call__(
        self, stages: Stages, node: InnerJoin, texts: Sequence[str], wanted: Changes, *, old: bool
    ) -> DataFrame | None: ...


def not_joined(
    stages: Stages, node: InnerJoin, texts: Sequence[str], wanted: Changes, *, old: bool
) -> DataFrame | None:
    """Without looking at the keys first."""
    return None


class Uncertain(Exception):
    """The changes cannot be computed with certainty, for the reason given: the refresh must compute the whole query."""


class Stages:
    """One refresh's view of its sources: rows before, rows after, and changes of any node of the plan."""

    def __init__(
        self,
        spark: SparkSession,
        logs: DeltaLogs,
        sources: Sequence[SourceRange],
        rules: dict[type, Rule[Any]],
        root: Node,
        dates: tuple[str | None, str | None] = (None, None),
        off: frozenset[str] = frozenset(),
        kept: Kept = nothing_kept,
        ordered: Ordered = nothing_ordered,
        join_matching: JoinMatching = not_joined,
    ) -> None:
        """`root` is the whole plan; `dates` are the days that current_date stands for, at the old frontier and at the
        new one; `off` are optimisations to do without; `kept` finds the state tables of inner aggregates, `ordered`
        the rows of sources in ordered copies, `join_matching` the rows of a join that have one of some keys."""
        self._kept = kept
        self._join_matching = join_matching
        self._ordered = ordered
        self.new_states: dict[str, tuple[Aggregate, DataFrame | None]] = {}
        """Inner aggregates whose state table moves on: their changed groups, None when there are none."""
        self.off = off
        self.spark = spark
        self.old_date, self.new_date = dates
        self._logs = logs
        self._read_already: dict[tuple[str, int], DataFrame] = {}
        self.sources = sources
        self._rules = rules
        self._cached: list[DataFrame] = []
        self._listed: dict[tuple[Any, ...], tuple[DataFrame, dict[str, pa.ChunkedArray]]] = {}
        """Keys of large changesets, each with the rows that they are of."""
        self._relations = [node for node in walk(root) if isinstance(node, Relation)]
        self._read_changes: dict[int, Changes | None] = {}
        self._computed: dict[str, tuple[Node, Changes | None]] = {}
        self._dated: list[Node] = []
        """Nodes whose current_date was put in: tomorrow they are others."""
        inner = [canonical(node) for node in walk(root) if not isinstance(node, Relation | Values | Project | Filter)]
        self.inexact = carriers(root)
        """Columns that may come out otherwise when they are computed once more."""
        self._repeated = {key for key, times in Counter(inner).items() if key is not None and times > 1}
        """The parts of the plan that occur more than once."""
        self.small = self.uses(optimisations.LOCAL_ROWS) and self._is_small()
        """The change is known, from the commits' own metrics, to fit in the driver."""
        self.counted: dict[int, int] = {}
        """The rows of the changesets that were held in the driver, by the id of their node, for the profile."""

    @property
    def _changed_rows(self) -> int:
        """How many rows of the sources changed; as many as can be if that is not known."""
        rows = [source.rows for source in self.sources if source.changed]
        return sys.maxsize if None in rows else sum(each or 0 for each in rows)

    def _is_small(self) -> bool:
        changed = [source for source in self.sources if source.changed]
        if any(source.rows is None for source in changed):
            return False
        rows = sum(source.rows or 0 for source in changed)
        sizes = [(source.rows or 0, *self._logs.statistics(source.path)) for source in changed]
        return rows <= CHANGED_ROWS and sum(n * size // max(of, 1) for n, of, size in sizes) <= CHANGED_BYTES

    def uses(self, optimisation: str) -> bool:
        return optimisation not in self.off

    def old(self, node: Node) -> DataFrame:
        """The node's rows at the old frontier."""
        return self._rows(node, old=True)

    def new(self, node: Node) -> DataFrame:
        """The node's rows at the new frontier."""
        return self._rows(node, old=False)

    def _rows(self, node: Node, *, old: bool, within: Spans | None = None) -> DataFrame:
        return evaluate(
            plan_at(node, self.old_date if old else self.new_date),
            lambda relation: self._read(relation, old=old, within=within or {}),
            self._old_groups if old else self._new_groups,
            certain=True,
        )

    def state_table(self, node: Aggregate) -> LiveRows | None:
        """The stored groups of an inner aggregate at the old frontier. Over big sources they are kept from now on, if
        they were not: that takes about as long as one computation without them."""
        found = self._stored_groups(node)
        if found is None and self._may_be_kept(node) and self.size(node) >= STATE_ROWS:
            found = self._kept(node, make=True)
        return found

    def is_kept(self, node: Aggregate) -> bool:
        """Whether there is a state table of it now."""
        return self._stored_groups(node) is not None

    def _old_groups(self, node: Node) -> DataFrame | None:
        if not isinstance(node, Aggregate):
            return None
        stored = self._stored_groups(node)
        return None if stored is None else group_values(stored.rows, Grouped(aggregate=node, finish=()))

    def _new_groups(self, node: Node) -> DataFrame | None:
        """From the state table and, where its sources changed, the groups that changed."""
        if not isinstance(node, Aggregate) or not self.changed(node):
            return self._old_groups(node)
        stored = self._stored_groups(node)
        if stored is None:
            return None
        if state_key(node) not in self.new_states:
            return None
        groups = self.new_states[state_key(node)][1]
        grouped = Grouped(aggregate=node, finish=())
        if groups is None:
            return group_values(stored.rows, grouped)
        names = [column.name for column in grouped_layout(grouped).hidden if column.name in groups.columns]
        fresh = groups.select(*names)
        if grouped.is_global:
            return group_values(fresh, grouped)
        keys = [name for name, _ in grouped.key_columns]
        touched = fresh.select(*(F.col(name).alias(f"__hr_t{name}") for name in keys))
        same = F.expr(" AND ".join(f"{name} <=> __hr_t{name}" for name in keys))
        kept = stored.rows.select(*names).join(F.broadcast(touched), same, "left_anti")
        return group_values(kept.union(fresh), grouped)

    def _stored_groups(self, node: Aggregate) -> LiveRows | None:
        return self._kept(node) if self._may_be_kept(node) else None

    def _may_be_kept(self, node: Aggregate) -> bool:
        if not self.uses(optimisations.STATE_TABLES) or depends_on_date(node) or any(node is n for n in self._dated):
            return False
        grouped = Grouped(aggregate=node, finish=())
        return folds_exactly(grouped, self.inexact) and all(
            storable(column.type) for column in grouped_layout(grouped).hidden
        )

    def changes(self, node: Node) -> Changes | None:
        """The node's changeset; None when nothing below it changed, and Spark then never hears of it."""
        if not self.changed(node):
            return None
        if self._repeated and self.uses(optimisations.SHARED_PARTS) and canonical(node) in self._repeated:
            return self.materialized(node)
        return self._changes(node)

    def _changes(self, node: Node) -> Changes | None:
        if isinstance(node, Relation):
            found = self._source_changes(node)
        else:
            # Filter and project look at both days themselves.
            today = node if isinstance(node, Filter | Project) else own_texts_at(node, self.new_date)
            if today is not node:
                self._dated.append(today)
            found = self._rules[type(node)](self, today)
        return found

    def _source_changes(self, relation: Relation) -> Changes | None:
        """A source's changes; those of a source that the query names several times are read once, with the columns of
        all its places."""
        same = [other for other in self._relations if other.source == relation.source]
        if len(same) < 2 or not self.uses(optimisations.SHARED_PARTS):
            return self._feed(relation)
        if relation.source not in self._read_changes:
            columns = {own: column.model_copy(update={"name": own}) for each in same for own, column in each.columns}
            wide = self._feed(relation.model_copy(update={"columns": tuple(columns.items())}))
            self._read_changes[relation.source] = None if wide is None else self.materialize(wide)
        read = self._read_changes[relation.source]
        pairs = [(own, column.name) for own, column in relation.columns]
        return None if read is None else self._renamed(read, pairs)

    def _feed(self, relation: Relation) -> Changes | None:
        found = relation_changes(self.spark, self._logs, relation, self.sources[relation.source])
        # One partition needs no exchange before an aggregate or a join.
        return found.over(found.rows.coalesce(1)) if found is not None and self.small else found

    def _renamed(self, changes: Changes, pairs: Sequence[tuple[str, str]]) -> Changes:
        """The same changes with these columns under these names."""
        rows = changes.rows.selectExpr(*(f"{quote(own)} AS {quote(name)}" for own, name in pairs), WEIGHT)
        if changes.local is None:
            return Changes(rows, changes.insert_only)
        local = changes.local.select([*(own for own, _ in pairs), WEIGHT])
        return Changes(rows, changes.insert_only, local.rename_columns([*(name for _, name in pairs), WEIGHT]))

    def materialized(self, node: Node) -> Changes | None:
        """The node's changeset, computed now, once for all equal parts of the plan; None when it turned out empty."""
        key = canonical(node) if self.uses(optimisations.SHARED_PARTS) else None
        if key is not None and key in self._computed:
            twin, found = self._computed[key]
            if id(twin) in self.counted:
                self.counted[id(node)] = self.counted[id(twin)]
            pairs = [(own.name, column.name) for own, column in zip(twin.output, node.output, strict=True)]
            return None if found is None else self._renamed(found, pairs)
        found = self._changes(node) if self.changed(node) else None
        found = None if found is None else self.materialize(found)
        if key is not None:
            self._computed[key] = (node, found)
        if found is None:
            self.counted[id(node)] = 0
        elif found.local is not None:
            self.counted[id(node)] = found.local.num_rows
        return found

    def changes_beside(self, node: Node, others: Sequence[Node]) -> Changes | None:
        """The node's changeset, for one join with each of the others: computed now when one of them is big, so that
        its keys can narrow what is read there."""
        return self.materialized(node) if any(map(self.is_big, others)) else self.changes(node)

    def size(self, node: Node) -> int:
        """How many source rows there are below a node."""
        paths = [self.sources[below.source].path for below in walk(node) if isinstance(below, Relation)]
        return sum(self._logs.statistics(path)[0] for path in paths)

    def is_big(self, node: Node) -> bool:
        return self.size(node) >= BIG_ROWS

    def materialize(self, changes: Changes) -> Changes | None:
        if changes.local is not None:
            return changes
        if self.small:
            local = self.local(changes.rows)
            if local is not None:
                return None if local.num_rows == 0 else self.from_local(local, changes)
        return Changes(self.cache(changes.rows), changes.insert_only, cached=True)

    def at_hand(self, rows: DataFrame) -> DataFrame:
        """The same rows, computed now when they are few, and once in any case."""
        local = self.local(rows) if self.small else None
        if local is None:
            return self.cache(rows)
        return self.spark.createDataFrame(local, schema=rows.schema).coalesce(1)

    def from_local(self, table: pa.Table, changes: Changes) -> Changes:
        rows = self.spark.createDataFrame(table, schema=changes.rows.schema)
        return Changes(rows.coalesce(1), changes.insert_only, table)

    def local(self, rows: DataFrame) -> pa.Table | None:
        """The rows as an Arrow table, or None when there are too many to hold."""
        table = rows.limit(CHANGED_ROWS + 1).toArrow()
        return table if table.num_rows <= CHANGED_ROWS else None

    def cache(self, rows: DataFrame) -> DataFrame:
        kept = rows.persist()
        self._cached.append(kept)
        return kept

    @property
    def new_day(self) -> bool:
        return self.old_date != self.new_date

    def changed(self, node: Node) -> bool:
        if self.new_day and depends_on_date(node):
            return True
        return any(self.sources[below.source].changed for below in walk(node) if isinstance(below, Relation))

    def matching(
        self,
        node: Node,
        texts: Sequence[str],
        changes: Changes,
        keys: Sequence[str],
        *,
        old: bool,
        nulls: bool = True,
    ) -> DataFrame:
        """The rows of a node at the old or the new frontier, with what cannot match the few keys of a small changeset
        already left out.

        `texts` are the key expressions over the node, `keys` those over the changeset; without `nulls`, a NULL
        among these matches nothing. This only ever saves reading: the join or grouping that follows decides what
        matches."""
        values = self._key_values(texts, changes, keys)
        if changes.cached and self.size(node) > 2 * self._changed_rows:
            values = self._many_key_values(texts, changes, keys)
        if not nulls:
            values = [(text, pc.drop_null(each)) for text, each in values]
        columns = passed_up(node) if values else set()
        found = {text.strip("`"): spans(each) for text, each in values if text.strip("`") in columns}
        within = {name: each for name, each in found.items() if each is not None}
        joined = self._joined(node, texts, changes, keys, old=old)
        return _with_keys(self._rows(node, old=old, within=within) if joined is None else joined, values)

    def _joined(
        self, node: Node, texts: Sequence[str], changes: Changes, keys: Sequence[str], *, old: bool
    ) -> DataFrame | None:
        """The rows of a node over a join, with some at least of those that cannot match left out by joining the keys
        first; None where that would not spare reading a big input."""
        if changes.local is None or not self.is_huge(node) or not self.uses(optimisations.ORDERED_COPIES):
            return None
        dated = plan_at(node, self.old_date if old else self.new_date)
        join, columns = dated, {column.name for column in dated.output}
        while isinstance(join, Project | Filter):
            columns &= names_passed(join)
            join = join.child
        pairs = [(text, key) for text, key in zip(texts, keys, strict=True) if text.strip("`") in columns]
        if not isinstance(join, InnerJoin) or not pairs:
            return None
        wanted = self._distinct(changes, changes.local, [key for _, key in pairs])
        if wanted is None:
            return None
        rows = self._join_matching(self, join, [text for text, _ in pairs], wanted, old=old)
        if rows is None:
            return None
        known = self._old_groups if old else self._new_groups
        read = partial(self._read, old=old, within={})
        return evaluate(dated, read, lambda each: rows if each is join else known(each), certain=True)

    def _distinct(self, changes: Changes, local: pa.Table, keys: Sequence[str]) -> Changes | None:
        """The distinct values of these keys; None where equal ones may look different."""
        rows = changes.rows.selectExpr(*(f"{key} AS __hr_m{number}" for number, key in enumerate(keys)))
        if any(field.dataType.typeName() not in _ONE_LOOK for field in rows.schema.fields):
            return None
        plain = [key.strip("`") for key in keys]
        are_columns = set(plain) <= set(local.column_names)
        table = local.select(plain).rename_columns(rows.columns) if are_columns else rows.toArrow()
        table = table.group_by(table.column_names).aggregate([])
        return Changes(self.spark.createDataFrame(table, schema=rows.schema).coalesce(1), True, table)

    def narrowed(self, rows: DataFrame, texts: Sequence[str], changes: Changes, keys: Sequence[str]) -> DataFrame:
        """As `matching`, of rows that are there already."""
        return _with_keys(rows, self._key_values(texts, changes, keys))

    def _key_values(
        self, texts: Sequence[str], changes: Changes, keys: Sequence[str]
    ) -> list[tuple[str, pa.ChunkedArray]]:
        """Each expression with the values that it can have; none where the changeset is not small."""
        if changes.local is None or not self.uses(optimisations.PUSHED_KEYS):
            return []
        local = changes.local

        def values(key: str) -> pa.ChunkedArray:
            name = key.strip("`")
            if name in local.column_names:
                return local.column(name)
            return changes.rows.selectExpr(f"{key} AS k").toArrow().column(0)

        return [(text, values(key)) for text, key in zip(texts, keys, strict=True)]

    def _many_key_values(
        self, texts: Sequence[str], changes: Changes, keys: Sequence[str]
    ) -> list[tuple[str, pa.ChunkedArray]]:
        """As `_key_values`, of a changeset with too many rows for the driver: its keys are not too many, where they are
        numbers or dates; and only such have ranges."""
        if self._changed_rows > LISTED_KEYS or not self.uses(optimisations.PUSHED_KEYS):
            return []
        place = (id(changes.rows), *keys)
        kept = self._listed.get(place)
        if kept is not None:
            return [(text, kept[1][key]) for text, key in zip(texts, keys, strict=True) if key in kept[1]]
        names = [f"__hr_k{number}" for number in range(len(keys))]
        listed = changes.rows.selectExpr(*(f"{key} AS {name}" for key, name in zip(keys, names, strict=True)))
        ranged = [field.name for field in listed.schema.fields if field.dataType.typeName() in _RANGED]
        found: dict[str, pa.ChunkedArray] = {}
        if ranged:
            table = listed.select(*ranged).limit(LISTED_KEYS + 1).toArrow()
            if table.num_rows <= LISTED_KEYS:  # A join below may have made more of them.
                found = {key: table.column(name) for key, name in zip(keys, names, strict=True) if name in ranged}
        self._listed[place] = (changes.rows, found)
        return [(text, found[key]) for text, key in zip(texts, keys, strict=True) if key in found]

    def is_huge(self, node: Node) -> bool:
        return self.size(node) >= ORDERED_ROWS

    def is_scattered(self, node: Node, texts: Sequence[str]) -> bool:
        """Whether looking rows up by these columns opens most files of a big source, however few the rows are."""
        names = {text.strip("`") for text in texts} & passed_up(node)
        for relation in walk(node):
            if isinstance(relation, Relation):
                own = [own for own, column in relation.columns if column.name in names]
                if own and self._reaches(relation.source, own):
                    return True
        return False

    def _reaches(self, place: int, names: Sequence[str]) -> dict[str, Reach]:
        """Where the values of these columns of a big source lie, if it is in the order of none of them."""
        source = self.sources[place]
        if source.is_dynamic or self._logs.statistics(source.path)[0] < ORDERED_ROWS:
            return {}
        found = {name: self._logs.reach(source.path, name) for name in names}
        known = {name: reach for name, reach in found.items() if reach is not None}
        return known if all(reach.opened > _SCATTERED for reach in known.values()) else {}

    def _looked_up(self, place: int, within: Spans, *, old: bool) -> DataFrame | None:
        """Rows of a source from an ordered copy, where that is less to read; possibly more than those `within`."""
        source = self.sources[place]
        if not self.small or source.old is None or not self.uses(optimisations.ORDERED_COPIES):
            return None
        shares = {name: reach.covered(within[name]) for name, reach in self._reaches(place, [*within]).items()}
        key = min(shares, key=lambda name: shares[name], default=None)
        if key is None or shares[key] > _SELECTIVE or not within[key]:
            return None
        same = {(own, column.type) for each in self._relations if each.source == place for own, column in each.columns}
        return self._ordered(Lookup(source, tuple(sorted(same)), key, within[key]), old=old)

    def close(self) -> None:
        for rows in self._cached:
            rows.unpersist()
        self._cached.clear()

    def _read(self, relation: Leaf, *, old: bool, within: Spans) -> DataFrame:
        if isinstance(relation, Values):
            return values(self.spark, relation)
        source = self.sources[relation.source]
        if old and source.old is not None:
            version = source.old_rows if source.old_rows is not None else source.old
        else:
            version = source.new_rows if source.new_rows is not None else source.new
        own = {own: within[column.name] for own, column in relation.columns if column.name in within}
        if own and not source.is_dynamic:
            rows = self._looked_up(relation.source, own, old=old)
            if rows is None:
                rows = read_delta(self.spark, self._logs, source.path, version, own)
            return relation_rows(relation, rows)
        rows = self._read_already.get((source.path, version))
        if rows is None:
            rows = read_version(self.spark, self._logs, source, version)
            self._read_already[source.path, version] = rows
        return relation_rows(relation, rows)


def _with_keys(rows: DataFrame, values: list[tuple[str, pa.ChunkedArray]]) -> DataFrame:
    for text, each in values:
        condition = one_of(text, each)
        if condition is not None:
            rows = rows.where(condition)
    return rows


def state_key(node: Aggregate) -> str:
    """Names the state table of an aggregate: the same for all equal parts of a plan."""
    return hashlib.sha256((canonical(node) or node.model_dump_json()).encode()).hexdigest()[:16]


def names_of(node: Node) -> list[str]:
    return [quote(column.name) for column in node.output]
