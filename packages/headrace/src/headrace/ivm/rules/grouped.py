"""Aggregate at the root: partial aggregates are kept in the table's own hidden columns.

    state(A + Δ)  =  fold(state(A), delta(Δ))          for each group that Δ touches
    stored changes:  − the group's old row  + its new row, unless nothing in it changed

State:    per group: its keys, its row count, the partial aggregates of ivm/state.py.
Cost:     one aggregation of the changeset, one lookup of the touched groups in the table.
Requires: nothing beyond the aggregate's own; where a fold would not be exact (a float sum after a removal, the removal
          of a minimum), the groups concerned are computed anew from their rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.ivm.changeset import WEIGHT, Changes
from headrace.ivm.evaluate import with_keys
from headrace.ivm.layout import BORN, COUNT, KEY, ROW, VISIBLE, Grouped, Layout
from headrace.ivm.layout import WEIGHT as STORED_WEIGHT
from headrace.ivm.rules.aggregate import affected
from headrace.ivm.stages import Stages
from headrace.ivm.state import select_named
from headrace.names import quote
from headrace.plan.dates import own_texts_at
from headrace.plan.nodes import Column, Expression, Filter, Plan, Project
from headrace.plan.pruning import names_in


@dataclass(frozen=True)
class GroupedResult:
    """`rows` are storage rows to append: tombstones of old rows, and new rows. `recomputed` tells whether some groups
    were computed anew."""

    rows: DataFrame
    recomputed: bool


def whole(rows: DataFrame, grouped: Grouped, plan: Plan, layout: Layout, sequence: int) -> DataFrame:
    """Storage rows for all groups of `rows`, the aggregate's input."""
    return _finished(_whole_states(rows, grouped), grouped, plan, layout, sequence)


def refresh(
    stages: Stages, grouped: Grouped, plan: Plan, layout: Layout, live: DataFrame, sequence: int
) -> GroupedResult | None:
    """Storage rows to append for the changes since the old frontier; None when nothing below changed."""
    grouped = _on_the_new_day(grouped, stages)
    below = stages.changes(grouped.aggregate.child)
    if below is None:
        return None
    unsafe = [
        state.unsafe
        for state in grouped.states
        if state.unsafe is not None and not (state.unsafe_only_after_removals and below.insert_only)
    ]
    if not unsafe:
        joined = _joined(_delta_states(below.rows, grouped), live, grouped, layout)
        return GroupedResult(_replacements(_folded(joined, grouped), grouped, plan, layout, sequence), False)
    return _refresh_with_care(stages, grouped, plan, layout, live, sequence, below, " OR ".join(unsafe))


def _on_the_new_day(grouped: Grouped, stages: Stages) -> Grouped:
    """Keys, calls and what is computed from them, with current_date as of the new frontier."""
    return grouped.model_copy(
        update={
            "aggregate": own_texts_at(grouped.aggregate, stages.new_date),
            "finish": tuple(own_texts_at(node, stages.new_date) for node in grouped.finish),
        }
    )


def _refresh_with_care(
    stages: Stages,
    grouped: Grouped,
    plan: Plan,
    layout: Layout,
    live: DataFrame,
    sequence: int,
    below: Changes,
    unsafe: str,
) -> GroupedResult | None:
    """Fold where that is exact; compute the other groups anew from their rows at the new frontier."""
    at_hand = stages.materialize(below)
    if at_hand is None:
        return None
    joined = _joined(_delta_states(at_hand.rows, grouped), live, grouped, layout)
    marked = joined.withColumn("__hr_unsafe", F.expr(f"coalesce({unsafe}, true)"))
    local = stages.local(marked) if stages.small else None
    if local is not None:
        marked = stages.spark.createDataFrame(local, schema=marked.schema).coalesce(1)
        if not any(local.column("__hr_unsafe").to_pylist()):
            return GroupedResult(_replacements(_folded(marked, grouped), grouped, plan, layout, sequence), False)
    else:
        marked = stages.cache(marked)
    safe = _folded(marked.where("NOT __hr_unsafe"), grouped)
    anew = _computed_anew(stages, grouped, marked.where("__hr_unsafe"), at_hand)
    return GroupedResult(_replacements(safe.unionByName(anew), grouped, plan, layout, sequence), True)


def _computed_anew(stages: Stages, grouped: Grouped, unsafe: DataFrame, below: Changes) -> DataFrame:
    """The unsafe groups with their states computed from their rows, in the shape that `_folded` gives."""
    rows = affected(stages, grouped.aggregate.keys, stages.new(grouped.aggregate.child), below)
    states = _whole_states(rows, grouped)
    kept = [name for name in unsafe.columns if name.startswith("o_")]
    keys = [name for name, _ in grouped.key_columns]
    olds = unsafe.select(*(F.col(name).alias(f"__hr_u{name}") for name in keys), *map(quote, kept))
    if not keys:
        return states.crossJoin(olds)
    same = F.expr(" AND ".join(f"__hr_u{name} <=> {name}" for name in keys))
    found = olds.join(states, same, "left")
    picked = [f"__hr_u{name} AS {name}" for name in keys] + [f"coalesce({COUNT}, 0L) AS {COUNT}"]
    return found.selectExpr(*picked, *(quote(column.name) for column in _state_columns(grouped)), *map(quote, kept))


def _state_columns(grouped: Grouped) -> list[Column]:
    return [column for state in grouped.states for column in state.columns]


def _whole_states(rows: DataFrame, grouped: Grouped) -> DataFrame:
    keyed = _keyed(rows, grouped)
    texts = [f"count(*) AS {COUNT}"]
    for state in grouped.states:
        texts += select_named(state.whole, state.columns)
    return _aggregated(keyed, grouped, texts)


def _delta_states(rows: DataFrame, grouped: Grouped) -> DataFrame:
    keyed = _keyed(rows, grouped)
    # Without keys there is a row also when no change arrives here: it must say "nothing", not NULL.
    texts = [f"CAST(coalesce(sum({WEIGHT}), 0) AS bigint) AS d_{COUNT}"]
    for state in grouped.states:
        texts += [f"{text} AS d_{column.name}" for text, column in zip(state.delta, state.columns, strict=True)]
        texts += [f"{text} AS d_{name}" for name, text in state.extra_delta]
    return _aggregated(keyed, grouped, texts)


def _keyed(rows: DataFrame, grouped: Grouped) -> DataFrame:
    """The aggregate's input with its keys under their stored names."""
    named = with_keys(rows, grouped.aggregate.keys)
    return named.selectExpr("*", *(f"{quote(key.name)} AS {name}" for name, key in grouped.key_columns))


def _aggregated(keyed: DataFrame, grouped: Grouped, texts: list[str]) -> DataFrame:
    return keyed.groupBy(*(name for name, _ in grouped.key_columns)).agg(*(F.expr(text) for text in texts))


def _joined(deltas: DataFrame, live: DataFrame, grouped: Grouped, layout: Layout) -> DataFrame:
    """Each touched group's change `d_…` beside its stored row `o_…` (all NULL when the group is new)."""
    rows = live.select(*(F.col(quote(c.name)).alias(f"o_{c.name}") for c in layout.columns))
    if grouped.is_global:
        return deltas.join(rows, F.lit(True), "left")
    same = [f"o_{KEY} = {_key_hash(grouped, '')}"]
    same += [f"o_{name} <=> {name}" for name, _ in grouped.key_columns]
    # Where both sides are local, one partition each, this hint makes the join part of the same job.
    return deltas.join(rows.hint("shuffle_hash"), F.expr(" AND ".join(same)), "left")


def _folded(joined: DataFrame, grouped: Grouped) -> DataFrame:
    """Keys, new states and the old row."""
    texts = [name for name, _ in grouped.key_columns]
    texts.append(f"coalesce(o_{COUNT}, 0L) + d_{COUNT} AS {COUNT}")
    for state in grouped.states:
        texts += select_named(state.fold, state.columns)
    return joined.selectExpr(*texts, *(quote(name) for name in joined.columns if name.startswith("o_")))


def _replacements(folded: DataFrame, grouped: Grouped, plan: Plan, layout: Layout, sequence: int) -> DataFrame:
    """For each group that really changed: a tombstone for its old row, if any, and its new row, if it still exists."""
    olds = [name for name in folded.columns if name.startswith("o_")]
    kept = [COUNT, *(column.name for column in _state_columns(grouped))]
    same = " AND ".join(f"o_{name} <=> {name}" for name in kept)
    changed = folded.where(f"o_{BORN} IS NULL OR NOT ({same})")
    finished = _finished(changed, grouped, plan, layout, sequence, *olds)
    fresh = ", ".join(f"{quote(c.name)} AS {quote(c.name)}" for c in layout.columns)
    gone = ", ".join(
        f"{'CAST(-1 AS tinyint)' if c.name == STORED_WEIGHT else quote('o_' + c.name)} AS {quote(c.name)}"
        for c in layout.columns
    )
    doubt = f"raise_error('a group would have ' || {COUNT} || ' rows: the stored state is not as it should be')"
    exists = f"CASE WHEN {COUNT} < 0 THEN {doubt} ELSE {'true' if grouped.is_global else f'{COUNT} > 0'} END"
    pair = (
        f"inline(filter(array(CASE WHEN o_{BORN} IS NOT NULL THEN struct({gone}) END, "
        f"CASE WHEN {exists} THEN struct({fresh}) END), r -> r IS NOT NULL))"
    )
    return finished.selectExpr(pair)


def _finished(
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
