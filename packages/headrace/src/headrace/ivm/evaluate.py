"""A plan as a DataFrame over given contents of its sources. Uses only the public DataFrame API."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.errors import Bug
from headrace.ivm.ties import by_chance, without_ties
from headrace.names import quote
from headrace.plan.nodes import (
    Aggregate,
    AggregateCall,
    AnyJoin,
    Column,
    Expand,
    Explode,
    Filter,
    InnerJoin,
    Node,
    OuterJoin,
    Project,
    Relation,
    SemiJoin,
    UnionAll,
    Values,
    Window,
)

Leaf = Relation | Values
Read = Callable[[Leaf], DataFrame]


Known = Callable[[Node], DataFrame | None]


def evaluate(node: Node, read: Read, known: Known = lambda _: None, *, certain: bool = False) -> DataFrame:
    """The rows of `node`; `read` gives the rows of a leaf under its unique column names, `known` those of any node
    that need not be computed. Where they have to be `certain`, what is left to chance is an error (ivm/ties.py)."""

    def of(below: Node) -> DataFrame:
        return evaluate(below, read, known, certain=certain)

    if isinstance(node, Relation | Values):
        return read(node)
    rows = known(node)
    if rows is not None:
        return rows
    if isinstance(node, Project):
        return project(of(node.child), node)
    if isinstance(node, Filter):
        return of(node.child).where(node.condition)
    if isinstance(node, InnerJoin | OuterJoin | SemiJoin):
        return join(of(node.left), of(node.right), node)
    if isinstance(node, Aggregate):
        return aggregate(of(node.child), node, certain=certain)
    if isinstance(node, UnionAll):
        return reduce(DataFrame.union, (relabel(of(child), child, node) for child in node.inputs))
    if isinstance(node, Explode):
        return explode(of(node.child), node)
    if isinstance(node, Expand):
        return expand(of(node.child), node)
    if isinstance(node, Window):
        rows = of(node.child)
        return window(without_ties(rows, node) if certain else rows, node)
    raise Bug(f"No evaluation for {node.kind}.")


def project(rows: DataFrame, node: Project, *also: str) -> DataFrame:
    """`also` names columns to carry along unchanged."""
    return rows.selectExpr(*(f"{e.text} AS {quote(e.name)}" for e in node.expressions), *map(quote, also))


def relabel(rows: DataFrame, child: Node, union: UnionAll, *also: str) -> DataFrame:
    """An input of a union under the union's column names and types."""
    pairs = zip(child.output, union.output, strict=True)
    return rows.selectExpr(
        *(f"CAST({quote(own.name)} AS {out.type}) AS {quote(out.name)}" for own, out in pairs), *map(quote, also)
    )


def explode(rows: DataFrame, node: Explode) -> DataFrame:
    names = ", ".join(quote(column.name) for column in node.generated)
    return rows.selectExpr("*", f"{node.generator} AS ({names})")


def expand(rows: DataFrame, node: Expand, *also: str) -> DataFrame:
    """One pass over the rows, each repeated as an array of structs."""
    names = [quote(column.name) for column in node.output]
    structs = [
        "struct("
        + ", ".join(
            f"CAST({text} AS {column.type}) AS {quote(column.name)}"
            for text, column in zip(texts, node.output, strict=True)
        )
        + ")"
        for texts in node.projections
    ]
    return rows.selectExpr(*map(quote, also), f"inline(array({', '.join(structs)}))").select(*names, *map(quote, also))


def window(rows: DataFrame, node: Window) -> DataFrame:
    return rows.selectExpr("*", *(f"{e.text} AS {quote(e.name)}" for e in node.functions))


def values(spark: SparkSession, node: Values) -> DataFrame:
    return spark.sql(node.query).toDF(*(column.name for column in node.output))


def join_condition(node: AnyJoin) -> str | None:
    terms = [f"({left}) = ({right})" for left, right in node.equalities]
    terms += [f"({left}) <=> ({right})" for left, right in node.null_safe_equalities]
    if node.condition is not None:
        terms.append(f"({node.condition})")
    return " AND ".join(terms) if terms else None


def join(left: DataFrame, right: DataFrame, node: AnyJoin) -> DataFrame:
    if isinstance(node, OuterJoin):
        return joined(left, right, node, "full" if node.full else "left")
    if not isinstance(node, SemiJoin):
        return joined(left, right, node, "inner")
    if node.flag is None:
        return joined(left, right, node, "left_anti" if node.anti else "left_semi")
    return flagged(left, right, node, node.flag)


def joined(left: DataFrame, right: DataFrame, node: AnyJoin, how: str) -> DataFrame:
    condition = join_condition(node)
    if condition is None and how == "inner":
        return left.crossJoin(right)
    return left.join(right, F.lit(True) if condition is None else F.expr(condition), how)


def flagged(left: DataFrame, right: DataFrame, node: SemiJoin, flag: Column) -> DataFrame:
    """All rows of `left`, with whether they have a match."""
    found = joined(left, right, node, "left_semi").withColumn(flag.name, F.lit(True))
    missed = joined(left, right, node, "left_anti").withColumn(flag.name, F.lit(False))
    return found.union(missed)


def call_text(call: AggregateCall) -> str:
    if call.text is not None:
        return call.text
    argument = "*" if call.argument is None else call.argument
    suffix = f" FILTER (WHERE {call.filter})" if call.filter is not None else ""
    text = f"{call.function}({argument}){suffix}"
    # A sum of sums (plan/distinct.py) has the type of the one.
    return f"CAST({text} AS {call.type})" if call.function == "sum" else text


def aggregate(rows: DataFrame, node: Aggregate, *, certain: bool = False) -> DataFrame:
    keyed = with_keys(rows, node.keys)
    grouped = keyed.groupBy(*(quote(key.name) for key in node.keys))
    if not node.calls:
        return keyed.select(*(quote(key.name) for key in node.keys)).distinct()
    text_of = certain_text if certain else call_text
    return grouped.agg(*(F.expr(text_of(call)).alias(call.name) for call in node.calls))


def certain_text(call: AggregateCall) -> str:
    text = call_text(call)
    return text if call.chance is None else f"CASE WHEN {call.chance} THEN {by_chance(call)} ELSE {text} END"


def with_keys(rows: DataFrame, keys: tuple) -> DataFrame:  # type: ignore[type-arg]
    """The rows with a column for each key expression beside their own."""
    present = set(rows.columns)
    added = [f"{key.text} AS {quote(key.name)}" for key in keys if key.name not in present]
    return rows.selectExpr("*", *added) if added else rows
