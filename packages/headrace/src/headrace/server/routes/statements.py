"""Statements: running them, waiting for them, fetching what they gave."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.concurrency import iterate_in_threadpool
from starlette.responses import JSONResponse, Response, StreamingResponse

from headrace.server import models
from headrace.server.models import LoneStatementRequest, Rows, Statement, StatementRequest
from headrace.server.problems import PROTECTED, declared
from headrace.server.routes import JobId, SessionId, TheCaller, TheService, WaitSeconds, address_of, protected
from headrace.server.service import Service
from headrace.server.statements import recorded

ARROW = "application/vnd.apache.arrow.stream"
_CANCEL_SECONDS = 2.0
_OUTCOMES = (403, 404, 409, 429)
"""What a statement that failed, or has not ended, makes of a request for its rows."""

router = APIRouter(prefix="/v1", tags=["statements"], dependencies=protected)


@router.post("/sessions/{session_id}/statements", summary="Run a statement", responses=declared(*PROTECTED, *_OUTCOMES))
async def run(
    session_id: SessionId, asked: StatementRequest, service: TheService, caller: TheCaller, request: Request
) -> Statement:
    """Runs one statement and waits at most `wait_seconds` for its end; one that fails is an answer as well, with the
    status FAILED and an error."""
    session = service.sessions.find(session_id, caller.principal)
    if service.authenticator.logins.find(session.login) is None:
        session.login = caller.digest  # The login by which the session began has run out.
    return await service.execute(
        caller,
        session,
        asked.sql,
        wait_seconds=asked.wait_seconds,
        query_tag=asked.query_tag,
        address=address_of(request),
    )


@router.post("/statements", summary="Run a statement without a session", responses=declared(*PROTECTED, *_OUTCOMES))
async def run_alone(asked: LoneStatementRequest, service: TheService, caller: TheCaller, request: Request) -> Statement:
    """Runs one statement in a session of its own, which ends with it, and waits at most `wait_seconds` for its end: one
    request for schedulers and scripts. One that fails is an answer as well, with the status FAILED and an error."""
    return await service.execute_alone(caller, asked, address=address_of(request))


@router.get("/statements/{job_id}", summary="Ask how far a statement is", responses=declared(*PROTECTED, 404))
async def status(job_id: JobId, service: TheService, caller: TheCaller, wait_seconds: WaitSeconds = 0) -> Statement:
    """Describes the statement as it is now, or when it has ended within `wait_seconds`."""
    tracked = service.tracked(job_id, caller.principal)
    if tracked is None:
        return recorded(await service.record(job_id, caller.principal))
    return await service.waited(tracked, wait_seconds)


@router.get(
    "/statements/{job_id}/rows",
    summary="Fetch a page of rows",
    response_model=Rows,
    response_class=JSONResponse,
    responses=declared(*PROTECTED, *_OUTCOMES),
)
async def rows(
    job_id: JobId,
    service: TheService,
    caller: TheCaller,
    offset: Annotated[int, Query(ge=0, le=models.LARGEST_OFFSET)] = 0,
    limit: Annotated[int, Query(ge=1, le=models.PAGE_ROWS)] = 1000,
) -> Response:
    """Gives a page of the result's rows as JSON; it may be shorter than `limit`: go on at `next_offset`."""
    kept = (await service.required(job_id, caller.principal)).kept()
    page = await service.off_loop(lambda: service.statements.files.page(kept, offset, limit))
    return Response(page, media_type="application/json")


@router.get(
    "/statements/{job_id}/arrow",
    summary="Fetch all rows as Arrow",
    response_class=StreamingResponse,
    responses={200: {"content": {ARROW: {}}, "description": "All rows"}, **declared(*PROTECTED, *_OUTCOMES)},
)
async def arrow(job_id: JobId, service: TheService, caller: TheCaller) -> Response:
    """Gives the whole result as an Arrow IPC stream."""
    kept = (await service.required(job_id, caller.principal)).kept()
    pieces = await service.off_loop(lambda: service.statements.files.stream(kept))
    return StreamingResponse(_until_stopped(service, pieces), media_type=ARROW)


@router.post("/statements/{job_id}/cancel", summary="Cancel a statement", responses=declared(*PROTECTED, 404))
async def cancel(job_id: JobId, service: TheService, caller: TheCaller) -> Statement:
    """Cancels a statement; one that has ended already is left as it is."""
    tracked = service.tracked(job_id, caller.principal)
    if tracked is None:
        return recorded(await service.record(job_id, caller.principal))
    await service.off_loop(tracked.cancel, service.ending)
    return await service.waited(tracked, _CANCEL_SECONDS)


async def _until_stopped(service: Service, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """A stream that is given up breaks off: its reader must not take the part for the whole."""
    async for piece in iterate_in_threadpool(pieces):
        if service.stopped.is_set():
            raise ConnectionAbortedError("The server is stopping.")
        yield piece
