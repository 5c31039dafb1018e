"""Sums of floats come out otherwise when they are added in another order: nothing may be lost or kept by that."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from conftest import setting
from headrace import Lake
from headrace.errors import Unsupported
from headrace.ivm.changeset import WEIGHT
from headrace.ivm.state import state_of
from headrace.plan.nodes import AggregateCall
from refresh.test_sources import refresh

DECIDING = [
    "SELECT k FROM (SELECT k, count(*) AS n, sum(x) AS s FROM t GROUP BY k) JOIN u USING (k) WHERE s > 0.5",
    "SELECT s, count(*) AS n FROM (SELECT k, sum(x) AS s FROM t GROUP BY k) GROUP BY s",
    "SELECT u.k FROM u JOIN (SELECT k, avg(x) AS a FROM t GROUP BY k) ON a = u.limit",
    "SELECT DISTINCT stddev(x) AS d FROM t GROUP BY k",
    "SELECT k FROM (SELECT k, x, avg(x) OVER (PARTITION BY k % 2) AS a FROM t) WHERE x > a",
]


@pytest.fixture
def files(lake: Lake) -> Lake:
    """Each row in a file of its own: in one order they add up to 0.0, in another to 1.0."""
    lake.sql("CREATE TABLE t (k INT, x DOUBLE); CREATE TABLE u (k INT, limit DOUBLE)")
    for value in ("1e16D", "1.0D", "-1e16D"):
        lake.sql(f"INSERT INTO t VALUES (1, {value}), (2, {value})")
    lake.sql("INSERT INTO u VALUES (1, 0.5), (2, 0.5)")
    return lake


def test_nothing_is_decided_by_a_rounded_value(files: Lake) -> None:
    told = r"as a double, rounded, by which a filter, join or group further up decides"
    for query in DECIDING:
        with pytest.raises(Unsupported, match=told):
            files.sql(f"CREATE DYNAMIC TABLE d REFRESH_MODE = INCREMENTAL AS {query}")
    files.sql(f"CREATE DYNAMIC TABLE d AS {DECIDING[0]}; OPTIMIZE t; DELETE FROM t WHERE k = 1")
    row = refresh(files)
    assert row["refresh_mode"] == "FULL"
    assert "rounded" in row["reason"]


def test_rounded_values_are_shown_and_added_up(files: Lake) -> None:
    """What is taken out is what was stored; groups over such values are computed anew when one goes."""
    files.sql(
        """
        CREATE DYNAMIC TABLE most REFRESH_MODE = INCREMENTAL AS
        SELECT k % 1 AS one, max(s) AS largest, count(*) AS n, sum(CAST(s AS DECIMAL(20,1))) AS added
        FROM (SELECT k, sum(x) AS s FROM t GROUP BY k) GROUP BY k % 1;
        CREATE DYNAMIC TABLE above REFRESH_MODE = INCREMENTAL AS
        SELECT k, x, a FROM (SELECT k, x, avg(x) OVER (PARTITION BY k) AS a FROM t) WHERE x >= a
        """
    )
    for change in ("OPTIMIZE t; DELETE FROM t WHERE k = 1 AND x = 1", "INSERT INTO t VALUES (2, 5.0D)"):
        files.sql(change)
        for name in ("most", "above"):
            # What Spark would now come to depends on the order of its files: VERIFY has to wait for the end.
            refreshed = files.sql(f"REFRESH DYNAMIC TABLE {name}")
            assert dict(zip(refreshed.columns, refreshed.rows[0], strict=True))["refresh_mode"] == "INCREMENTAL"
    files.sql("DELETE FROM t")
    assert [refresh(files, name)["refresh_mode"] for name in ("most", "above")] == ["INCREMENTAL", "INCREMENTAL"]
    assert files.sql("SELECT * FROM most").rows == []
    assert files.sql("SELECT * FROM above").rows == []


def test_a_decimal_sum_that_was_too_large_is_not_added_to(lake: Lake) -> None:
    """Without ANSI mode it is NULL, and must not be taken for nothing."""
    wide = "decimal(38,0)"
    state = state_of(AggregateCall(name="s", function="sum", argument="x", argument_type=wide, type=wide), "s")
    kept = lake.spark.sql(
        f"SELECT CAST(NULL AS {wide}) AS o_s, 2L AS o_s_n, CAST(5 AS {wide}) AS d_s, 1L AS d_s_n FROM range(1)"
    )
    with pytest.raises(PySparkException, match="more digits than its type holds"):
        kept.selectExpr(state.fold[0]).collect()
    assert kept.selectExpr("0L AS o_s_n", "* EXCEPT (o_s_n)").selectExpr(state.fold[0]).collect()[0][0] == 5
    with setting(lake, "spark.sql.ansi.enabled", "false"):
        most = "9" * 38
        changes = lake.spark.sql(f"SELECT CAST({most} AS {wide}) AS x, 1 AS {WEIGHT} FROM range(2)")
        with pytest.raises(PySparkException, match="more digits than its type holds"):
            changes.selectExpr(state.delta[0]).collect()
