"""The groups of an aggregate as rows of keys and states: from all rows, from changes, and one folded into the other.

states:  key columns, COUNT, the state columns of each call
deltas:  the same columns with `d_` before their names
beside:  deltas with the group's old states, `o_` before their names (all NULL when the group is new)
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.ivm.changeset import WEIGHT, Changes
from headrace.ivm.evaluate import with_keys
from headrace.ivm.layout import COUNT, Grouped, LiveRows, takes_inexact
from headrace.ivm.stages import Stages
from headrace.ivm.state import select_named
from headrace.names import quote
from headrace.optimisations import FOLDED_STATES
from headrace.plan.nodes import Column, Expression, Node


def affected(stages: Stages, keys: tuple[Expression, ...], rows: DataFrame, below: Changes) -> DataFrame:
    """The rows whose group is touched by the changes below the operator (all rows when there are no keys)."""
    texts = [key.text for key in keys]
    return _touched(stages.narrowed(rows, texts, below, texts), keys, below)


def affected_of(stages: Stages, keys: tuple[Expression, ...], node: Node, below: Changes, *, old: bool) -> DataFrame:
    """As `affected`, of the rows that a node has at the old or the new frontier."""
    texts = [key.text for key in keys]
    return _touched(stages.matching(node, texts, below, texts, old=old), keys, below)


def _touched(candidates: DataFrame, keys: tuple[Expression, ...], below: Changes) -> DataFrame:
    if not keys:
        return candidates
    texts = [key.text for key in keys]
    touched = below.rows.selectExpr(*(f"{text} AS __hr_a{i}" for i, text in enumerate(texts))).distinct()
    candidates = with_keys(candidates, keys)
    same = [f"{quote(key.name)} <=> __hr_a{i}" for i, key in enumerate(keys)]
    few = below.local is not None
    return candidates.join(F.broadcast(touched) if few else touched, F.expr(" AND ".join(same)), "left_semi")


def touched_groups(stages: Stages, stored: LiveRows, grouped: Grouped, below: Changes) -> DataFrame:
    """The stored groups that the changes can touch; also others, where leaving those out would save nothing."""
    if stored.in_driver or grouped.is_global or below.local is None:
        return stored.rows
    keys = [key.text for key in grouped.aggregate.keys]
    names = [name for name, _ in grouped.key_columns]
    candidates = stages.narrowed(stored.rows, names, below, keys)
    touched = below.rows.selectExpr(*(f"{text} AS __hr_a{i}" for i, text in enumerate(keys)))
    same = " AND ".join(f"{name} <=> __hr_a{i}" for i, name in enumerate(names))
    return candidates.join(F.broadcast(touched), F.expr(same), "left_semi")


def folded_or_anew(
    stages: Stages, grouped: Grouped, below: Changes, beside: Callable[[DataFrame], DataFrame]
) -> tuple[DataFrame, bool] | None:
    """Each touched group: keys, new states, and its old row as `beside` found it. Folded where that is exact; the
    other groups are computed anew from their rows, and the flag tells that there may be such."""
    unsafe = [
        state.unsafe
        for state in grouped.states
        if state.unsafe is not None and not (state.unsafe_only_after_removals and below.insert_only)
    ]
    if not stages.uses(FOLDED_STATES) or (not below.insert_only and takes_inexact(grouped, stages.inexact)):
        unsafe = ["true"]
    if not unsafe:
        return folded(beside(delta_states(below.rows, grouped)), grouped), False
    at_hand = stages.materialize(below)
    if at_hand is None:
        return None
    joined = beside(delta_states(at_hand.rows, grouped))
    marked = joined.withColumn("__hr_unsafe", F.expr(f"coalesce({' OR '.join(unsafe)}, true)"))
    local = stages.local(marked) if stages.small else None
    if local is not None:
        marked = stages.spark.createDataFrame(local, schema=marked.schema).coalesce(1)
        if not any(local.column("__hr_unsafe").to_pylist()):
            return folded(marked, grouped), False
    else:
        marked = stages.cache(marked)
    safe = folded(marked.where("NOT __hr_unsafe"), grouped)
    anew = _computed_anew(stages, grouped, marked.where("__hr_unsafe"), at_hand)
    return safe.unionByName(anew), True


def _computed_anew(stages: Stages, grouped: Grouped, unsafe: DataFrame, below: Changes) -> DataFrame:
    """The unsafe groups with their states computed from their rows, in the shape that `folded` gives."""
    rows = affected_of(stages, grouped.aggregate.keys, grouped.aggregate.child, below, old=False)
    states = whole_states(rows, grouped)
    kept = [name for name in unsafe.columns if name.startswith("o_")]
    keys = [name for name, _ in grouped.key_columns]
    olds = unsafe.select(*(F.col(name).alias(f"__hr_u{name}") for name in keys), *map(quote, kept))
    if not keys:
        return states.crossJoin(olds)
    same = F.expr(" AND ".join(f"__hr_u{name} <=> {name}" for name in keys))
    found = olds.join(states, same, "left")
    picked = [f"__hr_u{name} AS {name}" for name in keys] + [f"coalesce({COUNT}, 0L) AS {COUNT}"]
    return found.selectExpr(*picked, *(quote(column.name) for column in state_columns(grouped)), *map(quote, kept))


def state_columns(grouped: Grouped) -> list[Column]:
    return [column for state in grouped.states for column in state.columns]


def whole_states(rows: DataFrame, grouped: Grouped) -> DataFrame:
    keyed = _keyed(rows, grouped)
    texts = [f"count(*) AS {COUNT}"]
    for state in grouped.states:
        texts += select_named(state.whole, state.columns)
    return _aggregated(keyed, grouped, texts)


def delta_states(rows: DataFrame, grouped: Grouped) -> DataFrame:
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


def folded(joined: DataFrame, grouped: Grouped) -> DataFrame:
    """Keys, new states and the old row."""
    texts = [name for name, _ in grouped.key_columns]
    texts.append(f"coalesce(o_{COUNT}, 0L) + d_{COUNT} AS {COUNT}")
    for state in grouped.states:
        texts += select_named(state.fold, state.columns)
    return joined.selectExpr(*texts, *(quote(name) for name in joined.columns if name.startswith("o_")))
