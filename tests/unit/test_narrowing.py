"""The ranges that the keys of a changeset are cut into."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.ivm.narrowing import ranges


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=50))
def test_every_value_is_in_a_range_and_ranges_are_few_and_in_order(values: list[int]) -> None:
    found = ranges(values)
    assert all(any(low <= value <= high for low, high in found) for value in values)
    assert all(low in values and high in values for low, high in found)
    assert len(found) <= 8
    assert all(first[1] < second[0] for first, second in pairwise(found))


def test_new_and_old_orders_are_two_ranges() -> None:
    assert ranges([*range(100, 200), *range(6_000_000, 6_000_050)]) == [(100, 199), (6_000_000, 6_000_049)]
