"""Tables and tasks as one graph."""

from __future__ import annotations

import random
from datetime import timedelta

from headrace.schedule.items import Item, items_of
from headrace.schedule.timing import Cron, Every
from unit.schedule_world import NOON, START, a_table, a_task, tick

MINUTE, FIVE = {"interval_seconds": 60}, {"interval_seconds": 300}


def names(items: dict[str, Item]) -> list[str]:
    return [item.name.table for item in items.values()]


def test_a_table_knows_what_it_reads_and_who_reads_it() -> None:
    tables = [a_table("c", "a", "b"), a_table("b", "a"), a_table("a", **MINUTE)]
    items = items_of(tables, [])
    assert names(items) == ["a", "b", "c"]
    assert items["table-a"].readers == ("table-c", "table-b")
    assert items["table-c"].upstream == {"table-a", "table-b"}
    assert (items["table-a"].kind, items["table-a"].timing, items["table-a"].roots) == (
        "TABLE",
        Every(60),
        (Every(60),),
    )
    assert items["table-b"].roots == ()
    assert not items["table-b"].follows
    assert not items["table-b"].downstream


def test_a_source_that_is_no_dynamic_table_of_this_lake_any_more() -> None:
    assert items_of([a_table("b", "gone")], [])["table-b"].upstream == frozenset()


def test_a_table_that_reads_its_own_older_self() -> None:
    assert items_of([a_table("a", "a")], [])["table-a"].upstream == frozenset()


def test_tasks_after_tables_and_tasks() -> None:
    tasks = [a_task("last", "first", "a"), a_task("first", **MINUTE), a_task("both", "first", cron="0 9 * * *")]
    items = items_of([a_table("a", **FIVE)], tasks)
    assert names(items) == ["a", "first", "last", "both"]
    last = items["task-last"]
    assert (last.kind, last.follows, last.timing) == ("TASK", True, None)
    assert last.upstream == {"table-a", "task-first"}
    assert set(last.roots) == {Every(60), Every(300)}
    assert not items["task-both"].follows
    assert items["task-both"].roots == (Cron("0 9 * * *"),)


def test_a_task_may_be_called_like_the_table_that_it_follows() -> None:
    items = items_of([a_table("a", **MINUTE)], [a_task("a", "a")])
    assert items["task-a"].upstream == {"table-a"}
    assert items["task-a"].problem is None


def test_of_a_task_and_a_table_of_one_name_the_task_is_meant() -> None:
    items = items_of([a_table("a", **MINUTE)], [a_task("a", "a"), a_task("b", "a")])
    assert items["task-b"].upstream == {"task-a"}


def test_an_unknown_name_is_a_problem() -> None:
    items = items_of([], [a_task("t", "gone", "first", **MINUTE), a_task("first", **MINUTE)])
    assert items["task-t"].upstream == {"task-first"}
    assert items["task-t"].problem == "It runs after main.public.gone, which does not exist."


def test_a_definition_that_cannot_be_read_stops_no_other() -> None:
    broken = a_task("broken", cron="not cron at all", zone="UTC")
    lost = a_task("lost", cron="* * * * *", zone="Atlantis/Capital")
    items = items_of([a_table("odd", interval_seconds=0)], [broken, lost, a_task("fine", **MINUTE)])
    assert "five fields" in str(items["task-broken"].problem)
    assert "no time zone" in str(items["task-lost"].problem)
    assert items["table-odd"].problem is not None
    assert items["task-broken"].timing is None
    assert not items["task-broken"].follows
    assert items["task-fine"].problem is None


def test_downstream_runs_at_the_times_of_all_that_read_it() -> None:
    tables = [
        a_table("base", target_lag="DOWNSTREAM"),
        a_table("middle", "base", target_lag="DOWNSTREAM"),
        a_table("quick", "middle", **MINUTE),
        a_table("slow", "base", **FIVE),
        a_table("by_hand", "base"),
    ]
    items = items_of(tables, [a_task("after", "middle")])
    assert set(items["table-base"].roots) == {Every(60), Every(300)}
    assert items["table-middle"].roots == items["task-after"].roots == (Every(60),)
    assert items["table-base"].downstream


def test_nobody_takes_times_from_what_is_suspended() -> None:
    tables = [a_table("base", target_lag="DOWNSTREAM"), a_table("top", "base", suspended=True, **MINUTE)]
    items = items_of(tables, [a_task("after", "top")])
    assert items["table-base"].roots == items["task-after"].roots == ()
    assert items["table-base"].next_tick(START) is None
    assert items["table-top"].roots == (Every(60),)


def test_circles_are_found_and_nothing_else_is_in_one() -> None:
    tasks = [
        a_task("start", **MINUTE),
        a_task("a", "start", "c"),
        a_task("b", "a"),
        a_task("c", "b"),
        a_task("below", "c"),
        a_task("beside", "start"),
        a_task("self", "self", **MINUTE),
    ]
    items = items_of([], tasks)
    problems = {item.name.table for item in items.values() if item.problem is not None}
    assert problems == {"a", "b", "c", "self"}
    assert items["task-b"].problem == "It waits for itself: it runs after main.public.a, which runs after it."
    assert items["task-self"].problem == "It runs after main.public.self, which does not exist."
    assert len(items) == 7


def test_a_long_chain_in_any_order() -> None:
    tables = [a_table(f"t{n}", *([f"t{n - 1}"] if n else []), **MINUTE) for n in range(3000)]
    random.Random(7).shuffle(tables)
    assert names(items_of(tables, [])) == [f"t{n}" for n in range(3000)]


def test_ticks_of_several_roots() -> None:
    tasks = [a_task("quick", **MINUTE), a_task("slow", **FIVE), a_task("after", "quick", "slow")]
    after = items_of([], tasks)["task-after"]
    assert after.next_tick(NOON) == tick(1)
    assert after.newest_tick(tick(7.5)) == tick(7)
    assert after.count_between(NOON, tick(10)) == 9
    alone = Item("x", after.name, "TASK", NOON)
    assert (alone.next_tick(NOON), alone.newest_tick(NOON), alone.count_between(NOON, tick(9))) == (None, None, 0)


def test_what_else_is_taken_over() -> None:
    table = a_table("a", suspended=True, suspended_reason="why", created_at=START + timedelta(1))
    task = a_task("t", retries=3, timeout_seconds=7)
    items = items_of([table], [task])
    found = items["table-a"]
    assert (found.suspended, found.suspended_reason, found.times_from) == (True, "why", START + timedelta(1))
    assert items["task-t"].times_from == START
    assert (items["task-t"].retries, items["task-t"].timeout_seconds) == (3, 7)
