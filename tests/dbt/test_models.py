"""How models are built: kinds that change, configs of tables, snapshots, clones, sessions."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from dbt_server import PASSWORD, DbtServer, Project, config, described, sessions

NewProject = Callable[..., Project]

pytestmark = pytest.mark.timeout(900)


def kinds(server: DbtServer, schema: str) -> dict[str, str]:
    words = {"is_view": "view", "is_dynamic": "dynamic"}
    return {
        row["table_name"]: next((word for key, word in words.items() if row[key]), "table")
        for row in server.records(f"SHOW TABLES IN {schema}")
    }


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


def test_grants_on_single_tables_are_enough(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    """Of a source's schema, a developer may read one table and one stream only."""
    dbt_server.rows(f"CREATE USER IF NOT EXISTS dbt_dev WITH PASSWORD '{PASSWORD}' ROLE developer")
    dbt_server.rows(f"CREATE SCHEMA {schema}; CREATE SCHEMA {schema}_raw")
    dbt_server.rows(f"CREATE TABLE {schema}_raw.trips AS SELECT 1 AS id")
    dbt_server.rows(f"CREATE TABLE STREAM {schema}_raw.fresh ON TABLE {schema}_raw.trips")
    dbt_server.rows(f"GRANT ALL ON SCHEMA {schema} TO dbt_dev; GRANT SELECT ON TABLE {schema}_raw.trips TO dbt_dev")
    dbt_server.rows(f"GRANT ALL ON TABLE {schema}_raw.fresh TO dbt_dev")
    project = new_project({"username": "dbt_dev"})
    tables = [{"name": "trips"}, {"name": "fresh"}]
    project.write("models/sources.yml", {"sources": [{"name": "raw", "schema": f"{schema}_raw", "tables": tables}]})
    project.write(
        "models/taken.sql",
        config(materialized="incremental") + "select id from {% if is_incremental() %} "
        "{{ source('raw', 'fresh') }} {% else %} {{ source('raw', 'trips') }} {% endif %}",
    )
    project.succeeds("build")
    dbt_server.rows(f"INSERT INTO {schema}_raw.trips VALUES (2)")
    project.succeeds("build")
    assert sorted(dbt_server.rows(f"SELECT id FROM {schema}.taken")) == [(1,), (2,)]


def test_rows_that_are_gone_from_a_snapshot(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    project = new_project()
    dbt_server.rows(f"CREATE SCHEMA {schema}")
    dbt_server.rows(f"CREATE TABLE {schema}.people AS SELECT 1 AS id, 'ann' AS name UNION ALL SELECT 2, 'bob'")
    kinds_of = ("ignore", "invalidate", "new_record")
    for kind in kinds_of:
        given = config(unique_key="id", strategy="check", check_cols=["name"], hard_deletes=kind)
        query = f"{{% snapshot s_{kind} %}}{given} select * from {schema}.people {{% endsnapshot %}}"
        project.write(f"snapshots/s_{kind}.sql", query)
    project.succeeds("snapshot")
    dbt_server.rows(f"DELETE FROM {schema}.people WHERE id = 2")
    dbt_server.rows(f"UPDATE {schema}.people SET name = 'anna' WHERE id = 1")
    for _ in range(2):
        project.succeeds("snapshot")

    def rows(kind: str, *more: str) -> list[tuple[Any, ...]]:
        columns = ", ".join(["id", "name", "dbt_valid_to IS NULL", *more])
        return sorted(dbt_server.rows(f"SELECT {columns} FROM {schema}.s_{kind}"))

    assert rows("ignore") == [(1, "ann", False), (1, "anna", True), (2, "bob", True)]
    assert rows("invalidate") == [(1, "ann", False), (1, "anna", True), (2, "bob", False)]
    assert rows("new_record", "dbt_is_deleted") == [
        (1, "ann", False, "False"), (1, "anna", True, "False"), (2, "bob", False, "False"), (2, "bob", True, "True"),
    ]  # fmt: skip


def test_a_snapshot_takes_fields_by_their_names(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    """Of the query, whose structs come in another order than they were stored in."""
    project = new_project()
    dbt_server.rows(f"CREATE SCHEMA {schema}")
    first = "SELECT id, named_struct('a', 'A', 'b', 'B') AS s FROM range(1, 4)"
    dbt_server.rows(f"CREATE TABLE {schema}.t AS {first}")
    given = config(unique_key="id", strategy="check", check_cols="all", hard_deletes="new_record")
    project.write("snapshots/y.sql", f"{{% snapshot y %}}{given} select * from {schema}.t {{% endsnapshot %}}")
    project.succeeds("snapshot")
    dbt_server.rows(
        f"CREATE OR REPLACE TABLE {schema}.t AS SELECT 1L AS id, named_struct('b', 'B', 'a', 'A') AS s "
        "UNION ALL SELECT 2L, named_struct('b', 'A', 'a', 'B')"
    )
    for _ in range(2):
        project.succeeds("snapshot")
    found = dbt_server.rows(f"SELECT id, s.a, s.b, dbt_is_deleted, dbt_valid_to IS NULL FROM {schema}.y")
    assert sorted(found) == [
        (1, "A", "B", "False", True),
        (2, "A", "B", "False", False), (2, "B", "A", "False", True),
        (3, "A", "B", "False", False), (3, "A", "B", "True", True),
    ]  # fmt: skip
    dbt_server.rows(f"CREATE OR REPLACE TABLE {schema}.t AS SELECT 1L AS id, named_struct('c', 'C', 'a', 'A') AS s")
    assert "fields that the table's column does not have: c" in project.fails("snapshot")


def test_a_row_that_comes_back_to_a_snapshot(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    """As it was, with the time of its last change, too."""
    project = new_project()
    dbt_server.rows(f"CREATE SCHEMA {schema}")
    people = "SELECT 1 AS id, timestamp'2024-01-01 00:00:00' AS upd"
    dbt_server.rows(f"CREATE TABLE {schema}.people AS {people} UNION ALL {people.replace('1 AS id', '2 AS id')}")
    for kind in ("invalidate", "new_record"):
        given = config(unique_key="id", strategy="timestamp", updated_at="upd", hard_deletes=kind)
        query = f"{{% snapshot b_{kind} %}}{given} select * from {schema}.people {{% endsnapshot %}}"
        project.write(f"snapshots/b_{kind}.sql", query)
    project.succeeds("snapshot")
    dbt_server.rows(f"DELETE FROM {schema}.people WHERE id = 2")
    project.succeeds("snapshot")
    dbt_server.rows(f"INSERT INTO {schema}.people {people.replace('1 AS id', '2 AS id')}")
    for _ in range(2):
        project.succeeds("snapshot")
    now = "SELECT id FROM {}.b_{} WHERE dbt_valid_to IS NULL"
    assert sorted(dbt_server.rows(now.format(schema, "invalidate"))) == [(1,), (2,)]
    present = now.format(schema, "new_record") + " AND dbt_is_deleted = 'False'"
    assert sorted(dbt_server.rows(present)) == [(1,), (2,)]
    assert dbt_server.rows(f"SELECT count(*) FROM {schema}.b_invalidate") == [(3,)]


def test_columns_of_a_snapshot_in_another_case(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    project = new_project()
    dbt_server.rows(f"CREATE SCHEMA {schema}")
    dbt_server.rows(f"CREATE TABLE {schema}.people AS SELECT 1 AS id, 'ann' AS name UNION ALL SELECT 2, 'bob'")
    for name, columns in (("listed", ["NAME"]), ("whole", "all")):
        given = config(unique_key="id", strategy="check", check_cols=columns, hard_deletes="new_record")
        query = f"{{% snapshot {name} %}}{given} select * from {schema}.people {{% endsnapshot %}}"
        project.write(f"snapshots/{name}.sql", query)
    for _ in range(2):
        project.succeeds("snapshot")
    dbt_server.rows(f"CREATE OR REPLACE TABLE {schema}.people AS SELECT 1 AS ID, 'ann' AS NAME")
    for _ in range(2):
        project.succeeds("snapshot")
    for name in ("listed", "whole"):
        found = dbt_server.rows(f"SELECT id, name, dbt_is_deleted, dbt_valid_to IS NULL FROM {schema}.{name}")
        assert sorted(found) == [
            (1, "ann", "False", True), (2, "bob", "False", False), (2, "bob", "True", True),
        ]  # fmt: skip


def test_unit_tests_of_nested_values(new_project: NewProject, schema: str) -> None:
    project = new_project()
    project.write("models/given.sql", "select array(1, 2) as numbers, named_struct('a', 'x') as s, map('k', 1) as m")
    project.write("models/taken.sql", "select size(numbers) as n, s.a as a, m['k'] as k from {{ ref('given') }}")
    rows = [
        {"numbers": [1, 2, 3], "s": {"a": "O'Brien"}, "m": {"k": 7}},
        {"numbers": "array(1)", "s": "named_struct('a', 'y')", "m": "map('k', 8)"},
    ]
    expected = [{"n": 3, "a": "O'Brien", "k": 7}, {"n": 1, "a": "y", "k": 8}]
    test = {"name": "nested", "model": "taken", "given": [{"input": "ref('given')", "rows": rows}]}
    project.write("models/tests.yml", {"unit_tests": [test | {"expect": {"rows": expected}}]})
    project.succeeds("build")


def test_models_whose_names_differ_in_case_only(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    project = new_project()
    project.write("models/Orders.sql", config(materialized="table") + "select 1 as id")
    project.write("models/more/orders.sql", config(materialized="view") + "select 'other' as id")
    project.write("models/more/sales.sql", config(materialized="ephemeral", alias="ORDERS") + "select 1 as id")
    ran = project.fails("run")
    assert "ERROR=2" in ran
    assert "names that differ in case only are the same here" in ran
    assert dbt_server.records(f"SHOW TABLES IN {schema}") == []


def test_a_model_with_the_name_of_what_is_built_on_the_way(
    new_project: NewProject, dbt_server: DbtServer, schema: str
) -> None:
    project = new_project()
    project.write("models/trips.sql", config(materialized="table") + "select 1 as id")
    for name in ("trips__dbt_new", "trips__dbt_tmp_1"):
        project.write(f"models/{name}.sql", config(materialized="table") + "select 1 as id")
    ran = project.fails("run")
    assert "ERROR=3" in ran
    assert "may have the name of the other. Give the longer one another name or alias." in ran
    assert dbt_server.records(f"SHOW TABLES IN {schema}") == []


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
        assert "ERROR" not in project.succeeds("docs", "generate", "--no-compile")
        assert dict(dbt_server.rows(f"DESC EXTENDED {schema}.of_table"))["type"] == "TABLE"
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
