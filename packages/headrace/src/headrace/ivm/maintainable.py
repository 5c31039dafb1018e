"""Whether a query that has rules for all its operators can be maintained by them, or must be computed whole.

Two things stand in the way: rows or states that cannot be stored and found again, and values that may come out
otherwise when they are computed once more, to be taken out, than when they were put in.
"""

from __future__ import annotations

from headrace.ivm.layout import grouped_root, layout_of
from headrace.ivm.rules.partitions import partitions_root
from headrace.plan.catalyst import can_be_kept
from headrace.plan.certainty import carriers, deciding_texts, inexact_calls, is_only_sorted, named_in
from headrace.plan.distinct import distinct_below
from headrace.plan.nodes import Aggregate, AggregateCall, Node, Plan, walk
from headrace.plan.query import Query
from headrace.plan.types import comparable, has_floats, storable
from headrace.plan.zeros import FLOATING, with_zeros_told_apart

CHANCY = (
    "max_by", "min_by", "collect_list", "collect_set", "array_agg", "percentile_approx", "approx_percentile",
    "first", "first_value", "last", "last_value", "any_value", "mode", "listagg", "string_agg",
)  # fmt: skip
"""Functions that may give a wholly different value for the same rows. At the root that does not matter: what is stored
is what was computed. Further down some are maintained where nothing is left to chance (ivm/ties.py)."""


def maintained(query: Query) -> Query:
    """The query as it is; without its plan, and with the reason, when it must be computed whole."""
    if query.plan is None:
        return query
    reason = _hindrance(query, query.plan)
    if reason is not None:
        return query.model_copy(update={"plan": None, "unsupported": reason})
    for plan in map(_certain, (distinct_below(query.plan), query.plan)):
        found = query.model_copy(update={"plan": plan})
        if _hindrance(found, plan) is None and can_be_kept(plan):
            return found
    return query


def _certain(plan: Plan) -> Plan:
    root = grouped_root(plan)
    return with_zeros_told_apart(plan, None if root is None else root.aggregate)


def _hindrance(query: Query, plan: Plan) -> str | None:
    return _unstorable(query) or _chancy(plan) or _decided_by_chance(plan)


def _unstorable(query: Query) -> str | None:
    layout = layout_of(query)
    hidden = next((column for column in layout.hidden if not storable(column.type)), None)
    if hidden is not None:
        return f"GROUP BY or an aggregate over a value of type {hidden.type.lower()}"
    if layout.kind != "bag":
        return None
    return next((f"a result column of type {c.type.lower()}" for c in layout.public if not comparable(c.type)), None)


def _chancy(plan: Plan) -> str | None:
    root = grouped_root(plan)
    below = [n for n in walk(plan.root) if isinstance(n, Aggregate) and (root is None or n is not root.aggregate)]
    called = [call for node in below for call in node.calls if _is_chancy(call)]
    return next((f"{c.function} below another operator" for c in called if not is_only_sorted(plan, c)), None)


def _is_chancy(call: AggregateCall) -> bool:
    if call.function in ("min", "max"):  # 0.0 or -0.0; of plain numbers it is asked which (plan/zeros.py).
        return has_floats(call.type) and call.type.lower() not in FLOATING
    return call.function in CHANCY and call.chance is None


def _decided_by_chance(plan: Plan) -> str | None:
    """A value that is rounded, and by which it is decided below the root which rows there are."""
    grouped, partitions = grouped_root(plan), partitions_root(plan)
    stored: tuple[Node, ...] = ()
    if grouped is not None:
        stored = (grouped.aggregate, *grouped.finish)
    elif partitions is not None:
        stored = (partitions.window, *partitions.finish)
    # What the root computes is stored, and taken out as it was stored; only its keys are looked for.
    below = [node for node in walk(plan.root) if not any(node is each for each in stored)]
    inexact = carriers(plan.root, lambda node: {} if any(node is each for each in stored) else inexact_calls(node))
    texts = [text for node in below for text in deciding_texts(node)]
    if grouped is not None:
        texts += [key.text for key in grouped.aggregate.keys]
    elif partitions is not None:
        texts += [key.text for key in partitions.window.keys]
    origin = named_in(inexact, *texts)
    return None if origin is None else f"{origin}, rounded, by which a filter, join or group further up decides"
