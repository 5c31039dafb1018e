"""The project in examples/dbt_incremental, as `make dbt-demo` runs it, on the server of the tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dbt_server import PASSWORD, DbtServer, Project

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "dbt_incremental"

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def bikes(dbt_server: DbtServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    shutil.copytree(EXAMPLE, tmp_path / "bikes", ignore=shutil.ignore_patterns("target", "logs"))
    for key, value in (("URL", dbt_server.url), ("USER", "dbt"), ("PASSWORD", PASSWORD)):
        monkeypatch.setenv(f"HEADRACE_{key}", value)
    with dbt_server.connected() as lake:
        lake.sql((EXAMPLE / "sql" / "raw.sql").read_text("utf-8"))
        yield Project(tmp_path / "bikes", tmp_path / "bikes", in_process=True)
        for stream in ("trips_stream_dev", "arrivals_stream_dev"):
            lake.sql(f"DROP TABLE STREAM raw.{stream}")
        lake.sql("DROP SCHEMA raw CASCADE; DROP SCHEMA IF EXISTS bikes_dev CASCADE")


def test_the_example(bikes: Project, dbt_server: DbtServer) -> None:
    trips = (EXAMPLE / "sql" / "trips.sql").read_text("utf-8")

    def counts() -> list[int]:
        tables = ("trips_enriched", "trips_arrived")
        found = [dbt_server.rows(f"SELECT count(*) FROM bikes_dev.{table}")[0][0] for table in tables]
        return [*found, dbt_server.rows("SELECT sum(trips) FROM bikes_dev.district_revenue")[0][0]]

    dbt_server.rows(trips.format(first=0, last=300))
    bikes.succeeds("build")
    assert counts() == [300, 300, 300]
    dbt_server.rows(trips.format(first=300, last=340))
    for _ in range(2):
        bikes.succeeds("build")
        assert counts() == [340, 340, 340]
    for table in ("station_revenue", "district_revenue"):
        assert dbt_server.verified(f"bikes_dev.{table}") == "EQUAL"
    parents = bikes.artifact("manifest.json")["parent_map"]["model.bikes.trips_enriched"]
    assert "source.bikes.raw.trips_stream" in parents, "the stream is in the lineage"
