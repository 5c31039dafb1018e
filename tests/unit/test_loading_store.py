"""Loads in the operations database, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from headrace.catalog.database import Database
from headrace.catalog.loads import LoadStore
from headrace.catalog.records import Load
from headrace.errors import AlreadyExists

NOW = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LoadStore]:
    url = f"sqlite:///{tmp_path}/ops.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    database = Database.open(url)
    yield LoadStore(database)
    database.close()


def a_load(load_id: str = "l1", seconds: float = 0, **changes: Any) -> Load:
    values: dict[str, Any] = {
        "table_path": "/t", "table_id": "t1", "workspace": "main", "schema_name": "public", "name": "events",
        "kind": "BATCH", "key": f"key of {load_id}", "state": "RECEIVED", "rows": 3,
    }  # fmt: skip
    return Load(**{"id": load_id, "received_at": NOW + timedelta(seconds=seconds), **values, **changes})


def ids(loads: list[Load]) -> list[str]:
    return [load.id for load in loads]


def test_a_key_is_taken_once(store: LoadStore) -> None:
    assert store.add(a_load()) is None
    assert store.add(a_load("l2", key="key of l1")) == a_load()
    assert store.add(a_load()) == a_load(), "the same one again"
    assert store.add(a_load("l3", key="key of l1", kind="FILE")) is None
    assert store.add(a_load("l4", key="key of l1", table_id="t2")) is None
    odd = a_load("l5", key="ü\N{SNOWMAN}" * 100)
    assert store.add(odd) is None
    assert store.with_key("t1", "BATCH", odd.key) == odd
    assert store.with_key("t1", "BATCH", "no") is None
    assert store.count() == 4


def test_loads_of_files_by_their_paths(store: LoadStore) -> None:
    def a_file(load_id: str, path: str, **changes: Any) -> Load:
        return a_load(load_id, kind="FILE", key=f"1 2 {load_id} {path}", state="COMMITTED", **changes)

    store.add_all([a_file("l1", "/in/a b.csv"), a_file("l2", "/in/a b.csv"), a_file("l3", "/in/c.csv")])
    store.add_all([a_file("l4", "/in/c.csv", table_id="t2"), a_load("l5", key="1 2 - /in/c.csv")])
    found = store.of_paths("t1", ["/in/a b.csv", "/in/c.csv", "/no"])
    assert {path: ids(loads) for path, loads in found.items()} == {"/in/a b.csv": ["l1", "l2"], "/in/c.csv": ["l3"]}
    store.rekey("l3", "1 9 - /in/c.csv")
    ((changed,),) = store.of_paths("t1", ["/in/c.csv"]).values()
    assert (
        changed
        == store.with_key("t1", "FILE", "1 9 - /in/c.csv")
        == a_file("l3", "").model_copy(update={"key": "1 9 - /in/c.csv"})
    )
    store.rekey("nobody", "1 9 - /in/c.csv")


def test_of_many_at_once_one_is_first(store: LoadStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: store.add(a_load(f"l{number}", key="same")), range(16)))
    assert found.count(None) == 1
    assert len({load.id for load in found if load is not None}) == 1


def test_all_or_none(store: LoadStore) -> None:
    store.add(a_load("l1", key="taken"))
    with pytest.raises(AlreadyExists):
        store.add_all([a_load("l2"), a_load("l3", key="taken")])
    assert store.count() == 1
    store.add_all([a_load(f"m{number}", number, kind="FILE") for number in range(1200)])
    keys = [f"key of m{number}" for number in range(1100, 1300)] + [f"key of m{number}" for number in range(900)]
    assert len(store.with_keys("t1", "FILE", keys)) == 1000
    assert len(store.ids(f"m{number}" for number in range(2000))) == 1200
    store.forget([f"m{number}" for number in range(1100)])
    assert store.count() == 101


def test_waiting_and_committed(store: LoadStore) -> None:
    store.add_all([a_load("l1", 2), a_load("l2", 1), a_load("l3", 0, kind="FILE"), a_load("l4", 0, table_id="t2")])
    assert ids(store.waiting()) == ["l3", "l4", "l2", "l1"]
    assert ids(store.waiting("t1")) == ["l3", "l2", "l1"]
    assert ids(store.waiting("t1", "BATCH")) == ["l2", "l1"]
    numbered = [load.model_copy(update={"sequence": 7}) for load in store.waiting("t1", "BATCH")]
    store.change(numbered)
    assert [load.sequence for load in store.waiting("t1", "BATCH")] == [7, 7]
    assert store.last_sequence("t1", "BATCH") == 0
    done = numbered[0].model_copy(update={"state": "COMMITTED", "version": 3, "committed_at": NOW})
    store.change([done])
    store.change([done.model_copy(update={"state": "RECEIVED"})])
    assert store.with_key("t1", "BATCH", done.key) == done, "what is committed stays so"
    assert ids(store.waiting("t1", "BATCH")) == ["l1"]
    assert store.last_sequence("t1", "BATCH") == 7
    store.change([])


def test_pruning(store: LoadStore) -> None:
    store.add_all([a_load("old"), a_load("waits"), a_load("file", kind="FILE"), a_load("new", 100), a_load("late")])
    found = store.ids(["old", "file", "new"])
    store.change([load.model_copy(update={"state": "COMMITTED"}) for load in found.values()])
    waited = {"state": "COMMITTED", "committed_at": NOW + timedelta(seconds=60)}
    store.change([load.model_copy(update=waited) for load in store.ids(["late"]).values()])
    assert store.prune(NOW + timedelta(seconds=50)) == 1
    assert sorted(store.ids(["old", "waits", "file", "new", "late"])) == ["file", "late", "new", "waits"]
    assert store.prune(NOW + timedelta(seconds=61)) == 1


def test_a_batch_gets_other_rows_while_it_waits(store: LoadStore) -> None:
    store.add(a_load())
    store.change([a_load(sequence=7)])
    mended = store.recount("l1", rows=5, rejected=2, size=99)
    assert mended == a_load(sequence=7, rows=5, rejected=2, bytes=99), "what else is known of it stays"
    assert store.waiting() == [mended]
    store.change([mended.model_copy(update={"state": "COMMITTED"})])
    assert store.recount("l1", rows=6, rejected=0, size=1) is None
    assert store.recount("nobody", rows=6, rejected=0, size=1) is None
    assert store.ids(["l1"])["l1"].rows == 5
