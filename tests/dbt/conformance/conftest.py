"""dbt's own suite of tests for adapters, run against a Headrace server.

Its SQL is that of Postgres: what a test sends to the database itself, to prepare or to look, is translated here; what
stands in models is replaced where Spark has other words. What dbt and the adapter write goes to the server as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from dbt.tests.fixtures.project import *  # noqa: F403
from dbt.tests.fixtures.project import TestProjInfo, write_project_files

from conformance_sql import in_files, to_spark
from dbt.adapters.headrace.impl import HeadraceAdapter
from dbt_server import PASSWORD, DbtServer
from dbt_suite import CORE, area, gaps, inherited

USERS = ("suite_user_1", "suite_user_2", "suite_user_3")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", "ignore:Class-scoped fixtures defined as instance methods")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what the table in the docs lists; leaves out what is not in the core, unless all was asked for."""
    known = gaps()
    everything = os.environ.get("HEADRACE_TEST_DBT") == "all"
    kept = []
    for item in items:
        if "dbt/conformance/" not in item.nodeid or not getattr(item, "cls", None):
            kept.append(item)
            continue
        name = f"{inherited(item.cls)}::{item.name}"
        item.user_properties.append(("item", name))
        gap = known.get(name) or known.get(name.partition("[")[0])
        if gap and gap.applies:
            item.add_marker(pytest.mark.xfail(reason=gap.reason, strict=True))
        elif gap:
            item.add_marker(pytest.mark.skip(reason=gap.reason))
        if everything or area(name) in CORE:
            kept.append(item)
    items[:] = kept


@pytest.fixture(scope="session")
def suite_server(dbt_server: DbtServer) -> Iterator[DbtServer]:
    for name in USERS:
        dbt_server.rows(f"CREATE USER IF NOT EXISTS {name} WITH PASSWORD '{PASSWORD}'")
    for number, name in enumerate(USERS, 1):
        os.environ[f"DBT_TEST_USER_{number}"] = name
    as_it_is = HeadraceAdapter.run_sql_for_tests

    def translated(self: Any, sql: str, fetch: Any, conn: Any) -> Any:
        return as_it_is(self, to_spark(sql), fetch, conn)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(HeadraceAdapter, "run_sql_for_tests", translated)
        patched.setattr(TestProjInfo, "get_tables_in_schema", lambda project: _tables(dbt_server, project.test_schema))
        yield dbt_server


def _tables(server: DbtServer, schema: str) -> dict[str, str]:
    """What there is, without an information_schema."""
    kinds = {"is_view": "view", "is_dynamic": "dynamic_table"}
    return {
        row["table_name"]: next((kind for key, kind in kinds.items() if row[key]), "table")
        for row in server.records(f"SHOW TABLES IN {schema}")
    }


@pytest.fixture(scope="class")
def dbt_profile_target(suite_server: DbtServer) -> dict[str, Any]:
    target = suite_server.target("")
    del target["schema"]
    return target


@pytest.fixture(scope="class")
def profile_user(dbt_profile_target: dict[str, Any]) -> str:
    return str(dbt_profile_target["username"])


@pytest.fixture(scope="class")
def unique_schema(request: pytest.FixtureRequest, prefix: str) -> str:
    return f"{prefix}_{request.module.__name__.split('.')[-1]}"


@pytest.fixture(scope="class")
def logs_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Not in the folder of the project, as the suite's own."""
    folder = str(tmp_path_factory.mktemp("logs"))
    os.environ["DBT_LOG_PATH"] = folder
    yield folder
    del os.environ["DBT_LOG_PATH"]


def _in_spark(files: Any) -> Any:
    if isinstance(files, dict):
        return {name: _in_spark(content) for name, content in files.items()}
    return in_files(files) if isinstance(files, str) else files


@pytest.fixture(scope="class")
def project_files(
    project_root: Any, models: Any, macros: Any, snapshots: Any, properties: Any, seeds: Any, tests: Any, analyses: Any,
    functions: Any, selectors_yml: Any, dependencies_yml: Any, packages_yml: Any, dbt_project_yml: Any,
) -> None:  # fmt: skip
    """As the suite's own, with Postgres' words replaced."""
    folders = {
        "models": {**models, **properties}, "macros": macros, "snapshots": snapshots, "seeds": seeds, "tests": tests,
        "analyses": analyses, "functions": functions,
    }  # fmt: skip
    for folder, files in folders.items():
        write_project_files(project_root, folder, files if folder == "seeds" else _in_spark(files))
