"""Statements over HTTP, on a real lake."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest

from headrace.plan.jvm import Jvm
from headrace.security.roles import Principal
from served import Client, Server

SLOW = "SELECT count(*) FROM range(0, 100000000000, 1, 8) WHERE id % 7 = hash(id)"


def succeeded(client: Client, session: str, sql: str) -> dict[str, Any]:
    statement = client.run(session, sql)
    assert statement["status"] == "SUCCEED", statement["error"]
    return statement


def rows(client: Client, session: str, sql: str) -> list[Any]:
    return list(client.rows(succeeded(client, session, sql)["job_id"])["rows"])


def test_a_table_from_creation_to_rows(admin: Client, schema: str) -> None:
    session = admin.session(schema=schema)
    succeeded(admin, session, "CREATE TABLE t (id BIGINT, name STRING)")
    succeeded(admin, session, "INSERT INTO t VALUES (1, 'a'), (2, NULL)")
    statement = succeeded(admin, session, "SELECT * FROM t ORDER BY id")
    assert statement["columns"] == [{"name": "id", "type": "bigint"}, {"name": "name", "type": "string"}]
    assert admin.rows(statement["job_id"])["rows"] == [[1, "a"], [2, None]]
    assert admin.arrow(statement["job_id"]).column("name").to_pylist() == ["a", None]


def test_values_of_every_type(admin: Client) -> None:
    session = admin.session()
    statement = succeeded(
        admin,
        session,
        "SELECT true AS b, 9007199254740993L AS big, 1.10BD AS d, double('NaN') AS f, X'00FF' AS x, "
        "DATE '2024-02-29' AS day, TIMESTAMP '2024-01-02 03:04:05.5' AS at, "
        "TIMESTAMP_NTZ '2024-01-02 03:04:05' AS ntz, "
        "array(1, NULL) AS a, map('k', 1) AS m, named_struct('s', 'é') AS st, INTERVAL '1' DAY AS i, NULL AS n",
    )
    assert [column["type"] for column in statement["columns"]][:6] == [
        "boolean", "bigint", "decimal(3,2)", "double", "binary", "date",
    ]  # fmt: skip
    [row] = admin.rows(statement["job_id"])["rows"]
    assert row[:6] == [True, "9007199254740993", "1.10", "NaN", "AP8=", "2024-02-29"]
    assert datetime.fromisoformat(row[6]).utcoffset() is not None
    assert row[7:11] == ["2024-01-02T03:04:05", [1, None], {"k": 1}, {"s": "é"}]
    assert row[12] is None


def test_values_that_are_hard_to_write(admin: Client) -> None:
    session = admin.session()
    [row] = rows(admin, session, "SELECT CAST(X'FF61' AS STRING), date_add(DATE '9999-12-31', 1), '😀'")
    assert row[1:] == ["10000-01-01", "😀"]


def test_statements_that_write_go_by_the_settings_of_their_session(admin: Client, schema: str) -> None:
    lenient, strict = (admin.session(schema=schema) for _ in range(2))
    succeeded(admin, lenient, "CREATE TABLE t (a INT)")
    succeeded(admin, lenient, "SET spark.sql.ansi.enabled = false")
    for _ in range(3):
        succeeded(admin, lenient, "INSERT INTO t VALUES (CAST('x' AS INT))")
        succeeded(admin, lenient, "CREATE OR REPLACE TABLE u AS SELECT CAST('x' AS INT) AS a")
        failed = admin.run(strict, "INSERT INTO t VALUES (CAST('x' AS INT))")
        assert failed["status"] == "FAILED", failed
    assert rows(admin, strict, "SELECT * FROM t") == [[None]] * 3


def test_a_dynamic_table(admin: Client, schema: str) -> None:
    session = admin.session(schema=schema)
    succeeded(admin, session, "CREATE TABLE t AS SELECT 1 AS k, 2 AS v")
    succeeded(admin, session, "CREATE DYNAMIC TABLE d AS SELECT k, sum(v) AS s FROM t GROUP BY k")
    succeeded(admin, session, "INSERT INTO t VALUES (1, 3)")
    statement = succeeded(admin, session, "REFRESH DYNAMIC TABLE d")
    assert "refresh_mode" in [column["name"] for column in statement["columns"]]
    assert rows(admin, session, "SELECT * FROM d") == [[1, 5]]
    assert "headrace_refreshes_total" in admin.http.get("/metrics").text


def test_errors_have_a_place_in_the_text(admin: Client) -> None:
    session = admin.session()
    asked = {"sql": "CREATE DYNAMIC TABLE\n  d SELECT 1"}
    answer = admin.http.post(f"/v1/sessions/{session}/statements", json=asked)
    assert answer.status_code == 400
    assert answer.json()["error"]["position"]["line"] == 2
    failed = admin.run(session, "SELECT * FROM nothing_of_this_name")
    assert failed["status"] == "FAILED"
    assert "nothing_of_this_name" in failed["error"]["message"]


def test_sessions_do_not_see_each_other(admin: Client, schema: str) -> None:
    one, two = admin.session(schema=schema), admin.session()
    succeeded(admin, one, "CREATE TEMPORARY VIEW mine AS SELECT 1")
    assert admin.run(two, "SELECT * FROM mine")["status"] == "FAILED"
    assert admin.http.get(f"/v1/sessions/{one}").json()["schema"] == f"main.{schema}"
    succeeded(admin, two, f"USE {schema}")
    assert admin.http.get(f"/v1/sessions/{two}").json()["schema"] == f"main.{schema}"


def test_what_spark_keeps_for_a_session_goes_with_it(server: Server, admin: Client, schema: str) -> None:
    lake = server.service.lake
    session = admin.session(schema=schema)
    context = server.service.sessions.find(session, Principal("admin", "admin")).session.context
    for sql in (
        "CREATE TABLE t AS SELECT 1 AS a",
        "CREATE OR REPLACE TEMPORARY VIEW v AS SELECT a FROM t",
        "CACHE TABLE v",
        f"CACHE LAZY TABLE {schema}.t",
        "CACHE TABLE made AS SELECT a + 1 AS b FROM t",
    ):
        succeeded(admin, session, sql)
    assert rows(admin, session, "SELECT * FROM made") == [[2]]
    views = Jvm(context.spark).state.catalog()
    assert views.listLocalTempViews("*").size() == 2
    assert lake.spark.catalog.isCached(f"{schema}.t")
    slow = admin.run(session, SLOW, wait_seconds=0)["job_id"]
    assert admin.http.delete(f"/v1/sessions/{session}").status_code == 204
    assert admin.status(slow)["status"] == "CANCELLED"
    deadline = time.monotonic() + 20
    while views.listLocalTempViews("*").size():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not lake.spark.catalog.isCached(f"{schema}.t")


def test_a_session_runs_one_statement_after_the_other(admin: Client, schema: str) -> None:
    session = admin.session(schema=schema)
    succeeded(admin, session, "CREATE TABLE t (n INT)")
    jobs = [admin.run(session, f"INSERT INTO t VALUES ({n})", wait_seconds=0)["job_id"] for n in range(5)]
    assert [admin.status(job)["status"] for job in jobs] == ["SUCCEED"] * 5
    assert rows(admin, session, "SELECT count(*) FROM t") == [[5]]


def test_cancelling_ends_the_work_in_spark(admin: Client) -> None:
    session = admin.session()
    job = admin.run(session, SLOW, wait_seconds=0)["job_id"]
    while admin.status(job, wait_seconds=0.05)["status"] != "RUNNING":
        pass
    admin.http.post(f"/v1/statements/{job}/cancel")
    ended = admin.status(job)
    assert (ended["status"], ended["error"]["code"]) == ("CANCELLED", "CANCELLED")
    assert rows(admin, session, "SELECT 1") == [[1]]


def test_jobs_can_be_listed_while_another_statement_runs(admin: Client) -> None:
    session = admin.session()
    job = admin.run(session, SLOW, wait_seconds=0)["job_id"]
    listed = rows(admin, session, "SHOW JOBS LIMIT 20")
    assert job in [row[0] for row in listed]
    # Nor does a query over the list need one of Spark's cores, which are all busy.
    other = admin.session()
    running = f"SELECT job_id FROM (SHOW JOBS WHERE status = 'RUNNING') WHERE job_id = '{job}'"
    assert rows(admin, other, running) == [[job]]
    succeeded(admin, session, f"CANCEL JOB '{job}'")
    assert admin.status(job)["status"] == "CANCELLED"


def test_a_large_result_in_pages_and_as_a_stream(admin: Client) -> None:
    session = admin.session()
    statement = succeeded(admin, session, "SELECT id FROM range(25000) ORDER BY id")
    found: list[int] = []
    offset = 0
    while offset is not None:
        page = admin.rows(statement["job_id"], offset=offset, limit=10_000)
        found += [row[0] for row in page["rows"]]
        offset = page["next_offset"]
    assert found == list(range(25_000))
    assert admin.arrow(statement["job_id"]).to_pydict() == {"id": list(range(25_000))}


@pytest.fixture
def giving_little(server: Server) -> Iterator[None]:
    """For a test, sessions give a thousand rows, and no more than a megabyte."""
    context = server.service.lake._context
    before = context.settings
    context.settings = before.model_copy(update={"result_rows_max": 1000, "result_bytes_max": 1_000_000})
    yield
    context.settings = before


def described(client: Client, session: str, job: str) -> dict[tuple[str, str], str]:
    return {(row[0], row[1]): row[2] for row in rows(client, session, f"DESC JOB '{job}'")}


@pytest.mark.usefixtures("giving_little")
def test_a_result_that_is_too_large_is_cut_and_no_more_is_computed(admin: Client, schema: str) -> None:
    session = admin.session(schema=schema)
    for sql in ("SELECT * FROM range(5000000)", "SELECT id FROM range(0, 5000000, 1, 40) LIMIT 2000000"):
        cut = succeeded(admin, session, sql)
        assert (cut["row_count"], cut["truncated"]) == (1000, True)
        told = described(admin, session, cut["job_id"])
        assert told["result", "rows"] == "1000"
        assert int(told["cost", "rows read"]) < 1_000_000, "Spark did not make them all"
    whole = succeeded(admin, session, "SELECT * FROM range(0, 1000, 1, 7)")
    assert (whole["row_count"], whole["truncated"]) == (1000, False)
    assert [row[0] for row in admin.rows(whole["job_id"], limit=2000)["rows"]] == list(range(1000))


@pytest.mark.usefixtures("giving_little")
def test_of_a_sorted_result_the_first_rows_are_given(admin: Client) -> None:
    session = admin.session()
    for sql in (
        "SELECT id FROM range(0, 20000, 1, 8) ORDER BY id DESC",
        "SELECT 19999 - id AS left FROM range(0, 20000, 1, 8) ORDER BY id",
    ):
        cut = succeeded(admin, session, sql)
        assert cut["truncated"] is True
        assert [row[0] for row in admin.rows(cut["job_id"], limit=2000)["rows"]] == list(range(19999, 18999, -1))


@pytest.mark.usefixtures("giving_little")
def test_long_rows_are_cut_by_their_size(admin: Client) -> None:
    session = admin.session()
    cut = succeeded(admin, session, "SELECT id, repeat('x', 10000) AS long FROM range(0, 5000, 1, 4)")
    assert cut["truncated"] is True
    table = admin.arrow(cut["job_id"])
    assert 50 <= table.num_rows <= 100
    assert table.nbytes <= 1_000_000
    assert table.column("id").to_pylist() == sorted(table.column("id").to_pylist())


@pytest.mark.usefixtures("giving_little")
def test_what_is_written_is_not_cut(admin: Client, schema: str) -> None:
    session = admin.session(schema=schema)
    succeeded(admin, session, "CREATE TABLE t AS SELECT id FROM range(3000)")
    job = succeeded(admin, session, "INSERT INTO t SELECT id FROM range(5000)")["job_id"]
    assert rows(admin, session, "SELECT count(*) FROM t") == [[8000]]
    told = described(admin, session, job)
    assert told["result", "rows written"] == "5000"
    assert int(told["result", "bytes written"]) > 5000
    succeeded(admin, session, "CREATE TABLE STREAM s ON TABLE t")
    succeeded(admin, session, "INSERT INTO t SELECT id FROM range(2000)")
    cut = succeeded(admin, session, "SELECT * FROM s")
    assert (cut["row_count"], cut["truncated"]) == (1000, True)
    succeeded(admin, session, "CREATE TABLE kept AS SELECT id FROM s")
    assert rows(admin, session, "SELECT count(*) FROM kept") == [[2000]]


def test_what_refreshes_write_is_told(admin: Client, schema: str) -> None:
    session = admin.session(schema=schema)
    succeeded(admin, session, "CREATE TABLE t AS SELECT id, id % 5 AS k FROM range(1000)")
    job = succeeded(admin, session, "CREATE DYNAMIC TABLE d AS SELECT k, count(*) AS n FROM t GROUP BY k")["job_id"]
    told = described(admin, session, job)
    assert (told["result", "rows inserted"], told["result", "rows written"]) == ("5", "5")
    assert int(told["result", "bytes written"]) > 100
    succeeded(admin, session, "INSERT INTO t VALUES (7, 7)")
    job = succeeded(admin, session, "REFRESH DYNAMIC TABLE d")["job_id"]
    told = described(admin, session, job)
    assert told["job", "refresh_mode"] == "INCREMENTAL"
    assert told["result", "rows written"] == "1", "by a commit that took no Spark"
    assert int(told["result", "bytes written"]) > 100
    assert ("result", "rows written") not in described(
        admin, session, succeeded(admin, session, "SELECT * FROM d")["job_id"]
    )


def test_many_clients_at_once(admin: Client) -> None:
    """Each gets its own rows."""

    def ask(number: int) -> list[Any]:
        session = admin.session()
        found = rows(admin, session, f"SELECT {number} AS n, current_schema()")
        admin.http.delete(f"/v1/sessions/{session}")
        return found

    with ThreadPoolExecutor(30) as clients:
        answers = list(clients.map(ask, range(60)))
    assert [answer[0][0] for answer in answers] == list(range(60))


def test_names_for_completion(admin: Client, schema: str) -> None:
    succeeded(admin, admin.session(schema=schema), "CREATE TABLE quite_a_name (n INT)")
    assert {schema, "quite_a_name"} <= set(admin.http.get("/v1/names").json()["names"])


def test_sessions_that_cannot_be(admin: Client) -> None:
    assert admin.http.post("/v1/sessions", json={"schema": "nowhere"}).status_code == 404
    assert admin.http.post("/v1/sessions", json={"vcluster": "nowhere"}).status_code == 404
    for schema in ("a.b.c.d", "`", "a'b", "x" * 255):
        assert admin.http.post("/v1/sessions", json={"schema": schema}).status_code in (400, 404)


def test_the_health(admin: Client) -> None:
    assert admin.http.get("/health").json() == {"status": "ok"}
