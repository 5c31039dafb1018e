"""When things run: intervals, cron expressions, and clocks that are moved twice a year."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import BadSetting, SyntaxFault
from headrace.schedule import timing
from headrace.schedule.timing import (
    COUNTED,
    EPOCH,
    NEVER,
    Cron,
    Every,
    Timing,
    parse_cron,
    timing_of_table,
    timing_of_task,
)
from unit.schedule_world import a_table, a_task

UTC = timezone.utc
NOON = datetime(2025, 6, 15, 12, tzinfo=UTC)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo", "Asia/Kolkata", "Africa/Cairo", "America/Santiago")


def at(text: str, zone: str = "UTC") -> datetime:
    """A time on the clock of the zone, in UTC; `*` is the second of two equal ones."""
    naive = datetime.fromisoformat(text.removesuffix("*"))
    return naive.replace(tzinfo=ZoneInfo(zone), fold=int(text.endswith("*"))).astimezone(UTC)


def local(ticks: list[datetime], zone: str) -> list[str]:
    return [tick.astimezone(ZoneInfo(zone)).strftime("%d %H:%M%z") for tick in ticks]


# ---- every so many seconds


def test_ticks_of_an_interval() -> None:
    minute = Every(60)
    assert minute.newest(NOON) == NOON
    assert minute.newest(NOON + timedelta(seconds=59, microseconds=999_999)) == NOON
    assert minute.after(NOON) == NOON + timedelta(minutes=1)
    assert minute.after(NOON - timedelta(microseconds=1)) == NOON
    assert minute.period(NOON) == timedelta(minutes=1)


def test_tables_with_one_interval_share_their_ticks() -> None:
    first = timing_of_table(a_table("a", interval_seconds=300, created_at=NOON + timedelta(seconds=17)))
    second = timing_of_table(a_table("b", interval_seconds=300, created_at=NOON + timedelta(seconds=170)))
    assert first == second == Every(300, EPOCH)


def test_nothing_before_the_anchor() -> None:
    daily = Every(86400, NOON)
    assert daily.newest(NOON - timedelta(microseconds=1)) is None
    assert daily.newest(NOON) == NOON
    assert daily.after(NOON - timedelta(days=365)) == NOON
    assert daily.after(NOON) == NOON + timedelta(days=1)
    assert daily.count_between(NOON - timedelta(days=9), NOON) == 0
    assert daily.count_between(NOON - timedelta(days=9), NOON + timedelta(seconds=1)) == 1
    assert daily.between(NOON - timedelta(days=9), NOON, 9) == []
    assert daily.between(NOON - timedelta(days=9), NOON + timedelta(days=1), 9) == [NOON]


def test_between_has_its_start_and_not_its_end() -> None:
    minute = Every(60)
    assert minute.between(NOON, NOON + timedelta(minutes=3), 10) == [NOON + timedelta(minutes=n) for n in range(3)]
    assert minute.between(NOON, NOON + timedelta(minutes=3), 2) == [NOON, NOON + timedelta(minutes=1)]
    assert minute.between(NOON, NOON, 10) == minute.between(NOON, NOON - timedelta(days=1), 10) == []
    assert minute.between(NOON, NOON + timedelta(minutes=3), 0) == []


def test_count_between_has_neither() -> None:
    minute = Every(60)
    assert minute.count_between(NOON, NOON + timedelta(minutes=3)) == 2
    assert minute.count_between(NOON - timedelta(microseconds=1), NOON + timedelta(minutes=3, microseconds=1)) == 4
    assert minute.count_between(NOON, NOON) == minute.count_between(NOON, NOON - timedelta(days=1)) == 0


def test_an_interval_longer_than_time() -> None:
    endless = Every(86400 * 999_999_999)
    assert endless.newest(NOON) == EPOCH
    assert endless.after(NOON) == NEVER
    assert endless.count_between(NOON, NEVER) == 0
    assert endless.between(EPOCH, NEVER, 5) == [EPOCH]


def test_no_interval_of_nothing() -> None:
    with pytest.raises(BadSetting):
        Every(0)


moments = st.datetimes(datetime(1995, 1, 1), datetime(2060, 1, 1)).map(lambda moment: moment.replace(tzinfo=UTC))


def agree(timing: Timing, moment: datetime) -> None:
    """All ways to ask for ticks must give the same ones."""
    newest, following = timing.newest(moment), timing.after(moment)
    assert following > moment
    if newest is not None:
        assert newest <= moment
        assert timing.newest(newest) == newest
        assert timing.newest(following - timedelta(microseconds=1)) == newest
        assert timing.after(newest) == following
        assert timing.count_between(newest, following) == 0
        assert timing.between(newest, following, 9) == [newest]
    end = following + 3 * timing.period(following)
    ticks = [following]
    while (tick := timing.after(ticks[-1])) < end and len(ticks) < 20:
        ticks.append(tick)
    assert timing.between(moment + timedelta(microseconds=1), end, len(ticks)) == ticks
    assert timing.count_between(moment, ticks[-1]) == len(ticks) - 1


@given(st.integers(1, 10**6), moments, moments)
def test_intervals_agree_with_themselves(seconds: int, anchor: datetime, moment: datetime) -> None:
    agree(Every(seconds, anchor), moment)


# ---- cron


EXPRESSIONS = (
    "* * * * *",
    "*/15 * * * *",
    "30 * * * *",
    "0 9 * * MON-FRI",
    "30 2 * * *",
    "0,30 1-3 * * *",
    "5 0 * * *",
    "*/20 2 * * *",
    "0 */6 * * *",
    "0 0 1 * *",
    "0 12 L * *",
    "15 10 * * 5L",
    "0 0 29 2 *",
    "0 0 1,15 * MON",
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(EXPRESSIONS), st.sampled_from(ZONES), moments)
def test_cron_agrees_with_itself(expression: str, zone: str, moment: datetime) -> None:
    agree(parse_cron(expression, zone), moment)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(EXPRESSIONS), st.sampled_from(ZONES), st.integers(-180, 180), st.data())
def test_cron_agrees_with_itself_around_changes_of_the_clock(
    expression: str, zone: str, minutes: int, data: st.DataObject
) -> None:
    change = data.draw(st.sampled_from(changes(zone))) if zone != "UTC" else NOON
    agree(parse_cron(expression, zone), change + timedelta(minutes=minutes))


def changes(zone: str) -> list[datetime]:
    """The hours in which the zone's clock was moved in 2023 to 2025, or some others."""
    hours = [datetime(2023, 1, 1, tzinfo=UTC) + timedelta(hours=n) for n in range(3 * 365 * 24)]
    clock = ZoneInfo(zone)
    found = [
        hour for hour, following in itertools.pairwise(hours)
        if hour.astimezone(clock).utcoffset() != following.astimezone(clock).utcoffset()
    ]  # fmt: skip
    return found or hours[:1]


@pytest.mark.parametrize("zone", ZONES)
def test_every_minute_is_a_tick_in_every_zone(zone: str) -> None:
    start = changes(zone)[0] - timedelta(hours=2)
    wanted = [start + timedelta(minutes=n) for n in range(300)]
    assert parse_cron("* * * * *", zone).between(start, start + timedelta(hours=5), 1000) == wanted


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Africa/Cairo", "America/Santiago"])
@pytest.mark.parametrize("expression", ["30 2 * * *", "30 0 * * *", "15 1 * * *", "0 3 * * *", "0 23 * * *"])
def test_once_a_day_is_once_a_day_also_when_the_clock_is_moved(expression: str, zone: str) -> None:
    cron = parse_cron(expression, zone)
    clock = ZoneInfo(zone)
    for change in changes(zone):
        days = [(change.astimezone(clock).date() + timedelta(days=n)) for n in range(-2, 3)]
        start, end = (
            datetime.combine(day, datetime.min.time(), clock) for day in (days[0], days[-1] + timedelta(days=1))
        )
        ticks = cron.between(start.astimezone(UTC), end.astimezone(UTC), 100)
        assert [tick.astimezone(clock).date() for tick in ticks] == days


def test_spring_in_berlin() -> None:
    """On 30 March 2025 the clock goes from 2:00 to 3:00."""
    start, end = at("2025-03-30T00:00", "Europe/Berlin"), at("2025-03-31T00:00", "Europe/Berlin")
    fixed = parse_cron("30 2 * * *", "Europe/Berlin").between(start, end, 9)
    assert local(fixed, "Europe/Berlin") == ["30 03:00+0200"]  # A time that is left out comes right after.
    hourly = parse_cron("30 * * * *", "Europe/Berlin").between(start, at("2025-03-30T05:00", "Europe/Berlin"), 9)
    assert local(hourly, "Europe/Berlin") == ["30 00:30+0100", "30 01:30+0100", "30 03:30+0200", "30 04:30+0200"]
    several = parse_cron("0,30 2,3 * * *", "Europe/Berlin").between(start, end, 9)
    assert local(several, "Europe/Berlin") == ["30 03:00+0200", "30 03:30+0200"]  # Those that meet are one.


def test_autumn_in_berlin() -> None:
    """On 26 October 2025 the clock goes from 3:00 back to 2:00."""
    zone = "Europe/Berlin"
    start, end = at("2025-10-26T00:00", zone), at("2025-10-27T00:00", zone)
    cron = parse_cron("30 2 * * *", zone)
    assert local(cron.between(start, end, 9), zone) == ["26 02:30+0200"]  # Of two equal times the first.
    assert cron.after(at("2025-10-26T02:10*", zone)) == at("2025-10-27T02:30", zone)
    assert cron.newest(at("2025-10-26T02:40*", zone)) == at("2025-10-26T02:30", zone)
    half_hours = parse_cron("*/30 * * * *", zone).between(at("2025-10-26T02:00", zone), at("2025-10-26T03:00", zone), 9)
    assert local(half_hours, zone) == ["26 02:00+0200", "26 02:30+0200", "26 02:00+0100", "26 02:30+0100"]


def test_what_is_missed_is_counted_up_to_a_limit() -> None:
    assert Cron("* * * * *").count_between(NOON, NOON + timedelta(minutes=10)) == 9
    assert Cron("* * * * *").count_between(NOON, NOON + timedelta(days=400)) == COUNTED
    assert Every(60).count_between(NOON, NOON + timedelta(days=400)) == 400 * 24 * 60 - 1


def test_the_rarest() -> None:
    leap = parse_cron("0 0 29 2 *", "UTC")
    assert leap.newest(NOON) == at("2024-02-29T00:00")
    assert leap.after(NOON) == at("2028-02-29T00:00")
    rare = parse_cron("0 0 * 2 MON#5", "UTC")  # A February with five Mondays.
    assert (rare.newest(NOON), rare.after(NOON)) == (at("2016-02-29T00:00"), at("2044-02-29T00:00"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "has 0"),
        ("* * * *", "has 4"),
        ("0 0 9 * * *", "has 6"),  # No seconds.
        ("@daily", "has 1"),
        ("60 * * * *", "minute"),
        ("0 24 * * *", "hour"),
        ("0 0 30 2 *", "day-of-month"),
        ("0 0 * * MOO", "day-of-week"),
        ("*/0 * * * *", "minute"),
        ("9-5 * * * *", "minute"),
        ("a b c d e", "minute"),
        ("* " * 300, "at most 200"),
        ("9" * 190 + " * * * *", "minute"),
    ],
)
def test_what_is_no_cron_expression(text: str, told: str) -> None:
    with pytest.raises(SyntaxFault, match=told) as caught:
        parse_cron(text, "UTC")
    assert caught.value.hint is not None
    assert "0 9 * * MON-FRI" in caught.value.hint


@pytest.mark.parametrize(
    "zone", ["", "Mars/Olympus", "Europe", "../etc/passwd", "/etc/passwd", "a\0b", "europe/berlin "]
)
def test_what_is_no_zone(zone: str) -> None:
    with pytest.raises(BadSetting, match="no time zone"):
        parse_cron("* * * * *", zone)


@settings(max_examples=500, deadline=None)
@given(st.lists(st.text(alphabet="0123456789*/-,#LWMONJAN?²x", min_size=1, max_size=8), min_size=5, max_size=5))
def test_junk_is_refused_or_has_ticks(fields: list[str]) -> None:
    try:
        cron = parse_cron(" ".join(fields), "Europe/Berlin")
    except SyntaxFault:
        return
    assert cron.after(NOON) > NOON


# ---- of tables and tasks


@pytest.mark.parametrize(
    ("settings", "timing"),
    [
        ({}, None),
        ({"interval_seconds": 300}, Every(300)),
        ({"interval_seconds": 300, "start_with": NOON}, Every(300, NOON)),
        ({"start_with": NOON}, None),
        ({"target_lag": 600}, Every(300)),
        ({"target_lag": 601}, Every(300)),
        ({"target_lag": 60}, Every(60)),
        ({"target_lag": 600, "start_with": NOON}, Every(300, NOON)),
        ({"target_lag": 600, "interval_seconds": 120}, Every(120)),
        ({"target_lag": 600, "interval_seconds": 3600}, Every(300)),
        ({"target_lag": "DOWNSTREAM"}, None),
        ({"target_lag": "DOWNSTREAM", "interval_seconds": 60}, None),
    ],
)
def test_times_of_a_table(settings: dict[str, object], timing: Timing | None) -> None:
    assert timing_of_table(a_table("t", **settings)) == timing


def test_times_of_a_task() -> None:
    assert timing_of_task(a_task("t")) is None
    assert timing_of_task(a_task("t", interval_seconds=60)) == Every(60)
    cron = a_task("t", cron="0 9 * * mon", zone="Asia/Tokyo")
    assert timing_of_task(cron) == Cron("0 9 * * MON", "Asia/Tokyo")
    assert timing_of_task(a_task("t", cron="0 9 * * *")) == Cron("0 9 * * *", "UTC")
    with pytest.raises(BadSetting):
        timing_of_task(a_task("t", cron="0 9 * * *", zone="Moon"))


@pytest.mark.parametrize("expression", ["*/7 2 * * *", "*/20 1-3 * * *", "* 2 * * *", "*/15 */2 * * *", "0 */3 * * *"])
@pytest.mark.parametrize("day", [datetime(2025, 4, 6), datetime(2025, 10, 5)])
def test_a_clock_that_is_moved_by_half_an_hour(expression: str, day: datetime) -> None:
    """In April 02:00 is 01:30 again, in October it is 02:30 at once. Wherever one begins to count, the ticks are the
    minutes that the clock on the wall shows."""
    zone = ZoneInfo("Australia/Lord_Howe")
    start = day.replace(tzinfo=zone).astimezone(timezone.utc)
    minutes, hours = (parse_cron(expression, "UTC").expression.split()[place] for place in (0, 1))

    def fits(text: str, value: int) -> bool:
        span, _, step = text.partition("/")
        first, _, last = span.partition("-")
        in_span = span == "*" or int(first) <= value <= int(last or first)
        return in_span and (not step or value % int(step) == 0)

    moments = [start + timedelta(minutes=minute) for minute in range(6 * 60)]
    walls = [(moment, moment.astimezone(zone)) for moment in moments]
    expected = [moment for moment, wall in walls if fits(minutes, wall.minute) and fits(hours, wall.hour)]
    cron = parse_cron(expression, "Australia/Lord_Howe")
    assert cron.between(start, moments[-1] + timedelta(minutes=1), 1000) == expected
    for moment in moments:
        timing._known.clear()
        following = [tick for tick in expected if tick > moment]
        if following:
            assert cron.after(moment) == following[0], moment
