"""The application: routes, and what stands before them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from importlib.metadata import PackageNotFoundError, version

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from headrace.errors import HeadraceError
from headrace.server import gates, problems
from headrace.server.routes import code, docs, frames, health, login, metrics, rows, sessions, statements
from headrace.server.service import Service

DESCRIPTION = """\
Run SQL on a Headrace lake over HTTP: log in, begin a session, send statements to it, fetch their rows.

**To try the routes on this page:** send your user name and password to `POST /v1/login`, copy the `token` of its
answer, press the **Authorize** button and paste the token there. An API token (`CREATE TOKEN 'name'`) will do as well.

Every answer that is no success has an `error` with a `code`, a `message` and, where there is one, a `hint`.
"""
ROUTERS = (
    health.router, login.router, sessions.router, statements.router, frames.router, code.router, rows.router,
    metrics.router, docs.router,
)  # fmt: skip


def build(service: Service) -> FastAPI:
    """The application of one server."""

    @contextlib.asynccontextmanager
    async def tidied(_: FastAPI) -> AsyncIterator[None]:
        tidying = asyncio.create_task(service.keep_tidy())
        try:
            yield
        finally:
            tidying.cancel()

    settings = service.settings
    app = FastAPI(
        title="Headrace",
        summary="SQL on an incremental lakehouse.",
        description=DESCRIPTION,
        version=_version(),
        docs_url=None,
        redoc_url=None,
        lifespan=tidied,
        redirect_slashes=False,
        middleware=[  # The first is the outermost.
            Middleware(gates.SafeHeaders),
            Middleware(gates.Faults),
            Middleware(gates.Crowd, service=service),
            Middleware(gates.KnownHosts, names=(settings.host, *settings.server_hosts)),
            Middleware(gates.BodyLimit),
            Middleware(gates.Doorkeeper, service=service),
        ],
        exception_handlers={
            HeadraceError: problems.on_error,
            RequestValidationError: problems.on_invalid,
            HTTPException: problems.on_refused,
        },
    )
    app.state.service = service
    app.state.routes = [route for router in ROUTERS for route in router.routes]
    for router in ROUTERS:
        app.include_router(router, dependencies=[Depends(problems.require_known_parameters)] if router.prefix else [])
    return app


def _version() -> str:
    try:
        return version("headrace")
    except PackageNotFoundError:
        return "0"
