"""Window functions: ranks, neighbours, frames, and the best rows of each partition.

Where a function depends on the order of rows that ORDER BY leaves open, the order is by all columns.
"""

from __future__ import annotations

from property.relations import Column, Columns, Maker, Relation
from property.values import NUMBERS, WHOLE

_OFFSETS = {"INT": "1", "BIGINT": "1L", "DECIMAL(8,2)": "1.25", "DATE": "INTERVAL 1 DAY", "DOUBLE": "0.5D"}


def windowed(make: Maker, below: Relation) -> Relation | None:
    exact = below.exact
    if exact is None:
        return None
    columns: list[Column] = list(exact.columns)
    items: list[str] = []
    for _ in range(make.rng.randint(1, 2)):
        text, kind, sure = _function(make, exact.columns)
        columns.append(Column(make.fresh("w"), kind, sure))
        items.append(f"{text} AS {columns[-1].name}")
    return Relation(f"SELECT *, {', '.join(items)} FROM ({exact.text})", tuple(columns))


def ranked_beside_inexact(make: Maker, below: Relation) -> Relation | None:
    """Ranks and counts, which need no order by all columns."""
    if not below.keys:
        return None
    text, kind = _rank(make, below.keys)
    name = make.fresh("w")
    return Relation(f"SELECT *, {text} AS {name} FROM ({below.text})", (*below.columns, Column(name, kind)))


def top_per_key(make: Maker, below: Relation) -> Relation | None:
    """Few rows of each partition, with all columns or some."""
    exact = below.exact
    if exact is None:
        return None
    columns = exact.columns
    partition = _partition(make, columns)
    call = make.one(["row_number()", "row_number()", "rank()", "dense_rank()"])
    order = make.total_order(columns if call == "row_number()" else tuple(make.some(columns, 1, 2)))
    name, bound = make.fresh("n"), make.one(["= 1", "<= 2", "< 3", "<= 3"])
    over = f"{call} OVER ({partition} ORDER BY {order})"
    if make.chance(0.3):
        return Relation(f"SELECT * FROM ({exact.text}) QUALIFY {over} {bound}", columns)
    shown = columns if make.chance(0.6) else tuple(make.some(columns, 1, len(columns)))
    kept = (*shown, Column(name, "INT")) if make.chance(0.3) else shown
    names = ", ".join(column.name for column in kept)
    text = f"SELECT {names} FROM (SELECT *, {over} AS {name} FROM ({exact.text})) WHERE {name} {bound}"
    return Relation(text, kept)


def limited(make: Maker, below: Relation) -> Relation | None:
    """ORDER BY and LIMIT: for the root only."""
    if len(below.keys) < len(below.columns):
        return None
    offset = make.one(["", "", " OFFSET 1"])
    text = f"SELECT * FROM ({below.text}) ORDER BY {make.total_order(below.columns)} LIMIT {make.one([1, 3, 100])}"
    return Relation(f"{text}{offset}", below.columns, limited=True)


def _partition(make: Maker, columns: Columns) -> str:
    if make.chance(0.1):
        return ""
    return f"PARTITION BY {', '.join(column.name for column in make.some(columns, 1, 2))}"


def _function(make: Maker, columns: Columns) -> tuple[str, str, bool]:
    kind_of = make.rng.random()
    if kind_of < 0.25:
        text, kind = _rank(make, columns)
        return text, kind, True
    if kind_of < 0.5:
        return _of_place(make, columns)
    return _framed(make, columns)


def _rank(make: Maker, columns: Columns) -> tuple[str, str]:
    order = make.total_order(tuple(make.some(columns, 1, 2)))
    call, kind = make.one(
        [("rank()", "INT"), ("dense_rank()", "INT"), ("percent_rank()", "DOUBLE"), ("cume_dist()", "DOUBLE")]
    )
    return f"{call} OVER ({_partition(make, columns)} ORDER BY {order})", kind


def _of_place(make: Maker, columns: Columns) -> tuple[str, str, bool]:
    column = make.one(columns)
    x = column.name
    call, kind = make.one(
        [
            ("row_number()", "INT"),
            ("ntile(2)", "INT"),
            (f"lag({x})", column.kind),
            (f"lag({x}, 2)", column.kind),
            (f"lead({x})", column.kind),
            (f"lead({x}) IGNORE NULLS", column.kind),
            (f"first_value({x})", column.kind),
            (f"nth_value({x}, 2)", column.kind),
        ]
    )
    return f"{call} OVER ({_partition(make, columns)} ORDER BY {make.total_order(columns)})", kind, True


def _framed(make: Maker, columns: Columns) -> tuple[str, str, bool]:
    """An aggregate over all of the partition, up to here, or over the rows around."""
    column = make.one(columns)
    x, number = column.name, column.kind in NUMBERS
    call, kind, exact = make.one(
        [
            (f"count({x})", "BIGINT", True),
            ("count(*)", "BIGINT", True),
            (f"max({x})", column.kind, True),
            (f"min({x})", column.kind, True),
            (f"sum({x})", _added(column.kind), column.kind != "DOUBLE") if number else ("count(*)", "BIGINT", True),
            (f"avg({x})", _averaged(column.kind), False) if number else ("count(*)", "BIGINT", True),
        ]
    )
    partition = _partition(make, columns)
    steps = [each for each in columns if each.kind in _OFFSETS]
    how = make.rng.random()
    if how < 0.3:
        over = partition
    elif how < 0.5:
        over = f"{partition} ORDER BY {make.total_order(tuple(make.some(columns, 1, 2)))}"
    elif how < 0.75 or not steps:
        frame = make.one(
            [
                "BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
                "BETWEEN 1 PRECEDING AND 1 FOLLOWING",
                "BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
                "BETWEEN 2 PRECEDING AND 1 PRECEDING",
            ]
        )
        over = f"{partition} ORDER BY {make.total_order(columns)} ROWS {frame}"
    else:
        step = make.one(steps)
        offset = _OFFSETS[step.kind]
        frame = make.one([f"{offset} PRECEDING AND CURRENT ROW", f"{offset} PRECEDING AND {offset} FOLLOWING"])
        over = f"{partition} ORDER BY {step.name}{make.one(['', ' DESC'])} RANGE BETWEEN {frame}"
    return f"{call} OVER ({over})", kind, exact


def _added(kind: str) -> str:
    return "BIGINT" if kind in WHOLE else "DOUBLE" if kind == "DOUBLE" else "DECIMAL"


def _averaged(kind: str) -> str:
    return "DECIMAL" if kind.startswith("DECIMAL") else "DOUBLE"
