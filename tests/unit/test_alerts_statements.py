"""Statements about alerts, as far as they need no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from catalog.examples import a_table
from headrace.alerts.sealing import FILE_NAME
from headrace.catalog.records import Grant, Incident, Task, User
from headrace.catalog.store import Store
from headrace.errors import AlreadyExists, BadSetting, Forbidden, NotAllowed, NotFound
from headrace.names import TableName, resolve
from headrace.result import Result
from headrace.security.roles import Principal, nobody
from headrace.settings import Settings
from headrace.sql.parser import parse
from headrace.statements import alerts

START = datetime(2025, 3, 1, 12, tzinfo=timezone.utc)
HOOK = "https://hooks.test/canary"
_HANDLERS: dict[str, Any] = {
    "CreateAlert": alerts.create, "AlterAlert": alerts.alter, "DropAlert": alerts.drop, "ShowAlerts": alerts.show,
    "ShowAlertHistory": alerts.show_history,
}  # fmt: skip


class Here:
    """A session without Spark."""

    def __init__(self, store: Store, settings: Settings, user: Principal) -> None:
        def required(parts: tuple[str, ...]) -> Any:
            found = store.table(named(parts))
            if found is None:
                raise NotFound(f"There is no dynamic table {named(parts)}.")
            return found

        def named(parts: tuple[str, ...]) -> TableName:
            return resolve(parts, workspace="main", schema="public")

        self.store = store
        self.context: Any = SimpleNamespace(
            store=store, user=user, settings=settings, clock=lambda: START, home="main", resolve=named,
            require_dynamic=required, name_of=lambda database, table: TableName("main", database, table),
        )  # fmt: skip

    def sql(self, text: str) -> Result:
        statement = parse(text)
        result: Result = _HANDLERS[type(statement).__name__](self.context, statement)
        return result

    def told(self, text: str) -> str:
        return str(self.sql(text).rows[0][0])

    def rows(self, text: str) -> list[dict[str, Any]]:
        result = self.sql(text)
        return [dict(zip(result.columns, row, strict=True)) for row in result.rows]

    def incident(self, incident_id: str, **changed: Any) -> None:
        values: dict[str, Any] = {
            "id": incident_id, "alert": "ops", "event": "FAILURE", "object_id": "t1", "opened_at": START,
            "object_name": "main.public.orders", "message": "It failed.",
        }  # fmt: skip
        self.store.incidents.put(Incident(**{**values, **changed}), is_open=changed.get("closed_at") is None)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(f"sqlite:///{tmp_path / 'ops.db'}")
    for name, role in (("ann", "developer"), ("bob", "developer")):
        store.users.put(User(name=name, role=role, password_hash="x", created_at=START), new=True)
    store.put_table(a_table())
    task = {"id": "k1", "workspace": "main", "schema_name": "public", "name": "load", "body": "SELECT 1"}
    store.tasks.put(Task(**task, created_at=START, modified_at=START), new=True)
    yield store
    store.close()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(path=tmp_path / "lake", smtp_host="mail.test", smtp_from="headrace@lake.test")


@pytest.fixture
def here(store: Store, settings: Settings) -> Here:
    return Here(store, settings, Principal("root", "admin"))


@pytest.fixture
def ann(store: Store, settings: Settings) -> Here:
    return Here(store, settings, Principal("ann", "developer"))


@pytest.fixture
def bob(store: Store, settings: Settings) -> Here:
    return Here(store, settings, Principal("bob", "developer"))


def grant(store: Store, user: str, name: str = "main.public.orders") -> None:
    kind = "TABLE" if name.count(".") == 2 else "SCHEMA"
    store.users.grant(Grant(user=user, kind=kind, object=name, privilege="SELECT", granted_at=START))


def test_the_life_of_an_alert(here: Here) -> None:
    create = f"ALERT Ops ON FAILURE, LAG > '90 minutes' FOR DYNAMIC TABLE orders NOTIFY '{HOOK}', 'mailto:a@b.test'"
    assert here.told(f"CREATE {create} COMMENT 'c'").startswith("Alert ops created.")
    with pytest.raises(AlreadyExists):
        here.sql(f"CREATE {create}")
    (row,) = here.rows("SHOW ALERTS")
    assert row == {
        "name": "ops", "events": "FAILURE, LAG > 1 hour 30 minutes", "object_type": "DYNAMIC TABLE",
        "object_name": "main.public.orders", "notify": "https://hooks.test/…, mailto:a@b.test", "state": "ACTIVE",
        "open_incidents": 0, "creator": "root", "created_time": START.replace(tzinfo=None), "comment": "c",
    }  # fmt: skip
    assert "tells nobody" in here.told("ALTER ALERT OPS SUSPEND")
    assert here.rows("SHOW ALERTS")[0]["state"] == "SUSPENDED"
    assert here.told("ALTER ALERT ops RESUME") == "Alert ops is resumed."
    assert here.told(f"CREATE OR REPLACE ALERT ops ON TIMEOUT FOR TASK load NOTIFY '{HOOK}'") == "Alert ops replaced."
    (row,) = here.rows("SHOW ALERTS LIKE 'o%'")
    assert (row["events"], row["object_type"], row["object_name"]) == ("TIMEOUT", "TASK", "main.public.load")
    here.sql(f"CREATE OR REPLACE ALERT other ON SUSPENSION NOTIFY '{HOOK}'")
    (row,) = here.rows("SHOW ALERTS LIKE 'other'")
    assert (row["object_type"], row["object_name"]) == ("ALL", None)
    assert len(here.rows("SHOW ALERTS LIMIT 1")) == 1
    assert here.told("DROP ALERT Ops") == "Alert ops dropped."
    assert "nothing was done" in here.told("DROP ALERT IF EXISTS ops")
    for text in ("DROP ALERT ops", "ALTER ALERT ops RESUME"):
        with pytest.raises(NotFound):
            here.sql(text)


def test_an_alert_of_a_user_who_was_dropped(here: Here, ann: Here) -> None:
    ann.sql(f"CREATE ALERT mine ON FAILURE NOTIFY '{HOOK}'")
    here.store.alerts.suspend_all_of("ann", whose=nobody("ann"))
    assert ann.rows("SHOW ALERTS") == [], "whoever has the name now is somebody else"
    with pytest.raises(Forbidden, match="was dropped") as caught:
        here.sql("ALTER ALERT mine RESUME")
    assert "CREATE OR REPLACE ALERT" in str(caught.value.hint)
    here.sql(f"CREATE OR REPLACE ALERT mine ON FAILURE NOTIFY '{HOOK}'")
    assert [(row["state"], row["creator"]) for row in here.rows("SHOW ALERTS")] == [("ACTIVE", "root")]


@pytest.mark.parametrize(
    ("events", "about", "is_told"),
    [
        ("FAILURE", "", True),
        ("FAILURE", "FOR DYNAMIC TABLE orders", True),
        ("FAILURE", "FOR TASK load", False),
        ("FAILURE, SUSPENSION", "", False),
        ("TIMEOUT", "", False),
    ],
)
def test_who_asks_for_failures_is_told_what_they_do_not_hear_of(
    here: Here, events: str, about: str, is_told: bool
) -> None:
    told = here.told(f"CREATE ALERT ops ON {events} {about} NOTIFY '{HOOK}'")
    assert ("five failures in a row have suspended a table: add SUSPENSION" in told) is is_told


def test_the_history_of_a_name_with_dots_is_shown_to_who_may_read_it(ann: Here) -> None:
    ann.sql(f"CREATE ALERT ops ON FAILURE NOTIFY '{HOOK}'")
    ann.incident("i1", object_name="main.public.`1. load`")
    assert ann.rows("SHOW ALERT HISTORY") == []
    grant(ann.store, "ann", "main.public")
    assert [row["object_name"] for row in ann.rows("SHOW ALERT HISTORY")] == ["main.public.`1. load`"]


def test_addresses_are_kept_sealed_and_never_shown(here: Here) -> None:
    here.sql(f"CREATE ALERT ops ON FAILURE NOTIFY '{HOOK}', 'https://canary:canary@other.test/canary?canary'")
    alert = here.store.alerts.named("ops")
    assert "canary" not in str(alert)
    assert "hooks.test" not in str(alert)
    assert "canary" not in str(here.sql("SHOW ALERTS").rows)
    audited = here.store.users.audited(10)
    assert [entry.action for entry in audited] == ["CREATE_ALERT"]
    assert audited[0].detail == "ops on FAILURE to https://hooks.test/…, https://other.test/…"


def test_an_alert_whose_key_is_gone_is_shown_and_can_be_made_anew(here: Here, settings: Settings) -> None:
    here.sql(f"CREATE ALERT ops ON FAILURE NOTIFY '{HOOK}'")
    (settings.path / FILE_NAME).unlink()
    assert here.rows("SHOW ALERTS")[0]["notify"].startswith("(cannot be read: ")
    here.sql(f"CREATE OR REPLACE ALERT ops ON FAILURE NOTIFY '{HOOK}'")
    assert here.rows("SHOW ALERTS")[0]["notify"] == "https://hooks.test/…"


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("canary", BadSetting), ("https://canary/a b", BadSetting), ("mailto:canary", BadSetting),
        ("https://127.0.0.1/canary", NotAllowed), ("http://hooks.test/canary", NotAllowed),
    ],
)  # fmt: skip
def test_addresses_that_are_refused(here: Here, target: str, kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        here.sql(f"CREATE ALERT ops ON FAILURE NOTIFY '{HOOK}', '{target}'")
    assert "canary" not in str(caught.value)
    assert here.store.alerts.all() == []


@pytest.mark.parametrize("about", ["DYNAMIC TABLE nothing", "TASK nothing", "TASK orders", "DYNAMIC TABLE load"])
def test_what_an_alert_is_about_must_be_there(here: Here, about: str) -> None:
    with pytest.raises(NotFound):
        here.sql(f"CREATE ALERT ops ON FAILURE FOR {about} NOTIFY '{HOOK}'")


def test_what_an_alert_is_about_must_be_readable(ann: Here) -> None:
    create = f"CREATE ALERT ops ON FAILURE FOR DYNAMIC TABLE orders NOTIFY '{HOOK}'"
    for text in (create, create.replace("orders", "nothing"), create.replace("DYNAMIC TABLE orders", "TASK load")):
        with pytest.raises(Forbidden):
            ann.sql(text)
    grant(ann.store, "ann")
    assert ann.told(create).startswith("Alert ops created.")


def test_others_alerts_are_not_one_s_business(here: Here, ann: Here, bob: Here) -> None:
    ann.sql(f"CREATE ALERT ops ON FAILURE NOTIFY '{HOOK}'")
    assert bob.rows("SHOW ALERTS") == []
    for text in ("DROP ALERT ops", "ALTER ALERT ops SUSPEND"):
        with pytest.raises(NotFound, match="no alert 'ops'"):
            bob.sql(text)
    with pytest.raises(Forbidden, match="another user's"):
        bob.sql(f"CREATE OR REPLACE ALERT ops ON FAILURE NOTIFY '{HOOK}'")
    with pytest.raises(AlreadyExists):
        bob.sql(f"CREATE ALERT ops ON FAILURE NOTIFY '{HOOK}'")
    assert [row["creator"] for row in here.rows("SHOW ALERTS")] == ["ann"]
    assert [row["name"] for row in ann.rows("SHOW ALERTS")] == ["ops"]
    here.sql("ALTER ALERT ops SUSPEND")
    ann.sql("ALTER ALERT ops RESUME")
    here.sql("DROP ALERT ops")


def test_history(here: Here) -> None:
    here.sql(f"CREATE ALERT ops ON FAILURE NOTIFY '{HOOK}'")
    here.incident("i1", told=("https://hooks.test/… 0123", "mailto:a@b.test 4567"), attempts=2, error="e")
    here.incident("i2", alert="gone", opened_at=START.replace(hour=11), closed_at=START)
    newest, oldest = here.rows("SHOW ALERT HISTORY")
    assert newest == {
        "alert": "ops", "event": "FAILURE", "object_name": "main.public.orders", "state": "OPEN",
        "opened_time": START.replace(tzinfo=None), "closed_time": None, "closed_reason": None, "message": "It failed.",
        "told": "https://hooks.test/…, mailto:a@b.test", "recovery_told": "", "attempts": 2, "error_message": "e",
    }  # fmt: skip
    assert (oldest["alert"], oldest["state"]) == ("gone", "CLOSED")
    assert [row["alert"] for row in here.rows("SHOW ALERT HISTORY LIMIT 1")] == ["ops"]
    assert here.rows("SHOW ALERTS")[0]["open_incidents"] == 1


def test_of_the_history_one_sees_what_is_one_s_own_and_readable(ann: Here, bob: Here) -> None:
    ann.sql(f"CREATE ALERT ops ON FAILURE NOTIFY '{HOOK}'")
    ann.incident("i1")
    ann.incident("i2", object_name="main.secret.t")
    ann.incident("i3", object_name="main.a.b.c")
    ann.incident("i4", alert="other")
    assert ann.rows("SHOW ALERT HISTORY") == []
    grant(ann.store, "ann")
    grant(ann.store, "bob")
    assert [row["object_name"] for row in ann.rows("SHOW ALERT HISTORY")] == ["main.public.orders"]
    assert bob.rows("SHOW ALERT HISTORY") == []
