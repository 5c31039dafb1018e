"""What every request passes before it reaches a route, and every answer after it.

Plain ASGI: an answer that is streamed is passed on piece by piece.
"""

from __future__ import annotations

import ipaddress
import logging
import re
from collections.abc import Iterable

import anyio
from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.errors import Bug, HeadraceError, ServiceFault, UserError
from headrace.server import problems
from headrace.server.service import Service

MOST_CONNECTIONS = 1000
BODY_LIMIT = 8 * 1024**2
ROWS_LIMIT = 32 * 1024**2
BODY_SECONDS = 60.0
OPEN_PATHS = frozenset({"/", "/health", "/v1/login", "/openapi.json", "/docs"})
OPEN_PREFIX = "/docs/"
_ROWS = re.compile(r"/v1/tables/[^/]+/rows")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_EVERYWHERE = ("0.0.0.0", "::")
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# Swagger's style sheet has its pictures inside it, as data: addresses.
_POLICY = "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
_log = logging.getLogger(__name__)


class SafeHeaders:
    """Every answer says that it is not to be kept, framed or guessed at."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers["Content-Security-Policy"] = _POLICY
            await send(message)

        await self._app(scope, receive, with_headers)


class Faults:
    """An error that nobody expected becomes an answer in the usual form; the log has the rest."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = False

        async def watched(message: Message) -> None:
            nonlocal began
            began = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except HeadraceError as error:
            if began:
                raise
            await problems.reported(error, scope)(scope, receive, send)
        except Exception:
            if began:
                raise  # The connection is cut: half an answer must not look like a whole one.
            _log.exception("%s %s failed.", scope["method"], scope["path"])
            fault = Bug("The server met an error that it does not know.", hint="Its log tells more; please report it.")
            await problems.answer(fault)(scope, receive, send)


class Crowd:
    """No more connections than the server can look after; whoever asks for its health is always told."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._service.connections() > MOST_CONNECTIONS and scope["path"] != "/health":
            fault = ServiceFault(
                f"The server has {MOST_CONNECTIONS:,} connections already.",
                hint="Try again in a few seconds; close connections that are not needed.",
            )
            response = problems.reported(fault, scope)
            response.headers["Connection"] = "close"
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)


class KnownHosts:
    """Only requests that name this server: a page in a browser could otherwise make its own name point here."""

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app = app
        self._names = {name.lower() for name in (*_LOOPBACK, *names)}
        self._any_address = not self._names.isdisjoint(_EVERYWHERE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_known(Headers(scope=scope).get("host", "")):
            fault = UserError(
                "This server is not known by the name in the Host header.",
                hint="Use its address, or add the name to the setting server_hosts.",
            )
            await problems.answer(fault)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_known(self, header: str) -> bool:
        name = _host_name(header)
        if name in self._names:
            return True
        # An address, unlike a name, cannot be made to point elsewhere.
        return self._any_address and _is_address(name)


class BodyLimit:
    """No body is read beyond the limit, whether it says its length or not, nor waited for without end. Batches of rows
    may be larger, and have a time of their own."""

    def __init__(
        self, app: ASGIApp, limit: int = BODY_LIMIT, rows_limit: int = ROWS_LIMIT, seconds: float = BODY_SECONDS
    ) -> None:
        self._app = app
        self._limit = limit
        self._rows_limit = rows_limit
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        rows = _ROWS.fullmatch(scope["path"]) is not None
        limit = self._rows_limit if rows else self._limit
        length = Headers(scope=scope).get("content-length", "")
        if length.isascii() and length.isdigit() and (len(length) > 18 or int(length) > limit):
            await problems.answer(_too_large(limit))(scope, receive, send)
            return
        read, whole = 0, rows
        until = anyio.current_time() + self._seconds

        async def counted() -> Message:
            nonlocal read, whole
            try:
                with anyio.fail_after(None if whole else max(until - anyio.current_time(), 0)):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408, f"The body was not complete within {self._seconds:g} seconds") from None
            whole = whole or not message.get("more_body", False)
            read += len(message.get("body", b""))
            if read > limit:
                # The one kind of error that FastAPI passes on while it reads a body.
                raise HTTPException(413, _too_large(limit).message)
            return message

        await self._app(scope, counted, send)


class Doorkeeper:
    """Nobody gets further without a login, except to the few open paths: a route cannot forget to ask."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not _is_open(scope["path"]):
            try:
                caller = await self._service.caller(Headers(scope=scope).get("authorization"))
            except HeadraceError as error:
                await problems.reported(error, scope)(scope, receive, send)
                return
            scope.setdefault("state", {})["caller"] = caller
        await self._app(scope, receive, send)


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith(OPEN_PREFIX)


def _too_large(limit: int) -> problems.TooLarge:
    return problems.TooLarge(
        f"The body is larger than {limit // 1024**2} MiB.", hint="Load data with files or with several statements."
    )


def _host_name(header: str) -> str:
    """The name in a Host header, without port and brackets."""
    host = header.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
