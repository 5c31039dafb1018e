"""POST /v1/statements: one request runs a statement, as schedulers want it."""

from __future__ import annotations

from pathlib import Path

import pytest

from served import PATIENCE, Client, listening, logged_in, plain_service


def test_one_request_runs_a_statement_and_leaves_no_session(tmp_path: Path) -> None:
    with plain_service(tmp_path) as (service, lake, password), listening(service) as url:
        admin = logged_in(url, "admin", password)

        def ask(sql: str, **more: object) -> dict[str, object]:
            answer = admin.http.post("/v1/statements", json={"sql": sql, "wait_seconds": 30, **more})
            assert answer.status_code == 200, answer.text
            return dict(answer.json())

        done = ask("SELECT 1", schema="other", vcluster="default", query_tag="nightly")
        assert (done["status"], done["error"], done["query_tag"]) == ("SUCCEED", None, "nightly")
        assert admin.rows(str(done["job_id"]))["rows"] == [[42]]
        assert admin.http.get("/v1/sessions").json() == {"sessions": []}

        failed = ask("SELECT oops")
        assert (failed["status"], len(service.sessions)) == ("FAILED", 0)

        waits = ask("SELECT wait", wait_seconds=0)
        assert waits["status"] != "SUCCEED"
        assert lake.at_work.acquire(timeout=PATIENCE)
        assert len(service.sessions) == 1
        lake.go_on.set()
        assert admin.status(str(waits["job_id"]))["status"] == "SUCCEED"
        assert len(service.sessions) == 0


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"sql": "SELEC 1"}, 400), ({"sql": "SELECT 1", "schema": "nowhere"}, 404), ({"sql": "SELECT 1", "x": 1}, 422),
        ({}, 422), ({"sql": "SELECT 1", "vcluster": "nothing"}, 404),
    ],
)  # fmt: skip
def test_what_is_refused_leaves_no_session_either(tmp_path: Path, body: dict[str, object], status: int) -> None:
    with plain_service(tmp_path) as (service, _, password), listening(service) as url:
        assert logged_in(url, "admin", password).http.post("/v1/statements", json=body).status_code == status
        assert Client(url).http.post("/v1/statements", json=body).status_code == 401
        assert len(service.sessions) == 0
