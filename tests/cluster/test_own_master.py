"""A virtual cluster with a Spark master of its own, beside a lake whose Spark is local.

The test process has a Spark of its own, and a process has one: so this file is also the program that it starts,
`test_own_master.py LAKE MASTER`, which prints one JSON object and then waits to be killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace import Lake
from headrace.errors import HeadraceError
from headrace.refresh.recovery import INTERRUPTED
from headrace.security.roles import Principal

if TYPE_CHECKING:
    from cluster.conftest import Cluster

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
PROPERTIES = {"spark.executor.memory": "640m", "spark.executor.cores": "1", "spark.cores.max": "2"}
ENDLESS = "SELECT count(*) FROM range(0, 1000000000000, 1, 4) WHERE pmod(hash(id), 7) = 3"
QUERIES = (
    "SELECT kind, count(*) AS n, sum(amount) FROM raw GROUP BY kind ORDER BY kind",
    "SELECT r.id, k.title FROM raw r LEFT JOIN kinds k USING (kind) WHERE r.id < 12 ORDER BY r.id",
    "WITH big AS (SELECT * FROM raw WHERE amount > 1990) SELECT * FROM big ORDER BY id",
    "SELECT * FROM seen ORDER BY title",
    "SELECT * FROM totals ORDER BY title",
    "SELECT t.title, (SELECT max(id) FROM raw) AS top FROM totals AS t ORDER BY 1",
    "SELECT CAST('2026-01-01 12:00:00' AS TIMESTAMP) AS at, INTERVAL 1 DAY AS day, NULL AS nothing, array(1) AS a",
)
HERE = {
    "temporary view": "SELECT count(*) FROM passing",
    "at a fixed version": "SELECT count(*) FROM raw VERSION AS OF 1",
    "SQL function": "SELECT twice(21)",
    "current schema": "SELECT current_schema()",
    "cannot be read there": "SELECT max(public.raw.id) FROM public.raw",
}


@pytest.fixture(scope="module")
def program(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The process, still running, and what it found."""
    lake = tmp_path_factory.mktemp("own") / "lake"
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HEADRACE_", "SPARK_"))}
    errors = lake.parent / "stderr"
    with errors.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, __file__, str(lake), cluster.url],
            stdout=subprocess.PIPE, stderr=output, env=environment, text=True,
        )  # fmt: skip
    try:
        assert process.stdout is not None
        text = process.stdout.readline()
        assert text, errors.read_text("utf-8", "replace")[-5000:]
        yield process, json.loads(text)
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def answers(program: tuple[Any, dict[str, Any]]) -> dict[str, Any]:
    return program[1]


@pytest.mark.timeout(900)
def test_queries_give_the_same_rows_there(cluster: Cluster, answers: dict[str, Any]) -> None:
    assert cluster.executors() > 0
    for text, here, there, phases in answers["queries"]:
        assert there == here, text
        assert not [phase for phase in phases if phase.startswith("not on")], text


def test_what_needs_the_session_runs_here(answers: dict[str, Any]) -> None:
    for reason, (here, there, phases) in answers["kept"].items():
        assert there == here, reason
        assert any(phase.startswith("not on etl: ") and reason in phase for phase in phases), (reason, phases)


def test_settings_of_the_session_hold_there(answers: dict[str, Any]) -> None:
    assert answers["ansi off"] == [["None"]]
    assert answers["ansi on"] == "QUERY_FAILED"


def test_refreshes(answers: dict[str, Any]) -> None:
    assert answers["refreshes"] == [["SUCCEED", "INCREMENTAL"], ["SUCCEED", "FULL"], ["SUCCEED", "NO_DATA"]]
    assert answers["verified"] == ["EQUAL", "EQUAL", "EQUAL"]
    assert answers["refreshed there"] == [True, True]
    assert answers["rebound"] == ["SUCCEED", "FULL"]
    assert any(phase.startswith("not on etl: ") for phase in answers["rebound phases"])


def test_jobs_are_counted_and_results_cut_there(answers: dict[str, Any]) -> None:
    rows, truncated, job = answers["cut"]
    assert (rows, truncated) == (100, True)
    assert "binding" in job["phases"]
    assert job["spark_jobs"] >= 1
    assert job["rows_read"] > 0
    assert answers["refresh counts"]["rows_written"] > 0
    assert answers["refresh counts"]["bytes_written"] > 0


def test_errors_there_tell_nothing_of_hidden_rows(answers: dict[str, Any]) -> None:
    for told in answers["hidden"]:
        assert "carol" not in told
        assert "not told" in told
    assert "binding" in answers["hidden phases"]
    assert not [phase for phase in answers["hidden phases"] if phase.startswith("not on")]


def test_a_statement_runs_on_the_cluster_that_it_was_submitted_to(answers: dict[str, Any]) -> None:
    vcluster, phases = answers["overtaken"]
    assert vcluster == "default"
    assert "binding" not in phases


def test_a_cancelled_query_ends(answers: dict[str, Any]) -> None:
    code, seconds, same_process = answers["cancelled"]
    assert code == "CANCELLED"
    assert seconds < 15
    assert same_process


def test_a_process_that_is_killed_is_started_again(answers: dict[str, Any]) -> None:
    code, seconds = answers["killed"]
    assert code == "ENVIRONMENT"
    assert seconds < 15
    assert answers["after kill"] == [["2004"]]


def test_a_refresh_that_hangs_when_it_is_cancelled_ends_with_its_process(answers: dict[str, Any]) -> None:
    code, state_after_cancel, state_after_kill, message, lease = answers["hung"]
    assert code == "CANCELLED"
    assert state_after_cancel == "RUNNING", "nobody can know more as long as its process is there"
    assert (state_after_kill, message) == ("FAILED", INTERRUPTED)
    assert lease is None


def test_a_suspended_cluster_has_no_process(answers: dict[str, Any]) -> None:
    assert answers["suspended"] is True


def test_a_master_that_is_away(answers: dict[str, Any]) -> None:
    code, seconds, message = answers["away"]
    assert code == "ENVIRONMENT"
    assert "spark://127.0.0.1:1" in message
    assert seconds < 60


def test_everything_ends_with_the_lake(program: tuple[Any, dict[str, Any]]) -> None:
    """The last test of this file: it kills the program."""
    process, answers = program
    assert all(map(_is_alive, answers["pids"]))
    process.kill()
    process.wait()
    deadline = time.monotonic() + 15
    while any(map(_is_alive, answers["pids"])):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# ---------------------------------------------------------------------- the program


def worked(lake: Lake, folder: Path, master: str) -> dict[str, Any]:
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in {"spark.master": master, **PROPERTIES}.items())
    lake.sql(
        f"""
        CREATE TABLE raw (id INT, kind STRING, amount DECIMAL(12,2));
        INSERT INTO raw SELECT id, concat('k', id % 5), id FROM range(0, 2000, 1, 4);
        CREATE TABLE kinds (kind STRING, title STRING);
        INSERT INTO kinds SELECT concat('k', id), concat('Kind ', id) FROM range(4);
        CREATE VIEW seen AS SELECT title, count(*) AS n FROM raw JOIN kinds USING (kind) GROUP BY title;
        CREATE TEMPORARY VIEW passing AS SELECT * FROM raw WHERE id < 7;
        CREATE TEMPORARY FUNCTION twice(x INT) RETURNS INT RETURN x * 2;
        CREATE VCLUSTER etl PROPERTIES ({properties});
        CREATE DYNAMIC TABLE totals AS SELECT title, n + 0 AS n FROM seen;
        ALTER DYNAMIC TABLE totals SET VCLUSTER etl
        """
    )
    here = {text: _rows(lake, text) for text in (*QUERIES, *HERE.values())}
    lake.sql("USE VCLUSTER etl")
    found: dict[str, Any] = {"queries": [(text, here[text], *_looked_at(lake, text)) for text in QUERIES]}
    found["kept"] = {reason: (here[text], *_looked_at(lake, text)) for reason, text in HERE.items()}
    found["ansi on"] = _code(lambda: _rows(lake, "SELECT 1 / (id - id) FROM raw LIMIT 1"))
    lake.sql("SET spark.sql.ansi.enabled = false")
    found["ansi off"] = _rows(lake, "SELECT 1 / (id - id) FROM raw LIMIT 1")
    lake.sql("SET spark.sql.ansi.enabled = true")
    found |= _refreshes(lake)
    found |= _sessions(lake)
    found |= _ends(lake, folder)
    return found


def _refreshes(lake: Lake) -> dict[str, Any]:
    """The table's storage is written by the process of the cluster, and read, verified and altered by the lake's."""
    log = Path(next(table.storage_path for table in lake.store.tables())) / "_delta_log"
    states, verdicts, there = [], [], []
    for change in ("SET REFRESH_MODE = INCREMENTAL", "SET REFRESH_MODE = FULL"):
        lake.sql(f"ALTER DYNAMIC TABLE totals {change}; INSERT INTO raw VALUES (5000, 'k1', 10), (5001, 'k4', 20)")
        before = len(list(log.glob("*.json")))
        states.append(_refreshed(lake))
        there.append(not _phases(lake, "not on") and len(list(log.glob("*.json"))) > before)
        verdicts.append(lake.sql("VERIFY DYNAMIC TABLE totals").rows[0][1])
    states.append(_refreshed(lake))
    lake.sql(
        "CREATE OR REPLACE VIEW seen AS SELECT title, 2 * count(*) AS n FROM raw JOIN kinds USING (kind) GROUP BY 1"
    )
    rebound = _refreshed(lake)
    phases = _phases(lake, "not on")
    verdicts.append(lake.sql("VERIFY DYNAMIC TABLE totals").rows[0][1])
    return {
        "refreshes": states, "verified": verdicts, "refreshed there": there, "rebound": rebound,
        "rebound phases": phases,
    }  # fmt: skip


def _sessions(lake: Lake) -> dict[str, Any]:
    """What a server's users see of it."""
    found: dict[str, Any] = {"refresh counts": lake.store.history(5)[-1].profile.model_dump(mode="json")}
    tells = "CASE WHEN sal > 1000 THEN CAST(concat(who, '=', sal) AS INT) = 1 ELSE true END"
    lake.sql(
        """
        CREATE SCHEMA secret; CREATE TABLE secret.people (who STRING, sal INT, dept STRING);
        INSERT INTO secret.people VALUES ('bob', 777, 'open'), ('carol-hidden', 99999, 'board');
        CREATE TABLE secret.allowed (dept STRING); INSERT INTO secret.allowed VALUES ('open');
        CREATE SCHEMA own;
        CREATE VIEW own.people AS SELECT who, sal FROM secret.people JOIN secret.allowed USING (dept);
        CREATE USER dev WITH PASSWORD 'long enough' ROLE developer; GRANT ALL ON SCHEMA own TO dev;
        GRANT SELECT ON TABLE raw TO dev
        """
    )
    before = lake._context.settings
    lake._context.settings = before.model_copy(update={"result_rows_max": 100})
    session = lake.session(Principal("dev", "developer"), vcluster="etl")
    lake._context.settings = before

    def ended(text: str) -> Any:
        job = session.submit(text)
        assert job.wait(300)
        return job

    cut = ended("SELECT id FROM raw ORDER BY id")
    found["cut"] = (len(cut.result), cut.result.truncated, cut.job.model_dump(mode="json"))
    query = f"SELECT who, sal FROM own.people WHERE {tells}"
    failed = ended(query)
    found["hidden"] = [str(failed.error)]
    found["hidden phases"] = list(failed.job.phases)
    lazily = "PROPERTIES ('initialize' = 'on_schedule') REFRESH VCLUSTER etl"
    assert ended(f"CREATE DYNAMIC TABLE own.leak {lazily} AS {query}").error is None
    found["hidden"].append(str(ended("REFRESH DYNAMIC TABLE own.leak").error))
    found["hidden"].append(str([record.error_message for record in lake.store.history(1)]))
    ended("USE VCLUSTER default")
    slow = session.submit("SELECT count(*) FROM range(0, 1000000000000, 1, 4) WHERE pmod(hash(id), 7) = 3")
    waits = session.submit("SELECT count(*) FROM raw")
    session.submit("USE VCLUSTER etl").wait(60)
    slow.cancel()
    assert waits.wait(120)
    found["overtaken"] = (waits.job.vcluster, list(waits.job.phases))
    lake.sql("DROP DYNAMIC TABLE own.leak")
    return found


def _ends(lake: Lake, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    pid = lake.workers.running()["etl"]
    code, seconds = _while_endless(lake, lambda: lake.compute.cancel(lake.compute.jobs()[0].id, "a test"))
    found["cancelled"] = (code, seconds, lake.workers.running().get("etl") == pid)
    found["killed"] = _while_endless(lake, lambda: os.kill(lake.workers.running()["etl"], 9))
    found["after kill"] = _rows(lake, "SELECT count(*) FROM raw")
    found["hung"] = _hung(lake)
    lake.sql("ALTER VCLUSTER etl SUSPEND")
    deadline = time.monotonic() + 30
    while lake.workers.running() and time.monotonic() < deadline:
        time.sleep(0.05)
    found["suspended"] = not lake.workers.running()
    lake.sql("ALTER VCLUSTER etl RESUME")
    lake.sql("CREATE VCLUSTER nowhere PROPERTIES ('spark.master' = 'spark://127.0.0.1:1'); USE VCLUSTER nowhere")
    began = time.monotonic()
    try:
        lake.sql("SELECT count(*) FROM raw")
    except HeadraceError as error:
        found["away"] = (error.code, time.monotonic() - began, error.message)
    lake.sql("USE VCLUSTER etl; SELECT count(*) FROM raw")
    java = int((folder / "workers" / "etl" / "logs" / "spark.pid").read_text("utf-8"))
    found["pids"] = [lake.workers.running()["etl"], java]
    return found


def _hung(lake: Lake) -> tuple[str, str, str, str | None, str | None]:
    """How a refresh ends whose process hears nothing any more: its job is cancelled, then the process is killed."""
    lake.sql(
        """
        CREATE DYNAMIC TABLE endless PROPERTIES ('initialize' = 'on_schedule') AS
            SELECT count(*) AS n FROM raw AS a, raw AS b, raw AS c, raw AS d WHERE pmod(hash(a.id, d.id), 7) = 3;
        ALTER DYNAMIC TABLE endless SET VCLUSTER etl
        """
    )
    table = next(table for table in lake.store.tables() if table.name == "endless")
    codes: list[str] = []
    thread = threading.Thread(target=lambda: codes.append(_code(lambda: lake.sql("REFRESH DYNAMIC TABLE endless"))))
    thread.start()
    _until(lambda: [record.state for record in lake.store.history(1, table.id)] == ["RUNNING"])
    pid = lake.workers.running()["etl"]
    os.kill(pid, signal.SIGSTOP)
    lake.compute.cancel(lake.compute.jobs()[0].id, "a test")
    thread.join(60)
    after_cancel = lake.store.history(1, table.id)[0].state
    os.kill(pid, signal.SIGKILL)
    _until(lambda: lake.store.lease(table.id) is None)
    record, lease = lake.store.history(1, table.id)[0], lake.store.lease(table.id)
    lake.sql("DROP DYNAMIC TABLE endless")
    return codes[0], after_cancel, record.state, record.error_message, None if lease is None else lease.owner


def _until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)


def _while_endless(lake: Lake, then: Callable[[], object]) -> tuple[str, float]:
    """How a query that never ends does end, and so many seconds after this was done."""
    codes: list[str] = []
    thread = threading.Thread(target=lambda: codes.append(_code(lambda: lake.sql(ENDLESS))))
    thread.start()
    busy = threading.Event()
    while not busy.wait(0.1):
        if any(not process.is_idle for process in lake.workers._processes.values()):
            busy.set()
    time.sleep(3)  # Its tasks are at work by then; nothing here can see them.
    began = time.monotonic()
    then()
    thread.join(120)
    return codes[0] if codes else "it goes on", time.monotonic() - began


def _code(work: Callable[[], object]) -> str:
    try:
        work()
    except HeadraceError as error:
        return error.code
    return "none"


def _rows(lake: Lake, text: str) -> list[list[str]]:
    return [list(map(str, row)) for row in lake.sql(text).rows]


def _looked_at(lake: Lake, text: str) -> tuple[list[list[str]], list[str]]:
    return _rows(lake, text), _phases(lake, "")


def _phases(lake: Lake, beginning: str) -> list[str]:
    """The phases of the last job."""
    return [phase for phase in lake.store.jobs.recent(1)[0].phases if phase.startswith(beginning)]


def _refreshed(lake: Lake) -> list[str]:
    result = lake.sql("REFRESH DYNAMIC TABLE totals")
    row = dict(zip(result.columns, result.rows[0], strict=True))
    return [row["state"], row["refresh_mode"]]


if __name__ == "__main__":
    place = Path(sys.argv[1])
    opened = headrace.open(place, spark_master="local[1]", driver_memory="1g", spark_settings=SETTINGS)
    print(json.dumps(worked(opened, place, sys.argv[2])), flush=True)
    threading.Event().wait()
