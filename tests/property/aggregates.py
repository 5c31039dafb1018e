"""GROUP BY in all its forms, with every aggregate function that has a rule."""

from __future__ import annotations

from property.linear import COMPUTED
from property.relations import Column, Columns, Maker, Relation, condition
from property.values import NUMBERS, WHOLE, known

_PIVOTED = ("INT", "STRING", "DATE", "BOOLEAN", "DECIMAL(8,2)")
_ADDED_IN_DOUBLES = ("BIGINT", "DOUBLE")

Call = tuple[str, str, bool]
"""The text of an aggregate, the kind of its result, and whether that is exact."""


def grouped(make: Maker, below: Relation) -> Relation | None:
    keys, columns = _keys(make, below, 0, 2)
    items, results = _calls(make, below.columns, 1, 4)
    text = f"SELECT {', '.join([*_named(keys, columns), *items])} FROM ({below.text})"
    if keys:
        text += f" GROUP BY {', '.join(keys)}"
    return Relation(text + _having(make, below), (*columns, *results))


def grouping_sets(make: Maker, below: Relation) -> Relation | None:
    keys, columns = _keys(make, below, 2, 3, computed=False)
    if len(keys) < 2:
        return None
    items, results = _calls(make, below.columns, 1, 3)
    listed, first = ", ".join(keys), keys[0]
    how = make.one([f"ROLLUP({listed})", f"CUBE({listed})", f"GROUPING SETS (({listed}), ({first}), ())"])
    found = Column(make.fresh("id"), "BIGINT")
    items.append(f"grouping_id() AS {found.name}")
    text = f"SELECT {', '.join([*_named(keys, columns), *items])} FROM ({below.text}) GROUP BY {how}"
    return Relation(text + _having(make, below), (*columns, *results, found))


def pivoted(make: Maker, below: Relation) -> Relation | None:
    pivots = below.of(*_PIVOTED)
    if len(below.keys) < 3 or not pivots:
        return None
    pivot = make.one(pivots)
    key, value = make.some([column for column in below.keys if column != pivot], 2, 2)
    values = sorted({known(make.rng, pivot.kind) for _ in range(2)})
    names = [make.fresh("v") for _ in values]
    calls = [_exact_call(make, value) for _ in range(make.rng.randint(1, 2))]
    listed = ", ".join(f"{text} AS a{place}" for place, (text, _, _) in enumerate(calls))
    columns = [key]
    for name in names:
        columns += [
            Column(f"{name}_a{place}" if len(calls) > 1 else name, kind, exact)
            for place, (_, kind, exact) in enumerate(calls)
        ]
    wanted = ", ".join(f"{each} AS {name}" for each, name in zip(values, names, strict=True))
    text = (
        f"SELECT * FROM (SELECT {key.name}, {pivot.name}, {value.name} FROM ({below.text})) "
        f"PIVOT ({listed} FOR {pivot.name} IN ({wanted}))"
    )
    return Relation(text, tuple(columns))


def collected(make: Maker, below: Relation) -> Relation | None:
    """Functions that may choose, with all that leaves them no choice: for the root only."""
    if not below.keys:
        return None
    keys, columns = _keys(make, below, 0, 2)
    everything = f"struct({', '.join(key.name for key in below.keys)})"
    items: list[str] = []
    results: list[Column] = []
    for column in make.some(below.keys, 1, 3):
        x, result = column.name, make.fresh("a")
        forms = [
            f"sort_array(collect_list({x}))",
            f"sort_array(collect_set({x}))",
            f"max_by({x}, {everything})",
            f"min_by({x}, {everything})",
            f"mode() WITHIN GROUP (ORDER BY {x})",
        ]
        if column.kind == "STRING":
            forms += [f"listagg({x}, ',') WITHIN GROUP (ORDER BY {x})"] * 3
            forms.append(f"listagg(DISTINCT {x}) WITHIN GROUP (ORDER BY {x} DESC)")
        if column.kind in NUMBERS:
            forms += [f"percentile_approx({x}, 0.5)", f"percentile_approx({x}, array(0.0, 1.0))"]
        items.append(f"{make.one(forms)} AS {result}")
        results.append(Column(result, "OTHER"))
    text = f"SELECT {', '.join([*_named(keys, columns), *items])} FROM ({below.text})"
    if keys:
        text += f" GROUP BY {', '.join(keys)}"
    return Relation(text + _having(make, below), (*columns, *results))


def _keys(make: Maker, below: Relation, least: int, most: int, *, computed: bool = True) -> tuple[list[str], Columns]:
    """What to group by, and the columns that this gives."""
    texts: list[str] = []
    columns: list[Column] = []
    for column in make.some(below.keys, least, most):
        text, kind = column.name, column.kind
        if computed and kind in COMPUTED and make.chance(0.25):
            form, kind = make.one(COMPUTED[kind])
            text = form.format(c=column.name)
        texts.append(text)
        columns.append(Column(make.fresh("g"), kind))
    return texts, tuple(columns)


def _named(texts: list[str], columns: Columns) -> list[str]:
    return [f"{text} AS {column.name}" for text, column in zip(texts, columns, strict=True)]


def _calls(make: Maker, columns: Columns, least: int, most: int) -> tuple[list[str], list[Column]]:
    items: list[str] = []
    results: list[Column] = []
    for _ in range(make.rng.randint(least, most)):
        text, kind, exact = _call(make, columns)
        if make.chance(0.25):
            text += f" FILTER (WHERE {condition(make, columns)})"
        name = make.fresh("a")
        items.append(f"{text} AS {name}")
        results.append(Column(name, kind, exact))
    return items, results


def _call(make: Maker, columns: Columns) -> Call:
    column = make.one(columns)
    x, kind = column.name, column.kind
    if not column.exact:
        call = make.one(["sum", "avg", "min", "max", "count"])
        return f"{call}({x})", "BIGINT" if call == "count" else "DOUBLE", call == "count"
    keys = [each.name for each in columns if each.exact]
    several = ", ".join(make.some(keys, 2, 3))
    if make.chance(0.3):
        return (
            make.one(
                [
                    "count(*)",
                    f"count_if({condition(make, columns)})",
                    f"count({several})",
                    f"count(DISTINCT {several})",
                    f"approx_count_distinct({x})",
                ]
            ),
            "BIGINT",
            True,
        )
    if make.chance(0.1):
        return f"{make.one(['bool_or', 'every'])}({condition(make, columns)})", "BOOLEAN", True
    if kind in NUMBERS and make.chance(0.6):
        return _number_call(make, x, kind)
    return _exact_call(make, column)


def _exact_call(make: Maker, column: Column) -> Call:
    x, kind = column.name, column.kind
    call = make.one(["count", "min", "max", "count_distinct", "sum" if kind in WHOLE else "max"])
    if call in ("min", "max"):
        return f"{call}({x})", kind, True
    return f"count(DISTINCT {x})" if call == "count_distinct" else f"{call}({x})", "BIGINT", True


def _number_call(make: Maker, x: str, kind: str) -> Call:
    added = "BIGINT" if kind in WHOLE else "DOUBLE" if kind == "DOUBLE" else "DECIMAL"
    average = "DECIMAL" if kind.startswith("DECIMAL") else "DOUBLE"
    calls: list[Call] = [
        (f"sum({x})", added, kind != "DOUBLE"),
        (f"avg({x})", average, kind not in _ADDED_IN_DOUBLES),
        (f"sum(DISTINCT {x})", added, kind != "DOUBLE"),
        (f"avg(DISTINCT {x})", average, average == "DECIMAL"),
        (f"try_sum({x})", added, kind != "DOUBLE"),
        (f"stddev({x})", "DOUBLE", False),
        (f"var_pop({x})", "DOUBLE", False),
        (f"covar_samp({x}, {x})", "DOUBLE", False),
        (f"median({x})", "DOUBLE", True),
        (f"percentile({x}, 0.25)", "DOUBLE", True),
        (f"percentile_cont(0.75) WITHIN GROUP (ORDER BY {x})", "DOUBLE", True),
    ]
    if kind in WHOLE:
        calls.append((f"bit_or({x})", kind, True))
    return make.one(calls)


def _having(make: Maker, below: Relation) -> str:
    if make.chance(0.7):
        return ""
    limits = below.of("INT", "BIGINT", "STRING", "DATE", "DECIMAL(8,2)")
    if limits and make.chance(0.4):
        column = make.one(limits)
        return f" HAVING max({column.name}) >= {known(make.rng, column.kind)}"
    return make.one([" HAVING count(*) > 1", " HAVING count(*) % 2 = 1"])
