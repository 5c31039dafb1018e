"""A plan as an indented tree for people, with the rule that maintains each operator."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plan.nodes import (
    Aggregate,
    AnyJoin,
    Expand,
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


@dataclass(frozen=True)
class Line:
    depth: int
    operator: str
    detail: str
    node: Node


def tree(node: Node, sources: tuple[str, ...], depth: int = 0) -> list[Line]:
    """One line per operator, the root first."""
    lines = [Line(depth, *_words(node, sources), node)]
    for child in node.children:
        lines += tree(child, sources, depth + 1)
    return lines


def _words(node: Node, sources: tuple[str, ...]) -> tuple[str, str]:
    if isinstance(node, Relation):
        return "relation", sources[node.source]
    if isinstance(node, Project):
        return "project", _short(", ".join(expression.text for expression in node.expressions))
    if isinstance(node, Filter):
        return "filter", _short(node.condition)
    if isinstance(node, InnerJoin | OuterJoin | SemiJoin):
        terms = [f"{left} = {right}" for left, right in node.equalities]
        terms += [f"{left} <=> {right}" for left, right in node.null_safe_equalities]
        terms += [node.condition] if node.condition is not None else []
        return _join_word(node), _short(" AND ".join(terms) or "every row with every row")
    if isinstance(node, Aggregate):
        keys = ", ".join(key.text for key in node.keys) or "all rows in one group"
        calls = ", ".join(call.text or f"{call.function}({call.argument or '*'})" for call in node.calls)
        return ("aggregate", _short(f"by {keys}: {calls}")) if node.calls else ("distinct", _short(keys))
    if isinstance(node, UnionAll):
        return "union all", f"{len(node.inputs)} inputs"
    if isinstance(node, Window):
        return "window", _short(", ".join(function.text for function in node.functions))
    if isinstance(node, Expand):
        return "expand", f"{len(node.projections)} rows for each"
    if isinstance(node, Values):
        return "values", _short(node.query)
    return "explode", _short(node.generator)


def _join_word(node: AnyJoin) -> str:
    if isinstance(node, InnerJoin):
        return "inner join"
    if isinstance(node, OuterJoin):
        return "full outer join" if node.full else "left outer join"
    return "exists" if node.flag is not None else "anti join" if node.anti else "semi join"


def _short(text: str, most: int = 100) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
