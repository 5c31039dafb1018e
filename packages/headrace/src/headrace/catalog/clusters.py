"""Virtual clusters in the operations database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import delete, select, update

from headrace.catalog.database import Database
from headrace.catalog.models import VClusterRow, is_storable, utc
from headrace.catalog.records import VCluster
from headrace.errors import AlreadyExists, NotFound


class ClusterStore:
    """Each method is one transaction. Names are kept in lower case and found under any spelling."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._add = database.insert(VClusterRow).on_conflict_do_nothing().returning(VClusterRow.name)

    def all(self) -> list[VCluster]:
        """By name."""
        return self._clusters(select(VClusterRow.definition).order_by(VClusterRow.name))

    def names(self) -> tuple[str, ...]:
        wanted = select(VClusterRow.name).order_by(VClusterRow.name)
        return self._database.read(lambda connection: tuple(connection.execute(wanted).scalars()))

    def named(self, name: str) -> VCluster | None:
        if not is_storable(name):
            return None
        wanted = select(VClusterRow.definition).where(VClusterRow.name == name.lower())
        return next(iter(self._clusters(wanted)), None)

    def put(self, cluster: VCluster, *, new: bool) -> None:
        """Add it, or replace the one of its name, which must be there."""
        cluster = utc(cluster.model_copy(update={"name": cluster.name.lower()}))
        definition = cluster.model_dump_json()
        if new:
            values = {"name": cluster.name, "definition": definition}
            added = self._database.write(lambda connection: connection.execute(self._add, values).scalar())
            if added is None:
                raise AlreadyExists(
                    f"The virtual cluster {cluster.name} exists already.",
                    hint="Choose another name, or change it with ALTER VCLUSTER.",
                )
            return
        change = update(VClusterRow).where(VClusterRow.name == cluster.name).values(definition=definition)
        if not self._database.write(lambda connection: connection.execute(change).rowcount == 1):
            raise self._missing(cluster.name)

    def drop(self, name: str) -> None:
        gone = delete(VClusterRow).where(VClusterRow.name == name.lower())
        if not self._database.write(lambda connection: connection.execute(gone).rowcount == 1):
            raise self._missing(name)

    def _missing(self, name: str) -> NotFound:
        return NotFound(f"There is no virtual cluster '{name}'.", hint=f"Known are: {', '.join(self.names())}.")

    def _clusters(self, wanted: Any) -> list[VCluster]:
        rows = self._database.read(lambda connection: connection.execute(wanted).scalars().all())
        return [VCluster.model_validate_json(row) for row in rows]
