"""current_date: a new day is a change like any other."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from headrace import Lake
from refresh.test_sources import refresh


def test_a_new_day_moves_rows_in_and_out(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def day(text: str) -> None:
        moment = datetime.fromisoformat(f"{text}T12:00:00").replace(tzinfo=timezone.utc)
        monkeypatch.setattr(lake._context.runner, "_clock", lambda: moment)

    day("2024-05-10")
    lake.sql(
        """
        CREATE TABLE t (id INT, d DATE);
        INSERT INTO t VALUES (1, DATE '2024-05-08'), (2, DATE '2024-05-10'), (3, DATE '2024-05-11'), (4, NULL);
        CREATE DYNAMIC TABLE recent AS
        SELECT id, datediff(current_date, d) AS age FROM t
        WHERE d BETWEEN current_date() - INTERVAL 2 DAYS AND curdate();
        CREATE DYNAMIC TABLE counts AS SELECT d, count(*) AS n FROM t WHERE d <= current_date GROUP BY d;
        CREATE DYNAMIC TABLE late AS SELECT d, count(*) AS n, max(current_date) AS today FROM t GROUP BY d;
        CREATE DYNAMIC TABLE gaps AS
        SELECT id % 2 AS odd, count(*) AS n, datediff(current_date, max(d)) AS days FROM t GROUP BY id % 2
        HAVING max(d) >= current_date - 2;
        CREATE DYNAMIC TABLE of_today AS SELECT t.id FROM t JOIN (VALUES (current_date)) v(day) ON t.d = v.day;
        CREATE DYNAMIC TABLE pairs AS SELECT a.id, b.id AS other FROM t a LEFT JOIN t b ON b.d = current_date - a.id
        """
    )
    assert sorted(lake.sql("SELECT * FROM recent").rows) == [(1, 2), (2, 0)]
    assert refresh(lake, "recent")["refresh_mode"] == "NO_DATA"
    # On the same day, everything is computed for that day, whatever day it is for Spark.
    lake.sql("INSERT INTO t VALUES (0, NULL)")
    assert [refresh(lake, name)["refresh_mode"] for name in ("late", "pairs")] == ["INCREMENTAL", "INCREMENTAL"]
    lake.sql("DELETE FROM t WHERE id = 0")
    day("2024-05-11")
    row = refresh(lake, "recent")
    assert (row["refresh_mode"], row["stats"]) == ("INCREMENTAL", '{"rows_deleted":"2","rows_inserted":"2"}')
    assert sorted(lake.sql("SELECT * FROM recent").rows) == [(2, 1), (3, 0)]
    row = refresh(lake, "counts")
    assert (row["refresh_mode"], row["stats"]) == ("INCREMENTAL", '{"rows_deleted":"0","rows_inserted":"1"}')
    row = refresh(lake, "gaps")
    assert (row["refresh_mode"], row["technique"], row["stats"]) == (
        "INCREMENTAL", "FOLD_STATE", '{"rows_deleted":"2","rows_inserted":"2"}'
    )  # fmt: skip
    assert sorted(lake.sql("SELECT odd, n, days FROM gaps").rows) == [(0, 2, 1), (1, 2, 0)]
    for name in ("late", "of_today"):
        row = refresh(lake, name)
        assert row["refresh_mode"] == "FULL"
        assert "A new day" in row["reason"]
        told = {item: value for _, item, value in lake.sql(f"EXPLAIN REFRESH DYNAMIC TABLE {name}").rows}
        assert told["each new day"].startswith("one FULL refresh: current_date is used in an aggregate")
    assert lake.sql("SELECT id FROM of_today").rows == [(3,)]
    # A change and a new day at once.
    lake.sql("INSERT INTO t VALUES (5, DATE '2024-05-12'); DELETE FROM t WHERE id = 2")
    day("2024-05-12")
    names = ("recent", "counts", "gaps")
    assert {refresh(lake, name)["refresh_mode"] for name in names} == {"INCREMENTAL"}
    assert sorted(lake.sql("SELECT * FROM recent").rows) == [(3, 1), (5, 0)]
    assert sorted(lake.sql("SELECT odd, n, days FROM gaps").rows) == [(1, 3, 0)]
