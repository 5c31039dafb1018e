"""`headrace up` as a real program, with its own lake and port, and what it takes to talk to it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

PROGRAM = [sys.executable, "-m", "headrace.cli.main"]
QUICK = {
    "HEADRACE_DRIVER_MEMORY": "1g",
    "HEADRACE_SPARK_MASTER": "local[2]",
    "HEADRACE_SPARK_SETTINGS": json.dumps(
        {
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.shuffle.partitions": "1",
        }
    ),
}
FINISHED = ("SUCCEED", "FAILED", "CANCELLED")
START_SECONDS = 240
REQUEST_SECONDS = 180


@dataclass
class Server:
    """The running program, and what it takes to talk to it."""

    process: subprocess.Popen[bytes]
    lake: Path
    output: Path
    environment: dict[str, str]
    url: str = ""
    token: str = ""
    _session: str | None = field(default=None, repr=False)

    def said(self) -> str:
        return self.output.read_text("utf-8", "replace")

    def told(self) -> str:
        """What it said, for the message of a failed test."""
        log = self.lake / "logs" / "headrace.log"
        tail = log.read_text("utf-8", "replace")[-2000:] if log.exists() else "no log"
        return f"{self.said()[-3000:]}\n--- {log}\n{tail}"

    def request(self, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        with httpx.Client(trust_env=False, timeout=REQUEST_SECONDS) as client:
            return client.request(method, f"{self.url}{path}", json=body, headers=headers)

    def answered(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.request(method, path, body)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}\n{self.told()}"
        return answer.json() if answer.content else None

    def login(self, password: str) -> None:
        self.token = ""
        self.token = self.answered("POST", "/v1/login", {"username": "admin", "password": password})["token"]
        self._session = None

    def login_as_owner(self) -> None:
        """As the command line does on this machine, by the token that the lake's files have."""
        self.token = json.loads((self.lake / "server.json").read_text("utf-8"))["token"]
        self._session = None

    def send(self, table: str, batch_id: str, rows: bytes) -> dict[str, Any]:
        """Send a batch of rows, as JSON lines."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/x-ndjson"}
        with httpx.Client(trust_env=False, timeout=REQUEST_SECONDS) as client:
            answer = client.post(
                f"{self.url}/v1/tables/{table}/rows", params={"batch_id": batch_id}, content=rows, headers=headers
            )
        assert answer.is_success, f"{table}: {answer.status_code} {answer.text}\n{self.told()}"
        receipt: dict[str, Any] = answer.json()
        return receipt

    def session(self) -> str:
        if self._session is None:
            self._session = self.answered("POST", "/v1/sessions", {})["session_id"]
        return self._session

    def submit(self, text: str, wait_seconds: float = 0, session: str | None = None) -> dict[str, Any]:
        path = f"/v1/sessions/{session or self.session()}/statements"
        statement: dict[str, Any] = self.answered("POST", path, {"sql": text, "wait_seconds": wait_seconds})
        return statement

    def finished(self, statement: dict[str, Any], seconds: float = 240) -> dict[str, Any]:
        """The statement, once it has ended."""
        deadline = time.monotonic() + seconds
        while statement["status"] not in FINISHED:
            assert time.monotonic() < deadline, f"{statement}\n{self.told()}"
            statement = self.answered("GET", f"/v1/statements/{statement['job_id']}?wait_seconds=20")
        return statement

    def rows(self, text: str, session: str | None = None) -> list[list[Any]]:
        """Run a statement that must succeed."""
        statement = self.finished(self.submit(text, 30, session))
        assert statement["status"] == "SUCCEED", f"{text}: {statement}\n{self.told()}"
        found: list[list[Any]] = self.answered("GET", f"/v1/statements/{statement['job_id']}/rows")["rows"]
        return found

    def running(self, text: str) -> dict[str, Any]:
        """A statement of a session of its own, at work."""
        session = self.answered("POST", "/v1/sessions", {})["session_id"]
        statement: dict[str, Any] = self.answered("POST", f"/v1/sessions/{session}/statements", {"sql": text})

        def at_work() -> bool:
            statement.update(self.answered("GET", f"/v1/statements/{statement['job_id']}"))
            return statement["status"] not in ("SETUP", "RESUMING_CLUSTER", "QUEUED")

        until(at_work, self.told)
        assert statement["status"] == "RUNNING", f"{statement}\n{self.told()}"
        return statement

    def job_status(self, job_id: str) -> str:
        ((status,),) = self.rows(f"SELECT status FROM (SHOW JOBS WHERE job_id = '{job_id}')")
        return str(status)


def until(condition: Callable[[], bool], otherwise: Callable[[], str], seconds: float = START_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(0.05)


def healthy(server: Server) -> bool:
    try:
        return bool(server.request("GET", "/health").json() == {"status": "ok"})
    except (httpx.HTTPError, ValueError):
        return False


@contextmanager
def started(folder: Path, number: str, before: str = "", **settings: str) -> Iterator[Server]:
    """The program, ready. `before` is a shell command that runs first, in the same mount namespace (see `unshare`)."""
    lake = folder / "lake"
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")}
    environment = kept | QUICK | {"HEADRACE_PATH": str(lake), "HEADRACE_PORT": "0"} | settings
    command = [*PROGRAM, "up"]
    if before:
        command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
                   f"{before} && exec {shlex.join(command)}"]  # fmt: skip
    output = folder / f"up-{number}.out"
    with output.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
    server = Server(process, lake, output, environment)
    try:
        until(lambda: _knows_address(server), server.told)
        until(lambda: "Ready." in server.said(), server.told)
        assert healthy(server), server.told()
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _knows_address(server: Server) -> bool:
    assert server.process.poll() is None, f"ended with {server.process.returncode}:\n{server.told()}"
    try:
        found = json.loads((server.lake / "server.json").read_text("utf-8"))
    except FileNotFoundError:
        return False
    server.url = found["url"]
    return bool(found["pid"] == server.process.pid)


def program(server: Server, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Another command of the program, as a user types it next to the running server."""
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=server.lake.parent, env=server.environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
