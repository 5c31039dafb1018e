"""`headrace status`: does a server run, and what does it do?"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import typer

from headrace.cli.faults import FAILED
from headrace.cli.lakes import LakeOption
from headrace.cli.output import Format, FormatOption, Table, write_result
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.client.http import Http

_COUNTS = {
    "sessions": "headrace_sessions",
    "running jobs": "headrace_running_jobs",
    "waiting jobs": "headrace_queued_jobs",
}


def status(form: FormatOption = Format.table, lake: LakeOption = None) -> None:
    """Show the server of the lake, or the one that the setting 'service' names.

    Ends with 1 when there is none, or when it is not ready.
    """
    from headrace import opening, settings
    from headrace.storage import address
    from headrace.storage.lock import holder

    chosen = settings.load(lake)
    if opening.service_of(chosen) is not None:
        _show(opening.service_door(chosen), [], form)
        return
    found, held = address.read(chosen.path), holder(chosen.path)
    if found is None:
        nobody = f"No server runs for the lake {chosen.path}."
        somebody = f"{chosen.path} is open in {held}, which is no server, or one that is starting."
        typer.echo(nobody if held is None else somebody)
        raise typer.Exit(FAILED)
    facts: list[tuple[str, Any]] = [("lake", str(chosen.path)), ("process", found.pid)]
    if held is not None:
        facts += [("since", held.started), ("uptime", uptime(held.started, short=form is Format.table))]
    _show(opening.local_door(found, chosen), facts, form)


def uptime(started: str, now: datetime | None = None, *, short: bool = False) -> str | None:
    """How long ago that was; `short` as people see it in other tables, else as programs have always got it.

    >>> now = datetime(2024, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    >>> uptime("2024-01-01T00:00:00+00:00", now), uptime("2024-01-01T00:00:00+00:00", now, short=True)
    ('1 d 3 h 4 min', '27h04m')
    """
    from headrace.display import duration

    try:
        passed = (now or datetime.now(timezone.utc)) - datetime.fromisoformat(started)
    except (TypeError, ValueError):
        return None
    if short:
        return duration(max(0.0, passed.total_seconds()))
    minutes = max(0, int(passed.total_seconds())) // 60
    days, hours = minutes // 1440, minutes // 60 % 24
    parts = [f"{days} d"] * bool(days) + [f"{hours} h"] * bool(days or hours) + [f"{minutes % 60} min"]
    return " ".join(parts)


def _show(door: Http, facts: list[tuple[str, Any]], form: Format) -> None:
    try:
        state = door.health()
        rows = [("address", door.url), ("state", state), *facts, *_counts(door, state)]
    finally:
        door.close()
    write_result(Table(["item", "value"], rows), form)
    if state != "ok":
        raise typer.Exit(FAILED)


def _counts(door: Http, state: str) -> Iterator[tuple[str, Any]]:
    """Asked of the metrics, which answer also when every cluster is busy."""
    if state == "away":
        return
    try:
        text = door.text("/metrics")
    except HeadraceError as error:
        yield "details", f"unknown: {error.message} {error.hint or ''}".rstrip()
        return
    for item, name in _COUNTS.items():
        yield item, gauge(text, name)


def gauge(text: str, name: str) -> int | None:
    """The sum of a gauge over its labels.

    >>> gauge('# TYPE a gauge\\na{v="x"} 1.0\\na{v="y"} 2.0\\nab 7.0\\n', "a")
    3
    """
    found = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
    return int(sum(map(float, found))) if found else None
