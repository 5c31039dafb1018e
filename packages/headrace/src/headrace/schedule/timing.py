"""At which times something runs: every so many seconds, or as a cron expression says.

A tick is a moment in UTC. Ticks depend on the definition alone, never on when anybody looked: so a process that was
away knows what it missed, and things with the same times share their ticks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone, tzinfo
from itertools import islice
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from headrace.catalog.records import DynamicTable, Task
from headrace.errors import BadSetting, SyntaxFault

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
NEVER = datetime.max.replace(tzinfo=timezone.utc)
COUNTED = 1000
"""More ticks of a cron expression than these are not counted: each has to be worked out."""

_SMALLEST_SECONDS = 60
_LONGEST_EXPRESSION = 200
_FIELDS = 5
_HINT = "Write minute, hour, day of the month, month and day of the week, as 0 9 * * MON-FRI."
_LOOKING_BACK = tuple(timedelta(minutes=2 * 8**step) for step in range(9))
"""How far to go back for the newest tick, up to sixty years: few ticks are worked out, however rare they are."""


@dataclass(frozen=True)
class Every:
    """At `anchor` and every so many seconds after it; never before it."""

    seconds: int
    anchor: datetime = EPOCH

    def __post_init__(self) -> None:
        if self.seconds < 1:
            raise BadSetting(f"Nothing runs every {self.seconds} seconds.", hint="The smallest interval is 1 minute.")

    def newest(self, now: datetime) -> datetime | None:
        """The last tick that has come by now."""
        return None if now < self.anchor else self._tick((now - self.anchor) // self._period)

    def after(self, moment: datetime) -> datetime:
        """The first tick after this moment."""
        return self.anchor if moment < self.anchor else self._tick((moment - self.anchor) // self._period + 1)

    def between(self, start: datetime, end: datetime, limit: int) -> list[datetime]:
        """The ticks from `start` on that come before `end`, the oldest first, so many at most."""
        first = max(0, -((self.anchor - start) // self._period))
        count = min(limit, -((start - end) // self._period) + 1)
        return [tick for each in range(first, first + count) if (tick := self._tick(each)) < end]

    def count_between(self, after: datetime, before: datetime) -> int:
        """How many ticks lie between the two, without either."""
        first = max(0, (after - self.anchor) // self._period + 1)
        end = -((self.anchor - before) // self._period)
        return max(0, end - first)

    def period(self, now: datetime) -> timedelta:
        return self._period

    @property
    def _period(self) -> timedelta:
        return timedelta(seconds=self.seconds)

    def _tick(self, number: int) -> datetime:
        try:
            return self.anchor + number * self._period
        except OverflowError:  # An interval may be longer than time itself.
            return NEVER


@dataclass(frozen=True)
class Cron:
    """At times on the clock of a zone. Where that clock is moved, as cron on Debian does: what runs at fixed times
    runs once, at the first of two equal times and right after those that are left out; what runs at every minute or
    hour follows the time that really passes."""

    expression: str
    zone: str = "UTC"

    def newest(self, now: datetime) -> datetime | None:
        """The last tick that has come by now."""
        found = self._around(now)[0]
        return None if found == EPOCH else found

    def after(self, moment: datetime) -> datetime:
        """The first tick after this moment."""
        return self._around(moment)[1]

    def between(self, start: datetime, end: datetime, limit: int) -> list[datetime]:
        """The ticks from `start` on that come before `end`, the oldest first, so many at most."""
        found: list[datetime] = []
        for tick in self._following(max(start, EPOCH) - timedelta(microseconds=1)):
            if tick >= end or len(found) >= limit:
                break
            found.append(tick)
        return found

    def count_between(self, after: datetime, before: datetime) -> int:
        """How many ticks lie between the two, without either; `COUNTED` also when there are more."""
        count = 0
        for tick in islice(self._following(after), COUNTED):
            if tick >= before:
                break
            count += 1
        return count

    def period(self, now: datetime) -> timedelta:
        """From one tick to the next, as it is at this time."""
        newest, following = self._around(now)
        return following - newest

    def _around(self, moment: datetime) -> tuple[datetime, datetime]:
        """The last tick by this moment and the first after it; the epoch and NEVER where there is none."""
        known = _known.get(self)
        if known is not None and known[0] <= moment < known[1]:
            return known
        newest = EPOCH
        for span in _LOOKING_BACK:
            for tick in self._following(max(moment - span, EPOCH)):
                if tick > moment:
                    break
                newest = tick
            if newest > EPOCH:
                break
        found = newest, next(self._following(moment), NEVER)
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[self] = found
        return found

    def _following(self, moment: datetime) -> Iterator[datetime]:
        """Ticks after the moment, each later than the one before: of wall-clock times that do not exist, several
        become one."""
        last = moment
        for found in _Wall(self.expression, moment.astimezone(_zone(self.zone))):
            tick = found.astimezone(timezone.utc)
            if tick > last:
                last = tick
                yield tick


class _Wall(CronSim):
    """Looks for the hour by the clock on the wall. From one full hour to the next it is not an hour everywhere: where a
    clock is moved by half of one, the library would go on at half past, and leave out what comes before."""

    def advance_hour(self) -> bool:
        if self.dt.hour in self.hours:
            return False
        day = self.dt.date()
        while self.dt.hour not in self.hours and self.dt.date() == day:
            self.tick(seconds=3600 - 60 * self.dt.minute - self.dt.second)
        return True


Timing = Every | Cron

_known: dict[Cron, tuple[datetime, datetime]] = {}
"""The newest answer for each expression: it holds until its next tick."""
_MOST_KNOWN = 10_000


def parse_cron(text: str, zone: str) -> Cron:
    """The times of a cron expression with five fields, checked.

    >>> parse_cron("0  9 * * mon-fri", "Asia/Tokyo")
    Cron(expression='0 9 * * MON-FRI', zone='Asia/Tokyo')
    """
    fields = text.upper().split()
    if len(text) > _LONGEST_EXPRESSION:
        raise SyntaxFault(f"A cron expression has at most {_LONGEST_EXPRESSION} characters.", hint=_HINT)
    if len(fields) != _FIELDS:
        raise SyntaxFault(f"A cron expression has five fields; '{text}' has {len(fields)}.", hint=_HINT)
    _zone(zone)
    cron = Cron(" ".join(fields), zone)
    try:
        first = next(cron._following(EPOCH), None)
    # Besides its own errors, the library trips over some odd texts.
    except (CronSimError, ValueError, TypeError, AssertionError) as error:
        raise SyntaxFault(f"'{text}' is no cron expression: {str(error) or 'not understood'}.", hint=_HINT) from None
    if first is None:
        raise SyntaxFault(f"'{text}' never comes: no day is like that.", hint=_HINT)
    return cron


def timing_of_table(table: DynamicTable) -> Timing | None:
    """The times of its own; None for those that are refreshed with the tables that read them, and by hand only."""
    if table.target_lag == "DOWNSTREAM":
        return None
    wanted = [] if table.interval_seconds is None else [table.interval_seconds]
    if table.target_lag is not None:
        # Half of it: the refresh that is to hold the lag begins after its tick, and takes its time.
        wanted.append(max(_SMALLEST_SECONDS, table.target_lag // 2))
    return Every(min(wanted), table.start_with or EPOCH) if wanted else None


def timing_of_task(task: Task) -> Timing | None:
    """The times of its own; None for those that follow others, and run by hand only."""
    if task.cron is not None:
        return parse_cron(task.cron, task.zone or "UTC")
    return None if task.interval_seconds is None else Every(task.interval_seconds)


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return timezone.utc  # The library takes a shorter way there.
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # A folder of zones is found, and is none.
        raise BadSetting(f"There is no time zone '{name}'.", hint="Write one as Asia/Tokyo or UTC.") from None
