"""What alerts are told of tables and tasks, from the operations database."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from catalog.examples import NOW, a_record, a_table
from headrace.alerts.incidents import Fact
from headrace.catalog.records import Mark
from headrace.catalog.store import Store
from headrace.schedule.recounting import refreshed, resumed
from headrace.watched import Watched
from unit.schedule_world import a_task


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(f"sqlite:///{tmp_path / 'ops.db'}")
    yield store
    store.close()


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def fact(store: Store) -> Fact:
    (found,) = Watched(store, lambda: NOW).facts()
    return found


def test_a_failure_is_over_with_a_success_and_not_with_resume(store: Store) -> None:
    store.put_table(a_table("t1"))
    mark = Mark(object_id="t1", tick=NOW, state="FAILED", failures=5, error="boom", job_id="j", at=NOW)
    store.marks.reset([mark])
    assert (fact(store).state, fact(store).error, fact(store).job_id) == ("FAILED", "boom", "j")
    store.marks.reset([resumed(mark, at_once=True)])
    assert fact(store).state is None
    store.marks.reset([refreshed(mark)])
    assert fact(store).state == "SUCCEED"


def test_a_full_disk_is_told_and_not_counted(store: Store) -> None:
    store.put_table(a_table("t1"))
    store.marks.reset([Mark(object_id="t1", tick=NOW, state="FAILED", held_up=True, error="No space.", at=NOW)])
    assert (fact(store).state, fact(store).error, fact(store).held_up) == ("FAILED", "No space.", True)


@pytest.mark.parametrize(
    ("reason", "by_hand"),
    [
        ("Suspended by the user.", True),
        ("Suspended by ann.", True),
        ("Five scheduled refreshes in a row failed; …", False),
    ],
)
def test_who_suspended_a_table(store: Store, reason: str, by_hand: bool) -> None:
    store.put_table(a_table("t1", suspended=True, suspended_reason=reason))
    assert (fact(store).suspended, fact(store).by_hand) == (True, by_hand)


@pytest.mark.parametrize(
    ("changes", "by_hand"),
    [({"suspended": True, "suspended_reason": "Its creator is gone."}, True), ({}, False)],
)
def test_failures_suspend_no_task(store: Store, changes: dict[str, Any], by_hand: bool) -> None:
    store.tasks.put(a_task("load", **changes), new=True)
    assert fact(store).by_hand is by_hand


def test_how_far_a_table_is_behind(store: Store) -> None:
    store.put_table(a_table("t1", interval_seconds=60, created_at=ago(90)))
    assert fact(store).lag_seconds == 90, "never refreshed: since it was created"
    store.finish_refresh(a_record("j1", ago(70)))
    assert fact(store).lag_seconds == 70
    waits = a_record("j2", ago(10), refresh_mode="NO_DATA", reason="Waiting: b has newer rows.")
    store.record_no_data(waits)
    assert fact(store).lag_seconds == 70, "newer rows were left where they are"
    store.record_no_data(a_record("j3", ago(5), refresh_mode="NO_DATA"))
    assert (fact(store).lag_seconds, fact(store).on_schedule) == (5, True)


@pytest.mark.parametrize(
    ("settings", "on_schedule"),
    [({}, False), ({"interval_seconds": 60}, True), ({"target_lag": 600}, True), ({"target_lag": "DOWNSTREAM"}, True)],
)
def test_which_tables_the_clock_refreshes(store: Store, settings: dict[str, Any], on_schedule: bool) -> None:
    store.put_table(a_table("t1", **settings))
    assert (fact(store).on_schedule, fact(store).lag_seconds) == (on_schedule, 0)
