"""Random tables, data, queries and changes, for hypothesis.

Values come from small sets with NULL among them, so that groups, joins and duplicates happen. Queries are built from
the operators that have a rule. Floating sums depend on the order of their terms, so they are never used as keys.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from headrace.optimisations import OPTIMISATIONS

VALUES = {
    "INT": ["NULL", "0", "1", "2", "-3"],
    "BIGINT": ["NULL", "0", "7", "9000000000"],
    "STRING": ["NULL", "''", "'a'", "'b'", "'It''s'"],
    "DECIMAL(8,2)": ["NULL", "0.00", "1.25", "-2.50", "99.99"],
    "DOUBLE": ["NULL", "0.5D", "-1.25D", "1e10D", "double('NaN')"],
    "DATE": ["NULL", "DATE '2024-01-01'", "DATE '2024-02-29'"],
    "BOOLEAN": ["NULL", "true", "false"],
}
NUMBERS = ("INT", "BIGINT", "DECIMAL(8,2)", "DOUBLE")
INEXACT = "INEXACT"
"""A column whose value may differ in its last bits."""


@dataclass(frozen=True)
class Relation:
    text: str
    columns: tuple[tuple[str, str], ...]

    def of(self, *types: str) -> list[str]:
        return [name for name, kind in self.columns if kind in types]

    @property
    def keys(self) -> list[tuple[str, str]]:
        return [(name, kind) for name, kind in self.columns if kind not in (INEXACT, "DOUBLE", "OTHER")]


@dataclass(frozen=True)
class Table:
    name: str
    columns: tuple[tuple[str, str], ...]

    @property
    def ddl(self) -> str:
        return f"CREATE TABLE {self.name} ({', '.join(f'{name} {kind}' for name, kind in self.columns)})"

    @property
    def relation(self) -> Relation:
        return Relation(f"SELECT {', '.join(n for n, _ in self.columns)} FROM {self.name}", self.columns)


@st.composite
def tables(draw: st.DrawFn, name: str) -> Table:
    kinds = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    return Table(name, (("k", "INT"), *((f"c{i}", kind) for i, kind in enumerate(kinds))))


def literal(kind: str) -> st.SearchStrategy[str]:
    return st.sampled_from(VALUES[kind])


@st.composite
def conditions(draw: st.DrawFn, columns: tuple[tuple[str, str], ...]) -> str:
    usable = [(name, kind) for name, kind in columns if kind in VALUES]
    if not usable:
        return "true"
    name, kind = draw(st.sampled_from(usable))
    simple = draw(
        st.one_of(
            st.just(f"{name} IS NULL"),
            st.just(f"{name} IS NOT NULL"),
            st.builds(lambda o, v: f"{name} {o} {v}", st.sampled_from(["=", "<>", "<", ">=", "<=>"]), literal(kind)),
        )
    )
    if draw(st.booleans()):
        return str(simple)
    other, other_kind = draw(st.sampled_from(usable))
    return f"({simple} {draw(st.sampled_from(['AND', 'OR']))} {other} = {draw(literal(other_kind))})"


@st.composite
def changes(draw: st.DrawFn, table: Table) -> str:
    """One DML statement."""

    def row() -> str:
        return "(" + ", ".join(draw(literal(kind)) for _, kind in table.columns) + ")"

    kind = draw(st.sampled_from(["insert", "insert", "insert", "delete", "update", "overwrite", "merge"]))
    if kind in ("insert", "overwrite"):
        rows = ", ".join(row() for _ in range(draw(st.integers(1, 4))))
        return f"INSERT {'OVERWRITE' if kind == 'overwrite' else 'INTO'} {table.name} VALUES {rows}"
    condition = draw(conditions(table.columns))
    if kind == "delete":
        return f"DELETE FROM {table.name} WHERE {condition}"
    column, column_kind = draw(st.sampled_from(table.columns))
    if kind == "update":
        return f"UPDATE {table.name} SET {column} = {draw(literal(column_kind))} WHERE {condition}"
    return (
        f"MERGE INTO {table.name} t USING (SELECT {draw(st.sampled_from(['0', '1', '2']))} AS k) s ON t.k = s.k "
        f"WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k)"
    )


@st.composite
def relations(draw: st.DrawFn, sources: list[Table], depth: int) -> Relation:
    """A query of at most `depth` operators over each other."""
    if depth == 0:
        return draw(st.sampled_from(sources)).relation
    below = draw(relations(sources, depth - 1))
    shape = draw(
        st.sampled_from(
            ["filter", "project", "join", "join", "group", "group", "distinct", "union", "explode", "global",
             "semi", "semi", "set", "window", "window", "scalar"]
        )
    )  # fmt: skip
    inner = f"({below.text})"
    if shape == "filter":
        return Relation(f"SELECT * FROM {inner} WHERE {draw(conditions(below.columns))}", below.columns)
    if shape == "project":
        kept = draw(st.lists(st.sampled_from(below.columns), min_size=1, max_size=3, unique=True))
        items = [f"{name} AS p{i}" for i, (name, _) in enumerate(kept)]
        columns = [(f"p{i}", kind) for i, (_, kind) in enumerate(kept)]
        numbers = below.of("INT")
        if numbers:
            items.append(f"coalesce({numbers[0]}, 0) + 1 AS q")
            columns.append(("q", "INT"))
        return Relation(f"SELECT {', '.join(items)} FROM {inner}", tuple(columns))
    if shape == "join":
        return _join(draw, below, draw(relations(sources, 0)))
    if shape == "semi":
        return _semi(draw, below, draw(st.sampled_from(sources)).relation)
    if shape == "set":
        return _set(draw, below)
    if shape == "window":
        return _window(draw, below)
    if shape == "scalar":
        return _scalar(draw, below, draw(st.sampled_from(sources)).relation)
    if shape == "union":
        condition = draw(conditions(below.columns))
        return Relation(f"{below.text} UNION ALL SELECT * FROM {inner} WHERE {condition}", below.columns)
    if shape == "explode":
        numbers = below.of("INT")
        if not numbers or any(name == "e" for name, _ in below.columns):
            return below
        return Relation(f"SELECT *, explode(array({numbers[0]}, 5)) AS e FROM {inner}", (*below.columns, ("e", "INT")))
    if shape == "distinct":
        keys = below.keys
        if not keys:
            return below
        return Relation(f"SELECT DISTINCT {', '.join(n for n, _ in keys)} FROM {inner}", tuple(keys))
    return _group(draw, below, everything=shape == "global")


def _join(draw: st.DrawFn, left: Relation, right: Relation) -> Relation:
    pairs = [(a, b) for a, kind in left.keys for b, other in right.keys if kind == other]
    columns = tuple((f"l{i}", kind) for i, (_, kind) in enumerate(left.columns))
    columns += tuple((f"r{i}", kind) for i, (_, kind) in enumerate(right.columns))
    names = [f"l.{name} AS l{i}" for i, (name, _) in enumerate(left.columns)]
    names += [f"r.{name} AS r{i}" for i, (name, _) in enumerate(right.columns)]
    if not pairs:
        return left
    a, b = draw(st.sampled_from(pairs))
    same = draw(st.sampled_from(["=", "<=>"]))
    how = draw(st.sampled_from(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]))
    text = f"SELECT {', '.join(names)} FROM ({left.text}) l {how} ({right.text}) r ON l.{a} {same} r.{b}"
    if draw(st.booleans()):
        name, kind = draw(st.sampled_from(right.keys))
        text += f" AND r.{name} >= {draw(literal(kind))}" if kind in VALUES else ""
    return Relation(text, columns)


def _semi(draw: st.DrawFn, left: Relation, right: Relation) -> Relation:
    pairs = [(a, b) for a, kind in left.keys for b, other in right.keys if kind == other]
    if not pairs:
        return left
    a, b = draw(st.sampled_from(pairs))
    inside = draw(conditions(right.columns))
    test = draw(
        st.sampled_from(
            [
                f"l.{a} IN (SELECT {b} FROM ({right.text}) WHERE {inside})",
                f"l.{a} NOT IN (SELECT {b} FROM ({right.text}) WHERE {inside})",
                f"EXISTS (SELECT 1 FROM ({right.text}) r WHERE r.{b} = l.{a})",
                f"NOT EXISTS (SELECT 1 FROM ({right.text}) r WHERE r.{b} <=> l.{a})",
                f"(l.{a} IS NULL OR EXISTS (SELECT 1 FROM ({right.text}) r WHERE r.{b} = l.{a}))",
            ]
        )
    )
    return Relation(f"SELECT l.* FROM ({left.text}) l WHERE {test}", left.columns)


def _set(draw: st.DrawFn, below: Relation) -> Relation:
    if not below.keys:
        return below
    names = ", ".join(name for name, _ in below.keys)
    how = draw(st.sampled_from(["UNION", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"]))
    condition = draw(conditions(below.columns))
    text = f"SELECT {names} FROM ({below.text}) {how} SELECT {names} FROM ({below.text}) WHERE {condition}"
    return Relation(f"SELECT * FROM ({text})", tuple(below.keys))


def _window(draw: st.DrawFn, below: Relation) -> Relation:
    """Functions whose value does not depend on the order of equal rows."""
    if not below.keys or any(name == "w" for name, _ in below.columns):
        return below
    key, order = draw(st.sampled_from(below.keys))[0], draw(st.sampled_from(below.keys))[0]
    partition = draw(st.sampled_from([f"PARTITION BY {key}", f"PARTITION BY {key}", ""]))
    call = draw(
        st.sampled_from(
            [
                f"rank() OVER ({partition} ORDER BY {order})",
                f"dense_rank() OVER ({partition} ORDER BY {order} DESC NULLS LAST)",
                f"count({order}) OVER ({partition})",
                f"max({order}) OVER ({partition} ORDER BY {order})",
                f"count(*) OVER ({partition} ORDER BY {order} RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)",
            ]
        )
    )
    return Relation(f"SELECT *, {call} AS w FROM ({below.text})", (*below.columns, ("w", "OTHER")))


def _scalar(draw: st.DrawFn, left: Relation, right: Relation) -> Relation:
    if any(name == "z" for name, _ in left.columns):
        return left
    name, kind = draw(st.sampled_from(right.keys))
    same = [a for a, other in left.keys if other == kind]
    inner = f"SELECT {draw(st.sampled_from(['max', 'count', 'min']))}({name}) FROM ({right.text}) r"
    if same and draw(st.booleans()):
        inner += f" WHERE r.{name} = l.{same[0]}"
    return Relation(f"SELECT l.*, ({inner}) AS z FROM ({left.text}) l", (*left.columns, ("z", "OTHER")))


def _group(draw: st.DrawFn, below: Relation, *, everything: bool) -> Relation:
    keys = (
        [] if everything else draw(st.lists(st.sampled_from(below.keys), max_size=2, unique=True)) if below.keys else []
    )
    items = [f"{name} AS g{i}" for i, (name, _) in enumerate(keys)]
    columns = [(f"g{i}", kind) for i, (_, kind) in enumerate(keys)]
    items.append("count(*) AS n")
    columns.append(("n", "OTHER"))
    for i, (name, kind) in enumerate(draw(st.lists(st.sampled_from(below.columns), max_size=3, unique=True))):
        call = draw(st.sampled_from(["count", "min", "max", "sum", "avg", "stddev", "count_distinct"]))
        if call in ("sum", "avg", "stddev") and kind not in (*NUMBERS, INEXACT):
            call = "count"
        if call == "count_distinct" and kind == INEXACT:
            call = "count"
        exact = call in ("count", "min", "max", "count_distinct") and kind != INEXACT
        items.append(f"count(DISTINCT {name}) AS a{i}" if call == "count_distinct" else f"{call}({name}) AS a{i}")
        columns.append((f"a{i}", kind if call in ("min", "max") else "OTHER" if exact else INEXACT))
    items.append(f"count_if({draw(conditions(below.columns))}) AS y")
    columns.append(("y", "OTHER"))
    text = f"SELECT {', '.join(items)} FROM ({below.text})"
    if keys:
        text += f" GROUP BY {', '.join(name for name, _ in keys)}"
    if draw(st.booleans()):
        text += " HAVING count(*) > 1"
    return Relation(text, tuple(columns))


@dataclass(frozen=True)
class Scenario:
    tables: tuple[Table, ...]
    setup: tuple[str, ...]
    queries: tuple[str, ...]
    rounds: tuple[tuple[str, ...], ...]
    off: frozenset[str]
    """Optimisations that are switched off."""
    big_rows: int
    """From so many rows on, tables count as big, and state tables are made."""


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Two tables, some data, four queries, two rounds of changes."""
    sources = [draw(tables("t0")), draw(tables("t1"))]
    one = st.sampled_from(sources).flatmap(changes)
    return Scenario(
        tuple(sources),
        tuple(draw(changes(table)) for table in sources for _ in range(2)),
        tuple(draw(relations(sources, draw(st.integers(1, 3)))).text for _ in range(4)),
        tuple(tuple(draw(st.lists(one, min_size=1, max_size=3))) for _ in range(2)),
        draw(st.sampled_from([frozenset(), frozenset(), *(frozenset({name}) for name in OPTIMISATIONS)])),
        draw(st.sampled_from([0, 50_000])),
    )
