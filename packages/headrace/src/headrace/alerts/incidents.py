"""Which incidents begin and which end. Nothing is read or sent here.

There is at most one open incident for an alert, an event and an object. It goes on until all is well again: a run that
was skipped, or a lag that is not known, changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from headrace.alerts import messages
from headrace.catalog.records import Alert, AlertEvent, Incident, is_by_hand
from headrace.names import TableName

RunEnd = Literal["SUCCEED", "FAILED", "SKIPPED"]
LOADING = "loads-"
"""Before the id of a table: what its loads are called."""
TAKES_ROWS = "It takes rows again."


@dataclass(frozen=True)
class Fact:
    """What is known now of one dynamic table or task. There is one for each that exists."""

    object_id: str
    name: TableName
    kind: Literal["TABLE", "TASK", "LOADING"]
    """LOADING is about the rows on their way into a table, which is no dynamic one."""
    state: RunEnd | None = None
    """How its last run ended; while the next one runs, still that. None when none has ended yet, or since it was
    resumed."""
    error: str | None = None
    """Why that run failed."""
    asked_for: bool = False
    """Whether somebody asked for that run, and not the clock."""
    timed_out: bool = False
    """Whether it failed because it took too long."""
    held_up: bool = False
    """Whether it failed for want of what all runs need, such as space on the disk."""
    job_id: str | None = None
    """The job of that run."""
    suspended: bool = False
    suspended_reason: str | None = None
    by_hand: bool = False
    """Whether somebody suspended it, and it did not fail its way there."""
    lag_seconds: float | None = None
    """How far a dynamic table is behind; None when that is not known, and for tasks."""
    chance_seconds: float = math.inf
    """For so long it could have caught up: since the start, a jump of the clock or its RESUME. Endless once a run has
    ended since then."""
    on_schedule: bool = True
    """Whether the clock refreshes it. Of one that others refresh, or nobody, only those hear who name it."""


@dataclass(frozen=True)
class Changes:
    opened: tuple[Incident, ...] = ()
    closed: tuple[Incident, ...] = ()
    """Those whose end is to be told."""
    dropped: tuple[Incident, ...] = ()
    """Those that are nobody's business any more: closed without a word."""


def changes(
    alerts: Iterable[Alert],
    unclosed: Iterable[Incident],
    facts: Sequence[Fact],
    *,
    now: datetime,
    sees: Callable[[Alert, Fact], bool],
    new_id: Callable[[], str],
) -> Changes:
    """What has changed since the last look. `sees` says whether an alert's maker may know of an object."""
    active = {alert.name: alert for alert in alerts if not alert.suspended}
    known = {fact.object_id: fact for fact in facts}
    closed: list[Incident] = []
    dropped: list[Incident] = []
    going_on: set[tuple[str, AlertEvent, str]] = set()
    for incident in unclosed:
        alert, fact = active.get(incident.alert), known.get(incident.object_id)
        if alert is None or incident.event not in alert.events or (fact and not _covers(alert, fact, sees)):
            dropped.append(_closed(incident, now, "The alert is not about it any more."))
        elif fact is None:
            is_load = incident.object_id.startswith(LOADING)
            closed.append(_closed(incident, now, TAKES_ROWS if is_load else "It is not there any more."))
        elif fact.by_hand and incident.event != "SUSPENSION":
            closed.append(_closed(incident, now, _suspended(fact)))  # Nobody waits for its next run.
        elif incident.event == "LAG" and not _has_lag(alert, fact):
            closed.append(_closed(incident, now, "It is refreshed by hand only."))
        elif fact.kind == "LOADING" and fact.state == "SUCCEED":
            closed.append(_closed(incident, now, TAKES_ROWS))
        elif _is_well(alert, incident.event, fact):
            closed.append(_closed(incident, now, f"It {messages.WELL[incident.event]}."))
        else:
            going_on.add((incident.alert, incident.event, incident.object_id))
    opened = [
        Incident(
            id=new_id(),
            alert=alert.name,
            event=event,
            object_id=fact.object_id,
            object_name=str(fact.name),
            opened_at=now,
            message=_message(alert, event, fact),
            advice=messages.plain(_advice(event, fact)),
        )
        for alert in active.values()
        for fact in facts
        if _covers(alert, fact, sees)
        for event in alert.events
        if (alert.name, event, fact.object_id) not in going_on and _is_in_trouble(alert, event, fact)
    ]
    return Changes(tuple(opened), tuple(closed), tuple(dropped))


def _closed(incident: Incident, now: datetime, reason: str) -> Incident:
    """To tell its end is another matter than to tell its beginning: tries are counted anew."""
    return incident.model_copy(update={"closed_at": now, "closed_reason": reason, "attempts": 0, "error": None})


def _suspended(fact: Fact) -> str:
    """That somebody suspended it, and who."""
    reason = fact.suspended_reason
    if reason is None:
        return "It was suspended by hand."
    return f"It was {reason[:1].lower()}{reason[1:]}" if is_by_hand(reason) else f"It was suspended: {reason}"


def _has_lag(alert: Alert, fact: Fact) -> bool:
    return fact.on_schedule or alert.kind == "TABLE"


def _covers(alert: Alert, fact: Fact, sees: Callable[[Alert, Fact], bool]) -> bool:
    if alert.kind != "ALL" and (alert.kind != fact.kind or alert.object != fact.name):
        return False
    return sees(alert, fact)


def _is_in_trouble(alert: Alert, event: AlertEvent, fact: Fact) -> bool:
    if fact.by_hand and event != "SUSPENSION":
        return False
    if event == "TIMEOUT":
        return fact.state == "FAILED" and fact.timed_out
    if event == "FAILURE":
        # Whoever asked for timeouts as well is told of one only once.
        return fact.state == "FAILED" and not (fact.timed_out and "TIMEOUT" in alert.events)
    if event == "SUSPENSION":
        return fact.suspended
    if alert.lag_seconds is None or fact.lag_seconds is None or not _has_lag(alert, fact):
        return False
    return min(fact.lag_seconds, fact.chance_seconds) > alert.lag_seconds


def _is_well(alert: Alert, event: AlertEvent, fact: Fact) -> bool:
    if event in ("FAILURE", "TIMEOUT"):
        return fact.state == "SUCCEED"
    if event == "SUSPENSION":
        return not fact.suspended
    return alert.lag_seconds is not None and fact.lag_seconds is not None and fact.lag_seconds <= alert.lag_seconds


def _message(alert: Alert, event: AlertEvent, fact: Fact) -> str:
    if fact.kind == "LOADING":
        return messages.plain(f"Rows for {fact.name} do not get into it: {fact.error or 'the reason is not known.'}")
    called = f"dynamic table {fact.name}" if fact.kind == "TABLE" else f"task {fact.name}"
    what = "refresh" if fact.kind == "TABLE" else "run"
    run = f"A {what} of {called} that somebody asked for" if fact.asked_for else f"The scheduled {what} of {called}"
    if event == "FAILURE":
        told = f"{run} failed: {fact.error or 'the reason is not known.'}"
    elif event == "TIMEOUT":
        told = f"{run} took too long and was stopped: {fact.error or 'its time was over.'}"
    elif event == "SUSPENSION":
        told = f"The {called} is suspended: {fact.suspended_reason or 'the reason is not known.'}"
    else:
        behind, limit = messages.duration(fact.lag_seconds or 0), messages.duration(alert.lag_seconds or 0)
        told = f"The {called} is {behind} behind; the alert's limit is {limit}."
    return messages.plain(told)


def _advice(event: AlertEvent, fact: Fact) -> str:
    """Where to look further; and of a table that fails, that nobody tries for ever."""
    if event == "LAG":
        return "SHOW FRESHNESS tells more."
    if fact.kind == "LOADING":
        jobs = "SHOW JOBS WHERE job_text LIKE 'LOAD%' tells more."
        return f"They are kept, and committed by a job on the virtual cluster default: {jobs}"
    if fact.kind == "TASK":
        return f"DESC TASK {fact.name} tells more."
    job = f", and DESC JOB '{fact.job_id}'" if fact.job_id else ""
    looking = f"SHOW DYNAMIC TABLE REFRESH HISTORY tells more{job}."
    if event == "SUSPENSION" or fact.asked_for:
        return looking
    if fact.suspended:
        return f"It is suspended. Mend it, then ALTER DYNAMIC TABLE {fact.name} RESUME. {looking}"
    if fact.held_up:
        return f"This is not counted as a failure of the table; it is tried again at its next time. {looking}"
    return f"After five failures in a row it is suspended. {looking}"
