"""Window functions: recompute the affected partitions.

    K  =  PARTITION BY keys of ΔA
    Δ(ω(A))  =  ω(A_new ⋉ K)  −  ω(A_old ⋉ K)

State:    none.
Cost:     both versions of the affected partitions; without PARTITION BY, all rows are one partition.
Requires: an order without ties where the function depends on it. Where ties make Spark number the rows otherwise than
          before, the rows to remove are not found, and the refresh recomputes and says so.
"""

from __future__ import annotations

from headrace.ivm.changeset import Changes, net_if_comparable, weighted
from headrace.ivm.evaluate import window
from headrace.ivm.rules.aggregate import affected
from headrace.ivm.stages import Stages, names_of
from headrace.plan.nodes import Window


def changes(stages: Stages, node: Window) -> Changes | None:
    below = stages.materialized(node.child)
    if below is None:
        return None
    before = window(affected(stages, node.keys, stages.old(node.child), below), node).select(*names_of(node))
    after = window(affected(stages, node.keys, stages.new(node.child), below), node).select(*names_of(node))
    rows = weighted(before, -1).union(weighted(after, 1))
    return Changes(net_if_comparable(rows, node.output), insert_only=False)
