"""One lake, and so one Spark session, per test process; one schema per test."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
from headrace import Lake
from postgres import PostgresServer, new_database, running_server

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("lake")
    # A test process lives for minutes: compiling its code twice over would cost more than it saves.
    quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1", "spark.sql.shuffle.partitions": "1"}
    # Generating and compiling Java for a handful of rows takes a third of the time; `compiled` turns it on again.
    quick |= INTERPRETED
    with headrace.open(folder / "lake", spark_master="local[2]", driver_memory="3g", spark_settings=quick) as lake:
        yield lake


@pytest.fixture
def schema(shared_lake: Lake, request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh, current schema."""
    words = re.sub(r"[^a-z0-9]+", "_", request.node.name.lower()).strip("_")[:40]
    name = f"t{next(_numbers)}_{words}"
    shared_lake.sql(f"CREATE SCHEMA {name}; USE {name}")
    yield name
    shared_lake.sql(f"USE public; DROP SCHEMA {name} CASCADE")


@pytest.fixture
def lake(shared_lake: Lake, schema: str) -> Lake:
    """The lake, with a fresh schema as the current one."""
    return shared_lake


@pytest.fixture
def compiled(shared_lake: Lake) -> Iterator[None]:
    """Spark generates code for its plans, as it does for users."""
    for key, value in COMPILED.items():
        shared_lake.spark.conf.set(key, value)
    yield
    for key, value in INTERPRETED.items():
        shared_lake.spark.conf.set(key, value)


@pytest.fixture
def lake_folder(tmp_path: Path) -> Path:
    """Where a test that opens its own lake may put it."""
    return tmp_path / "lake"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """A database of its own, empty."""
    return new_database(postgres)
