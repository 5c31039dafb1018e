"""A query bound to its sources: its text with a slot for every table it names.

The text, with each slot filled by "that table at that version", is what Spark itself evaluates for a full refresh
and for VERIFY; the plan beside it is what the incremental engine works on.
"""

from __future__ import annotations

from typing import Literal

from headrace.plan.nodes import Frozen, Plan


class OutputColumn(Frozen):
    name: str
    type: str
    comment: str | None = None


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
