"""The operations database: definitions, leases, intents and history, on SQLite or PostgreSQL.

Each method is one transaction. SQLite serialises writers by BEGIN IMMEDIATE; on PostgreSQL every transaction that
touches a table's lease or intents first locks that table's row, always in this order, so that none can deadlock.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Protocol, TypeVar, get_args

from pydantic import BaseModel
from sqlalchemy import (
    URL,
    Connection,
    Engine,
    Select,
    case,
    create_engine,
    delete,
    event,
    func,
    inspect,
    make_url,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from headrace.catalog import migrations
from headrace.catalog.models import IntentRow, LeaseRow, Model, RefreshRow, TableRow, VClusterRow, WorkspaceRow
from headrace.catalog.records import DynamicTable, Intent, RefreshRecord, State
from headrace.errors import AlreadyExists, BadSetting, Bug, EnvironmentFault, NotFound, RefreshRunning, UserError
from headrace.names import TableName
from headrace.plan.nodes import Frozen
from headrace.settings import masked

KEPT_INTENTS = 100
PATIENCE_SECONDS = 60.0
FINISHED: tuple[State, ...] = ("SUCCEED", "FAILED")
UNFINISHED: tuple[State, ...] = tuple(state for state in get_args(State) if state not in FINISHED)

_MIGRATION_LOCK = 0x48656164  # PostgreSQL's advisory locks have numbers; this is "Head".
_WRITES = "headrace_writes"
_WORKSPACE = re.compile(r"[A-Za-z0-9]+(_[A-Za-z0-9]+)*")

Result = TypeVar("Result")
Record = TypeVar("Record", bound=BaseModel)
AnyInsert = sqlite.Insert | postgresql.Insert


class Lease(Frozen):
    """Who refreshes a table now. Whoever holds a smaller `fencing` number has lost it."""

    table_id: str
    owner: str
    fencing: int
    acquired_at: datetime
    expires_at: datetime


class CatalogReader(Protocol):
    """What a part of the program that only looks may use."""

    def tables(self) -> list[DynamicTable]: ...
    def table(self, name: TableName) -> DynamicTable | None: ...
    def table_by_id(self, table_id: str) -> DynamicTable | None: ...
    def lease(self, table_id: str) -> Lease | None: ...
    def intent(self, table_id: str, sequence: int) -> Intent | None: ...
    def intents(self, table_id: str, settled: bool | None = None) -> list[Intent]: ...
    def history(self, limit: int | None = None, table_id: str | None = None) -> list[RefreshRecord]: ...
    def unfinished(self) -> list[RefreshRecord]: ...
    def workspaces(self) -> tuple[str, ...]: ...
    def vclusters(self) -> tuple[str, ...]: ...
    def has_vcluster(self, name: str) -> bool: ...


class Store(CatalogReader):
    """Reads and writes; shared by all threads of a process. Timestamps are aware, and come back in UTC."""

    def __init__(self, engine: Engine, patience: float) -> None:
        self._engine = engine
        self._writing = engine.execution_options(**{_WRITES: True})
        self._patience = patience
        self._postgres = engine.dialect.name == "postgresql"
        # SQLite's own waiting is unfair and sleeps up to 0.1 s; among our threads a lock does better.
        self._turn = threading.Lock()
        self._put_table = self._upsert(TableRow, keep=("fence",))
        self._put_lease = self._upsert(LeaseRow)
        self._put_intent = self._upsert(IntentRow)
        self._put_refresh = self._upsert(RefreshRow)
        # A late "it runs now" must not reopen what has ended.
        self._put_unfinished = self._upsert(RefreshRow, only_if=RefreshRow.state.in_(UNFINISHED))

    @classmethod
    def open(cls, url: str, *, patience: float = PATIENCE_SECONDS) -> Store:
        """Connect, creating or migrating the schema first. `patience` is how many seconds a locked or vanished
        database is waited for, later on; opening itself waits only for locks."""
        store = cls(_engine(_parsed(url), patience), patience)
        try:
            store._migrate()
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        self._engine.dispose()

    # ---- dynamic tables

    def tables(self) -> list[DynamicTable]:
        """All of them, by name."""
        return self._definitions(
            select(TableRow.definition).order_by(TableRow.workspace, TableRow.schema_name, TableRow.name)
        )

    def table(self, name: TableName) -> DynamicTable | None:
        return next(iter(self._definitions(select(TableRow.definition).where(_named(name)))), None)

    def table_by_id(self, table_id: str) -> DynamicTable | None:
        return next(iter(self._definitions(select(TableRow.definition).where(TableRow.id == table_id))), None)

    def put_table(self, table: DynamicTable) -> None:
        """Insert, or update by id; its lease and fencing number stay."""
        values = {
            "id": table.id,
            "workspace": table.workspace,
            "schema_name": table.schema_name,
            "name": table.name,
            "definition": _utc(table).model_dump_json(),
        }
        taken = AlreadyExists(f"The table {table.table_name} exists already.", hint="Drop it or choose another name.")

        def work(connection: Connection) -> None:
            other = connection.execute(select(TableRow.id).where(_named(table.table_name))).scalar()
            if other is not None and other != table.id:
                raise taken
            connection.execute(self._put_table, values)

        try:
            self._write(work)
        except IntegrityError:  # PostgreSQL: another process took the name after we looked.
            raise taken from None

    def drop_table(self, table_id: str) -> None:
        """Forget the definition, its lease and its intents; its history stays."""
        self._write(lambda connection: connection.execute(delete(TableRow).where(TableRow.id == table_id)))

    # ---- leases

    def acquire_lease(self, table_id: str, owner: str, seconds: float, now: datetime) -> int:
        """Take the table's lease and return its fencing number; a lease that has run out is taken over."""
        now = _moment(now)
        # At least the time in milliseconds: so numbers also grow when the database was deleted or restored from a
        # backup, or the table dropped and put back.
        floor = int(now.timestamp() * 1000)
        next_fence = case((TableRow.fence >= floor, TableRow.fence + 1), else_=floor)
        take = update(TableRow).where(TableRow.id == table_id).values(fence=next_fence).returning(TableRow.fence)

        def work(connection: Connection) -> int:
            fencing = connection.execute(take).scalar()
            if fencing is None:
                raise NotFound(f"There is no dynamic table with id {table_id}.", hint="It may have been dropped.")
            held = self._read_lease(connection, table_id)
            if held is not None and held.expires_at > now:
                raise RefreshRunning(
                    f"A refresh of this table is running: {held.owner}, since {_shown(held.acquired_at)}, "
                    f"with a lease until {_shown(held.expires_at)}.",
                    hint="Wait for it to end. If its process is gone, the lease runs out by itself.",
                )
            values = {"table_id": table_id, "owner": owner, "fencing": fencing, "acquired_at": now}
            connection.execute(self._put_lease, {**values, "expires_at": now + timedelta(seconds=seconds)})
            return int(fencing)

        return self._write(work)

    def renew_lease(self, table_id: str, fencing: int, seconds: float, now: datetime) -> bool:
        """False when another has taken the lease over. One that ran out but was not taken is still ours."""
        renew = (
            update(LeaseRow)
            .where(LeaseRow.table_id == table_id, LeaseRow.fencing == fencing)
            .values(expires_at=_moment(now) + timedelta(seconds=seconds))
        )
        return self._write(lambda connection: connection.execute(renew).rowcount == 1)

    def release_lease(self, table_id: str, fencing: int) -> None:
        """Does nothing when another has taken it over."""
        self._write(lambda connection: connection.execute(_release(table_id, fencing)))

    def lease(self, table_id: str) -> Lease | None:
        """The lease as it stands, run out or not."""
        return self._read(lambda connection: self._read_lease(connection, table_id))

    # ---- intents

    def write_intent(self, intent: Intent, fencing: int) -> None:
        """Write or replace the intent, provided that the lease with this number still stands."""
        values = {
            "table_id": intent.table_id,
            "sequence": intent.sequence,
            "job_id": intent.job_id,
            "payload": intent.model_dump_json(exclude={"settled"}),
            "settled": intent.settled,
        }

        def work(connection: Connection) -> None:
            self._lock_table(connection, intent.table_id)
            held = self._read_lease(connection, intent.table_id)
            if held is None or held.fencing != fencing:
                by = f"{held.owner} has held it since {_shown(held.acquired_at)}" if held else "nobody holds it now"
                raise RefreshRunning(
                    f"This refresh has lost the table's lease: {by}.",
                    hint="Nothing was changed. Refresh again; raise lease_seconds if this machine often stalls.",
                )
            connection.execute(self._put_intent, values)

        self._write(work)

    def intent(self, table_id: str, sequence: int) -> Intent | None:
        found = self._intents(_select_intents(table_id).where(IntentRow.sequence == sequence))
        return found[0] if found else None

    def intents(self, table_id: str, settled: bool | None = None) -> list[Intent]:
        """By sequence number, oldest first."""
        wanted = _select_intents(table_id).order_by(IntentRow.sequence)
        return self._intents(wanted if settled is None else wanted.where(IntentRow.settled.is_(settled)))

    def settle(self, table_id: str, sequence: int) -> None:
        """Mark that the intent's commit is known to be in the table."""
        self._write(lambda connection: self._settle(connection, table_id, sequence))

    def forget_intent(self, table_id: str, sequence: int) -> None:
        forget = delete(IntentRow).where(IntentRow.table_id == table_id, IntentRow.sequence == sequence)

        def work(connection: Connection) -> None:
            self._lock_table(connection, table_id)
            connection.execute(forget)

        self._write(work)

    # ---- refresh history

    def start_refresh(self, record: RefreshRecord) -> None:
        """Write or replace the record of an unfinished refresh; a finished one is left as it is."""
        if record.state in FINISHED:
            raise Bug(f"start_refresh was given the finished refresh {record.job_id}.")
        values = _refresh_values(record)
        self._write(lambda connection: connection.execute(self._put_unfinished, values))

    def finish_refresh(
        self,
        record: RefreshRecord,
        *,
        settle: tuple[str, int] | None = None,
        release: tuple[str, int] | None = None,
    ) -> None:
        """Write the finished record and, in the same transaction, settle the intent (table id, sequence) and release
        the lease (table id, fencing number). A lease lost meanwhile is left to its new holder."""
        if record.state not in FINISHED:
            raise Bug(f"finish_refresh was given the unfinished refresh {record.job_id} ({record.state}).")
        values = _refresh_values(record)

        def work(connection: Connection) -> None:
            for table_id in sorted({pair[0] for pair in (settle, release) if pair is not None}):
                self._lock_table(connection, table_id)
            connection.execute(self._put_refresh, values)
            if settle is not None:
                self._settle(connection, *settle)
            if release is not None:
                connection.execute(_release(*release))

        self._write(work)

    def record_no_data(self, record: RefreshRecord) -> None:
        """Record a refresh that found nothing new, in one transaction and without a lease.

        None is needed: such a refresh writes no data, and "the contents stand at the sources' newest versions" was
        true at the instant it looked, whoever else refreshes the table before or after.
        """
        if record.refresh_mode != "NO_DATA" or record.state != "SUCCEED":
            raise Bug(f"record_no_data was given the refresh {record.job_id} ({record.refresh_mode}, {record.state}).")
        self.finish_refresh(record)

    def history(self, limit: int | None = None, table_id: str | None = None) -> list[RefreshRecord]:
        """Newest first, by start time."""
        wanted = select(RefreshRow.payload).order_by(RefreshRow.start_time.desc(), RefreshRow.job_id.desc())
        if table_id is not None:
            wanted = wanted.where(RefreshRow.table_id == table_id)
        return self._refreshes(wanted if limit is None else wanted.limit(limit))

    def unfinished(self) -> list[RefreshRecord]:
        """Refreshes that have not ended, oldest first: after a crash, those to look into."""
        return self._refreshes(
            select(RefreshRow.payload)
            .where(RefreshRow.state.in_(UNFINISHED))
            .order_by(RefreshRow.start_time, RefreshRow.job_id)
        )

    def prune_history(self, before: datetime) -> int:
        """Delete finished refreshes that started before this time; returns how many."""
        old = delete(RefreshRow).where(RefreshRow.start_time < _moment(before), RefreshRow.state.in_(FINISHED))
        return self._write(lambda connection: connection.execute(old).rowcount)

    # ---- workspaces and virtual clusters

    def workspaces(self) -> tuple[str, ...]:
        return self._names(select(WorkspaceRow.name).order_by(WorkspaceRow.name))

    def add_workspace(self, name: str) -> None:
        """Add it, in lower case as names resolve; one that exists already is left alone."""
        if len(name) > 100 or not _WORKSPACE.fullmatch(name):
            raise UserError(
                f"'{name}' is no name for a workspace.",
                hint="Use letters and digits, with single underscores between them, at most 100 characters.",
            )
        add = self._insert(WorkspaceRow).on_conflict_do_nothing()
        self._write(lambda connection: connection.execute(add, {"name": name.lower()}))

    def vclusters(self) -> tuple[str, ...]:
        return self._names(select(VClusterRow.name).order_by(VClusterRow.name))

    def has_vcluster(self, name: str) -> bool:
        return bool(self._names(select(VClusterRow.name).where(func.lower(VClusterRow.name) == name.lower())))

    # ---- pieces of transactions

    def _insert(self, model: type[Model]) -> AnyInsert:
        return postgresql.insert(model) if self._postgres else sqlite.insert(model)

    def _upsert(self, model: type[Model], keep: tuple[str, ...] = (), only_if: Any = None) -> AnyInsert:
        """Insert, or where the key exists replace everything but `keep`."""
        insert = self._insert(model)
        keys = [column.name for column in inspect(model).primary_key]
        columns = [column.name for column in inspect(model).columns if column.name not in keep]
        replace = {name: insert.excluded[name] for name in columns if name not in keys}
        return insert.on_conflict_do_update(index_elements=keys, set_=replace, where=only_if)

    def _lock_table(self, connection: Connection, table_id: str) -> None:
        if self._postgres:
            connection.execute(select(TableRow.id).where(TableRow.id == table_id).with_for_update())

    def _settle(self, connection: Connection, table_id: str, sequence: int) -> None:
        self._lock_table(connection, table_id)
        ours = IntentRow.table_id == table_id
        connection.execute(update(IntentRow).where(ours, IntentRow.sequence == sequence).values(settled=True))
        settled = select(IntentRow.sequence).where(ours, IntentRow.settled).order_by(IntentRow.sequence.desc())
        oldest_kept = settled.limit(1).offset(KEPT_INTENTS - 1).scalar_subquery()
        connection.execute(delete(IntentRow).where(ours, IntentRow.settled, IntentRow.sequence < oldest_kept))

    def _read_lease(self, connection: Connection, table_id: str) -> Lease | None:
        row = connection.execute(select(LeaseRow.__table__).where(LeaseRow.table_id == table_id)).one_or_none()
        return None if row is None else Lease(**row._mapping)

    def _definitions(self, wanted: Select[str]) -> list[DynamicTable]:
        rows = self._read(lambda connection: connection.execute(wanted).scalars().all())
        return [_utc(DynamicTable.model_validate_json(row)) for row in rows]

    def _intents(self, wanted: Select[str, bool]) -> list[Intent]:
        rows = self._read(lambda connection: connection.execute(wanted).all())
        return [Intent.model_validate_json(row.payload).model_copy(update={"settled": row.settled}) for row in rows]

    def _refreshes(self, wanted: Select[str]) -> list[RefreshRecord]:
        rows = self._read(lambda connection: connection.execute(wanted).scalars().all())
        return [_utc(RefreshRecord.model_validate_json(row)) for row in rows]

    def _names(self, wanted: Select[str]) -> tuple[str, ...]:
        return self._read(lambda connection: tuple(connection.execute(wanted).scalars()))

    # ---- transactions

    def _read(self, work: Callable[[Connection], Result]) -> Result:
        return self._patiently(lambda: self._once(self._engine, work))

    def _write(self, work: Callable[[Connection], Result]) -> Result:
        if self._postgres:
            return self._patiently(lambda: self._once(self._writing, work))
        if not self._turn.acquire(timeout=self._patience):
            raise self._fault(None, "other threads of this process have kept it busy")
        try:
            return self._patiently(lambda: self._once(self._writing, work))
        finally:
            self._turn.release()

    def _once(self, engine: Engine, work: Callable[[Connection], Result]) -> Result:
        with engine.connect() as connection, connection.begin() as transaction:
            result = work(connection)
            try:
                transaction.commit()
            except DBAPIError as error:
                # It may have been committed or not; doing it again is not ours to decide.
                raise self._fault(error) from error
        return result

    def _patiently(self, attempt: Callable[[], Result]) -> Result:
        """Try again while PostgreSQL is away. A failed attempt has left nothing behind. (SQLite waits by itself.)"""
        deadline = time.monotonic() + self._patience
        pause = 0.05
        while True:
            try:
                return attempt()
            except IntegrityError:
                raise
            except SQLAlchemyError as error:
                if not (self._postgres and _is_away(error)) or time.monotonic() + pause > deadline:
                    raise self._fault(error) from error
            time.sleep(pause)
            pause = min(pause * 2, 2.0)

    def _fault(self, error: SQLAlchemyError | None, reason: str | None = None) -> EnvironmentFault:
        return _fault(self._engine.url, error, reason)

    # ---- opening

    def _migrate(self) -> None:
        with _as_faults(self._engine.url):
            if not self._postgres:
                _use_wal(self._engine, self._patience)
            with self._engine.begin() as connection:
                if _revision(connection) == migrations.HEAD:
                    return
            with self._writing.begin() as connection:
                if self._postgres:
                    connection.execute(text(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})"))
                revision = _revision(connection)  # Another process may have migrated while we waited.
                if revision is not None and revision not in migrations.known_revisions():
                    raise EnvironmentFault(
                        f"The operations database {_shown_url(self._engine.url)} was written by a newer version of "
                        f"Headrace (schema {revision}; this version knows up to {migrations.HEAD}).",
                        hint="Upgrade Headrace, or use another database_url.",
                    )
                if revision != migrations.HEAD:
                    migrations.upgrade(connection)


def _named(name: TableName) -> Any:
    return (
        (TableRow.workspace == name.workspace) & (TableRow.schema_name == name.schema) & (TableRow.name == name.table)
    )


def _select_intents(table_id: str) -> Select[str, bool]:
    return select(IntentRow.payload, IntentRow.settled).where(IntentRow.table_id == table_id)


def _release(table_id: str, fencing: int) -> Any:
    return delete(LeaseRow).where(LeaseRow.table_id == table_id, LeaseRow.fencing == fencing)


def _refresh_values(record: RefreshRecord) -> Mapping[str, Any]:
    record = _utc(record)
    return {
        "job_id": record.job_id,
        "table_id": record.table_id,
        "start_time": record.start_time,
        "state": record.state,
        "payload": record.model_dump_json(),
    }


def _moment(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise Bug(f"The time {value.isoformat()} has no time zone.")
    return value.astimezone(timezone.utc)


def _utc(record: Record) -> Record:
    """The record with every time in UTC."""
    times = {name: _moment(value) for name, value in record if isinstance(value, datetime)}
    return record.model_copy(update=times) if times else record


def _shown(moment: datetime) -> str:
    return moment.isoformat(sep=" ", timespec="seconds")


def _revision(connection: Connection) -> str | None:
    """The schema's revision; None for a database without one."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


# ---- connections


def _parsed(url: str) -> URL:
    if url.startswith("sqlite:///") and url != "sqlite:///" and not url.startswith("sqlite:///:memory:"):
        return URL.create("sqlite", database=os.path.abspath(url.removeprefix("sqlite:///")))
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        parsed = None
    if parsed is not None and parsed.drivername in ("postgresql", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    raise BadSetting(
        f"The database URL '{masked(url)}' cannot be used.",
        hint="Write sqlite:///path/headrace.db or postgresql://user:password@host:5432/database.",
    )


def _engine(url: URL, patience: float) -> Engine:
    if url.get_backend_name() == "postgresql":
        # Connections are tried before use: a restarted server must not fail the first statement after it.
        wanted = {"connect_timeout": "10", "application_name": "headrace"}
        url = url.update_query_dict({key: value for key, value in wanted.items() if key not in url.query})
        return create_engine(url, pool_pre_ping=True, pool_timeout=max(patience, 1))
    folder = Path(str(url.database)).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFault(
            f"The folder {folder} for the operations database cannot be made: {error.strerror}.",
            hint="Choose another path or database_url, or mend its permissions.",
        ) from error
    engine = create_engine(url, connect_args={"timeout": patience}, pool_timeout=max(patience, 1))
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # The driver's own BEGIN comes too late and is not IMMEDIATE.
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _use_wal(engine: Engine, patience: float) -> None:
    """Switch the file to write-ahead logging, for good. SQLite does not wait for other users here, so we do."""
    deadline = time.monotonic() + patience
    while True:
        connection = engine.raw_connection()
        try:
            connection.cursor().execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
        finally:
            connection.close()
        time.sleep(0.02)


# ---- faults


def _is_away(error: SQLAlchemyError) -> bool:
    """Whether PostgreSQL could not be reached or went away, and so may come back."""
    if not isinstance(error, DBAPIError):
        return False
    state = getattr(error.orig, "sqlstate", None)
    # 57P01 to 57P03 are shutdown, crash and start-up; class 08 is the connection; without a state it never stood.
    gone = isinstance(error, OperationalError) and (state is None or state.startswith(("08", "57P")))
    return gone or error.connection_invalidated


@contextmanager
def _as_faults(url: URL) -> Iterator[None]:
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise _fault(url, error) from error


def _shown_url(url: URL) -> str:
    return masked(url.set(drivername=url.get_backend_name()).render_as_string(hide_password=True))


_HINTS = (
    (r"locked|busy", "Another program has it open for writing: end it, then try again."),
    (r"disk is full|no space", "Free some disk space, then try again."),
    (r"readonly|read-only|unable to open|permission", "Check that the file and its folder may be written to."),
    (r"not a database|malformed", "Move the file away and start again: what can be is rebuilt from the tables."),
    (r"password|authentication|no pg_hba", "Check the user and password in database_url."),
    (r"does not exist", "Create the database or user that database_url names."),
)


def _fault(url: URL, error: Exception | None, reason: str | None = None) -> EnvironmentFault:
    """What went wrong in the driver's own words, without the statement, its values or the password."""
    if isinstance(error, PoolTimeout):
        reason = "all connections have been in use for too long"
    elif error is not None:
        first = str((error.orig if isinstance(error, DBAPIError) else error) or error).strip().splitlines()
        reason = first[0] if first else type(error).__name__
    reason = (reason or "").rstrip(".")
    if url.password:
        reason = reason.replace(str(url.password), "***")
    fallback = "Check that the database runs and that database_url is right, then try again."
    hint = next((hint for pattern, hint in _HINTS if re.search(pattern, reason, re.IGNORECASE)), fallback)
    return EnvironmentFault(f"The operations database {_shown_url(url)} cannot be used: {reason}.", hint=hint)
