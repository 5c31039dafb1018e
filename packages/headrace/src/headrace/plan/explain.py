"""A plan as an indented tree for people, with the rule that maintains each operator."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.plan.nodes import (
    Aggregate,
    AggregateCall,
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
    walk,
)


@dataclass(frozen=True)
class Line:
    depth: int
    operator: str
    detail: str
    node: Node


def tree(root: Node, sources: tuple[str, ...]) -> list[Line]:
    """One line per operator, the root first."""
    shown = _Names(root)

    def lines(node: Node, depth: int) -> list[Line]:
        operator, detail = _words(node, sources)
        found = [Line(depth, operator, _short(shown.in_text(detail)), node)]
        for child in node.children:
            found += lines(child, depth + 1)
        return found

    return lines(root, 0)


def plain(root: Node, text: str) -> str:
    """A text over the columns of a plan, as people know them."""
    return _short(_Names(root).in_text(text))


class _Names:
    """Columns as people know them: `price`, not `price_17`."""

    def __init__(self, root: Node) -> None:
        self._unique = {column.name for node in walk(root) for column in node.output}

    def in_text(self, text: str) -> str:
        return re.sub(r"\w+", lambda word: self._plain(word.group()), text)

    def _plain(self, word: str) -> str:
        if word not in self._unique:
            return word
        name = re.sub(r"_\d+$", "", word)
        # A computed column is named after its text, and so after other columns.
        return re.sub(r"_\d{2,}(?=_|$)", "", name)


def _words(node: Node, sources: tuple[str, ...]) -> tuple[str, str]:
    if isinstance(node, Relation):
        return "relation", sources[node.source]
    if isinstance(node, Project):
        return "project", ", ".join(expression.text for expression in node.expressions)
    if isinstance(node, Filter):
        return "filter", node.condition
    if isinstance(node, InnerJoin | OuterJoin | SemiJoin):
        terms = [f"{left} = {right}" for left, right in node.equalities]
        terms += [f"{left} <=> {right}" for left, right in node.null_safe_equalities]
        terms += [node.condition] if node.condition is not None else []
        return _join_word(node), " AND ".join(terms) or "every row with every row"
    if isinstance(node, Aggregate):
        keys = ", ".join(key.text for key in node.keys) or "all rows in one group"
        calls = ", ".join(call_text(call) for call in node.calls)
        return ("aggregate", f"by {keys}: {calls}") if node.calls else ("distinct", keys)
    if isinstance(node, UnionAll):
        return "union all", f"{len(node.inputs)} inputs"
    if isinstance(node, Window):
        return "window", ", ".join(function.text for function in node.functions)
    if isinstance(node, Expand):
        return "expand", f"{len(node.projections)} rows for each"
    if isinstance(node, Values):
        return "values", node.query
    return "explode", node.generator


def call_text(call: AggregateCall) -> str:
    if call.written is not None:
        return call.written
    if call.distinct_of and call.text is None:
        return f"{call.function}(DISTINCT {', '.join(each.text for each in call.distinct_of)})"
    kept = f" FILTER (WHERE {call.filter})" if call.filter is not None else ""
    return call.text or f"{call.function}({call.argument or '*'}){kept}"


def _join_word(node: AnyJoin) -> str:
    if isinstance(node, InnerJoin):
        return "inner join"
    if isinstance(node, OuterJoin):
        return "full outer join" if node.full else "left outer join"
    return "exists" if node.flag is not None else "anti join" if node.anti else "semi join"


def _short(text: str, most: int = 100) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
