"""What alerts are told of tables and tasks, from the operations database."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from catalog.examples import NOW, a_record, a_table
from headrace.alerts.incidents import Fact
from headrace.catalog.records import Mark
from headrace.catalog.store import Store
from headrace.loading.committer import Condition
from headrace.names import TableName
from headrace.schedule.live import ByHandEnd
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


class Times:
    """Wall-clock time and time that only goes forward."""

    def __init__(self) -> None:
        self.now, self.seconds = NOW, 100.0

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.seconds += seconds


@pytest.fixture
def times() -> Times:
    return Times()


@pytest.fixture
def watched(store: Store, times: Times) -> Watched:
    return Watched(store, lambda: times.now, monotonic=lambda: times.seconds)


def chance(watched: Watched) -> float:
    (found,) = watched.facts()
    return found.chance_seconds


def test_after_a_start_a_table_has_its_first_tick_before_its_lag_counts(
    store: Store, watched: Watched, times: Times
) -> None:
    store.put_table(a_table("t1", interval_seconds=60, created_at=ago(9000)))
    store.marks.reset([Mark(object_id="t1", tick=ago(9000), state="SUCCEED", at=ago(9000))])
    times.advance(30)
    assert chance(watched) == 30
    store.marks.reset([Mark(object_id="t1", tick=NOW, state="CLAIMED", at=times.now)])
    assert chance(watched) == 30, "it has not ended"
    store.marks.reset([Mark(object_id="t1", tick=NOW, state="SKIPPED", at=times.now)])
    assert chance(watched) == math.inf


def test_after_a_jump_of_the_clock_as_well(store: Store, watched: Watched, times: Times) -> None:
    store.put_table(a_table("t1", interval_seconds=60))
    times.advance(5000)
    store.marks.reset([Mark(object_id="t1", tick=NOW, state="SUCCEED", at=times.now)])
    assert chance(watched) == math.inf
    times.advance(10)
    times.now += timedelta(hours=5)
    assert chance(watched) == 0
    times.advance(20)
    assert chance(watched) == 20
    times.now -= timedelta(hours=5)
    assert chance(watched) == 0


def test_and_after_resume(store: Store, watched: Watched, times: Times) -> None:
    table = a_table("t1", interval_seconds=60)
    store.put_table(table.model_copy(update={"suspended": True}))
    times.advance(5000)
    store.marks.reset([Mark(object_id="t1", tick=NOW, state="SUCCEED", at=times.now)])
    watched.facts()
    times.advance(5)
    store.put_table(table)
    assert chance(watched) == 0
    times.advance(7)
    assert chance(watched) == 7


def a_failure(at: datetime = NOW, **changes: Any) -> ByHandEnd:
    return ByHandEnd(**{"state": "FAILED", "at": at, "error": "boom", "job_id": "j9", **changes})


def test_a_refresh_by_hand_that_fails_is_a_failure_until_one_succeeds(store: Store, watched: Watched) -> None:
    store.put_table(a_table("t1"))
    watched.ended_by_hand("t1", a_failure())
    (found,) = watched.facts()
    assert (found.state, found.error, found.job_id, found.asked_for) == ("FAILED", "boom", "j9", True)
    watched.ended_by_hand("t1", ByHandEnd("SUCCEED", NOW))
    (found,) = watched.facts()
    assert (found.state, found.error, found.asked_for) == ("SUCCEED", None, False)
    watched.ended_by_hand("gone", a_failure())
    assert len(watched.facts()) == 1


def test_the_newest_end_counts_by_schedule_or_by_hand(store: Store, watched: Watched) -> None:
    store.put_table(a_table("t1", interval_seconds=60))
    watched.ended_by_hand("t1", a_failure(ago(60), error_code="TIMED_OUT"))
    for state, at, told in (
        ("SUCCEED", ago(90), "FAILED"), ("CLAIMED", ago(30), "FAILED"), ("SKIPPED", ago(30), "FAILED"),
        ("SUCCEED", ago(30), "SUCCEED"),
    ):  # fmt: skip
        store.marks.reset([Mark(object_id="t1", tick=NOW, state=state, at=at)])
        (found,) = watched.facts()
        assert found.state == told, (state, at)
        assert found.timed_out is (told == "FAILED")


def test_an_end_by_hand_that_was_overtaken_does_not_come_back_while_the_next_run_is_at_work(
    store: Store, watched: Watched
) -> None:
    store.put_table(a_table("t1", interval_seconds=60))
    watched.ended_by_hand("t1", ByHandEnd("SUCCEED", ago(90)))
    failed = Mark(object_id="t1", tick=ago(60), state="FAILED", failures=1, error="boom", at=ago(59))
    for mark in (failed, failed.model_copy(update={"tick": NOW, "state": "CLAIMED", "at": NOW})):
        store.marks.reset([mark])
        (found,) = watched.facts()
        assert (found.state, found.error) == ("FAILED", "boom"), mark.state


def test_a_backfill_that_works_says_nothing_about_the_schedule(store: Store, watched: Watched) -> None:
    store.tasks.put(a_task("load"), new=True)
    mark = Mark(object_id="task-load", tick=NOW, state="FAILED", failures=1, error="by schedule", at=ago(60))
    store.marks.reset([mark])
    watched.ended_by_hand("task-load", ByHandEnd("SUCCEED", NOW, backfill=True))
    (found,) = watched.facts()
    assert (found.state, found.error) == ("FAILED", "by schedule")
    store.marks.reset([mark.model_copy(update={"state": "SUCCEED", "failures": 0, "error": None})])
    watched.ended_by_hand("task-load", a_failure(backfill=True))
    assert [found.state for found in watched.facts()] == ["FAILED"]
    watched.ended_by_hand("task-load", ByHandEnd("SUCCEED", NOW, backfill=True))
    assert [found.state for found in watched.facts()] == ["SUCCEED"]


def test_rows_that_wait_for_a_table_are_told(store: Store) -> None:
    events = TableName("main", "public", "events")
    found = [
        Condition("1", events, 3, 1, 100, 400.0, is_well=False, trouble="3 rows wait."),
        Condition("2", events, 3, 1, 100, 4.0, is_well=None),
        Condition("3", events, 3, 1, 100, 4.0, is_well=True),
    ]
    facts = Watched(store, lambda: NOW, loads=lambda: found).facts()
    assert [(fact.object_id, fact.kind, fact.state, fact.error) for fact in facts] == [
        ("loads-1", "LOADING", "FAILED", "3 rows wait."),
        ("loads-2", "LOADING", None, None),
        ("loads-3", "LOADING", "SUCCEED", None),
    ]


@pytest.mark.parametrize(
    ("settings", "on_schedule"),
    [({}, False), ({"interval_seconds": 60}, True), ({"target_lag": 600}, True), ({"target_lag": "DOWNSTREAM"}, True)],
)
def test_which_tables_the_clock_refreshes(store: Store, settings: dict[str, Any], on_schedule: bool) -> None:
    store.put_table(a_table("t1", **settings))
    assert (fact(store).on_schedule, fact(store).lag_seconds) == (on_schedule, 0)
