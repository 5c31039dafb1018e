"""Rows that are sent and files that are copied, through Spark into tables, and on into dynamic tables."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from headrace import Lake
from headrace.errors import Dangerous, Forbidden, HeadraceError, NotAllowed, NotFound, UserError
from headrace.loading.checked import BadBatch, BatchDiffers
from headrace.loading.receiving import Receipt
from headrace.loading.writing import SparkWriter
from headrace.security.roles import Principal
from headrace.server.service import Service
from served import PASSWORD, listening

ADMIN = Principal("ann", "admin", unlimited=True)
_numbers = itertools.count(1)


def send(lake: Lake, schema: str, table: str, *rows: dict[str, Any], batch_id: str | None = None) -> Receipt:
    body = "\n".join(map(json.dumps, rows)).encode()
    return lake.load_rows(ADMIN, f"{schema}.{table}", body, "json", batch_id)


def flush(lake: Lake) -> None:
    lake.loads.committer.flush()


def rows(lake: Lake, text: str) -> list[tuple[Any, ...]]:
    return lake.sql(text).rows


def verify(lake: Lake, name: str) -> None:
    assert lake.sql(f"VERIFY DYNAMIC TABLE {name}").rows[0][1] == "EQUAL"


def test_sent_rows_reach_a_dynamic_table(lake: Lake, schema: str) -> None:
    lake.sql(
        """
        CREATE TABLE events (id BIGINT NOT NULL, kind STRING, amount DECIMAL(10,2));
        CREATE DYNAMIC TABLE totals AS SELECT kind, count(*) AS n, sum(amount) AS total FROM events GROUP BY kind
        """
    )
    batches = [
        [*({"id": batch * 10 + n, "kind": f"k{n % 2}", "amount": "1.25"} for n in range(10)), {"id": "x"}]
        for batch in range(3)
    ]
    for number, batch in enumerate(batches):
        sent = send(lake, schema, "events", *batch, batch_id=f"b{number}")
        assert (sent.load.rows, sent.load.rejected, sent.load.state) == (10, 1, "RECEIVED")
    assert rows(lake, "SELECT count(*) FROM events") == [(0,)]
    flush(lake)
    assert rows(lake, "SELECT count(*), count(DISTINCT id) FROM events") == [(30, 30)]
    assert [row[4] for row in rows(lake, "DESC HISTORY events")][:1] == ["WRITE"]
    assert rows(lake, "SELECT batch_id, row_number, row, error FROM events_rejects ORDER BY batch_id") == [
        (f"b{n}", 11, '{"id": "x"}', 'Column id: "x" is no BIGINT: it must be a whole number.') for n in range(3)
    ]
    record = lake.sql("REFRESH DYNAMIC TABLE totals").rows[0]
    assert record[10] == "INCREMENTAL"
    verify(lake, "totals")
    with pytest.raises(BatchDiffers):
        send(lake, schema, "events", {"id": 1}, batch_id="b1")
    again = send(lake, schema, "events", *batches[1], batch_id="b1")
    assert (again.duplicate, again.load.state, again.load.version) == (True, "COMMITTED", 1)
    flush(lake)
    assert rows(lake, "SELECT count(*) FROM events") == [(30,)]
    lake.sql("INSERT INTO events VALUES (100, 'z', 1)")
    assert rows(lake, "SELECT count(*) FROM events") == [(31,)], "no number of ours stays in a session"
    lake.sql("REFRESH DYNAMIC TABLE totals")
    verify(lake, "totals")


def test_every_type(lake: Lake, schema: str) -> None:
    lake.sql(
        """
        CREATE TABLE t (a TINYINT, b SMALLINT, c INT, d BIGINT, e FLOAT, f DOUBLE, g DECIMAL(38,10), h STRING, i BINARY,
          j DATE, k TIMESTAMP, l TIMESTAMP_NTZ, m BOOLEAN, n ARRAY<INT>, o MAP<STRING, BIGINT>,
          p STRUCT<x: INT, yz: ARRAY<TIMESTAMP>>, q VARCHAR(3), r CHAR(3))
        """
    )
    row = {
        "a": -128, "b": 32767, "c": 1, "d": "9223372036854775807", "e": 0.5, "f": "NaN", "g": "1234567890.0123456789",
        "h": "ü\u0000", "i": "AP8=", "j": "0001-01-01", "k": "1883-11-18T12:00:00Z", "l": "2026-03-29T02:30:00",
        "m": True, "n": [1, None], "o": {"a": 1}, "p": {"x": 1, "yz": ["2026-01-31T00:00:00Z"]}, "q": "abc", "r": "a",
    }  # fmt: skip
    send(lake, schema, "t", row, {})
    flush(lake)
    expected = (
        "a = -128 AND b = 32767 AND c = 1 AND d = 9223372036854775807 AND e = 0.5 AND isnan(f) "
        "AND g = 1234567890.0123456789 AND h = concat('ü', chr(0)) AND i = X'00FF' AND j = DATE '0001-01-01' "
        "AND k = TIMESTAMP '1883-11-18T12:00:00Z' AND l = TIMESTAMP_NTZ '2026-03-29 02:30:00' AND m "
        "AND size(n) = 2 AND n[0] = 1 AND n[1] IS NULL AND element_at(o, 'a') = 1 AND p.x = 1 "
        "AND p.yz[0] = TIMESTAMP '2026-01-31T00:00:00Z' AND q = 'abc' AND r = 'a  '"
    )
    assert rows(lake, f"SELECT count_if({expected}), count_if(a IS NULL) FROM t") == [(1, 1)]


def test_constraints_generated_columns_and_defaults(lake: Lake, schema: str) -> None:
    lake.sql(
        """
        CREATE TABLE t (id BIGINT, twice BIGINT GENERATED ALWAYS AS (id * 2), n BIGINT GENERATED ALWAYS AS IDENTITY,
          d INT DEFAULT 7) TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported');
        ALTER TABLE t ADD CONSTRAINT small CHECK (twice < 100)
        """
    )
    first: list[dict[str, Any]] = [{"id": 1}, {"id": 60}, {"id": None}, {"id": 3, "twice": 6}]
    sent = send(lake, schema, "t", *first, batch_id="b1")
    assert (sent.load.rows, sent.load.rejected) == (3, 1)
    send(lake, schema, "t", {"id": 4, "d": None}, {"id": 5, "d": 1}, batch_id="b2")
    flush(lake)
    assert rows(lake, "SELECT id, twice, d FROM t ORDER BY id") == [(1, 2, 7), (4, 8, None), (5, 10, 1)]
    assert rows(lake, "SELECT count(DISTINCT n) FROM t") == [(3,)]
    found = rows(lake, "SELECT row_number, error FROM t_rejects ORDER BY row_number")
    assert [number for number, _ in found] == [2, 3, 4]
    assert found[0][1] == "The row does not meet the constraint small: twice < 100."
    again = send(lake, schema, "t", *first, batch_id="b1")
    assert (again.load.rows, again.load.rejected) == (1, 3)


def test_constraints_and_generated_columns_that_raise(lake: Lake, schema: str) -> None:
    lake.sql(
        """
        CREATE TABLE t (id BIGINT, x INT, s STRING, number INT GENERATED ALWAYS AS (CAST(s AS INT)),
          twice BIGINT GENERATED ALWAYS AS (id * 2), part INT GENERATED ALWAYS AS (CASE WHEN x <> 7 THEN x END));
        ALTER TABLE t ADD CONSTRAINT share CHECK (100 / x > 1);
        ALTER TABLE t ADD CONSTRAINT other CHECK (100 / x > 1 OR number < 10)
        """
    )
    batch = [
        {"id": 1, "x": 5, "s": "1"}, {"id": 2, "x": 0, "s": "2"}, {"id": 3, "x": 5, "s": "no"},
        {"id": 2**62, "x": 5, "s": "4"}, {"id": 5, "x": 200, "s": "5"}, {"id": 6, "x": 7, "s": None},
        {"id": 7, "x": None, "s": "7"},
    ]  # fmt: skip
    sent = send(lake, schema, "t", *batch, batch_id="b1")
    assert sent.load.rejected == 0
    flush(lake)
    assert rows(lake, "SELECT id, number, twice, part FROM t ORDER BY id") == [(1, 1, 2, 5), (6, None, 12, None)]
    assert rows(lake, "SELECT row_number, error FROM t_rejects ORDER BY row_number") == [
        (2, "The row does not meet the constraint other: 100 / x > 1 OR number < 10."),
        (3, "Column number: it cannot be computed from the row: CAST(s AS INT)."),
        (4, "Column twice: it cannot be computed from the row: id * 2."),
        (5, "The row does not meet the constraint share: 100 / x > 1."),
        (7, "The row does not meet the constraint share: 100 / x > 1."),
    ]
    assert not lake.loads.committer.status()
    again = send(lake, schema, "t", *batch, batch_id="b1")
    assert (again.load.rows, again.load.rejected, again.load.state) == (2, 5, "COMMITTED")


def test_a_constraint_on_an_identity_column(lake: Lake, schema: str) -> None:
    lake.sql(
        """
        CREATE TABLE t (id BIGINT, n BIGINT GENERATED ALWAYS AS IDENTITY);
        ALTER TABLE t ADD CONSTRAINT positive CHECK (n > 0);
        ALTER TABLE t ADD CONSTRAINT small CHECK (id < 100)
        """
    )
    send(lake, schema, "t", {"id": 1}, {"id": 100}, batch_id="b1")
    flush(lake)
    assert rows(lake, "SELECT id, n > 0 FROM t") == [(1, True)]
    assert rows(lake, "SELECT row_number FROM t_rejects") == [(2,)]
    assert not lake.loads.committer.status()


def test_nothing_but_bad_rows(lake: Lake, schema: str) -> None:
    lake.sql("CREATE TABLE t (id BIGINT NOT NULL)")
    for number in range(2):
        send(lake, schema, "t", {"id": None}, batch_id=f"b{number}")
        flush(lake)
    assert rows(lake, "SELECT count(*) FROM t") == [(0,)]
    assert rows(lake, "SELECT count(*) FROM t_rejects") == [(2,)]
    lake.sql("CREATE DYNAMIC TABLE copy AS SELECT id FROM t")
    send(lake, schema, "t", {"id": None}, batch_id="b3")
    flush(lake)
    assert lake.sql("REFRESH DYNAMIC TABLE copy").rows[0][10] == "NO_DATA"
    verify(lake, "copy")


def test_a_table_that_changes_while_rows_wait(lake: Lake, schema: str) -> None:
    lake.sql("CREATE TABLE t (id INT, gone STRING, kept STRING) TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    send(lake, schema, "t", {"id": 1, "kept": "a"}, {"id": 2, "gone": "x"}, batch_id="b1")
    lake.sql("ALTER TABLE t DROP COLUMN gone; ALTER TABLE t ADD COLUMNS (new INT)")
    flush(lake)
    assert rows(lake, "SELECT id, kept, new FROM t") == [(1, "a", None)]
    assert rows(lake, "SELECT row_number, error FROM t_rejects") == [(2, "There is no column gone any more.")]


def test_a_table_that_is_renamed_or_dropped_while_rows_wait(lake: Lake, schema: str) -> None:
    lake.sql("CREATE TABLE t (id INT)")
    send(lake, schema, "t", {"id": 1})
    lake.sql("ALTER TABLE t RENAME TO u")
    flush(lake)
    assert rows(lake, "SELECT id FROM u") == [(1,)]
    send(lake, schema, "u", {"id": 2})
    lake.sql("DROP TABLE u; CREATE TABLE u (id INT)")
    flush(lake)
    assert rows(lake, "SELECT count(*) FROM u") == [(0,)]
    assert not lake.loads.committer.status()


def test_partitioned_tables(lake: Lake, schema: str) -> None:
    lake.sql("CREATE TABLE t (id INT, day DATE) PARTITIONED BY (day)")
    send(lake, schema, "t", *({"id": n, "day": f"2026-01-0{n % 3 + 1}"} for n in range(9)))
    flush(lake)
    assert rows(lake, "SELECT day, count(*) FROM t GROUP BY day ORDER BY day")[0][1] == 3


def test_what_cannot_be_loaded(lake: Lake, schema: str) -> None:
    lake.sql(
        """
        CREATE TABLE t (id INT);
        CREATE DYNAMIC TABLE d AS SELECT id FROM t;
        CREATE TABLE STREAM s ON TABLE t;
        CREATE VIEW v AS SELECT id FROM t
        """
    )
    for name, kind in (("d", NotAllowed), ("s", NotAllowed), ("v", NotAllowed), ("missing", NotFound)):
        with pytest.raises(kind):
            send(lake, schema, name, {"id": 1})
        with pytest.raises(HeadraceError):
            lake.sql(f"COPY INTO {name} FROM 'x.csv' FILE_FORMAT = CSV")


def test_odd_tables_of_rejects_hold_up_nothing(lake: Lake, schema: str) -> None:
    ours = "batch_id STRING, row_number BIGINT, row STRING, error STRING, received_at TIMESTAMP"
    made = {
        "columns": "CREATE TABLE columns_rejects (a INT)",
        "types": f"CREATE TABLE types_rejects ({ours.replace('row STRING', 'row VARCHAR(5)')})",
        "missing": f"CREATE TABLE missing_rejects ({ours}, mine INT NOT NULL)",
        "checked": f"CREATE TABLE checked_rejects ({ours});"
        "ALTER TABLE checked_rejects ADD CONSTRAINT none CHECK (row_number < 0)",
        "viewed": "CREATE VIEW viewed_rejects AS SELECT 1 AS one",
        "parquet": f"CREATE TABLE parquet_rejects ({ours}) USING parquet",
        "streamed": "CREATE TABLE STREAM streamed_rejects ON TABLE streamed",
        "dynamic": "CREATE DYNAMIC TABLE dynamic_rejects AS SELECT id FROM dynamic",
        "files": "SELECT 1",
        "wider": f"CREATE TABLE wider_rejects ({ours}, note STRING)",
        "again": f"CREATE TABLE again_rejects ({ours})",
    }
    for name, text in made.items():
        lake.sql(f"CREATE TABLE {name} (id INT)")
        send(lake, schema, name, {"id": 1}, {"id": "x"}, batch_id="b1")
        lake.sql(text)
    place = lake.sql("DESC DETAIL again").rows[0]
    left = Path(str(next(value for value in place if str(value).endswith("/again"))).removeprefix("file:"))
    (left.parent / "files_rejects").mkdir()
    (left.parent / "files_rejects" / "x.parquet").write_text("x")
    flush(lake)
    assert not lake.loads.committer.status()
    for name in made:
        assert rows(lake, f"SELECT id FROM {name}") == [(1,)]
        used = f"{name}_rejects" if name in ("wider", "again") else f"{name}_rejects_2"
        assert rows(lake, f"SELECT batch_id, row_number FROM {used}") == [("b1", 2)], name
    again = send(lake, schema, "columns", {"id": 1}, {"id": "x"}, batch_id="b1")
    assert (again.load.state, again.load.rows, again.load.rejected) == ("COMMITTED", 1, 1)
    (told,) = rows(lake, "DESC DETAIL columns_rejects_2")
    assert "columns_rejects has not the columns batch_id" in str(told)
    verify(lake, "dynamic_rejects")


def test_a_condition_on_the_time_is_asked_once(lake: Lake, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.sql(
        "CREATE TABLE t (id INT, at TIMESTAMP); ALTER TABLE t ADD CONSTRAINT past CHECK (at <= current_timestamp())"
    )
    append = SparkWriter.append
    soon = datetime.now(timezone.utc) + timedelta(seconds=20)

    def late(self: SparkWriter, *arguments: Any) -> None:
        time.sleep(max(0.0, (soon - datetime.now(timezone.utc)).total_seconds()) + 0.2)
        append(self, *arguments)

    monkeypatch.setattr(SparkWriter, "append", late)
    batch = [{"id": 1, "at": "2026-01-01T00:00:00Z"}, {"id": 2, "at": soon.isoformat()}]
    send(lake, schema, "t", *batch, batch_id="b1")
    flush(lake)
    assert rows(lake, "SELECT id FROM t") == [(1,)], "what was too early when it was judged stays so"
    assert rows(lake, "SELECT row_number FROM t_rejects") == [(2,)]
    again = send(lake, schema, "t", *batch, batch_id="b1")
    assert (again.load.rows, again.load.rejected) == (1, 1)


@pytest.mark.parametrize("checked", [False, True])
def test_a_table_that_is_dropped_right_before_its_commit(
    lake: Lake, schema: str, monkeypatch: pytest.MonkeyPatch, folder: Path, checked: bool
) -> None:
    append = SparkWriter.append
    paths: list[str] = []

    def dropping(self: SparkWriter, path: str, *arguments: Any) -> None:
        paths.append(path)
        lake.sql("DROP TABLE t")
        append(self, path, *arguments)

    monkeypatch.setattr(SparkWriter, "append", dropping)
    create = "CREATE TABLE t (id INT)" + ("; ALTER TABLE t ADD CONSTRAINT c CHECK (id > 0)" if checked else "")
    lake.sql(create)
    send(lake, schema, "t", {"id": 1}, {"id": "x"}, batch_id="b1")
    flush(lake)
    assert not lake.loads.committer.status()
    lake.sql(create)
    (folder / "x.csv").write_text("1\n")
    with pytest.raises(NotFound, match="was dropped, renamed or replaced"):
        lake.sql(f"COPY INTO t FROM '{folder}' FILE_FORMAT = CSV")
    assert len(paths) == 2
    assert not [path for path in paths if Path(path).exists()], "nothing is created"
    monkeypatch.setattr(SparkWriter, "append", append)
    lake.sql(create)
    assert [row[1] for row in rows(lake, f"COPY INTO t FROM '{folder}' FILE_FORMAT = CSV")] == ["LOADED"]
    assert rows(lake, "SELECT id FROM t") == [(1,)]


def test_a_table_of_rejects_that_is_dropped_right_before_its_commit(
    lake: Lake, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = SparkWriter.append_rejects
    paths: list[str] = []

    def dropping(self: SparkWriter, path: str, *arguments: Any) -> None:
        paths.append(path)
        if len(paths) == 1:
            lake.sql("DROP TABLE t_rejects")
        append(self, path, *arguments)

    monkeypatch.setattr(SparkWriter, "append_rejects", dropping)
    lake.sql("CREATE TABLE t (id INT)")
    send(lake, schema, "t", {"id": 1}, {"id": "x"}, batch_id="b1")
    with pytest.raises(HeadraceError):
        flush(lake)
    assert not Path(paths[0]).exists()
    flush(lake)
    assert rows(lake, "SELECT id FROM t") == [(1,)]
    assert rows(lake, "SELECT row_number FROM t_rejects") == [(2,)]


# ---------------------------------------------------------------------- COPY INTO


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "in"
    made.mkdir()
    return made


def test_copy_csv_json_and_parquet(lake: Lake, folder: Path) -> None:
    import pyarrow.parquet as pq

    (folder / "a.csv").write_text("id,kind\n1,a\nx,b\n2,\n")
    (folder / "b.json").write_text('{"id": 3, "kind": "c"}\n{"id": 3.5}\n')
    pq.write_table(pa.table({"id": [4, 5], "kind": ["d", None]}), folder / "c.parquet")
    lake.sql("CREATE TABLE t (id BIGINT, kind STRING)")
    lake.sql("CREATE DYNAMIC TABLE d AS SELECT kind, count(*) AS n FROM t GROUP BY kind")
    copy = f"COPY INTO t FROM '{folder}/a.csv' FILE_FORMAT = CSV OPTIONS ('header' = 'true')"
    loaded = lake.sql(copy)
    assert loaded.columns == ["file", "state", "rows", "rejected", "error", "note"]
    assert loaded.rows == [
        (str(folder / "a.csv"), "LOADED", 2, 1, 'Column id: "x" is no BIGINT: it must be a whole number.', None)
    ]
    os.utime(folder / "a.csv", ns=(1, 1))
    assert [row[1:4] for row in rows(lake, copy)] == [("SKIPPED", 0, 0)]
    with pytest.raises(UserError, match=r"a\.csv is CSV and .*b\.json is JSON"):
        lake.sql(f"COPY INTO t FROM '{folder}'")
    assert [row[1:4] for row in rows(lake, f"COPY INTO t FROM '{folder}/*.json'")] == [("LOADED", 1, 1)]
    assert [row[1:4] for row in rows(lake, f"COPY INTO t FROM '{folder}/*.parquet' FILE_FORMAT = PARQUET")] == [
        ("LOADED", 2, 0)
    ]
    assert rows(lake, "SELECT id FROM t ORDER BY id") == [(1,), (2,), (3,), (4,), (5,)]
    assert rows(lake, "SELECT row_number, row FROM t_rejects ORDER BY row_number, row") == [
        (2, "x,b"),
        (2, '{"id": 3.5}'),
    ]
    assert lake.sql("REFRESH DYNAMIC TABLE d").rows[0][10] == "INCREMENTAL"
    verify(lake, "d")
    assert [row[1] for row in rows(lake, f"{copy} FORCE = TRUE")] == ["LOADED"]
    assert rows(lake, "SELECT count(*) FROM t") == [(7,)]
    assert [row[1] for row in rows(lake, copy)] == ["SKIPPED"]


def test_a_copy_that_fails_has_loaded_nothing(lake: Lake, folder: Path) -> None:
    (folder / "a.csv").write_text("1\n")
    (folder / "b.csv").write_text("1,2\n")
    lake.sql("CREATE TABLE t (id INT)")
    with pytest.raises(BadBatch, match=r"b\.csv"):
        lake.sql(f"COPY INTO t FROM '{folder}' FILE_FORMAT = CSV")
    assert rows(lake, "SELECT count(*) FROM t") == [(0,)]
    assert [row[1] for row in rows(lake, f"COPY INTO t FROM '{folder}/a.csv' FILE_FORMAT = CSV")] == ["LOADED"]


def test_a_server_copies_from_its_own_folder_only(lake: Lake, schema: str, folder: Path) -> None:
    (folder / "a.csv").write_text("1\n")
    own = lake.settings.path / "files"
    own.mkdir(exist_ok=True)
    (own / "b.csv").write_text("2\n")
    lake.sql("CREATE TABLE t (id INT)")
    session = lake.session(Principal("root", "admin"), schema=schema)
    for text, state in (("b.csv", "SUCCEED"), (str(folder / "a.csv"), "FAILED"), ("/etc/passwd", "FAILED")):
        job = session.submit(f"COPY INTO t FROM '{text}' FILE_FORMAT = CSV")
        assert job.wait(60)
        assert job.job.status == state, job.error
        assert state == "SUCCEED" or isinstance(job.error, Dangerous)
    assert rows(lake, "SELECT id FROM t") == [(2,)]


# ---------------------------------------------------------------------- over HTTP


@pytest.fixture(scope="module")
def server(shared_lake: Lake) -> Iterator[tuple[str, str]]:
    """Its address, and the token of the files' owner."""
    service = Service(shared_lake.settings)
    service._lake = shared_lake
    with listening(service) as url:
        yield url, service.local_token


def client(server: tuple[str, str]) -> httpx.Client:
    return httpx.Client(
        base_url=server[0], trust_env=False, timeout=60, headers={"Authorization": f"Bearer {server[1]}"}
    )


def test_rows_over_http(lake: Lake, schema: str, server: tuple[str, str]) -> None:
    lake.sql("CREATE TABLE t (id INT NOT NULL, note STRING)")
    http, kind = client(server), {"Content-Type": "application/x-ndjson"}
    path = f"/v1/tables/{schema}.t/rows"
    body = b'{"id": 1}\n{"id": 1.5}\n{"ID": 2}'
    answer = http.post(path, params={"batch_id": "b1"}, content=body, headers=kind)
    assert answer.json() == {"batch_id": "b1", "accepted": 2, "rejected": 1, "state": "RECEIVED", "duplicate": False}
    table = pa.table({"id": pa.array([3, 4], pa.int32()), "note": ["a", "b"]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    arrow = {"Content-Type": "application/vnd.apache.arrow.stream"}
    assert http.post(path, content=sink.getvalue().to_pybytes(), headers=arrow).json()["accepted"] == 2
    flush(lake)
    assert rows(lake, "SELECT id FROM t ORDER BY id") == [(1,), (2,), (3,), (4,)]
    assert http.post(path, params={"batch_id": "b1"}, content=body, headers=kind).json()["state"] == "COMMITTED"
    assert http.post(path, params={"batch_id": "b1"}, content=b"x", headers=kind).status_code == 409
    assert http.post(f"/v1/tables/{schema}.missing/rows", content=b"{}", headers=kind).status_code == 404
    big = b'{"id": 1, "note": "' + b"x" * 3_000_000 + b'"}'
    assert http.post(path, content=big, headers=kind).json()["accepted"] == 1
    flush(lake)
    assert rows(lake, "SELECT max(length(note)) FROM t") == [(3_000_000,)]


def test_rights(lake: Lake, schema: str) -> None:
    lake.sql("CREATE TABLE t (id INT)")
    number = next(_numbers)
    for role, grant, may in (
        ("developer", None, False), ("developer", f"SELECT ON TABLE {schema}.t", False),
        ("developer", f"ALL ON TABLE {schema}.t", True), ("analyst", f"ALL ON SCHEMA {schema}", False),
        ("developer", f"ALL ON SCHEMA {schema}", True),
    ):  # fmt: skip
        user = f"loader_{number}_{next(_numbers)}"
        lake.sql(f"CREATE USER {user} WITH PASSWORD '{PASSWORD}' ROLE {role}")
        if grant is not None:
            lake.sql(f"GRANT {grant} TO {user}")
        principal = Principal(user, role)  # type: ignore[arg-type]
        if may:
            assert lake.load_rows(principal, f"{schema}.t", b'{"id": 1}', "json", None).load.rows == 1
        else:
            with pytest.raises(Forbidden):
                lake.load_rows(principal, f"{schema}.t", b'{"id": 1}', "json", None)
        lake.sql(f"DROP USER {user}")
    flush(lake)
    assert rows(lake, "SELECT count(*) FROM t") == [(2,)]
