"""How fresh a table is said to be."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from headrace.catalog.records import SKIPPED, Mark, MarkState, RefreshRecord
from headrace.names import TableName
from headrace.schedule.freshness import Freshness, freshness, target_seconds
from headrace.schedule.status import PendingRun
from unit.schedule_world import START, a_table, tick

NOW = tick(10)


def a_record(minute: float, state: str = "SUCCEED", **changes: Any) -> RefreshRecord:
    values: dict[str, Any] = {
        "job_id": f"j{minute}", "table_id": "table-a", "workspace": "main", "schema_name": "public", "name": "a",
        "vcluster": "default", "start_time": tick(minute), "state": state, "trigger": "SYSTEM_SCHEDULED",
    }  # fmt: skip
    return RefreshRecord(**{**values, **changes})


def a_mark(minute: float, state: MarkState = "SUCCEED", **changes: Any) -> Mark:
    return Mark(**{"object_id": "table-a", "tick": tick(minute), "state": state, "at": tick(minute), **changes})


def a_run(state: Any = "RUNNING", **changes: Any) -> PendingRun:
    name = TableName("main", "public", "a")
    return PendingRun(object_id="table-a", name=name, kind="TABLE", tick=tick(10), state=state, **changes)


def told(
    *,
    success: RefreshRecord | None = None,
    record: RefreshRecord | None = None,
    mark: Mark | None = None,
    pending: PendingRun | None = None,
    next_tick: datetime | None = None,
    **settings: Any,
) -> Freshness:
    table = a_table("a", **{"interval_seconds": 60, **settings})
    return freshness(table, success, record or success, mark, pending, NOW, next_tick=next_tick)


def test_fresh() -> None:
    found = told(success=a_record(9), mark=a_mark(9))
    assert found == Freshness("FRESH", 60.0, 120, tick(11), None, 0, None)


@pytest.mark.parametrize(
    ("found", "status", "late"),
    [
        ({"pending": a_run(job_id="j")}, "RUNNING", True),
        ({"pending": a_run("WAITING")}, "WAITING", True),
        ({"mark": a_mark(9, "FAILED", reason="boom")}, "FAILED", True),
        ({}, "LATE", True),
        ({"suspended": True}, "SUSPENDED", False),
        ({"interval_seconds": None}, "MANUAL", False),
    ],
)
def test_a_table_that_is_late_is_so_whatever_else_is_said_of_it(found: dict[str, Any], status: str, late: bool) -> None:
    assert (told(success=a_record(1), **found).status, told(success=a_record(1), **found).is_late) == (status, late)
    assert not told(success=a_record(9), **found).is_late


@pytest.mark.parametrize(
    ("settings", "target"),
    [
        ({"interval_seconds": 60}, 120),
        ({"interval_seconds": None, "target_lag": 600}, 600),
        ({"interval_seconds": 60, "target_lag": 600}, 120),
        ({"interval_seconds": 3600, "target_lag": 600}, 600),
        ({"interval_seconds": None, "target_lag": "DOWNSTREAM"}, None),
        ({"interval_seconds": None}, None),
    ],
)
def test_what_is_promised(settings: dict[str, Any], target: int | None) -> None:
    assert target_seconds(a_table("a", **settings)) == target


@pytest.mark.parametrize(("minute", "status"), [(9, "FRESH"), (8, "FRESH"), (7.99, "LATE"), (-60, "LATE")])
def test_late_is_more_than_twice_the_interval(minute: float, status: str) -> None:
    assert told(success=a_record(minute), mark=a_mark(9)).status == status


@pytest.mark.parametrize(("minute", "status"), [(5, "FRESH"), (4.99, "LATE")])
def test_late_is_more_than_the_target_lag(minute: float, status: str) -> None:
    found = told(success=a_record(minute), interval_seconds=None, target_lag=300)
    assert (found.status, found.next_tick) == (status, tick(12.5))


def test_never_refreshed() -> None:
    found = told()
    assert (found.status, found.lag_seconds, found.next_tick) == ("LATE", (NOW - START).total_seconds(), tick(11))
    assert told(created_at=tick(9.9)).status == "LATE", "however short that is"
    assert told(start_with=tick(8), created_at=tick(0)).lag_seconds == 120, "it was not to be refreshed before"
    assert told(start_with=tick(60)).lag_seconds is None


def test_a_refresh_that_left_rows_where_they_are_makes_nothing_fresh() -> None:
    waited = a_record(9, refresh_mode="NO_DATA", reason="Waiting: b has newer rows.")
    assert not waited.took_all
    found = told(success=a_record(-50), record=waited, mark=a_mark(9))
    assert (found.status, found.lag_seconds, found.reason) == ("LATE", 3600.0, "Waiting: b has newer rows.")
    found = told(success=a_record(8.5), record=waited, mark=a_mark(9))
    assert (found.status, found.reason) == ("FRESH", "Waiting: b has newer rows.")
    # Somebody refreshes what failed or was skipped: it is over, whatever waits.
    assert told(success=a_record(1), record=waited, mark=a_mark(8, "FAILED", reason="boom")).status == "LATE"


def test_what_took_all() -> None:
    assert a_record(9).took_all
    assert a_record(9, refresh_mode="NO_DATA", reason="Only the frontier moves.").took_all
    assert not a_record(9, "FAILED").took_all
    assert not a_record(9, technique=SKIPPED, reason="Its upstream b failed.").took_all


def test_a_refresh_that_begins_in_the_future() -> None:
    assert told(success=a_record(11)).lag_seconds == 0


def test_by_hand_only() -> None:
    found = told(success=a_record(-999), interval_seconds=None)
    assert (found.status, found.next_tick, found.target_seconds) == ("MANUAL", None, None)
    running = told(success=a_record(1), record=a_record(9, "RUNNING"), interval_seconds=None)
    assert (running.status, running.job_id) == ("MANUAL", "j9")


def test_downstream_has_what_the_scheduler_says() -> None:
    found = told(success=a_record(-999), interval_seconds=None, target_lag="DOWNSTREAM", next_tick=tick(15))
    assert (found.status, found.next_tick) == ("FRESH", tick(15))


def test_suspended() -> None:
    found = told(success=a_record(1), mark=a_mark(9, "FAILED", failures=5), suspended=True, suspended_reason="Why.")
    assert (found.status, found.reason, found.failures, found.next_tick) == ("SUSPENDED", "Why.", 5, None)


def test_running_and_waiting() -> None:
    found = told(success=a_record(9), mark=a_mark(10, "CLAIMED"), pending=a_run(job_id="j10"))
    assert (found.status, found.job_id) == ("RUNNING", "j10")
    assert told(success=a_record(8), record=a_record(9, "RUNNING")).job_id == "j9"
    found = told(success=a_record(9), pending=a_run("WAITING", waits_for=(TableName("main", "public", "b"),)))
    assert (found.status, found.reason, found.job_id) == ("WAITING", "It waits for main.public.b.", None)
    assert told(pending=a_run("QUEUED")).reason == "It waits for its virtual cluster."
    assert told(pending=a_run("WAITING")).reason is None


def test_failed() -> None:
    found = told(success=a_record(8), mark=a_mark(9, "FAILED", reason="boom", failures=1))
    assert (found.status, found.reason, found.failures) == ("FAILED", "boom", 1)
    by_hand = told(success=a_record(8), record=a_record(9.5, "FAILED", error_message="oh"), mark=a_mark(9))
    assert (by_hand.status, by_hand.reason) == ("FAILED", "oh")
    assert told(mark=a_mark(9, "FAILED")).reason == "The refresh failed."


@pytest.mark.parametrize("state", ["FAILED", "SKIPPED"])
def test_somebody_refreshed_it_since(state: MarkState) -> None:
    assert told(success=a_record(9.5), mark=a_mark(9, state, reason="boom")).status == "FRESH"


def test_skipped() -> None:
    found = told(success=a_record(8), mark=a_mark(9, "SKIPPED", reason="Its upstream main.public.b failed: boom"))
    assert (found.status, found.reason) == ("SKIPPED", "Its upstream main.public.b failed: boom")


def test_lag_counts_from_the_start() -> None:
    slow = a_record(5, end_time=tick(9))
    assert told(success=slow).lag_seconds == timedelta(minutes=5).total_seconds()
