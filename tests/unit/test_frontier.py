from __future__ import annotations

from headrace.refresh.frontier import Candidate, Offer, choose


def table(path: str, newest: int) -> Offer:
    return Offer(path, path, newest)


def dynamic(path: str, *candidates: tuple[int, dict[str, int]]) -> Offer:
    found = [Candidate(version, lineage) for version, lineage in candidates]
    return Offer(path, path, found[0].version, is_dynamic=True, candidates=lambda: found)


def test_plain_tables_are_read_at_their_newest_version() -> None:
    assert choose([table("a", 5), table("b", 7)]).versions == {"a": 5, "b": 7}


def test_a_base_is_read_as_the_dynamic_table_beside_it_saw_it() -> None:
    choice = choose([table("base", 9), dynamic("d", (4, {"base": 6}))])
    assert choice.versions == {"base": 6, "d": 4}
    assert choice.lineage == {"base": 6, "d": 4}


def test_two_branches_take_the_newest_common_version() -> None:
    left = dynamic("left", (8, {"base": 7}), (5, {"base": 5}))
    right = dynamic("right", (3, {"base": 5}))
    assert choose([left, right, table("base", 9)]).versions == {"left": 5, "right": 3, "base": 5}


def test_branches_that_never_agree_are_waited_for() -> None:
    choice = choose([dynamic("left", (8, {"base": 7})), dynamic("right", (3, {"base": 5}))])
    assert choice.versions == {}
    assert choice.disagreement is not None
    assert "left" in choice.disagreement


def test_agreement_at_any_depth() -> None:
    low = dynamic("low", (6, {"base": 4}), (5, {"base": 3}))
    high = dynamic("high", (2, {"low": 5, "base": 3}))
    choice = choose([low, high])
    assert choice.versions == {"low": 5, "high": 2}
    assert choice.lineage == {"low": 5, "high": 2, "base": 3}


def test_disjoint_lineages_do_not_hold_each_other_up() -> None:
    choice = choose([dynamic("a", (3, {"x": 1})), dynamic("b", (9, {"y": 2}))])
    assert choice.versions == {"a": 3, "b": 9}


def test_a_base_that_was_created_again_is_not_mixed_with_the_old_one() -> None:
    choice = choose([table("base#new", 1), dynamic("d#1", (4, {"base#old": 1}))])
    assert choice.disagreement is not None
    assert "created again" in choice.disagreement
