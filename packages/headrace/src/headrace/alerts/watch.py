"""The one who looks: opens and closes incidents, and sees to it that people are told.

What was told is written right after each delivery, so a message goes out twice only when the process dies between the
two; both then have the same id.

Receivers are told side by side, a few at a time, and whoever made the alerts in turn: one who is slow keeps nobody else
waiting for long.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from headrace.alerts import incidents, messages
from headrace.alerts.incidents import Fact
from headrace.alerts.messages import Message
from headrace.alerts.sealing import Seal, Unreadable
from headrace.alerts.sending import Sender, Undelivered
from headrace.alerts.targets import Target, parse_target
from headrace.catalog.records import Alert, Incident
from headrace.catalog.store import Store
from headrace.errors import HeadraceError
from headrace.names import TableName, split_database
from headrace.security.rights import Rights
from headrace.security.roles import LOCAL_USER, is_nobody
from headrace.settings import Settings

LOOK_SECONDS = 10.0
MOST_ATTEMPTS = 30
"""With the pauses between them, about a day. After that only the end of the incident is tried to be told."""

_log = logging.getLogger(__name__)
_PAUSES = (1, 2, 4, 8, 16, 32, 60)
"""Minutes before each further try; the last one counts for all that follow."""
_BREATH_SECONDS = 1.0
_TARGET_SECONDS = 30.0
_ROUND_SECONDS = 60.0
"""After that nothing more is sent in one look: what is new has its turn in the next one."""
_AT_ONCE = 8
_KEPT = timedelta(days=90)
_PRUNE_EVERY = timedelta(days=1)


@dataclass(frozen=True)
class Sealed:
    """A target of an alert, with what stands for it in records and lists."""

    mark: str
    target: Target


def sealed_targets(alert: Alert, seal: Seal) -> tuple[Sealed, ...]:
    """Where the alert goes. Raises Unreadable when the lake's key does not open it."""
    found = []
    for text in alert.notify:
        opened = seal.open(text, purpose(alert.name))
        try:
            target = parse_target(opened)
        except HeadraceError as error:
            raise Unreadable(error.message) from None
        found.append(Sealed(f"{target.shown} {seal.fingerprint(opened)}", target))
    return tuple(found)


def purpose(alert: str) -> str:
    """What the addresses of an alert are sealed for."""
    return f"alert {alert}"


def without_fingerprint(mark: str) -> str:
    """The mark of a target as people see it."""
    return mark.rpartition(" ")[0]


@dataclass
class _Telling:
    """An incident of which some are to be told in this look."""

    incident: Incident
    failures: list[str] = field(default_factory=list)
    waits: bool = False
    """Somebody is left for the next look."""
    unwritten: bool = False
    """Somebody was told, and that could not be written down."""

    @property
    def is_over(self) -> bool:
        return self.incident.closed_at is not None

    @property
    def told(self) -> tuple[str, ...]:
        return self.incident.recovery_told if self.is_over else self.incident.told


@dataclass
class _Lane:
    """What one receiver is to be told: all that began in one message, and all that ended in another."""

    to: Sealed
    maker: str
    """Who made the alert of the first of them."""
    tellings: list[_Telling] = field(default_factory=list)


class AlertWatch:
    """Looks every few seconds, in a thread of its own; or whenever `look` is called."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: Callable[[], datetime],
        facts: Callable[[], list[Fact]],
        *,
        sender: Sender | None = None,
    ) -> None:
        """`facts` tells of every dynamic table and task that there is: of one that it leaves out, incidents end."""
        self._store = store
        self._settings = settings
        self._clock = clock
        self._facts = facts
        self._sender = sender or Sender(settings)
        self._seal = Seal(settings.path)
        self._lake = settings.path.name
        self._retry_at: dict[str, datetime] = {}
        self._alone: set[tuple[str, str]] = set()
        """Receivers, and incidents that they did not take together with others."""
        self._pruned_at: datetime | None = None
        self._closing = threading.Event()
        self._woken = threading.Event()
        self._looking = threading.Lock()
        self._telling = threading.Lock()
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------------ its thread

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look soon: something has happened."""
        self._woken.set()

    def close(self, patience: float = 15.0) -> None:
        """Stop looking. A delivery that is under way is waited for, so many seconds; others wait for the next start."""
        self._closing.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join(patience)

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self.look()
            except Exception:
                _log.exception("Alerts could not be looked after; the next try is in %s seconds.", LOOK_SECONDS)
            # Of many ends that come together, one look tells all.
            self._closing.wait(_BREATH_SECONDS)
            self._woken.wait(LOOK_SECONDS)
            self._woken.clear()

    # ------------------------------------------------------------------ one look

    def look(self) -> None:
        """Open and close incidents, then tell whoever is to be told and has not been."""
        with self._looking:
            now = self._clock()
            self._prune(now)
            alerts = {alert.name: alert for alert in self._store.alerts.all()}
            known = self._store.incidents.open()
            if not alerts and not known:
                return
            facts = self._facts()
            present = self._changed(alerts, known, facts, now)
            self._retry_at = {one.id: self._retry_at[one.id] for one in present if one.id in self._retry_at}
            ids = {one.id for one in present}
            self._alone = {(mark, incident) for mark, incident in self._alone if incident in ids}
            self._deliver(present, alerts, now)

    def _changed(
        self, alerts: Mapping[str, Alert], known: Iterable[Incident], facts: list[Fact], now: datetime
    ) -> list[Incident]:
        """The open incidents, as they are now."""
        known = list(known)
        change = incidents.changes(
            alerts.values(),
            [one for one in known if one.closed_at is None],
            facts,
            now=now,
            sees=self._viewer(),
            new_id=lambda: uuid.uuid4().hex,
        )
        for one in change.dropped:
            self._store.incidents.put(one, is_open=False)
        for one in (*change.closed, *change.opened):
            self._store.incidents.put(one, is_open=True)
            self._retry_at.pop(one.id, None)
        over = {one.id for one in (*change.closed, *change.dropped)}
        return [*(one for one in known if one.id not in over), *change.closed, *change.opened]

    def _viewer(self) -> Callable[[Alert, Fact], bool]:
        """Tells what an alert's maker may know of, as a SHOW would tell them: rights may have changed since. A maker
        who is no user has opened the lake's own files, and owns them; one who was dropped is told nothing."""
        home, workspaces = self._settings.workspace, self._store.workspaces()
        rights: dict[str, Rights | None] = {}

        def sees(alert: Alert, fact: Fact) -> bool:
            if alert.creator not in rights:
                maker = self._store.users.user(alert.creator)
                unlimited = maker.role == "admin" if maker is not None else not self._was_dropped(alert.creator)
                rights[alert.creator] = None if unlimited else Rights(self._store.users.grants(alert.creator))
            held = rights[alert.creator]
            return held is None or held.may("SELECT", canonical(fact.name))

        def canonical(name: TableName) -> TableName:
            workspace, schema = split_database(name.database(home), home, workspaces)
            return TableName(workspace.lower(), schema.lower(), name.table.lower())

        return sees

    def _was_dropped(self, creator: str) -> bool:
        return is_nobody(creator) or (creator != LOCAL_USER and self._store.users.was_dropped(creator))

    def _prune(self, now: datetime) -> None:
        if self._pruned_at is None or not timedelta(0) <= now - self._pruned_at < _PRUNE_EVERY:
            self._store.incidents.prune(now - _KEPT)
            self._pruned_at = now

    # ------------------------------------------------------------------ telling

    def _deliver(self, present: list[Incident], alerts: Mapping[str, Alert], now: datetime) -> None:
        """Those that were tried least come first: one that a receiver does not like holds up no other."""
        tellings: list[_Telling] = []
        lanes: dict[str, _Lane] = {}
        opened: dict[str, tuple[Sealed, ...] | str] = {}
        for incident in sorted(present, key=lambda one: (one.attempts, one.closed_at or one.opened_at, one.id)):
            if self._waits(incident, now):
                continue
            alert = alerts.get(incident.alert)
            if alert is None or alert.suspended or incident.attempts >= MOST_ATTEMPTS:
                self._settle(incident, is_open=incident.closed_at is None)
                continue
            if alert.name not in opened:
                opened[alert.name] = self._targets(alert)
            targets = opened[alert.name]
            if isinstance(targets, str):
                self._failed(incident, [f"The addresses of the alert cannot be read. {targets}"], now)
                continue
            telling = _Telling(incident)
            tellings.append(telling)
            for each in targets:
                if each.mark not in telling.told:
                    lanes.setdefault(each.mark, _Lane(each, alert.creator)).tellings.append(telling)
        self._run_lanes(_in_turn(lanes.values()))
        for telling in tellings:
            if telling.unwritten:
                self._store.incidents.put(telling.incident, is_open=True)
            if telling.failures:
                self._failed(telling.incident, telling.failures, now)
            elif not telling.waits:
                self._settle(telling.incident, is_open=not telling.is_over)

    def _message(self, incidents: list[Incident]) -> Message:
        """Of beginnings, or of ends; of one that is over, both at once."""
        if len(incidents) > 1:
            return messages.together(incidents, lake=self._lake)
        (incident,) = incidents
        if incident.closed_at is not None:
            return messages.recovery(incident, lake=self._lake, zone=self._settings.timezone)
        return messages.opening(incident, lake=self._lake, zone=self._settings.timezone)

    def _run_lanes(self, lanes: list[_Lane]) -> None:
        """Return when all have been told, or their time is over."""
        waiting = deque(lanes)
        until = time.monotonic() + _ROUND_SECONDS

        def work() -> None:
            while True:
                try:
                    lane = waiting.popleft()
                except IndexError:
                    return
                self._run_lane(lane, until)

        # Daemons: a process that ends waits for none of them.
        others = [
            threading.Thread(target=work, name="alerts", daemon=True) for _ in range(min(_AT_ONCE, len(lanes)) - 1)
        ]
        for each in others:
            each.start()
        work()
        for each in others:
            each.join()

    def _run_lane(self, lane: _Lane, until: float) -> None:
        """Tell one receiver. Who does not answer one message is not asked to take the next ones in this look."""
        away: str | None = None
        until = min(until, time.monotonic() + _TARGET_SECONDS)
        for tellings in self._messages_for(lane):
            if away is None and (self._closing.is_set() or time.monotonic() > until):
                for telling in tellings:
                    telling.waits = True
                continue
            failure = away
            if failure is None:
                failure, is_away = self._send(lane.to, self._message([telling.incident for telling in tellings]))
                away = failure if is_away else None
            with self._telling:
                if failure is not None and away is None and len(tellings) > 1:
                    self._alone |= {(lane.to.mark, telling.incident.id) for telling in tellings}
                for telling in tellings:
                    if failure is None:
                        self._note(telling, lane.to.mark)
                    else:
                        telling.failures.append(f"{lane.to.target.shown}: {failure}")

    def _messages_for(self, lane: _Lane) -> list[list[_Telling]]:
        """What goes into one message: however much happens in one look, a receiver gets a message or two. It may be one
        of them that it did not like before: those go by themselves."""
        alone = [[one] for one in lane.tellings if (lane.to.mark, one.incident.id) in self._alone]
        rest = [one for one in lane.tellings if (lane.to.mark, one.incident.id) not in self._alone]
        grouped = ([one for one in rest if one.is_over is is_over] for is_over in (False, True))
        return [*(group for group in grouped if group), *alone]

    def _note(self, telling: _Telling, mark: str) -> None:
        """Write down that somebody was told."""
        name = "recovery_told" if telling.is_over else "told"
        telling.incident = telling.incident.model_copy(update={name: (*telling.told, mark)})
        try:
            self._store.incidents.put(telling.incident, is_open=True)
        except Exception:
            telling.unwritten = True
            one = telling.incident
            _log.exception("It could not be written down yet who was told of %s of %s.", one.event, one.object_name)

    def _waits(self, incident: Incident, now: datetime) -> bool:
        """Whether its next try is still to come. A clock that was set back does not make it wait for longer."""
        again = self._retry_at.get(incident.id)
        return again is not None and timedelta(0) < again - now <= timedelta(minutes=_PAUSES[-1])

    def _targets(self, alert: Alert) -> tuple[Sealed, ...] | str:
        """Or why they cannot be read."""
        try:
            return sealed_targets(alert, self._seal)
        except Unreadable as error:
            return str(error)
        except HeadraceError as error:
            return error.message

    def _send(self, to: Sealed, message: Message) -> tuple[str | None, bool]:
        """Why it did not arrive, and whether no other would arrive either."""
        try:
            self._sender.send(to.target, message)
            return None, False
        except Undelivered as error:
            return str(error), error.away
        except Exception as error:  # Its text may hold the address: only its kind is told.
            return f"it could not be sent ({type(error).__name__})", False

    def _failed(self, incident: Incident, failures: list[str], now: datetime) -> None:
        attempts = incident.attempts + 1
        error = messages.one_line("; ".join(failures), messages.LONGEST)
        pause = timedelta(minutes=_PAUSES[min(attempts, len(_PAUSES)) - 1])
        self._retry_at[incident.id] = now + pause
        self._store.incidents.put(incident.model_copy(update={"attempts": attempts, "error": error}), is_open=True)
        level = logging.WARNING if attempts == 1 or attempts == MOST_ATTEMPTS else logging.INFO
        what = f"{incident.event} of {incident.object_name}"
        _log.log(level, "Alert %s: try %d to tell of %s failed: %s", incident.alert, attempts, what, error)

    def _settle(self, incident: Incident, *, is_open: bool) -> None:
        """Nobody is to be told any more, for now. What failed before does not matter then, unless it was given up."""
        given_up = incident.attempts >= MOST_ATTEMPTS
        settled = incident if given_up else incident.model_copy(update={"attempts": 0, "error": None})
        if not is_open or settled != incident:
            self._store.incidents.put(settled, is_open=is_open)


def _in_turn(lanes: Iterable[_Lane]) -> list[_Lane]:
    """The first lane of every maker, then the second of every maker …"""
    counted: Counter[str] = Counter()
    placed: list[tuple[int, _Lane]] = []
    for lane in lanes:
        placed.append((counted[lane.maker], lane))
        counted[lane.maker] += 1
    return [lane for _, lane in sorted(placed, key=lambda one: one[0])]
