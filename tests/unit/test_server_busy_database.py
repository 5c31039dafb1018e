"""A server whose operations database takes no writes for a while: who only looks, or cancels, is not kept waiting."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from headrace.catalog.records import ApiToken, Job
from headrace.catalog.store import Store
from headrace.security import tokens
from headrace.server import service as service_module
from served import PATIENCE, Client, listening, plain_service

WAITING = service_module._SUBMITTED_AT_ONCE + 5
NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


@contextmanager
def locked(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Semaphore]:
    """Until the block ends, new jobs cannot be written down. Gives what is released for each that waits."""
    tried, free = threading.Semaphore(0), threading.Event()
    add = store.jobs.add

    def waits(job: Job) -> None:
        tried.release()
        assert free.wait(4 * PATIENCE)
        add(job)

    with monkeypatch.context() as patch:
        patch.setattr(store.jobs, "add", waits)
        try:
            yield tried
        finally:
            free.set()


def test_pages_cancels_and_tokens_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with plain_service(tmp_path) as (service, lake, _), listening(service) as url:
        admin = Client(url, service.local_token)
        admin.http.timeout = 4 * PATIENCE
        session = admin.session()
        ended = admin.run(session, "SELECT 1")
        at_work = admin.run(session, "SELECT wait", wait_seconds=0)
        assert lake.at_work.acquire(timeout=PATIENCE)
        text, digest = tokens.new()
        later = datetime.now(timezone.utc) + timedelta(hours=1)
        lake.store.users.add_token(
            ApiToken(id="t1", user="admin", name="t", digest=digest, created_at=NOW, expires_at=later)
        )
        with ThreadPoolExecutor(WAITING) as clients:
            with locked(lake.store, monkeypatch) as tried:
                waiting = [clients.submit(admin.run, session, "SELECT 2") for _ in range(WAITING)]
                for _ in range(service_module._SUBMITTED_AT_ONCE):
                    assert tried.acquire(timeout=PATIENCE)
                assert admin.rows(ended["job_id"])["rows"] == [[42]]
                assert admin.arrow(ended["job_id"]).num_rows == 1
                assert Client(url, text).http.get("/v1/sessions").status_code == 200
                cancelled = admin.http.post(f"/v1/statements/{at_work['job_id']}/cancel").json()
                assert cancelled["status"] == "CANCELLED"
                assert not any(each.done() for each in waiting)
            assert {each.result()["status"] for each in waiting} == {"SUCCEED"}
