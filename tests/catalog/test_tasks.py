from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta, timezone

import pytest
from sqlalchemy import update

from catalog.examples import NOW, later
from catalog.task_examples import a_run, a_task
from headrace.catalog.database import Database
from headrace.catalog.models import TaskRunRow
from headrace.catalog.records import Mark, TaskRun
from headrace.catalog.schedules import MarkStore
from headrace.catalog.tasks import SHORT_OUTPUT, RunStore, TaskStore
from headrace.errors import AlreadyExists, Bug, NotFound
from headrace.names import TableName


@pytest.fixture
def tasks(database: Database) -> TaskStore:
    return TaskStore(database)


@pytest.fixture
def runs(database: Database) -> RunStore:
    return RunStore(database)


def ids(found: list[TaskRun]) -> list[str]:
    return [run.id for run in found]


# Tasks


def test_round_trip(tasks: TaskStore) -> None:
    name = TableName("main", "public", "1. time processing")
    tokyo = timezone(timedelta(hours=9))
    task = a_task(
        name=name.table, kind="SHELL", body="echo 'ü\0'", cron="0 9 * * *", zone="Asia/Tokyo", after=(name, name),
        timeout_seconds=5, retries=2, suspended=True, suspended_reason="r", comment="c",
    )  # fmt: skip
    tasks.put(task.model_copy(update={"created_at": NOW.astimezone(tokyo)}), new=True)
    assert tasks.named(name) == tasks.by_id("k1") == task
    assert (found := tasks.named(name)) is not None
    assert found.created_at.utcoffset() == timedelta(0)
    assert tasks.named(TableName("main", "public", "other")) is None
    assert tasks.by_id("k2") is None


def test_all_by_name(tasks: TaskStore) -> None:
    for number, (schema, name) in enumerate([("b", "x"), ("a", "z"), ("a", "y")]):
        tasks.put(a_task(f"k{number}", name, schema_name=schema), new=True)
    assert [str(task.table_name) for task in tasks.all()] == ["main.a.y", "main.a.z", "main.b.x"]


def test_a_name_is_taken_once(tasks: TaskStore) -> None:
    tasks.put(a_task(), new=True)
    with pytest.raises(AlreadyExists, match=r"task main\.public\.load exists already"):
        tasks.put(a_task("k2"), new=True)
    tasks.put(a_task("k2", "other"), new=True)
    with pytest.raises(AlreadyExists):
        tasks.put(a_task("k2", "load"), new=False)
    assert (found := tasks.by_id("k2")) is not None
    assert found.name == "other"


def test_racing_for_a_name_one_wins(tasks: TaskStore) -> None:
    def put(number: int) -> bool:
        try:
            tasks.put(a_task(f"k{number}"), new=True)
            return True
        except AlreadyExists:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(put, range(8))) == 1


def test_change_and_drop(tasks: TaskStore) -> None:
    with pytest.raises(NotFound):
        tasks.put(a_task(), new=False)
    tasks.put(a_task(), new=True)
    tasks.put(a_task(retries=3), new=False)
    assert tasks.by_id("k1") == a_task(retries=3)
    assert tasks.drop("k1")
    assert not tasks.drop("k1")
    assert tasks.all() == []


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "x" * 5000])
def test_a_name_that_nothing_has(tasks: TaskStore, name: str) -> None:
    assert tasks.named(TableName("main", "public", name)) is None


# Runs


def test_a_run_comes_back(runs: RunStore) -> None:
    run = a_run(
        trigger="BACKFILL", state="FAILED", attempt=3, merged=2, job_id="j", started_at=later(1), ended_at=later(2),
        error_code="TASK_FAILED", error_message="m\0", output="ü\0\ufffd",
    )  # fmt: skip
    runs.add(run)
    assert runs.get("r1") == run.model_copy(update={"output": "ü\ufffd\ufffd"})  # PostgreSQL takes no NUL.
    assert runs.get("r2") is None
    assert runs.get("a\0") is None
    with pytest.raises(Bug, match="recorded twice"):
        runs.add(run)


def test_all_or_none_are_added(runs: RunStore) -> None:
    runs.add(a_run("r2"))
    with pytest.raises(Bug):
        runs.add_all([a_run("r1"), a_run("r2"), a_run("r3")])
    assert ids(runs.recent()) == ["r2"]
    runs.add_all([a_run("r3"), a_run("r4")])
    assert ids(runs.recent()) == ["r4", "r3", "r2"]


def test_runs_beyond_the_mark_of_their_task(runs: RunStore, database: Database) -> None:
    runs.add_all([a_run("r3", later(60)), a_run("r2", later(30)), a_run("r1"), a_run("r4", later(60), task_id="k2")])
    assert runs.beyond_marks() == []
    MarkStore(database).reset([Mark(object_id="k1", tick=NOW, state="SUCCEED", at=NOW)])
    assert ids(runs.beyond_marks()) == ["r2", "r3"]


def test_the_first_end_stands(runs: RunStore) -> None:
    assert not runs.update(a_run(state="RUNNING"))
    runs.add(a_run(state="WAITING"))
    for state in ("QUEUED", "RUNNING", "WAITING", "RUNNING", "FAILED"):
        assert runs.update(a_run(state=state))
    for state in ("RUNNING", "SUCCEED", "SKIPPED", "CANCELLED"):
        assert not runs.update(a_run(state=state))
    assert runs.get("r1") == a_run(state="FAILED")


def test_recent_and_latest(runs: RunStore) -> None:
    runs.add(a_run("r1", later(60)))
    runs.add(a_run("r2", later(120), state="RUNNING", created_at=later(121)))
    runs.add(a_run("r3", later(120), created_at=later(130)))
    runs.add(a_run("r4", later(-9000), trigger="BACKFILL", created_at=later(500)))
    runs.add(a_run("r5", later(90), task_id="k2"))
    assert ids(runs.recent()) == ["r3", "r2", "r5", "r1", "r4"]
    assert ids(runs.recent(2)) == ["r3", "r2"]
    assert ids(runs.recent(task_id="k1")) == ["r3", "r2", "r1", "r4"]
    assert ids(runs.recent(1, "k2")) == ["r5"]
    assert {task: run.id for task, run in runs.latest().items()} == {"k1": "r3", "k2": "r5"}


def test_of_long_outputs_lists_have_the_end(runs: RunStore) -> None:
    long = "".join(f"line {number} ü\n" for number in range(5000))
    runs.add(a_run("r1", NOW, output=long))
    runs.add(a_run("r2", NOW + timedelta(hours=1), output="x" * SHORT_OUTPUT))
    runs.add(a_run("r3", NOW + timedelta(hours=2)))
    runs.add(a_run("r4", NOW + timedelta(hours=3), output=long, state="WAITING", attempt=2, task_id="k2"))
    short = {run.id: run.output for run in runs.recent()}
    ended = f"…{long[-SHORT_OUTPUT:]}"
    assert short == {"r1": ended, "r2": "x" * SHORT_OUTPUT, "r3": None, "r4": ended}
    assert runs.latest()["k2"].output == ended
    assert runs.outputs(["r1", "r3", "gone"]) == {"r1": long}
    assert runs.outputs([]) == {}
    first = runs.get("r1")
    assert first is not None
    assert first.output == long
    (waiting,) = runs.unfinished()
    assert waiting.output == long


def test_a_run_of_an_earlier_version_has_its_output(runs: RunStore, database: Database) -> None:
    run = a_run("r1", NOW, output="as it was")
    runs.add(run)
    old = {"payload": run.model_dump_json(), "output": None}
    database.write(lambda connection: connection.execute(update(TaskRunRow).values(**old)))
    assert runs.get("r1") == run
    assert runs.outputs(["r1"]) == {"r1": "as it was"}


def test_who_looks_after_a_job_may_say_first_that_it_runs(runs: RunStore) -> None:
    run = a_run("r1", NOW, state="WAITING")
    runs.add(run)
    assert runs.update(run.model_copy(update={"state": "QUEUED", "job_id": "j1"}))
    assert runs.update(run.model_copy(update={"state": "RUNNING", "job_id": "j1"}))
    assert not runs.begin(run, "j2", NOW)
    assert not runs.begin(run, None, NOW)
    assert runs.begin(run, "j1", NOW)
    assert runs.update(run.model_copy(update={"state": "FAILED", "job_id": "j1"}))
    assert not runs.begin(run, "j1", NOW)


def test_begun_once(runs: RunStore) -> None:
    run = a_run("r1", NOW, state="WAITING", attempt=2, output="before")
    runs.add(run)
    assert runs.count_unfinished("k1") == 1
    assert runs.begin(run, "j1", NOW)
    assert not runs.begin(run, "j2", NOW)
    # Who submitted it may be late to write that it is in the queue.
    assert not runs.update(run.model_copy(update={"state": "QUEUED", "job_id": "j1"}))
    assert runs.get("r1") == run.model_copy(update={"state": "RUNNING", "job_id": "j1", "started_at": NOW})
    assert runs.update(run.model_copy(update={"state": "CANCELLED"}))
    assert not runs.begin(run, "j3", NOW)
    assert runs.count_unfinished("k1") == 0


def test_unfinished_and_pruned(runs: RunStore) -> None:
    runs.add(a_run("old", later(-100), ended_at=later(-99)))
    runs.add(a_run("skipped", later(-100), state="SKIPPED"))
    runs.add(a_run("backfill", later(-9000), trigger="BACKFILL", created_at=later(5), ended_at=later(6)))
    runs.add(a_run("running", later(-50), state="RUNNING"))
    runs.add(a_run("waiting", later(-200), state="WAITING"))
    runs.add(a_run("new", later(1)))
    assert ids(runs.unfinished()) == ["waiting", "running"]
    assert runs.prune(NOW) == 2
    assert runs.prune(NOW) == 0
    assert ids(runs.recent()) == ["new", "running", "waiting", "backfill"]


def test_many_are_pruned(runs: RunStore) -> None:
    runs.add_all([a_run(f"r{number}", later(-number - 1)) for number in range(1203)])
    assert runs.prune(NOW) == 1203
    assert runs.recent() == []


def test_a_time_without_a_zone_is_a_bug(runs: RunStore) -> None:
    with pytest.raises(Bug):
        runs.prune(NOW.replace(tzinfo=None))
