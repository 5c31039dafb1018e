"""EXECUTE TASK where there is no scheduler: the same runs as on a server, waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from typing import Literal

import pytest

from headrace import running
from headrace.catalog.records import Task, TaskRun
from headrace.errors import Cancelled, HeadraceError, QueryFailed, TimedOut
from headrace.running import Running
from headrace.schedule.adopting import settle_broken_off
from headrace.schedule.here import Here
from headrace.schedule.live import new_run
from unit.schedule_world import START, World, tick


@pytest.fixture
def world() -> World:
    world = World()
    world.succeed_from_now_on()
    return world


def execute(
    world: World,
    task: Task,
    *ticks: datetime,
    trigger: Literal["MANUAL", "BACKFILL"] = "MANUAL",
    meanwhile: Callable[[], None] = lambda: None,
) -> list[TaskRun]:
    def wait(woken: threading.Event, seconds: float) -> None:
        world.clock.advance(max(seconds, 0.1))
        meanwhile()

    here = Here(world.store, world.clock.now, world.work, monotonic=world.clock.monotonic, wait=wait)
    return here.execute(task, ticks or [START], trigger)


def test_those_after_it_run_along(world: World) -> None:
    root = world.task("root", minutes=60)
    world.task("a", "root")
    world.task("b", "root", "a")
    world.task("resting", "root", suspended=True)
    world.task("other", minutes=1)
    runs = execute(world, root)
    assert [(run.name, run.trigger, run.state) for run in runs] == [
        ("root", "MANUAL", "SUCCEED"), ("a", "AFTER", "SUCCEED"), ("b", "AFTER", "SUCCEED"),
    ]  # fmt: skip
    assert [name for name, _ in world.begun] == ["root", "a", "b"]
    assert world.states("root") == world.states("a") == world.states("b") == ["SUCCEED"]
    assert world.store.marks.rows == {}


def test_what_comes_after_a_failure_is_skipped(world: World) -> None:
    root = world.task("root")
    world.task("a", "root")
    world.fail_from_now_on("root")
    with pytest.raises(QueryFailed, match="boom"):
        execute(world, root)
    assert (world.states("root"), world.states("a")) == (["FAILED"], ["SKIPPED"])


def test_a_failure_of_those_after_it_is_told_and_not_raised(world: World) -> None:
    root = world.task("root")
    world.task("a", "root")
    world.fail_from_now_on("a")
    assert [(run.name, run.state, run.error_message) for run in execute(world, root)] == [
        ("root", "SUCCEED", None), ("a", "FAILED", "boom"),
    ]  # fmt: skip


def test_a_backfill_goes_on_after_a_failure(world: World) -> None:
    task = world.task("t", minutes=1)
    world.task("a", "t")
    world.work.at_once = lambda name, at: QueryFailed("boom") if at == tick(-2) else None
    with pytest.raises(QueryFailed):
        execute(world, task, tick(-3), tick(-2), tick(-1), trigger="BACKFILL")
    assert world.begun == [("t", tick(-3)), ("t", tick(-2)), ("t", tick(-1))]
    assert {run.tick: run.state for run in world.runs("t")} == {
        tick(-3): "SUCCEED", tick(-2): "FAILED", tick(-1): "SUCCEED",
    }  # fmt: skip


def test_it_is_tried_again(world: World) -> None:
    task = world.task("t", retries=2)
    errors: list[HeadraceError | None] = [QueryFailed("once"), QueryFailed("twice"), None]
    world.work.at_once = lambda name, at: errors.pop(0)
    (run,) = execute(world, task)
    assert (run.state, run.attempt) == ("SUCCEED", 3)
    assert (world.clock.now() - START).total_seconds() >= 30


def test_it_has_its_limit(world: World) -> None:
    task = world.task("t", timeout_seconds=5)
    world.work.at_once = lambda name, at: False

    def begins() -> None:
        if world.work.jobs[0].live.job.status == "QUEUED":
            world.work.jobs[0].run_now()

    with pytest.raises(TimedOut, match="TIMEOUT of 5 seconds"):
        execute(world, task, meanwhile=begins)
    assert world.states("t") == ["FAILED"]


def test_who_stops_the_statement_stops_its_runs(world: World) -> None:
    task = world.task("t", minutes=1)
    world.work.at_once = lambda name, at: False
    statement = Running("statement")

    with running.begin(statement), pytest.raises(Cancelled, match="by ann"):
        execute(
            world, task, tick(-2), tick(-1), trigger="BACKFILL",
            meanwhile=lambda: statement.stop(Cancelled("The job was cancelled by ann.")),
        )  # fmt: skip
    assert world.at_work == []
    assert world.states("t") == ["CANCELLED", "CANCELLED"]


def test_what_a_dead_process_left_is_settled_at_the_next_opening(world: World) -> None:
    root = world.task("root", retries=3)
    after = world.task("after", "root")
    runs = {
        "ran": new_run(root, START, "MANUAL", START).model_copy(update={"in_process": True, "state": "RUNNING"}),
        "waited": new_run(after, START, "AFTER", START).model_copy(update={"in_process": True}),
        "by server": new_run(root, tick(-1), "BACKFILL", START).model_copy(update={"state": "RUNNING"}),
        "gone": new_run(a_gone_task(root), START, "MANUAL", START).model_copy(update={"state": "RUNNING"}),
        "queued": new_run(root, tick(-2), "BACKFILL", START).model_copy(update={"state": "QUEUED"}),
    }
    world.store.task_runs.add_all(list(runs.values()))
    settle_broken_off(world.store.task_runs, world.store.tasks.all(), tick(5))
    found = {name: world.store.task_runs.rows[run.id] for name, run in runs.items()}
    assert {name: (run.state, run.attempt, run.ended_at is None) for name, run in found.items()} == {
        "ran": ("FAILED", 1, False), "waited": ("CANCELLED", 1, False), "by server": ("WAITING", 2, True),
        "gone": ("FAILED", 1, False), "queued": ("QUEUED", 1, True),
    }  # fmt: skip
    assert found["ran"].error_message is not None
    assert found["ran"].error_message.startswith("The process ended while it ran.")
    assert found["waited"].reason == "The process that had asked for it ended."
    # A server goes on with what was its own.
    world.look()
    world.clock.advance(10)
    world.look()
    assert sorted(world.begun) == [("root", tick(-2)), ("root", tick(-1))]


def a_gone_task(task: Task) -> Task:
    return task.model_copy(update={"id": "task-gone", "name": "gone"})
