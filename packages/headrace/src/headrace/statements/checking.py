"""What the definition of a dynamic table must satisfy, whether CREATE or ALTER wants it."""

from __future__ import annotations

import re

from headrace.catalog.records import DynamicTable
from headrace.errors import BadSetting, NotAllowed, NotFound, Unsupported
from headrace.statements.context import Context


def require_vcluster(context: Context, name: str) -> None:
    if not context.store.has_vcluster(name):
        known = ", ".join(context.store.vclusters())
        raise NotFound(f"There is no virtual cluster '{name}'.", hint=f"Known ones: {known}.")


def check_properties(properties: dict[str, str]) -> None:
    initialize = properties.get("initialize")
    if initialize is not None and initialize.lower() not in ("on_create", "on_schedule"):
        raise BadSetting(
            f"The property initialize is 'on_create' or 'on_schedule', not '{initialize}'.",
            hint="Write 'initialize'='on_create', or leave it out.",
        )
    days = properties.get("data_retention_days")
    if days is not None and not re.fullmatch(r"[1-9]\d{0,4}", days):
        raise BadSetting(
            f"The property data_retention_days is a number of days, not '{days}'.",
            hint="Write a whole number, such as 'data_retention_days'='7'.",
        )


def require_rule(table: DynamicTable) -> None:
    """REFRESH_MODE = INCREMENTAL is a promise: the query must have a rule for every operator."""
    if table.refresh_mode == "INCREMENTAL" and table.query.plan is None:
        raise Unsupported(
            f"incremental refresh not supported: {table.query.unsupported}.",
            hint="Simplify the query, or let it refresh whole: REFRESH_MODE = AUTO or FULL.",
        )


def refuse_cycle(context: Context, table: DynamicTable) -> None:
    """No dynamic table reads itself, directly or through the dynamic tables it reads."""
    by_path = {other.storage_path: other for other in context.store.tables()}
    seen: set[str] = set()
    waiting = [(source.path, [table.table_name, source.name]) for source in table.query.sources]
    while waiting:
        path, trail = waiting.pop()
        if path == table.storage_path:
            raise NotAllowed(
                f"This would be a cycle: {' reads '.join(str(step) for step in trail)}.",
                hint="A dynamic table cannot read itself, not even through others.",
            )
        upstream = by_path.get(path)
        if upstream is not None and path not in seen:
            seen.add(path)
            waiting += [(source.path, [*trail, source.name]) for source in upstream.query.sources]
