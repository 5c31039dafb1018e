"""`headrace refresh` as cron and other schedulers run it: hardly any environment, no terminal, a server elsewhere."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.statements.listing import _HISTORY
from service_double import TOKEN, Double, Job, serving

PROGRAM = [sys.executable, "-m", "headrace.cli.main", "refresh"]
PATIENCE = 60.0
_UP = ["daily_sales", "main.public.`Übersicht`"]
_ASKED = ["REFRESH DYNAMIC TABLE `daily_sales`", "REFRESH DYNAMIC TABLE `main`.`public`.`Übersicht`"]


def refreshed(name: str) -> pa.Table:
    at = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    row = {
        "workspace_name": "main", "schema_name": "public", "name": name, "virtual_cluster": "DEFAULT",
        "start_time": at, "end_time": at, "duration": "0 00:00:00.327000000", "state": "SUCCEED",
        "refresh_trigger": "MANUAL", "refresh_mode": "INCREMENTAL", "source_tables": "[]",
        "stats": '{"rows_deleted":"0","rows_inserted":"1"}', "job_id": "j", "technique": "APPEND",
    }  # fmt: skip
    return pa.Table.from_pylist([row], pa.schema(_HISTORY))


@pytest.fixture
def server() -> Iterator[Double]:
    with serving() as double:
        for statement, name in zip(_ASKED, ("daily_sales", "übersicht"), strict=True):
            double.answer(statement, refreshed(name))
        yield double


def cron(folder: Path, url: str, **more: str) -> dict[str, str]:
    """What a line of a crontab has around it, besides what it sets itself."""
    return {
        "PATH": "/usr/bin:/bin", "HOME": str(folder), "SHELL": "/bin/sh", "LOGNAME": "etl",
        "PYTHONPATH": ":".join(path for path in sys.path if path),
        "HEADRACE_SERVICE": url, "HEADRACE_TOKEN": TOKEN, **more,
    }  # fmt: skip


def run(folder: Path, url: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=folder,
        env=cron(folder, url, **environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )


def test_when_all_is_well_nothing_is_said_but_the_rows(server: Double, tmp_path: Path) -> None:
    done = run(tmp_path, server.url, *_UP)
    assert (done.returncode, done.stderr) == (0, "")
    cells = [[cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines()]
    assert cells[2:] == [
        ["public.daily_sales", "2026-01-01 21:00:00", "0.33s", "SUCCEED", "INCREMENTAL", "APPEND", "1", "0", "NULL"],
        ["public.übersicht", "2026-01-01 21:00:00", "0.33s", "SUCCEED", "INCREMENTAL", "APPEND", "1", "0", "NULL"],
        ["(2 rows)"],
    ]
    assert server.submitted() == _ASKED
    assert not server.sessions
    assert list(tmp_path.iterdir()) == []  # no lake is made beside a server


@pytest.mark.parametrize("locale", ["C", "POSIX", "C.UTF-8"])
def test_whatever_the_locale(server: Double, tmp_path: Path, locale: str) -> None:
    done = run(tmp_path, server.url, *_UP, "--format", "json", LC_ALL=locale)
    assert (done.returncode, done.stderr) == (0, "")
    assert [row["name"] for row in json.loads(done.stdout)] == ["daily_sales", "übersicht"]


def test_a_failed_refresh_is_1_and_ends_the_run(server: Double, tmp_path: Path) -> None:
    error = {"code": "REFRESH_FAILED", "message": "The refresh of main.public.b failed: Division by zero."}
    server.fail("REFRESH DYNAMIC TABLE `b`", **error)
    done = run(tmp_path, server.url, "daily_sales", "b", _UP[1])
    assert done.returncode == 1
    assert "daily_sales" in done.stdout
    assert done.stderr == f"Error [{error['code']}]: {error['message']}\n"
    assert server.submitted() == [_ASKED[0], "REFRESH DYNAMIC TABLE `b`"]
    assert not server.sessions


def test_a_refresh_that_runs_already_is_1_with_its_own_code(server: Double, tmp_path: Path) -> None:
    server.fail(_ASKED[0], code="REFRESH_RUNNING", message="A refresh of this table is running: host:1, since …")
    done = run(tmp_path, server.url, "daily_sales")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error [REFRESH_RUNNING]: ")


def test_a_server_that_is_not_there_is_3(tmp_path: Path) -> None:
    done = run(tmp_path, "http://127.0.0.1:1", "daily_sales")
    assert (done.returncode, done.stdout) == (3, "")
    first, second = done.stderr.splitlines()
    assert first.startswith("Error [SERVICE]: The server at http://127.0.0.1:1 cannot be reached: ")
    assert second == (
        "Hint: Check the address, and that the server runs: on its machine, `headrace up --lake …` starts it."
    )


def test_a_server_that_ends_while_it_works_is_3(server: Double, tmp_path: Path) -> None:
    began = []

    def leave(job: Job) -> None:
        began.append(job)
        server.away = 1000

    server.answers[_ASKED[0]] = leave
    done = run(tmp_path, server.url, "daily_sales")
    assert len(began) == 1  # It is never sent twice: it may have been done.
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("Error [ENVIRONMENT]: Spark is being started again.")


def test_a_wrong_token_is_told(server: Double, tmp_path: Path) -> None:
    done = run(tmp_path, server.url, "daily_sales", HEADRACE_TOKEN="hr_old")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error [UNAUTHENTICATED]: ")
    assert "HEADRACE_TOKEN" in done.stderr
    assert "hr_old" not in done.stderr


def test_a_folder_that_is_no_lake_is_told_before_spark_starts(tmp_path: Path) -> None:
    done = run(tmp_path, "embedded", "daily_sales", "--lake", str(tmp_path / "nothing"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"Error [NOT_FOUND]: There is no lake at {tmp_path / 'nothing'}.")


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_cancels_what_runs_on_the_server(server: Double, tmp_path: Path, sign: signal.Signals) -> None:
    """As `timeout`, systemd and schedulers do it."""
    server.answers[_ASKED[0]] = lambda job: None
    with subprocess.Popen(
        [*PROGRAM, "daily_sales"],
        cwd=tmp_path,
        env=cron(tmp_path, server.url),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not any(line.startswith("GET /v1/statements/") for line in server.log):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(sign)
        said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, *said) == (130, "", "")
    assert [job.status for job in server.jobs.values()] == ["CANCELLED"]
