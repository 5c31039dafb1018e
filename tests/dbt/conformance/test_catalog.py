"""dbt's own tests: catalog. A dynamic table stands where the suite has a materialized view."""

from __future__ import annotations

from typing import Any

import pytest
from dbt.tests.adapter.catalog import files, relation_types


class TestCatalogRelationTypes(relation_types.CatalogRelationTypes):
    @pytest.fixture(scope="class", autouse=True)
    def models(self) -> dict[str, str]:
        return {
            "my_table.sql": files.MY_TABLE,
            "my_view.sql": files.MY_VIEW,
            "my_dynamic_table.sql": files.MY_MATERIALIZED_VIEW.replace("'materialized_view'", "'dynamic_table'"),
        }

    @pytest.mark.parametrize(
        ("node_name", "relation_type"),
        [
            ("seed.test.my_seed", "table"),
            ("model.test.my_table", "table"),
            ("model.test.my_view", "view"),
            ("model.test.my_dynamic_table", "dynamic_table"),
        ],
    )
    def test_relation_types_populate_correctly(self, docs: Any, node_name: str, relation_type: str) -> None:
        super().test_relation_types_populate_correctly(docs, node_name, relation_type)
