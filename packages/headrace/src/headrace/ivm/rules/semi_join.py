"""Semi join and anti join (EXISTS, IN, NOT EXISTS, NOT IN, INTERSECT, EXCEPT), and EXISTS as a value.

    Δ(L ⋉ R)  =  ΔL ⋉ R_new  +  (A ⋉ R_new)  −  (A ⋉ R_old)        A = the rows of L_old that match a row of ΔR
    the same with ▷ for the anti join

State:    none; both sides are Delta versions.
Cost:     one join for a changed left side; for a changed right side, one to find A and two that start from it.
Requires: a deterministic condition. It needs no equality: the null-aware condition of NOT IN is a condition like
          any other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import DataFrame

from headrace.ivm.changeset import WEIGHT, Changes, net_if_comparable, weighted
from headrace.ivm.evaluate import join, joined
from headrace.ivm.stages import Stages, names_of
from headrace.plan.nodes import OuterJoin, SemiJoin

Apply = Callable[[DataFrame, DataFrame], DataFrame]


def changes(stages: Stages, node: SemiJoin) -> Changes | None:
    left, right = stages.materialized(node.left), stages.materialized(node.right)
    terms = linear_in_left(stages, node, left, right, lambda rows, other: join(rows, other, node))
    if not terms:
        return None
    columns = [*names_of(node), WEIGHT]
    rows = reduce(DataFrame.union, (term.select(*columns) for term in terms))
    if right is None:
        return Changes(rows, insert_only=left is not None and left.insert_only)
    return Changes(net_if_comparable(rows, node.output), insert_only=False)


def linear_in_left(
    stages: Stages, node: SemiJoin | OuterJoin, left: Changes | None, right: Changes | None, apply: Apply
) -> list[DataFrame]:
    """The changes of an operator that, with its right side fixed, treats each row of its left side by itself."""
    terms: list[DataFrame] = []
    if left is not None:
        terms.append(apply(left.rows, stages.narrowed(stages.new(node.right), node.right_keys, left, node.left_keys)))
    if right is None:
        return terms
    candidates = stages.narrowed(stages.old(node.left), node.left_keys, right, node.right_keys)
    touched = stages.materialize(Changes(weighted(joined(candidates, right.rows, node, "left_semi"), 1), True))
    if touched is None:
        return terms
    rows = touched.rows.drop(WEIGHT)
    for side, weight in ((stages.new(node.right), 1), (stages.old(node.right), -1)):
        few = stages.narrowed(side, node.right_keys, touched, node.left_keys)
        terms.append(apply(weighted(rows, weight), few))
    return terms
