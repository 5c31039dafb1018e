"""Aggregate at the root: partial aggregates are kept in the table's own hidden columns.

    state(A + Δ)  =  fold(state(A), delta(Δ))          for each group that Δ touches
    stored changes:  − the group's old row  + its new row, unless nothing in it changed

What stands above the aggregate is computed from the states. Where that names current_date, a new day has all groups
finished anew from the states they have; no source is read for it.

State:    per group: its keys, its row count, the partial aggregates of ivm/state.py.
Cost:     one aggregation of the changeset, one lookup of the touched groups in the table; on a new day, where it
          matters, all groups of the table.
Requires: nothing beyond the aggregate's own; where a fold would not be exact (a float sum after a removal, the removal
          of a minimum), the groups concerned are computed anew from their rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.ivm.changeset import identical
from headrace.ivm.groups import folded_or_anew, state_columns, touched_groups, whole_states
from headrace.ivm.layout import BORN, COUNT, DOUBT, KEY, ROW, VISIBLE, Grouped, Layout, LiveRows
from headrace.ivm.layout import WEIGHT as STORED_WEIGHT
from headrace.ivm.stages import Stages
from headrace.names import quote
from headrace.plan.dates import names_date, own_texts_at
from headrace.plan.nodes import Expression, Filter, Plan, Project
from headrace.plan.pruning import names_in, own_texts
from headrace.plan.types import comparable


@dataclass(frozen=True)
class GroupedResult:
    """`rows` are storage rows to append: tombstones of old rows, and new rows. `recomputed` tells whether some groups
    were computed anew."""

    rows: DataFrame
    recomputed: bool


def whole(rows: DataFrame, grouped: Grouped, plan: Plan, layout: Layout, sequence: int) -> DataFrame:
    """Storage rows for all groups of `rows`, the aggregate's input."""
    return finished(whole_states(rows, grouped), grouped, plan, layout, sequence)


def refresh(
    stages: Stages, grouped: Grouped, plan: Plan, layout: Layout, live: LiveRows, sequence: int
) -> GroupedResult | None:
    """Storage rows to append for the changes since the old frontier; None when nothing below changed."""
    dated = stages.new_day and any(names_date(text) for node in grouped.finish for text in own_texts(node))
    grouped = _on_the_new_day(grouped, stages)
    # Over many groups, it pays to know the keys of the changes before looking those up.
    below = (stages.changes if live.in_driver else stages.materialized)(grouped.aggregate.child)
    found = None
    if below is not None:
        stored = live.rows if dated else touched_groups(stages, live, grouped, below)
        found = folded_or_anew(stages, grouped, below, lambda deltas: beside_stored(deltas, stored, grouped, layout))
    if found is None and not dated:
        return None
    groups, recomputed = found or (None, False)
    if dated:
        groups = _with_the_others(groups, live.rows, grouped, layout)
    assert groups is not None
    return GroupedResult(replacements(groups, grouped, plan, layout, sequence, dated=dated), recomputed)


def _with_the_others(touched: DataFrame | None, live: DataFrame, grouped: Grouped, layout: Layout) -> DataFrame:
    """The touched groups, and all others with the states they have, in the shape that `folded` gives."""
    kept = [name for name, _ in grouped.key_columns] + [COUNT, *(column.name for column in state_columns(grouped))]
    others = live
    if touched is not None:
        ids = touched.select(F.col(f"o_{BORN}").alias("__hr_t_born"), F.col(f"o_{ROW}").alias("__hr_t_row"))
        others = live.join(ids, F.expr(f"{BORN} = __hr_t_born AND {ROW} = __hr_t_row"), "left_anti")
    olds = [F.col(quote(column.name)).alias(f"o_{column.name}") for column in layout.columns]
    others = others.select(*map(quote, kept), *olds)
    return others if touched is None else touched.unionByName(others)


def _on_the_new_day(grouped: Grouped, stages: Stages) -> Grouped:
    """Keys, calls and what is computed from them, with current_date as of the new frontier."""
    return grouped.model_copy(
        update={
            "aggregate": own_texts_at(grouped.aggregate, stages.new_date),
            "finish": tuple(own_texts_at(node, stages.new_date) for node in grouped.finish),
        }
    )


def beside_stored(deltas: DataFrame, live: DataFrame, grouped: Grouped, layout: Layout) -> DataFrame:
    """Each touched group's change `d_…` beside its stored row `o_…` (all NULL when the group is new)."""
    rows = live.select(*(F.col(quote(c.name)).alias(f"o_{c.name}") for c in layout.columns))
    if grouped.is_global:
        return deltas.join(rows, F.lit(True), "left")
    same = [f"o_{KEY} = {_key_hash(grouped, '')}"]
    same += [f"o_{name} <=> {name}" for name, _ in grouped.key_columns]
    # Where both sides are local, one partition each, this hint makes the join part of the same job.
    return deltas.join(rows.hint("shuffle_hash"), F.expr(" AND ".join(same)), "left")


def replacements(
    groups: DataFrame, grouped: Grouped, plan: Plan, layout: Layout, sequence: int, *, dated: bool = False
) -> DataFrame:
    """For each group that really changed: a tombstone for its old row, if any, and its new row, if it still exists.
    With `dated`, a group may also change without a change of its states."""
    olds = [name for name in groups.columns if name.startswith("o_")]
    kept = [COUNT, *(column.name for column in state_columns(grouped))]
    if dated:
        kept += [column.name for column in layout.columns if column.name == VISIBLE or column in layout.public]
    types = {column.name: column.type for column in layout.columns}
    if all(comparable(types[name]) for name in kept):
        same = " AND ".join(identical(quote(f"o_{name}"), quote(name), types[name]) for name in kept)
        is_new = f"o_{BORN} IS NULL OR NOT ({same})"
    else:
        is_new = "true"  # Of a map or a variant nobody can tell.
    done = finished(groups if dated else groups.where(is_new), grouped, plan, layout, sequence, *olds)
    done = done.where(is_new) if dated else done
    fresh = ", ".join(f"{quote(c.name)} AS {quote(c.name)}" for c in layout.columns)
    gone = ", ".join(
        f"{'CAST(-1 AS tinyint)' if c.name == STORED_WEIGHT else quote('o_' + c.name)} AS {quote(c.name)}"
        for c in layout.columns
    )
    exists = f"CASE WHEN {COUNT} < 0 THEN {DOUBT} ELSE {'true' if grouped.is_global else f'{COUNT} > 0'} END"
    pair = (
        f"inline(filter(array(CASE WHEN o_{BORN} IS NOT NULL THEN struct({gone}) END, "
        f"CASE WHEN {exists} THEN struct({fresh}) END), r -> r IS NOT NULL))"
    )
    return done.selectExpr(pair)


def finished(
    states: DataFrame, grouped: Grouped, plan: Plan, layout: Layout, sequence: int, *carried: str
) -> DataFrame:
    """States with the public columns computed from them and the identity columns, in storage order."""
    hidden = [column.name for column in layout.hidden if column.name not in (STORED_WEIGHT, BORN, ROW, KEY, VISIBLE)]
    keep = [quote(name) for name in (*hidden, *carried)]
    values = [f"{name} AS {quote(key.name)}" for name, key in grouped.key_columns]
    values += [f"{state.finish} AS {quote(state.call.name)}" for state in grouped.states]
    # A group that is gone, or that HAVING hides, has no values to compute: 1 / count(*) would fail for it.
    exists = "true" if grouped.is_global else f"{COUNT} > 0"
    rows = states.selectExpr(*keep, *values, f"{exists} AS {VISIBLE}")
    awaited = _needed_by_filters(grouped)
    for node in grouped.finish:
        if isinstance(node, Filter):
            rows = rows.withColumn(
                VISIBLE, F.expr(f"CASE WHEN {VISIBLE} THEN coalesce({node.condition}, false) ELSE false END")
            )
        else:
            rows = _with_values(rows, [e for e in node.expressions if e.name in awaited])
    for node in grouped.finish:
        if isinstance(node, Project):
            rows = _with_values(rows, [e for e in node.expressions if e.name not in awaited])
    identity = {
        STORED_WEIGHT: "CAST(1 AS tinyint)",
        BORN: f"CAST({sequence} AS bigint)",
        ROW: "monotonically_increasing_id()",
        KEY: _key_hash(grouped, ""),
        VISIBLE: VISIBLE,
    }
    columns = [f"{identity.get(c.name, quote(c.name))} AS {quote(c.name)}" for c in layout.hidden]
    columns += [f"CAST({quote(unique.name)} AS {unique.type}) AS {quote(public)}" for public, unique in plan.columns]
    return rows.selectExpr(*columns, *(quote(name) for name in carried))


def _needed_by_filters(grouped: Grouped) -> set[str]:
    """The names of the columns that must be computed before it is known which groups are hidden."""
    needed: set[str] = set()
    for node in reversed(grouped.finish):
        if isinstance(node, Filter):
            needed |= names_in(node.condition)
        else:
            needed |= {name for e in node.expressions if e.name in needed for name in names_in(e.text)}
    return needed


def _with_values(rows: DataFrame, expressions: list[Expression]) -> DataFrame:
    """The rows with further columns, each computed for visible groups only."""
    fresh = [e for e in expressions if e.name != e.text]
    texts = [f"CASE WHEN {VISIBLE} THEN {e.text} END AS {quote(e.name)}" for e in fresh]
    return rows.selectExpr("*", *texts) if texts else rows


def _key_hash(grouped: Grouped, prefix: str) -> str:
    names = [f"{prefix}{name}" for name, _ in grouped.key_columns]
    return f"xxhash64({', '.join(names)})" if names else "0L"
