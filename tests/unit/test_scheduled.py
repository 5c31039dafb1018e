"""What the scheduler's own thread does itself: it never waits for Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest
from deltalake import DeltaTable
from deltalake import Schema as DeltaSchema

from catalog.examples import a_table
from headrace import running
from headrace.catalog.store import Store
from headrace.errors import Cancelled, HeadraceError, QueryFailed, RefreshRunning, TimedOut
from headrace.result import Result, done
from headrace.schedule.live import new_run
from headrace.scheduled import ScheduledWork, run_body
from headrace.settings import Settings
from headrace.statements import dispatch
from headrace.statements.failures import noting_failure
from headrace.statements.storing import DEFINITION, keep_up
from headrace.storage.delta import DeltaLogs
from unit.schedule_world import a_task

NOW = datetime(2025, 3, 1, 12, 0, 30, tzinfo=timezone.utc)
_SCHEMA = '{"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": true, "metadata": {}}]}'


class NoSpark:
    """Whoever touches it fails."""

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(f"Spark was asked for {name}.")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(f"sqlite:///{tmp_path / 'ops.db'}")
    yield store
    store.close()


def test_a_table_is_suspended_without_spark(store: Store, tmp_path: Path) -> None:
    table = a_table(storage_path=str(tmp_path / "dt"))
    DeltaTable.create(table.storage_path, schema=DeltaSchema.from_json(_SCHEMA))
    store.put_table(table)
    context: Any = SimpleNamespace(
        spark=NoSpark(), store=store, logs=DeltaLogs(frozenset()), settings=Settings(path=tmp_path), clock=lambda: NOW,
        behind=set(),
    )  # fmt: skip
    lake: Any = SimpleNamespace(_context=context)
    work = ScheduledWork(lake, guarded=True)
    work.suspend(table, "Five scheduled refreshes in a row failed.")
    found = store.table_by_id(table.id)
    assert found is not None
    assert (found.suspended, found.suspended_reason) == (True, "Five scheduled refreshes in a row failed.")
    assert '"suspended":true' in DeltaTable(table.storage_path).metadata().configuration[DEFINITION]
    # One that is being refreshed is suspended, too; its storage is written to when that has ended.
    store.put_table(table)
    fencing = store.acquire_lease(table.id, "somebody", 60.0, NOW)
    work.suspend(table, "Five more failed.")
    found = store.table_by_id(table.id)
    assert found is not None
    assert found.suspended_reason == "Five more failed."
    assert "Five more failed." not in DeltaTable(table.storage_path).metadata().configuration[DEFINITION]
    store.release_lease(table.id, fencing)
    keep_up(context, table)
    assert "Five more failed." in DeltaTable(table.storage_path).metadata().configuration[DEFINITION]
    version = DeltaTable(table.storage_path).version()
    keep_up(context, table)
    assert DeltaTable(table.storage_path).version() == version, "once is enough"


# Tasks


class Computing:
    """Remembers what it was asked to run."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}

    def submit(self, work: Any, **asked: Any) -> None:
        self.asked = asked


def test_the_job_of_a_task_says_which_one_it_is() -> None:
    compute = Computing()
    lake: Any = SimpleNamespace(require_spark=lambda: None, await_spark=lambda: None, compute=compute)
    task = a_task("1. load", by_owner=True)
    ScheduledWork(lake, guarded=True).run_task(task, new_run(task, NOW, "MANUAL", NOW))
    assert compute.asked["query_tag"] == "task main.public.`1. load`"


@pytest.mark.parametrize(
    ("trigger", "runs"), [("SCHEDULE", False), ("AFTER", False), ("MANUAL", True), ("BACKFILL", True)]
)
def test_a_run_that_waited_for_its_slot_while_its_task_was_suspended(tmp_path: Path, trigger: Any, runs: bool) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'ops.db'}")
    task = a_task("t", by_owner=True)
    store.tasks.put(task.model_copy(update={"suspended": True}), new=True)
    run = new_run(task, NOW, trigger, NOW)
    store.task_runs.add(run)
    asked: list[Any] = []
    lake: Any = SimpleNamespace(
        require_spark=lambda: None, await_spark=lambda: None,
        compute=SimpleNamespace(submit=lambda work, **_: asked.append(work)),
        _context=SimpleNamespace(store=store, clock=lambda: NOW),
    )  # fmt: skip
    work = ScheduledWork(lake, guarded=True)
    work._run = lambda *_: done("Done.")  # type: ignore[method-assign]
    work.run_task(task, run)
    if runs:
        asked[0]()
    else:
        with pytest.raises(Cancelled, match="was suspended before this run began"):
            asked[0]()
    store.close()


def failed_with(body: str, monkeypatch: pytest.MonkeyPatch, error: Exception) -> HeadraceError:
    """What a task raises whose second statement fails."""
    ran: list[Any] = []

    def run(context: Any, statement: Any) -> Result:
        ran.append(statement)
        if len(ran) == 2 or ";" not in body:
            raise error
        return done("")

    monkeypatch.setattr(dispatch, "run", run)
    task = a_task("t", body=body)
    with pytest.raises(HeadraceError) as raised:
        run_body(cast(Any, None), task, new_run(task, NOW, "MANUAL", NOW), cast(Any, None))
    return raised.value


def test_the_statement_that_failed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "INSERT INTO a VALUES (1); INSERT INTO\n  seen SELECT count(*), max(n) FROM b; DROP TABLE c;"
    error = failed_with(body, monkeypatch, QueryFailed("No such table.", hint="Make it."))
    told = "Statement 2 of 3, INSERT INTO seen SELECT count(*), max(n) …: No such table."
    assert (error.message, error.hint, error.code) == (told, "Make it.", "QUERY_FAILED")


def test_one_statement_needs_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert failed_with("SELECT 1", monkeypatch, QueryFailed("No.")).message == "No."


def test_a_run_that_was_stopped_did_not_fail_at_a_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    job = running.Running("j")
    task = a_task("t", body="SELECT 1; SELECT 2;")

    def run(context: Any, statement: Any) -> Result:
        job.stop(Cancelled("The job was cancelled by ann."))
        raise QueryFailed("Stopped in the middle.")

    monkeypatch.setattr(dispatch, "run", run)
    with running.begin(job), pytest.raises(Cancelled, match="cancelled by ann") as raised:
        run_body(cast(Any, None), task, new_run(task, NOW, "MANUAL", NOW), cast(Any, None))
    assert raised.value.message == "The job was cancelled by ann."


# Refreshes by hand


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (QueryFailed("boom"), True),
        (TimedOut("It took too long."), True),
        (Cancelled("It was cancelled."), False),
        (RefreshRunning("Another one runs."), False),
        (None, False),
    ],
)
def test_the_scheduler_hears_of_refreshes_by_hand_that_fail(error: HeadraceError | None, told: bool) -> None:
    heard: list[Any] = []
    scheduler = SimpleNamespace(failed_by_hand=lambda *end: heard.append(end))
    context: Any = SimpleNamespace(scheduler=scheduler)
    with running.begin(running.Running("j")), suppress(HeadraceError), noting_failure(context, a_table("t")):
        if error is not None:
            raise error
    assert heard == ([("t", error, "j")] if told else [])
    context.scheduler = None
    with suppress(HeadraceError), noting_failure(context, a_table("t")):
        raise QueryFailed("boom")
