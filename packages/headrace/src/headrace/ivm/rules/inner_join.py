"""Inner join.

    Δ(L ⋈ R)  =  ΔL ⋈ R_new  +  L_old ⋈ ΔR

State:    none; both sides are Delta versions.
Cost:     one join per changed side, started from the changeset; few keys are pushed into the other side's read.
Requires: a deterministic condition.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame

from headrace.ivm.changeset import WEIGHT, Changes
from headrace.ivm.evaluate import join
from headrace.ivm.stages import Stages, names_of
from headrace.plan.nodes import InnerJoin


def changes(stages: Stages, node: InnerJoin) -> Changes | None:
    terms: list[DataFrame] = []
    insert_only = True
    left = stages.materialized(node.left)
    if left is not None:
        right_new = stages.narrowed(stages.new(node.right), node.right_keys, left, node.left_keys)
        terms.append(join(left.rows, right_new, node))
        insert_only = insert_only and left.insert_only
    right = stages.materialized(node.right)
    if right is not None:
        left_old = stages.narrowed(stages.old(node.left), node.left_keys, right, node.right_keys)
        terms.append(join(left_old, right.rows, node))
        insert_only = insert_only and right.insert_only
    if not terms:
        return None
    columns = [*names_of(node), WEIGHT]
    return Changes(reduce(DataFrame.union, (term.select(*columns) for term in terms)), insert_only)
