"""Union all.

    Δ(A + B)  =  ΔA + ΔB

State:    none.
Cost:     the changesets of the inputs that changed.
Requires: nothing.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame

from headrace.ivm.changeset import WEIGHT, Changes
from headrace.ivm.evaluate import relabel
from headrace.ivm.stages import Stages
from headrace.plan.nodes import UnionAll


def changes(stages: Stages, node: UnionAll) -> Changes | None:
    found = [(child, stages.changes(child)) for child in node.inputs]
    changed = [(child, below) for child, below in found if below is not None]
    if not changed:
        return None
    rows = reduce(DataFrame.union, (relabel(below.rows, child, node, WEIGHT) for child, below in changed))
    return Changes(rows, all(below.insert_only for _, below in changed))
