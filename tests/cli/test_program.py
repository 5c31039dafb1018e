"""The program as a user runs it. Every test that opens a lake starts Spark: keep them few."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.samples import SAMPLE_NAME
from headrace.storage.lock import LakeLock

PROGRAM = [sys.executable, "-m", "headrace.cli.main"]
QUICK = {
    **os.environ,
    "HEADRACE_DRIVER_MEMORY": "1g",
    "HEADRACE_SPARK_MASTER": "local[2]",
    "HEADRACE_SPARK_SETTINGS": '{"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}',
}


def headrace(
    *arguments: str, cwd: Path, stdin: str = "", environment: dict[str, str] = QUICK
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=cwd,
        input=stdin,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the program is started in; its lake is `lake`, the default."""
    return tmp_path_factory.mktemp("home")


def test_help_names_the_exit_codes_and_loads_nothing_heavy(home: Path) -> None:
    result = headrace("--help", cwd=home)
    assert result.returncode == 0
    assert "4 another process has the lake open" in " ".join(result.stdout.split())
    heavy = {"pyspark", "pyarrow", "sqlalchemy", "pydantic"}
    code = f"import sys, headrace.cli.main; print({heavy!r} & set(sys.modules) or 'nothing')"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "nothing"


def test_a_locked_lake_is_4_and_names_its_holder(tmp_path: Path) -> None:
    with LakeLock(tmp_path / "lake"):
        result = headrace("sql", "SELECT 1", cwd=tmp_path)
    assert result.returncode == 4
    assert result.stderr.startswith("Error [LAKE_LOCKED]: ")
    assert str(os.getpid()) in result.stderr


def test_jars_that_cannot_be_fetched_are_3(tmp_path: Path) -> None:
    nowhere = {
        **QUICK,
        "HOME": str(tmp_path),
        "HEADRACE_JARS": str(tmp_path / "jars"),
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
        "no_proxy": "",
    }
    result = headrace("sql", "SELECT 1", cwd=tmp_path, environment=nowhere)
    assert result.returncode == 3, result.stderr
    assert (
        "Error [ENVIRONMENT]: Delta's jars (io.delta:delta-spark_4.2_2.13:4.4.0) could not be fetched" in result.stderr
    )
    assert "Traceback" not in result.stderr
    assert (tmp_path / "jars" / "fetch.log").is_file()


def test_a_script_stops_at_its_first_error_and_only_ours_is_on_the_screen(home: Path) -> None:
    script = """CREATE TABLE events (kind STRING, n INT);
INSERT INTO events VALUES ('view', 1), ('view', 2), ('buy', 3);
CREATE DYNAMIC TABLE counts AS SELECT kind, count(*) AS n FROM events GROUP BY kind;
SELECT * FROM counts ORDER BY kind;
SELECT no_such_column FROM events;
SELECT 'never reached';
"""
    result = headrace("sql", "-", cwd=home, stdin=script)
    assert result.returncode == 1, result.stderr
    assert " view | 2\n(2 rows)\n" in result.stdout
    assert "never reached" not in result.stdout
    assert result.stderr.startswith("Error [")
    assert "no_such_column" in result.stderr
    assert "WARN" not in result.stderr
    assert "Traceback" not in result.stderr
    assert {entry.name for entry in home.iterdir()} == {"lake"}


def test_verify_all(home: Path) -> None:
    result = headrace("verify", "--all", "--format", "csv", cwd=home)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[1].startswith("main.public.counts,EQUAL,2,0,0,")


def test_live_sample_data_until_control_c(home: Path) -> None:
    command = [*PROGRAM, "sample-data", "--rows", "500", "--live", "--every", "0.1", "--batch", "20"]
    with subprocess.Popen(
        command, cwd=home, env=QUICK, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        for line in process.stderr:
            if line.startswith("Live: 40 "):
                break
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()
        assert process.wait(60) == 0
    assert said.startswith(f"{SAMPLE_NAME} has 500 events (500 new).\nStopped: ")


def test_spark_ends_with_a_killed_program(home: Path) -> None:
    command = [*PROGRAM, "sql", "SELECT java_method('java.lang.Thread', 'sleep', 600000L)"]
    pid_file = home / "lake" / "logs" / "spark.pid"
    assert not pid_file.exists()
    with subprocess.Popen(
        command, cwd=home, env=QUICK, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        _until(pid_file.exists)
        _until(lambda: pid_file.read_text() != "")
        jvm = int(pid_file.read_text())
        process.kill()
    _until(lambda: not _runs(jvm))


def test_the_demo_runs_and_replaces_only_its_own_lake(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").write_text("")
    refused = headrace("demo", "--lake", "mine", cwd=tmp_path)
    assert refused.returncode == 1
    assert "not an earlier demo's lake" in refused.stderr
    assert (tmp_path / "mine" / "precious").exists()

    result = headrace("demo", "--rows", "2000", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("EQUAL") == 2
    assert "NO_DATA" in result.stdout
    assert 'sql --lake demo-lake "SELECT ' in result.stdout
    assert result.stderr == ""


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


def _until(condition: object, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)
