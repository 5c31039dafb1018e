"""The connection to the operations database, on SQLite or PostgreSQL: transactions, patience and typed faults.

A transaction is a function of a connection. Reading and writing are told apart because a writer on SQLite must BEGIN
IMMEDIATE: one that starts as a reader and then writes is refused, without waiting, when another wrote meanwhile.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from headrace.catalog import migrations
from headrace.catalog.models import Model
from headrace.errors import BadSetting, EnvironmentFault
from headrace.settings import masked

PATIENCE_SECONDS = 60.0

_MIGRATION_LOCK = 0x48656164  # PostgreSQL's advisory locks have numbers; this is "Head".
_WRITES = "headrace_writes"
_UNTIL = "headrace_until"
_HINTS = (
    (r"locked|busy", "Another program has it open for writing: end it, then try again."),
    (r"disk is full|no space", "Free some disk space, then try again."),
    (r"readonly|read-only|unable to open|permission", "Check that the file and its folder may be written to."),
    (r"not a database|malformed", "Move the file away and start again: what can be is rebuilt from the tables."),
    (r"password|authentication|no pg_hba", "Check the user and password in database_url."),
    (r"does not exist", "Create the database or user that database_url names."),
)

Result = TypeVar("Result")
AnyInsert = sqlite.Insert | postgresql.Insert


class Database:
    """One pool of connections, shared by all threads of a process."""

    def __init__(self, engine: Engine, patience: float) -> None:
        self.is_postgres = engine.dialect.name == "postgresql"
        self._engine = engine
        self._writing = engine.execution_options(**{_WRITES: True})
        self._patience = patience
        # SQLite's own waiting is unfair and sleeps up to 0.1 s; among our threads a lock does better.
        self._turn = threading.Lock()

    @classmethod
    def open(cls, url: str, *, patience: float = PATIENCE_SECONDS) -> Database:
        """Connect, creating or migrating the schema first. `patience` is how many seconds a locked or vanished
        database is waited for, later on; opening itself waits only for locks."""
        database = cls(_engine(_parsed(url), patience), patience)
        try:
            database._migrate()
        except BaseException:
            database.close()
            raise
        return database

    def close(self) -> None:
        self._engine.dispose()

    # ---- statements that the dialects write differently

    def insert(self, model: type[Model]) -> AnyInsert:
        return postgresql.insert(model) if self.is_postgres else sqlite.insert(model)

    def upsert(self, model: type[Model], keep: tuple[str, ...] = (), only_if: Any = None) -> AnyInsert:
        """Insert, or where the key exists replace everything but `keep`."""
        insert = self.insert(model)
        keys = [column.name for column in inspect(model).primary_key]
        columns = [column.name for column in inspect(model).columns if column.name not in keep]
        replace = {name: insert.excluded[name] for name in columns if name not in keys}
        return insert.on_conflict_do_update(index_elements=keys, set_=replace, where=only_if)

    # ---- transactions

    def read(self, work: Callable[[Connection], Result]) -> Result:
        """What `work` returns, in one transaction; `work` is called again when PostgreSQL went away during it."""
        return self._patiently(lambda: self._once(self._engine, work))

    def write(self, work: Callable[[Connection], Result], patience: float | None = None) -> Result:
        """As `read`. An IntegrityError of a statement is passed on: only the caller knows what it means. A caller that
        can do without the write has a `patience` of its own."""
        until = time.monotonic() + (self._patience if patience is None else patience)
        if self.is_postgres:
            return self._patiently(lambda: self._once(self._writing, work), until)
        if not self._turn.acquire(timeout=max(until - time.monotonic(), 0)):
            raise self._fault(None, "it is locked: other threads of this process have kept it busy")
        try:
            return self._patiently(lambda: self._once(self._writing, work, until), until)
        finally:
            self._turn.release()

    def _once(self, engine: Engine, work: Callable[[Connection], Result], until: float | None = None) -> Result:
        with engine.connect() as connection:
            connection.execution_options(**{_UNTIL: until})
            return self._transaction(connection, work)

    def _transaction(self, connection: Connection, work: Callable[[Connection], Result]) -> Result:
        with connection.begin() as transaction:
            result = work(connection)
            try:
                transaction.commit()
            except DBAPIError as error:
                # It may have been committed or not; doing it again is not ours to decide.
                raise self._fault(error) from error
        return result

    def _patiently(self, attempt: Callable[[], Result], until: float | None = None) -> Result:
        """Try again while PostgreSQL is away. A failed attempt has left nothing behind. (SQLite waits by itself.)"""
        deadline = time.monotonic() + self._patience if until is None else until
        pause = 0.05
        while True:
            try:
                return attempt()
            except IntegrityError:
                raise
            except SQLAlchemyError as error:
                if not (self.is_postgres and _is_away(error)) or time.monotonic() + pause > deadline:
                    raise self._fault(error) from error
            time.sleep(pause)
            pause = min(pause * 2, 2.0)

    def _fault(self, error: SQLAlchemyError | None, reason: str | None = None) -> EnvironmentFault:
        return _fault(self._engine.url, error, reason)

    # ---- opening

    def _migrate(self) -> None:
        with _as_faults(self._engine.url):
            if not self.is_postgres:
                _use_wal(self._engine, self._patience)
            with self._engine.begin() as connection:
                if _revision(connection) == migrations.HEAD:
                    return
            with self._writing.begin() as connection:
                if self.is_postgres:
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
    with suppress(OSError):  # SQLite itself says what is wrong.
        # Hashes of passwords are in it; SQLite gives its files beside this one the same mode.
        os.close(os.open(str(url.database), os.O_RDWR | os.O_CREAT, 0o600))
    engine = create_engine(url, connect_args={"timeout": patience}, pool_timeout=max(patience, 1))
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", partial(_begin_sqlite, patience))
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    connection.isolation_level = None  # The driver's own BEGIN comes too late and is not IMMEDIATE.
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")


def _begin_sqlite(patience: float, connection: Connection) -> None:
    options = connection.get_execution_options()
    until = options.get(_UNTIL)
    # Who has waited for others here waits so much less for SQLite.
    waits = patience if until is None else max(until - time.monotonic(), 0)
    connection.exec_driver_sql(f"PRAGMA busy_timeout={int(waits * 1000)}")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get(_WRITES, False) else "BEGIN")


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
