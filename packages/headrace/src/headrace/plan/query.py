"""A query bound to its sources: its text with a slot for every table it names.

The text, with each slot filled by "that table at that version", is what Spark itself evaluates for a full refresh
and for VERIFY; the plan beside it is what the incremental engine works on.
"""

from __future__ import annotations

from typing import Literal

from headrace.names import quote
from headrace.plan.nodes import Frozen, Plan


class OutputColumn(Frozen):
    name: str
    type: str
    comment: str | None = None


class Cut(Frozen):
    """ORDER BY … LIMIT … at the end of a query: the table stores all rows, its view shows these."""

    order: tuple[tuple[str, str], ...]
    """Public columns, each with its direction and the place of NULLs (`DESC NULLS LAST`)."""
    count: int
    offset: int = 0

    @property
    def clause(self) -> str:
        order = ", ".join(f"{quote(name)} {direction}" for name, direction in self.order)
        return f"ORDER BY {order} LIMIT {self.count}" + (f" OFFSET {self.offset}" if self.offset else "")


def shown_rows(stored: int, cut: Cut | None) -> int:
    """How many of the stored rows the view shows.

    >>> shown_rows(5, Cut(order=(("a", "ASC NULLS FIRST"),), count=3, offset=4)), shown_rows(5, None)
    (1, 5)
    """
    return stored if cut is None else min(max(stored - cut.offset, 0), cut.count)


class Source(Frozen):
    """A Delta table that the query reads, directly or through views."""

    workspace: str
    schema_name: str
    table: str
    path: str
    """Where its Delta log is: the table's own folder, or the storage folder of a dynamic table."""
    kind: Literal["table", "dynamic"]
    columns: tuple[OutputColumn, ...] = ()
    """The columns there were when the query was read: a `SELECT *` means these, also when the table gets more."""
    hides_groups: bool = False
    """Whether a dynamic table's storage holds groups that its HAVING hides."""
    cut: Cut | None = None
    """The LIMIT of a dynamic table: its storage holds all rows."""

    @property
    def name(self) -> str:
        return f"{self.workspace}.{self.schema_name}.{self.table}"


class Slot(Frozen):
    """A place in the text where a source is named. `alias` is set when the text gives none there: a source that must
    be written as a subquery then takes this name."""

    source: int
    spark_name: str
    """Quoted name in Spark's catalog (`db`.`table`)."""
    alias: str | None


class ViewSlot(Frozen):
    """A place in the text where a view is named: its own query is written out there."""

    query: BoundText
    columns: tuple[str, ...]
    alias: str | None


class Definition(Frozen):
    """A view or SQL function that the query is written with, as it was when the query was read."""

    kind: Literal["view", "function"]
    name: str
    """`database.name` in Spark's catalog."""
    digest: str


class BoundText(Frozen):
    """Text pieces and slots, in order."""

    pieces: tuple[str | Slot | ViewSlot, ...]


ViewSlot.model_rebuild()
BoundText.model_rebuild()


class Query(Frozen):
    """What CREATE DYNAMIC TABLE learns about a query, once."""

    text: str
    """As the user wrote it."""
    resolved_text: str
    """With every table name in full, for people to read."""
    bound: BoundText
    sources: tuple[Source, ...]
    columns: tuple[OutputColumn, ...]
    plan: Plan | None
    """None when some part of the query has no incremental rule."""
    unsupported: str | None = None
    """Why `plan` is None, in plain words, naming the operator."""
    uses_current_date: bool = False
    definitions: tuple[Definition, ...] = ()
    """The views and SQL functions whose texts are part of `bound` and `plan`."""
    order: tuple[tuple[str, str], ...] = ()
    """The outermost ORDER BY, when it names result columns only: each with its direction and the place of NULLs."""
    cut: Cut | None = None
    """The outermost LIMIT. `bound`, `plan` and the stored rows are those of the query without it."""
