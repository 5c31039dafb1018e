"""Window functions at the root: replace the affected partitions.

    K  =  PARTITION BY keys of ΔA
    stored changes:  ω(A_new ⋉ K)  −  stored rows ⋉ K

State:    none beyond the table's own rows.
Cost:     the affected partitions, once, and their stored rows; without PARTITION BY, all rows are one partition.
Requires: a result that holds the keys of PARTITION BY as they are, and no current_date; elsewhere the rule for windows
          applies. Neither ties in ORDER BY nor rounding need care here: what is taken out is what was stored.
"""

from __future__ import annotations

import re
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.ivm.changeset import Changes, weighted
from headrace.ivm.evaluate import project, window
from headrace.ivm.groups import affected_of
from headrace.ivm.layout import below_finish
from headrace.ivm.stages import Stages
from headrace.names import quote
from headrace.plan.dates import depends_on_date
from headrace.plan.nodes import Filter, Frozen, Plan, Project, Window


class Partitions(Frozen):
    """A window with only projections and filters above it."""

    window: Window
    finish: tuple[Project | Filter, ...]
    """From the window upwards."""
    keys: tuple[str, ...]
    """The result's columns that hold the keys, in their order."""


def partitions_root(plan: Plan | None) -> Partitions | None:
    """The plan as a window with its finish, or None when its root is something else, or does not show the keys."""
    if plan is None or depends_on_date(plan.root):
        return None
    node, finish = below_finish(plan.root)
    if not isinstance(node, Window):
        return None
    holders = {text: public for public, text in shown_texts(plan, finish).items()}
    if any(key.text not in holders for key in node.keys):
        return None
    return Partitions(window=node, finish=finish, keys=tuple(holders[key.text] for key in node.keys))


def shown_texts(plan: Plan, finish: tuple[Project | Filter, ...]) -> dict[str, str]:
    """What each public column is, over the columns below the finish."""
    texts = {public: column.name for public, column in plan.columns}
    for node in reversed(finish):
        if isinstance(node, Project):
            below = {expression.name: expression.text for expression in node.expressions}
            texts = {public: put_in(text, below) for public, text in texts.items()}
    return texts


def put_in(text: str, texts: dict[str, str]) -> str:
    """The text with each name replaced by what it stands for.

    >>> put_in("n_3 <= 5", {"n_3": "n_1"})
    'n_1 <= 5'
    """
    return re.sub(r"\w+", lambda word: texts.get(word[0], word[0]), text)


def changes(stages: Stages, root: Partitions, plan: Plan, live: DataFrame) -> Changes | None:
    """The changes of the root, with `live`, the stored rows."""
    below = stages.materialized(root.window.child)
    if below is None:
        return None
    keys = root.window.keys
    columns = list(dict.fromkeys((public, column.name) for public, column in plan.columns))
    names = list(dict.fromkeys(quote(name) for _, name in columns))
    stored = live
    if keys:
        texts = [key.text for key in keys]
        holders = [quote(public) for public in root.keys]
        touched = below.rows.selectExpr(*(f"{text} AS __hr_a{i}" for i, text in enumerate(texts))).distinct()
        same = F.expr(" AND ".join(f"{holder} <=> __hr_a{i}" for i, holder in enumerate(holders)))
        few = below.local is not None
        candidates = stages.narrowed(live, holders, below, texts)
        stored = candidates.join(F.broadcast(touched) if few else touched, same, "left_semi")
    before = stored.selectExpr(*{name: f"{quote(public)} AS {quote(name)}" for public, name in columns}.values())
    after = finished(window(affected_of(stages, keys, root.window.child, below, old=False), root.window), root.finish)
    return Changes(weighted(before.select(*names), -1).union(weighted(after.select(*names), 1)), insert_only=False)


def finished(rows: DataFrame, finish: tuple[Project | Filter, ...]) -> DataFrame:
    """The rows of a window as those of the root."""

    def above(rows: DataFrame, node: Project | Filter) -> DataFrame:
        return rows.where(node.condition) if isinstance(node, Filter) else project(rows, node)

    return reduce(above, finish, rows)
