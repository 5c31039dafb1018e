"""Table streams in models: no row twice and none lost, also where dbt dies, and however the model is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dbt_server import DbtServer, Project, config

NewProject = Callable[..., Project]

pytestmark = pytest.mark.timeout(900)


class Trips:
    """A table `trips` in the schema of the test, its streams as sources, and a project."""

    def __init__(self, server: DbtServer, schema: str, project: Project, *streams: str) -> None:
        self.server, self.schema, self.project = server, schema, project
        server.rows(f"CREATE SCHEMA {schema}")
        server.rows(f"CREATE TABLE {schema}.trips (id INT) TBLPROPERTIES ('change_tracking'='true')")
        self.add(1, 2)
        for name in streams:
            server.rows(f"CREATE TABLE STREAM {schema}.{name} ON TABLE {schema}.trips")
        self.add(3)
        tables: list[dict[str, Any]] = [{"name": "trips", "identifier": "TRIPS"}]
        tables += [{"name": name, "identifier": name.upper()} for name in streams]
        project.write("models/sources.yml", {"sources": [{"name": "raw", "schema": schema, "tables": tables}]})

    def add(self, *ids: int) -> None:
        self.server.rows(f"INSERT INTO {self.schema}.trips VALUES {', '.join(f'({number})' for number in ids)}")

    def model(self, name: str, text: str, **config: Any) -> None:
        told = ", ".join(f"{key}={value!r}" for key, value in {"materialized": "incremental", **config}.items())
        self.project.write(f"models/{name}.sql", f"{{{{ config({told}) }}}}\n{text}")

    def ids(self, name: str) -> list[int]:
        return sorted(row[0] for row in self.server.rows(f"SELECT id FROM {self.schema}.{name}"))

    def offset(self, name: str) -> int:
        found = self.server.records(f"SHOW TABLE STREAMS IN {self.schema} LIKE '{name}'")
        return int(found[0]["offset"])

    def properties(self, name: str) -> dict[str, str]:
        rows = self.server.rows(f"SHOW TBLPROPERTIES {self.schema}.{name}")
        return {str(key): str(value) for key, value in rows if str(key).startswith("dbt_stream.")}


def either(stream: str, table: str = "{{ source('raw', 'trips') }}", before: str = "") -> str:
    """A model that reads the stream when it is incremental, and else the table."""
    return (
        f"{before}select id from {{% if is_incremental() %}} {{{{ source('raw', '{stream}') }}}} "
        f"{{% else %}} {table} {{% endif %}}"
    )


def test_no_row_comes_twice_and_none_is_lost(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    """In one project: the ways in which models name a stream and its table, and what happens to each."""
    project = new_project()
    streams = ["s_plain", "s_named", "s_inner", "s_only", "s_view", "s_died", "s_back", "s_dev", "s_one", "s_two"]
    trips = Trips(dbt_server, schema, project, *streams, "s_prod")
    trips.model("plain", either("s_plain"))
    trips.model("named", either("s_named", before="-- depends_on: {{ source('raw', 's_named') }}\n"))
    trips.model("inner_ones", "select id from {{ source('raw', 'trips') }} where id < 0", materialized="ephemeral")
    trips.model(
        "inner",
        "{% if is_incremental() %} select id from {{ source('raw', 's_inner') }} {% else %} select a.id from "
        "{{ source('raw', 'trips') }} a left anti join {{ ref('inner_ones') }} b using (id) {% endif %}",
    )
    trips.model("only", "select id from {{ source('raw', 's_only') }}")
    trips.model("stg_changes", "select id from {{ source('raw', 's_view') }}", materialized="view")
    trips.model("through_view", "select id from {{ ref('stg_changes') }}")
    trips.model("died", either("s_died"))
    trips.model("back", either("s_back"), unique_key="id")
    trips.model(
        "of_target",
        "select id from {% if not is_incremental() %} {{ source('raw', 'trips') }} {% elif target.name == 'prod' %}"
        " {{ source('raw', 's_prod') }} {% else %} {{ source('raw', 's_' ~ target.name) }} {% endif %}",
    )
    trips.model(
        "of_two",
        "select id from {% if is_incremental() %} {{ source('raw', 's_one') }} join {{ source('raw', 's_two') }}"
        " using (id) {% else %} {{ source('raw', 'trips') }} {% endif %}",
    )
    project.succeeds("run")
    whole = ["plain", "named", "inner", "died", "back", "of_target", "of_two"]
    assert {name: trips.ids(name) for name in whole} == {name: [1, 2, 3] for name in whole}
    assert trips.ids("only") == trips.ids("through_view") == [3]
    assert {trips.offset(name) for name in streams} == {2}
    notes = trips.properties("died")
    assert list(notes) == [f"dbt_stream.main.{schema}.s_died"]
    assert "set offset" not in str(notes)

    # As if dbt had died between the load and the move; and somebody sets a stream back, to have its changes again.
    key, value = notes.popitem()
    dbt_server.rows(f"ALTER TABLE {schema}.died SET PROPERTIES ('{key}'='{value}; set offset 2')")
    for name in ("s_died", "s_back"):
        dbt_server.rows(f"ALTER TABLE STREAM {schema}.{name} SET OFFSET VERSION AS OF 1")
    trips.add(4)
    project.succeeds("run")
    assert {name: trips.ids(name) for name in whole} == {name: [1, 2, 3, 4] for name in whole}
    assert trips.ids("only") == trips.ids("through_view") == [3, 4]
    assert {trips.offset(name) for name in streams} == {3}
    assert "set offset" not in str(trips.properties("died"))
    trips.add(5)
    project.succeeds("run", "--full-refresh", "--select", "plain", "named")
    trips.add(6)
    project.succeeds("run")
    assert {name: trips.ids(name) for name in whole} == {name: [1, 2, 3, 4, 5, 6] for name in whole}
    assert trips.offset("s_prod") == 1, "another target's stream waits for that one"
    assert dbt_server.temporary(schema) == []


def test_a_load_takes_nothing_that_it_does_not_keep(
    new_project: NewProject, dbt_server: DbtServer, schema: str
) -> None:
    """A view that becomes an incremental model over a stream: one load fails, one is killed on the way to its place."""
    project = new_project()
    trips = Trips(dbt_server, schema, project, "s_failed", "s_killed", "s_branched")
    for name in ("failed", "killed", "branched"):
        trips.model(name, "select 7 as id", materialized="view")
    project.succeeds("run")
    trips.model("failed", "select cast(concat('x', id) as int) as id from {{ source('raw', 's_failed') }}")
    assert "CAST_INVALID_INPUT" in project.fails("run", "--select", "failed")
    assert trips.ids("failed") == [7]
    trips.model("failed", "select id from {{ source('raw', 's_failed') }}")
    trips.model("killed", "select id from {{ source('raw', 's_killed') }}")
    trips.model("branched", either("s_branched"))
    project.succeeds("run", "--select", "killed", "branched")
    # As if dbt had died when the tables were there and had not got their places yet.
    for name in ("killed", "branched"):
        dbt_server.rows(f"ALTER TABLE {schema}.{name} RENAME TO {schema}.{name}__dbt_new")
        dbt_server.rows(f"CREATE VIEW {schema}.{name} AS SELECT 7 AS id")
    trips.add(4)
    ran = project.succeeds("run")
    assert trips.ids("failed") == trips.ids("killed") == [3, 4]
    # dbt has compiled the first load of this one, which it has already.
    assert trips.ids("branched") == [1, 2, 3]
    assert "was loaded by a run that was interrupted" in ran
    project.succeeds("run")
    assert trips.ids("branched") == [1, 2, 3, 4]
    assert dbt_server.temporary(schema) == []


def test_a_stream_belongs_to_one_table(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    """Two models that name one stream: whichever comes second is stopped, before anything is missed."""
    project = new_project()
    trips = Trips(dbt_server, schema, project, "s_first", "s_second")
    trips.model("first", either("s_first"))
    trips.model("second", either("s_first"))
    project.succeeds("run")
    trips.add(4)
    project.succeeds("run", "--select", "first")
    ran = project.fails("run", "--select", "second")
    assert f"main.{schema}.first has" in ran
    ran = project.fails("run", "--full-refresh", "--select", "second")
    assert "would miss rows" in ran
    assert (trips.ids("first"), trips.ids("second")) == ([1, 2, 3, 4], [1, 2, 3])
    assert trips.offset("s_first") == 3
    trips.model("second", either("s_second"))
    project.succeeds("run", "--full-refresh", "--select", "second")
    trips.add(5)
    for materialized in ("incremental", "table"):
        trips.model("third", "select id from {{ source('raw', 's_first') }}", materialized=materialized)
        ran = project.fails("run", "--select", "third")
        assert f"loading main.{schema}.third would take what it has now: main.{schema}.first would miss rows" in ran
        project.succeeds("run", "--select", "third", "--empty")
        dbt_server.rows(f"DROP TABLE {schema}.third")
    (project.folder / "models/third.sql").unlink()
    project.succeeds("run")
    assert trips.ids("first") == trips.ids("second") == [1, 2, 3, 4, 5]

    # As if the stream had gone on between a load and the move that belongs to it.
    key, value = trips.properties("first").popitem()
    dbt_server.rows(f"ALTER TABLE {schema}.first SET PROPERTIES ('{key}'='{value}; set offset 2')")
    assert "stands at version 4 already" in project.fails("run", "--select", "first")
    assert trips.ids("first") == [1, 2, 3, 4, 5]


def test_two_that_load_a_table_at_once(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    """The second would put what the stream has had since in place of the first one's rows."""
    project = new_project()
    trips = Trips(dbt_server, schema, project, "s_before", "s_beside")
    other = f"create table {schema}.before as select 9 as id"
    trips.model("before", "select id from {{ source('raw', 's_before') }}", pre_hook=other)
    trips.model(
        "beside",
        "select id from {{ source('raw', 's_beside') }}",
        sql_header=f"create table {schema}.beside as select 9 as id;",
    )
    ran = project.fails("run")
    assert "Another process has made" in ran
    assert "since this one looked" in ran
    assert "they are its version 0" in ran
    assert (trips.ids("before"), trips.offset("s_before")) == ([9], 1)
    name = f"`main`.`{schema}`.`beside`"
    dbt_server.rows(f"INSERT INTO {name} SELECT * FROM {name} VERSION AS OF 0")
    assert trips.ids("beside") == [3, 9]


def test_a_stream_that_only_a_comment_names(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    """What the Jinja comes to is not known, and guessed wrong, while the table is loaded."""
    project = new_project()
    trips = Trips(dbt_server, schema, project, "s_asked")
    code = (
        "-- depends_on: {{ source('raw', 's_asked') }}\n"
        "{% if is_incremental() and execute %} select id from {{ source('raw', 's_asked') }} "
        "{% else %} select id from {{ source('raw', 'trips') }} {% endif %}"
    )
    trips.model("asked", code)
    for number in (4, 5):
        project.succeeds("run")
        trips.add(number)
    project.succeeds("run")
    assert trips.ids("asked") == [1, 2, 3, 4, 5]


def test_a_snapshot_takes_no_other_table_s_stream(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    project = new_project()
    trips = Trips(dbt_server, schema, project, "s_one", "s_two")
    trips.model("owner", "select id from {{ source('raw', 's_one') }}")
    project.succeeds("run")
    trips.add(4)
    given = config(unique_key="id", strategy="check", check_cols=["id"])
    text = "{%% snapshot seen %%}%s select id from {{ source('raw', '%s') }}{%% endsnapshot %%}"
    project.write("snapshots/seen.sql", text % (given, "s_two"))
    project.succeeds("snapshot")
    project.write("snapshots/seen.sql", text % (given, "s_one"))
    assert f"main.{schema}.owner would miss rows" in project.fails("snapshot")
    project.write("snapshots/seen.sql", text % (given, "s_two"))
    trips.add(5)
    project.succeeds("build")
    assert trips.ids("owner") == [3, 4, 5]
    assert trips.ids("seen") == [3, 4, 5]


def test_models_of_which_nobody_can_tell_are_stopped(
    new_project: NewProject, dbt_server: DbtServer, schema: str
) -> None:
    project = new_project()
    trips = Trips(dbt_server, schema, project, "s_view", "s_asked", "s_late", "s_anew", "s_batch")
    trips.model("stg_trips", "select id from {{ source('raw', 'trips') }}", materialized="view")
    trips.model("through_view", either("s_view", table="{{ ref('stg_trips') }}"))
    trips.model(
        "asked",
        """select id from {% if is_incremental() %} {{ source('raw', run_query("select 's_asked'")[0][0]) }} """
        "{% else %} {{ source('raw', 'trips') }} {% endif %}",
    )
    trips.model("late", "select id from {{ source('raw', 'trips') }} {% if is_incremental() %} where false {% endif %}")
    trips.model("anew", either("s_anew"))
    ran = project.fails("run")
    assert "PASS=4 WARN=0 ERROR=1" in ran
    assert "make it ephemeral" in ran
    names = {row["table_name"] for row in dbt_server.records(f"SHOW TABLES IN {schema}")}
    assert "through_view" not in names

    trips.model("late", either("s_late"))
    dbt_server.rows(f"CREATE OR REPLACE TABLE STREAM {schema}.s_anew ON TABLE {schema}.trips")
    trips.add(4)
    ran = project.fails("run", "--select", "asked", "late", "anew")
    assert "ERROR=3" in ran
    assert "was loaded without it" in ran
    assert "made anew" in ran
    for name in ("asked", "late", "anew"):
        assert trips.ids(name) == [1, 2, 3], "nothing was taken"

    # What the errors say to do.
    dbt_server.rows(f"ALTER TABLE STREAM {schema}.s_late SET OFFSET VERSION AS OF 2")
    dbt_server.rows(f"ALTER TABLE {schema}.late SET PROPERTIES ('dbt_stream.main.{schema}.s_late'='in step')")
    project.write(
        "models/asked.sql",
        "-- depends_on: {{ source('raw', 's_asked') }}\n" + (project.folder / "models/asked.sql").read_text(),
    )
    project.succeeds("run", "--full-refresh", "--select", "asked", "anew")
    trips.add(5)
    project.succeeds("run", "--select", "asked", "late", "anew")
    for name in ("asked", "late", "anew"):
        assert trips.ids(name) == [1, 2, 3, 4, 5]
    parents = project.artifact("manifest.json")["parent_map"]["model.shop.asked"]
    assert sorted(parents) == ["source.shop.raw.s_asked", "source.shop.raw.trips"]


def test_looking_takes_nothing(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    """Tests that keep their failures, --empty and --sample, of tables as of incremental models; then a run finds
    all changes there, in the same sessions."""
    project = new_project({"threads": 1})
    trips = Trips(dbt_server, schema, project, "s_test", "s_table", "s_view", "s_grown")
    project.write("tests/none_waits.sql", "select id from {{ source('raw', 's_test') }}")
    trips.model("changes", "select id from {{ source('raw', 's_view') }}", materialized="view")
    trips.model("a_table", "select id from {{ source('raw', 's_table') }}", materialized="table")
    trips.model("from_view", "select id from {{ ref('changes') }}", materialized="table")
    trips.model("grown", either("s_grown"))
    streams = ["s_test", "s_table", "s_view", "s_grown"]
    before = {name: trips.offset(name) for name in streams}
    project.succeeds("build", "--empty", "--store-failures")
    assert {name: trips.offset(name) for name in streams} == before
    project.fails("test", "--store-failures")
    assert {name: trips.offset(name) for name in streams} == before
    assert "loaded without it" in project.fails("run", "--select", "grown"), "it was built empty"
    project.succeeds("run", "--full-refresh", "--select", "grown")
    trips.add(4)
    here = {name: trips.offset(name) for name in streams}
    for flag in (["--sample", "3 days"], ["--empty"]):
        project.succeeds("run", *flag)
        assert {name: trips.offset(name) for name in streams} == here
        assert trips.ids("grown") == [1, 2, 3]
    # In one invocation with one session: the test looks, and the models after it take.
    project.fails("build", "--store-failures", "--select", "none_waits", "a_table", "from_view", "changes", "grown")
    assert trips.offset("s_test") == before["s_test"]
    assert trips.ids("a_table") == trips.ids("from_view") == [3, 4]
    assert trips.ids("grown") == [1, 2, 3, 4]
    assert {trips.offset(name) for name in streams[1:]} == {3}


def test_batches_and_python_read_no_streams(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    project = new_project()
    trips = Trips(dbt_server, schema, project, "s_one", "s_two")
    trips.model("changes", "select id from {{ source('raw', 's_two') }}", materialized="view")
    trips.model(
        "batches", "select id, timestamp'2024-01-01' as at from {{ source('raw', 's_one') }}",
        incremental_strategy="microbatch", event_time="at", begin="2024-01-01", batch_size="year",
    )  # fmt: skip
    for name, read in (("direct", "dbt.source('raw', 's_one')"), ("by_view", "dbt.ref('changes')")):
        project.write(f"models/{name}.py", f"def model(dbt, session):\n    return {read}.toPandas()\n")
    project.write(
        "models/by_spark.py",
        "def model(dbt, session):\n    dbt.ref('changes_seen')\n"
        f"    return session.table('{schema}.s_one').select('id')\n",
    )
    project.write("models/changes_seen.sql", "{{ config(materialized='table') }} select 1 as id")
    ran = project.fails("run")
    assert "built in batches" in ran
    assert ran.output.count("cannot read a table stream") >= 3
    assert "incremental SQL model" in ran
    assert trips.offset("s_one") == trips.offset("s_two") == 1


def test_what_keeps_no_changes_reads_no_streams(new_project: NewProject, dbt_server: DbtServer, schema: str) -> None:
    """A snapshot, a view that has to be a table; and a table that reads another table's stream through a view."""
    project = new_project()
    trips = Trips(dbt_server, schema, project, "s_seen", "s_other")
    trips.model("changes", "select id from {{ source('raw', 's_seen') }}", materialized="view")
    trips.model("as_table", "select id from {{ ref('changes') }}", materialized="view", views_enabled=False)
    given = config(unique_key="id", strategy="check", check_cols="all", hard_deletes="invalidate")
    snapshot = given + "select id from {{ ref('changes') }}"
    project.write("snapshots/seen.sql", f"{{% snapshot seen %}}{snapshot}{{% endsnapshot %}}")
    for _ in range(2):
        ran = project.fails("build")
        assert "ERROR=2" in ran
        assert f"The snapshot seen reads the table stream main.{schema}.s_seen" in ran
        assert f"a view that views_enabled: false makes a table, reads the table stream main.{schema}.s_seen" in ran
        assert trips.offset("s_seen") == 1
    # A snapshot that is there already, and whose query reads a stream from now on.
    project.write(
        "snapshots/seen.sql", f"{{% snapshot seen %}}{snapshot.replace('changes', 'all_trips')}{{% endsnapshot %}}"
    )
    trips.model("all_trips", "select id from {{ source('raw', 'trips') }}", materialized="view")
    project.succeeds("build", "--select", "all_trips", "seen")
    project.write("snapshots/seen.sql", f"{{% snapshot seen %}}{snapshot}{{% endsnapshot %}}")
    assert "Let it read the stream's table" in project.fails("snapshot")
    assert trips.offset("s_seen") == 1

    trips.model("owner", "select id from {{ source('raw', 's_other') }}")
    trips.model("of_owner", "select id from {{ source('raw', 's_other') }}", materialized="view")
    project.succeeds("run", "--select", "owner", "of_owner")
    trips.add(4)
    trips.model("thief", "select id from {{ ref('of_owner') }}", materialized="table")
    assert f"main.{schema}.owner would miss rows" in project.fails("run", "--select", "thief")
    project.succeeds("run", "--select", "owner")
    assert trips.ids("owner") == [3, 4]
    assert dbt_server.temporary(schema) == []
