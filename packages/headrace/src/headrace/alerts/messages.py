"""What is told, in words and as fields. Texts come from errors and names that anybody may have written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from headrace.catalog.records import AlertEvent, Incident

LONGEST = 2000
_LISTED, _LONGEST_LISTED = 20, 300
"""Incidents in the text of a message about many, and characters of each."""
_IN_FIELDS = 50
_LONGEST_SUBJECT = 150
WELL: dict[AlertEvent, str] = {
    "FAILURE": "works again",
    "TIMEOUT": "works again",
    "LAG": "is within its limit again",
    "SUSPENSION": "is not suspended any more",
}


@dataclass(frozen=True)
class Message:
    """One message, for a webhook or a mailbox: about one incident, or about all that began or ended together."""

    id: str
    """The same each time that it is sent: who gets it twice can tell."""
    follows: str | None
    """The id of the message that it is the answer to."""
    at: datetime
    """When what it tells happened."""
    subject: str
    """One line."""
    text: str
    fields: dict[str, Any]


def opening(incident: Incident, *, lake: str, zone: str) -> Message:
    """That the incident has begun."""
    advice = f"{incident.advice}\n" if incident.advice else ""
    text = f"{incident.message}\n{advice}Since {_shown(incident.opened_at, zone)}. Alert: {incident.alert}."
    return _message(incident, "OPEN", f"{incident.event}: {incident.object_name}", text, lake)


def recovery(incident: Incident, *, lake: str, zone: str) -> Message:
    """That the incident is over and why, and what it was: some may not have heard of it yet."""
    closed_at = incident.closed_at or incident.opened_at
    text = (
        f"{_end(incident)}\n"
        f"Since {_shown(incident.opened_at, zone)}, until {_shown(closed_at, zone)}: {incident.message}\n"
        f"Alert: {incident.alert}."
    )
    return _message(incident, "CLOSED", f"{incident.event} is over: {incident.object_name}", text, lake)


def together(incidents: Sequence[Incident], *, lake: str) -> Message:
    """That all of these have begun; or, of those that are over, that all of them are."""
    incidents = sorted(incidents, key=lambda one: (one.event, one.object_name))
    is_over = incidents[0].closed_at is not None
    count = len(incidents)
    events = ", ".join(dict.fromkeys(one.event for one in incidents))
    alerts = sorted({one.alert for one in incidents})
    told = [
        one_line(f"{one.event}: {_end(one) if is_over else one.message}", _LONGEST_LISTED)
        for one in incidents[:_LISTED]
    ]
    more = [f"… and {count - _LISTED} more. {_ALL}"] if count > _LISTED else []
    head = f"{count} incidents {'are over' if is_over else 'have begun'}."
    named = f"Alert{'' if len(alerts) == 1 else 's'}: {', '.join(alerts)}."
    digest = hashlib.sha256(" ".join(sorted(one.id for one in incidents)).encode()).hexdigest()[:32]
    at = max(one.closed_at or one.opened_at for one in incidents)
    fields = {
        "id": f"{digest}-{'closed' if is_over else 'open'}",
        "incident": None,
        "state": "CLOSED" if is_over else "OPEN",
        "event": events if "," not in events else None,
        "alert": alerts[0] if len(alerts) == 1 else None,
        "object": None,
        "message": head,
        "advice": _ALL,
        "opened_at": min(one.opened_at for one in incidents).isoformat(),
        "closed_at": at.isoformat() if is_over else None,
        "closed_reason": None,
        "lake": lake,
        "count": count,
        "incidents": [_in_short(one) for one in incidents[:_IN_FIELDS]],
    }
    return Message(
        id=str(fields["id"]),
        follows=f"{digest}-open" if is_over else None,
        at=at,
        subject=one_line(
            f"[headrace {lake}] {count} incidents{' over' if is_over else ''}: {events}", _LONGEST_SUBJECT
        ),
        text="\n".join([head, *told, *more, named]),
        fields=fields,
    )


_ALL = "SHOW ALERT HISTORY lists all of them."


def _end(incident: Incident) -> str:
    """That it is over, and how long it took."""
    reason = incident.closed_reason or f"It {WELL[incident.event]}."
    end = reason.removeprefix("It ").removesuffix(".")
    seconds = ((incident.closed_at or incident.opened_at) - incident.opened_at).total_seconds()
    return f"{incident.object_name} {end}, after {duration(seconds)}."


def _in_short(incident: Incident) -> dict[str, str | None]:
    found = _fields(incident) | {"message": _cut(incident.message, _LONGEST_LISTED)}
    del found["advice"]
    return found


def _fields(incident: Incident) -> dict[str, str | None]:
    return {
        "incident": incident.id,
        "event": incident.event,
        "alert": incident.alert,
        "object": incident.object_name,
        "message": incident.message,
        "advice": incident.advice,
        "opened_at": incident.opened_at.isoformat(),
        "closed_at": None if incident.closed_at is None else incident.closed_at.isoformat(),
        "closed_reason": incident.closed_reason,
    }


def _message(incident: Incident, state: str, subject: str, text: str, lake: str) -> Message:
    first = f"{incident.id}-open"
    own = first if state == "OPEN" else f"{incident.id}-closed"
    return Message(
        id=own,
        follows=None if state == "OPEN" else first,
        at=incident.closed_at or incident.opened_at,
        subject=one_line(f"[headrace {lake}] {subject}", _LONGEST_SUBJECT),
        text=plain(text, 2 * LONGEST),
        fields={"id": own, "state": state, **_fields(incident), "lake": lake, "count": 1},
    )


def _shown(moment: datetime, zone: str) -> str:
    return f"{moment.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M:%S %Z}"


def one_line(text: str, limit: int) -> str:
    r"""The text without anything that could end a line or hide a part of it, shortened.

    >>> one_line("a\r\nBcc: x\u2028y", 20), one_line("abcdef", 4)
    ('a Bcc: x y', 'abc…')
    """
    return _cut(" ".join("".join(each if each.isprintable() else " " for each in text).split()), limit)


def plain(text: str, limit: int = LONGEST) -> str:
    r"""The text with its lines, without other control characters, shortened.

    >>> plain("one\ntwo\x1b[2J\0")
    'one\ntwo [2J'
    """
    lines = ("".join(each if each.isprintable() else " " for each in line).rstrip() for line in text.splitlines())
    return _cut("\n".join(lines).strip(), limit)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def duration(seconds: float) -> str:
    """An amount of time as people say it, to two units.

    >>> duration(59.9), duration(60), duration(5400), duration(90061)
    ('59 seconds', '1 minute', '1 hour 30 minutes', '1 day 1 hour')
    """
    left = max(0, int(seconds))
    said: list[str] = []
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        count, left = divmod(left, size)
        if count:
            said.append(f"{count} {unit}{'' if count == 1 else 's'}")
    return " ".join(said[:2]) or "0 seconds"
