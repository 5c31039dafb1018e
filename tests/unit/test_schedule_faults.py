"""A database that goes away at any moment: looks fail and are tried again; nothing is lost, nothing is done twice."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from headrace.catalog.records import Mark
from headrace.errors import EnvironmentFault, HeadraceError, QueryFailed, RefreshHeldUp, spark_ended
from headrace.schedule.live import new_run
from unit.schedule_world import START, World, tick


@pytest.fixture
def world() -> World:
    return World()


def always(what: str) -> Iterator[str]:
    return itertools.repeat(what)


def test_a_look_that_fails_is_tried_again_later(world: World) -> None:
    world.table("a")
    world.look()
    world.clock.advance(60)
    world.store.faults.plan = always("before")
    world.scheduler.changed()
    assert [world.look() for _ in range(7)] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0]
    assert world.scheduler.status().fault == "The database is away (tables)."
    assert world.begun == []
    world.store.faults.plan = always("")
    world.look()
    assert world.begun == [("a", tick(1))]
    assert world.scheduler.status().fault is None
    world.store.faults.plan = always("before")
    world.scheduler.changed()
    assert world.look() == 1.0  # Counted anew.


def test_a_thousand_failed_looks(world: World) -> None:
    world.store.faults.plan = always("before")
    assert {world.look() for _ in range(1200)} == {1.0, 2.0, 4.0, 8.0, 10.0}


def test_the_end_of_a_job_waits_for_the_database(world: World) -> None:
    world.table("a")
    world.table("b", "a")
    world.advance(1)
    world.store.faults.plan = always("before")
    for _ in range(3):
        world.fail("a", "boom") if world.at_work else world.look()
    assert world.scheduler.status().fault is not None
    world.store.faults.plan = always("")
    world.look()
    assert (world.mark("a").state, world.mark("a").failures) == ("FAILED", 1)
    assert world.mark("b").state == "SKIPPED"


def test_settle_does_not_hang_on_it(world: World) -> None:
    world.store.faults.plan = always("before")
    assert not world.scheduler.settle(5)


def test_asking_for_a_run_fails_as_a_whole(world: World) -> None:
    task = world.task("t")
    world.look()
    for plan in (["before"], ["after"], ["", "before"]):
        world.store.faults.plan = iter(plan)
        with pytest.raises(EnvironmentFault):
            world.scheduler.execute(task, [START], "MANUAL")
        world.look()
        assert world.begun == []
        assert world.runs("t") == []


@pytest.mark.parametrize("number", range(6))
def test_cancelling_what_waits_may_fail_and_is_done_once(world: World, number: int) -> None:
    task = world.task("t")
    world.scheduler.execute(task, [tick(-2), tick(-1)], "BACKFILL")
    world.look()
    world.restart()  # So that it must be read what waits.
    for what in ("before", "after"):
        world.store.faults.plan = itertools.chain(itertools.repeat("", number), [what], always(""))
        try:
            world.scheduler.cancel(task, "It was cancelled by ann.")
        except EnvironmentFault:
            pass
    world.store.faults.plan = always("")
    world.scheduler.cancel(task, "It was cancelled by ann.")
    world.look()
    assert world.begun == []
    assert world.states("t") == ["CANCELLED", "CANCELLED"]
    assert world.scheduler.status().runs == ()


def test_asking_for_a_run_fails_and_it_was_written_all_the_same(world: World) -> None:
    task = world.task("t")
    world.look()
    world.store.faults.plan = iter(["", "after"])
    with pytest.raises(EnvironmentFault):
        world.scheduler.execute(task, [START], "MANUAL")
    world.look()
    assert world.begun == []
    assert world.states("t") == ["CANCELLED"]


def test_a_tick_that_somebody_else_has_taken_is_theirs(world: World) -> None:
    """There is one scheduler to a lake. If ever there are two, a tick is one's."""
    world.table("a")
    world.look()
    taken = Mark(object_id="table-a", tick=tick(1), state="SUCCEED", at=tick(1.1))
    world.store.marks.rows["table-a"] = taken
    world.store.faults.calls.clear()
    world.advance(1)
    assert world.begun == []
    assert world.mark("a") == taken
    assert world.store.faults.calls.count("marks.claim") == 1
    world.advance(1)
    assert world.begun == [("a", tick(2))]


def test_a_run_that_somebody_left_behind_is_not_begun_again(world: World) -> None:
    task = world.task("t", minutes=1)
    world.look()
    run = new_run(task, tick(1), "SCHEDULE", tick(1)).model_copy(update={"state": "RUNNING"})
    world.store.task_runs.rows[run.id] = run
    world.store.marks.rows["task-t"] = Mark(object_id="task-t", tick=tick(1), state="CLAIMED", at=tick(1))
    world.advance(1)
    assert world.begun == []
    assert world.states("t") == ["FAILED"]


def test_a_failure_counts_once_also_when_it_is_written_twice(world: World) -> None:
    world.table("a")
    world.fail_from_now_on("a")
    for _ in range(3):
        world.advance(1)
        world.look()
    world.advance(1)
    world.store.faults.plan = iter(["after"])
    for _ in range(3):
        world.look()
    assert world.mark("a").failures == 4
    assert world.work.suspensions == []
    assert world.work.ends[-1][1].failures == 4


def scenario(world: World) -> None:
    """Some of everything: tables and tasks, idle ones, failures, retries, skips, runs by hand."""
    world.table("base", minutes=None, target_lag="DOWNSTREAM")
    world.table("idle")
    world.table("left", "base")
    world.table("right", "base", "idle")
    world.table("bottom", "left", "right")
    root = world.task("load", minutes=1, retries=1)
    world.task("report", "load", "bottom")
    world.task("lost", "gone", minutes=1)
    world.work.idle_tables = {"idle"}
    attempts = itertools.count()

    def outcome(name: str, _: datetime) -> HeadraceError | None:
        if name == "load" and next(attempts) == 0:
            return QueryFailed("once")
        return QueryFailed("always") if name == "right" else None

    world.work.at_once = outcome
    world.scheduler.execute(root, [START], "MANUAL")


def let_time_pass(world: World) -> None:
    for _ in range(14):
        world.clock.advance(10)
        for _ in range(12):
            world.look()


def summary(world: World) -> dict[str, Any]:
    """How it all came out, without ids."""
    states = {name: sorted((run.tick, run.trigger, run.state) for run in world.runs(name)) for name in TASKS}
    marks = {mark.object_id: (mark.tick, mark.state, mark.failures) for mark in world.store.marks.all()}
    return {"marks": marks, **states}


TASKS = ("load", "report", "lost")


def test_the_scenario_without_faults(world: World) -> None:
    scenario(world)
    let_time_pass(world)
    assert summary(world) == EXPECTED


EXPECTED: dict[str, Any] = {
    "marks": {
        "table-base": (tick(2), "SUCCEED", 0),
        "table-idle": (tick(2), "SUCCEED", 0),
        "table-left": (tick(2), "SUCCEED", 0),
        "table-right": (tick(2), "FAILED", 2),
        "table-bottom": (tick(2), "SKIPPED", 0),
        "task-load": (tick(2), "SUCCEED", 0),
        "task-report": (tick(2), "SKIPPED", 0),
        "task-lost": (tick(2), "SKIPPED", 0),
    },
    "load": [
        (START, "MANUAL", "SUCCEED"),
        (tick(1), "SCHEDULE", "SUCCEED"),
        (tick(2), "SCHEDULE", "SUCCEED"),
    ],
    "report": [
        (START, "AFTER", "SUCCEED"),
        (tick(1), "AFTER", "SKIPPED"),
        (tick(2), "AFTER", "SKIPPED"),
    ],
    "lost": [(tick(1), "SCHEDULE", "SKIPPED"), (tick(2), "SCHEDULE", "SKIPPED")],
}


def test_there_are_as_many_calls_as_the_next_test_thinks(world: World) -> None:
    scenario(world)
    world.store.faults.calls.clear()
    let_time_pass(world)
    assert 50 < len(world.store.faults.calls) <= CALLS


CALLS = 70


@pytest.mark.parametrize("what", ["before", "after"])
@pytest.mark.parametrize("number", range(CALLS))
def test_one_fault_at_any_call_changes_nothing(what: str, number: int) -> None:
    """`after` is the worst: what was written is there, and who wrote it does not know."""
    world = World()
    scenario(world)
    world.store.faults.plan = itertools.chain(itertools.repeat("", number), [what], always(""))
    let_time_pass(world)
    world.store.faults.plan = always("")
    assert summary(world) == EXPECTED


@pytest.mark.parametrize("what", ["before", "after"])
@pytest.mark.parametrize("seed", range(30))
def test_a_database_that_is_away_now_and_then(what: str, seed: int) -> None:
    world = World()
    scenario(world)
    dice = random.Random(seed)
    world.store.faults.plan = iter(lambda: what if dice.random() < 0.2 else "", None)
    let_time_pass(world)
    world.store.faults.plan = always("")
    world.look()
    world.look()
    found = summary(world)
    marks = {each: state for each, (_, state, _) in found["marks"].items()}
    assert marks == {each: state for each, (_, state, _) in EXPECTED["marks"].items()}
    for name in TASKS:
        done = [tick for tick, _, state in found[name] if state == "SUCCEED"]
        assert len(set(done)) == len(done)
        assert {state for _, _, state in found[name]} <= {"SUCCEED", "SKIPPED"}
    assert found["marks"]["task-load"][0] == tick(2)


def test_a_refresh_that_ended_with_spark_is_tried_again_and_not_for_ever(world: World) -> None:
    """What it did may be why Spark ends: then it counts, or Spark would be ended for ever."""
    world.table("a")
    world.look()
    world.advance(1)
    for _ in range(2):
        world.job("a").end(spark_ended("Spark's Java process ended while this ran."))
        world.look()
        assert world.mark("a").state == "CLAIMED"
        world.clock.advance(2)
        world.look()
    world.job("a").end(spark_ended("Spark's Java process ended while this ran."))
    world.look()
    assert (world.mark("a").state, world.mark("a").failures) == ("FAILED", 1)


def full_disk() -> RefreshHeldUp:
    return RefreshHeldUp("The refresh of main.public.a failed: No space left on device.", hint="Free some space.")


def a_minute(world: World) -> None:
    """With looks at its end, which begins half a minute after a tick."""
    world.advance(0.5)
    for _ in range(15):
        world.clock.advance(2)
        world.look()


def test_what_no_table_is_to_blame_for_suspends_none(world: World) -> None:
    world.table("a")
    world.table("b", "a")
    world.work.at_once = lambda name, tick: full_disk() if name == "a" else None
    for _ in range(10):
        a_minute(world)
    mark = world.mark("a")
    assert (mark.state, mark.failures, mark.held_up) == ("FAILED", 0, True)
    assert mark.error == mark.reason == "No space left on device. Hint: Free some space."
    assert world.begun.count(("a", mark.tick)) == 3, "each tick has three tries"
    assert world.work.suspensions == []
    assert world.mark("b").state == "SKIPPED"
    world.succeed_from_now_on()
    a_minute(world)
    assert (world.mark("a").state, world.mark("a").error, world.mark("a").held_up) == ("SUCCEED", None, False)


def test_it_neither_counts_as_a_failure_nor_ends_a_row_of_them(world: World) -> None:
    world.table("a")
    errors: list[HeadraceError] = [QueryFailed("boom")] * 4 + [full_disk()] * 3 + [QueryFailed("boom")]
    world.work.at_once = lambda name, tick: errors.pop(0)
    counts = []
    for _ in range(6):
        a_minute(world)
        counts.append((world.mark("a").failures, world.mark("a").held_up))
    assert counts == [(1, False), (2, False), (3, False), (4, False), (4, True), (5, False)]
    assert [name for name, _ in world.work.suspensions] == ["a"]


def test_spark_that_does_not_come_back_suspends_no_table(world: World) -> None:
    world.table("a")
    world.look()
    world.work.refuse["a"] = EnvironmentFault("Spark's Java process has ended and is being started again.")
    for _ in range(60 * 12):
        world.clock.advance(2)
        world.look()
    assert (world.mark("a").failures, world.mark("a").held_up) == (0, True)
    assert world.work.suspensions == []
