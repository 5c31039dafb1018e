"""DISTINCT inside an aggregate, as an aggregate below it.

    γ[K; count(DISTINCT x), count(*), sum(y), min(z)](A)
        =  γ[K; count(x), sum(n), sum(s), min(m)]( γ[K, x; count(*) AS n, sum(y) AS s, min(z) AS m](A) )

Both can be folded, and the one below is kept like any other (ivm/rules/aggregate.py): a change then costs a look at the
values it touches, not the rows of their whole groups. A FILTER of the distinct call goes into x, which is NULL where it
does not hold.

Requires: one list of distinct values in all calls of an aggregate, and beside them only calls whose results over parts
          of a group give that over the whole, exactly: counts, minima and maxima, sums of whole numbers and decimals.
"""

from __future__ import annotations

import re

from headrace.plan.explain import call_text
from headrace.plan.nodes import Aggregate, AggregateCall, Expression, Node, Plan, with_children
from headrace.plan.types import comparable, storable

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_DECIMAL = re.compile(r"decimal\(\d+,\s*\d+\)", re.I)
_EACH = "_each"


def distinct_below(plan: Plan) -> Plan:
    """The plan with every aggregate of distinct values as two, where that can be."""
    return plan.model_copy(update={"root": _rewritten(plan.root)})


def _rewritten(node: Node) -> Node:
    node = with_children(node, _rewritten)
    if not isinstance(node, Aggregate):
        return node
    wanted = [call for call in node.calls if _is_distinct(call)]
    others = [call for call in node.calls if not _is_distinct(call)]
    if not wanted or len({tuple(each.text for each in call.distinct_of) for call in wanted}) > 1:
        return node
    if not all(_counts_once(call) for call in wanted) or not all(_adds_up(call, node) for call in others):
        return node
    values = _named(wanted[0], {column.name for column in node.child.output})
    if not all(comparable(each.type) and storable(each.type) for each in (*node.keys, *values)):
        return node
    names = {key.name for key in node.keys}
    each_value = tuple(value for value in values if value.name not in names)
    parts = tuple(call.model_copy(update={"name": call.name + _EACH}) for call in others)
    below = Aggregate(child=node.child, keys=(*node.keys, *each_value), calls=parts)
    keys = tuple(key.model_copy(update={"text": key.name}) for key in node.keys)
    calls = tuple(_over_values(call, values) if _is_distinct(call) else _over_parts(call) for call in node.calls)
    return Aggregate(child=below, keys=keys, calls=calls)


def _is_distinct(call: AggregateCall) -> bool:
    return bool(call.distinct_of) and call.text is not None


def _counts_once(call: AggregateCall) -> bool:
    if call.function == "count":
        return True
    return call.function in ("sum", "avg") and len(call.distinct_of) == 1 and _is_exact(call.distinct_of[0].type)


def _adds_up(call: AggregateCall, node: Aggregate) -> bool:
    """Whether its results over the parts of a group give that over the whole."""
    if call.text is not None:
        return False
    if call.function == "count":
        return bool(node.keys)  # Over nothing, a sum of counts would be NULL.
    if call.function in ("min", "max"):
        return comparable(call.type) and storable(call.type)
    return call.function == "sum" and _is_exact(call.argument_type or "")


def _is_exact(type_text: str) -> bool:
    return type_text.lower() in _WHOLE or _DECIMAL.fullmatch(type_text) is not None


def _named(call: AggregateCall, columns: set[str]) -> tuple[Expression, ...]:
    """The distinct values as columns: one that is a column keeps its name."""
    names = [each.text if each.text in columns else f"{call.name}_v{n}" for n, each in enumerate(call.distinct_of)]
    pairs = zip(names, call.distinct_of, strict=True)
    return tuple({name: value.model_copy(update={"name": name}) for name, value in pairs}.values())


def _over_values(call: AggregateCall, values: tuple[Expression, ...]) -> AggregateCall:
    argument: str | None = values[0].name
    condition = None
    if len(values) > 1:
        argument, condition = None, " AND ".join(f"({value.name} IS NOT NULL)" for value in values)
    return AggregateCall(
        name=call.name,
        function=call.function,
        argument=argument,
        argument_type=None if argument is None else values[0].type,
        type=call.type,
        filter=condition,
        distinct_of=call.distinct_of,
    )


def _over_parts(call: AggregateCall) -> AggregateCall:
    argument = call.name + _EACH
    function = "sum" if call.function in ("count", "sum") else call.function
    return AggregateCall(
        name=call.name,
        function=function,
        argument=argument,
        argument_type=call.type,
        type=call.type,
        written=call_text(call),
    )
