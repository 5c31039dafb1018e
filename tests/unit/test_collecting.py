"""Rows that come in parts, in any order, and how many of them are taken."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from headrace.collecting import Limit, Parts

ALL = Limit(1_000_000, 1_000_000_000)


def batch(part: int, values: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(values, pa.int64()), pa.array([part] * len(values), pa.int32())], ["v", "__hr_part"]
    )


def values(found: Parts) -> list[int]:
    batches, _ = found.wanted()
    assert all(each.schema.names == ["v"] for each in batches)
    return [value for each in batches for value in each.column(0).to_pylist()]


def test_parts_stand_in_their_order() -> None:
    found = Parts(ALL, ordered=False)
    assert not any(found.add(each) for each in (batch(2, [5, 6]), batch(0, [1]), batch(0, [2]), batch(1, [3, 4])))
    assert values(found) == [1, 2, 3, 4, 5, 6]
    assert found.wanted()[1] is False
    assert Parts(ALL, ordered=True).wanted() == ([], False)


def test_exactly_as_many_as_are_wanted_are_all() -> None:
    found = Parts(Limit(3, ALL.size), ordered=False)
    assert not found.add(batch(0, [1, 2, 3]))
    assert found.wanted()[1] is False
    assert found.add(batch(1, [4]))
    assert (values(found), found.wanted()[1]) == ([1, 2, 3], True)


def test_without_an_order_any_rows_will_do() -> None:
    found = Parts(Limit(3, ALL.size), ordered=False)
    assert found.add(batch(7, [1, 2, 3, 4]))
    assert values(found) == [1, 2, 3]


def test_with_an_order_only_the_first_will_do() -> None:
    found = Parts(Limit(3, ALL.size), ordered=True)
    for each in (batch(3, [10, 11, 12, 13]), batch(1, [4, 5]), batch(2, [6, 7, 8, 9])):
        assert not found.add(each), "the part 0 may have rows, too"
    assert not found.add(batch(0, [1, 2])), "it may go on"
    assert found.add(batch(4, [14])), "it does not, and the part 1 is there"
    assert (values(found), found.wanted()[1]) == ([1, 2, 4], True)


def test_a_part_without_rows_never_comes() -> None:
    found = Parts(Limit(3, ALL.size), ordered=True)
    for part in (5, 4, 3, 2, 1):
        assert not found.add(batch(part, [part * 10 + n for n in range(4)]))
    assert (values(found), found.wanted()[1]) == ([10, 11, 12], True)


@pytest.mark.parametrize("ordered", [True, False])
def test_long_rows_are_cut_by_their_size(ordered: bool) -> None:
    found = Parts(Limit(1000, 80), ordered=ordered)
    assert found.add(batch(0, list(range(100))))
    assert (values(found), found.wanted()[1]) == (list(range(10)), True)
    tiny = Parts(Limit(1000, 1), ordered=ordered)
    assert tiny.add(batch(0, [1, 2]))
    assert values(tiny) == [1], "something is always shown"
    one = Parts(Limit(1000, 1), ordered=ordered)
    assert one.add(batch(0, [1])), "whatever follows is not waited for"
    assert (values(one), one.wanted()[1]) == ([1], True)


@pytest.mark.parametrize("seed", range(30))
def test_any_order_of_arrival_gives_the_first_rows(seed: int) -> None:
    chance = random.Random(seed)
    limit = Limit(chance.randint(1, 40), ALL.size)
    rows = {part: [part * 100 + n for n in range(chance.randint(0, 15))] for part in range(12)}
    found = Parts(limit, ordered=True)
    most = 0
    for part in chance.sample(sorted(rows), len(rows)):
        pieces = [rows[part][n : n + 4] for n in range(0, len(rows[part]), 4)]
        if any(found.add(batch(part, piece)) for piece in pieces):
            break
        most = max(most, sum(len(each) for kept in found._batches.values() for each in kept))
    everything = [value for part in sorted(rows) for value in rows[part]]
    assert values(found) == everything[: limit.rows]
    assert found.wanted()[1] is (len(everything) > limit.rows)
    assert most <= 2 * limit.rows + 30
