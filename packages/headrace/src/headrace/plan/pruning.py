"""Leave out what a plan reads but does not use. Pure: works on our nodes alone."""

from __future__ import annotations

import re

from headrace.plan.nodes import (
    Aggregate,
    Expand,
    Explode,
    Filter,
    InnerJoin,
    Node,
    OuterJoin,
    Project,
    Relation,
    SemiJoin,
    UnionAll,
    Values,
    Window,
    walk,
)


def prune(root: Node, wanted: set[str]) -> Node:
    """Leave out the columns of source tables that nothing above names."""
    used = set(wanted)
    for node in walk(root):
        used.update(*map(names_in, own_texts(node)))
    return _pruned(root, used)


def names_in(text: str) -> set[str]:
    """Every word of an expression's text, so at least the columns it names.

    >>> sorted(names_in("(price_17 * 2L)"))
    ['2L', 'price_17']
    """
    return set(re.findall(r"\w+", text))


def own_texts(node: Node) -> list[str]:
    """The texts of the node itself, not of those below it."""
    match node:
        case Project():
            return [expression.text for expression in node.expressions]
        case Filter():
            return [node.condition]
        case InnerJoin() | OuterJoin() | SemiJoin():
            pairs = node.equalities + node.null_safe_equalities
            return [text for pair in pairs for text in pair] + [node.condition or ""]
        case Aggregate():
            parts = [text for call in node.calls for text in (call.argument, call.filter, call.text)]
            calls = [text for text in parts if text is not None]
            return [key.text for key in node.keys] + calls
        case UnionAll():
            return [column.name for child in node.inputs for column in child.output]
        case Explode():
            return [node.generator]
        case Expand():
            return [text for texts in node.projections for text in texts]
        case Window():
            return [*(expression.text for expression in node.keys + node.functions), *node.order]
        case _:
            return []


def _pruned(node: Node, used: set[str]) -> Node:
    match node:
        case Relation():
            kept = tuple(pair for pair in node.columns if pair[1].name in used)
            return Relation(source=node.source, columns=kept or node.columns[:1])
        case Values():
            return node
        case InnerJoin() | OuterJoin() | SemiJoin():
            return node.model_copy(update={"left": _pruned(node.left, used), "right": _pruned(node.right, used)})
        case UnionAll():
            return node.model_copy(update={"inputs": tuple(_pruned(child, used) for child in node.inputs)})
        case Project():
            child = _pruned(node.child, used)
            as_is = all(expression.name == expression.text for expression in node.expressions)
            return child if as_is and node.output == child.output else node.model_copy(update={"child": child})
        case _:
            return node.model_copy(update={"child": _pruned(node.child, used)})
