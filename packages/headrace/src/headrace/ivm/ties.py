"""Rows that leave a result to chance: they tie in the ORDER BY of a window function that depends on their order, or for
the place of which `max_by`, `first` and the like give the value.

They may change places from one evaluation to the next, and what is taken out would not be what was put in. So wherever
a window or such a function below the root is evaluated once more during a refresh, ties are looked for: by the rule for
windows in the partitions that changed, and inside the evaluation itself in all that another operator asks for.
"""

from __future__ import annotations

import re

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.names import quote, quote_text
from headrace.plan.nodes import Aggregate, AggregateCall, Window
from headrace.plan.types import comparable, has_floats

TIES = "Rows are equal in the ORDER BY of a window function whose result depends on their order."
_BY_CHANCE = "The rows of a group leave open which value {} gives."


def told_ties(error: object) -> str | None:
    """The reason in an error that one of these checks has raised."""
    found = re.search(f"{re.escape(TIES)}|{_BY_CHANCE.format('[a-z_]+')}", str(error))
    return None if found is None else found[0]


def by_chance(call: AggregateCall) -> str:
    """What takes the place of a value that is left to chance."""
    return f"raise_error({quote_text(_BY_CHANCE.format(call.function))})"


def is_by_chance(rows: DataFrame, node: Aggregate, call: AggregateCall) -> bool:
    """Whether the rows below leave the call's value open in any group."""
    if call.chance is None:
        return True
    named = rows.selectExpr("*", *(f"{key.text} AS __hr_o{place}" for place, key in enumerate(node.keys)))
    groups = named.groupBy(*(f"__hr_o{place}" for place in range(len(node.keys))))
    return bool(groups.agg(F.expr(f"{call.chance} AS open")).where("open").limit(1).count())


def has_ties(rows: DataFrame, node: Window) -> bool:
    """Whether rows of one partition are equal in ORDER BY, but not in everything else."""
    keys = [*(key.text for key in node.keys), *node.order]
    named = rows.selectExpr(
        *(f"{text} AS __hr_o{place}" for place, text in enumerate(keys)), f"{_all_of(node)} AS __hr_d"
    )
    groups = named.groupBy(*(f"__hr_o{place}" for place in range(len(keys))))
    return bool(groups.agg(F.expr("min(__hr_d) <> max(__hr_d) AS tied")).where("tied").limit(1).count())


def without_ties(rows: DataFrame, node: Window) -> DataFrame:
    """The rows, the input of a window; whoever reads a partition of them in which rows tie gets an error instead.

    This is part of the plan: a filter on the partition's keys further up reaches the rows as it does without it."""
    if not node.order:
        return rows
    keys = f"PARTITION BY {', '.join(key.text for key in node.keys)} " if node.keys else ""
    peers = f"({keys}ORDER BY {', '.join(node.order)} RANGE BETWEEN CURRENT ROW AND CURRENT ROW)"
    tied = f"min(__hr_d) OVER {peers} <> max(__hr_d) OVER {peers}"
    marked = rows.selectExpr("*", f"{_all_of(node)} AS __hr_d").selectExpr("*", f"{tied} AS __hr_tied")
    checked = marked.where(f"CASE WHEN __hr_tied THEN raise_error({quote_text(TIES)}) ELSE true END")
    return checked.drop("__hr_d", "__hr_tied")


def _all_of(node: Window) -> str:
    """An expression that differs for rows that do. (A hash would not: it passes over NULLs, wherever they are.)"""
    if not all(comparable(column.type) for column in node.child.output):
        return "monotonically_increasing_id()"
    names = [quote(column.name) for column in node.child.output]
    # As numbers, 0.0 and -0.0 are the same.
    floats = [quote(column.name) for column in node.child.output if has_floats(column.type)]
    return f"struct({', '.join([*names, *(f'CAST({name} AS STRING)' for name in floats)])})"
