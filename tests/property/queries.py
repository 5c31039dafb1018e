"""Nested random queries over all operators.

A query is an operator over a query, down to the tables. `ROOTS` are the operators that it can end with; a run goes
through them one after the other, so that a short one has met them all, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random

from property import aggregates, joins, linear, windows
from property.relations import Maker, Relation, Source

Shape = Callable[[Maker, Relation], Relation | None]
"""An operator over a query; None when that has not the columns for it."""

SHAPES: dict[Shape, int] = {
    linear.filtered: 3,
    linear.projected: 3,
    linear.united: 2,
    linear.exploded: 1,
    linear.unpivoted: 1,
    linear.distinct: 2,
    linear.set_operation: 2,
    joins.joined: 5,
    joins.joined_by_order: 2,
    joins.semi_joined: 4,
    joins.with_scalar: 3,
    aggregates.grouped: 6,
    aggregates.grouping_sets: 2,
    aggregates.pivoted: 2,
    windows.windowed: 5,
    windows.ranked_beside_inexact: 1,
    windows.top_per_key: 2,
}
"""Each with how often it is drawn, relative to the others."""
ROOTS: tuple[Shape, ...] = (*SHAPES, aggregates.collected, windows.limited)
_SMALL: tuple[Shape, ...] = (linear.filtered, linear.projected, linear.distinct, aggregates.grouped)


def query(rng: Random, sources: Sequence[Source], root: Shape, numbers: Iterator[int]) -> Relation:
    """A query that ends with `root`, if what is below has the columns for it."""
    make = Maker(rng, sources, _small_query, numbers)
    below = make.source()
    for _ in range(rng.choices([0, 1, 2, 3], [2, 4, 3, 1])[0]):
        below = _over(make, below, rng.choices(tuple(SHAPES), tuple(SHAPES.values()))[0])
    return _over(make, below, root)


def _over(make: Maker, below: Relation, shape: Shape) -> Relation:
    """`below` with one more operator: this one, or another one that fits."""
    for each in (shape, *make.some(tuple(SHAPES), len(SHAPES), len(SHAPES))):
        found = each(make, below)
        if found is not None:
            return replace(found, below=below, operator=each.__name__)
    return below


def _small_query(make: Maker) -> Relation:
    return _over(make, make.source(), make.one(_SMALL))
