"""Python code on the server's Spark: who may run it, what it reads and writes, how its errors look."""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.client.lake import RemoteLake, connect
from headrace.errors import Forbidden, HeadraceError, NotAllowed, QueryFailed, TaskFailed, UserError
from headrace.session import interrupting
from served import PASSWORD, MakeUser, Server

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def allowing(server: Server) -> Iterator[None]:
    """For a test, the server runs code."""
    context = server.service.lake._context
    before = context.settings
    context.settings = before.model_copy(update={"code_tasks": True})
    yield
    context.settings = before


@pytest.fixture
def lake(server: Server) -> Iterator[RemoteLake]:
    name = f"code_{uuid.uuid4().hex[:12]}"
    with connect(server.url, username="admin", password=server.admin_password) as found:
        found.sql(f"CREATE SCHEMA {name}; USE {name}; CREATE TABLE t (id INT, name STRING)")
        found.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        yield found
        found.sql(f"USE public; DROP SCHEMA {name} CASCADE")


def run(lake: RemoteLake, code: str) -> Any:
    return lake.run("python", {"code": code, "name": "my_model"})


@pytest.mark.usefixtures("allowing")
def test_rows_of_a_dataframe_become_a_table(lake: RemoteLake) -> None:
    code = """
from pyspark.sql import functions as F

rows = _headrace.table("t")
_headrace.save(rows.filter(rows.id > 1).withColumn("twice", F.col("id") * 2), "made")
"""
    run(lake, code)
    assert lake.sql("SELECT * FROM made").rows == [(2, "b", 4)]
    run(lake, "_headrace.save(_headrace.table('(select id from t) x'), 'made')")
    assert sorted(lake.sql("SELECT * FROM made").rows) == [(1,), (2,)]
    jobs = lake.sql("SHOW JOBS WHERE job_text LIKE 'PYTHON my_model%' LIMIT 2").rows
    assert [row[1] for row in jobs] == ["SUCCEED", "SUCCEED"]


@pytest.mark.usefixtures("allowing")
def test_rows_of_pandas_and_partitions(lake: RemoteLake) -> None:
    run(
        lake,
        "import pandas\n_headrace.save(pandas.DataFrame({'a': [1, 2], 'p': [1, 2]}), 'made', partition_by=['p'])",
    )
    assert sorted(lake.sql("SELECT * FROM made").rows) == [(1, 1), (2, 2)]


@pytest.mark.usefixtures("allowing")
def test_streams_are_read_elsewhere(lake: RemoteLake) -> None:
    """Code could take their rows and lose them before anything is written."""
    lake.sql("CREATE TABLE STREAM s ON TABLE t; CREATE VIEW v AS SELECT id FROM s; INSERT INTO t VALUES (3, 'c')")
    for rows in (
        "_headrace.table('v').toPandas()",
        "_headrace.table('(select id from s) x')",
        "_headrace.spark.table('s')",
    ):
        with pytest.raises(NotAllowed, match="cannot read a table stream"):
            run(lake, f"_headrace.save({rows}, 'made')")
    assert lake.sql("SELECT id FROM s").rows == [(3,)]


@pytest.mark.usefixtures("allowing")
def test_what_a_table_is_made_with(lake: RemoteLake) -> None:
    given = "partition_by=['name'], properties={'change_tracking': 'true', 'team': \"O'Brien\"}"
    run(lake, f"_headrace.save(_headrace.table('t'), 'made', {given})")
    told = dict(row[:2] for row in lake.sql("DESC EXTENDED made").rows)
    assert '("change_tracking","true")' in told["properties"]
    assert '("team","O\'Brien")' in told["properties"]
    assert lake.sql("SELECT count(*) FROM made").rows == [(2,)]


@pytest.mark.usefixtures("allowing")
@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        ("x = 1\ny = x / 0", TaskFailed, ("my_model failed: ZeroDivisionError", "line 2: y = x / 0")),
        ("def (", UserError, ("my_model is no Python",)),
        ("_headrace.save(7, 'made')", UserError, ("int, which is no table",)),
        ("_headrace.table('t').select('nothing').collect()", QueryFailed, ("nothing",)),
        ("raise SystemExit(3)", TaskFailed, ("ended itself with 3",)),
    ],
)
def test_errors(lake: RemoteLake, code: str, error: type[HeadraceError], words: tuple[str, ...]) -> None:
    with pytest.raises(error) as caught:
        run(lake, code)
    for word in words:
        assert word in caught.value.message


def test_a_server_runs_no_code_unless_it_is_allowed(lake: RemoteLake) -> None:
    with pytest.raises(NotAllowed, match="This server runs no Python models"):
        run(lake, "x = 1")


@pytest.mark.usefixtures("allowing")
def test_a_developer_may_not(server: Server, make_user: MakeUser) -> None:
    developer = make_user("developer")
    operator = make_user("operator")
    with (
        connect(server.url, username=developer.name, password=PASSWORD) as session,
        pytest.raises(Forbidden, match="A Python model needs an operator"),
    ):
        run(session, "x = 1")
    with connect(server.url, username=operator.name, password=PASSWORD) as session:
        run(session, "x = 1")
        with pytest.raises(Forbidden):
            run(session, "_headrace.table('main.public.nothing')")


def begun(session: RemoteLake, code: str, marker: Path) -> str:
    """Its job, once the code has written the file."""
    asked = {"code": f"open({str(marker)!r}, 'w').close()\n{code}", "name": "endless", "wait_seconds": 0}
    statement = session._http.post(f"/v1/sessions/{session.session_id}/python", asked)
    deadline = time.monotonic() + 60
    while not marker.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return str(statement["job_id"])


def ended(session: RemoteLake, job: str) -> dict[str, Any]:
    found: dict[str, Any] = {"status": "RUNNING"}
    while found["status"] not in ("SUCCEED", "FAILED", "CANCELLED"):
        found = session._http.get(f"/v1/statements/{job}", wait_seconds=30)
    return found


@pytest.mark.usefixtures("allowing")
@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "while True:\n    try:\n        sum(range(1000))\n    except Exception:\n        pass",
        "while True: _headrace.spark.range(10).count()",
        "_headrace.spark.range(0, 10**13, 1, 8).selectExpr('sum(hash(id))').collect()",
    ],
)
def test_code_is_broken_off_when_it_is_cancelled(lake: RemoteLake, code: str, tmp_path: Path) -> None:
    job = begun(lake, code, tmp_path / "begun")
    lake._http.post(f"/v1/statements/{job}/cancel")
    assert ended(lake, job)["status"] == "CANCELLED"
    assert lake.sql("SELECT count(*) FROM t").rows == [(2,)], "the session works on"
    run(lake, "assert _headrace.spark.range(3).count() == 3")


@pytest.mark.usefixtures("allowing")
def test_code_is_broken_off_at_its_runtime_limit(lake: RemoteLake, tmp_path: Path) -> None:
    lake.sql("CREATE VCLUSTER short QUERY_RUNTIME_LIMIT_IN_SECOND = 1; USE VCLUSTER short")
    found = ended(lake, begun(lake, "while True: pass", tmp_path / "begun"))
    assert found["error"]["code"] == "TIMED_OUT"
    lake.sql("USE VCLUSTER default; DROP VCLUSTER short")


@pytest.mark.usefixtures("allowing")
def test_code_that_does_not_come_back_is_left_alone(
    lake: RemoteLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupting, "LEAVE_SECONDS", 0.5)
    job = begun(lake, "import time; time.sleep(20)", tmp_path / "begun")
    began = time.monotonic()
    lake._http.post(f"/v1/statements/{job}/cancel")
    assert ended(lake, job)["status"] == "CANCELLED"
    assert time.monotonic() - began < 15
    assert lake.sql("SELECT 1").rows == [(1,)]


@pytest.mark.usefixtures("allowing")
def test_code_leaves_a_line_in_the_audit_log(server: Server, lake: RemoteLake) -> None:
    run(lake, "x = 'a secret'")
    with pytest.raises(TaskFailed):
        run(lake, "1 / 0")
    failed, ran = (entry for entry in server.service.lake.store.users.audited(2))
    assert (ran.action, ran.user, ran.address) == ("CODE", "admin", "127.0.0.1")
    digest = hashlib.sha256(b"x = 'a secret'").hexdigest()
    assert ran.detail == f"succeeded: PYTHON my_model, SHA-256 {digest}"
    assert failed.detail.startswith("failed (TASK_FAILED): PYTHON my_model, SHA-256 ")
