"""Rewriting text for Spark: names, table properties, time travel."""

from __future__ import annotations

import pytest

from headrace.errors import BadSetting, Position
from headrace.sql.rewrite import spark_names, table_properties, time_travel


def names(text: str) -> str:
    return spark_names(text, "home", frozenset({"ws", "Sales"}), lambda parts: "<" + "|".join(parts) + ">")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM ws.s.t", "SELECT * FROM <ws|s|t>"),
        (
            "select ws.s.t.c, WS.S.T.* from Ws . `s` . t -- ws.s.t",
            "select <ws|s|t>.c, <WS|S|T>.* from <Ws|s|t> -- ws.s.t",
        ),
        ("SELECT 'ws.s.t', \"ws.s.t\" FROM `home`.s.`t x`", "SELECT 'ws.s.t', \"ws.s.t\" FROM <home|s|t x>"),
        ("SELECT a.ws.s.t FROM s.t a", "SELECT a.ws.s.t FROM s.t a"),
        (
            "SELECT * FROM other.s.t, ws.s.t JOIN home.a.b ON x",
            "SELECT * FROM other.s.t, <ws|s|t> JOIN <home|a|b> ON x",
        ),
        ("SELECT ws.a.b FROM s.t AS ws", "SELECT ws.a.b FROM s.t AS ws"),
        ("SELECT ws.a.b FROM s.t ws", "SELECT ws.a.b FROM s.t ws"),
        ("SELECT ws.a.b.c FROM (SELECT 1) `ws`, ws.s.t", "SELECT ws.a.b.c FROM (SELECT 1) `ws`, <ws|s|t>"),
        ("WITH ws AS (SELECT 1) SELECT ws.a.b.c FROM ws", "WITH ws AS (SELECT 1) SELECT ws.a.b.c FROM ws"),
        ("SELECT ws.a.b.c FROM x JOIN s.t ws ON ws.a.b", "SELECT ws.a.b.c FROM x JOIN s.t ws ON ws.a.b"),
        ("SELECT ws.s.t.a AS ws FROM ws.s.t", "SELECT <ws|s|t>.a AS ws FROM <ws|s|t>"),
        ("MERGE INTO t ws USING u ON ws.a.b.c = 1", "MERGE INTO t ws USING u ON ws.a.b.c = 1"),
        ("SELECT sales.a.b FROM t", "SELECT sales.a.b FROM t"),
        ("SELECT ws.s.f(1) FROM t", "SELECT ws.s.f(1) FROM t"),
        ("SELECT ws.s FROM ws.t", "SELECT ws.s FROM ws.t"),
        ("INSERT INTO ws.s.t SELECT * FROM ws.s.u", "INSERT INTO <ws|s|t> SELECT * FROM <ws|s|u>"),
        ("UPDATE ws.s.t SET ws.s.t.a = 1", "UPDATE <ws|s|t> SET <ws|s|t>.a = 1"),
        (
            "MERGE INTO ws.s.t USING ws.s.u ON ws.s.t.a = ws.s.u.a",
            "MERGE INTO <ws|s|t> USING <ws|s|u> ON <ws|s|t>.a = <ws|s|u>.a",
        ),
        ("CREATE TABLE IF NOT EXISTS ws.s.t (a int)", "CREATE TABLE IF NOT EXISTS <ws|s|t> (a int)"),
        ("OPTIMIZE ws.s.t", "OPTIMIZE <ws|s|t>"),
        ("ALTER TABLE ws.s.t RENAME TO ws.s.u", "ALTER TABLE <ws|s|t> RENAME TO <ws|s|u>"),
        ("SHOW COLUMNS IN ws.s.t", "SHOW COLUMNS IN <ws|s|t>"),
        ("SELECT * FROM (ws.s.t JOIN ws.s.u)", "SELECT * FROM (<ws|s|t> JOIN <ws|s|u>)"),
        ("SELECT 1 FROM t WHERE a IS DISTINCT FROM ws.b.c", "SELECT 1 FROM t WHERE a IS DISTINCT FROM ws.b.c"),
        ("", ""),
    ],
)
def test_spark_names(text: str, expected: str) -> None:
    assert names(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "CREATE TABLE t (a int)\nPROPERTIES ('change_tracking'='true');",
            "CREATE TABLE t (a int)\nTBLPROPERTIES ('delta.enableChangeDataFeed'='true');",
        ),
        (
            "CREATE TABLE t (a int) TBLPROPERTIES(\n'change_tracking' = 'TRUE', 'x'='y')",
            "CREATE TABLE t (a int) TBLPROPERTIES(\n'delta.enableChangeDataFeed' = 'true', 'x'='y')",
        ),
        (
            "alter table t set properties (data_retention_days = 3)",
            "alter table t set TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 3 days', "
            "'delta.logRetentionDuration' = 'interval 3 days')",
        ),
        (
            "ALTER TABLE t UNSET PROPERTIES IF EXISTS ('data_retention_days', 'x')",
            "ALTER TABLE t UNSET TBLPROPERTIES IF EXISTS ('delta.deletedFileRetentionDuration', "
            "'delta.logRetentionDuration', 'x')",
        ),
        ("CREATE TABLE properties (change_tracking int)", None),
        ("CREATE TABLE IF NOT EXISTS s.properties (change_tracking int)", None),
        ("CREATE TABLE t AS SELECT properties ('change_tracking') FROM x", None),
        ("CREATE TABLE t (a string COMMENT 'PROPERTIES (''change_tracking''=''x'')')", None),
        ("ALTER TABLE t RENAME TO properties", None),
        ("SELECT 1 AS properties", None),
        ("", None),
    ],
)
def test_table_properties(text: str, expected: str | None) -> None:
    assert table_properties(text) == (text if expected is None else expected)


@pytest.mark.parametrize(
    "entry",
    [
        "'change_tracking'='maybe'",
        "'data_retention_days'='-1'",
        "'data_retention_days'=-1",
        "'data_retention_days'='x'",
        "'data_retention_days'='0'",
        "'data_retention_days'='²'",
    ],
)
def test_bad_property_values(entry: str) -> None:
    with pytest.raises(BadSetting) as caught:
        table_properties(f"CREATE TABLE t (a int)\nPROPERTIES ({entry})")
    assert caught.value.position == Position(2, 14 + entry.index("="))
    assert caught.value.hint


def travel(text: str) -> str:
    def replace(parts: tuple[str, ...], version: int | None, timestamp: str | None) -> str | None:
        return None if parts[-1] == "plain" else f"<{'.'.join(parts)} {version} {timestamp}>"

    return time_travel(text, replace)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM s.t VERSION AS OF 3", "SELECT * FROM <s.t 3 None> AS `t`"),
        ("SELECT * FROM t VERSION AS OF '3' x WHERE 1", "SELECT * FROM <t 3 None> x WHERE 1"),
        ("SELECT * FROM t VERSION AS OF 3 AS x", "SELECT * FROM <t 3 None> AS x"),
        ("SELECT * FROM t FOR SYSTEM_VERSION AS OF 3 WHERE 1", "SELECT * FROM <t 3 None> AS `t` WHERE 1"),
        ("SELECT * FROM t TIMESTAMP AS OF '2024' WHERE 1", "SELECT * FROM <t None '2024'> AS `t` WHERE 1"),
        (
            "SELECT * FROM a FOR SYSTEM_TIME AS OF now() - INTERVAL 1 DAY - INTERVAL '2 hours' x JOIN b",
            "SELECT * FROM <a None now() - INTERVAL 1 DAY - INTERVAL '2 hours'> x JOIN b",
        ),
        (
            "SELECT * FROM a TIMESTAMP AS OF TIMESTAMP '2024' JOIN w.s.b TIMESTAMP AS OF date_sub(now(), 1) ON x",
            "SELECT * FROM <a None TIMESTAMP '2024'> AS `a` JOIN <w.s.b None date_sub(now(), 1)> AS `b` ON x",
        ),
        ("(SELECT * FROM a TIMESTAMP AS OF '1'::timestamp)", "(SELECT * FROM <a None '1'::timestamp> AS `a`)"),
        ("SELECT * FROM a VERSION AS OF 1, b VERSION AS OF 2", "SELECT * FROM <a 1 None> AS `a`, <b 2 None> AS `b`"),
        ("SELECT * FROM plain VERSION AS OF 3", None),
        ("SELECT * FROM t VERSION AS OF 'tag'", None),
        ("SELECT 'FROM t VERSION AS OF 3' -- FROM t VERSION AS OF 3", None),
        ("RESTORE TABLE t TO VERSION AS OF 3", None),
        ("SELECT version AS of FROM t", None),
        ("SELECT * FROM t VERSION AS OF", None),
        ("SELECT * FROM t TIMESTAMP AS OF '1' +", None),
        ("SELECT * FROM t TIMESTAMP AS OF", None),
    ],
)
def test_time_travel(text: str, expected: str | None) -> None:
    assert travel(text) == (text if expected is None else expected)
