"""Values that may come out otherwise when they are computed once more: which columns hold them, and what they decide.

A sum of floats depends on the order in which they are added, and no two plans add in the same order. What is taken out
of a result below its root is computed once more; if it differs, even in its last digit, from what was put in, a filter
above may let one of them through and not the other, and a row that is gone stays in the table. So such a value may be
shown, but nothing may be decided by it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from headrace.plan.nodes import (
    Aggregate,
    AggregateCall,
    Expand,
    Explode,
    Expression,
    Filter,
    InnerJoin,
    Node,
    OuterJoin,
    Plan,
    Project,
    SemiJoin,
    UnionAll,
    Window,
    walk,
)
from headrace.plan.pruning import names_in, own_texts
from headrace.plan.types import has_floats

_COLLECTING = ("collect_list", "collect_set", "array_agg")

Origins = dict[str, str]
"""Columns, each with the call that its value comes from, in words."""
Arises = Callable[[Node], Origins]

_ADDING = (
    "sum", "avg", "mean", "try_sum", "try_avg", "product", "std", "stddev", "stddev_pop", "stddev_samp", "variance",
    "var_pop", "var_samp", "covar_pop", "covar_samp", "corr", "skewness", "kurtosis",
)  # fmt: skip
_FLOATING = ("float", "double")
_WHOLE = ("tinyint", "smallint", "int")
"""Spark averages these in doubles, which hold every sum below 2^53 as it is, in whatever order."""


def inexact_calls(node: Node) -> Origins:
    """The calls of a node whose value depends, in its last digits, on the order in which rows arrive."""
    match node:
        case Aggregate():
            return {call.name: _words(call.function, call.type) for call in node.calls if _is_inexact(call)}
        case Window():
            return {each.name: _words(_called(each), each.type) for each in node.functions if _adds_floats(each)}
        case _:
            return {}


def carriers(root: Node, arises: Arises = inexact_calls) -> Origins:
    """Every column of the plan whose value comes, by whatever way, from one that arises somewhere below it."""
    found: Origins = {}

    def from_text(name: str, *texts: str | None) -> None:
        origin = named_in(found, *texts)
        if origin is not None:
            found.setdefault(name, origin)

    for node in reversed(walk(root)):  # What is below comes first.
        match node:
            case Project():
                for each in node.expressions:
                    from_text(each.name, each.text)
            case UnionAll():
                for child in node.inputs:
                    for own, out in zip(child.output, node.output, strict=True):
                        from_text(out.name, own.name)
            case Explode():
                for column in node.generated:
                    from_text(column.name, node.generator)
            case Expand():
                for texts in node.projections:
                    for text, out in zip(texts, node.output, strict=True):
                        from_text(out.name, text)
            case Aggregate():
                for key in node.keys:
                    from_text(key.name, key.text)
                for call in node.calls:
                    from_text(call.name, *call_texts(call))
            case Window():
                for each in (*node.keys, *node.functions):
                    from_text(each.name, each.text)
            case SemiJoin() if node.flag is not None:
                from_text(node.flag.name, *own_texts(node))
        found |= {name: origin for name, origin in arises(node).items() if name not in found}
    return found


def named_in(origins: Origins, *texts: str | None) -> str | None:
    """Where the first of these columns that the texts name comes from."""
    words = set().union(*(names_in(text) for text in texts if text))
    return next((origin for name, origin in origins.items() if name in words), None)


def call_texts(call: AggregateCall) -> tuple[str | None, ...]:
    return call.argument, call.filter, call.text


def deciding_texts(node: Node) -> list[str]:
    """The texts of a node that decide which rows there are, or which belong together."""
    match node:
        case Filter() | InnerJoin() | OuterJoin() | SemiJoin() | Explode():
            return own_texts(node)
        case Aggregate():
            return [key.text for key in node.keys]
        case Window():
            return [*(key.text for key in node.keys), *node.order]
        case _:
            return []


def is_only_sorted(plan: Plan, call: AggregateCall) -> bool:
    """Whether a collected array is used only where the order of its elements does not matter."""
    if call.function not in _COLLECTING or has_floats(call.type):
        return False
    sorted_use = re.compile(rf"\b(?:array_sort|sort_array|size|array_size)\({call.name}(?:, (?:true|false))?\)")
    if call.name in {column.name for _, column in plan.columns}:
        return False
    for node in walk(plan.root):
        if isinstance(node, UnionAll) and any(
            call.name in {column.name for column in child.output} for child in node.inputs
        ):
            return False
        passed = [each.text for each in node.expressions if each.name == each.text] if isinstance(node, Project) else []
        for text in own_texts(node):
            if text not in passed and call.name in names_in(sorted_use.sub("", text)):
                return False
    return True


def _is_inexact(call: AggregateCall) -> bool:
    adds = call.function in _ADDING or call.function.startswith("regr_")
    exact = call.function == "avg" and (call.argument_type or "").lower() in _WHOLE
    return adds and not exact and call.type.lower() in _FLOATING


def _adds_floats(function: Expression) -> bool:
    called = _called(function)
    return function.type.lower() in _FLOATING and (called in _ADDING or called.startswith("regr_"))


def _called(function: Expression) -> str:
    """The function's name.

    >>> _called(Expression(name="a_1", text="avg(x_2) OVER (PARTITION BY k_3)", type="DOUBLE"))
    'avg'
    """
    return function.text.partition("(")[0].strip().lower()


def _words(function: str, type_text: str) -> str:
    return f"{function} as a {type_text.lower()}"
