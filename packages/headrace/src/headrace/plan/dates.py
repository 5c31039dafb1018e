"""current_date in a plan: the one value that changes although no source does.

A refresh evaluates a plan for two days, that of the old frontier and today; the day is written into the texts as a
literal, so that both can be asked for at any time.
"""

from __future__ import annotations

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
    Project,
    Relation,
    SemiJoin,
    UnionAll,
    Values,
    Window,
    walk,
)
from headrace.plan.pruning import own_texts
from headrace.sql.tokens import scan

_NAMES = ("CURRENT_DATE", "CURDATE")


def names_date(text: str) -> bool:
    """Whether an expression's text calls current_date.

    >>> names_date("(d_1 > date_sub(current_date(), 7))"), names_date("(s_1 = 'current_date()')")
    (True, False)
    """
    return text != at_date(text, "")


def at_date(text: str, date: str) -> str:
    """The text with a day in the place of current_date, however it is written.

    >>> at_date("date_sub(current_date(), 7)", "2024-05-01")
    "date_sub(DATE'2024-05-01', 7)"
    >>> at_date("SELECT CURRENT_DATE AS current_date, t.curdate FROM t", "2024-05-01")
    "SELECT DATE'2024-05-01' AS current_date, t.curdate FROM t"
    """
    if not any(name.lower() in text.lower() for name in _NAMES):
        return text
    tokens = list(scan(text))
    following = [token.text for token in tokens] + ["", ""]
    for place in reversed(range(len(tokens))):
        token = tokens[place]
        before = tokens[place - 1].text.upper() if place else ""
        if token.upper not in _NAMES or before in (".", "AS"):
            continue
        called = following[place + 1 : place + 3] == ["(", ")"]
        if called or (token.upper == "CURRENT_DATE" and following[place + 1] not in ("(", ".")):
            end = tokens[place + 2].end if called else token.end
            text = f"{text[: token.start]}DATE'{date}'{text[end:]}"
    return text


def depends_on_date(node: Node) -> bool:
    """Whether the node or anything below it names current_date."""
    return any(names_date(text) for below in walk(node) for text in own_texts(below))


def moves_by_row(root: Node) -> bool:
    """Whether current_date is named in filters and projections only: a new day then moves single rows."""
    return all(
        isinstance(node, Filter | Project) or not any(names_date(text) for text in own_texts(node))
        for node in walk(root)
    )


def plan_at(node: Node, date: str | None) -> Node:
    """The plan as of a day."""
    if date is None or not depends_on_date(node):
        return node

    def put(text: str) -> str:
        return at_date(text, date)

    def whole(below: Node) -> Node:
        return _at(below, put, whole)

    return whole(node)


def own_texts_at(node: Node, date: str | None) -> Node:
    """The node itself as of a day; what is below it stays as it is, so that its own rule sees current_date."""
    if date is None or not any(map(names_date, own_texts(node))):
        return node
    return _at(node, lambda text: at_date(text, date), lambda below: below)


def _at(node: Node, put: Callable[[str], str], below: Callable[[Node], Node]) -> Node:
    def expressions(found: tuple[Expression, ...]) -> tuple[Expression, ...]:
        return tuple(each.model_copy(update={"text": put(each.text)}) for each in found)

    def maybe(text: str | None) -> str | None:
        return None if text is None else put(text)

    def call(each: AggregateCall) -> AggregateCall:
        return each.model_copy(
            update={
                "argument": maybe(each.argument),
                "filter": maybe(each.filter),
                "text": maybe(each.text),
                "chance": maybe(each.chance),
            }
        )

    match node:
        case Relation():
            return node
        case Values():
            return node.model_copy(update={"query": put(node.query)})
        case UnionAll():
            return node.model_copy(update={"inputs": tuple(below(child) for child in node.inputs)})
        case InnerJoin() | OuterJoin() | SemiJoin():
            return node.model_copy(
                update={
                    "left": below(node.left),
                    "right": below(node.right),
                    "equalities": tuple((put(left), put(right)) for left, right in node.equalities),
                    "null_safe_equalities": tuple((put(left), put(right)) for left, right in node.null_safe_equalities),
                    "condition": maybe(node.condition),
                }
            )
        case Project():
            own: dict[str, object] = {"expressions": expressions(node.expressions)}
        case Filter():
            own = {"condition": put(node.condition)}
        case Aggregate():
            own = {"keys": expressions(node.keys), "calls": tuple(call(each) for each in node.calls)}
        case Window():
            own = {
                "keys": expressions(node.keys),
                "functions": expressions(node.functions),
                "order": tuple(put(text) for text in node.order),
            }
        case Explode():
            own = {"generator": put(node.generator)}
        case Expand():
            own = {"projections": tuple(tuple(put(text) for text in texts) for texts in node.projections)}
    return node.model_copy(update={**own, "child": below(node.child)})
