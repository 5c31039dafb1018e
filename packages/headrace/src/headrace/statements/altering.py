"""ALTER DYNAMIC TABLE: suspending and resuming, settings, comments, another name, renamed and added columns."""

from __future__ import annotations

from headrace.catalog.records import DynamicTable, suspended_by
from headrace.errors import AlreadyExists, NotFound, Unsupported
from headrace.names import quote
from headrace.plan.query import Query
from headrace.sql import statements as sql
from headrace.sql.tokens import scan
from headrace.statements import failures, renaming
from headrace.statements.checking import check_properties, require_rule, require_vcluster
from headrace.statements.context import Context
from headrace.statements.elsewhere import alone
from headrace.statements.reading import current_database, read, renamed
from headrace.statements.replacing import replace_query
from headrace.statements.storing import create_view, keep_beside, set_storage_properties


def alter(context: Context, statement: sql.AlterDynamicTable) -> str:
    """Apply one change; gives the sentence to print."""
    table = context.require_dynamic(statement.name)
    if isinstance(statement.action, sql.RenameTable):
        return renaming.rename(context, table, context.resolve(statement.action.name))
    if isinstance(statement.action, sql.RenameColumn):
        return _rename_column(context, table, statement.action)
    if isinstance(statement.action, sql.AddColumn):
        return _add_column(context, table, statement.action)
    if isinstance(statement.action, sql.SetComment | sql.CommentColumn):
        with alone(context, table):
            # The view is made anew: of the definition that is there when its turn has come.
            changed, told = _set(context, table, statement.action)
            set_storage_properties(context, changed)
            create_view(context, changed)
        return told
    if isinstance(statement.action, sql.Resume):
        failures.resume(context, table)
    changed, told = _set(context, table, statement.action)
    keep_beside(context, changed)
    return told


def _set(context: Context, table: DynamicTable, action: sql.Action) -> tuple[DynamicTable, str]:
    """Change a setting, in the operations database; also while the table is refreshed."""
    if isinstance(action, sql.SetProperties):
        check_properties(action.properties)
    if isinstance(action, sql.SetVcluster):
        require_vcluster(context, action.vcluster)
    now = context.clock()
    told = ""

    def change(present: DynamicTable) -> DynamicTable:
        nonlocal told
        update, told = _update(present, action, context.user.name)
        changed = present.model_copy(update={"modified_at": now, **update})
        require_rule(changed)
        return changed

    return context.store.change_table(table.id, change), told


def _update(table: DynamicTable, action: sql.Action, user: str) -> tuple[dict[str, object], str]:
    """The fields that change, and the sentence to print."""
    name = table.table_name
    if isinstance(action, sql.Suspend):
        return (
            {"suspended": True, "suspended_reason": suspended_by(user)},
            f"{name} is suspended: it is refreshed only by hand until it is resumed.",
        )
    if isinstance(action, sql.Resume):
        return {"suspended": False, "suspended_reason": None}, f"{name} is resumed."
    if isinstance(action, sql.SetComment):
        return {"comment": action.comment}, f"The comment of {name} is set."
    if isinstance(action, sql.SetProperties):
        return {"properties": {**table.properties, **action.properties}}, f"The properties of {name} are set."
    if isinstance(action, sql.UnsetProperties):
        kept = {key: value for key, value in table.properties.items() if key not in action.keys}
        return {"properties": kept}, f"The properties of {name} are unset."
    if isinstance(action, sql.SetInterval):
        return {"interval_seconds": action.seconds}, f"{name} refreshes every {action.seconds} seconds."
    if isinstance(action, sql.SetTargetLag):
        told = (
            f"{name} refreshes before the dynamic tables that read it."
            if action.target_lag == "DOWNSTREAM"
            else f"{name} is kept at most {action.target_lag} seconds behind its sources."
        )
        return {"target_lag": action.target_lag}, told
    if isinstance(action, sql.SetVcluster):
        return {"vcluster": action.vcluster.lower()}, f"{name} refreshes on {action.vcluster}."
    if isinstance(action, sql.SetRefreshMode):
        return {"refresh_mode": action.refresh_mode}, f"The refresh mode of {name} is {action.refresh_mode}."
    if isinstance(action, sql.CommentColumn):
        column = _column(table, action.column)
        comments = {**table.column_comments, column: action.comment}
        return {"column_comments": comments}, f"The comment of {name}.{column} is set."
    raise Unsupported(
        f"{type(action).__name__} is no change of a dynamic table.",
        hint="CREATE OR REPLACE makes it anew.",
    )


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
        raise AlreadyExists(
            f"{table.table_name} has a column '{action.name}' already.", hint="Choose another name for the new one."
        )
    expression = action.expression if action.type is None else f"CAST({action.expression} AS {action.type})"
    text = with_column(table.query.text, f"{expression} AS {quote(action.name)}")
    with current_database(context, table.database):
        query = read(context, text, text, 0)
    query = renamed(query, [*(column.name for column in table.query.columns), action.name])
    update: dict[str, object] = {"creator": context.user.name}  # In whose name the query reads from now on.
    _rebuild(context, table, query, update, f"Column {action.name} was added.")
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
