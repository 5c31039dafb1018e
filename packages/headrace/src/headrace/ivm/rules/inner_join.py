"""Inner join, of all inputs that are joined directly with each other.

    Δ(R₁ ⋈ … ⋈ Rₙ)  =  Σᵢ  R₁,old ⋈ … ⋈ ΔRᵢ ⋈ … ⋈ Rₙ,new            old before the i-th, new after it

State:    none of the join's own; all inputs are Delta versions.
Cost:     for each changed input, a chain of joins that starts from its changeset and goes on to what is joined with
          it, in the order of the query; the keys of a small changeset are pushed into the reads of its neighbours.
          A big input that does not lie in the order of these keys comes later, and only what matched the others is
          looked up in it, in an ordered copy (refresh/ordered.py).
Requires: a deterministic condition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.ivm.changeset import WEIGHT, Changes
from headrace.ivm.layout import schema_text
from headrace.ivm.stages import Stages, names_of
from headrace.optimisations import ORDERED_COPIES
from headrace.plan.dates import own_texts_at
from headrace.plan.nodes import Column, InnerJoin, Node, Project, Values
from headrace.plan.pruning import names_in
from headrace.plan.types import type_text

_SURELY_FEW = 10_000_000
"""What a small changeset can match in an input of up to so many rows fits in memory."""


@dataclass(frozen=True)
class Condition:
    """A part of what the inputs are joined on. `sides` is set for an equality."""

    text: str
    sides: tuple[str, str] | None = None


@dataclass(frozen=True)
class Inputs:
    nodes: tuple[Node, ...]
    conditions: tuple[Condition, ...]

    @cached_property
    def names(self) -> list[set[str]]:
        """The columns of each input."""
        return [{column.name for column in node.output} for node in self.nodes]

    def columns_in(self, text: str) -> set[str]:
        """The columns that an expression names; a word in a literal may be taken for one more."""
        return names_in(text) & set().union(*self.names)

    def pairs(self, ours: set[str], theirs: set[str]) -> list[tuple[str, str]]:
        """The equalities between two sets of columns, as expressions over the one and over the other."""
        equalities = [condition.sides for condition in self.conditions if condition.sides is not None]
        both_ways = [pair for one, other in equalities for pair in ((one, other), (other, one))]
        return [(one, other) for one, other in both_ways if self._over(one, ours) and self._over(other, theirs)]

    @cached_property
    def may_match_nulls(self) -> bool:
        """Whether a NULL equals another one in some condition."""
        return any(each.sides is not None and "<=>" in each.text for each in self.conditions)

    @cached_property
    def equals(self) -> list[set[str]]:
        """Expressions that have the same value in every row of the join, also by way of others."""
        found: list[set[str]] = []
        for sides in (condition.sides for condition in self.conditions if condition.sides is not None):
            met = [each for each in found if each & set(sides)]
            found = [each for each in found if each not in met] + [set(sides).union(*met)]
        return found

    def known_pairs(self, ours: set[str], theirs: set[str]) -> list[tuple[str, str]]:
        """As `pairs`, with those that follow from other equalities: of a = b and b = c, also a and c."""
        known = {
            other: one
            for same in self.equals
            for one in sorted(same, key=lambda text: (text.isidentifier(), text))  # A plain column is preferred.
            for other in same
            if self._over(one, ours) and self._over(other, theirs)
        }
        return [(one, other) for other, one in sorted(known.items())]

    def _over(self, text: str, names: set[str]) -> bool:
        used = self.columns_in(text)
        return bool(used) and used <= names


def changes(stages: Stages, node: InnerJoin) -> Changes | None:
    joined = flattened(node, stages.new_date)
    found = [
        stages.changes_beside(each, [other for other in joined.nodes if other is not each]) for each in joined.nodes
    ]
    changed = [(place, each) for place, each in enumerate(found) if each is not None]
    if not changed:
        return None
    columns = [*names_of(node), WEIGHT]
    terms = [_term(stages, joined, place, each) for place, each in changed]
    found_terms = [term.select(*columns) for term in terms if term is not None]
    if not found_terms:
        return None
    return Changes(reduce(DataFrame.union, found_terms), all(each.insert_only for _, each in changed))


def flattened(node: Node, date: str | None) -> Inputs:
    """What is joined, with all conditions; a projection between two joins that only drops columns does not matter."""
    drops_only = isinstance(node, Project) and all(each.name == each.text for each in node.expressions)
    if drops_only and isinstance(node, Project) and isinstance(node.child, InnerJoin):
        return flattened(node.child, date)
    if not isinstance(node, InnerJoin):
        return Inputs((node,), ())
    today = own_texts_at(node, date)
    assert isinstance(today, InnerJoin)
    left, right = flattened(node.left, date), flattened(node.right, date)
    own = [Condition(f"({a}) = ({b})", (a, b)) for a, b in today.equalities]
    own += [Condition(f"({a}) <=> ({b})", (a, b)) for a, b in today.null_safe_equalities]
    own += [Condition(f"({today.condition})")] if today.condition is not None else []
    return Inputs(left.nodes + right.nodes, left.conditions + right.conditions + tuple(own))


def matching(stages: Stages, node: InnerJoin, texts: Sequence[str], wanted: Changes, *, old: bool) -> DataFrame | None:
    """The rows of a join, at one frontier, for which `texts` are one of the wanted rows, which are distinct: as the
    changes of an input are joined, so are these. None where that would not spare reading a big input."""
    joined = flattened(node, stages.old_date if old else stages.new_date)
    keys = tuple(Column(name=field.name, type=type_text(field.dataType)) for field in wanted.rows.schema.fields)
    same = tuple(Condition(f"({text}) <=> {key.name}", (text, key.name)) for text, key in zip(texts, keys, strict=True))
    inputs = Inputs((Values(query="", output=keys), *joined.nodes), same + joined.conditions)
    places = range(1, len(inputs.nodes))
    if not any(_is_scattered(stages, inputs, place, inputs.names[0], wanted) for place in places):
        return None
    rows = _term(stages, inputs, 0, wanted, old=old)
    if rows is None:
        return stages.spark.createDataFrame([], schema_text(node.output))
    return rows.select(*names_of(node))


def _term(stages: Stages, inputs: Inputs, place: int, found: Changes, *, old: bool | None = None) -> DataFrame | None:
    """The changes of one input, joined with all others; None when they turned out to match nothing. The others are
    read at both frontiers, as the law says, or all at the old or the new one."""
    start = inputs.names[place]
    reached, rows = set(start), found.rows
    pending = list(inputs.conditions)
    passed = 0
    remaining = {number for number in range(len(inputs.nodes)) if number != place}
    while remaining:
        nearest = min(remaining, key=lambda n: (not inputs.pairs(reached, inputs.names[n]), n))
        if _is_scattered(stages, inputs, nearest, start, found):
            # First what says more about which of its rows are wanted; then only those are looked up.
            sooner = [n for n in sorted(remaining) if _narrows(stages, inputs, n, reached)]
            if sooner:
                nearest = sooner[0]
            elif reached != start:
                few = stages.materialize(Changes(rows, insert_only=False))
                if few is None:
                    return None
                start, found, rows = set(reached), few, few.rows
        remaining.remove(nearest)
        node = inputs.nodes[nearest]
        keys = inputs.known_pairs(start, inputs.names[nearest])
        ours, theirs = [one for one, _ in keys], [other for _, other in keys]
        at_old = nearest < place if old is None else old
        side = stages.matching(node, theirs, found, ours, old=at_old, nulls=inputs.may_match_nulls)
        if stages.small and reached != start and stages.is_big(node) and passed <= _SURELY_FEW:
            # Spark would take the product of what was joined so far for large, and sort the big side.
            rows = F.broadcast(rows)
        passed = max(passed, stages.size(node))
        implied = [f"({one}) <=> ({other})" for one, other in inputs.known_pairs(reached, inputs.names[nearest])]
        reached |= inputs.names[nearest]
        now = [condition for condition in pending if inputs.columns_in(condition.text) <= reached]
        pending = [condition for condition in pending if condition not in now]
        equal = any(condition.sides is not None for condition in now)
        on = " AND ".join([condition.text for condition in now] + ([] if equal else implied))
        rows = rows.join(side, F.expr(on), "inner") if on else rows.crossJoin(side)
    return rows


def _is_scattered(stages: Stages, inputs: Inputs, place: int, start: set[str], found: Changes) -> bool:
    """Whether an input is big and does not lie in the order of what it would be looked up by."""
    if found.local is None or not stages.uses(ORDERED_COPIES):
        return False
    keys = inputs.known_pairs(start, inputs.names[place])
    return bool(keys) and stages.is_scattered(inputs.nodes[place], [other for _, other in keys])


def _narrows(stages: Stages, inputs: Inputs, place: int, reached: set[str]) -> bool:
    """Whether an input that is not so big can be joined before, be it by equalities that follow from others."""
    return not stages.is_huge(inputs.nodes[place]) and bool(inputs.known_pairs(reached, inputs.names[place]))
