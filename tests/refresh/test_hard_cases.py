"""Cases in which an incremental refresh could go wrong without anybody noticing."""

from __future__ import annotations

import pytest

from headrace import Lake
from headrace.errors import QueryFailed
from refresh.test_sources import refresh


def test_ties_in_the_order_of_a_window_are_not_left_to_chance(lake: Lake) -> None:
    wide = "SELECT {k}, CAST(id AS INT), sha2(CAST(id AS STRING), 256) FROM range({n})"
    lake.sql(
        f"""
        CREATE TABLE t (k INT, v INT, p STRING);
        INSERT INTO t SELECT /*+ COALESCE(1) */ * FROM (SELECT 1, 1, 'a' UNION ALL {wide.format(k=2, n=2000)});
        INSERT INTO t SELECT /*+ COALESCE(1) */ * FROM (SELECT 1, 1, 'b' UNION ALL {wide.format(k=3, n=500)});
        CREATE DYNAMIC TABLE top AS
        SELECT k, v, p FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v) AS n FROM t) WHERE n = 1;
        CREATE DYNAMIC TABLE counted AS SELECT p, count(*) AS n
        FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v) AS n FROM t) WHERE n = 1 GROUP BY p;
        DELETE FROM t WHERE k = 2 AND v > 2
        """
    )
    # That partition has no ties. In the other one Spark now chooses the other row: both are right answers.
    for name in ("top", "counted"):
        assert refresh(lake, name, expected="AMBIGUOUS")["refresh_mode"] == "INCREMENTAL"
    lake.sql("DELETE FROM t WHERE k = 1 AND p = 'a'")
    # What is stored of the partition is replaced; below other operators both versions of it are compared.
    assert refresh(lake, "top")["refresh_mode"] == "INCREMENTAL"
    row = refresh(lake, "counted")
    assert row["refresh_mode"] == "FULL"
    assert "equal in the ORDER BY" in row["reason"]
    assert lake.sql("SELECT p FROM top WHERE k = 1").rows == [("b",)]
    assert ("b", 1) in lake.sql("SELECT p, n FROM counted").rows


def test_minus_zero_survives(lake: Lake) -> None:
    lake.sql(
        """
        CREATE TABLE l (k INT, x DOUBLE); INSERT INTO l VALUES (1, 0.0D), (2, DOUBLE('-0.0'));
        CREATE TABLE r (k INT); INSERT INTO r VALUES (1);
        CREATE DYNAMIC TABLE d AS
        SELECT k, CAST(x AS STRING) AS s FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r.k = l.k);
        INSERT INTO l VALUES (1, DOUBLE('-0.0')), (5, DOUBLE('-0.0')); INSERT INTO r VALUES (2), (5)
        """
    )
    assert refresh(lake)["refresh_mode"] == "INCREMENTAL"
    assert sorted(lake.sql("SELECT * FROM d").rows) == [(1, "-0.0"), (1, "0.0"), (2, "-0.0"), (5, "-0.0")]


def test_a_session_s_settings_do_not_reach_dynamic_tables(lake: Lake) -> None:
    lake.sql(
        """
        CREATE TABLE s (a INT, ts TIMESTAMP); INSERT INTO s VALUES (5, TIMESTAMP '2026-03-29 23:30:00');
        CREATE DYNAMIC TABLE d AS SELECT CAST(ts AS DATE) AS day, count(*) AS n FROM s GROUP BY 1
        """
    )
    try:
        lake.sql("SET TIME ZONE 'Asia/Tokyo'; INSERT INTO s VALUES (6, TIMESTAMP '2026-03-30 08:30:00')")
        assert refresh(lake)["refresh_mode"] == "INCREMENTAL"
        assert lake.sql("SELECT current_timezone()").rows == [("Asia/Tokyo",)], "the session keeps its own"
    finally:
        lake.sql("SET TIME ZONE 'UTC'")
    assert [str(row) for row in lake.sql("SELECT CAST(day AS STRING), n FROM d").rows] == ["('2026-03-29', 2)"]


def test_names_and_values_that_collide_with_ours(lake: Lake) -> None:
    lake.sql(
        """
        CREATE TABLE t (key INT, nth INT, d DATE);
        INSERT INTO t VALUES (1, 1, DATE '0001-01-01'), (2, 2, DATE '2020-01-01'), (3, 3, NULL);
        CREATE DYNAMIC TABLE plain AS SELECT key, nth FROM t;
        CREATE DYNAMIC TABLE days AS SELECT d, sum(CAST(key AS DOUBLE)) AS s FROM t GROUP BY d;
        DELETE FROM t WHERE key IN (1, 3)
        """
    )
    assert [refresh(lake, name)["refresh_mode"] for name in ("plain", "days")] == ["INCREMENTAL", "INCREMENTAL"]


def test_a_column_that_is_not_read_gets_another_name(lake: Lake) -> None:
    lake.sql(
        """
        CREATE TABLE t (a INT, d STRING) TBLPROPERTIES ('delta.columnMapping.mode' = 'name');
        INSERT INTO t VALUES (1, 'x');
        CREATE DYNAMIC TABLE d AS SELECT a FROM t;
        INSERT INTO t VALUES (2, 'y'); ALTER TABLE t RENAME COLUMN d TO dd
        """
    )
    row = refresh(lake)
    assert row["refresh_mode"] == "INCREMENTAL" or row["reason"], "a full refresh has its reason"
    lake.sql("INSERT INTO t VALUES (3, 'z')")
    assert refresh(lake)["refresh_mode"] == "INCREMENTAL"


def test_variants_can_be_verified(lake: Lake) -> None:
    lake.sql(
        """
        CREATE TABLE t (id INT, j STRING); INSERT INTO t VALUES (1, '{"a": 1}');
        CREATE DYNAMIC TABLE d AS SELECT id, parse_json(j) AS v FROM t;
        INSERT INTO t VALUES (2, '[1, 2]')
        """
    )
    assert refresh(lake)["refresh_mode"] == "FULL"


def test_a_limited_table_counts_what_it_shows(lake: Lake) -> None:
    lake.sql("CREATE TABLE t (k INT, v INT); INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    told = lake.sql("CREATE DYNAMIC TABLE d AS SELECT k, v FROM t ORDER BY v DESC, k LIMIT 2").rows[0][0]
    assert "with 2 rows" in told
    lake.sql("CREATE DYNAMIC TABLE below AS SELECT sum(v) AS s FROM d; INSERT INTO t VALUES (4, 4); ")
    assert refresh(lake)["refresh_mode"] == "INCREMENTAL"
    assert lake.sql("VERIFY DYNAMIC TABLE d").rows[0][2] == 2
    assert lake.sql("SELECT k FROM d ORDER BY k").rows == [(3,), (4,)]
    row = refresh(lake, "below")
    assert (row["refresh_mode"], "ends in a LIMIT" in row["reason"]) == ("FULL", True)
    assert lake.sql("SELECT s FROM below").rows == [(7,)]
    told = lake.sql("CREATE OR REPLACE DYNAMIC TABLE d AS SELECT k, v FROM t ORDER BY v DESC, k LIMIT 1 OFFSET 1").rows
    assert "its 1 row was kept" in told[0][0]
    assert lake.sql("SELECT k FROM d").rows == [(3,)]


def test_empty_arrays_and_maps_have_a_result(lake: Lake) -> None:
    assert lake.sql("SELECT array()").rows == [([],)]
    assert lake.sql("SELECT map()").rows == [([],)]
    assert lake.sql("SELECT array(map()) AS a, struct(NULL AS n) AS s, 1 AS one").rows == [([[]], {"n": None}, 1)]
    assert lake.sql("SELECT array() AS a, id FROM range(2) ORDER BY id").rows == [([], 0), ([], 1)]


def test_years_that_python_has_not_are_told(lake: Lake) -> None:
    for value in ("DATE '+10000-01-01'", "date_add(DATE '0001-01-01', -1)", "TIMESTAMP '+12000-01-01 00:00:00'"):
        result = lake.sql(f"SELECT 1 AS a, {value} AS far")
        with pytest.raises(QueryFailed, match="The column far has a value that Python cannot hold"):
            result.rows  # noqa: B018
        assert result.to_arrow().num_rows == 1
