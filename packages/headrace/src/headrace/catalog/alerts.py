"""Alerts and their incidents in the operations database."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, select, update

from headrace.catalog.database import Database
from headrace.catalog.models import AlertRow, IncidentRow, is_storable, moment, utc
from headrace.catalog.records import Alert, Incident
from headrace.errors import AlreadyExists, NotFound


class AlertStore:
    """Each method is one transaction. Names are kept in lower case and found under any spelling."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._add = database.insert(AlertRow).on_conflict_do_nothing().returning(AlertRow.name)

    def all(self) -> list[Alert]:
        """By name."""
        return self._alerts(select(AlertRow.definition).order_by(AlertRow.name))

    def named(self, name: str) -> Alert | None:
        if not is_storable(name):
            return None
        return next(iter(self._alerts(select(AlertRow.definition).where(AlertRow.name == name.lower()))), None)

    def put(self, alert: Alert, *, new: bool) -> None:
        """Add it, or replace the one of its name, which must be there."""
        alert = utc(alert.model_copy(update={"name": alert.name.lower()}))
        definition = alert.model_dump_json()
        if new:
            values = {"name": alert.name, "definition": definition}
            added = self._database.write(lambda connection: connection.execute(self._add, values).scalar())
            if added is None:
                raise AlreadyExists(
                    f"The alert {alert.name} exists already.",
                    hint="Choose another name, or write CREATE OR REPLACE ALERT.",
                )
            return
        change = update(AlertRow).where(AlertRow.name == alert.name).values(definition=definition)
        if not self._database.write(lambda connection: connection.execute(change).rowcount == 1):
            raise _missing(alert.name)

    def suspend(self, name: str, suspended: bool) -> None:
        """Suspend or resume it, and only that: whatever else changes at the same moment stays changed."""

        def work(connection: Connection) -> None:
            ours = AlertRow.name == name.lower()
            found = connection.execute(select(AlertRow.definition).where(ours).with_for_update()).scalar()
            if found is None:
                raise _missing(name)
            _put(connection, Alert.model_validate_json(found), {"suspended": suspended})

        self._database.write(work)

    def suspend_all_of(self, creator: str, *, whose: str) -> int:
        """For a user who is dropped, and must not be told anything any more: `whose` they are then. Returns how many
        were not suspended."""

        def work(connection: Connection) -> int:
            rows = connection.execute(select(AlertRow.definition).with_for_update()).scalars().all()
            alerts = [Alert.model_validate_json(row) for row in rows]
            theirs = [each for each in alerts if each.creator.lower() == creator.lower()]
            for alert in theirs:
                _put(connection, alert, {"suspended": True, "creator": whose})
            return sum(not alert.suspended for alert in theirs)

        return self._database.write(work)

    def drop(self, name: str) -> None:
        """Its incidents stay."""
        gone = delete(AlertRow).where(AlertRow.name == name.lower())
        if not self._database.write(lambda connection: connection.execute(gone).rowcount == 1):
            raise _missing(name)

    def _alerts(self, wanted: Any) -> list[Alert]:
        rows = self._database.read(lambda connection: connection.execute(wanted).scalars().all())
        return [Alert.model_validate_json(row) for row in rows]


def _put(connection: Connection, alert: Alert, changes: dict[str, Any]) -> None:
    definition = alert.model_copy(update=changes).model_dump_json()
    connection.execute(update(AlertRow).where(AlertRow.name == alert.name).values(definition=definition))


def _missing(name: str) -> NotFound:
    return NotFound(f"There is no alert '{name}'.", hint="SHOW ALERTS lists them.")


class IncidentStore:
    """Each method is one transaction. Times come back in UTC."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._put = database.upsert(IncidentRow)

    def put(self, incident: Incident, *, is_open: bool) -> None:
        """Write or replace it. It is open while it goes on, and while somebody is still to be told of its end."""
        incident = utc(incident)
        values = {
            "id": incident.id,
            "opened_at": incident.opened_at,
            "is_open": is_open,
            "payload": incident.model_dump_json(),
        }
        self._database.write(lambda connection: connection.execute(self._put, values))

    def open(self) -> list[Incident]:
        """Oldest first."""
        wanted = select(IncidentRow.payload).where(IncidentRow.is_open)
        return self._incidents(wanted.order_by(IncidentRow.opened_at, IncidentRow.id))

    def recent(self, limit: int | None = None) -> list[Incident]:
        """Newest first."""
        wanted = select(IncidentRow.payload).order_by(IncidentRow.opened_at.desc(), IncidentRow.id.desc())
        return self._incidents(wanted if limit is None else wanted.limit(limit))

    def prune(self, before: datetime) -> int:
        """Delete those that began before this time and are over; returns how many."""
        old = delete(IncidentRow).where(IncidentRow.opened_at < moment(before), IncidentRow.is_open.is_(False))
        return self._database.write(lambda connection: connection.execute(old).rowcount)

    def _incidents(self, wanted: Any) -> list[Incident]:
        rows = self._database.read(lambda connection: connection.execute(wanted).scalars().all())
        return [Incident.model_validate_json(row) for row in rows]
