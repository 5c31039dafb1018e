"""dbt's connections as sessions of the lake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from dbt.adapters.contracts.connection import AdapterResponse, Connection, ConnectionState
from dbt.adapters.events.logging import AdapterLogger
from dbt.adapters.exceptions.connection import FailedToConnectError
from dbt.adapters.sql.connections import SQLConnectionManager
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError

from dbt.adapters.headrace.cursor import Cursor
from dbt.adapters.headrace.pool import Sessions
from dbt.adapters.headrace.sessions import Session
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    import agate

_log = AdapterLogger("Headrace")
_TAG_LENGTH = 255
_TESTS = ("test.", "unit_test.")
_HINTS = {
    "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT": "Allow it in the model's config, such as "
    "properties={'delta.feature.timestampNtz': 'supported'}, or drop the table first.",
    "INVALID_TEMP_OBJ_REFERENCE": "A view cannot use a temporary view or function of a hook or sql_header: make a "
    "persistent one, or make the model a table.",
    "DELTA_VIOLATE_CONSTRAINT": "A constraint of the model's contract does not hold. The table is as it was before.",
    "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE": "The new rows have several with the same unique_key. Let "
    "the query keep one of each, such as with row_number() over (partition by …). An incremental model that is to keep "
    "them all: incremental_strategy='delete+insert'.",
    " is stale: ": "Then run the models that read it with dbt run --full-refresh.",
    "There is no virtual cluster": "Make it with CREATE VCLUSTER, or mend vcluster in the profile or the model.",
}
"""What to do, where dbt's users can do more than the error says."""


@dataclass
class HeadraceAdapterResponse(AdapterResponse):
    """`query_id` is the job: DESC JOB tells all about it."""

    job_id: str | None = None
    status: str | None = None
    """What the statement says of itself."""


class HeadraceConnectionManager(SQLConnectionManager):
    """A connection holds a session while a node uses it. There are no transactions: each statement is committed when it
    succeeds."""

    TYPE = "headrace"
    sessions: ClassVar[Sessions] = Sessions()

    @contextmanager
    def exception_handler(self, sql: str) -> Iterator[None]:
        try:
            yield
        except HeadraceError as error:
            _log.debug(f"{error.code} in: {sql}")
            raise DbtDatabaseError(told(error)) from error
        except DbtRuntimeError:
            raise
        except Exception as error:
            _log.debug(f"Error while running: {sql}")
            raise DbtRuntimeError(str(error)) from error

    @classmethod
    def open(cls, connection: Connection) -> Connection:
        if connection.state == ConnectionState.OPEN:
            return connection
        try:
            connection.handle = cls.sessions.take(connection.credentials)
        except HeadraceError as error:
            connection.handle = None
            connection.state = ConnectionState.FAIL
            raise FailedToConnectError(told(error)) from error
        connection.state = ConnectionState.OPEN
        return connection

    def release(self) -> None:
        """The session is kept for whichever thread is next."""
        connection = self.get_if_exists()
        if connection is None or connection.state != ConnectionState.OPEN:
            return
        session, connection.handle = connection.handle, None
        connection.state = ConnectionState.CLOSED
        connection.transaction_open = False
        self.sessions.give_back(connection.credentials, session)

    def cleanup_all(self) -> None:
        super().cleanup_all()
        self.sessions.close_all()

    def cancel(self, connection: Connection) -> None:
        """One that was just given back has nothing left to cancel."""
        session: Session | None = connection.handle
        if session is not None:
            session.cancel()

    def cancel_open(self) -> list[str]:
        """Nodes that have no session yet get none any more. All are told before the first one is waited for: none
        begins another statement meanwhile."""
        self.sessions.interrupt()
        own = self.get_if_exists()
        for connection in list(self.thread_connections.values()):
            # One that is not open yet would be opened by asking for its handle.
            if connection is not own and connection.state == ConnectionState.OPEN and connection.handle is not None:
                connection.handle.tell_cancelled()
        return super().cancel_open()

    def add_query(self, sql: str, auto_begin: bool = True, *args: Any, **kwargs: Any) -> tuple[Connection, Any]:
        self.session_of_node()
        return super().add_query(sql, False, *args, **kwargs)

    def session_of_node(self) -> Session:
        """The session of this thread, told which node uses it."""
        connection = self.get_thread_connection()
        session: Session = connection.handle
        session.tag = (connection.name or "dbt")[:_TAG_LENGTH]
        session.leaves_streams = self.only_looks(connection.name)
        return session

    def only_looks(self, node: str | None) -> bool:
        """Whether what a node reads from table streams is to be there again for the next one: a test may keep its
        failures, and --empty and --sample build tables, without taking anything."""
        return self.is_partial or (node or "").startswith(_TESTS)

    @property
    def is_partial(self) -> bool:
        args = getattr(self.profile, "args", None)
        return any(getattr(args, name, None) for name in ("EMPTY", "empty", "SAMPLE", "sample"))

    @classmethod
    def get_response(cls, cursor: Cursor) -> HeadraceAdapterResponse:
        rows = cursor.rowcount if cursor.rowcount >= 0 else None
        return HeadraceAdapterResponse(
            _message=f"OK {rows}" if rows is not None else "OK",
            code="OK",
            rows_affected=rows,
            query_id=cursor.job_id,
            job_id=cursor.job_id,
            status=cursor.status,
        )

    @classmethod
    def get_result_from_cursor(cls, cursor: Cursor, limit: int | None) -> agate.Table:
        try:
            return super().get_result_from_cursor(cursor, limit)
        except HeadraceError as error:
            raise DbtDatabaseError(told(error)) from error

    @classmethod
    def data_type_code_to_name(cls, type_code: int | str) -> str:
        return str(type_code)

    # There are no transactions

    def begin(self) -> None:
        """Nothing begins."""

    def commit(self) -> None:
        """Nothing is left to do."""

    def clear_transaction(self) -> None:
        """There is none."""

    def add_begin_query(self, *args: Any, **kwargs: Any) -> None:
        """There is no BEGIN."""

    def add_commit_query(self, *args: Any, **kwargs: Any) -> None:
        """There is no COMMIT."""


def told(error: HeadraceError) -> str:
    """What happened, where, and what to do next, with the code that the docs list."""
    for words, hint in _HINTS.items():
        if words in error.message and hint not in (error.hint or ""):
            error.hint = f"{error.hint} {hint}" if error.hint else hint
    return f"{error.code}: {error}"
