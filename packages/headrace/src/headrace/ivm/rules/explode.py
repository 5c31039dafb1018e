"""Explode (LATERAL VIEW, explode, posexplode, inline and other generators).

    Δ(explode(A))  =  explode(ΔA)

State:    none.
Cost:     the changeset, times the rows generated per row.
Requires: a deterministic generator.
"""

from __future__ import annotations

from headrace.ivm.changeset import Changes
from headrace.ivm.evaluate import explode
from headrace.ivm.stages import Stages
from headrace.plan.nodes import Explode


def changes(stages: Stages, node: Explode) -> Changes | None:
    below = stages.changes(node.child)
    return None if below is None else below.over(explode(below.rows, node))
