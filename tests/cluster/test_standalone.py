"""A lake whose Spark is a standalone cluster: tables, a dynamic table, refreshes, VERIFY and a stream.

The test process has a Spark of its own, and a process has one: so this file is also the program that it starts,
`test_standalone.py LAKE MASTER`, which prints one JSON object.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace import Lake

if TYPE_CHECKING:
    from cluster.conftest import Cluster

SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "640m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    # Nothing starts before both workers are there.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "100s",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


@pytest.fixture(scope="module")
def answers(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process on the cluster found."""
    lake = tmp_path_factory.mktemp("standalone") / "lake"
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HEADRACE_", "SPARK_"))}
    done = subprocess.run(
        [sys.executable, __file__, str(lake), cluster.url],
        capture_output=True, text=True, env=environment, timeout=500, check=False,
    )  # fmt: skip
    log = lake / "logs" / "headrace.log"
    told = log.read_text("utf-8", "replace")[-3000:] if log.exists() else "no log"
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-3000:]}\n{told}"
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.timeout(600)
def test_the_work_was_done_on_the_cluster(cluster: Cluster, answers: dict[str, Any]) -> None:
    assert answers["master"] == cluster.url
    assert answers["executors"] == 2, "beside the driver, which runs no task"
    assert cluster.executors() == 2


def test_a_dynamic_table_is_kept_fresh(answers: dict[str, Any]) -> None:
    assert answers["loaded"] == [["Kind 0", "400"], ["Kind 1", "400"], ["Kind 2", "400"], ["Kind 3", "400"]]
    assert answers["refreshed"] == ["SUCCEED", "INCREMENTAL"]
    assert answers["after"] == [["Kind 0", "400"], ["Kind 1", "401"], ["Kind 2", "399"], ["Kind 3", "400"]]
    assert answers["full"] == ["SUCCEED", "FULL"]
    assert answers["verified"] == ["EQUAL", "EQUAL"]


def test_a_stream_moves_once(answers: dict[str, Any]) -> None:
    assert answers["copied"] == [["5000"], ["5001"]]
    assert answers["copied again"] == [["2"]]


def worked(lake: Lake) -> dict[str, Any]:
    lake.sql(
        """
        CREATE TABLE raw (id INT, kind STRING, amount DECIMAL(12,2));
        INSERT INTO raw SELECT id, concat('k', id % 5), id FROM range(0, 2000, 1, 4);
        CREATE TABLE kinds (kind STRING, title STRING);
        INSERT INTO kinds SELECT concat('k', id), concat('Kind ', id) FROM range(4);
        CREATE DYNAMIC TABLE totals REFRESH_MODE = INCREMENTAL AS
            SELECT title, count(*) AS n, sum(amount) AS total FROM raw JOIN kinds USING (kind) GROUP BY title;
        CREATE TABLE STREAM new_rows ON TABLE raw;
        CREATE TABLE copied (id INT, kind STRING, amount DECIMAL(12,2))
        """
    )
    found: dict[str, Any] = {"loaded": _rows(lake, "SELECT title, n FROM totals ORDER BY title")}
    lake.sql("INSERT INTO raw VALUES (5000, 'k1', 10), (5001, 'k4', 20); DELETE FROM raw WHERE id = 2")
    found["refreshed"] = _refreshed(lake)
    verdicts = [lake.sql("VERIFY DYNAMIC TABLE totals").rows[0][1]]
    found["after"] = _rows(lake, "SELECT title, n FROM totals ORDER BY title")
    take = "INSERT INTO copied SELECT id, kind, amount FROM new_rows WHERE __change_type = 'INSERT'"
    lake.sql(take)
    found["copied"] = _rows(lake, "SELECT id FROM copied ORDER BY id")
    lake.sql(take)
    found["copied again"] = _rows(lake, "SELECT count(*) FROM copied")
    lake.sql("ALTER DYNAMIC TABLE totals SET REFRESH_MODE = FULL; INSERT INTO raw VALUES (5002, 'k0', 1)")
    found["full"] = _refreshed(lake)
    found["verified"] = [*verdicts, lake.sql("VERIFY DYNAMIC TABLE totals").rows[0][1]]
    context: Any = lake.spark.sparkContext
    found["master"] = context.master
    found["executors"] = len(context._jsc.sc().statusTracker().getExecutorInfos()) - 1
    return found


def _rows(lake: Lake, text: str) -> list[list[str]]:
    return [list(map(str, row)) for row in lake.sql(text).rows]


def _refreshed(lake: Lake) -> list[str]:
    result = lake.sql("REFRESH DYNAMIC TABLE totals")
    row = dict(zip(result.columns, result.rows[0], strict=True))
    return [row["state"], row["refresh_mode"]]


if __name__ == "__main__":
    folder, master = Path(sys.argv[1]), sys.argv[2]
    with headrace.open(folder, spark_master=master, driver_memory="1g", spark_settings=SETTINGS) as opened:
        print(json.dumps(worked(opened)), flush=True)
