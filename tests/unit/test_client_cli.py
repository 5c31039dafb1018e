"""Commands that work through a server, against one on a loopback port that has no lake."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from headrace import settings
from headrace.cli.commands.shell import greeting, history_file
from headrace.cli.lakes import opened
from headrace.cli.main import app
from headrace.cli.watch import SILENT
from headrace.client import connect
from headrace.errors import BadSetting, LakeLocked, ServiceFault
from headrace.storage import address
from headrace.storage.address import Address
from headrace.storage.lock import LakeLock
from service_double import PASSWORD, TOKEN, Double, serving

HOLD = """
import os, signal, sys
from headrace.storage import address
from headrace.storage.lock import LakeLock
if sys.argv[3] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with LakeLock(sys.argv[1]):
    if sys.argv[2]:
        address.write(sys.argv[1], address.Address(sys.argv[2], os.getpid(), "t"))
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Double]:
    monkeypatch.chdir(tmp_path)
    with serving() as double:
        yield double


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


def test_statements_run_on_the_service(server: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SERVICE", server.url)
    monkeypatch.setenv("HEADRACE_TOKEN", TOKEN)
    server.answer("SELECT n", pa.table({"n": [1]}), truncated=True)
    result = run("sql", "USE s; SELECT n", "--format", "json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, [{"n": 1}])
    assert result.stderr.startswith("Note: The result has more rows")
    assert not server.sessions

    server.fail("SELECT x", code="NOT_FOUND", message="No x.", position={"line": 1, "column": 8})
    failed = run("sql", "SELECT x")
    assert failed.exit_code == 1
    assert failed.stderr.splitlines() == ["Error [NOT_FOUND]: No x.", "  1 | SELECT x", "    |        ^"]

    monkeypatch.setenv("HEADRACE_TOKEN", "wrong")
    with pytest.raises(Exception, match="not logged in"):
        raise run("sql", "SELECT 1").exception or AssertionError


def test_a_folder_that_was_named_wins_and_is_told(
    server: Double, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADRACE_SERVICE", "http://far.example:1")
    server.logins.add("hs_local")
    with LakeLock(tmp_path / "lake"):
        address.write(tmp_path / "lake", Address(server.url, os.getpid(), "hs_local"))
        result = run("sql", "SELECT 1", "--lake", "lake")
    assert result.exit_code == 0, result.output
    assert result.stderr == (
        "Note: --lake wins: the service http://far.example:1 (variable HEADRACE_SERVICE) is not used.\n"
    )
    assert server.submitted() == ["SELECT 1"]


def test_status(server: Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = run("status")
    assert (nobody.exit_code, nobody.stdout) == (1, f"No server runs for the lake {tmp_path / 'lake'}.\n")
    server.logins.add("hs_local")
    with LakeLock(tmp_path / "lake"):
        assert "which is no server, or one that is starting" in run("status").stdout
        address.write(tmp_path / "lake", Address(server.url, os.getpid(), "hs_local"))
        result = run("status", "--format", "json")
        assert result.exit_code == 0, result.output
        found = {row["item"]: row["value"] for row in json.loads(result.stdout)}
        assert found.pop("since")
        assert found == {
            "address": server.url,
            "state": "ok",
            "lake": str(tmp_path / "lake"),
            "process": os.getpid(),
            "uptime": "0 min",
            "sessions": 0,
            "running jobs": 3,
            "waiting jobs": 0,
        }
        server.health = "degraded"
        assert run("status").exit_code == 1
    monkeypatch.setenv("HEADRACE_SERVICE", server.url)
    assert "unknown: You are not logged in." in run("status").stdout
    monkeypatch.setenv("HEADRACE_SERVICE", "http://127.0.0.1:1")
    assert "away" in run("status").stdout


def test_a_user_without_a_password_does_not_act_as_the_owner(
    server: Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_USERNAME", "ann")
    server.logins.add("hs_local")
    with LakeLock(tmp_path / "lake"):
        address.write(tmp_path / "lake", Address(server.url, os.getpid(), "hs_local"))
        for arguments in (["sql", "SELECT 1"], ["status"]):
            error = run(*arguments).exception
            assert isinstance(error, BadSetting)
            assert error.message == "The user ann is named without a password."
            assert "HEADRACE_PASSWORD" in str(error.hint)
    assert server.submitted() == []


def test_down_tells_that_it_does_not_look_at_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_SERVICE", "http://far.example:1")
    lake = tmp_path / "lake"
    result = run("down")
    assert (result.exit_code, result.stdout) == (0, f"No server runs for the lake {lake}.\n")
    assert result.stderr == (
        f"Note: `headrace down` looks at a lake's folder on this machine, here {lake}, and not at the service "
        "http://far.example:1 (variable HEADRACE_SERVICE).\n"
    )
    assert run("down", "--lake", "lake").stderr == ""


def test_the_shell_says_where_it_is_and_leaves_a_server_without_closing_its_lake(
    server: Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(server.url, token=TOKEN) as lake:
        assert greeting(lake) == f"Headrace at {server.url}, as a token's user. The schema is main.public."
    with connect(server.url, username="ann", password=PASSWORD, schema="s") as lake:
        assert greeting(lake) == f"Headrace at {server.url}, as ann. The schema is s."
    here = SimpleNamespace(settings=settings.load(tmp_path / "lake"))
    assert greeting(here) == (  # type: ignore[arg-type]
        f"Headrace with the lake {tmp_path / 'lake'}, open in this process, as its owner. The schema is main.public."
    )
    said: list[str] = []

    @contextmanager
    def heard(text: str) -> Iterator[object]:
        said.append(text)
        yield SILENT

    monkeypatch.setattr("headrace.cli.lakes.watching", heard)
    monkeypatch.setenv("HEADRACE_SERVICE", server.url)
    monkeypatch.setenv("HEADRACE_TOKEN", TOKEN)
    with opened(None):
        pass
    assert said == [f"Connecting to {server.url}", f"Leaving {server.url}"]


def holding(folder: Path, url: str, manner: str = "") -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), url, manner],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = tmp_path / "lake"
    assert run("down", "--lake", str(lake)).stdout == f"No server runs for the lake {lake}.\n"
    with holding(lake, "http://127.0.0.1:1") as process:
        result = run("down", "--lake", str(lake))
        assert result.exit_code == 0
        assert result.stdout == f"The server (process {process.pid}) has ended, and the lake {lake} is free.\n"
        assert process.wait(10) == -signal.SIGTERM
    with holding(lake, "") as process:
        result = run("down", "--lake", str(lake))
        assert result.exit_code == 4
        assert "It is left alone." in result.stderr
        assert process.poll() is None
        process.kill()
    monkeypatch.setattr("headrace.cli.commands.down._PATIENCE_SECONDS", 0.3)
    with holding(lake, "http://127.0.0.1:1", "stubborn") as process:
        result = run("down", "--lake", str(lake))
        assert (result.exit_code, process.poll()) == (1, None)
        assert "has not ended" in result.stderr
        process.kill()


def test_up_when_the_server_runs_already(tmp_path: Path) -> None:
    with LakeLock(tmp_path):
        address.write(tmp_path, Address("http://127.0.0.1:1", os.getpid(), "t"))
        again = run("up", "--background", "--lake", str(tmp_path))
        assert (again.exit_code, again.stdout) == (
            0,
            f"The server of this lake runs already: http://127.0.0.1:1 (process {os.getpid()}).\n",
        )
        refused = run("up", "--lake", str(tmp_path))
        assert isinstance(refused.exception, LakeLocked)
        assert refused.exception.hint == (
            f"`headrace status --lake {tmp_path}` shows what it does; `headrace down --lake {tmp_path}` ends it."
        )


def test_up_shows_why_a_server_in_the_background_did_not_start(tmp_path: Path) -> None:
    with LakeLock(tmp_path):
        result = run("up", "--background", "--lake", str(tmp_path))
    assert result.exit_code == 4, result.output
    assert "Error [LAKE_LOCKED]" in result.stderr
    assert f"Its log is {tmp_path / 'logs' / 'server.log'}" in result.stderr
    assert (tmp_path / "logs" / "server.log").stat().st_mode & 0o077 == 0


def test_a_service_that_cannot_be_reached_is_3() -> None:
    from headrace.cli.faults import exit_code

    assert exit_code(ServiceFault("away")) == 3


def test_the_shell_keeps_its_history_with_the_user(
    server: Double, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    with connect(server.url, token=TOKEN) as lake:
        assert history_file(lake) == tmp_path / ".local" / "state" / "headrace" / "shell_history"
