"""Joins of every kind, with and without equalities, and subqueries in expressions."""

from __future__ import annotations

from property.relations import Column, Columns, Maker, Relation, condition

_MOST_COLUMNS = 6


def joined(make: Maker, below: Relation) -> Relation | None:
    """With another input, or with itself as a CTE."""
    twice = make.chance(0.2)
    other = below if twice else make.other()
    pairs = make.pairs(below.keys, other.keys)
    if not pairs:
        return None
    how = make.one(["JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
    return _join(make, below, other, how, _on(make, pairs, below, other), twice=twice)


def joined_by_order(make: Maker, below: Relation) -> Relation | None:
    """Without an equality."""
    other = make.other()
    pairs = make.pairs(below.keys, other.keys)
    if not pairs or make.chance(0.2):
        written = make.written_out()
        how = make.one(["CROSS JOIN", "LEFT JOIN", "FULL JOIN"])
        return _join(make, below, written, how, None if how == "CROSS JOIN" else condition_of(make, written, "r"))
    left, right = make.one(pairs)
    how = make.one(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
    on = f"l.{left.name} {make.one(['<', '>=', '<>'])} r.{right.name}"
    if make.chance(0.3):
        on = f"({on} OR l.{left.name} IS NULL)"
    return _join(make, below, other, how, on)


def semi_joined(make: Maker, below: Relation) -> Relation | None:
    """IN, EXISTS and their negations, also as values and as joins."""
    other = make.other()
    pairs = make.pairs(below.keys, other.keys)
    if not pairs:
        return None
    left, right = make.one(pairs)
    a, b, inner = f"l.{left.name}", right.name, f"({other.text}) r"
    inside = condition_of(make, other, "r")
    if make.chance(0.2):
        how = make.one(["LEFT SEMI JOIN", "LEFT ANTI JOIN"])
        on = _on(make, pairs, below, other)
        return Relation(f"SELECT * FROM ({below.text}) l {how} {inner} ON {on}", below.columns)
    second = make.one(pairs)
    test = make.one(
        [
            f"{a} IN (SELECT {b} FROM {inner} WHERE {inside})",
            f"{a} NOT IN (SELECT {b} FROM {inner} WHERE {inside})",
            f"({a}, l.{second[0].name}) IN (SELECT r.{b}, r.{second[1].name} FROM {inner})",
            f"EXISTS (SELECT 1 FROM {inner} WHERE r.{b} = {a})",
            f"NOT EXISTS (SELECT 1 FROM {inner} WHERE r.{b} <=> {a} AND {inside})",
            f"NOT EXISTS (SELECT 1 FROM {inner} WHERE r.{b} > {a})",
            f"({a} IS NULL OR EXISTS (SELECT 1 FROM {inner} WHERE r.{b} = {a} AND {inside}))",
        ]
    )
    if make.chance(0.2) and "), l." not in test and "NOT IN" not in test:
        found = make.fresh("x")
        columns = (*below.columns, Column(found, "BOOLEAN"))
        return Relation(f"SELECT l.*, {test} AS {found} FROM ({below.text}) l", columns)
    return Relation(f"SELECT l.* FROM ({below.text}) l WHERE {test}", below.columns)


def with_scalar(make: Maker, below: Relation) -> Relation | None:
    """A scalar subquery, correlated or not, as a column or in a filter; or the same as a LATERAL join."""
    other = make.other()
    if not other.keys:
        return None
    value = make.one(other.keys)
    call = make.one(["max", "min", "count", "count"])
    result = Column(make.fresh("z"), "BIGINT" if call == "count" else value.kind)
    inner = f"SELECT {call}(r.{value.name}) AS {result.name} FROM ({other.text}) r"
    pairs = make.pairs(below.keys, other.keys)
    if pairs and make.chance(0.7):
        left, right = make.one(pairs)
        inner += f" WHERE r.{right.name} = l.{left.name}"
        if make.chance(0.3):
            inner += f" AND {condition_of(make, other, 'r')}"
        if make.chance(0.3):
            text = f"SELECT l.*, s.{result.name} FROM ({below.text}) l, LATERAL ({inner}) s"
            return Relation(text, (*below.columns, result))
    compared = make.pairs(below.keys, (result,))
    if compared and make.chance(0.4):
        left = make.one(compared)[0]
        sign = make.one(["<", ">=", "=", "<=>"])
        return Relation(f"SELECT l.* FROM ({below.text}) l WHERE l.{left.name} {sign} ({inner})", below.columns)
    return Relation(f"SELECT l.*, ({inner}) AS {result.name} FROM ({below.text}) l", (*below.columns, result))


def condition_of(make: Maker, relation: Relation, alias: str) -> str:
    """A condition over one side, its columns with the alias before them."""
    named = tuple(Column(f"{alias}.{column.name}", column.kind, column.exact) for column in relation.columns)
    return condition(make, named)


def _on(make: Maker, pairs: list[tuple[Column, Column]], left: Relation, right: Relation) -> str:
    chosen = make.some(pairs, 1, 2)
    parts = [f"l.{a.name} {make.one(['=', '=', '<=>'])} r.{b.name}" for a, b in chosen]
    if make.chance(0.25):
        parts.append(condition_of(make, right, "r"))
    if make.chance(0.15):
        parts.append(condition_of(make, left, "l"))
    if make.chance(0.15):
        a, b = make.one(pairs)
        parts.append(f"l.{a.name} {make.one(['<=', '>', '<>'])} r.{b.name}")
    return " AND ".join(parts)


def _join(
    make: Maker, left: Relation, right: Relation, how: str, on: str | None, *, twice: bool = False
) -> Relation | None:
    items: list[str] = []
    columns: list[Column] = []
    for side, alias in ((left, "l"), (right, "r")):
        for column in _kept(make, side.columns):
            name = make.fresh("j")
            items.append(f"{alias}.{column.name} AS {name}")
            columns.append(Column(name, column.kind, column.exact))
    tail = "" if on is None else f" ON {on}"
    if not twice:
        text = f"SELECT {', '.join(items)} FROM ({left.text}) l {how} ({right.text}) r{tail}"
        return Relation(text, tuple(columns))
    cte = make.fresh("twice")
    text = f"WITH {cte} AS ({left.text}) SELECT {', '.join(items)} FROM {cte} l {how} {cte} r{tail}"
    return Relation(f"SELECT * FROM ({text})", tuple(columns))


def _kept(make: Maker, columns: Columns) -> list[Column]:
    return make.some(columns, 1, _MOST_COLUMNS // 2) if len(columns) > _MOST_COLUMNS // 2 else list(columns)
