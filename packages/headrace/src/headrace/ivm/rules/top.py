"""The best rows of each partition, at the root: row_number(), rank() or dense_rank() up to a bound.

    K   =  PARTITION BY keys of ΔA
    W   =  stored rows ⋉ K                                    the present winners
    W'  =  τ(W + ΔA⁺)   where no winner is among ΔA⁻          a loser that goes changes nothing, nor can it have won
           τ(A_new ⋉ K) elsewhere
    stored changes:  W' − W

State:    none beyond the table's own rows.
Cost:     the winners of the affected partitions; the partitions that lose a winner are read whole.
Requires: all columns that PARTITION BY, ORDER BY and the result need are columns of the result, as they are.
          None of them may come out otherwise when computed once more (plan/certainty.py): a winner that goes is known
          by its values. Elsewhere rules/partitions.py applies. Ties need no care here: what is taken out is what was
          stored, and any choice among equal rows is right.
"""

from __future__ import annotations

import re

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.ivm.changeset import WEIGHT, Changes, net, weighted
from headrace.ivm.evaluate import window
from headrace.ivm.groups import affected, affected_of
from headrace.ivm.layout import below_finish
from headrace.ivm.rules.partitions import finished, put_in
from headrace.ivm.stages import Stages
from headrace.names import quote
from headrace.plan.certainty import carriers
from headrace.plan.dates import depends_on_date
from headrace.plan.nodes import Column, Expression, Filter, Frozen, Plan, Project, Window
from headrace.plan.pruning import names_used

_RANKS = ("row_number()", "rank()", "dense_rank()")
_BOUND = re.compile(r"\(?(\w+) (=|<=|<) (\d+)L?\)?")


class Top(Frozen):
    """A window with one filter on its rank above it, and projections around that."""

    window: Window
    finish: tuple[Project | Filter, ...]
    """From the window upwards."""
    stored: tuple[tuple[str, Column], ...]
    """The result's columns that hold a column of the window's input, each with that column."""


def top_root(plan: Plan | None) -> Top | None:
    """The plan as a top of its partitions, or None when its root is something else."""
    if plan is None or depends_on_date(plan.root):
        return None
    node, finish = below_finish(plan.root)
    if not isinstance(node, Window) or [each.kind for each in finish].count("filter") != 1:
        return None
    if not carriers(node.child).keys().isdisjoint(column.name for column in node.child.output):
        return None
    origin = {public: column.name for public, column in plan.columns}
    bound = ""
    for each in reversed(finish):
        if isinstance(each, Filter):
            bound = each.condition
        else:
            texts = {expression.name: expression.text for expression in each.expressions}
            bound = put_in(bound, texts)
            origin = {public: texts[name] for public, name in origin.items() if name in texts}
    if not _bounds_a_rank(bound, node.functions):
        return None
    wanted = set(origin.values()).union(*map(names_used, finish), names_used(node))
    found = {name: public for public, name in origin.items()}
    columns = [column for column in node.child.output if column.name in wanted]
    if not columns or any(column.name not in found for column in columns):
        return None
    stored = tuple((found[column.name], column) for column in columns)
    return Top(window=node, finish=finish, stored=stored)


def _bounds_a_rank(condition: str, functions: tuple[Expression, ...]) -> bool:
    """Whether the condition keeps the rows up to some rank, and no other function looks beyond them."""
    found = _BOUND.fullmatch(condition)
    if found is None or not all(function.text.startswith(_RANKS) for function in functions):
        return False
    name, sign, most = found.groups()
    return any(function.name == name for function in functions) and (sign != "=" or most == "1") and int(most) > 0


def changes(stages: Stages, top: Top, plan: Plan, live: DataFrame) -> Changes | None:
    """The changes of the root, with `live`, the stored rows."""
    below = stages.materialized(top.window.child)
    if below is None:
        return None
    keys = top.window.keys
    columns = [quote(column.name) for _, column in top.stored]
    winners = stages.at_hand(affected(stages, keys, _under_plan_names(live, top, plan), below))
    change = below.rows.select(*columns, WEIGHT)
    if not below.insert_only:
        change = stages.at_hand(net(change, [column.name for _, column in top.stored]))
    rivals = winners.select(*columns).union(change.where(f"{WEIGHT} > 0").select(*columns))
    lost = None if below.insert_only else _lost(stages, change.where(f"{WEIGHT} < 0"), winners, top)
    if lost is not None:
        reread = affected_of(stages, keys, top.window.child, lost, old=False)
        rivals = _without(rivals, lost, top).union(reread.select(*columns))
    names = list(dict.fromkeys(quote(column.name) for _, column in plan.columns))
    before, after = winners.select(*names), _best(rivals, top).select(*names)
    return Changes(weighted(before, -1).union(weighted(after, 1)), insert_only=False)


def _under_plan_names(live: DataFrame, top: Top, plan: Plan) -> DataFrame:
    """Stored rows under the names of the root's columns, and of those of the window's input."""
    sources = {column.name: public for public, column in (*plan.columns, *top.stored)}
    return live.selectExpr(*(f"{quote(public)} AS {quote(name)}" for name, public in sources.items()))


def _lost(stages: Stages, removed: DataFrame, winners: DataFrame, top: Top) -> Changes | None:
    """The removed rows that were winners, or equal to one; None when there are none."""
    copies = {column.name: f"__hr_w{place}" for place, (_, column) in enumerate(top.stored)}
    stored = winners.selectExpr(*(f"{quote(name)} AS {copy}" for name, copy in copies.items()))
    same = " AND ".join(f"{quote(name)} <=> {copy}" for name, copy in copies.items())
    found = removed.join(stored, F.expr(same), "left_semi")
    local = stages.local(found) if stages.small else None
    if local is not None:
        return stages.from_local(local, Changes(found, insert_only=False)) if local.num_rows else None
    lost = Changes(stages.cache(found), insert_only=False)
    return None if lost.rows.isEmpty() else lost


def _without(rows: DataFrame, lost: Changes, top: Top) -> DataFrame:
    """The rows of the partitions that lost no winner."""
    keys = top.window.keys
    if not keys:
        return rows.limit(0)
    gone = lost.rows.selectExpr(*(f"{key.text} AS __hr_g{place}" for place, key in enumerate(keys))).distinct()
    same = " AND ".join(f"({key.text}) <=> __hr_g{place}" for place, key in enumerate(keys))
    return rows.join(gone, F.expr(same), "left_anti")


def _best(rows: DataFrame, top: Top) -> DataFrame:
    """The best of each partition of these rows, as columns of the root."""
    return finished(window(rows, top.window), top.finish)
