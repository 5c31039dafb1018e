from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from catalog.examples import NOW, a_record, a_table, an_intent, later
from headrace.catalog.records import SKIPPED, Profile, StepProfile
from headrace.catalog.store import KEPT_INTENTS, CatalogReader, Store
from headrace.errors import AlreadyExists, Bug, NotFound, RefreshRunning, UserError
from headrace.names import TableName

TOKYO = timezone(timedelta(hours=9))


# ---- tables


def test_table_round_trip(store: Store) -> None:
    table = a_table(
        start_with=datetime(2025, 1, 1, 9, 0, 0, 1, tzinfo=TOKYO),
        properties={"k": "a'\"\\\n\x00ü"},
        interval_seconds=60,
    )
    store.put_table(table)
    for found in (store.table(TableName("main", "public", "orders")), store.table_by_id("t1"), store.tables()[0]):
        assert found == table
        assert found is not None
        assert found.start_with is not None
        assert found.start_with.utcoffset() == timedelta(0)
    assert store.table(TableName("main", "other", "orders")) is None
    assert store.table_by_id("t2") is None


def test_put_table_updates_by_id(store: Store) -> None:
    store.put_table(a_table())
    first = store.acquire_lease("t1", "me", 60, NOW)
    store.put_table(a_table(name="renamed", comment="new"))
    assert store.tables() == [a_table(name="renamed", comment="new")]
    assert (lease := store.lease("t1")) is not None
    assert lease.fencing == first
    store.release_lease("t1", first)
    assert store.acquire_lease("t1", "me", 60, NOW) > first


def test_name_taken_by_another_id(store: Store) -> None:
    store.put_table(a_table())
    with pytest.raises(AlreadyExists, match=r"main\.public\.orders"):
        store.put_table(a_table("t2"))
    store.put_table(a_table("t2", "lines"))
    with pytest.raises(AlreadyExists):
        store.put_table(a_table("t2", "orders"))
    assert [table.name for table in store.tables()] == ["lines", "orders"]


def test_racing_for_a_name_one_wins(store: Store) -> None:
    def put(number: int) -> str:
        try:
            store.put_table(a_table(f"t{number}"))
            return "won"
        except AlreadyExists:
            return "lost"

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(put, range(8))) == ["lost"] * 7 + ["won"]


def test_drop_table_keeps_history_only(store: Store) -> None:
    store.put_table(a_table())
    fencing = store.acquire_lease("t1", "me", 60, NOW)
    store.write_intent(an_intent(), fencing)
    store.finish_refresh(a_record())
    store.drop_table("t1")
    store.drop_table("t1")
    assert store.tables() == []
    assert store.lease("t1") is None
    assert store.intents("t1") == []
    assert store.history() == [a_record()]
    store.put_table(a_table())
    assert store.acquire_lease("t1", "me", 60, later(1)) > fencing


# ---- leases


def test_lease_life(store: Store) -> None:
    store.put_table(a_table())
    first = store.acquire_lease("t1", "server 1", 60, NOW)
    lease = store.lease("t1")
    assert lease is not None
    assert lease.owner == "server 1"
    assert lease.fencing == first
    assert (lease.acquired_at, lease.expires_at) == (NOW, later(60))
    with pytest.raises(RefreshRunning, match=r"server 1, since 2025-03-30 00:59:59.*until 2025-03-30 01:00:59"):
        store.acquire_lease("t1", "server 2", 60, later(59.999999))
    assert store.renew_lease("t1", first, 60, later(50))
    with pytest.raises(RefreshRunning):
        store.acquire_lease("t1", "server 2", 60, later(60))
    second = store.acquire_lease("t1", "server 2", 60, later(110))
    assert second > first
    assert not store.renew_lease("t1", first, 60, later(111))
    store.release_lease("t1", first)
    assert (held := store.lease("t1")) is not None
    assert held.owner == "server 2"
    store.release_lease("t1", second)
    assert store.lease("t1") is None
    assert store.acquire_lease("t1", "server 3", 60, later(-5)) > second  # Also when the clock was put back.


def test_fencing_grows_over_a_lost_database(tmp_path: Path) -> None:
    numbers = []
    for run in range(2):
        store = Store.open(f"sqlite:///{tmp_path}/{run}.db")
        store.put_table(a_table())
        numbers.append(store.acquire_lease("t1", "me", 60, later(run)))
        store.close()
    assert numbers[1] > numbers[0]


def test_lease_of_no_table(store: Store) -> None:
    with pytest.raises(NotFound):
        store.acquire_lease("t1", "me", 60, NOW)
    assert not store.renew_lease("t1", 1, 60, NOW)
    store.release_lease("t1", 1)


def test_eight_threads_race_for_a_lease(store: Store) -> None:
    store.put_table(a_table())
    rounds, threads = 200, 8
    barrier = threading.Barrier(threads)
    wins: list[list[int]] = [[] for _ in range(rounds)]

    def race(number: int) -> None:
        for this in range(rounds):
            barrier.wait(timeout=60)
            try:
                fencing = store.acquire_lease("t1", f"thread {number}", 60, later(this))
                wins[this].append(fencing)
            except RefreshRunning:
                fencing = 0
            barrier.wait(timeout=60)
            if fencing and this % 2:
                store.release_lease("t1", fencing)
            elif fencing:  # Every other round, one that has run out is taken over.
                assert store.renew_lease("t1", fencing, 0.5, later(this))

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(race, number) for number in range(threads)]:
            done.result(timeout=300)
    assert [len(winners) for winners in wins] == [1] * rounds
    numbers = [winners[0] for winners in wins]
    assert numbers == sorted(set(numbers))


# ---- intents


def test_intent_needs_the_lease(store: Store) -> None:
    store.put_table(a_table())
    with pytest.raises(RefreshRunning, match="nobody"):
        store.write_intent(an_intent(), 1)
    first = store.acquire_lease("t1", "server 1", 60, NOW)
    store.write_intent(an_intent(), first)
    assert store.intent("t1", 1) == an_intent()
    second = store.acquire_lease("t1", "server 2", 60, later(61))
    with pytest.raises(RefreshRunning, match="server 2"):
        store.write_intent(an_intent(2), first)
    assert store.intent("t1", 2) is None
    store.write_intent(an_intent(1, "j2"), second)  # The first one's commit never happened.
    assert (replaced := store.intent("t1", 1)) is not None
    assert replaced.job_id == "j2"


def test_settle_and_forget(store: Store) -> None:
    store.put_table(a_table())
    fencing = store.acquire_lease("t1", "me", 60, NOW)
    for sequence in (1, 2, 3):
        store.write_intent(an_intent(sequence), fencing)
    store.settle("t1", 2)
    store.settle("t1", 9)
    assert [intent.sequence for intent in store.intents("t1")] == [1, 2, 3]
    assert [intent.sequence for intent in store.intents("t1", settled=True)] == [2]
    assert [intent.sequence for intent in store.intents("t1", settled=False)] == [1, 3]
    assert (settled := store.intent("t1", 2)) is not None
    assert settled.settled
    store.forget_intent("t1", 1)
    store.forget_intent("t1", 1)
    assert [intent.sequence for intent in store.intents("t1", settled=False)] == [3]


def test_last_settled_intents_are_kept(store: Store) -> None:
    store.put_table(a_table())
    store.put_table(a_table("t2", "lines"))
    fencing = store.acquire_lease("t1", "me", 60, NOW)
    store.write_intent(an_intent(table_id="t2"), store.acquire_lease("t2", "me", 60, NOW))
    store.settle("t2", 1)
    store.write_intent(an_intent(1), fencing)  # Never settled, so never dropped.
    for sequence in range(2, KEPT_INTENTS + 5):
        store.write_intent(an_intent(sequence), fencing)
        store.settle("t1", sequence)
    kept = [intent.sequence for intent in store.intents("t1", settled=True)]
    assert kept == list(range(5, KEPT_INTENTS + 5))
    assert [intent.sequence for intent in store.intents("t1", settled=False)] == [1]
    assert len(store.intents("t2")) == 1


def test_drops_and_refreshes_at_once_do_not_deadlock(store: Store) -> None:
    """Lock order: on PostgreSQL, dropping cascades over the rows that a refresh writes."""

    def refresh(number: int) -> None:
        for this in range(40):
            try:
                fencing = store.acquire_lease("t1", f"{number}", 60, NOW)
                store.write_intent(an_intent(), fencing)
                store.finish_refresh(a_record(f"{number}-{this}"), settle=("t1", 1), release=("t1", fencing))
            except (RefreshRunning, NotFound):
                pass

    def drop() -> None:
        for _ in range(40):
            store.put_table(a_table())
            store.drop_table("t1")

    with ThreadPoolExecutor(4) as pool:
        tasks = [pool.submit(refresh, number) for number in range(3)] + [pool.submit(drop)]
        for task in tasks:
            task.result(timeout=120)


# ---- history


def test_refresh_record_round_trip(store: Store) -> None:
    record = a_record(
        start=datetime(2025, 3, 30, 9, 59, 59, 999999, tzinfo=TOKYO),
        end_time=later(2),
        completion_target=later(9),
        source_tables=(TableName("main", "public", "raw"),),
        refresh_mode="INCREMENTAL",
        rows_inserted=2**40,
        error_message="ü \x00 '\n",
        profile=Profile(
            seconds=0.1, change_rows=1, steps=(StepProfile(depth=0, kind="filter", operator="filter", detail="a > 1"),)
        ),
    )
    store.finish_refresh(record)
    (found,) = store.history()
    assert found == record
    assert found.start_time.isoformat() == "2025-03-30T00:59:59.999999+00:00"
    assert found.start_time.tzinfo is timezone.utc


def test_refreshes_with_changes_leave_out_those_that_found_nothing(store: Store) -> None:
    modes = ["FULL", "INCREMENTAL", *["NO_DATA"] * 40]
    for number, mode in enumerate(modes):
        store.finish_refresh(a_record(f"j{number}", later(number), refresh_mode=mode))
    store.finish_refresh(a_record("failed", later(99), state="FAILED"))
    assert [record.job_id for record in store.refreshes_with_changes("t1", 30)] == ["j1", "j0"]
    assert [record.job_id for record in store.refreshes_with_changes("t1", 1)] == ["j1"]


def test_history_order_and_limit(store: Store) -> None:
    for number in (3, 1, 2):
        store.finish_refresh(a_record(f"j{number}", NOW + timedelta(microseconds=number)))
    store.finish_refresh(a_record("other", later(-1), table_id="t2"))
    assert [record.job_id for record in store.history()] == ["j3", "j2", "j1", "other"]
    assert [record.job_id for record in store.history(limit=2)] == ["j3", "j2"]
    assert [record.job_id for record in store.history(limit=1, table_id="t2")] == ["other"]
    assert store.history(limit=0) == []


def test_history_page_by_page(store: Store) -> None:
    for number in range(5):
        store.finish_refresh(a_record(f"j{number}", start_time=later(number // 2)))
    for size in (1, 2, 5, 9):
        found = [record.job_id for page in store.history_pages(size) for record in page]
        assert found == ["j4", "j3", "j2", "j1", "j0"]


def test_start_then_finish(store: Store) -> None:
    store.start_refresh(a_record(state="QUEUED"))
    store.start_refresh(a_record(state="RUNNING"))
    store.start_refresh(a_record("j2", later(-1), state="SETUP"))
    assert [(record.job_id, record.state) for record in store.unfinished()] == [("j2", "SETUP"), ("j1", "RUNNING")]
    store.finish_refresh(a_record(state="FAILED", end_time=later(1), error_message="why"))
    store.start_refresh(a_record(state="RUNNING"))
    assert [record.job_id for record in store.unfinished()] == ["j2"]
    assert store.history(1)[0].state == "FAILED"


def test_finish_settles_and_releases_in_one_transaction(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put_table(a_table())
    fencing = store.acquire_lease("t1", "me", 60, NOW)
    store.write_intent(an_intent(), fencing)

    def fail(*_: Any) -> None:
        raise RuntimeError("killed here")

    monkeypatch.setattr(store, "_settle", fail)
    with pytest.raises(RuntimeError):
        store.finish_refresh(a_record(), settle=("t1", 1), release=("t1", fencing))
    monkeypatch.undo()
    assert store.history() == []
    assert store.lease("t1") is not None
    store.finish_refresh(a_record(), settle=("t1", 1), release=("t1", fencing))
    assert store.history() == [a_record()]
    assert store.lease("t1") is None
    assert [intent.sequence for intent in store.intents("t1", settled=True)] == [1]


def test_finish_leaves_a_lost_lease_alone(store: Store) -> None:
    store.put_table(a_table())
    lost = store.acquire_lease("t1", "server 1", 60, NOW)
    store.acquire_lease("t1", "server 2", 60, later(60))
    store.finish_refresh(a_record(), release=("t1", lost))
    assert (lease := store.lease("t1")) is not None
    assert lease.owner == "server 2"


def test_no_data_needs_no_lease(store: Store) -> None:
    store.put_table(a_table())
    store.acquire_lease("t1", "another", 60, NOW)
    record = a_record(refresh_mode="NO_DATA", end_time=NOW)
    store.record_no_data(record)
    assert store.history() == [record]
    assert (lease := store.lease("t1")) is not None
    assert lease.owner == "another"


def test_prune_history(store: Store) -> None:
    store.finish_refresh(a_record("old", later(-1)))
    store.start_refresh(a_record("old and running", later(-1), state="RUNNING"))
    store.finish_refresh(a_record("new", NOW))
    assert store.prune_history(NOW.astimezone(TOKYO)) == 1
    assert [record.job_id for record in store.history()] == ["new", "old and running"]


def test_refreshes_that_found_nothing_go_after_a_day_but_the_newest(store: Store) -> None:
    """It tells how far its table is behind."""
    days = timedelta(days=1)
    for job, age in (("first", 3), ("second", 2.5), ("newest", 2)):
        store.record_no_data(a_record(job, NOW - age * days, refresh_mode="NO_DATA", end_time=NOW))
    store.finish_refresh(a_record("worked", NOW - 3 * days, refresh_mode="INCREMENTAL"))
    store.prune(NOW, jobs=7 * days)
    assert [record.job_id for record in store.history()] == ["newest", "worked"]


def test_the_last_refresh_that_took_all_outlives_those_that_waited(store: Store) -> None:
    store.put_table(a_table())
    days = timedelta(days=1)

    def no_data(job: str, age: float, **changes: Any) -> None:
        store.record_no_data(a_record(job, NOW - age * days, refresh_mode="NO_DATA", end_time=NOW, **changes))

    no_data("older", 6)
    no_data("took all", 5)
    for job, age in (("waits", 4), ("waits longer", 3)):
        no_data(job, age, reason="Waiting: b has newer rows.")
    no_data("left out", 2, technique=SKIPPED, reason="Its upstream b failed.")
    assert store.latest_refreshes(took_all=True)["t1"].job_id == "took all"
    assert store.latest_refreshes()["t1"].job_id == "left out"
    store.prune(NOW, jobs=7 * days)
    assert [record.job_id for record in store.history()] == ["left out", "waits longer", "took all"]
    no_data("now", 0)
    store.prune(NOW, jobs=7 * days)
    assert [record.job_id for record in store.history()] == ["now", "left out"]
    assert store.latest_refreshes(took_all=True)["t1"].job_id == "now"


NAIVE = NOW.replace(tzinfo=None)


@pytest.mark.parametrize(
    "misuse",
    [
        lambda store: store.finish_refresh(a_record(state="RUNNING")),
        lambda store: store.start_refresh(a_record(state="SUCCEED")),
        lambda store: store.record_no_data(a_record(refresh_mode="FULL")),
        lambda store: store.record_no_data(a_record(refresh_mode="NO_DATA", state="FAILED")),
        lambda store: store.acquire_lease("t1", "me", 60, NAIVE),
        lambda store: store.renew_lease("t1", 1, 60, NAIVE),
        lambda store: store.prune_history(NAIVE),
        lambda store: store.finish_refresh(a_record(start=NAIVE)),
        lambda store: store.put_table(a_table(created_at=NAIVE)),
    ],
)
def test_misuse_is_a_bug(tmp_path: Path, misuse: Callable[[Store], None]) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/x.db")
    with pytest.raises(Bug):
        misuse(store)
    store.close()


# ---- workspaces and virtual clusters


def test_workspaces(store: Store) -> None:
    assert store.workspaces() == ()
    for name in ("sales", "Main", "sales", "a_1"):
        store.add_workspace(name)
    assert store.workspaces() == ("a_1", "main", "sales")
    for name in ("", "a__b", "_a", "a_", "a b", "a.b", "x" * 101, "a\n"):
        with pytest.raises(UserError):
            store.add_workspace(name)


def test_vclusters(store: Store) -> None:
    assert store.vclusters() == ("default",)
    assert store.has_vcluster("DEFAULT")
    assert store.has_vcluster("default")
    assert not store.has_vcluster("other")


# ---- threads and processes


def test_threads_share_a_store(store: Store) -> None:
    for number in range(8):
        store.put_table(a_table(f"t{number}", f"n{number}"))

    def work(number: int) -> None:
        table_id = f"t{number}"
        for sequence in range(1, 26):
            fencing = store.acquire_lease(table_id, "me", 60, NOW)
            store.write_intent(an_intent(sequence, table_id=table_id), fencing)
            job = a_record(f"{table_id}-{sequence}", table_id=table_id)
            store.finish_refresh(job, settle=(table_id, sequence), release=(table_id, fencing))
            assert len(store.history(table_id=table_id)) == sequence

    with ThreadPoolExecutor(8) as pool:
        for task in [pool.submit(work, number) for number in range(8)]:
            task.result(timeout=120)
    assert len(store.history()) == 200
    assert store.unfinished() == []


def test_killed_process_loses_nothing_it_was_told_is_written(store: Store, url: str) -> None:
    store.put_table(a_table())
    script = """
import os, sys
from datetime import datetime
from headrace.catalog.store import Store
store = Store.open(sys.argv[1])
print(store.acquire_lease("t1", "victim", 60, datetime.fromisoformat(sys.argv[2])), flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, url, NOW.isoformat()],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
        check=False,
    )
    assert done.returncode == -9, done.stderr
    assert (lease := store.lease("t1")) is not None
    assert (lease.owner, lease.fencing) == ("victim", int(done.stdout))
    with pytest.raises(RefreshRunning, match="victim"):
        store.acquire_lease("t1", "me", 60, later(59))
    assert store.acquire_lease("t1", "me", 60, later(60)) > int(done.stdout)


def test_store_reads_as_a_catalog_reader(store: Store) -> None:
    reader: CatalogReader = store
    assert reader.tables() == []
