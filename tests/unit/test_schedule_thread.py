"""The scheduler's own thread, on the real clock: waking, closing, and asking from other threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone

import pytest

from headrace.schedule.scheduler import Scheduler
from unit.schedule_world import World, a_task

PATIENCE = 20.0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.clock.now = lambda: datetime.now(timezone.utc)  # type: ignore[method-assign]
    world.scheduler = Scheduler(world.store, world.clock.now, world.work)
    yield world
    world.scheduler.close(PATIENCE)
    assert "scheduler" not in {thread.name for thread in threading.enumerate()}


def test_it_wakes_for_what_is_asked_and_for_what_ends(world: World) -> None:
    world.scheduler.start()
    world.scheduler.start()
    assert [thread.name for thread in threading.enumerate()].count("scheduler") == 1
    task = world.task("t", created_at=world.clock.now())
    world.task("after", "t", created_at=world.clock.now())
    world.scheduler.execute(task, [world.clock.now()], "MANUAL")
    until(lambda: world.at_work == ["t"])
    world.job("t").end()
    until(lambda: world.at_work == ["after"])
    world.job("after").end()
    until(lambda: world.states("after") == ["SUCCEED"])


def test_it_sees_changes_at_once(world: World) -> None:
    world.scheduler.start()
    until(lambda: world.scheduler.status().looked_at is not None)
    world.task("late", minutes=60)  # Long due.
    until(lambda: world.at_work == ["late"])


def test_it_lives_through_failing_looks(world: World) -> None:
    world.store.faults.plan = iter(["before"] * 3)
    world.task("t", minutes=60)
    world.scheduler.start()
    until(lambda: world.scheduler.status().fault is not None)
    for _ in range(3):
        world.scheduler.wake()
        time.sleep(0.01)
    until(lambda: world.at_work == ["t"])


def test_closing_writes_down_what_has_ended_and_begins_nothing(world: World) -> None:
    world.task("t", minutes=60)
    world.task("after", "t")
    world.scheduler.start()
    until(lambda: world.at_work == ["t"])
    with world.scheduler._looking:  # It cannot look before it is closed.
        world.job("t").end()
        closing = threading.Thread(target=world.scheduler.close)
        closing.start()
        until(world.scheduler._closing.is_set)
    closing.join(PATIENCE)
    assert world.states("t") == ["SUCCEED"]
    assert world.at_work == []
    assert world.states("after") == ["WAITING"]


def test_what_ends_after_the_closing_is_not_looked_at(world: World) -> None:
    world.table("a", created_at=datetime(2025, 1, 1, tzinfo=timezone.utc))
    world.scheduler.start()
    until(lambda: world.at_work == ["a"])
    world.scheduler.close(PATIENCE)
    world.job("a").end()
    time.sleep(0.05)
    assert world.mark("a").state == "CLAIMED"


def test_closed_before_it_started(world: World) -> None:
    world.scheduler.close()
    world.scheduler.close()


def test_many_ask_at_once(world: World) -> None:
    world.succeed_from_now_on()
    tasks = [world.task(f"t{number}") for number in range(4)]
    world.scheduler.start()

    def ask(task: object) -> None:
        for _ in range(10):
            world.scheduler.execute(task, [world.clock.now()], "MANUAL")  # type: ignore[arg-type]
            world.scheduler.changed()
            world.scheduler.status()

    threads = [threading.Thread(target=ask, args=(task,)) for task in tasks for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    until(lambda: [run.state for run in world.store.task_runs.rows.values()] == ["SUCCEED"] * 80)
    assert len({job.run.id for job in world.work.jobs if job.run is not None}) == 80


def test_asking_while_marks_are_in_doubt_brings_no_run_twice(world: World) -> None:
    world.succeed_from_now_on()
    task = a_task("t")
    world.store.put_task(task)
    world.scheduler.start()
    for _ in range(50):
        world.scheduler._looks.in_doubt = True
        world.scheduler.execute(task, [world.clock.now()], "MANUAL")
    until(lambda: [run.state for run in world.store.task_runs.rows.values()] == ["SUCCEED"] * 50)
    assert len(world.work.jobs) == 50
