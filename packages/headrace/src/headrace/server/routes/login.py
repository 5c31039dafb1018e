"""Logging in and out."""

from __future__ import annotations

from fastapi import APIRouter, Request

from headrace.errors import Forbidden
from headrace.server.models import Login, LoginRequest
from headrace.server.problems import GENERAL, PROTECTED, declared
from headrace.server.routes import TheCaller, TheService, address_of, protected

router = APIRouter(prefix="/v1", tags=["login"])


@router.post("/login", summary="Log in", responses=declared(*GENERAL, 401, 429))
async def login(asked: LoginRequest, service: TheService, request: Request) -> Login:
    """Gives a token that holds for twelve hours, or until the password changes or the server restarts."""
    return await service.login(asked.username, asked.password, address_of(request))


@router.post("/logout", summary="Log out", status_code=204, dependencies=protected, responses=declared(*PROTECTED, 403))
async def logout(service: TheService, caller: TheCaller) -> None:
    """Ends the login whose token this request bears; its sessions stay until they are idle for too long."""
    if caller.kind != "login":
        raise Forbidden(
            "This request bears no login's token.",
            hint="An API token is ended with DROP TOKEN; the local token ends with the server.",
        )
    service.authenticator.logins.end(caller.digest)
