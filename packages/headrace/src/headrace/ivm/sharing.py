"""Finding parts of a plan that are the same but for their columns' names: a CTE used twice, a view joined to itself."""

from __future__ import annotations

import re

from headrace.plan.nodes import Node, Relation, walk
from headrace.plan.pruning import own_texts

_WORD = re.compile(r"\w+")
_LITERAL = re.compile(r"'(?:[^'\\]|\\.)*'")


def canonical(node: Node) -> str | None:
    """A text that two nodes share when one is the other with its columns renamed; their outputs then correspond by
    position. None when something else (a literal, a field, a source's own column) is spelled like a column."""
    nodes = list(walk(node))
    columns = [column for below in nodes for column in below.output]
    names = {column.name for column in columns}
    text = node.model_dump_json()
    others = [word for below in nodes for each in own_texts(below) for word in words_in_literals(each)]
    others += [column.type for column in columns]
    others += [own for below in nodes if isinstance(below, Relation) for own, _ in below.columns]
    if any(word in names for other in others for word in _WORD.findall(other)):
        return None
    places: dict[str, str] = {}

    def place(word: re.Match[str]) -> str:
        name = word.group()
        return places.setdefault(name, f"#{len(places)}") if name in names else name

    return _WORD.sub(place, text)


def words_in_literals(text: str) -> list[str]:
    """The words inside the string literals of an expression: they may be spelled like columns, and are none."""
    return [word for literal in _LITERAL.findall(text) for word in _WORD.findall(literal)]
