"""SHOW FRESHNESS and `headrace top` on tables that refresh by themselves, on a clock that the tests move."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from headrace import Lake
from headrace.cli.commands.top import look
from headrace.errors import NotFound, QueryFailed
from headrace.security.roles import Principal
from headrace.sql.parser import parse
from headrace.statements import freshness
from headrace.watched import Watched


def shown(lake: Any, rest: str = "") -> dict[str, dict[str, Any]]:
    """The tables of the current schema, by name."""
    ((schema,),) = lake.sql("SELECT current_schema()").rows
    result = lake.sql(f"SHOW FRESHNESS IN {schema} {rest}")
    return {row[1]: dict(zip(result.columns, row, strict=True)) for row in result.rows}


def statuses(lake: Any) -> dict[str, str]:
    return {name: row["status"] for name, row in shown(lake).items()}


def now(scheduled: Any) -> datetime:
    """As results show it: the lake's time zone is UTC."""
    moment: datetime = scheduled.clock()
    return moment.astimezone(timezone.utc).replace(tzinfo=None)


def verify(lake: Any, *names: str) -> None:
    for name in names:
        assert lake.sql(f"VERIFY DYNAMIC TABLE {name}").rows[0][1] == "EQUAL", name


@pytest.fixture
def chain(scheduled: Any) -> Any:
    """Two tables in a row, a third beside them, and one that nobody refreshes."""
    scheduled.sql(
        """CREATE TABLE orders (customer STRING, n INT); INSERT INTO orders VALUES ('a', 1), ('b', 2);
        CREATE DYNAMIC TABLE shares REFRESH INTERVAL 1 MINUTE AS SELECT customer, 100 DIV n AS share FROM orders;
        CREATE DYNAMIC TABLE total REFRESH INTERVAL 1 MINUTE AS SELECT sum(share) AS share FROM shares;
        CREATE DYNAMIC TABLE beside TARGET_LAG = '90 seconds' AS
          SELECT customer, count(*) AS n FROM orders GROUP BY customer;
        CREATE DYNAMIC TABLE by_hand AS SELECT max(n) AS n FROM orders"""
    )
    return scheduled


def test_a_table_falls_behind_and_is_refreshed(chain: Any) -> None:
    chain.minutes(3)
    found = shown(chain)
    assert {name: row["status"] for name, row in found.items()} == {
        "beside": "FRESH", "by_hand": "MANUAL", "shares": "FRESH", "total": "FRESH",
    }  # fmt: skip
    shares = found["shares"]
    assert (shares["target_second"], found["beside"]["target_second"]) == (120, 90)
    assert 0 <= shares["lag_second"] <= 60
    assert now(chain) < shares["next_refresh"] <= now(chain) + timedelta(minutes=1)
    assert (shares["failures"], shares["reason"], shares["running_job"]) == (0, None, None)
    assert shares["last_duration"] >= timedelta(0)
    by_hand = found["by_hand"]
    assert (by_hand["target_second"], by_hand["next_refresh"], by_hand["last_mode"]) == (None, None, "FULL")
    assert by_hand["lag_second"] >= 180

    chain.sql("INSERT INTO orders VALUES ('d', 5)")
    chain.minutes(1)
    shares = shown(chain)["shares"]
    assert (shares["last_mode"], shares["rows_inserted"], shares["rows_deleted"]) == ("INCREMENTAL", 1, 0)
    before = shares["lag_second"]
    chain.clock.forward(30)
    assert shown(chain)["shares"]["lag_second"] == before + 30
    chain.clock.forward(100)
    assert statuses(chain)["shares"] == "LATE"
    chain.settle()
    assert statuses(chain)["shares"] == "FRESH"
    assert shown(chain)["shares"]["last_mode"] == "NO_DATA"
    chain.minutes(2)
    verify(chain, "shares", "total", "beside")


def test_a_failing_table_is_told_with_all_that_hangs_on_it(chain: Any) -> None:
    chain.minutes(1)
    chain.sql("INSERT INTO orders VALUES ('zero', 0)")
    chain.minutes(3)
    found = shown(chain)
    assert (found["shares"]["status"], found["shares"]["failures"]) == ("FAILED", 3)
    assert "DIVIDE_BY_ZERO" in found["shares"]["reason"]
    assert found["shares"]["lag_second"] >= 180
    assert found["total"]["status"] == "SKIPPED"
    assert "shares failed: " in found["total"]["reason"]
    assert found["beside"]["status"] == "FRESH"
    trouble = chain.sql("SELECT name FROM (SHOW FRESHNESS) WHERE status IN ('FAILED', 'SKIPPED') ORDER BY name").rows
    assert ("shares",) in trouble
    assert ("total",) in trouble

    drawn = [line.plain for line in look(chain.lake).lines(120)]
    assert any("shares  " in line and " FAILED " in line for line in drawn)
    assert any("failures in a row: " in line and "DIVIDE_BY_ZERO" in line for line in drawn)

    chain.minutes(2)
    found = shown(chain)
    assert found["shares"]["status"] == "SUSPENDED"
    assert found["shares"]["reason"].startswith("Five scheduled refreshes in a row failed; mend it, then ALTER DYNAMIC")
    assert found["shares"]["failures"] == 5
    assert found["shares"]["next_refresh"] is None
    chain.minutes(2)
    assert shown(chain)["total"]["status"] == "SKIPPED"
    assert "shares is suspended: Five scheduled" in shown(chain)["total"]["reason"]

    chain.sql("DELETE FROM orders WHERE n = 0; REFRESH DYNAMIC TABLE shares")
    assert shown(chain)["shares"]["failures"] == 0, "one by hand that succeeds counts anew"
    chain.sql("ALTER DYNAMIC TABLE shares RESUME")
    chain.minutes(3)
    found = shown(chain)
    assert [found[name]["status"] for name in ("shares", "total", "beside")] == ["FRESH"] * 3
    assert (found["shares"]["failures"], found["total"]["reason"]) == (0, None)
    verify(chain, "shares", "total", "beside")


def test_a_table_that_follows_its_readers(scheduled: Any) -> None:
    scheduled.sql(
        """CREATE TABLE src (a INT); INSERT INTO src VALUES (1);
        CREATE DYNAMIC TABLE first TARGET_LAG = DOWNSTREAM AS SELECT a + 1 AS a FROM src;
        CREATE DYNAMIC TABLE second REFRESH INTERVAL 1 MINUTE AS SELECT sum(a) AS a FROM first"""
    )
    scheduled.sql("INSERT INTO src VALUES (2)")
    scheduled.minutes(1)
    found = shown(scheduled)
    assert {name: row["status"] for name, row in found.items()} == {"first": "FRESH", "second": "FRESH"}
    assert (found["first"]["target_second"], found["first"]["last_mode"]) == (None, "INCREMENTAL")
    assert found["first"]["next_refresh"] == found["second"]["next_refresh"]
    verify(scheduled, "first", "second")


def test_a_table_whose_sources_do_not_agree_is_as_old_as_what_it_has(scheduled: Any) -> None:
    scheduled.sql(
        """CREATE TABLE src (k STRING, n INT); INSERT INTO src VALUES ('a', 1);
        CREATE DYNAMIC TABLE left_side REFRESH INTERVAL 1 MINUTE AS SELECT k, sum(n) AS s FROM src GROUP BY k;
        CREATE DYNAMIC TABLE right_side AS SELECT k, count(*) AS c FROM src GROUP BY k;
        CREATE DYNAMIC TABLE bottom REFRESH INTERVAL 1 MINUTE AS
          SELECT l.k, l.s, r.c FROM left_side l JOIN right_side r ON l.k = r.k"""
    )
    scheduled.minutes(2)
    assert statuses(scheduled)["bottom"] == "FRESH"
    scheduled.sql("INSERT INTO src VALUES ('b', 2)")
    scheduled.minutes(15)
    found = shown(scheduled)
    assert found["left_side"]["status"] == "FRESH"
    assert found["bottom"]["status"] == "LATE"
    assert 14 * 60 <= found["bottom"]["lag_second"] <= 17 * 60
    reason = found["bottom"]["reason"]
    assert reason.startswith("Waiting: ")
    assert "left_side has newer rows, and " in reason
    assert reason.endswith("right_side was not refreshed from them yet.")
    facts = {fact.name.table: fact for fact in Watched(scheduled.lake.store, scheduled.clock).facts()}
    assert (facts["bottom"].lag_seconds or 0) > 600, "so an alert on a lag of ten minutes tells of it"
    scheduled.sql("REFRESH DYNAMIC TABLE right_side")
    scheduled.minutes(1)
    bottom = shown(scheduled)["bottom"]
    assert (bottom["status"], bottom["reason"], bottom["last_mode"]) == ("FRESH", None, "INCREMENTAL")
    assert bottom["lag_second"] <= 60
    verify(scheduled, "left_side", "right_side", "bottom")


def test_conditions_and_patterns(chain: Any) -> None:
    assert shown(chain, "LIKE 'b%'").keys() == {"beside", "by_hand"}
    assert shown(chain, "WHERE status = 'MANUAL' AND last_mode = 'FULL'").keys() == {"by_hand"}
    assert shown(chain, "WHERE last_duration < INTERVAL 1 HOUR AND name > 'c'").keys() == {"shares", "total"}
    assert len(shown(chain, "LIMIT 3")) == 3
    with pytest.raises(NotFound, match="no schema"):
        chain.sql("SHOW FRESHNESS IN no_such_schema")
    with pytest.raises(QueryFailed, match="The condition cannot be used"):
        chain.sql("SHOW FRESHNESS WHERE lag > 3")


def test_a_lake_of_ones_own_has_no_clock(lake: Lake) -> None:
    lake.sql("CREATE TABLE src (a INT); INSERT INTO src VALUES (1)")
    lake.sql("CREATE DYNAMIC TABLE here REFRESH INTERVAL 1 MINUTE AS SELECT a FROM src")
    here = shown(lake)["here"]
    assert (here["status"], here["next_refresh"], here["last_mode"]) == ("FRESH", None, "FULL")
    board = look(lake)
    assert board.title.startswith(f"Headrace with the lake {lake.settings.path}, ")
    assert "here" in {row["name"] for row in board.tables}
    assert board.jobs == []
    verify(lake, "here")


def test_users_see_what_they_may_read(lake: Lake, schema: str) -> None:
    lake.sql(
        f"""CREATE TABLE src (a INT);
        CREATE DYNAMIC TABLE open_one AS SELECT a FROM src; CREATE DYNAMIC TABLE closed_one AS SELECT a FROM src;
        CREATE USER watcher WITH PASSWORD 'long enough' ROLE analyst;
        GRANT SELECT ON TABLE {schema}.open_one TO watcher"""
    )
    try:
        context = lake._context.for_user(Principal("watcher", "analyst"))
        found = freshness.show(context, parse("SHOW FRESHNESS"))  # type: ignore[arg-type]
        assert [row[1] for row in found.rows] == ["open_one"]
    finally:
        lake.sql("DROP USER watcher")
