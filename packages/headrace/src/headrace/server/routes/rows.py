"""Rows for tables: batches that are on disk when they are acknowledged, and in their table a minute later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, cast

import anyio
from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import ClientDisconnect

from headrace.catalog.records import AuditEntry, LoadState
from headrace.errors import Forbidden, TooBusy
from headrace.loading.checked import MOST_ROWS, BatchTooLarge
from headrace.loading.receiving import LONGEST_BATCH_ID, Form, Receipt
from headrace.server.auth import Caller, now
from headrace.server.problems import PROTECTED, BadRequest, TooLarge, declared, sound
from headrace.server.routes import TheCaller, TheService, address_of, protected
from headrace.server.service import Service

if TYPE_CHECKING:
    from headrace.engine import Lake

BODY_LIMIT = 32 * 1024**2
"""Of a batch; other requests are smaller."""
JSON_LINES = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
_FORMS: dict[str, Form] = {
    JSON_LINES: "json",
    "application/jsonl": "json",
    "application/x-jsonlines": "json",
    ARROW: "arrow",
}
_READ_AT_ONCE, _CHECKED_AT_ONCE, _WAITING = 16, 4, 64
_BODY_SECONDS = 60.0
_LONGEST_NAME = 1000

router = APIRouter(prefix="/v1", tags=["rows"], dependencies=protected)


class Loaded(BaseModel):
    """What became of a batch."""

    model_config = ConfigDict(frozen=True)

    batch_id: str
    accepted: int = Field(description="Rows that are in the table, or will be")
    rejected: int = Field(description="Rows that did not fit; <table>_rejects has them, each with its error")
    state: LoadState = Field(description="RECEIVED: safe on disk. COMMITTED: in the table")
    duplicate: bool = Field(description="Whether this batch id had come before: then nothing was done now")


_BODY = {
    "required": True,
    "description": f"At most {MOST_ROWS:,} rows and {BODY_LIMIT // 1024**2} MiB",
    "content": {
        JSON_LINES: {"schema": {"type": "string"}, "example": '{"id": 1, "at": "2026-01-31T10:00:00Z"}\n{"id": 2}\n'},
        ARROW: {"schema": {"type": "string", "format": "binary"}},
    },
}


@router.post(
    "/tables/{name}/rows",
    summary="Send rows to a table",
    responses=declared(*PROTECTED, 403, 404, 409, 429),
    openapi_extra={"requestBody": _BODY},
)
async def load(
    name: Annotated[str, Path(max_length=_LONGEST_NAME, description="table, schema.table or workspace.schema.table")],
    service: TheService,
    caller: TheCaller,
    request: Request,
    batch_id: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=LONGEST_BATCH_ID,
            pattern=r"^[^\x00-\x1f\x7f]*$",
            description="A name for the batch: sent again under the same one, its rows are not loaded twice",
        ),
    ] = None,
) -> Loaded:
    """Takes a batch of rows as JSON lines or as an Arrow stream. When it answers, the rows are on disk and survive a
    crash; they are committed to the table once a minute, or when 100,000 wait."""
    lake = service.accepting()
    form = _form(request)
    slots = _slots(request)
    # Nobody sends 32 MiB, or keeps a slot, only to be told that they may not.
    await _require_allowed(service, lake, caller, request, name)
    if slots.reading.statistics().tasks_waiting >= _WAITING:
        raise TooBusy("Too many batches wait to be read.", hint="Send it again in a moment.", retry_after=2.0)
    async with slots.reading:
        body = await _body(request)

        def taken() -> Receipt:
            service.require_still(caller)
            return lake.load_rows(caller.principal, name, body, form, batch_id)

        async with slots.checking:
            try:
                receipt = await service.off_loop(taken, service.submitting)
            except BatchTooLarge as error:
                raise TooLarge(error.message, hint=error.hint) from None
            except Forbidden:
                await _audit(service, lake, caller, request, name)
                raise
    return _loaded(receipt)


@dataclass(frozen=True)
class _Slots:
    """How many batches are taken in and checked at once: while it is checked, one takes many times its size."""

    reading: anyio.Semaphore
    checking: anyio.Semaphore


def _slots(request: Request) -> _Slots:
    """Those of this server; made when they are needed, in its event loop."""
    state = request.app.state
    if not hasattr(state, "row_slots"):
        state.row_slots = _Slots(anyio.Semaphore(_READ_AT_ONCE), anyio.Semaphore(_CHECKED_AT_ONCE))
    return cast(_Slots, state.row_slots)


async def _require_allowed(service: Service, lake: Lake, caller: Caller, request: Request, name: str) -> None:
    try:
        await service.off_loop(lambda: lake.require_loadable(caller.principal, name))
    except Forbidden:
        await _audit(service, lake, caller, request, name)
        raise


async def _audit(service: Service, lake: Lake, caller: Caller, request: Request, name: str) -> None:
    await service.off_loop(lambda: lake.store.users.audit(_refusal(caller, request, name)), service.submitting)


def _refusal(caller: Caller, request: Request, name: str) -> AuditEntry:
    return AuditEntry(
        at=now(),
        user=caller.principal.name,
        address=address_of(request),
        action="REFUSED",
        detail=f"refused: rows for {sound(name)}",
    )


def _loaded(receipt: Receipt) -> Loaded:
    load = receipt.load
    return Loaded(
        batch_id=load.key,
        accepted=load.rows,
        rejected=load.rejected,
        state=load.state,
        duplicate=receipt.duplicate,
    )


def _form(request: Request) -> Form:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    form = _FORMS.get(kind)
    if form is None:
        what = f"has the Content-Type {sound(kind)[:100]}" if kind else "has no Content-Type"
        raise BadRequest(
            f"The request {what}; {JSON_LINES} or {ARROW} is expected.",
            hint=f"Say what the body is: curl -H 'Content-Type: {JSON_LINES}' --data-binary @rows.jsonl …",
        )
    packed = request.headers.get("content-encoding", "identity").strip().lower()
    if packed != "identity":
        raise BadRequest(f"The body is packed ({sound(packed)[:100]}).", hint="Send it as it is.")
    return form


async def _body(request: Request) -> bytes:
    """All of it, within a time: a client that stops halfway must not keep others waiting."""
    pieces = bytearray()
    try:
        with anyio.fail_after(_BODY_SECONDS):
            async for piece in request.stream():
                pieces += piece
    except TimeoutError:
        late = f"The body was not complete within {_BODY_SECONDS:.0f} seconds."
        raise BadRequest(late, hint="Send less at once, or faster.") from None
    except ClientDisconnect:
        raise BadRequest("The client went away before the body was complete.", hint="Send it again.") from None
    return bytes(pieces)
