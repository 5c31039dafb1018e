"""What goes wrong, told in dbt's own form with what to do, and nothing left half-built."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable

import pytest

from dbt_server import DbtServer, Project

NewProject = Callable[..., Project]
LONG = "select max(id % 7) as m from range(0, 100000000000000, 1, 1)"

pytestmark = pytest.mark.timeout(900)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# ---------------------------------------------------------------------- profiles


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ({"service": None}, ["service"]),
        ({"service": "ftp://host:1"}, ["service", "http"]),
        ({"password": None}, ["password", "token"]),
        ({"schema": None}, ["schema"]),
        ({"workspace": "my ws"}, ["workspace"]),
        ({"password": ""}, ["password is missing or empty"]),
        ({"password": 12345}, ["password is no text"]),
        ({"token": "tökén"}, ["token has characters"]),
    ],
    ids=[
        "no service",
        "a wrong service",
        "no password",
        "no schema",
        "an odd workspace",
        "an empty password",
        "a number for a password",
        "an odd token",
    ],
)
def test_a_bad_profile(new_project: NewProject, target: dict[str, object], told: list[str]) -> None:
    ran = new_project(target).fails("debug")
    assert "Traceback" not in ran
    for word in told:
        assert word in ran, ran.output
    assert "12345" not in ran


def test_a_server_that_is_not_there(new_project: NewProject) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    project = new_project({"service": url})
    project.write("models/one.sql", "select 1 as id")
    for command in ("debug", "run"):
        ran = project.fails(command)
        assert url.removeprefix("http://") in ran
        assert "headrace up" in ran, ran.output
        assert "Traceback" not in ran


def test_something_else_answers(new_project: NewProject) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen(8)
        other.settimeout(20)

        def answer() -> None:
            try:
                while True:
                    talk, _ = other.accept()
                    talk.recv(4096)
                    talk.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello")
                    talk.close()
            except OSError:
                return

        threading.Thread(target=answer, daemon=True).start()
        ran = new_project({"service": f"http://127.0.0.1:{other.getsockname()[1]}"}).fails("debug")
        assert "Traceback" not in ran


def test_a_wrong_password(new_project: NewProject) -> None:
    project = new_project({"password": "not the right one"})
    project.write("models/one.sql", "select 1 as id")
    for command in ("debug", "run"):
        ran = project.fails(command)
        assert "Traceback" not in ran
        assert "of this target in profiles.yml" in ran
        assert "not the right one" not in ran


def test_a_token_is_enough(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    with dbt_server.connected() as lake:
        token = lake.sql(f"CREATE TOKEN '{schema}'").rows[0][1]
    project = new_project({"token": token, "username": None, "password": None})
    project.write("models/one.sql", "{{ config(materialized='table') }} select 1 as id")
    ran = project.succeeds("debug")
    assert token not in ran
    assert f"The schema main.{schema} is not there yet" in ran
    project.succeeds("run")
    assert dbt_server.rows(f"SELECT id FROM {schema}.one") == [(1,)]
    dbt_server.rows(f"DROP TOKEN '{schema}'")
    ran = project.fails("run")
    assert "UNAUTHENTICATED" in ran
    assert token not in ran


def test_a_missing_vcluster(new_project: NewProject) -> None:
    project = new_project({"vcluster": "nowhere"})
    project.write("models/one.sql", "select 1 as id")
    for command in ("debug", "run"):
        ran = project.fails(command)
        assert "nowhere" in ran
        assert "CREATE VCLUSTER" in ran, ran.output


def test_a_developer_s_first_run_makes_the_schema(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    """Who was granted nothing in a schema is not told whether it is there."""
    dbt_server.rows(f"CREATE USER {schema} WITH PASSWORD 'long enough for us' ROLE developer")
    project = new_project({"username": schema, "password": "long enough for us"})
    project.write("models/one.sql", "{{ config(materialized='table') }} select 1 as id")
    assert f"The schema main.{schema} is not there yet" in project.succeeds("debug")
    project.succeeds("run")
    project.succeeds("run")
    assert dbt_server.rows(f"SELECT id FROM {schema}.one") == [(1,)]
    dbt_server.rows(f"REVOKE ALL ON SCHEMA {schema} FROM {schema}")
    assert f"GRANT ALL ON SCHEMA main.{schema} TO {schema}" in project.fails("run")


def test_a_slip_in_the_workspace(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    """dbt makes schemas, and no workspaces."""
    project = new_project({"workspace": "mian"})
    project.write("models/one.sql", "select 1 as id")
    for command in ("debug", "run"):
        ran = project.fails(command)
        assert "There is no workspace mian" in ran
        assert "CREATE SCHEMA mian" in ran
    assert not [name for (name, *_) in dbt_server.rows("SHOW SCHEMAS") if name.startswith("mian")]


# ---------------------------------------------------------------------- runs


def test_a_failing_model_in_the_middle(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    project = new_project()
    project.write("models/first.sql", "{{ config(materialized='table') }} select 1 as id")
    project.write("models/middle.sql", "{{ config(materialized='table') }} select nothing from {{ ref('first') }}")
    project.write("models/last.sql", "{{ config(materialized='table') }} select * from {{ ref('middle') }}")
    project.write("models/beside.sql", "{{ config(materialized='table') }} select 2 as id")
    ran = project.fails("run")
    assert "PASS=2 WARN=0 ERROR=1 SKIP=1" in ran
    assert "Database Error in model middle (models/middle.sql)" in ran
    assert "nothing" in ran
    assert dbt_server.temporary(schema) == []
    names = {row["table_name"] for row in dbt_server.records(f"SHOW TABLES IN {schema}")}
    assert names == {"first", "beside"}


def test_a_table_stays_when_its_model_fails(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    project = new_project()
    configs = {"kept": "materialized='table'"}
    for strategy in ("append", "merge", "delete+insert", "insert_overwrite"):
        name = f"grown_by_{strategy.replace('+', '_')}"
        configs[name] = f"materialized='incremental', incremental_strategy='{strategy}', unique_key='id'"
    for name, config in configs.items():
        project.write(f"models/{name}.sql", f"{{{{ config({config}) }}}} select 1 as id, 'a' as word")
    project.succeeds("run")
    # Without a type the column would hold nothing, and nobody would ask for its values.
    broken = "select 1 as id, cast(raise_error('as it was meant') as string) as word"
    for name, config in configs.items():
        project.write(f"models/{name}.sql", f"{{{{ config({config}) }}}} {broken}")
    ran = project.fails("run")
    assert ran.output.count("as it was meant") >= len(configs)
    for name in configs:
        assert dbt_server.rows(f"SELECT id, word FROM {schema}.{name}") == [(1, "a")]
    assert dbt_server.temporary(schema) == []


def test_a_stale_stream(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    dbt_server.rows(f"CREATE SCHEMA {schema}")
    dbt_server.rows(f"CREATE TABLE {schema}.raw (id INT) TBLPROPERTIES ('change_tracking'='true')")
    dbt_server.rows(f"CREATE TABLE STREAM {schema}.raw_stream ON TABLE {schema}.raw")
    project = new_project()
    project.write(
        "models/sources.yml",
        {"sources": [{"name": "raw", "schema": schema, "tables": [{"name": "raw"}, {"name": "raw_stream"}]}]},
    )
    project.write(
        "models/taken.sql",
        "{{ config(materialized='incremental') }} select id from "
        "{% if is_incremental() %}{{ source('raw', 'raw_stream') }}{% else %}{{ source('raw', 'raw') }}{% endif %}",
    )
    project.succeeds("run")
    dbt_server.rows(f"DROP TABLE {schema}.raw")
    dbt_server.rows(f"CREATE TABLE {schema}.raw (id INT) TBLPROPERTIES ('change_tracking'='true')")
    dbt_server.rows(f"INSERT INTO {schema}.raw VALUES (1)")
    ran = project.fails("run")
    assert "is stale" in ran
    assert "CREATE OR REPLACE TABLE STREAM" in ran, ran.output
    assert dbt_server.temporary(schema) == []
    assert dbt_server.rows(f"SELECT * FROM {schema}.taken") == []


def test_interrupting_dbt_cancels_the_job_on_the_server(
    new_project: NewProject, dbt_server: DbtServer, schema: str
) -> None:
    """Of a table and of an incremental model, whose view is cleared away; and what would follow does not begin."""
    project = new_project({"query_tag": schema, "threads": 2})
    project.write("models/endless.sql", "{{ config(materialized='table') }} " + LONG)
    project.write(
        "models/grown.sql",
        "{{ config(materialized='incremental', post_hook='create table {{ target.schema }}.after (id int)') }} "
        "{% if is_incremental() %} " + LONG + " {% else %} select 0 as m {% endif %}",
    )
    project.write("models/later.sql", "{{ config(materialized='table') }} select * from {{ ref('grown') }}")
    project.succeeds("run", "--select", "grown")
    dbt_server.rows(f"DROP TABLE {schema}.after")
    dbt = project.begun("run")
    running = f"SHOW JOBS WHERE status = 'RUNNING' AND query_tag = '{schema}'"
    deadline = time.monotonic() + 120

    def begun() -> set[str]:
        texts = [row["job_text"] for row in dbt_server.records(running)]
        return {word for word in ("endless", "insert into") if any(word in text for text in texts)}

    while begun() != {"endless", "insert into"}:
        assert time.monotonic() < deadline, "the jobs never began"
        assert dbt.poll() is None, dbt.communicate()[0]
        time.sleep(0.2)
    dbt.send_signal(signal.SIGINT)
    output, _ = dbt.communicate(timeout=120)
    assert dbt.returncode != 0
    ended = dbt_server.records(f"SHOW JOBS WHERE query_tag = '{schema}' AND status = 'CANCELLED'")
    assert len([row for row in ended if "endless" in row["job_text"] or "insert into" in row["job_text"]]) == 2, output
    assert dbt_server.records(running) == []
    names = {row["table_name"] for row in dbt_server.records(f"SHOW TABLES IN {schema}")}
    assert names == {"grown"}, "neither what follows, nor the view of the new rows"
