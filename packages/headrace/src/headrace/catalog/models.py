"""The tables of the operations database, the same on SQLite and on PostgreSQL.

Whole records travel as JSON text in one column; the columns beside it are only what a WHERE or ORDER BY needs.
"""

from __future__ import annotations

from datetime import datetime, timezone

from sqlalchemy import (
    BigInteger,
    Boolean,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    MetaData,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
    false,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

_NAME = String(255)
_ID = String(64)


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
    type: Mapped[str] = mapped_column(String(32))
