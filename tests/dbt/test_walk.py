"""dbt from the beginning, as somebody does it who follows the guide: from `dbt init` to a dynamic table.

The tests of this file share a project and go on where the one before them stopped, in the order in which they stand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dbt_server import PASSWORD, DbtServer, Project

NAME = "walk_project"
DEV, PROD = "walk_dev", "walk_prod"
EVENTS = "public.ecommerce_events_multicategorystore_live"
STREAM = "public.stream_ecommerce_events"
SOURCES = """
version: 2
sources:
  - name: shop
    schema: public
    tables:
      - name: ecommerce_events_multicategorystore_live
      - name: stream_ecommerce_events
"""
ENRICHED = """
{{ config(materialized='incremental') }}
SELECT
  event_time,
  CAST(SUBSTRING(event_time, 0, 19) AS TIMESTAMP) AS event_timestamp,
  SUBSTRING(event_time, 12, 2) AS event_hour,
  event_type, product_id, category_id, category_code, brand,
  CAST(price AS DECIMAL(10,2)) AS price,
  user_id, user_session,
  CAST(SUBSTRING(event_time, 0, 19) AS DATE) AS event_date,
  CURRENT_TIMESTAMP() AS loaded_at
FROM
{% if is_incremental() %}
  {{ source('shop', 'stream_ecommerce_events') }}
{% else %}
  {{ source('shop', 'ecommerce_events_multicategorystore_live') }}
{% endif %}
"""
ONLY_CHANGES = """
{{ config(materialized='incremental') }}
SELECT `event_time`, `event_type`, `product_id`, `price`, CURRENT_TIMESTAMP() AS load_time
FROM {{ source('shop', 'stream_only_changes') }}
"""
GROSSING = """
{{ config(materialized='dynamic_table', refresh_vc='default', refresh_interval='5 MINUTE') }}
select event_date, product_id, sum(price) sum_price
from {{ ref('events_enriched') }}
group by event_date, product_id
"""

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def server(dbt_server: DbtServer) -> Iterator[DbtServer]:
    yield dbt_server
    for schema in (DEV, PROD):
        dbt_server.rows(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    for stream in (STREAM, "public.stream_only_changes"):
        dbt_server.rows(f"DROP TABLE STREAM IF EXISTS {stream}")
    dbt_server.rows(f"DROP TABLE IF EXISTS {EVENTS}")


@pytest.fixture(scope="module")
def project(server: DbtServer, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """`dbt init` with its prompts: the number of the adapter, then the keys in their order."""
    home = tmp_path_factory.mktemp("walk")
    profiles = home / "profiles"
    profiles.mkdir()
    answers = ["1", server.url, "tests", "main", "default", "dbt", DEV, PASSWORD]
    ran = Project(home, profiles).dbt("init", NAME, given="\n".join(answers) + "\n")
    assert ran.code == 0, ran.output
    asked = re.findall(r"\b(service|instance|workspace|vcluster|username|schema|password) [(\[]", ran.output)
    assert asked == ["service", "instance", "workspace", "vcluster", "username", "schema", "password"]
    assert f'Your new dbt project "{NAME}" was created!' in ran
    return Project(home / NAME, profiles)


def count(server: DbtServer, table: str) -> int:
    return int(server.rows(f"SELECT count(*) FROM {table}")[0][0])


def add(server: DbtServer, first: int, last: int) -> None:
    server.rows(
        f"""INSERT INTO {EVENTS}
        SELECT timestamp'2024-06-22 10:00:00' + make_interval(0, 0, 0, 0, 0, CAST(id AS INT), 0), 'view',
               concat('p', id % 7), 'c1', 'electronics.phone', 'acme', CAST(id % 100 AS DECIMAL(10,2)),
               concat('u', id % 11), concat('s', id) FROM range({first}, {last})"""
    )


def offset(server: DbtServer, stream: str = STREAM) -> int:
    """The version up to which it was read; DESC says 'version 3'."""
    told = dict(server.rows(f"DESC TABLE STREAM {stream}"))["offset"]
    return int(told.removeprefix("version "))


def test_the_profile_holds_what_was_answered(project: Project, server: DbtServer) -> None:
    written = yaml.safe_load((project.profiles / "profiles.yml").read_text("utf-8"))[NAME]
    assert written["target"] == "dev"
    assert written["outputs"]["dev"] == {
        "type": "headrace",
        "service": server.url,
        "instance": "tests",
        "workspace": "main",
        "vcluster": "default",
        "username": "dbt",
        "schema": DEV,
        "password": PASSWORD,
    } | {key: written["outputs"]["dev"][key] for key in ("threads",) if key in written["outputs"]["dev"]}


def test_a_second_target_and_debug(project: Project, server: DbtServer) -> None:
    file = project.profiles / "profiles.yml"
    written = yaml.safe_load(file.read_text("utf-8"))
    written[NAME]["outputs"]["prod"] = server.target(PROD)
    file.write_text(yaml.safe_dump(written), "utf-8")
    for target in ("dev", "prod"):
        ran = project.succeeds("debug", "--target", target)
        assert "Connection test: [OK connection ok]" in ran
        assert "All checks passed!" in ran
        assert PASSWORD not in ran


def test_the_starter_models(project: Project, server: DbtServer) -> None:
    assert "Done. PASS=2" in project.succeeds("run")
    assert count(server, f"{DEV}.my_first_dbt_model") == 2
    assert count(server, f"{DEV}.my_second_dbt_model") == 1
    project.succeeds("run", "--target", "prod")
    assert count(server, f"{PROD}.my_first_dbt_model") == 2


def test_the_source_table_and_its_streams(project: Project, server: DbtServer) -> None:
    server.rows(
        f"""CREATE TABLE {EVENTS}(
          `event_time` timestamp, `event_type` string, `product_id` string, `category_id` string,
          `category_code` string, `brand` string, `price` decimal(10,2), `user_id` string, `user_session` string)
        TBLPROPERTIES('change_tracking'='true')"""
    )
    add(server, 0, 3700)
    for stream in (STREAM, "public.stream_only_changes"):
        server.rows(
            f"CREATE TABLE STREAM {stream} on table {EVENTS} with PROPERTIES ('TABLE_STREAM_MODE' = 'APPEND_ONLY')"
        )
    project.write("models/sources.yml", SOURCES + "      - name: stream_only_changes\n")
    project.write("models/events_enriched.sql", ENRICHED)
    project.write("models/only_changes.sql", ONLY_CHANGES)
    assert "shop" in project.succeeds("list", "--resource-type", "source")


def test_the_first_build_loads_everything(project: Project, server: DbtServer) -> None:
    project.succeeds("build", "--model", "events_enriched", "only_changes")
    assert count(server, f"{DEV}.events_enriched") == 3700
    assert count(server, f"{DEV}.only_changes") == 0
    assert _running_sql(project, "events_enriched").lower().lstrip().startswith("create")


def test_runs_take_what_is_new_and_move_the_offset(project: Project, server: DbtServer) -> None:
    before = offset(server)
    add(server, 3700, 3800)
    project.succeeds("run", "--model", "events_enriched", "only_changes")
    assert count(server, f"{DEV}.events_enriched") == 3800
    assert count(server, f"{DEV}.only_changes") == 100
    moved = offset(server)
    assert moved > before
    assert "insert into" in _running_sql(project, "events_enriched").lower()
    project.succeeds("run", "--model", "events_enriched", "only_changes")
    assert count(server, f"{DEV}.events_enriched") == 3800
    assert count(server, f"{DEV}.only_changes") == 100
    assert offset(server) == moved
    jobs = server.rows("SELECT job_text FROM (SHOW JOBS LIMIT 200) WHERE job_text LIKE '%insert into%'")
    assert any(f'"node_id": "model.{NAME}.events_enriched"' in text for (text,) in jobs)


def test_looking_does_not_move_the_offset(project: Project, server: DbtServer) -> None:
    add(server, 3800, 3810)
    before = offset(server)
    seen = "select category_code from {{ source('shop', 'stream_ecommerce_events') }}"
    assert "electronics.phone" in project.succeeds("show", "--inline", seen)
    assert offset(server) == before


def test_full_refresh_moves_the_offset_past_what_it_read(project: Project, server: DbtServer) -> None:
    project.succeeds("run", "--full-refresh", "--model", "events_enriched")
    assert count(server, f"{DEV}.events_enriched") == 3810
    project.succeeds("run", "--model", "events_enriched")
    assert count(server, f"{DEV}.events_enriched") == 3810, "the stream gave rows that the full load had read"


def test_the_dynamic_table(project: Project, server: DbtServer) -> None:
    project.write("models/product_grossing.sql", GROSSING)
    project.succeeds("build", "--model", "product_grossing")
    with server.connected(schema=DEV) as lake:
        tables = lake.sql("show tables")
        assert tables.columns[:6] == [
            "schema_name", "table_name", "is_view", "is_materialized_view", "is_external", "is_dynamic",
        ]  # fmt: skip
        kinds = {row[1]: (row[2], row[5]) for row in tables.rows}
        assert kinds["product_grossing"] == (False, True)
        assert kinds["events_enriched"] == (False, False)
        described = {str(row[0]): str(row[1]) for row in lake.sql("desc extended product_grossing").rows}
        assert described["type"] == "DYNAMIC TABLE"
        assert described["refresh_interval_second"] == "300"
        assert "refresh_vc" in described["properties"]
    add(server, 3810, 3900)
    project.succeeds("run", "--model", "events_enriched", "product_grossing")
    with server.connected(schema=DEV) as lake:
        history = lake.sql("show dynamic table refresh history where name = 'product_grossing'")
        newest = dict(zip(history.columns, history.rows[0], strict=True))
        assert newest["state"] == "SUCCEED"
        assert newest["refresh_mode"] == "INCREMENTAL"
        total = lake.sql("SELECT sum(sum_price) FROM product_grossing").rows[0][0]
        assert total == lake.sql("SELECT sum(price) FROM events_enriched").rows[0][0]
    assert server.verified(f"{DEV}.product_grossing") == "EQUAL"


def test_nothing_temporary_is_left(server: DbtServer) -> None:
    assert server.temporary(DEV) == []


def _running_sql(project: Project, model: str) -> str:
    """The statement that dbt ran for a model, as it keeps it."""
    return (Path(project.folder) / "target" / "run" / NAME / "models" / f"{model}.sql").read_text("utf-8")
