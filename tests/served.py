"""Servers for tests: a real one on a free port in this process, and a lake without Spark for it.

The lake without Spark has a real operations database and real virtual clusters. Only what statements do is made up: a
few words that it knows, each with a result or an error.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

import httpx
import pyarrow as pa
import uvicorn

from headrace import running
from headrace.catalog.store import Store
from headrace.compute.clusters import Compute
from headrace.compute.jobs import LiveJob
from headrace.engine import Lake
from headrace.errors import Forbidden, HeadraceError, NotFound
from headrace.result import Result, done, from_rows
from headrace.security.roles import Principal
from headrace.server.app import build
from headrace.server.service import Service
from headrace.settings import Settings
from headrace.sql.parser import parse
from headrace.storage.lock import LakeLock

PATIENCE = 20.0
PASSWORD = "a password for tests"


class PlainLake:
    """What a server needs of a lake, without Spark."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lock = LakeLock(settings.path).acquire()
        self.store = Store.open(settings.database_url)
        self.compute = Compute(self.store, lambda: datetime.now(timezone.utc), spark=lambda: None)
        self.spark_is_up = True
        self.scheduler = None
        self.loads = self
        self.committer = self
        self.found: list[Any] = []
        """How it is with rows on their way."""
        self.go_on = threading.Event()
        """What WAIT waits for."""
        self.at_work = threading.Semaphore(0)
        """Released whenever a WAIT has begun."""
        self.results: dict[str, Result] = {}
        self.closed = False
        self._listeners: list[Callable[[str], None]] = []

    def session(self, user: Principal, **wanted: Any) -> PlainSession:
        if wanted.get("schema") == "nowhere":
            raise NotFound("There is no schema main.nowhere.")
        return PlainSession(self, user, **wanted)

    def names(self, user: Principal) -> list[str]:
        return ["public", user.name]

    def on_access_changed(self, listener: Callable[[str], None]) -> None:
        self._listeners.append(listener)

    def access_changed(self, user: str) -> None:
        for listener in self._listeners:
            listener(user)

    def keep_spark_alive(self) -> None:
        """There is none."""

    def start(self) -> None:
        """Nothing is loaded."""

    def conditions(self) -> list[Any]:
        return self.found

    def start_scheduler(self, *, guarded: bool) -> None:
        """There is nothing to refresh."""

    def close(self, patience: float = 10.0) -> None:
        self.closed = True
        self.go_on.set()
        self.compute.close(patience)
        self.store.close()
        self._lock.release()


class PlainSession:
    def __init__(self, lake: PlainLake, user: Principal, **wanted: Any) -> None:
        self._lake = lake
        self._user = user
        self._id = wanted.get("session_id")
        self._tag = wanted.get("query_tag")
        self.schema = f"main.{wanted.get('schema') or 'public'}"
        self.vcluster = wanted.get("vcluster") or "default"
        self.closed = False

    def submit(self, text: str, query_tag: str | None = None) -> LiveJob:
        parse(text)
        return self._lake.compute.submit(
            lambda: self._run(text),
            text=text,
            creator=self._user.name,
            vcluster=self.vcluster,
            query_tag=query_tag or self._tag,
            session_id=self._id,
        )

    def close(self) -> None:
        self.closed = True

    def _run(self, text: str) -> Result:
        if text in self._lake.results:
            return self._lake.results[text]
        if text == "SELECT wait":
            running.tell("Waiting", 0.5)
            self._lake.at_work.release()
            while not self._lake.go_on.wait(0.02):
                running.require_wanted()
            return done("Waited.")
        if text == "SELECT forbidden":
            raise Forbidden("You may not.", hint="GRANT SELECT ON TABLE t TO you.")
        if text == "SELECT big_rows":
            return Result(pa.table({"t": ["x" * 1000] * 60_000}))
        if text == "SELECT oops":
            raise HeadraceError("Oops.")
        if text == "SELECT crash":
            raise RuntimeError("A mistake of ours")
        if text.upper().startswith("ALTER USER"):
            self._lake.access_changed(text.split()[2])
            return done("Changed.")
        if text.upper().startswith("GRANT"):
            return done("Granted.")
        return from_rows([("answer", pa.int64())], [(42,)])


@contextmanager
def plain_service(folder: Path, **settings: Any) -> Iterator[tuple[Service, PlainLake, str]]:
    """A service over a lake without Spark, and the first administrator's password."""
    chosen = Settings(path=folder / "lake", **settings)
    service, lake = Service(chosen), PlainLake(chosen)
    try:
        password = service.begin(cast(Lake, lake))
        assert password is not None
        yield service, lake, password
    finally:
        lake.close()


@contextmanager
def listening(service: Service) -> Iterator[str]:
    """The service on a free port of this machine; gives its address."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        build(service), loop="asyncio", ws="none", lifespan="on", log_config=None, access_log=False,
        timeout_graceful_shutdown=2,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    bound.listen()  # From here on connections wait until they are served.
    thread.start()
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        bound.close()


class Client:
    """A user of a server, over HTTP."""

    def __init__(self, url: str, token: str | None = None, name: str = "") -> None:
        self.name = name
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=90, trust_env=False)

    def session(self, **wanted: Any) -> str:
        answer = self.http.post("/v1/sessions", json=wanted)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["session_id"])

    def run(self, session_id: str, sql: str, wait_seconds: float = 60, **more: Any) -> dict[str, Any]:
        asked = {"sql": sql, "wait_seconds": wait_seconds, **more}
        answer = self.http.post(f"/v1/sessions/{session_id}/statements", json=asked)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def status(self, job_id: str, wait_seconds: float = 60) -> dict[str, Any]:
        answer = self.http.get(f"/v1/statements/{job_id}", params={"wait_seconds": wait_seconds})
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def rows(self, job_id: str, **page: int) -> dict[str, Any]:
        answer = self.http.get(f"/v1/statements/{job_id}/rows", params=page)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def arrow(self, job_id: str) -> pa.Table:
        answer = self.http.get(f"/v1/statements/{job_id}/arrow")
        assert answer.status_code == 200, answer.text
        return pa.ipc.open_stream(answer.content).read_all()


def logged_in(url: str, username: str, password: str) -> Client:
    answer = httpx.post(f"{url}/v1/login", json={"username": username, "password": password}, trust_env=False)
    assert answer.status_code == 200, answer.text
    return Client(url, answer.json()["token"], username)


class Server:
    """A running server, and a door for its administrator."""

    def __init__(self, url: str, service: Service, admin_password: str) -> None:
        self.url = url
        self.service = service
        self.admin_password = admin_password
        self.admin = Client(url, service.local_token, "admin")


MakeUser = Callable[..., Client]
