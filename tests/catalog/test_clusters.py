from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta, timezone

import pytest

from catalog.examples import NOW, a_cluster
from headrace.catalog.store import Store
from headrace.errors import AlreadyExists, NotFound


def test_a_new_database_has_one_cluster_that_never_suspends(store: Store) -> None:
    (default,) = store.clusters.all()
    assert (default.name, default.type, default.size, default.auto_suspend_seconds) == ("default", "GENERAL", 1, 0)
    assert not default.suspended
    assert default.created_at.utcoffset() == timedelta(0)


def test_round_trip(store: Store) -> None:
    cluster = a_cluster(
        "Big One", type="ANALYTICS", size=8, properties={"spark.master": "x"}, comment="a'\"\\\0ü", suspended=True
    )
    store.clusters.put(cluster, new=True)
    kept = cluster.model_copy(update={"name": "big one"})
    assert store.clusters.named("BIG ONE") == kept
    assert kept.spark_master == "x"
    assert [found.name for found in store.clusters.all()] == ["big one", "default"]
    assert store.vclusters() == store.clusters.names() == ("big one", "default")
    assert store.has_vcluster("Big One")


def test_times_come_back_in_utc(store: Store) -> None:
    store.clusters.put(a_cluster(created_at=NOW.astimezone(timezone(timedelta(hours=9)))), new=True)
    assert (found := store.clusters.named("big")) is not None
    assert found.created_at == NOW
    assert found.created_at.utcoffset() == timedelta(0)


def test_names_are_taken_under_any_spelling(store: Store) -> None:
    store.clusters.put(a_cluster(size=2), new=True)
    with pytest.raises(AlreadyExists, match="virtual cluster big exists already"):
        store.clusters.put(a_cluster("BIG", size=3), new=True)
    assert (found := store.clusters.named("big")) is not None
    assert found.size == 2


def test_change_and_drop(store: Store) -> None:
    with pytest.raises(NotFound) as caught:
        store.clusters.put(a_cluster(), new=False)
    assert caught.value.hint == "Known are: default."
    store.clusters.put(a_cluster(), new=True)
    store.clusters.put(a_cluster("BIG", size=4), new=False)
    assert (found := store.clusters.named("big")) is not None
    assert (found.name, found.size) == ("big", 4)
    store.clusters.drop("Big")
    assert store.clusters.named("big") is None
    with pytest.raises(NotFound, match="no virtual cluster 'Big'"):
        store.clusters.drop("Big")


def test_racing_for_a_name_one_wins(store: Store) -> None:
    def put(size: int) -> bool:
        try:
            store.clusters.put(a_cluster(size=size), new=True)
            return True
        except AlreadyExists:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(put, range(1, 9))) == 1


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "x" * 5000])
def test_a_name_that_nothing_has(store: Store, name: str) -> None:
    assert store.clusters.named(name) is None
