"""Lakes of all kinds through a rough day: random graphs, jobs that take their time and fail, restarts, faults of the
database, tables suspended, resumed and dropped. At every step what must never happen is looked for."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import datetime

import pytest

from headrace.catalog.records import TaskRun
from headrace.compute.jobs import LiveJob
from headrace.errors import EnvironmentFault, HeadraceError, QueryFailed
from unit.schedule_world import Begun, World

STEPS = 250


class Watched(World):
    """Looks at every job that is submitted."""

    def __init__(self) -> None:
        super().__init__()
        self.upstream: dict[str, set[str]] = {}
        self.ended: dict[str, list[tuple[datetime, str]]] = defaultdict(list)
        self.succeeded: set[tuple[str, datetime, str]] = set()
        submitted = self.work._submitted

        def checked(name: str, tick: datetime, run: TaskRun | None) -> LiveJob:
            self.check(name, tick, run)
            return submitted(name, tick, run)

        self.work._submitted = checked  # type: ignore[method-assign]
        self.work.ended = self.ends_with  # type: ignore[method-assign]

    def ends_with(self, object_id: str, mark: object) -> None:
        name = object_id.partition("-")[2]
        self.ended[name].append((mark.tick, mark.state))  # type: ignore[attr-defined]

    def check(self, name: str, tick: datetime, run: TaskRun | None) -> None:
        at_work = [job for job in self.work.jobs if not job.live.done]
        assert name not in {job.name for job in at_work}, f"{name} runs twice at once"
        assert tick <= self.clock.now()
        if run is not None and run.trigger == "MANUAL":
            return
        held_up = {job.name for job in at_work if by_schedule(job) and job.tick <= tick} & self.upstream.get(
            name, set()
        )
        assert not held_up, f"{name} begins at {tick} before {held_up}"
        for source in self.upstream.get(name, ()):
            assert (tick, "FAILED") not in self.ended[source], f"{name} begins at {tick}, at which {source} failed"
            assert (tick, "SKIPPED") not in self.ended[source], f"{name} begins at {tick}, at which {source} did not"
        if run is not None:
            assert (name, tick, run.trigger) not in self.succeeded, f"{name} has done {tick} already"


def by_schedule(job: Begun) -> bool:
    return job.run is None or job.run.trigger in ("SCHEDULE", "AFTER")


def a_lake(dice: random.Random) -> Watched:
    world = Watched()
    names: list[str] = []
    tables: list[str] = []
    for number in range(dice.randint(3, 9)):
        name = f"a{number}"
        reads = dice.sample(tables, min(len(tables), dice.choice([0, 1, 1, 2])))
        minutes = dice.choice([1, 1, 2, 5, None])
        lag = "DOWNSTREAM" if minutes is None and dice.random() < 0.7 else None
        world.table(name, *reads, minutes=minutes, target_lag=lag)
        world.upstream[name] = set(reads)
        tables.append(name)
        names.append(name)
    for number in range(dice.randint(0, 6)):
        name = f"b{number}"
        after = dice.sample(names, min(len(names), dice.choice([0, 1, 1, 2])))
        minutes = dice.choice([1, 2, 5, None, None])
        world.task(
            name, *after, minutes=minutes, retries=dice.choice([0, 0, 1, 3]), timeout_seconds=dice.choice([0, 0, 45])
        )
        world.upstream[name] = set(after)
        names.append(name)
    return world


def a_step(world: Watched, dice: random.Random, rough: bool) -> None:
    what = dice.random()
    at_work = [job for job in world.work.jobs if not job.live.done]
    if what < 0.5:
        world.clock.advance(dice.choice([1, 5, 20, 60, 61, 200]))
    elif what < 0.85 and at_work:
        job = dice.choice(at_work)
        error: HeadraceError | None = QueryFailed("boom") if dice.random() < 0.2 else None
        if job.live.job.status == "QUEUED" and dice.random() < 0.5:
            job.run_now()
        else:
            if error is None and job.run is not None and by_schedule(job):
                world.succeeded.add((job.name, job.tick, job.run.trigger))
            job.end(error)
    elif what < 0.9:
        name = dice.choice(list(world.upstream))
        world.suspend(name) if dice.random() < 0.4 else world.resume(name)
    elif what < 0.93:
        tasks = world.store.tasks.rows
        if tasks:
            try:
                world.scheduler.execute(dice.choice(list(tasks.values())), [world.clock.now()], "MANUAL")
            except EnvironmentFault:
                pass
    elif what < 0.96 and rough:
        world.restart()
    elif what < 0.97:
        world.work.idle_tables = {name for name in world.upstream if dice.random() < 0.5}
    world.look()


@pytest.mark.parametrize("seed", range(60))
def test_a_rough_day(seed: int) -> None:
    dice = random.Random(seed)
    world = a_lake(dice)
    rough = seed % 2 == 0
    if seed % 3 == 0:
        trouble = random.Random(seed)
        world.store.faults.plan = iter(
            lambda: trouble.choice(["before", "after"]) if trouble.random() < 0.05 else "", None
        )
    for _ in range(STEPS):
        try:
            a_step(world, dice, rough)
        except EnvironmentFault:
            pass  # Of the test's own calls.
    calm_evening(world)


def calm_evening(world: Watched) -> None:
    """Everything works again: all that is due is done, and nothing is left behind."""
    world.store.faults.plan = iter(lambda: "", None)
    for name in world.upstream:
        world.resume(name)
    for _ in range(3):
        world.clock.advance(400)
        for _ in range(60):
            world.look()
            if not world.at_work:
                break
            for job in [job for job in world.work.jobs if not job.live.done]:
                job.end()
    world.look()
    assert world.scheduler.status().runs == ()
    assert world.store.task_runs.unfinished() == []
    now = world.clock.now()
    items = world.scheduler._looks.definitions.items
    for item in items.values():
        newest = item.timing.newest(now) if item.timing is not None else None
        if newest is not None:
            mark = world.mark(item.name.table)
            assert (mark.tick, mark.state) == (newest, "SUCCEED"), item.name
        if item.follows and item.roots:
            assert world.mark(item.name.table).state == "SUCCEED"
    ticks = defaultdict(list)
    for each, tick in world.store.marks.claims:
        ticks[each].append(tick)
    for each, claimed in ticks.items():
        assert claimed == sorted(claimed)  # Forward only, and each once, but for RESUME of a table that failed.
        kind, _, name = each.partition("-")
        again = {tick for tick in claimed if claimed.count(tick) > 1}
        failed = {tick for tick, state in world.ended[name] if state == "FAILED"}
        assert again <= (failed if kind == "table" else set())
