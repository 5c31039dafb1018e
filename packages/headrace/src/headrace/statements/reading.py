"""The query of a dynamic table: read by Spark, read again after a source changed, its columns renamed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.catalog.records import DynamicTable
from headrace.errors import HeadraceError, NotAllowed, Position, UserError
from headrace.ivm.maintainable import maintained
from headrace.names import own_column_problem
from headrace.plan.catalyst import read_query
from headrace.plan.query import Cut, Query
from headrace.sql.limits import split_limit
from headrace.sql.tokens import position_at
from headrace.statements.context import Context


def read(context: Context, text: str, statement: str, offset: int) -> Query:
    """The query, read by Spark; positions of errors are those in the whole statement."""
    try:
        return _read(context, text)
    except HeadraceError as error:
        if error.position is not None:
            start = position_at(statement, offset)
            at = error.position
            column = at.column + start.column - 1 if at.line == 1 else at.column
            error.position = Position(at.line + start.line - 1, column)
        raise


def _read(context: Context, text: str) -> Query:
    limited = split_limit(text)
    if limited is not None:
        query = _read_whole(context, limited.body)
        if query.plan is not None and query.order:
            cut = Cut(order=query.order, count=limited.count, offset=limited.offset)
            shown = query.resolved_text + text[len(limited.body) :]
            return query.model_copy(update={"text": text, "resolved_text": shown, "cut": cut})
    return _read_whole(context, text)


def _read_whole(context: Context, text: str) -> Query:
    query = read_query(context.spark, text, locate=context.locate, database_of=context.database_of)
    return maintained(query)


def renamed(query: Query, names: list[str]) -> Query:
    if len({name.lower() for name in names}) < len(names):
        raise UserError("Two columns would have the same name.", hint="Choose names that differ.")
    for problem in filter(None, map(own_column_problem, names)):
        raise NotAllowed(problem, hint="Choose another name.")
    outputs = tuple(c.model_copy(update={"name": n}) for c, n in zip(query.columns, names, strict=True))
    plan = query.plan
    if plan is not None:
        pairs = tuple((name, unique) for name, (_, unique) in zip(names, plan.columns, strict=True))
        plan = plan.model_copy(update={"columns": pairs})
    new_name = {column.name: name for column, name in zip(query.columns, names, strict=True)}
    order = tuple((new_name[name], direction) for name, direction in query.order)
    cut = None if query.cut is None else query.cut.model_copy(update={"order": order})
    return query.model_copy(update={"columns": outputs, "plan": plan, "order": order, "cut": cut})


def rebind(context: Context, table: DynamicTable) -> DynamicTable:
    """The table with its query read again, after a source changed. Its columns must come out the same."""
    with current_database(context, table.database):
        fresh = read(context, table.query.text, table.query.text, 0)
    if len(fresh.columns) == len(table.query.columns):
        fresh = renamed(fresh, [column.name for column in table.query.columns])
    old = [(column.name, column.type) for column in table.query.columns]
    new = [(column.name, column.type) for column in fresh.columns]
    if old != new:
        raise UserError(
            f"The columns of {table.table_name} would change, because a source changed: "
            f"from {_shown(old)} to {_shown(new)}.",
            hint=f"CREATE OR REPLACE DYNAMIC TABLE {table.table_name} with the columns you want.",
        )
    return table.model_copy(update={"query": fresh, "generation": table.generation + 1})


@contextmanager
def current_database(context: Context, database: str) -> Iterator[None]:
    """Names in a stored query mean what they meant when it was written."""
    before = context.spark.catalog.currentDatabase()
    context.spark.catalog.setCurrentDatabase(database)
    try:
        yield
    finally:
        context.spark.catalog.setCurrentDatabase(before)


def _shown(columns: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {type_text.lower()}" for name, type_text in columns)
