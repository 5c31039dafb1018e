"""The ranges that the keys of a changeset are cut into, and where they may be applied."""

from __future__ import annotations

from datetime import date
from itertools import pairwise

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.ivm.narrowing import passed_up, ranges, spans
from headrace.plan.nodes import Aggregate, Column, Expression, Filter, InnerJoin, OuterJoin, Project, Relation


@settings(deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=50))
def test_every_value_is_in_a_range_and_ranges_are_few_and_in_order(values: list[int]) -> None:
    found = ranges(values)
    assert all(any(low <= value <= high for low, high in found) for value in values)
    assert all(low in values and high in values for low, high in found)
    assert len(found) <= 8
    assert all(first[1] < second[0] for first, second in pairwise(found))


def test_new_and_old_orders_are_two_ranges() -> None:
    assert ranges([*range(100, 200), *range(6_000_000, 6_000_050)]) == [(100, 199), (6_000_000, 6_000_049)]


def test_files_are_chosen_by_more_ranges_than_rows() -> None:
    keys = [place * 1000 for place in range(40)]
    assert len(ranges(keys)) == 8
    assert spans(pa.chunked_array([keys])) == [(key, key) for key in keys]


def test_the_ranges_of_values() -> None:
    assert spans(pa.chunked_array([[3, 1, 1000]])) == [(1, 3), (1000, 1000)]
    days = [date(2024, 1, 1), date(2024, 1, 2)]
    assert spans(pa.chunked_array([days])) == [(days[0], days[1])]
    assert spans(pa.chunked_array([[]], type=pa.int64())) == [], "no file has a row that matches nothing"
    assert spans(pa.chunked_array([[1, None]])) is None, "NULL is in no range"
    assert spans(pa.chunked_array([["a"]])) is None
    assert spans(pa.chunked_array([[date(1, 1, 1)]])) is None


def _relation(*names: str) -> Relation:
    return Relation(source=0, columns=tuple((name, Column(name=name, type="int")) for name in names))


def test_columns_that_come_out_as_they_are() -> None:
    left, right = _relation("a", "b"), _relation("c")
    kept = Project(
        child=Filter(child=left, condition="b > 1"),
        expressions=(Expression(name="a", text="a", type="int"), Expression(name="d", text="b + 1", type="int")),
    )
    assert passed_up(kept) == {"a"}
    sides = {"left": kept, "right": right, "equalities": (("a", "c"),), "null_safe_equalities": (), "condition": None}
    assert passed_up(InnerJoin(**sides)) == {"a", "c"}
    assert passed_up(OuterJoin(**sides)) == set(), "a row without a match stays, whatever is read of the other side"
    assert passed_up(Aggregate(child=left, keys=(), calls=())) == set()
