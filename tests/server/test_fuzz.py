"""Requests made up from the server's own description, right and wrong ones: whatever comes in, no answer is a 5xx.

Schemathesis makes the requests, hypothesis chooses among them. Most ids are real, so that more is reached than "there
is no such session", and half of the statements are of the kind that breaks parsers.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable


@schemathesis.serializer("application/x-ndjson", "application/vnd.apache.arrow.stream")
def _raw(context: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


EXAMPLES = int(os.environ.get("HEADRACE_TEST_EXAMPLES", "25"))
SEED = int(os.environ.get("HEADRACE_TEST_SEED", "1"))
ANALYST, PASSWORD = "fuzz_analyst", "correct horse 8"
PATIENCE = 120
MODES = {schemathesis.GenerationMode.POSITIVE: 0.6, schemathesis.GenerationMode.NEGATIVE: 0.4}
"""Requests that fit the description, and such that do not, with their shares."""

JUNK = (
    "",
    ";",
    ";;;",
    "SELECT",
    "SELECT 1; SELECT 2",
    "SELECT 'unclosed",
    "SELECT `unclosed",
    "SELECT /* unclosed",
    "SELECT * FROM `a``b`.`c'd`",
    "SELECT * FROM `" + "x" * 255 + "`",
    "SELECT * FROM `" + "x" * 300 + "`.`y`",
    "DROP TABLE IF EXISTS `a'; DROP TABLE b; --`",
    "SELECT '\\u0000' AS `a\nb`",
    "SELECT " + "(" * 300 + "1" + ")" * 300,
    "SELECT " + " + ".join(["1"] * 500),
    "SHOW TABLES LIKE '%\\'",
    "SHOW JOBS WHERE (",
    "SHOW JOBS LIMIT 99999999999999999999",
    "DESC JOB ''",
    "CANCEL JOB '../../etc/passwd'",
    "USE VCLUSTER `no such one`",
    "USE `..`",
    "SET query_tag = '" + "t" * 500 + "'",
    "CREATE TOKEN ''",
    "GRANT SELECT ON TABLE a.b.c.d TO x",
    "CREATE DYNAMIC TABLE ``.`` AS SELECT 1",
    "REFRESH DYNAMIC TABLE `\U0001f600`",
    "SELECT 1 / 0",
    "SELECT CAST('x' AS INT)",
    "SELECT raise_error('no')",
    "SELECT array(1, 2)[5], map('a', 1)['b'], named_struct('a', binary('x'), 'b', NULL)",
    "SELECT DATE '9999-12-31', TIMESTAMP '0001-01-01 00:00:00', INTERVAL '1' DAY, CAST('NaN' AS DOUBLE), 1e308D * 10",
    "SELECT CAST(99999999999999999999999999999999999999 AS DECIMAL(38, 0)), 9223372036854775807, X'00FF', void(1)",
    "EXPLAIN INCREMENTAL SELECT * FROM range(10) TABLESAMPLE (50 PERCENT)",
)

pytestmark = pytest.mark.timeout(900)


@dataclass
class Caller:
    """A logged-in user, and the ids to ask about."""

    url: str
    name: str
    password: str

    def __post_init__(self) -> None:
        self.http = httpx.Client(base_url=self.url, trust_env=False, timeout=PATIENCE)
        self.token = self.new_token()
        self.http.headers["Authorization"] = f"Bearer {self.token}"
        self.session_id = self.new_session()
        ran = self.http.post(f"/v1/sessions/{self.session_id}/statements", json={"sql": "SELECT 1", "wait_seconds": 60})
        assert ran.status_code == 200, ran.text
        self.job_id = str(ran.json()["job_id"])

    def new_token(self) -> str:
        answer = self.http.post("/v1/login", json={"username": self.name, "password": self.password})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["token"])

    def new_session(self) -> str:
        answer = self.http.post("/v1/sessions", json={})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["session_id"])

    def end_other_sessions(self) -> None:
        for found in self.http.get("/v1/sessions").json()["sessions"]:
            if found["session_id"] != self.session_id:
                self.http.delete(f"/v1/sessions/{found['session_id']}")


@pytest.fixture(scope="module")
def analyst(server: Any) -> Iterator[Caller]:
    admin = Caller(server.url, "admin", server.admin_password)
    _ran(admin, f"CREATE USER {ANALYST} WITH PASSWORD '{PASSWORD}' ROLE analyst")
    yield Caller(server.url, ANALYST, PASSWORD)
    # Another session: the fuzzing ends those that are not its own.
    _ran(Caller(server.url, "admin", server.admin_password), f"DROP USER {ANALYST}")


@pytest.fixture(scope="module")
def admin(server: Any) -> Caller:
    return Caller(server.url, "admin", server.admin_password)


def _ran(by: Caller, text: str) -> None:
    answer = by.http.post(f"/v1/sessions/{by.session_id}/statements", json={"sql": text, "wait_seconds": 60})
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "SUCCEED", answer.text


def test_no_5xx_for_an_analyst(analyst: Caller) -> None:
    _fuzz(analyst)


def test_no_5xx_for_an_administrator(admin: Caller) -> None:
    _fuzz(admin)


def _fuzz(caller: Caller) -> None:
    description = caller.http.get("/openapi.json").json()
    schema = schemathesis.openapi.from_dict(description)
    found: dict[str, set[int]] = {}
    for result in schema.get_all_operations():
        operation: Any = cast(Any, result).ok()
        found[operation.label] = _fuzz_operation(caller, operation)
        caller.end_other_sessions()
    assert len(found) == sum(len(methods) for methods in description["paths"].values())
    # A run that asked nothing, or was refused at the door throughout, would prove nothing.
    assert all(found.values()), found
    assert found["POST /v1/sessions/{session_id}/statements"] & {200}, found
    assert found["GET /v1/statements/{job_id}/rows"] & {200}, found
    assert caller.http.get("/health").json() == {"status": "ok"}


def _fuzz_operation(caller: Caller, operation: Any) -> set[int]:
    """The statuses that this operation answered with."""
    seen: set[int] = set()
    target = (operation.method.upper(), operation.path)
    junk = itertools.cycle(JUNK)
    numbers = itertools.count()
    session = requests.Session()
    session.trust_env = False

    def check(case: Any) -> None:
        # Not left to chance: hypothesis likes the simplest, which is no id of anything.
        number = next(numbers)
        if number % 4 != 3:
            _use_real_ids(caller, case, ends=target[0] == "DELETE")
        if number % 2 and isinstance(case.body, dict) and isinstance(case.body.get("sql"), str):
            case.body = {"sql": next(junk), "wait_seconds": 20}
        token = caller.new_token() if target == ("POST", "/v1/logout") else caller.token
        headers = {"Authorization": f"Bearer {token}"}
        answer = case.call(base_url=caller.url, session=session, headers=headers, timeout=PATIENCE)
        seen.add(answer.status_code)
        _require_sound(case, answer)

    try:
        for mode, share in MODES.items():
            _for_each(operation.as_strategy(generation_mode=mode), max(1, round(EXAMPLES * share)), check)
    finally:
        session.close()
    return seen


def _for_each(cases: Any, examples: int, check: Callable[[Any], None]) -> None:
    @seed(SEED)
    @settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )  # fmt: skip
    @given(case=cases)
    def checked(case: Any) -> None:
        check(case)

    with suppress(Unsatisfiable):  # A route without parameters and a login: nothing about it can be wrong.
        checked()


def _use_real_ids(caller: Caller, case: Any, *, ends: bool) -> None:
    ids: dict[str, Callable[[], str]] = {
        "session_id": caller.new_session if ends else lambda: caller.session_id,
        "job_id": lambda: caller.job_id,
    }
    parameters = dict(case.path_parameters or {})
    for name, make in ids.items():
        if name in parameters:
            parameters[name] = make()
    case.path_parameters = parameters


def _require_sound(case: Any, answer: Any) -> None:
    assert answer.status_code < 500, f"{case.as_curl_command()}\n{answer.status_code}: {answer.text[:2000]}"
    if answer.status_code < 400:
        return
    if answer.text.startswith("Invalid HTTP request"):
        return  # The HTTP parser's own words, before any of ours.
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "hint", "position"}, answer.text
    assert error["code"] not in ("BUG", "ERROR"), answer.text
    assert "Traceback" not in answer.text


def test_statements_of_junk(analyst: Caller, admin: Caller) -> None:
    """Each of them, from both: a typed error or an answer, and the session goes on."""
    for caller in (analyst, admin):
        path = f"/v1/sessions/{caller.session_id}/statements"
        for text in (*JUNK, "SELECT '\0'", "\ufeff", "\u202eSELECT 1", "SELECT 1 AS `\u0301`"):
            answer = caller.http.post(path, json={"sql": text, "wait_seconds": 60})
            assert answer.status_code < 500, f"{text[:100]!r}: {answer.text}"
            error = answer.json().get("error")
            if error is not None:
                assert error["code"] not in ("BUG", "ERROR"), f"{text[:100]!r}: {answer.text}"
                assert error["message"], f"{text[:100]!r}: {answer.text}"
        _ran(caller, "SELECT 1")


def test_bodies_that_are_no_json(analyst: Caller) -> None:
    path = f"/v1/sessions/{analyst.session_id}/statements"
    headers = {"Content-Type": "application/json"}
    bodies = (
        b"", b"null", b"[]", b"{", b'"x"', b"\xff\xfe", b'{"sql": 1}', b'{"sql": "\\ud800"}', b"[" * 100_000,
        b'{"sql": "SELECT 1", "wait_seconds": NaN}', b'{"sql": "SELECT 1", "wait_seconds": 1e400}',
        b'{"sql": "SELECT 1", "sql": 2}',
    )  # fmt: skip
    for body in bodies:
        answer = analyst.http.post(path, content=body, headers=headers)
        assert 400 <= answer.status_code < 500, f"{body[:50]!r}: {answer.status_code} {answer.text[:500]}"
        assert answer.json()["error"]["message"]
    too_large = analyst.http.post(path, content=b'{"sql": "' + b"x" * (9 << 20) + b'"}', headers=headers)
    assert too_large.status_code == 413, too_large.text[:500]
    _ran(analyst, "SELECT 1")
