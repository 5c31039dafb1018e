"""The small algebra that a dynamic table's query is read into.

Nodes are frozen and check themselves when built. Every column has a name that is unique in the whole plan
(`price_17`), so an expression's text means the same wherever it stands. Expressions are Spark SQL text over those
names; Spark wrote them and Spark will parse them back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Column(Frozen):
    """An output column: its unique name and its Spark type as DDL text (`decimal(10,2)`)."""

    name: str
    type: str


class Expression(Frozen):
    """`text AS name`, of type `type`."""

    name: str
    text: str
    type: str

    @property
    def column(self) -> Column:
        return Column(name=self.name, type=self.type)


class Relation(Frozen):
    """A source table, read at some version. `columns` pairs the table's own column name with its unique one."""

    kind: Literal["relation"] = "relation"
    source: int
    """Index into the query's list of sources."""
    columns: tuple[tuple[str, Column], ...]

    @property
    def output(self) -> tuple[Column, ...]:
        return tuple(column for _, column in self.columns)

    @property
    def children(self) -> tuple[Node, ...]:
        return ()


class Project(Frozen):
    kind: Literal["project"] = "project"
    child: Node
    expressions: tuple[Expression, ...]

    @property
    def output(self) -> tuple[Column, ...]:
        return tuple(expression.column for expression in self.expressions)

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.child,)


class Filter(Frozen):
    kind: Literal["filter"] = "filter"
    child: Node
    condition: str

    @property
    def output(self) -> tuple[Column, ...]:
        return self.child.output

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.child,)


class _Join(Frozen):
    """`equalities` are pairs of expressions (over the left side, over the right side) that must be equal, with plain
    SQL equality (NULL matches nothing) or null-safe equality; `condition` is what remains, over both sides."""

    left: Node
    right: Node
    equalities: tuple[tuple[str, str], ...] = ()
    null_safe_equalities: tuple[tuple[str, str], ...] = ()
    condition: str | None = None

    @property
    def output(self) -> tuple[Column, ...]:
        return self.left.output + self.right.output

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @property
    def left_keys(self) -> tuple[str, ...]:
        return tuple(left for left, _ in self.equalities + self.null_safe_equalities)

    @property
    def right_keys(self) -> tuple[str, ...]:
        return tuple(right for _, right in self.equalities + self.null_safe_equalities)


class InnerJoin(_Join):
    kind: Literal["inner_join"] = "inner_join"


class OuterJoin(_Join):
    """Keeps every row of its left side, with NULLs where nothing matches; `full` keeps every row of the right side,
    too. A right join is a left join with its sides exchanged."""

    kind: Literal["outer_join"] = "outer_join"
    full: bool = False


class SemiJoin(_Join):
    """The rows of the left side for which the right side has a match (`anti`: has none), each once. With `flag`, all
    rows of the left side, and in that column whether there is a match."""

    kind: Literal["semi_join"] = "semi_join"
    anti: bool = False
    flag: Column | None = None

    @property
    def output(self) -> tuple[Column, ...]:
        return self.left.output if self.flag is None else (*self.left.output, self.flag)


class AggregateCall(Frozen):
    """One aggregate function: `function(argument)`; `argument` is None for count(*). `text` is set for a call of
    another form, with DISTINCT, several arguments or a FILTER inside: it is the whole call."""

    name: str
    function: str
    argument: str | None
    argument_type: str | None
    type: str
    filter: str | None = None
    text: str | None = None
    distinct_of: tuple[Expression, ...] = ()
    """Of count, sum and avg with DISTINCT, the values that are looked at once each; NULL where a FILTER leaves the row
    out. Their names are empty."""
    chance: str | None = None
    """An aggregate over the same rows that tells whether the value is left to chance: several would do."""
    written: str | None = None
    """The call that this one computes from its results over parts, for people."""

    @property
    def column(self) -> Column:
        return Column(name=self.name, type=self.type)


class Aggregate(Frozen):
    """One row per distinct value of `keys`; with no keys, exactly one row, also over nothing. DISTINCT is an
    Aggregate without calls."""

    kind: Literal["aggregate"] = "aggregate"
    child: Node
    keys: tuple[Expression, ...]
    calls: tuple[AggregateCall, ...]

    @property
    def output(self) -> tuple[Column, ...]:
        return tuple(key.column for key in self.keys) + tuple(call.column for call in self.calls)

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.child,)


class UnionAll(Frozen):
    """Rows of all inputs, by position; `output` carries the names."""

    kind: Literal["union_all"] = "union_all"
    inputs: tuple[Node, ...]
    output: tuple[Column, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return self.inputs

    @model_validator(mode="after")
    def _same_width(self) -> UnionAll:
        for node in self.inputs:
            if len(node.output) != len(self.output):
                raise ValueError("every input of a UNION ALL has as many columns as its output")
        return self


class Explode(Frozen):
    """A generator such as explode or posexplode applied to each row: the child's columns and the generated ones."""

    kind: Literal["explode"] = "explode"
    child: Node
    generator: str
    """Spark SQL text of the call, its `_outer` form already chosen."""
    generated: tuple[Column, ...]

    @property
    def output(self) -> tuple[Column, ...]:
        return self.child.output + self.generated

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.child,)


class Window(Frozen):
    """Window functions, all over the same `keys` (PARTITION BY; none of them: all rows are one partition): the child's
    columns and one for each function, whose text is the whole call with its OVER (…)."""

    kind: Literal["window"] = "window"
    child: Node
    keys: tuple[Expression, ...]
    functions: tuple[Expression, ...]
    order: tuple[str, ...] = ()
    """What the rows of a partition are ordered by, where ties in it would leave the result to chance."""

    @property
    def output(self) -> tuple[Column, ...]:
        return self.child.output + tuple(function.column for function in self.functions)

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.child,)


class Expand(Frozen):
    """Each row several times, once for each list of texts (GROUPING SETS, ROLLUP, CUBE, UNPIVOT)."""

    kind: Literal["expand"] = "expand"
    child: Node
    projections: tuple[tuple[str, ...], ...]
    output: tuple[Column, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.child,)

    @model_validator(mode="after")
    def _same_width(self) -> Expand:
        if any(len(texts) != len(self.output) for texts in self.projections):
            raise ValueError("every projection of an Expand has as many texts as its output")
        return self


class Values(Frozen):
    """Rows written out in the query (VALUES, range(), SELECT without FROM): they never change. `query` is Spark SQL
    that gives them, in the order of `output`."""

    kind: Literal["values"] = "values"
    query: str
    output: tuple[Column, ...]

    @property
    def children(self) -> tuple[Node, ...]:
        return ()


Node = Annotated[
    Relation
    | Values
    | Project
    | Filter
    | InnerJoin
    | OuterJoin
    | SemiJoin
    | Aggregate
    | Window
    | UnionAll
    | Explode
    | Expand,
    Field(discriminator="kind"),
]
AnyJoin = InnerJoin | OuterJoin | SemiJoin

for _model in (Project, Filter, _Join, InnerJoin, OuterJoin, SemiJoin, Aggregate, Window, UnionAll, Explode, Expand):
    _model.model_rebuild()


class Plan(Frozen):
    """A whole query: `columns` pairs each public column name with the root's unique one, in public order."""

    root: Node
    columns: tuple[tuple[str, Column], ...]


def with_children(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node over its children as they come out of a change."""
    if isinstance(node, UnionAll):
        return node.model_copy(update={"inputs": tuple(change(child) for child in node.inputs)})
    fields = [name for name in ("child", "left", "right") if name in type(node).model_fields]
    return node.model_copy(update={name: change(getattr(node, name)) for name in fields}) if fields else node


def walk(node: Node) -> tuple[Node, ...]:
    """The node and everything below it, top first."""
    found: list[Node] = [node]
    for child in node.children:
        found.extend(walk(child))
    return tuple(found)
