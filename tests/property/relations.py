"""Queries in the making: their text, what their columns are, and what was drawn for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from property.values import VALUES, family, has_literals, known, literal

T = TypeVar("T")


@dataclass(frozen=True)
class Column:
    """`kind` is one of VALUES where its type is known. One that is not `exact` may differ in its last digits each time
    it is computed, and nothing is decided by it."""

    name: str
    kind: str
    exact: bool = True


Columns = tuple[Column, ...]


@dataclass(frozen=True)
class Relation:
    text: str
    columns: Columns
    below: Relation | None = None
    """What it was built on: a query by itself."""
    operator: str = "table"
    """What it ends with."""
    limited: bool = False

    @property
    def keys(self) -> Columns:
        return tuple(column for column in self.columns if column.exact)

    @property
    def names(self) -> str:
        return ", ".join(column.name for column in self.columns)

    def of(self, *kinds: str) -> Columns:
        """The exact columns of these kinds."""
        return tuple(column for column in self.keys if column.kind in kinds)

    @property
    def exact(self) -> Relation | None:
        """The same rows, with those columns only that decide what they decide each time."""
        if len(self.keys) == len(self.columns):
            return self
        names = ", ".join(column.name for column in self.keys)
        return replace(self, text=f"SELECT {names} FROM ({self.text})", columns=self.keys) if self.keys else None


@dataclass(frozen=True)
class Source:
    """A table, or a dynamic table that was made before."""

    name: str
    columns: Columns

    @property
    def ddl(self) -> str:
        return f"CREATE TABLE {self.name} ({', '.join(f'{each.name} {each.kind}' for each in self.columns)})"

    @property
    def relation(self) -> Relation:
        return Relation(f"SELECT {', '.join(each.name for each in self.columns)} FROM {self.name}", self.columns)


class Maker:
    """Draws what one query is made of. `grow` gives a further input of it, `numbers` go into the names of columns."""

    def __init__(
        self, rng: Random, sources: Sequence[Source], grow: Callable[[Maker], Relation], numbers: Iterator[int]
    ) -> None:
        self.rng = rng
        self._sources = sources
        self._grow = grow
        self._numbers = numbers

    def fresh(self, letter: str) -> str:
        return f"{letter}{next(self._numbers)}"

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def one(self, items: Sequence[T]) -> T:
        return self.rng.choice(items)

    def some(self, items: Sequence[T], least: int, most: int) -> list[T]:
        """So many different ones of them, fewer where there are not as many."""
        return self.rng.sample(list(items), min(len(items), self.rng.randint(least, most)))

    def source(self) -> Relation:
        return self.one(self._sources).relation

    def other(self) -> Relation:
        """A second input: mostly a table, sometimes a small query or rows written out."""
        if self.chance(0.6):
            return self.source()
        return self._grow(self) if self.chance(0.6) else self.written_out()

    def written_out(self) -> Relation:
        if self.chance(0.2):
            name = self.fresh("v")
            return Relation(f"SELECT id AS {name} FROM range({self.one(['3', '0, 10, 4'])})", (Column(name, "BIGINT"),))
        columns = tuple(Column(self.fresh("v"), kind) for kind in ("INT", self.one(sorted(VALUES))))
        rows = [
            ", ".join(f"CAST({literal(self.rng, column.kind)} AS {column.kind})" for column in columns)
            for _ in range(self.rng.randint(1, 3))
        ]
        names = ", ".join(column.name for column in columns)
        listed = ", ".join(f"({row})" for row in rows)
        return Relation(f"SELECT {names} FROM VALUES {listed} AS v({names})", columns)

    def pairs(self, left: Columns, right: Columns) -> list[tuple[Column, Column]]:
        """Columns that can be compared."""
        return [(a, b) for a in left for b in right if family(a.kind) == family(b.kind) and has_literals(a.kind)]

    def total_order(self, columns: Columns) -> str:
        """An ORDER BY that leaves only equal rows in doubt."""
        shuffled = self.some(columns, len(columns), len(columns))
        endings = ["", "", " DESC", " DESC NULLS LAST", " NULLS LAST"]
        return ", ".join(column.name + self.one(endings) for column in shuffled)


def condition(make: Maker, columns: Columns, *, dated: bool = False) -> str:
    """A condition over columns that decide the same each time; with `dated`, perhaps by what day it is."""
    usable = [column for column in columns if column.exact and has_literals(column.kind)]
    if not usable:
        return "true"
    first = _comparison(make, make.one(usable), usable, dated=dated)
    if make.chance(0.6):
        return first if make.chance(0.9) else f"NOT ({first})"
    second = _comparison(make, make.one(usable), usable, dated=dated)
    return f"({first} {make.one(['AND', 'OR'])} {second})"


def _comparison(make: Maker, column: Column, usable: Sequence[Column], *, dated: bool) -> str:
    name, kind = column.name, column.kind
    if dated and kind == "DATE" and make.chance(0.5):
        return make.one(
            [
                f"{name} >= current_date() - 1",
                f"{name} BETWEEN date_sub(current_date, 1) AND curdate()",
                f"{name} < current_date()",
            ]
        )
    others = [each.name for each in usable if each != column and family(each.kind) == family(kind)]
    forms = [
        lambda: f"{name} IS NULL",
        lambda: f"{name} IS NOT NULL",
        lambda: f"{name} {make.one(['=', '<>', '<', '>=', '<=>'])} {literal(make.rng, kind)}",
        lambda: f"{name} {make.one(['=', '<>', '<', '>='])} {known(make.rng, kind)}",
        lambda: f"{name} IN ({known(make.rng, kind)}, {literal(make.rng, kind)})",
    ]
    if others:
        forms.append(lambda: f"{name} {make.one(['=', '<', '<=>'])} {make.one(others)}")
    return make.one(forms)()
