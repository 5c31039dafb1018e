"""Alerts and incidents in the operations database, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from headrace.catalog.records import Alert, Incident
from headrace.catalog.store import Store
from headrace.errors import AlreadyExists, NotFound
from headrace.names import TableName
from postgres import new_database

NOW = datetime(2025, 3, 30, 0, 59, 59, 123457, tzinfo=timezone.utc)


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    is_sqlite = request.param == "sqlite"
    opened = Store.open(
        f"sqlite:///{tmp_path}/headrace.db" if is_sqlite else new_database(request.getfixturevalue("postgres"))
    )
    yield opened
    opened.close()


def an_alert(name: str = "ops", **changed: Any) -> Alert:
    return Alert(**{"name": name, "events": ("FAILURE",), "notify": ("v1:x",), "created_at": NOW, **changed})


def an_incident(incident_id: str = "i1", at: datetime = NOW, **changed: Any) -> Incident:
    values: dict[str, Any] = {"alert": "ops", "event": "FAILURE", "object_id": "t1", "object_name": "main.public.t"}
    return Incident(**{"id": incident_id, "opened_at": at, "message": "ü\0", **values, **changed})


def test_round_trip(store: Store) -> None:
    alert = an_alert(
        "My Ops", events=("LAG", "TIMEOUT"), lag_seconds=60, kind="TABLE", object=TableName("main", "a.b", "c"),
        notify=("v1:x", "v1:y"), comment="a'\"\\\0ü", creator="ann", suspended=True,
        created_at=NOW.astimezone(timezone(timedelta(hours=9))),
    )  # fmt: skip
    store.alerts.put(alert, new=True)
    found = store.alerts.named("MY OPS")
    assert found == alert.model_copy(update={"name": "my ops"})
    assert found is not None
    assert found.created_at.utcoffset() == timedelta(0)
    store.alerts.put(an_alert("a"), new=True)
    assert [each.name for each in store.alerts.all()] == ["a", "my ops"]


def test_names_are_taken_under_any_spelling(store: Store) -> None:
    store.alerts.put(an_alert(), new=True)
    with pytest.raises(AlreadyExists, match="alert ops exists already"):
        store.alerts.put(an_alert("OPS", comment="x"), new=True)
    assert store.alerts.named("ops") == an_alert()


def test_change_suspend_and_drop(store: Store) -> None:
    for change in (
        lambda: store.alerts.put(an_alert(), new=False),
        lambda: store.alerts.suspend("ops", True),
        lambda: store.alerts.drop("ops"),
    ):
        with pytest.raises(NotFound, match="no alert 'ops'"):
            change()
    store.alerts.put(an_alert(), new=True)
    store.alerts.put(an_alert("Ops", comment="c"), new=False)
    store.alerts.suspend("OPS", True)
    assert store.alerts.named("ops") == an_alert(comment="c", suspended=True)
    store.alerts.suspend("ops", False)
    assert store.alerts.named("ops") == an_alert(comment="c")
    store.alerts.drop("Ops")
    assert store.alerts.all() == []


def test_a_dropped_user_s_alerts_are_suspended(store: Store) -> None:
    for name, creator in (("a", "ann"), ("b", "Ann"), ("c", "bob")):
        store.alerts.put(an_alert(name, creator=creator), new=True)
    store.alerts.suspend("b", True)
    assert store.alerts.suspend_all_of("ANN", whose="nobody") == 1
    assert store.alerts.suspend_all_of("ann", whose="nobody") == 0
    assert [each.creator for each in store.alerts.all()] == ["nobody", "nobody", "bob"]
    assert [each.suspended for each in store.alerts.all()] == [True, True, False]


def test_racing_for_a_name_one_wins(store: Store) -> None:
    def put(number: int) -> bool:
        try:
            store.alerts.put(an_alert(comment=str(number)), new=True)
            return True
        except AlreadyExists:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(put, range(8))) == 1


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "x" * 5000])
def test_a_name_that_nothing_has(store: Store, name: str) -> None:
    assert store.alerts.named(name) is None


def test_incidents(store: Store) -> None:
    first, second, third = (an_incident(f"i{number}", NOW + timedelta(seconds=number)) for number in (1, 2, 3))
    for incident in (third, first, second):
        store.incidents.put(incident, is_open=True)
    assert store.incidents.open() == [first, second, third]
    told = first.model_copy(update={"told": ("a", "b"), "attempts": 2, "error": "e"})
    store.incidents.put(told, is_open=True)
    over = second.model_copy(update={"closed_at": NOW + timedelta(hours=1)})
    store.incidents.put(over, is_open=False)
    assert store.incidents.open() == [told, third]
    assert store.incidents.recent() == [third, over, told]
    assert store.incidents.recent(2) == [third, over]
    assert store.incidents.recent(1)[0].opened_at.utcoffset() == timedelta(0)


def test_only_what_is_over_is_pruned(store: Store) -> None:
    store.incidents.put(an_incident("old"), is_open=False)
    store.incidents.put(an_incident("old and open"), is_open=True)
    store.incidents.put(an_incident("new", NOW + timedelta(days=1)), is_open=False)
    assert store.incidents.prune(NOW + timedelta(hours=1)) == 1
    assert [one.id for one in store.incidents.recent()] == ["new", "old and open"]
