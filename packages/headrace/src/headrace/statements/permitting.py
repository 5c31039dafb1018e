"""May this user run this statement? Asked before anything of it is done.

A role says which kinds of statement somebody may run, grants say on what; no grant, no access. Names are judged first
as they are written, so that no error tells whether a forbidden table exists or which columns it has; then by what
Spark's analysis finds behind them. What is not understood is refused.

A view, a dynamic table and a stream show what their makers could read: whoever may read them needs no right on what is
behind them. The maker of a dynamic table or a stream must keep that right: it is asked for at every refresh and read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from headrace.catalog.records import DynamicTable
from headrace.errors import Forbidden, HeadraceError, NotAllowed, NotFound, QueryFailed
from headrace.names import TableName, quote
from headrace.plan.jvm import Jvm
from headrace.result import Result
from headrace.security.own_jobs import is_own
from headrace.security.rights import Rights
from headrace.security.roles import LOCAL_USER, require_role
from headrace.sql import statements as sql
from headrace.sql.tokens import scan
from headrace.statements.altering import with_column
from headrace.statements.context import Context
from headrace.statements.functions import named_by_functions
from headrace.statements.judging import Judge, maker_of, parsed_text, spark_text, unexplainable
from headrace.statements.reading import current_database
from headrace.statements.relations import named_in, queries_in, read_by, subject

_SCHEMA_LISTS = ("SHOW SCHEMAS", "SHOW DATABASES", "SHOW NAMESPACES")


def require(context: Context, statement: sql.Statement) -> None:
    """Raise Forbidden unless the statement's user may run it."""
    if context.user.unlimited:
        return
    if isinstance(statement, sql.RefreshDynamicTables):
        _refresh(Judge(context), statement)
    elif context.user.role != "admin":
        _judge(Judge(context), statement)


def require_read(context: Context, name: TableName) -> None:
    """Raise unless the user may read this table, view, dynamic table or stream."""
    if not context.user.is_admin:
        Judge(context).need("SELECT", name)


def require_change(context: Context, name: TableName) -> None:
    """Raise unless the user may create, change and drop this one."""
    if not context.user.is_admin:
        require_role(context.user, "INSERT", "Writing a table")
        Judge(context).need("ALL", name)


def require_code(
    context: Context,
    one: str = "A task with a Python file or a command",
    many: str = "tasks with a Python file or a command",
) -> None:
    """Raise unless the user may have programs run on the machine of the lake. On a server that is for who runs it to
    allow, also to the lake's owner."""
    if context.user.unlimited and not context.guarded:
        return
    require_role(context.user, "RUN CODE", one)
    if not context.settings.code_tasks:
        raise NotAllowed(
            f"This server runs no {many}.",
            hint="Whoever runs it can allow them: code_tasks = true in headrace.toml, and start it again.",
        )


def require_frame(context: Context, rows: DataFrame) -> None:
    """Raise unless the user may read everything that a DataFrame reads."""
    if not context.user.is_admin:
        analysed = rows._jdf.queryExecution().analyzed()
        Judge(context).reads(read_by(Jvm(context.spark), analysed))
        context.reads_hidden = context.reads_hidden or reads_hidden_rows(context, analysed)


def reads_hidden_rows(context: Context, analysed: Any) -> bool:
    """Whether a plan reads, through views, tables that its user may not read. Spark may look at a row before the view
    has left it out: what it says about that row is not for this user."""
    return not context.user.is_admin and Judge(context).hides(analysed)


def tells_hidden_rows(context: Context, statement: sql.Statement) -> bool:
    """The same for a statement that has failed. What cannot be told any more is taken for hidden."""
    try:
        if isinstance(statement, sql.SparkStatement):
            return not context.user.is_admin and _reads_hidden(context, statement)
        if isinstance(statement, sql.CreateDynamicTable):
            return not context.user.is_admin and _query_reads_hidden(context, statement.query)
        tables = [table for parts in _maintained(statement) if (table := context.dynamic(parts)) is not None]
        return any(hides_rows(context, table) for table in tables) or (
            isinstance(statement, sql.AlterDynamicTable)
            and isinstance(statement.action, sql.AddColumn)
            and not context.user.is_admin
            and any(_column_reads_hidden(context, table, statement.action) for table in tables)
        )
    except (PySparkException, Py4JJavaError, HeadraceError):
        return True


def _maintained(statement: sql.Statement) -> tuple[tuple[str, ...], ...]:
    """The dynamic tables whose queries a statement evaluates."""
    if isinstance(statement, sql.RefreshDynamicTables):
        return statement.names
    return (statement.name,) if isinstance(statement, (sql.AlterDynamicTable, sql.VerifyDynamicTable)) else ()


def _reads_hidden(context: Context, statement: sql.SparkStatement) -> bool:
    jvm = Jvm(context.spark)
    plan = subject(jvm.parse(parsed_text(context, statement, lambda _: True)))
    held = [plan] if named_in(jvm, plan).is_query else queries_in(jvm, plan)
    return any(reads_hidden_rows(context, jvm.analyze(each)) for each in held)


def _query_reads_hidden(context: Context, text: str) -> bool:
    jvm = Jvm(context.spark)
    return reads_hidden_rows(context, jvm.analyze(jvm.parse(spark_text(context, text))))


def _column_reads_hidden(context: Context, table: DynamicTable, action: sql.AddColumn) -> bool:
    with current_database(context, table.database):
        return _query_reads_hidden(context, _with_new_column(table, action))


def hides_rows(context: Context, table: DynamicTable) -> bool:
    """Whether the query of a dynamic table reads tables, be it through views, that its maker, this user or somebody who
    may read it may not read. Its rows are for those who may read it, and so is its history; an error about a row that
    it leaves out is not."""
    return (
        _is_behind(context, table, context.user.name, context.user.is_admin)
        or _hides_from_maker(context, table)
        or _hides_from_readers(context, table)
    )


def _hides_from_maker(context: Context, table: DynamicTable) -> bool:
    maker = context.store.users.user(table.creator)
    if maker is None:
        return table.creator != LOCAL_USER and context.store.users.was_dropped(table.creator)
    return _is_behind(context, table, maker.name, maker.role == "admin")


def _hides_from_readers(context: Context, table: DynamicTable) -> bool:
    return any(
        Rights(context.store.users.grants(user.name)).may("SELECT", table.table_name)
        and _is_behind(context, table, user.name, user.role == "admin")
        for user in context.store.users.users()
    )


def _is_behind(context: Context, table: DynamicTable, user: str, is_admin: bool) -> bool:
    if is_admin:
        return False
    rights = Rights(context.store.users.grants(user))
    names = (TableName(source.workspace, source.schema_name, source.table) for source in table.query.sources)
    return not all(rights.may("SELECT", name) for name in names)


def explains(context: Context, table: DynamicTable) -> bool:
    """Whether this user may see how a dynamic table is computed: which tables are behind the views that it reads, with
    their sizes and conditions."""
    views = any(definition.kind == "view" for definition in table.query.definitions)
    return not (views and _is_behind(context, table, context.user.name, context.user.is_admin))


def require_explainable(context: Context, rows: DataFrame) -> None:
    """Raise when a DataFrame's plan would show what is behind a view of tables that the user may not read."""
    if not context.user.is_admin:
        Judge(context).require_explainable(rows._jdf.queryExecution().analyzed())


def without_rows(condition: str | None) -> QueryFailed:
    """What is told instead."""
    kind = f" [{condition}]" if condition else ""
    return QueryFailed(
        f"The query failed{kind}. On which row is not told, because it reads a view of tables that you may not read.",
        hint="Ask who made the view, or whoever may read its tables.",
    )


def require_condition(context: Context, condition: str | None) -> None:
    """Raise when the WHERE of a SHOW holds more than a condition over the printed columns."""
    if condition is None or context.user.is_admin:
        return
    expression = Jvm(context.spark).state.sqlParser().parseExpression(condition)
    if expression.containsPattern(Jvm(context.spark).pattern("PLAN_EXPRESSION")):
        raise Forbidden(
            "A subquery in the WHERE of a SHOW is for administrators.",
            hint="Put the SHOW into a query: SELECT … FROM (SHOW …) WHERE …",
        )


def viewer(context: Context) -> Callable[[TableName], bool]:
    """Tells which tables the user may see in a list. Ask once for a whole list: the grants are read here."""
    if context.user.is_admin:
        return lambda _: True
    judge = Judge(context)
    return lambda name: judge.rights.may("SELECT", judge.canonical(name))


def visible(context: Context, name: TableName) -> bool:
    """Whether the user may see one table in a list."""
    return viewer(context)(name)


def schema_viewer(context: Context) -> Callable[[str], bool]:
    """Tells which Spark databases the user may see in a list: those where anything was granted."""
    if context.user.is_admin:
        return lambda _: True
    judge = Judge(context)
    return judge.sees


def narrowed_to_visible(context: Context, statement: sql.SparkStatement, result: Result) -> Result:
    """What Spark lists, without what the user may not see."""
    if context.user.is_admin or statement.verb not in _SCHEMA_LISTS:
        return result
    sees = schema_viewer(context)
    rows = result.to_arrow()
    kept = [sees(str(name).strip("`")) for name in rows.column(0).to_pylist()]
    return Result(rows.filter(pa.array(kept, type=pa.bool_())), zone=context.settings.timezone)


def require_maker_reads(context: Context, table: DynamicTable) -> None:
    """Raise unless whoever wrote a dynamic table's query may still read what it reads: the tables and views that it
    names, and those that the SQL functions in it name. Before every refresh, so only texts are looked at."""
    again = "make the table anew with CREATE OR REPLACE DYNAMIC TABLE"
    maker = maker_of(context, table.creator, f"whose query {table.table_name} is", again)
    if maker is None:
        return
    rights = Rights(context.store.users.grants(maker.name))
    with current_database(context, table.database):
        for name in _read_by_query(context, table):
            if not rights.may("SELECT", name):
                raise Forbidden(
                    f"{maker.name}, whose query {table.table_name} is, may not read {name} any more.",
                    hint=f"An administrator can allow it (GRANT SELECT ON TABLE {name} TO {maker.name}), or {again}.",
                )


def _read_by_query(context: Context, table: DynamicTable) -> list[TableName]:
    """The current schema must be that of the query."""
    jvm, judge = Jvm(context.spark), Judge(context)
    plan = jvm.parse(spark_text(context, table.query.text))
    found = set(named_in(jvm, plan).reads)
    if any(definition.kind == "function" for definition in table.query.definitions):
        named = named_by_functions(jvm, plan)
        for what in sorted(named.unknown):
            judge.refuse(what)
        found |= named.reads
    return sorted(judge.name(parts) for parts in found)


# The rules of our own statements


def _judge(judge: Judge, statement: sql.Statement) -> None:
    require_role(judge.user, type(statement), _called(statement))
    rule: Callable[[Judge, Any], None] | None = _RULES.get(type(statement))
    if rule is not None:
        rule(judge, statement)
    elif type(statement) not in _OPEN:
        judge.refuse(_called(statement))


def _read_one(judge: Judge, statement: Any) -> None:
    judge.need("SELECT", judge.context.resolve(statement.name))


def _describe(judge: Judge, statement: sql.DescribeTable) -> None:
    if judge.is_temporary(statement.name):
        judge.temporary_view(statement.name)
    else:
        _read_one(judge, statement)


def _change_one(judge: Judge, statement: Any) -> None:
    judge.need("ALL", judge.context.resolve(statement.name))


def _in_schema(judge: Judge, statement: Any) -> None:
    judge.need_sight(statement.schema)


def _use(judge: Judge, statement: sql.UseSchema) -> None:
    judge.need_sight(statement.parts)


def _create_schema(judge: Judge, statement: sql.CreateSchema) -> None:
    workspace = judge.context.database(statement.parts)[0]
    if workspace.lower() not in {name.lower() for name in judge.context.workspaces()}:
        judge.refuse(f"the workspace {workspace}, which is not there yet")


def _drop_schema(judge: Judge, statement: sql.DropSchema) -> None:
    workspace, schema, _ = judge.context.database(statement.parts)
    judge.need_schema("ALL", workspace, schema)


def _create_dynamic(judge: Judge, statement: sql.CreateDynamicTable) -> None:
    judge.need("ALL", judge.context.resolve(statement.name))
    if statement.start_with is not None:
        judge.expression(statement.start_with)
    judge.own_query(statement.query, statement.text, statement.query_offset)


def _explain_incremental(judge: Judge, statement: sql.ExplainIncremental) -> None:
    judge.own_query(statement.query, statement.text, statement.query_offset, explains=True)


def _explain_refresh(judge: Judge, statement: sql.ExplainRefresh) -> None:
    _read_one(judge, statement)
    table = judge.context.dynamic(statement.name)
    if table is not None and not explains(judge.context, table):
        raise unexplainable()


def _refresh(judge: Judge, statement: sql.RefreshDynamicTables) -> None:
    if not judge.user.is_admin:
        require_role(judge.user, type(statement), _called(statement))
        for parts in statement.names:
            judge.need("ALL", judge.context.resolve(parts))
    for parts in statement.names:
        table = judge.context.dynamic(parts)
        if table is not None:
            require_maker_reads(judge.context, table)


def _alter_dynamic(judge: Judge, statement: sql.AlterDynamicTable) -> None:
    _change_one(judge, statement)
    if isinstance(statement.action, sql.RenameTable):
        judge.need_to_create(judge.context.resolve(statement.action.name))
    table = judge.context.dynamic(statement.name)
    if isinstance(statement.action, sql.AddColumn) and table is not None:
        with current_database(judge.context, table.database):
            text = _with_new_column(table, statement.action)
            judge.own_query(text, text, 0)


def _with_new_column(table: DynamicTable, action: sql.AddColumn) -> str:
    expression = action.expression if action.type is None else f"CAST({action.expression} AS {action.type})"
    return with_column(table.query.text, f"{expression} AS {quote(action.name)}")


def _create_stream(judge: Judge, statement: sql.CreateStream) -> None:
    judge.need("ALL", judge.context.resolve(statement.name))
    judge.need("SELECT", judge.context.resolve(statement.table))
    if statement.timestamp is not None:
        judge.expression(statement.timestamp)


def _restore(judge: Judge, statement: sql.RestoreTable) -> None:
    _change_one(judge, statement)
    if statement.timestamp is not None:
        judge.expression(statement.timestamp)


def _drop_table(judge: Judge, statement: sql.DropTable) -> None:
    if statement.is_view and judge.is_temporary(statement.name):
        return
    require_role(judge.user, "ALTER TABLE", _called(statement))
    _change_one(judge, statement)


def _alter_user(judge: Judge, statement: sql.AlterUser) -> None:
    if statement.role is not None or statement.name.lower() != judge.user.name.lower():
        raise Forbidden(
            "Only an administrator may change another user, or a role.",
            hint=f"Your own password you can set: ALTER USER {judge.user.name} SET PASSWORD '…'.",
        )


def _drop_token(judge: Judge, statement: sql.DropToken) -> None:
    if statement.user is not None and statement.user.lower() != judge.user.name.lower():
        raise Forbidden("Only an administrator may drop another user's token.", hint="Your own: DROP TOKEN 'name'.")


def _show_grants(judge: Judge, statement: sql.ShowGrants) -> None:
    if statement.kind is not None or (statement.user and statement.user.lower() != judge.user.name.lower()):
        raise Forbidden(
            "Only an administrator may see what others were granted.",
            hint="Your own: SHOW GRANTS.",
        )


def _own_job(judge: Judge, statement: sql.CancelJob | sql.DescribeJob) -> None:
    """Another's job is told like one that is not there. A refresh may be seen by whoever may read its table."""
    live = judge.context.compute.live(statement.job_id)
    job = live.job if live is not None else judge.context.store.jobs.get(statement.job_id)
    if job is not None and is_own(judge.context.store, judge.user, job):
        return
    refresh = judge.context.store.refresh(statement.job_id)
    if isinstance(statement, sql.DescribeJob) and job is None and refresh is not None:
        name = TableName(refresh.workspace, refresh.schema_name, refresh.name)
        if judge.rights.may("SELECT", judge.canonical(name)):
            return
    raise NotFound(f"There is no job '{statement.job_id}'.", hint="SHOW JOBS lists your jobs.")


def _create_task(judge: Judge, statement: sql.CreateTask) -> None:
    """What its statements may touch is asked for at each run, in its maker's name."""
    judge.need("ALL", judge.context.resolve(statement.name))
    if statement.kind != "SQL":
        require_code(judge.context)


def _execute_task(judge: Judge, statement: sql.ExecuteTask) -> None:
    _change_one(judge, statement)
    for moment in (statement.at, statement.start, statement.end):
        if moment is not None:
            judge.expression(moment)


def _create_alert(judge: Judge, statement: sql.CreateAlert) -> None:
    """Of an alert of that name that is somebody else's its handler tells, as it does for ALTER and DROP."""
    if statement.object is not None:
        judge.need("SELECT", judge.context.resolve(statement.object))


def _called(statement: sql.Statement) -> str:
    """What people call a statement: its leading words."""
    words: list[str] = []
    for token in scan(statement.text)[:4]:
        if not token.upper or len(words) == 3:
            break
        words.append(token.upper)
    known = {"DYNAMIC", "TABLE", "STREAM", "SCHEMA", "VIEW", "USER", "USERS", "VCLUSTER", "OR", "REPLACE", "DATABASE"}
    known |= {"TASK", "TASKS", "ALERT", "ALERTS", "INTO", "FRESHNESS"}
    while len(words) > 1 and words[-1] not in known:
        words.pop()
    return " ".join(words) or "This statement"


_RULES: dict[type[sql.Statement], Callable[[Judge, Any], None]] = {
    sql.SparkStatement: Judge.spark,
    sql.CreateDynamicTable: _create_dynamic,
    sql.AlterDynamicTable: _alter_dynamic,
    sql.DropDynamicTable: _change_one,
    sql.ExplainRefresh: _explain_refresh,
    sql.VerifyDynamicTable: _read_one,
    sql.ExplainIncremental: _explain_incremental,
    sql.CreateStream: _create_stream,
    sql.AlterStream: _change_one,
    sql.DropStream: _change_one,
    sql.DescribeStream: _read_one,
    sql.DescribeTable: _describe,
    sql.DescribeHistory: _read_one,
    sql.ShowCreateTable: _read_one,
    sql.ShowTables: _in_schema,
    sql.ShowDynamicTables: _in_schema,
    sql.ShowStreams: _in_schema,
    sql.RestoreTable: _restore,
    sql.Vacuum: _change_one,
    sql.DropTable: _drop_table,
    sql.UseSchema: _use,
    sql.CreateSchema: _create_schema,
    sql.DropSchema: _drop_schema,
    sql.AlterUser: _alter_user,
    sql.DropToken: _drop_token,
    sql.ShowGrants: _show_grants,
    sql.CancelJob: _own_job,
    sql.DescribeJob: _own_job,
    sql.CreateTask: _create_task,
    sql.AlterTask: _change_one,
    sql.DropTask: _change_one,
    sql.ExecuteTask: _execute_task,
    sql.DescribeTask: _read_one,
    sql.ShowTasks: _in_schema,
    sql.ShowFreshness: _in_schema,
    sql.CreateAlert: _create_alert,
    sql.CopyInto: _change_one,
}

# For everybody whose role allows them: they touch what is one's own, and their lists are narrowed to it.
_OPEN = (
    sql.AlterAlert, sql.CreateToken, sql.DescribeVcluster, sql.DropAlert, sql.SelectFromShow, sql.SetMoveStreams,
    sql.SetQueryTag, sql.ShowAlertHistory, sql.ShowAlerts, sql.ShowJobs, sql.ShowRefreshHistory, sql.ShowTaskHistory,
    sql.ShowTokens, sql.ShowVclusters, sql.UseVcluster,
)  # fmt: skip
