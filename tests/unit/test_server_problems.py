from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from headrace import errors
from headrace.errors import HeadraceError, Position
from headrace.loading import checked
from headrace.server import problems
from headrace.server.problems import answer, fault_of, status_of


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.SyntaxFault("x"), 400),
        (errors.UserError("x"), 400),
        (errors.NotAllowed("x"), 400),
        (errors.Unsupported("x"), 400),
        (errors.Unauthenticated("x"), 401),
        (errors.Forbidden("x"), 403),
        (errors.NotFound("x"), 404),
        (errors.AlreadyExists("x"), 409),
        (errors.Cancelled("x"), 409),
        (errors.TooBusy("x"), 429),
        (errors.EnvironmentFault("x"), 503),
        (errors.ServiceFault("x"), 503),
        (errors.Bug("x"), 500),
    ],
)
def test_status(error: HeadraceError, status: int) -> None:
    assert status_of(error) == status
    assert answer(error).status_code == status


def test_the_form() -> None:
    error = errors.SyntaxFault("What?", hint="That.", position=Position(2, 5))
    assert json.loads(answer(error).body) == {
        "error": {
            "code": "SYNTAX_ERROR", "message": "What?", "hint": "That.", "position": {"line": 2, "column": 5},
        }
    }  # fmt: skip


def test_when_to_try_again() -> None:
    assert answer(errors.TooBusy("x", retry_after=2.1)).headers["Retry-After"] == "3"
    assert answer(errors.TooBusy("x", retry_after=0.0)).headers["Retry-After"] == "1"
    assert int(answer(errors.EnvironmentFault("x")).headers["Retry-After"]) > 0
    assert answer(errors.Unauthenticated("x")).headers["WWW-Authenticate"] == "Bearer"


def test_half_characters_do_not_break_the_answer() -> None:
    assert fault_of(errors.UserError("a\ud800b", hint="\udfff")).message == "a?b"


def test_every_code_is_in_the_documents() -> None:
    def kinds(kind: type[HeadraceError]) -> set[type[HeadraceError]]:
        return {kind}.union(*(kinds(each) for each in kind.__subclasses__()))

    text = (Path(__file__).parents[2] / "docs" / "server.md").read_text("utf-8")
    listed = set(re.findall(r"^\| `([A-Z_]+)` \|", text, re.MULTILINE))
    told = {module.__name__ for module in (errors, problems, checked)}
    codes = {kind.code for kind in kinds(HeadraceError) if kind.__module__ in told}
    assert listed == codes | {"METHOD_NOT_ALLOWED"}
