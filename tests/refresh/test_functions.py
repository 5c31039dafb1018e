"""Functions of users, and functions whose plans are Spark's own internals; and what DESC JOB says of a refresh."""

from __future__ import annotations

import re

import pytest

from headrace import Lake
from headrace.errors import NotAllowed, NotFound
from refresh.test_sources import refresh

QUERIES = {
    "sql_function": "SELECT plus_one(k) AS k, sum(twice_plus_one(v)) AS n FROM t GROUP BY plus_one(k)",
    "python_function": "SELECT k, shout(s) AS s FROM t WHERE shout(s) <> 'A!'",
    "time_window": "SELECT window(at, '1 minute').start AS begun, count(*) AS n FROM t GROUP BY window(at, '1 minute')",
    "lists": "SELECT k, listagg(s, ',') WITHIN GROUP (ORDER BY s) AS l, listagg(DISTINCT k) AS d FROM t GROUP BY k",
    "nested_columns": "SELECT id, struct(k, s) AS pair, array(k, v) AS list, CAST(s AS BINARY) AS bytes FROM t",
    "nested_keys": """SELECT t.id, b.n, rank() OVER (PARTITION BY struct(t.k) ORDER BY t.id) AS r FROM t JOIN
        (SELECT struct(k) AS k, count(*) AS n FROM t GROUP BY struct(k)) AS b ON struct(t.k) <=> b.k""",
    "ends": "SELECT id, first(s) AS f, last(v) AS l, any_value(k) AS a, mode(s) AS m FROM t GROUP BY id",
    "ends_that_are_not_null": """SELECT id % 2 AS k, first(s) IGNORE NULLS IS NULL AS f, last(v, true) IS NULL AS l,
        any_value(s) FILTER (WHERE v > 4) IGNORE NULLS IS NULL AS a FROM t GROUP BY id % 2""",
}


def test_functions_are_maintained(lake: Lake) -> None:
    lake.spark.udf.register("shout", lambda s: None if s is None else f"{s.upper()}!", "string")
    lake.sql(
        """
        CREATE FUNCTION plus_one(x INT) RETURNS INT RETURN x + 1;
        CREATE FUNCTION twice_plus_one(x INT) RETURNS INT RETURN plus_one(x) + plus_one(x);
        CREATE TABLE t (id INT, k INT, v INT, s STRING, at TIMESTAMP);
        INSERT INTO t VALUES (1, 1, 2, 'a', TIMESTAMP'2024-01-01 00:00:30'), (2, 1, 3, 'b', NULL), (3, 2, 5, NULL, NULL)
        """
    )
    for name, query in QUERIES.items():
        lake.sql(f"CREATE DYNAMIC TABLE {name} REFRESH_MODE = INCREMENTAL AS {query}")
    for change in (
        "INSERT INTO t VALUES (4, 1, 7, 'c', TIMESTAMP'2024-01-01 00:00:59'), (5, NULL, NULL, 'a', DATE'1960-02-29')",
        "UPDATE t SET v = v + 1, s = 'z' WHERE id IN (1, 3); DELETE FROM t WHERE id = 2",
    ):
        lake.sql(change)
        assert {name: refresh(lake, name)["refresh_mode"] for name in QUERIES} == dict.fromkeys(QUERIES, "INCREMENTAL")


def test_the_profile_of_a_refresh(lake: Lake) -> None:
    lake.sql(
        """
        CREATE TABLE o (id INT, c INT); INSERT INTO o VALUES (1, 1), (2, 1); CREATE TABLE c (id INT);
        INSERT INTO c VALUES (1); INSERT INTO o VALUES (3, 1);
        CREATE DYNAMIC TABLE d AS SELECT c.id, count(*) AS n FROM c JOIN o ON o.c = c.id GROUP BY c.id;
        INSERT INTO o VALUES (4, 1), (5, 9)
        """
    )
    row = refresh(lake)
    said = {(section, item): value for section, item, value in lake.sql(f"DESC JOB '{row['job_id']}'").rows}
    assert said["job", "technique"] == "FOLD_STATE"
    assert (said["result", "rows inserted"], said["result", "rows deleted"]) == ("1", "1")
    assert said["cost", "commits"] == "1"
    assert int(said["cost", "bytes read"]) > 0
    changed = next(value for (section, item), value in said.items() if section == "input" and item.endswith(".o"))
    assert re.match(r"2 changes of \d+ bytes; 2 rows read, from files of ", changed)
    operators = [(item.strip().split()[0], value) for (section, item), value in said.items() if section == "operator"]
    assert ("relation", "rows in: not counted, out: 2; its change feed") in operators
    assert "inner" in dict(operators)
    assert dict(operators)["aggregate"].startswith("rows in: not counted, out: not counted; 1 group kept; ")


def test_a_job_that_is_not_there(lake: Lake) -> None:
    with pytest.raises(NotFound, match="There is no job '123'"):
        lake.sql("DESC JOB '123'")


def test_a_function_must_not_read_a_dynamic_table_that_the_query_names_too(lake: Lake) -> None:
    """It would be read at its newest version, and not at the one that the rest of the query reads."""
    lake.sql(
        """CREATE TABLE src (k INT); INSERT INTO src VALUES (1), (2);
        CREATE DYNAMIC TABLE upstream AS SELECT k FROM src;
        CREATE FUNCTION highest() RETURNS INT RETURN (SELECT max(k) FROM upstream)"""
    )
    with pytest.raises(NotAllowed, match="through a function"):
        lake.sql("CREATE DYNAMIC TABLE d AS SELECT k, highest() AS top FROM upstream")
    lake.sql("CREATE DYNAMIC TABLE d AS SELECT a.k, b.k AS other FROM upstream a JOIN upstream b ON a.k = b.k")
    lake.sql("INSERT INTO src VALUES (3); REFRESH DYNAMIC TABLE upstream, d")
    assert lake.sql("VERIFY DYNAMIC TABLE d").rows[0][1] == "EQUAL"
