"""Sessions: a schema, a virtual cluster, settings and temporary views of one's own."""

from __future__ import annotations

from fastapi import APIRouter

from headrace.server.models import Names, SessionInfo, SessionList, SessionRequest
from headrace.server.problems import PROTECTED, declared, sound
from headrace.server.routes import SessionId, TheCaller, TheService, protected

router = APIRouter(prefix="/v1", tags=["sessions"], dependencies=protected)


@router.post("/sessions", summary="Begin a session", responses=declared(*PROTECTED, 403, 404, 409, 429))
async def begin(service: TheService, caller: TheCaller, asked: SessionRequest | None = None) -> SessionInfo:
    """Begins a session with a current schema, a virtual cluster, settings and temporary views of its own; every field
    of the body, and the body itself, may be left out."""
    wanted = asked or SessionRequest()
    service.accepting()

    def work() -> SessionInfo:
        made = service.begin_session(
            caller, schema=wanted.schema_name, vcluster=wanted.vcluster, query_tag=wanted.query_tag
        )
        return service.sessions.described(made)

    return await service.off_loop(work, service.submitting)


@router.get("/sessions", summary="List your sessions", responses=declared(*PROTECTED))
async def own(service: TheService, caller: TheCaller) -> SessionList:
    """Lists the open sessions of the user who asks."""
    found = service.sessions.of(caller.principal)
    return SessionList(sessions=await service.off_loop(lambda: [service.sessions.described(each) for each in found]))


@router.get("/sessions/{session_id}", summary="Look at a session", responses=declared(*PROTECTED, 404))
async def one(session_id: SessionId, service: TheService, caller: TheCaller) -> SessionInfo:
    """Describes the session as it is now: USE may have changed its schema and virtual cluster."""
    found = service.sessions.find(session_id, caller.principal)
    return await service.off_loop(lambda: service.sessions.described(found))


@router.delete("/sessions/{session_id}", summary="End a session", status_code=204, responses=declared(*PROTECTED, 404))
async def end(session_id: SessionId, service: TheService, caller: TheCaller) -> None:
    """Cancels what the session runs, and ends it."""
    found = service.sessions.find(session_id, caller.principal)
    await service.off_loop(lambda: service.sessions.end(found), service.ending)


@router.get("/names", summary="List schemas and tables", responses=declared(*PROTECTED, 403))
async def names(service: TheService, caller: TheCaller) -> Names:
    """Lists the names of the schemas and tables that the user may see, for completion."""
    lake = service.accepting()
    found = await service.off_loop(lambda: lake.names(caller.principal))
    return Names(names=[sound(name) for name in found])
