"""Subqueries in expressions become joins.

A scalar subquery that names no outer column is computed once: it is joined to every row, and where it stands beside
aggregate functions, to every group. EXISTS, IN and correlated subqueries are rewritten by Catalyst's own rules, after
the plans inside them have been lowered in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.names import quote_text
from headrace.plan.jvm import CATALYST, Jvm, items, kind, optional
from headrace.plan.spelling import NoRule
from headrace.plan.types import comparable

_PULL_UP = f"{CATALYST}.optimizer.PullupCorrelatedPredicates"
_TO_JOINS = (
    f"{CATALYST}.optimizer.RewriteLateralSubquery",
    f"{CATALYST}.optimizer.RewriteCorrelatedScalarSubquery",
    f"{CATALYST}.optimizer.RewritePredicateSubquery",
)
_WITH_PLAN = ("ScalarSubquery", "Exists", "ListQuery", "LateralSubquery")
_PASSING = ("Project", "SubqueryAlias", "View")
_SEVERAL_KINDS = "subqueries of several kinds in the SELECT list of an aggregation"
_VALUE = "__hr_value"
SEVERAL_ROWS = "A scalar subquery gives more than one row."

Change = Callable[[Any], Any]


def without_subqueries(jvm: Jvm, plan: Any) -> Any:
    """The plan with every subquery in an expression turned into a join."""
    if jvm.contains(plan, "PLAN_EXPRESSION") is None:
        return plan
    plan = _joined_scalars(jvm, plan)
    plan = jvm.object(_PULL_UP).apply(plan)
    plan = _lowered_inside(jvm, plan)
    for rule in _TO_JOINS:
        plan = jvm.object(rule).apply(plan)
    return plan


def _joined_scalars(jvm: Jvm, plan: Any) -> Any:
    """Each scalar subquery that names no outer column as a join, everywhere in the plan."""
    if jvm.contains(plan, "SCALAR_SUBQUERY") is None:
        return plan
    children = [_joined_scalars(jvm, child) for child in items(plan.children())]
    plan = plan.withNewChildren(jvm.seq(children))
    single = [_is_computed_once(each) for each in own_subqueries(jvm, plan)]
    if kind(plan) != "Aggregate" or not any(single):
        return _with_own_scalars(jvm, plan)
    if not all(single):
        raise NoRule(_SEVERAL_KINDS)
    above = _results_above(jvm, plan)
    below = _with_own_scalars(jvm, above.child())
    return _with_own_scalars(jvm, above.withNewChildren(jvm.seq([below])))


def own_subqueries(jvm: Jvm, plan: Any) -> list[Any]:
    """Those in the expressions of an operator; not those inside them."""
    found, waiting = [], items(plan.expressions())
    while waiting:
        expression = waiting.pop()
        if kind(expression) in (*_WITH_PLAN, "InSubquery"):
            found.append(expression)
        elif jvm.contains(expression, "PLAN_EXPRESSION") is not None:
            waiting += items(expression.children())
    return found


def _is_computed_once(subquery: Any) -> bool:
    return kind(subquery) == "ScalarSubquery" and not subquery.isCorrelated()


def _results_above(jvm: Jvm, aggregate: Any) -> Any:
    """An aggregation as two operators: one gives its keys and calls, the one above it what is made of them."""
    parts = optional(jvm.object(f"{CATALYST}.planning.PhysicalAggregation").unapply(aggregate))
    if parts is None:
        raise NoRule("Python aggregate function")
    logical, keys = jvm.catalyst.plans.logical, items(parts._1())
    results = [(call, call.resultAttribute()) for call in items(parts._2())]
    calls = [_alias(jvm, call, str(result.name()), result.exprId()) for call, result in results]
    groups = [key.child() if kind(key) == "Alias" else key for key in keys]
    below = logical.Aggregate(jvm.seq(groups), jvm.seq([*keys, *calls]), aggregate.child(), aggregate.hint())
    return logical.Project(parts._3(), below)


def _alias(jvm: Jvm, expression: Any, name: str, expression_id: Any) -> Any:
    none, nothing = jvm.object("scala.None"), jvm.seq([])
    return jvm.catalyst.expressions.Alias(expression, name, expression_id, nothing, none, nothing)


def _with_own_scalars(jvm: Jvm, plan: Any) -> Any:
    """Each such subquery in the expressions of one operator as a join below it."""
    found: dict[int, Any] = {}
    values: list[tuple[Any, Any]] = []

    def change(expression: Any) -> Any:
        if not _is_computed_once(expression):
            return _with_children(jvm, expression, change)
        for same, value in values:  # A key stands in GROUP BY and in the SELECT list.
            if same.semanticEquals(expression):
                return value
        inner = _of_one_row(jvm, _joined_scalars(jvm, expression.plan()))
        value = items(inner.output())[0]
        values.append((expression, value))
        found[int(value.exprId().id())] = inner
        return value

    changed = _with_expressions(jvm, plan, change)
    if not found:
        return plan
    *before, child = items(plan.children())  # Of a join, the right one: what ON says is asked of pairs.
    for inner in found.values():
        child = _join(jvm, child, inner, "Inner" if _has_one_row(inner) else "LeftOuter")
    changed = changed.withNewChildren(jvm.seq([*before, child]))
    if kind(plan) not in ("Filter", "Join"):
        return changed
    return jvm.catalyst.plans.logical.Project(plan.output(), changed)


def _of_one_row(jvm: Jvm, plan: Any) -> Any:
    """The plan of a scalar subquery. One that may give several rows, which is an error then, as an aggregate."""
    if optional(plan.maxRows()) == 1:
        return plan
    value = items(plan.output())[0]
    if not comparable(str(value.dataType().sql())):
        raise NoRule("scalar subquery that may return several rows")
    made = jvm.object(f"{CATALYST}.expressions.NamedExpression").newExprId()
    rows = jvm.catalyst.plans.logical.Project(jvm.seq([_alias(jvm, value, _VALUE, made)]), plan)
    text = f"CASE WHEN count(1) > 1 THEN raise_error({quote_text(SEVERAL_ROWS)}) ELSE max({_VALUE}) END AS {_VALUE}"
    call = jvm.state.sqlParser().parseExpression(text)
    single = jvm.catalyst.plans.logical.Aggregate(jvm.seq([]), jvm.seq([call]), rows, jvm.object("scala.None"))
    return jvm.state.analyzer().execute(single)


def _lowered_inside(jvm: Jvm, plan: Any) -> Any:
    """The plan with the plans inside its remaining subqueries free of subqueries themselves."""
    if jvm.contains(plan, "PLAN_EXPRESSION") is None:
        return plan
    children = [_lowered_inside(jvm, child) for child in items(plan.children())]
    for subquery in own_subqueries(jvm, plan):
        _require_told_over_nothing(jvm, subquery)
    return map_subqueries(jvm, plan.withNewChildren(jvm.seq(children)), lambda inner: without_subqueries(jvm, inner))


def _require_told_over_nothing(jvm: Jvm, subquery: Any) -> None:
    """What an aggregation gives for an outer row without a match, Catalyst's rule works out from its SELECT list. It
    takes the plans joined to that for empty ones, too: a subquery inside would be NULL there."""
    if kind(subquery) != "ScalarSubquery":
        return
    above, plan = [], subquery.plan()
    while kind(plan) in (*_PASSING, "Filter"):
        above.append(plan)
        plan = items(plan.children())[0]
    if kind(plan) == "Aggregate" and any(own_subqueries(jvm, node) for node in (*above, plan)):
        raise NoRule(_SEVERAL_KINDS)


def map_subqueries(jvm: Jvm, plan: Any, change_plan: Change) -> Any:
    """The node with the plan of each subquery in its own expressions changed."""

    def change(expression: Any) -> Any:
        if kind(expression) in _WITH_PLAN:
            return expression.withNewPlan(change_plan(expression.plan()))
        return _with_children(jvm, expression, change)

    return _with_expressions(jvm, plan, change)


def _with_children(jvm: Jvm, expression: Any, change: Change) -> Any:
    if jvm.contains(expression, "PLAN_EXPRESSION") is None:
        return expression
    if kind(expression) == "InSubquery":  # its ListQuery is not among its children
        values = jvm.seq([change(value) for value in items(expression.values())])
        return jvm.catalyst.expressions.InSubquery(values, change(expression.query()))
    return expression.withNewChildren(jvm.seq([change(child) for child in items(expression.children())]))


def _with_expressions(jvm: Jvm, plan: Any, change: Change) -> Any:
    """The node with each of its own expressions changed."""
    own = items(plan.expressions())
    if all(jvm.contains(expression, "PLAN_EXPRESSION") is None for expression in own):
        return plan
    logical = jvm.catalyst.plans.logical
    match kind(plan):
        case "Filter":
            return logical.Filter(change(plan.condition()), plan.child())
        case "Project":
            return logical.Project(jvm.seq([change(each) for each in items(plan.projectList())]), plan.child())
        case "Aggregate":
            groups = jvm.seq([change(each) for each in items(plan.groupingExpressions())])
            results = jvm.seq([change(each) for each in items(plan.aggregateExpressions())])
            return logical.Aggregate(groups, results, plan.child(), plan.hint())
        case "LateralJoin":
            return logical.LateralJoin(plan.left(), change(plan.right()), plan.joinType(), plan.condition())
        case "Join":
            condition = jvm.root.scala.Some(change(plan.condition().get()))
            return logical.Join(plan.left(), plan.right(), plan.joinType(), condition, plan.hint())
    raise NoRule("subquery in an expression")


def _join(jvm: Jvm, left: Any, right: Any, how: str) -> Any:
    none = jvm.object("scala.None")
    no_hint = jvm.object(f"{CATALYST}.plans.logical.JoinHint").NONE()
    return jvm.catalyst.plans.logical.Join(left, right, jvm.object(f"{CATALYST}.plans.{how}"), none, no_hint)


def _has_one_row(plan: Any) -> bool:
    """Whether the plan gives exactly one row whatever it reads: an aggregate without GROUP BY."""
    while kind(plan) in _PASSING:
        plan = items(plan.children())[0]
    return kind(plan) == "Aggregate" and plan.groupingExpressions().isEmpty()
