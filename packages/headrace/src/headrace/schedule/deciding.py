"""What is to be done now, as data: pure functions of what is defined, how far it has come, what is pending, and the
time. The scheduler does the steps, and asks again.

A run is due at the newest tick that has come and is later than the item's mark; older ticks are done with it. Where the
clock was put back, ticks come again: those that a task has had are not due. A run begins when nothing upstream has one
pending at the same tick or an older one. What failed, was skipped or is suspended upstream makes it be skipped, and so
on downwards; other branches go on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType

from headrace.catalog.records import Mark, MarkState
from headrace.names import TableName
from headrace.schedule.items import Item

CLOCK_SLACK = timedelta(minutes=10)
"""A clock that was put back by less is waited for."""

_BY_UPSTREAM = "Its upstream "
_WAS_SKIPPED = " was skipped: "


@dataclass(frozen=True)
class Pending:
    """A run of an item that has not ended."""

    tick: datetime
    merged: int = 0
    begun: bool = False
    """Whether its first attempt was made: from then on it ends by itself."""


@dataclass(frozen=True)
class Begin:
    """Start the run now."""

    item: str
    tick: datetime
    merged: int


@dataclass(frozen=True)
class Wait:
    """The run is due and waits for these; for itself, when it is being run by hand."""

    item: str
    tick: datetime
    merged: int
    on: tuple[str, ...]


@dataclass(frozen=True)
class Skip:
    """Do not do the run, for this reason."""

    item: str
    tick: datetime
    merged: int
    reason: str


@dataclass(frozen=True)
class Reset:
    """The mark lies too far in the future: put it where the clock is now."""

    item: str
    tick: datetime
    was: datetime


@dataclass(frozen=True)
class Forget:
    """The item is gone before its run began."""

    item: str


Step = Begin | Wait | Skip | Reset | Forget


def decide(
    items: Mapping[str, Item],
    marks: Mapping[str, Mark],
    pending: Mapping[str, Pending],
    now: datetime,
    busy: Set[str] = frozenset(),
    had: Mapping[str, Sequence[datetime]] = MappingProxyType({}),
) -> list[Step]:
    """The steps, upstream first. `items` are in that order, too; those in `busy` are being run by hand. `had` are
    ticks, in their order, that were run before the clock was put back behind them."""
    gone: list[Step] = [Forget(each) for each, run in pending.items() if each not in items and not run.begun]
    resets = _resets(items, marks, pending, now)
    runs = {each: run for each, run in pending.items() if each in items}
    runs |= _due(items, marks, runs, now, had)
    return [*gone, *resets, *_settled(items, marks, runs, busy)]


def floor_of(item: Item, mark: Mark | None, now: datetime, had: Sequence[datetime] = ()) -> datetime:
    """Only ticks after this moment are still to be run. Of those that it has had, the newest that has come again
    counts."""
    if mark is None:
        return item.times_from
    come_again = had[: bisect_right(had, now)]
    floor = max((mark.tick, *come_again[-1:]))
    # A clock that was wrong when the times were set must not hold them up for long.
    return floor if _is_far_ahead(item, item.times_from, now) else max(floor, item.times_from)


def _is_far_ahead(item: Item, moment: datetime, now: datetime) -> bool:
    """Whether the clock must have been wrong when it showed this."""
    if moment <= now + CLOCK_SLACK:
        return False
    if not item.roots:
        return item.follows  # What is done by hand has no times to go by.
    return moment - now > 2 * min(root.period(now) for root in item.roots)


def _resets(
    items: Mapping[str, Item], marks: Mapping[str, Mark], pending: Mapping[str, Pending], now: datetime
) -> list[Reset]:
    found = []
    for item in items.values():
        floor = floor_of(item, marks.get(item.id), now)
        if item.id not in pending and _is_far_ahead(item, floor, now):
            found.append(Reset(item.id, item.newest_tick(now) or now, floor))
    return found


def _due(
    items: Mapping[str, Item],
    marks: Mapping[str, Mark],
    pending: Mapping[str, Pending],
    now: datetime,
    had: Mapping[str, Sequence[datetime]],
) -> dict[str, Pending]:
    """New runs: first those by the clock, then those before their readers, then those after what they follow."""
    idle = [item for item in items.values() if not item.suspended and item.id not in pending]
    new: dict[str, Pending] = {}

    def add(item: Item, tick: datetime | None) -> None:
        floor = floor_of(item, marks.get(item.id), now, had.get(item.id, ()))
        if tick is not None and tick > floor:
            new[item.id] = Pending(tick, item.count_between(floor, tick))

    for item in idle:
        if item.timing is not None:
            add(item, item.timing.newest(now))
    for item in reversed(idle):
        if item.downstream:
            waiting = (new.get(each) or pending.get(each) for each in item.readers)
            add(item, max((run.tick for run in waiting if run is not None and not run.begun), default=None))
    for item in idle:
        if item.follows:
            ticks = (_latest(each, new, pending, marks) for each in item.upstream)
            # A mark may lie ahead of a clock that was put back.
            add(item, max((tick for tick in ticks if tick is not None and tick <= now), default=None))
    return new


def _latest(
    item: str, new: Mapping[str, Pending], pending: Mapping[str, Pending], marks: Mapping[str, Mark]
) -> datetime | None:
    """The newest tick at which the item ran, runs or will run now."""
    run = new.get(item) or pending.get(item)
    if run is not None:
        return run.tick
    mark = marks.get(item)
    return None if mark is None else mark.tick


def _settled(
    items: Mapping[str, Item], marks: Mapping[str, Mark], runs: Mapping[str, Pending], busy: Set[str]
) -> list[Step]:
    """What becomes of each run that has not begun."""
    steps: list[Step] = []
    waiting = dict(runs)
    skipped: dict[str, Skip] = {}
    for item in items.values():
        run = waiting.get(item.id)
        if run is None or run.begun:
            continue
        reason = _own_reason(item) or _reason_upstream(item, run.tick, items, marks, waiting, skipped)
        if reason is not None:
            skipped[item.id] = Skip(item.id, run.tick, run.merged, reason)
            steps.append(skipped[item.id])
            del waiting[item.id]
            continue
        on = [each for each in item.upstream if _blocks(waiting.get(each), run.tick)]
        on += [item.id] if item.id in busy else []
        if on:
            steps.append(Wait(item.id, run.tick, run.merged, tuple(sorted(on))))
        else:
            steps.append(Begin(item.id, run.tick, run.merged))
    return steps


def _blocks(run: Pending | None, tick: datetime) -> bool:
    return run is not None and run.tick <= tick


def _own_reason(item: Item) -> str | None:
    if item.problem is not None:
        return item.problem
    return f"It is suspended{_because(item.suspended_reason)}" if item.suspended else None


def _reason_upstream(
    item: Item,
    tick: datetime,
    items: Mapping[str, Item],
    marks: Mapping[str, Mark],
    waiting: Mapping[str, Pending],
    skipped: Mapping[str, Skip],
) -> str | None:
    """Why the run must be skipped."""
    for source in sorted((items[each] for each in item.upstream), key=lambda source: source.name):
        skip = skipped.get(source.id)
        if skip is not None and skip.tick == tick:
            return reason_below(source.name, "SKIPPED", skip.reason)
        if _blocks(waiting.get(source.id), tick):
            continue
        mark = marks.get(source.id)
        ended = None if mark is None or mark.tick != tick else mark
        if ended is not None and ended.state in ("FAILED", "SKIPPED"):
            return reason_below(source.name, ended.state, ended.reason)
        if source.suspended and (ended is None or ended.state != "SUCCEED"):
            return f"{_BY_UPSTREAM}{source.name} is suspended{_because(source.suspended_reason)}"
    return None


def reason_below(upstream: TableName, state: MarkState, reason: str | None) -> str:
    """Why what comes after a run that did not succeed is skipped, with what first caused that: a long chain of names
    helps nobody.

    >>> reason_below(TableName("main", "s", "b"), "SKIPPED", "Its upstream main.s.a failed: No such column.")
    'Its upstream main.s.b was skipped: main.s.a failed: No such column.'
    """
    if state == "FAILED":
        return f"{_BY_UPSTREAM}{upstream} failed{_because(reason)}"
    return f"{_BY_UPSTREAM}{upstream}{_WAS_SKIPPED}{_cause(reason or 'nobody said why.')}"


def cause_of(reason: str) -> str:
    """What first caused a skip, without the words of any error: the same as long as the same is wrong.

    >>> cause_of("Its upstream main.s.b was skipped: main.s.a failed: No such column.")
    'main.s.a failed'
    """
    return _cause(reason).partition(": ")[0]


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else "."


def _cause(reason: str) -> str:
    """The part of a reason that stays the same from one item to the next."""
    if not reason.startswith(_BY_UPSTREAM):
        return reason
    told = reason.removeprefix(_BY_UPSTREAM)
    return told.partition(_WAS_SKIPPED)[2] or told
