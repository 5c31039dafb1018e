"""What dbt builds and reads: names of three levels, in back quotes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dbt.adapters.base.relation import BaseRelation, EventTimeFilter
from dbt.adapters.contracts.relation import ComponentName, Policy
from dbt.adapters.utils import classproperty
from dbt_common.dataclass_schema import StrEnum

from dbt.adapters.headrace.column import quote


class HeadraceRelationType(StrEnum):
    """dbt's own kinds, and those that only Headrace has. A table stream is external: dbt only reads it."""

    Table = "table"
    View = "view"
    CTE = "cte"
    MaterializedView = "materialized_view"
    Ephemeral = "ephemeral"
    External = "external"
    PointerTable = "pointer_table"
    Function = "function"
    DynamicTable = "dynamic_table"


@dataclass(frozen=True, eq=False, repr=False)
class HeadraceRelation(BaseRelation):
    """Names are compared without regard to case, as Headrace does."""

    type: HeadraceRelationType | None = None  # type: ignore[assignment]
    quote_character: str = "`"
    quote_policy: Policy = field(default_factory=Policy)
    include_policy: Policy = field(default_factory=Policy)
    require_alias: bool = False
    renameable_relations: frozenset[Any] = field(default_factory=lambda: frozenset({HeadraceRelationType.Table}))
    replaceable_relations: frozenset[Any] = field(
        default_factory=lambda: frozenset(
            {HeadraceRelationType.Table, HeadraceRelationType.View, HeadraceRelationType.DynamicTable}
        )
    )

    @classproperty
    def get_relation_type(cls) -> Any:  # noqa: N805
        return HeadraceRelationType

    @classproperty
    def DynamicTable(cls) -> str:  # noqa: N802, N805 — as dbt names the others
        return str(HeadraceRelationType.DynamicTable)

    @property
    def is_dynamic_table(self) -> bool:
        return self.type == HeadraceRelationType.DynamicTable

    @property
    def is_stream(self) -> bool:
        return self.type == HeadraceRelationType.External

    def render(self) -> str:
        """Functions belong to the lake's own workspace: their names have two levels."""
        left_out = ComponentName.Database if self.type == HeadraceRelationType.Function else None
        return ".".join(part for key, part in self._render_iterator() if part is not None and key != left_out)

    def quoted(self, identifier: str) -> str:
        return quote(identifier)

    def matches(self, database: str | None = None, schema: str | None = None, identifier: str | None = None) -> bool:
        asked = (database, schema, identifier)
        own = (self.path.database, self.path.schema, self.path.identifier)
        return all(
            wanted is None or (found is not None and found.lower() == wanted.lower())
            for wanted, found in zip(asked, own, strict=True)
        )

    def _render_event_time_filtered(self, event_time_filter: EventTimeFilter) -> str:
        """Spark does not compare a timestamp with a text by guessing: the bounds are timestamps."""
        column = event_time_filter.field_name
        bounds = []
        if event_time_filter.start:
            bounds.append(f"{column} >= TIMESTAMP '{event_time_filter.start}'")
        if event_time_filter.end:
            bounds.append(f"{column} < TIMESTAMP '{event_time_filter.end}'")
        return " and ".join(bounds)
