"""How models are built: kinds that change, configs of tables, strategies, sessions."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from dbt_server import PASSWORD, DbtServer, Project

NewProject = Callable[..., Project]

pytestmark = pytest.mark.timeout(900)


def config(**values: Any) -> str:
    return "{{ config(" + ", ".join(f"{key}={value!r}" for key, value in values.items()) + ") }}\n"


def kinds(server: DbtServer, schema: str) -> dict[str, str]:
    words = {"is_view": "view", "is_dynamic": "dynamic"}
    return {
        row["table_name"]: next((word for key, word in words.items() if row[key]), "table")
        for row in server.records(f"SHOW TABLES IN {schema}")
    }


def described(server: DbtServer, table: str) -> dict[str, str]:
    return {str(row[0]): str(row[1]) for row in server.rows(f"DESC EXTENDED {table}")}


def sessions(server: DbtServer, query_tag: str) -> set[str]:
    """Those that the jobs with this tag ran in."""
    with server.connected() as lake:
        jobs = [row[0] for row in lake.sql(f"SHOW JOBS WHERE query_tag = '{query_tag}'").rows]
        facts = [{row[1]: row[2] for row in lake.sql(f"DESC JOB '{job}'").rows} for job in jobs]
    return {each["session"] for each in facts}


def test_what_cannot_be_built_takes_nothing_away(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    """A model that becomes something else, and fails: because the lake refuses its query, or while it computes rows."""
    project = new_project()
    project.write("models/base.sql", config(materialized="table") + "select id from range(3)")
    before = {"to_table": "view", "to_grown": "dynamic_table", "to_view": "table", "to_dynamic": "table"}
    after = {"to_table": "table", "to_grown": "incremental", "to_view": "view", "to_dynamic": "dynamic_table"}
    for name, kind in before.items():
        project.write(f"models/{name}.sql", config(materialized=kind) + "select id from {{ ref('base') }}")
    project.succeeds("run")
    there = kinds(dbt_server, schema)
    broken = {
        "to_table": "select cast(raise_error('meant') as int) as id",
        "to_grown": "select cast(raise_error('meant') as int) as id",
        "to_view": "select nothing from {{ ref('base') }}",
        "to_dynamic": "select cast(concat('x', id) as int) as id from {{ ref('base') }}",
    }
    for name, text in broken.items():
        project.write(f"models/{name}.sql", config(materialized=after[name]) + text)
    ran = project.fails("run", "--exclude", "base")
    assert "ERROR=4" in ran
    assert "CAST_INVALID_INPUT" in ran, "the dynamic table fails over its rows"
    assert kinds(dbt_server, schema) == there
    for name in before:
        assert len(dbt_server.rows(f"SELECT * FROM {schema}.{name}")) == 3
    for name, kind in after.items():
        project.write(f"models/{name}.sql", config(materialized=kind) + "select id + 1 as id from {{ ref('base') }}")
    project.succeeds("run", "--exclude", "base")
    words = {"to_table": "table", "to_grown": "table", "to_view": "view", "to_dynamic": "dynamic", "base": "table"}
    assert kinds(dbt_server, schema) == words
    for name in before:
        assert sorted(dbt_server.rows(f"SELECT * FROM {schema}.{name}")) == [(1,), (2,), (3,)]
    assert dbt_server.verified(f"{schema}.to_dynamic") == "EQUAL"


def test_the_configs_of_tables(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    project = new_project()
    configs: dict[str, dict[str, Any]] = {
        "parted": {"materialized": "table", "partition_by": "kind", "properties": {"team": "ann"}},
        "clustered": {"materialized": "incremental", "clustered_by": ["kind", "id"]},
        "tracked": {"materialized": "incremental", "properties": {"change_tracking": "true"}, "partition_by": ["kind"]},
        "no_view": {"materialized": "view", "views_enabled": False},
    }
    for name, given in configs.items():
        project.write(f"models/{name}.sql", config(**given) + "select id, id % 2 as kind from range(4)")
    project.write(
        "models/by_python.py",
        "def model(dbt, session):\n"
        "    dbt.config(materialized='table', partition_by='kind', properties={'change_tracking': 'true'})\n"
        "    return session.sql('select id, id % 2 as kind from range(4)')\n",
    )
    for _ in range(2):
        project.succeeds("run")

    def detail(name: str) -> dict[str, Any]:
        return dbt_server.records(f"DESCRIBE DETAIL {schema}.{name}")[0]

    assert detail("parted")["partitionColumns"] == ["kind"]
    assert detail("clustered")["clusteringColumns"] == ["kind", "id"]
    for name in ("tracked", "by_python"):
        assert detail(name)["partitionColumns"] == ["kind"]
        assert '("change_tracking","true")' in described(dbt_server, f"{schema}.{name}")["properties"]
    assert '("team","ann")' in described(dbt_server, f"{schema}.parted")["properties"]
    assert kinds(dbt_server, schema)["no_view"] == "table"
    assert len(dbt_server.rows(f"SELECT * FROM {schema}.tracked")) == 8
    assert dbt_server.temporary(schema) == []


def test_strategies_that_replace(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    """What goes and what comes are the same rows, also of a model that gives others each time it is asked."""
    project = new_project()
    project.write(
        "models/parted.sql",
        config(materialized="incremental", incremental_strategy="insert_overwrite", partition_by=["kind"])
        + "select id, case when id < 2 then 'a' when id < 4 then 'b' end as kind, '{{ invocation_id }}' as run "
        "from range(6) {% if is_incremental() %} where id >= 3 {% endif %}",
    )
    project.write(
        "models/whole.sql",
        config(materialized="incremental", incremental_strategy="insert_overwrite")
        + "select id from range({{ 2 if is_incremental() else 5 }})",
    )
    project.write(
        "models/dice.sql",
        config(materialized="incremental", incremental_strategy="delete+insert", unique_key=["face", "side"])
        + "select cast(rand() * 6 as int) as face, 1 as side, '{{ invocation_id }}' as run from range(8)",
    )
    project.succeeds("run")
    project.succeeds("run")
    ran = [row[0] for row in dbt_server.rows(f"SELECT run FROM {schema}.parted ORDER BY id")]
    assert len(ran) == 5, "id 2 was in a partition that was replaced"
    assert len(set(ran)) == 2
    assert dbt_server.rows(f"SELECT kind, collect_set(id) FROM {schema}.parted GROUP BY kind ORDER BY kind")[1:] == [
        ("a", [0, 1]), ("b", [3]),
    ]  # fmt: skip
    assert len(dbt_server.rows(f"SELECT * FROM {schema}.whole")) == 2
    newest = dbt_server.rows(f"SELECT count(*) FROM {schema}.dice GROUP BY run HAVING count(*) = 8")
    assert newest, "all of the newest rows came"
    mixed = f"SELECT face FROM {schema}.dice GROUP BY face HAVING count(DISTINCT run) > 1"
    assert dbt_server.rows(mixed) == [], "and what went had their keys"
    project.write(
        "models/whole.sql",
        config(materialized="incremental", incremental_strategy="insert_overwrite", incremental_predicates=["id > 0"])
        + "select 1 as id",
    )
    assert "incremental_predicates cannot be used" in project.fails("run", "--select", "whole")


def test_a_rewritten_table_keeps_what_it_had(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    project = new_project()
    given = {"materialized": "incremental", "on_schema_change": "sync_all_columns", "properties": {"team": "ann"}}
    project.write("models/grown.sql", config(**given) + "select 1 as id, 2 as old, 3 as kept")
    project.succeeds("run")
    dbt_server.rows(f"ALTER TABLE {schema}.grown SET PROPERTIES ('change_tracking'='true', 'by_hand'='x \"y\", (z)')")
    dbt_server.rows(f"ALTER TABLE {schema}.grown ADD CONSTRAINT positive CHECK (kept > 0)")
    dbt_server.rows(f"ALTER TABLE {schema}.grown ADD CONSTRAINT on_old CHECK (old > 0)")
    dbt_server.rows(f"COMMENT ON TABLE {schema}.grown IS 'as it was'")
    project.write("models/grown.sql", config(**given) + "select 2 as id, cast(3 as bigint) as kept, 4 as new")
    project.succeeds("run")
    assert sorted(dbt_server.rows(f"SELECT id, kept, new FROM {schema}.grown")) == [(1, 3, None), (2, 3, 4)]
    found = described(dbt_server, f"{schema}.grown")
    for pair in ('("change_tracking","true")', '("by_hand","x "y", (z)")', '("team","ann")', "constraints.positive"):
        assert pair in found["properties"], found["properties"]
    assert "on_old" not in found["properties"]
    assert found["comment"] == "as it was"


def test_another_workspace(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    project = new_project({"workspace": "dbt_sales"})
    dbt_server.rows(f"CREATE SCHEMA dbt_sales.{schema}")
    project.write("models/first.sql", config(materialized="view") + "select id from range(3)")
    project.write("models/grown.sql", config(materialized="incremental") + "select id from {{ ref('first') }}")
    project.write(
        "models/counted.sql", config(materialized="dynamic_table") + "select count(*) n from {{ ref('grown') }}"
    )
    try:
        for count in (3, 6):
            project.succeeds("run")
            assert dbt_server.rows(f"SELECT n FROM dbt_sales.{schema}.counted") == [(count,)]
        assert [row["table_name"] for row in dbt_server.records("SHOW TABLES") if row["table_name"] == "grown"] == []
    finally:
        dbt_server.rows(f"DROP SCHEMA dbt_sales.{schema} CASCADE")


def test_nodes_find_no_state_of_others(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    """One thread, and so one session after the other; those that were left clean are used again."""
    project = new_project({"threads": 1, "query_tag": schema})
    dbt_server.rows(f"CREATE SCHEMA {schema}")
    dbt_server.rows(f"CREATE TABLE {schema}.told (zone STRING, place STRING)")
    note = f"insert into {schema}.told select current_timezone(), current_schema()"
    project.write(
        "models/a_first.sql",
        "{% call set_sql_header(config) %} set time zone 'Asia/Kolkata'; {% endcall %}"
        + config(materialized="table", post_hook=["use public", "create temporary view seen as select 1 as id"])
        + "select current_timezone() as zone",
    )
    project.write(
        "models/b_second.sql",
        config(materialized="table", post_hook=note) + "select current_timezone() as zone from {{ ref('a_first') }}",
    )
    project.write("models/c_third.sql", config(materialized="table") + "select * from {{ ref('b_second') }}")
    project.write("models/d_seen.sql", config(materialized="view") + "select * from seen -- {{ ref('c_third') }}")
    ran = project.fails("run")
    assert "PASS=3 WARN=0 ERROR=1" in ran
    assert dbt_server.rows(f"SELECT zone FROM {schema}.a_first") == [("Asia/Kolkata",)]
    [(zone, place)] = dbt_server.rows(f"SELECT * FROM {schema}.told")
    assert zone != "Asia/Kolkata"
    assert place == schema
    assert 2 <= len(sessions(dbt_server, schema)) <= 4, "what came before, what had something left in it, the rest"


def test_batches_side_by_side(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    """Five threads write one table; and no thread has more than a session at a time."""
    project = new_project({"threads": 5, "query_tag": schema})
    project.write(
        "models/events.sql",
        config(materialized="table", event_time="at")
        + "select id, timestamp'2024-01-01' + make_interval(0, 0, 0, cast(id % 5 as int)) as at from range(50)",
    )
    batches = {"incremental_strategy": "microbatch", "event_time": "at", "begin": "2024-01-01", "batch_size": "day"}
    project.write(
        "models/days.sql",
        config(materialized="incremental", concurrent_batches=True, **batches)
        + "select id, at from {{ ref('events') }}",
    )
    window = ["--event-time-start", "2024-01-01", "--event-time-end", "2024-01-06"]
    project.succeeds("run", *window)
    assert len(sessions(dbt_server, schema)) <= 6, "one for each thread, and one for dbt itself"
    project.succeeds("run", "--select", "days", *window)
    assert dbt_server.rows(f"SELECT count(*), count(DISTINCT id) FROM {schema}.days") == [(50, 50)]
    jobs = dbt_server.records(f"SHOW JOBS WHERE query_tag = '{schema}' AND job_text LIKE '%merge into%' LIMIT 500")
    assert {row["status"] for row in jobs} <= {"SUCCEED", "FAILED"}
    assert len([row for row in jobs if row["status"] == "SUCCEED"]) >= 9, "four of the first run, five of the second"
    assert dbt_server.temporary(schema) == []


def test_a_developer_may_do_all_this(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    """Somebody who is no administrator, with everything granted on one schema."""
    dbt_server.rows(f"CREATE USER IF NOT EXISTS dbt_dev WITH PASSWORD '{PASSWORD}' ROLE developer")
    dbt_server.rows(f"CREATE SCHEMA {schema}")
    dbt_server.rows(f"GRANT ALL ON SCHEMA {schema} TO dbt_dev")
    project = new_project({"username": "dbt_dev"})
    dbt_server.rows(f"CREATE TABLE {schema}.raw (id INT) TBLPROPERTIES ('change_tracking'='true')")
    dbt_server.rows(f"INSERT INTO {schema}.raw VALUES (1)")
    dbt_server.rows(f"CREATE TABLE STREAM {schema}.raw_stream ON TABLE {schema}.raw")
    tables = [{"name": "raw"}, {"name": "raw_stream"}]
    project.write("models/sources.yml", {"sources": [{"name": "raw", "schema": schema, "tables": tables}]})
    project.write("seeds/words.csv", "id,word\n1,a\n")
    project.write(
        "models/taken.sql",
        config(materialized="incremental") + "select id from {% if is_incremental() %} "
        "{{ source('raw', 'raw_stream') }} {% else %} {{ source('raw', 'raw') }} {% endif %}",
    )
    project.write(
        "models/parted.sql",
        config(materialized="incremental", incremental_strategy="insert_overwrite", partition_by="id")
        + "select id, word from {{ ref('words') }}",
    )
    project.write(
        "models/counted.sql", config(materialized="dynamic_table") + "select count(*) n from {{ ref('taken') }}"
    )
    project.write(
        "models/models.yml", {"models": [{"name": "taken", "columns": [{"name": "id", "tests": ["unique"]}]}]}
    )
    project.succeeds("build", "--store-failures")
    dbt_server.rows(f"INSERT INTO {schema}.raw VALUES (2)")
    project.succeeds("build", "--store-failures")
    assert sorted(dbt_server.rows(f"SELECT id FROM {schema}.taken")) == [(1,), (2,)]
    assert dbt_server.rows(f"SELECT n FROM {schema}.counted") == [(2,)]
    project.succeeds("docs", "generate")


def test_names_that_differ_in_case_are_the_same(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    project = new_project()
    for name, change in (("synced", "sync_all_columns"), ("grown", "append_new_columns")):
        project.write(
            f"models/{name}.sql",
            config(materialized="incremental", on_schema_change=change)
            + "select {% if is_incremental() %} 2 as ID, 'b' as Word {% else %} 1 as id, 'a' as word {% endif %}",
        )
    project.succeeds("run")
    project.succeeds("run")
    for name in ("synced", "grown"):
        assert sorted(dbt_server.rows(f"SELECT id, word FROM {schema}.{name}")) == [(1, "a"), (2, "b")]


def test_appending_goes_by_names(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    """Also the fields of a struct, which an INSERT takes as they come; what has none is inserted: that is cheaper."""
    project = new_project()
    project.write(
        "models/plain.sql",
        config(materialized="incremental")
        + "select {% if is_incremental() %} 4 as b, 3 as a {% else %} 1 as a, 2 as b, 'x' as kept {% endif %}",
    )
    project.write(
        "models/nested.sql",
        config(materialized="incremental") + "select array({% if is_incremental() %} named_struct('b', 4, 'a', 3)"
        " {% else %} named_struct('a', 1, 'b', 2) {% endif %}) as s",
    )
    project.succeeds("run")
    project.succeeds("run")
    assert sorted(dbt_server.rows(f"SELECT a, b, kept FROM {schema}.plain")) == [(1, 2, "x"), (3, 4, None)]
    assert sorted(dbt_server.rows(f"SELECT s[0].a, s[0].b FROM {schema}.nested")) == [(1, 2), (3, 4)]
    assert dbt_server.records(f"DESCRIBE HISTORY {schema}.plain")[0]["operation"] == "WRITE"


def test_comments_that_are_there_are_not_written_again(
    new_project: NewProject, dbt_server: DbtServer, schema: str
) -> None:
    project = new_project()
    described_as = {"name": "grown", "description": "a table", "columns": [{"name": "id", "description": "a number"}]}
    settings = {"persist_docs": {"relation": True, "columns": True}}
    project.write("models/models.yml", {"models": [described_as | {"config": settings}]})
    project.write("models/grown.sql", config(materialized="incremental") + "select 1 as id")
    for _ in range(3):
        project.succeeds("run")
    history = dbt_server.records(f"DESCRIBE HISTORY {schema}.grown")
    assert len(history) == 4, "the load with its comment, the column's, and two runs"
    assert described(dbt_server, f"{schema}.grown")["comment"] == "a table"
    assert dbt_server.rows(f"DESC TABLE {schema}.grown") == [("id", "int", "a number")]


def test_partitions_that_the_table_does_not_have(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    project = new_project()
    query = "select {% if is_incremental() %} 2 {% else %} 1 {% endif %} as day, 'x' as word"
    project.write("models/days.sql", config(materialized="incremental") + query)
    project.succeeds("run")
    project.write(
        "models/days.sql",
        config(materialized="incremental", incremental_strategy="insert_overwrite", partition_by=["day"]) + query,
    )
    ran = project.fails("run")
    assert "by nothing: insert_overwrite would replace rows of other partitions" in ran
    assert "--full-refresh" in ran
    assert dbt_server.rows(f"SELECT day FROM {schema}.days") == [(1,)], "nothing was replaced"
    project.succeeds("run", "--full-refresh")
    project.succeeds("run")
    assert sorted(dbt_server.rows(f"SELECT day FROM {schema}.days")) == [(1,), (2,)]
    jobs = dbt_server.records(f"SHOW JOBS WHERE job_text LIKE '%insert overwrite%{schema}%' LIMIT 5")
    texts = [row["job_text"] for row in jobs if not row["job_text"].startswith("SHOW")]
    assert texts
    assert all("model.shop.days" in text for text in texts), "each statement tells its node"


def test_clones_take_nothing_away(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    """What has the name of a clone: a stream, a function, a view, an older clone."""
    project = new_project()
    names = ["of_stream", "of_function", "of_view", "of_table"]
    for name in names:
        project.write(f"models/{name}.sql", config(materialized="table") + "select 1 as id")
    there = f"{schema}_there"
    dbt_server.rows(f"CREATE SCHEMA {schema}")
    dbt_server.rows(f"CREATE TABLE {schema}.t (id INT) TBLPROPERTIES ('change_tracking'='true')")
    dbt_server.rows(f"CREATE TABLE STREAM {schema}.of_stream ON TABLE {schema}.t")
    dbt_server.rows(f"CREATE FUNCTION {schema}.of_function() RETURNS INT RETURN 1")
    dbt_server.rows(f"CREATE VIEW {schema}.of_view AS SELECT 2 AS id")
    dbt_server.rows(f"CREATE TABLE {schema}.of_table AS SELECT 2 AS id")
    profiles = yaml.safe_load((project.folder / "profiles.yml").read_text("utf-8"))
    profiles["shop"]["outputs"]["there"] = dbt_server.target(there)
    project.write("profiles.yml", profiles)
    try:
        project.succeeds("run", "--target", "there")
        shutil.copytree(project.folder / "target", project.folder / "state")
        project.succeeds("clone", "--state", "state", "--exclude", "of_stream")
        assert dbt_server.rows(f"SELECT id FROM {schema}.of_function") == [(1,)]
        assert dbt_server.rows(f"SELECT id FROM {schema}.of_view") == [(2,)], "what is there stays there"
        ran = project.fails("clone", "--state", "state", "--full-refresh")
        assert "is a table stream" in ran
        for name in names[1:]:
            assert dbt_server.rows(f"SELECT id FROM {schema}.{name}") == [(1,)]
        assert dbt_server.records(f"SHOW TABLE STREAMS IN {schema}")[0]["name"] == "of_stream"
        assert dbt_server.rows(f"SELECT {schema}.of_function()") == [(1,)]
        assert dbt_server.temporary(schema) == []
    finally:
        dbt_server.rows(f"DROP SCHEMA IF EXISTS {there} CASCADE")


def test_contracts_hold_for_every_run(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    project = new_project()
    columns = [{"name": "id", "data_type": "int"}, {"name": "name", "data_type": "string"}]
    settings = {"contract": {"enforced": True}, "on_schema_change": "append_new_columns"}
    project.write("models/models.yml", {"models": [{"name": "people", "config": settings, "columns": columns}]})
    project.write("models/people.sql", config(materialized="incremental") + "select 1 as id, 'ann' as name")
    project.succeeds("run")
    project.write("models/people.sql", config(materialized="incremental") + "select 2 as id")
    assert "enforced contract that failed" in project.fails("run")
    assert dbt_server.rows(f"SELECT * FROM {schema}.people") == [(1, "ann")]


def test_results_that_are_too_long_are_told_as_dbt_does(new_project: NewProject) -> None:
    project = new_project()
    project.write(
        "macros/many.sql", "{% macro many() %}{% do run_query('select id from range(1000002)') %}{% endmacro %}"
    )
    ran = project.fails("run-operation", "many")
    assert "Database Error" in ran or "USER_ERROR" in ran
    assert "result_rows_max" in ran
