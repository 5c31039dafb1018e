"""Aggregate below the root (GROUP BY in a subquery, DISTINCT in a join's input).

    K  =  keys(ΔA)
    S  =  states of the groups K in A_old                                    (ivm/state.py)
    Δ(γ(A))  =  finish(fold(S, delta(ΔA)))  −  finish(S)                     where every call folds exactly
    Δ(γ(A))  =  γ(A_new ⋉ K)  −  γ(A_old ⋉ K)                                otherwise

State:    over big sources, S of all groups in a state table (refresh/states.py); it moves on with each refresh.
          (An aggregate at the root keeps its state in the table itself: rules/grouped.py.)
Cost:     a lookup of the affected groups; without a state table their rows, once; twice where a call does not fold or
          loses its extreme value.
Requires: deterministic aggregate functions, keys that can be grouped. Keys are compared null-safe: NULL is a group.
          `max_by`, `min_by`, `first`, `last` and `any_value` are deterministic where the rows of a group leave one
          value only; where a group that is looked at leaves several, the whole query is computed (ivm/ties.py).
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.ivm.changeset import WEIGHT, Changes, identical, net, weighted
from headrace.ivm.evaluate import aggregate
from headrace.ivm.groups import affected_of, folded_or_anew, state_columns, touched_groups, whole_states
from headrace.ivm.layout import COUNT, DOUBT, Grouped, LiveRows, folds_exactly, grouped_layout
from headrace.ivm.rules.grouped import beside_stored
from headrace.ivm.stages import Stages, names_of, state_key
from headrace.names import quote
from headrace.optimisations import FOLDED_STATES
from headrace.plan.nodes import Aggregate


def changes(stages: Stages, node: Aggregate) -> Changes | None:
    grouped = Grouped(aggregate=node, finish=())
    foldable = folds_exactly(grouped, stages.inexact) and stages.uses(FOLDED_STATES)
    below = stages.materialized(node.child)
    if below is None:
        if foldable and stages.is_kept(node):
            stages.new_states[state_key(node)] = (node, None)
        return None
    if not foldable:
        return _subtracted(stages, node, below)
    stored = stages.state_table(node)
    if stored is not None:
        return _from_state_table(stages, grouped, stored, below)
    old = whole_states(affected_of(stages, node.keys, node.child, below, old=True), grouped)
    found = folded_or_anew(stages, grouped, below, lambda deltas: _beside(deltas, old, grouped))
    return None if found is None else Changes(_pairs(found[0], node, grouped), insert_only=False)


def _from_state_table(stages: Stages, grouped: Grouped, stored: LiveRows, below: Changes) -> Changes | None:
    node = grouped.aggregate
    live = touched_groups(stages, stored, grouped, below)
    layout = grouped_layout(grouped)
    found = folded_or_anew(stages, grouped, below, lambda deltas: beside_stored(deltas, live, grouped, layout))
    if found is None:
        stages.new_states[state_key(node)] = (node, None)
        return None
    groups = stages.at_hand(found[0])
    stages.new_states[state_key(node)] = (node, groups)
    return Changes(_pairs(groups, node, grouped), insert_only=False)


def _subtracted(stages: Stages, node: Aggregate, below: Changes) -> Changes:
    before = aggregate(affected_of(stages, node.keys, node.child, below, old=True), node, certain=True)
    after = aggregate(affected_of(stages, node.keys, node.child, below, old=False), node, certain=True)
    names = [column.name for column in node.output]
    return Changes(net(weighted(before, -1).union(weighted(after, 1)), names), insert_only=False)


def _beside(deltas: DataFrame, old: DataFrame, grouped: Grouped) -> DataFrame:
    """Each touched group's change with its states in the old version."""
    states = old.select(*(F.col(quote(name)).alias(f"o_{name}") for name in old.columns))
    keys = [name for name, _ in grouped.key_columns]
    same = F.expr(" AND ".join(f"o_{name} <=> {name}" for name in keys)) if keys else F.lit(True)
    return deltas.join(states, same, "left")


def _pairs(groups: DataFrame, node: Aggregate, grouped: Grouped) -> DataFrame:
    """For each group that changed: its old row with weight −1 and its new row with weight +1, where there are such."""
    # A group of which only the number of rows changed has the values it had.
    same = [identical(f"o_{column.name}", column.name, column.type) for column in state_columns(grouped)]
    same.append(f"(coalesce(o_{COUNT}, 0L) > 0) = ({COUNT} > 0)")
    old = _values(grouped, "o_", [state.finish_old for state in grouped.states])
    new = _values(grouped, "", [state.finish for state in grouped.states])
    # Without keys there is one group, also when it has no rows.
    was, stays = ("true", "true") if grouped.is_global else (f"o_{COUNT} > 0", f"{COUNT} > 0")
    stays = f"CASE WHEN {COUNT} < 0 THEN {DOUBT} ELSE {stays} END"
    pair = (
        f"inline(filter(array(CASE WHEN {was} THEN struct({old}, -1 AS {WEIGHT}) END, "
        f"CASE WHEN {stays} THEN struct({new}, 1 AS {WEIGHT}) END), "
        "r -> r IS NOT NULL))"
    )
    return groups.where(f"NOT ({' AND '.join(same)})").selectExpr(pair).select(*names_of(node), WEIGHT)


def _values(grouped: Grouped, prefix: str, finishes: list[str]) -> str:
    """The columns of the aggregate's output from a group's states."""
    keys = [f"{prefix}{name} AS {quote(key.name)}" for name, key in grouped.key_columns]
    calls = zip(grouped.aggregate.calls, finishes, strict=True)
    return ", ".join([*keys, *(f"CAST({text} AS {call.type}) AS {quote(call.name)}" for call, text in calls)])
