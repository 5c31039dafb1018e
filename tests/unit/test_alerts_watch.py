"""From a failing table to a message that arrives, and to the one that says that all is well."""

from __future__ import annotations

import itertools
import logging
import sqlite3
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from headrace.alerts import sending
from headrace.alerts.incidents import Fact
from headrace.alerts.messages import Message
from headrace.alerts.sealing import FILE_NAME, Seal
from headrace.alerts.sending import Sender, Undelivered
from headrace.alerts.targets import Target
from headrace.alerts.watch import MOST_ATTEMPTS, AlertWatch, purpose
from headrace.catalog.records import Alert, Grant, Incident, User
from headrace.catalog.store import Store
from headrace.names import TableName
from headrace.security.roles import nobody
from headrace.settings import Settings
from receivers import answering, mail_receiver, web_receiver

START = datetime(2025, 3, 30, 12, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
PATIENCE = 20.0
HOOK, OTHER = "https://hooks.test/canary", "https://other.test/canary"


class Recording(Sender):
    """Sends nowhere. `faults` has for a host what goes wrong there."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Message]] = []
        self.tried: list[str] = []
        self.faults: dict[str, Exception] = {}

    def send(self, target: Target, message: Message) -> None:
        self.tried.append(target.host)
        if target.host in self.faults:
            raise self.faults[target.host]
        self.sent.append((target.host, message))

    def told(self) -> list[tuple[str, str | None]]:
        """The host and the state of each message since the last time."""
        found = sorted((host, message.fields["state"]) for host, message in self.sent)
        self.sent.clear()
        return found


class Here:
    """A lake without Spark: what is known of its tables is given."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.settings = Settings(path=folder / "sales", **settings)
        self.store = Store.open(f"sqlite:///{folder / 'ops.db'}")
        self.now = START
        self.facts: list[Fact] = []
        self.sender = Recording()
        self.watch = self.new_watch()

    def new_watch(self, sender: Sender | None = None) -> AlertWatch:
        """As after a restart."""
        return AlertWatch(self.store, self.settings, lambda: self.now, lambda: self.facts, sender=sender or self.sender)

    def alert(self, *notify: str, name: str = "ops", **changed: Any) -> None:
        seal = Seal(self.settings.path)
        sealed = tuple(seal.seal(each, purpose(name)) for each in notify or (HOOK,))
        values: dict[str, Any] = {"name": name, "events": ("FAILURE",), "notify": sealed, "created_at": START}
        alert = Alert(**{**values, **changed})
        self.store.alerts.put(alert, new=self.store.alerts.named(name) is None)

    def table(self, state: Any = "SUCCEED", object_id: str = "t1", **changed: Any) -> None:
        name = TableName("main", "public", object_id)
        fact = Fact(**{"object_id": object_id, "name": name, "kind": "TABLE", "state": state, **changed})
        self.facts = [*(one for one in self.facts if one.object_id != object_id), fact]

    def look(self, after: timedelta = MINUTE) -> None:
        self.now += after
        self.watch.look()

    @property
    def incidents(self) -> list[Incident]:
        return self.store.incidents.recent()


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    here = Here(tmp_path)
    yield here
    here.store.close()


def test_one_message_at_the_beginning_and_one_at_the_end(here: Here) -> None:
    here.alert(HOOK, OTHER)
    here.table("SUCCEED")
    here.look()
    assert here.sender.told() == []
    here.table("FAILED", error="no such column")
    here.look()
    (message, _) = (message for _, message in here.sender.sent)
    assert "no such column" in message.text
    assert message.subject == "[headrace sales] FAILURE: main.public.t1"
    assert here.sender.told() == [("hooks.test", "OPEN"), ("other.test", "OPEN")]
    for state in ("FAILED", "SKIPPED"):
        here.table(state)
        here.look()
    assert here.sender.told() == []
    assert len(here.store.incidents.open()) == 1
    here.table("SUCCEED")
    here.look()
    assert here.sender.told() == [("hooks.test", "CLOSED"), ("other.test", "CLOSED")]
    assert here.store.incidents.open() == []
    here.look()
    here.table("FAILED")
    here.look()
    assert [state for _, state in here.sender.told()] == ["OPEN", "OPEN"]
    assert len(here.incidents) == 2


def test_who_was_told_of_a_failure_is_told_that_somebody_suspended_it(here: Here) -> None:
    here.alert()
    here.table("FAILED", error="boom")
    here.look()
    assert here.sender.told() == [("hooks.test", "OPEN")]
    here.table("FAILED", error="boom", suspended=True, suspended_reason="Suspended by ann.", by_hand=True)
    here.look()
    (_, message) = here.sender.sent[-1]
    assert message.text.startswith("main.public.t1 was suspended by ann, after 1 minute.\n")
    assert message.fields["closed_reason"] == "It was suspended by ann."
    assert here.sender.told() == [("hooks.test", "CLOSED")]
    here.look()
    assert here.sender.told() == []


def test_a_restart_tells_nothing_again_and_forgets_nobody(here: Here) -> None:
    here.alert(HOOK, OTHER)
    here.table("FAILED")
    here.sender.faults["other.test"] = Undelivered("no connection", away=True)
    here.look()
    assert here.sender.told() == [("hooks.test", "OPEN")]
    here.sender.faults.clear()
    here.watch = here.new_watch()
    here.look(timedelta(0))
    assert here.sender.told() == [("other.test", "OPEN")]
    here.watch = here.new_watch()
    here.look()
    assert here.sender.told() == []


def test_what_was_told_is_written_before_the_next_is_told(here: Here) -> None:
    here.alert()
    for number in range(3):
        here.table("FAILED", f"t{number}")
    seen: list[int] = []
    send = here.sender.send

    def looking(target: Target, message: Message) -> None:
        seen.append(sum(len(one.told) for one in here.incidents))
        send(target, message)

    here.sender.send = looking  # type: ignore[method-assign]
    here.look()
    for number in range(3):
        here.table("SUCCEED", f"t{number}")
        here.table("FAILED", f"u{number}")
    here.look()
    assert seen == [0, 3, 6], "the first beginnings; then the others, and the ends"
    assert sum(len(one.recovery_told) for one in here.incidents) == 3


def test_what_begins_or_ends_in_one_look_is_one_message(here: Here) -> None:
    here.alert(HOOK, "mailto:ann@example.com")
    here.alert(HOOK, name="late", events=("LAG",), lag_seconds=60)
    for number in range(200):
        here.table("FAILED", f"t{number:03d}", error=f"boom {number}")
    here.table("SUCCEED", "old", lag_seconds=90.0)
    here.look()
    assert sorted(host for host, _ in here.sender.sent) == ["example.com", "hooks.test"]
    message = dict(here.sender.sent)["hooks.test"]
    assert message.subject == "[headrace sales] 201 incidents: FAILURE, LAG"
    lines = message.text.splitlines()
    assert lines[:2] == [
        "201 incidents have begun.",
        "FAILURE: The scheduled refresh of dynamic table main.public.t000 failed: boom 0",
    ]
    assert lines[-2:] == ["… and 181 more. SHOW ALERT HISTORY lists all of them.", "Alerts: late, ops."]
    assert len(lines) == 23
    fields = message.fields
    assert (fields["state"], fields["count"], fields["event"], fields["object"]) == ("OPEN", 201, None, None)
    assert len(fields["incidents"]) == 50
    assert fields["incidents"][0]["object"] == "main.public.t000"
    assert fields["incidents"][0]["incident"] in {one.id for one in here.incidents}
    mail = dict(here.sender.sent)["example.com"]
    assert mail.subject == "[headrace sales] 200 incidents: FAILURE"
    assert (mail.fields["event"], mail.fields["alert"]) == ("FAILURE", "ops")
    assert {len(one.told) for one in here.incidents} == {1, 2}
    here.sender.sent.clear()
    here.look()
    assert here.sender.sent == [], "and only once"
    for number in range(2):
        here.table("SUCCEED", f"t{number:03d}")
    here.table("FAILED", "new")
    here.look()
    for receiver in ("example.com", "hooks.test"):
        told = [(one.fields["state"], one.fields["count"]) for host, one in here.sender.sent if host == receiver]
        assert sorted(told) == [("CLOSED", 2), ("OPEN", 1)]
    over = next(one for _, one in here.sender.sent if one.fields["state"] == "CLOSED")
    assert over.text.splitlines()[:2] == [
        "2 incidents are over.", "FAILURE: main.public.t000 works again, after 2 minutes.",
    ]  # fmt: skip


def test_what_a_receiver_refuses_together_it_gets_one_by_one(here: Here) -> None:
    here.alert()
    for number in range(3):
        here.table("FAILED", f"t{number}")
    send = here.sender.send

    def picky(target: Target, message: Message) -> None:
        if message.fields["count"] > 1 or message.fields["object"] == "main.public.t1":
            raise Undelivered("it answered 413 Content Too Large", away=False)
        send(target, message)

    here.sender.send = picky  # type: ignore[method-assign]
    here.look()
    assert here.sender.told() == []
    here.look()
    assert {message.fields["object"] for _, message in here.sender.sent} == {"main.public.t0", "main.public.t2"}
    assert sorted((one.object_name, one.attempts) for one in here.incidents) == [
        ("main.public.t0", 0), ("main.public.t1", 2), ("main.public.t2", 0),
    ]  # fmt: skip


def test_pauses_grow_and_the_tries_end(here: Here) -> None:
    here.alert()
    here.table("FAILED")
    here.sender.faults["hooks.test"] = Undelivered("it answered 404 Not Found", away=False)
    tries: list[int] = []
    for minute in range(60 * 36):
        before = len(here.sender.tried)
        here.look()
        if len(here.sender.tried) > before:
            tries.append(minute)
    pauses = [after - before for before, after in itertools.pairwise(tries)]
    assert pauses[:9] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert len(tries) == MOST_ATTEMPTS
    (incident,) = here.incidents
    assert (incident.attempts, incident.told) == (MOST_ATTEMPTS, ())
    assert incident.error == "https://hooks.test/…: it answered 404 Not Found"
    here.sender.faults.clear()
    here.look(timedelta(hours=2))
    assert here.sender.told() == []
    here.table("SUCCEED")
    here.look()
    assert here.sender.told() == [("hooks.test", "CLOSED")]


def test_who_could_not_be_told_of_the_beginning_is_told_of_all_at_the_end(here: Here) -> None:
    here.alert()
    here.table("FAILED", error="no such column")
    here.sender.faults["hooks.test"] = Undelivered("no connection", away=True)
    here.look()
    here.table("SUCCEED")
    here.look()
    here.sender.faults.clear()
    here.look()
    ((_, message),) = here.sender.sent
    assert message.fields["state"] == "CLOSED"
    assert "no such column" in message.text
    assert here.store.incidents.open() == []
    assert here.incidents[0].error is None


def test_who_does_not_answer_is_asked_once_for_all(here: Here) -> None:
    here.alert(HOOK, OTHER)
    for number in range(20):
        here.table("FAILED", f"t{number}")
    here.sender.faults["hooks.test"] = Undelivered("no connection", away=True)
    here.look()
    assert here.sender.tried.count("hooks.test") == 1
    assert [message.fields["count"] for _, message in here.sender.sent] == [20]
    here.sender.sent.clear()
    assert {one.attempts for one in here.incidents} == {1}
    here.sender.tried.clear()
    here.look()
    assert here.sender.tried == ["hooks.test"]
    here.sender.faults.clear()
    here.look(timedelta(minutes=2))
    assert [message.fields["count"] for _, message in here.sender.sent] == [20]
    assert {(one.attempts, one.error) for one in here.incidents} == {(0, None)}


def test_a_message_that_one_receiver_refuses_holds_up_no_other(here: Here) -> None:
    here.alert()
    here.table("FAILED", "t1")
    here.sender.faults["hooks.test"] = Undelivered("it answered 400 Bad Request", away=False)
    here.look()
    here.sender.faults.clear()
    here.table("FAILED", "t2")
    here.look(timedelta(seconds=30))
    assert [message.fields["object"] for _, message in here.sender.sent] == ["main.public.t2"]


def test_an_error_that_nobody_expected_stops_nobody_and_tells_no_address(
    here: Here, caplog: pytest.LogCaptureFixture
) -> None:
    here.alert(HOOK, OTHER)
    here.table("FAILED")
    here.sender.faults["hooks.test"] = ValueError(HOOK)
    with caplog.at_level(logging.DEBUG):
        here.look()
    assert here.sender.told() == [("other.test", "OPEN")]
    assert here.incidents[0].error == "https://hooks.test/…: it could not be sent (ValueError)"
    assert "canary" not in caplog.text
    assert "Alert ops: try 1 to tell of FAILURE of main.public.t1 failed: https://hooks.test/…" in caplog.text


def test_a_slow_receiver_gets_its_share_of_a_look(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    here.alert()
    for number in range(10):
        here.table("FAILED", f"t{number}")
    here.sender.faults["hooks.test"] = Undelivered("it answered 413 Content Too Large", away=False)
    here.look()  # From now on it gets them one by one.
    here.sender.faults.clear()
    seconds = [0.0]
    monkeypatch.setattr("headrace.alerts.watch.time.monotonic", lambda: seconds[0])
    send = here.sender.send

    def slowly(target: Target, message: Message) -> None:
        seconds[0] += 9
        send(target, message)

    here.sender.send = slowly  # type: ignore[method-assign]
    here.look()
    assert len(here.sender.told()) == 4
    here.look(timedelta(seconds=10))
    assert len(here.sender.told()) == 4
    assert all(one.attempts == (0 if one.told else 1) for one in here.incidents), "who had no turn has not failed"


def test_slow_receivers_of_one_user_hold_up_nobody_else(here: Here) -> None:
    here.settings = here.settings.model_copy(update={"alert_private_hosts": True})
    here.watch = here.new_watch(Sender(here.settings))
    here.table("FAILED")
    arrived: dict[str, float] = {}

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if handler.path.startswith("/slow"):
            time.sleep(1)
        arrived[handler.path] = time.monotonic() - began
        handler.send_response(204)
        handler.end_headers()

    with web_receiver() as web:
        web.answer = answer
        # By name and by number, ann's alerts come before bob's.
        for number in range(5):
            slow = [web.url(f"/slow/{number}/{place}") for place in range(4)]
            here.alert(*slow, name=f"a{number}", creator="ann")
        here.alert(web.url("/quick"), name="z", creator="bob")
        began = time.monotonic()
        here.look()
        took = time.monotonic() - began
    assert len(arrived) == 21, "all are told in the end"
    assert arrived["/quick"] < 3
    assert took < 10, "one after the other they would take twenty seconds"
    assert {one.attempts for one in here.incidents} == {0}


def test_a_look_comes_to_its_end(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.alerts.watch._ROUND_SECONDS", 0.5)
    monkeypatch.setattr("headrace.alerts.watch._AT_ONCE", 2)
    for number in range(12):
        here.alert(f"https://host{number}.test/canary", name=f"a{number:02d}")
    here.table("FAILED")
    send = here.sender.send

    def slowly(target: Target, message: Message) -> None:
        time.sleep(0.8)
        send(target, message)

    here.sender.send = slowly  # type: ignore[method-assign]
    began = time.monotonic()
    here.look()
    assert time.monotonic() - began < 4, "all of them would take nearly five seconds"
    first = here.sender.told()
    assert 2 <= len(first) < 12
    assert all(one.attempts == 0 and one.error is None for one in here.incidents), "who had no turn has not failed"
    told = list(first)
    for _ in range(6):
        here.look()
        told += here.sender.told()
    assert sorted(told) == sorted((f"host{number}.test", "OPEN") for number in range(12)), "each once"


def test_what_cannot_be_written_down_at_once_is_written_at_the_end(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    here.alert(HOOK, OTHER)
    here.table("FAILED")
    put = here.store.incidents.put
    faults = [sqlite3.OperationalError("the database is locked")]

    def failing(incident: Incident, *, is_open: bool) -> None:
        if incident.told and faults:
            raise faults.pop()
        put(incident, is_open=is_open)

    monkeypatch.setattr(here.store.incidents, "put", failing)
    here.look()
    assert len(here.incidents[0].told) == 2
    here.look()
    assert sorted(here.sender.told()) == [("hooks.test", "OPEN"), ("other.test", "OPEN")]


def test_a_clock_that_is_set_back_keeps_nobody_waiting(here: Here) -> None:
    here.alert()
    here.table("FAILED")
    here.sender.faults["hooks.test"] = Undelivered("no connection", away=True)
    here.look()
    here.sender.faults.clear()
    here.look(timedelta(days=-3))
    assert here.sender.told() == [("hooks.test", "OPEN")]


def test_dropping_and_suspending_an_alert_ends_its_incidents_without_a_word(here: Here) -> None:
    for name in ("a", "b"):
        here.alert(name=name)
    here.table("FAILED")
    here.look()
    here.sender.told()
    here.store.alerts.drop("a")
    here.store.alerts.suspend("b", True)
    here.look()
    assert here.sender.told() == []
    assert here.store.incidents.open() == []
    here.store.alerts.suspend("b", False)
    here.look()
    assert here.sender.told() == [("hooks.test", "OPEN")]


def test_an_alert_that_goes_while_its_end_waits_to_be_told(here: Here) -> None:
    here.alert()
    here.table("FAILED")
    here.look()
    here.sender.faults["hooks.test"] = Undelivered("no connection", away=True)
    here.table("SUCCEED")
    here.look()
    assert len(here.store.incidents.open()) == 1
    here.store.alerts.drop("ops")
    here.look()
    assert here.store.incidents.open() == []


def test_a_table_that_is_dropped(here: Here) -> None:
    here.alert()
    here.table("FAILED")
    here.look()
    here.sender.sent.clear()
    here.facts = []
    here.look()
    ((_, message),) = here.sender.sent
    assert "is not there any more" in message.text


def test_a_new_address_of_an_alert_is_told_what_goes_on(here: Here) -> None:
    here.alert(HOOK)
    here.table("FAILED")
    here.look()
    here.sender.told()
    here.alert(HOOK, OTHER)
    here.look()
    assert here.sender.told() == [("other.test", "OPEN")]


def test_makers_are_told_of_what_they_may_read_and_as_long_as_they_may(here: Here) -> None:
    for name, role in (("ann", "developer"), ("root", "admin")):
        here.store.users.put(User(name=name, role=role, password_hash="x", created_at=START), new=True)
    here.alert(HOOK, name="of_ann", creator="ann")
    here.alert(OTHER, name="of_root", creator="root")
    here.table("FAILED", "t1")
    here.look()
    assert here.sender.told() == [("other.test", "OPEN")]
    grant = Grant(user="ann", kind="TABLE", object="main.public.t1", privilege="SELECT", granted_at=START)
    here.store.users.grant(grant)
    here.look()
    assert here.sender.told() == [("hooks.test", "OPEN")]
    here.store.users.revoke("ann", "main.public.t1", "SELECT")
    here.look()
    assert here.sender.told() == []
    assert [one.alert for one in here.store.incidents.open()] == ["of_root"]


@pytest.mark.parametrize("whose", ["ann", nobody("ann")])
def test_a_maker_who_was_dropped_is_told_nothing(here: Here, whose: str) -> None:
    """Also when its alert is not suspended: somebody may have resumed it, or DROP USER was cut short."""
    for name, role in (("ann", "developer"), ("root", "admin")):
        here.store.users.put(User(name=name, role=role, password_hash="x", created_at=START), new=True)
    here.store.users.drop("ann")
    here.alert(HOOK, creator=whose)
    here.table("FAILED", "t1")
    here.look()
    assert here.sender.told() == []


def test_a_grant_on_a_schema_of_another_workspace(here: Here) -> None:
    here.store.add_workspace("sales")
    here.store.users.put(User(name="ann", role="developer", password_hash="x", created_at=START), new=True)
    grant = Grant(user="ann", kind="SCHEMA", object="sales.raw", privilege="SELECT", granted_at=START)
    here.store.users.grant(grant)
    here.alert(creator="ann")
    here.table("FAILED", "t1", name=TableName("main", "sales__raw", "t1"))
    here.table("FAILED", "t2", name=TableName("sales", "raw", "t2"))
    here.table("FAILED", "t3", name=TableName("main", "raw", "t3"))
    here.look()
    assert {one.object_id for one in here.incidents} == {"t1", "t2"}


def test_addresses_that_the_key_does_not_open(here: Here) -> None:
    here.alert()
    here.table("FAILED")
    (here.settings.path / FILE_NAME).unlink()
    here.look()
    assert here.sender.tried == []
    assert "cannot be read" in str(here.incidents[0].error)
    assert "is not there" in str(here.incidents[0].error)


def test_no_address_is_in_the_database(here: Here, tmp_path: Path) -> None:
    here.alert(HOOK, "https://canary:canary@hooks.test/")
    here.table("FAILED")
    here.look()
    here.table("SUCCEED")
    here.look()
    with sqlite3.connect(tmp_path / "ops.db") as database:
        assert "canary" not in "".join(database.iterdump())
        assert "hooks.test" in "".join(database.iterdump())


def test_old_incidents_go(here: Here) -> None:
    here.alert()
    here.table("FAILED")
    here.look()
    here.table("SUCCEED")
    here.look()
    here.look(timedelta(days=89))
    assert len(here.incidents) == 1
    here.look(timedelta(days=2))
    assert here.incidents == []


def test_without_alerts_nothing_is_asked(here: Here) -> None:
    here.facts = None  # type: ignore[assignment]
    here.watch = AlertWatch(here.store, here.settings, lambda: here.now, lambda: pytest.fail("asked"))
    here.look()


# ---------------------------------------------------------------------- its thread


def test_the_thread_looks_when_it_is_woken_and_outlives_an_error(here: Here) -> None:
    here.alert()
    here.table("FAILED")
    looked, sent = threading.Event(), threading.Event()

    def facts() -> list[Fact]:
        if not looked.is_set():
            looked.set()
            raise RuntimeError("no facts")
        return here.facts

    class Telling(Recording):
        def send(self, target: Target, message: Message) -> None:
            super().send(target, message)
            sent.set()

    sender = Telling()
    watch = AlertWatch(here.store, here.settings, lambda: here.now, facts, sender=sender)
    watch.start()
    assert looked.wait(PATIENCE)
    watch.wake()
    assert sent.wait(PATIENCE)
    watch.close()
    assert sender.told() == [("hooks.test", "OPEN")]
    watch.close()


def test_closing_leaves_what_is_not_told_for_later(here: Here) -> None:
    here.alert(HOOK, OTHER)
    here.table("FAILED")
    send = here.sender.send

    def closing(target: Target, message: Message) -> None:
        here.watch.close()
        send(target, message)

    here.sender.send = closing  # type: ignore[method-assign]
    here.look()
    assert here.sender.told() == [("hooks.test", "OPEN")]
    assert here.incidents[0].attempts == 0
    here.watch = here.new_watch()
    here.look()
    assert here.sender.told() == [("other.test", "OPEN")]


# ---------------------------------------------------------------------- with real receivers


def test_messages_arrive(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with web_receiver() as web, mail_receiver() as mails:
        smtp = {"smtp_host": "127.0.0.1", "smtp_port": mails.port, "smtp_from": "headrace@lake.test"}
        here = Here(tmp_path, alert_private_hosts=True, timezone="Asia/Tokyo", **smtp)
        here.watch = here.new_watch(sending.Sender(here.settings))
        here.alert(web.url("/canary"), "mailto:ann@example.com", events=("LAG",), lag_seconds=300)
        here.table(lag_seconds=301.0)
        web.answer = answering(503)
        with caplog.at_level(logging.DEBUG):
            here.look()
            web.answer = None
            here.look()
            here.table(lag_seconds=3.0)
            here.look()
        here.store.close()
    assert [got.body["state"] for got in web.got] == ["OPEN", "OPEN", "CLOSED"]
    assert [mail.message["Subject"] for mail in mails.got] == [
        "[headrace sales] LAG: main.public.t1",
        "[headrace sales] LAG is over: main.public.t1",
    ]
    first = web.got[0].body
    assert first["text"].startswith("The dynamic table main.public.t1 is 5 minutes 1 second behind")
    assert first["id"] == web.got[1].body["id"] == f"{first['incident']}-open"
    assert "2025-03-30 21:01:00 JST" in first["text"]
    assert "503" in caplog.text
    assert "canary" not in caplog.text
