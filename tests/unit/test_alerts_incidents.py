"""Which incidents begin and end."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from headrace.alerts import messages
from headrace.alerts.incidents import Changes, Fact, changes
from headrace.catalog.records import Alert, Incident
from headrace.names import TableName

NOW = datetime(2025, 3, 30, 12, tzinfo=timezone.utc)
ORDERS = TableName("main", "public", "orders")


def an_alert(**changed: Any) -> Alert:
    return Alert(**{"name": "ops", "events": ("FAILURE",), "notify": ("x",), "created_at": NOW, **changed})


def a_fact(**changed: Any) -> Fact:
    return Fact(**{"object_id": "t1", "name": ORDERS, "kind": "TABLE", "state": "SUCCEED", **changed})


def look(
    alerts: list[Alert], unclosed: list[Incident], *facts: Fact, now: datetime = NOW, seen: bool = True
) -> Changes:
    numbers = itertools.count(len(unclosed) + 1)
    return changes(
        alerts, unclosed, facts, now=now, sees=lambda alert, fact: seen, new_id=lambda: f"i{next(numbers)}"
    )  # fmt: skip


def test_one_incident_from_the_first_failure_to_the_first_success() -> None:
    alert = an_alert()
    first = look([alert], [], a_fact(state="FAILED", error="no such column"))
    (incident,) = first.opened
    assert (incident.alert, incident.event, incident.object_id) == ("ops", "FAILURE", "t1")
    assert incident.object_name == "main.public.orders"
    assert incident.opened_at == NOW
    assert incident.message == "The scheduled refresh of dynamic table main.public.orders failed: no such column"
    for fact in (a_fact(state="FAILED", error="another"), a_fact(state="SKIPPED"), a_fact(state=None)):
        assert look([alert], [incident], fact) == Changes()
    later = NOW + timedelta(minutes=5)
    end = look([alert], [incident.model_copy(update={"attempts": 3, "error": "e"})], a_fact(), now=later)
    (closed,) = end.closed
    assert (closed.id, closed.closed_at, closed.attempts, closed.error) == (incident.id, later, 0, None)
    assert not end.opened
    assert not end.dropped


@pytest.mark.parametrize("state", ["SUCCEED", "SKIPPED", None])
def test_what_is_no_failure(state: Any) -> None:
    events = ("FAILURE", "TIMEOUT", "SUSPENSION", "LAG")
    assert look([an_alert(events=events, lag_seconds=60)], [], a_fact(state=state)) == Changes()


def test_a_timeout_is_told_once_and_as_a_failure_to_whoever_asked_for_failures_only() -> None:
    fact = a_fact(state="FAILED", timed_out=True, error="more than 600 seconds")
    both = an_alert(events=("FAILURE", "TIMEOUT"))
    (incident,) = look([both], [], fact).opened
    assert incident.event == "TIMEOUT"
    assert incident.message.endswith("took too long and was stopped: more than 600 seconds")
    assert [one.event for one in look([an_alert()], [], fact).opened] == ["FAILURE"]
    other = look([both], [incident], a_fact(state="FAILED", error="e"))
    assert [one.event for one in other.opened] == ["FAILURE"]
    assert not other.closed
    assert len(look([both], [incident, *other.opened], a_fact()).closed) == 2
    assert look([an_alert(events=("TIMEOUT",))], [], a_fact(state="FAILED")) == Changes()


def test_suspension() -> None:
    alert = an_alert(events=("SUSPENSION",))
    (incident,) = look([alert], [], a_fact(suspended=True, suspended_reason="Five failed.")).opened
    assert incident.message == "The dynamic table main.public.orders is suspended: Five failed."
    assert look([alert], [incident], a_fact(suspended=True, state="SUCCEED")) == Changes()
    assert look([alert], [incident], a_fact()).closed


def test_lag() -> None:
    alert = an_alert(events=("LAG",), lag_seconds=600)
    assert look([alert], [], a_fact(lag_seconds=600.0), a_fact(object_id="t2")) == Changes()
    (incident,) = look([alert], [], a_fact(lag_seconds=605.0)).opened
    assert incident.message == (
        "The dynamic table main.public.orders is 10 minutes 5 seconds behind; the alert's limit is 10 minutes."
    )
    assert look([alert], [incident], a_fact(lag_seconds=None)) == Changes()
    assert look([alert], [incident], a_fact(lag_seconds=600.0)).closed


def test_a_table_that_somebody_took_offline_has_no_lag() -> None:
    alert = an_alert(events=("LAG",), lag_seconds=600)
    offline = a_fact(lag_seconds=700.0, suspended=True, by_hand=True, suspended_reason="Suspended by ann.")
    assert look([alert], [], offline) == Changes()
    (incident,) = look([alert], [], a_fact(lag_seconds=700.0)).opened
    (closed,) = look([alert], [incident], offline).closed
    assert closed.closed_reason == "It was suspended by ann."
    failed_its_way_there = replace(offline, by_hand=False)
    assert look([alert], [], failed_its_way_there).opened


def test_a_table_is_late_only_when_it_could_have_caught_up() -> None:
    """Right after a start, a jump of the clock or RESUME, all tables are behind."""
    alert = an_alert(events=("LAG",), lag_seconds=600)
    assert look([alert], [], a_fact(lag_seconds=7000.0, chance_seconds=600.0)) == Changes()
    (incident,) = look([alert], [], a_fact(lag_seconds=7000.0, chance_seconds=601.0)).opened
    assert look([alert], [incident], a_fact(lag_seconds=7000.0, chance_seconds=0.0)) == Changes(), "it goes on"


def test_rows_that_cannot_be_loaded() -> None:
    """A table that is no dynamic one: only alerts for all tell of it."""
    everything, named = (
        an_alert(events=("FAILURE", "LAG"), lag_seconds=1),
        an_alert(name="one", kind="TABLE", object=ORDERS),
    )
    bad = a_fact(object_id="loads-1", kind="LOADING", state="FAILED", error="3 rows wait since 5 minutes.")
    (incident,) = look([everything, named], [], bad).opened
    assert (incident.alert, incident.event) == ("ops", "FAILURE")
    assert incident.message == "Rows for main.public.orders do not get into it: 3 rows wait since 5 minutes."
    assert "SHOW JOBS" in (incident.advice or "")
    assert look([everything], [incident], replace(bad, state=None)) == Changes()
    for facts in ((replace(bad, state="SUCCEED"),), ()):
        (closed,) = look([everything], [incident], *facts).closed
        assert closed.closed_reason == "It takes rows again."


def test_a_run_by_hand_that_failed() -> None:
    alert = an_alert()
    for kind, told in (("TABLE", "refresh of dynamic table"), ("TASK", "run of task")):
        (incident,) = look([alert], [], a_fact(kind=kind, state="FAILED", error="boom", asked_for=True)).opened
        assert incident.message == f"A {told} main.public.orders that somebody asked for failed: boom"
        assert "five failures" not in (incident.advice or "")
        assert look([alert], [incident], a_fact(kind=kind)).closed


def test_a_table_that_others_refresh_has_a_lag_for_those_who_name_it() -> None:
    everything = an_alert(events=("LAG",), lag_seconds=600)
    named = an_alert(events=("LAG",), lag_seconds=600, kind="TABLE", object=ORDERS)
    late = a_fact(lag_seconds=700.0, on_schedule=False)
    assert look([everything], [], late) == Changes()
    (incident,) = look([named], [], late).opened
    assert look([named], [incident], a_fact(lag_seconds=10.0, on_schedule=False)).closed
    # It had times when the incident began, and has none any more.
    (incident,) = look([everything], [], a_fact(lag_seconds=700.0)).opened
    (closed,) = look([everything], [incident], late).closed
    assert closed.closed_reason == "It is refreshed by hand only."


def test_each_alert_event_and_object_has_its_own() -> None:
    alerts = [an_alert(), an_alert(name="all", events=("FAILURE", "SUSPENSION"))]
    facts = [a_fact(object_id=each, state="FAILED", suspended=True) for each in ("t1", "t2")]
    found = look(alerts, [], *facts).opened
    assert len({(one.alert, one.event, one.object_id) for one in found}) == len(found) == 6
    assert look(alerts, list(found), *facts) == Changes()


def test_an_alert_for_one_object_is_about_that_alone() -> None:
    task = a_fact(object_id="k1", kind="TASK", state="FAILED", error="e")
    table = a_fact(state="FAILED")
    other = a_fact(object_id="t2", name=TableName("main", "public", "other"), state="FAILED")
    assert [one.object_id for one in look([an_alert(kind="TABLE", object=ORDERS)], [], table, task, other).opened] == [
        "t1"
    ]
    (of_task,) = look([an_alert(kind="TASK", object=ORDERS)], [], table, task, other).opened
    assert of_task.message == "The scheduled run of task main.public.orders failed: e"


@pytest.mark.parametrize(
    ("event", "fact", "advice"),
    [
        ("FAILURE", {"kind": "TASK"}, "DESC TASK main.public.orders tells more."),
        ("TIMEOUT", {"kind": "TASK", "timed_out": True}, "DESC TASK main.public.orders tells more."),
        ("LAG", {"lag_seconds": 5.0}, "SHOW FRESHNESS tells more."),
        ("SUSPENSION", {"suspended": True}, "SHOW DYNAMIC TABLE REFRESH HISTORY tells more."),
        (
            "FAILURE",
            {"suspended": True},
            "It is suspended. Mend it, then ALTER DYNAMIC TABLE main.public.orders RESUME. "
            "SHOW DYNAMIC TABLE REFRESH HISTORY tells more.",
        ),
    ],
)
def test_each_message_says_where_to_look_further(event: Any, fact: dict[str, Any], advice: str) -> None:
    (incident,) = look([an_alert(events=(event,), lag_seconds=1)], [], a_fact(state="FAILED", **fact)).opened
    assert incident.advice == advice


@pytest.mark.parametrize("event", ["FAILURE", "TIMEOUT"])
def test_what_somebody_suspends_is_in_trouble_no_more(event: Any) -> None:
    alert = an_alert(events=(event,))
    failed = {"state": "FAILED", "timed_out": event == "TIMEOUT", "kind": "TASK"}
    (incident,) = look([alert], [], a_fact(**failed)).opened
    by_hand = a_fact(**failed, suspended=True, by_hand=True)
    found = look([alert], [incident], by_hand)
    assert [one.closed_reason for one in found.closed] == ["It was suspended by hand."], "of a pager, say"
    assert (found.dropped, found.opened) == ((), ())
    for reason, told in (
        ("Suspended by ann.", "It was suspended by ann."),
        ("Its creator is not a user any more.", "It was suspended: Its creator is not a user any more."),
    ):
        (closed,) = look([alert], [incident], replace(by_hand, suspended_reason=reason)).closed
        assert closed.closed_reason == told
    assert look([alert], [], by_hand) == Changes()
    # A table that failed its way there is still in trouble.
    assert look([alert], [incident], a_fact(**{**failed, "kind": "TABLE"}, suspended=True)) == Changes()


def test_the_end_of_an_incident_says_why() -> None:
    alert = an_alert()
    (incident,) = look([alert], [], a_fact(state="FAILED")).opened
    ends = [look([alert], [incident], a_fact()).closed, look([alert], [incident]).closed, look([], [incident]).dropped]
    assert [one.closed_reason for (one,) in ends] == [
        "It works again.", "It is not there any more.", "The alert is not about it any more.",
    ]  # fmt: skip


def test_an_object_that_is_gone_ends_its_incidents() -> None:
    (incident,) = look([an_alert()], [], a_fact(state="FAILED")).opened
    assert look([an_alert()], [incident]).closed


@pytest.mark.parametrize(
    ("alerts", "seen"),
    [
        ([], True),
        ([an_alert(suspended=True)], True),
        ([an_alert(events=("LAG",), lag_seconds=1)], True),
        ([an_alert(kind="TASK", object=ORDERS)], True),
        ([an_alert()], False),
    ],
)
def test_what_is_nobody_s_business_any_more_ends_without_a_word(alerts: list[Alert], seen: bool) -> None:
    (incident,) = look([an_alert()], [], a_fact(state="FAILED")).opened
    found = look(alerts, [incident], a_fact(state="FAILED"), seen=seen)
    assert [one.closed_at for one in found.dropped] == [NOW]
    assert not found.closed
    assert not found.opened


def test_a_suspended_alert_and_one_whose_maker_may_not_look_open_nothing() -> None:
    assert look([an_alert(suspended=True)], [], a_fact(state="FAILED")) == Changes()
    assert look([an_alert()], [], a_fact(state="FAILED"), seen=False) == Changes()


def test_errors_become_plain_text_of_bounded_length() -> None:
    (incident,) = look([an_alert()], [], a_fact(state="FAILED", error="a\0\x1b[2J\r\nb" + "x" * 10_000)).opened
    assert len(incident.message) == messages.LONGEST
    assert all(each == "\n" or each.isprintable() for each in incident.message)


def test_the_words_of_a_message() -> None:
    (incident,) = look([an_alert()], [], a_fact(state="FAILED", error="no such column", job_id="j1")).opened
    first = messages.opening(incident, lake="sales", zone="Asia/Tokyo")
    assert first.subject == "[headrace sales] FAILURE: main.public.orders"
    advice = (
        "After five failures in a row it is suspended. "
        "SHOW DYNAMIC TABLE REFRESH HISTORY tells more, and DESC JOB 'j1'."
    )
    assert first.text.splitlines()[1:] == [advice, "Since 2025-03-30 21:00:00 JST. Alert: ops."]
    assert first.fields["advice"] == advice
    assert (first.id, first.follows, first.at) == ("i1-open", None, NOW)
    assert first.fields["state"] == "OPEN"
    assert first.fields["closed_at"] is None
    over = incident.model_copy(update={"closed_at": NOW + timedelta(minutes=65), "closed_reason": "It works again."})
    last = messages.recovery(over, lake="sales", zone="UTC")
    assert last.subject == "[headrace sales] FAILURE is over: main.public.orders"
    assert last.text.startswith("main.public.orders works again, after 1 hour 5 minutes.\n")
    assert "no such column" in last.text
    assert "five failures" not in last.text
    assert (last.id, last.follows, last.fields["state"]) == ("i1-closed", "i1-open", "CLOSED")
    assert (first.fields["closed_reason"], last.fields["closed_reason"]) == (None, "It works again.")
    by_hand = over.model_copy(update={"closed_reason": "It was suspended by ann."})
    told = messages.recovery(by_hand, lake="sales", zone="UTC").text
    assert told.startswith("main.public.orders was suspended by ann, after 1 hour 5 minutes.\n")


def test_a_long_error_leaves_room_for_the_rest() -> None:
    (incident,) = look([an_alert()], [], a_fact(state="FAILED", error="x" * 10_000)).opened
    assert messages.opening(incident, lake="sales", zone="UTC").text.endswith("Alert: ops.")


def test_a_name_cannot_add_a_line_to_a_mail_s_head() -> None:
    name = TableName("main", "public", "a\u2028Bcc: x@y.z\x85b")
    (incident,) = look([an_alert()], [], a_fact(name=name, state="FAILED")).opened
    subject = messages.opening(incident, lake="a\r\nb", zone="UTC").subject
    assert len(subject.splitlines()) == 1
