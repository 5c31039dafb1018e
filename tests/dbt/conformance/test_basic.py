"""dbt's own tests: basic."""

from __future__ import annotations

import getpass
from datetime import datetime
from typing import Any

import pytest
from dbt.artifacts.schemas.catalog import CatalogTable, ColumnMetadata, StatsItem, TableMetadata
from dbt.tests.adapter.basic import expected_catalog as expected
from dbt.tests.adapter.basic import test_adapter_methods as adapter_methods
from dbt.tests.adapter.basic import test_base as base
from dbt.tests.adapter.basic import test_docs_generate as docs_generate
from dbt.tests.adapter.basic import test_empty as empty_suite
from dbt.tests.adapter.basic import test_ephemeral as ephemeral
from dbt.tests.adapter.basic import test_generic_tests as generic_tests
from dbt.tests.adapter.basic import test_get_catalog_for_single_relation as get_catalog_for_single_relation
from dbt.tests.adapter.basic import test_incremental as incremental
from dbt.tests.adapter.basic import test_singular_tests as singular_tests
from dbt.tests.adapter.basic import test_singular_tests_ephemeral as singular_tests_ephemeral
from dbt.tests.adapter.basic import test_snapshot_check_cols as snapshot_check_cols
from dbt.tests.adapter.basic import test_snapshot_timestamp as snapshot_timestamp
from dbt.tests.adapter.basic import test_table_materialization as table_materialization
from dbt.tests.adapter.basic import test_validate_connection as validate_connection

OWNER = getpass.getuser()
"""Whoever runs the server."""
TYPES = {
    "id_type": "bigint", "text_type": "string", "time_type": "timestamp", "view_type": "view", "table_type": "table",
}  # fmt: skip


LABELS = {"rows": "Rows", "bytes": "Size", "last_modified": "Last changed"}


class Counted:
    """Equal to the numbers of a table with so many rows; its size and its time are those of the moment."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, dict)
        found = {key: item if isinstance(item, dict) else item.to_dict() for key, item in other.items()}
        assert set(found) == {*LABELS, "has_stats"}
        assert found.pop("has_stats")["value"] is True
        for key, label in LABELS.items():
            assert (found[key]["id"], found[key]["label"], found[key]["include"]) == (key, label, True)
            assert found[key]["description"]
        assert int(found["rows"]["value"]) == self.rows
        assert int(found["bytes"]["value"]) > 0
        return datetime.fromisoformat(found["last_modified"]["value"]).year > 2020

    __hash__ = None  # type: ignore[assignment]


class TestBaseCaching(adapter_methods.TestBaseCaching):
    pass


class TestSimpleMaterializations(base.TestSimpleMaterializations):
    pass


class TestDocsGenReferences(docs_generate.TestDocsGenReferences):
    @pytest.fixture(scope="class")
    def expected_catalog(self, project: Any) -> dict[str, Any]:
        stats = {"model_stats": Counted(1), "seed_stats": Counted(1), "view_summary_stats": expected.no_stats()}
        return expected.expected_references_catalog(project, role=OWNER, bigint_type="bigint", **stats, **TYPES)


class TestDocsGenerate(docs_generate.TestDocsGenerate):
    @pytest.fixture(scope="class")
    def expected_catalog(self, project: Any) -> dict[str, Any]:
        return expected.base_expected_catalog(
            project, role=OWNER, model_stats=expected.no_stats(), seed_stats=Counted(1), **TYPES
        )


class TestEmpty(empty_suite.TestEmpty):
    pass


class TestEphemeral(ephemeral.TestEphemeral):
    pass


class TestGenericTests(generic_tests.TestGenericTests):
    pass


class TestGetCatalogForSingleRelation(get_catalog_for_single_relation.BaseGetCatalogForSingleRelation):
    @pytest.fixture(scope="class")
    def expected_catalog_my_seed(self, project: Any) -> CatalogTable:
        return self._expected(project, "my_seed", "table", Counted(1))

    @pytest.fixture(scope="class")
    def expected_catalog_my_view_model(self, project: Any) -> CatalogTable:
        none = {key: StatsItem.from_dict(item) for key, item in expected.no_stats().items()}
        return self._expected(project, "my_view_model", "view", none)

    @staticmethod
    def _expected(project: Any, name: str, kind: str, stats: Any) -> CatalogTable:
        types = {"id": "bigint", "first_name": "string", "email": "string", "ip_address": "string"}
        columns = {
            column: ColumnMetadata(type=type_, index=place, name=column, comment=None)
            for place, (column, type_) in enumerate((types | {"updated_at": "timestamp"}).items(), 1)
        }
        about = TableMetadata(
            type=kind, schema=project.test_schema, name=name, database=project.database, comment=None, owner=OWNER
        )
        return CatalogTable(metadata=about, columns=columns, stats=stats, unique_id=None)


class TestIncrementalBadStrategy(incremental.BaseIncrementalBadStrategy):
    pass


class TestBaseIncrementalNotSchemaChange(incremental.TestBaseIncrementalNotSchemaChange):
    pass


class Testincremental(incremental.Testincremental):
    pass


class TestSingularTests(singular_tests.TestSingularTests):
    pass


class TestSingularTestsEphemeral(singular_tests_ephemeral.TestSingularTestsEphemeral):
    pass


class TestSnapshotCheckCols(snapshot_check_cols.TestSnapshotCheckCols):
    pass


class TestSnapshotTimestamp(snapshot_timestamp.TestSnapshotTimestamp):
    pass


class TestTableMat(table_materialization.TestTableMat):
    pass


class TestValidateConnection(validate_connection.TestValidateConnection):
    pass
