"""Project (the SELECT list).

    Δ(π(A))  =  π(ΔA)

State:    none.
Cost:     the changeset.
Requires: deterministic expressions. Rows that become equal stay separate rows: the result is a bag.
"""

from __future__ import annotations

from headrace.ivm.changeset import WEIGHT, Changes
from headrace.ivm.evaluate import project
from headrace.ivm.stages import Stages
from headrace.plan.nodes import Project


def changes(stages: Stages, node: Project) -> Changes | None:
    below = stages.changes(node.child)
    return None if below is None else below.over(project(below.rows, node, WEIGHT))
