"""SHOW FRESHNESS, as far as it needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from catalog.examples import NOW, a_record, a_table
from headrace.catalog.records import DynamicTable, Mark
from headrace.catalog.store import Store
from headrace.names import TableName
from headrace.schedule.status import PendingRun, Status
from headrace.security.roles import Principal
from headrace.sql.parser import parse
from headrace.statements import freshness

COLUMNS = [
    "schema_name", "name", "status", "lag_second", "target_second", "last_refresh", "last_mode", "rows_inserted",
    "rows_deleted", "last_duration", "next_refresh", "running_job", "failures", "reason", "is_late",
]  # fmt: skip


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(f"sqlite:///{tmp_path / 'ops.db'}")
    yield store
    store.close()


class Here:
    """A session without Spark."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.status = Status()
        self.context: Any = SimpleNamespace(
            store=store, user=Principal("root", "admin"), settings=SimpleNamespace(timezone="UTC"), clock=lambda: NOW,
            home="main", scheduler=SimpleNamespace(status=lambda: self.status),
            require_database=lambda parts: ("main", parts[-1], parts[-1]),
        )  # fmt: skip

    def rows(self, text: str = "SHOW FRESHNESS") -> list[dict[str, Any]]:
        result = freshness.show(self.context, parse(text))  # type: ignore[arg-type]
        assert result.columns == COLUMNS
        return result.to_arrow().to_pylist()

    def row(self) -> dict[str, Any]:
        (found,) = self.rows()
        return found

    def table(self, name: str = "orders", **changes: Any) -> DynamicTable:
        made = a_table(name, name, storage_path=f"/lake/{name}", **{"interval_seconds": 60, **changes})
        self.store.put_table(made)
        return made

    def refreshed(self, table: DynamicTable, seconds: float, **changes: Any) -> None:
        record = a_record(
            f"{table.id}-{seconds}", ago(seconds), table_id=table.id, name=table.name,
            **{"end_time": ago(seconds - 2), "refresh_mode": "INCREMENTAL", **changes},
        )  # fmt: skip
        if record.state in ("SUCCEED", "FAILED"):
            self.store.finish_refresh(record)
        else:
            self.store.start_refresh(record.model_copy(update={"end_time": None}))


@pytest.fixture
def here(store: Store) -> Here:
    return Here(store)


def test_nothing_to_show(here: Here) -> None:
    assert here.rows() == []


def test_a_fresh_table(here: Here) -> None:
    table = here.table()
    here.refreshed(table, 700.0, refresh_mode="FULL", rows_inserted=5)
    here.refreshed(table, 30.5, rows_inserted=12, rows_deleted=3)
    here.status = Status(next_ticks={table.id: ago(-29)})
    assert here.row() == {
        "schema_name": "public", "name": "orders", "status": "FRESH", "lag_second": 30, "target_second": 120,
        "last_refresh": ago(28.5), "last_mode": "INCREMENTAL", "rows_inserted": 12, "rows_deleted": 3,
        "last_duration": timedelta(seconds=2), "next_refresh": ago(-29), "running_job": None, "failures": 0,
        "reason": None, "is_late": False,
    }  # fmt: skip


def test_a_table_that_was_never_refreshed(here: Here) -> None:
    here.table(interval_seconds=None)
    row = here.row()
    assert (row.pop("name"), row.pop("status"), row.pop("schema_name")) == ("orders", "MANUAL", "public")
    assert row.pop("lag_second") == 0, "since it was created"
    assert (row.pop("failures"), row.pop("is_late"), set(row.values())) == (0, False, {None})


def test_what_runs_and_what_waits(here: Here) -> None:
    first, second, third = here.table("a"), here.table("b"), here.table("c")
    for table in (first, second, third):
        here.refreshed(table, 60.0)
    here.refreshed(first, 1.0, state="RUNNING", refresh_mode=None)

    def run(table: DynamicTable, state: Any, **more: Any) -> PendingRun:
        return PendingRun(table.id, table.table_name, "TABLE", ago(1), state, **more)

    name = TableName("main", "public", "a")
    here.status = Status(
        runs=(run(first, "RUNNING", job_id="j1"), run(second, "WAITING", waits_for=(name,)), run(third, "QUEUED"))
    )
    found = {row["name"]: row for row in here.rows()}
    assert (found["a"]["status"], found["a"]["running_job"]) == ("RUNNING", "j1")
    assert (found["a"]["last_refresh"], found["a"]["lag_second"]) == (ago(58), 60)  # still the last one that succeeded
    assert (found["b"]["status"], found["b"]["running_job"]) == ("WAITING", None)
    assert "main.public.a" in found["b"]["reason"]
    assert found["c"]["status"] == "WAITING"


def test_what_failed_keeps_its_last_success(here: Here, store: Store) -> None:
    table = here.table()
    here.refreshed(table, 300.0, rows_inserted=1)
    for seconds in (240.0, 180.0, 120.0, 60.0):
        here.refreshed(table, seconds, state="FAILED", refresh_mode=None, error_message="Division by zero.")
    mark = Mark(
        object_id=table.id, tick=ago(60), state="FAILED", failures=4, reason="Division by zero.", job_id="j", at=ago(58)
    )
    store.marks.reset([mark])
    row = here.row()
    assert (row["status"], row["failures"], row["reason"]) == ("FAILED", 4, "Division by zero.")
    assert (row["lag_second"], row["last_mode"], row["rows_inserted"]) == (300, "INCREMENTAL", 1)
    assert row["is_late"] is True


def test_a_table_that_waits_for_others_is_as_old_as_what_it_has(here: Here) -> None:
    table = here.table()
    here.refreshed(table, 900.0, rows_inserted=7)
    here.refreshed(table, 600.0, refresh_mode="NO_DATA")
    for seconds in (540.0, 60.0, 1.0):
        here.refreshed(table, seconds, refresh_mode="NO_DATA", reason="Waiting: a has newer rows.")
    row = here.row()
    assert (row["status"], row["lag_second"], row["reason"]) == ("LATE", 600, "Waiting: a has newer rows.")
    assert (row["last_refresh"], row["last_mode"]) == (ago(598), "NO_DATA")


def test_which_tables(here: Here) -> None:
    for name in ("orders", "orders_clean", "daily"):
        here.table(name)
    here.table("elsewhere", schema_name="other")
    names = lambda text: [row["name"] for row in here.rows(text)]  # noqa: E731
    assert names("SHOW FRESHNESS") == ["elsewhere", "daily", "orders", "orders_clean"]
    assert names("SHOW FRESHNESS IN public LIKE 'ord%'") == ["orders", "orders_clean"]
    assert names("SHOW FRESHNESS FROM main.other") == ["elsewhere"]
    assert names("SHOW FRESHNESS LIMIT 1") == ["elsewhere"]


def test_without_a_clock_nothing_is_next(here: Here) -> None:
    """A lake in a process of its own: the tables are as fresh as they are, and stay so."""
    here.refreshed(here.table(), 500.0)
    here.context.scheduler = None
    row = here.row()
    assert (row["status"], row["lag_second"], row["next_refresh"]) == ("LATE", 500, None)
