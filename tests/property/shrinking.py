"""A finding as a short script."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from property.following import OFTEN
from property.relations import Relation
from property.scenarios import Scenario

Fails = Callable[[Scenario], bool]


def shrunk(scenario: Scenario, table: str, fails: Fails) -> Scenario:
    """The scenario with less and less in it, as long as it fails."""
    table = "d0" if table == OFTEN else table
    smallest = scenario
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(smallest, table):
            if fails(smaller):
                smallest, changed = smaller, True
                break
    return smallest


def _smaller(scenario: Scenario, table: str) -> Iterator[Scenario]:
    names = {each.name for each in scenario.dynamic}
    needed = _upstream(scenario, table)
    if needed < names:
        yield scenario.only(needed)
    relation = next(each.relation for each in scenario.dynamic if each.name == table)
    for below in reversed(_chain(relation)):
        yield scenario.only(names, {table: below})
    if scenario.off:
        yield replace(scenario, off=frozenset())
    if scenario.eager:
        yield replace(scenario, eager=False)
    if scenario.big:
        yield replace(scenario, big=False)
    rounds = scenario.rounds
    for place, each in enumerate(rounds):
        yield replace(scenario, rounds=(*rounds[:place], *rounds[place + 1 :]))
        for gone in range(len(each.statements)):
            left = replace(each, statements=each.statements[:gone] + each.statements[gone + 1 :])
            yield replace(scenario, rounds=(*rounds[:place], left, *rounds[place + 1 :]))
    for place in range(len(scenario.setup)):
        yield replace(scenario, setup=scenario.setup[:place] + scenario.setup[place + 1 :])


def _upstream(scenario: Scenario, table: str) -> set[str]:
    found = {table}
    for each in reversed(scenario.dynamic):
        if any(other.reads(each.name) for other in scenario.dynamic if other.name in found):
            found.add(each.name)
    return found


def _chain(relation: Relation) -> list[Relation]:
    """What it is built on, the nearest first."""
    return [] if relation.below is None else [relation.below, *_chain(relation.below)]


def script(scenario: Scenario) -> str:
    lines = [f"-- without {sorted(scenario.off)}, big: {scenario.big}, eager: {scenario.eager}"]
    lines += [source.ddl for source in scenario.sources]
    lines += scenario.setup
    lines += [f"CREATE DYNAMIC TABLE {each.name} AS {each.relation.text}" for each in scenario.dynamic]
    for each in scenario.rounds:
        lines.append(f"-- on {each.day}")
        lines += each.statements
        lines += [f"REFRESH DYNAMIC TABLE {name}; VERIFY DYNAMIC TABLE {name}" for name in each.refreshed]
    return ";\n".join(lines)
