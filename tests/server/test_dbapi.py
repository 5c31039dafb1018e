"""PEP 249 on a real server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from headrace import dbapi


@pytest.fixture
def connection(server: Any, request: pytest.FixtureRequest) -> Iterator[dbapi.Connection]:
    """A connection with a fresh schema as the current one."""
    with dbapi.connect(server.url, username="admin", password=server.admin_password) as connection:
        cursor = connection.cursor()
        name = f"dbapi_{abs(hash(request.node.name)) % 10**9}"
        cursor.execute(f"CREATE SCHEMA {name}")
        cursor.execute(f"USE {name}")
        yield connection
        cursor.execute("USE public")
        cursor.execute(f"DROP SCHEMA {name} CASCADE")


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -1,
        -(2**31),
        2**63 - 1,
        1.5,
        -0.1,
        1e300,
        Decimal("-12.340"),
        "",
        "it's a \\ and a \" and a ` and a % and an _ and a\nline",
        "\\",
        "\\'",
        "${spark:spark.app.name} ${env:HOME}",
        "日本 \U0001f600",
        b"\x00\xff",
        date(2024, 2, 29),
        date(1, 1, 1),
        datetime(2024, 1, 2, 3, 4, 5, 678901),
        [1, 2, None],
    ],
)
def test_values_come_back_as_they_went(connection: dbapi.Connection, value: Any) -> None:
    cursor = connection.cursor()
    cursor.execute("SELECT %(v)s AS v, %(v)s <=> %(v)s AS same", {"v": value})
    assert cursor.fetchall() == [(value, True)]


def test_moments_with_a_zone_are_the_same_moment(connection: dbapi.Connection) -> None:
    tokyo = datetime(2024, 1, 2, 3, tzinfo=timezone(timedelta(hours=9)))
    cursor = connection.cursor()
    cursor.execute("SELECT unix_micros(%s)", [tokyo])
    assert cursor.fetchone() == (int(tokyo.timestamp() * 1e6),)
    cursor.execute("SELECT %s < INTERVAL '0' DAY", [timedelta(days=-1, seconds=5)])
    assert cursor.fetchone() == (True,)


def test_special_numbers(connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    cursor.execute("SELECT isnan(%s), %s, %s", [float("nan"), float("inf"), float("-inf")])
    assert cursor.fetchone() == (True, float("inf"), float("-inf"))


def test_a_table_from_end_to_end(connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    cursor.execute("CREATE TABLE orders (id INT, item STRING, price DECIMAL(10,2))")
    assert cursor.description is None
    rows = [{"id": n, "item": f"it's {n}", "price": Decimal(n) / 4} for n in range(2500)]
    cursor.executemany("INSERT INTO orders VALUES (%(id)s, %(item)s, %(price)s)", rows)
    assert cursor.rowcount == 2500
    cursor.execute("DESC HISTORY orders")
    assert sum(1 for _ in cursor) == 3  # its creation, and two commits of many rows each
    cursor.execute("SELECT count(*), sum(price) FROM orders")
    assert cursor.fetchone() == (2500, sum(row["price"] for row in rows))
    cursor.execute("UPDATE orders SET item = %s WHERE id < %s", ["x", 10])
    assert (cursor.rowcount, cursor.description) == (10, None)
    cursor.execute("SELECT id, item, price FROM orders WHERE id < %s ORDER BY id", [2])
    assert cursor.description is not None
    assert [column[1] for column in cursor.description] == ["int", "string", "decimal(10,2)"]
    assert cursor.fetchall() == [(0, "x", Decimal("0.00")), (1, "x", Decimal("0.25"))]


def test_errors_say_where_and_what(connection: dbapi.Connection) -> None:
    cursor = connection.cursor()
    with pytest.raises(dbapi.ProgrammingError) as caught:
        cursor.execute("SELECT *\nFROM no_such_table")
    assert caught.value.code == "NOT_FOUND"
    assert caught.value.position is not None
    assert caught.value.position.line == 2
    with pytest.raises(dbapi.ProgrammingError) as caught:
        cursor.execute("SELEC 1")
    assert caught.value.code == "SYNTAX_ERROR"


def test_sessions_are_apart(server: Any, connection: dbapi.Connection) -> None:
    connection.cursor().execute("CREATE TEMPORARY VIEW mine AS SELECT 1 AS a")
    with dbapi.connect(server.url, username="admin", password=server.admin_password) as other:
        cursor = other.cursor()
        with pytest.raises(dbapi.ProgrammingError):
            cursor.execute("SELECT * FROM mine")
    assert connection.cursor().execute("SELECT * FROM mine").fetchall() == [(1,)]


def test_a_long_statement_is_cancelled(connection: dbapi.Connection) -> None:
    cursor = connection.cursor()

    def cancel() -> None:
        while not connection.lake._running:  # type: ignore[union-attr]
            time.sleep(0.02)
        cursor.cancel()

    threading.Thread(target=cancel).start()
    with pytest.raises(dbapi.OperationalError) as caught:
        cursor.execute("SELECT count(*) FROM range(1000000000000) a JOIN range(1000000000000) b ON a.id + b.id = 7")
    assert caught.value.code == "CANCELLED"
    assert cursor.execute("SELECT 1").fetchall() == [(1,)]
