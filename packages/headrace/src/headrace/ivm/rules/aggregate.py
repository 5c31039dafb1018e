"""Aggregate below the root (GROUP BY in a subquery, DISTINCT in a join's input): recompute the affected keys.

    K  =  keys(ΔA)
    Δ(γ(A))  =  γ(A_new ⋉ K)  −  γ(A_old ⋉ K)

State:    none. (An aggregate at the root keeps state: rules/grouped.py.)
Cost:     both versions of the affected groups.
Requires: deterministic aggregate functions, keys that can be grouped. Keys are compared null-safe: NULL is a group.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.ivm.changeset import Changes, net, weighted
from headrace.ivm.evaluate import aggregate, with_keys
from headrace.ivm.stages import Stages
from headrace.names import quote
from headrace.plan.nodes import Aggregate, Expression


def changes(stages: Stages, node: Aggregate) -> Changes | None:
    below = stages.materialized(node.child)
    if below is None:
        return None
    before = aggregate(affected(stages, node.keys, stages.old(node.child), below), node)
    after = aggregate(affected(stages, node.keys, stages.new(node.child), below), node)
    names = [column.name for column in node.output]
    return Changes(net(weighted(before, -1).union(weighted(after, 1)), names), insert_only=False)


def affected(stages: Stages, keys: tuple[Expression, ...], rows: DataFrame, below: Changes) -> DataFrame:
    """The rows whose group is touched by the changes below the operator (all rows when there are no keys)."""
    texts = [key.text for key in keys]
    if not texts:
        return rows
    touched = below.rows.selectExpr(*(f"{text} AS __hr_a{i}" for i, text in enumerate(texts))).distinct()
    candidates = with_keys(stages.narrowed(rows, texts, below, texts), keys)
    same = [f"{quote(key.name)} <=> __hr_a{i}" for i, key in enumerate(keys)]
    few = below.local is not None
    return candidates.join(F.broadcast(touched) if few else touched, F.expr(" AND ".join(same)), "left_semi")
