"""What statements about tables tell: counts of INSERT, kinds in SHOW TABLES, types and temporary views in DESC, another
name for a dynamic table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from headrace import Lake
from headrace.errors import AlreadyExists, NotAllowed, NotFound
from headrace.statements import creating

COUNTS = ["num_affected_rows", "num_inserted_rows"]


def test_an_insert_tells_its_rows(lake: Lake) -> None:
    """With and without streams in the lake, and of no other commit."""
    lake.sql("CREATE TABLE t (id INT) TBLPROPERTIES ('change_tracking'='true'); CREATE TABLE other (id INT)")
    lake.sql("CREATE TABLE plain (id INT) USING parquet")
    for streams in (False, True):
        if streams:
            lake.sql("CREATE TABLE STREAM s ON TABLE t; INSERT INTO t VALUES (7)")
        for text, count in (
            ("INSERT INTO t VALUES (1), (2)", 2),
            ("INSERT INTO t SELECT id FROM t WHERE false", 0),
            ("INSERT INTO other SELECT id FROM t", len(lake.sql("SELECT * FROM t")) + 2),
            ("INSERT OVERWRITE other SELECT 5", 1),
        ):
            result = lake.sql(text)
            assert (result.columns, result.rows) == (COUNTS, [(count, count)]), text
        assert lake.sql("INSERT INTO plain VALUES (1)").rows == [("Done.",)]
    waiting = len(lake.sql("SELECT * FROM s"))
    assert lake.sql("INSERT INTO other SELECT id FROM s").rows == [(waiting, waiting)]
    assert lake.sql("INSERT INTO other SELECT id FROM s").rows == [(0, 0)]


def test_show_tables_tells_kinds(lake: Lake, tmp_path: Path) -> None:
    lake.sql("CREATE TABLE t (id INT) TBLPROPERTIES ('change_tracking'='true'); CREATE VIEW v AS SELECT 1 AS id")
    lake.sql(f"CREATE TABLE e (id INT) USING delta LOCATION '{tmp_path}/e'; CREATE DYNAMIC TABLE d AS SELECT id FROM t")
    lake.sql("CREATE TEMPORARY VIEW hidden AS SELECT 1 AS id; CREATE TABLE STREAM s ON TABLE t")
    found = lake.sql("SHOW TABLES")
    kinds = [name.removeprefix("is_") for name in found.columns[2:]]
    shown = {row[1]: [kind for kind, holds in zip(kinds, row[2:], strict=True) if holds] for row in found.rows}
    assert shown == {"t": [], "v": ["view"], "e": ["external"], "d": ["dynamic"]}
    lake.sql("DROP VIEW hidden")


def test_types_in_desc_can_be_read_back(lake: Lake) -> None:
    kind = "array<struct<a:int,`b-c`:map<string,struct<`d-e`:decimal(10,2)>>>>"
    lake.sql(f"CREATE TABLE t (s {kind})")
    assert lake.sql("DESC TABLE t").rows == [("s", kind, "")]
    lake.sql(f"SELECT CAST(NULL AS {kind})")


def test_desc_of_a_temporary_view(lake: Lake) -> None:
    """Before a table of the same name, as in a query."""
    lake.sql("CREATE TABLE v (old INT); CREATE TEMPORARY VIEW v AS SELECT 1 AS id, 'a' AS word")
    assert lake.sql("DESC TABLE v").rows == [("id", "int", ""), ("word", "string", "")]
    assert ("type", "TEMPORARY VIEW") in lake.sql("DESC EXTENDED v").rows
    lake.sql("DROP VIEW v")
    assert lake.sql("DESC TABLE v").rows == [("old", "int", "")]


def test_a_dynamic_table_gets_another_name(lake: Lake) -> None:
    lake.sql("CREATE TABLE t (id INT); INSERT INTO t VALUES (1); CREATE DYNAMIC TABLE d AS SELECT id FROM t")
    told = lake.sql("ALTER DYNAMIC TABLE d RENAME TO e").rows[0][0]
    assert re.fullmatch(r"Dynamic table main\.(\w+)\.d is now main\.\1\.e\.", told)
    with pytest.raises(NotFound):
        lake.sql("SELECT * FROM d")
    lake.sql("INSERT INTO t VALUES (2); REFRESH DYNAMIC TABLE e")
    assert sorted(lake.sql("SELECT id FROM e").rows) == [(1,), (2,)]
    assert lake.sql("VERIFY DYNAMIC TABLE e").rows[0][1] == "EQUAL"
    lake.sql("CREATE DYNAMIC TABLE d AS SELECT id FROM e")
    with pytest.raises(NotAllowed, match=r"the dynamic table main\.\w+\.d would not find it"):
        lake.sql("ALTER DYNAMIC TABLE e RENAME TO f")
    with pytest.raises(AlreadyExists):
        lake.sql("ALTER DYNAMIC TABLE d RENAME TO t")
    lake.sql("CREATE TABLE STREAM s ON TABLE d")
    with pytest.raises(NotAllowed, match=r"the table stream main\.\w+\.s"):
        lake.sql("ALTER DYNAMIC TABLE d RENAME TO f")
    assert len(lake.sql("SELECT * FROM d")) == 2


def test_the_facts_of_a_table(lake: Lake) -> None:
    lake.sql("CREATE TABLE t (id INT) COMMENT 'c'; INSERT INTO t VALUES (1), (2)")
    told = dict(row[:2] for row in lake.sql("DESC EXTENDED t").rows)
    assert (told["type"], told["comment"], told["name"]) == ("TABLE", "c", "t")
    assert told["statistics"].startswith("2 rows ")
    assert "20" < told["created_time"] < told["last_modified_time"]


@pytest.mark.parametrize("words", ["CREATE OR REPLACE DYNAMIC TABLE d", "CREATE DYNAMIC TABLE IF NOT EXISTS d"])
def test_two_create_a_dynamic_table_at_once(lake: Lake, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    """The second one finds that it is there when it wants to put it there itself."""
    lake.sql("CREATE TABLE t AS SELECT 1 AS id")
    create = creating._create
    before: list[str] = ["CREATE DYNAMIC TABLE d AS SELECT id, 1 AS n FROM t"]

    def late(*arguments: Any) -> Any:
        if before:
            lake.sql(before.pop())
        return create(*arguments)

    monkeypatch.setattr(creating, "_create", late)
    lake.sql(f"{words} AS SELECT id, 2 AS n FROM t")
    assert lake.sql("SELECT n FROM d").rows == [(2 if "REPLACE" in words else 1,)]
    assert "EQUAL" in lake.sql("VERIFY DYNAMIC TABLE d").rows[0]
