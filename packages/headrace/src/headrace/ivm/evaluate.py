"""A plan as a DataFrame over given contents of its sources. Uses only the public DataFrame API."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.errors import Bug
from headrace.names import quote
from headrace.plan.nodes import Aggregate, AggregateCall, Explode, Filter, InnerJoin, Node, Project, Relation, UnionAll

Read = Callable[[Relation], DataFrame]


def evaluate(node: Node, read: Read) -> DataFrame:
    """The rows of `node`; `read` gives the rows of a source under its unique column names."""
    if isinstance(node, Relation):
        return read(node)
    if isinstance(node, Project):
        return project(evaluate(node.child, read), node)
    if isinstance(node, Filter):
        return evaluate(node.child, read).where(node.condition)
    if isinstance(node, InnerJoin):
        return join(evaluate(node.left, read), evaluate(node.right, read), node)
    if isinstance(node, Aggregate):
        return aggregate(evaluate(node.child, read), node)
    if isinstance(node, UnionAll):
        return reduce(DataFrame.union, (relabel(evaluate(child, read), child, node) for child in node.inputs))
    if isinstance(node, Explode):
        return explode(evaluate(node.child, read), node)
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


def join_condition(node: InnerJoin) -> str | None:
    terms = [f"({left}) = ({right})" for left, right in node.equalities]
    terms += [f"({left}) <=> ({right})" for left, right in node.null_safe_equalities]
    if node.condition is not None:
        terms.append(f"({node.condition})")
    return " AND ".join(terms) if terms else None


def join(left: DataFrame, right: DataFrame, node: InnerJoin) -> DataFrame:
    condition = join_condition(node)
    return left.crossJoin(right) if condition is None else left.join(right, F.expr(condition), "inner")


def call_text(call: AggregateCall) -> str:
    argument = "*" if call.argument is None else call.argument
    suffix = f" FILTER (WHERE {call.filter})" if call.filter is not None else ""
    return f"{call.function}({argument}){suffix}"


def aggregate(rows: DataFrame, node: Aggregate) -> DataFrame:
    keyed = with_keys(rows, node.keys)
    grouped = keyed.groupBy(*(quote(key.name) for key in node.keys))
    if not node.calls:
        return keyed.select(*(quote(key.name) for key in node.keys)).distinct()
    return grouped.agg(*(F.expr(call_text(call)).alias(call.name) for call in node.calls))


def with_keys(rows: DataFrame, keys: tuple) -> DataFrame:  # type: ignore[type-arg]
    """The rows with a column for each key expression beside their own."""
    present = set(rows.columns)
    added = [f"{key.text} AS {quote(key.name)}" for key in keys if key.name not in present]
    return rows.selectExpr("*", *added) if added else rows
