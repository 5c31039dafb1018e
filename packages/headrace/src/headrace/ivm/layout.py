"""How a dynamic table's contents lie in its storage table.

Storage is append-first: a refresh adds the new rows and, for each row that goes, a *tombstone*, a copy of that row
with weight −1. A row is live while no tombstone names its id (born, row). So the rows that one refresh appended are
at the same time the changeset that tables downstream read, and a refresh never rewrites a file. Folding
(storage/maintenance.py) rewrites the table without tombstones, as a commit that carries no change.

Hidden columns come first, so that Delta keeps statistics for them whatever the width of the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.ivm.state import CallState, states_of
from headrace.names import quote
from headrace.plan.certainty import Origins, call_texts, named_in
from headrace.plan.nodes import Aggregate, Column, Expression, Filter, Frozen, Node, Plan, Project
from headrace.plan.query import Cut, OutputColumn, Query

PREFIX = "__hr_"
WEIGHT = "__hr_weight"
BORN = "__hr_born"
ROW = "__hr_row"
KEY = "__hr_key"
VISIBLE = "__hr_visible"
COUNT = "__hr_count"
DAMAGED = "the kept state is not as it should be"
DOUBT = f"raise_error('a group would have ' || {COUNT} || ' rows: {DAMAGED}')"
"""What takes the place of a group from which more rows went than there were."""

_IDENTITY = (
    Column(name=WEIGHT, type="tinyint"),
    Column(name=BORN, type="bigint"),
    Column(name=ROW, type="bigint"),
    Column(name=KEY, type="bigint"),
)


class Grouped(Frozen):
    """A query whose root is an aggregate, with only projections and filters (HAVING) above it: its state is kept in
    hidden columns of the table itself."""

    aggregate: Aggregate
    finish: tuple[Project | Filter, ...]
    """From the aggregate upwards."""

    @property
    def key_columns(self) -> tuple[tuple[str, Expression], ...]:
        """Stored key columns with the key each one holds."""
        return tuple((f"{PREFIX}k{i}", key) for i, key in enumerate(self.aggregate.keys))

    @property
    def states(self) -> tuple[CallState, ...]:
        return states_of(self.aggregate.calls)

    @property
    def hides_groups(self) -> bool:
        return any(isinstance(node, Filter) for node in self.finish)

    @property
    def is_global(self) -> bool:
        return not self.aggregate.keys


class Layout(Frozen):
    """`bag`: the query's rows as they are. `grouped`: one row per group, with its state."""

    kind: Literal["bag", "grouped"]
    public: tuple[Column, ...]
    hidden: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.hidden + self.public

    @property
    def hides_groups(self) -> bool:
        return any(column.name == VISIBLE for column in self.hidden)


def grouped_root(plan: Plan | None) -> Grouped | None:
    """The plan as an aggregate with its finish, or None when its root is something else."""
    if plan is None:
        return None
    node, finish = below_finish(plan.root)
    return Grouped(aggregate=node, finish=finish) if isinstance(node, Aggregate) else None


def below_finish(root: Node) -> tuple[Node, tuple[Project | Filter, ...]]:
    """What is below the projections and filters at the top, and these, from there upwards."""
    above: list[Project | Filter] = []
    node = root
    while isinstance(node, Project | Filter):
        above.append(node)
        node = node.child
    return node, tuple(reversed(above))


def layout_of(query: Query) -> Layout:
    public = tuple(Column(name=column.name, type=column.type) for column in query.columns)
    grouped = grouped_root(query.plan)
    return Layout(kind="bag", public=public, hidden=_IDENTITY) if grouped is None else grouped_layout(grouped, public)


def grouped_layout(grouped: Grouped, public: tuple[Column, ...] = ()) -> Layout:
    """Groups with their states; without public columns, as state tables have them."""
    hidden = list(_IDENTITY)
    if grouped.hides_groups:
        hidden.append(Column(name=VISIBLE, type="boolean"))
    hidden += [Column(name=name, type=key.type) for name, key in grouped.key_columns]
    hidden.append(Column(name=COUNT, type="bigint"))
    hidden += [column for state in grouped.states for column in state.columns]
    return Layout(kind="grouped", public=public, hidden=tuple(hidden))


def folds_exactly(grouped: Grouped, inexact: Origins) -> bool:
    """Whether the values of folded groups are those that a computation from all rows gives. `inexact` are the plan's
    columns that may come out otherwise when computed once more."""
    return all(state.exact for state in grouped.states) and not takes_inexact(grouped, inexact)


def takes_inexact(grouped: Grouped, inexact: Origins) -> bool:
    """Whether a call is over such columns: what it takes out of a group need not be what it had put in."""
    return any(named_in(inexact, *call_texts(call)) is not None for call in grouped.aggregate.calls)


def group_values(states: DataFrame, grouped: Grouped) -> DataFrame:
    """The output of an aggregate from the states of its groups."""
    there = states if grouped.is_global else states.where(f"{COUNT} > 0")
    keys = [f"{name} AS {quote(key.name)}" for name, key in grouped.key_columns]
    calls = [f"CAST({s.finish} AS {s.call.type}) AS {quote(s.call.name)}" for s in grouped.states]
    return there.selectExpr(*keys, *calls)


@dataclass(frozen=True)
class LiveRows:
    """The live rows of a storage table; `in_driver` when they are few, and held there."""

    rows: DataFrame
    in_driver: bool


def live_rows(stored: DataFrame, *, tombstones: bool = True) -> DataFrame:
    """The rows of a storage table that no tombstone names, with all their columns. `tombstones=False` is the caller's
    word that there are none."""
    if not tombstones:
        return stored
    gone = stored.where(f"{WEIGHT} < 0").selectExpr(f"{BORN} AS __hr_gone_born", f"{ROW} AS __hr_gone_row")
    rows = stored.where(f"{WEIGHT} > 0")
    return rows.join(gone, (rows[BORN] == gone["__hr_gone_born"]) & (rows[ROW] == gone["__hr_gone_row"]), "left_anti")


def live_local(stored: pa.Table) -> pa.Table:
    """The same for local rows: only ids are compared, what the rows mean stays Spark's business."""
    weights = stored.column(WEIGHT).to_pylist()
    ids = list(zip(stored.column(BORN).to_pylist(), stored.column(ROW).to_pylist(), strict=True))
    gone = {identity for identity, weight in zip(ids, weights, strict=True) if weight < 0}
    kept = [weight > 0 and identity not in gone for identity, weight in zip(ids, weights, strict=True)]
    return stored.filter(pa.array(kept, type=pa.bool_()))


def cut_rows(rows: DataFrame, cut: Cut | None) -> DataFrame:
    """The rows that a LIMIT leaves."""
    if cut is None:
        return rows
    order = [getattr(F.col(quote(name)), direction.lower().replace(" ", "_"))() for name, direction in cut.order]
    return rows.orderBy(*order).offset(cut.offset).limit(cut.count)


def select_live(columns: tuple[OutputColumn, ...], hides_groups: bool, table: str, cut: Cut | None = None) -> str:
    """The public contents as a query; `table` is the storage table as text, with a version where wanted."""
    limit = "" if cut is None else f" {cut.clause}"
    names = ", ".join(f"r.{quote(column.name)}" for column in columns)
    hidden = f" AND r.{VISIBLE}" if hides_groups else ""
    return (
        f"SELECT {names} FROM {table} AS r LEFT ANTI JOIN "
        f"(SELECT {BORN}, {ROW} FROM {table} WHERE {WEIGHT} < 0) AS gone "
        f"ON r.{BORN} = gone.{BORN} AND r.{ROW} = gone.{ROW} WHERE r.{WEIGHT} > 0{hidden}{limit}"
    )


def schema_text(columns: tuple[Column, ...]) -> str:
    return ", ".join(f"{quote(column.name)} {column.type}" for column in columns)
