"""What is told, in words and as fields. Texts come from errors and names that anybody may have written."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from headrace.catalog.records import AlertEvent, Incident

LONGEST = 2000
_LONGEST_SUBJECT = 150
WELL: dict[AlertEvent, str] = {
    "FAILURE": "works again",
    "TIMEOUT": "works again",
    "LAG": "is within its limit again",
    "SUSPENSION": "is not suspended any more",
}


@dataclass(frozen=True)
class Message:
    """One message about one incident, for a webhook or a mailbox."""

    id: str
    """The same each time that it is sent: who gets it twice can tell."""
    follows: str | None
    """The id of the message that it is the answer to."""
    at: datetime
    """When what it tells happened."""
    subject: str
    """One line."""
    text: str
    fields: dict[str, str | None]


def opening(incident: Incident, *, lake: str, zone: str) -> Message:
    """That the incident has begun."""
    advice = f"{incident.advice}\n" if incident.advice else ""
    text = f"{incident.message}\n{advice}Since {_shown(incident.opened_at, zone)}. Alert: {incident.alert}."
    return _message(incident, "OPEN", f"{incident.event}: {incident.object_name}", text, lake)


def recovery(incident: Incident, *, lake: str, zone: str) -> Message:
    """That the incident is over and why, and what it was: some may not have heard of it yet."""
    reason = incident.closed_reason or f"It {WELL[incident.event]}."
    end = reason.removeprefix("It ").removesuffix(".")
    closed_at = incident.closed_at or incident.opened_at
    text = (
        f"{incident.object_name} {end}, after {duration((closed_at - incident.opened_at).total_seconds())}.\n"
        f"Since {_shown(incident.opened_at, zone)}, until {_shown(closed_at, zone)}: {incident.message}\n"
        f"Alert: {incident.alert}."
    )
    return _message(incident, "CLOSED", f"{incident.event} is over: {incident.object_name}", text, lake)


def _message(incident: Incident, state: str, subject: str, text: str, lake: str) -> Message:
    first = f"{incident.id}-open"
    own = first if state == "OPEN" else f"{incident.id}-closed"
    fields = {
        "id": own,
        "incident": incident.id,
        "state": state,
        "event": incident.event,
        "alert": incident.alert,
        "object": incident.object_name,
        "message": incident.message,
        "advice": incident.advice,
        "opened_at": incident.opened_at.isoformat(),
        "closed_at": None if incident.closed_at is None else incident.closed_at.isoformat(),
        "closed_reason": incident.closed_reason,
        "lake": lake,
    }
    return Message(
        id=own,
        follows=None if state == "OPEN" else first,
        at=incident.closed_at or incident.opened_at,
        subject=one_line(f"[headrace {lake}] {subject}", _LONGEST_SUBJECT),
        text=plain(text, 2 * LONGEST),
        fields=fields,
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
