"""The LIMIT at the end of a query, taken off: a dynamic table stores the rows without it, and its view applies it."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.sql.tokens import Kind, Token, scan


@dataclass(frozen=True)
class Limited:
    """`body` is the query without its last LIMIT and OFFSET."""

    body: str
    count: int
    offset: int


def split_limit(text: str) -> Limited | None:
    """The query's outermost LIMIT with a plain number, if it ends in one.

    >>> split_limit("SELECT a FROM t ORDER BY a LIMIT 10 OFFSET 2")
    Limited(body='SELECT a FROM t ORDER BY a', count=10, offset=2)
    >>> split_limit("SELECT a FROM (SELECT a FROM t LIMIT 3)") is None
    True
    >>> split_limit("FROM t |> ORDER BY a |> LIMIT 3") is None  # what is left would end in a pipe
    True
    """
    tokens = [token for token in scan(text) if token.kind is not Kind.END]
    offset = 0
    tail = _ending(tokens, "OFFSET")
    if tail is not None:
        offset, tokens = tail, tokens[:-2]
    count = _ending(tokens, "LIMIT")
    if count is None:
        return None
    if len(tokens) >= 4 and (tokens[-4].upper == "OFFSET" or tokens[-3].text in (">", "|>")):
        return None
    return Limited(text[: tokens[-2].start].rstrip(), count, offset)


def _ending(tokens: list[Token], word: str) -> int | None:
    """The number in a `WORD number` at the very end."""
    if len(tokens) < 3 or tokens[-2].upper != word or not tokens[-1].text.isdecimal():
        return None
    return int(tokens[-1].text)
