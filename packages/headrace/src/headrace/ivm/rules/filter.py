"""Filter.

    Δσ_p(A)  =  σ_p(ΔA)
    a new day:  σ_p'(ΔA)  +  σ_(p' and not p)(A_old)  −  σ_(p and not p')(A_old)       p' is p with the new current_date

State:    none.
Cost:     the changeset; on a new day also the rows that enter and leave.
Requires: a deterministic condition.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame

from headrace.ivm.changeset import WEIGHT, Changes, weighted
from headrace.ivm.stages import Stages, names_of
from headrace.plan.dates import at_date, names_date
from headrace.plan.nodes import Filter


def changes(stages: Stages, node: Filter) -> Changes | None:
    below = stages.changes(node.child)
    condition = node.condition if stages.new_date is None else at_date(node.condition, stages.new_date)
    if not (stages.new_day and names_date(node.condition)):
        return None if below is None else below.over(below.rows.where(condition))
    columns = [*names_of(node), WEIGHT]
    before = at_date(node.condition, stages.old_date or "")
    # A condition that is NULL lets no row pass.
    now, then = f"coalesce({condition}, false)", f"coalesce({before}, false)"
    rows = stages.old(node.child)
    terms = [weighted(rows.where(f"{now} AND NOT {then}"), 1), weighted(rows.where(f"{then} AND NOT {now}"), -1)]
    if below is not None:
        terms.append(below.rows.where(condition))
    return Changes(reduce(DataFrame.union, (term.select(*columns) for term in terms)), insert_only=False)
