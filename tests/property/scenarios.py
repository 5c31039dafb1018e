"""Whole examples: tables, dynamic tables over them and over each other, and what happens to them in which order."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from random import Random

from headrace.optimisations import OPTIMISATIONS
from property.queries import ROOTS, query
from property.relations import Column, Maker, Relation, Source, condition
from property.values import DAY, VALUES, known, literal

QUERIES = 8
"""Of one example: creating tables and changing rows costs as much for one query as for all of them."""
ROUNDS = 2


@dataclass(frozen=True)
class Dynamic:
    """A dynamic table, by its query. `inexact` tells that rounded values are among its columns."""

    name: str
    relation: Relation

    @property
    def inexact(self) -> bool:
        relation: Relation | None = self.relation
        while relation is not None:
            if len(relation.keys) < len(relation.columns):
                return True
            relation = relation.below
        return False

    def reads(self, name: str) -> bool:
        return re.search(rf"\b{name}\b", self.relation.text) is not None


@dataclass(frozen=True)
class Round:
    """Changes, and then the dynamic tables that are refreshed, in this order, on this day."""

    statements: tuple[str, ...]
    refreshed: tuple[str, ...]
    day: str


@dataclass(frozen=True)
class Scenario:
    sources: tuple[Source, ...]
    setup: tuple[str, ...]
    dynamic: tuple[Dynamic, ...]
    rounds: tuple[Round, ...]
    off: frozenset[str]
    """Optimisations that are switched off."""
    big: bool
    """Tables count as big: changesets are computed first, and state tables made."""
    eager: bool
    """Storage is folded after every second refresh, and few keys are pushed down as literals."""

    def only(self, names: set[str], relation: dict[str, Relation] | None = None) -> Scenario:
        """The same with these dynamic tables only, some of them with another query."""
        kept = tuple(each for each in self.dynamic if each.name in names)
        changed = tuple(replace(each, relation=(relation or {}).get(each.name, each.relation)) for each in kept)
        rounds = tuple(replace(each, refreshed=tuple(n for n in each.refreshed if n in names)) for each in self.rounds)
        return replace(self, dynamic=changed, rounds=rounds)


def scenario(seed: int, number: int) -> Scenario:
    """The example with this number: always the same one."""
    rng = Random(f"{seed}/{number}")
    sources = (_table(rng, "t0"), _table(rng, "t1"))
    dynamic: list[Dynamic] = []
    numbers = count(1)
    for place in range(QUERIES):
        upstream = [Source(each.name, _stored(each)) for each in dynamic if not each.relation.limited]
        chained = rng.sample(upstream, min(len(upstream), 2)) if rng.random() < 0.4 else []
        root = ROOTS[(number * QUERIES + place) % len(ROOTS)]
        dynamic.append(Dynamic(f"d{place}", query(rng, (*sources, *chained), root, numbers)))
    names = [each.name for each in dynamic]
    days = [datetime.date.fromisoformat(DAY)]
    for _ in range(ROUNDS):
        days.append(days[-1] + datetime.timedelta(rng.choice([0, 0, 1])))
    rounds = tuple(_round(rng, sources, names, day, last=day is days[-1]) for day in days[1:])
    setup = tuple(_insert(rng, table, rng.randint(2, 7)) for table in sources)
    off = frozenset({rng.choice(sorted(OPTIMISATIONS))}) if rng.random() < 0.5 else frozenset[str]()
    return Scenario(sources, setup, tuple(dynamic), rounds, off, rng.random() < 0.5, rng.random() < 0.3)


def _stored(each: Dynamic) -> tuple[Column, ...]:
    """What is stored is the same each time it is read, however it was rounded."""
    return tuple(replace(column, exact=True) for column in each.relation.columns)


def _table(rng: Random, name: str) -> Source:
    kinds = rng.sample(sorted(VALUES), rng.randint(2, 4))
    kinds += [rng.choice(kinds)] if rng.random() < 0.3 else []
    return Source(name, (Column("k", "INT"), *(Column(f"c{place}", kind) for place, kind in enumerate(kinds))))


def _round(rng: Random, sources: Sequence[Source], names: list[str], day: datetime.date, *, last: bool) -> Round:
    statements = tuple(change(rng, rng.choice(sources)) for _ in range(rng.choice([1, 1, 2, 3])))
    refreshed = [name for name in names if last or rng.random() < 0.85]
    if rng.random() < 0.3:
        rng.shuffle(refreshed)
    return Round(statements, tuple(refreshed), day.isoformat())


def change(rng: Random, table: Source) -> str:
    """One DML statement."""
    make = Maker(rng, (table,), lambda _: table.relation, count(1))
    where = condition(make, table.columns)
    column = rng.choice(table.columns)
    match rng.choice(["insert", "insert", "insert", "delete", "delete", "update", "update", "again", "over", "merge"]):
        case "insert":
            return _insert(rng, table, rng.randint(1, 4))
        case "over":
            return _insert(rng, table, rng.randint(1, 4)).replace("INTO", "OVERWRITE", 1)
        case "again":
            return f"INSERT INTO {table.name} SELECT * FROM {table.name} WHERE {where}"
        case "delete":
            return f"DELETE FROM {table.name}" + (f" WHERE {where}" if rng.random() < 0.9 else "")
        case "update":
            value = literal(rng, column.kind) if rng.random() < 0.7 else column.name
            return f"UPDATE {table.name} SET {column.name} = {value} WHERE {where}"
        case _:
            matched = rng.choice(["DELETE", f"UPDATE SET {column.name} = {known(rng, column.kind)}"])
            return (
                f"MERGE INTO {table.name} t USING (SELECT {rng.choice(['0', '1', '2'])} AS k) s ON t.k = s.k "
                f"WHEN MATCHED THEN {matched} WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k)"
            )


def _insert(rng: Random, table: Source, rows: int) -> str:
    written = [", ".join(literal(rng, column.kind) for column in table.columns) for _ in range(rows)]
    return f"INSERT INTO {table.name} VALUES {', '.join(f'({row})' for row in written)}"
