"""Clocks that jump, and days on which they are moved: no tick twice, none missing for long."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from headrace.errors import QueryFailed
from unit.schedule_world import World, tick


@pytest.fixture
def world() -> World:
    world = World()
    world.succeed_from_now_on()
    return world


def minutes_of(world: World, name: str) -> list[float]:
    """The ticks at which it began, in minutes after noon."""
    return [(at - tick(0)).total_seconds() / 60 for each, at in world.begun if each == name]


def test_a_jump_forward_is_one_late_run(world: World) -> None:
    world.table("a")
    world.advance(1)
    world.clock.put_to(tick(500.5))
    world.look()
    world.look()
    assert minutes_of(world, "a") == [1, 500]
    assert world.mark("a").merged == 498


def test_a_jump_back_runs_nothing_again(world: World) -> None:
    world.table("a")
    world.task("t", "a")
    for _ in range(9):
        world.advance(1)
        world.look()
    world.clock.put_to(tick(3.5))
    for _ in range(9):
        world.advance(1)
        world.look()
    assert minutes_of(world, "a") == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    assert minutes_of(world, "t") == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]


def test_a_jump_back_by_far_does_not_stop_it_for_long(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.table("a")
    world.task("t", "a")
    world.clock.put_to(tick(100_000))  # Somebody starts with a wrong clock,
    world.look()
    world.look()
    assert minutes_of(world, "a") == [100_000]
    world.clock.put_to(tick(10.5))  # and puts it right.
    with caplog.at_level(logging.WARNING):
        world.look()
    assert "the clock was wrong" in caplog.text
    assert len(world.store.marks.resets) == 2
    assert (world.mark("a").tick, world.mark("a").merged, world.mark("a").state) == (tick(10), 0, "SUCCEED")
    for _ in range(3):
        world.advance(1)
        world.look()
    assert minutes_of(world, "a") == [100_000, 11, 12, 13]
    assert minutes_of(world, "t") == [100_000, 11, 12, 13]
    assert len(world.store.marks.resets) == 2


def test_a_jump_back_by_far_runs_no_task_again_at_a_tick_that_it_had(world: World) -> None:
    """Only what was not run before: by its own times, after another, and also when a restart comes in between. A
    refresh does nothing twice, so tables are kept fresh meanwhile."""
    world.table("a")
    world.task("t", minutes=1)
    world.task("after_t", "t")
    world.task("after_a", "a")
    for _ in range(30):
        world.advance(1)
        world.look()
    world.clock.put_to(tick(5.5))
    world.look()
    assert world.scheduler.status().next_ticks["task-t"] == tick(31)
    for _ in range(5):
        world.advance(1)
        world.look()
    before = minutes_of(world, "t")
    assert before == minutes_of(world, "after_t") == minutes_of(world, "after_a") == list(range(1, 31))
    assert minutes_of(world, "a")[30:] == [6, 7, 8, 9, 10]
    world.restart()
    world.succeed_from_now_on()
    for _ in range(22):
        world.advance(1)
        world.look()
    assert minutes_of(world, "t") == minutes_of(world, "after_t") == minutes_of(world, "after_a") == [31, 32]
    assert [run.merged for run in world.runs("t") if run.tick == tick(31)] == [0]


def test_ticks_that_were_not_run_before_a_jump_back_are_run(world: World) -> None:
    """The clock was ahead for a while: what it has passed over is not lost."""
    world.task("t", minutes=1)
    world.task("failing", minutes=1)
    world.work.at_once = lambda name, tick: QueryFailed("boom") if name == "failing" else None
    world.advance(1)
    world.clock.put_to(tick(60.5))
    world.look()
    world.clock.put_to(tick(1.5))
    world.look()
    for _ in range(61):
        world.advance(1)
        world.look()
    expected = [1, 60, *range(2, 60), 61, 62]
    assert minutes_of(world, "t") == minutes_of(world, "failing") == expected


def test_a_tick_that_was_skipped_is_run_when_it_comes_again(world: World) -> None:
    world.task("t", "upstream", minutes=1)
    for _ in range(20):
        world.advance(1)
        world.look()
    assert world.begun == []
    world.task("upstream")
    world.clock.put_to(tick(5.5))
    world.look()
    world.advance(1)
    world.advance(1)
    assert minutes_of(world, "t") == [6, 7]


def test_a_table_made_by_a_wrong_clock(world: World) -> None:
    world.table("a", created_at=tick(100_000))
    world.task("t", minutes=1, created_at=tick(100_000))
    world.advance(1)
    world.advance(1)
    world.look()
    assert minutes_of(world, "a") == minutes_of(world, "t") == [2]
    assert world.mark("a").merged == 0


def test_a_clock_that_jumps_back_while_something_runs(world: World) -> None:
    world.table("a")
    world.table("b", "a")
    world.work.at_once = lambda name, tick: False
    world.clock.put_to(tick(5000))
    world.look()
    world.clock.put_to(tick(5.5))
    world.look()
    assert world.store.marks.resets == []
    world.end("a")
    world.end("b")
    world.look()
    assert {mark.tick for mark in world.store.marks.rows.values()} == {tick(5)}
    world.advance(1)
    world.end_all()
    assert minutes_of(world, "b") == [5000, 6]


def test_a_clock_that_goes_to_and_fro(world: World) -> None:
    """Every tick at most once while the jumps are small."""
    world.table("a")
    for minute in (1, 2, 1.5, 3, 2.2, 5, 3, 4, 6, 5.9, 7):
        world.clock.put_to(tick(minute))
        world.look()
        world.look()
    assert minutes_of(world, "a") == [1, 2, 3, 5, 6, 7]


def test_pauses_do_not_depend_on_the_clock(world: World) -> None:
    world.table("a")
    world.look()
    world.clock.put_to(tick(-1000))
    assert 0 <= world.look() <= 10
    world.clock.put_to(tick(100_000.25))
    assert 0 <= world.look() <= 10


@pytest.mark.parametrize(
    ("zone", "day", "expected"),
    [
        ("Europe/Berlin", (2025, 3, 30), ["01:30+0100", "03:00+0200", "03:30+0200"]),
        ("Europe/Berlin", (2025, 10, 26), ["01:30+0200", "02:30+0200", "03:30+0100"]),
        ("America/New_York", (2025, 3, 9), ["01:30-0500", "03:00-0400", "03:30-0400"]),
        ("America/New_York", (2025, 11, 2), ["01:30-0400", "02:30-0500", "03:30-0500"]),
        ("Asia/Tokyo", (2025, 3, 30), ["01:30+0900", "02:30+0900", "03:30+0900"]),
    ],
)
def test_fixed_times_on_the_day_the_clock_is_moved(
    world: World, zone: str, day: tuple[int, int, int], expected: list[str]
) -> None:
    clock = ZoneInfo(zone)
    midnight = datetime(*day, tzinfo=clock).astimezone(timezone.utc)
    world.clock.put_to(midnight)
    world.task("t", cron="30 1-3 * * *", zone=zone, created_at=midnight)
    for _ in range(8 * 12):
        world.advance(5)
        world.look()
    assert [at.astimezone(clock).strftime("%H:%M%z") for _, at in world.begun] == expected
    assert all(mark.merged == 0 for _, mark in world.work.ends)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo"])
def test_every_quarter_of_an_hour_in_a_year_with_changes(world: World, zone: str) -> None:
    start = datetime(2025, 1, 1, tzinfo=timezone.utc)
    clock = ZoneInfo(zone)
    changes = [
        at for hour in range(365 * 24)
        if (at := start + timedelta(hours=hour)).astimezone(clock).utcoffset()
        != (at + timedelta(hours=1)).astimezone(clock).utcoffset()
    ]  # fmt: skip
    assert len(changes) == 2
    for change in changes:
        world.work.jobs = []
        world.drop("t")
        world.clock.put_to(change - timedelta(hours=2))
        world.look()
        now = world.clock.now()
        world.task("t", id=f"task-{change.month}", cron="*/15 * * * *", zone=zone, created_at=now)
        world.store.tasks.rows.pop("task-t", None)
        for _ in range(24):
            world.advance(15)
            world.look()
        ticks = [at for _, at in world.begun]
        assert ticks == [now + timedelta(minutes=15 * number) for number in range(1, 25)]
        world.store.tasks.rows.clear()


def test_a_restart_on_the_day_the_clock_is_moved(world: World) -> None:
    """Down from before the change until after it: one run, as for any tick that was missed."""
    zone = "Europe/Berlin"
    midnight = datetime(2025, 10, 26, tzinfo=ZoneInfo(zone)).astimezone(timezone.utc)
    world.clock.put_to(midnight)
    world.task("t", cron="30 2 * * *", zone=zone, created_at=midnight)
    world.look()
    world.clock.advance(2.6 * 3600)
    world.look()
    assert len(world.begun) == 1
    world.look()
    world.restart()
    world.clock.advance(3600)  # It is 2:36 once more.
    world.look()
    assert world.begun == []
    world.clock.advance(24 * 3600)
    world.look()
    assert len(world.begun) == 1


def test_an_interval_goes_on_over_a_change_of_the_clock(world: World) -> None:
    start = datetime(2025, 3, 29, 23, 0, tzinfo=timezone.utc)
    world.clock.put_to(start)
    world.table("a", minutes=60, created_at=start)
    for _ in range(6):
        world.advance(60)
        world.look()
    assert [at.hour for _, at in world.begun] == [0, 1, 2, 3, 4, 5]
