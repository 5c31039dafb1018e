"""What goes over the wire, in both directions. /openapi.json is made from these."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from headrace.catalog.records import JobStatus, Role

_NO_NUL = r"^[^\x00]*$"
"""PostgreSQL cannot keep a NUL, and no statement or name needs one. The pattern also refuses half characters
(a lone surrogate), which JSON can write and UTF-8 cannot."""

SHORT = 255
PASSWORD_LENGTH = 1024
WAIT_LONGEST = 60
PAGE_ROWS = 10_000
LARGEST_OFFSET = 2**53

ShortText = Annotated[str, Field(pattern=_NO_NUL, min_length=1, max_length=SHORT)]
WaitSeconds = Annotated[float, Field(ge=0, le=WAIT_LONGEST, allow_inf_nan=False)]


class _Asked(BaseModel):
    """What a client sends: a field that nobody knows is a mistake, and is said to be one."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class _Answered(BaseModel):
    model_config = ConfigDict(frozen=True)


class Place(_Answered):
    """A place in the statement's text; both count from 1."""

    line: int
    column: int


class Fault(_Answered):
    """What happened, where, and what to do next."""

    code: str
    message: str
    hint: str | None = None
    position: Place | None = None


class Problem(_Answered):
    """The body of every answer that is no success."""

    error: Fault


class LoginRequest(_Asked):
    model_config = ConfigDict(json_schema_extra={"examples": [{"username": "admin", "password": "your password"}]})

    username: ShortText
    password: Annotated[str, Field(pattern=_NO_NUL, min_length=1, max_length=PASSWORD_LENGTH, repr=False)]


class Login(_Answered):
    token: str = Field(repr=False)
    expires_at: datetime
    username: str
    role: Role


class SessionRequest(_Asked):
    model_config = ConfigDict(json_schema_extra={"examples": [{"schema": "public"}, {}]})

    schema_name: ShortText | None = Field(default=None, alias="schema")
    vcluster: ShortText | None = None
    query_tag: ShortText | None = None


class SessionInfo(_Answered):
    model_config = ConfigDict(frozen=True, populate_by_name=True)

    session_id: str
    schema_name: str = Field(alias="schema", description="With its workspace: workspace.schema")
    vcluster: str
    timezone: str = Field(description="In which people are to see timestamps")
    created_at: datetime
    running: int = Field(description="Statements that have not ended")


class SessionList(_Answered):
    sessions: list[SessionInfo]


class StatementRequest(_Asked):
    model_config = ConfigDict(json_schema_extra={"examples": [{"sql": "SELECT 1", "wait_seconds": 10}]})

    sql: Annotated[str, Field(pattern=_NO_NUL, min_length=1, description="One statement")]
    wait_seconds: WaitSeconds = 0
    query_tag: ShortText | None = None


class LoneStatementRequest(StatementRequest):
    """A statement with all that a session would know."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"sql": "REFRESH DYNAMIC TABLE public.spend", "wait_seconds": 60}]}
    )

    schema_name: ShortText | None = Field(default=None, alias="schema")
    vcluster: ShortText | None = None


class ProgressNow(_Answered):
    text: str
    fraction: float | None = None


class ColumnInfo(_Answered):
    name: str
    type: str = Field(description="As SQL writes it, such as decimal(10,2)")


class Statement(_Answered):
    """One statement, at work or ended."""

    job_id: str
    session_id: str | None
    status: JobStatus
    sql: str = Field(description="Passwords in it are masked")
    vcluster: str
    query_tag: str | None
    progress: ProgressNow | None = Field(description="What it does now; null before it runs and after it ended")
    phases: dict[str, float] = Field(description="Seconds of each phase")
    columns: list[ColumnInfo] | None = Field(description="null until it succeeded, and when its result is gone")
    row_count: int | None
    truncated: bool = Field(description="Whether there were more rows than the server keeps of a result")
    error: Fault | None
    start_time: datetime | None
    end_time: datetime | None


class Rows(_Answered):
    columns: list[ColumnInfo]
    rows: list[list[Any]]
    next_offset: int | None = Field(description="Where the next page begins; null after the last")


class Names(_Answered):
    names: list[str]


class Health(_Answered):
    status: Literal["ok", "starting", "degraded"]
