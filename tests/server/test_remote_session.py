"""Sessions over a URL: one program in an open lake and on a server; streams move once; junk and tricks are refused."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from datetime import date, datetime
from decimal import Decimal
from io import StringIO
from typing import Any

import httpx
import pandas
import pyarrow as pa
import pytest

from headrace import Lake
from headrace import functions as embedded_functions
from headrace.errors import AlreadyExists, Forbidden, HeadraceError, NotAllowed, NotFound, UserError
from headrace.recording import functions as F
from headrace.recording.frames import DataFrame
from headrace.recording.plans import to_json
from headrace.recording.tree import Call, Function, Query, Table
from headrace.session import Session

PASSWORD = "correct horse 7"

pytestmark = pytest.mark.timeout(600)


def connected(server: Any, schema: str | None, username: str = "admin", password: str | None = None) -> Session:
    values = {
        "service": server.url,
        "username": username,
        "password": server.admin_password if password is None else password,
        "schema": schema,
        "vcluster": "default",
    }
    return Session.builder.configs({key: value for key, value in values.items() if value is not None}).create()


@pytest.fixture
def remote(server: Any) -> Iterator[Session]:
    """A session of the administrator, with a schema of its own."""
    name = f"remote_{uuid.uuid4().hex[:12]}"
    with connected(server, None) as session:
        session.sql(f"CREATE SCHEMA {name}").collect()
        session.sql(f"USE {name}").collect()
        fill(session)
        yield session
        session.sql("USE public").collect()
        session.sql(f"DROP SCHEMA {name} CASCADE").collect()


def fill(session: Session) -> None:
    for text in (
        "CREATE TABLE t (id INT, name STRING, amount DECIMAL(10,2), at TIMESTAMP, tags ARRAY<STRING>)",
        "INSERT INTO t VALUES (1, 'a', 10, TIMESTAMP '2026-01-01 10:00:00', array('x', 'y')), "
        "(2, 'b', 20.5, TIMESTAMP '2026-01-02 11:30:00', array()), (3, 'a', NULL, NULL, NULL)",
        "CREATE TABLE n (id INT, label STRING)",
        "INSERT INTO n VALUES (1, 'one'), (2, 'two')",
    ):
        session.sql(text).collect()


def program(session: Session, F: Any) -> list[Any]:  # noqa: N803
    """What people write; gives everything that they see."""
    rows, names = session.table("t"), session.table("n")
    window = F.Window.partitionBy("name").orderBy(F.desc("id"))
    made = session.create_dataframe([(1, "x", {"k": 1}), (2, None, {})], ["id", "s", "m"])
    of_pandas = session.create_dataframe(pandas.DataFrame({"id": [1, 2], "v": [1.5, None]}))
    of_arrow = session.create_dataframe(pa.table({"id": [1], "d": [date(2026, 1, 1)]}), "id BIGINT, d DATE")
    split = rows.random_split([1.0, 1.0], 7)
    frames = {
        "all": rows.sort("id"),
        "filter": rows.filter((F.col("amount") > 5) & (F.col("name").isin(["a", "b"]))).sort("id"),
        "text": rows.filter("amount > 15 OR id IN (SELECT id FROM n WHERE label = 'one')").select("id").sort("id"),
        "columns": rows.select(rows["id"], (rows.amount * 2).alias("twice"), F.expr("upper(name) AS up")).sort("id"),
        "join": rows.join(names, rows["id"] == names["id"], "left").select(rows["id"], "label").sort("id"),
        "using": rows.join(names, "id").select("id", "label").sort("id"),
        "groups": rows.group_by("name").agg(F.sum("amount").alias("total"), F.count("*").alias("n")).sort("name"),
        "dict": rows.groupBy("name").agg({"amount": "max"}).sort("name"),
        "pivot": rows.group_by("id").pivot("name").agg(F.first("amount")).sort("id"),
        "window": rows.with_column("r", F.row_number().over(window)).select("id", "r").sort("id"),
        "lambda": rows.select("id", F.transform("tags", lambda x, i: F.concat(x, i.cast("string"))).alias("c")).sort(
            "id"
        ),
        "nested": rows.select("id", F.struct("name", F.lit(1).alias("one")).alias("s"), "tags").sort("id"),
        "when": rows.select(F.when(F.col("amount").isNull(), "none").otherwise(F.col("name")).alias("w")).sort("w"),
        "query": session.sql("SELECT name, count(*) AS n FROM t GROUP BY name").sort("name"),
        "time": rows.select("id", F.date_trunc("DAY", "at"), F.lit(datetime(2026, 1, 1, 12))).sort("id"),
        "literals": rows.limit(1).select(F.lit(Decimal("1.5")), F.lit(b"x"), F.lit(None), F.array(F.lit(1), F.lit(2))),
        "made": made.sort("id"),
        "pandas": of_pandas.sort("id"),
        "arrow": of_arrow,
        "rename": rows.rename({"id": "key"}).drop("amount", "at", "tags").sort("key"),
        "sets": rows.select("id").intersect(names.select("id")).union_all(names.select("id")).sort("id"),
        "missing": rows.na.fill({"name": "?"}).dropna(subset=["amount"]).select("id", "name").sort("id"),
        "semi": rows.join(names, "id", "left_anti").select("id"),
        "scalar": rows.filter(F.col("id") == names.agg(F.max("id")).scalar()).select("id"),
        "statement": session.sql("DESC TABLE n"),
    }
    found: list[Any] = []
    for name, frame in frames.items():
        found.append((name, frame.columns, frame.dtypes, [plain(row) for row in frame.collect()]))
    printed = StringIO()
    with redirect_stdout(printed):
        frames["all"].show()
        frames["groups"].print_schema()
        frames["nested"].show(2, False, True)
    found.append(printed.getvalue())
    found += [rows.count(), plain(frames["all"].first()), [plain(row) for row in frames["all"].take(2)]]
    found += [frames["all"].to_pandas()["id"].tolist(), [str(x) for x in frames["all"].toPandas()["at"]]]
    found += [frames["filter"].to_arrow().column("id").to_pylist(), rows.is_empty(), rows.limit(0).first()]
    found += [frames["all"].schema.simpleString(), sum(part.count() for part in split)]
    found += [rows.approxQuantile("id", [0.5], 0.0), rows.stat.corr("id", "amount")]
    found += [frames["groups"].cache_result().count(), len(list(rows))]
    rows.create_or_replace_temp_view("seen")
    found.append(session.sql("SELECT count(*) FROM seen").collect()[0][0])
    frames["groups"].create_or_replace_view("v")
    found.append([plain(row) for row in session.table("v").sort("name").collect()])
    frames["groups"].create_or_replace_dynamic_table("d", refresh_interval="5 MINUTE", vcluster="default")
    session.sql("INSERT INTO t VALUES (4, 'c', 1, NULL, NULL)").collect()
    found.append(session.sql("REFRESH DYNAMIC TABLE d").collect()[0].refresh_mode)
    found.append([plain(row) for row in session.table("d").sort("name").collect()])
    rows.select("id", "name").write.partition_by("name").save_as_table("copy")
    with pytest.raises(AlreadyExists):
        rows.select("id", "name").write.save_as_table("copy")
    rows.select("id", "name").filter("id = 1").write.mode("append").saveAsTable("copy")
    rows.select("id", "name").limit(0).write.insert_into("copy")
    found.append(sorted(plain(row) for row in session.table("copy").collect()))
    return found


def plain(value: Any) -> Any:
    """Rows of PySpark and ours alike."""
    if isinstance(value, tuple):
        return tuple(plain(each) for each in value)
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, float) and value != value:
        return "not a number"
    return bytes(value) if isinstance(value, bytearray) else value


def test_the_same_program_gives_the_same(lake: Lake, schema: str, remote: Session) -> None:
    embedded = Session(lake, schema=schema)
    fill(embedded)
    here, there = program(embedded, embedded_functions), program(remote, F)
    assert len(here) == len(there)
    for one, other in zip(here, there, strict=True):
        assert one == other


def test_columns_made_before_a_lake_is_open_are_replayed_in_it(lake: Lake, schema: str) -> None:
    session = Session(lake, schema=schema)
    fill(session)
    rows = (
        session.table("t").filter(F.col("id") > 1).group_by(F.upper("name").alias("u")).agg(F.sum("amount").alias("s"))
    )
    assert sorted((row.u, row.s) for row in rows.collect()) == [("A", None), ("B", Decimal("20.50"))]
    assert rows[F.col("u") == "B"].count() == 1
    with pytest.raises(NotAllowed, match="server's DataFrame"):
        session.table("t").filter(DataFrame(None, Table("x"))["id"] > 1)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- streams


@pytest.fixture
def stream(remote: Session) -> Session:
    remote.sql("CREATE TABLE s_t (id INT, name STRING)").collect()
    remote.sql("CREATE TABLE STREAM s ON TABLE s_t").collect()
    return remote


def waiting(session: Session) -> int:
    return int(session.table("s", consume=False).count())


def insert(session: Session, number: int) -> None:
    session.sql(f"INSERT INTO s_t VALUES ({number}, 'x')").collect()


@pytest.mark.parametrize(
    "take",
    [
        lambda rows: [row.id for row in rows.collect()],
        lambda rows: rows.to_pandas()["id"].tolist(),
        lambda rows: rows.toArrow().column("id").to_pylist(),
        lambda rows: [row.id for row in rows],
    ],
)
def test_delivered_rows_move_a_stream_once(stream: Session, take: Callable[[Any], list[int]]) -> None:
    rows = stream.table("s").filter(F.col("`__change_type`") == "INSERT").select("id")
    insert(stream, 1)
    assert rows.count() == 1
    assert [row.id for row in rows.take(3)] == [1]
    assert waiting(stream) == 1
    assert take(rows) == [1]
    assert take(rows) == []
    insert(stream, 2)
    assert take(rows) == [2]


def test_written_rows_move_a_stream_once(stream: Session) -> None:
    insert(stream, 1)
    changes = stream.table("s").select("id", "name")
    changes.write.save_as_table("target", mode="append")
    assert waiting(stream) == 0
    changes.write.save_as_table("target", mode="append")
    insert(stream, 2)
    stream.sql("SELECT id, name FROM s").write.insert_into("target")
    assert sorted(row.id for row in stream.table("target").collect()) == [1, 2]
    assert waiting(stream) == 0


def test_what_moves_nothing(stream: Session) -> None:
    insert(stream, 1)
    assert [row.id for row in stream.sql("SELECT id FROM s").collect()] == [1]
    kept = stream.table("s").cache_result()
    assert kept.count() == 1
    with pytest.raises(HeadraceError, match="no"):
        stream.table("s").select(F.raise_error(F.lit("no"))).collect()
    for refused in (
        lambda: stream.table("s", consume=False).union_all(stream.table("s")).collect(),
        lambda: stream.table("s").random_split([0.5, 0.5])[0].collect(),
        lambda: stream.table("s").filter("id > 0").create_or_replace_view("w"),
        lambda: stream.table("s").write.option("userMetadata", "x").save_as_table("x"),
        lambda: stream.table("s").write.format("parquet").save_as_table("x"),
    ):
        with pytest.raises(NotAllowed):
            refused()
    assert waiting(stream) == 1


def test_columns_of_another_frame_show_what_there_is_now(stream: Session) -> None:
    insert(stream, 1)
    rows = stream.table("s")
    picked = rows.filter(rows["id"] > 0).select(rows.id)
    insert(stream, 2)
    assert sorted(row.id for row in picked.collect()) == [1, 2]
    assert picked.collect() == []


def test_statements_run_once(stream: Session) -> None:
    statement = stream.sql("INSERT INTO s_t VALUES (1, 'a')")
    assert "has not run" in repr(statement)
    assert stream.table("s_t").count() == 0
    statement.collect()
    statement.collect()
    statement.show()
    assert stream.table("s_t").count() == 1


# ---------------------------------------------------------------------- kept rows, sizes, errors


def test_kept_rows_end_when_nobody_holds_them(remote: Session) -> None:
    for _ in range(120):  # More than a session may keep.
        kept = remote.table("n").limit(1).cache_result()
    assert kept.join(remote.table("t"), "id").count() == 1


def test_too_many_rows_at_once(remote: Session) -> None:
    with pytest.raises(UserError, match="8 MiB"):
        remote.create_dataframe([("x" * 1000,)] * 10_000, ["x"]).count()


def test_errors_come_back_as_they_are(remote: Session) -> None:
    for wrong, kind in (
        (lambda: remote.table("not_there").count(), NotFound),
        (lambda: remote.table("t").select("missing").collect(), HeadraceError),
        (lambda: remote.table("t").limit("many").collect(), UserError),
        (lambda: remote.table("t").filter(F.col("name").like(["x"])).count(), UserError),
        (lambda: remote.table("t").filter("id >").count(), HeadraceError),
        (lambda: remote.table("t").no_such_method(), AttributeError),
        (lambda: remote.create_dataframe([(1, 2)], "a INT").count(), HeadraceError),
    ):
        with pytest.raises(kind):
            wrong()


# ---------------------------------------------------------------------- refused


def _send(session: Session, plan: Any, action: Any = None) -> httpx.Response:
    http: Any = session.lake._http  # type: ignore[union-attr]
    return http._client.post(
        f"/v1/sessions/{session.lake.session_id}/frames",  # type: ignore[union-attr]
        json={"plan": plan, "action": action or {"name": "count", "arguments": []}, "wait_seconds": 30},
        headers={"Authorization": f"Bearer {http._token}"},
        timeout=60,
    )


TABLE = {"op": "table", "name": "t", "consume": True}


@pytest.mark.parametrize(
    "nodes",
    [
        [],
        [TABLE, {"op": "call", "on": 0, "method": "_jdf", "arguments": []}],
        [TABLE, {"op": "call", "on": 0, "method": "rdd", "arguments": []}],
        [TABLE, {"op": "call", "on": 0, "method": "foreach", "arguments": ["print"]}],
        [TABLE, {"op": "call", "on": 0, "method": "mapInPandas", "arguments": ["x", "a INT"]}],
        [{"op": "function", "name": "reflect", "arguments": ["java.lang.Runtime", "getRuntime"]}],
        [{"op": "pickle", "data": "gASVCg=="}],
        [{"op": "table", "name": "delta.`/etc`", "consume": True}],
        [{"op": "query", "text": "DROP TABLE t"}],
        [{"op": "query", "text": "SELECT * FROM parquet.`/etc/passwd`"}],
        [{"op": "query", "text": "SELECT reflect('java.lang.System', 'exit', 1)"}],
        [{"op": "kept", "name": "t"}],
        [{"op": "local_table", "arrow": "AAAA", "schema": None, "pandas": False}],
        [TABLE, {"op": "call", "on": 0, "method": "filter", "arguments": ["reflect('java.lang.System', 'gc') = ''"]}],
        [
            TABLE,
            {"op": "call", "on": 0, "method": "selectExpr", "arguments": ["java_method('java.lang.System', 'gc')"]},
        ],
    ],
)
def test_junk_and_tricks_are_refused(remote: Session, nodes: list[Any]) -> None:
    answer = _send(remote, {"format": 1, "nodes": nodes})
    if answer.status_code == 200:
        error = answer.json()["error"]
        assert answer.json()["status"] == "FAILED"
        assert error["code"] not in ("ERROR", "BUG"), error
    else:
        assert 400 <= answer.status_code < 500, answer.text
    assert remote.table("t").count() == 3


def test_only_ones_own_session(remote: Session) -> None:
    http: Any = remote.lake._http  # type: ignore[union-attr]
    body = {"plan": {"format": 1, "nodes": [TABLE]}, "action": {"name": "count", "arguments": []}}
    for session_id, token, status in (("0" * 32, http._token, 404), (remote.lake.session_id, "no", 401)):  # type: ignore[union-attr]
        headers = {"Authorization": f"Bearer {token}"}
        assert http._client.post(f"/v1/sessions/{session_id}/frames", json=body, headers=headers).status_code == status


@pytest.fixture
def reader() -> str:
    return f"reader_{uuid.uuid4().hex[:8]}"


@pytest.fixture
def analyst(server: Any, remote: Session, reader: str) -> Iterator[Session]:
    """Somebody who may read the table n, and nothing else."""
    name = reader
    remote.sql(f"CREATE USER {name} WITH PASSWORD '{PASSWORD}' ROLE analyst").collect()
    remote.sql(f"GRANT SELECT ON TABLE n TO {name}").collect()
    schema = remote.sql("SELECT current_schema()").collect()[0][0]
    with connected(server, schema, name, PASSWORD) as session:
        yield session
    remote.sql(f"DROP USER {name}").collect()


def test_a_plan_has_the_rights_of_its_user(analyst: Session, remote: Session) -> None:
    allowed = analyst.table("n")
    assert allowed.filter("id IN (SELECT id FROM n)").count() == 2
    remote.table("t").create_or_replace_view("behind")
    for refused in (
        lambda: analyst.table("t").count(),
        lambda: analyst.table("t").columns,
        lambda: analyst.table("t").select("no_such_column").count(),
        lambda: analyst.sql("SELECT * FROM t").collect(),
        lambda: analyst.table("behind").collect(),
        lambda: allowed.filter("id IN (SELECT id FROM t)").count(),
        lambda: allowed.filter("EXISTS (SELECT no_such_column FROM t)").count(),
        lambda: allowed.select(F.expr("(SELECT max(amount) FROM t)")).collect(),
        lambda: allowed.filter("EXISTS (SELECT 1 FROM t)").crosstab("id", "label").collect(),
        lambda: allowed.filter(analyst.table("t").exists()).collect(),
        lambda: allowed.join(analyst.table("t"), "id").explain(),
        lambda: allowed.write.save_as_table("mine"),
        lambda: allowed.write.save_as_table("n", mode="append"),
        lambda: allowed.write.insert_into("t"),
        lambda: allowed.create_or_replace_view("mine"),
        lambda: allowed.create_or_replace_dynamic_table("mine"),
    ):
        with pytest.raises(Forbidden) as told:
            refused()
        assert "amount" not in str(told.value)


def test_a_right_that_is_taken_away_ends(analyst: Session, remote: Session, reader: str) -> None:
    rows = analyst.table("n").filter("id > 0")
    assert rows.count() == 2
    remote.sql(f"REVOKE SELECT ON TABLE n FROM {reader}").collect()
    with pytest.raises(Forbidden):
        rows.count()


# ---------------------------------------------------------------------- a machine without Java

PROGRAM = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "delta"):
            raise ImportError(f"a client loaded {name}")
sys.meta_path.insert(0, Refuse())
from headrace import functions as F
from headrace.session import Session
values = {"service": sys.argv[1], "username": "admin", "password": sys.argv[2]}
with Session.builder.configs(values).create() as session:
    rows = session.create_dataframe([(1, "a"), (2, "b")], "id INT, name STRING")
    rows.filter(F.col("id") > 1).show()
    print(rows.group_by().agg(F.sum("id").alias("total")).collect(), rows.to_pandas().shape)
"""


def test_a_client_needs_neither_java_nor_pyspark(server: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, server.url, server.admin_password],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"PATH": "/nowhere"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "|  2|   b|" in done.stdout
    assert "[Row(total=3)] (2, 2)" in done.stdout


def test_a_plan_that_a_server_reads_is_what_a_client_writes() -> None:
    node = Call(Query("SELECT 1 AS a"), "filter", (Call(Function("col", ("a",)), "==", (1,)),))
    assert [each["op"] for each in to_json(node)["nodes"]] == ["query", "function", "call", "call"]
