"""Jobs in a line, and jobs when Spark is away: who runs when, and who ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace import lake_session, running
from headrace.catalog.store import Store
from headrace.compute.clusters import Compute
from headrace.compute.jobs import LiveJob
from headrace.compute.line import Line
from headrace.engine import Lake
from headrace.errors import Cancelled, EnvironmentFault, HeadraceError
from headrace.lake_session import LakeSession
from headrace.result import Result, done
from headrace.security.roles import Principal
from unit.compute_double import PATIENCE, Clock, Gate, a_cluster, a_compute, ended, stored, submit

GONE = "Spark is gone."


def gone() -> HeadraceError:
    return EnvironmentFault(GONE, hint="Run it again.")


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


# ---- a line


def test_one_after_another_takes_no_slot_while_it_waits(compute: Compute, store: Store) -> None:
    a_cluster(compute, store, max_concurrency=2)
    line = Line()
    first, second, other = Gate(), Gate(), Gate()
    one = submit(compute, first, line=line)
    two = submit(compute, second, line=line)
    three = submit(compute, never := Gate(), line=line)
    beside = submit(compute, other)
    first.wait_until_begun()
    other.wait_until_begun()
    assert (compute.running("small"), compute.waiting("small")) == (2, 2)
    compute.cancel(three.id, "ada")
    assert ended(three).job.status == "CANCELLED"
    assert not second.began.is_set()
    first.open.set()
    second.wait_until_begun()
    second.open.set()
    other.open.set()
    assert [ended(job).job.status for job in (one, two, beside)] == ["SUCCEED"] * 3
    assert not never.began.is_set()


def test_what_waits_in_a_line_goes_with_its_cluster(compute: Compute, store: Store) -> None:
    a_cluster(compute, store)
    line, gate = Line(), Gate()
    one = submit(compute, gate, line=line)
    gate.wait_until_begun()
    two = submit(compute, Gate(), line=line)
    compute.suspend("small", True)
    assert [ended(job).job.status for job in (one, two)] == ["CANCELLED"] * 2
    assert compute.state("small") == "SUSPENDED"


def test_one_that_is_cancelled_while_it_waits_brings_nobody_forward(
    compute: Compute, store: Store, clock: Clock
) -> None:
    a_cluster(compute, store, max_concurrency=2, runtime_limit_seconds=60)
    line, gate = Line(), Gate(heeds=False)
    one = submit(compute, gate, line=line)
    gate.wait_until_begun()
    two = submit(compute, Gate(), line=line)
    three = submit(compute, lambda: done("at last"), line=line)
    compute.cancel(two.id, "ada")
    assert ended(two).job.status == "CANCELLED"
    four = submit(compute, lambda: done("after it"), line=line)
    assert [job.job.status for job in (three, four)] == ["QUEUED", "QUEUED"]
    assert (compute.running("small"), compute.waiting("small")) == (1, 2)
    clock.advance(100)  # Nobody's time runs while the first is at work.
    gate.open.set()
    assert [ended(job).job.status for job in (one, three, four)] == ["SUCCEED"] * 3


def test_a_refused_job_leaves_the_line(compute: Compute, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    a_cluster(compute, store)
    a_cluster(compute, store, "closed", suspended=True, auto_resume=False)
    line = Line()
    with pytest.raises(HeadraceError, match="suspended"):
        submit(compute, lambda: done(""), "closed", line=line)

    def failing(_job: object) -> None:
        raise EnvironmentFault("The database is away.")

    with monkeypatch.context() as patch:
        patch.setattr(store.jobs, "add", failing)
        with pytest.raises(EnvironmentFault):
            submit(compute, lambda: done(""), line=line)
    assert ended(submit(compute, lambda: done(""), line=line)).job.status == "SUCCEED"


def test_one_that_is_cancelled_while_it_is_written_down_ends_before_its_turn(
    compute: Compute, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_cluster(compute, store)
    line, gate = Line(), Gate()
    one = submit(compute, gate, line=line)
    gate.wait_until_begun()
    add = store.jobs.add

    def cancelled_meanwhile(job: Any) -> None:
        add(job)
        compute.cancel(job.id, "root")

    with monkeypatch.context() as patch:
        patch.setattr(store.jobs, "add", cancelled_meanwhile)
        two = submit(compute, Gate(), line=line)
    assert two.job.status == "CANCELLED"
    assert compute.waiting("small") == 0
    gate.open.set()
    assert ended(one).job.status == "SUCCEED"


def test_a_long_line_ends_at_once(compute: Compute, store: Store) -> None:
    """All of it, from wherever it is ended: also where little of Python's stack is left."""
    a_cluster(compute, store)
    gate = Gate()
    holder = submit(compute, gate)
    gate.wait_until_begun()
    line = Line()
    jobs = [submit(compute, Gate(), line=line) for _ in range(300)]
    compute.suspend("small", True)
    assert {job.job.status for job in jobs} == {"CANCELLED"}
    ended(holder)
    assert compute.jobs() == []


def test_a_line_that_is_empty() -> None:
    line = Line()
    told: list[str] = []
    line.when_empty(lambda: told.append("empty from the beginning"))
    one, two = (LiveJob(_a_record(name), lambda: done(""), lambda _job, _reason: None) for name in ("one", "two"))
    for job in (one, two):
        line.join(job)
    assert line.arrive(one)
    line.when_empty(lambda: told.append("empty again"))
    assert not line.arrive(two)
    assert line.leave(two) is None
    assert told == ["empty from the beginning"]
    assert line.leave(one) is None
    assert told == ["empty from the beginning", "empty again"]


def test_a_turn_waits_for_who_has_not_arrived() -> None:
    line = Line()
    one, two = (LiveJob(_a_record(name), lambda: done(""), lambda _job, _reason: None) for name in ("one", "two"))
    for job in (one, two):
        line.join(job)
    assert line.arrive(one)
    assert line.leave(one) is None
    assert line.arrive(two)
    assert line.leave(two) is None
    assert line.arrive(two), "what has left waits for nobody"


# ---- Spark dies


def test_spark_lost(compute: Compute, store: Store) -> None:
    a_cluster(compute, store)
    stuck = Gate(heeds=False)
    job = submit(compute, stuck)
    stuck.wait_until_begun()
    gate = Gate()
    waiting = submit(compute, gate)
    compute.spark_lost(gone)
    assert job.done
    assert isinstance(job.error, EnvironmentFault)
    assert (stored(store, job).status, stored(store, job).error_message) == ("FAILED", f"{GONE} Hint: Run it again.")
    gate.wait_until_begun()  # The slot is free, although its thread is stuck.
    assert compute.running("small") == 1
    stuck.open.set()
    gate.open.set()
    assert ended(waiting).job.status == "SUCCEED"
    assert job.result is None  # What the thread brought later was dropped.
    assert stored(store, job).status == "FAILED"
    assert ended(submit(compute, lambda: done(""))).job.status == "SUCCEED"


def test_who_waits_does_not_end_with_spark(compute: Compute, store: Store) -> None:
    """Ending one job frees a slot, and the next takes it at once: it must not be taken for one that was at work."""
    a_cluster(compute, store, max_concurrency=2)
    stuck = [Gate(heeds=False), Gate(heeds=False)]
    at_work = [submit(compute, gate) for gate in stuck]
    for gate in stuck:
        gate.wait_until_begun()
    gates = [Gate() for _ in range(8)]
    waiting = [submit(compute, gate) for gate in gates]
    for job in at_work:  # Whoever is told of an end gives the freed slot's thread the time to take the next job.
        job.on_done(lambda _: any(gate.began.wait(PATIENCE) for gate in gates if not gate.began.is_set()))
    compute.spark_lost(gone)
    assert all(job.done for job in at_work)
    assert not any(job.done for job in waiting)
    for gate in (*stuck, *gates):
        gate.open.set()
    assert {ended(job).job.status for job in waiting} == {"SUCCEED"}


class Away:
    """Spark that is away until it is said to be back; who waits for it is seen."""

    def __init__(self) -> None:
        self.awaited = threading.Event()
        self.back = threading.Event()

    def wait(self) -> None:
        with running.resuming():
            self.awaited.set()
            while not self.back.wait(0.005):
                running.require_wanted()


def test_who_waits_for_spark_in_a_slot_is_left_alone(compute: Compute, store: Store, clock: Clock) -> None:
    a_cluster(compute, store, runtime_limit_seconds=60)
    away = Away()
    job = submit(compute, lambda: done("it is back"), ready=away.wait)
    assert away.awaited.wait(PATIENCE)
    assert job.job.status == "RESUMING_CLUSTER"
    clock.advance(100)
    compute.tick()
    compute.spark_lost(gone)
    assert not job.done
    away.back.set()
    assert ended(job).job.status == "SUCCEED"


def test_who_waits_for_spark_can_be_cancelled(compute: Compute) -> None:
    away, never = Away(), Gate()
    job = submit(compute, never, "default", ready=away.wait)
    assert away.awaited.wait(PATIENCE)
    compute.cancel(job.id, "root")
    assert ended(job).job.status == "CANCELLED"
    assert not never.began.is_set()


def test_spark_is_told_of_a_job_only_when_it_is_back(store: Store, clock: Clock) -> None:
    """Otherwise nothing that the job starts in Spark could be stopped."""
    away, spark = Away(), Tags()
    compute = Compute(store, clock.now, spark=lambda: spark if away.back.is_set() else None, monotonic=clock.monotonic)  # type: ignore[arg-type, return-value]
    try:
        gate = Gate(heeds=False)
        job = submit(compute, gate, "default", ready=away.wait)
        assert away.awaited.wait(PATIENCE)
        away.back.set()
        gate.wait_until_begun()
        assert spark.tags == {f"headrace-{job.id}"}
        assert spark.properties["spark.job.interruptOnCancel"] == "true"
        compute.cancel(job.id, "root")
        assert spark.cancelled.wait(PATIENCE)
        gate.open.set()
        ended(job)
    finally:
        compute.close(PATIENCE)
    assert spark.tags == set()


class Tags:
    """As much of a Spark session as a job's marks need."""

    def __init__(self) -> None:
        self.sparkContext = self
        self.tags: set[str] = set()
        self.properties: dict[str, str | None] = {}
        self.cancelled = threading.Event()

    def getConf(self) -> dict[str, str]:  # noqa: N802
        return {}

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802
        return self.properties.get(key)

    def setLocalProperty(self, key: str, value: str | None) -> None:  # noqa: N802
        self.properties[key] = value

    def addJobTag(self, tag: str) -> None:  # noqa: N802
        self.tags.add(tag)

    def removeJobTag(self, tag: str) -> None:  # noqa: N802
        self.tags.discard(tag)

    def cancelJobsWithTag(self, _tag: str) -> None:  # noqa: N802
        self.cancelled.set()

    def statusTracker(self) -> Any:  # noqa: N802
        raise AttributeError("There is none.")


def test_a_lake_waits_for_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    up = threading.Event()
    looks = 0

    def pause(_seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            up.set()

    monkeypatch.setattr("headrace.engine.time.sleep", pause)
    monkeypatch.setattr(Lake, "spark_is_up", property(lambda _: up.is_set()))
    lake = object.__new__(Lake)
    told: list[bool] = []
    job = running.Running("j1", resumes=told.append)
    with running.begin(job):
        lake.await_spark()
        lake.await_spark()
    assert told == [True, False], "the second time there was nothing to wait for"
    up.clear()
    job.stop(Cancelled("No longer."))
    with running.begin(job), pytest.raises(Cancelled, match="No longer"):
        lake.await_spark()


# ---- a session's jobs


class Ground:
    """What a session needs of a lake, without Spark."""

    def __init__(self, compute: Compute) -> None:
        self.compute = compute
        self.generation = 0
        self.spark_is_up = True
        self._context = self

    def new_session(self) -> Any:
        settings = SimpleNamespace(result_rows_max=10, result_bytes_max=100, result_bytes_kept=100)
        return SimpleNamespace(
            settings=settings,
            current=lambda: ("main", "public"),
            vcluster="default",
            query_tag=None,
            reads_hidden=False,
            store=self.compute._store,
        )

    def require_spark(self) -> None:
        """It is there."""

    def await_spark(self) -> None:
        """It is there."""


def a_session(compute: Compute, monkeypatch: pytest.MonkeyPatch) -> tuple[LakeSession, threading.Event]:
    """A session, and whether what Spark keeps for it was dropped."""
    ground: Any = Ground(compute)
    user = Principal("ada", "analyst")
    session = LakeSession(ground, user, schema=None, vcluster=None, query_tag=None, guarded=True, session_id="s1")
    cleared = threading.Event()
    monkeypatch.setattr(session, "_clear", cleared.set)
    monkeypatch.setattr(lake_session, "java_process", lambda: None)
    return session, cleared


def of_session(session: LakeSession, work: Callable[[], Result]) -> LiveJob:
    return session.submit_work(lambda _: work(), text="work")


def test_a_session_goes_when_its_last_job_has_ended(compute: Compute, monkeypatch: pytest.MonkeyPatch) -> None:
    session, cleared = a_session(compute, monkeypatch)
    gate = Gate(heeds=False)
    one = of_session(session, gate)
    gate.wait_until_begun()
    two = of_session(session, Gate())
    two.cancel()
    assert two.job.status == "CANCELLED"
    session.close()
    assert not cleared.is_set(), "the first still uses its temporary views"
    gate.open.set()
    ended(one)
    assert cleared.wait(PATIENCE)


def test_a_session_without_a_job_goes_at_once(compute: Compute, monkeypatch: pytest.MonkeyPatch) -> None:
    session, cleared = a_session(compute, monkeypatch)
    ended(of_session(session, lambda: done("")))
    session.close()
    assert cleared.wait(PATIENCE)


def test_nothing_begins_in_a_session_that_has_ended(compute: Compute, monkeypatch: pytest.MonkeyPatch) -> None:
    session, _ = a_session(compute, monkeypatch)
    gate, never = Gate(heeds=False), Gate()
    one = of_session(session, gate)
    gate.wait_until_begun()
    two = of_session(session, never)
    session.close()
    three = session.submit("SHOW JOBS")
    gate.open.set()
    assert ended(one).job.status == "SUCCEED"
    assert [ended(job).job.status for job in (two, three)] == ["CANCELLED"] * 2
    assert not never.began.is_set()


def _a_record(name: str) -> Any:
    return SimpleNamespace(id=name, vcluster="small")
