"""PEP 249, against a server on a loopback port that has no lake."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from datetime import time as clock_time
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy
import pandas
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import dbapi
from headrace.dbapi import cursor as cursor_module
from headrace.dbapi.literals import literal, row_template, template
from headrace.sql.tokens import Kind, scan
from service_double import PASSWORD, TOKEN, Double, serving


@pytest.fixture
def server() -> Iterator[Double]:
    with serving() as double:
        yield double


@pytest.fixture
def connection(server: Double) -> Iterator[dbapi.Connection]:
    with dbapi.connect(server.url, token=TOKEN) as connection:
        yield connection


# ---------------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (False, "FALSE"),
        (0, "0"),
        (-1, "(-1)"),
        (2**63, "9223372036854775808"),
        (1e300, "1e+300D"),
        (-0.5, "(-0.5D)"),
        (float("nan"), "double('NaN')"),
        (float("-inf"), "double('-Infinity')"),
        (Decimal("1E+2"), "100BD"),
        (Decimal("-0.10"), "(-0.10BD)"),
        ("", "''"),
        ("a\\'b\n", "'a\\\\\\'b\n'"),
        ("${env:HOME}", "'\\u0024{env:HOME}'"),
        ("\\${x}", "'\\\\\\u0024{x}'"),
        (b"\x00\xff", "X'00FF'"),
        (date(1, 2, 3), "DATE '0001-02-03'"),
        (datetime(2024, 1, 2, 3, 4, 5), "TIMESTAMP '2024-01-02 03:04:05.000000'"),
        (
            datetime(2024, 1, 2, 3, tzinfo=timezone(timedelta(hours=9))),
            "TIMESTAMP '2024-01-02 03:00:00.000000+09:00'",
        ),
        (clock_time(1, 2, 3), "'01:02:03'"),
        (timedelta(days=-1, seconds=1), "INTERVAL '-0 23:59:59.000000' DAY TO SECOND"),
        (UUID(int=1), "'00000000-0000-0000-0000-000000000001'"),
        ([1, [None]], "array(1, array(NULL))"),
        ({"a": 1}, "map('a', 1)"),
        (numpy.int64(-3), "(-3)"),
        (numpy.float32(0.5), "0.5D"),
        (numpy.bool_(True), "TRUE"),
        (pandas.Timestamp("2024-01-02 03:04:05.123456789"), "TIMESTAMP '2024-01-02 03:04:05.123456'"),
        (pandas.NaT, "NULL"),
        (pandas.NA, "NULL"),
    ],
)
def test_values_as_sql(value: Any, text: str) -> None:
    assert literal(value) == text


def test_values_that_have_no_sql() -> None:
    with pytest.raises(dbapi.InterfaceError, match="type object"):
        literal(object())
    with pytest.raises(dbapi.DataError, match="surrogate"):
        literal("\ud800")
    with pytest.raises(dbapi.DataError):
        literal(Decimal("NaN"))


@given(st.text())
def test_a_text_is_one_string_and_stays_what_it_was(value: str) -> None:
    (token,) = scan(literal(value))
    assert token.kind is Kind.STRING
    assert token.value.replace("\\%", "%").replace("\\_", "_") == value.replace("\\%", "%").replace("\\_", "_")


# ---------------------------------------------------------------------- places for values


def test_places_by_name_and_by_number() -> None:
    assert template("SELECT %(a)s, %(b c)s, %(a)s").filled({"a": 1, "b c": "x"}) == "SELECT 1, 'x', 1"
    assert template("SELECT %s, %s").filled((1, None)) == "SELECT 1, NULL"
    assert template("SELECT '100%%' LIKE '%%', 5 %% %s").filled([2]) == "SELECT '100%' LIKE '%', 5 % 2"
    assert template("SELECT '%%(a)s'").filled({}) == "SELECT '%(a)s'"
    assert template("SELECT %(it's)s").filled({"it's": 1}) == "SELECT 1"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT '%(a)s'", "inside quotes"),
        ("SELECT `%s`", "inside quotes"),
        ("SELECT 1 -- %(a)s\n", "in a comment"),
        ("SELECT 1 /* %s */", "in a comment"),
        ("SELECT r%s", "next to a word"),
        ("SELECT X%(a)s", "next to a word"),
        ("SELECT %s%s", "next to a word"),
        ("SELECT 5 % 2", "single %"),
        ("SELECT %", "single %"),
        ("SELECT %(a)d", "single %"),
        ("SELECT %(a)s, %s", "not both"),
        ("SELECT 'open %s", "never ends"),
    ],
)
def test_places_where_no_value_can_stand(statement: str, message: str) -> None:
    with pytest.raises(dbapi.ProgrammingError, match=message):
        template(statement)


@pytest.mark.parametrize(
    ("statement", "values"),
    [("%(a)s", {}), ("%(a)s", (1,)), ("%s", {"a": 1}), ("%s", ()), ("%s", (1, 2)), ("%s", "x"), ("%(a)s", "x")],
)
def test_values_that_do_not_fit_the_places(statement: str, values: Any) -> None:
    with pytest.raises(dbapi.ProgrammingError):
        template(statement).filled(values)


@pytest.mark.parametrize(
    ("statement", "head"),
    [
        ("INSERT INTO t (a, `values`) VALUES (%(a)s, f(%(b)s));", "INSERT INTO t (a, `values`) VALUES "),
        ("insert into `50%%` values\n (%s)", "insert into `50%` values\n "),
        ("INSERT INTO t VALUES (%s), (%s)", None),
        ("INSERT INTO t SELECT * FROM VALUES (%s)", "INSERT INTO t SELECT * FROM VALUES "),
        ("INSERT INTO t PARTITION (p = %s) VALUES (%s)", None),
        ("INSERT INTO t SELECT %s", None),
        ("UPDATE t SET a = %s", None),
        ("", None),
    ],
)
def test_which_statements_take_many_rows_at_once(statement: str, head: str | None) -> None:
    found = row_template(statement)
    assert (found and found[0]) == head


# ---------------------------------------------------------------------- cursors


def test_the_module() -> None:
    assert (dbapi.apilevel, dbapi.threadsafety, dbapi.paramstyle) == ("2.0", 1, "pyformat")
    assert issubclass(dbapi.ProgrammingError, dbapi.DatabaseError)
    assert issubclass(dbapi.InterfaceError, dbapi.Error)
    assert dbapi.Date(2024, 1, 2) == date(2024, 1, 2)
    assert dbapi.DateFromTicks(time.time()) == date.today()
    assert dbapi.Binary(b"x") == b"x"
    assert isinstance(dbapi.TimestampFromTicks(0), datetime)
    assert isinstance(dbapi.TimeFromTicks(0), clock_time)


def test_rows_and_their_description(server: Double, connection: dbapi.Connection) -> None:
    table = pa.table(
        {
            "n": pa.array(range(2500), pa.int64()),
            "d": pa.array([Decimal("1.50")] * 2500, pa.decimal128(10, 2)),
            "at": pa.array([datetime(2024, 1, 1)] * 2500, pa.timestamp("us", "UTC")),
        }
    )
    server.answer("SELECT 7", table)
    cursor = connection.cursor()
    assert cursor.execute("SELECT %(n)s", {"n": 7}) is cursor
    assert cursor.description is not None
    assert [column[:2] for column in cursor.description] == [
        ("n", "bigint"),
        ("d", "decimal(10,2)"),
        ("at", "timestamp"),
    ]
    assert cursor.description[1][4:6] == (10, 2)
    assert [column[1] == dbapi.NUMBER for column in cursor.description] == [True, True, False]
    assert cursor.description[2][1] == dbapi.DATETIME
    assert cursor.rowcount == 2500
    assert cursor.job_id in server.jobs
    assert cursor.fetchone() == (0, Decimal("1.50"), datetime(2024, 1, 1, 9))
    assert [row[0] for row in cursor.fetchmany()] == [1]
    cursor.arraysize = 3
    assert [row[0] for row in cursor.fetchmany()] == [2, 3, 4]
    assert [row[0] for row in cursor.fetchmany(2)] == [5, 6]
    assert sum(1 for _ in cursor) == 2493
    assert cursor.fetchone() is None
    assert cursor.fetchall() == []


def test_a_statement_without_rows_has_none(server: Double, connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    cursor.execute("CREATE TABLE t (a INT)")
    assert (cursor.description, cursor.rowcount) == (None, -1)
    with pytest.raises(dbapi.ProgrammingError, match="no rows"):
        cursor.fetchall()
    server.answer("UPDATE t SET a = 1", pa.table({"num_affected_rows": [3]}))
    cursor.execute("UPDATE t SET a = 1")
    assert (cursor.description, cursor.rowcount) == (None, 3)
    server.answer("SELECT 'x' AS status", pa.table({"status": ["x"]}))
    assert cursor.execute("SELECT 'x' AS status").fetchall() == [("x",)]
    cursor.execute("-- nothing at all")
    assert cursor.description is None


def test_percent_signs_without_values_are_left_alone(server: Double, connection: dbapi.Connection) -> None:
    connection.cursor().execute("SELECT 5 % 2, 'a%%b'")
    connection.cursor().execute("SELECT 5 %% 2", {})
    assert server.submitted() == ["SELECT 5 % 2, 'a%%b'", "SELECT 5 % 2"]


def test_one_statement_at_a_time(server: Double, connection: dbapi.Connection) -> None:
    with pytest.raises(dbapi.ProgrammingError, match="one statement"):
        connection.cursor().execute("SELECT 1; DROP TABLE t")
    assert server.submitted() == []


def test_many_rows_are_inserted_together(
    server: Double, connection: dbapi.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = connection.cursor()
    cursor.executemany("INSERT INTO t VALUES (%(a)s, '%%')", [{"a": 1}, {"a": None}])
    monkeypatch.setattr(cursor_module, "_INSERTED_ROWS", 2)
    cursor.executemany("INSERT INTO t VALUES (%s)", [(1,), (2,), (3,)])
    monkeypatch.setattr(cursor_module, "_INSERTED_BYTES", 10)
    cursor.executemany("INSERT INTO t VALUES (%s)", [("ä" * 4,), ("b",)])
    cursor.executemany("INSERT INTO t VALUES (%s)", [])
    assert server.submitted() == [
        "INSERT INTO t VALUES (1, '%'), (NULL, '%')",
        "INSERT INTO t VALUES (1), (2)",
        "INSERT INTO t VALUES (3)",
        "INSERT INTO t VALUES ('ääää')",
        "INSERT INTO t VALUES ('b')",
    ]


def test_other_statements_run_once_for_each_set_of_values(server: Double, connection: dbapi.Connection) -> None:
    for number in (1, 2):
        server.answer(f"DELETE FROM t WHERE a = {number}", pa.table({"num_affected_rows": [number]}))
    cursor = connection.cursor()
    cursor.executemany("DELETE FROM t WHERE a = %s", [(1,), (2,)])
    assert cursor.rowcount == 3
    assert len(server.jobs) == 2


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("SYNTAX_ERROR", dbapi.ProgrammingError),
        ("NOT_FOUND", dbapi.ProgrammingError),
        ("QUERY_FAILED", dbapi.ProgrammingError),
        ("FORBIDDEN", dbapi.ProgrammingError),
        ("UNSUPPORTED", dbapi.NotSupportedError),
        ("CANCELLED", dbapi.OperationalError),
        ("TOO_BUSY", dbapi.OperationalError),
        ("BUG", dbapi.InternalError),
        ("ERROR", dbapi.DatabaseError),
    ],
)
def test_errors(server: Double, connection: dbapi.Connection, code: str, kind: type[dbapi.Error]) -> None:
    server.fail("X", code=code, message="m", hint="h", position={"line": 1, "column": 2})
    with pytest.raises(kind, match=r"m \(line 1, column 2\)\nHint: h") as caught:
        connection.cursor().execute("X")
    assert (caught.value.code, caught.value.hint) == (code, "h")
    assert type(caught.value) is kind
    assert getattr(connection, kind.__name__) is kind


def test_connections(server: Double) -> None:
    connection = dbapi.connect(server.url, username="ann", password=PASSWORD, schema="s", vcluster="v")
    assert (connection.lake.schema, connection.lake.vcluster) == ("s", "v")  # type: ignore[union-attr]
    connection.commit()
    with pytest.raises(dbapi.NotSupportedError):
        connection.rollback()
    connection.ping()
    server.sessions.clear()
    with pytest.raises(dbapi.OperationalError):
        connection.ping()
    cursor = connection.cursor()
    cursor.close()
    with pytest.raises(dbapi.InterfaceError, match="cursor is closed"):
        cursor.execute("SELECT 1")
    connection.close()
    connection.close()
    with pytest.raises(dbapi.InterfaceError, match="connection is closed"):
        connection.cursor()


def test_connecting_needs_one_place_and_the_right_password(server: Double) -> None:
    for arguments in ({}, {"url": server.url, "path": "lake"}):
        with pytest.raises(dbapi.InterfaceError):
            dbapi.connect(**arguments)  # type: ignore[arg-type]
    with pytest.raises(dbapi.OperationalError, match="wrong"):
        dbapi.connect(server.url, username="ann", password="wrong")


def test_a_statement_is_cancelled_from_another_thread(server: Double, connection: dbapi.Connection) -> None:
    server.answers["LONG"] = lambda job: None
    cursor = connection.cursor()

    def cancel() -> None:
        while not connection.lake._running:  # type: ignore[union-attr]
            time.sleep(0.005)
        cursor.cancel()

    threading.Thread(target=cancel).start()
    with pytest.raises(dbapi.OperationalError) as caught:
        cursor.execute("LONG")
    assert caught.value.code == "CANCELLED"
