"""Which tables a statement names, told from Spark's plan of it: as parsed, and as analysed.

The parsed plan tells every name that is written, also that of a table which is not there. The analysed plan tells what
is read in the end: through temporary views and SQL functions too. What is not known here is reported, not passed over:
whoever asks must refuse it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from headrace.plan.jvm import CATALYST, Jvm, items, optional
from headrace.plan.jvm import kind as class_name

Parts = tuple[str, ...]

PATH = "files by their path"
_COMPUTED = "a name that is computed (IDENTIFIER)"


@dataclass(frozen=True)
class _Form:
    """A command: which role's verb it is, and which of its fields hold what."""

    verb: str
    reads: Parts = ()
    writes: Parts = ()
    creates: Parts = ()
    reads_schema: Parts = ()
    writes_schema: Parts = ()
    function: str | None = None
    """The name of a function; what is done to it is done to its schema."""
    inside: Parts = ()
    """Queries, which are looked into."""
    analysed: bool = False
    """Whether it holds queries or conditions, so that its analysed plan must be looked at as well."""


def _change(verb: str, place: str = "child") -> _Form:
    return _Form(verb, writes=(place,))


_COMMANDS: dict[str, _Form] = {
    "InsertIntoStatement": _Form("INSERT", writes=("table",), inside=("query",), analysed=True),
    "UpdateTable": _Form("UPDATE", writes=("table",), analysed=True),
    "DeleteFromTable": _Form("DELETE", writes=("table",), analysed=True),
    "MergeIntoTable": _Form("MERGE", writes=("targetTable",), inside=("sourceTable",), analysed=True),
    "CreateTable": _Form("CREATE TABLE", creates=("name",)),
    "ReplaceTable": _Form("CREATE TABLE", creates=("name",)),
    "CreateTableAsSelect": _Form("CREATE TABLE", creates=("name",), inside=("query",), analysed=True),
    "ReplaceTableAsSelect": _Form("CREATE TABLE", creates=("name",), inside=("query",), analysed=True),
    "CreateTableLike": _Form("CREATE TABLE", creates=("name",), reads=("source",)),
    "CloneTableStatement": _Form("CREATE TABLE", creates=("target",), reads=("source",)),
    "CreateView": _Form("CREATE PERMANENT VIEW", creates=("child",), inside=("query",), analysed=True),
    "CreateViewCommand": _Form("CREATE TEMPORARY VIEW", inside=("plan",), analysed=True),
    "AlterViewAs": _Form("ALTER VIEW", writes=("child",), inside=("query",), analysed=True),
    "CreateUserDefinedFunction": _Form("CREATE PERMANENT FUNCTION", function="child"),
    "CreateSQLFunctionCommand": _Form("CREATE TEMPORARY FUNCTION"),
    "DropFunction": _Form("DROP FUNCTION", function="child"),
    "RefreshFunction": _Form("REFRESH FUNCTION", function="child"),
    "DropFunctionCommand": _Form("DROP TEMPORARY"),
    "RenameTable": _change("ALTER TABLE"),
    **{
        name: _change("ALTER TABLE")
        for name in (
            "AddCheckConstraint", "AddColumns", "AddConstraint", "AlterColumnSyncIdentity", "AlterColumns",
            "AlterTableAddConstraint", "AlterTableClusterBy", "AlterTableCollation", "AlterTableDropConstraint",
            "AlterTableDropFeature", "AlterViewSchemaBinding", "DropColumns", "DropConstraint", "DropPartitions",
            "RenameColumn", "ReplaceColumns", "SetTableProperties", "SetViewProperties", "UnsetTableProperties",
            "UnsetViewProperties",
        )
    },
    "TruncateTable": _change("TRUNCATE"),
    "TruncatePartition": _change("TRUNCATE"),
    "CommentOnTable": _change("COMMENT ON"),
    "AnalyzeTable": _change("ANALYZE TABLE"),
    "AnalyzeColumn": _change("ANALYZE TABLE"),
    "OptimizeTableCommand": _change("OPTIMIZE"),
    "DeltaReorgTable": _change("REORG TABLE", "target"),
    "RefreshTable": _Form("REFRESH TABLE", reads=("child",)),
    "CacheTable": _Form("CACHE TABLE", reads=("table",)),
    "CacheTableAsSelect": _Form("CACHE TABLE", inside=("plan",), analysed=True),
    "UncacheTable": _Form("UNCACHE TABLE", reads=("table",)),
    "AnalyzeTables": _Form("ANALYZE TABLES", writes_schema=("namespace",)),
    "CommentOnNamespace": _Form("COMMENT ON", writes_schema=("child",)),
    "SetNamespaceProperties": _Form("ALTER SCHEMA", writes_schema=("namespace",)),
    "UnsetNamespacePropertiesCommand": _Form("ALTER SCHEMA", writes_schema=("child",)),
    "DescribeNamespace": _Form("DESCRIBE SCHEMA", reads_schema=("namespace",)),
    "ShowTables": _Form("SHOW TABLE", reads_schema=("namespace",)),
    "ShowTablesExtended": _Form("SHOW TABLE", reads_schema=("namespace",)),
    "ShowViews": _Form("SHOW VIEWS", reads_schema=("namespace",)),
    "ShowFunctions": _Form("SHOW FUNCTIONS", reads_schema=("namespace",)),
    "DescribeFunction": _Form("DESCRIBE FUNCTION", function="child"),
    "ShowColumns": _Form("SHOW COLUMNS", reads=("child",)),
    "ShowPartitions": _Form("SHOW PARTITIONS", reads=("table",)),
    "ShowTableProperties": _Form("SHOW TBLPROPERTIES", reads=("table",)),
    "ShowCreateTable": _Form("DESCRIBE", reads=("child",)),
    "DescribeRelation": _Form("DESCRIBE", reads=("relation",)),
    "DescribeColumn": _Form("DESCRIBE", reads=("relation",)),
    "DescribeDeltaDetailCommand": _Form("DESCRIBE DETAIL", reads=("child",)),
    "DescribeDeltaHistory": _Form("DESCRIBE", reads=("child",)),
    "DescribeQueryCommand": _Form("DESCRIBE QUERY", inside=("plan",), analysed=True),
    "ExplainCommand": _Form("EXPLAIN", inside=("logicalPlan",), analysed=True),
    "SetVariable": _Form("SET", inside=("sourceQuery",), analysed=True),
    "CreateVariable": _Form("DECLARE", analysed=True),
    "DropVariable": _Form("DROP TEMPORARY"),
    "SetCommand": _Form("SET"),
    "ResetCommand": _Form("RESET"),
    "ShowNamespacesCommand": _Form("SHOW SCHEMAS"),
    "ShowCurrentNamespaceCommand": _Form("SHOW CURRENT"),
    "ShowCatalogsCommand": _Form("SHOW CATALOGS"),
}  # fmt: skip

# What a query is made of before its names are resolved.
_QUERY_NODES = frozenset((
    "Aggregate", "AsOfJoin", "BinBy", "Deduplicate", "Distinct", "Except", "Expand", "Filter", "Generate",
    "GlobalLimit", "Intersect", "Join", "LateralJoin", "LimitAll", "LocalLimit", "NearestByJoin", "Offset",
    "PipeOperator", "Pivot", "Project", "RebalancePartitions", "Repartition", "RepartitionByExpression", "Sample",
    "Sort", "SubqueryAlias", "Tail", "Union", "Unpivot", "UnresolvedHaving", "UnresolvedHint", "UnresolvedQualify",
    "UnresolvedSample", "UnresolvedSubqueryColumnAliases", "UnresolvedTVFAliases", "UnresolvedTranspose",
    "UnresolvedWith", "Window", "WithWindowDefinition",
))  # fmt: skip
_ROWS_OF_ITS_OWN = frozenset(
    ("LocalRelation", "OneRowRelation", "Range", "ResolvedInlineTable", "UnresolvedInlineTable")
)
_NAMES = (
    "UnresolvedRelation",
    "UnresolvedTable",
    "UnresolvedTableOrView",
    "UnresolvedView",
    "UnresolvedNamespace",
    "UnresolvedFunctionName",
)
# What holds no plans but its children and those of its expressions.
_WITHOUT_FIELDS = _QUERY_NODES | _ROWS_OF_ITS_OWN | frozenset(_NAMES)
_AROUND_A_TABLE = ("RelationTimeTravel", "RelationChanges")
_CHANGES, _CHANGES_BY_PATH = "table_changes", "table_changes_by_path"

# What an analysed plan may end in without reading a table: rows of the statement's own or of a session's own frames,
# and names that the parsed plan has told already.
_FINE_LEAVES = _ROWS_OF_ITS_OWN | frozenset((
    "CTERelationRef", "CommandResult", "ExternalRDD", "LogicalRDD", "ResolvedIdentifier", "ResolvedNamespace",
    "ResolvedPersistentView", "ResolvedTable", "ResolvedTempView", "UnionLoopRef",
))  # fmt: skip
_PLAN = f"{CATALYST}.plans.logical.LogicalPlan"
_COMMAND = f"{CATALYST}.plans.logical.Command"
_HOLD_A_STATEMENT = {"ExplainCommand": "logicalPlan", "DescribeQueryCommand": "plan"}


@dataclass
class Named:
    """The names in a parsed statement, in Spark's form, and what else must be judged."""

    verbs: set[str] = field(default_factory=set)
    reads: set[Parts] = field(default_factory=set)
    writes: set[Parts] = field(default_factory=set)
    creates: set[Parts] = field(default_factory=set)
    schemas_read: set[Parts] = field(default_factory=set)
    """Without parts: the current one."""
    schemas_written: set[Parts] = field(default_factory=set)
    functions_described: set[Parts] = field(default_factory=set)
    bodies: list[str] = field(default_factory=list)
    """Queries of functions to be made."""
    unknown: set[str] = field(default_factory=set)
    """What only an administrator may use, in words."""
    holds_query: bool = False
    """Whether a command holds a query or a condition."""

    @property
    def is_query(self) -> bool:
        return not self.verbs


def kind(tree: Any) -> str:
    """The name of a node's class; a Scala object's without its mark."""
    return class_name(tree).rstrip("$")


def subject(plan: Any) -> Any:
    """The statement that EXPLAIN or DESCRIBE QUERY is about; any other is its own."""
    while kind(plan) in _HOLD_A_STATEMENT:
        plan = getattr(plan, _HOLD_A_STATEMENT[kind(plan)])()
    return plan


def named_in(jvm: Jvm, plan: Any) -> Named:
    """What a parsed plan names."""
    found = Named()
    waiting: list[tuple[Any, frozenset[str]]] = [(plan, frozenset())]
    while waiting:
        node, ctes = waiting.pop()
        name = kind(node)
        if name in _COMMANDS:
            waiting += [(below, ctes) for below in _command(node, _COMMANDS[name], found)]
        elif name == "UnresolvedRelation":
            _relation(node, ctes, found)
        elif name in _AROUND_A_TABLE:
            waiting.append((node.relation(), ctes))
        elif name == "UnresolvedTableValuedFunction":
            _table_function(jvm, node, found)
        elif name == "UnresolvedWith":
            # A CTE sees those before it, and itself only when it is recursive. The main query sees them all.
            recursive = node.allowRecursion()
            for entry in items(node.cteRelations()):
                own = str(entry._1()).lower()
                waiting.append((entry._2(), ctes | {own} if recursive else ctes))
                ctes = ctes | {own}
            waiting.append((node.child(), ctes))
        elif name in _QUERY_NODES:
            waiting += [(child, ctes) for child in items(node.children())]
        elif name not in _ROWS_OF_ITS_OWN:
            found.unknown.add(_COMPUTED if name == "PlanWithUnresolvedIdentifier" else f"{name}, an unusual operation")
        waiting += [(below, ctes) for below in items(node.subqueries())]
    return found


def nodes_in(jvm: Jvm, plan: Any) -> Iterator[Any]:
    """Every node of a parsed plan, whatever it is: also in subqueries, in WITH, and in the fields of commands."""
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node
        below = items(node.children())
        if kind(node) == "UnresolvedWith":
            below += [entry._2() for entry in items(node.cteRelations())]
        elif kind(node) not in _WITHOUT_FIELDS:
            below += [held for held in _in_fields(jvm, node) if held not in below]
        waiting += below
        waiting += items(node.subqueries())


def _command(node: Any, form: _Form, found: Named) -> list[Any]:
    """Take down what a command names; gives the queries in it."""
    found.verbs.add(form.verb)
    for fields, names in (
        (form.reads, found.reads),
        (form.writes, found.writes),
        (form.creates, found.creates),
        (form.reads_schema, found.schemas_read),
        (form.writes_schema, found.schemas_written),
    ):
        for place in fields:
            _take(getattr(node, place)(), names, found)
    if form.function is not None:
        functions: set[Parts] = set()
        _take(getattr(node, form.function)(), functions, found)
        if form.verb == "DESCRIBE FUNCTION":
            found.functions_described |= functions
        else:
            found.schemas_written |= {parts[:-1] for parts in functions}
    _details(node, found)
    found.holds_query = found.holds_query or form.analysed
    return [getattr(node, place)() for place in form.inside]


def _take(plan: Any, names: set[Parts], found: Named) -> None:
    """Put the name that a command's field holds where it belongs."""
    while kind(plan) in ("SubqueryAlias", "UnresolvedSubqueryColumnAliases"):
        plan = plan.child()
    name = kind(plan)
    if name in _NAMES:
        names.add(parts_of(plan.multipartIdentifier()))
    elif name == "UnresolvedIdentifier":
        names.add(parts_of(plan.nameParts()))
    elif name == "CurrentNamespace":
        names.add(())
    elif "Path" in name:
        found.unknown.add(PATH)
    else:
        found.unknown.add(_COMPUTED if name == "PlanWithUnresolvedIdentifier" else f"{name}, an unusual name")


def parts_of(names: Any) -> Parts:
    return tuple(str(part) for part in items(names))


def _details(node: Any, found: Named) -> None:
    """What a command says beside its names: where files are to lie, a function's text, a new name."""
    name = kind(node)
    if name in ("CreateTable", "CreateTableAsSelect", "ReplaceTable", "ReplaceTableAsSelect"):
        spec = node.tableSpec()
        provider = str(optional(spec.provider()) or "delta").lower()
        if optional(spec.location()) is not None or spec.external():
            found.unknown.add("LOCATION")
        if provider != "delta" or optional(spec.serde()) is not None:
            found.unknown.add("a table that is no Delta table")
        if items(spec.optionExpression().options()):
            found.unknown.add("OPTIONS of a table")
    elif name == "CreateTableLike":
        if optional(node.location()) is not None:
            found.unknown.add("LOCATION")
        if str(optional(node.provider()) or "delta").lower() != "delta" or optional(node.serdeInfo()) is not None:
            found.unknown.add("a table that is no Delta table")
    elif name == "CloneTableStatement" and optional(node.targetLocation()) is not None:
        found.unknown.add("LOCATION")
    elif name == "RenameTable":
        new = parts_of(node.newName())
        old = parts_of(node.child().multipartIdentifier())
        found.creates.add(new if len(new) > 1 else (*old[:-1], *new))  # Spark keeps the schema.
    elif name == "CreateViewCommand" and kind(node.viewType()) != "LocalTempView":
        found.unknown.add("GLOBAL TEMPORARY VIEW, which all sessions share")
    elif name in ("CreateUserDefinedFunction", "CreateSQLFunctionCommand"):
        _function(node, found)


def _function(node: Any, found: Named) -> None:
    """Keep a new function's text, to be judged by itself."""
    if kind(node) == "CreateUserDefinedFunction" and kind(node.language()) != "LanguageSQL":
        found.unknown.add("a function that is not written in SQL")
    if "select" in str(optional(node.inputParamText()) or "").lower():
        found.unknown.add("a query as a parameter's default")
    found.bodies += returned_by(node)


def returned_by(function: Any) -> list[str]:
    """What an SQL function returns, as texts of expressions."""
    expression, query = optional(function.exprText()), optional(function.queryText())
    return ([] if expression is None else [str(expression)]) + ([] if query is None else [f"({query}\n)"])


def _relation(node: Any, ctes: frozenset[str], found: Named) -> None:
    parts = parts_of(node.multipartIdentifier())
    if len(parts) == 1 and parts[0].lower() in ctes:
        return
    if node.isStreaming():
        found.unknown.add("STREAM, a table read as a stream")
    # A target carries a mark of Spark's own among its options.
    if any(str(key) != "__required_write_privileges__" for key in node.options().keySet()):
        found.unknown.add("options on a table (WITH …)")
    found.reads.add(parts)


def _table_function(jvm: Jvm, node: Any, found: Named) -> None:
    function = parts_of(node.name())[-1].lower()
    if function == _CHANGES_BY_PATH:
        found.unknown.add(PATH)
    elif function == _CHANGES:
        arguments = items(node.functionArgs())
        if arguments and kind(arguments[0]) == "Literal":
            text = str(arguments[0].toString())
            found.reads.add(parts_of(jvm.state.sqlParser().parseMultipartIdentifier(text)))


@dataclass
class Read:
    """What an analysed plan reads: tables and permanent views as (database, name), and what is neither."""

    tables: set[tuple[str, str]] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)


def read_by(jvm: Jvm, analysed: Any) -> Read:
    """What an analysed plan reads. A permanent view is read as itself; a temporary one is looked into."""
    found = Read()
    is_command = _is_a(jvm, analysed, _COMMAND)
    waiting = [analysed, *(_held(jvm, analysed) if is_command else [])]
    while waiting:
        node = waiting.pop()
        name = kind(node)
        if name == "View" and not node.isTempView():
            identifier = node.desc().identifier()
            found.tables.add((str(optional(identifier.database()) or ""), str(identifier.table())))
            continue
        below = items(node.children())
        if not below and not (is_command and node is analysed):
            _leaf(node, name, found)
        waiting += below
        waiting += items(node.subqueries())
    return found


def behind_views(analysed: Any, is_open: Callable[[str, str], bool]) -> Read:
    """What permanent views in an analysed plan read, down to the tables. Views that are `is_open` are not looked
    into."""
    found = Read()
    waiting = [(analysed, False)]
    while waiting:
        node, inside = waiting.pop()
        name = kind(node)
        if name == "View" and not node.isTempView():
            identifier = node.desc().identifier()
            if is_open(str(optional(identifier.database()) or ""), str(identifier.table())):
                continue
            inside = True
        below = items(node.children())
        if inside and not below:
            _leaf(node, name, found)
        waiting += [(each, inside) for each in (*below, *items(node.subqueries()))]
    return found


def _is_a(jvm: Jvm, value: Any, wanted: str) -> bool:
    return value is not None and bool(jvm.root.py4j.reflection.TypeUtil.isInstanceOf(wanted, value))


def _held(jvm: Jvm, analysed: Any) -> list[Any]:
    """The plans that a command keeps in its fields and does not show as its children."""
    return [*items(analysed.innerChildren()), *_in_fields(jvm, analysed)]


def queries_in(jvm: Jvm, plan: Any) -> list[Any]:
    """The queries that a parsed command holds."""
    return [each for each in _held(jvm, plan) if kind(each) not in _COMMANDS]


def _in_fields(jvm: Jvm, node: Any) -> list[Any]:
    found = []
    for place in range(node.productArity()):
        value = node.productElement(place)
        if _is_a(jvm, value, "scala.Option"):
            value = optional(value)
        if _is_a(jvm, value, _PLAN):
            found.append(value)
    return found


def _leaf(node: Any, name: str, found: Read) -> None:
    if name in _FINE_LEAVES:
        return
    table = None
    if name == "LogicalRelation":
        table = optional(node.catalogTable())
        if table is None and kind(node.relation()) == "DeltaCDFRelation":
            table = optional(node.relation().catalogTableOpt())
    elif name == "HiveTableRelation":
        table = node.tableMeta()
    elif name == "DataSourceV2Relation":
        identifier = optional(node.identifier())
        namespace = [] if identifier is None else list(identifier.namespace())
        if len(namespace) == 1:
            found.tables.add((str(namespace[0]), str(identifier.name())))
            return
    if table is None:
        found.unknown.add(PATH if "Relation" in name else f"{name}, an unusual source of rows")
        return
    identifier = table.identifier()
    found.tables.add((str(optional(identifier.database()) or ""), str(identifier.table())))
