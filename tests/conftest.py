"""One lake, and so one Spark session, per test process; one schema per test."""

from __future__ import annotations

import itertools
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import headrace
from headrace import Lake
from postgres import PostgresServer, new_database, running_server

_numbers = itertools.count(1)

# Of every program that a test starts: what runs for a minute is not worth the second compiler.
QUICK_JAVA = "-XX:TieredStopAtLevel=1"
os.environ.setdefault("JDK_JAVA_OPTIONS", QUICK_JAVA)

# What a shell starts in the background ignores Ctrl-C, and so would every program that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# With two processes, each takes one file after the other: the ones that last longest come first.
LONGEST = (
    "rules/test_rules", "tpch/", "dbt/", "faults/", "refresh/", "cluster/", "streams/", "server/", "schedule/",
    "property/", "rules/", "cli/", "plan/", "statements/",
)  # fmt: skip

# Left out by `make test`, which is to end within half an hour or so; `make test-all` runs everything.
LONG = (
    "tpch/", "cluster/test_own_master", "cluster/test_metastore", "faults/test_kill", "faults/test_loading",
    "refresh/test_dates", "refresh/test_hard_", "refresh/test_optimisations", "refresh/test_ordered_copies",
    "refresh/test_state_tables",
    "rules/test_large_changes", "server/test_remote_session.py::test_the_same_program", "server/test_scheduled_server",
    "streams/test_exactly_once", "streams/test_guide", "dbt/test_dynamic_tables", "dbt/test_embedded",
    "dbt/test_example", "dbt/test_incremental", "dbt/test_models", "dbt/test_seeds", "dbt/test_streams",
    "dbt/conformance/test_basic.py::TestBaseCaching", "dbt/conformance/test_basic.py::TestSnapshot",
)  # fmt: skip
ALWAYS = (
    "faults/test_kill.py::test_kill_at_failpoints[commit]", "dbt/test_dynamic_tables.py::test_changed_in_place",
    "dbt/test_dynamic_tables.py::test_what_is_the_same", "refresh/test_ordered_copies.py::test_made_by",
    "refresh/test_state_tables.py::test_made_by",
)  # fmt: skip
"""Those of them that stand for the others."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _is_one_of(LONG, item) and not _is_one_of(ALWAYS, item):
            item.add_marker(pytest.mark.long)
    items.sort(key=lambda item: next((n for n, part in enumerate(LONGEST) if f"tests/{part}" in item.nodeid), 99))


def _is_one_of(parts: tuple[str, ...], item: pytest.Item) -> bool:
    return any(f"tests/{part}" in item.nodeid for part in parts)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """The server for dbt does not run on beside tests that have nothing to do with it."""
    if "tests/dbt/" not in item.nodeid and "dbt_server" in sys.modules:
        sys.modules["dbt_server"].stop_all()


@pytest.fixture(scope="session")
def shared_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("lake")
    quick = {"spark.sql.shuffle.partitions": "1"}
    # Generating and compiling Java for a handful of rows takes a third of the time; `compiled` turns it on again.
    quick["spark.sql.codegen.wholeStage"] = "false"
    # This one runs for long: with the second compiler, its later tests take half the time.
    options = os.environ.pop("JDK_JAVA_OPTIONS")
    lake = headrace.open(folder / "lake", spark_master="local[2]", driver_memory="3g", spark_settings=quick)
    os.environ["JDK_JAVA_OPTIONS"] = options
    with lake:
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
    """Spark generates code for whole plans, as it does for users."""
    with setting(shared_lake, "spark.sql.codegen.wholeStage", "true"):
        yield


@pytest.fixture
def interpreted(shared_lake: Lake) -> Iterator[None]:
    """Spark generates no code at all."""
    with setting(shared_lake, "spark.sql.codegen.factoryMode", "NO_CODEGEN"):
        yield


@contextmanager
def setting(lake: Lake, key: str, value: str) -> Iterator[None]:
    before = lake.spark.conf.get(key)
    lake.spark.conf.set(key, value)
    try:
        yield
    finally:
        lake.spark.conf.set(key, str(before))


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
