"""The small algebra that a dynamic table's query is read into.

Nodes are frozen and check themselves when built. Every column has a name that is unique in the whole plan
(`price_17`), so an expression's text means the same wherever it stands. Expressions are Spark SQL text over those
names; Spark wrote them and Spark will parse them back.
"""

from __future__ import annotations

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


class InnerJoin(Frozen):
    """`equalities` are pairs of expressions (over the left side, over the right side) that must be equal, with plain
    SQL equality (NULL matches nothing) or null-safe equality; `condition` is what remains, over both sides."""

    kind: Literal["inner_join"] = "inner_join"
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


class AggregateCall(Frozen):
    """One aggregate function: `function(argument)`; `argument` is None for count(*)."""

    name: str
    function: Literal["count", "sum", "avg", "min", "max"]
    argument: str | None
    argument_type: str | None
    type: str
    filter: str | None = None

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


Node = Annotated[
    Relation | Project | Filter | InnerJoin | Aggregate | UnionAll | Explode,
    Field(discriminator="kind"),
]

for _model in (Project, Filter, InnerJoin, Aggregate, UnionAll, Explode):
    _model.model_rebuild()


class Plan(Frozen):
    """A whole query: `columns` pairs each public column name with the root's unique one, in public order."""

    root: Node
    columns: tuple[tuple[str, Column], ...]


def walk(node: Node) -> tuple[Node, ...]:
    """The node and everything below it, top first."""
    found: list[Node] = [node]
    for child in node.children:
        found.extend(walk(child))
    return tuple(found)
