"""Starting and stopping a server as a process, on a lake without Spark."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import uvicorn
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.errors import BadSetting, EnvironmentFault, LakeLocked
from headrace.server import lifecycle
from headrace.server.app import build
from headrace.server.lifecycle import require_safe, serve, url_of
from headrace.settings import Settings
from headrace.storage import address
from headrace.storage.lock import LakeLock
from served import Client, plain_service

SERVE = """
import sys, threading
from headrace.server.lifecycle import serve
from headrace.settings import Settings
from served import PlainLake

def open_lake(settings):
    lake = PlainLake(settings)
    if "slowly" in sys.argv:
        threading.Event().wait(3)
    if "badly" in sys.argv:
        lake.close()
        raise ValueError("a broken lake")
    return lake

proxies = ("127.0.0.1",) if "proxied" in sys.argv else ()
settings = Settings(path=sys.argv[1], port=0, scheduler="unscheduled" not in sys.argv, trusted_proxies=proxies)
opened = []
serve(settings, open_lake=lambda settings: opened.append(open_lake(settings)) or opened[0])
if "unscheduled" in sys.argv:
    print(f"tidy: {opened[0].compute._tidies}", file=sys.stderr)
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def run(lake: Path, *how: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(lake), *how],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str], beginning: str) -> str:
    """The first line that begins so."""
    assert process.stdout is not None
    for text in process.stdout:
        if text.startswith(beginning):
            return text.strip()
    raise AssertionError(f"The server ended: {process.communicate()}")


def ready(process: subprocess.Popen[str], lake: Path) -> Client:
    line(process, "Ready.")
    found = address.read(lake)
    while found is None:  # It is written within the same moments.
        threading.Event().wait(0.01)
        found = address.read(lake)
    assert found.pid == process.pid
    return Client(found.url, found.token)


def ended(process: subprocess.Popen[str], lake: Path) -> int:
    _, errors = process.communicate(timeout=30)
    assert "Traceback" not in errors, errors
    assert not (lake / address.FILE_NAME).exists()
    with LakeLock(lake):
        return process.returncode


def test_a_start_and_a_stop(start: Start, lake_folder: Path) -> None:
    process = start(lake_folder)
    first = line(process, "This is the first start.")
    client = ready(process, lake_folder)
    assert client.http.get("/health").json() == {"status": "ok"}
    password = first.rpartition(" ")[2]
    answer = client.http.post("/v1/login", json={"username": "admin", "password": password})
    assert answer.status_code == 200
    process.send_signal(signal.SIGTERM)
    assert ended(process, lake_folder) == 0
    again = start(lake_folder)
    assert again.stdout is not None
    said = [next(again.stdout) for _ in range(2)]
    assert said[1] == "Ready.\n"
    again.send_signal(signal.SIGINT)
    assert ended(again, lake_folder) == 0


def test_old_records_go_also_where_nothing_is_scheduled(start: Start, lake_folder: Path) -> None:
    process = start(lake_folder, "unscheduled")
    ready(process, lake_folder)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)
    assert "tidy: True" in errors


@pytest.mark.parametrize(("how", "address"), [("proxied", "203.0.113.7"), ("plain", "127.0.0.1")])
def test_whom_a_proxy_names_is_believed_where_the_proxy_is_trusted(
    start: Start, lake_folder: Path, how: str, address: str
) -> None:
    process = start(lake_folder, how)
    client = ready(process, lake_folder)
    for forwarded in ("198.51.100.1, 203.0.113.7", "203.0.113.7"):
        for _ in range(5):
            answer = client.http.post(
                "/v1/login",
                json={"username": "admin", "password": "wrong"},
                headers={"X-Forwarded-For": forwarded, "X-Forwarded-Proto": "https"},
            )
    assert answer.status_code == 429, "the last of the two is the one that the proxy saw"
    other = client.http.post(
        "/v1/login", json={"username": "admin", "password": "x"}, headers={"X-Forwarded-For": "203.0.113.8"}
    )
    assert other.status_code == (401 if how == "proxied" else 429), "others wait only where all have one address"
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=30)
    assert f"Failed login as admin from {address}." in errors


def test_the_log_of_a_run(start: Start, lake_folder: Path) -> None:
    process = start(lake_folder)
    password = line(process, "This is the first start.").rpartition(" ")[2]
    client = ready(process, lake_folder)
    for username, tried in (("admin", password), ("ad\n2026-01-01 00:00:00,000 INFO x: Login of eve", "wrong")):
        client.http.post("/v1/login", json={"username": username, "password": tried})
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=30)
    form = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (INFO|WARNING) headrace\.server\.\w+: (.*)")
    told = [found.groups() for each in log.splitlines() if (found := form.fullmatch(each))]
    assert len(told) == len(log.splitlines()), log
    assert told[0][1].startswith(f"Listening on {str(client.http.base_url).rstrip('/')} as process {process.pid};")
    assert told[1:] == [
        ("INFO", "Ready."),
        ("INFO", "Login of admin from 127.0.0.1."),
        ("WARNING", r"Failed login as ad\n2026-01-01 00:00:00,000 INFO x: Login of eve from 127.0.0.1."),
        ("INFO", "Stopping."),
        ("INFO", "Stopped."),
    ]
    assert password not in log


def test_a_stop_deletes_the_results(start: Start, lake_folder: Path) -> None:
    process = start(lake_folder)
    client = ready(process, lake_folder)
    client.run(client.session(), "SELECT 1")
    assert list((lake_folder / "results").iterdir())
    process.send_signal(signal.SIGTERM)
    assert ended(process, lake_folder) == 0
    assert list(lake_folder.glob("results*")) == []


def test_a_stop_during_the_start(start: Start, lake_folder: Path) -> None:
    process = start(lake_folder, "slowly")
    url = line(process, "Listening on").split()[2].rstrip(".")
    assert httpx.get(f"{url}/health").json() == {"status": "starting"}
    process.send_signal(signal.SIGTERM)
    assert ended(process, lake_folder) == 0


def test_a_stop_ends_what_the_start_waits_for(lake_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began = threading.Event()

    def fetches(_settings: Settings, *, wanted: Callable[[], None]) -> None:
        began.set()
        while True:
            wanted()
            threading.Event().wait(0.01)

    monkeypatch.setattr(lifecycle, "Lake", fetches)
    said: list[str] = []
    serving = lifecycle.Serving(Settings(path=lake_folder, port=0), said.append, said.append, None)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(serving.run)
        assert began.wait(20)
        serving.stop()
        assert run.result(timeout=20) is None
    assert said[-1] == "Stopping …"


def test_a_lake_that_cannot_be_opened(start: Start, lake_folder: Path) -> None:
    process = start(lake_folder, "badly")
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "a broken lake" in errors


def test_a_stop_while_a_statement_runs_and_a_client_waits(start: Start, lake_folder: Path) -> None:
    process = start(lake_folder)
    client = ready(process, lake_folder)
    job = client.run(client.session(), "SELECT wait", wait_seconds=0)["job_id"]
    with ThreadPoolExecutor(1) as other:
        poll = other.submit(client.status, job)
        process.send_signal(signal.SIGTERM)
        line(process, "Stopping")
        refused = client.http.post("/v1/sessions", json={})
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
        assert poll.result(30)["status"] == "CANCELLED"
    assert ended(process, lake_folder) == 0


def test_a_stop_while_a_client_has_sent_half_a_request(start: Start, lake_folder: Path) -> None:
    process = start(lake_folder)
    client = ready(process, lake_folder)
    url = client.http.base_url
    with socket.create_connection((url.host, url.port or 0)) as half:
        half.sendall(b"POST /v1/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        assert client.http.get("/health").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert ended(process, lake_folder) == 0


def test_a_stop_while_a_client_reads_its_rows_slowly(start: Start, lake_folder: Path) -> None:
    """What it has got of them must not look like all."""
    process = start(lake_folder)
    client = ready(process, lake_folder)
    job = client.run(client.session(), "SELECT big_rows")["job_id"]
    with client.http.stream("GET", f"/v1/statements/{job}/arrow") as answer:
        pieces = answer.iter_raw()
        next(pieces)
        process.send_signal(signal.SIGTERM)
        assert ended(process, lake_folder) == 0
        with pytest.raises(httpx.TransportError):
            list(pieces)


def test_a_lake_that_another_process_holds(lake_folder: Path) -> None:
    with LakeLock(lake_folder), pytest.raises(LakeLocked):
        serve(Settings(path=lake_folder, port=0))


def test_a_port_that_is_taken(lake_folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EnvironmentFault, match="cannot listen") as told:
            serve(Settings(path=lake_folder / "new", port=port))
        assert "`headrace up --port " in str(told.value.hint)
        shown = CliRunner().invoke(app, ["up", "--background", "--port", str(port), "--lake", str(lake_folder / "new")])
        assert isinstance(shown.exception, EnvironmentFault)
    assert not (lake_folder / "new").exists()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_this_machine_needs_no_tls(host: str) -> None:
    require_safe(Settings(host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "lake.example.com"])
def test_other_machines_need_tls(host: str) -> None:
    with pytest.raises(BadSetting, match="without TLS"):
        require_safe(Settings(host=host))
    require_safe(Settings(host=host, allow_insecure=True))


def test_keys_that_cannot_be_used(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    with pytest.raises(BadSetting, match="without a tls_certificate"):
        require_safe(Settings(tls_key=key))
    with pytest.raises(BadSetting, match="cannot be used"):
        require_safe(Settings(tls_certificate=tmp_path / "missing.pem", tls_key=key))
    key.write_text("no key")
    with pytest.raises(BadSetting, match="cannot be used"):
        require_safe(Settings(tls_certificate=key, tls_key=key))


def test_tls(tmp_path: Path, start: Start) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*made, *names, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    script = SERVE.replace("port=0", f"port=0, tls_certificate={str(certificate)!r}, tls_key={str(key)!r}")
    lake = tmp_path / "lake"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(lake)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment,
    )  # fmt: skip
    try:
        url = line(process, "Listening on").split()[2].rstrip(".")
        assert url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=str(certificate))
        assert httpx.get(f"{url}/health", verify=trusted).status_code in (200, 503)
        process.send_signal(signal.SIGTERM)
        assert ended(process, lake) == 0
    finally:
        process.kill()
        process.communicate()


def test_addresses_for_programs() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        assert url_of(Settings(), bound) == f"http://127.0.0.1:{port}"
        assert url_of(Settings(host="0.0.0.0"), bound) == f"http://127.0.0.1:{port}"
        assert url_of(Settings(host="::"), bound) == f"http://[::1]:{port}"
        tls = Settings(host="0.0.0.0", server_hosts=("lake.example",), tls_certificate=Path("c"))
        assert url_of(tls, bound) == f"https://lake.example:{port}"


def test_the_first_password_is_told_to_nobody_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the terminal that started the server in the background has gone."""
    said: list[str] = []

    def serve(settings: Settings, *, say: Callable[[str], None], whisper: Callable[[str], None]) -> None:
        say("Listening.")
        whisper("The password is 3mZ0d8Qv")
        said.append("served")

    monkeypatch.setattr(lifecycle, "serve", serve)
    listening, telling = os.pipe()
    os.close(listening)
    found = CliRunner().invoke(app, ["up", "--foreground", "--tell", str(telling), "--lake", str(tmp_path / "lake")])
    os.close(telling)
    assert said == ["served"], found.output
    told = found.output + capfd.readouterr().err
    assert "Listening." in told
    assert "3mZ0d8Qv" not in told
    assert "ALTER USER admin SET PASSWORD" in told


def test_a_connection_without_a_request_is_closed(tmp_path: Path) -> None:
    with plain_service(tmp_path) as (service, _, _):
        config = uvicorn.Config(build(service), loop="asyncio", ws="none", lifespan="on", log_config=None)
        server = uvicorn.Server(config)
        bound = socket.socket()
        bound.bind(("127.0.0.1", 0))

        async def run() -> None:
            serving = asyncio.create_task(server.serve(sockets=[bound]))
            closing = asyncio.create_task(lifecycle.close_idle(server, patience=0.3, look=0.1))
            while not server.started:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(look)
            closing.cancel()
            server.should_exit = True
            await serving

        def look() -> None:
            for sent in (b"", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n"):
                with socket.create_connection(bound.getsockname(), timeout=20) as client:
                    client.sendall(sent)
                    assert client.recv(1000) == b"", "closed, without an answer"
            with httpx.Client(base_url=f"http://127.0.0.1:{bound.getsockname()[1]}", trust_env=False) as client:
                assert client.get("/health").status_code == 200

        asyncio.run(run())
        bound.close()
