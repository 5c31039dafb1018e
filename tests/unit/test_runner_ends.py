"""The end of a refresh, when the operations database does not take it; without Spark."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from catalog.examples import NOW, a_table
from headrace import running
from headrace.catalog.records import Occasion, RefreshRecord
from headrace.catalog.store import Store
from headrace.errors import Cancelled, EnvironmentFault, NotAllowed, RefreshFailed, RefreshHeldUp, RefreshRunning
from headrace.progress import Progress
from headrace.refresh import failures, lease
from headrace.refresh import runner as runner_module
from headrace.refresh.failures import JAVA_ENDED
from headrace.refresh.runner import Runner
from headrace.statements import elsewhere

FULL_DISK = EnvironmentFault("The operations database cannot be used: database or disk is full.")


class FullStore:
    """A store that cannot write the next so many ends, nor release a lease meanwhile."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.refusals = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def finish_refresh(self, record: RefreshRecord, **named: Any) -> None:
        if self.refusals:
            self.refusals -= 1
            raise FULL_DISK
        self._store.finish_refresh(record, **named)

    def release_lease(self, table_id: str, fencing: int) -> None:
        raise FULL_DISK


class Runs(Runner):
    """One that begins a refresh and then does as `outcome` says."""

    outcome: Exception | None = None

    def _if_nothing_to_do(self, table: Any, record: RefreshRecord) -> None:
        return None

    def _refresh(self, table: Any, record: RefreshRecord, fencing: int, before: Any, undoing: Any) -> RefreshRecord:
        self._store.start_refresh(record)
        if self.outcome is not None:
            raise self.outcome
        return self._no_data(record, None)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FullStore]:
    store = Store.open(f"sqlite:///{tmp_path / 'ops.db'}")
    store.put_table(a_table())
    store.put_table(a_table("t2", "other"))
    yield FullStore(store)
    store.close()


@pytest.fixture
def runner(store: FullStore, monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.setattr(runner_module, "Lookout", lambda *_: None)
    return Runs(
        cast(Any, None), cast(Any, store), cast(Any, None), owner="here", lease_seconds=600, rebind=lambda table: table,
        reloaded=lambda _: None, progress=Progress(), zone=ZoneInfo("UTC"), clock=lambda: NOW,
    )  # fmt: skip


def states(store: FullStore) -> list[str]:
    return [record.state for record in store.history(table_id="t1")]


def test_a_failure_s_end_is_written_with_the_next_refresh_of_any_table(store: FullStore, runner: Runs) -> None:
    store.refusals, runner.outcome = 1, OSError("No space left on device")
    with pytest.raises(RefreshFailed, match="No space left on device"):
        runner.refresh(a_table())
    assert states(store) == ["RUNNING"]
    assert store.lease("t1") is not None
    runner.outcome = None
    runner.refresh(a_table("t2", "other"))
    assert states(store) == ["FAILED"]
    assert store.lease("t1") is None
    runner.refresh(a_table())
    assert sorted(states(store)) == ["FAILED", "SUCCEED"]


def test_a_success_s_end_is_written_by_a_look(store: FullStore, runner: Runs) -> None:
    store.refusals = 2
    with pytest.raises(EnvironmentFault, match="disk is full"):
        runner.refresh(a_table())
    runner.settle_unwritten()
    assert states(store) == ["RUNNING"], "the disk is still full"
    assert runner.idle(a_table(), Occasion()) is None
    assert states(store) == ["SUCCEED"]
    assert store.lease("t1") is None
    store.refusals = 1
    runner.settle_unwritten()
    assert store.refusals == 1, "nothing is left to write"


@pytest.mark.parametrize(
    "error",
    [
        EnvironmentFault("The disk is full: No space left on device", hint="Free some space."),
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EMFILE, "Too many open files"),
        DeltaError("Generic LocalFileSystem error: No space left on device (os error 28)"),
        PySparkException("java.io.IOException: No space left on device"),
    ],
)
def test_what_no_table_is_to_blame_for_is_told_as_such(store: FullStore, runner: Runs, error: Exception) -> None:
    runner.outcome = error
    with pytest.raises(RefreshHeldUp, match=r"The refresh of main\.public\.orders failed") as raised:
        runner.refresh(a_table())
    assert isinstance(raised.value, EnvironmentFault)
    assert not raised.value.spark_ended
    assert raised.value.hint is not None
    assert store.history()[0].state == "FAILED"


def test_what_may_be_the_table_s_own_is_no_fault_of_its_surroundings(store: FullStore, runner: Runs) -> None:
    for error in (ValueError("x"), NotAllowed("no"), OSError(errno.ENOENT, "No such file"), DeltaError("odd")):
        runner.outcome = error
        with pytest.raises(RefreshFailed) as raised:
            runner.refresh(a_table())
        assert not isinstance(raised.value, EnvironmentFault)


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "Connection refused"), Py4JNetworkError("no answer")])
def test_a_java_process_that_is_gone_is_named(store: FullStore, runner: Runs, error: Exception) -> None:
    runner.outcome = error
    with pytest.raises(RefreshHeldUp, match="Java process ended") as raised:
        runner.refresh(a_table())
    assert raised.value.spark_ended
    assert store.history()[0].error_message == JAVA_ENDED


def test_the_hint_is_kept_with_the_failure(store: FullStore, runner: Runs) -> None:
    runner.outcome = NotAllowed("CSV files cannot be read as changes.", hint="Copy them into a table.")
    with pytest.raises(RefreshFailed) as raised:
        runner.refresh(a_table())
    assert str(raised.value).endswith("failed: CSV files cannot be read as changes.\nHint: Copy them into a table.")
    told = "CSV files cannot be read as changes. Hint: Copy them into a table."
    assert store.history()[0].error_message == told


def test_any_error_after_java_s_end_is_that(monkeypatch: pytest.MonkeyPatch) -> None:
    assert failures.reason_of(ValueError("x")) == "x"
    monkeypatch.setattr(failures, "java_process_has_ended", lambda: True)
    assert failures.reason_of(ValueError("x")) == JAVA_ENDED
    assert failures.reason_of(Cancelled("The job was cancelled.")) == "The job was cancelled."


@pytest.mark.parametrize("owner", ["h:1/statement", "h:1/fold"])
def test_a_refresh_waits_for_what_is_soon_over(store: FullStore, runner: Runs, owner: str) -> None:
    fencing = store.acquire_lease("t1", owner, 60, NOW)
    ended = threading.Timer(0.1, store._store.release_lease, ("t1", fencing))
    ended.start()
    assert runner.refresh(a_table()).state == "SUCCEED"
    ended.join()


def test_and_not_for_another_refresh(store: FullStore, runner: Runs) -> None:
    store.acquire_lease("t1", "h:1/20250330", 60, NOW)
    with pytest.raises(RefreshRunning, match="A refresh of this table is running: h:1/20250330"):
        runner.refresh(a_table())
    assert states(store) == []


class TestAlone:
    @pytest.fixture
    def context(self, store: FullStore, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setattr(lease, "_LOOK_SECONDS", 0.01)
        return SimpleNamespace(store=store._store, settings=SimpleNamespace(lease_seconds=60), clock=lambda: NOW)

    def test_a_job_waits_for_the_refresh(self, context: Any) -> None:
        fencing = context.store.acquire_lease("t1", "a refresh", 60, NOW)
        ended = threading.Timer(0.1, context.store.release_lease, ("t1", fencing))
        ended.start()
        with running.begin(running.Running("j")), elsewhere.alone(context, a_table()):
            assert context.store.lease("t1").owner.endswith("/statement")
        assert context.store.lease("t1") is None
        ended.join()

    def test_not_for_ever(self, context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(elsewhere, "PATIENCE_SECONDS", 0.05)
        context.store.acquire_lease("t1", "a refresh", 60, NOW)
        with (
            running.begin(running.Running("j")),
            pytest.raises(RefreshRunning, match="a refresh"),
            elsewhere.alone(context, a_table()),
        ):
            pytest.fail("a refresh runs")

    def test_nor_when_it_is_cancelled(self, context: Any) -> None:
        context.store.acquire_lease("t1", "a refresh", 60, NOW)
        job = running.Running("j")
        threading.Timer(0.05, job.stop).start()
        with running.begin(job), pytest.raises(Cancelled), elsewhere.alone(context, a_table()):
            pytest.fail("a refresh runs")

    def test_what_the_statement_itself_raises_is_not_waited_for(self, context: Any) -> None:
        with (
            running.begin(running.Running("j")),
            pytest.raises(RefreshRunning, match="inside"),
            elsewhere.alone(context, a_table()),
        ):
            raise RefreshRunning("inside")
        assert context.store.lease("t1") is None
