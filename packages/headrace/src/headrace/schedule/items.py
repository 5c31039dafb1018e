"""Dynamic tables and tasks as one graph: what runs at which times, and what must have run before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, TypeVar

from headrace.catalog.records import DynamicTable, Task
from headrace.errors import HeadraceError
from headrace.names import TableName
from headrace.schedule.timing import Timing, timing_of_table, timing_of_task

Definition = TypeVar("Definition", DynamicTable, Task)


@dataclass(frozen=True)
class Item:
    """A dynamic table or task, as far as the schedule is concerned."""

    id: str
    name: TableName
    kind: Literal["TABLE", "TASK"]
    times_from: datetime
    """Ticks up to this moment are not its own: it was not there yet; or, as a task, suspended or with other times."""
    timing: Timing | None = None
    """Times of its own."""
    roots: tuple[Timing, ...] = ()
    """The times at which it runs: its own, or those of all that it runs with and that are not suspended."""
    upstream: frozenset[str] = frozenset()
    """What it reads or runs after, directly."""
    readers: tuple[str, ...] = ()
    """The tables that read it."""
    follows: bool = False
    """A task without times: it runs after each run of those upstream."""
    downstream: bool = False
    """A table without times: it is refreshed before each refresh of its readers."""
    suspended: bool = False
    suspended_reason: str | None = None
    retries: int = 0
    timeout_seconds: int = 0
    problem: str | None = None
    """Why it cannot run at all, as a sentence."""

    def next_tick(self, moment: datetime) -> datetime | None:
        """When its turn comes after this moment, by the clock alone."""
        return min((root.after(moment) for root in self.roots), default=None)

    def newest_tick(self, now: datetime) -> datetime | None:
        return max((tick for root in self.roots if (tick := root.newest(now)) is not None), default=None)

    def count_between(self, after: datetime, before: datetime) -> int:
        """How many of its ticks lie between the two. Exact where one of several roots has all ticks of the others, as
        one minute has those of five; else too few, never too many."""
        return max((root.count_between(after, before) for root in self.roots), default=0)


def items_of(tables: Iterable[DynamicTable], tasks: Iterable[Task]) -> dict[str, Item]:
    """All of them by id, whatever is upstream before what is downstream of it."""
    tables, tasks = list(tables), list(tasks)
    found = [*_tables(tables), *_tasks(tables, tasks)]
    order, circle = _ordered({item.id: item.upstream for item in found})
    by_id = {item.id: item for item in found}
    items = {each: by_id[each] for each in order}
    for each in circle:
        names = ", ".join(sorted(str(items[other].name) for other in circle & items[each].upstream))
        items[each] = replace(items[each], problem=f"It waits for itself: it runs after {names}, which runs after it.")
    return _with_roots(items)


def _tables(tables: list[DynamicTable]) -> list[Item]:
    by_path = {table.storage_path: table.id for table in tables}
    upstream = {
        table.id: frozenset(
            by_path[source.path]
            for source in table.query.sources
            if source.kind == "dynamic" and source.path in by_path and by_path[source.path] != table.id
        )
        for table in tables
    }
    readers: dict[str, list[str]] = {}
    for reader, sources in upstream.items():
        for source in sources:
            readers.setdefault(source, []).append(reader)
    found = []
    for table in tables:
        timing, problem = _checked(timing_of_table, table)
        found.append(
            Item(
                id=table.id,
                name=table.table_name,
                kind="TABLE",
                times_from=table.created_at,
                timing=timing,
                upstream=upstream[table.id],
                readers=tuple(readers.get(table.id, ())),
                downstream=table.target_lag == "DOWNSTREAM",
                suspended=table.suspended,
                suspended_reason=table.suspended_reason,
                problem=problem,
            )
        )
    return found


def _tasks(tables: list[DynamicTable], tasks: list[Task]) -> list[Item]:
    tables_by_name = {table.table_name: table.id for table in tables}
    tasks_by_name = {task.table_name: task.id for task in tasks}
    found = []
    for task in tasks:
        timing, problem = _checked(timing_of_task, task)
        upstream: set[str] = set()
        for name in task.after:
            # A task may be called like the table that it runs after.
            first = tasks_by_name.get(name)
            known = first if first is not None and first != task.id else tables_by_name.get(name)
            if known is not None:
                upstream.add(known)
            elif problem is None:
                problem = f"It runs after {name}, which does not exist."
        found.append(
            Item(
                id=task.id,
                name=task.table_name,
                kind="TASK",
                times_from=task.times_from or task.created_at,
                timing=timing,
                upstream=frozenset(upstream),
                follows=task.interval_seconds is None and task.cron is None and bool(task.after),
                suspended=task.suspended,
                suspended_reason=task.suspended_reason,
                retries=task.retries,
                timeout_seconds=task.timeout_seconds,
                problem=problem,
            )
        )
    return found


def _checked(
    timing_of: Callable[[Definition], Timing | None], definition: Definition
) -> tuple[Timing | None, str | None]:
    """The times; or, where they cannot be told (any more), why not. One bad definition must not stop all others."""
    try:
        return timing_of(definition), None
    except HeadraceError as error:
        return None, error.kept


def _ordered(upstream: Mapping[str, frozenset[str]]) -> tuple[list[str], frozenset[str]]:
    """Upstream before downstream, else as given; and those that go round in circles."""
    order = _peeled(upstream, upstream.keys())
    rest = upstream.keys() - set(order)
    downstream: dict[str, set[str]] = {each: set() for each in rest}
    for each in rest:
        for source in upstream[each] & rest:
            downstream[source].add(each)
    # What is left also lies downstream of a circle: taken away from that end, too, only circles remain.
    circle = rest - set(_peeled({each: frozenset(found) for each, found in downstream.items()}, rest))
    return [*order, *(each for each in upstream if each in rest)], frozenset(circle)


def _peeled(before: Mapping[str, frozenset[str]], nodes: Iterable[str]) -> list[str]:
    """Those nodes that can be put in order, each after all that must come before it."""
    waits = {node: len(before[node]) for node in nodes}
    following: dict[str, list[str]] = {}
    for node in waits:
        for other in before[node]:
            following.setdefault(other, []).append(node)
    ready = [node for node, count in waits.items() if count == 0]
    for node in ready:
        for other in following.get(node, ()):
            waits[other] -= 1
            if waits[other] == 0:
                ready.append(other)
    return ready


def _with_roots(items: dict[str, Item]) -> dict[str, Item]:
    """Tables take their times from downstream, tasks from upstream; so all tables come first."""
    for each in [item.id for item in reversed(items.values()) if item.kind == "TABLE"]:
        items[each] = replace(items[each], roots=_roots(items, items[each], items[each].readers))
    for each in [item.id for item in items.values() if item.kind == "TASK"]:
        items[each] = replace(items[each], roots=_roots(items, items[each], items[each].upstream))
    return items


def _roots(items: Mapping[str, Item], item: Item, sources: Iterable[str]) -> tuple[Timing, ...]:
    if not item.downstream and not item.follows:
        return () if item.timing is None else (item.timing,)
    return tuple(dict.fromkeys(root for each in sources if not items[each].suspended for root in items[each].roots))
