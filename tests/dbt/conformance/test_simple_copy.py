"""dbt's own tests: simple copy."""

from __future__ import annotations

from typing import Any

import pytest
from dbt.tests.adapter.simple_copy import test_copy_uppercase as copy_uppercase
from dbt.tests.adapter.simple_copy import test_simple_copy as simple_copy

from dbt_server import DbtServer


class TestSimpleCopyUppercase(copy_uppercase.TestSimpleCopyUppercase):
    @pytest.fixture(scope="class")
    def dbt_profile_target(self, suite_server: DbtServer) -> dict[str, Any]:
        """The suite's own is a database of Postgres with a name in mixed case."""
        return {key: value for key, value in suite_server.target("").items() if key != "schema"}


class TestEmptyModelsArentRun(simple_copy.TestEmptyModelsArentRun):
    pass


class TestSimpleCopyBase(simple_copy.TestSimpleCopyBase):
    pass
