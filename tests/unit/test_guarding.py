"""What a server refuses by a statement's words and by its plan, and what it lets through."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import ParseException

from headrace.errors import Dangerous, NotAllowed, Position
from headrace.security.roles import LEAST_ROLE, Principal
from headrace.settings import Settings
from headrace.sql.parser import parse
from headrace.statements import guarding, permitting
from headrace.statements.functions import named_by_functions
from headrace.statements.guarding import danger_in, refuse_dangerous
from headrace.statements.reaching import reached
from unit.plan_double import Call, Jvm, Node, Option, Seq, relation

WAREHOUSE = Path("/lake/warehouse")

REFUSED = [
    "ADD JAR '/tmp/x.jar'",
    "ADD FILE '/etc/passwd'",
    "ADD ARCHIVE '/tmp/x.zip'",
    "LIST JARS",
    "LIST FILE '/etc/passwd'",
    "CREATE FUNCTION f AS 'com.example.F'",
    "CREATE TEMPORARY FUNCTION f AS 'com.example.F' USING JAR '/tmp/x.jar'",
    "CREATE OR REPLACE FUNCTION f AS 'com.example.F'",
    "CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE PYTHON AS $$ return x $$",
    "LOAD DATA INPATH '/etc/passwd' INTO TABLE t",
    "LOAD DATA LOCAL INPATH '/etc/passwd' INTO TABLE t",
    "INSERT OVERWRITE DIRECTORY '/tmp/out' USING csv SELECT 1",
    "INSERT OVERWRITE LOCAL DIRECTORY '/tmp/out' SELECT 1",
    "SELECT TRANSFORM (a) USING 'sh -c id' FROM t",
    "SELECT transform(a) USING \"cat\" AS (b) FROM t",
    "MAP a USING 'cat' FROM t",
    "FROM t REDUCE a USING 'cat'",
    "SELECT * FROM (SELECT TRANSFORM (a) USING r'cat' FROM t)",
    "SELECT * FROM parquet.`/etc/x`",
    "SELECT /*+ X('*/') */ * FROM text.`/etc/passwd` --'",
    "SELECT * FROM PARQUET.`/etc/x`",
    "SELECT * FROM `parquet`.`/etc/x`",
    "SELECT * FROM delta.`/lake/warehouse/dynamic-tables/x`",
    "SELECT * FROM text.`passwd`",
    "SELECT * FROM text . `/etc/passwd`",
    "SELECT * FROM a, json.`s3://bucket/x`",
    "SELECT (SELECT max(x) FROM csv.`/x`)",
    "SELECT * FROM `org.apache.spark.sql.execution.datasources.text.TextFileFormat`.`/etc/passwd`",
    "WITH c AS (TABLE delta.`/x`) SELECT * FROM c",
    "INSERT INTO delta.`/x` VALUES (1)",
    "DELETE FROM delta.`/x`",
    "MERGE INTO t USING delta.`/x` AS s ON t.a = s.a WHEN MATCHED THEN DELETE",
    "SELECT * FROM main.delta.`/x`",
    "SELECT * FROM spark_catalog.text.passwd",
    "SELECT * FROM `org.apache.spark.sql.execution.datasources.text.TextFileFormat`.passwd",
    "VACUUM main.delta.`/x`",
    "RESTORE TABLE main.delta.`/x` TO VERSION AS OF 0",
    "CREATE TABLE STREAM s ON TABLE main.delta.`/x`",
    "CREATE VIEW v AS SELECT * FROM delta.`/x`",
    "CREATE DYNAMIC TABLE d AS SELECT * FROM delta.`/x`",
    "EXPLAIN INCREMENTAL SELECT * FROM delta.`/x`",
    "DESCRIBE DETAIL '/x'",
    "DESCRIBE DETAIL delta.`/x`",
    "VACUUM '/x'",
    "OPTIMIZE '/x'",
    "OPTIMIZE delta.`/x`",
    "CONVERT TO DELTA parquet.`/x`",
    "GENERATE symlink_format_manifest FOR TABLE t",
    "CREATE TABLE t SHALLOW CLONE delta.`/x`",
    "SELECT * FROM table_changes_by_path('/x', 0)",
    "SELECT * FROM `table_changes_by_path`('/x', 0)",
    "SELECT * FROM read_files('/x')",
    "SELECT IDENTIFIER('ref' || 'lect')('java.lang.System', 'exit', 1)",
    "SELECT * FROM IDENTIFIER('par' || 'quet.`/etc/x`')",
    "SELECT * FROM IDENTIFIER('parquet.`/etc/x`')",
    "SELECT IDENTIFIER('reflect')('java.lang.System', 'exit', 1)",
    "CREATE TABLE t (a INT) USING parquet",
    "CREATE TABLE t (a INT) USING csv OPTIONS (path '/etc/passwd')",
    "CREATE TABLE t USING jdbc OPTIONS (url 'jdbc:x')",
    "CREATE TABLE t USING org.apache.spark.sql.jdbc",
    "CREATE TABLE t (a INT) USING delta OPTIONS (path '/x')",
    "CREATE TABLE t (a INT) LOCATION '/etc'",
    "CREATE TABLE t (a INT) LOCATION '/lake/warehouse/../secrets'",
    "CREATE TABLE t (a INT) LOCATION 's3://bucket/x'",
    "CREATE TABLE t (a INT) LOCATION '/lake/warehouse/dynamic-tables/x'",
    "CREATE EXTERNAL TABLE t (a INT) STORED AS PARQUET",
    "CREATE TABLE t (a INT) ROW FORMAT SERDE 'x'",
    "CREATE TABLE t LOCATION '/etc' AS SELECT 1 AS a",
    "CREATE TABLE values (a STRING) LOCATION '/etc'",
    "CREATE TABLE IF NOT EXISTS with (a STRING) USING text",
    "CREATE TABLE s.from (a STRING) USING text OPTIONS (path '/etc/passwd')",
    "CREATE TABLE t (a STRING) WITH PROPERTIES ('a' = 'b') USING text OPTIONS (path '/etc/passwd')",
    "ALTER TABLE s.as SET LOCATION '/etc'",
    "CREATE TEMPORARY VIEW from USING csv OPTIONS (path '/etc/passwd')",
    "ALTER TABLE t SET LOCATION '/etc'",
    "ALTER TABLE t ADD PARTITION (a = 1) LOCATION '/etc'",
    "CREATE TEMPORARY VIEW v USING csv OPTIONS (path '/etc/passwd')",
    "CREATE SCHEMA delta",
    "CREATE SCHEMA main.parquet",
    "SET spark.hadoop.fs.s3a.secret.key = x",
    "SET spark.sql.extensions = x",
    "SET spark.sql.catalog.evil = x",
    "SET spark.sql.warehouse.dir = '/etc'",
    "SET spark.jars = x",
    "SET spark.databricks.delta.retentionDurationCheck.enabled = false",
    "SET spark.sql.variable.substitute = true",
    "SET `spark.sql.variable.substitute` = `true`",
    "SET spark.sql.runSQLOnFiles = true",
    "SET spark.sql.ansi.doubleQuotedIdentifiers = true",
    "SET x = reflect",
    "SET var = 1",
    "SET PATH = a.b, c.d",
    "SET /* */ spark.jars = x",
    "/* */ SET spark.jars = x",
    "RESET",
    "RESET spark.sql.variable.substitute",
    "CALL something()",
    "BEGIN",
    "EXPORT TABLE t TO '/x'",
    "DFS -ls /",
]  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    assert danger_in(parse(text), False, WAREHOUSE) is not None
    assert danger_in(parse(text), True, WAREHOUSE) is not None, "also to an administrator"


ALLOWED = [
    "SELECT 1",
    "SELECT transform(array(1, 2), x -> x + 1)",
    "SELECT t.`a/b`, json.a FROM t JOIN u AS json USING (id)",
    "SELECT * FROM main.sales.t",
    "SELECT * FROM sales.`t`",
    "SELECT 'parquet.`/x`'",
    "SELECT * FROM t -- parquet.`/x`",
    "MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE",
    "CREATE TABLE t (a INT, location STRING, options STRING) USING delta",
    "CREATE TABLE location (a INT)",
    "CREATE TABLE t AS SELECT location FROM places",
    "CREATE TABLE t WITH PROPERTIES ('a' = 'b') AS SELECT location FROM places",
    "CREATE TABLE values AS SELECT location FROM places",
    "SELECT t.json.`a/b`, main.sales.t.a FROM t",
    "CREATE OR REPLACE TABLE t USING DELTA AS SELECT 1 AS a",
    "CREATE TEMPORARY VIEW v AS SELECT location FROM places",
    "CREATE FUNCTION f(x INT) RETURNS INT RETURN x + 1",
    "CREATE FUNCTION f(x INT) RETURNS STRING LANGUAGE SQL RETURN 'AS'",
    "ALTER TABLE t ADD COLUMN location STRING",
    "SET spark.sql.shuffle.partitions = 4",
    "SET spark.sql.ansi.enabled=false",
    "SET TIME ZONE 'Asia/Tokyo'",
    "SET VAR x = (SELECT 1)",
    "SET VARIABLE x = 1",
    "RESET spark.sql.shuffle.partitions",
    "SELECT * FROM IDENTIFIER('sales.t')",
    "CREATE SCHEMA sales",
    "DESCRIBE DETAIL t",
    "SHOW TABLES LIKE '/x'",
]


@pytest.mark.parametrize("text", ALLOWED)
def test_allowed(text: str) -> None:
    assert danger_in(parse(text), False, WAREHOUSE) is None


def test_an_administrator_may_look_at_settings_and_use_places_in_the_warehouse() -> None:
    for text in (
        "SET",
        "SET -v",
        "SET spark.sql.warehouse.dir",
        "CREATE TABLE t (a INT) LOCATION '/lake/warehouse/x/t'",
    ):
        assert danger_in(parse(text), True, WAREHOUSE) is None, text
        assert danger_in(parse(text), False, WAREHOUSE) is not None, text


class _Conf:
    def get(self, key: str) -> str:
        return "false"


def _context(user: Principal, *, guarded: bool = True, allowed: bool = False) -> Any:
    settings = Settings(allow_unsafe_sql=allowed)
    return SimpleNamespace(user=user, guarded=guarded, settings=settings, spark=SimpleNamespace(conf=_Conf()))


ADMIN, DEVELOPER = Principal("root", "admin"), Principal("dev", "developer")


def test_allow_unsafe_sql_is_for_administrators() -> None:
    statement = parse("SELECT * FROM parquet.`/x`")
    refuse_dangerous(_context(ADMIN, allowed=True), statement)
    refuse_dangerous(_context(ADMIN, guarded=False), statement)
    for context in (_context(ADMIN), _context(DEVELOPER), _context(DEVELOPER, allowed=True)):
        with pytest.raises(NotAllowed) as caught:
            refuse_dangerous(context, statement)
        assert caught.value.position is not None
        assert "allow_unsafe_sql" in str(caught.value.hint)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT reflect('java.lang.System', 'exit', 3)",
        "SELECT `reflect`('java.lang.System', 'exit', 3)",
        "SELECT system.builtin.java_method ('a', 'b')",
        "SELECT TRY_REFLECT /* */ ('a', 'b')",
        "CREATE DYNAMIC TABLE d REFRESH START WITH reflect('a', 'b') AS SELECT 1 AS a",
        "SHOW TABLES WHERE reflect('a', 'b') = 'x'",
    ],
)
def test_java_code_is_refused_everywhere(text: str) -> None:
    for context in (_context(ADMIN, guarded=False), _context(ADMIN, allowed=True), _context(DEVELOPER)):
        with pytest.raises(NotAllowed, match="runs Java code"):
            refuse_dangerous(context, parse(text))


# What only Spark's plan shows: here the plans are doubles. tests/statements/test_permitting.py has the real ones.

FORMAT = "org.apache.spark.sql.execution.datasources.text.TextFileFormat"
ODD = f"SELECT named_struct('not', 1).not distinct FROM `{FORMAT}`.`/etc/passwd`"


def _spec(**given: Any) -> Any:
    options = Node("OptionList", options=Seq(*given.pop("options", ())))
    known = {"location": None, "provider": None, "serde": None} | given
    return Node("Spec", optionExpression=options, **{name: Option(value) for name, value in known.items()})


def _returns(kind: str, text: str) -> Node:
    return Node(kind, exprText=Option(text), queryText=Option())


def _new(*parts: str) -> Node:
    return Node("UnresolvedIdentifier", nameParts=Seq(*parts))


PASSWD = relation(FORMAT, "/etc/passwd", start=7)
REACHING = {
    "in a query": Node("Project", Node("Filter", PASSWD)),
    "by a format": Node("Project", relation("delta", "passwd")),
    "by three parts": relation("spark_catalog", "delta", "/x"),
    "by an option": relation("t", given=("path",)),
    "in a subquery": Node("Project", relation("t"), subqueries=(Node("Project", PASSWD),)),
    "in WITH": Node(
        "UnresolvedWith", Node("Project", relation("c")),
        cteRelations=Seq(SimpleNamespace(_1=lambda: "c", _2=lambda: Node("SubqueryAlias", PASSWD))),
    ),
    "as a target": Node("InsertIntoStatement", Node("Project", relation("t")), table=relation("delta", "/x")),
    "in a field": Node("ExplainCommand", logicalPlan=Node("InsertIntoStatement", PASSWD, table=relation("t"))),
    "in a field that may be empty": Node("SomethingNew", first=Option(), second=Option(PASSWD)),
    "at a version": Node("RelationTimeTravel", relation=relation("delta", "/x"), timestamp=Option()),
    "as a new table": Node("CreateTable", _new("delta", "/x"), tableSpec=_spec()),
    "by Delta's own words": Node("VacuumTableCommand", Node("UnresolvedPathBasedDeltaTable")),
    "by a function": Node("UnresolvedTableValuedFunction", name=Seq("Table_Changes_By_Path")),
    "by a computed name": Node("Project", Node("PlanWithUnresolvedIdentifier")),
    "in a new function": _returns("CreateUserDefinedFunction", "odd"),
    "in a new function of the session": _returns("CreateSQLFunctionCommand", "odd"),
    "a place": Node("CreateTable", tableSpec=_spec(location="/etc")),
    "a place of ours": Node("ReplaceTable", tableSpec=_spec(location="/lake/warehouse/dynamic-tables/x")),
    "a format": Node("CreateTableAsSelect", relation("t"), tableSpec=_spec(provider="text")),
    "options": Node("CreateTable", tableSpec=_spec(options=("path",))),
    "a row format": Node("CreateTable", tableSpec=_spec(serde="x")),
    "a place of a copy": Node("CreateTableLike", location=Option("/etc"), provider=Option()),
    "a format of a copy": Node("CreateTableLike", location=Option(), provider=Option("text")),
    "a place of a clone": Node("CloneTableStatement", targetLocation=Option("/etc")),
    "a new place": Node("SetTableLocation", location="s3://bucket/x"),
    "a place of a part": Node("AddPartitions", parts=Seq(SimpleNamespace(location=lambda: Option("/etc")))),
    "a view over files": Node("CreateTempViewUsing"),
    "a program": Node("Project", Node("ScriptTransformation", relation("t"))),
    "a class": Node("CreateFunctionCommand"),
}  # fmt: skip


@pytest.mark.parametrize("plan", REACHING.values(), ids=REACHING)
def test_a_plan_that_reaches_beyond_the_lake(plan: Node) -> None:
    jvm: Any = Jvm({"SELECT odd": Node("Project", PASSWD)})
    assert reached(jvm, plan, WAREHOUSE) is not None


@pytest.mark.parametrize(
    "plan",
    [
        Node("Project", relation("t"), subqueries=(relation("main", "sales", "t"),)),
        Node("Project", relation("a temporary view, or a name of WITH")),
        Node("Project", relation("t", given=("versionasof",))),
        Node("CreateTable", tableSpec=_spec()),
        Node("CreateTable", tableSpec=_spec(provider="DELTA", location="file:/lake/warehouse/x")),
        Node("SetTableLocation", relation("s", "t"), location="/lake/warehouse/x"),
        Node("AddPartitions", parts=Seq(SimpleNamespace(location=lambda: Option()))),
        Node("SetCommand", kv=Option("text")),
        Node("UnresolvedTableValuedFunction", name=Seq("range")),
        _returns("CreateUserDefinedFunction", "plain"),
    ],
)  # fmt: skip
def test_a_plan_that_stays_in_the_lake(plan: Node) -> None:
    jvm: Any = Jvm({"SELECT plain": Node("Project", relation("t"))})
    assert reached(jvm, plan, WAREHOUSE) is None


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Jvm:
    """A parser that finds the file in every text, and cannot read what is no SQL."""

    class Parser(Jvm):
        def parse(self, text: str) -> Node:
            self.parsed.append(text)
            if "no SQL" in text:
                raise ParseException("No.")
            return Node("Project", PASSWD if FORMAT in text else relation("t"))

    parser = Parser()
    monkeypatch.setattr(guarding, "Jvm", lambda _: parser)
    monkeypatch.setattr(guarding, "parsed_text", lambda context, statement, may_ask: statement.text)
    return parser


def test_odd_spelling_does_not_deceive_the_plan(spark: Jvm) -> None:
    assert danger_in(parse(ODD), True, WAREHOUSE) is None, "words do not show it"
    with pytest.raises(Dangerous, match="names files by their path: a server refuses that") as caught:
        refuse_dangerous(_context(ADMIN), parse(ODD))
    assert caught.value.position == Position(1, 8)
    refuse_dangerous(_context(ADMIN), parse("SELECT * FROM t"))


def test_the_plan_is_looked_at_for_administrators_who_were_not_allowed_more(spark: Jvm) -> None:
    for context in (_context(ADMIN, allowed=True), _context(ADMIN, guarded=False), _context(DEVELOPER)):
        refuse_dangerous(context, parse(ODD))
    assert spark.parsed == []


@pytest.mark.parametrize(
    "text",
    [
        f"SHOW TABLES WHERE EXISTS ({ODD})",
        f"SHOW JOBS WHERE EXISTS ({ODD})",
        f"CREATE DYNAMIC TABLE d REFRESH START WITH ({ODD}) INTERVAL 1 MINUTE AS SELECT 1 AS a",
        f"CREATE TABLE STREAM s ON TABLE t TIMESTAMP AS OF ({ODD})",
        f"RESTORE TABLE t TO TIMESTAMP AS OF ({ODD})",
    ],
)
def test_expressions_in_our_own_statements_are_looked_at(spark: Jvm, text: str) -> None:
    with pytest.raises(Dangerous):
        refuse_dangerous(_context(ADMIN), parse(text))


def test_what_cannot_be_parsed_is_not_let_through(spark: Jvm) -> None:
    for text in ("SELECT no SQL", "CREATE TABLE STREAM s ON TABLE t TIMESTAMP AS OF (no SQL)"):
        with pytest.raises(ParseException):
            refuse_dangerous(_context(ADMIN), parse(text))
    refuse_dangerous(_context(ADMIN), parse("SHOW TABLES WHERE no SQL"))  # The condition is refused where it is used.


# What SQL functions name


def _state(functions: dict[str, str]) -> Any:
    """A catalog with these functions in the schema `own`, which is the current one."""
    stored = {
        name: SimpleNamespace(className=lambda: "sqlFunction.x", exprText=lambda t=text: Option(t), queryText=Option)
        for name, text in functions.items()
    } | {"java": SimpleNamespace(className=lambda: "com.example.F")}
    known = SimpleNamespace(
        functionExists=lambda database, name: database == "own" and name in stored,
        getFunction=lambda database, name: stored[name],
    )
    catalog = SimpleNamespace(
        getCurrentDatabase=lambda: "own", databaseExists=lambda name: name == "own", externalCatalog=lambda: known
    )
    built_in = SimpleNamespace(functionExists=lambda name: name in ("max", "abs"))
    return SimpleNamespace(
        catalog=lambda: catalog, functionRegistry=lambda: built_in, tableFunctionRegistry=lambda: built_in,
        sqlParser=lambda: None,
    )  # fmt: skip


def test_functions_are_followed_to_what_they_name() -> None:
    plans = {
        "SELECT one": Node("Project", relation("secret", "pay"), call=Call("max", over=(Call("two"),))),
        "SELECT two": Node("Project", relation("shown"), call=Call("spark_catalog", "own", "ONE")),
        "SELECT rows": Node("Project", Node("UnresolvedTableValuedFunction", name=Seq("two"))),
        "SELECT mine": Node("Project", Node("PlanWithUnresolvedIdentifier")),
    }
    functions = {"one": "one", "two": "two", "rows": "rows", "max": "max of one's own, which Spark does not call"}
    both = {("secret", "pay"), ("shown",)}
    for query, expected in (
        (Node("Project", relation("t"), call=Call("own", "One")), both),
        (Node("Project", relation("t"), subqueries=(Node("Filter", call=Call("abs", over=(Call("one"),))),)), both),
        (Node("UnresolvedTableValuedFunction", name=Seq("own", "rows")), both),
        (Node("Project", call=Call("max", over=(Call("system", "builtin", "one"), Call("nowhere", "one")))), set()),
        (Node("Project", call=Call("own", "java")), set()),
    ):
        jvm: Any = Jvm(plans, _state(functions))
        assert named_by_functions(jvm, query).reads == expected
    jvm = Jvm(plans, _state({"mine": "mine"}))
    assert named_by_functions(jvm, Node("Project", call=Call("mine"))).unknown, "which cannot be judged"


def test_every_statement_that_others_may_run_has_a_rule() -> None:
    for kind, least in LEAST_ROLE.items():
        known = kind in permitting._RULES or kind in permitting._OPEN
        assert known or least == "admin" or kind.__name__ == "RefreshDynamicTables", kind
