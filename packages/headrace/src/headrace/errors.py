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
    usual_hint: str | None = None
    """What to do next where nothing better is said."""

    def __init__(self, message: str, *, hint: str | None = None, position: Position | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint or self.usual_hint
        self.position = position

    def __str__(self) -> str:
        where = f" ({self.position})" if self.position else ""
        what_next = f"\nHint: {self.hint}" if self.hint else ""
        return f"{self.message}{where}{what_next}"

    @property
    def kept(self) -> str:
        """All that records have of it, in one text: they have one field for it."""
        return with_hint(self.message, self.hint)


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


class Dangerous(NotAllowed):
    """A statement that reaches beyond the lake, which a server refuses."""

    code = "UNSAFE"


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
    spark_ended = False
    """Whether it is that Spark's Java process ended: what ran then may be the reason."""


def spark_ended(message: str, *, hint: str | None = None) -> EnvironmentFault:
    """The error of what ran when Spark's Java process ended."""
    fault = EnvironmentFault(message, hint=hint)
    fault.spark_ended = True
    return fault


class Forbidden(UserError):
    """The user is known, and may not do this."""

    code = "FORBIDDEN"


class Unauthenticated(UserError):
    """Nobody knows who asks: no login, a wrong one, or one that has run out."""

    code = "UNAUTHENTICATED"


class Cancelled(UserError):
    """Somebody cancelled the job."""

    code = "CANCELLED"


class TimedOut(UserError):
    """The job ran longer than its virtual cluster allows."""

    code = "TIMED_OUT"


class TooBusy(UserError):
    """A limit is reached; trying again later helps."""

    code = "TOO_BUSY"

    def __init__(
        self, message: str, *, hint: str | None = None, position: Position | None = None, retry_after: float = 1.0
    ) -> None:
        super().__init__(message, hint=hint, position=position)
        self.retry_after = retry_after


class SessionReset(UserError):
    """Spark was started again under this session: its settings and temporary views are gone. Told once."""

    code = "SESSION_RESET"


class ServiceFault(UserError):
    """The server cannot be reached, or did not answer as a Headrace server does."""

    code = "SERVICE"


class RefreshFailed(UserError):
    """A refresh ended FAILED; the table keeps its previous contents."""

    code = "REFRESH_FAILED"


class RefreshHeldUp(RefreshFailed, EnvironmentFault):
    """A refresh ended FAILED for want of what every refresh needs: Java, the disk, the database. No fault of the
    table."""

    code = "REFRESH_HELD_UP"


class TaskFailed(UserError):
    """A task's Python file or command did not exit with 0."""

    code = "TASK_FAILED"

    def __init__(
        self, message: str, *, hint: str | None = None, position: Position | None = None, output: str = ""
    ) -> None:
        super().__init__(message, hint=hint, position=position)
        self.output = output
        """The end of what it printed."""


class Unsupported(HeadraceError):
    """Understood, but there is no rule for it (yet)."""

    code = "UNSUPPORTED"


class Bug(HeadraceError):
    """Something that must never happen did: please report it."""

    code = "BUG"
    usual_hint = "This is a mistake of Headrace's own. Please report it, with what the log has about it."


_HINT = " Hint: "


def with_hint(message: str, hint: str | None) -> str:
    """What happened and what to do next, in one line of text."""
    return f"{message}{_HINT}{hint}" if hint else message


def split_hint(kept: str) -> tuple[str, str | None]:
    """Message and hint of a text that `with_hint` made.

    >>> split_hint(with_hint("No such table.", "SHOW TABLES lists them.")), split_hint("No such table.")
    (('No such table.', 'SHOW TABLES lists them.'), ('No such table.', None))
    """
    message, _, hint = kept.rpartition(_HINT) if _HINT in kept else (kept, "", "")
    return message, hint or None


def kind_of(code: str) -> type[HeadraceError] | None:
    """The class of the errors with this code, for those that come from another process.

    >>> kind_of("NOT_ALLOWED"), kind_of("NO_SUCH_CODE")
    (<class 'headrace.errors.NotAllowed'>, None)
    """
    waiting: list[type[HeadraceError]] = [HeadraceError]
    while waiting:
        kind = waiting.pop(0)
        if kind.code == code:
            return kind
        waiting += kind.__subclasses__()
    return None
