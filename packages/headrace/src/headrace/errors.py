"""Every error a user can meet: what happened, where, and what to do next.

Raised low, worded once, rendered by the command line, the server and the studio from the same object.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Position:
    """A place in a statement's text; lines and columns count from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


class HeadraceError(Exception):
    """The root of the tree. `code` is stable and meant for scripts; the message is meant for people."""

    code = "ERROR"

    def __init__(self, message: str, *, hint: str | None = None, position: Position | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.position = position

    def __str__(self) -> str:
        where = f" ({self.position})" if self.position else ""
        what_next = f"\nHint: {self.hint}" if self.hint else ""
        return f"{self.message}{where}{what_next}"


class UserError(HeadraceError):
    """The user can mend this by changing the statement, the settings or the surroundings."""

    code = "USER_ERROR"


class SyntaxFault(UserError):
    """The text is not a statement we know; the position points at the first word that does not fit."""

    code = "SYNTAX_ERROR"


class NotFound(UserError):
    """A name that resolves to nothing."""

    code = "NOT_FOUND"


class AlreadyExists(UserError):
    code = "ALREADY_EXISTS"


class NotAllowed(UserError):
    """A statement that is understood and refused, such as DML on a dynamic table."""

    code = "NOT_ALLOWED"


class BadSetting(UserError):
    """A setting, property or environment value that cannot be used."""

    code = "BAD_SETTING"


class NonDeterministic(UserError):
    """The query calls a function whose result differs from one call to the next."""

    code = "NON_DETERMINISTIC"


class QueryFailed(UserError):
    """Spark refused or failed a statement; the message is Spark's own, shortened."""

    code = "QUERY_FAILED"


class LakeLocked(UserError):
    """Another process holds this lake."""

    code = "LAKE_LOCKED"


class RefreshRunning(UserError):
    """Another refresh of the same table holds its lease."""

    code = "REFRESH_RUNNING"


class StaleStream(UserError):
    """A table stream whose changes are gone; nothing was read and its offset stands where it was."""

    code = "STALE_STREAM"


class EnvironmentFault(UserError):
    """Java, the jars, the disk or the database is not as it must be."""

    code = "ENVIRONMENT"


class RefreshFailed(UserError):
    """A refresh ended FAILED; the table keeps its previous contents."""

    code = "REFRESH_FAILED"


class Unsupported(HeadraceError):
    """Understood, but there is no rule for it (yet)."""

    code = "UNSUPPORTED"


class Bug(HeadraceError):
    """Something that must never happen did: please report it."""

    code = "BUG"
