"""Filter (WHERE, and HAVING below the root).

    Δ(σ(A))  =  σ(ΔA)

State:    none.
Cost:     the changeset.
Requires: a deterministic condition.
"""

from __future__ import annotations

from headrace.ivm.changeset import Changes
from headrace.ivm.stages import Stages
from headrace.plan.nodes import Filter


def changes(stages: Stages, node: Filter) -> Changes | None:
    below = stages.changes(node.child)
    return None if below is None else below.over(below.rows.where(node.condition))
