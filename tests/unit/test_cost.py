"""The choice between applying changes and computing all rows, from made-up histories."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.examples import a_record
from headrace.catalog.records import Profile
from headrace.refresh.cost import RETRY_AFTER, Estimate, Past, Work, estimate, past_of
from headrace.refresh.planner import Decision, weighed
from headrace.statements.explaining import estimates

WHOLE = Past(incremental=False, seconds=10.0, changed_rows=None, source_rows=1_000_000, by_choice=False)
CHOSEN = Past(incremental=False, seconds=10.0, changed_rows=500_000, source_rows=1_000_000, by_choice=True)
INCREMENTAL = Decision("INCREMENTAL", None, (), ())


def _past(changed_rows: int, seconds: float, *, insert_only: bool = True) -> Past:
    return Past(True, seconds, changed_rows, 1_000_000, by_choice=False, insert_only=insert_only)


def _work(changed_rows: int, source_rows: int = 1_000_000, **other: bool) -> Work:
    return Work(changed_rows, source_rows, other.get("insert_only", True), other.get("joins", False))


@pytest.mark.parametrize(
    ("past", "changed", "source_rows"),
    [([], 10, 1_000_000), ([WHOLE], 10, 99_999), ([_past(10, 1.0)], 10, 1_000_000)],
    ids=["nothing known", "small sources", "never computed whole"],
)
def test_without_anything_to_go_by_there_is_no_estimate(past: list[Past], changed: int, source_rows: int) -> None:
    assert estimate(past, _work(changed, source_rows)) is None


def test_what_a_full_refresh_took_is_handed_on_when_it_is_long_ago() -> None:
    told = [replace(_past(10, 1.0), whole_seconds=seconds) for seconds in (8.0, 5.0)]
    found = estimate(told, _work(10, 2_000_000))
    assert found is not None
    assert found.full_seconds == 16.0, "the newest, for twice the rows"
    measured = estimate([*told, WHOLE], _work(10))
    assert measured is not None
    assert measured.full_seconds == 10.0


def test_an_attempt_that_had_to_be_given_up_tells_what_the_next_one_takes() -> None:
    profile = Profile(seconds=14.0, change_rows=1_000, source_rows=1_000_000, generation=1, abandoned=True)
    given_up = a_record(state="SUCCEED", refresh_mode="FULL", profile=profile)
    found = estimate([*past_of([given_up], 1), WHOLE], _work(1_000, insert_only=False))
    assert found is not None
    assert (found.incremental_seconds, found.full_seconds, found.prefers_full) == (14.0, 10.0, True)


def test_what_making_state_tables_took_is_not_expected_again() -> None:
    made = replace(_past(1_000, 50.0, insert_only=False), made_states=True)
    found = estimate([made, WHOLE], _work(1_000, insert_only=False))
    assert found is not None
    assert not found.prefers_full, "the next one finds them there"
    found = estimate([_past(1_000, 2.0, insert_only=False), made, WHOLE], _work(1_000, insert_only=False))
    assert found is not None
    assert found.incremental_seconds == 2.0
    found = estimate([made, CHOSEN, made, WHOLE], _work(1_000, insert_only=False))
    assert found is not None
    assert found.prefers_full, "they never last until the next one"


def test_a_full_refresh_is_scaled_by_the_size_of_the_sources() -> None:
    found = estimate([WHOLE], _work(10, 2_000_000))
    assert found is not None
    assert found.full_seconds == 20.0


@pytest.mark.parametrize(
    ("past", "changed", "prefers_full"),
    [
        ([WHOLE], 1_000, False),
        ([WHOLE], 900_000, True),
        ([_past(90_000, 14.0), WHOLE], 100_000, True),
        ([_past(90_000, 2.0), WHOLE], 300_000, False),
        ([_past(100, 0.5), WHOLE], 5_000, False),
        ([_past(500_000, 3.0), WHOLE], 50_000, False),
    ],
    ids=["few", "nearly all", "measured slow", "measured fast", "measured for fewer", "measured for more"],
)
def test_the_choice(past: list[Past], changed: int, prefers_full: bool) -> None:
    found = estimate(past, _work(changed))
    assert found is not None
    assert found.prefers_full is prefers_full


def test_removals_and_joins_count_for_more_until_measured() -> None:
    def seconds(*past: Past, insert_only: bool, joins: bool) -> float:
        found = estimate([*past, WHOLE], _work(100_000, insert_only=insert_only, joins=joins))
        assert found is not None
        return found.incremental_seconds

    known = [seconds(insert_only=inserted, joins=joins) for joins in (False, True) for inserted in (True, False)]
    assert known == sorted(known)
    # What insertions took says little about removals of the same size.
    fast = _past(100_000, 0.5)
    assert seconds(fast, insert_only=True, joins=True) == 0.5
    assert seconds(fast, insert_only=False, joins=True) > 10
    assert seconds(fast, _past(90_000, 2.0, insert_only=False), insert_only=False, joins=True) == 2.0


def test_after_many_full_refreshes_by_choice_the_other_way_is_measured_again() -> None:
    often = [CHOSEN] * RETRY_AFTER
    again = estimate([*often, _past(500_000, 99.0), WHOLE], _work(500_000))
    not_yet = estimate([*often[1:], _past(500_000, 99.0), WHOLE], _work(500_000))
    assert again is not None
    assert not_yet is not None
    assert (again.prefers_full, not_yet.prefers_full) == (False, True)


def test_a_small_change_is_tried_before_anything_is_measured() -> None:
    quick = replace(WHOLE, seconds=0.8)

    def prefers_full(*past: Past, changed: int = 10) -> bool:
        found = estimate([*past, quick], _work(changed))
        assert found is not None
        return found.prefers_full

    assert not prefers_full(), "guessed to take a second, and never tried"
    assert prefers_full(changed=10_000), "that is no small change"
    assert prefers_full(_past(10, 3.0)), "measured"
    assert not prefers_full(_past(10, 0.3))
    made = replace(_past(10, 9.0), made_states=True)
    assert not prefers_full(made), "what making state tables took tells nothing"
    assert prefers_full(made, made)


def test_a_full_refresh_by_choice_says_why() -> None:
    found = weighed(INCREMENTAL, Estimate(12.0, 3.0, 500_000, 1_000_000), readers=list)
    assert (found.mode, found.full_by_choice) == ("FULL", True)
    assert found.reason == (
        "500,000 changed of 1,000,000 source rows: estimated 12.0 s incrementally, 3.0 s for all rows."
    )


def test_a_table_that_others_read_stays_incremental() -> None:
    found = weighed(INCREMENTAL, Estimate(12.0, 3.0, 500_000, 1_000_000), readers=lambda: ["main.public.report"])
    assert found.mode == "INCREMENTAL"
    assert found.reason is not None
    assert found.reason.endswith("Incremental all the same, because main.public.report reads the changes.")


def test_estimates_are_told_where_there_was_a_choice() -> None:
    """What all rows would take is kept for the next refreshes in any case."""
    assert estimates(Profile(estimated_full_seconds=2.0)) == []
    both = estimates(Profile(estimated_incremental_seconds=0.5, estimated_full_seconds=2.0))
    assert [(item, value) for _, item, value in both] == [
        ("estimated seconds, incremental", 0.5),
        ("estimated seconds, all rows", 2.0),
    ]


def test_what_mixed_changes_took_is_the_most_that_as_many_insertions_take() -> None:
    mixed = _past(1_000, 0.2, insert_only=False)
    quick = replace(WHOLE, seconds=0.8)
    found = estimate([mixed, quick], _work(1_000, joins=True))
    assert found is not None
    assert (found.incremental_seconds, found.prefers_full) == (0.2, False)
    found = estimate([_past(1_000, 0.1), mixed, quick], _work(1_000))
    assert found is not None
    assert found.incremental_seconds == 0.1, "measured with insertions"
    found = estimate([_past(1_000, 0.1), quick], _work(1_000, insert_only=False))
    assert found is not None
    assert found.incremental_seconds > 0.1, "the other way round it says nothing"
