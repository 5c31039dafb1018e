"""Dynamic tables that refresh by themselves, on a clock that the tests move."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from headrace.catalog.records import Mark
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from schedule.conftest import Scheduled


def history(scheduled: Scheduled, name: str) -> list[dict[str, Any]]:
    """The refreshes of one table of this schema, the oldest first, without that of CREATE."""
    ((schema,),) = scheduled.sql("SELECT current_schema()").rows
    result = scheduled.sql(f"SHOW DYNAMIC TABLE REFRESH HISTORY WHERE name = '{name}'")
    found = [dict(zip(result.columns, row, strict=True)) for row in reversed(result.rows)]
    return [row for row in found if row["schema_name"] == schema][1:]


def modes(scheduled: Scheduled, name: str) -> list[str | None]:
    return [row["refresh_mode"] for row in history(scheduled, name)]


def states(scheduled: Scheduled, name: str) -> list[str]:
    return [row["state"] for row in history(scheduled, name)]


def mark(scheduled: Scheduled, name: str) -> Mark:
    table = scheduled.lake._context.require_dynamic((name,))
    return next(each for each in scheduled.lake.store.marks.all() if each.object_id == table.id)


def verify(scheduled: Scheduled, *names: str) -> None:
    for name in names:
        assert scheduled.sql(f"VERIFY DYNAMIC TABLE {name}").rows[0][1] == "EQUAL", name


@pytest.fixture
def diamond(scheduled: Scheduled) -> Scheduled:
    """src → base → (left, right) → bottom; right fails for n = 0."""
    scheduled.sql(
        """CREATE TABLE src (k STRING, n INT); INSERT INTO src VALUES ('a', 1), ('b', 2);
        CREATE DYNAMIC TABLE base REFRESH INTERVAL 1 MINUTE AS SELECT k, n FROM src WHERE n >= 0;
        CREATE DYNAMIC TABLE left_side REFRESH INTERVAL 1 MINUTE AS SELECT k, sum(n) AS s FROM base GROUP BY k;
        CREATE DYNAMIC TABLE right_side REFRESH INTERVAL 1 MINUTE AS SELECT k, 100 DIV n AS share FROM base;
        CREATE DYNAMIC TABLE bottom REFRESH INTERVAL 1 MINUTE AS
          SELECT l.k, l.s, r.share FROM left_side l JOIN right_side r ON l.k = r.k"""
    )
    return scheduled


TABLES = ("base", "left_side", "right_side", "bottom")


def test_upstream_before_downstream_within_one_tick(diamond: Scheduled) -> None:
    diamond.sql("INSERT INTO src VALUES ('c', 4)")
    diamond.minutes(1)
    assert {name: modes(diamond, name) for name in TABLES} == {key: ["INCREMENTAL"] for key in TABLES}
    rows = {name: history(diamond, name)[0] for name in TABLES}
    assert {row["refresh_trigger"] for row in rows.values()} == {"SYSTEM_SCHEDULED"}
    named = "SHOW DYNAMIC TABLE REFRESH HISTORY WHERE refresh_trigger = 'LH_SCHEDULED' AND job_id = '{}'"
    assert len(diamond.sql(named.format(rows["base"]["job_id"])).rows) == 1, "as others call it"
    now = diamond.clock().replace(tzinfo=None)
    assert all(now < row["completion_target"] <= now + timedelta(minutes=1) for row in rows.values())
    assert ("c", 4, 25) in diamond.sql("SELECT * FROM bottom").rows, "the new row came all the way in one tick"
    diamond.minutes(2)
    assert {name: modes(diamond, name)[1:] for name in TABLES} == {key: ["NO_DATA", "NO_DATA"] for key in TABLES}
    verify(diamond, *TABLES)


def test_from_start_with_on(scheduled: Scheduled) -> None:
    """Not before it, and from then on at its interval, whatever the minutes of others are."""
    start = scheduled.clock().replace(second=30) + timedelta(minutes=3)
    scheduled.sql(
        f"""CREATE TABLE src (a INT);
        CREATE DYNAMIC TABLE later REFRESH START WITH TIMESTAMP '{start:%Y-%m-%d %H:%M:%S}' INTERVAL 2 MINUTE
          AS SELECT a FROM src;
        INSERT INTO src VALUES (1)"""
    )
    scheduled.minutes(3)
    assert history(scheduled, "later") == []
    shown = scheduled.sql("SELECT next_refresh FROM (SHOW FRESHNESS LIKE 'later')").rows
    assert shown == [(start.replace(tzinfo=None),)]
    scheduled.minutes(1)
    assert modes(scheduled, "later") == ["INCREMENTAL"]
    assert mark(scheduled, "later").tick == start
    assert history(scheduled, "later")[0]["completion_target"] == start.replace(tzinfo=None) + timedelta(minutes=2)
    scheduled.minutes(1)
    assert len(modes(scheduled, "later")) == 1
    scheduled.minutes(1)
    assert modes(scheduled, "later") == ["INCREMENTAL", "NO_DATA"]
    assert mark(scheduled, "later").tick == start + timedelta(minutes=2)
    verify(scheduled, "later")


def test_a_refresh_by_schedule_is_a_job_and_one_without_changes_is_none(diamond: Scheduled) -> None:
    before = len(diamond.lake.store.jobs.recent())
    diamond.minutes(1)
    assert len(diamond.lake.store.jobs.recent()) == before
    diamond.sql("INSERT INTO src VALUES ('c', 4)")
    diamond.minutes(1)
    (row,) = history(diamond, "base")[1:]
    job = diamond.lake.store.jobs.get(row["job_id"])
    assert job is not None
    assert (job.status, job.text.split("`")[0]) == ("SUCCEED", "REFRESH DYNAMIC TABLE ")
    verify(diamond, *TABLES)


def test_one_failing_branch_does_not_hold_up_the_other(diamond: Scheduled) -> None:
    diamond.sql("INSERT INTO src VALUES ('z', 0)")
    diamond.minutes(1)
    assert (modes(diamond, "base"), modes(diamond, "left_side")) == (["INCREMENTAL"], ["INCREMENTAL"])
    assert states(diamond, "right_side") == ["FAILED"]
    assert "zero" in history(diamond, "right_side")[0]["error_message"].lower()
    (skip,) = history(diamond, "bottom")
    assert (skip["state"], skip["refresh_mode"], skip["technique"]) == ("SUCCEED", "NO_DATA", "SKIPPED")
    assert skip["reason"].startswith("Skipped: its upstream ")
    assert "right_side failed: " in skip["reason"]
    skipped = mark(diamond, "bottom")
    assert skipped.state == "SKIPPED"
    assert skipped.reason is not None
    assert "right_side failed" in skipped.reason
    verify(diamond, "base", "left_side", "bottom")
    diamond.minutes(1)
    assert len(history(diamond, "bottom")) == 1, "it is told once"
    diamond.sql("DELETE FROM src WHERE n = 0")
    diamond.minutes(1)
    assert states(diamond, "right_side")[-1] == "SUCCEED"
    assert history(diamond, "bottom")[0] == skip, "and stays"
    verify(diamond, *TABLES)


def test_five_failures_suspend_a_table_and_what_reads_it_is_skipped(diamond: Scheduled) -> None:
    diamond.sql("INSERT INTO src VALUES ('z', 0)")
    diamond.minutes(6)
    assert states(diamond, "right_side") == ["FAILED"] * 5, "the sixth tick finds it suspended"
    table = diamond.lake._context.require_dynamic(("right_side",))
    told = [row["suspended_reason"] for row in history(diamond, "right_side")]
    assert told == [None] * 4 + [table.suspended_reason], "the last one says what came of it"
    assert table.suspended
    assert table.suspended_reason is not None
    assert table.suspended_reason.startswith("Five scheduled refreshes in a row failed;")
    reason = mark(diamond, "bottom").reason
    assert reason is not None
    assert "is suspended" in reason
    diamond.sql("ALTER DYNAMIC TABLE right_side RESUME")
    assert mark(diamond, "right_side").failures == 0
    diamond.settle()
    assert states(diamond, "right_side") == ["FAILED"] * 6, "it is tried at once"
    diamond.minutes(1)
    assert mark(diamond, "right_side").failures == 2
    diamond.sql(
        """DELETE FROM src WHERE n = 0; REFRESH DYNAMIC TABLE base;
        CREATE OR REPLACE DYNAMIC TABLE right_side REFRESH INTERVAL 1 MINUTE AS SELECT k, 50 DIV n AS share FROM base"""
    )
    assert mark(diamond, "right_side").failures == 0, "another query that could be loaded counts anew"
    diamond.minutes(1)
    assert states(diamond, "right_side")[-1] == "SUCCEED"
    assert states(diamond, "bottom")[-1] == "SUCCEED"
    verify(diamond, *TABLES)


def test_late_ticks_are_merged(diamond: Scheduled) -> None:
    diamond.sql("INSERT INTO src VALUES ('c', 4)")
    diamond.clock.forward(60 * 60)
    diamond.settle()
    assert {name: modes(diamond, name) for name in TABLES} == {key: ["INCREMENTAL"] for key in TABLES}
    assert mark(diamond, "base").merged >= 58
    diamond.settle()
    assert len(history(diamond, "base")) == 1, "one tick, one refresh"
    verify(diamond, *TABLES)


def test_a_lag_for_the_last_table_only(scheduled: Scheduled) -> None:
    scheduled.sql(
        """CREATE TABLE src (n INT); INSERT INTO src VALUES (1);
        CREATE DYNAMIC TABLE first TARGET_LAG = DOWNSTREAM AS SELECT n * 2 AS n FROM src;
        CREATE DYNAMIC TABLE last TARGET_LAG = '10 minutes' AS SELECT sum(n) AS n FROM first;
        INSERT INTO src VALUES (2)"""
    )
    scheduled.minutes(5)
    assert (modes(scheduled, "first"), modes(scheduled, "last")) == (["INCREMENTAL"], ["INCREMENTAL"])
    assert scheduled.sql("SELECT n FROM last").rows == [(6,)]
    scheduled.sql("ALTER DYNAMIC TABLE last SUSPEND; INSERT INTO src VALUES (3)")
    scheduled.minutes(6)
    assert modes(scheduled, "first") == ["INCREMENTAL"], "nobody reads it by schedule any more"
    verify(scheduled, "first", "last")


def test_loaded_by_the_schedule(scheduled: Scheduled) -> None:
    scheduled.sql(
        """CREATE TABLE src (n INT); INSERT INTO src VALUES (1);
        CREATE DYNAMIC TABLE later PROPERTIES ('initialize'='on_schedule') REFRESH INTERVAL 1 MINUTE AS
          SELECT n FROM src"""
    )
    with pytest.raises(HeadraceError):
        scheduled.sql("VERIFY DYNAMIC TABLE later")
    scheduled.minutes(1)
    assert scheduled.sql("SELECT n FROM later").rows == [(1,)]
    verify(scheduled, "later")


def test_a_refresh_by_hand_at_the_same_time_is_no_failure(diamond: Scheduled) -> None:
    """Whoever has the table's lease refreshes it; the tick is left out."""
    diamond.sql("INSERT INTO src VALUES ('c', 4)")
    table = diamond.lake._context.require_dynamic(("base",))
    fencing = diamond.lake.store.acquire_lease(table.id, "somebody", 600, diamond.clock())
    diamond.minutes(1)
    found = mark(diamond, "base")
    assert (found.state, found.failures) == ("SKIPPED", 0)
    diamond.lake.store.release_lease(table.id, fencing)
    diamond.minutes(1)
    assert modes(diamond, "base")[-1] == "INCREMENTAL"
    verify(diamond, *TABLES)
