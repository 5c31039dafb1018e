"""A server whose operations database is PostgreSQL, while that is restarted. No Spark is needed for it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from postgres import PostgresServer
from served import Client, PlainLake, listening, plain_service


@pytest.fixture
def served(tmp_path: Path, postgres_url: str) -> Iterator[tuple[Client, PlainLake]]:
    with plain_service(tmp_path, database_url=postgres_url) as (service, lake, _), listening(service) as url:
        yield Client(url, service.local_token), lake


@pytest.fixture
def away(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """The server, for a test to stop; started again at the latest when that is over."""
    stopped: list[bool] = []

    class Away(PostgresServer):
        def stop(self) -> None:
            super().stop()
            stopped.append(True)

        def start(self) -> None:
            if stopped:
                super().start()
                stopped.clear()

    server = Away(postgres.programs, postgres.folder, postgres.user)
    yield server
    server.start()


def test_a_restart_is_waited_for(served: tuple[Client, PlainLake], away: PostgresServer) -> None:
    client, _ = served
    session = client.session()
    assert client.rows(client.run(session, "SELECT 1")["job_id"])["rows"] == [[42]]
    away.stop()
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(client.run, session, "SELECT 1") for _ in range(3)]
        assert client.http.get("/health").status_code == 200, "what needs no database is answered"
        away.start()
        assert [found.result(timeout=60)["status"] for found in waiting] == ["SUCCEED"] * 3


def test_after_its_patience_the_server_says_when_to_come_back(
    served: tuple[Client, PlainLake], away: PostgresServer
) -> None:
    client, lake = served
    session = client.session()
    job = client.run(session, "SELECT wait", wait_seconds=0)["job_id"]
    assert lake.at_work.acquire(timeout=20)
    lake.store._database._patience = 0.5
    away.stop()
    answer = client.http.post(f"/v1/sessions/{session}/statements", json={"sql": "SELECT 1"})
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["Retry-After"]) >= 1
    assert answer.json()["error"]["code"] == "ENVIRONMENT"
    lake.go_on.set()
    ended = client.status(job)
    assert ended["status"] == "SUCCEED", "its end is written down later"
    assert client.rows(job)["rows"] == [["Waited."]]
    away.start()
    assert client.run(session, "SELECT 1")["status"] == "SUCCEED"
    record = lake.store.jobs.get(job)
    assert record is not None
    assert record.status == "SUCCEED"
