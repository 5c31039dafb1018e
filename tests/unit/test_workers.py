"""Processes of virtual clusters, without Spark: the real program and protocol, with an engine that only pretends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from headrace import errors, running
from headrace.catalog.records import DynamicTable, RefreshRecord, VCluster
from headrace.catalog.store import Store
from headrace.collecting import Limit
from headrace.compute import process as process_module
from headrace.compute import workers as workers_module
from headrace.compute.messages import Done, Fault, RunQuery, RunRefresh, Start, line, read_answer, read_request
from headrace.compute.process import Ended, NotThere
from headrace.compute.workers import Workers, settings_of
from headrace.errors import (
    BadSetting,
    Cancelled,
    EnvironmentFault,
    HeadraceError,
    NotFound,
    Position,
    QueryFailed,
    TooBusy,
    UserError,
)
from headrace.plan.query import BoundText, Query
from headrace.refresh.recovery import INTERRUPTED
from headrace.refresh.runner import BY_HAND
from headrace.running import Running
from headrace.settings import Settings
from headrace.statements import elsewhere
from headrace.statements.elsewhere import alone, check_properties
from headrace.storage.delta import DeltaLogs
from headrace.storage.java import JavaFound
from headrace.storage.lock import holder
from headrace.worker import require_reachable

NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)
JAVA = JavaFound(Path("/usr/bin/java"), "17")
PRETENDING = """
import os, signal, socket, sys, threading, time
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa

from headrace import running, worker
from headrace.catalog.records import Frontier, Intent, RefreshRecord
from headrace.catalog.store import Store
from headrace.errors import EnvironmentFault, Position, QueryFailed
from headrace.refresh.stored import CommitNote, app_id
from headrace.storage.delta import DeltaLogs


class Pretending:
    application = "app-1"

    def __init__(self, start, progress):
        print("this must not be taken for an answer", flush=True)
        master = start.settings.spark_master
        if master == "spark://away:1":
            raise EnvironmentFault("away:1 cannot be reached.", hint="Turn it on.")
        if master == "spark://dies:1":
            os.kill(os.getpid(), signal.SIGKILL)
        if master == "spark://hangs:1":
            threading.Event().wait()
        self.start, self.progress, self.cancelled = start, progress, threading.Event()
        self.results = Path(start.settings.path) / "results"
        self.results.mkdir(exist_ok=True)

    def query(self, request):
        text = request.query.text
        if text == "tell":
            self.progress.tell("half way", 0.5)
        if text == "fail":
            raise QueryFailed("Divided by zero.", hint="Do not.", position=Position(2, 3))
        if text == "odd":
            raise KeyError("odd")
        if text == "refuse":
            raise worker.Elsewhere("it reads the catalog")
        if text == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if text == "wait":
            with running.phase("execution"):
                self.cancelled.wait(30)
            running.require_wanted()
        if text == "hang":
            time.sleep(30)
        if text == "count":
            running.count({"spark_jobs": 2, "rows_read": 5})
        rows = pa.table({"pid": [os.getpid()], "text": [text], "zone": [request.settings.get("zone")]})
        with pa.OSFile(str(self.results / f"{request.id}.arrow"), "wb") as sink:
            with pa.ipc.new_file(sink, rows.schema) as writer:
                writer.write_table(rows)
        return request.limit is not None and request.limit.rows < 10

    def refresh(self, request):
        assert running.current().take_id() == request.id
        record = RefreshRecord(
            job_id=request.id, table_id=request.table_id, workspace="w", schema_name="s", name="t", vcluster="v",
            start_time=datetime.now(timezone.utc), state="SUCCEED", trigger=request.occasion.trigger, rows_inserted=3,
        )
        if request.table_id in ("stuck", "committed", "tidying"):
            self.get_stuck(request, record)
        return record

    def get_stuck(self, request, record):
        # As a refresh that has come so far and does not come back.
        store, now = Store.open(self.start.settings.database_url), datetime.now(timezone.utc)
        table, me = store.table_by_id(request.table_id), f"{socket.gethostname()}:{os.getpid()}"
        fencing = store.acquire_lease(table.id, f"{me}/{request.id}", 600, now)
        store.start_refresh(record.model_copy(update={"state": "RUNNING"}))
        frontier = Frontier(sources=())
        store.write_intent(Intent(table_id=table.id, sequence=1, job_id=request.id, old=None, new=frontier), fencing)
        if table.id != "stuck":
            note = CommitNote(
                sequence=1, frontier=frontier, rows_inserted=2, rows_deleted=0, live_rows=2, visible_rows=2,
                tombstones=0, appends_since_fold=1, job_id=request.id, mode="INCREMENTAL", technique="ADVANCE",
                reason=None, generation=1,
            )
            DeltaLogs().append(table.storage_path, pa.table({"a": [1, 2]}), app_id(table), 1, note.text())
        if table.id == "tidying":
            store.finish_refresh(record, settle=(table.id, 1), release=(table.id, fencing))
            store.acquire_lease(table.id, f"{me}/fold", 600, now)
        self.progress.tell("stuck")
        time.sleep(60)

    def fault(self, error):
        return None

    def cancel(self, request_id):
        self.cancelled.set()

    def has_ended(self):
        return False

    def stop(self, patience):
        (self.results.parent / "stopped").write_text("by itself")


worker.main(Pretending)
"""


@pytest.fixture
def command(tmp_path: Path) -> tuple[str, str]:
    program = tmp_path / "pretending.py"
    program.write_text(textwrap.dedent(PRETENDING), "utf-8")
    return (sys.executable, str(program))


@pytest.fixture
def lake(tmp_path: Path) -> Settings:
    return Settings(path=tmp_path / "lake", spark_settings={"spark.a": "lake", "spark.b": "lake"})


@pytest.fixture
def workers(lake: Settings, command: tuple[str, str]) -> Iterator[Workers]:
    found = Workers(lake, [], JAVA, command=command)
    yield found
    found.close(5)


def cluster(master: str = "local[1]", **properties: str) -> VCluster:
    own = {"spark.master": master, **{key.replace("_", "."): value for key, value in properties.items()}}
    return VCluster(name="etl", properties=own, created_at=NOW)


def table(table_id: str = "t1", storage_path: str = "/t") -> DynamicTable:
    query = Query(text="", resolved_text="", bound=BoundText(pieces=()), sources=(), columns=(), plan=None)
    return DynamicTable(
        id=table_id, workspace="w", schema_name="s", name="t", query=query, storage_path=storage_path, vcluster="etl",
        created_at=NOW, modified_at=NOW,
    )  # fmt: skip


def asked(workers: Workers, text: str, where: VCluster | None = None, tell: Callable[..., None] | None = None) -> dict:
    query = Query(text=text, resolved_text=text, bound=BoundText(pieces=(text,)), sources=(), columns=(), plan=None)
    told = tell or (lambda _text, _fraction: None)
    result = workers.run_query(where or cluster(), query, {"/t": 3}, {"zone": "UTC"}, (), tell=told)
    return dict(zip(result.columns, result.rows[0], strict=True))


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


class TestMessages:
    @pytest.mark.parametrize(
        "error",
        [
            QueryFailed("No.", hint="Do.", position=Position(1, 2)),
            TooBusy("Later.", retry_after=7.0),
            Cancelled("Stopped."),
            errors.RefreshFailed("It failed."),
            errors.RefreshRunning("It runs."),
            errors.Unsupported("No rule."),
        ],
    )
    def test_an_error_arrives_as_it_was(self, error: HeadraceError) -> None:
        again = Fault.model_validate_json(Fault.of(error).model_dump_json()).error()
        assert (type(again), str(again), again.code) == (type(error), str(error), error.code)
        assert getattr(again, "retry_after", None) == getattr(error, "retry_after", None)

    def test_a_code_that_is_not_known_is_kept(self) -> None:
        assert Fault(code="NEWER", message="x").error().code == "NEWER"

    def test_requests_and_answers_are_one_line_each(self, lake: Settings) -> None:
        query = Query(
            text="a\nb", resolved_text="", bound=BoundText(pieces=("a\nb",)), sources=(), columns=(), plan=None
        )
        record = RefreshRecord(
            job_id="1", table_id="t", workspace="w", schema_name="s", name="n", vcluster="v", start_time=NOW,
            state="SUCCEED", trigger="MANUAL",
        )  # fmt: skip
        requests = [
            Start(cluster="etl", settings=lake, jars=("/a b.jar",), java=("/java", "17"), parent=1),
            RunQuery(id="1", query=query, versions={"/p": 1}, settings={}, types=("int",)),
            RunRefresh(id="2", table_id="t", generation=1, occasion=BY_HAND, folds=True),
        ]
        for request in requests:
            assert line(request).count(b"\n") == 1
            assert read_request(line(request)) == request
        answer = Done(id="2", record=record, phases={"execution": 0.5})
        assert read_answer(line(answer)) == answer


class TestWork:
    def test_rows_come_back_and_the_process_is_kept(self, workers: Workers, lake: Settings) -> None:
        first = asked(workers, "one")
        assert first | {"pid": 0} == {"pid": 0, "text": "one", "zone": "UTC"}
        assert asked(workers, "two")["pid"] == first["pid"] == workers.running()["etl"]
        assert list((lake.path / "workers" / "etl" / "results").iterdir()) == []

    def test_errors_are_the_same_on_both_sides(self, workers: Workers) -> None:
        with pytest.raises(QueryFailed) as caught:
            asked(workers, "fail")
        assert (caught.value.message, caught.value.hint) == ("Divided by zero.", "Do not.")
        assert caught.value.position == Position(2, 3)

    def test_what_nobody_foresaw_is_a_bug(self, workers: Workers) -> None:
        with pytest.raises(errors.Bug, match="KeyError"):
            asked(workers, "odd")

    def test_what_needs_the_catalog_comes_back(self, workers: Workers) -> None:
        with pytest.raises(NotThere) as caught:
            asked(workers, "refuse")
        assert caught.value.why == "it reads the catalog"

    def test_progress_is_told_in_the_thread_that_waits(self, workers: Workers) -> None:
        told: list[tuple[str, float | None, int]] = []
        asked(workers, "tell", tell=lambda text, fraction: told.append((text, fraction, threading.get_ident())))
        assert told[-1] == ("half way", 0.5, threading.get_ident())
        assert told[0][0].startswith("Starting the virtual cluster etl on local[1]")

    def test_what_spark_did_there_is_counted_for_the_job(self, workers: Workers) -> None:
        job = Running(id="counted")
        with running.begin(job):
            asked(workers, "count")
            asked(workers, "count")
            with pytest.raises(QueryFailed):
                asked(workers, "fail")
        assert job.counts == {"spark_jobs": 4, "rows_read": 10}

    def test_a_limit_goes_there_and_whether_it_was_reached_comes_back(self, workers: Workers) -> None:
        query = Query(text="x", resolved_text="", bound=BoundText(pieces=("x",)), sources=(), columns=(), plan=None)
        for limit, truncated in ((None, False), (Limit(5, 1000), True), (Limit(50, 1000), False)):
            found = workers.run_query(cluster(), query, {}, {}, (), tell=lambda _text, _fraction: None, limit=limit)
            assert found.truncated is truncated

    def test_the_start_of_its_process_is_the_resuming_of_the_cluster(self, workers: Workers) -> None:
        told: list[bool] = []
        job = Running(id="first", resumes=told.append)
        with running.begin(job):
            asked(workers, "one")
            assert told == [True, False]
            asked(workers, "two")
            assert told == [True, False], "it was there"
            with pytest.raises(EnvironmentFault):
                asked(workers, "one", cluster("spark://away:1"))
        assert told == [True, False, True, False]

    def test_a_refresh_gives_its_record(self, workers: Workers) -> None:
        record = workers.refresh(
            cluster(), table(), BY_HAND, "job-1", folds=True, tell=lambda _text, _fraction: None, settle=pytest.fail
        )
        assert (record.job_id, record.table_id, record.rows_inserted) == ("job-1", "t1", 3)

    def test_several_at_once_do_not_wait_for_each_other(self, workers: Workers) -> None:
        job = Running(id="slow")
        ended: list[BaseException] = []

        def slow() -> None:
            with running.begin(job):
                try:
                    asked(workers, "wait")
                except HeadraceError as error:
                    ended.append(error)

        thread = threading.Thread(target=slow)
        thread.start()
        assert asked(workers, "quick")["text"] == "quick"
        assert not ended
        job.stop(Cancelled("Cancelled by a test."))
        thread.join(10)
        assert [str(error) for error in ended] == ["Cancelled by a test."]
        assert "execution" in job.phases
        assert asked(workers, "after")["text"] == "after"

    def test_what_cannot_be_cancelled_is_left_alone(self, workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(process_module, "_CANCEL_SECONDS", 0.2)
        job = Running(id="stuck")
        asked(workers, "begin")
        job.stop()
        with running.begin(job), pytest.raises(Cancelled):
            asked(workers, "hang")
        assert asked(workers, "after")["text"] == "after"


class TestEnd:
    def test_a_process_that_dies_fails_its_jobs_and_is_replaced(self, workers: Workers) -> None:
        first = asked(workers, "one")["pid"]
        with pytest.raises(Ended) as caught:
            asked(workers, "die")
        assert "signal 9" in caught.value.fault.message
        assert isinstance(caught.value.fault, EnvironmentFault)
        assert asked(workers, "two")["pid"] != first

    def test_ending_stops_it_properly(self, workers: Workers, lake: Settings) -> None:
        pid = asked(workers, "one")["pid"]
        workers.end("etl")
        assert not is_alive(pid)
        assert (lake.path / "workers" / "etl" / "stopped").exists()
        assert workers.running() == {}
        workers.end("etl")
        assert asked(workers, "two")["pid"] != pid

    def test_ending_fails_what_still_runs(self, workers: Workers) -> None:
        asked(workers, "one")
        caught: list[Ended] = []

        def hang() -> None:
            try:
                asked(workers, "hang")
            except Ended as error:
                caught.append(error)

        thread = threading.Thread(target=hang)
        thread.start()
        until(lambda: not workers._processes["etl"].is_idle)
        workers.end("etl", 0.5)
        thread.join(10)
        assert "was ended" in caught[0].fault.message

    def test_a_closed_lake_starts_none(self, workers: Workers) -> None:
        workers.close()
        with pytest.raises(UserError, match="closed"):
            asked(workers, "one")

    def test_other_properties_mean_another_process(self, workers: Workers) -> None:
        first = asked(workers, "one")["pid"]
        assert asked(workers, "two", cluster(spark_cores_max="2"))["pid"] != first
        assert not is_alive(first)

    def test_a_suspended_cluster_loses_its_process(
        self, lake: Settings, command: tuple[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(workers_module, "_WATCH_SECONDS", 0.02)
        looks, state = [0], ["RUNNING"]

        def in_use(_: str) -> bool:
            looks[0] += 1
            if state[0] == "DROPPED":
                raise NotFound("It was dropped.")
            return state[0] == "RUNNING"

        workers = Workers(lake, [], JAVA, in_use=in_use, command=command)
        pid = asked(workers, "one")["pid"]
        state[0] = "SUSPENDED"
        until(lambda: not is_alive(pid))
        # Whoever runs something there all the same keeps it.
        second, before = asked(workers, "two")["pid"], looks[0]
        until(lambda: looks[0] > before + 5)
        assert is_alive(second)
        state[0] = "DROPPED"
        until(lambda: not is_alive(second))
        workers.close()

    def test_it_ends_with_the_process_that_started_it(self, lake: Settings, command: tuple[str, str]) -> None:
        program = f"""
            import sys, threading
            sys.path[:0] = {sys.path!r}
            from unit import test_workers
            from headrace.settings import Settings
            lake = Settings(path={str(lake.path)!r})
            workers = test_workers.Workers(lake, [], test_workers.JAVA, command={command!r})
            print(test_workers.asked(workers, "one")["pid"], flush=True)
            threading.Event().wait()
        """
        parent = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program)], cwd=Path(__file__).parents[1], stdout=subprocess.PIPE
        )
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.kill()
        parent.wait()
        parent.stdout.close()
        until(lambda: not is_alive(pid), 10)

    def test_one_that_was_left_is_ended_at_the_next_start(self, lake: Settings, command: tuple[str, str]) -> None:
        before = Workers(lake, [], JAVA, command=command)
        pid = asked(before, "one")["pid"]
        os.kill(pid, signal.SIGSTOP)  # It cannot notice anything any more.
        after = Workers(lake, [], JAVA, command=command)
        assert not is_alive(pid)
        assert holder(lake.path / "workers" / "etl") is None
        assert asked(after, "two")["pid"] != pid
        before.close(1)
        after.close()


class TestLeft:
    """Refreshes that a process has begun and will not end, because it is gone: each gets its end by the table's log."""

    @pytest.fixture
    def store(self, lake: Settings) -> Iterator[Store]:
        store = Store.open(lake.database_url)
        yield store
        store.close()

    @pytest.fixture
    def begin(
        self, workers: Workers, lake: Settings, store: Store, tmp_path: Path
    ) -> Iterator[Callable[[str], Callable[[], BaseException]]]:
        """Begins a refresh of the table with this id, and waits until it is stuck. Gives how it ends."""
        store.clusters.put(cluster(), new=True)
        stuck, caught, threads = threading.Event(), [], []
        outlook = SimpleNamespace(decision=SimpleNamespace(rebind=False, mode="FULL"))
        context: Any = SimpleNamespace(
            workers=workers, store=store, settings=lake, clock=lambda: NOW, logs=DeltaLogs(),
            runner=SimpleNamespace(outlook=lambda _: outlook),
            progress=SimpleNamespace(tell=lambda text, _fraction: stuck.set() if text == "stuck" else None),
        )  # fmt: skip

        def started(table_id: str) -> Callable[[], BaseException]:
            write_deltalake(tmp_path / table_id, pa.table({"a": pa.array([], pa.int64())}))
            made = table(table_id, str(tmp_path / table_id))
            store.put_table(made)

            def work() -> None:
                with running.begin(self.job):
                    try:
                        elsewhere.refresh(context, made, BY_HAND)
                    except BaseException as error:
                        caught.append(error)

            threads.append(threading.Thread(target=work))
            threads[0].start()
            assert stuck.wait(30), caught
            return lambda: threads[0].join(20) or caught[0]

        self.job = Running(id="job-1")
        yield started
        workers.close(0.1)
        threads[0].join(20)

    @pytest.fixture
    def leave(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], BaseException]], None]:
        """Cancels the job and waits until it has given the refresh up."""
        monkeypatch.setattr(process_module, "_CANCEL_SECONDS", 0.2)

        def cancelled(ended: Callable[[], BaseException]) -> None:
            self.job.stop()
            assert isinstance(ended(), Cancelled)

        return cancelled

    def test_a_process_dies_under_its_job(self, workers: Workers, store: Store, begin: Any) -> None:
        ended = begin("stuck")
        os.kill(workers.running()["etl"], signal.SIGKILL)
        assert "signal 9" in str(ended())
        assert state_of(store) == ("FAILED", INTERRUPTED), "before the job is told"
        assert store.lease("stuck") is None
        assert store.intents("stuck") == []

    def test_a_refresh_that_was_cancelled_and_goes_on_is_still_running(
        self, workers: Workers, store: Store, begin: Any, leave: Any
    ) -> None:
        leave(begin("stuck"))
        assert state_of(store) == ("RUNNING", None)
        assert store.lease("stuck") is not None
        assert asked(workers, "after")["text"] == "after"

    def test_a_process_is_killed_after_the_job_was_cancelled(
        self, workers: Workers, store: Store, begin: Any, leave: Any
    ) -> None:
        leave(begin("stuck"))
        os.kill(workers.running()["etl"], signal.SIGKILL)
        until(lambda: state_of(store) == ("FAILED", INTERRUPTED))
        until(lambda: store.lease("stuck") is None)
        assert store.intents("stuck") == []

    def test_a_process_is_ended_after_the_job_was_cancelled(
        self, workers: Workers, store: Store, begin: Any, leave: Any
    ) -> None:
        leave(begin("stuck"))
        workers.end("etl", 0.1)
        assert state_of(store) == ("FAILED", INTERRUPTED), "when the end has come back"
        assert store.lease("stuck") is None

    def test_what_was_committed_has_succeeded(self, workers: Workers, store: Store, begin: Any, leave: Any) -> None:
        leave(begin("committed"))
        workers.end("etl", 0.1)
        assert state_of(store) == ("SUCCEED", None)
        record = store.refresh("job-1")
        assert record is not None
        assert (record.rows_inserted, record.profile.recovered) == (2, True)
        assert store.lease("committed") is None
        assert [intent.settled for intent in store.intents("committed")] == [True]

    def test_the_lease_of_what_comes_after_a_refresh_is_freed(
        self, workers: Workers, store: Store, begin: Any, leave: Any
    ) -> None:
        leave(begin("tidying"))
        workers.end("etl", 0.1)
        assert state_of(store) == ("SUCCEED", None)
        assert store.lease("tidying") is None

    def test_the_lease_of_another_stays(self, workers: Workers, store: Store, begin: Any, leave: Any) -> None:
        leave(begin("stuck"))
        held = store.lease("stuck")
        assert held is not None
        store.release_lease("stuck", held.fencing)
        store.acquire_lease("stuck", "another:1/job-2", 600, NOW)
        workers.end("etl", 0.1)
        assert state_of(store) == ("FAILED", INTERRUPTED)
        lease = store.lease("stuck")
        assert lease is not None
        assert lease.owner == "another:1/job-2"

    def test_nothing_is_settled_while_its_java_process_might_still_commit(
        self, workers: Workers, store: Store, begin: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def it_does_not_end(_: Path) -> None:
            raise EnvironmentFault("A Spark process does not end.")

        ended = begin("stuck")
        monkeypatch.setattr(process_module, "end_java_orphan", it_does_not_end)
        os.kill(workers.running()["etl"], signal.SIGKILL)
        assert isinstance(ended(), EnvironmentFault)
        assert state_of(store) == ("RUNNING", None)
        assert store.lease("stuck") is not None

    def test_a_database_that_is_away_keeps_nobody_from_the_end(
        self, workers: Workers, store: Store, begin: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ended = begin("stuck")
        monkeypatch.setattr(elsewhere, "_settle", lambda *_: 1 / 0)
        os.kill(workers.running()["etl"], signal.SIGKILL)
        assert isinstance(ended(), EnvironmentFault)
        assert asked(workers, "after")["text"] == "after"


def state_of(store: Store) -> tuple[str, str | None]:
    record = store.refresh("job-1")
    assert record is not None
    return record.state, record.error_message


class TestStart:
    def test_a_master_that_is_away_is_named(self, workers: Workers) -> None:
        for _ in range(2):
            with pytest.raises(EnvironmentFault) as caught:
                asked(workers, "one", cluster("spark://away:1"))
            assert caught.value.message == (
                "The virtual cluster etl could not be started on spark://away:1: away:1 cannot be reached."
            )
            assert caught.value.hint == "Turn it on."
        assert asked(workers, "one")["text"] == "one"

    def test_a_process_that_dies_at_once(self, workers: Workers) -> None:
        with pytest.raises(EnvironmentFault, match=r"on spark://dies:1: its process ended \(signal 9\)"):
            asked(workers, "one", cluster("spark://dies:1"))

    def test_one_that_never_gets_ready(self, workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(process_module, "START_SECONDS", 2.0)
        with pytest.raises(EnvironmentFault, match="not ready after 2 seconds"):
            asked(workers, "one", cluster("spark://hangs:1"))

    def test_cancelling_the_job_that_waits_leaves_the_start_alone(self, workers: Workers) -> None:
        job = Running(id="1")
        job.stop()
        with running.begin(job), pytest.raises(Cancelled):
            asked(workers, "one")
        assert asked(workers, "two")["text"] == "two"

    def test_the_settings_of_a_cluster(self, lake: Settings, tmp_path: Path) -> None:
        own = settings_of(lake, cluster("spark://h:7077", spark_b="own"), tmp_path / "w")
        assert own.spark_master == "spark://h:7077"
        assert own.path == tmp_path / "w"
        assert own.database_url == lake.database_url
        assert own.spark_settings["spark.a"] == "lake"
        assert own.spark_settings["spark.b"] == "own"
        assert own.spark_settings["spark.sql.catalogImplementation"] == "in-memory"
        assert "spark.master" not in own.spark_settings

    def test_an_unusual_name_is_no_path(self) -> None:
        assert workers_module._folder_name("etl_1") == "etl_1"
        assert "/" not in workers_module._folder_name("../x")

    def test_a_free_port_is_no_master(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with pytest.raises(EnvironmentFault, match=f"127.0.0.1:{port} cannot be reached"):
            require_reachable(f"spark://127.0.0.1:{port}")

    def test_one_of_several_masters_is_enough(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            require_reachable(f"spark://127.0.0.1:1,127.0.0.1:{server.getsockname()[1]}")
        require_reachable("yarn")


class TestLease:
    def test_a_statement_keeps_the_process_out(self, workers: Workers, lake: Settings) -> None:
        store = Store.open(lake.database_url)
        context: Any = SimpleNamespace(workers=workers, store=store, settings=lake, clock=lambda: NOW)
        store.put_table(table())
        store.clusters.put(cluster(), new=True)
        with alone(context, table()), pytest.raises(errors.RefreshRunning):
            store.acquire_lease("t1", "the process", 60, NOW)
        fencing = store.acquire_lease("t1", "the process", 60, NOW)
        with pytest.raises(errors.RefreshRunning), alone(context, table()):
            pytest.fail("a refresh runs")
        store.release_lease("t1", fencing)
        with pytest.raises(KeyError), alone(context, table()):
            raise KeyError
        assert store.lease("t1") is None
        store.close()


class TestProperties:
    @pytest.mark.parametrize(
        "master",
        ["spark://h:7077", "spark://a:1,b:2", "yarn", "k8s://https://h:443", "local", "local[*]", "local[4,2]"],
    )
    def test_masters(self, master: str) -> None:
        check_properties({"spark.master": master, "spark.executor.memory": "1g", "spark.sql.shuffle.partitions": "4"})

    @pytest.mark.parametrize("master", ["mesos://h:1", "local-cluster[1,1,1024]", "spark://", "h:7077", "spark://h"])
    def test_what_is_none(self, master: str) -> None:
        with pytest.raises(BadSetting, match="no Spark master"):
            check_properties({"spark.master": master})

    @pytest.mark.parametrize(
        "key",
        [
            "memory", "spark.jars", "spark.driver.extraJavaOptions", "spark.executor.extraClassPath", "spark.plugins",
            "spark.sql.extensions", "spark.sql.catalog.x", "spark.hadoop.fs.s3a.secret.key", "spark.sql.warehouse.dir",
            "spark.executorEnv.LD_PRELOAD", "spark.pyspark.python", "spark.sql.catalogImplementation",
            "spark.sql.adaptive.customCostEvaluatorClass", "spark.executor.memory2", "spark.app.name",
        ],
    )  # fmt: skip
    def test_others_belong_to_the_lake(self, key: str) -> None:
        with pytest.raises(BadSetting, match="cannot be a property"):
            check_properties({"spark.master": "yarn", key: "x"})

    def test_what_decides_the_meaning_is_refused(self) -> None:
        with pytest.raises(BadSetting, match="what a query means"):
            check_properties({"spark.master": "yarn", "spark.sql.ansi.enabled": "false"})

    def test_sizes_without_a_master(self) -> None:
        check_properties({})
        with pytest.raises(BadSetting, match="needs a Spark master"):
            check_properties({"spark.executor.memory": "1g"})
