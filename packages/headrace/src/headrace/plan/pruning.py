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
)


def prune(node: Node, wanted: set[str]) -> Node:
    """The node without the columns that neither `wanted` nor anything in it names."""
    match node:
        case Relation():
            kept = tuple(pair for pair in node.columns if pair[1].name in wanted)
            return Relation(source=node.source, columns=kept or node.columns[:1])
        case Values():
            return node
        case Project():
            needed = tuple(each for each in node.expressions if each.name in wanted) or node.expressions[:1]
            narrow = node.model_copy(update={"expressions": needed})
            child = prune(node.child, names_used(narrow))
            as_is = all(expression.name == expression.text for expression in needed)
            return child if as_is and narrow.output == child.output else narrow.model_copy(update={"child": child})
        case Window():
            functions = tuple(each for each in node.functions if each.name in wanted)
            if not functions:
                return prune(node.child, wanted)
            narrow_window = node.model_copy(update={"functions": functions})
            return narrow_window.model_copy(update={"child": prune(node.child, wanted | names_used(narrow_window))})
        case InnerJoin() | OuterJoin() | SemiJoin():
            below = wanted | names_used(node)
            return node.model_copy(update={"left": prune(node.left, below), "right": prune(node.right, below)})
        case UnionAll():
            inputs = tuple(prune(child, {column.name for column in child.output}) for child in node.inputs)
            return node.model_copy(update={"inputs": inputs})
        case Aggregate() | Expand():
            return node.model_copy(update={"child": prune(node.child, names_used(node))})
        case Filter() | Explode():
            return node.model_copy(update={"child": prune(node.child, wanted | names_used(node))})


def names_used(node: Node) -> set[str]:
    """The words of the node's own texts."""
    return set().union(*map(names_in, own_texts(node)))


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
        case Values():
            return [node.query]
        case _:
            return []
