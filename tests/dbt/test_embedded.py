"""`service: embedded`: dbt opens the lake's folder itself, or goes through the server that holds it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dbt_server import DbtServer, Project

pytestmark = pytest.mark.timeout(900)


def test_dbt_opens_the_lake_itself(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    target = {"type": "headrace", "service": "embedded", "instance": str(lake), "schema": "dev", "threads": 2}
    project = Project.new(tmp_path / "shop", {"dev": target}, flags={"send_anonymous_usage_stats": False})
    project.in_process = False
    project.write("models/first.sql", "{{ config(materialized='table') }} select id, id % 2 as kind from range(6)")
    project.write(
        "models/counted.py",
        "def model(dbt, session):\n"
        "    dbt.config(materialized='table')\n"
        "    return dbt.ref('first').groupBy('kind').count()\n",
    )
    project.write("models/last.sql", "select sum(`count`) as n from {{ ref('counted') }}")
    project.write(
        "models/last.yml", {"models": [{"name": "last", "columns": [{"name": "n", "data_tests": ["unique"]}]}]}
    )
    quick = {"HEADRACE_DRIVER_MEMORY": "1g", "HEADRACE_SPARK_MASTER": "local[2]"}
    ran = project.succeeds("build", **quick)
    assert "PASS=4" in ran
    shown = project.succeeds("show", "--inline", "select n * 7 as found from {{ ref('last') }}", **quick)
    assert "42" in shown, "the first dbt has let go of the lake"


def test_a_server_holds_the_lake(new_project: Callable[..., Project], dbt_server: DbtServer, schema: str) -> None:
    """Then dbt goes through it, on the virtual cluster of the profile, as the user of the profile or as the owner."""
    dbt_server.rows("CREATE VCLUSTER IF NOT EXISTS dbt_embedded VCLUSTER_TYPE = GENERAL VCLUSTER_SIZE = XSMALL")
    wanted: dict[str, Any] = {
        "service": "embedded", "instance": str(dbt_server.lake), "vcluster": "dbt_embedded", "query_tag": schema,
        "username": None, "password": None,
    }  # fmt: skip
    project = new_project(wanted)
    project.write("models/one.sql", "{{ config(materialized='table') }} select 1 as id")
    project.succeeds("run")
    jobs = dbt_server.records(f"SHOW JOBS WHERE query_tag = '{schema}' AND job_text LIKE '%create or replace%'")
    assert {row["vcluster_name"] for row in jobs} == {"dbt_embedded"}
