"""Ordered copies of sources: made, looked up, moved on, left behind, made again; they never decide what is right."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headrace import Lake
from headrace.ivm import stages
from headrace.refresh import ordered

QUERY = """
    SELECT p.name, i.id, i.n, f.tag FROM i JOIN p ON i.part = p.id JOIN f ON f.kind = p.kind
    """


@pytest.fixture
def d(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setattr(stages, "BIG_ROWS", 0)
    monkeypatch.setattr(stages, "ORDERED_ROWS", 100)
    lake.sql(
        """
        CREATE TABLE i (id BIGINT, part BIGINT, n DOUBLE, note STRING);
        INSERT INTO i SELECT id, id * 37 % 100, id / 7, 'x' FROM range(200);
        INSERT INTO i SELECT id, id * 37 % 100, id / 7, 'x' FROM range(200, 400);
        CREATE TABLE p AS SELECT id, 'p' || id AS name, id % 3 AS kind FROM range(90);
        CREATE TABLE f AS SELECT id AS kind, 'tag' || id AS tag FROM range(3)
        """
    )
    lake.sql(f"CREATE DYNAMIC TABLE d AS {QUERY}")
    return lake


def refresh(lake: Lake, change: str) -> str:
    lake.sql(change)
    result = lake.sql("REFRESH DYNAMIC TABLE d")
    row = dict(zip(result.columns, result.rows[0], strict=True))
    assert lake.sql("VERIFY DYNAMIC TABLE d").rows[0][1] == "EQUAL", change
    return str(row["refresh_mode"])


def shown(lake: Lake) -> list[str]:
    rows = lake.sql("EXPLAIN REFRESH DYNAMIC TABLE d").rows
    return [f"{item}: {value}" for _, item, value in rows if "ordered copy" in value]


def folder(lake: Lake) -> Path:
    return Path(lake._context.require_dynamic(("d",)).storage_path) / ordered.FOLDER


CHANGES = (
    "INSERT INTO p VALUES (95, 'new', 1), (96, 'other', NULL)",
    "INSERT INTO i VALUES (1000, 95, 1.5, 'a'), (1000, 95, 1.5, 'a'), (1001, NULL, 0.0, 'b'), (1002, 3, NULL, 'c')",
    "UPDATE p SET name = 'again' WHERE id IN (3, 95)",
    "DELETE FROM i WHERE part = 95 AND id = 1000; UPDATE p SET kind = 2 WHERE id = 95",
    "INSERT INTO i VALUES (1003, 3, -0.0, 'd'), (1004, 3, 0.0, 'd'), (1005, 3, double('NaN'), 'd')",
    "UPDATE p SET name = 'once more' WHERE id = 3",
    "UPDATE i SET part = 4 WHERE part = 3; UPDATE p SET name = 'moved' WHERE id IN (3, 4)",
    "DELETE FROM p WHERE id = 4",
)


def test_made_by_the_first_lookup_and_moved_on_by_the_next(d: Lake) -> None:
    assert shown(d) == []
    for change in CHANGES:
        assert refresh(d, change) == "INCREMENTAL", change
    (copy,) = shown(d)
    assert ".i by part: ordered copy of 400 rows and " in copy
    assert "1 ordered copy " in dict(d.sql("DESC EXTENDED d").rows)["state"]
    assert d.sql("SELECT state_bytes > 500 FROM (SHOW DYNAMIC TABLES) WHERE name = 'd'").rows == [(True,)]
    places = {tuple(sorted(path.name for path in each.iterdir())) for each in folder(d).iterdir()}
    assert places == {("changes", "rows")}


def test_one_that_is_gone_behind_or_broken_is_made_again(d: Lake) -> None:
    assert refresh(d, CHANGES[0]) == "INCREMENTAL"
    shutil.rmtree(folder(d))
    assert refresh(d, "UPDATE p SET name = 'a' WHERE id = 5") == "INCREMENTAL"
    assert len(shown(d)) == 1
    for path in (folder(d)).glob("*/rows/*.parquet"):
        path.write_bytes(b"PAR1")
    assert refresh(d, "UPDATE p SET name = 'b' WHERE id = 5") == "INCREMENTAL"
    assert shown(d) == [], "it was done without"
    assert refresh(d, "UPDATE p SET name = 'c' WHERE id = 5") == "INCREMENTAL"
    (copy,) = folder(d).iterdir()
    d.sql(f"DELETE FROM delta.`{copy / 'changes'}`")
    d.sql("INSERT INTO i VALUES (2000, 5, 1.0, 'x')")
    d.sql("REFRESH DYNAMIC TABLE d FULL")
    d.sql("DELETE FROM i WHERE id < 20")
    assert refresh(d, "UPDATE p SET name = 'd' WHERE id = 5") == "INCREMENTAL"
    assert len(shown(d)) == 1


def test_one_that_was_not_used_for_a_while_follows(d: Lake) -> None:
    refresh(d, CHANGES[0])
    for number in range(3):
        assert refresh(d, f"INSERT INTO i VALUES ({3000 + number}, 5, 1.0, 'x')") == "INCREMENTAL"
    (before,) = folder(d).glob("*/rows/_delta_log/*0.json")
    stamp = before.stat().st_mtime_ns
    assert refresh(d, "UPDATE p SET name = 'd' WHERE id = 5") == "INCREMENTAL"
    assert before.stat().st_mtime_ns == stamp
    (copy,) = shown(d)
    assert "400 rows and 3 changes" in copy


def test_rows_that_went_in_the_meantime_are_gone(lake: Lake, d: Lake) -> None:
    """Where the changes are committed by Spark, because Arrow alone does not know a type."""
    lake.sql(
        """
        ALTER TABLE i ADD COLUMN at ARRAY<INT>;
        CREATE DYNAMIC TABLE d2 REFRESH_MODE = INCREMENTAL AS SELECT p.name, i.id, i.at FROM i JOIN p ON i.part = p.id
        """
    )
    for change in (
        "UPDATE p SET name = 'a' WHERE id = 5",
        "DELETE FROM i WHERE part = 95",
        "INSERT INTO p VALUES (95, 'late', 1)",
        "UPDATE i SET at = array(1, NULL) WHERE part = 95 OR part = 5",
        "UPDATE p SET name = 'b' WHERE id = 5 OR id = 95",
    ):
        lake.sql(change)
        assert lake.sql("REFRESH DYNAMIC TABLE d2").rows[0]
        assert lake.sql("VERIFY DYNAMIC TABLE d2").rows[0][1] == "EQUAL", change
    assert any("ordered copy" in value for _, _, value in lake.sql("EXPLAIN REFRESH DYNAMIC TABLE d2").rows)


def test_changes_that_were_written_twice_are_not_counted_twice(d: Lake) -> None:
    refresh(d, CHANGES[0])
    refresh(d, "INSERT INTO i VALUES (5000, 7, 1.0, 'x'); UPDATE p SET name = 'n' WHERE id = 7")
    (tail,) = folder(d).glob("*/changes")
    last = sorted((tail / "_delta_log").glob("*.json"))[-1]
    again = last.with_name(f"{int(last.stem) + 1:020d}.json")
    again.write_text(last.read_text().replace("part-", "part-again-"))
    for file in tail.glob("part-*.parquet"):
        shutil.copy(file, file.with_name(file.name.replace("part-", "part-again-")))
    assert refresh(d, "UPDATE p SET name = 'm' WHERE id = 7") == "INCREMENTAL"
    assert "401 rows and 0 changes" in shown(d)[0]


def test_many_changes_are_put_together_and_then_it_is_made_again(d: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered, "MANY_COMMITS", 2)
    for number in range(6):
        change = f"INSERT INTO i VALUES ({4000 + number}, 7, 1.0, 'x'); UPDATE p SET name = 'n{number}' WHERE id = 7"
        assert refresh(d, change) == "INCREMENTAL"
    (tail,) = folder(d).glob("*/changes")
    assert len(list(tail.glob("*.parquet"))) <= 4
    assert "400 rows and 6 changes" in shown(d)[0]
    monkeypatch.setattr(ordered, "AGAIN", 100)
    assert refresh(d, "UPDATE p SET name = 'z' WHERE id = 7") == "INCREMENTAL"
    assert "406 rows and 0 changes" in shown(d)[0]


def test_keys_from_further_up_are_joined_first(lake: Lake, d: Lake) -> None:
    lake.sql(
        """CREATE DYNAMIC TABLE small_ones REFRESH_MODE = INCREMENTAL AS
        SELECT i.id, p.name, i.n FROM i JOIN p ON i.part = p.id
        WHERE p.kind = 1 AND i.n * 100 < (SELECT sum(x.id) FROM i x WHERE x.part = p.id)"""
    )
    for change in CHANGES:
        lake.sql(change)
        lake.sql("REFRESH DYNAMIC TABLE small_ones")
        assert lake.sql("VERIFY DYNAMIC TABLE small_ones").rows[0][1] == "EQUAL", change
    rows = lake.sql("EXPLAIN REFRESH DYNAMIC TABLE small_ones").rows
    assert any("ordered copy" in value for _, _, value in rows)


def test_not_for_columns_that_are_in_order_nor_for_many_keys(d: Lake) -> None:
    assert refresh(d, "UPDATE p SET name = name || '!'") == "INCREMENTAL"
    assert shown(d) == []
    d.sql("CREATE OR REPLACE TABLE i AS SELECT id, id AS part, 1.0D AS n, 'x' AS note FROM range(300)")
    d.sql("INSERT INTO i SELECT id, id, 1.0D, 'x' FROM range(300, 600)")
    d.sql("REFRESH DYNAMIC TABLE d")
    assert refresh(d, "UPDATE p SET name = 'e' WHERE id = 5") == "INCREMENTAL"
    assert shown(d) == []


def test_goes_with_the_query_and_with_the_columns(d: Lake) -> None:
    refresh(d, CHANGES[0])
    assert len(shown(d)) == 1
    d.sql("ALTER TABLE i SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    d.sql("ALTER TABLE i DROP COLUMN n; ALTER TABLE i ADD COLUMN n DOUBLE")
    refresh(d, "UPDATE p SET name = 'f' WHERE id = 5")
    assert refresh(d, "UPDATE p SET name = 'g' WHERE id = 5") in ("INCREMENTAL", "FULL")
    d.sql("CREATE OR REPLACE DYNAMIC TABLE d AS SELECT count(*) AS n FROM p")
    assert not list(folder(d).iterdir()) if folder(d).exists() else True
