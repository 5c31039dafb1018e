"""What a lake and the process of a virtual cluster with a Spark master of its own say to each other.

One JSON object a line: requests on the process' standard input, answers on its standard output. Requests have ids,
because several run at once; answers come in any order, after any number of words about progress.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from headrace.catalog.records import Occasion, RefreshRecord
from headrace.collecting import Limit
from headrace.errors import Bug, HeadraceError, Position, TooBusy, kind_of
from headrace.plan.nodes import Frozen
from headrace.plan.query import Query
from headrace.settings import Settings


class Fault(Frozen):
    """An error on its way from one process to the other."""

    code: str
    message: str
    hint: str | None = None
    position: tuple[int, int] | None = None
    retry_after: float | None = None

    @classmethod
    def of(cls, error: BaseException) -> Fault:
        """What is none of our errors should not have happened.

        >>> Fault.of(ValueError("no")).error()
        Bug('ValueError: no')
        """
        if not isinstance(error, HeadraceError):
            lines = str(error).strip().splitlines()
            return cls(code=Bug.code, message=f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__)
        at = error.position
        return cls(
            code=error.code,
            message=error.message,
            hint=error.hint,
            position=None if at is None else (at.line, at.column),
            retry_after=error.retry_after if isinstance(error, TooBusy) else None,
        )

    def error(self) -> HeadraceError:
        """The error again, of its own class."""
        kind = kind_of(self.code) or HeadraceError
        position = None if self.position is None else Position(*self.position)
        error = kind(self.message, hint=self.hint, position=position)
        error.code = self.code
        if isinstance(error, TooBusy) and self.retry_after is not None:
            error.retry_after = self.retry_after
        return error


# ---------------------------------------------------------------------- requests


class Start(Frozen):
    """The first request: what to be. Secrets come this way, and not as arguments, which everybody may read."""

    kind: Literal["start"] = "start"
    cluster: str
    settings: Settings
    """The lake's, but for its folder, its master and its Spark settings: those are the cluster's."""
    jars: tuple[str, ...]
    java: tuple[str, str]
    """The executable and its version."""
    parent: int
    """The process whose end is this one's, too."""


class RunQuery(Frozen):
    """Evaluate a query with every source at its version; the rows go into a file named after the id."""

    kind: Literal["query"] = "query"
    id: str
    query: Query
    versions: dict[str, int]
    """By the path of each source."""
    settings: dict[str, str]
    """The session's settings that differ from those Spark was started with, or decide what a query means."""
    types: tuple[str, ...]
    """Of the columns, as Spark tells them where the catalog is: here they must come out the same."""
    limit: Limit | None = None
    """How much of the result is wanted."""


class RunRefresh(Frozen):
    """Refresh a dynamic table. The id is that of its record in the history."""

    kind: Literal["refresh"] = "refresh"
    id: str
    table_id: str
    generation: int
    """As it was when somebody looked whether it can be refreshed here."""
    occasion: Occasion
    folds: bool
    """Whether its storage may be folded afterwards."""
    hides_rows: bool = False
    """Whether an error must not quote a row."""


class Cancel(Frozen):
    kind: Literal["cancel"] = "cancel"
    id: str
    reason: Fault


class End(Frozen):
    """Stop Spark and end; there is no answer but the end."""

    kind: Literal["end"] = "end"
    patience: float


Work = RunQuery | RunRefresh
Request = Start | RunQuery | RunRefresh | Cancel | End


# ---------------------------------------------------------------------- answers


class Ready(Frozen):
    kind: Literal["ready"] = "ready"
    application: str
    """As the master calls it."""


class NotStarted(Frozen):
    kind: Literal["not started"] = "not started"
    fault: Fault


class Told(Frozen):
    kind: Literal["told"] = "told"
    id: str
    text: str
    fraction: float | None = None


class Done(Frozen):
    kind: Literal["done"] = "done"
    id: str
    phases: dict[str, float] = Field(default_factory=dict)
    counts: dict[str, int] = Field(default_factory=dict)
    """What Spark did for it there, by the names that a job's record has for it."""
    record: RefreshRecord | None = None
    """Of a refresh; the rows of a query are in its file."""
    truncated: bool = False
    """Whether the query has more rows than were wanted."""


class Failed(Frozen):
    kind: Literal["failed"] = "failed"
    id: str
    fault: Fault
    phases: dict[str, float] = Field(default_factory=dict)
    counts: dict[str, int] = Field(default_factory=dict)


class NotHere(Frozen):
    """This needs the catalog, or something else that only the lake's own Spark has. Nothing was written."""

    kind: Literal["not here"] = "not here"
    id: str
    why: str


Answer = Ready | NotStarted | Told | Done | Failed | NotHere

_requests: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])
_answers: TypeAdapter[Answer] = TypeAdapter(Annotated[Answer, Field(discriminator="kind")])


def line(message: Request | Answer) -> bytes:
    """The message as one line. JSON escapes the line breaks inside.

    >>> line(Told(id="1", text="two\\nlines"))
    b'{"kind":"told","id":"1","text":"two\\\\nlines","fraction":null}\\n'
    """
    return message.model_dump_json().encode() + b"\n"


def read_request(text: bytes) -> Request:
    return _requests.validate_json(text)


def read_answer(text: bytes) -> Answer:
    """Raises ValueError for what is none."""
    return _answers.validate_json(text)
