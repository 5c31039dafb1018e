"""CREATE, ALTER, DROP ALERT, SHOW ALERTS and SHOW ALERT HISTORY.

Who is no administrator changes and sees their own alerts only, and of their history what is about objects that they may
read. Addresses are kept sealed; of a webhook's only the host is ever shown.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headrace.alerts import watch
from headrace.alerts.messages import duration
from headrace.alerts.sealing import Seal, Unreadable
from headrace.alerts.targets import parse_target, require_allowed
from headrace.catalog.records import Alert, AuditEntry, Incident
from headrace.errors import Forbidden, HeadraceError, NotFound
from headrace.names import TableName, parse_parts
from headrace.result import Result, done, from_rows
from headrace.security.roles import is_nobody
from headrace.sql import statements as sql
from headrace.statements.context import Context
from headrace.statements.listing import matches, narrowed
from headrace.statements.permitting import require_read, viewer

_TEXT = pa.string()
_TIME = pa.timestamp("us", tz="UTC")
_ALERTS = [
    ("name", _TEXT), ("events", _TEXT), ("object_type", _TEXT), ("object_name", _TEXT), ("notify", _TEXT),
    ("state", _TEXT), ("open_incidents", pa.int64()), ("creator", _TEXT), ("created_time", _TIME), ("comment", _TEXT),
]  # fmt: skip
_HISTORY = [
    ("alert", _TEXT), ("event", _TEXT), ("object_name", _TEXT), ("state", _TEXT), ("opened_time", _TIME),
    ("closed_time", _TIME), ("closed_reason", _TEXT), ("message", _TEXT), ("told", _TEXT), ("recovery_told", _TEXT),
    ("attempts", pa.int64()), ("error_message", _TEXT),
]  # fmt: skip
_KINDS = {"ALL": "ALL", "TABLE": "DYNAMIC TABLE", "TASK": "TASK"}


def create(context: Context, statement: sql.CreateAlert) -> Result:
    name = statement.name.lower()
    about = _object(context, statement)
    targets = [parse_target(text) for text in statement.notify]
    for target in targets:
        require_allowed(target, context.settings)
    before = context.store.alerts.named(name) if statement.or_replace else None
    if before is not None:
        _require_own(context, before)
    seal = Seal(context.settings.path)
    alert = Alert(
        name=name,
        events=statement.events,
        lag_seconds=statement.lag_seconds,
        kind=statement.kind,
        object=about,
        notify=tuple(seal.seal(text, watch.purpose(name)) for text in statement.notify),
        comment=statement.comment,
        creator=context.user.name,
        created_at=context.clock(),
    )
    context.store.alerts.put(alert, new=before is None)
    shown = ", ".join(target.shown for target in targets)
    _audit(context, "CREATE_ALERT", f"{name} on {_events(alert)} to {shown}")
    return done(f"Alert {name} {'created' if before is None else 'replaced'}.{_left_out(alert)}")


def _left_out(alert: Alert) -> str:
    """What somebody who wants to hear of failures may have forgotten."""
    if alert.kind == "TASK" or "FAILURE" not in alert.events or "SUSPENSION" in alert.events:
        return ""
    return " It does not tell when five failures in a row have suspended a table: add SUSPENSION for that."


def _object(context: Context, statement: sql.CreateAlert) -> TableName | None:
    """What the alert is about: it must be there, and the user may read it."""
    if statement.object is None:
        return None
    name = context.resolve(statement.object)
    require_read(context, name)
    if statement.kind == "TABLE":
        return context.require_dynamic(statement.object).table_name
    task = context.store.tasks.named(name)
    if task is None:
        raise NotFound(f"There is no task {name}.", hint="SHOW TASKS lists them.")
    return task.table_name


def alter(context: Context, statement: sql.AlterAlert) -> Result:
    alert = _required(context, statement.name)
    name, suspended = alert.name, isinstance(statement.action, sql.Suspend)
    if not suspended and is_nobody(alert.creator):
        raise Forbidden(
            f"The alert {name} tells what its maker may know of, and that user was dropped.",
            hint="CREATE OR REPLACE ALERT makes it yours.",
        )
    context.store.alerts.suspend(name, suspended)
    _audit(context, "ALTER_ALERT", f"{name} {'suspended' if suspended else 'resumed'}")
    if suspended:
        return done(f"Alert {name} is suspended: it tells nobody until it is resumed.")
    return done(f"Alert {name} is resumed.")


def drop(context: Context, statement: sql.DropAlert) -> Result:
    name = statement.name.lower()
    if statement.if_exists and context.store.alerts.named(name) is None:
        return done(f"There is no alert {name}; nothing was done.")
    _required(context, name)
    context.store.alerts.drop(name)
    _audit(context, "DROP_ALERT", name)
    return done(f"Alert {name} dropped.")


def show(context: Context, statement: sql.ShowAlerts) -> Result:
    going_on: dict[str, int] = {}
    for incident in context.store.incidents.open():
        if incident.closed_at is None:
            going_on[incident.alert] = going_on.get(incident.alert, 0) + 1
    seal = Seal(context.settings.path)
    rows = [
        _row(alert, seal, going_on.get(alert.name, 0))
        for alert in context.store.alerts.all()
        if _is_own(context, alert) and matches(alert.name, statement.like)
    ]
    return narrowed(context, from_rows(_ALERTS, rows, context.settings.timezone), statement.where, statement.limit)


def _row(alert: Alert, seal: Seal, going_on: int) -> tuple[Any, ...]:
    return (
        alert.name, _events(alert), _KINDS[alert.kind], None if alert.object is None else str(alert.object),
        _notified(alert, seal), "SUSPENDED" if alert.suspended else "ACTIVE", going_on, alert.creator,
        alert.created_at, alert.comment,
    )  # fmt: skip


def _events(alert: Alert) -> str:
    lag = f"LAG > {duration(alert.lag_seconds or 0)}"
    return ", ".join(lag if event == "LAG" else event for event in alert.events)


def _notified(alert: Alert, seal: Seal) -> str:
    try:
        return ", ".join(each.target.shown for each in watch.sealed_targets(alert, seal))
    except Unreadable as error:
        return f"(cannot be read: {error})"
    except HeadraceError as error:
        return f"(cannot be read: {error.message})"


def show_history(context: Context, statement: sql.ShowAlertHistory) -> Result:
    """Newest first."""
    everything = context.user.is_admin
    limit = statement.limit if statement.where is None and everything else None
    found = context.store.incidents.recent(limit)
    if not everything:
        own = {alert.name for alert in context.store.alerts.all() if _is_own(context, alert)}
        sees = viewer(context)
        found = [one for one in found if one.alert in own and (name := _name_of(one)) is not None and sees(name)]
    rows = from_rows(_HISTORY, [_history_row(one) for one in found], context.settings.timezone)
    return narrowed(context, rows, statement.where, statement.limit)


def _history_row(one: Incident) -> tuple[Any, ...]:
    return (
        one.alert, one.event, one.object_name, "OPEN" if one.closed_at is None else "CLOSED", one.opened_at,
        one.closed_at, one.closed_reason, one.message, _marks(one.told), _marks(one.recovery_told), one.attempts,
        one.error,
    )  # fmt: skip


def _marks(marks: tuple[str, ...]) -> str:
    return ", ".join(map(watch.without_fingerprint, marks))


def _name_of(incident: Incident) -> TableName | None:
    """None for one that an older version wrote without the quotes that it needs."""
    try:
        parts = parse_parts(incident.object_name)
    except HeadraceError:
        return None
    return TableName(*parts) if len(parts) == 3 else None


def _is_own(context: Context, alert: Alert) -> bool:
    return context.user.is_admin or alert.creator.lower() == context.user.name.lower()


def _required(context: Context, name: str) -> Alert:
    """The alert, to change it. Another's is told like one that is not there."""
    alert = context.store.alerts.named(name)
    if alert is None or not _is_own(context, alert):
        raise NotFound(f"There is no alert '{name}'.", hint="SHOW ALERTS lists yours.")
    return alert


def _require_own(context: Context, alert: Alert) -> None:
    if not _is_own(context, alert):
        raise Forbidden(
            f"The alert {alert.name} is another user's.", hint="Choose another name, or ask an administrator."
        )


def _audit(context: Context, action: str, detail: str) -> None:
    """Alerts carry something out of the lake: who made them is kept."""
    context.store.users.audit(AuditEntry(at=context.clock(), user=context.user.name, action=action, detail=detail))
