"""State tables of aggregates inside a query: made, used, left behind, made again; they never decide what is right."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace import Lake
from headrace.catalog.records import DynamicTable
from headrace.errors import HeadraceError
from headrace.ivm import stages
from headrace.optimisations import STATE_TABLES
from headrace.refresh import states
from headrace.refresh.committing import Committer

QUERY = """
    SELECT c.name, per.n, per.total, per.most FROM c JOIN
      (SELECT customer, count(*) AS n, sum(price) AS total, max(price) AS most FROM o GROUP BY customer) per
    ON per.customer <=> c.id WHERE per.total >= (SELECT avg(price) FROM o)
    """


@pytest.fixture
def d(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setattr(stages, "STATE_ROWS", 0)
    monkeypatch.setattr(states, "WORTH", 0)
    lake.sql(
        """
        CREATE TABLE o AS SELECT id, nullif(id % 7, 6) AS customer, CAST(id AS decimal(10,2)) AS price FROM range(40);
        CREATE TABLE c AS SELECT id, 'c' || id AS name FROM range(6) UNION ALL SELECT NULL, 'none'
        """
    )
    lake.sql(f"CREATE DYNAMIC TABLE d AS {QUERY}")
    return lake


def refresh(lake: Lake) -> str:
    result = lake.sql("REFRESH DYNAMIC TABLE d")
    row = dict(zip(result.columns, result.rows[0], strict=True))
    assert lake.sql("VERIFY DYNAMIC TABLE d").rows[0][1] == "EQUAL"
    return str(row["refresh_mode"])


def shown(lake: Lake) -> list[str]:
    rows = lake.sql("EXPLAIN REFRESH DYNAMIC TABLE d").rows
    return sorted(value for section, _, value in rows if section == "state" and value.startswith("state table"))


def folder(lake: Lake) -> Path:
    return Path(lake._context.require_dynamic(("d",)).storage_path) / "_state"


def test_made_by_the_first_change_and_moved_on_by_the_next(d: Lake) -> None:
    assert shown(d) == []
    d.sql("INSERT INTO o VALUES (100, 3, 50.00)")
    assert refresh(d) == "INCREMENTAL"
    assert shown(d) == ["state table of 1 group", "state table of 7 groups"]
    assert dict(d.sql("DESC EXTENDED d").rows)["state"].startswith("2 state tables 8 groups ")
    assert d.sql("SELECT state_bytes > 500 FROM (SHOW DYNAMIC TABLES) WHERE name = 'd'").rows == [(True,)]
    for change in (
        "INSERT INTO o VALUES (101, 9, 500.00), (102, NULL, 1.00)",
        "DELETE FROM o WHERE customer = 2",
        "UPDATE o SET customer = 2 WHERE price > 30",
        "DELETE FROM o WHERE price >= 38",
        "INSERT INTO c VALUES (9, 'nine')",
        "UPDATE o SET id = id + 1",
        "DELETE FROM o",
        "INSERT INTO o VALUES (1, 1, 1.00)",
    ):
        d.sql(change)
        assert refresh(d) == "INCREMENTAL", change
        assert all("made again" not in value for value in shown(d)), change
    assert shown(d) == ["state table of 1 group", "state table of 1 group"]


def test_one_that_is_gone_or_behind_is_made_again(d: Lake) -> None:
    d.sql("INSERT INTO o VALUES (100, 3, 50.00)")
    refresh(d)
    shutil.rmtree(folder(d))
    d.sql("INSERT INTO o VALUES (101, 3, 50.00)")
    assert refresh(d) == "INCREMENTAL"
    assert len(shown(d)) == 2
    d.sql("ALTER DYNAMIC TABLE d SET REFRESH_MODE = FULL; DELETE FROM o WHERE id < 20")
    assert refresh(d) == "FULL"
    assert all(value.endswith("made again") for value in shown(d))
    d.sql("ALTER DYNAMIC TABLE d SET REFRESH_MODE = AUTO; DELETE FROM o WHERE id < 25")
    assert refresh(d) == "INCREMENTAL"
    assert all("made again" not in value for value in shown(d))


def test_one_with_a_broken_file_is_done_without(d: Lake) -> None:
    d.sql("INSERT INTO o VALUES (100, 3, 50.00)")
    assert refresh(d) == "INCREMENTAL"
    for path in folder(d).glob("*/*.parquet"):
        path.write_bytes(b"nothing")
    d.sql("INSERT INTO o VALUES (101, 3, 50.00)")
    assert refresh(d) == "INCREMENTAL"
    assert shown(d) == []
    d.sql("INSERT INTO o VALUES (102, 3, 50.00)")
    assert refresh(d) == "INCREMENTAL"
    assert len(shown(d)) == 2


def test_what_fails_without_them_too_is_computed_whole(d: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[frozenset[str]] = []

    def failing(_: Committer, off: frozenset[str]) -> None:
        tried.append(off)
        raise pa.ArrowInvalid("no Parquet file")

    d.sql("INSERT INTO o VALUES (100, 3, 50.00)")
    refresh(d)
    d.sql("INSERT INTO o VALUES (101, 3, 50.00)")
    with monkeypatch.context() as patched:
        patched.setattr(Committer, "_commit_changes", failing)
        assert refresh(d) == "FULL"
        d.sql("INSERT INTO o VALUES (102, 3, 50.00)")
        assert refresh(d) == "FULL"
    assert [STATE_TABLES in off for off in tried] == [False, True, False], "once more only where there were any"


def test_folded_by_the_policy(d: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    d.sql("INSERT INTO o VALUES (100, 3, 50.00)")
    refresh(d)
    monkeypatch.setattr("headrace.storage.maintenance.FOLD_AFTER_APPENDS", 2)
    for number in range(3):
        d.sql(f"INSERT INTO o VALUES ({101 + number}, {number}, 5.00)")
        assert refresh(d) == "INCREMENTAL"
    found = [state.note for _, state in states.StateTables(d.spark, d._context.logs, _table(d), d._progress).all()]
    assert len(found) == 2
    assert all(note.appends < 2 for note in found)
    assert all("made again" not in value for value in shown(d))
    assert all(len(list(each.glob("*.parquet"))) <= 3 for each in folder(d).iterdir())


def test_too_many_groups_are_not_kept(d: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "WORTH", 6)
    d.sql("INSERT INTO o VALUES (100, 3, 50.00)")
    assert refresh(d) == "INCREMENTAL"
    assert shown(d) == ["state table of 1 group"]
    d.sql("INSERT INTO o VALUES (101, 3, 50.00)")
    assert refresh(d) == "INCREMENTAL"
    assert shown(d) == ["state table of 1 group"]


def test_dropped_with_its_table_and_with_its_query(d: Lake) -> None:
    d.sql("INSERT INTO o VALUES (100, 3, 50.00)")
    refresh(d)
    before = {each.name for each in folder(d).iterdir()}
    d.sql(f"CREATE OR REPLACE DYNAMIC TABLE d AS {QUERY.replace('count(*)', 'count(customer)')}")
    d.sql("INSERT INTO o VALUES (101, 3, 50.00)")
    assert refresh(d) == "INCREMENTAL"
    after = {each.name for each in folder(d).iterdir()}
    assert len(before & after) == 1, "the average is the same as before"
    assert len(after) == 2
    storage = folder(d).parent
    d.sql("DROP DYNAMIC TABLE d")
    assert not storage.exists()


def _table(lake: Lake) -> DynamicTable:
    return lake._context.require_dynamic(("d",))


def test_one_that_was_made_again_meanwhile_takes_no_changes(d: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refresh that was held up after its commit goes on when another one has made the state table again."""
    d.sql("INSERT INTO o VALUES (100, 3, 50.00)")
    refresh(d)
    held_up: list[tuple[Any, ...]] = []
    advance = states.StateTables.advance
    with monkeypatch.context() as patch:
        patch.setattr(states.StateTables, "advance", lambda *given: held_up.append(given))
        patch.setattr(stages.Stages, "close", lambda _: None)
        d.sql("INSERT INTO o VALUES (101, 3, 70.00), (102, 4, 50.00)")
        assert refresh(d) == "INCREMENTAL"
    shutil.rmtree(folder(d))
    d.sql("INSERT INTO o VALUES (103, 3, 10.00)")
    assert refresh(d) == "INCREMENTAL"
    kept = shown(d)
    advance(*held_up[0])
    assert shown(d) == kept
    d.sql("INSERT INTO o VALUES (104, 3, 10.00)")
    assert refresh(d) == "INCREMENTAL"


def test_an_error_that_the_query_raises_leaves_them(d: Lake) -> None:
    d.sql("CREATE TABLE only AS SELECT 1.0 AS least")
    d.sql(f"CREATE OR REPLACE DYNAMIC TABLE d AS {QUERY} AND per.total > (SELECT least FROM only)")
    d.sql("INSERT INTO o VALUES (100, 3, 50.00)")
    assert refresh(d) == "INCREMENTAL"
    kept = shown(d)
    assert kept
    d.sql("INSERT INTO only VALUES (2.0)")
    with pytest.raises(HeadraceError, match="More than one row"):
        d.sql("REFRESH DYNAMIC TABLE d")
    assert set(kept) <= set(shown(d))
    d.sql("DELETE FROM only WHERE least > 1")
    assert refresh(d) == "INCREMENTAL"
    assert set(kept) <= set(shown(d))
