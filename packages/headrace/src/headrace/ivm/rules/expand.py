"""Expand (GROUPING SETS, ROLLUP, CUBE, UNPIVOT): each row becomes several, whatever the other rows are.

    Δ expand(A)  =  expand(ΔA)

State:    none.
Cost:     the changeset, times the number of lists.
Requires: deterministic expressions.
"""

from __future__ import annotations

from headrace.ivm.changeset import WEIGHT, Changes
from headrace.ivm.evaluate import expand
from headrace.ivm.stages import Stages
from headrace.plan.nodes import Expand


def changes(stages: Stages, node: Expand) -> Changes | None:
    below = stages.changes(node.child)
    return None if below is None else below.over(expand(below.rows, node, WEIGHT))
