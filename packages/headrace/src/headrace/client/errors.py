"""The server's errors as the errors that they were there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace import errors
from headrace.errors import HeadraceError, Position, ServiceFault, TooBusy

_BY_STATUS: dict[int, type[HeadraceError]] = {
    400: errors.UserError,
    401: errors.Unauthenticated,
    403: errors.Forbidden,
    404: errors.NotFound,
    409: errors.AlreadyExists,
    429: errors.TooBusy,
}
"""For answers without a code of ours, as a proxy on the way gives them."""


def from_body(body: Any, *, status: int | None = None, retry_after: float | None = None) -> HeadraceError:
    """The error that an answer tells: `{"code", "message", "hint", "position"}`, by itself or under `error`.

    >>> error = from_body({"error": {"code": "NOT_FOUND", "message": "No.", "position": {"line": 2, "column": 5}}})
    >>> type(error).__name__, str(error)
    ('NotFound', 'No. (line 2, column 5)')
    """
    told = body.get("error", body) if isinstance(body, Mapping) else None
    if not isinstance(told, Mapping) or not isinstance(told.get("message"), str):
        return _unknown(status)
    kind = errors.kind_of(str(told.get("code"))) or _BY_STATUS.get(status or 0, _other(status))
    hint = told.get("hint")
    details: dict[str, Any] = {
        "hint": hint if isinstance(hint, str) else None,
        "position": _position(told.get("position")),
    }
    if issubclass(kind, TooBusy) and retry_after is not None:
        details["retry_after"] = retry_after
    error = kind(told["message"], **details)
    if isinstance(told.get("code"), str):
        error.code = told["code"]
    return error


def _other(status: int | None) -> type[HeadraceError]:
    return errors.UserError if status is not None and 400 <= status < 500 else HeadraceError


def _unknown(status: int | None) -> HeadraceError:
    kind = _BY_STATUS.get(status or 0, ServiceFault)
    return kind(
        f"The server answered with status {status}, and not as a Headrace server does.",
        hint="Check the address: another program, or a proxy, may have answered.",
    )


def _position(told: Any) -> Position | None:
    if not isinstance(told, Mapping):
        return None
    line, column = told.get("line"), told.get("column")
    return Position(line, column) if isinstance(line, int) and isinstance(column, int) else None
