"""Window functions: recompute the affected partitions.

    K  =  PARTITION BY keys of ΔA
    Δ(ω(A))  =  ω(A_new ⋉ K)  −  ω(A_old ⋉ K)

State:    none.
Cost:     both versions of the affected partitions; without PARTITION BY, all rows are one partition.
Requires: an order without ties where the function depends on it (row_number, lag, a frame of ROWS …). Rows that are
          equal in ORDER BY and differ otherwise may change places from one evaluation to the next: where there are
          such rows in an affected partition, before or after, the whole query is computed, and the history says so.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.ivm.changeset import Changes, net_if_comparable, weighted
from headrace.ivm.evaluate import window
from headrace.ivm.groups import affected
from headrace.ivm.stages import Stages, Uncertain, names_of
from headrace.names import quote
from headrace.plan.nodes import Window
from headrace.plan.types import comparable


def changes(stages: Stages, node: Window) -> Changes | None:
    below = stages.materialized(node.child)
    if below is None:
        return None
    old = affected(stages, node.keys, stages.old(node.child), below)
    new = affected(stages, node.keys, stages.new(node.child), below)
    if node.order and (has_ties(old, node) or has_ties(new, node)):
        raise Uncertain("Rows are equal in the ORDER BY of a window function whose result depends on their order.")
    before = window(old, node).select(*names_of(node))
    after = window(new, node).select(*names_of(node))
    rows = weighted(before, -1).union(weighted(after, 1))
    return Changes(net_if_comparable(rows, node.output), insert_only=False)


def has_ties(rows: DataFrame, node: Window) -> bool:
    """Whether rows of one partition are equal in ORDER BY, but not in everything else."""
    kept = [column for column in node.child.output if comparable(column.type)]
    differ = f"xxhash64({', '.join(quote(column.name) for column in kept)})"
    if len(kept) < len(node.child.output):
        differ = "monotonically_increasing_id()"
    keys = [*(key.text for key in node.keys), *node.order]
    named = rows.selectExpr(*(f"{text} AS __hr_o{place}" for place, text in enumerate(keys)), f"{differ} AS __hr_d")
    groups = named.groupBy(*(f"__hr_o{place}" for place in range(len(keys))))
    return bool(groups.agg(F.expr("min(__hr_d) <> max(__hr_d) AS tied")).where("tied").limit(1).count())
