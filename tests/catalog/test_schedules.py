from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import text

from catalog.examples import NOW, a_record, a_table, later
from headrace.catalog.database import Database
from headrace.catalog.records import Mark, RefreshRecord
from headrace.catalog.schedules import MarkStore
from headrace.catalog.store import Store
from headrace.errors import Bug


@pytest.fixture
def marks(database: Database) -> MarkStore:
    return MarkStore(database)


def a_mark(object_id: str = "t1", tick: datetime = NOW, **changes: Any) -> Mark:
    return Mark(**{"object_id": object_id, "tick": tick, "state": "CLAIMED", "at": later(1), **changes})


def ended(object_id: str = "t1", tick: datetime = NOW, **changes: Any) -> Mark:
    return a_mark(object_id, tick, **{"state": "SUCCEED", **changes})


def idle(job_id: str = "j1", **changes: Any) -> RefreshRecord:
    return a_record(job_id, **{"refresh_mode": "NO_DATA", **changes})


def history(database: Database) -> list[str]:
    return [record.job_id for record in Store(database).history()]


def test_a_new_database_has_no_marks(marks: MarkStore) -> None:
    assert marks.all() == []
    assert marks.claim([]) == marks.end([]) == marks.record_idle([], []) == frozenset()
    marks.reset([])
    marks.drop([])


def test_round_trip_in_utc(marks: MarkStore) -> None:
    tokyo = timezone(timedelta(hours=9))
    mark = a_mark(tick=NOW.astimezone(tokyo), at=later(1).astimezone(tokyo), failures=3, merged=7)
    assert marks.claim([mark]) == {"t1"}
    (found,) = marks.all()
    assert found == mark
    assert found.tick.utcoffset() == found.at.utcoffset() == timedelta(0)
    failed = ended(state="FAILED", failures=4, reason="a'\"\\\0ü", job_id="j")
    assert marks.end([failed]) == {"t1"}
    assert marks.all() == [failed]


def test_a_tick_is_claimed_once(marks: MarkStore) -> None:
    first = a_mark()
    assert marks.claim([first]) == {"t1"}
    assert marks.claim([a_mark(at=later(2))]) == frozenset()
    assert marks.claim([a_mark(tick=later(-60), at=later(2))]) == frozenset()
    assert marks.all() == [first]
    assert marks.claim([first]) == {"t1"}  # The very same: who does not know whether it was written may ask again.
    assert marks.claim([a_mark(tick=later(60))]) == {"t1"}


def test_a_microsecond_makes_a_tick(marks: MarkStore) -> None:
    assert marks.claim([a_mark()]) == {"t1"}
    assert marks.claim([a_mark(tick=NOW + timedelta(microseconds=1))]) == {"t1"}


@pytest.mark.parametrize("state", ["SUCCEED", "FAILED", "SKIPPED"])
def test_what_has_ended_is_not_claimed_again(marks: MarkStore, state: str) -> None:
    marks.claim([a_mark()])
    assert marks.end([ended(state=state)]) == {"t1"}
    assert marks.claim([a_mark(at=later(5))]) == frozenset()
    assert marks.end([ended(state="FAILED", at=later(9))]) == frozenset()  # The first end stands.
    assert [mark.state for mark in marks.all()] == [state]


def test_an_end_needs_no_claim(marks: MarkStore) -> None:
    assert marks.end([ended(state="SKIPPED")]) == {"t1"}
    assert marks.end([ended(tick=later(60))]) == {"t1"}
    assert marks.end([ended(tick=later(30))]) == frozenset()
    assert [mark.tick for mark in marks.all()] == [later(60)]


def test_a_late_end_does_not_go_back(marks: MarkStore) -> None:
    marks.claim([a_mark()])
    marks.claim([a_mark(tick=later(60))])
    assert marks.end([ended()]) == frozenset()
    assert [(mark.tick, mark.state) for mark in marks.all()] == [(later(60), "CLAIMED")]


def test_claims_and_ends_are_told_apart(marks: MarkStore) -> None:
    with pytest.raises(Bug):
        marks.claim([ended()])
    with pytest.raises(Bug):
        marks.end([a_mark()])
    with pytest.raises(Bug):
        marks.record_idle([], [a_mark()])
    assert marks.all() == []


def test_of_many_some_are_claimed(marks: MarkStore) -> None:
    marks.claim([a_mark("b")])
    found = marks.claim([a_mark(name, at=later(2)) for name in ("c", "b", "a")])
    assert found == {"a", "c"}
    assert [mark.object_id for mark in marks.all()] == ["a", "b", "c"]


def test_more_than_fit_into_one_statement(marks: MarkStore) -> None:
    many = [a_mark(f"t{number:05}") for number in range(2500)]
    assert len(marks.claim(many)) == 2500
    assert len(marks.end([ended(mark.object_id) for mark in many])) == 2500
    marks.drop([mark.object_id for mark in many[1:]])
    assert [mark.object_id for mark in marks.all()] == ["t00000"]


def test_a_wave_without_work(marks: MarkStore, database: Database) -> None:
    records = [idle(f"j{number}", table_id=f"t{number}", tick=NOW, completion_target=later(60)) for number in range(5)]
    wave = [ended(f"t{number}", job_id=f"j{number}") for number in range(5)]
    assert len(marks.record_idle(records, wave)) == 5
    store = Store(database)
    assert store.refresh("j3") == records[3]
    assert sorted(history(database)) == ["j0", "j1", "j2", "j3", "j4"]
    assert {mark.state for mark in marks.all()} == {"SUCCEED"}


def test_history_has_only_the_ticks_that_were_ours(marks: MarkStore, database: Database) -> None:
    marks.claim([a_mark("t2", later(60))])
    found = marks.record_idle([idle("j1"), idle("j2", table_id="t2")], [ended("t1"), ended("t2")])
    assert found == {"t1"}
    assert history(database) == ["j1"]


def test_a_claimed_tick_may_turn_out_to_have_no_work(marks: MarkStore, database: Database) -> None:
    marks.claim([a_mark()])
    assert marks.record_idle([idle()], [ended()]) == {"t1"}
    assert history(database) == ["j1"]


@pytest.mark.parametrize("changes", [{"refresh_mode": "FULL"}, {"refresh_mode": None}, {"state": "FAILED"}])
def test_only_refreshes_without_work_are_recorded_so(marks: MarkStore, changes: dict[str, Any]) -> None:
    with pytest.raises(Bug, match="had something to do"):
        marks.record_idle([idle(**changes)], [ended()])
    assert marks.all() == []


def test_all_of_a_wave_or_nothing(marks: MarkStore, database: Database) -> None:
    create = "CREATE TRIGGER no BEFORE INSERT ON refreshes BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
    if database.is_postgres:
        create = "ALTER TABLE refreshes ADD CONSTRAINT no CHECK (job_id <> 'j1')"
    database.write(lambda connection: connection.execute(text(create)))
    with pytest.raises(Exception, match=r"disk is full|constraint"):
        marks.record_idle([idle()], [ended()])
    assert marks.all() == []


def test_reset_goes_back_and_makes(marks: MarkStore) -> None:
    marks.claim([a_mark(tick=later(6000))])
    back = ended(tick=later(-60), failures=2)
    marks.reset([back, ended("t2")])
    assert marks.all() == [back, ended("t2")]
    assert marks.claim([a_mark()]) == {"t1"}


def test_drop(marks: MarkStore) -> None:
    marks.claim([a_mark("a"), a_mark("b")])
    marks.drop({"a", "gone"})
    assert [mark.object_id for mark in marks.all()] == ["b"]
    assert marks.claim([a_mark("a")]) == {"a"}


def test_racing_for_a_tick_one_wins(marks: MarkStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda number: marks.claim([a_mark(merged=number)]), range(8)))
    assert sum(map(bool, won)) == 1
    assert marks.all()[0].merged == [bool(each) for each in won].index(True)


def test_racing_waves_share_no_tick_and_do_not_deadlock(marks: MarkStore) -> None:
    names = [f"t{number}" for number in range(40)]

    def race(number: int) -> list[tuple[str, datetime]]:
        order = names if number % 2 else names[::-1]
        found = []
        for step in range(6):
            tick = later(step)
            found += [(name, tick) for name in marks.claim([a_mark(name, tick, merged=number) for name in order])]
        return found

    with ThreadPoolExecutor(6) as pool:
        claims = [claim for part in pool.map(race, range(6)) for claim in part]
    assert len(set(claims)) == len(claims)
    assert {mark.tick for mark in marks.all()} == {later(5)}


def test_a_time_without_a_zone_is_a_bug(marks: MarkStore) -> None:
    with pytest.raises(Bug):
        marks.claim([a_mark(tick=NOW.replace(tzinfo=None))])


def test_marks_outlive_nothing_by_themselves(marks: MarkStore, database: Database) -> None:
    """They are no part of the table: whoever drops that drops them, too, and until then they harm nobody."""
    store = Store(database)
    store.put_table(a_table())
    marks.claim([a_mark()])
    store.drop_table("t1")
    assert len(marks.all()) == 1


def test_the_refresh_that_suspends_its_table_says_so(marks: MarkStore, database: Database) -> None:
    store = Store(database)
    failed = a_record(state="FAILED", error_message="boom")
    store.finish_refresh(failed)
    store.finish_refresh(a_record("j2", table_id="t2", state="FAILED"))
    assert marks.end([ended(state="FAILED", failures=5, job_id="j1")], suspends="Five failed.") == {"t1"}
    assert store.refresh("j1") == failed.model_copy(update={"suspended_reason": "Five failed."})
    # Neither another table's, nor one that nobody knows.
    for job in ("j2", "no", None):
        assert marks.end([ended(tick=later(60), job_id=job)], suspends="Five failed.")
        marks.reset([a_mark()])
    assert store.history(table_id="t2")[0].suspended_reason is None
