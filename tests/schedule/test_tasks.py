"""Tasks that run by themselves, on a clock that the tests move."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace import Lake
from headrace.errors import NotAllowed, SyntaxFault, TaskFailed, TimedOut

if TYPE_CHECKING:
    from schedule.conftest import Scheduled


def rows(lake: Lake | Scheduled, text: str) -> list[dict[str, Any]]:
    result = lake.sql(text)
    return [dict(zip(result.columns, row, strict=True)) for row in result.rows]


def runs(lake: Lake | Scheduled, name: str) -> list[dict[str, Any]]:
    """The history of one task, the oldest run first."""
    ((schema,),) = lake.sql("SELECT current_schema()").rows
    found = rows(lake, f"SHOW TASK HISTORY WHERE name = '{name}'")
    return [row for row in reversed(found) if row["schema_name"] == schema]


def states(lake: Lake | Scheduled, name: str) -> list[str]:
    return [row["state"] for row in runs(lake, name)]


def now(scheduled: Scheduled) -> datetime:
    """As results show it: the lake's time zone is UTC."""
    return scheduled.clock().replace(tzinfo=None)


def verify(lake: Lake | Scheduled, *names: str) -> None:
    for name in names:
        assert lake.sql(f"VERIFY DYNAMIC TABLE {name}").rows[0][1] == "EQUAL", name


# The two documents that tasks come from


FIRST, SECOND = "1. Time Processing dy", "2. Aggregate dy"
"""As seed 004 calls its two tasks."""


def test_one_task_prepares_and_another_aggregates_after_it(scheduled: Scheduled) -> None:
    """Seed 004: two tasks at one minute, the second depending on the first, each of which makes its dynamic table if
    need be and refreshes it."""
    scheduled.sql(
        f"""CREATE TABLE event_tb (event STRING, process DOUBLE, event_time TIMESTAMP);
        INSERT INTO event_tb VALUES
          ('event-0', 20.0, TIMESTAMP '2023-09-20 14:43:13'), ('event-0', 20.0, TIMESTAMP '2023-09-19 11:40:13'),
          ('event-1', 21.0, TIMESTAMP '2023-09-19 14:30:14'), ('event-1', 22.0, TIMESTAMP '2023-09-20 14:20:15');
        CREATE TASK `{FIRST}` SCHEDULE = '1 minute' AS BEGIN
          CREATE dynamic TABLE IF NOT EXISTS event_gettime AS
            SELECT event, process, YEAR(event_time) event_year, MONTH(event_time) event_month,
              DAY(event_time) event_day, hour(event_time) event_hour, minute(event_time) event_minute
            FROM event_tb;
          REFRESH dynamic TABLE event_gettime;
        END;
        CREATE TASK `{SECOND}` SCHEDULE = '1 minute' AFTER `{FIRST}` AS BEGIN
          CREATE dynamic TABLE IF NOT EXISTS event_group_minute AS
            SELECT event, event_hour, event_minute, SUM(process) process_sum
            FROM event_gettime GROUP BY event, event_hour, event_minute;
          refresh dynamic table event_group_minute;
        END;"""
    )
    scheduled.minutes(1)
    (first,), (second,) = runs(scheduled, FIRST.lower()), runs(scheduled, SECOND.lower())
    assert (first["state"], second["state"]) == ("SUCCEED", "SUCCEED")
    assert first["scheduled_time"] == second["scheduled_time"] == now(scheduled).replace(second=0)
    assert first["end_time"] <= second["start_time"]
    assert (second["trigger"], second["attempt"], second["merged"]) == ("SCHEDULE", 1, 0)
    assert sorted(scheduled.sql("SELECT * FROM event_gettime").rows) == [
        ("event-0", 20.0, 2023, 9, 19, 11, 40), ("event-0", 20.0, 2023, 9, 20, 14, 43),
        ("event-1", 21.0, 2023, 9, 19, 14, 30), ("event-1", 22.0, 2023, 9, 20, 14, 20),
    ]  # fmt: skip
    groups = [
        ("event-0", 11, 40, 20.0),
        ("event-0", 14, 43, 20.0),
        ("event-1", 14, 20, 22.0),
        ("event-1", 14, 30, 21.0),
    ]
    assert sorted(scheduled.sql("SELECT * FROM event_group_minute").rows) == groups
    shown = {row["name"]: (row["schedule"], row["after"]) for row in rows(scheduled, "SHOW TASKS")}
    assert {each: schedule for each, (schedule, _) in shown.items()} == dict.fromkeys(shown, "1 minute")
    assert shown[FIRST.lower()][1] in (None, "")
    assert FIRST.lower() in str(shown[SECOND.lower()][1])
    scheduled.sql("INSERT INTO event_tb VALUES ('event-0', 20.0, TIMESTAMP '2024-01-20 14:43:13')")
    scheduled.minutes(1)
    groups[1] = ("event-0", 14, 43, 40.0)
    assert sorted(scheduled.sql("SELECT * FROM event_group_minute").rows) == groups
    ((schema,),) = scheduled.sql("SELECT current_schema()").rows
    found = rows(scheduled, "SHOW DYNAMIC TABLE REFRESH HISTORY WHERE name='event_gettime'")
    newest = next(row for row in found if row["schema_name"] == schema)
    assert (newest["state"], newest["refresh_trigger"], newest["refresh_mode"]) == ("SUCCEED", "MANUAL", "INCREMENTAL")
    assert newest["stats"] == '{"rows_deleted":"0","rows_inserted":"1"}'
    assert (newest["virtual_cluster"].upper(), newest["error_message"]) == ("DEFAULT", None)
    assert json.loads(newest["source_tables"]) == [
        {"schema": schema, "table_name": "event_tb", "workspace": newest["workspace_name"]}
    ]
    assert states(scheduled, SECOND.lower()) == ["SUCCEED", "SUCCEED"]
    verify(scheduled, "event_gettime", "event_group_minute")


def test_the_tutorial_runs_by_itself(scheduled: Scheduled) -> None:
    """Seed 001: a task imports rows each minute, one dynamic table cleans them, another counts them, about a minute
    behind; then all of it is taken offline."""
    scheduled.sql(
        """CREATE TABLE behaviour (at TIMESTAMP, user_id BIGINT, action STRING);
        CREATE TASK import SCHEDULE = '1 minute' AS
          INSERT INTO behaviour SELECT SCHEDULED_TIME(), id, IF(id % 2 = 0, ' View', 'BUY ') FROM range(10);
        CREATE DYNAMIC TABLE cleaned REFRESH INTERVAL 1 MINUTE VCLUSTER default AS
          SELECT at, user_id, lower(trim(action)) AS action FROM behaviour;
        CREATE DYNAMIC TABLE counted REFRESH INTERVAL 1 MINUTE VCLUSTER default AS
          SELECT action, count(*) AS events, max(at) AS newest FROM cleaned GROUP BY action"""
    )
    for minute in range(1, 5):
        scheduled.minutes(1)
        assert states(scheduled, "import") == ["SUCCEED"] * minute
        for name in ("cleaned", "counted"):
            (row,) = rows(scheduled, f"SHOW FRESHNESS LIKE '{name}'")
            assert (row["status"], row["lag_second"], row["target_second"]) == ("FRESH", 0, 120)
            assert (row["failures"], row["is_late"], row["reason"]) == (0, False, None)
            assert row["next_refresh"] == now(scheduled).replace(second=0) + timedelta(minutes=1)
        found = {action: (events, newest) for action, events, newest in scheduled.sql("SELECT * FROM counted").rows}
        if minute == 1 and not found:
            continue
        # The import of a minute and the refreshes of the same minute do not wait for each other: what the minute before
        # has brought is there, and what this one brings may be. A tick was a second ago.
        assert found.keys() == {"view", "buy"}
        assert {events for events, _ in found.values()} in ({5 * minute}, {5 * (minute - 1)})
        assert all(now(scheduled) - newest <= timedelta(minutes=1, seconds=1) for _, newest in found.values())
    modes = {
        row["refresh_mode"] for row in rows(scheduled, "SHOW DYNAMIC TABLE REFRESH HISTORY WHERE name = 'counted'")
    }
    assert "INCREMENTAL" in modes
    verify(scheduled, "cleaned", "counted")
    scheduled.sql("ALTER TASK import SUSPEND; ALTER DYNAMIC TABLE cleaned SUSPEND; ALTER DYNAMIC TABLE counted SUSPEND")
    before = scheduled.sql("SELECT count(*) FROM behaviour").rows
    scheduled.minutes(2)
    assert scheduled.sql("SELECT count(*) FROM behaviour").rows == before
    assert len(runs(scheduled, "import")) == 4
    (task,) = rows(scheduled, "SHOW TASKS LIKE 'import'")
    assert (task["state"], task["next_run"], task["last_state"]) == ("SUSPENDED", None, "SUCCEED")
    for name in ("cleaned", "counted"):
        (row,) = rows(scheduled, f"SHOW FRESHNESS LIKE '{name}'")
        assert (row["status"], row["next_refresh"], row["lag_second"]) == ("SUSPENDED", None, 120)
    scheduled.sql("DROP TASK import")
    assert len(runs(scheduled, "import")) == 4
    verify(scheduled, "cleaned", "counted")


# What runs when


def test_a_task_follows_a_refresh(scheduled: Scheduled) -> None:
    scheduled.sql(
        """CREATE TABLE src (a INT); CREATE TABLE seen (n BIGINT);
        CREATE DYNAMIC TABLE doubled REFRESH INTERVAL 1 MINUTE AS SELECT a * 2 AS a FROM src;
        CREATE TASK look AFTER doubled AS INSERT INTO seen SELECT count(*) FROM doubled"""
    )
    scheduled.sql("INSERT INTO src VALUES (1), (2)")
    scheduled.minutes(1)
    assert [row["trigger"] for row in runs(scheduled, "look")] == ["AFTER"]
    assert scheduled.sql("SELECT n FROM seen").rows == [(2,)]
    verify(scheduled, "doubled")


def test_what_comes_after_a_failure_is_skipped_and_says_so(scheduled: Scheduled) -> None:
    scheduled.sql(
        """CREATE TABLE ran (name STRING);
        CREATE TASK broken SCHEDULE = '1 minute' AS INSERT INTO ran SELECT no_such_column;
        CREATE TASK below AFTER broken AS INSERT INTO ran VALUES ('below');
        CREATE TASK further SCHEDULE = '1 minute' AFTER below AS INSERT INTO ran VALUES ('further');
        CREATE TASK beside SCHEDULE = '1 minute' AS INSERT INTO ran VALUES ('beside')"""
    )
    scheduled.minutes(1)
    (broken,), (below,), (further,) = (runs(scheduled, name) for name in ("broken", "below", "further"))
    assert broken["state"] == "FAILED"
    assert "no_such_column" in broken["error_message"]
    assert (below["state"], further["state"]) == ("SKIPPED", "SKIPPED")
    assert "broken failed" in below["reason"]
    assert "broken" in further["reason"]
    assert scheduled.sql("SELECT name FROM ran").rows == [("beside",)]
    scheduled.sql("CREATE OR REPLACE TASK broken SCHEDULE = '1 minute' AS INSERT INTO ran VALUES ('mended')")
    scheduled.minutes(1)
    assert states(scheduled, "further") == ["SKIPPED", "SUCCEED"]
    assert sorted(scheduled.sql("SELECT name FROM ran").rows) == [
        ("below",), ("beside",), ("beside",), ("further",), ("mended",),
    ]  # fmt: skip


def test_late_times_are_merged(scheduled: Scheduled) -> None:
    scheduled.sql("CREATE TABLE ran (at TIMESTAMP)")
    scheduled.sql("CREATE TASK t SCHEDULE = '1 minute' AS INSERT INTO ran SELECT SCHEDULED_TIME()")
    scheduled.clock.forward(600)
    scheduled.settle()
    (run,) = runs(scheduled, "t")
    assert run["merged"] == 9
    assert scheduled.sql("SELECT at FROM ran").rows == [(run["scheduled_time"],)]


def test_a_task_that_fails_in_the_middle_keeps_what_was_done(scheduled: Scheduled) -> None:
    scheduled.sql(
        """CREATE TABLE ran (a INT);
        CREATE TASK t AS BEGIN
          INSERT INTO ran VALUES (1); INSERT INTO nowhere VALUES (2); INSERT INTO ran VALUES (3);
        END;
        EXECUTE TASK t"""
    )
    scheduled.settle()
    (run,) = runs(scheduled, "t")
    assert (run["state"], run["trigger"]) == ("FAILED", "MANUAL")
    assert run["error_message"].startswith("Statement 2 of 3, INSERT INTO nowhere VALUES (2): ")
    assert " Hint: " in run["error_message"]
    assert scheduled.sql("SELECT a FROM ran").rows == [(1,)]
    (job,) = rows(scheduled, f"SHOW JOBS WHERE job_id = '{run['job_id']}'")
    assert str(job["query_tag"]).startswith("task main.")
    assert str(job["query_tag"]).endswith(".t")


def test_a_session_of_its_own(scheduled: Scheduled) -> None:
    """Settings and temporary views of a task are neither its next run's nor anybody else's."""
    scheduled.sql(
        """CREATE TABLE ran (a INT);
        CREATE TASK t AS BEGIN
          CREATE TEMPORARY VIEW v AS SELECT 1 AS a;
          SET spark.sql.shuffle.partitions = 3;
          INSERT INTO ran SELECT a FROM v;
        END;
        EXECUTE TASK t; EXECUTE TASK t"""
    )
    scheduled.settle()
    assert states(scheduled, "t") == ["SUCCEED", "SUCCEED"]
    assert scheduled.lake.spark.conf.get("spark.sql.shuffle.partitions") != "3"


# By hand


def test_a_backfill_computes_its_own_periods(scheduled: Scheduled) -> None:
    scheduled.sql(
        """CREATE TABLE days (day DATE, hours BIGINT);
        CREATE TASK daily SCHEDULE = 'USING CRON 0 6 * * * UTC' AS INSERT INTO days
          SELECT CAST(SCHEDULED_TIME() AS DATE) - 1, count(*) FROM range(24);
        CREATE TASK below AFTER daily AS INSERT INTO days VALUES (NULL, 0)"""
    )
    span = "FROM TIMESTAMP '2025-01-02' TO TIMESTAMP '2025-01-05'"
    preview = rows(scheduled, f"EXECUTE TASK daily {span} PREVIEW")
    assert [f"{row['scheduled_time']:%m-%d %H}" for row in preview] == ["01-02 06", "01-03 06", "01-04 06"]
    scheduled.settle()
    assert runs(scheduled, "daily") == []
    scheduled.sql(f"EXECUTE TASK daily {span}")
    scheduled.settle()
    assert [(row["state"], row["trigger"]) for row in runs(scheduled, "daily")] == [("SUCCEED", "BACKFILL")] * 3
    assert [str(day) for day, _ in scheduled.sql("SELECT * FROM days ORDER BY day").rows] == [
        "2025-01-01", "2025-01-02", "2025-01-03",
    ]  # fmt: skip
    assert runs(scheduled, "below") == []


def test_a_run_by_hand_takes_those_after_it_along(scheduled: Scheduled) -> None:
    scheduled.sql(
        """CREATE TABLE ran (name STRING, at TIMESTAMP);
        CREATE TASK first AS INSERT INTO ran SELECT 'first', SCHEDULED_TIME();
        CREATE TASK second AFTER first AS INSERT INTO ran SELECT 'second', SCHEDULED_TIME()"""
    )
    assert [row["name"] for row in rows(scheduled, "EXECUTE TASK first PREVIEW")] == ["first", "second"]
    scheduled.sql("EXECUTE TASK first AT TIMESTAMP '2025-01-01 10:00:00'")
    scheduled.settle()
    at = datetime(2025, 1, 1, 10, 0)
    assert sorted(scheduled.sql("SELECT * FROM ran").rows) == [("first", at), ("second", at)]


def test_without_a_scheduler_a_task_runs_where_it_is_asked_for(lake: Lake) -> None:
    lake.sql(
        """CREATE TABLE ran (a INT);
        CREATE TASK t SCHEDULE = '1 hour' AS BEGIN INSERT INTO ran VALUES (1); INSERT INTO ran VALUES (2); END"""
    )
    assert [row["state"] for row in rows(lake, "EXECUTE TASK t")] == ["SUCCEED"]
    assert sorted(lake.sql("SELECT a FROM ran").rows) == [(1,), (2,)]
    lake.sql("CREATE TASK broken AS SELECT no_such_column")
    with pytest.raises(Exception, match="no_such_column"):
        lake.sql("EXECUTE TASK broken")
    assert states(lake, "broken") == ["FAILED"]
    lake.sql("DROP TASK t; DROP TASK broken")


def test_without_a_scheduler_limits_and_those_after_it_hold_as_well(lake: Lake) -> None:
    lake.sql(
        """CREATE TABLE ran (a STRING);
        CREATE TASK first AS INSERT INTO ran VALUES ('first');
        CREATE TASK second AFTER first AS INSERT INTO ran VALUES ('second');
        CREATE TASK slow TIMEOUT = '1 second' AS SELECT count(*) FROM range(0, 100000000000)"""
    )
    assert [(row["name"], row["state"]) for row in rows(lake, "EXECUTE TASK first")] == [
        ("first", "SUCCEED"), ("second", "SUCCEED"),
    ]  # fmt: skip
    assert sorted(lake.sql("SELECT a FROM ran").rows) == [("first",), ("second",)]
    with pytest.raises(TimedOut, match="TIMEOUT of 1 seconds"):
        lake.sql("EXECUTE TASK slow")
    assert states(lake, "slow") == ["FAILED"]
    lake.sql("DROP TASK second; DROP TASK first; DROP TASK slow")


# Code


def test_python_and_commands(scheduled: Scheduled) -> None:
    folder = Path(scheduled.lake.settings.path) / "tasks"
    folder.mkdir(exist_ok=True)
    (folder / "note.py").write_text(
        "import os, sys\n"
        "open('noted', 'a').write(sys.argv[1] + os.environ['HEADRACE_SCHEDULED_TIME'])\n"
        "print('noted')\n"
    )
    scheduled.sql(
        "CREATE TASK noting AS PYTHON 'note.py' 'at '; CREATE TASK fails AFTER noting AS SHELL 'sh -c \"exit 7\"'"
    )
    scheduled.sql("EXECUTE TASK noting AT TIMESTAMP '2025-01-01 10:00:00'")
    scheduled.settle()
    (noted,), (failed,) = runs(scheduled, "noting"), runs(scheduled, "fails")
    assert (noted["state"], noted["output"]) == ("SUCCEED", "noted\n")
    assert (folder / "noted").read_text() == "at 2025-01-01T10:00:00+00:00"
    assert failed["state"] == "FAILED"
    assert "exit status 7" in failed["error_message"]
    job = scheduled.lake.store.jobs.get(failed["job_id"])
    assert job is not None
    assert (job.status, job.error_code) == ("FAILED", TaskFailed.code)


# Words


def test_a_syntax_error_of_spark_points_into_the_whole_text(lake: Lake) -> None:
    with pytest.raises(SyntaxFault) as caught:
        lake.sql("CREATE TASK t AS BEGIN\n  SELECT 1;\n  INSERT INTO x SELEC 1;\nEND")
    assert caught.value.position is not None
    assert caught.value.position.line == 3
    with pytest.raises(SyntaxFault) as caught:
        lake.sql("SELECT 1;\nCREATE TASK t AS\n SELECT (1")
    assert caught.value.position is not None
    assert caught.value.position.line == 3


def test_a_schema_is_dropped_with_its_tasks(lake: Lake) -> None:
    lake.sql("CREATE SCHEMA for_tasks; CREATE TASK for_tasks.only_here AS SELECT 1")
    with pytest.raises(NotAllowed, match="task"):
        lake.sql("DROP SCHEMA for_tasks")
    lake.sql("DROP SCHEMA for_tasks CASCADE")
    assert rows(lake, "SHOW TASKS LIKE 'only_here'") == []


def test_a_cluster_that_a_task_needs_stays(lake: Lake) -> None:
    lake.sql("CREATE VCLUSTER for_tasks; CREATE TASK t VCLUSTER for_tasks AS SELECT 1")
    with pytest.raises(NotAllowed, match=r"\.t"):
        lake.sql("DROP VCLUSTER for_tasks")
    lake.sql("DROP TASK t; DROP VCLUSTER for_tasks")


def test_tasks_in_a_query(lake: Lake) -> None:
    lake.sql("CREATE TASK t SCHEDULE = '1 hour' AS SELECT 1")
    found = lake.sql("SELECT name, schedule FROM (SHOW TASKS WHERE kind = 'SQL') WHERE name = 't'").rows
    assert found == [("t", "1 hour")]
    assert lake.sql("SELECT count(*) FROM (SHOW TASK HISTORY) WHERE name = 'never'").rows == [(0,)]
    lake.sql("DROP TASK t")


def test_a_task_after_a_table_that_somebody_refreshes_by_hand(scheduled: Scheduled) -> None:
    scheduled.sql(
        """CREATE TABLE src (n INT); CREATE TABLE seen (n BIGINT, at TIMESTAMP);
        CREATE DYNAMIC TABLE counted AS SELECT count(*) AS n FROM src;
        CREATE TASK tell AFTER counted AS INSERT INTO seen SELECT n, SCHEDULED_TIME() FROM counted"""
    )
    scheduled.minutes(2)
    assert runs(scheduled, "tell") == []
    scheduled.sql("INSERT INTO src VALUES (1); REFRESH DYNAMIC TABLE counted")
    by_hand = now(scheduled)
    scheduled.settle()
    assert scheduled.sql("SELECT * FROM seen").rows == [(1, by_hand)]
    # Also by a task, which has times; and the one after it has the same.
    scheduled.sql(
        """INSERT INTO src VALUES (2);
        CREATE TASK refresh_it SCHEDULE = '1 minute' AS REFRESH DYNAMIC TABLE counted"""
    )
    scheduled.minutes(1)
    (run,) = runs(scheduled, "refresh_it")
    assert scheduled.sql("SELECT * FROM seen WHERE n = 2").rows == [(2, run["scheduled_time"])]
    assert [row["trigger"] for row in runs(scheduled, "tell")] == ["AFTER", "AFTER"]
    scheduled.sql("DROP TASK refresh_it")
    scheduled.minutes(2)
    assert len(runs(scheduled, "tell")) == 2
    verify(scheduled, "counted")
