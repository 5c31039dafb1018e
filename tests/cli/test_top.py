"""`headrace top` through a server on a loopback port that has no lake; on a terminal and into a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from headrace.cli.commands.top import FRESHNESS, JOBS, TASKS
from headrace.cli.main import app
from headrace.errors import NotAllowed, NotFound, ServiceFault
from service_double import TOKEN, Double, serving

PROGRAM = [sys.executable, "-m", "headrace.cli.main", "top"]
NOW = datetime(2026, 1, 1, 3, 0, 5, tzinfo=timezone.utc)
PATIENCE = 60.0
_TIME = pa.timestamp("us", tz="UTC")
_TABLES = pa.schema(
    [
        ("schema_name", pa.string()), ("name", pa.string()), ("status", pa.string()), ("lag_second", pa.int64()),
        ("target_second", pa.int64()), ("last_refresh", _TIME), ("last_mode", pa.string()),
        ("rows_inserted", pa.int64()), ("rows_deleted", pa.int64()), ("last_duration", pa.duration("us")),
        ("next_refresh", _TIME), ("running_job", pa.string()), ("failures", pa.int64()), ("reason", pa.string()),
    ]
)  # fmt: skip
_JOBS = pa.schema(
    [
        ("job_id", pa.string()), ("status", pa.string()), ("creator", pa.string()), ("priority", pa.int64()),
        ("start_time", _TIME), ("end_time", _TIME), ("execution_time", pa.duration("us")),
        ("vcluster_name", pa.string()), ("job_text", pa.string()), ("query_tag", pa.string()),
    ]
)  # fmt: skip


_TASKS = pa.schema(
    [
        *((name, pa.string()) for name in ("schema_name", "name", "schedule", "after", "state", "suspended_reason")),
        ("problem", pa.string()), ("next_run", _TIME), ("last_run", _TIME), ("last_state", pa.string()),
        ("last_job", pa.string()), ("last_error", pa.string()),
    ]
)  # fmt: skip


def tasks(*names: str, state: str = "SUCCEED", error: str | None = None) -> pa.Table:
    rows = [
        {
            "schema_name": "public", "name": name, "schedule": "1 minute", "state": "STARTED",
            "next_run": NOW + timedelta(seconds=55), "last_run": NOW - timedelta(seconds=5), "last_state": state,
            "last_error": error,
        }
        for name in names
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, _TASKS)


def tables(*names: str, status: str = "FRESH", reason: str | None = None) -> pa.Table:
    rows = [
        {
            "schema_name": "public", "name": name, "status": status, "lag_second": 12, "target_second": 60,
            "last_refresh": NOW - timedelta(seconds=12), "last_mode": "INCREMENTAL", "rows_inserted": 7,
            "rows_deleted": 0, "last_duration": timedelta(seconds=1.5), "next_refresh": NOW + timedelta(seconds=48),
            "failures": 0, "reason": reason,
        }
        for name in names
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, _TABLES)


def jobs(*texts: str) -> pa.Table:
    rows: list[dict[str, Any]] = [
        {
            "job_id": f"2026010103000000{number}a1b2c3d4", "status": "RUNNING", "creator": "ann", "priority": 0,
            "start_time": NOW, "execution_time": timedelta(seconds=3), "vcluster_name": "default", "job_text": text,
        }
        for number, text in enumerate(texts)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, _JOBS)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Double]:
    monkeypatch.chdir(tmp_path)
    with serving() as double:
        monkeypatch.setenv("HEADRACE_SERVICE", double.url)
        monkeypatch.setenv("HEADRACE_TOKEN", TOKEN)
        double.answer(FRESHNESS, tables("daily", "orders_clean"))
        double.answer(TASKS, tasks("arrivals"))
        double.answer(JOBS, jobs(JOBS, TASKS, FRESHNESS, "SELECT 1"))
        yield double


def test_piped_it_is_plain_text_once(server: Double) -> None:
    done = subprocess.run(PROGRAM, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        # By the clock and in the time zone of the server, which has told when our own statement came.
        f"Headrace at {server.url}, 2026-01-01 12:00:05 JST",
        "2 tables: 2 FRESH; 1 task: 1 SUCCEED; 1 job running, 0 waiting",
        "",
        "TABLE         STATUS         LAG  TARGET    NEXT  MODE         ROWS          TOOK  LAST",
        "daily         FRESH          12s     60s     48s  INCREMENTAL  +7 -0         1.5s  11:59:53",
        "orders_clean  FRESH          12s     60s     48s  INCREMENTAL  +7 -0         1.5s  11:59:53",
        "",
        "TASK      STATE      LAST RUN      AGO    NEXT  SCHEDULE",
        "arrivals  STARTED    SUCCEED        5s     55s  1 minute",
        "",
        "JOB                        STATUS      FOR  VCLUSTER  BY   WHAT",
        "20260101030000003a1b2c3d4  RUNNING      3s  default   ann  SELECT 1",
    ]
    assert server.submitted() == [FRESHNESS, TASKS, JOBS]
    assert not server.sessions


def test_without_any_job_of_ours_this_machines_clock_counts(server: Double) -> None:
    server.answer(JOBS, jobs())
    shown = CliRunner().invoke(app, ["top", "--once"])
    assert shown.exit_code == 0, shown.output
    assert f"{datetime.now(timezone.utc):%Y}" in shown.stdout.splitlines()[0]


def test_its_help_says_what_the_number_is() -> None:
    assert re.search(r"--interval SECONDS\b", CliRunner().invoke(app, ["top", "-h"]).stdout)


def test_a_server_that_is_not_there_is_told_and_ends_with_3(server: Double, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SERVICE", "http://127.0.0.1:1")
    done = subprocess.run([*PROGRAM, "--once"], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("Error [SERVICE]: The server at http://127.0.0.1:1 cannot be reached: ")
    assert isinstance(CliRunner().invoke(app, ["top"]).exception, ServiceFault)


def test_no_server_means_nothing_to_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.cli.commands import top

    folder = tmp_path / "lake"
    with pytest.raises(NotAllowed) as told:
        top._require_server(folder)
    assert told.value.message == f"No server runs for the lake {folder}: nothing in it is refreshed by itself."
    assert told.value.hint == (
        f"`headrace up --lake {folder}` starts one; `headrace top --once --lake {folder}` shows the tables as they are."
    )
    # A lake that is not there is not made, and no Spark is started for it.
    monkeypatch.chdir(tmp_path)
    assert isinstance(CliRunner().invoke(app, ["top", "--lake", "none"]).exception, NotFound)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("arguments", [["--interval", "0"], ["--interval", "x"], ["name"]])
def test_wrong_usage_is_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["top", *arguments]).exit_code == 2


class Terminal:
    """The program on a terminal of 80 columns and 24 lines."""

    def __init__(self, *arguments: str) -> None:
        self.screen, self._inside = pty.openpty()
        fcntl.ioctl(self._inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.modes = termios.tcgetattr(self._inside)
        self.process = subprocess.Popen(
            [*PROGRAM, *arguments],
            stdin=self._inside,
            stdout=self._inside,
            stderr=self._inside,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": ""},
        )
        self.shown = ""

    def until(self, words: str) -> None:
        """Read on until these words are shown, after those that were waited for before."""
        deadline = time.monotonic() + PATIENCE
        seen = ""
        while words not in seen:
            left = deadline - time.monotonic()
            assert left > 0, f"{words!r} is not in {seen[-3000:]}"
            if select.select([self.screen], [], [], min(left, 0.2))[0]:
                seen += self._read()
            assert words in seen or self.process.poll() is None, seen[-3000:]
        self.shown += seen

    def _read(self) -> str:
        try:
            return os.read(self.screen, 65536).decode(errors="replace")
        except OSError:
            return ""

    def type(self, keys: bytes) -> None:
        os.write(self.screen, keys)

    def ended(self) -> int:
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline
            if select.select([self.screen], [], [], 0.1)[0]:
                self.shown += self._read()
        while select.select([self.screen], [], [], 0)[0]:
            self.shown += self._read()
        assert termios.tcgetattr(self._inside) == self.modes
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE)
        os.close(self.screen)
        os.close(self._inside)


@pytest.fixture
def terminal(server: Double) -> Iterator[Terminal]:
    made = Terminal("--interval", "0.5")
    yield made
    made.close()


def test_it_follows_what_happens_until_q(server: Double, terminal: Terminal) -> None:
    terminal.until("q leaves. A look every 0.5 s.")
    assert "orders_clean" in terminal.shown
    assert "\x1b[?1049h" in terminal.shown  # a screen of its own, which leaves the old one as it was

    server.answer(FRESHNESS, tables("daily", status="FAILED", reason="Division by zero."))
    terminal.until("1 FAILED")
    terminal.until("Division by zero.")

    server.answer(TASKS, tasks("arrivals", state="FAILED", error="No such column."))
    terminal.until("No such column.")

    # A server that is away is told of, and waited for.
    server.fail(FRESHNESS, code="SERVICE", message="Spark is being started again.")
    terminal.until("NO ANSWER since 12:00:05: Spark is being started again.")
    server.answer(FRESHNESS, tables("back_again"))
    terminal.until("back_again")

    terminal.type(b"xyz")
    terminal.type(b"q")
    assert terminal.ended() == 0
    assert "\x1b[?1049l" in terminal.shown
    assert "Traceback" not in terminal.shown
    assert not server.sessions


def test_control_c_leaves_as_well(server: Double, terminal: Terminal) -> None:
    terminal.until("q leaves.")
    os.killpg(terminal.process.pid, signal.SIGINT)
    assert terminal.ended() == 0
    assert "Traceback" not in terminal.shown


def test_what_will_not_pass_ends_it(server: Double, terminal: Terminal) -> None:
    terminal.until("q leaves.")
    server.fail(FRESHNESS, code="FORBIDDEN", message="You may not.")
    assert terminal.ended() == 1
    left = terminal.shown.rpartition("\x1b[?1049l")[2]
    assert "Error [FORBIDDEN]: You may not." in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", left)


def test_once_on_a_terminal_keeps_to_its_width(server: Double) -> None:
    server.answer(FRESHNESS, tables(*(f"a_table_with_quite_a_long_name_{n:02d}" for n in range(40))))
    terminal = Terminal("--once")
    try:
        terminal.until("a_table_…g_name_39")
        assert terminal.ended() == 0
        assert "\x1b[?1049h" not in terminal.shown
    finally:
        terminal.close()
