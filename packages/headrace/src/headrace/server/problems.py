"""Errors as HTTP answers: one form for all, with the status that the kind of error calls for."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from headrace import errors
from headrace.server.models import Fault, Place, Problem

RETRY_SECONDS = 5
"""When to try again what the server cannot do now."""


class NotReady(errors.UserError):
    """The result of a statement that has not ended."""

    code = "NOT_READY"


class BadRequest(errors.UserError):
    """Not what the route takes: the wrong fields, or values outside their bounds."""

    code = "BAD_REQUEST"


class TooLarge(errors.UserError):
    code = "TOO_LARGE"


_STATUS: tuple[tuple[type[errors.HeadraceError], int], ...] = (
    (errors.Unauthenticated, 401),
    (errors.Forbidden, 403),
    (errors.NotFound, 404),
    (errors.AlreadyExists, 409),
    (errors.Cancelled, 409),
    (errors.SessionReset, 409),
    (NotReady, 409),
    (TooLarge, 413),
    (BadRequest, 422),
    (errors.TooBusy, 429),
    (errors.EnvironmentFault, 503),
    (errors.ServiceFault, 503),
    (errors.Bug, 500),
)
_MEANING = {
    400: "The request or the statement cannot be used as it is",
    401: "No login, a wrong one, or one that has run out",
    403: "The user may not do this",
    404: "There is no such thing, or it belongs to another user",
    409: "It does not fit the present state: it exists already, has not ended, or was cancelled",
    413: "The body is larger than the route takes: 8 MiB, or 32 MiB and 100,000 rows of a batch",
    422: "The body or a parameter is not of the form that is asked for",
    429: "A limit is reached; Retry-After says when to try again",
    503: "The server cannot do this now: it starts, stops, or Spark or the database is away; Retry-After says when to "
    "try again",
}
_CODES = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED", 413: TooLarge.code}
_SHOWN_FAULTS = 3
_SHOWN_NAME = 100
_NO_OBJECT = ("model_attributes_type", "model_type", "dict_type")
"""What pydantic calls a body that is not an object."""
_WANTED = "a JSON object with the header Content-Type: application/json is expected"
_LOOK_UP = "/docs shows what each route takes, with an example."
_log = logging.getLogger(__name__)


def status_of(error: errors.HeadraceError) -> int:
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 400)


def sound(text: str) -> str:
    """The text without what UTF-8 cannot write.

    >>> sound("a\\ud800b")
    'a?b'
    """
    return text.encode("utf-8", "replace").decode("utf-8")


def fault_of(error: errors.HeadraceError) -> Fault:
    place = error.position
    return Fault(
        code=error.code,
        message=sound(error.message),
        hint=None if error.hint is None else sound(error.hint),
        position=None if place is None else Place(line=place.line, column=place.column),
    )


def answer(error: errors.HeadraceError) -> Response:
    """The error as an HTTP answer."""
    status = status_of(error)
    headers = {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    elif status == 429:
        after = error.retry_after if isinstance(error, errors.TooBusy) else 1.0
        headers["Retry-After"] = str(max(1, math.ceil(after)))
    elif status == 503:
        headers["Retry-After"] = str(RETRY_SECONDS)
    return _respond(status, fault_of(error), headers)


def reported(error: errors.HeadraceError, scope: Scope) -> Response:
    """The error as the answer to this request. What the server could not do is also said in its log, without the
    message: that may quote data."""
    response = answer(error)
    if response.status_code >= 500:
        level = logging.WARNING if response.status_code == 503 else logging.ERROR
        _log.log(level, "%s %s: %s %s", scope["method"], scope["path"], response.status_code, error.code)
    return response


def declared(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The answers besides success that a route can give, for /openapi.json."""
    return {status: {"model": Problem, "description": _MEANING[status]} for status in sorted(statuses)}


GENERAL = (400, 413, 422, 503)
"""What every route with a body can answer."""
PROTECTED = (*GENERAL, 401)
"""The same for a route that asks who is there."""


# ---------------------------------------------------------------------- handlers of the application


async def on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.HeadraceError)
    return reported(error, request.scope)


async def on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    told = _told(error.errors(), request.headers.get("content-type", ""))
    return answer(BadRequest(told, hint=_LOOK_UP))


async def on_refused(request: Request, error: Exception) -> Response:
    """What the framework itself refuses: unknown paths and methods, bodies that are no JSON."""
    assert isinstance(error, HTTPException)
    status = error.status_code
    headers = dict(error.headers or {})
    message = sound(str(error.detail)).rstrip(".") + "."
    if status == 400:
        message = f"The body cannot be read as JSON; {_WANTED}, written in UTF-8."
    elif status == 404:
        message = "There is nothing at this address."
    elif status == 405:
        headers["Allow"] = ", ".join(_methods(request))
        message = f"{request.method} is not possible here; {headers['Allow']} is."
    code = _CODES.get(status, BadRequest.code)
    return _respond(status, Fault(code=code, message=message, hint="/docs shows every route."), headers)


async def require_known_parameters(request: Request) -> None:
    """A parameter that is misspelt and passed over in silence may be the one that mattered."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute):
        return
    known = _parameters(route.dependant)
    unknown = sorted(set(request.query_params) - known)
    if unknown:
        takes = f"It takes {', '.join(sorted(known))}." if known else "It takes none."
        raise BadRequest(f"The parameter {_shortened(sound(unknown[0]))} is not known here. {takes}", hint=_LOOK_UP)


def _parameters(asked: Dependant) -> set[str]:
    return {field.alias for field in asked.query_params}.union(*(_parameters(part) for part in asked.dependencies))


def _respond(status: int, fault: Fault, headers: dict[str, str]) -> Response:
    return JSONResponse(Problem(error=fault).model_dump(), status_code=status, headers=headers)


def _methods(request: Request) -> list[str]:
    """All that can be done at this path; the framework names those of its first route only."""
    found: set[str] = set()
    for route in (*request.app.state.routes, *request.app.routes):
        pattern = getattr(route, "path_regex", None)
        if pattern is not None and pattern.match(request.scope["path"]):
            found |= set(route.methods or ())
    return sorted(found)


def _told(faults: Sequence[Any], content_type: str) -> str:
    """The first faults of a body or of parameters, each with its place. The values are not repeated: one may be a
    password."""
    parts = [_one_told(fault, content_type) for fault in faults[:_SHOWN_FAULTS]]
    more = len(faults) - len(parts)
    return "; ".join(parts) + (f"; and {more} more." if more else ".")


def _one_told(fault: Any, content_type: str) -> str:
    kind, (source, *inner) = fault["type"], fault["loc"]
    if kind == "json_invalid":
        reason = sound(str(fault.get("ctx", {}).get("error", "")))
        return f"The body is no valid JSON: {reason} at character {inner[0] + 1 if inner else 1}"
    if not inner and kind == "missing":
        return f"The request has no body; {_WANTED}"
    if not inner and kind in _NO_OBJECT:
        return f"{_not_an_object(content_type)}; {_WANTED}"
    noun = "field" if source == "body" else "parameter"
    place = f"The {noun} {_shortened('.'.join(str(part) for part in inner))}"
    if kind == "missing":
        return f"{place} is missing"
    if kind == "extra_forbidden":
        return f"{place} is not known here"
    if kind == "string_pattern_mismatch":
        return f"{place} has a character that cannot be used: NUL, or half of a surrogate pair"
    return f"{place}: {sound(str(fault['msg']))}"


def _not_an_object(content_type: str) -> str:
    kind = content_type.partition(";")[0].strip().lower()
    if not kind:
        return "The request has no Content-Type"
    if kind.startswith("application/") and kind.endswith(("/json", "+json")):
        return "The body is no JSON object"
    return f"The body has the Content-Type {_shortened(kind)}"


def _shortened(text: str) -> str:
    kept = sound(text)
    return kept if len(kept) <= _SHOWN_NAME else f"{kept[: _SHOWN_NAME - 1]}…"
