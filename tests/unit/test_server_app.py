"""The server over HTTP, on a lake without Spark."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import httpx
import pyarrow as pa
import pytest
from fastapi import HTTPException

from headrace.catalog.records import ApiToken, AuditEntry, User
from headrace.compute.jobs import LONGEST_TEXT
from headrace.errors import EnvironmentFault
from headrace.loading.committer import Condition
from headrace.names import TableName
from headrace.recording.plans import from_json
from headrace.result import Result, done, from_rows
from headrace.security import passwords, tokens
from headrace.security.roles import Principal
from headrace.server import service as service_module
from headrace.server import sessions as sessions_module
from headrace.server import statements as statements_module
from headrace.server.gates import BODY_LIMIT, BodyLimit
from headrace.server.models import LoginRequest, SessionRequest, StatementRequest
from headrace.server.routes.frames import FrameRequest
from headrace.server.service import Service
from served import Client, PlainLake, listening, logged_in, plain_service

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


class Served:
    def __init__(self, url: str, service: Service, lake: PlainLake, password: str) -> None:
        self.url, self.service, self.lake, self.password = url, service, lake, password

    def admin(self) -> Client:
        return Client(self.url, self.service.local_token)

    def user(self, name: str, role: Any = "analyst", created_at: datetime = NOW) -> None:
        hashed = passwords.hashed(f"{name}-password")
        self.lake.store.users.put(User(name=name, role=role, password_hash=hashed, created_at=created_at), new=True)

    def role(self, name: str, role: Any) -> None:
        user = self.lake.store.users.user(name)
        assert user is not None
        self.lake.store.users.put(user.model_copy(update={"role": role}), new=False)

    def client(self, name: str, role: Any = "analyst") -> Client:
        if self.lake.store.users.user(name) is None:
            self.user(name, role)
        return logged_in(self.url, name, f"{name}-password")

    def audited(self) -> list[tuple[str, str]]:
        return [(entry.action, entry.user) for entry in self.lake.store.users.audited(100)]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with plain_service(tmp_path, result_rows_max=1000) as (service, lake, password), listening(service) as url:
        yield Served(url, service, lake, password)
        lake.go_on.set()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """For tests that leave nothing behind."""
    folder = tmp_path_factory.mktemp("shared")
    with plain_service(folder) as (service, lake, password), listening(service) as url:
        yield Served(url, service, lake, password)


def until(happened: Callable[[], bool]) -> None:
    limit = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < limit
        time.sleep(0.02)


def code(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()) == {"error"}
    return answer.status_code, answer.json()["error"]["code"]


# ---------------------------------------------------------------------- who is there


def test_the_first_password_logs_the_administrator_in(served: Served) -> None:
    answer = httpx.post(f"{served.url}/v1/login", json={"username": "Admin", "password": served.password})
    told = answer.json()
    assert (told["username"], told["role"]) == ("admin", "admin")
    assert datetime.fromisoformat(told["expires_at"]) > datetime.now(timezone.utc) + timedelta(hours=11)
    assert Client(served.url, told["token"]).http.get("/v1/sessions").json() == {"sessions": []}
    assert ("LOGIN", "admin") in served.audited()
    assert served.lake.store.users.user("admin").last_login is not None  # type: ignore[union-attr]


def test_a_second_start_makes_no_password(served: Served) -> None:
    assert Service(served.service.settings).begin(served.lake) is None  # type: ignore[arg-type]


def test_the_program_of_a_task_has_a_token_while_it_runs(served: Served) -> None:
    maker = Principal("op", "developer")
    with served.service.task_access(maker) as nothing:
        assert nothing == {}, "nobody listens yet, as far as it knows"
    served.service.url = served.url
    served.user("op", "operator")
    with served.service.task_access(maker) as variables:
        assert variables["HEADRACE_SERVICE"] == served.url
        token = variables["HEADRACE_TOKEN"]
        assert Client(served.url, token).http.get("/v1/sessions").status_code == 200
        caller = served.service.authenticator.known(token)
        assert caller is not None
        assert caller.principal == Principal("op", "developer", by_token=True)
    assert code(Client(served.url, token).http.get("/v1/sessions")) == (401, "UNAUTHENTICATED")
    with served.service.task_access(Principal("root", "admin", unlimited=True)) as variables:
        caller = served.service.authenticator.known(variables["HEADRACE_TOKEN"])
        assert caller is not None
        assert caller.principal == Principal("admin", "admin", by_token=True), "never more than the local token"
    assert served.service.authenticator.known(variables["HEADRACE_TOKEN"]) is None


@pytest.mark.parametrize("username", ["admin", "nobody", "ADMIN'; --", "ü" * 255])
def test_a_wrong_password(shared: Served, username: str) -> None:
    answer = httpx.post(f"{shared.url}/v1/login", json={"username": username, "password": "wrong"})
    assert code(answer) == (401, "UNAUTHENTICATED")
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert ("LOGIN_FAILED", username.lower()) in shared.audited()


def test_guessing_is_slowed_down(served: Served) -> None:
    answers = [
        httpx.post(f"{served.url}/v1/login", json={"username": "admin", "password": f"wrong {n}"}) for n in range(7)
    ]
    assert code(answers[-1]) == (429, "TOO_BUSY")
    assert int(answers[-1].headers["Retry-After"]) >= 1


def test_a_login_waits_for_its_turn(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    turns, slept = {"ann": 3.0, "bob": 0.0}, list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    served.user("ann"), served.user("bob")
    monkeypatch.setattr(served.service.authenticator, "turn", lambda name, address: turns[name])
    monkeypatch.setattr(service_module.anyio, "sleep", sleep)
    served.client("ann"), served.client("bob")
    assert [each for each in slept if each < 15] == [3.0, 0.0]


def test_many_failed_logins_leave_few_lines(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "matches", lambda stored, text: False)
    for number in range(40):
        asked = {"username": f"user {number}", "password": "wrong"}
        assert httpx.post(f"{served.url}/v1/login", json=asked, trust_env=False).status_code == 401
    assert sum(action == "LOGIN_FAILED" for action, _ in served.audited()) == 10
    anyio.run(served.service.drain, 0.0, 5.0)
    assert "30 more since" in served.lake.store.users.audited(1)[0].detail


def test_a_database_that_is_away_does_not_keep_a_server_from_stopping(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = threading.Event()

    def away(_store: Any, *, everything: bool) -> None:
        free.wait(60)
        raise EnvironmentFault("The database is away.")

    monkeypatch.setattr(served.service.authenticator, "write_failures", away)
    anyio.run(served.service.drain, 0.0, 0.1)
    assert served.service.stopped.is_set()
    free.set()
    anyio.run(served.service.drain, 0.0, 10.0)


def test_old_lines_of_the_audit_log_go(tmp_path: Path) -> None:
    with plain_service(tmp_path, audit_days=30) as (service, lake, _):
        for days in (40, 31, 29, 0):
            at = datetime.now(timezone.utc) - timedelta(days=days)
            lake.store.users.audit(AuditEntry(at=at, user=str(days), action="LOGIN", detail=""))
        service.tidy()
        assert [entry.user for entry in lake.store.users.audited(10)] == ["0", "29"]


def test_without_a_login(shared: Served) -> None:
    wrong = ("", "Bearer", "Basic YWRtaW46YWRtaW4=", "Bearer wrong", f"Bearer hr_{'x' * 10_000}", "Bearer é")
    for path in ("/v1/sessions", "/v1/names", "/metrics", "/v1/statements/x", "/nothing", "/v1/login/"):
        for headers in ({}, *({"Authorization": header.encode()} for header in wrong)):
            assert code(httpx.get(shared.url + path, headers=headers)) == (401, "UNAUTHENTICATED")


def test_the_login_is_asked_for_before_the_body_is_read(served: Served) -> None:
    answer = httpx.post(f"{served.url}/v1/sessions", content=b"{", headers={"Content-Type": "application/json"})
    assert code(answer) == (401, "UNAUTHENTICATED")


def test_logging_out(served: Served) -> None:
    client = served.client("ann")
    assert client.http.post("/v1/logout").status_code == 204
    assert code(client.http.get("/v1/sessions")) == (401, "UNAUTHENTICATED")
    assert code(served.admin().http.post("/v1/logout")) == (403, "FORBIDDEN")


def test_api_tokens(served: Served) -> None:
    served.user("ann")
    text, digest = tokens.new()
    old_text, old_digest = tokens.new()
    users = served.lake.store.users
    users.add_token(ApiToken(id="1", user="ann", name="a", digest=digest, created_at=NOW))
    users.add_token(ApiToken(id="2", user="ann", name="b", digest=old_digest, created_at=NOW, expires_at=NOW))
    assert Client(served.url, text).http.get("/v1/names").json() == {"names": ["public", "ann"]}
    assert users.tokens("ann")[0].last_used is not None
    assert code(Client(served.url, old_text).http.get("/v1/names")) == (401, "UNAUTHENTICATED")
    users.drop_token("ann", "a")
    assert code(Client(served.url, text).http.get("/v1/names")) == (401, "UNAUTHENTICATED")


def test_a_body_that_does_not_come_is_not_waited_for_without_end(served: Served) -> None:
    async def reads(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        raise AssertionError("there is nothing to receive")

    async def never() -> Any:
        await anyio.sleep(60)

    async def ask() -> None:
        await BodyLimit(reads, seconds=0.05)({"type": "http", "path": "/v1/login", "headers": []}, never, never)

    with pytest.raises(HTTPException) as refused:
        anyio.run(ask)
    assert refused.value.status_code == 408
    # A body that is whole is the end of it: what comes later is that the client has gone.
    client = served.client("ann")
    assert client.rows(client.run(client.session(), "SELECT 1")["job_id"])["rows"] == [[42]]


def test_a_locked_database_does_not_keep_a_token_from_reading(served: Served) -> None:
    text, digest = tokens.new()
    served.client("ann")
    users = served.lake.store.users
    users.add_token(ApiToken(id="1", user="ann", name="x", digest=digest, created_at=NOW))
    client = Client(served.url, text)
    blocker = sqlite3.connect(served.lake.settings.path / "headrace.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    for _ in range(3):
        assert client.http.get("/v1/names").status_code == 200
    assert time.monotonic() - began < 10
    blocker.rollback()
    blocker.close()
    assert users.tokens("ann")[0].last_used is None


def test_the_use_of_a_token_is_noted_once_a_minute(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    text, digest = tokens.new()
    served.client("ann")
    users = served.lake.store.users
    users.add_token(ApiToken(id="1", user="ann", name="x", digest=digest, created_at=NOW))
    noted: list[str] = []
    monkeypatch.setattr(users, "touch_token", lambda token_id, at: noted.append(token_id))
    client = Client(served.url, text)
    for _ in range(5):
        assert client.http.get("/v1/names").status_code == 200
    assert noted == ["1"]


def test_a_token_does_not_see_what_its_user_was_given(served: Served) -> None:
    client = served.client("ann", "admin")
    job = client.run(client.session(), "SELECT 1")["job_id"]
    assert client.rows(job)["rows"] == [[42]]
    users = served.lake.store.users
    for number, role in enumerate(("analyst", None)):
        text, digest = tokens.new()
        users.add_token(
            ApiToken(id=str(number), user="ann", name=str(number), digest=digest, created_at=NOW, role=role)
        )
        by_token = Client(served.url, text)
        assert code(by_token.http.get(f"/v1/statements/{job}/rows")) == (404, "NOT_FOUND")
        assert code(by_token.http.get(f"/v1/statements/{job}/arrow")) == (404, "NOT_FOUND")
        own = by_token.run(by_token.session(), "SELECT 1")["job_id"]
        assert by_token.rows(own)["rows"] == [[42]]


def test_a_new_password_ends_logins_but_not_sessions(served: Served) -> None:
    before = served.client("ann")
    session = before.session()
    served.lake.access_changed("ann")
    assert code(before.http.get("/v1/sessions")) == (401, "UNAUTHENTICATED")
    assert served.client("ann").run(session, "SELECT 1")["status"] == "SUCCEED"


@pytest.mark.parametrize("alone", [False, True])
def test_who_sets_a_password_of_their_own_stays_logged_in(served: Served, alone: bool) -> None:
    ann, elsewhere = served.client("ann"), served.client("ann")
    asked = {"sql": "ALTER USER ann SET PASSWORD 'another one'", "wait_seconds": 60}
    path = "/v1/statements" if alone else f"/v1/sessions/{ann.session()}/statements"
    job = ann.http.post(path, json=asked).json()["job_id"]
    assert ann.status(job)["status"] == "SUCCEED"
    assert code(elsewhere.http.get("/v1/sessions")) == (401, "UNAUTHENTICATED")


def test_a_session_outlives_the_login_by_which_it_began(served: Served) -> None:
    first, second = served.client("ann"), served.client("ann")
    session = first.session()
    first.http.post("/v1/logout")
    told = second.run(session, "ALTER USER ann SET PASSWORD 'another one'")
    assert second.status(told["job_id"])["status"] == "SUCCEED"


def test_a_password_that_somebody_else_sets_ends_all_logins(served: Served) -> None:
    ann, bob = served.client("ann"), served.client("bob", "admin")
    session = ann.session()
    bob.run(bob.session(), "ALTER USER ann SET PASSWORD 'another one'")
    assert code(ann.http.get(f"/v1/sessions/{session}")) == (401, "UNAUTHENTICATED")
    assert bob.http.get("/v1/sessions").status_code == 200


def test_another_role_ends_the_login_that_set_it(served: Served) -> None:
    bob = served.client("bob", "admin")
    session = bob.session()
    served.role("bob", "developer")
    asked = {"sql": "ALTER USER bob SET ROLE developer", "wait_seconds": 60}
    bob.http.post(f"/v1/sessions/{session}/statements", json=asked)
    assert code(bob.http.get("/v1/sessions")) == (401, "UNAUTHENTICATED")


def test_sessions_of_a_token_end_when_they_may_more_than_their_user(served: Served) -> None:
    served.user("ann", "operator")
    text, digest = tokens.new()
    served.lake.store.users.add_token(
        ApiToken(id="1", user="ann", name="a", digest=digest, created_at=NOW, role="developer")
    )
    client = Client(served.url, text)
    session = client.session()
    served.lake.access_changed("ann")
    assert client.run(session, "SELECT 1")["status"] == "SUCCEED"
    served.role("ann", "analyst")
    served.lake.access_changed("ann")
    assert len(served.service.sessions) == 0


def test_another_role_ends_sessions(served: Served) -> None:
    session = served.client("ann").session()
    served.role("ann", "developer")
    served.lake.access_changed("ann")
    assert code(served.client("ann").http.get(f"/v1/sessions/{session}")) == (404, "NOT_FOUND")


def test_a_dropped_user_has_nothing_left(served: Served) -> None:
    client = served.client("ann")
    session = client.session()
    job = client.run(session, "SELECT 1")["job_id"]
    waiting = client.run(session, "SELECT wait", wait_seconds=0)["job_id"]
    assert served.lake.at_work.acquire(timeout=20)
    served.lake.store.users.drop("ann")
    served.lake.access_changed("ann")
    served.user("ann", created_at=datetime.now(timezone.utc))
    again = served.client("ann")
    for path in (f"/v1/statements/{job}", f"/v1/statements/{job}/rows", f"/v1/statements/{waiting}"):
        assert code(again.http.get(path)) == (404, "NOT_FOUND")
    until(lambda: (ended := served.lake.store.jobs.get(waiting)) is not None and ended.status == "CANCELLED")
    assert again.http.get("/v1/sessions").json() == {"sessions": []}


def test_what_a_dropped_user_still_ran_leaves_no_result(served: Served) -> None:
    client = served.client("ann")
    began, go_on = threading.Event(), threading.Event()

    def stubborn() -> Result:
        began.set()
        assert go_on.wait(20)
        return done("x")

    live = served.lake.compute.submit(stubborn, text="SELECT 1", creator="ann", vcluster="default")
    statements = served.service.statements
    statements.submit(Principal("ann", "analyst"), "s", lambda: (live, statements_module.About()))
    assert client.status(live.id, 0)["status"] in ("QUEUED", "SETUP", "RESUMING_CLUSTER", "RUNNING")
    assert began.wait(20)
    live.cancel = lambda: None  # type: ignore[method-assign]
    served.lake.store.users.drop("ann")
    served.lake.access_changed("ann")
    assert statements.find(live.id, Principal("ann", "analyst")) is None
    go_on.set()
    assert live.wait(20)
    assert live.result is not None
    until(lambda: not list(served.service.settings.path.rglob("*.arrow")))


# ---------------------------------------------------------------------- sessions and statements


def test_a_session_and_a_statement(served: Served) -> None:
    client = served.client("ann")
    told = client.http.post("/v1/sessions", json={"schema": "sales", "query_tag": "report"}).json()
    assert (told["schema"], told["vcluster"], told["timezone"]) == ("main.sales", "default", "UTC")
    statement = client.run(told["session_id"], "SELECT 1")
    assert statement["status"] == "SUCCEED"
    assert statement["columns"] == [{"name": "answer", "type": "bigint"}]
    assert (statement["row_count"], statement["truncated"], statement["error"]) == (1, False, None)
    assert (statement["query_tag"], statement["vcluster"], statement["sql"]) == ("report", "default", "SELECT 1")
    assert client.rows(statement["job_id"]) == {
        "columns": statement["columns"], "rows": [[42]], "next_offset": None
    }  # fmt: skip
    assert client.arrow(statement["job_id"]).to_pylist() == [{"answer": 42}]
    assert client.http.delete(f"/v1/sessions/{told['session_id']}").status_code == 204
    assert code(client.http.get(f"/v1/sessions/{told['session_id']}")) == (404, "NOT_FOUND")


def test_waiting_for_a_statement(served: Served) -> None:
    client = served.client("ann")
    session = client.session()
    job = client.run(session, "SELECT wait", wait_seconds=0)["job_id"]
    assert served.lake.at_work.acquire(timeout=20)
    statement = client.status(job, wait_seconds=0)
    assert (statement["status"], statement["end_time"]) == ("RUNNING", None)
    assert statement["progress"] == {"text": "Waiting", "fraction": 0.5}
    assert code(client.http.get(f"/v1/statements/{job}/rows")) == (409, "NOT_READY")
    assert client.http.get(f"/v1/sessions/{session}").json()["running"] == 1
    with ThreadPoolExecutor(1) as other:
        poll = other.submit(client.status, job)
        served.lake.go_on.set()
        assert poll.result(20)["status"] == "SUCCEED"


def _threads_for_work() -> int:
    return sum(thread.name.startswith("AnyIO") for thread in threading.enumerate())


def test_many_who_wait_take_no_threads(served: Served) -> None:
    client = served.client("ann")
    job = client.run(client.session(), "SELECT wait", wait_seconds=0)["job_id"]
    tracked = served.service.statements.find(job, Principal("ann", "analyst"))
    assert tracked is not None
    before = _threads_for_work()
    with ThreadPoolExecutor(60) as others:
        polls = [others.submit(client.status, job) for _ in range(60)]
        while len(tracked._wake) < 60:
            threading.Event().wait(0.01)
        assert _threads_for_work() - before < 10
        served.lake.go_on.set()
        assert {poll.result(20)["status"] for poll in polls} == {"SUCCEED"}


def test_cancelling(served: Served) -> None:
    client = served.client("ann")
    job = client.run(client.session(), "SELECT wait", wait_seconds=0)["job_id"]
    assert served.lake.at_work.acquire(timeout=20)
    told = client.http.post(f"/v1/statements/{job}/cancel").json()
    assert (told["status"], told["error"]["code"]) == ("CANCELLED", "CANCELLED")
    assert code(client.http.get(f"/v1/statements/{job}/arrow")) == (409, "CANCELLED")
    assert client.http.post(f"/v1/statements/{job}/cancel").json()["status"] == "CANCELLED"


def test_ending_a_session_cancels_what_it_runs(served: Served) -> None:
    client = served.client("ann")
    session = client.session()
    job = client.run(session, "SELECT wait", wait_seconds=0)["job_id"]
    assert served.lake.at_work.acquire(timeout=20)
    client.http.delete(f"/v1/sessions/{session}")
    assert client.status(job)["status"] == "CANCELLED"


@pytest.mark.parametrize(
    ("sql", "status", "error"),
    [("SELECT forbidden", 403, "FORBIDDEN"), ("SELECT oops", 400, "ERROR"), ("SELECT crash", 500, "BUG")],
)
def test_a_statement_that_fails(shared: Served, sql: str, status: int, error: str) -> None:
    client = shared.admin()
    statement = client.run(client.session(), sql)
    assert (statement["status"], statement["error"]["code"], statement["columns"]) == ("FAILED", error, None)
    assert code(client.http.get(f"/v1/statements/{statement['job_id']}/rows")) == (status, error)


@pytest.mark.parametrize("sql", ["", " ", "-- nothing", ";", "SELECT 1; SELECT 2", "SELECT 'x"])
def test_what_is_not_one_statement(shared: Served, sql: str) -> None:
    client = shared.admin()
    answer = client.http.post(f"/v1/sessions/{client.session()}/statements", json={"sql": sql})
    assert code(answer) in [(400, "SYNTAX_ERROR"), (422, "BAD_REQUEST")]


def test_what_is_refused_and_what_changes_access_is_written_down(served: Served) -> None:
    client = served.client("ann", "admin")
    session = client.session()
    for sql in ("SELECT 1", "SELECT forbidden", "/* quietly */ GRANT SELECT ON TABLE t TO bob"):
        client.run(session, sql)
    assert served.audited()[:2] == [("STATEMENT", "ann"), ("REFUSED", "ann")]
    assert served.lake.store.users.audited(1)[0].detail == "succeeded: /* quietly */ GRANT SELECT ON TABLE t TO bob"
    assert served.lake.store.users.audited(1)[0].address == "127.0.0.1"


def test_other_users_see_nothing(served: Served) -> None:
    ann, bob = served.client("ann"), served.client("bob", "admin")
    session = ann.session()
    job = ann.run(session, "SELECT 1")["job_id"]
    assert bob.http.get("/v1/sessions").json() == {"sessions": []}
    for path in (f"/v1/sessions/{session}", f"/v1/statements/{job}", f"/v1/statements/{job}/rows"):
        assert code(bob.http.get(path)) == (404, "NOT_FOUND")
    assert code(bob.http.get(f"/v1/statements/{job}/arrow")) == (404, "NOT_FOUND")
    assert code(bob.http.delete(f"/v1/sessions/{session}")) == (404, "NOT_FOUND")
    assert code(bob.http.post(f"/v1/statements/{job}/cancel")) == (404, "NOT_FOUND")
    answer = bob.http.post(f"/v1/sessions/{session}/statements", json={"sql": "SELECT 1"})
    assert code(answer) == (404, "NOT_FOUND")


def test_a_result_with_more_rows_than_are_kept(served: Served) -> None:
    served.lake.results["SELECT many"] = Result(pa.table({"n": range(1001)}))
    client = served.client("ann")
    statement = client.run(client.session(), "SELECT many")
    assert (statement["row_count"], statement["truncated"]) == (1000, True)
    page = client.rows(statement["job_id"], offset=990, limit=7)
    assert (page["rows"][0], len(page["rows"]), page["next_offset"]) == ([990], 7, 997)
    assert client.rows(statement["job_id"], offset=997)["next_offset"] is None
    assert client.arrow(statement["job_id"]).num_rows == 1000


def test_results_are_let_go(tmp_path: Path) -> None:
    now = [0.0]
    with plain_service(tmp_path, session_idle_seconds=3600) as (service, lake, _):
        service.statements._clock = service.sessions._clock = lambda: now[0]
        with listening(service) as url:
            client = Client(url, service.local_token)
            session = client.session()
            job = client.run(session, "SELECT 1")["job_id"]
            now[0] = 599.0
            service.tidy()
            assert client.rows(job)["rows"] == [[42]]
            now[0] = 1200.0
            service.tidy()
            assert code(client.http.get(f"/v1/statements/{job}/rows")) == (404, "NOT_FOUND")
            record = client.status(job)
            assert (record["status"], record["row_count"], record["columns"]) == ("SUCCEED", 1, None)
            assert list((service.settings.path / "results").iterdir()) == []
            now[0] = 5000.0
            service.tidy()
            assert client.http.get("/v1/sessions").json() == {"sessions": []}
            assert lake.compute.jobs() == []


def test_results_that_need_too_much_room_are_let_go(tmp_path: Path) -> None:
    with plain_service(tmp_path, result_bytes_kept=250_000) as (service, lake, _), listening(service) as url:
        lake.results["SELECT big"] = Result(pa.table({"t": ["x" * 1000] * 100}))
        client = Client(url, service.local_token)
        session = client.session()
        jobs = [client.run(session, "SELECT big")["job_id"] for _ in range(3)]
        client.http.get(f"/v1/sessions/{session}")  # Room is made after the client has its answer.
        statuses = [client.http.get(f"/v1/statements/{job}/rows").status_code for job in jobs]
        assert statuses == [404, 200, 200]
        assert client.status(jobs[0])["status"] == "SUCCEED"


@pytest.mark.parametrize(("bound", "most"), [("_ENDED_BYTES", 60_000), ("_ENDED_KEPT", 3)])
def test_statements_that_have_ended_are_remembered_up_to_a_bound(
    served: Served, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    monkeypatch.setattr(statements_module, bound, most)
    client = served.admin()
    session = client.session()
    text = f"SELECT '{'x' * 15_000}'"
    jobs = [client.run(session, text)["job_id"] for _ in range(5)]
    statements = served.service.statements
    until(lambda: statements._ended_count == 3 and not statements.in_flight())
    statuses = [client.http.get(f"/v1/statements/{job}/rows").status_code for job in jobs]
    assert statuses == [404, 404, 200, 200, 200]
    assert client.status(jobs[0])["status"] == "SUCCEED", "its record is there"
    statements.forget_user("admin")
    assert (statements._ended_count, statements._ended_size) == (0, 0)


def test_a_long_statement_is_kept_in_part(served: Served) -> None:
    client = served.admin()
    text = f"SELECT '{'ü' * 500_000}'"
    told = client.run(client.session(), text)
    assert (told["status"], client.rows(told["job_id"])["rows"]) == ("SUCCEED", [[42]])
    assert told["sql"] == f"{text[:LONGEST_TEXT]}… (500,009 characters)"
    record = served.lake.store.jobs.get(told["job_id"])
    assert record is not None
    assert record.text == told["sql"]


def test_more_connections_than_there_may_be(served: Served) -> None:
    client = served.client("ann")
    served.service.connections = lambda: 1001
    answer = client.http.get("/v1/sessions")
    assert code(answer) == (503, "SERVICE")
    assert (answer.headers["Connection"], answer.headers["X-Frame-Options"]) == ("close", "DENY")
    assert int(answer.headers["Retry-After"]) > 0
    assert answer.json()["error"]["hint"]
    assert client.http.get("/health").status_code == 200
    served.service.connections = lambda: 1000
    assert client.http.get("/v1/sessions").status_code == 200


def test_limits_of_a_user(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements_module, "IN_FLIGHT_PER_USER", 3)
    client = served.client("ann")
    session = client.session()
    jobs = [client.run(session, "SELECT wait", wait_seconds=0)["job_id"] for _ in range(3)]
    asked = {"sql": "SELECT 1", "wait_seconds": 60}
    assert code(client.http.post(f"/v1/sessions/{session}/statements", json=asked)) == (429, "TOO_BUSY")
    other = served.client("bob")
    assert other.run(other.session(), "SELECT 1")["status"] == "SUCCEED"
    served.lake.go_on.set()
    for job in jobs:
        client.status(job)
    assert client.run(session, "SELECT 1")["status"] == "SUCCEED"
    monkeypatch.setattr(sessions_module, "SESSIONS_PER_USER", 3)
    client.session(), client.session()
    answer = client.http.post("/v1/sessions", json={})
    assert code(answer) == (429, "TOO_BUSY")
    client.http.delete(f"/v1/sessions/{session}")
    client.session()


# ---------------------------------------------------------------------- junk


@pytest.mark.parametrize(
    ("content", "kind", "statuses"),
    [
        (b"", "application/json", {422}),
        (b"{", "application/json", {422}),
        (b"\xff\xfe\x00", "application/json", {400}),
        (b'{"sql": "SELECT \xff"}', "application/json", {400}),
        (b"[" * 200_000, "application/json", {400, 422}),
        (b'{"sql": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "application/json", {400, 422}),
        (b'{"sql": "SELECT 1", "wait_seconds": ' + b"9" * 5000 + b"}", "application/json", {400, 422}),
        (b'{"sql": "SELECT 1", "wait_seconds": NaN}', "application/json", {422}),
        (b'{"sql": "SELECT 1", "wait_seconds": 1e999}', "application/json", {422}),
        (b'{"sql": "SELECT 1", "wait_seconds": -1}', "application/json", {422}),
        (b'{"sql": "SELECT \\u0000"}', "application/json", {422}),
        (b'{"sql": "SELECT \\ud800"}', "application/json", {422}),
        (b'{"sql": "SELECT 1", "\\ud800": 1}', "application/json", {422}),
        (b'{"sql": "SELECT 1", "query_tag": "\\udfff"}', "application/json", {422}),
        (b'{"sql": "SELECT 1", "other": 1}', "application/json", {422}),
        (b'{"sql": 7}', "application/json", {422}),
        (b"null", "application/json", {422}),
        (b'{"sql": "SELECT 1"}', "text/plain", {422}),
        (b'{"sql": "SELECT 1"}', "application/json; charset=\xff", {200, 400, 422}),
        (b'{"sql": "SELECT 1"}', "", {422}),
        (b"sql=x", "application/x-www-form-urlencoded", {422}),
    ],
)
def test_bodies_that_cannot_be_used(shared: Served, content: bytes, kind: str, statuses: set[int]) -> None:
    client = shared.admin()
    session = client.session()
    headers = {"Content-Type": kind.encode("latin-1")}
    answer = client.http.post(f"/v1/sessions/{session}/statements", content=content, headers=headers)
    assert answer.status_code in statuses, answer.text
    if answer.status_code != 200:
        code(answer)


JSON = "application/json"
EXPECTED = "a JSON object with the header Content-Type: application/json is expected."


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        (b"", JSON, f"The request has no body; {EXPECTED}"),
        (b'{"sql": "SELECT 1"}', "", f"The request has no Content-Type; {EXPECTED}"),
        (b'{"sql": "SELECT 1"}', "text/plain; x=y", f"The body has the Content-Type text/plain; {EXPECTED}"),
        (b"[1]", JSON, f"The body is no JSON object; {EXPECTED}"),
        (b"null", JSON, f"The body is no JSON object; {EXPECTED}"),
        (b"{", JSON, "The body is no valid JSON: Expecting property name enclosed in double quotes at character 2."),
        (b"\xff", JSON, f"The body cannot be read as JSON; {EXPECTED[:-1]}, written in UTF-8."),
        (b"{}", JSON, "The field sql is missing."),
        (b'{"sql": "x", "other": 1}', JSON, "The field other is not known here."),
        (b'{"sql": "x", "' + b"y" * 5000 + b'": 1}', JSON, f"The field {'y' * 99}… is not known here."),
        (b'{"sql": 7, "wait_seconds": -1}', JSON, "The field sql: Input should be a valid string; "
         "The field wait_seconds: Input should be greater than or equal to 0."),
        (b'{"sql": "\\u0000"}', JSON,
         "The field sql has a character that cannot be used: NUL, or half of a surrogate pair."),
    ],
)  # fmt: skip
def test_what_is_said_of_a_body_that_cannot_be_used(shared: Served, content: bytes, kind: str, message: str) -> None:
    client = shared.admin()
    headers = {"Content-Type": kind} if kind else {}
    answer = client.http.post(f"/v1/sessions/{client.session()}/statements", content=content, headers=headers)
    assert answer.json()["error"]["message"] == message
    assert "/docs" in answer.json()["error"]["hint"]


def test_what_is_said_of_a_parameter_that_cannot_be_used(shared: Served) -> None:
    answer = shared.admin().http.get("/v1/statements/x?wait_seconds=61")
    assert answer.json()["error"]["message"] == "The parameter wait_seconds: Input should be less than or equal to 60."


def test_a_parameter_that_nobody_knows_is_not_passed_over(shared: Served) -> None:
    http = shared.admin().http
    answer = http.get("/v1/statements/x?wait_second=1")
    assert code(answer) == (422, "BAD_REQUEST")
    told = "The parameter wait_second is not known here. It takes wait_seconds."
    assert answer.json()["error"]["message"] == told
    assert code(http.post("/v1/tables/t/rows?batchid=b", content=b'{"id": 1}')) == (422, "BAD_REQUEST")
    assert code(http.post("/v1/statements?sql=x", json={"sql": "SELECT 1"})) == (422, "BAD_REQUEST")
    assert http.get("/health?probe=1").status_code == 200


@pytest.mark.parametrize("content", [b"", b"{}", b"null"])
def test_a_session_needs_no_body(shared: Served, content: bytes) -> None:
    headers = {"Content-Type": "application/json"} if content else {}
    answer = shared.admin().http.post("/v1/sessions", content=content, headers=headers)
    assert (answer.status_code, answer.json()["schema"]) == (200, "main.public")


def test_a_body_that_is_too_large(shared: Served) -> None:
    client = shared.admin()
    path = f"/v1/sessions/{client.session()}/statements"
    assert code(client.http.post(path, json={"sql": "x" * BODY_LIMIT})) == (413, "TOO_LARGE")

    def piecewise() -> Iterator[bytes]:
        for _ in range(BODY_LIMIT // 65536 + 1):
            yield b" " * 65536

    headers = {"Content-Type": "application/json"}
    assert code(client.http.post(path, content=piecewise(), headers=headers)) == (413, "TOO_LARGE")


@pytest.mark.parametrize(
    "query",
    ["offset=-1", "offset=" + "9" * 5000, "limit=0", "limit=10001", "limit=x", "offset=%00", "offset=%ff", "limit="],
)
def test_parameters_that_cannot_be_used(shared: Served, query: str) -> None:
    client = shared.admin()
    job = client.run(client.session(), "SELECT 1")["job_id"]
    assert code(client.http.get(f"/v1/statements/{job}/rows?{query}")) == (422, "BAD_REQUEST")


@pytest.mark.parametrize("name", ["%00", "%ff", "%ED%A0%80", "x" * 200, "..", "%2e%2e%2f", "'", "%F0%9F%98%80"])
def test_ids_that_nobody_gave(shared: Served, name: str) -> None:
    client = shared.admin()
    for path in (f"/v1/statements/{name}", f"/v1/statements/{name}/rows", f"/v1/sessions/{name}"):
        assert client.http.get(path).status_code in (404, 200 if name == ".." else 404, 405)
    assert client.http.get(f"/docs/{name}").status_code in (404, 307 if name == ".." else 200)


def test_other_methods_and_paths(shared: Served) -> None:
    client = shared.admin()
    answer = client.http.put(f"/v1/sessions/{client.session()}")
    assert code(answer) == (405, "METHOD_NOT_ALLOWED")
    assert answer.headers["Allow"] == "DELETE, GET"
    assert code(client.http.get("/v1/nothing")) == (404, "NOT_FOUND")


def test_the_password_is_not_repeated(shared: Served) -> None:
    answer = httpx.post(f"{shared.url}/v1/login", json={"username": "ann", "password": {"canary": "canary"}})
    assert answer.status_code == 422
    assert "canary" not in answer.text


# ---------------------------------------------------------------------- operation


def test_health(served: Served) -> None:
    answer = httpx.get(f"{served.url}/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
    client = served.client("ann")
    session = client.session()
    served.lake.spark_is_up = False
    answer = httpx.get(f"{served.url}/health")
    assert (answer.status_code, answer.json()) == (503, {"status": "degraded"})
    for path, asked in (("/v1/sessions", {}), (f"/v1/sessions/{session}/statements", {"sql": "SELECT 1"})):
        answer = client.http.post(path, json=asked)
        assert code(answer) == (503, "SERVICE")
        assert int(answer.headers["Retry-After"]) > 0


def test_before_the_lake_is_open(served: Served) -> None:
    with listening(Service(served.service.settings)) as url:
        answer = httpx.get(f"{url}/health")
        assert (answer.status_code, answer.json()) == (503, {"status": "starting"})
        assert code(httpx.post(f"{url}/v1/login", json={"username": "a", "password": "b"})) == (503, "SERVICE")
        assert code(Client(url, "any").http.get("/v1/names")) == (503, "SERVICE")
        assert httpx.get(f"{url}/docs").status_code == 200


def test_the_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """Who logged in or failed to, which statements failed, what the server could not do; nothing of what they hold."""
    caplog.set_level(logging.INFO, logger="headrace")
    client = served.client("ann")
    httpx.post(f"{served.url}/v1/login", json={"username": "ann", "password": "wrong-password"})
    session = client.session()
    client.run(session, "SELECT 1")
    failed = client.run(session, "SELECT oops")["job_id"]
    assert client.http.get("/v1/statements/nothing").status_code == 404
    served.lake.spark_is_up = False
    assert client.http.post("/v1/sessions").status_code == 503
    assert httpx.get(f"{served.url}/health").status_code == 503
    told = [(each.levelname, each.getMessage()) for each in caplog.records if each.name.startswith("headrace.server")]
    assert told == [
        ("INFO", "Login of ann from 127.0.0.1."),
        ("WARNING", "Failed login as ann from 127.0.0.1."),
        ("INFO", f"The statement of job {failed} failed: ERROR."),
        ("WARNING", "POST /v1/sessions: 503 SERVICE"),
    ]


def test_the_metrics(served: Served) -> None:
    client = served.client("ann")
    session = client.session()
    client.run(session, "SELECT 1")
    client.run(session, "SELECT oops")
    served.lake.results["REFRESH DYNAMIC TABLE t"] = from_rows(
        [("refresh_mode", pa.string())], [("NO_DATA",), ("FULL",)]
    )
    client.run(session, "REFRESH DYNAMIC TABLE t")
    httpx.post(f"{served.url}/v1/login", json={"username": "x", "password": "wrong"})
    events = TableName("main", "public", "events")
    served.lake.found = [Condition("1", events, 3, 1, 100, 400.0, is_well=False, trouble="3 rows wait.")]
    answer = client.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    for line in (
        'headrace_statements_total{status="SUCCEED"} 2.0',
        'headrace_statements_total{status="FAILED"} 1.0',
        "headrace_statement_seconds_count 3.0",
        'headrace_refreshes_total{mode="NO_DATA"} 1.0',
        "headrace_logins_failed_total 1.0",
        'headrace_running_jobs{vcluster="default"} 0.0',
        'headrace_queued_jobs{vcluster="default"} 0.0',
        "headrace_sessions 1.0",
        "headrace_spark_up 1.0",
        "headrace_waiting_rows 3.0",
        "headrace_waiting_rows_seconds 400.0",
        "headrace_failing_loads 1.0",
    ):
        assert line in answer.text.splitlines()


def test_only_administrators_see_names_of_tables_in_the_metrics(served: Served) -> None:
    lake: Any = served.lake
    lake.scheduler = SimpleNamespace(status=lambda: SimpleNamespace(ends={"SUCCEED": 1}, runs=[]))
    facts = [
        SimpleNamespace(name="main.public.t", lag_seconds=3.0, on_schedule=True, suspended=False),
        SimpleNamespace(name="main.public.by_hand", lag_seconds=4.0, on_schedule=False, suspended=False),
        SimpleNamespace(name="main.public.paused", lag_seconds=5.0, on_schedule=True, suspended=True),
    ]
    lake.watched = SimpleNamespace(facts=lambda: facts)
    line = 'headrace_lag_seconds{table="main.public.t"} 3.0'
    told = served.admin().http.get("/metrics").text
    assert [each for each in told.splitlines() if each.startswith("headrace_lag_seconds")] == [line]
    told = served.client("ann", "operator").http.get("/metrics").text
    assert "headrace_pending_runs 0.0" in told.splitlines()
    assert "headrace_lag_seconds" not in told
    assert "main.public.t" not in told


def test_the_headers_of_every_answer(shared: Served) -> None:
    for path in ("/health", "/docs", "/nothing", "/openapi.json", "/docs/swagger-ui.css"):
        answer = httpx.get(shared.url + path)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cache-Control"] == "no-store"
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'self'")
        assert "server" not in answer.headers or "uvicorn" in answer.headers["server"]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:8910", 200), ("LOCALHOST", 200), ("evil.example", 400),
        ("127.0.0.1.evil.example", 400), ("", 400), ("10.0.0.1", 400), ("localhost@evil.example", 400),
    ],
)  # fmt: skip
def test_names_of_the_server(shared: Served, host: str, status: int) -> None:
    assert httpx.get(f"{shared.url}/health", headers={"Host": host}).status_code == status


def test_the_pages_about_the_api_need_no_other_machine(shared: Served) -> None:
    page = httpx.get(f"{shared.url}/docs").text
    assert "http" not in page.replace("https://www.w3.org", "")
    assert "<script>" not in page
    for name in ("swagger-ui.css", "swagger-ui-bundle.js", "start.js", "favicon-32x32.png"):
        assert f"/docs/{name}" in page or name == "start.js"
        assert httpx.get(f"{shared.url}/docs/{name}").status_code == 200
    assert httpx.get(f"{shared.url}/docs/openapi.json").json()["openapi"] == "3.0.3"
    assert httpx.get(f"{shared.url}/docs/index.html").status_code == 404


def test_the_entrance_leads_to_the_pages(shared: Served) -> None:
    answer = httpx.get(f"{shared.url}/")
    assert (answer.status_code, answer.headers["Location"]) == (307, "/docs")


def test_the_pages_speak(shared: Served) -> None:
    """Every route has a title, a sentence, and an example of its body that the route takes."""
    described = httpx.get(f"{shared.url}/openapi.json").json()
    viewed = httpx.get(f"{shared.url}/docs/openapi.json").json()
    assert "POST /v1/login" in described["info"]["description"]
    assert "Authorize" in described["info"]["description"]
    titles = set()
    bodies = {}
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            assert operation["description"].endswith("."), (method, path)
            assert " " in operation["summary"], (method, path)
            titles.add(operation["summary"])
            if "application/json" in operation.get("requestBody", {}).get("content", {}):
                content = viewed["paths"][path][method]["requestBody"]["content"]["application/json"]
                bodies[path] = content["example"]
    assert len(titles) == sum(len(operations) for operations in described["paths"].values())
    assert bodies["/v1/sessions/{session_id}/statements"] == {"sql": "SELECT 1", "wait_seconds": 10}
    for model in (LoginRequest, SessionRequest, StatementRequest, FrameRequest):
        for example in described["components"]["schemas"][model.__name__]["examples"]:
            model.model_validate(example)
            assert example in bodies.values() or example == {}
    frame = bodies["/v1/sessions/{session_id}/frames"]
    assert from_json(frame["plan"])


def test_every_route_says_what_it_can_answer(shared: Served) -> None:
    described = httpx.get(f"{shared.url}/openapi.json").json()
    assert "HTTPValidationError" not in described["components"]["schemas"]
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            answers = operation["responses"]
            assert "503" in answers, (method, path)
            for status, answer in answers.items():
                if status in ("200", "204") or path == "/health":
                    continue
                schema = answer["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Problem"}, (method, path, status)
            if path not in ("/health", "/v1/login"):
                assert operation["security"] == [{"HTTPBearer": []}]
                assert "401" in answers
