"""ALTER DYNAMIC TABLE: suspending and resuming, settings, comments, renamed and added columns."""

from __future__ import annotations

from headrace.catalog.records import DynamicTable
from headrace.errors import AlreadyExists, NotFound, Unsupported
from headrace.names import quote
from headrace.plan.query import Query
from headrace.sql import statements as sql
from headrace.sql.tokens import scan
from headrace.statements.checking import check_properties, require_rule, require_vcluster
from headrace.statements.context import Context
from headrace.statements.reading import current_database, read, renamed
from headrace.statements.replacing import replace_query
from headrace.statements.storing import create_view, save


def alter(context: Context, statement: sql.AlterDynamicTable) -> str:
    """Apply one change of settings; gives the sentence to print."""
    table = context.require_dynamic(statement.name)
    action = statement.action
    name = table.table_name
    update: dict[str, object] = {"modified_at": context.clock()}
    if isinstance(action, sql.Suspend):
        update |= {"suspended": True, "suspended_reason": "Suspended by the user."}
        told = f"{name} is suspended: it is refreshed only by hand until it is resumed."
    elif isinstance(action, sql.Resume):
        update |= {"suspended": False, "suspended_reason": None}
        told = f"{name} is resumed."
    elif isinstance(action, sql.SetComment):
        update["comment"] = action.comment
        told = f"The comment of {name} is set."
    elif isinstance(action, sql.SetProperties):
        check_properties(action.properties)
        update["properties"] = {**table.properties, **action.properties}
        told = f"The properties of {name} are set."
    elif isinstance(action, sql.UnsetProperties):
        update["properties"] = {k: v for k, v in table.properties.items() if k not in action.keys}
        told = f"The properties of {name} are unset."
    elif isinstance(action, sql.SetInterval):
        update["interval_seconds"] = action.seconds
        told = f"{name} refreshes every {action.seconds} seconds."
    elif isinstance(action, sql.SetVcluster):
        require_vcluster(context, action.vcluster)
        update["vcluster"] = action.vcluster.lower()
        told = f"{name} refreshes on {action.vcluster}."
    elif isinstance(action, sql.SetRefreshMode):
        update["refresh_mode"] = action.refresh_mode
        told = f"The refresh mode of {name} is {action.refresh_mode}."
    elif isinstance(action, sql.CommentColumn):
        column = _column(table, action.column)
        update["column_comments"] = {**table.column_comments, column: action.comment}
        told = f"The comment of {name}.{column} is set."
    elif isinstance(action, sql.RenameColumn):
        return _rename_column(context, table, action)
    elif isinstance(action, sql.AddColumn):
        return _add_column(context, table, action)
    else:
        raise Unsupported(f"{type(action).__name__} is not available yet.")
    changed = table.model_copy(update=update)
    require_rule(changed)
    save(context, changed)
    if isinstance(action, sql.SetComment | sql.CommentColumn):
        create_view(context, changed)
    return told


def _column(table: DynamicTable, name: str) -> str:
    found = next((c.name for c in table.query.columns if c.name.lower() == name.lower()), None)
    if found is None:
        known = ", ".join(column.name for column in table.query.columns)
        raise NotFound(f"{table.table_name} has no column '{name}'.", hint=f"It has {known}.")
    return found


def _rename_column(context: Context, table: DynamicTable, action: sql.RenameColumn) -> str:
    old = _column(table, action.old)
    names = [action.new if column.name == old else column.name for column in table.query.columns]
    query = renamed(table.query, names)
    comments = {action.new if name == old else name: text for name, text in table.column_comments.items()}
    update: dict[str, object] = {
        "column_comments": comments,
        "partitioned_by": tuple(action.new if c.lower() == old.lower() else c for c in table.partitioned_by),
        "clustered_by": tuple(action.new if c.lower() == old.lower() else c for c in table.clustered_by),
    }
    _rebuild(context, table, query, update, f"Column {old} was renamed to {action.new}.")
    return f"Column {old} of {table.table_name} is now {action.new}."


def _add_column(context: Context, table: DynamicTable, action: sql.AddColumn) -> str:
    if any(column.name.lower() == action.name.lower() for column in table.query.columns):
        raise AlreadyExists(f"{table.table_name} has a column '{action.name}' already.")
    expression = action.expression if action.type is None else f"CAST({action.expression} AS {action.type})"
    text = with_column(table.query.text, f"{expression} AS {quote(action.name)}")
    with current_database(context, table.database):
        query = read(context, text, text, 0)
    query = renamed(query, [*(column.name for column in table.query.columns), action.name])
    _rebuild(context, table, query, {}, f"Column {action.name} was added.")
    return f"Column {action.name} is added to {table.table_name}."


def with_column(text: str, item: str) -> str:
    """The query with one more item at the end of its outermost SELECT list."""
    depth = 0
    inside = False
    before = ""
    starts: list[int] = []
    combined = False
    for token in scan(text):
        word = token.text.upper()
        depth += {"(": 1, ")": -1}.get(word, 0)
        if depth == 0 and word == "SELECT":
            inside = True
        elif depth == 0 and inside and word == "FROM" and before != "DISTINCT":
            starts.append(token.start)
        combined = combined or (depth == 0 and word in ("UNION", "INTERSECT", "EXCEPT", "MINUS"))
        before = word
    if starts and not combined:
        return f"{text[: starts[0]].rstrip()}, {item} {text[starts[0] :]}"
    raise Unsupported(
        "A column can be added to a query with one outermost SELECT … FROM.",
        hint="Write the whole query anew with CREATE OR REPLACE DYNAMIC TABLE.",
    )


def _rebuild(context: Context, table: DynamicTable, query: Query, update: dict[str, object], reason: str) -> None:
    """Give the table another query and load it; on failure everything is as before."""
    changed = table.model_copy(update={"query": query, "modified_at": context.clock(), **update})
    require_rule(changed)
    replace_query(context, table, changed, reason)
