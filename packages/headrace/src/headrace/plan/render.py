"""Write a bound query out as Spark SQL text, with every source filled in by the caller. No JVM here."""

from __future__ import annotations

from collections.abc import Callable

from headrace.names import quote
from headrace.plan.query import BoundText, Slot, ViewSlot


def render(bound: BoundText, table_at: Callable[[Slot], str]) -> str:
    """The query's text, with `table_at(slot)` at every place where it names a source.

    For a source of kind "table" the caller returns a name such as `` `db`.`t` VERSION AS OF 5 ``, so that `t.x` and
    `db.t.x` still resolve; for anything else a parenthesised query, through `subquery`.
    """
    return "".join(_piece(piece, table_at) for piece in bound.pieces)


def subquery(text: str, alias: str | None) -> str:
    """A query in the place of a table name. `alias` is None where the text itself gives one right after."""
    # The line break ends a `--` comment that the text may end with.
    return f"({text}\n)" if alias is None else f"({text}\n) AS {quote(alias)}"


def _piece(piece: str | Slot | ViewSlot, table_at: Callable[[Slot], str]) -> str:
    if isinstance(piece, str):
        return piece
    if isinstance(piece, Slot):
        return table_at(piece)
    columns = ", ".join(quote(column) for column in piece.columns)
    return subquery(f"SELECT * FROM ({render(piece.query, table_at)}\n) AS __v({columns})", piece.alias)
