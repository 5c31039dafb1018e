"""The same scheduler on a real operations database: what is written there is enough to go on from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from headrace.catalog.database import Database
from headrace.catalog.schedules import MarkStore
from headrace.catalog.store import Store
from headrace.catalog.tasks import RunStore, TaskStore
from unit.schedule_world import START, World, tick


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    database = Database.open(f"sqlite:///{tmp_path}/ops.db")
    store, tasks = Store(database), TaskStore(database)
    yield World(
        SimpleNamespace(
            tables=store.tables,
            history=store.history,
            put_table=store.put_table,
            put_task=lambda task: tasks.put(task, new=tasks.by_id(task.id) is None),
            marks=MarkStore(database),
            tasks=tasks,
            task_runs=RunStore(database),
        )
    )
    database.close()


def test_a_clock_that_is_put_back_by_far(world: World) -> None:
    world.task("load", minutes=1)
    world.succeed_from_now_on()
    for _ in range(20):
        world.advance(1)
    world.clock.put_to(tick(3.5))
    for _ in range(6):
        world.look()
        world.clock.advance(60)
    world.restart()
    world.succeed_from_now_on()
    for _ in range(13):
        world.look()
        world.clock.advance(60)
    assert world.begun == [("load", tick(21))]
    assert [run.tick for run in world.runs("load")] == [tick(minute) for minute in range(1, 22)]


def test_a_day_with_everything(world: World) -> None:
    world.table("idle")
    world.table("a", "idle")
    world.table("b", "a")
    root = world.task("load", minutes=1, retries=1)
    world.task("report", "load", "b")
    world.work.idle_tables = {"idle"}
    world.advance(1)
    assert sorted(world.at_work) == ["a", "load"]
    assert world.marks() == {
        "idle": "SUCCEED", "a": "CLAIMED", "b": "CLAIMED", "load": "CLAIMED", "report": "CLAIMED",
    }  # fmt: skip
    (record,) = world.store.history()
    assert (record.name, record.refresh_mode, record.tick) == ("idle", "NO_DATA", tick(1))
    world.fail("load", "boom")
    world.end("a")
    world.restart()
    world.look()
    assert world.at_work == ["b"]
    world.end("b")
    assert world.waiting() == {"load": (), "report": ("load",)}
    world.clock.advance(10)
    world.look()
    world.end("load")
    world.end("report")
    assert set(world.marks().values()) == {"SUCCEED"}
    assert [(run.state, run.attempt) for run in world.runs("load")] == [("SUCCEED", 2)]
    world.scheduler.execute(root, [START], "MANUAL")
    world.look()
    world.job("load").run_now()
    world.restart()
    world.look()
    assert [run.state for run in world.runs("load")] == ["SUCCEED", "WAITING"]
    world.clock.advance(11)
    world.look()
    assert world.at_work == ["load"]


def test_two_schedulers_on_one_database_share_no_tick(world: World) -> None:
    world.table("a")
    world.work.idle_tables = {"a"}
    other = World(world.store)
    other.clock = world.clock
    other.scheduler = other._new_scheduler()
    other.work.idle_tables = {"a"}
    world.look()
    other.look()
    for _ in range(5):
        world.clock.advance(60)
        world.look()
        other.look()
    ticks = [record.tick for record in world.store.history()]
    assert sorted(ticks) == [tick(minute) for minute in range(1, 6)]
