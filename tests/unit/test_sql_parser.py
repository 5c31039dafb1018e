"""Statements as users write them, and the faults they meet."""

from __future__ import annotations

import pytest

from headrace.errors import HeadraceError, Position, SyntaxFault, Unsupported, UserError
from headrace.sql import parse
from headrace.sql import statements as s


def fault(text: str) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        parse(text)
    return caught.value


def strip(statement: object) -> dict[str, object]:
    return {key: value for key, value in vars(statement).items() if key != "text"}


# Dynamic tables

EVERY_CLAUSE = """create or replace dynamic table ws.`my s`.dt (a comment 'the a', `b c`)
  comment = 'it\\'s' refresh vcluster default interval 5 minute start with timestamp '2024-01-01 00:00:00'
  partitioned by (a) properties ('k'='v', x.y = 3, z = true) refresh_mode = full clustered by (a, `b c`)
as
select a, count(*) as n from t group by a;"""


def test_create_with_every_clause() -> None:
    statement = parse(EVERY_CLAUSE)
    assert isinstance(statement, s.CreateDynamicTable)
    query = "select a, count(*) as n from t group by a"
    assert strip(statement) == {
        "name": ("ws", "my s", "dt"),
        "query": query,
        "query_offset": EVERY_CLAUSE.index(query),
        "columns": (("a", "the a"), ("b c", None)),
        "or_replace": True,
        "if_not_exists": False,
        "partitioned_by": ("a",),
        "clustered_by": ("a", "b c"),
        "comment": "it's",
        "properties": {"k": "v", "x.y": "3", "z": "true"},
        "start_with": "timestamp '2024-01-01 00:00:00'",
        "interval_seconds": 300,
        "vcluster": "default",
        "refresh_mode": "FULL",
        "target_lag": None,
    }
    assert statement.text == EVERY_CLAUSE[:-1]
    assert hash(statement) == hash(parse(EVERY_CLAUSE))


SEEDS = """/* {"app": "dbt", "node_id": "model.cz_dbt_project.product_grossing"} */
create or replace dynamic table dbt_dev.product_grossing
refresh interval 5 minute
vcluster default
as
select
event_date,
product_id,
sum(price) sum_price
from
dbt_dev.events_enriched
group by event_date,product_id;"""


def test_create_as_dbt_writes_it() -> None:
    statement = parse(SEEDS)
    assert isinstance(statement, s.CreateDynamicTable)
    assert (statement.name, statement.interval_seconds, statement.vcluster) == (
        ("dbt_dev", "product_grossing"),
        300,
        "default",
    )
    assert statement.text[statement.query_offset :] == statement.query
    assert statement.query.startswith("select\nevent_date")


@pytest.mark.parametrize(
    ("interval", "seconds"),
    [
        ("5 minute", 300),
        ("5 MINUTES", 300),
        ("'5' MINUTE", 300),
        ("'5 minutes'", 300),
        ("60 SECOND", 60),
        ("2 hours", 7200),
        ("1 day", 86400),
    ],
)
def test_intervals(interval: str, seconds: int) -> None:
    statement = parse(f"CREATE DYNAMIC TABLE dt REFRESH INTERVAL {interval} AS SELECT 1")
    assert isinstance(statement, s.CreateDynamicTable)
    assert statement.interval_seconds == seconds
    altered = parse(f"ALTER DYNAMIC TABLE dt SET REFRESH INTERVAL {interval}")
    assert altered == s.AlterDynamicTable(altered.text, ("dt",), s.SetInterval(seconds))


@pytest.mark.parametrize("interval", ["59 SECOND", "0 DAY", "'30' seconds", "'30 seconds'"])
def test_an_interval_under_a_minute_is_refused(interval: str) -> None:
    error = fault(f"CREATE DYNAMIC TABLE dt\n  REFRESH INTERVAL {interval} AS SELECT 1")
    assert type(error) is UserError
    assert "smallest is 1 minute" in error.message
    assert error.position == Position(2, 20)


def test_start_with_may_hold_an_interval_of_its_own() -> None:
    statement = parse(
        "CREATE DYNAMIC TABLE dt REFRESH START WITH cast('x' as timestamp) + INTERVAL 1 DAY INTERVAL 1 hour AS SELECT 1"
    )
    assert isinstance(statement, s.CreateDynamicTable)
    assert statement.start_with == "cast('x' as timestamp) + INTERVAL 1 DAY"
    assert statement.interval_seconds == 3600


@pytest.mark.parametrize(
    "query",
    ["SELECT 1", "(SELECT 1)", "WITH a AS (SELECT 1) SELECT * FROM a", "FROM t SELECT x", "VALUES (1)", "TABLE t"],
)
def test_queries_stay_text(query: str) -> None:
    created = parse(f"CREATE DYNAMIC TABLE IF NOT EXISTS dt AS {query} -- end")
    assert isinstance(created, s.CreateDynamicTable)
    assert created.query == query
    assert created.if_not_exists
    explained = parse(f"EXPLAIN INCREMENTAL {query}")
    assert isinstance(explained, s.ExplainIncremental)
    assert explained.text[explained.query_offset :] == explained.query == query


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("SUSPEND", s.Suspend()),
        ("resume", s.Resume()),
        ("SET COMMENT 'c'", s.SetComment("c")),
        ("SET COMMENT = 'c'", s.SetComment("c")),
        ("SET PROPERTIES('a'='b')", s.SetProperties({"a": "b"})),
        ("UNSET PROPERTIES ('a', b.c)", s.UnsetProperties(("a", "b.c"))),
        ("SET VCLUSTER `my vc`", s.SetVcluster("my vc")),
        ("SET REFRESH_MODE = incremental", s.SetRefreshMode("INCREMENTAL")),
        ("RENAME TO a.b", s.RenameTable(("a", "b"))),
        ("RENAME COLUMN a TO `b c`", s.RenameColumn("a", "b c")),
        ("CHANGE COLUMN a COMMENT ''", s.CommentColumn("a", "")),
        ("ADD COLUMN a AS b + 1", s.AddColumn("a", None, "b + 1")),
        ("ADD COLUMN a decimal(10, 2) AS cast(b AS int)", s.AddColumn("a", "decimal(10, 2)", "cast(b AS int)")),
    ],
)
def test_alter(action: str, expected: s.Action) -> None:
    text = f"ALTER DYNAMIC TABLE s.dt {action}"
    assert parse(text) == s.AlterDynamicTable(text, ("s", "dt"), expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("REFRESH DYNAMIC TABLE a", s.RefreshDynamicTables("", (("a",),))),
        ("REFRESH DYNAMIC TABLE a FULL", s.RefreshDynamicTables("", (("a",),), full=True)),
        ("refresh dynamic table a, s.b, w.s.c", s.RefreshDynamicTables("", (("a",), ("s", "b"), ("w", "s", "c")))),
        ("DROP DYNAMIC TABLE IF EXISTS a.b", s.DropDynamicTable("", ("a", "b"), True)),
        ("DROP DYNAMIC TABLE a", s.DropDynamicTable("", ("a",), False)),
        ("EXPLAIN REFRESH DYNAMIC TABLE a", s.ExplainRefresh("", ("a",))),
        ("VERIFY DYNAMIC TABLE `a``b`", s.VerifyDynamicTable("", ("a`b",))),
        ("SHOW DYNAMIC TABLES", s.ShowDynamicTables("")),
        (
            "show dynamic tables in w.s like 'p%' limit 3",
            s.ShowDynamicTables("", ("w", "s"), "p%", None, 3),
        ),
        (
            "show dynamic table refresh history where name ='product_grossing'",
            s.ShowRefreshHistory("", "name ='product_grossing'", None),
        ),
        (
            "SHOW DYNAMIC TABLE REFRESH HISTORY WHERE a IN (SELECT x FROM t LIMIT 2) LIMIT 5;",
            s.ShowRefreshHistory("", "a IN (SELECT x FROM t LIMIT 2)", 5),
        ),
        ("SHOW DYNAMIC TABLE REFRESH HISTORY LIMIT 5", s.ShowRefreshHistory("", None, 5)),
        ("SHOW TABLES", s.ShowTables("")),
        ("SHOW TABLES FROM s 'x*'", s.ShowTables("", ("s",), "x*", None, None)),
        ("SHOW TABLES IN s WHERE is_dynamic", s.ShowTables("", ("s",), None, "is_dynamic", None)),
        ("SHOW CREATE TABLE s.t", s.ShowCreateTable("", ("s", "t"))),
        ("desc extended product_grossing;", s.DescribeTable("", ("product_grossing",), True)),
        ("DESCRIBE TABLE EXTENDED s.t", s.DescribeTable("", ("s", "t"), True)),
        ("DESC TABLE t", s.DescribeTable("", ("t",), False)),
        ("DESC extended", s.DescribeTable("", ("extended",), False)),
        ("DESC history", s.DescribeTable("", ("history",), False)),
        ("DESC history.t", s.DescribeTable("", ("history", "t"), False)),
        ("DESC user", s.DescribeTable("", ("user",), False)),
        ("DESC schema", s.DescribeTable("", ("schema",), False)),
        ("DESC HISTORY s.t LIMIT 3", s.DescribeHistory("", ("s", "t"), 3)),
        ("RESTORE TABLE t TO VERSION AS OF 3", s.RestoreTable("", ("t",), 3, None)),
        (
            "RESTORE TABLE t TO TIMESTAMP AS OF now() - INTERVAL 1 DAY",
            s.RestoreTable("", ("t",), None, "now() - INTERVAL 1 DAY"),
        ),
        ("DROP TABLE IF EXISTS a.t PURGE", s.DropTable("", ("a", "t"), True, False)),
        ("DROP TABLE stream", s.DropTable("", ("stream",), False, False)),
        ("DROP VIEW v", s.DropTable("", ("v",), False, True)),
        ("USE s", s.UseSchema("", ("s",))),
        ("USE SCHEMA w.s", s.UseSchema("", ("w", "s"))),
        ("USE schema", s.UseSchema("", ("schema",))),
        ("USE task", s.UseSchema("", ("task",))),
        ("CREATE SCHEMA IF NOT EXISTS w.s", s.CreateSchema("", ("w", "s"), True)),
        ("create database s comment 'c'", s.CreateSchema("", ("s",), False, "c")),
        ("DROP SCHEMA IF EXISTS s CASCADE", s.DropSchema("", ("s",), True, True)),
        ("DROP DATABASE s RESTRICT", s.DropSchema("", ("s",), False, False)),
    ],
)
def test_statements_of_ours(text: str, expected: s.Statement) -> None:
    statement = parse(text)
    assert type(statement) is type(expected)
    assert strip(statement) == strip(expected)


# SHOW inside a query


@pytest.mark.parametrize(
    ("text", "before", "show", "after"),
    [
        ("SELECT * FROM (SHOW TABLES) t WHERE x", "SELECT * FROM ", s.ShowTables, " t WHERE x"),
        ("SELECT * FROM ((( SHOW TABLES )))", "SELECT * FROM ", s.ShowTables, ""),
        (
            "select name from (show dynamic tables in s where a = (b)) limit 1",
            "select name from ",
            s.ShowDynamicTables,
            " limit 1",
        ),
        ("SELECT * FROM (SHOW SCHEMAS) s", "SELECT * FROM ", s.SparkStatement, " s"),
        ("WITH a AS (SHOW TABLES) SELECT * FROM a", "WITH a AS (SELECT * FROM ", s.ShowTables, ") SELECT * FROM a"),
        ("SELECT * FROM t, (SHOW COLUMNS IN t) c", "SELECT * FROM t, ", s.SparkStatement, " c"),
        ("INSERT INTO x SELECT * FROM (SHOW TABLES)", "INSERT INTO x SELECT * FROM ", s.ShowTables, ""),
    ],
)
def test_select_from_show(text: str, before: str, show: type[s.Statement], after: str) -> None:
    statement = parse(text)
    assert isinstance(statement, s.SelectFromShow)
    assert (statement.before, statement.after) == (before, after)
    assert type(statement.show) is show
    assert statement.show.text.upper().startswith("SHOW ")
    assert statement.show.text in text
    assert parse(statement.show.text) == statement.show


def test_what_others_call_the_schedule_is_understood_around_the_history() -> None:
    text = "SELECT count_if(refresh_trigger = 'LH_SCHEDULED') FROM (SHOW {}) WHERE refresh_trigger IN ('lh_scheduled')"
    found = parse(text.format("DYNAMIC TABLE REFRESH HISTORY"))
    assert isinstance(found, s.SelectFromShow)
    assert found.before == "SELECT count_if(refresh_trigger = 'SYSTEM_SCHEDULED') FROM "
    assert found.after == " WHERE refresh_trigger IN ('SYSTEM_SCHEDULED')"
    other = parse(text.format("TABLES"))
    assert isinstance(other, s.SelectFromShow)
    assert other.after == " WHERE refresh_trigger IN ('lh_scheduled')"


def test_two_shows_come_out_one_after_the_other() -> None:
    first = parse("SELECT * FROM (SHOW TABLES) a JOIN (SHOW DYNAMIC TABLES) b USING (table_name)")
    assert isinstance(first, s.SelectFromShow)
    assert isinstance(first.show, s.ShowTables)
    second = parse(f"{first.before}one{first.after}")
    assert isinstance(second, s.SelectFromShow)
    assert isinstance(second.show, s.ShowDynamicTables)
    assert isinstance(parse(f"{second.before}two{second.after}"), s.SparkStatement)


def test_a_column_called_show_is_no_show() -> None:
    assert isinstance(parse("SELECT a, (show) FROM t WHERE (show IS NULL)"), s.SparkStatement)


def test_a_fault_inside_a_show_points_into_the_whole_statement() -> None:
    error = fault("SELECT *\nFROM (SHOW TABLES IN)")
    assert error.position == Position(2, 21)
    assert "expected a schema name, found the end" in error.message


# Spark's statements


@pytest.mark.parametrize(
    ("text", "verb", "writes"),
    [
        ("SELECT 1", "SELECT", []),
        ("(SELECT 1) UNION (SELECT 2)", "SELECT", []),
        ("WITH insert AS (SELECT 1) SELECT * FROM insert", "SELECT", []),
        ("WITH a AS (SELECT 1), b AS (SELECT 2) INSERT INTO s.t SELECT * FROM a", "INSERT", ["s.t"]),
        ("WITH a (SELECT 1) FROM a INSERT INTO b SELECT 1 INSERT INTO c SELECT 2", "INSERT", ["b", "c"]),
        ("WITH RECURSIVE select(n) AS (SELECT 1) INSERT INTO t SELECT 1", "INSERT", ["t"]),
        ("INSERT INTO t VALUES (1)", "INSERT", ["t"]),
        ("insert overwrite table w.s.t select 1", "INSERT", ["w.s.t"]),
        ("INSERT OVERWRITE DIRECTORY '/x' SELECT 1", "INSERT", []),
        ("FROM x INSERT INTO a SELECT 1 INSERT INTO TABLE b SELECT 2", "INSERT", ["a", "b"]),
        ("FROM x SELECT y", "SELECT", []),
        ("UPDATE t SET a = 1", "UPDATE", ["t"]),
        ("DELETE FROM s.t WHERE x", "DELETE", ["s.t"]),
        ("merge into dbt_dev.e as d using x as s on false when not matched then insert *", "MERGE", ["dbt_dev.e"]),
        ("MERGE WITH SCHEMA EVOLUTION INTO t USING u ON a", "MERGE", ["t"]),
        ("TRUNCATE TABLE t", "TRUNCATE", ["t"]),
        ("CREATE TABLE IF NOT EXISTS s.t (a int)", "CREATE TABLE", ["s.t"]),
        ("CREATE OR REPLACE TABLE t AS SELECT 1", "CREATE TABLE", ["t"]),
        ("create or replace temporary view v as select 1", "CREATE VIEW", ["v"]),
        ("CREATE TABLE stream (a int)", "CREATE TABLE", ["stream"]),
        ("CREATE FUNCTION f AS 'x'", "CREATE FUNCTION", []),
        ("ALTER TABLE t SET PROPERTIES ('change_tracking'='true')", "ALTER TABLE", ["t"]),
        ("ALTER TABLE stream SET TBLPROPERTIES ('a'='b')", "ALTER TABLE", ["stream"]),
        ("OPTIMIZE t ZORDER BY (a)", "OPTIMIZE", ["t"]),
        ("VACUUM s.t USING INVENTORY i", "VACUUM", ["s.t"]),
        ("VACUUM '/path'", "VACUUM", []),
        ("INSERT INTO IDENTIFIER('s.t') VALUES (1)", "INSERT", ["s.t"]),
        ("EXPLAIN INSERT INTO t VALUES (1)", "EXPLAIN", []),
        ("SHOW SCHEMAS", "SHOW SCHEMAS", []),
        ("DESC t a_column", "DESCRIBE", []),
        ("DESC FUNCTION f", "DESCRIBE FUNCTION", []),
        ("DESC SELECT 1", "DESCRIBE", []),
        ("SET a.b = c", "SET", []),
        ("REFRESH TABLE t", "REFRESH TABLE", ["t"]),
    ],
)
def test_sparks_statements(text: str, verb: str, writes: list[str]) -> None:
    statement = parse(text)
    assert isinstance(statement, s.SparkStatement)
    assert (statement.verb, [".".join(target.parts) for target in statement.writes]) == (verb, writes)


def test_the_target_of_a_write_has_a_position() -> None:
    statement = parse("WITH a AS (SELECT 1)\nINSERT INTO s.t SELECT 1")
    assert isinstance(statement, s.SparkStatement)
    assert statement.writes == (s.WriteTarget(("s", "t"), Position(2, 13)),)


def test_a_computed_target_is_refused() -> None:
    assert isinstance(fault("INSERT INTO IDENTIFIER('a' || 'b') VALUES (1)"), Unsupported)


# Faults


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("", "expected a statement, found nothing", (1, 1)),
        (" -- only a comment", "expected a statement, found nothing", (1, 1)),
        ("SELCT 1", "expected a statement, found 'SELCT'", (1, 1)),
        ("CREATE DYNAMIC TABLE", "expected a table name, found the end of the statement", (1, 21)),
        ("CREATE DYNAMIC VIEW v", "expected TABLE, found 'VIEW'", (1, 16)),
        ("CREATE DYNAMIC TABLE dt SELECT 1", "expected a clause or AS, found 'SELECT'", (1, 25)),
        ("CREATE DYNAMIC TABLE dt\nREFRESH 5 AS SELECT 1", "expected START WITH, INTERVAL or VCLUSTER", (2, 9)),
        ("CREATE DYNAMIC TABLE dt REFRESH INTERVAL 5 WEEK AS SELECT 1", "expected SECOND, MINUTE", (1, 44)),
        ("CREATE DYNAMIC TABLE dt COMMENT 'a' COMMENT 'b' AS SELECT 1", "COMMENT is given twice", (1, 37)),
        ("CREATE DYNAMIC TABLE dt (a int) AS SELECT 1", "expected COMMENT, ',' or ')'", (1, 28)),
        ("CREATE DYNAMIC TABLE dt AS", "expected a query, found the end", (1, 27)),
        ("CREATE DYNAMIC TABLE dt AS DELETE FROM t", "expected a query, found 'DELETE'", (1, 28)),
        ("CREATE DYNAMIC TABLE dt AS SELECT (1", "this parenthesis is never closed", (1, 35)),
        ("CREATE DYNAMIC TABLE dt REFRESH_MODE = SOMETIMES AS SELECT 1", "expected AUTO, INCREMENTAL", (1, 40)),
        ("REFRESH DYNAMIC TABLE a b", "expected the end of the statement, found 'b'", (1, 25)),
        ("SHOW DYNAMIC TABLES WHERE", "expected a condition", (1, 26)),
        ("SHOW TABLES WHERE a UNION SELECT 1", "expected LIMIT or the end", (1, 21)),
        ("SHOW TABLES LIMIT x", "expected a number of rows, found 'x'", (1, 19)),
        ("DROP TABLE a b", "expected the end of the statement, found 'b'", (1, 14)),
        ("SELECT 1; SELECT 2", "found ';'", (1, 9)),
        ("SELECT 'abc", "this string never ends", (1, 8)),
        ("SELECT `abc", "this quoted name never ends", (1, 8)),
        ("SELECT /* /* */ 1", "this comment never ends", (1, 8)),
    ],
)
def test_syntax_faults(text: str, message: str, place: tuple[int, int]) -> None:
    error = fault(text)
    assert isinstance(error, SyntaxFault)
    assert message in error.message
    assert error.position == Position(*place)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("SHOW REFRESH HISTORY", "SHOW DYNAMIC TABLE REFRESH HISTORY"),
        ("SHOW REFRESH HISTORY WHERE name = 'd'", "SHOW DYNAMIC TABLE REFRESH HISTORY"),
        ("SHOW DYNAMIC TABLE HISTORY", "SHOW DYNAMIC TABLE REFRESH HISTORY"),
        ("CREATE MATERIALIZED VIEW v AS SELECT 1", "CREATE DYNAMIC TABLE name AS query"),
        ("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT 1", "CREATE DYNAMIC TABLE name AS query"),
        ("EXPLAIN CREATE DYNAMIC TABLE d AS SELECT 1", "EXPLAIN INCREMENTAL query"),
        ("EXPLAIN CREATE OR REPLACE DYNAMIC TABLE d AS SELECT 1", "EXPLAIN INCREMENTAL query"),
    ],
)
def test_what_others_call_differently(text: str, hint: str) -> None:
    assert hint in str(fault(text).hint)


def test_faults_show_how_the_statement_is_written() -> None:
    assert "REFRESH DYNAMIC TABLE name" in str(fault("REFRESH DYNAMIC TABLE").hint)
    assert fault("SELCT 1").hint == "Did you mean SELECT?"


@pytest.mark.parametrize("name", ["a.b.c.d", "``", "`" + "x" * 256 + "`", "`a\0b`", "`a\nb`"])
def test_names_no_catalog_can_hold(name: str) -> None:
    error = fault(f"DROP TABLE {name}")
    assert isinstance(error, UserError)
    assert error.position == Position(1, 12)


def test_longest_name() -> None:
    assert parse(f"VERIFY DYNAMIC TABLE {'x' * 255}") == s.VerifyDynamicTable(
        f"VERIFY DYNAMIC TABLE {'x' * 255}", ("x" * 255,)
    )


@pytest.mark.parametrize(
    "text",
    [
        "REFRESH DYNAMIC TABLE dt PARTITION (ds = 'v')",
        "UNDROP TABLE t",
        "EXECUTE IMMEDIATE 'INSERT INTO t VALUES (1)'",
    ],
)
def test_not_available_yet(text: str) -> None:
    error = fault(text)
    assert isinstance(error, Unsupported)
    assert "is not available yet" in error.message
    assert error.position is not None


def test_target_lag() -> None:
    created = parse("CREATE DYNAMIC TABLE dt TARGET_LAG = '5 minutes' AS SELECT 1")
    assert isinstance(created, s.CreateDynamicTable)
    assert created.target_lag == 300
    altered = parse("alter dynamic table dt set target_lag = downstream")
    assert altered == s.AlterDynamicTable(altered.text, ("dt",), s.SetTargetLag("DOWNSTREAM"))
    assert "the smallest is 1 minute" in fault("ALTER DYNAMIC TABLE dt SET TARGET_LAG = '59 seconds'").message
    assert "'n unit' or DOWNSTREAM" in fault("ALTER DYNAMIC TABLE dt SET TARGET_LAG = 'soon'").message


def test_vacuum_and_describe_job() -> None:
    found = parse("VACUUM s.t LITE RETAIN 24 HOURS DRY RUN")
    assert found == s.Vacuum("VACUUM s.t LITE RETAIN 24 HOURS DRY RUN", ("s", "t"), "LITE", 24, True)
    assert parse("vacuum t") == s.Vacuum("vacuum t", ("t",), "", None, False)
    assert parse("DESC JOB 'a'") == s.DescribeJob("DESC JOB 'a'", "a")
    assert "a number of hours" in fault("VACUUM t RETAIN soon").message


def test_table_streams() -> None:
    text = (
        "create or replace table stream a.s on table t version as of 3 comment 'c' "
        "with PROPERTIES ('table_stream_mode' = 'append_only', 'SHOW_INITIAL_ROWS' = TRUE)"
    )
    assert parse(text) == s.CreateStream(text, ("a", "s"), ("t",), True, False, 3, None, "c", "APPEND_ONLY", True)
    text = "CREATE TABLE STREAM IF NOT EXISTS s ON TABLE w.a.t TIMESTAMP AS OF now() - INTERVAL 1 HOUR COMMENT 'c'"
    found = parse(text)
    assert isinstance(found, s.CreateStream)
    assert (found.if_not_exists, found.timestamp, found.comment) == (True, "now() - INTERVAL 1 HOUR", "c")
    text = "ALTER TABLE STREAM a.s SET OFFSET VERSION AS OF 7"
    assert parse(text) == s.AlterStream(text, ("a", "s"), s.SetOffset(7))
    text = "ALTER TABLE STREAM s SET COMMENT 'x'"
    assert parse(text) == s.AlterStream(text, ("s",), s.SetComment("x"))
    assert parse("DROP TABLE STREAM IF EXISTS s") == s.DropStream("DROP TABLE STREAM IF EXISTS s", ("s",), True)
    assert parse("DESC TABLE STREAM s") == s.DescribeStream("DESC TABLE STREAM s", ("s",))
    text = "SHOW TABLE STREAMS IN a LIKE 'x%' LIMIT 2"
    assert parse(text) == s.ShowStreams(text, ("a",), "x%", None, 2)
    text = "SHOW TABLE STREAMS READ BY\nSELECT * FROM s"
    assert parse(text) == s.ShowStreams(text, read_by=" " * 26 + "\nSELECT * FROM s")


@pytest.mark.parametrize(
    ("text", "moves"),
    [
        ("SET move_streams = false", False),
        ("set MOVE_STREAMS = TRUE", True),
        ("RESET move_streams", True),
    ],
)
def test_whether_streams_move(text: str, moves: bool) -> None:
    assert parse(text) == s.SetMoveStreams(text, moves)
    assert isinstance(parse("SET move_streams.x = 1"), s.SparkStatement)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE stream (id INT)",
        "DROP TABLE stream",
        "DESC TABLE stream",
        "ALTER TABLE stream ADD COLUMNS (a INT)",
    ],
)
def test_a_table_may_be_called_stream(text: str) -> None:
    assert not isinstance(parse(text), s.CreateStream | s.DropStream | s.DescribeStream | s.AlterStream)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE TABLE STREAM s ON VIEW v", "expected TABLE"),
        ("CREATE TABLE STREAM s ON TABLE t VERSION AS OF x", "a version number"),
        ("CREATE TABLE STREAM s ON TABLE t WITH PROPERTIES ('speed' = '1')", "no property 'SPEED'"),
        ("CREATE TABLE STREAM s ON TABLE t WITH PROPERTIES ('SHOW_INITIAL_ROWS' = 'maybe')", "cannot be 'MAYBE'"),
        ("CREATE TABLE STREAM s ON TABLE t COMMENT 'a' COMMENT 'b'", "expected COMMENT, WITH PROPERTIES"),
        ("ALTER TABLE STREAM s SET NAME 'x'", "expected OFFSET or COMMENT"),
        ("SET move_streams = sometimes", "expected true or false"),
        ("SHOW TABLE STREAMS READ BY", "expected a query"),
    ],
)
def test_faults_in_statements_about_streams(text: str, message: str) -> None:
    assert message in fault(text).message


@pytest.mark.parametrize(
    ("text", "meant"), [("SHOW FRESHNES", "FRESHNESS"), ("show vcluster", "VCLUSTERS"), ("SHOW JOB", "JOBS")]
)
def test_a_slip_in_what_to_show(text: str, meant: str) -> None:
    """Told as what it is, also to those who may not run what nobody knows."""
    with pytest.raises(SyntaxFault) as caught:
        parse(text)
    assert caught.value.hint == f"Did you mean SHOW {meant}?"
    assert isinstance(parse("SHOW USER FUNCTIONS"), s.SparkStatement)
