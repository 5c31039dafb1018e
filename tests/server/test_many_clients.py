"""Fifty clients at once: they submit, poll, cancel, hang up and vanish. Nobody sees what belongs to another, nobody
waits for ever, and nothing is left at work."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

CLIENTS = 50
ROUNDS = 6
PEOPLE = tuple(f"crowd_{number}" for number in range(5))
PASSWORD = "correct horse 9"
FINISHED = ("SUCCEED", "FAILED", "CANCELLED")
# One task: a cancelled one must not have kept every core.
LONG = "SELECT max(id % {marker}) FROM range(0, 100000000000000, 1, 1)"
PATIENCE = 240

pytestmark = pytest.mark.timeout(1200)


class Client:
    """One client with a session of its own. `marker` is a number that no other client has."""

    def __init__(self, url: str, user: str, password: str, marker: int) -> None:
        self.marker = marker
        self.setting = marker % 1000 + 1
        self.http = httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE)
        token = self.answered("POST", "/v1/login", {"username": user, "password": password})["token"]
        self.http.headers["Authorization"] = f"Bearer {token}"
        self.session = self.answered("POST", "/v1/sessions", {"query_tag": f"tag {marker}"})["session_id"]

    def answered(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.http.request(method, path, json=body)
        assert answer.is_success, f"{method} {path} {body}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def submit(self, text: str, wait_seconds: float = 0) -> dict[str, Any]:
        path = f"/v1/sessions/{self.session}/statements"
        statement: dict[str, Any] = self.answered("POST", path, {"sql": text, "wait_seconds": wait_seconds})
        assert statement["query_tag"] == f"tag {self.marker}", statement
        assert statement["sql"] == text or "PASSWORD" in text, statement
        assert statement["session_id"] == self.session, statement
        return statement

    def finished(self, statement: dict[str, Any], wait_seconds: float = 10) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        job_id = statement["job_id"]
        while statement["status"] not in FINISHED:
            assert time.monotonic() < deadline, f"{self.marker} waits for {statement}"
            statement = self.answered("GET", f"/v1/statements/{job_id}?wait_seconds={wait_seconds}")
            assert statement["job_id"] == job_id
        return statement

    def rows(self, text: str, wait_seconds: float = 10) -> list[list[Any]]:
        return self.rows_of(self.finished(self.submit(text, wait_seconds)))

    def rows_of(self, statement: dict[str, Any]) -> list[list[Any]]:
        assert statement["status"] == "SUCCEED", statement
        found: list[list[Any]] = self.answered("GET", f"/v1/statements/{statement['job_id']}/rows")["rows"]
        return found

    # ------------------------------------------------------------------ what a client does

    def prepare(self) -> None:
        """The same names as everybody, with values of its own."""
        self.rows(f"CREATE TEMPORARY VIEW mine AS SELECT {self.marker} AS marker")
        self.rows(f"SET spark.sql.shuffle.partitions = {self.setting}")

    def ask(self) -> None:
        expected = [[self.marker, number] for number in range(20)]
        assert self.rows(f"SELECT {self.marker} AS marker, id FROM range(20) ORDER BY id") == expected

    def poll(self) -> None:
        statement = self.submit(f"SELECT {self.marker} * 2 AS twice, count(*) FROM range(1000)")
        assert self.rows_of(self.finished(statement, wait_seconds=0.2)) == [[self.marker * 2, 1000]]

    def look_at_own_state(self) -> None:
        assert self.rows("SELECT marker FROM mine") == [[self.marker]]
        assert self.rows("SET spark.sql.shuffle.partitions")[0][1] == str(self.setting)

    def cancel(self) -> None:
        statement = self.submit(LONG.format(marker=self.marker))
        self.answered("POST", f"/v1/statements/{statement['job_id']}/cancel")
        ended = self.finished(statement)
        assert ended["status"] == "CANCELLED", ended
        assert ended["error"]["code"] == "CANCELLED", ended

    def hang_up(self) -> None:
        """Give up on an answer; the session is as good as before."""
        text = f"SELECT {self.marker}, count(*) FROM range(0, 3000000, 1, 1)"
        path = f"/v1/sessions/{self.session}/statements"
        try:
            self.http.post(path, json={"sql": text, "wait_seconds": 30}, timeout=httpx.Timeout(PATIENCE, read=0.05))
        except httpx.TimeoutException:
            pass
        self.ask()

    def fail(self) -> None:
        ended = self.finished(self.submit(f"SELECT raise_error('marker {self.marker}')", 10))
        assert ended["status"] == "FAILED", ended
        assert f"marker {self.marker}" in ended["error"]["message"], ended

    def work(self) -> None:
        chance = random.Random(self.marker)
        habits: list[Callable[[], None]] = [
            self.ask, self.poll, self.look_at_own_state, self.cancel, self.hang_up, self.fail,
        ]  # fmt: skip
        self.prepare()
        chance.shuffle(habits)
        for number in range(ROUNDS):
            habits[number % len(habits)]()
        self.look_at_own_state()

    def leave(self) -> None:
        """One in five vanishes without a word."""
        if self.marker % 5:
            self.answered("DELETE", f"/v1/sessions/{self.session}")
        self.http.close()


@pytest.fixture(scope="module")
def admin(server: Any) -> Iterator[Client]:
    client = Client(server.url, "admin", server.admin_password, 7)
    for name in PEOPLE:
        client.rows(f"CREATE USER {name} WITH PASSWORD '{PASSWORD}' ROLE developer")
    yield client
    for name in PEOPLE:
        client.rows(f"DROP USER {name}")


def test_fifty_clients(server: Any, admin: Client) -> None:
    faults: list[str] = []
    begin = threading.Barrier(CLIENTS)

    def live(number: int) -> None:
        try:
            begin.wait(PATIENCE)
            client = Client(server.url, PEOPLE[number % len(PEOPLE)], PASSWORD, 1000 + number)
            client.work()
            client.leave()
        except Exception as error:
            faults.append(f"client {number}: {type(error).__name__}: {error}")

    threads = [threading.Thread(target=live, args=(number,), daemon=True) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 900
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    hanging = [number for number, thread in enumerate(threads) if thread.is_alive()]
    assert not faults, "\n".join(faults[:10])
    assert not hanging, f"clients {hanging} wait for ever"
    _nothing_is_left_at_work(admin)


def _nothing_is_left_at_work(admin: Client) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        jobs = admin.rows("SHOW JOBS WHERE status NOT IN ('SUCCEED', 'FAILED', 'CANCELLED')")
        others = [job for job in jobs if str(job[8]) and "SHOW JOBS" not in str(job[8])]
        if not others:
            return
        assert time.monotonic() < deadline, others
        time.sleep(0.2)


def test_results_of_one_session_stay_apart(server: Any, admin: Client) -> None:
    """A session runs one statement after the other: many sent at once all come back, each with its own rows."""
    statements = [admin.submit(f"SELECT {number} AS n") for number in range(40)]
    found = [admin.rows_of(admin.finished(statement)) for statement in statements]
    assert found == [[[number]] for number in range(40)]


def test_polls_of_many_cost_no_threads(server: Any, admin: Client) -> None:
    """A hundred requests that wait for one long statement leave the server free for others."""
    statement = admin.submit(LONG.format(marker=7))
    path = f"/v1/statements/{statement['job_id']}?wait_seconds=60"
    statuses: list[str] = []
    headers = dict(admin.http.headers)

    def wait() -> None:
        with httpx.Client(base_url=server.url, trust_env=False, timeout=PATIENCE, headers=headers) as http:
            statuses.append(http.get(path).json()["status"])

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(100)]
    for thread in threads:
        thread.start()
    other = Client(server.url, PEOPLE[0], PASSWORD, 8)
    other.ask()
    other.leave()
    admin.answered("POST", f"/v1/statements/{statement['job_id']}/cancel")
    for thread in threads:
        thread.join(PATIENCE)
    assert statuses == ["CANCELLED"] * 100
