"""Window functions: recompute the affected partitions.

    K  =  PARTITION BY keys of ΔA
    Δ(ω(A))  =  ω(A_new ⋉ K)  −  ω(A_old ⋉ K)

State:    none.
Cost:     both versions of the affected partitions; without PARTITION BY, all rows are one partition.
Requires: an order without ties where the function depends on it (row_number, lag, a frame of ROWS …). Rows that are
          equal in ORDER BY and differ otherwise may change places from one evaluation to the next: where there are
          such rows in an affected partition, before or after, the whole query is computed, and the history says so.
          So it is where another operator asks for partitions that did not change (ivm/ties.py).
"""

from __future__ import annotations

from headrace.ivm.changeset import Changes, net_if_comparable, weighted
from headrace.ivm.evaluate import window
from headrace.ivm.groups import affected_of
from headrace.ivm.stages import Stages, Uncertain, names_of
from headrace.ivm.ties import TIES, has_ties
from headrace.plan.nodes import Window


def changes(stages: Stages, node: Window) -> Changes | None:
    below = stages.materialized(node.child)
    if below is None:
        return None
    old = affected_of(stages, node.keys, node.child, below, old=True)
    new = affected_of(stages, node.keys, node.child, below, old=False)
    if node.order and (has_ties(old, node) or has_ties(new, node)):
        raise Uncertain(TIES)
    before = window(old, node).select(*names_of(node))
    after = window(new, node).select(*names_of(node))
    rows = weighted(before, -1).union(weighted(after, 1))
    return Changes(net_if_comparable(rows, node.output), insert_only=False)
