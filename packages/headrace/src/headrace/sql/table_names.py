"""Dotted names in SQL text, and which of them stand where only a table can."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.sql.tokens import Token

# fmt: off
_BEFORE_A_TABLE = frozenset((
    "FROM", "JOIN", "INTO", "OVERWRITE", "TABLE", "UPDATE", "USING", "VIEW", "EXISTS", "OPTIMIZE", "VACUUM", "CLONE",
    "DESC", "DESCRIBE", "EXTENDED", "FORMATTED", "HISTORY", "DETAIL", "TBLPROPERTIES",
))
_ENDS_A_FROM = frozenset((
    "SELECT", "WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET", "WINDOW",
    "QUALIFY", "UNION", "EXCEPT", "MINUS", "INTERSECT", "SET", "VALUES", "WHEN",
))
CLAUSE_WORDS = _ENDS_A_FROM | frozenset((
    "ANTI", "CROSS", "FOR", "FULL", "INNER", "INSERT", "JOIN", "LATERAL", "LEFT", "NATURAL", "ON", "OUTER", "PIVOT",
    "RIGHT", "SEMI", "TABLESAMPLE", "UNPIVOT", "USING", "ASOF",
))
_NO_ALIAS_AFTER = frozenset(("AND", "BETWEEN", "CASE", "ELSE", "IN", "IS", "LIKE", "NOT", "ON", "OR", "THEN", "WHEN"))
# fmt: on


@dataclass(frozen=True)
class DottedName:
    """The tokens `first` to `last` (both included), every second one a dot.

    `is_table` says that only a table can stand here, `in_from` that this is somewhere in a list of tables.
    """

    first: int
    last: int
    parts: tuple[str, ...]
    is_table: bool
    in_from: bool


def dotted_names(tokens: tuple[Token, ...]) -> Iterator[DottedName]:
    """Every name of the text from left to right; keywords come as names of one part."""
    in_from = [False]
    index = 0
    expects_table = False
    while index < len(tokens):
        token = tokens[index]
        if not token.is_name:
            expects_table = _enter(token, in_from, expects_table)
            index += 1
            continue
        name = _name_at(tokens, index, expects_table, in_from[-1])
        yield name
        expects_table = len(name.parts) == 1 and _table_follows(tokens, index, in_from)
        index = name.last + 1


def _enter(token: Token, in_from: list[bool], expects_table: bool) -> bool:
    """Follow the parentheses; a `(` or `,` inside a FROM list goes on with a table."""
    if token.text == "(":
        in_from.append(expects_table)
        return expects_table
    if token.text == ")" and len(in_from) > 1:
        in_from.pop()
    return token.text == "," and in_from[-1]


def _table_follows(tokens: tuple[Token, ...], index: int, in_from: list[bool]) -> bool:
    word = tokens[index].upper
    if word in _ENDS_A_FROM:
        in_from[-1] = False
    if word == "FROM" and index and tokens[index - 1].upper == "DISTINCT" and index > 1:
        return tokens[index - 2].upper not in ("IS", "NOT")
    if word in ("FROM", "JOIN", "USING", "INTO", "UPDATE"):
        in_from[-1] = True
    return word in _BEFORE_A_TABLE


def _name_at(tokens: tuple[Token, ...], first: int, is_table: bool, in_from: bool) -> DottedName:
    last = first
    while last + 2 < len(tokens) and tokens[last + 1].text == "." and tokens[last + 2].is_name:
        last += 2
    parts = tuple(token.value for token in tokens[first : last + 1 : 2])
    return DottedName(first, last, parts, is_table, in_from)


def table_aliases(tokens: tuple[Token, ...]) -> frozenset[str]:
    """Names, in lower case, that the text gives to tables: FROM t x, JOIN t AS x, (…) x, WITH x AS (…)."""
    found = {
        name.parts[0].lower()
        for name in dotted_names(tokens)
        if len(name.parts) == 1 and (_is_alias(tokens, name) or _is_with_name(tokens, name.first))
    }
    return frozenset(found)


def _is_alias(tokens: tuple[Token, ...], name: DottedName) -> bool:
    """Inside a list of tables, a lone name after AS, another name or a closing parenthesis."""
    if not name.in_from or name.is_table or name.first == 0:
        return False
    before = tokens[name.first - 1]
    return before.text == ")" or (before.is_name and before.upper not in _NO_ALIAS_AFTER)


def _is_with_name(tokens: tuple[Token, ...], index: int) -> bool:
    before = tokens[index - 1] if index else None
    following = [token.upper or token.text for token in tokens[index + 1 : index + 3]]
    return before is not None and (before.upper == "WITH" or before.text == ",") and following == ["AS", "("]
