"""The Session API: DataFrames over tables and streams, and what moves a stream."""

from __future__ import annotations

from decimal import Decimal

import pytest

from headrace import Lake
from headrace import functions as F
from headrace.errors import AlreadyExists, BadSetting, HeadraceError, NotAllowed, UserError
from headrace.session import Session


@pytest.fixture
def session(lake: Lake) -> Session:
    session = Session(lake)
    session.sql("CREATE TABLE t (id INT, name STRING, amount DECIMAL(10,2))").collect()
    session.sql("INSERT INTO t VALUES (1, 'a', 10), (2, 'b', 20)").collect()
    session.sql("CREATE TABLE STREAM s ON TABLE t").collect()
    return session


def waiting(session: Session) -> int:
    return session.table("s", consume=False).count()


def test_looking_moves_nothing(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    rows = session.table("s")
    session.sql("INSERT INTO t VALUES (3, 'c', 30)").collect()
    rows.show()
    rows.printSchema()
    rows.print_schema()
    rows.explain()
    assert rows.count() == 1
    assert [row.id for row in rows.take(5)] == [3]
    assert "__change_type" in capsys.readouterr().out
    assert session.table("s", consume=False).collect()[0].id == 3
    assert session.sql("SELECT id FROM s").collect()[0].id == 3
    session.table("s", consume=False).write.save_as_table("looked", mode="overwrite")
    assert waiting(session) == 1


def test_delivered_rows_move_it(session: Session) -> None:
    rows = session.table("s").filter(F.col("`__change_type`") == "INSERT").select("id")
    for number, take in enumerate(
        (
            lambda: [row.id for row in rows.collect()],
            lambda: rows.to_pandas()["id"].tolist(),
            lambda: [row.id for row in rows],
            lambda: rows.toPandas()["id"].tolist(),
        )
    ):
        session.sql(f"INSERT INTO t VALUES ({number}, 'x', 0)").collect()
        assert waiting(session) == 1
        assert take() == [number]
        assert waiting(session) == 0
        assert take() == []


def test_a_failed_delivery_moves_nothing(session: Session) -> None:
    session.sql("INSERT INTO t VALUES (3, 'c', 30)").collect()
    with pytest.raises(Exception, match="no"):
        session.table("s").select(F.raise_error(F.lit("no"))).collect()
    assert waiting(session) == 1


@pytest.mark.parametrize("mode", ["append", "overwrite", "errorifexists", "ignore"])
def test_save_as_table_moves_it_with_its_commit(session: Session, mode: str) -> None:
    session.sql("INSERT INTO t VALUES (3, 'c', 30)").collect()
    changes = session.table("s").select("id", "name")
    changes.write.save_as_table("target", mode=mode)
    assert [row.id for row in session.table("target").collect()] == [3]
    assert waiting(session) == 0
    session.sql("INSERT INTO t VALUES (4, 'd', 40)").collect()
    if mode == "errorifexists":
        with pytest.raises(AlreadyExists):
            changes.write.save_as_table("target", mode=mode)
    else:
        changes.write.mode(mode).saveAsTable("target")
    assert waiting(session) == (0 if mode in ("append", "overwrite") else 1)
    expected = {"append": [3, 4], "overwrite": [4]}.get(mode, [3])
    assert sorted(row.id for row in session.table("target").collect()) == expected


def test_queries_move_it_when_written(session: Session) -> None:
    session.sql("INSERT INTO t VALUES (3, 'c', 30)").collect()
    session.sql("SELECT id FROM s").write.save_as_table("target")
    assert waiting(session) == 0
    session.sql("INSERT INTO t VALUES (4, 'd', 40)").collect()
    session.table("s").select("id").write.insert_into("target")
    assert sorted(row.id for row in session.table("target").collect()) == [3, 4]
    assert waiting(session) == 0


def test_files_cannot_take_a_stream(session: Session, tmp_path: object) -> None:
    session.sql("INSERT INTO t VALUES (3, 'c', 30)").collect()
    with pytest.raises(NotAllowed, match="exactly one"):
        session.table("s").write.mode("overwrite").parquet(f"{tmp_path}/x")
    session.table("s", consume=False).write.mode("overwrite").parquet(f"{tmp_path}/x")
    assert waiting(session) == 1


def test_columns_of_another_frame_keep_their_range(session: Session) -> None:
    session.sql("INSERT INTO t VALUES (3, 'c', 30)").collect()
    rows = session.table("s")
    picked = rows.filter(rows["id"] > 0).select(rows.id)
    session.sql("INSERT INTO t VALUES (4, 'd', 40)").collect()
    assert [row.id for row in picked.collect()] == [3]
    assert [row.id for row in session.table("s", consume=False).collect()] == [4]
    with pytest.raises(NotAllowed, match="has been read already"):
        picked.collect()


def test_what_would_bypass_a_stream_is_refused(session: Session) -> None:
    session.sql("CREATE TABLE u (id INT, name STRING, amount DECIMAL(10,2))").collect()
    session.sql("CREATE TABLE STREAM r ON TABLE u").collect()
    session.sql("INSERT INTO t VALUES (3, 'c', 30)").collect()
    for bypass in ("na", "rdd", "merge_into", "write_to"):
        with pytest.raises(NotAllowed, match="would not move it"):
            getattr(session.table("s"), bypass)
    with pytest.raises(NotAllowed, match="only looks"):
        session.table("s", consume=False).union_all(session.table("r"))
    with pytest.raises(NotAllowed, match="userMetadata"):
        session.table("s").write.option("userMetadata", "x").save_as_table("target")
    with pytest.raises(NotAllowed, match="no Delta table"):
        session.table("s").write.format("parquet").save_as_table("files")
    first = session.table("s")
    kept = first.filter(first["id"] > 0)
    session.sql("INSERT INTO t VALUES (4, 'd', 40)").collect()
    with pytest.raises(NotAllowed, match="different changes"):
        kept.union_all(session.table("s")).collect()
    assert waiting(session) == 2
    assert [part.count() >= 0 for part in session.table("t").random_split([0.5, 0.5], 1)] == [True, True]


def test_methods_in_both_spellings(session: Session) -> None:
    rows = session.table("t")
    assert rows.with_column("twice", F.col("amount") * 2).columns == rows.withColumn("twice", F.lit(1)).columns
    grouped = rows.group_by("name").agg(F.sum("amount").alias("total")).sort("name")
    assert [tuple(row) for row in grouped.collect()] == [("a", Decimal("10.00")), ("b", Decimal("20.00"))]
    assert rows.groupBy("name").count().count() == 2
    joined = rows.join(rows.rename("name", "other").select("id", "other"), "id")
    assert joined.columns == ["id", "name", "amount", "other"]
    assert rows.rename({"id": "key"}).drop("amount").columns == ["key", "name"]
    assert rows.union_all(rows).distinct().limit(5).count() == 2
    assert rows.cache_result().count() == 2
    pivoted = rows.group_by("id").pivot("name").agg(F.count_distinct("amount")).order_by("id")
    assert pivoted.columns == ["id", "a", "b"]
    made = session.create_dataframe([(1, "x")], ["id", "name"])
    assert made.to_df("a", "b").first() == (1, "x")
    with pytest.raises(AttributeError, match="no_such"):
        rows.no_such_method()


def test_statements_run_once(session: Session) -> None:
    insert = session.sql("INSERT INTO t VALUES (3, 'c', 30)")
    assert session.table("t").count() == 2
    insert.collect()
    insert.collect()
    assert session.table("t").count() == 3


def test_views_and_dynamic_tables_from_frames(session: Session, schema: str) -> None:
    session.sql("CREATE TABLE n (id INT, label STRING)").collect()
    session.sql("INSERT INTO n VALUES (1, 'one'), (2, 'two'), (3, 'three')").collect()
    rows = (
        session.table("t")
        .join(session.table("n"), "id", "left")
        .filter(F.col("amount") > 5)
        .group_by("label")
        .agg(F.sum("amount").alias("total"), F.count("*").alias("n"))
        .with_column("double", F.col("total") * 2)
    )
    rows.create_or_replace_view("v")
    assert sorted(session.table("v").collect()) == sorted(rows.collect())
    rows.create_or_replace_dynamic_table(
        "d", refresh_interval="5 MINUTE", vcluster="default", refresh_mode="INCREMENTAL"
    )
    session.sql("INSERT INTO t VALUES (3, 'c', 30), (1, 'a', 1)").collect()
    refreshed = session.sql("REFRESH DYNAMIC TABLE d").collect()[0]
    assert refreshed.refresh_mode == "INCREMENTAL"
    assert sorted(session.table("d").collect()) == sorted(rows.collect())
    assert session.sql("VERIFY DYNAMIC TABLE d").collect()[0][1] == "EQUAL"
    assert session.sql(f"SHOW DYNAMIC TABLES IN {schema}").collect()[0].refresh_interval_second == 300
    session.table("d").filter("total > 10").create_or_replace_dynamic_table("e")
    assert session.sql("VERIFY DYNAMIC TABLE e").collect()[0][1] == "EQUAL"
    with pytest.raises(NotAllowed):
        session.table("s").select("id").create_or_replace_dynamic_table("f")
    with pytest.raises(NotAllowed, match="dynamic table"):
        rows.write.save_as_table("d", mode="append")


def test_settings_are_checked(session: Session) -> None:
    with pytest.raises(BadSetting, match="no setting 'color'"):
        Session.builder.configs({"color": "red"})
    with pytest.raises(BadSetting, match="service"):
        Session.builder.configs({"service": "cn-shanghai.example.com"}).create()
    with pytest.raises(BadSetting, match="path"):
        Session.builder.configs({"service": "embedded"}).create()
    with pytest.raises(BadSetting, match="virtual cluster"):
        Session(session.lake, vcluster="nowhere")
    with pytest.raises(UserError):
        Session(session.lake, schema="nowhere")


def test_errors_are_ours(session: Session) -> None:
    rows = session.create_dataframe([(1,)], "id INT")
    for wrong in (
        lambda: session.table("not_there").count(),
        lambda: rows.select("missing"),
        lambda: rows.group_by("missing").count(),
        lambda: session.sql("SELECT raise_error('no')").collect(),
    ):
        with pytest.raises(HeadraceError):
            wrong()


def test_a_look_at_a_statement_does_not_run_it(session: Session) -> None:
    insert = session.sql("INSERT INTO t VALUES (3, 'c', 30)")
    assert "has not run" in repr(insert)
    assert session.table("t").count() == 2
    insert.collect()
    insert.collect()
    assert session.table("t").count() == 3


def test_every_query_is_a_dataframe_that_moves(session: Session) -> None:
    session.sql("INSERT INTO t VALUES (3, 'c', 30)").collect()
    session.sql("TABLE s").select("id").write.save_as_table("taken", mode="append")
    assert [row.id for row in session.table("taken").collect()] == [3]
    assert waiting(session) == 0


def test_a_view_that_came_to_read_a_stream(session: Session) -> None:
    session.sql("CREATE VIEW v AS SELECT id FROM t").collect()
    rows = session.table("v")
    assert rows.count() == 2
    session.sql("CREATE OR REPLACE VIEW v AS SELECT id FROM s").collect()
    session.sql("INSERT INTO t VALUES (3, 'c', 30)").collect()
    rows.write.save_as_table("taken", mode="append")
    assert [row.id for row in session.table("taken").collect()] == [3]
    assert waiting(session) == 0
    session.sql("DROP VIEW v").collect()
    with pytest.raises(HeadraceError):
        rows.collect()


def test_what_would_lose_changes_is_refused(session: Session) -> None:
    session.sql("INSERT INTO t VALUES (3, 'c', 30)").collect()
    rows = session.table("s")
    for refused in (
        lambda: rows.local_checkpoint(),
        lambda: rows.random_split([0.5, 0.5], 7),
        lambda: rows.write.save_as_table("x", mode="append", userMetadata="mine"),
        lambda: rows.write.option("txnAppId", "a").option("txnVersion", "1").save_as_table("x", mode="append"),
        lambda: rows.filter("id > 0").create_or_replace_view("w"),
    ):
        with pytest.raises(NotAllowed):
            refused()
    assert waiting(session) == 1
    assert len(session.table("s", consume=False).random_split([0.5, 0.5], 7)) == 2


def test_two_sessions_have_a_schema_each(session: Session, lake: Lake, schema: str) -> None:
    session.sql(f"CREATE SCHEMA {schema}_other").collect()
    other = Session(lake, schema=f"{schema}_other")
    other.sql("CREATE TABLE t (w STRING)").collect()
    assert session.table("t").count() == 2
    assert other.table("t").count() == 0
    lake.sql(f"DROP SCHEMA {schema}_other CASCADE")


def test_distinct_and_limited_dataframes_become_dynamic_tables(session: Session) -> None:
    rows = session.table("t").select("id", "name")
    rows.union_all(rows).distinct().create_or_replace_dynamic_table("once")
    rows.sort("id", ascending=False).limit(1).create_or_replace_dynamic_table("last")
    session.sql("INSERT INTO t VALUES (3, 'c', 30)").collect()
    session.sql("REFRESH DYNAMIC TABLE once, last").collect()
    assert sorted(row.id for row in session.table("once").collect()) == [1, 2, 3]
    assert [row.id for row in session.table("last").collect()] == [3]
    for table in ("once", "last"):
        assert session.sql(f"VERIFY DYNAMIC TABLE {table}").collect()[0][1] == "EQUAL"


def test_a_refresh_means_the_same_whatever_the_lake_has_set(session: Session, lake: Lake, schema: str) -> None:
    other = Session(lake, schema=schema)
    other.sql("CREATE TABLE moments (at TIMESTAMP)").collect()
    other.sql("CREATE DYNAMIC TABLE days AS SELECT CAST(at AS DATE) AS day FROM moments").collect()
    other.sql("INSERT INTO moments VALUES (TIMESTAMP '2026-01-01 23:00:00Z')").collect()
    lake.sql("SET spark.sql.session.timeZone = Asia/Tokyo")
    try:
        other.sql("REFRESH DYNAMIC TABLE days").collect()
    finally:
        lake.sql("RESET spark.sql.session.timeZone")
    assert [str(row.day) for row in other.table("days").collect()] == ["2026-01-01"]
    assert other.sql("VERIFY DYNAMIC TABLE days").collect()[0][1] == "EQUAL"
