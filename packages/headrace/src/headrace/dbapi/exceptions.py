"""PEP 249's errors, made of ours: `code`, `hint` and `position` are kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace import errors
from headrace.errors import HeadraceError, Position


class Warning(Exception):  # noqa: A001 — PEP 249 calls it so
    """Never raised here; PEP 249 asks for it."""


class Error(Exception):
    """The root of the tree."""

    def __init__(
        self, message: str = "", *, code: str = "ERROR", hint: str | None = None, position: Position | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint
        self.position = position


class InterfaceError(Error):
    """The module was not used as it can be: a closed cursor, a value that has no SQL."""


class DatabaseError(Error):
    """The database refused or failed."""


class DataError(DatabaseError):
    """A value that cannot be processed."""


class OperationalError(DatabaseError):
    """Not the statement's fault: the server, its limits, the disk; also a statement that was cancelled."""


class IntegrityError(DatabaseError):
    """Never raised here; PEP 249 asks for it."""


class InternalError(DatabaseError):
    """A bug in Headrace."""


class ProgrammingError(DatabaseError):
    """The statement cannot be run as it is, or may not be."""


class NotSupportedError(DatabaseError):
    """Understood, but not there."""


_KINDS: tuple[tuple[type[HeadraceError], type[Error]], ...] = (
    (errors.Unsupported, NotSupportedError),
    (errors.Bug, InternalError),
    (errors.Unauthenticated, OperationalError),
    (errors.Cancelled, OperationalError),
    (errors.TimedOut, OperationalError),
    (errors.TooBusy, OperationalError),
    (errors.SessionReset, OperationalError),
    (errors.ServiceFault, OperationalError),
    (errors.EnvironmentFault, OperationalError),
    (errors.LakeLocked, OperationalError),
    (errors.RefreshRunning, OperationalError),
    (errors.RefreshFailed, OperationalError),
    (errors.UserError, ProgrammingError),
    (errors.HeadraceError, DatabaseError),
)


def of(error: HeadraceError) -> Error:
    """The error that PEP 249 has for one of ours.

    >>> of(errors.NotFound("There is no table t.", hint="SHOW TABLES lists them."))
    ProgrammingError('There is no table t.\\nHint: SHOW TABLES lists them.')
    """
    kind = next(theirs for ours, theirs in _KINDS if isinstance(error, ours))
    return kind(str(error), code=error.code, hint=error.hint, position=error.position)


@contextmanager
def translated() -> Iterator[None]:
    """Our errors leave the block as PEP 249's."""
    try:
        yield
    except HeadraceError as error:
        raise of(error) from error
