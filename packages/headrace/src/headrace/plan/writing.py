"""A plan of our algebra as one SQL query, for queries that were never written down: those of DataFrames.

Every column has a name of its own in the whole plan, so each operator is a SELECT over its input as a subquery, and no
name needs a qualifier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.errors import NotAllowed
from headrace.names import quote
from headrace.plan.jvm import Jvm, items, kind
from headrace.plan.lowering import lower
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
    Plan,
    Project,
    Relation,
    SemiJoin,
    UnionAll,
    Values,
    Window,
)
from headrace.plan.reading import read_plan, table_name
from headrace.plan.spelling import NoRule


def query_of(spark: SparkSession, rows: DataFrame, dynamic: frozenset[str]) -> str:
    """SQL that means what a DataFrame means. `dynamic` are the dynamic tables, as Spark's catalog names them."""
    analyzed, cut = _without_cut(rows._jdf.queryExecution().analyzed(), list(rows.columns))
    names: dict[str, int] = {}
    _collect(analyzed, dynamic, names)
    try:
        lowered, leaves = lower(Jvm(spark), analyzed, {name: at for name, at in names.items() if name in dynamic})
        plan = read_plan(Jvm(spark), lowered, list(rows.columns), names, leaves)
    except NoRule as gap:
        raise NotAllowed(
            f"This DataFrame cannot be written as SQL: {gap}.", hint="Write the query as SQL: session.sql(…)."
        ) from None
    tables = list(names)
    return sql_text(plan, lambda source: ".".join(map(quote, tables[source].split(".")))) + cut


def _without_cut(plan: Any, columns: list[str]) -> tuple[Any, str]:
    """The plan below sort(…).limit(n) at its top, and that as SQL text: over result columns it can be written."""
    if kind(plan) != "GlobalLimit" or kind(plan.child()) != "LocalLimit" or kind(plan.child().child()) != "Sort":
        return plan, ""
    sort = plan.child().child()
    orders = []
    for order in items(sort.order()):
        column = order.child()
        if kind(column) != "AttributeReference" or columns.count(str(column.name())) != 1:
            return plan, ""
        orders.append(f"{quote(str(column.name()))} {order.direction().sql()} {order.nullOrdering().sql()}")
    return sort.child(), f" ORDER BY {', '.join(orders)} LIMIT {plan.limitExpr().sql()}"


def _collect(node: Any, dynamic: frozenset[str], names: dict[str, int]) -> None:
    """The tables that a plan reads, in the order in which they are met."""
    found = None
    if kind(node) == "View":
        identifier = node.desc().identifier()
        view = f"{identifier.database().get()}.{identifier.table()}".lower()
        found = view if view in dynamic else None
    elif kind(node) == "LogicalRelation":
        found = table_name(node)
    if found is not None:
        names.setdefault(found, len(names))
        return
    for below in (*items(node.subqueries()), *items(node.children())):
        _collect(below, dynamic, names)


def sql_text(plan: Plan, table: Callable[[int], str]) -> str:
    """The query; `table` gives the name of a source by its index."""
    shown = ", ".join(f"{quote(column.name)} AS {quote(public)}" for public, column in plan.columns)
    return f"SELECT {shown} FROM {_input(plan.root, table)}"


def _input(node: Node, table: Callable[[int], str]) -> str:
    return f"({_query(node, table)})"


def _query(node: Node, table: Callable[[int], str]) -> str:
    if isinstance(node, Relation):
        own = ", ".join(f"{quote(name)} AS {quote(column.name)}" for name, column in node.columns)
        return f"SELECT {own} FROM {table(node.source)}"
    if isinstance(node, Values):
        return f"SELECT * FROM ({node.query}) AS v({_names(node.output)})"
    if isinstance(node, UnionAll):
        parts = " UNION ALL ".join(_query(each, table) for each in node.inputs)
        return f"SELECT * FROM ({parts}) AS u({_names(node.output)})"
    if isinstance(node, InnerJoin | OuterJoin | SemiJoin):
        return _join(node, table)
    below = _input(node.child, table)
    if isinstance(node, Project):
        return f"SELECT {_list((e.text, e.name) for e in node.expressions)} FROM {below}"
    if isinstance(node, Filter):
        return f"SELECT * FROM {below} WHERE {node.condition}"
    if isinstance(node, Aggregate):
        return _aggregate(node, below)
    if isinstance(node, Window):
        return f"SELECT *, {_list((f.text, f.name) for f in node.functions)} FROM {below}"
    if isinstance(node, Explode):
        return f"SELECT * FROM {below} LATERAL VIEW {node.generator} g AS {_names(node.generated)}"
    assert isinstance(node, Expand)
    names = [column.name for column in node.output]
    return " UNION ALL ".join(
        f"SELECT {_list(zip(texts, names, strict=True))} FROM {below}" for texts in node.projections
    )


def _join(node: AnyJoin, table: Callable[[int], str]) -> str:
    left, right = _input(node.left, table), _input(node.right, table)
    conditions = [f"({a}) = ({b})" for a, b in node.equalities]
    conditions += [f"({a}) <=> ({b})" for a, b in node.null_safe_equalities]
    conditions += [f"({node.condition})"] if node.condition is not None else []
    on = " AND ".join(conditions) or "true"
    if isinstance(node, SemiJoin) and node.flag is not None:
        return f"SELECT *, EXISTS (SELECT 1 FROM {right} WHERE {on}) AS {quote(node.flag.name)} FROM {left}"
    if isinstance(node, SemiJoin):
        words = "LEFT ANTI JOIN" if node.anti else "LEFT SEMI JOIN"
    elif isinstance(node, OuterJoin):
        words = "FULL OUTER JOIN" if node.full else "LEFT OUTER JOIN"
    else:
        words = "INNER JOIN"
    return f"SELECT * FROM {left} {words} {right} ON {on}"


def _aggregate(node: Aggregate, below: str) -> str:
    shown = _list([*((k.text, k.name) for k in node.keys), *((_call(c), c.name) for c in node.calls)])
    by = f" GROUP BY {', '.join(key.text for key in node.keys)}" if node.keys else ""
    return f"SELECT {shown} FROM {below}{by}"


def _call(call: AggregateCall) -> str:
    if call.text is not None:
        return call.text
    only = f" FILTER (WHERE {call.filter})" if call.filter is not None else ""
    return f"{call.function}({call.argument if call.argument is not None else '*'}){only}"


def _list(pairs: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{text} AS {quote(name)}" for text, name in pairs)


def _names(columns: Iterable[Column]) -> str:
    return ", ".join(quote(column.name) for column in columns)
