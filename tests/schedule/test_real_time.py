"""Two minutes of real time: rows come by a task, and two dynamic tables follow, about a minute behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from headrace import Lake

SECONDS = 120
DEFINITIONS = """CREATE TABLE raw (at TIMESTAMP, kind STRING);
    CREATE TASK import SCHEDULE = '1 minute' AS INSERT INTO raw VALUES (SCHEDULED_TIME(), 'view');
    CREATE DYNAMIC TABLE cleaned REFRESH INTERVAL 1 MINUTE AS SELECT at, upper(kind) AS kind FROM raw;
    CREATE DYNAMIC TABLE counted REFRESH INTERVAL 1 MINUTE AS
      SELECT kind, count(*) AS n, max(at) AS newest FROM cleaned GROUP BY kind"""


@pytest.fixture
def running(lake: Lake) -> Iterator[Lake]:
    lake.start_scheduler(guarded=False)
    yield lake
    lake.stop_scheduler()


@pytest.mark.timeout(300)
def test_two_minutes(running: Lake, schema: str) -> None:
    running.sql(DEFINITIONS)
    until = time.monotonic() + SECONDS
    statuses: set[str] = set()
    lags: list[int] = []
    while time.monotonic() < until:
        for status, lag in running.sql(f"SELECT status, lag_second FROM (SHOW FRESHNESS IN {schema})").rows:
            statuses.add(status)
            lags.append(lag)
        time.sleep(1)
    assert statuses <= {"FRESH", "RUNNING", "WAITING"}, "all the time"
    assert max(lags) <= 120

    # Two full minutes have two ticks, counted from the task, which came first. The second may be a moment old.
    ((created,),) = running.sql("SELECT created_time FROM (SHOW TASKS LIKE 'import')").rows
    first = created.replace(second=0, microsecond=0) + timedelta(minutes=1)
    ticks = [first, first + timedelta(minutes=1)]
    refreshed = (
        "SELECT name, count(*) FROM (SHOW DYNAMIC TABLE REFRESH HISTORY) "
        f"WHERE schema_name = '{schema}' AND refresh_trigger = 'LH_SCHEDULED' AND state = 'SUCCEED' GROUP BY name"
    )
    deadline = time.monotonic() + 60
    while True:
        rows = [at for (at,) in running.sql("SELECT at FROM raw ORDER BY at").rows]
        counts = dict(running.sql(refreshed).rows)
        if len(rows) >= 2 and min(counts.get("cleaned", 0), counts.get("counted", 0)) >= 2:
            break
        assert time.monotonic() < deadline, (rows, counts)
        time.sleep(0.5)
    assert rows[:2] == ticks
    ((n, newest),) = running.sql("SELECT n, newest FROM counted").rows
    assert n >= 1, "what came at the first tick is everywhere after the second"
    assert newest >= ticks[0]
    running.sql("ALTER TASK import SUSPEND; ALTER DYNAMIC TABLE cleaned SUSPEND; ALTER DYNAMIC TABLE counted SUSPEND")
    for name in ("cleaned", "counted"):
        assert running.sql(f"VERIFY DYNAMIC TABLE {name}").rows[0][1] == "EQUAL"
