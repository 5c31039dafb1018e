"""One server per test process for everything about dbt; one schema per test, or per class of dbt's own suite."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dbt_server import DbtServer, Project, running

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def dbt_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DbtServer]:
    with running(tmp_path_factory.mktemp("dbt") / "lake") as server:
        yield server


@pytest.fixture
def schema(dbt_server: DbtServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """A name that no other test has; dbt makes the schema, and the test's end drops it."""
    words = re.sub(r"[^a-z0-9]+", "_", request.node.name.lower()).strip("_")[:40]
    name = f"d{next(_numbers)}_{words}"
    yield name
    dbt_server.rows(f"DROP SCHEMA IF EXISTS {name} CASCADE")


@pytest.fixture
def new_project(dbt_server: DbtServer, schema: str, tmp_path: Path) -> Callable[..., Project]:
    """Makes a project with one target, `dev`; keys of its profile can be given as `target`, or left out with None."""

    def make(target: dict[str, Any] | None = None, **config: Any) -> Project:
        wanted = dbt_server.target(schema) | (target or {})
        keys = {key: value for key, value in wanted.items() if value is not None}
        return Project.new(tmp_path / "shop", {"dev": keys}, **config)

    return make
