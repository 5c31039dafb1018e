"""dbt's own tests: column types."""

from __future__ import annotations

import pytest
from dbt.tests.adapter.column_types import fixtures
from dbt.tests.adapter.column_types import test_column_types as column_types


class TestColumnTypes(column_types.TestPostgresColumnTypes):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        model = fixtures.model_sql.replace("double precision", "double").replace("::text", "::string")
        return {"model.sql": model.replace("::numeric", "::decimal(10,2)"), "schema.yml": fixtures.schema_yml}
