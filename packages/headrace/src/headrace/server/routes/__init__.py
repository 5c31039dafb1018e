"""One file a noun. What they share: the service, the caller and the caller's address, out of a request."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends, Path, Query, Request, Security
from fastapi.security import HTTPBearer

from headrace.server import models
from headrace.server.auth import Caller
from headrace.server.service import Service

# For /openapi.json only: the doorkeeper has asked already.
_bearer = HTTPBearer(auto_error=False, description="The token of a login, an API token, or the local token.")


# What each request depends on is a coroutine: FastAPI would have a thread run a plain function.
async def _service(request: Request) -> Service:
    return cast(Service, request.app.state.service)


async def _caller(request: Request) -> Caller:
    return cast(Caller, request.state.caller)


def address_of(request: Request) -> str:
    """Where the request comes from."""
    return request.client.host if request.client else ""


TheService = Annotated[Service, Depends(_service)]
TheCaller = Annotated[Caller, Depends(_caller)]
WaitSeconds = Annotated[
    float,
    Query(ge=0, le=models.WAIT_LONGEST, allow_inf_nan=False, description="How long to wait for its end"),
]
SessionId = Annotated[str, Path(max_length=models.SHORT)]
JobId = Annotated[str, Path(max_length=models.SHORT)]

protected = [Security(_bearer)]
