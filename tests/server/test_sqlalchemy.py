"""SQLAlchemy and pandas on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pandas
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import registry
from sqlalchemy.schema import CreateSchema, DropSchema

registry.register("headrace", "headrace.sqlalchemy_dialect", "HeadraceDialect")
SCHEMA = "through_sqlalchemy"


@pytest.fixture
def engine(server: Any) -> Iterator[sa.Engine]:
    """Connections whose current schema is a fresh one."""
    place = server.url.removeprefix("http://")
    login = f"admin:{quote(server.admin_password, safe='')}"
    with sa.create_engine(f"headrace://{login}@{place}").connect() as connection:
        connection.execute(CreateSchema(SCHEMA))
    engine = sa.create_engine(f"headrace://{login}@{place}/{SCHEMA}", pool_pre_ping=True)
    yield engine
    with engine.connect() as connection:
        connection.execute(DropSchema(SCHEMA, cascade=True))
    engine.dispose()


def test_pandas_writes_and_reads(engine: sa.Engine) -> None:
    frame = pandas.DataFrame(
        {
            "n": [1, 2, 3],
            "text": ["it's", None, "a\\b 5%"],
            "x": [0.5, None, -1e300],
            "flag": [True, False, True],
            "at": pandas.to_datetime(["2024-01-02 03:04:05.678901", None, "1999-12-31 00:00:00.0"]),
            "day": [date(2024, 1, 2), None, date(1, 1, 1)],
            "price": [Decimal("1.10"), Decimal("2.20"), None],
        }
    )
    types = {"price": sa.Numeric(10, 2)}
    frame.to_sql("t", engine, index=True, index_label="row", dtype=types)
    frame.to_sql("t", engine, index=True, index_label="row", if_exists="append")
    with pytest.raises(ValueError, match="exists"):
        frame.to_sql("t", engine)
    query = "SELECT * FROM t WHERE text IS NULL OR text NOT LIKE '%z' ORDER BY row"
    back = pandas.read_sql(query, engine, coerce_float=False)
    assert len(back) == 6
    assert back["text"].tolist()[::2] == ["it's", None, "a\\b 5%"]
    assert back["price"].tolist()[:2] == [Decimal("1.10")] * 2
    assert back["at"][0] == pandas.Timestamp("2024-01-02 03:04:05.678901")
    frame.head(1).to_sql("t", engine, index=False, if_exists="replace")
    assert pandas.read_sql_table("t", engine)["n"].tolist() == [1]
    assert pandas.read_sql(sa.text("SELECT n FROM t WHERE text = :text"), engine, params={"text": "it's"}).shape == (
        1,
        1,
    )


def test_reflection(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE orders (id BIGINT COMMENT 'key', price DECIMAL(10,2), tags ARRAY<STRING>) "
            "COMMENT 'All orders'"
        )
        connection.exec_driver_sql("CREATE VIEW dear AS SELECT * FROM orders WHERE price > 100")
        connection.exec_driver_sql("CREATE DYNAMIC TABLE totals AS SELECT count(*) AS n FROM orders")
    found = sa.inspect(engine)
    assert found.default_schema_name == SCHEMA
    assert {"public", SCHEMA} <= set(found.get_schema_names())
    assert found.get_table_names() == ["orders", "totals"]
    assert found.get_table_names(schema=SCHEMA) == ["orders", "totals"]
    assert found.get_view_names() == ["dear"]
    assert found.has_table("orders")
    assert found.has_table("ORDERS", schema=SCHEMA)
    assert not found.has_table("order_")
    assert not found.has_table("orders", schema="no_such_schema")
    assert [(c["name"], str(c["type"].compile(engine.dialect)), c["comment"]) for c in found.get_columns("orders")] == [
        ("id", "BIGINT", "key"),
        ("price", "DECIMAL(10, 2)", None),
        ("tags", "array<string>", None),
    ]
    assert found.get_table_comment("orders") == {"text": "All orders"}
    assert "price > 100" in found.get_view_definition("dear")
    with pytest.raises(sa.exc.NoSuchTableError):
        found.get_columns("nothing")


def test_a_table_and_queries_of_sqlalchemy(engine: sa.Engine) -> None:
    metadata = sa.MetaData()
    people = sa.Table(
        "people",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(50), nullable=False, index=True, comment="5% off"),
        sa.Column("select", sa.Float),
        sa.Column("born", sa.DateTime),
        comment="Those who are",
    )
    metadata.create_all(engine)
    metadata.create_all(engine)  # Nothing is left to do.
    rows = [{"id": n, "name": f"n{n}", "select": n / 2, "born": datetime(2000, 1, n + 1)} for n in range(5)]
    with engine.begin() as connection:
        connection.execute(sa.insert(people), rows)
        connection.execute(sa.update(people).where(people.c.id == 4).values(name="it's \\ 100%"))
        connection.execute(sa.delete(people).where(people.c.id == 0))
        query = sa.select(people).order_by(people.c.id).limit(2).offset(1)
        assert [row.id for row in connection.execute(query)] == [2, 3]
        assert connection.execute(sa.select(people.c.name).where(people.c.name.like("%100\\%%"))).scalar() == (
            "it's \\ 100%"
        )
        assert connection.execute(sa.select(sa.func.count()).where(people.c.id.in_([]))).scalar() == 0
        assert connection.execute(sa.select(people.c.born).where(people.c.id == 1)).scalar() == datetime(2000, 1, 2)
        grouped = (
            sa.select(people.c.id % 2, sa.func.sum(people.c.select)).group_by(people.c.id % 2).order_by(sa.text("1"))
        )
        assert connection.execute(grouped).all() == [(0, 3.0), (1, 2.0)]
    metadata.drop_all(engine)
    assert not sa.inspect(engine).has_table("people")
