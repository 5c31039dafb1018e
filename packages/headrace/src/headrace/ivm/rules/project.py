"""Project.

    Δπ(A)  =  π(ΔA)
    a new day:  π'(ΔA)  +  π'(A_old)  −  π(A_old)       π' is π with the new current_date

State:    none.
Cost:     the changeset; on a new day all rows, when a column is computed from current_date.
Requires: deterministic expressions.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame

from headrace.ivm.changeset import WEIGHT, Changes, net_if_comparable, weighted
from headrace.ivm.evaluate import project
from headrace.ivm.stages import Stages, names_of
from headrace.plan.dates import at_date, names_date
from headrace.plan.nodes import Project


def changes(stages: Stages, node: Project) -> Changes | None:
    below = stages.changes(node.child)
    today = _at(node, stages.new_date)
    if not (stages.new_day and any(names_date(expression.text) for expression in node.expressions)):
        return None if below is None else below.over(project(below.rows, today, WEIGHT))
    rows = stages.old(node.child)
    terms = [
        weighted(project(rows, today), 1),
        weighted(project(rows, _at(node, stages.old_date)), -1),
    ]
    if below is not None:
        terms.append(project(below.rows, today, WEIGHT))
    columns = [*names_of(node), WEIGHT]
    together = reduce(DataFrame.union, (term.select(*columns) for term in terms))
    return Changes(net_if_comparable(together, node.output), insert_only=False)


def _at(node: Project, date: str | None) -> Project:
    if date is None:
        return node
    expressions = tuple(e.model_copy(update={"text": at_date(e.text, date)}) for e in node.expressions)
    return node.model_copy(update={"expressions": expressions})
