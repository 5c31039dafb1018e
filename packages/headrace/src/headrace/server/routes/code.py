"""Python code on the server's Spark: a piece of it is a job like a statement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from headrace.server.models import ShortText, Statement, WaitSeconds
from headrace.server.problems import PROTECTED, declared
from headrace.server.routes import SessionId, TheCaller, TheService, address_of, protected
from headrace.server.statements import About

if TYPE_CHECKING:
    from headrace.compute.clusters import LiveJob

_LONGEST = 1024 * 1024

router = APIRouter(prefix="/v1", tags=["code"], dependencies=protected)


class CodeRequest(BaseModel):
    """A model of dbt's, or any other piece of Python."""

    model_config = ConfigDict(
        extra="forbid",
        hide_input_in_errors=True,
        json_schema_extra={
            "examples": [
                {
                    "code": "_headrace.save(_headrace.table('orders').distinct(), 'orders_once')",
                    "name": "orders_once",
                    "wait_seconds": 10,
                }
            ]
        },
    )

    code: Annotated[str, Field(pattern=r"^[^\x00]*$", min_length=1, max_length=_LONGEST, description="Python")]
    name: ShortText = Field(description="What it is called in SHOW JOBS and in errors")
    wait_seconds: WaitSeconds = 0
    query_tag: ShortText | None = None


@router.post(
    "/sessions/{session_id}/python",
    summary="Run Python on the server's Spark",
    responses=declared(*PROTECTED, 403, 404, 409, 429),
)
async def run(
    session_id: SessionId, asked: CodeRequest, service: TheService, caller: TheCaller, request: Request
) -> Statement:
    """Runs Python code beside Spark and waits at most `wait_seconds` for its end. It is code on the server's machine:
    the server must allow it (`code_tasks`), and the user must be an operator."""
    # It loads PySpark, which a server has only once its lake is open.
    from headrace.session.code import work_of

    session = service.sessions.find(session_id, caller.principal)
    work = work_of(asked.code, asked.name)

    def submit() -> tuple[LiveJob, About]:
        live = session.session.submit_work(work.run, text=work.text, query_tag=asked.query_tag)
        return live, About(address=address_of(request), code=work.digest)

    return await service.run(caller, session, submit, wait_seconds=asked.wait_seconds)
