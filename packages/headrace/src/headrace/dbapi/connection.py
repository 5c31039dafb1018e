"""A connection: one session of its own."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from headrace.dbapi import exceptions
from headrace.dbapi.cursor import Cursor
from headrace.dbapi.exceptions import InterfaceError, NotSupportedError, translated

if TYPE_CHECKING:
    from headrace.client import RemoteLake
    from headrace.engine import Lake


def connect(
    url: str | None = None,
    *,
    username: str | None = None,
    password: str | None = None,
    token: str | None = None,
    schema: str | None = None,
    vcluster: str | None = None,
    ca_file: str | Path | None = None,
    path: str | Path | None = None,
) -> Connection:
    """Connect to a server by its address, or open the lake in a folder: `connect(path="lake")`."""
    from headrace import opening

    if (url is None) == (path is None):
        raise InterfaceError("Give the address of a server, or path=, the folder of a lake.")
    with translated():
        if url is None:
            return Connection(opening.open(path, username=username, password=password, token=token, schema=schema))
        return Connection(
            opening.connect(
                url,
                username=username,
                password=password,
                token=token,
                schema=schema,
                vcluster=vcluster,
                ca_file=ca_file,
            )
        )


class Connection:
    """Cursors of one connection see each other's temporary views and settings. Every statement is committed when it
    succeeds. Leaving a `with` block closes the connection."""

    Warning = exceptions.Warning
    Error = exceptions.Error
    InterfaceError = exceptions.InterfaceError
    DatabaseError = exceptions.DatabaseError
    DataError = exceptions.DataError
    OperationalError = exceptions.OperationalError
    IntegrityError = exceptions.IntegrityError
    InternalError = exceptions.InternalError
    ProgrammingError = exceptions.ProgrammingError
    NotSupportedError = exceptions.NotSupportedError

    def __init__(self, lake: Lake | RemoteLake) -> None:
        self.lake = lake
        self._closed = False

    def cursor(self) -> Cursor:
        self._require_open()
        return Cursor(self)

    def commit(self) -> None:
        """Nothing is left to do: each statement was committed when it succeeded."""
        self._require_open()

    def rollback(self) -> None:
        raise NotSupportedError("There is nothing to roll back: each statement is committed when it succeeds.")

    def cancel(self) -> None:
        """Cancel what runs through this connection, from another thread."""
        self._require_open()
        self.lake.cancel()

    def ping(self) -> None:
        """Raise OperationalError when the server or the session is gone. Runs no statement."""
        self._require_open()
        ping: Any = getattr(self.lake, "ping", None)
        if ping is not None:
            try:
                with translated():
                    ping()
            except exceptions.ProgrammingError as error:  # The session is not there any more.
                raise exceptions.OperationalError(str(error), code="SESSION_RESET") from error

    def close(self) -> None:
        """Closing twice does nothing."""
        if not self._closed:
            self._closed = True
            with translated():
                self.lake.close()

    def _require_open(self) -> None:
        if self._closed:
            raise InterfaceError("This connection is closed.")

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
