"""What somebody was granted. No grant, no access."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.catalog.records import Grant, Privilege
from headrace.names import TableName


class Rights:
    """The grants of one user. A grant on a schema holds for everything in it, and ALL includes SELECT."""

    def __init__(self, grants: Iterable[Grant]) -> None:
        self._held: dict[tuple[str, str], set[Privilege]] = {}
        for grant in grants:
            self._held.setdefault((grant.kind, grant.object.lower()), set()).add(grant.privilege)

    def may(self, privilege: Privilege, name: TableName) -> bool:
        """Whether the user may read (SELECT) or change (ALL) a table, view, dynamic table or stream."""
        return self._has("TABLE", object_of(name), privilege) or self.may_in(privilege, name.workspace, name.schema)

    def may_in(self, privilege: Privilege, workspace: str, schema: str) -> bool:
        """The same for everything in a schema, and for what will be created there."""
        return self._has("SCHEMA", schema_object(workspace, schema), privilege)

    def sees(self, workspace: str, schema: str) -> bool:
        """Whether the user was granted the schema or anything in it."""
        own = schema_object(workspace, schema)
        return any(
            granted == own if kind == "SCHEMA" else granted.startswith(f"{own}.") for kind, granted in self._held
        )

    def _has(self, kind: str, granted: str, privilege: Privilege) -> bool:
        held = self._held.get((kind, granted), set())
        return "ALL" in held or (privilege == "SELECT" and "SELECT" in held)


def object_of(name: TableName) -> str:
    """A table's name as grants have it."""
    return f"{name.workspace}.{name.schema}.{name.table}".lower()


def schema_object(workspace: str, schema: str) -> str:
    return f"{workspace}.{schema}".lower()
