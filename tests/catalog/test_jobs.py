from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta, timezone

import pytest

from catalog.examples import NOW, a_job, later
from headrace.catalog.records import Job
from headrace.catalog.store import Store
from headrace.errors import Bug


def ids(jobs: list[Job]) -> list[str]:
    return [job.id for job in jobs]


def test_round_trip(store: Store) -> None:
    job = a_job(query_tag="t", started_at=later(1), ended_at=later(2), phases={"run": 0.5}, output_rows=3, priority=7)
    store.jobs.add(job)
    assert store.jobs.get("j1") == job
    assert store.jobs.get("j2") is None
    tokyo = timezone(timedelta(hours=9))
    store.jobs.add(a_job("j2", NOW.astimezone(tokyo), ended_at=later(2).astimezone(tokyo)))
    assert (found := store.jobs.get("j2")) is not None
    assert (found.submitted_at, found.ended_at) == (NOW, later(2))
    assert found.submitted_at.utcoffset() == timedelta(0)


def test_a_job_is_added_once(store: Store) -> None:
    store.jobs.add(a_job(status="QUEUED"))
    with pytest.raises(Bug, match="recorded twice"):
        store.jobs.add(a_job(status="SUCCEED"))
    assert store.jobs.get("j1") == a_job(status="QUEUED")


def test_the_first_end_stands(store: Store) -> None:
    assert not store.jobs.update(a_job(status="RUNNING"))
    assert store.jobs.get("j1") is None
    store.jobs.add(a_job(status="SETUP"))
    for status in ("RESUMING_CLUSTER", "QUEUED", "RUNNING", "CANCELLED"):
        assert store.jobs.update(a_job(status=status))
    for status in ("RUNNING", "SUCCEED", "FAILED"):
        assert not store.jobs.update(a_job(status=status, output_rows=1))
    assert store.jobs.get("j1") == a_job(status="CANCELLED")


def test_of_many_ends_one_stands(store: Store) -> None:
    store.jobs.add(a_job(status="RUNNING"))
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda number: store.jobs.update(a_job(output_rows=number)), range(8)))
    assert (found := store.jobs.get("j1")) is not None
    assert found.output_rows == won.index(True)
    assert sum(won) == 1


def test_recent(store: Store) -> None:
    for number, (vcluster, creator) in enumerate([("default", "ann"), ("big", "ann"), ("Big", "bob"), ("big", "ann")]):
        store.jobs.add(a_job(f"j{number}", later(number // 2), vcluster=vcluster, creator=creator))
    assert ids(store.jobs.recent()) == ["j3", "j2", "j1", "j0"]
    assert ids(store.jobs.recent(2)) == ["j3", "j2"]
    assert ids(store.jobs.recent(limit=0)) == []
    assert ids(store.jobs.recent(vcluster="BIG")) == ["j3", "j2", "j1"]
    assert ids(store.jobs.recent(creator="ann")) == ["j3", "j1", "j0"]
    assert ids(store.jobs.recent(1, "big", creator="bob")) == ["j2"]


def test_page_by_page(store: Store) -> None:
    for number in range(7):  # Some at the same time.
        store.jobs.add(a_job(f"j{number}", later(number // 3), creator="ann" if number % 2 else "bob"))
    newest = [f"j{number}" for number in reversed(range(7))]
    for size in (1, 2, 3, 6, 7, 8):
        pages = [ids(page) for page in store.jobs.pages(size)]
        assert [each for page in pages for each in page] == newest
        assert all(len(page) == size for page in pages[:-1])
    assert [ids(page) for page in store.jobs.pages(2, creator="ann")] == [["j5", "j3"], ["j1"]]
    assert [ids(page) for page in store.jobs.pages(2, "nowhere")] == [[]]


def test_unfinished_and_pruned(store: Store) -> None:
    store.jobs.add(a_job("old", later(-2)))
    store.jobs.add(a_job("stopped", later(-2), status="CANCELLED"))
    store.jobs.add(a_job("running", later(-1), status="RUNNING"))
    store.jobs.add(a_job("queued", later(-3), status="QUEUED"))
    store.jobs.add(a_job("new", NOW))
    assert ids(store.jobs.unfinished()) == ["queued", "running"]
    assert store.jobs.prune(NOW) == 2
    assert store.jobs.prune(NOW) == 0
    assert ids(store.jobs.recent()) == ["new", "running", "queued"]


@pytest.mark.parametrize("job_id", ["", "a\0b", "\ud800", "x" * 5000, "' OR 1=1 --"])
def test_an_id_that_nothing_has(store: Store, job_id: str) -> None:
    store.jobs.add(a_job())
    assert store.jobs.get(job_id) is None


def test_a_time_without_a_zone_is_a_bug(store: Store) -> None:
    naive = NOW.replace(tzinfo=None)
    with pytest.raises(Bug):
        store.jobs.prune(naive)
    with pytest.raises(Bug):
        store.jobs.add(a_job(at=naive))
