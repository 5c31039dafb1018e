"""The client, against a server on a loopback port that has no lake."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace
from headrace import errors, opening, settings
from headrace.client import RemoteLake, RemoteResult, ResultCut, connect
from headrace.client import http as http_module
from headrace.client.errors import from_body
from headrace.client.http import Http
from headrace.session import Session
from headrace.storage import address
from headrace.storage.address import Address
from headrace.storage.lock import LakeLock
from service_double import PASSWORD, TOKEN, Double, Job, losing_answers, serving


@pytest.fixture
def server() -> Iterator[Double]:
    with serving() as double:
        yield double


@pytest.fixture
def lake(server: Double) -> Iterator[RemoteLake]:
    with connect(server.url, token=TOKEN) as lake:
        yield lake


@pytest.fixture
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "PAUSES", (0.0,) * len(http_module.PAUSES))


def until(condition: object) -> None:
    deadline = time.monotonic() + 20
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.005)


# ---------------------------------------------------------------------- results


def test_rows_come_in_the_time_zone_of_the_lake(server: Double, lake: RemoteLake) -> None:
    moment = datetime(2024, 1, 1, tzinfo=timezone.utc)
    server.answer("SELECT now()", pa.table({"at": pa.array([moment], pa.timestamp("us", "UTC"))}))
    result = lake.sql("SELECT now()")
    assert result.rows == [(datetime(2024, 1, 1, 9),)]
    assert isinstance(result, RemoteResult)
    assert result.job_id in server.jobs


def test_a_script_runs_its_statements_in_one_session_and_gives_each_result(server: Double, lake: RemoteLake) -> None:
    statuses = [result.rows[0][0] for result in lake.statements("USE s;\nCREATE TABLE t (a INT); -- that is all")]
    assert statuses == ["USE: done.", "CREATE: done."]
    assert {job.session for job in server.jobs.values()} == {lake.session_id}
    assert lake.sql(" ; -- nothing").rows == [("There was no statement.",)]


def test_the_place_of_an_error_is_that_in_the_whole_script(server: Double, lake: RemoteLake) -> None:
    server.fail("SELEC 2", code="SYNTAX_ERROR", message="No.", hint="SELECT?", position={"line": 1, "column": 1})
    with pytest.raises(errors.SyntaxFault) as caught:
        lake.sql("SELECT 1;\n  SELEC 2; SELECT 3")
    assert (caught.value.position, caught.value.hint) == (errors.Position(2, 3), "SELECT?")
    assert server.submitted() == ["SELECT 1", "SELEC 2"]


def test_many_rows_come_as_a_stream_and_again_when_it_breaks(server: Double, lake: RemoteLake) -> None:
    table = pa.table({"n": range(5000)})
    server.answer("SELECT n", table)
    server.broken_streams = 1
    assert lake.sql("SELECT n").to_arrow() == table
    assert sum(line.endswith("/arrow") for line in server.log) == 2
    assert server.submitted() == ["SELECT n"]


def test_a_result_that_was_cut_says_so(server: Double, lake: RemoteLake) -> None:
    server.answer("SELECT n", pa.table({"n": [1]}), truncated=True)
    with pytest.warns(ResultCut, match="first 1"):
        result = lake.sql("SELECT n")
    assert isinstance(result, RemoteResult)
    assert result.truncated


# ---------------------------------------------------------------------- errors


def every_error(root: type[errors.HeadraceError] = errors.HeadraceError) -> Iterator[type[errors.HeadraceError]]:
    yield root
    for kind in root.__subclasses__():
        if kind.__module__ == "headrace.errors":
            yield from every_error(kind)


@pytest.mark.parametrize("kind", list(every_error()))
def test_every_error_comes_back_as_what_it_was(kind: type[errors.HeadraceError]) -> None:
    error = from_body({"code": kind.code, "message": "m", "hint": "h", "position": {"line": 3, "column": 4}})
    assert (type(error), error.message, error.hint) == (kind, "m", "h")
    assert error.position == errors.Position(3, 4)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (502, None, errors.ServiceFault),
        (200, ["?"], errors.ServiceFault),
        (403, "<html>", errors.Forbidden),
        (422, {"error": {"code": "BAD_REQUEST", "message": "m"}}, errors.UserError),
        (429, {"error": {"code": "TOO_BUSY", "message": "m"}}, errors.TooBusy),
    ],
)
def test_other_answers(status: int, body: object, kind: type[errors.HeadraceError]) -> None:
    error = from_body(body, status=status, retry_after=7)
    assert isinstance(error, kind)
    assert getattr(error, "retry_after", 7) == 7


def test_what_answers_may_be_no_headrace() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def greet() -> None:
            client, _ = other.accept()
            with client:
                client.recv(65536)
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")

        threading.Thread(target=greet, daemon=True).start()
        with pytest.raises(errors.ServiceFault, match="not a Headrace server"):
            connect(f"http://127.0.0.1:{other.getsockname()[1]}", token="t")


def test_https_where_the_server_speaks_http(server: Double) -> None:
    with pytest.raises(errors.ServiceFault, match="does not speak HTTPS") as caught:
        connect(server.url.replace("http://", "https://"), token=TOKEN)
    assert server.url in str(caught.value.hint)


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    with pytest.raises(errors.ServiceFault, match="cannot be reached") as caught:
        connect(f"http://127.0.0.1:{port}", token="t")
    assert "headrace up" in str(caught.value.hint)


@pytest.mark.parametrize(
    "url", ["", "lake", "headrace://h", "http://", "http://me:secret@h:1", "http://h/path", "ftp://h"]
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(errors.BadSetting) as caught:
        connect(url)
    assert "secret" not in str(caught.value)


def test_half_a_login_and_a_missing_certificate(tmp_path: Path) -> None:
    with pytest.raises(errors.BadSetting, match="without a password"):
        connect("http://127.0.0.1:1", username="me")
    with pytest.raises(errors.BadSetting, match="cannot be read"):
        connect("https://127.0.0.1:1", token="t", ca_file=tmp_path / "none.pem")


# ---------------------------------------------------------------------- who asks


def test_a_password_is_exchanged_once_and_given_back(server: Double) -> None:
    with connect(server.url, username="admin", password=PASSWORD, schema="s", vcluster="v") as lake:
        assert (lake.schema, lake.vcluster) == ("s", "v")
        lake.sql("A; B")
    lake.close()
    assert server.log.count("POST /v1/login") == 1
    assert not server.logins
    assert not server.sessions
    with pytest.raises(errors.UserError, match="closed"):
        lake.sql("C")


def test_sessions_can_share_a_login(server: Double) -> None:
    door = Http(server.url, username="admin", password=PASSWORD)
    first, second = RemoteLake(door.shared()), RemoteLake(door.shared())
    assert first.session_id != second.session_id
    door.close()
    first.close()
    second.sql("SELECT 1")
    assert server.log.count("POST /v1/login") == 1
    assert "POST /v1/logout" not in server.log
    second.close()
    assert server.log.count("POST /v1/logout") == 1


def test_a_login_that_has_run_out_is_renewed_once_and_nothing_is_run_twice(server: Double) -> None:
    with connect(server.url, username="admin", password=PASSWORD) as lake:
        server.logins.clear()
        lake.sql("INSERT")
        server.logins.clear()
        assert lake.names() == ["orders", "public"]
    assert server.submitted() == ["INSERT"]
    assert server.log.count("POST /v1/login") == 3


def test_a_wrong_password_a_wrong_token_and_none(server: Double) -> None:
    for login in ({"username": "admin", "password": "wrong"}, {"token": "wrong"}, {}):
        with pytest.raises(errors.Unauthenticated) as caught:
            connect(server.url, **login)  # type: ignore[arg-type]
        assert "token" in str(caught.value.hint)
    assert server.log.count("POST /v1/login") == 1


@pytest.mark.parametrize(
    ("login", "begin"),
    [
        ({}, "Give username and password, or token."),
        ({"token": "wrong"}, "Check the token (HEADRACE_TOKEN)"),
        ({"username": "ann", "password": "wrong"}, "Check username and password (HEADRACE_USERNAME, "),
        ({"token": "wrong", "owner": True}, "The server may have been started again: open the lake again."),
    ],
)
def test_login_errors_speak_of_settings_and_not_of_http(
    server: Double, login: dict[str, Any], begin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = from_body
    hint = "Send the header `Authorization: Bearer <token>`; POST /v1/login gives a token."
    monkeypatch.setattr(
        http_module, "from_body", lambda body, **rest: told({"error": {**body["error"], "hint": hint}}, **rest)
    )
    with pytest.raises(errors.Unauthenticated) as caught:
        RemoteLake(Http(server.url, **login))
    hint = str(caught.value.hint)
    assert hint.startswith(begin)
    assert all(f"HEADRACE_{name}" in hint for name in ("USERNAME", "PASSWORD", "TOKEN"))
    assert "Authorization" not in hint


def test_half_a_login_is_refused_and_a_token_makes_it_whole(server: Double, tmp_path: Path) -> None:
    with LakeLock(tmp_path):
        address.write(tmp_path, Address(server.url, os.getpid(), "hs_local"))
        for half, missing in (({"username": "ann"}, "password"), ({"password": PASSWORD}, "username")):
            for attempt in (
                lambda half=half: headrace.open(tmp_path, **half),
                lambda half=half: headrace.connect(server.url, **half),
                lambda half=half: headrace.open(service=server.url, **half),
                lambda half=half: Session.builder.configs({"path": str(tmp_path), **half}).create(),
            ):
                with pytest.raises(errors.BadSetting, match=f"without a {missing}") as caught:
                    attempt()
                assert "HEADRACE_TOKEN" in str(caught.value.hint)
            with headrace.open(tmp_path, token=TOKEN, **half) as lake:
                assert isinstance(lake, RemoteLake)
                assert lake.acting == "a token's user"
    assert server.log.count("POST /v1/login") == 0


def test_a_session_on_a_folder_is_the_named_users_when_a_server_holds_it(server: Double, tmp_path: Path) -> None:
    server.logins.add("hs_local")
    with LakeLock(tmp_path):
        address.write(tmp_path, Address(server.url, os.getpid(), "hs_local"))
        with Session.builder.configs({"path": str(tmp_path), "username": "ann", "password": PASSWORD}).create() as ann:
            assert isinstance(ann.lake, RemoteLake)
            assert ann.lake.acting == "ann"
        with Session.builder.configs({"path": str(tmp_path)}).create() as owner:
            assert isinstance(owner.lake, RemoteLake)
            assert owner.lake.acting == "the lake's owner"
    assert server.log.count("POST /v1/login") == 1


def test_a_token_is_not_logged_out(server: Double, lake: RemoteLake) -> None:
    lake.close()
    assert "POST /v1/logout" not in server.log
    assert server.log[-1].startswith("DELETE /v1/sessions/")


# ---------------------------------------------------------------------- long statements


def test_progress_is_told_as_the_server_tells_it(server: Double, lake: RemoteLake) -> None:
    def slowly(job: Job) -> None:
        job.progress = ["Reading", "Writing"]
        job.table = pa.table({"n": [1]})
        threading.Timer(0.3, job.end, ["SUCCEED"]).start()

    server.answers["REFRESH"] = slowly
    told: list[str] = []
    lake.on_progress(lambda event: told.append(f"{event.text} {event.fraction}"))
    assert lake.sql("REFRESH").rows == [(1,)]
    assert told == ["Reading 0.5", "Writing 0.5"]


def test_waiting_in_a_queue_is_told(server: Double, lake: RemoteLake) -> None:
    def waits(job: Job) -> None:
        job.status = "QUEUED"
        threading.Timer(0.2, lambda: (setattr(job, "table", pa.table({"n": [1]})), job.end("SUCCEED"))).start()

    server.answers["Q"] = waits
    told: list[str] = []
    lake.on_progress(lambda event: told.append(event.text))
    lake.sql("Q")
    assert told == ["Waiting in the queue of default"]


def test_another_thread_cancels(server: Double, lake: RemoteLake) -> None:
    server.answers["LONG"] = lambda job: None

    def cancel() -> None:
        until(lambda: lake._running)
        lake.cancel()

    threading.Thread(target=cancel).start()
    with pytest.raises(errors.Cancelled):
        lake.sql("LONG")
    lake.cancel()  # Nothing runs: nothing happens.


@pytest.mark.parametrize("moment", ["while it runs", "while it is handed over"])
def test_control_c_cancels_the_statement_on_the_server(server: Double, lake: RemoteLake, moment: str) -> None:
    server.answers["LONG"] = lambda job: None
    handing_over = moment == "while it is handed over"
    if handing_over:
        server.held_submits.clear()

    def press() -> None:
        until(lambda: server.log[-1].endswith("/statements") if handing_over else lake._running)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        server.held_submits.set()

    threading.Thread(target=press).start()
    with pytest.raises(KeyboardInterrupt):
        lake.sql("LONG; NEVER")
    assert [job.status for job in server.jobs.values()] == ["CANCELLED"]
    assert lake.sql("AFTER").rows == [("AFTER: done.",)]


# ---------------------------------------------------------------------- lost connections and sessions


@pytest.mark.usefixtures("_no_pauses")
def test_a_server_that_is_away_for_a_moment_is_asked_again(server: Double, lake: RemoteLake) -> None:
    server.away = 3
    assert lake.names() == ["orders", "public"]
    server.away = 99
    with pytest.raises(errors.EnvironmentFault, match="started again"):
        lake.names()
    server.away = 0


@pytest.mark.usefixtures("_no_pauses")
def test_questions_are_asked_again_when_their_answers_are_lost(server: Double) -> None:
    with losing_answers(server.url, 2) as url:
        http = Http(url, token=TOKEN)
        assert http.get("/v1/names") == {"names": ["orders", "public"]}
        http.close()
    assert server.log.count("GET /v1/names") == 3


def test_a_statement_is_never_sent_twice(server: Double) -> None:
    with connect(server.url, token=TOKEN) as direct, losing_answers(server.url, 1) as url:
        direct._http.close()
        direct._http = Http(url, token=TOKEN)
        with pytest.raises(errors.ServiceFault, match="was lost") as caught:
            direct.sql("INSERT INTO t VALUES (1)")
        assert "SHOW JOBS" in str(caught.value.hint)
    assert server.submitted() == ["INSERT INTO t VALUES (1)"]


def test_a_session_that_ended_is_told_once_and_replaced(server: Double, lake: RemoteLake) -> None:
    server.sessions.clear()
    with pytest.raises(errors.SessionReset):
        lake.sql("SELECT 1")
    assert server.submitted() == []
    assert lake.sql("SELECT 1").rows == [("SELECT: done.",)]
    lake.ping()


def test_a_session_that_takes_the_place_of_another_runs_on_its_virtual_cluster(
    server: Double, lake: RemoteLake
) -> None:
    lake.use_vcluster("etl")
    assert lake.vcluster == "etl"
    assert server.submitted() == ["USE VCLUSTER `etl`"]
    server.sessions.clear()
    with pytest.raises(errors.SessionReset):
        lake.sql("SELECT 1")
    assert [wanted.get("vcluster") for wanted in server.sessions.values()] == ["etl"]


def test_there_is_no_spark_here(lake: RemoteLake) -> None:
    with pytest.raises(errors.NotAllowed, match="no Spark session here"):
        _ = lake.spark


def test_clients_need_no_java() -> None:
    code = (
        "import sys, headrace, headrace.client, headrace.dbapi, headrace.sqlalchemy_dialect; headrace.connect; "
        "headrace.Result; print({'pyspark', 'py4j', 'delta', 'headrace.engine'} & set(sys.modules) or 'nothing')"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert loaded.stdout.strip() == "nothing"


# ---------------------------------------------------------------------- headrace.open


def test_the_setting_service_leads_to_a_server(server: Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with headrace.open(service=server.url, token=TOKEN, schema="sales") as lake:
        assert isinstance(lake, RemoteLake)
        assert lake.schema == "sales"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_named_wins_over_a_service_of_the_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SERVICE", "http://far.example:8910")
    assert opening.service_of(settings.load()) == "http://far.example:8910"
    assert opening.service_of(settings.load("here")) is None
    assert opening.service_of(settings.load("here", service="http://other:1")) == "http://other:1"


def test_a_lake_that_a_server_holds_is_used_through_it(server: Double, tmp_path: Path) -> None:
    server.logins.add("hs_local")
    with LakeLock(tmp_path):
        address.write(tmp_path, Address(server.url, os.getpid(), "hs_local"))
        with headrace.open(tmp_path) as lake:
            assert isinstance(lake, RemoteLake)
            assert lake.schema == "main.public"
        with headrace.open(tmp_path, username="ann", password=PASSWORD) as lake:
            assert server.log.count("POST /v1/login") == 1
