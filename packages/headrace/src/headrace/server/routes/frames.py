"""DataFrames that clients recorded: an action on one is a job like a statement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from headrace.server.models import ShortText, Statement, WaitSeconds
from headrace.server.problems import PROTECTED, declared
from headrace.server.routes import SessionId, TheCaller, TheService, address_of, protected
from headrace.server.statements import About

if TYPE_CHECKING:
    from headrace.compute.clusters import LiveJob

_RELEASED_AT_ONCE = 1000

router = APIRouter(prefix="/v1", tags=["frames"], dependencies=protected)


class FrameRequest(BaseModel):
    """Written by `headrace.session`; the form is that of its own version."""

    model_config = ConfigDict(
        extra="forbid",
        hide_input_in_errors=True,
        json_schema_extra={
            "examples": [
                {
                    "plan": {"format": 1, "nodes": [{"op": "query", "text": "SELECT 1 AS n"}]},
                    "action": {"name": "count", "arguments": []},
                    "wait_seconds": 10,
                }
            ]
        },
    )

    plan: dict[str, Any] = Field(description="The DataFrame: calls as a list of nodes, each naming earlier ones")
    action: dict[str, Any] = Field(description="What to do with it: name and arguments")
    release: Annotated[list[ShortText], Field(max_length=_RELEASED_AT_ONCE)] = Field(
        default=[], description="Kept results that the client no longer needs"
    )
    wait_seconds: WaitSeconds = 0
    query_tag: ShortText | None = None


@router.post(
    "/sessions/{session_id}/frames",
    summary="Run an action on a DataFrame",
    responses=declared(*PROTECTED, 403, 404, 409, 429),
)
async def act(
    session_id: SessionId, asked: FrameRequest, service: TheService, caller: TheCaller, request: Request
) -> Statement:
    """Runs an action on a recorded DataFrame and waits at most `wait_seconds` for its end; `headrace.session.Session`
    uses this, other programs send SQL."""
    # It loads PySpark, which a server has only once its lake is open.
    from headrace.session.replaying import work_of

    session = service.sessions.find(session_id, caller.principal)
    work = await service.off_loop(lambda: work_of(asked.plan, asked.action, asked.release))

    def submit() -> tuple[LiveJob, About]:
        live = session.session.submit_work(work.run, text=work.text, query_tag=asked.query_tag)
        return live, About(address=address_of(request))

    return await service.run(caller, session, submit, wait_seconds=asked.wait_seconds)
