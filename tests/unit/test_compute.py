"""Clusters and jobs with plain functions as work: no Spark is there, so nothing is tagged."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from catalog.examples import a_record
from headrace import running
from headrace.catalog.records import Job, JobStatus, RefreshRecord
from headrace.catalog.store import Store
from headrace.compute import queue
from headrace.compute.clusters import Compute
from headrace.compute.jobs import INTERRUPTED, LiveJob, new_job_id, settle_unfinished
from headrace.compute.pools import Stopper
from headrace.errors import (
    Bug,
    Cancelled,
    EnvironmentFault,
    NotAllowed,
    NotFound,
    TimedOut,
    TooBusy,
    UserError,
)
from headrace.result import Result, done
from unit.compute_double import PATIENCE, START, Clock, Gate, a_cluster, a_compute, ended, stored, submit


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(f"sqlite:///{tmp_path / 'ops.db'}")
    yield store
    store.close()


@pytest.fixture
def compute(store: Store, clock: Clock) -> Iterator[Compute]:
    compute = a_compute(store, clock)
    yield compute
    compute.close(PATIENCE)


def no_worker_left(name: str) -> bool:
    """Whether the threads of a cluster end."""
    for thread in threading.enumerate():
        if thread.name.startswith(f"vc-{name}-"):
            thread.join(PATIENCE)
            if thread.is_alive():
                return False
    return True


# ---- the way of a job


def test_a_job_succeeds_and_is_recorded(compute: Compute, store: Store, clock: Clock) -> None:
    def work() -> Result:
        job = running.current()
        assert job is not None
        running.tell("half way", 0.5)
        clock.advance(2)
        return done("yes")

    job = ended(submit(compute, work, "default", query_tag="nightly", session_id="s1", priority=3))
    assert job.error is None
    assert job.result is not None
    assert job.result.rows == [("yes",)]
    assert job.running.text == "half way"
    record = stored(store, job)
    assert record == job.job
    assert (record.status, record.creator, record.vcluster) == ("SUCCEED", "ada", "default")
    assert (record.query_tag, record.session_id, record.priority) == ("nightly", "s1", 3)
    assert (record.submitted_at, record.started_at, record.ended_at) == (START, START, START + timedelta(seconds=2))
    assert record.output_rows == 1
    assert record.output_bytes
    assert record.owner == compute.owner
    assert compute.live(job.id) is None
    assert compute.jobs() == []


def test_phases_are_recorded(compute: Compute, store: Store) -> None:
    def work() -> Result:
        with running.phase("analysis"), running.phase("execution"):
            return done("yes")

    job = ended(submit(compute, work, "default"))
    assert list(stored(store, job).phases) == ["analysis", "execution"]


def test_an_error_of_ours_stays_as_it_is(compute: Compute, store: Store) -> None:
    fault = NotFound("There is no table t.", hint="Make one.")

    def work() -> Result:
        raise fault

    job = ended(submit(compute, work, "default"))
    assert job.error is fault
    assert job.result is None
    record = stored(store, job)
    told = "There is no table t. Hint: Make one."
    assert (record.status, record.error_code, record.error_message) == ("FAILED", "NOT_FOUND", told)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("first line\nsecond"), "ValueError: first line"),
        (KeyError(), "KeyError"),
        (SystemExit(3), "SystemExit: 3"),
    ],
)
def test_any_other_error_is_a_bug_and_goes_to_the_log(
    compute: Compute, error: BaseException, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    def work() -> Result:
        raise error

    job = ended(submit(compute, work, "default"))
    assert isinstance(job.error, Bug)
    assert job.error.message == told
    assert any(record.exc_info and record.exc_info[1] is error for record in caplog.records)
    assert ended(submit(compute, lambda: done("the slot is free"), "default")).error is None


def test_what_is_no_result_ends_the_job(compute: Compute) -> None:
    job = ended(submit(compute, lambda: None, "default"))  # type: ignore[arg-type, return-value]
    assert isinstance(job.error, Bug)


def test_listeners_are_told_once(compute: Compute) -> None:
    gate = Gate()
    job = submit(compute, gate, "default")
    told: list[str] = []
    all_told = threading.Event()

    def broken(_job: LiveJob) -> None:
        raise ValueError("not interested")

    def note(ended_job: LiveJob) -> None:
        told.append(ended_job.job.status)
        all_told.set()

    job.on_done(broken)
    job.on_done(note)
    gate.open.set()
    assert all_told.wait(PATIENCE)
    assert told == ["SUCCEED"]
    job.on_done(note)
    assert told == ["SUCCEED", "SUCCEED"]
    assert ended(submit(compute, lambda: done(""), "default")).error is None


def test_an_unknown_cluster(compute: Compute, store: Store) -> None:
    with pytest.raises(NotFound, match="nowhere") as raised:
        submit(compute, lambda: done(""), "nowhere")
    assert "default" in str(raised.value.hint)
    assert store.jobs.recent() == []


def test_names_of_clusters_have_no_case(compute: Compute) -> None:
    assert ended(submit(compute, lambda: done(""), "DEFAULT")).job.vcluster == "default"


# ---- the queue


def test_slots_and_order(compute: Compute, store: Store) -> None:
    a_cluster(compute, store, max_concurrency=2)
    gates = [Gate(), Gate()]
    holders = [submit(compute, gate) for gate in gates]
    for gate in gates:
        gate.wait_until_begun()
    order: list[str] = []

    def note(name: str) -> Callable[[], Result]:
        def work() -> Result:
            order.append(name)
            return done(name)

        return work

    waiting = [submit(compute, note(name)) for name in ("first", "second")]
    waiting.append(submit(compute, note("urgent"), priority=5))
    assert [job.job.status for job in holders] == ["RUNNING", "RUNNING"]
    assert [job.job.status for job in waiting] == ["QUEUED"] * 3
    assert [stored(store, job).status for job in (holders[0], waiting[0])] == ["RUNNING", "QUEUED"]
    assert (compute.running("small"), compute.waiting("small")) == (2, 3)
    assert {job.id for job in compute.jobs()} == {job.id for job in (*holders, *waiting)}
    gates[0].open.set()
    for job in waiting:
        ended(job)
    assert order == ["urgent", "first", "second"]
    gates[1].open.set()
    ended(holders[1])
    assert (compute.running("small"), compute.waiting("small")) == (0, 0)


def test_a_full_queue(compute: Compute, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "ROOM", 2)
    a_cluster(compute, store)
    gate = Gate()
    first = submit(compute, gate)
    gate.wait_until_begun()
    waiting = [submit(compute, lambda: done("")) for _ in range(2)]
    with pytest.raises(TooBusy) as raised:
        submit(compute, lambda: done(""))
    assert raised.value.retry_after > 0
    gate.open.set()
    for job in (first, *waiting):
        assert ended(job).job.status == "SUCCEED"
    assert len(store.jobs.recent()) == 3


def test_more_slots_take_effect_at_once(compute: Compute, store: Store) -> None:
    cluster = a_cluster(compute, store)
    gates = [Gate(), Gate(), Gate()]
    jobs = [submit(compute, gate) for gate in gates]
    gates[0].wait_until_begun()
    compute.changed(cluster.model_copy(update={"max_concurrency": 3}))
    for gate in gates:
        gate.wait_until_begun()
    compute.changed(cluster.model_copy(update={"max_concurrency": 1}))
    for gate in gates:
        gate.open.set()
    for job in jobs:
        assert ended(job).job.status == "SUCCEED"
    assert ended(submit(compute, lambda: done(""))).job.status == "SUCCEED"


def test_at_once_waits_for_nobody(compute: Compute, store: Store) -> None:
    a_cluster(compute, store, auto_resume=False)
    gate = Gate()
    holder = submit(compute, gate)
    gate.wait_until_begun()
    aside = ended(submit(compute, lambda: done("answered"), queued=False))
    assert aside.job.status == "SUCCEED"
    assert stored(store, aside).status == "SUCCEED"
    assert compute.running("small") == 1
    gate.open.set()
    ended(holder)
    compute.suspend("small", force=False)
    assert ended(submit(compute, lambda: done("answered"), queued=False)).job.status == "SUCCEED"
    assert compute.state("small") == "SUSPENDED"


def test_many_jobs_from_many_threads(compute: Compute, store: Store) -> None:
    a_cluster(compute, store, max_concurrency=4)
    at_work = 0
    most = 0
    lock = threading.Lock()

    def work() -> Result:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        job = running.current()
        assert job is not None
        with lock:
            at_work -= 1
        return done(job.id)

    jobs: list[LiveJob] = []

    def client() -> None:
        for _ in range(10):
            job = submit(compute, work)
            with lock:
                jobs.append(job)
            if len(jobs) % 3 == 0:
                job.cancel()

    clients = [threading.Thread(target=client) for _ in range(8)]
    for each in clients:
        each.start()
    for each in clients:
        each.join(PATIENCE)
    for job in jobs:
        ended(job)
        assert job.job.status in ("SUCCEED", "CANCELLED")
        assert (job.result is None) == (job.error is not None)
        if job.result is not None:
            assert job.result.rows == [(job.id,)]  # No job has another's result.
        assert stored(store, job) == job.job
    assert most <= 4
    assert (compute.running("small"), compute.waiting("small"), compute.jobs()) == (0, 0, [])


# ---- cancelling


def test_cancel_while_it_waits(compute: Compute, store: Store) -> None:
    a_cluster(compute, store)
    gate = Gate()
    holder = submit(compute, gate)
    gate.wait_until_begun()
    never = Gate()
    job = submit(compute, never)
    assert compute.cancel(job.id, "root") is job
    assert job.done
    assert isinstance(job.error, Cancelled)
    assert job.error.message == "The job was cancelled by root."
    record = stored(store, job)
    assert (record.status, record.started_at, record.error_code) == ("CANCELLED", None, "CANCELLED")
    gate.open.set()
    ended(holder)
    assert not never.began.is_set()


def test_cancel_while_it_runs(compute: Compute, store: Store) -> None:
    gate = Gate()
    job = submit(compute, gate, "default")
    gate.wait_until_begun()
    job.cancel()
    assert ended(job).job.status == "CANCELLED"
    assert job.error is not None
    assert job.error.message == "The job was cancelled."
    assert stored(store, job).status == "CANCELLED"


def test_an_error_after_a_cancel_is_the_cancel(compute: Compute) -> None:
    gate = Gate(heeds=False)

    def work() -> Result:
        gate()
        raise RuntimeError("Job 7 cancelled because it was part of a cancelled stage")

    job = submit(compute, work, "default")
    gate.wait_until_begun()
    job.cancel()
    gate.open.set()
    assert ended(job).job.status == "CANCELLED"


def test_work_that_was_done_all_the_same_succeeded(compute: Compute) -> None:
    """It may have committed: to call that cancelled would be a lie."""
    gate = Gate(heeds=False)
    job = submit(compute, gate, "default")
    gate.wait_until_begun()
    job.cancel()
    assert not job.done
    gate.open.set()
    assert ended(job).job.status == "SUCCEED"


def test_cancel_of_no_job(compute: Compute) -> None:
    with pytest.raises(NotFound):
        compute.cancel("20250301x", "root")
    job = ended(submit(compute, lambda: done(""), "default"))
    with pytest.raises(UserError, match="has ended already"):
        compute.cancel(job.id, "root")
    job.cancel()  # Nothing to do.
    assert job.job.status == "SUCCEED"


def test_cancel_while_its_submission_is_written(
    compute: Compute, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = store.jobs.add

    def cancelled_meanwhile(job: Job) -> None:
        add(job)
        compute.cancel(job.id, "root")

    monkeypatch.setattr(store.jobs, "add", cancelled_meanwhile)
    never = Gate()
    job = submit(compute, never, "default")
    assert job.done
    assert stored(store, job).status == "CANCELLED"
    assert not never.began.is_set()
    assert (compute.running("default"), compute.waiting("default")) == (0, 0)


def test_spark_is_asked_until_the_job_has_ended() -> None:
    asked: list[str] = []
    thrice = threading.Event()

    def cancel(job_id: str) -> None:
        asked.append(job_id)
        if len(asked) >= 3:
            thrice.set()

    job = LiveJob(_a_job("j1"), lambda: done(""), lambda _job, _reason: None)
    stopper = Stopper(cancel)
    stopper.stop(job)
    assert thrice.wait(PATIENCE)
    job.settle(job.job, None, None)
    for thread in threading.enumerate():
        if thread.name == "stop-jobs":
            thread.join(PATIENCE)
            assert not thread.is_alive()
    assert set(asked) == {"j1"}


def test_a_stuck_spark_does_not_keep_the_next_from_being_stopped() -> None:
    stuck, released = threading.Event(), threading.Event()
    asked = threading.Event()

    def cancel(job_id: str) -> None:
        if job_id == "old":
            stuck.set()
            released.wait(PATIENCE)
        else:
            asked.set()

    stopper = Stopper(cancel)
    old, new = (LiveJob(_a_job(name), lambda: done(""), lambda _job, _reason: None) for name in ("old", "new"))
    stopper.stop(old)
    assert stuck.wait(PATIENCE)
    stopper.abandon()
    stopper.stop(new)
    assert asked.wait(PATIENCE)
    new.settle(new.job, None, None)
    released.set()


# ---- time


def test_runtime_limit(compute: Compute, store: Store, clock: Clock) -> None:
    a_cluster(compute, store, runtime_limit_seconds=60)
    gate = Gate()
    job = submit(compute, gate)
    gate.wait_until_begun()
    waiting = submit(compute, lambda: done(""))
    clock.advance(59)
    assert compute.tick() <= 1
    assert not job.done
    clock.advance(1)
    compute.tick()
    assert isinstance(ended(job).error, TimedOut)
    assert job.error is not None
    assert "60 seconds" in job.error.message
    assert (stored(store, job).status, stored(store, job).error_code) == ("FAILED", "TIMED_OUT")
    assert ended(waiting).job.status == "SUCCEED"  # The time that it waited does not count.


def test_waiting_for_its_cluster_is_no_runtime(
    compute: Compute, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_cluster(compute, store, runtime_limit_seconds=60)
    told = Told(store, monkeypatch)
    starting, working = Gate(), Gate()

    def work() -> Result:
        with running.resuming():
            starting()
        return working()

    job = submit(compute, work, refresh=(a_record("", state="SETUP"),))
    starting.wait_until_begun()
    assert job.job.status == "RESUMING_CLUSTER"
    assert told.states == ["SETUP", "QUEUED", "RESUMING_CLUSTER"]
    clock.advance(100)
    compute.tick()
    assert compute.running("small") == 1
    starting.open.set()
    working.wait_until_begun()
    assert job.job.status == "RUNNING"
    clock.advance(59)
    assert compute.tick() <= 1
    clock.advance(1)
    compute.tick()
    assert isinstance(ended(job).error, TimedOut)


def test_what_waits_for_its_cluster_ends_with_spark_and_when_it_is_cancelled(compute: Compute, store: Store) -> None:
    a_cluster(compute, store, max_concurrency=2)
    gates = (Gate(heeds=False), Gate())
    jobs = []
    for gate in gates:

        def work(gate: Gate = gate) -> Result:
            with running.resuming():
                return gate()

        jobs.append(submit(compute, work))
        gate.wait_until_begun()
    compute.cancel(jobs[1].id, "root")
    assert ended(jobs[1]).job.status == "CANCELLED"
    compute.spark_lost(lambda: EnvironmentFault("Spark is gone."))
    assert ended(jobs[0]).job.status == "FAILED"
    gates[0].open.set()
    assert no_worker_left("nobody")
    assert jobs[0].job.status == "FAILED", "what comes later changes nothing"


def test_what_was_done_without_spark_is_recorded(compute: Compute, store: Store) -> None:
    def work() -> Result:
        running.count({"rows_written": 3, "bytes_written": 700})
        running.count({"rows_written": 4})
        return done("")

    job = ended(submit(compute, work, "default"))
    record = stored(store, job)
    assert (record.rows_written, record.bytes_written, record.rows_read) == (7, 700, None)


def test_a_job_knows_its_cluster(compute: Compute, store: Store) -> None:
    a_cluster(compute, store)
    seen: list[str | None] = []

    def work() -> Result:
        job = running.current()
        assert job is not None
        seen.append(job.vcluster)
        return done("")

    ended(submit(compute, work))
    compute.run_here(work, text="SELECT 1", creator="ada", vcluster="default")
    assert seen == ["small", "default"]


def test_auto_suspend_and_auto_resume(compute: Compute, store: Store, clock: Clock) -> None:
    a_cluster(compute, store, auto_suspend_seconds=600)
    ended(submit(compute, lambda: done("")))
    clock.advance(599)
    compute.tick()
    assert compute.state("small") == "RUNNING"
    clock.advance(1)
    compute.tick()
    assert compute.state("small") == "SUSPENDED"
    assert no_worker_left("small")
    gate = Gate()
    job = submit(compute, gate)
    gate.wait_until_begun()
    assert compute.state("small") == "RUNNING"
    clock.advance(10_000)
    compute.tick()
    assert compute.state("small") == "RUNNING"  # It has work.
    gate.open.set()
    assert ended(job).job.status == "SUCCEED"
    clock.advance(600)
    assert compute.state("small") == "SUSPENDED"  # Also for who only asks.


def test_old_jobs_are_forgotten(store: Store, clock: Clock) -> None:
    for name, days in (("old", 8), ("young", 6)):
        at = START - timedelta(days=days)
        store.jobs.add(_a_job(name, status="SUCCEED", submitted_at=at, ended_at=at))
    compute = a_compute(store, clock)
    assert [job.id for job in store.jobs.recent()] == ["young"]
    clock.advance(2 * 86400)
    compute.tick()
    assert store.jobs.recent() == []
    compute.close(0)


# ---- suspending


def test_suspend_finishes_what_is_there(compute: Compute, store: Store) -> None:
    a_cluster(compute, store)
    gate = Gate()
    job = submit(compute, gate)
    gate.wait_until_begun()
    waiting = submit(compute, lambda: done(""))
    compute.suspend("small", force=False)
    assert compute.state("small") == "SUSPENDING"
    with pytest.raises(NotAllowed, match="being suspended"):
        submit(compute, lambda: done(""))
    gate.open.set()
    assert [ended(each).job.status for each in (job, waiting)] == ["SUCCEED", "SUCCEED"]
    assert compute.state("small") == "SUSPENDED"
    assert no_worker_left("small")
    assert ended(submit(compute, lambda: done(""))).job.status == "SUCCEED"
    assert compute.state("small") == "RUNNING"


def test_suspend_by_force(compute: Compute, store: Store) -> None:
    a_cluster(compute, store)
    gate = Gate()
    job = submit(compute, gate)
    gate.wait_until_begun()
    waiting = submit(compute, Gate())
    compute.suspend("small", force=True)
    assert waiting.done
    assert [ended(each).job.status for each in (job, waiting)] == ["CANCELLED", "CANCELLED"]
    assert compute.state("small") == "SUSPENDED"


def test_suspend_by_force_while_a_job_arrives(compute: Compute, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    a_cluster(compute, store)
    add = store.jobs.add

    def suspended_meanwhile(job: Job) -> None:
        add(job)
        compute.suspend("small", force=True)
        assert compute.state("small") == "SUSPENDING"

    monkeypatch.setattr(store.jobs, "add", suspended_meanwhile)
    job = submit(compute, Gate())
    assert job.job.status == "CANCELLED"
    assert compute.state("small") == "SUSPENDED"


def test_suspended_without_auto_resume(compute: Compute, store: Store) -> None:
    a_cluster(compute, store, auto_resume=False, suspended=True)
    assert compute.state("small") == "SUSPENDED"
    with pytest.raises(NotAllowed, match="does not resume by itself"):
        submit(compute, lambda: done(""))
    compute.resume("small")
    assert ended(submit(compute, lambda: done(""))).job.status == "SUCCEED"


def test_resume_while_it_is_being_suspended(compute: Compute, store: Store) -> None:
    a_cluster(compute, store)
    gate = Gate()
    job = submit(compute, gate)
    gate.wait_until_begun()
    compute.suspend("small", force=False)
    compute.resume("small")
    assert compute.state("small") == "RUNNING"
    gate.open.set()
    ended(job)
    assert compute.state("small") == "RUNNING"


def test_dropped(compute: Compute, store: Store) -> None:
    a_cluster(compute, store)
    gate = Gate()
    job, waiting = submit(compute, gate), submit(compute, Gate())
    gate.wait_until_begun()
    store.clusters.drop("small")
    compute.dropped("small")
    assert [ended(each).job.status for each in (job, waiting)] == ["CANCELLED", "CANCELLED"]
    with pytest.raises(NotFound):
        submit(compute, lambda: done(""))
    with pytest.raises(NotFound):
        compute.state("small")
    assert no_worker_left("small")
    a_cluster(compute, store)
    assert ended(submit(compute, lambda: done(""))).job.status == "SUCCEED"


# ---- refreshes in the history


class Told:
    """What the history was told of each refresh."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.states: list[str] = []
        self._start = store.start_refresh
        monkeypatch.setattr(store, "start_refresh", self.start)

    def start(self, record: RefreshRecord) -> None:
        self.states.append(record.state)
        self._start(record)


def test_states_of_a_refresh_before_it_runs(compute: Compute, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    a_cluster(compute, store, suspended=True)
    told = Told(store, monkeypatch)
    record = a_record("", state="SETUP")

    def work() -> Result:
        job = running.current()
        assert job is not None
        job_id = job.take_id()
        assert job_id is not None
        waiting = store.refresh(job_id)
        assert waiting is not None
        assert waiting.state == "QUEUED"
        store.finish_refresh(waiting.model_copy(update={"state": "SUCCEED", "end_time": START}))
        return done("refreshed")

    job = ended(submit(compute, work, refresh=(record,)))
    assert job.job.status == "SUCCEED"
    assert told.states == ["SETUP", "RESUMING_CLUSTER", "QUEUED"]
    refreshed = store.refresh(job.id)
    assert refreshed is not None
    assert refreshed.state == "SUCCEED"


def test_a_refresh_that_never_ran(compute: Compute, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    a_cluster(compute, store)
    told = Told(store, monkeypatch)
    gate = Gate()
    holder = submit(compute, gate)
    gate.wait_until_begun()
    job = submit(compute, Gate(), refresh=(a_record("", state="SETUP"),))
    compute.cancel(job.id, "root")
    gate.open.set()
    ended(holder)
    assert told.states == ["SETUP", "QUEUED"]
    record = store.refresh(job.id)
    assert record is not None
    assert (record.state, record.error_message) == ("FAILED", "The job was cancelled by root.")
    assert record.end_time is not None


def test_a_refresh_that_failed_before_it_was_taken_over(compute: Compute, store: Store) -> None:
    def work() -> Result:
        raise NotFound("There is no dynamic table t.")

    job = ended(submit(compute, work, "default", refresh=(a_record("", state="SETUP"),)))
    record = store.refresh(job.id)
    assert record is not None
    assert (record.state, record.error_message) == ("FAILED", "There is no dynamic table t.")


# ---- in this thread


def run_here(compute: Compute, work: Callable[[], Result]) -> Result:
    return compute.run_here(work, text="SELECT 1", creator="ada", vcluster="default", query_tag="t")


def test_run_here(compute: Compute, store: Store) -> None:
    here = threading.current_thread()
    seen: list[JobStatus] = []

    def work() -> Result:
        assert threading.current_thread() is here
        seen.extend(job.job.status for job in compute.jobs())
        assert store.jobs.recent() == []  # It is recorded at its end.
        return done("yes")

    assert run_here(compute, work).rows == [("yes",)]
    assert seen == ["RUNNING"]
    (record,) = store.jobs.recent()
    assert (record.status, record.query_tag, record.output_rows) == ("SUCCEED", "t", 1)
    assert running.current() is None
    assert compute.jobs() == []


def test_run_here_inside_a_job_is_part_of_it(compute: Compute, store: Store) -> None:
    job = ended(submit(compute, lambda: run_here(compute, lambda: done("inner")), "default"))
    assert job.result is not None
    assert job.result.rows == [("inner",)]
    assert len(store.jobs.recent()) == 1


def test_run_here_raises(compute: Compute, store: Store) -> None:
    def not_found() -> Result:
        raise NotFound("There is no table t.")

    def broken() -> Result:
        raise ValueError("odd")

    def interrupted() -> Result:
        raise KeyboardInterrupt

    with pytest.raises(NotFound, match="no table t"):
        run_here(compute, not_found)
    with pytest.raises(Bug, match="ValueError: odd") as raised:
        run_here(compute, broken)
    assert isinstance(raised.value.__cause__, ValueError)
    with pytest.raises(KeyboardInterrupt):
        run_here(compute, interrupted)
    assert sorted(job.status for job in store.jobs.recent()) == ["CANCELLED", "FAILED", "FAILED"]
    assert compute.jobs() == []


def test_run_here_is_cancelled_by_another(compute: Compute, store: Store) -> None:
    gate = Gate()

    def cancel() -> None:
        gate.wait_until_begun()
        compute.cancel(compute.jobs()[0].id, "root")

    other = threading.Thread(target=cancel)
    other.start()
    with pytest.raises(Cancelled, match="by root"):
        run_here(compute, gate)
    other.join(PATIENCE)
    assert [job.status for job in store.jobs.recent()] == ["CANCELLED"]


# ---- the end of a process


def test_close_cancels_all(store: Store, clock: Clock) -> None:
    compute = a_compute(store, clock)
    a_cluster(compute, store)
    gate = Gate()
    at_work, waiting = submit(compute, gate), submit(compute, Gate())
    gate.wait_until_begun()
    compute.close(PATIENCE)
    assert [stored(store, job).status for job in (at_work, waiting)] == ["CANCELLED", "CANCELLED"]
    assert at_work.done
    assert waiting.done
    with pytest.raises(UserError, match="being closed"):
        submit(compute, lambda: done(""))
    with pytest.raises(UserError, match="being closed"):
        run_here(compute, lambda: done(""))
    assert no_worker_left("small")
    compute.close(PATIENCE)


def test_close_does_not_wait_for_a_stuck_thread(store: Store, clock: Clock) -> None:
    compute = a_compute(store, clock)
    a_cluster(compute, store, "stuck")
    stuck = Gate(heeds=False)
    job = submit(compute, stuck, "stuck")
    stuck.wait_until_begun()
    compute.close(0.05)
    assert stored(store, job).status == "CANCELLED"
    stuck.open.set()
    assert no_worker_left("stuck")
    assert stored(store, job).status == "CANCELLED"


def test_jobs_of_an_earlier_process_are_settled(store: Store, clock: Clock) -> None:
    for name, status in (("waited", "QUEUED"), ("ran", "RUNNING"), ("mine", "RUNNING"), ("ended", "SUCCEED")):
        store.jobs.add(_a_job(name, status=status, owner="me" if name == "mine" else "another"))
    settled = settle_unfinished(store.jobs, "me", clock.now())
    assert {job.id for job in settled} == {"waited", "ran"}
    assert "DESC HISTORY" in INTERRUPTED  # A write may have been committed.
    for name in ("waited", "ran"):
        job = store.jobs.get(name)
        assert job is not None
        assert (job.status, job.error_message, job.ended_at) == ("FAILED", INTERRUPTED, START)
    assert [job.id for job in store.jobs.unfinished()] == ["mine"]


# ---- a database that is away


def test_a_result_does_not_wait_for_the_database(
    compute: Compute, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = store.jobs.update
    away = True

    def failing(job: Job) -> bool:
        if away and job.ended_at is not None:
            raise EnvironmentFault("The database is away.")
        return update(job)

    monkeypatch.setattr(store.jobs, "update", failing)
    job = ended(submit(compute, lambda: done("here it is"), "default"))
    assert job.result is not None
    assert stored(store, job).status == "RUNNING"
    away = False
    ended(submit(compute, lambda: done(""), "default"))
    assert stored(store, job).status == "SUCCEED"


def test_a_job_that_cannot_be_written_down_is_refused(
    compute: Compute, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_job: Job) -> None:
        raise EnvironmentFault("The database is away.")

    with monkeypatch.context() as patch:
        patch.setattr(store.jobs, "add", failing)
        with pytest.raises(EnvironmentFault):
            submit(compute, lambda: done(""), "default", refresh=(a_record("", state="SETUP"),))
    assert compute.jobs() == []
    assert compute.waiting("default") == 0
    assert store.unfinished() == []
    assert ended(submit(compute, lambda: done(""), "default")).job.status == "SUCCEED"


# ---- ids


def test_ids_sort_by_time() -> None:
    earlier, later = new_job_id(START), new_job_id(START + timedelta(milliseconds=1))
    assert earlier < later
    assert len({new_job_id(START) for _ in range(100)}) == 100


def _a_job(name: str, **changes: Any) -> Job:
    fields = {"status": "QUEUED", "creator": "ada", "text": "SELECT 1", "vcluster": "default", "submitted_at": START}
    return Job(id=name, **{**fields, **changes})
