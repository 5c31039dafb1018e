"""The tables of the operations database, the same on SQLite and on PostgreSQL.

Whole records travel as JSON text in one column; the columns beside it are only what a WHERE or ORDER BY needs.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, TypeVar

from pydantic import BaseModel
from sqlalchemy import (
    BigInteger,
    Boolean,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
    false,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from headrace.catalog.records import RefreshRecord
from headrace.errors import Bug

_NAME = String(255)
_ID = String(64)
_STATE = String(32)
_SERIAL = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers the rows by itself only where the key is called INTEGER; its integers have 64 bits all the same."""

Record = TypeVar("Record", bound=BaseModel)


def moment(value: datetime) -> datetime:
    """The time in UTC; one without a time zone is nobody's."""
    if value.tzinfo is None:
        raise Bug(f"The time {value.isoformat()} has no time zone.")
    return value.astimezone(timezone.utc)


def utc(record: Record) -> Record:
    """The record with every time in UTC."""
    times = {name: moment(value) for name, value in record if isinstance(value, datetime)}
    return record.model_copy(update=times) if times else record


def is_storable(text: str) -> bool:
    """Whether a text from outside can be a key at all. PostgreSQL has no NUL and no database has halves of characters:
    what nothing can be called is not found, which is no fault of the database."""
    return "\0" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


class Moment(TypeDecorator[datetime]):
    """A point in time to the microsecond, in UTC on both sides. SQLite has no time zones: there the UTC reading is
    stored without one, in a text of fixed width, so that texts sort as times do."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None or dialect.name != "sqlite":
            return value
        return value.astimezone(timezone.utc).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=timezone.utc) if value.tzinfo is None else value.astimezone(timezone.utc)


class Model(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "pk": "pk_%(table_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        }
    )


class TableRow(Model):
    __tablename__ = "dynamic_tables"
    __table_args__ = (UniqueConstraint("workspace", "schema_name", "name"),)

    id: Mapped[str] = mapped_column(_ID, primary_key=True)
    workspace: Mapped[str] = mapped_column(_NAME)
    schema_name: Mapped[str] = mapped_column(_NAME)
    name: Mapped[str] = mapped_column(_NAME)
    definition: Mapped[str] = mapped_column(Text)
    fence: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """The last fencing number given out; it outlives the lease it was given to."""


class LeaseRow(Model):
    __tablename__ = "leases"

    table_id: Mapped[str] = mapped_column(_ID, ForeignKey("dynamic_tables.id", ondelete="CASCADE"), primary_key=True)
    owner: Mapped[str] = mapped_column(Text)
    fencing: Mapped[int] = mapped_column(BigInteger)
    acquired_at: Mapped[datetime] = mapped_column(Moment)
    expires_at: Mapped[datetime] = mapped_column(Moment)


class IntentRow(Model):
    __tablename__ = "intents"

    table_id: Mapped[str] = mapped_column(_ID, ForeignKey("dynamic_tables.id", ondelete="CASCADE"), primary_key=True)
    sequence: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    job_id: Mapped[str] = mapped_column(_ID)
    payload: Mapped[str] = mapped_column(Text)
    settled: Mapped[bool] = mapped_column(Boolean, server_default=false())


class RefreshRow(Model):
    """History outlives its table, so `table_id` is no foreign key."""

    __tablename__ = "refreshes"
    __table_args__ = (
        Index(None, "start_time", "job_id"),
        Index(None, "table_id", "start_time", "job_id"),
        Index(None, "state"),
    )

    job_id: Mapped[str] = mapped_column(_ID, primary_key=True)
    table_id: Mapped[str] = mapped_column(_ID)
    start_time: Mapped[datetime] = mapped_column(Moment)
    state: Mapped[str] = mapped_column(String(32))
    payload: Mapped[str] = mapped_column(Text)


def refresh_values(record: RefreshRecord) -> dict[str, Any]:
    """The columns of a refresh's row."""
    record = utc(record)
    return {
        "job_id": record.job_id,
        "table_id": record.table_id,
        "start_time": record.start_time,
        "state": record.state,
        "payload": record.model_dump_json(),
    }


class StreamRow(Model):
    __tablename__ = "table_streams"
    __table_args__ = (UniqueConstraint("workspace", "schema_name", "name"),)

    id: Mapped[str] = mapped_column(_ID, primary_key=True)
    workspace: Mapped[str] = mapped_column(_NAME)
    schema_name: Mapped[str] = mapped_column(_NAME)
    name: Mapped[str] = mapped_column(_NAME)
    definition: Mapped[str] = mapped_column(Text)


class ReadingRow(Model):
    """One statement that reads streams and writes a table. Readings outlive their streams."""

    __tablename__ = "stream_readings"
    __table_args__ = (Index(None, "done"), Index(None, "target_path"))

    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    target_path: Mapped[str | None] = mapped_column(Text)
    done: Mapped[bool] = mapped_column(Boolean, server_default=false())
    payload: Mapped[str] = mapped_column(Text)


class WorkspaceRow(Model):
    __tablename__ = "workspaces"

    name: Mapped[str] = mapped_column(_NAME, primary_key=True)


class VClusterRow(Model):
    __tablename__ = "vclusters"

    name: Mapped[str] = mapped_column(_NAME, primary_key=True)
    definition: Mapped[str] = mapped_column(Text)


class JobRow(Model):
    """One executed statement. Jobs outlive their clusters and users, so these are no foreign keys."""

    __tablename__ = "jobs"
    __table_args__ = (
        Index(None, "submitted_at", "id"),
        Index(None, "creator", "submitted_at", "id"),
        Index(None, "status"),
    )

    id: Mapped[str] = mapped_column(_ID, primary_key=True)
    vcluster: Mapped[str] = mapped_column(_NAME)
    creator: Mapped[str] = mapped_column(_NAME)
    submitted_at: Mapped[datetime] = mapped_column(Moment)
    status: Mapped[str] = mapped_column(_STATE)
    payload: Mapped[str] = mapped_column(Text)


class UserRow(Model):
    __tablename__ = "users"

    name: Mapped[str] = mapped_column(_NAME, primary_key=True)
    role: Mapped[str] = mapped_column(_STATE)
    definition: Mapped[str] = mapped_column(Text)


class FormerUserRow(Model):
    """A user that was dropped. The name may belong to somebody else by now."""

    __tablename__ = "former_users"

    name: Mapped[str] = mapped_column(_NAME, primary_key=True)


class GrantRow(Model):
    __tablename__ = "grants"
    __table_args__ = (Index(None, "kind", "object_name"),)

    user_name: Mapped[str] = mapped_column(_NAME, ForeignKey("users.name", ondelete="CASCADE"), primary_key=True)
    kind: Mapped[str] = mapped_column(_STATE, primary_key=True)
    object_name: Mapped[str] = mapped_column(String(800), primary_key=True)
    privilege: Mapped[str] = mapped_column(_STATE, primary_key=True)
    payload: Mapped[str] = mapped_column(Text)


class TokenRow(Model):
    __tablename__ = "api_tokens"
    __table_args__ = (UniqueConstraint("user_name", "name"), UniqueConstraint("digest"))

    id: Mapped[str] = mapped_column(_ID, primary_key=True)
    user_name: Mapped[str] = mapped_column(_NAME, ForeignKey("users.name", ondelete="CASCADE"))
    name: Mapped[str] = mapped_column(_NAME)
    digest: Mapped[str] = mapped_column(_NAME)
    payload: Mapped[str] = mapped_column(Text)


class AuditRow(Model):
    """The audit log outlives its users. Rows are only ever added."""

    __tablename__ = "audit_log"

    id: Mapped[int] = mapped_column(_SERIAL, primary_key=True)
    payload: Mapped[str] = mapped_column(Text)


class MarkRow(Model):
    """How far the schedule of a dynamic table or task has come."""

    __tablename__ = "schedule_marks"

    object_id: Mapped[str] = mapped_column(_ID, primary_key=True)
    tick: Mapped[datetime] = mapped_column(Moment)
    state: Mapped[str] = mapped_column(_STATE)
    payload: Mapped[str] = mapped_column(Text)


class TaskRow(Model):
    __tablename__ = "tasks"
    __table_args__ = (UniqueConstraint("workspace", "schema_name", "name"),)

    id: Mapped[str] = mapped_column(_ID, primary_key=True)
    workspace: Mapped[str] = mapped_column(_NAME)
    schema_name: Mapped[str] = mapped_column(_NAME)
    name: Mapped[str] = mapped_column(_NAME)
    definition: Mapped[str] = mapped_column(Text)


class TaskRunRow(Model):
    """Runs outlive their tasks, so `task_id` is no foreign key. Outputs are long: they are not part of the payload."""

    __tablename__ = "task_runs"
    __table_args__ = (
        Index(None, "task_id", "tick", "id"),
        Index(None, "tick", "id"),
        Index(None, "state"),
    )

    id: Mapped[str] = mapped_column(_ID, primary_key=True)
    task_id: Mapped[str] = mapped_column(_ID)
    tick: Mapped[datetime] = mapped_column(Moment)
    state: Mapped[str] = mapped_column(_STATE)
    payload: Mapped[str] = mapped_column(Text)
    output: Mapped[str | None] = mapped_column(Text)


class AlertRow(Model):
    __tablename__ = "alerts"

    name: Mapped[str] = mapped_column(_NAME, primary_key=True)
    definition: Mapped[str] = mapped_column(Text)


class IncidentRow(Model):
    """Incidents outlive their alerts."""

    __tablename__ = "incidents"
    __table_args__ = (Index(None, "opened_at", "id"), Index(None, "is_open"))

    id: Mapped[str] = mapped_column(_ID, primary_key=True)
    opened_at: Mapped[datetime] = mapped_column(Moment)
    is_open: Mapped[bool] = mapped_column(Boolean)
    """Whether it goes on, or somebody is still to be told."""
    payload: Mapped[str] = mapped_column(Text)


class LoadRow(Model):
    __tablename__ = "loads"
    __table_args__ = (
        UniqueConstraint("table_id", "kind", "key_digest"),
        Index(None, "state"),
        Index(None, "received_at"),
        Index(None, "table_id", "path_digest"),
    )

    id: Mapped[str] = mapped_column(_ID, primary_key=True)
    table_id: Mapped[str] = mapped_column(_ID)
    kind: Mapped[str] = mapped_column(_STATE)
    key_digest: Mapped[str] = mapped_column(_ID)
    """SHA-256 of the key, in hex: keys may be long."""
    path_digest: Mapped[str | None] = mapped_column(_ID)
    """The same of a file's path."""
    state: Mapped[str] = mapped_column(_STATE)
    received_at: Mapped[datetime] = mapped_column(Moment)
    payload: Mapped[str] = mapped_column(Text)
