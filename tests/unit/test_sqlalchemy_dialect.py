"""What SQLAlchemy and pandas send: names, values, types, tables."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from datetime import date, datetime
from typing import Any

import pandas
import pyarrow as pa
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import registry
from sqlalchemy.engine import make_url
from sqlalchemy.schema import CreateSchema, CreateTable, DropTable

from headrace.errors import BadSetting
from headrace.sqlalchemy_dialect import HeadraceDialect
from headrace.sqlalchemy_dialect.types import SparkType, from_text
from service_double import PASSWORD, TOKEN, Double, serving

registry.register("headrace", "headrace.sqlalchemy_dialect", "HeadraceDialect")
META = sa.MetaData()
ITEMS = sa.Table("items", META, sa.Column("id", sa.Integer), sa.Column("user", sa.String), sa.Column("50%", sa.Float))


def written(statement: Any, *, literals: bool = False) -> str:
    options = {"literal_binds": True} if literals else {}
    return " ".join(str(statement.compile(dialect=HeadraceDialect(), compile_kwargs=options)).split())


# ---------------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("url", "address", "arguments"),
    [
        (
            "headrace://ann:p%40ss@lake.example:9000/sales",
            "http://lake.example:9000",
            {"schema": "sales", "username": "ann", "password": "p@ss"},
        ),
        ("headrace://:hr_x@h/a.b?ssl=true", "https://h:8910", {"schema": "a.b", "token": "hr_x"}),
        ("headrace://", "http://127.0.0.1:8910", {"schema": None}),
        (
            "headrace://[::1]/?vcluster=v&ca_file=/c.pem&ssl=0",
            "http://[::1]:8910",
            {"schema": None, "vcluster": "v", "ca_file": "/c.pem"},
        ),
    ],
)
def test_addresses(url: str, address: str, arguments: dict[str, Any]) -> None:
    assert HeadraceDialect().create_connect_args(make_url(url)) == ([address], arguments)


def test_an_option_that_nobody_knows() -> None:
    with pytest.raises(BadSetting, match="no option 'sslmode'"):
        HeadraceDialect().create_connect_args(make_url("headrace://h/?sslmode=require"))


# ---------------------------------------------------------------------- names and values


def test_names_are_quoted() -> None:
    assert written(sa.select(ITEMS)) == ("SELECT `items`.`id`, `items`.`user`, `items`.`50%%` FROM `items`")
    odd = sa.table("a`b; DROP", sa.column("c`"), schema="sales.raw")
    assert written(sa.select(odd)) == "SELECT `sales`.`raw`.`a``b; DROP`.`c``` FROM `sales`.`raw`.`a``b; DROP`"
    assert written(sa.select(sa.table("t", sa.column("c"), schema="my schema"))) == (
        "SELECT `my schema`.`t`.`c` FROM `my schema`.`t`"
    )


class Colour(enum.Enum):
    red = 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (sa.literal("it's \\"), "'it\\'s \\\\'"),
        (sa.literal("50%"), "'50%%'"),
        (sa.literal("${x}"), "'\\u0024{x}'"),
        (sa.literal(-1), "(-1)"),
        (sa.literal(True), "TRUE"),
        (sa.literal(None), "NULL"),
        (sa.literal(1.5), "1.5D"),
        (sa.literal(date(2024, 1, 2)), "DATE '2024-01-02'"),
        (sa.literal(datetime(2024, 1, 2)), "TIMESTAMP '2024-01-02 00:00:00.000000'"),
        (sa.literal(b"a"), "X'61'"),
        (sa.literal(Colour.red, sa.Enum(Colour)), "'red'"),
        (sa.literal({"a": 1}, sa.JSON), "'{\"a\": 1}'"),
    ],
)
def test_values_in_the_text(value: Any, text: str) -> None:
    assert written(sa.select(value.label("v")), literals=True) == f"SELECT {text} AS `v`"


def test_queries() -> None:
    query = sa.select(ITEMS.c.id)
    assert written(query.limit(5).offset(2), literals=True).endswith("FROM `items` LIMIT 5 OFFSET 2")
    assert written(query.offset(2), literals=True).endswith("FROM `items` OFFSET 2")
    assert written(query.where(ITEMS.c.id.in_([1, 2])), literals=True).endswith("WHERE `items`.`id` IN (1, 2)")
    assert "NULL" in written(query.where(ITEMS.c.id.in_([])), literals=True)
    assert written(query.where(ITEMS.c.user.regexp_match("^a")), literals=True).endswith("`items`.`user` RLIKE '^a'")
    assert written(query.where(~ITEMS.c.user.regexp_match("^a")), literals=True).endswith(
        "NOT `items`.`user` RLIKE '^a'"
    )
    assert written(sa.select(sa.func.count()).select_from(ITEMS).with_for_update()) == (
        "SELECT count(*) AS `count_1` FROM `items`"
    )
    assert written(sa.select(ITEMS.c.id % 2)) == "SELECT `items`.`id` %% %(id_1)s AS `anon_1` FROM `items`"
    assert written(sa.cast(ITEMS.c.id, sa.String)) == "CAST(`items`.`id` AS STRING)"


def test_changes() -> None:
    assert written(sa.insert(ITEMS)) == (
        "INSERT INTO `items` (`id`, `user`, `50%%`) VALUES (%(id)s, %(user)s, %(50P)s)"
    )
    assert written(sa.update(ITEMS).where(ITEMS.c.id == 1).values(user="x"), literals=True) == (
        "UPDATE `items` SET `user`='x' WHERE `items`.`id` = 1"
    )
    assert written(sa.delete(ITEMS)) == "DELETE FROM `items`"


# ---------------------------------------------------------------------- tables and types


def test_a_table() -> None:
    table = sa.Table(
        "everything",
        sa.MetaData(),
        sa.Column("id", sa.BigInteger, primary_key=True),
        sa.Column("small", sa.SmallInteger, nullable=False),
        sa.Column("f", sa.Float),
        sa.Column("f53", sa.Float(53)),
        sa.Column("r", sa.REAL),
        sa.Column("d", sa.Double),
        sa.Column("n", sa.Numeric(10, 2)),
        sa.Column("n0", sa.Numeric),
        sa.Column("n1", sa.Numeric(5)),
        sa.Column("s", sa.String(20), comment="it's 5%"),
        sa.Column("t", sa.Text, unique=True),
        sa.Column("b", sa.LargeBinary),
        sa.Column("flag", sa.Boolean),
        sa.Column("day", sa.Date),
        sa.Column("at", sa.DateTime(timezone=True)),
        sa.Column("clock", sa.Time),
        sa.Column("id2", sa.Uuid),
        sa.Column("j", sa.JSON),
        sa.Column("e", sa.Enum("x", "y")),
        sa.Column("a", SparkType("array<int>")),
        comment="All",
        schema="sales",
    )
    assert written(CreateTable(table)) == (
        "CREATE TABLE `sales`.`everything` ( `id` BIGINT, `small` SMALLINT NOT NULL, `f` DOUBLE, `f53` DOUBLE, "
        "`r` FLOAT, `d` DOUBLE, `n` DECIMAL(10, 2), `n0` DECIMAL(38, 10), `n1` DECIMAL(5, 0), "
        "`s` STRING COMMENT 'it\\'s 5%%', `t` STRING, `b` BINARY, `flag` BOOLEAN, `day` DATE, `at` TIMESTAMP, "
        "`clock` STRING, `id2` STRING, `j` STRING, `e` STRING, `a` array<int> ) COMMENT 'All'"
    )
    assert written(DropTable(table)) == "DROP TABLE `sales`.`everything`"
    assert written(CreateSchema("ws.raw")) == "CREATE SCHEMA `ws`.`raw`"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("int", sa.INTEGER),
        ("bigint", sa.BIGINT),
        ("double", sa.DOUBLE),
        ("string", sa.String),
        ("varchar(10)", sa.String),
        ("decimal(38,18)", sa.DECIMAL),
        ("timestamp_ntz", sa.TIMESTAMP),
        ("void", sa.types.NullType),
        ("struct<a:int,b:array<string>>", SparkType),
        ("interval day to second", SparkType),
    ],
)
def test_types_that_a_table_shows(text: str, kind: type[Any]) -> None:
    assert type(from_text(text)) is kind


# ---------------------------------------------------------------------- over the wire


@pytest.fixture
def server() -> Iterator[Double]:
    with serving() as double:
        double.answer("SELECT current_schema()", pa.table({"current_schema()": ["public"]}))
        yield double


@pytest.fixture
def engine(server: Double) -> Iterator[sa.Engine]:
    engine = sa.create_engine(f"headrace://:{TOKEN}@{server.url.removeprefix('http://')}/sales")
    yield engine
    engine.dispose()


def shown(*tables: tuple[str, bool]) -> pa.Table:
    return pa.table(
        {
            "schema_name": ["sales"] * len(tables),
            "table_name": pa.array([name for name, _ in tables], pa.string()),
            "is_view": pa.array([is_view for _, is_view in tables], pa.bool_()),
        }
    )


def test_statements_and_rows(server: Double, engine: sa.Engine) -> None:
    server.answer("SELECT `items`.`id` \nFROM `items` \nWHERE `items`.`user` = 'it\\'s 5%'", pa.table({"id": [1, 2]}))
    with engine.connect() as connection:
        assert connection.dialect.default_schema_name == "public"
        query = sa.select(ITEMS.c.id).where(ITEMS.c.user == "it's 5%")
        assert connection.execute(query).scalars().all() == [1, 2]
        connection.execute(sa.text("SELECT '5%' WHERE 1 = :one"), {"one": 1})
        connection.exec_driver_sql("SELECT 5 % 2")
        connection.commit()
        connection.rollback()
    assert server.submitted()[2:] == ["SELECT '5%' WHERE 1 = 1", "SELECT 5 % 2"]


def test_pandas_reads_and_writes(server: Double, engine: sa.Engine) -> None:
    server.answer("SELECT * FROM t WHERE a LIKE 'x%'", pa.table({"a": ["x"], "n": [1]}))
    frame = pandas.read_sql("SELECT * FROM t WHERE a LIKE 'x%'", engine)
    assert frame.to_dict("list") == {"a": ["x"], "n": [1]}

    server.answer("SHOW TABLES LIKE 'new'", shown())
    made = pandas.DataFrame({"it's": ["a\\", None], "n": [1, 2], "x": [0.5, float("nan")]})
    assert made.to_sql("new", engine, index=True) in (2, -1, None)
    assert server.submitted()[-2:] == [
        "CREATE TABLE `new` (\n\t`index` BIGINT, \n\t`it's` STRING, \n\t`n` BIGINT, \n\t`x` DOUBLE\n)",
        "INSERT INTO `new` (`index`, `it's`, `n`, `x`) VALUES (0, 'a\\\\', 1, 0.5D), (1, NULL, 2, NULL)",
    ]


def test_reflection(server: Double, engine: sa.Engine) -> None:
    server.answer("SHOW SCHEMAS", pa.table({"namespace": ["public", "sales"]}))
    server.answer("SHOW TABLES", shown(("orders", False), ("recent", True)))
    server.answer("SHOW TABLES IN `ws`.`raw`", shown(("a", False)))
    server.answer("SHOW TABLES LIKE 'or_ers'", shown(("orders", False)))
    server.answer(
        "DESC TABLE `orders`",
        pa.table({"column_name": ["id", "price"], "data_type": ["bigint", "decimal(10,2)"], "comment": ["", "net"]}),
    )
    facts = {
        "column_name": ["id", "comment", "detailed table information:", "comment", "view_original_text"],
        "data_type": ["bigint", "string", "", "All orders", "SELECT 1"],
    }
    server.answer("DESC TABLE EXTENDED `orders`", pa.table(facts))
    server.fail("DESC TABLE `none`", code="NOT_FOUND", message="There is no table or view.")
    server.fail("SHOW TABLES IN `none` LIKE 'x'", code="NOT_FOUND", message="There is no schema.")

    found = sa.inspect(engine)
    assert found.get_schema_names() == ["public", "sales"]
    assert found.get_table_names() == ["orders"]
    assert found.get_view_names() == ["recent"]
    assert found.get_table_names(schema="ws.raw") == ["a"]
    assert not found.has_table("or_ers")
    assert not found.has_table("x", schema="none")
    columns = found.get_columns("orders")
    assert [(c["name"], repr(c["type"]), c["comment"]) for c in columns] == [
        ("id", "BIGINT()", None),
        ("price", "DECIMAL(precision=10, scale=2)", "net"),
    ]
    assert found.get_table_comment("orders") == {"text": "All orders"}
    assert found.get_view_definition("orders") == "SELECT 1"
    assert found.get_pk_constraint("orders")["constrained_columns"] == []
    with pytest.raises(sa.exc.NoSuchTableError):
        found.get_columns("none")
    table = sa.Table("orders", sa.MetaData(), autoload_with=engine)
    assert [column.name for column in table.columns] == ["id", "price"]


def test_a_lost_session_is_replaced_by_the_pool(server: Double) -> None:
    place = server.url.removeprefix("http://")
    engine = sa.create_engine(f"headrace://ann:{PASSWORD.replace(' ', '%20')}@{place}", pool_pre_ping=True)
    with engine.connect() as connection:
        connection.exec_driver_sql("SELECT 1")
    server.sessions.clear()
    with engine.connect() as connection:
        connection.exec_driver_sql("SELECT 2")
    assert server.submitted()[-1] == "SELECT 2"
    engine.dispose()
