"""The keys that one side of a join has: all that a semi, anti or outer join needs to know about whether a row matches.

L ⋉ R  =  L ⋈ δ(R)        δ(R): the distinct keys of R, where equalities are the whole condition
Δδ(R)  =  π(ΔR)           where R has each key once, as the groups of an aggregate have
"""

from __future__ import annotations

from headrace.plan.nodes import Aggregate, Expression, Filter, Node, OuterJoin, Project, SemiJoin, walk


def matched_keys(node: SemiJoin | OuterJoin) -> Aggregate | None:
    """δ(R) under the names of R's columns; None where the join compares more than its plain columns,
    and where its changes tell as much."""
    types = {column.name: column.type for column in node.right.output}
    keys = dict.fromkeys(node.right_keys)
    if node.condition is not None or not keys or not all(key in types for key in keys) or has_each_key_once(node):
        return None
    named = tuple(Expression(name=key, text=key, type=types[key]) for key in keys)
    return Aggregate(child=node.right, keys=named, calls=())


def has_each_key_once(node: SemiJoin | OuterJoin) -> bool:
    """Whether the right side has at most one row for the keys, which are all that the join compares."""
    side, names = node.right, set(node.right_keys)
    if node.condition is not None or not names <= {column.name for column in side.output}:
        return False
    while isinstance(side, Project | Filter):
        if isinstance(side, Project):
            names = {each.text for each in side.expressions if each.name in names}
        side = side.child
    return isinstance(side, Aggregate) and bool(side.keys) and {key.name for key in side.keys} <= names


def unmatched_right(node: OuterJoin) -> SemiJoin:
    """The rows of the right side of a full join that match nothing on the left."""
    return SemiJoin(
        left=node.right,
        right=node.left,
        equalities=tuple((right, left) for left, right in node.equalities),
        null_safe_equalities=tuple((right, left) for left, right in node.null_safe_equalities),
        condition=node.condition,
        anti=True,
    )


def kept_aggregates(root: Node) -> list[tuple[Node, Aggregate]]:
    """Every aggregate of a plan whose groups may be kept, with the operator that looks at them."""
    found: list[tuple[Node, Aggregate | None]] = []
    for node in walk(root):
        if isinstance(node, Aggregate):
            found.append((node, node))
        elif isinstance(node, SemiJoin | OuterJoin):
            found.append((node, matched_keys(node)))
            if isinstance(node, OuterJoin) and node.full:
                found.append((node, matched_keys(unmatched_right(node))))
    return [(node, kept) for node, kept in found if kept is not None]
