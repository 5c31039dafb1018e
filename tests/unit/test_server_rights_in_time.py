"""Rights that end while a request is on its way: what counts is what holds when its work begins."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from headrace.catalog.records import ApiToken, User
from headrace.compute.jobs import LiveJob
from headrace.security import passwords, tokens
from headrace.security.roles import Principal
from headrace.server.routes import rows
from headrace.server.service import Service
from served import PATIENCE, PlainLake, PlainSession, listening, logged_in, plain_service

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


class Served:
    """A server whose user eve is an administrator, and what was done in her name."""

    def __init__(self, url: str, service: Service, lake: PlainLake) -> None:
        self.url, self.service, self.lake = url, service, lake
        self.done: list[str] = []
        self.known = threading.Event()
        self._users = lake.store.users
        self._users.put(
            User(name="eve", role="admin", password_hash=passwords.hashed("eve-password"), created_at=NOW), new=True
        )

    def login(self) -> str:
        return str(logged_in(self.url, "eve", "eve-password").http.headers["Authorization"])

    def api_token(self) -> str:
        text, digest = tokens.new()
        self._users.add_token(
            ApiToken(id=digest[:8], user="eve", name="t", digest=digest, created_at=NOW, expires_at=_later())
        )
        return f"Bearer {text}"

    def dropped(self) -> None:
        self._users.drop("eve")
        self.lake.access_changed("eve")

    def demoted(self) -> None:
        self._users.set_role("eve", "analyst")
        self.lake.access_changed("eve")

    def has_another_password(self) -> None:
        self._users.set_password("eve", passwords.hashed("another password"))
        self.lake.access_changed("eve")

    def token_dropped(self) -> None:
        assert self._users.drop_token("eve", "t")

    def slow(self, path: str, body: bytes, authorization: str, kind: str, meanwhile: Callable[[], None]) -> int:
        """The status of a request whose body comes only after something has happened."""
        at = urlsplit(self.url)
        with socket.create_connection((str(at.hostname), int(at.port or 0)), timeout=PATIENCE) as connection:
            head = (
                f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: {authorization}\r\n"
                f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            )
            self.known.clear()
            connection.sendall(head.encode() + body[:1])
            assert self.known.wait(PATIENCE)
            meanwhile()
            connection.sendall(body[1:])
            answer = connection.makefile("rb").readline().split()
        return int(answer[1])


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    with plain_service(tmp_path) as (service, lake, _), listening(service) as url:
        served = Served(url, service, lake)
        caller = service.caller

        async def seen(authorization: str | None) -> Any:
            try:
                return await caller(authorization)
            finally:
                served.known.set()

        def submit(self: PlainSession, text: str, query_tag: str | None = None) -> LiveJob:
            served.done.append(text)
            return plain_submit(self, text, query_tag)

        def load_rows(user: Principal, *_: object) -> None:
            served.done.append("rows")

        plain_submit = PlainSession.submit
        monkeypatch.setattr(PlainSession, "submit", submit)
        monkeypatch.setattr(service, "caller", seen)
        monkeypatch.setattr(lake, "load_rows", load_rows, raising=False)
        monkeypatch.setattr(lake, "require_loadable", lambda *_: None, raising=False)
        yield served
        lake.go_on.set()


STATEMENT = json.dumps({"sql": "SELECT 1", "wait_seconds": 5}).encode()
JSON = "application/json"


@pytest.mark.parametrize("happens", ["dropped", "demoted", "has_another_password"])
@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("/v1/statements", STATEMENT, JSON),
        ("/v1/sessions", b"{ }", JSON),
        ("/v1/tables/events/rows", b'{"id": 1}', rows.JSON_LINES),
    ],
)
def test_a_body_that_comes_after_the_end_of_a_login(
    served: Served, path: str, body: bytes, kind: str, happens: str
) -> None:
    assert served.slow(path, body, served.login(), kind, getattr(served, happens)) == 401
    assert served.done == []
    assert len(served.service.sessions) == 0


@pytest.mark.parametrize("happens", ["dropped", "demoted", "token_dropped"])
def test_a_body_that_comes_after_the_end_of_a_token(served: Served, happens: str) -> None:
    token = served.api_token()
    assert served.slow("/v1/statements", STATEMENT, token, JSON, getattr(served, happens)) == 401
    assert served.done == []


def test_a_statement_for_a_session_after_a_new_password(served: Served) -> None:
    eve = logged_in(served.url, "eve", "eve-password")
    path = f"/v1/sessions/{eve.session()}/statements"
    happens = served.has_another_password
    assert served.slow(path, STATEMENT, eve.http.headers["Authorization"], JSON, happens) == 401
    assert served.done == []


def test_whose_rights_have_not_changed_is_not_asked_again(served: Served) -> None:
    token = served.api_token()
    for authorization in (token, served.login(), f"Bearer {served.service.local_token}"):
        assert served.slow("/v1/statements", STATEMENT, authorization, JSON, lambda: None) == 200
    assert served.done == ["SELECT 1"] * 3


def test_a_session_that_ends_while_a_statement_is_submitted(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who ends a session cancels what is known to run in it; what becomes known a moment later is cancelled then."""
    eve = logged_in(served.url, "eve", "eve-password")
    session_id = eve.session()
    submit = PlainSession.submit

    def ended_meanwhile(self: PlainSession, text: str, query_tag: str | None = None) -> LiveJob:
        live = submit(self, text, query_tag)
        served.demoted()
        return live

    monkeypatch.setattr(PlainSession, "submit", ended_meanwhile)
    answer = eve.http.post(f"/v1/sessions/{session_id}/statements", json={"sql": "SELECT wait", "wait_seconds": 20})
    assert answer.json()["status"] == "CANCELLED", answer.text


def _later() -> datetime:
    return datetime.now(timezone.utc) + timedelta(hours=1)
