"""`make bench-dbt`: one project through dbt-headrace with a running server, and through dbt-spark in its own process.

The project has 12 nodes: seeds, views, tables, incremental models, a snapshot and tests. `dbt build` is run as people
run it, as a program: the first time everything is made, later it is there. Then a project of dynamic tables over a
table that does not change is run again: `dbt run` looks at each, and finds nothing to do.

dbt-spark needs other packages: it gets an environment of its own in benchmarks/.cache, made once with pip as it is set
up. Its tables are Delta's, too, with the same jars and the same Spark.

Settings, from the environment:

    TABLES=50        dynamic tables of the second part
    THREADS=4        dbt's threads, for both
    ROUNDS=3         builds after the first; the middle one counts
    SPARK=1          0 leaves dbt-spark out

Prints tables and writes benchmarks/results/dbt.json. Ends with 1 if a command failed.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml

from benchmarks.report import RESULTS
from benchmarks.server import Address, _ended, _is_ready, _started
from headrace import settings as settings_module
from headrace.client.lake import connect
from headrace.storage.jars import ensure_jars
from headrace.storage.java import check_java

TABLES = int(os.environ.get("TABLES", "50"))
THREADS = int(os.environ.get("THREADS", "4"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
WITH_SPARK = os.environ.get("SPARK", "1") != "0"

HERE = Path(__file__).parent
WORK = HERE / "data" / "dbt"
SPARK_ENVIRONMENT = HERE / ".cache" / "dbt-spark"
SPARK_PACKAGES = ["dbt-core==1.11.16", "dbt-spark[session]==1.11.0", "pyspark==4.2.0"]

SEEDS = {
    "stations.csv": "station_id,name,district\n" + "".join(f"{n},station {n},d{n % 4}\n" for n in range(40)),
    "riders.csv": "rider_id,name\n" + "".join(f"{n},rider {n}\n" for n in range(200)),
}
MODELS = {
    "trips.sql": "{{ config(materialized='table') }} select id as trip_id, id % 40 as station_id, id % 200 as rider_id,"
    " cast(id % 30 as double) as fare, date_add(date'2026-01-01', cast(id % 60 as int)) as day from range(20000)",
    "stations_clean.sql": "select station_id, upper(name) as station, district from {{ ref('stations') }}",
    "riders_clean.sql": "select rider_id, name as rider from {{ ref('riders') }}",
    "trips_enriched.sql": "{{ config(materialized='incremental', incremental_strategy='append') }}"
    " select t.trip_id, t.day, t.fare, s.station, s.district, r.rider from {{ ref('trips') }} t"
    " join {{ ref('stations_clean') }} s on s.station_id = t.station_id"
    " join {{ ref('riders_clean') }} r on r.rider_id = t.rider_id"
    " {% if is_incremental() %} where t.trip_id > (select max(trip_id) from {{ this }}) {% endif %}",
    "station_days.sql": "{{ config(materialized='table') }} select day, station, count(*) as trips,"
    " sum(fare) as revenue from {{ ref('trips_enriched') }} group by day, station",
    "rider_totals.sql": "{{ config(materialized='incremental', incremental_strategy='merge', unique_key='rider') }}"
    " select rider, count(*) as trips, sum(fare) as revenue from {{ ref('trips_enriched') }} group by rider",
    "districts.sql": "select district, sum(fare) as revenue from {{ ref('trips_enriched') }} group by district",
    "schema.yml": yaml.safe_dump(
        {
            "models": [
                {"name": "trips_enriched", "columns": [{"name": "trip_id", "data_tests": ["not_null"]}]},
                {"name": "rider_totals", "columns": [{"name": "rider", "data_tests": ["unique"]}]},
            ]
        }
    ),
}
SNAPSHOTS = {
    "rider_history.sql": "{% snapshot rider_history %}{{ config(target_schema=target.schema, unique_key='rider',"
    " strategy='check', check_cols=['trips']) }} select * from {{ ref('rider_totals') }}{% endsnapshot %}",
}


class Dbt:
    """A project in a folder, and the program that runs it."""

    def __init__(self, name: str, program: Path, target: dict[str, Any], **config: Any) -> None:
        self.folder = WORK / name
        self._program = program
        shutil.rmtree(self.folder, ignore_errors=True)
        self.write("profiles.yml", {"bench": {"target": "dev", "outputs": {"dev": target | {"threads": THREADS}}}})
        self.write("dbt_project.yml", {"name": "bench", "version": "1.0", "profile": "bench"} | config)

    def write(self, path: str, content: str | dict[str, Any]) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else yaml.safe_dump(content), "utf-8")

    def with_twelve_nodes(self) -> Dbt:
        for folder, files in (("seeds", SEEDS), ("models", MODELS), ("snapshots", SNAPSHOTS)):
            for name, content in files.items():
                self.write(f"{folder}/{name}", content)
        return self

    def seconds(self, *arguments: str) -> float:
        environment = os.environ | {
            "DBT_PROFILES_DIR": str(self.folder),
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
            "DBT_VERSION_CHECK": "false",
        }
        began = time.perf_counter()
        with (self.folder / "output.log").open("ab") as log:
            code = subprocess.run(
                [str(self._program), *arguments], cwd=self.folder, env=environment, stdout=log, stderr=log, check=False
            ).returncode
        took = time.perf_counter() - began
        if code != 0:
            raise SystemExit(f"dbt {' '.join(arguments)} failed; {self.folder / 'output.log'} tells why.")
        return took

    def nodes(self) -> int:
        return len(json.loads((self.folder / "target" / "run_results.json").read_text("utf-8"))["results"])

    def builds(self) -> dict[str, Any]:
        first = self.seconds("build")
        later = [self.seconds("build") for _ in range(ROUNDS)]
        return {"nodes": self.nodes(), "first_s": first, "again_s": statistics.median(later), "all_s": [first, *later]}


def headrace_target(found: Address, password: str, schema: str) -> dict[str, Any]:
    return {
        "type": "headrace", "service": found.url, "instance": "bench", "workspace": "main", "vcluster": "default",
        "username": "bench", "password": password, "schema": schema,
    }  # fmt: skip


def through_headrace(found: Address, password: str) -> dict[str, Any]:
    program = Path(sys.executable).parent / "dbt"
    project = Dbt("headrace", program, headrace_target(found, password, "bench")).with_twelve_nodes()
    return {"name": "dbt-headrace, running server"} | project.builds()


def unchanged_tables(found: Address, password: str) -> dict[str, Any]:
    program = Path(sys.executable).parent / "dbt"
    project = Dbt("tables", program, headrace_target(found, password, "bench_tables"))
    project.write(
        "models/base.sql",
        "{{ config(materialized='table') }} select id, id % 10 as kind from range(1000)",
    )
    for number in range(TABLES):
        project.write(
            f"models/t{number:03}.sql",
            "{{ config(materialized='dynamic_table', refresh_interval='1 HOUR') }}"
            f" select kind, count(*) + {number} as n from {{{{ ref('base') }}}} group by kind",
        )
    project.seconds("run")
    runs = [project.seconds("run", "--exclude", "base") for _ in range(ROUNDS)]
    return {"tables": TABLES, "nodes": project.nodes(), "run_s": statistics.median(runs), "all_s": runs}


def through_spark() -> dict[str, Any]:
    """dbt-spark starts Spark in its own process, in each command."""
    program = SPARK_ENVIRONMENT / "bin" / "dbt"
    if not program.exists():
        print(f"Making {SPARK_ENVIRONMENT} with {', '.join(SPARK_PACKAGES)} …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(SPARK_ENVIRONMENT)], check=True)
        pip = [str(SPARK_ENVIRONMENT / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *SPARK_PACKAGES], check=True)
    java = check_java()
    jars = ensure_jars(settings_module.load(WORK).jars, java=java)
    os.environ["JAVA_HOME"] = str(java.home)
    parameters = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": str(WORK / "spark" / "warehouse"),
        "spark.sql.shuffle.partitions": str(os.cpu_count()),
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
    }
    target = {
        "type": "spark",
        "method": "session",
        "host": "localhost",
        "schema": "bench",
        "server_side_parameters": parameters,
    }
    delta = {"+file_format": "delta"}
    project = Dbt("spark", program, target, models=delta, seeds=delta, snapshots=delta).with_twelve_nodes()
    return {"name": "dbt-spark, session"} | project.builds()


def _server() -> tuple[subprocess.Popen[bytes], Address]:
    lake = WORK / "lake"
    log = WORK / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli.main", "up"],
            env=os.environ | {"HEADRACE_PATH": str(lake), "HEADRACE_PORT": "0"},
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def look() -> Address | None:
        try:
            found = json.loads((lake / "server.json").read_text("utf-8"))
        except FileNotFoundError:
            return None
        return Address(found["url"], found["token"]) if _is_ready(found["url"]) else None

    return process, _started(process, look, log)


def main() -> int:
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    builds = []
    process, found = _server()
    try:
        print(f"Headrace at {found.url} …", flush=True)
        password = secrets.token_urlsafe(24)
        with connect(found.url, token=found.token) as admin:
            admin.sql(f"CREATE USER bench WITH PASSWORD '{password}' ROLE admin")
        builds.append(through_headrace(found, password))
        print(f"{TABLES} dynamic tables …", flush=True)
        tables = unchanged_tables(found, password)
    finally:
        _ended(process)
    if WITH_SPARK:
        print("dbt-spark …", flush=True)
        builds.append(through_spark())
    print(f"\ndbt build, {builds[0]['nodes']} nodes, {THREADS} threads, {os.cpu_count()} cores:\n")
    print(f"{'':30} {'first s':>8} {'again s':>8}")
    for build in builds:
        print(f"{build['name']:30} {build['first_s']:8.1f} {build['again_s']:8.1f}")
    if WITH_SPARK:
        ratios = [builds[1][key] / builds[0][key] for key in ("first_s", "again_s")]
        print(f"{'dbt-spark ÷ dbt-headrace':30} {ratios[0]:7.1f}× {ratios[1]:7.1f}×")
    print(f"\ndbt run, {tables['tables']} dynamic tables, nothing changed: {tables['run_s']:.1f} s\n")
    RESULTS.mkdir(exist_ok=True)
    about = {"cores": os.cpu_count(), "python": platform.python_version(), "threads": THREADS}
    (RESULTS / "dbt.json").write_text(json.dumps(about | {"builds": builds, "tables": tables}, indent=1), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
