"""Operators that treat each row by itself, and unions of what they give."""

from __future__ import annotations

from property.relations import Column, Columns, Maker, Relation, condition
from property.values import family

COMPUTED: dict[str, tuple[tuple[str, str], ...]] = {
    "INT": (
        ("coalesce({c}, 0) + 1", "INT"),
        ("{c} % 2", "INT"),
        ("CAST({c} AS STRING)", "STRING"),
        ("CAST({c} AS DOUBLE) / 2", "DOUBLE"),
        ("CASE WHEN {c} > 0 THEN 'up' WHEN {c} < 0 THEN 'down' END", "STRING"),
        ("CAST({c} AS DECIMAL(8,2))", "DECIMAL(8,2)"),
        ("array({c}, 1)", "ARRAY<INT>"),
        ("named_struct('a', {c}, 'b', 'x')", "STRUCT<a: INT, b: STRING>"),
    ),
    "BIGINT": (("{c} DIV 2", "BIGINT"), ("{c} > 0", "BOOLEAN")),
    "SMALLINT": (("CAST({c} AS INT)", "INT"), ("{c} DIV 2", "BIGINT")),
    "DECIMAL(8,2)": (("{c} * 2", "DECIMAL"), ("CAST({c} AS INT)", "INT"), ("round({c}, 1)", "DECIMAL")),
    "DOUBLE": (("{c} * 2", "DOUBLE"), ("isnan({c})", "BOOLEAN"), ("CAST({c} AS FLOAT)", "FLOAT")),
    "STRING": (("upper({c})", "STRING"), ("length({c})", "INT"), ("{c} || 'x'", "STRING"), ("split({c}, '')", "OTHER")),
    "BOOLEAN": (("NOT {c}", "BOOLEAN"), ("CAST({c} AS INT)", "INT")),
    "DATE": (("date_add({c}, 1)", "DATE"), ("year({c})", "INT"), ("CAST({c} AS STRING)", "STRING")),
    "TIMESTAMP": (("CAST({c} AS DATE)", "DATE"), ("date_trunc('month', {c})", "TIMESTAMP")),
    "TIMESTAMP_NTZ": (("CAST({c} AS DATE)", "DATE"), ("hour({c})", "INT")),
    "BINARY": (("hex({c})", "STRING"), ("length({c})", "INT")),
    "ARRAY<INT>": (
        ("size({c})", "INT"),
        ("try_element_at({c}, 1)", "INT"),
        ("transform({c}, x -> x + 1)", "ARRAY<INT>"),
        ("array_contains({c}, 1)", "BOOLEAN"),
    ),
    "STRUCT<a: INT, b: STRING>": (("{c}.a", "INT"), ("{c}.b", "STRING")),
}


def filtered(make: Maker, below: Relation) -> Relation | None:
    return Relation(f"SELECT * FROM ({below.text}) WHERE {condition(make, below.columns, dated=True)}", below.columns)


def projected(make: Maker, below: Relation) -> Relation | None:
    items: list[str] = []
    columns: list[Column] = []
    for column in make.some(below.columns, 1, 4):
        name = make.fresh("p")
        items.append(f"{column.name} AS {name}")
        columns.append(Column(name, column.kind, column.exact))
    for column in make.some([each for each in below.keys if each.kind in COMPUTED], 0, 3):
        name, (text, kind) = make.fresh("c"), make.one(COMPUTED[column.kind])
        if column.kind == "DATE" and make.chance(0.2):
            text, kind = "datediff(current_date(), {c})", "INT"
        items.append(f"{text.format(c=column.name)} AS {name}")
        columns.append(Column(name, kind))
    return Relation(f"SELECT {', '.join(items)} FROM ({below.text})", tuple(columns))


def united(make: Maker, below: Relation) -> Relation | None:
    """UNION ALL with itself, written twice or as a CTE, or with another query."""
    if make.chance(0.4):
        left, right, columns = alike(make, below, make.other())
        return Relation(f"{left} UNION ALL {right}", columns)
    where = condition(make, below.columns)
    if make.chance(0.5):
        return Relation(f"{below.text} UNION ALL SELECT * FROM ({below.text}) WHERE {where}", below.columns)
    cte = make.fresh("twice")
    text = f"WITH {cte} AS ({below.text}) SELECT * FROM {cte} UNION ALL SELECT * FROM {cte} WHERE {where}"
    return Relation(f"SELECT * FROM ({text})", below.columns)


def alike(make: Maker, left: Relation, right: Relation) -> tuple[str, str, Columns]:
    """Some columns of both that fit together, NULL where there is no fitting one."""
    chosen = make.some(left.columns, 1, 3)
    fitting = []
    exact = []
    for column in chosen:
        same = [each for each in right.columns if each.kind == column.kind]
        found = make.one(same) if same else None
        fitting.append("NULL" if found is None else found.name)
        exact.append(column.exact and (found is None or found.exact))
    columns = tuple(Column(each.name, each.kind, sure) for each, sure in zip(chosen, exact, strict=True))
    names = ", ".join(column.name for column in columns)
    return f"SELECT {names} FROM ({left.text})", f"SELECT {', '.join(fitting)} FROM ({right.text})", columns


def exploded(make: Maker, below: Relation) -> Relation | None:
    numbers, arrays = below.of("INT"), below.of("ARRAY<INT>")
    made = make.fresh("e")
    columns = (*below.columns, Column(made, "INT"))
    if arrays and make.chance(0.8):
        array, outer, place = make.one(arrays).name, make.one(["", "OUTER "]), make.fresh("at")
        if make.chance(0.5):
            text = f"SELECT * FROM ({below.text}) LATERAL VIEW {outer}explode({array}) AS {made}"
            return Relation(text, columns)
        text = f"SELECT * FROM ({below.text}) LATERAL VIEW {outer}posexplode({array}) AS {place}, {made}"
        return Relation(text, (*below.columns, Column(place, "INT"), Column(made, "INT")))
    if not numbers:
        return None
    number = make.one(numbers).name
    generator = make.one(
        [f"explode(array({number}, 5))", f"stack(2, {number}, 7)", f"explode(sequence(0, {number} % 3))"]
    )
    return Relation(f"SELECT *, {generator} AS {made} FROM ({below.text})", columns)


def unpivoted(make: Maker, below: Relation) -> Relation | None:
    kinds = {column.kind for column in below.keys}
    pairs = [of for kind in sorted(kinds) if len(of := below.of(kind)) > 1]
    if not pairs:
        return None
    values = make.some(make.one(pairs), 2, 2)
    kept = [column for column in below.keys if column not in values][:2]
    name, value = make.fresh("u"), make.fresh("u")
    names = ", ".join(column.name for column in (*kept, *values))
    listed = ", ".join(column.name for column in values)
    text = (
        f"SELECT * FROM (SELECT {names} FROM ({below.text})) "
        f"UNPIVOT {make.one(['', 'INCLUDE NULLS '])}({value} FOR {name} IN ({listed}))"
    )
    return Relation(text, (*kept, Column(name, "STRING"), Column(value, values[0].kind)))


def distinct(make: Maker, below: Relation) -> Relation | None:
    keys = tuple(make.some(below.keys, 1, 4))
    if not keys:
        return None
    return Relation(f"SELECT DISTINCT {', '.join(key.name for key in keys)} FROM ({below.text})", keys)


def set_operation(make: Maker, below: Relation) -> Relation | None:
    exact = below.exact
    if exact is None:
        return None
    how = make.one(["UNION", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"])
    other = make.other().exact if make.chance(0.5) else None
    if other is not None and any(family(a.kind) == family(b.kind) for a in exact.columns for b in other.columns):
        left, right, columns = alike(make, exact, other)
    else:
        left, columns = f"SELECT {exact.names} FROM ({exact.text})", exact.columns
        right = f"SELECT {exact.names} FROM ({exact.text}) WHERE {condition(make, exact.columns)}"
    return Relation(f"SELECT * FROM ({left} {how} {right})", columns)
