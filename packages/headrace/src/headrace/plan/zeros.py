"""0.0 and -0.0 as the least or the greatest value of a group.

They are equal as numbers, and Spark gives the one that it meets first, which depends on the order of files. At the root
what was stored is taken out again; in an aggregate below it both may come out, one after the other. So there such a
minimum or maximum is left to chance (ivm/ties.py) where it is zero and the group has both.
"""

from __future__ import annotations

from headrace.plan.nodes import Aggregate, AggregateCall, Node, Plan, with_children

FLOATING = ("float", "double")


def with_zeros_told_apart(plan: Plan, stored: Aggregate | None) -> Plan:
    """The plan with that said of each such call; `stored` is the aggregate whose state is kept in the table itself."""

    def marked(node: Node) -> Node:
        calls = node.calls if isinstance(node, Aggregate) and node is not stored else ()
        found = with_children(node, marked)
        if not any(map(_is_open, calls)):
            return found
        told = tuple(
            call.model_copy(update={"chance": _both_zeros(call)}) if _is_open(call) else call for call in calls
        )
        return found.model_copy(update={"calls": told})

    return plan.model_copy(update={"root": marked(plan.root)})


def _is_open(call: AggregateCall) -> bool:
    return call.function in ("min", "max") and call.text is None and (call.argument_type or "").lower() in FLOATING


def _both_zeros(call: AggregateCall) -> str:
    value = call.argument if call.filter is None else f"CASE WHEN {call.filter} THEN {call.argument} END"
    zero = f"CASE WHEN ({value}) = 0 THEN CAST(({value}) AS STRING) END"
    return f"coalesce({call.function}({value}) = 0 AND min({zero}) <> max({zero}), false)"
