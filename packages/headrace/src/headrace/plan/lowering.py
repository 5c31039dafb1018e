"""Lower an analysed plan to the few operators that we read, with Catalyst's own rules, one by one.

Not the whole optimizer: that folds current_date to a literal, replaces functions by internal calls that have no SQL
text, and looks at today's data. The rules below only move and simplify operators; none of them reads statistics,
files or the clock.
"""

from __future__ import annotations

from typing import Any

from headrace.plan.jvm import CATALYST, Jvm, items, kind
from headrace.plan.subqueries import map_subqueries, without_subqueries

_ANALYSIS = f"{CATALYST}.analysis"
_OPTIMIZER = f"{CATALYST}.optimizer"

# Applied once, in this order, after CTEs are written out (`InlineCTE`, which takes arguments) and dynamic tables are
# made leaves.
_STRUCTURE = (
    f"{_ANALYSIS}.EliminateSubqueryAliases",  # names are resolved: attributes have ids
    f"{CATALYST}.expressions.EliminatePipeOperators",  # `|> WHERE …` is WHERE
    f"{_ANALYSIS}.EliminateView",  # an ordinary view is its query; its casts to the declared types stay
    f"{_OPTIMIZER}.EliminateSQLFunctionNode",  # a SQL function is its body
    f"{_OPTIMIZER}.EliminateResolvedHint",  # BROADCAST and the like say how, not what
)

# Applied once, after the subqueries in expressions have become joins.
_SET_OPERATIONS = (
    f"{_OPTIMIZER}.RewriteExceptAll",
    f"{_OPTIMIZER}.RewriteIntersectAll",
    f"{_OPTIMIZER}.ReplaceIntersectWithSemiJoin",
    f"{_OPTIMIZER}.ReplaceExceptWithAntiJoin",
    f"{_OPTIMIZER}.ReplaceDistinctWithAggregate",  # DISTINCT is GROUP BY all columns
    f"{_OPTIMIZER}.ReplaceDeduplicateWithAggregate",  # so it is for a DataFrame's distinct()
)

# Applied until nothing changes.
_SIMPLIFY = (
    f"{_OPTIMIZER}.PushDownPredicates",  # `FROM a, b WHERE a.x = b.x` becomes a join with a condition
    f"{_OPTIMIZER}.ReorderJoin",  # `FROM a, b, c`: join first what has a condition; keeps the written order otherwise
    f"{_OPTIMIZER}.ColumnPruning",  # unused columns must not become changes
    f"{_OPTIMIZER}.CollapseProject",  # never duplicates an expensive or a non-deterministic expression
    f"{_OPTIMIZER}.SimplifyCasts",  # a view's cast to the type that a column has already
    f"{_OPTIMIZER}.RemoveNoopOperators",
)
_MOST_ROUNDS = 20


def lower(jvm: Jvm, analyzed: Any, dynamic: dict[str, int]) -> tuple[Any, dict[int, int]]:
    """The lowered plan, and which of its leaves are dynamic tables: the id of each leaf column to its source.

    `dynamic` names the dynamic tables as Spark's catalog does (db.table, lower case).
    """
    # First, because it makes copies with new column ids, and a leaf is known by its column ids.
    plan = jvm.catalyst.optimizer.InlineCTE(True, False).apply(analyzed)
    leaves: dict[int, int] = {}
    if dynamic:
        plan = _dynamic_leaves(jvm, plan, dynamic, leaves)
    for rule in _STRUCTURE:
        plan = jvm.object(rule).apply(plan)
    plan = without_subqueries(jvm, plan)
    for rule in (*_STRUCTURE, *_SET_OPERATIONS):
        plan = jvm.object(rule).apply(plan)
    for _ in range(_MOST_ROUNDS):
        before = plan
        for rule in _SIMPLIFY:
            plan = jvm.object(rule).apply(plan)
        if plan.fastEquals(before):
            break
    return plan, leaves


def _dynamic_leaves(jvm: Jvm, plan: Any, dynamic: dict[str, int], leaves: dict[int, int]) -> Any:
    """Replace the view of each dynamic table by a leaf with the same columns, and with two rows that nobody looks at:
    with fewer, Catalyst would take a subquery over it for one that cannot give several."""
    if kind(plan) == "View":
        identifier = plan.desc().identifier()
        source = dynamic.get(f"{identifier.database().get()}.{identifier.table()}".lower())
        if source is not None:
            output = plan.output()
            for attribute in items(output):
                leaves[int(attribute.exprId().id())] = source
            none = jvm.object("scala.None")
            row = jvm.object(f"{CATALYST}.InternalRow").empty()
            return jvm.catalyst.plans.logical.LocalRelation(output, jvm.seq((row, row)), False, none)
    children = items(plan.children())
    replaced = [_dynamic_leaves(jvm, child, dynamic, leaves) for child in children]
    if any(new is not old for new, old in zip(replaced, children, strict=True)):
        plan = plan.withNewChildren(jvm.seq(replaced))
    return map_subqueries(jvm, plan, lambda inner: _dynamic_leaves(jvm, inner, dynamic, leaves))
