"""Incremental models: strategies, columns that come and go, fields, keys and names."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from dbt_server import DbtServer, Project, config, described, sessions

NewProject = Callable[..., Project]

pytestmark = pytest.mark.timeout(900)


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
    for pair in (
        '("change_tracking","true")', r'("by_hand","x \"y\", (z)")', '("team","ann")', "constraints.positive",
    ):  # fmt: skip
        assert pair in found["properties"], found["properties"]
    assert "on_old" not in found["properties"]
    assert found["comment"] == "as it was"
    history = dbt_server.records(f"DESC HISTORY {schema}.grown LIMIT 2")
    assert [row["operation"].split()[0] for row in history] == ["WRITE", "CREATE"], "all changes of columns in one go"


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


def test_fields_go_by_their_names(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    """Columns and the fields of structs, in every strategy: an INSERT and a cast take them as they come."""
    project = new_project()
    project.write(
        "models/plain.sql",
        config(materialized="incremental", on_schema_change="append_new_columns")
        + "select {% if is_incremental() %} 4 as b, 5 as new, 3 as a, map('k', 2) as m "
        "{% else %} 1 as a, 2 as b, 'x' as kept, map('k', 1) as m {% endif %}",
    )
    rows = (
        "select {% if is_incremental() %} 2 as id, 'x' as part, array(named_struct('b', 4, 'a', 3)) as s,"
        " map('k', named_struct('b', 4, 'a', 3)) as m"
        " {% else %} 1 as id, 'x' as part, array(named_struct('a', 1, 'b', 2)) as s,"
        " map('k', named_struct('a', 1, 'b', 2)) as m {% endif %}"
    )
    configs: dict[str, dict[str, Any]] = {
        "appended": {},
        "synced": {"on_schema_change": "sync_all_columns"},
        "merged": {"unique_key": "id"},
        "replaced": {"incremental_strategy": "delete+insert", "unique_key": "id"},
        "overwritten": {"incremental_strategy": "insert_overwrite", "partition_by": ["part"]},
    }
    for name, given in configs.items():
        project.write(f"models/{name}.sql", config(materialized="incremental", **given) + rows)
    # The old row has another order, and a field that is not there any more.
    project.write(
        "models/reshaped.sql",
        config(materialized="incremental", on_schema_change="sync_all_columns")
        + "select {% if is_incremental() %} named_struct('c', 5, 'b', 4L, 'a', 3) as s"
        " {% else %} named_struct('a', 1, 'gone', 0, 'b', 2) as s {% endif %}",
    )
    project.succeeds("run")
    ran = project.succeeds("run")
    assert sorted(dbt_server.rows(f"SELECT a, b, kept, new, m['k'] FROM {schema}.plain")) == [
        (1, 2, "x", None, 1), (3, 4, None, 5, 2),
    ]  # fmt: skip
    assert "OK 1 in" in ran, "the INSERT tells its rows"
    for name in configs:
        found = dbt_server.rows(f"SELECT s[0].a, s[0].b, m['k'].a, m['k'].b FROM {schema}.{name}")
        assert sorted(found) == [(1, 2, 1, 2), (3, 4, 3, 4)][name == "overwritten" :], name
    assert sorted(dbt_server.rows(f"SELECT s.a, s.b, s.c FROM {schema}.reshaped")) == [(1, 2, None), (3, 4, 5)]
    for name in ("plain", "appended"):
        assert dbt_server.records(f"DESCRIBE HISTORY {schema}.{name}")[0]["operation"] == "WRITE"
    operations = {row["operation"] for row in dbt_server.records(f"DESCRIBE HISTORY {schema}.synced")}
    assert operations == {"CREATE OR REPLACE TABLE AS SELECT", "WRITE"}, "another order is no other type"
    project.write(
        "models/appended.sql", config(materialized="incremental") + rows.replace("'b', 4, 'a', 3", "'b', 4, 'z', 3")
    )
    assert "fields that the table's column does not have: z" in project.fails("run", "--select", "appended")
    fewer = rows.replace("'b', 4, 'a', 3", "'b', 5").replace("2 as id", "3 as id")
    for name in ("appended", "merged", "replaced"):
        project.write(f"models/{name}.sql", config(materialized="incremental", **configs[name]) + fewer)
    project.succeeds("run", "--select", "appended", "merged", "replaced")
    for name in ("appended", "merged", "replaced"):
        found = dbt_server.rows(f"SELECT s[0].a, s[0].b, m['k'].a, m['k'].b FROM {schema}.{name} WHERE id = 3")
        assert found == [(None, 5, None, 5)], name


def test_odd_names(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    """Fields with names that need quotes, names as long as they may be, and a key that is an expression."""
    project = new_project()
    project.write(
        "models/quoted.sql",
        config(materialized="incremental", incremental_strategy="delete+insert", unique_key="id")
        + "select 1 as id, named_struct('a-b', {{ 2 if is_incremental() else 1 }}) as s",
    )
    long = "m" * 200
    project.write(f"models/{long}.sql", config(materialized="incremental") + "select 1 as id")
    project.write(
        "models/days.sql",
        config(materialized="incremental", incremental_strategy="delete+insert", unique_key="date_trunc('day', at)")
        + "select timestamp'2024-01-01 {{ '09' if is_incremental() else '08' }}:00:00' as at",
    )
    for _ in range(2):
        project.succeeds("run")
    assert dbt_server.rows(f"SELECT s.`a-b` FROM {schema}.quoted") == [(2,)]
    assert dbt_server.rows(f"SELECT count(*) FROM {schema}.{long}") == [(2,)]
    assert dbt_server.rows(f"SELECT hour(at) FROM {schema}.days") == [(9,)]
    project.write(
        "models/days.sql",
        config(materialized="incremental", unique_key="date(at)") + "select timestamp'2024-01-01' as at",
    )
    assert "merge needs columns" in project.fails("run", "--select", "days")


def test_keys_without_a_value_and_columns_that_stay(
    new_project: NewProject, dbt_server: DbtServer, schema: str
) -> None:
    """With dbt's flag, NULL is a key as others are. And where no column is to be updated, what is there stays."""
    rows = "select cast(null as int) as id, {{ 2 if is_incremental() else 1 }} as n"
    excluded = {"unique_key": "id", "merge_exclude_columns": ["id", "n"]}
    for flag, found in ((True, [(None, 2)]), (False, [(None, 1), (None, 2)])):
        project = new_project(flags={"enable_truthy_nulls_equals_macro": flag})
        project.write("models/keyed.sql", config(materialized="incremental", unique_key="id") + rows)
        project.write("models/kept.sql", config(materialized="incremental", **excluded) + rows.replace("null", "7"))
        project.succeeds("run", "--full-refresh")
        project.succeeds("run")
        assert sorted(dbt_server.rows(f"SELECT id, n FROM {schema}.keyed"), key=str) == found
        assert dbt_server.rows(f"SELECT id, n FROM {schema}.kept") == [(7, 1)]
        shutil.rmtree(project.folder)


def test_new_columns_in_every_strategy(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    """dbt's own suite asks merge only."""
    project = new_project()
    strategies: dict[str, dict[str, Any]] = {
        "append": {},
        "delete_insert": {"incremental_strategy": "delete+insert", "unique_key": "id"},
        "insert_overwrite": {"incremental_strategy": "insert_overwrite", "partition_by": ["id"]},
        "microbatch": {
            "incremental_strategy": "microbatch", "event_time": "at", "begin": "2024-01-01", "batch_size": "year",
        },
    }  # fmt: skip
    names = [
        f"{name}_{change}" for name in strategies for change in ("append_new_columns", "sync_all_columns", "ignore")
    ]
    for name in names:
        strategy, change = next((key, name.removeprefix(f"{key}_")) for key in strategies if name.startswith(key))
        given = config(materialized="incremental", on_schema_change=change, **strategies[strategy])
        first = "select 1 as id, timestamp'2024-02-01' as at, 'old' as gone, 7 as kept"
        then = "select 2L as id, timestamp'2025-02-01' as at, 7 as kept, 'new' as came"
        project.write(
            f"models/{name}.sql", given + f"{{% if is_incremental() %}} {then} {{% else %}} {first} {{% endif %}}"
        )
    project.write(
        "models/refused.sql",
        config(materialized="incremental", on_schema_change="fail")
        + "select 1 as id {% if is_incremental() %}, 2 as more {% endif %}",
    )
    window = ["--event-time-start", "2025-01-01", "--event-time-end", "2026-01-01"]
    project.succeeds("run", "--event-time-start", "2024-01-01", "--event-time-end", "2025-01-01")
    ran = project.fails("run", *window)
    assert "ERROR=1" in ran
    assert "out of sync" in ran
    expected = {
        "append_new_columns": (["id", "at", "gone", "kept", "came"], [("old", 7, None), (None, 7, "new")]),
        "sync_all_columns": (["id", "at", "kept", "came"], [(7, None), (7, "new")]),
        "ignore": (["id", "at", "gone", "kept"], [("old", 7), (None, 7)]),
    }
    for name in names:
        columns, rows = next(found for change, found in expected.items() if name.endswith(change))
        table = f"{schema}.{name}"
        assert [row[0] for row in dbt_server.rows(f"DESC TABLE {table}")] == columns, name
        assert dbt_server.rows(f"SELECT {', '.join(columns[2:])} FROM {table} ORDER BY id") == rows, name


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


def test_keys_and_columns_are_named_in_any_way(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    """With quotes or without, in any case; and what is no column of the table is told as such."""
    project = new_project()
    rows = (
        "select 1 as `order-id`, {{ 2 if is_incremental() else 1 }} as `N-m`, {{ 4 if is_incremental() else 3 }} as b"
    )
    configs: dict[str, dict[str, Any]] = {
        "merged": {"unique_key": "ORDER-id"},
        "quoted": {"unique_key": ["`order-id`"], "merge_update_columns": ["n-M"]},
        "kept": {"unique_key": "order-id", "merge_exclude_columns": ["order-id", "`n-m`"]},
        "replaced": {"unique_key": "order-id", "incremental_strategy": "delete+insert"},
    }
    for name, given in configs.items():
        project.write(f"models/{name}.sql", config(materialized="incremental", **given) + rows)
    project.succeeds("run")
    project.succeeds("run")
    expected = {"merged": (1, 2, 4), "quoted": (1, 2, 3), "kept": (1, 1, 4), "replaced": (1, 2, 4)}
    for name, row in expected.items():
        assert dbt_server.rows(f"SELECT * FROM {schema}.{name}") == [row], name
    slips: dict[str, dict[str, Any]] = {
        "merged": {"unique_key": "order_id"},
        "quoted": {"unique_key": "order-id", "merge_update_columns": "nm"},
        "kept": {"unique_key": "order-id", "merge_exclude_columns": "n-m, b"},
    }
    for name, given in slips.items():
        project.write(f"models/{name}.sql", config(materialized="incremental", **given) + rows)
    ran = project.fails("run", "--select", *slips)
    assert "ERROR=2" in ran
    assert "unique_key names the column 'order_id', and there are: order-id, N-m, b." in ran
    assert "merge_update_columns names the column 'nm', and there are: order-id, N-m, b." in ran
    assert "merge_exclude_columns names the column 'n-m, b', and there are: order-id, N-m, b." in ran, "a warning"
    assert dbt_server.rows(f"SELECT * FROM {schema}.kept") == [(1, 2, 4)]
    assert dbt_server.temporary(schema) == []


def test_new_rows_that_no_merge_can_take(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    project = new_project()
    twice = (
        config(materialized="incremental", unique_key="id")
        + "select 1 as id, id as n from range({{ 2 if is_incremental() else 1 }})"
    )
    project.write("models/twice.sql", twice)
    project.write(
        "models/others.sql", config(materialized="incremental") + "select 1 as {{ 'b' if is_incremental() else 'a' }}"
    )
    project.succeeds("run")
    ran = project.fails("run")
    assert "ERROR=2" in ran
    assert "The new rows have several with the same unique_key" in ran
    assert f"The model gives the columns b, and its table `main`.`{schema}`.`others` has none of them, but a." in ran
    assert dbt_server.rows(f"SELECT * FROM {schema}.twice") == [(1, 0)]
    assert dbt_server.rows(f"SELECT * FROM {schema}.others") == [(1,)]
