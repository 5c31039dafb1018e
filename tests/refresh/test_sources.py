"""What happens to a source, and what the next refresh says about it."""

from __future__ import annotations

import errno
import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from conftest import setting
from headrace import Lake
from headrace.errors import HeadraceError, RefreshHeldUp
from headrace.refresh import compute
from headrace.refresh.outlook import SOURCE_GONE
from headrace.refresh.retention import Need
from headrace.statements import vacuuming


def refresh(lake: Lake, name: str = "d", *, expected: str = "EQUAL") -> dict[str, Any]:
    """Refresh, VERIFY, and give the history row."""
    result = lake.sql(f"REFRESH DYNAMIC TABLE {name}")
    row = dict(zip(result.columns, result.rows[0], strict=True))
    verdict = lake.sql(f"VERIFY DYNAMIC TABLE {name}").rows[0]
    assert verdict[1] == expected, (row, verdict)
    return row


@pytest.fixture
def d(lake: Lake) -> Lake:
    lake.sql(
        """
        CREATE TABLE t (k INT, v DECIMAL(10,2));
        INSERT INTO t VALUES (1, 1.00), (1, 2.00), (2, 5.00);
        CREATE DYNAMIC TABLE d AS SELECT k, sum(v) AS s FROM t GROUP BY k
        """
    )
    return lake


def test_a_source_that_is_gone(lake: Lake) -> None:
    """Nothing helps but another source or another query, also where another name is much like the missing one."""
    lake.sql("CREATE TABLE paid (k INT); INSERT INTO paid VALUES (1); CREATE VIEW paid_big AS SELECT k FROM paid")
    lake.sql("CREATE DYNAMIC TABLE d AS SELECT k FROM paid_big; DROP TABLE paid")
    for verb in ("EXPLAIN REFRESH", "VERIFY", "REFRESH"):
        with pytest.raises(HeadraceError, match="paid") as fault:
            lake.sql(f"{verb} DYNAMIC TABLE d")
        assert fault.value.hint == SOURCE_GONE, verb


def test_the_history_of_the_storage(lake: Lake) -> None:
    lake.sql(
        """
        CREATE TABLE t (k INT, v INT); INSERT INTO t VALUES (1, 1), (2, 9), (3, 9);
        CREATE DYNAMIC TABLE d AS SELECT k, sum(v) AS s FROM t GROUP BY k HAVING sum(v) > 5;
        INSERT INTO t VALUES (1, 9), (3, 1)
        """
    )
    refresh(lake)
    found = lake.sql("DESC HISTORY d")
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    told = [(r["operation"], r["technique"], r["rows_inserted"], r["rows_deleted"]) for r in rows if r["technique"]]
    assert told == [("REFRESH", "FOLD_STATE", 2, 1), ("REFRESH", "FULL", 2, 0)]
    lake.sql("ALTER DYNAMIC TABLE d SET REFRESH_MODE = FULL; INSERT INTO t VALUES (4, 1)")
    assert refresh(lake)["stats"] == '{"rows_deleted":"3","rows_inserted":"3"}'


def test_all_rows_can_be_asked_for(d: Lake) -> None:
    d.sql("INSERT INTO t VALUES (3, 7.00)")
    for inserted in (3, 3):
        asked = d.sql("REFRESH DYNAMIC TABLE d FULL")
        row = dict(zip(asked.columns, asked.rows[0], strict=True))
        assert (row["refresh_mode"], row["stats"].endswith(f'"rows_inserted":"{inserted}"}}')) == ("FULL", True)
        assert d.sql("VERIFY DYNAMIC TABLE d").rows[0][1] == "EQUAL"
    assert refresh(d)["refresh_mode"] == "NO_DATA"


def test_right_after_create_there_is_nothing_to_do(d: Lake) -> None:
    row = refresh(d)
    assert (row["refresh_mode"], row["stats"]) == ("NO_DATA", '{"rows_deleted":"0","rows_inserted":"0"}')


def test_dropped_and_created_again(d: Lake) -> None:
    d.sql("DROP TABLE t; CREATE TABLE t (k INT, v DECIMAL(10,2)); INSERT INTO t VALUES (7, 7.00)")
    (told,) = [value for section, _, value in d.sql("EXPLAIN REFRESH DYNAMIC TABLE d").rows if section == "source"]
    assert told == "version 1 → 1: another table, created since under this name"
    row = refresh(d)
    assert row["refresh_mode"] == "FULL"
    assert "was dropped and created again" in row["reason"]
    profile = {(section, item): value for section, item, value in d.sql(f"DESC JOB '{row['job_id']}'").rows}
    assert ("cost", "bytes changed in the sources") not in profile
    assert profile["input", profile["job", "refresh of"].removesuffix("d") + "t"].startswith("changes not counted; ")
    assert [tuple(map(str, r)) for r in d.sql("SELECT * FROM d").rows] == [("7", "7.00")]
    d.sql("INSERT INTO t VALUES (7, 1.00)")
    assert refresh(d)["refresh_mode"] == "INCREMENTAL"


def test_dropped(d: Lake) -> None:
    d.sql("DROP TABLE t")
    with pytest.raises(HeadraceError, match=r"\bt\b") as caught:
        d.sql("REFRESH DYNAMIC TABLE d")
    assert caught.value.code == "REFRESH_FAILED"
    assert len(d.sql("SELECT * FROM d").rows) == 2, "the table keeps its contents"
    last = d.sql("SHOW DYNAMIC TABLE REFRESH HISTORY LIMIT 1")
    row = dict(zip(last.columns, last.rows[0], strict=True))
    assert row["state"] == "FAILED"
    assert row["error_message"]


def test_restored(d: Lake) -> None:
    d.sql("INSERT INTO t VALUES (3, 3.00)")
    assert refresh(d)["refresh_mode"] == "INCREMENTAL"
    d.sql("RESTORE TABLE t TO VERSION AS OF 1")
    refresh(d)
    assert len(d.sql("SELECT * FROM d").rows) == 2


def test_vacuumed_past_the_frontier(d: Lake) -> None:
    d.sql("UPDATE t SET v = v + 1; DELETE FROM t WHERE k = 2; INSERT INTO t VALUES (9, 9.00)")
    d.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    d.spark.sql("VACUUM t RETAIN 0 HOURS")  # by another program, which knows of no frontier
    row = refresh(d)
    assert row["refresh_mode"] == "FULL"
    assert "could not be computed" in row["reason"]


def test_vacuum_never_passes_a_frontier(d: Lake) -> None:
    d.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    d.sql("UPDATE t SET v = v + 1; DELETE FROM t WHERE k = 2; INSERT INTO t VALUES (9, 9.00)")
    held = d.sql("VACUUM t RETAIN 0 HOURS")
    assert held.columns == ["path", "retain_hours", "held_back_by"]
    assert held.rows[0][1] == 2
    assert held.rows[0][2].endswith(".d")
    assert refresh(d)["refresh_mode"] == "INCREMENTAL"
    assert d.sql("VACUUM t RETAIN 0 HOURS").rows[0][1:] == (0, None)
    assert refresh(d)["refresh_mode"] == "NO_DATA"


def test_vacuum_retains_what_it_says(d: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(d._context.locate(d.sql("SELECT current_schema()").rows[0][0], "t").source.path)

    def aged(days: int) -> Path:
        found = folder / f"left-over-{days}.parquet"
        found.write_bytes(b"")
        os.utime(found, (time.time() - days * 86400,) * 2)
        return found

    old = {days: aged(days) for days in (6, 9, 12)}
    assert d.sql("VACUUM t RETAIN 240 HOURS").rows[0][1:] == (240, None)
    assert [days for days, path in old.items() if path.exists()] == [6, 9]
    monkeypatch.setattr(vacuuming, "need_of", lambda *_: Need("reader", 230))
    assert d.sql("VACUUM t").rows[0][1:] == (230, "reader")
    assert [days for days, path in old.items() if path.exists()] == [6, 9]
    monkeypatch.undo()
    d.sql("VACUUM t")
    assert [days for days, path in old.items() if path.exists()] == [6]
    d.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "true")
    with pytest.raises(HeadraceError, match="less than the table's retention of 168 hours") as caught:
        d.sql("VACUUM t RETAIN 1 HOURS")
    assert "retentionDurationCheck" in str(caught.value.hint)


def test_vacuum_of_a_dynamic_table(d: Lake) -> None:
    d.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    d.sql("ALTER DYNAMIC TABLE d SET REFRESH_MODE = FULL; INSERT INTO t VALUES (9, 9.00)")
    refresh(d)
    before = d.sql("SELECT * FROM d ORDER BY ALL").rows
    assert d.sql("VACUUM d RETAIN 0 HOURS DRY RUN").columns == ["path"]
    assert d.sql("VACUUM d LITE").rows[0][1:] == (168, None)
    assert d.sql("VACUUM d RETAIN 0 HOURS").rows[0][1:] == (0, None)
    assert d.sql("SELECT * FROM d ORDER BY ALL").rows == before


def test_optimized(d: Lake) -> None:
    d.sql("INSERT INTO t VALUES (3, 3.00)")
    refresh(d)
    d.sql("OPTIMIZE t")
    assert refresh(d)["refresh_mode"] == "NO_DATA"
    d.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    d.sql("VACUUM t RETAIN 0 HOURS")
    assert refresh(d)["refresh_mode"] == "NO_DATA"
    d.sql("INSERT INTO t VALUES (3, 3.00)")
    assert refresh(d)["refresh_mode"] == "INCREMENTAL"


def test_a_column_is_added(d: Lake) -> None:
    d.sql("ALTER TABLE t ADD COLUMN w STRING; INSERT INTO t VALUES (1, 4.00, 'new')")
    assert refresh(d)["refresh_mode"] == "INCREMENTAL"


def test_a_column_that_is_read_goes(d: Lake) -> None:
    d.sql("CREATE OR REPLACE TABLE t (k INT, other DECIMAL(10,2))")
    with pytest.raises(HeadraceError, match="v") as caught:
        d.sql("REFRESH DYNAMIC TABLE d")
    assert caught.value.code == "REFRESH_FAILED"
    assert len(d.sql("SELECT * FROM d").rows) == 2


def test_a_column_that_is_read_gets_another_name(d: Lake) -> None:
    d.sql("ALTER TABLE t SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name'); ALTER TABLE t RENAME COLUMN v TO w")
    with pytest.raises(HeadraceError, match="changed its name or type") as caught:
        d.sql("REFRESH DYNAMIC TABLE d")
    assert (caught.value.hint or "").startswith("Change it back, or")
    d.sql("ALTER TABLE t RENAME COLUMN w TO v")
    refresh(d)


def test_explain_before_the_first_load(d: Lake) -> None:
    d.sql("CREATE DYNAMIC TABLE e PROPERTIES ('initialize'='on_schedule') AS SELECT k FROM t")
    (told,) = [value for section, _, value in d.sql("EXPLAIN REFRESH DYNAMIC TABLE e").rows if section == "source"]
    assert told == "version 1, all rows: not read before"


def test_a_column_changes_its_type(d: Lake) -> None:
    d.sql("CREATE OR REPLACE TABLE t (k BIGINT, v DECIMAL(10,2)); INSERT INTO t VALUES (1, 1.00)")
    with pytest.raises(HeadraceError, match="would change, because a source changed"):
        d.sql("REFRESH DYNAMIC TABLE d")


def test_change_tracking_off(d: Lake) -> None:
    d.sql("ALTER TABLE t SET PROPERTIES ('change_tracking'='false'); INSERT INTO t VALUES (4, 4.00)")
    row = refresh(d)
    assert row["refresh_mode"] == "FULL"
    assert "change_tracking is off" in row["reason"]


def test_overwritten_truncated_and_merged(d: Lake) -> None:
    d.sql("INSERT OVERWRITE t VALUES (5, 5.00), (5, 6.00)")
    assert refresh(d)["refresh_mode"] == "INCREMENTAL"
    d.sql("MERGE INTO t USING (SELECT 5 AS k, 1.00 AS v) s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = s.v")
    assert refresh(d)["refresh_mode"] == "INCREMENTAL"
    d.sql("TRUNCATE TABLE t")
    assert refresh(d)["refresh_mode"] == "INCREMENTAL"
    assert d.sql("SELECT * FROM d").rows == []


def test_a_diamond_reads_versions_that_agree(lake: Lake) -> None:
    lake.sql(
        """
        CREATE TABLE base (k INT, v INT); INSERT INTO base VALUES (1, 1), (2, 2);
        CREATE DYNAMIC TABLE left_side AS SELECT k, sum(v) AS s FROM base GROUP BY k;
        CREATE DYNAMIC TABLE right_side AS SELECT k, count(*) AS n FROM base GROUP BY k;
        CREATE DYNAMIC TABLE joined AS
        SELECT b.k, b.v, l.s, r.n FROM base b JOIN left_side l ON b.k = l.k JOIN right_side r ON r.k = b.k;
        INSERT INTO base VALUES (1, 10), (3, 3)
        """
    )
    # The base moved, what is between has not: nothing that agrees is newer.
    assert refresh(lake, "joined")["refresh_mode"] == "NO_DATA"
    # One branch moved: still nothing, and no mixture.
    refresh(lake, "left_side")
    assert refresh(lake, "joined")["refresh_mode"] == "NO_DATA"
    refresh(lake, "right_side")
    assert refresh(lake, "joined")["refresh_mode"] == "INCREMENTAL"
    assert sorted(lake.sql("SELECT * FROM joined").rows) == [(1, 1, 11, 2), (1, 10, 11, 2), (2, 2, 2, 1), (3, 3, 3, 1)]
    # A further change of the base alone is not seen before the branches have it.
    lake.sql("DELETE FROM base WHERE k = 2")
    assert refresh(lake, "joined")["refresh_mode"] == "NO_DATA"


def test_a_source_created_again_below_a_diamond(lake: Lake) -> None:
    lake.sql(
        """
        CREATE TABLE base (k INT, v INT); INSERT INTO base VALUES (1, 1), (2, 2);
        CREATE DYNAMIC TABLE left_side AS SELECT k, sum(v) AS s FROM base GROUP BY k;
        CREATE DYNAMIC TABLE right_side AS SELECT k, count(*) AS n FROM base GROUP BY k;
        CREATE DYNAMIC TABLE joined AS SELECT l.k, l.s, r.n FROM left_side l JOIN right_side r ON r.k = l.k;
        DROP TABLE base;
        CREATE TABLE base (k INT, v INT); INSERT INTO base VALUES (1, 7)
        """
    )
    with pytest.raises(HeadraceError, match="was dropped and created again"):
        lake.sql("VERIFY DYNAMIC TABLE left_side")
    assert refresh(lake, "left_side")["refresh_mode"] == "FULL"
    # One branch holds the old table's rows, the other the new one's: versions of the same number are not the same.
    waiting = refresh(lake, "joined")
    assert waiting["refresh_mode"] == "NO_DATA"
    assert "was dropped and created again" in waiting["reason"]
    assert sorted(lake.sql("SELECT * FROM joined").rows) == [(1, 1, 1), (2, 2, 1)]
    refresh(lake, "right_side")
    refresh(lake, "joined")
    assert lake.sql("SELECT * FROM joined").rows == [(1, 7, 1)]


def test_a_chain_passes_updates_deletes_folds_and_full_refreshes_on(lake: Lake) -> None:
    lake.sql(
        """
        CREATE TABLE base (k INT, v DOUBLE); INSERT INTO base VALUES (1, 1), (1, 2), (2, 3);
        CREATE DYNAMIC TABLE one AS SELECT k, v * 2 AS v FROM base;
        CREATE DYNAMIC TABLE two AS SELECT k, sum(v) AS s, max(v) AS m FROM one GROUP BY k HAVING sum(v) > 3;
        CREATE DYNAMIC TABLE three AS SELECT count(*) AS groups, sum(s) AS total FROM two
        """
    )
    chain = ("one", "two", "three")
    for statement in (
        "INSERT INTO base VALUES (3, 9), (2, -1)",
        "UPDATE base SET v = 0 WHERE k = 3",
        "DELETE FROM base WHERE k = 1 AND v = 2",
    ):
        lake.sql(statement)
        assert [refresh(lake, name)["refresh_mode"] for name in chain] == ["INCREMENTAL"] * 3
    # A fold of the middle table is nothing to those downstream.
    context = lake._context
    from headrace.refresh.fold import fold

    for name in ("one", "two"):
        fold(lake.spark, context.logs, context.require_dynamic((name,)), force=True)
    assert [refresh(lake, name)["refresh_mode"] for name in chain] == ["NO_DATA"] * 3
    lake.sql("INSERT INTO base VALUES (1, 50)")
    assert [refresh(lake, name)["refresh_mode"] for name in chain] == ["INCREMENTAL"] * 3
    # A full refresh in the middle is a change like any other.
    lake.sql("ALTER DYNAMIC TABLE one SET REFRESH_MODE = FULL; INSERT INTO base VALUES (4, 4)")
    modes = [refresh(lake, name)["refresh_mode"] for name in chain]
    assert modes == ["FULL", "INCREMENTAL", "INCREMENTAL"]


def test_a_change_that_never_reaches_the_result_still_moves_the_frontier(lake: Lake) -> None:
    lake.sql(
        """
        CREATE TABLE base (k INT); INSERT INTO base VALUES (1);
        CREATE DYNAMIC TABLE big AS SELECT k FROM base WHERE k > 100;
        CREATE DYNAMIC TABLE above AS SELECT k + 1 AS k FROM big;
        CREATE DYNAMIC TABLE small AS SELECT k FROM base WHERE k < 100;
        CREATE DYNAMIC TABLE both AS SELECT a.k FROM above a JOIN small s ON a.k = s.k;
        INSERT INTO base VALUES (2)
        """
    )
    for name in ("big", "small"):
        assert refresh(lake, name)["refresh_mode"] == "INCREMENTAL"
    assert refresh(lake, "above")["technique"] == "ADVANCE"
    refresh(lake, "both")
    lake.sql("INSERT INTO base VALUES (3)")
    for name in ("big", "small", "above", "both"):
        refresh(lake, name)


def test_many_refreshes_are_folded(lake: Lake) -> None:
    from headrace.storage.maintenance import FOLD_AFTER_APPENDS

    lake.sql(
        """
        CREATE TABLE t (k INT); INSERT INTO t VALUES (1);
        CREATE DYNAMIC TABLE d AS SELECT k, count(*) AS n FROM t GROUP BY k;
        CREATE DYNAMIC TABLE e AS SELECT sum(n) AS n FROM d
        """
    )
    for number in range(FOLD_AFTER_APPENDS + 1):
        lake.sql(f"INSERT INTO t VALUES ({number % 2}); REFRESH DYNAMIC TABLE d")
    explained = {row[1]: row[2] for row in lake.sql("EXPLAIN REFRESH DYNAMIC TABLE d").rows}
    assert int(explained["tombstones"]) < 5
    assert int(explained["appends since the last fold"]) < 5
    refresh(lake)
    assert refresh(lake, "e")["refresh_mode"] == "INCREMENTAL"
    assert lake.sql("SELECT n FROM e").rows == [(FOLD_AFTER_APPENDS + 2,)]


def test_somebody_else_writes_to_the_storage(d: Lake) -> None:
    table = d._context.require_dynamic(("d",))
    d.spark.sql(f"DELETE FROM delta.`{table.storage_path}` WHERE k = 1")
    row = refresh(d)
    assert row["refresh_mode"] == "FULL"
    assert "somebody else changed its storage" in row["reason"]


@pytest.mark.parametrize("damage", ["gone", "broken"])
def test_a_file_of_the_storage_is_lost(d: Lake, damage: str) -> None:
    storage = Path(d._context.require_dynamic(("d",)).storage_path)
    for file in storage.glob("*.parquet"):
        if damage == "gone":
            file.unlink()
        else:
            file.write_bytes(b"nothing")
    d.sql("DELETE FROM t WHERE k = 2")
    row = refresh(d)
    assert row["refresh_mode"] == "FULL"
    assert row["reason"].startswith("The changes could not be computed: ")
    assert "\x1b" not in row["reason"]
    d.sql("INSERT INTO t VALUES (1, 9.00)")
    assert refresh(d)["refresh_mode"] == "INCREMENTAL"


def test_a_full_disk_is_no_reason_to_compute_all_rows(d: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    d.sql("INSERT INTO t VALUES (1, 9.00)")
    with monkeypatch.context() as patched:
        patched.setattr(compute, "changes_of", full)
        with pytest.raises(RefreshHeldUp, match="No space left on device"):
            d.sql("REFRESH DYNAMIC TABLE d")
    assert refresh(d)["refresh_mode"] == "INCREMENTAL"


def test_restore_and_time_travel_of_a_dynamic_table(d: Lake) -> None:
    first = sorted(d.sql("SELECT * FROM d").rows)
    d.sql("INSERT INTO t VALUES (8, 8.00)")
    refresh(d)
    version = int(d.sql("DESC HISTORY d LIMIT 1").rows[0][0])
    assert sorted(d.sql(f"SELECT * FROM d VERSION AS OF {version - 1}").rows) == first
    assert len(d.sql(f"SELECT x.k FROM d VERSION AS OF {version} x WHERE x.k = 8").rows) == 1
    d.sql(f"RESTORE TABLE d TO VERSION AS OF {version - 1}")
    assert sorted(d.sql("SELECT * FROM d").rows) == first
    row = refresh(d)
    assert row["refresh_mode"] == "FULL"
    assert "restored" in row["reason"]
    assert len(d.sql("SELECT * FROM d").rows) == 3


def test_rows_that_came_and_went_do_not_come_back_with_a_full_refresh_upstream(lake: Lake) -> None:
    lake.sql(
        """
        CREATE TABLE t (k INT);
        CREATE DYNAMIC TABLE a AS SELECT k FROM t;
        CREATE DYNAMIC TABLE b AS SELECT k FROM a;
        INSERT INTO t VALUES (1); REFRESH DYNAMIC TABLE a, b;
        DELETE FROM t; REFRESH DYNAMIC TABLE a, b;
        ALTER DYNAMIC TABLE a SET REFRESH_MODE = FULL;
        INSERT INTO t VALUES (2)
        """
    )
    assert refresh(lake, "a")["refresh_mode"] == "FULL"
    refresh(lake, "b")
    assert lake.sql("SELECT * FROM b").rows == [(2,)]


def test_a_table_over_branches_that_disagree_is_not_created(lake: Lake) -> None:
    lake.sql(
        """
        CREATE TABLE t (k INT); INSERT INTO t VALUES (1);
        CREATE DYNAMIC TABLE one AS SELECT k FROM t;
        INSERT INTO t VALUES (2);
        CREATE DYNAMIC TABLE two AS SELECT k FROM t
        """
    )
    with pytest.raises(HeadraceError, match="Refresh them first"):
        lake.sql("CREATE DYNAMIC TABLE both AS SELECT one.k FROM one JOIN two ON one.k = two.k")
    assert lake.sql("SHOW TABLES LIKE 'both'").rows == []
    lake.sql("REFRESH DYNAMIC TABLE one")
    lake.sql("CREATE DYNAMIC TABLE both AS SELECT one.k FROM one JOIN two ON one.k = two.k")
    refresh(lake, "both")


def test_select_star_means_the_columns_there_were(lake: Lake) -> None:
    lake.sql("CREATE TABLE t (k INT); INSERT INTO t VALUES (1); CREATE DYNAMIC TABLE d AS SELECT * FROM t")
    lake.sql("ALTER TABLE t ADD COLUMN x INT; INSERT INTO t VALUES (2, 2)")
    assert refresh(lake)["refresh_mode"] == "INCREMENTAL"
    lake.sql("ALTER DYNAMIC TABLE d SET REFRESH_MODE = FULL; INSERT INTO t VALUES (3, 3)")
    assert refresh(lake)["refresh_mode"] == "FULL"


def test_partitioned_by_and_clustered_by(lake: Lake) -> None:
    lake.sql(
        """
        CREATE TABLE t (k INT, s STRING); INSERT INTO t VALUES (1, ''), (2, NULL), (2, 'x');
        CREATE DYNAMIC TABLE d PARTITIONED BY (k, s) CLUSTERED BY (s) AS SELECT k, s FROM t;
        INSERT INTO t VALUES (3, ''); DELETE FROM t WHERE k = 1
        """
    )
    assert refresh(lake)["refresh_mode"] == "INCREMENTAL"
    lake.sql("ALTER DYNAMIC TABLE d RENAME COLUMN k TO kk")
    refresh(lake)
    assert sorted(row[0] for row in lake.sql("SELECT kk FROM d").rows) == [2, 2, 3]


def test_many_groups_lie_in_ranges_of_their_keys(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change then looks its groups up in one file of several."""
    monkeypatch.setattr("headrace.refresh.fold.RANGES", 100)
    with (
        setting(lake, "spark.sql.shuffle.partitions", "4"),
        setting(lake, "spark.sql.adaptive.coalescePartitions.enabled", "false"),
    ):
        lake.sql("CREATE TABLE t AS SELECT id AS k FROM range(400)")
        lake.sql("CREATE DYNAMIC TABLE d AS SELECT k, count(*) AS n FROM t GROUP BY k")
    path = lake._context.require_dynamic(("d",)).storage_path
    files = pa.table(DeltaTable(path).get_add_actions(flatten=True)).to_pylist()
    spans = sorted((file["min.k"], file["max.k"]) for file in files)
    assert len(spans) == 4
    assert all(most < least for (_, most), (least, _) in pairwise(spans))
    lake.sql("INSERT INTO t VALUES (7), (399)")
    assert refresh(lake)["refresh_mode"] == "INCREMENTAL"


def test_a_view_or_function_that_is_replaced(lake: Lake) -> None:
    lake.sql(
        """
        CREATE TABLE t (k INT); INSERT INTO t VALUES (1), (2);
        CREATE FUNCTION grown(x INT) RETURNS INT RETURN x + 1;
        CREATE FUNCTION far(x INT) RETURNS INT RETURN grown(x) + 10;
        CREATE VIEW base AS SELECT k FROM t WHERE k < 2;
        CREATE VIEW v AS SELECT k FROM base;
        CREATE DYNAMIC TABLE d AS SELECT k, far(k) AS f FROM v
        """
    )
    home = lake.sql("SELECT current_schema()").rows[0][0]
    assert refresh(lake)["refresh_mode"] == "NO_DATA"
    lake.sql("CREATE OR REPLACE VIEW base AS SELECT k FROM t WHERE k < 9")
    row = refresh(lake)
    assert (row["refresh_mode"], row["reason"]) == ("FULL", f"The view {home}.base was replaced.")
    lake.sql("INSERT INTO t VALUES (3)")
    assert refresh(lake)["refresh_mode"] == "INCREMENTAL"
    lake.sql("CREATE OR REPLACE FUNCTION grown(x INT) RETURNS INT RETURN x + 2")
    row = refresh(lake)
    assert (row["refresh_mode"], row["reason"]) == ("FULL", f"The function {home}.grown was replaced.")
    assert lake.sql("SELECT * FROM d ORDER BY k").rows == [(1, 13), (2, 14), (3, 15)]
    lake.sql("DROP VIEW base")
    with pytest.raises(HeadraceError, match="There is no table or view 'base', which the view") as fault:
        lake.sql("REFRESH DYNAMIC TABLE d")
    assert fault.value.hint == SOURCE_GONE
    lake.sql("CREATE VIEW base AS SELECT k FROM t WHERE k > 1")
    assert refresh(lake)["refresh_mode"] == "FULL"


def test_the_limit_of_a_dynamic_table_upstream_changes(lake: Lake) -> None:
    lake.sql(
        """
        CREATE TABLE t (id INT, a INT); INSERT INTO t VALUES (1, 1), (2, 2), (3, 1), (4, NULL);
        CREATE DYNAMIC TABLE up AS SELECT id, a FROM t;
        CREATE DYNAMIC TABLE d AS SELECT a, count(*) AS n FROM up GROUP BY a
        """
    )
    for tail, reason in (
        ("ORDER BY id LIMIT 2", "The LIMIT of"),
        ("ORDER BY id DESC LIMIT 3", "The LIMIT of"),
        ("", "The LIMIT of"),
    ):
        lake.sql(f"CREATE OR REPLACE DYNAMIC TABLE up AS SELECT id, a FROM t {tail}")
        row = refresh(lake)
        assert (row["refresh_mode"], row["reason"][: len(reason)]) == ("FULL", reason)
        direct = lake.sql("SELECT a, count(*) AS n FROM up GROUP BY a ORDER BY a").rows
        assert lake.sql("SELECT * FROM d ORDER BY a").rows == direct
    lake.sql("INSERT INTO t VALUES (5, 5); REFRESH DYNAMIC TABLE up")
    assert refresh(lake)["refresh_mode"] == "INCREMENTAL"
