"""dbt's own tests: materialized views, which are dynamic tables here."""

from __future__ import annotations

from typing import Any

import pytest
from dbt.tests.adapter.materialized_view import basic, changes, files
from dbt.tests.util import get_model_file, set_model_file

DYNAMIC_TABLE = """
{{ config(
    materialized='dynamic_table',
    refresh_interval='5 MINUTE',
    refresh_mode='AUTO',
) }}
select * from {{ ref('my_seed') }}
"""


def relation_type(project: Any, relation: Any) -> str | None:
    """In the words of the suite."""
    with project.adapter.connection_named("__test"):
        found = project.adapter.list_relations_without_caching(relation.without_identifier())
    kind = next((str(each.type) for each in found if each.identifier == relation.identifier), None)
    return {"dynamic_table": "materialized_view"}.get(kind or "", kind)


def of_dynamic_table(project: Any, identifier: str) -> Any:
    return project.adapter.Relation.create(
        identifier=identifier, schema=project.test_schema, database=project.database, type="dynamic_table"
    )


class TestMaterializedViewBasic(basic.MaterializedViewBasic):
    @pytest.fixture(scope="class", autouse=True)
    def models(self) -> dict[str, str]:
        return {"my_table.sql": files.MY_TABLE, "my_view.sql": files.MY_VIEW, "my_materialized_view.sql": DYNAMIC_TABLE}

    @pytest.fixture(scope="class")
    def my_materialized_view(self, project: Any) -> Any:
        return of_dynamic_table(project, "my_materialized_view")

    @staticmethod
    def insert_record(project: Any, table: Any, record: tuple[int, int]) -> None:
        project.run_sql(f"insert into {table} values {record}")

    @staticmethod
    def refresh_materialized_view(project: Any, materialized_view: Any) -> None:
        project.run_sql(f"refresh dynamic table {materialized_view}")

    @staticmethod
    def query_row_count(project: Any, relation: Any) -> int:
        return int(project.run_sql(f"select count(*) from {relation}", fetch="one")[0])

    @staticmethod
    def query_relation_type(project: Any, relation: Any) -> str | None:
        return relation_type(project, relation)

    @staticmethod
    def _swap(project: Any, relation: Any, before: str, after: str) -> None:
        model = get_model_file(project, relation)
        set_model_file(project, relation, model.replace(f"materialized='{before}'", f"materialized='{after}'"))

    def swap_table_to_materialized_view(self, project: Any, table: Any) -> None:
        self._swap(project, table, "table", "dynamic_table")

    def swap_view_to_materialized_view(self, project: Any, view: Any) -> None:
        self._swap(project, view, "view", "dynamic_table")

    def swap_materialized_view_to_table(self, project: Any, materialized_view: Any) -> None:
        self._swap(project, materialized_view, "dynamic_table", "table")

    def swap_materialized_view_to_view(self, project: Any, materialized_view: Any) -> None:
        self._swap(project, materialized_view, "dynamic_table", "view")


class TestMaterializedViewChanges(changes.MaterializedViewChanges):
    """The interval is changed in place; another query replaces the table."""

    @pytest.fixture(scope="class", autouse=True)
    def models(self) -> dict[str, str]:
        return {"my_materialized_view.sql": DYNAMIC_TABLE}

    @pytest.fixture(scope="class")
    def my_materialized_view(self, project: Any) -> Any:
        return of_dynamic_table(project, "my_materialized_view")

    @staticmethod
    def described(project: Any, relation: Any) -> dict[str, str]:
        return {str(row[0]): str(row[1]) for row in project.run_sql(f"desc extended {relation}", fetch="all")}

    @classmethod
    def check_start_state(cls, project: Any, materialized_view: Any) -> None:
        found = cls.described(project, materialized_view)
        assert found["refresh_interval_second"] == "300"
        assert "where" not in found["view_original_text"]

    @staticmethod
    def change_config_via_alter(project: Any, materialized_view: Any) -> None:
        model = get_model_file(project, materialized_view)
        set_model_file(project, materialized_view, model.replace("5 MINUTE", "10 MINUTE"))

    @classmethod
    def check_state_alter_change_is_applied(cls, project: Any, materialized_view: Any) -> None:
        assert cls.described(project, materialized_view)["refresh_interval_second"] == "600"

    @staticmethod
    def change_config_via_replace(project: Any, materialized_view: Any) -> None:
        model = get_model_file(project, materialized_view)
        set_model_file(project, materialized_view, f"{model.rstrip()}\nwhere id > 1\n")

    @classmethod
    def check_state_replace_change_is_applied(cls, project: Any, materialized_view: Any) -> None:
        assert "where" in cls.described(project, materialized_view)["view_original_text"]

    @staticmethod
    def query_relation_type(project: Any, relation: Any) -> str | None:
        return relation_type(project, relation)


class TestMaterializedViewChangesApply(changes.MaterializedViewChangesApplyMixin, TestMaterializedViewChanges):
    test_full_refresh_occurs_with_changes = None


class TestMaterializedViewChangesContinue(changes.MaterializedViewChangesContinueMixin, TestMaterializedViewChanges):
    test_full_refresh_occurs_with_changes = None


class TestMaterializedViewChangesFail(changes.MaterializedViewChangesFailMixin, TestMaterializedViewChanges):
    test_full_refresh_occurs_with_changes = None
