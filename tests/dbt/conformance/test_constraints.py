"""dbt's own tests: constraints.

Spark has no words for keys that are checked, so the constraints that are not enforced are left out of the statement
with a warning; NOT NULL and CHECK are Delta's and are enforced.
"""

from __future__ import annotations

from typing import Any

import pytest
from dbt.tests.adapter.constraints import fixtures
from dbt.tests.adapter.constraints import test_constraints as constraints

from conformance_sql import in_files

FROM_MODEL = """
as select id, color, date_day from (
    -- depends_on: <foreign_key_model_identifier>
    select 'blue' as color, 1 as id, '2019-01-01' as date_day
) as model_subq
"""


class SparkTypes:
    """The columns of the suite with types that Spark has."""

    @pytest.fixture
    def string_type(self) -> str:
        return "string"

    @pytest.fixture
    def int_type(self) -> str:
        return "int"

    @pytest.fixture
    def data_types(self) -> list[list[str]]:
        return [
            ["1", "int", "int"],
            ["'1'", "string", "string"],
            ["true", "boolean", "boolean"],
            ["timestamp '2013-11-03 00:00:00-07'", "timestamp", "timestamp"],
            ["date '2013-11-03'", "date", "date"],
            ["array('a', 'b', 'c')", "array<string>", "array<string>"],
            ["array(1, 2, 3)", "array<int>", "array<int>"],
            ["cast('1' as decimal(10,0))", "decimal(10,0)", "decimal(10,0)"],
            ["named_struct('bar', 'baz')", "struct<bar:string>", "struct<bar:string>"],
        ]


class TestTableConstraintsColumnsEqual(SparkTypes, constraints.TestTableConstraintsColumnsEqual):
    pass


class TestViewConstraintsColumnsEqual(SparkTypes, constraints.TestViewConstraintsColumnsEqual):
    pass


class TestIncrementalConstraintsColumnsEqual(SparkTypes, constraints.TestIncrementalConstraintsColumnsEqual):
    pass


class ColumnConstraints:
    @pytest.fixture(scope="class")
    def expected_sql(self) -> str:
        return f"""create or replace table <model_identifier> tblproperties (
            'delta.constraints.id_not_null' = '`id` is not null',
            'delta.constraints.id_check' = '(id > 0)',
            'delta.constraints.id_check_2' = 'id >= 1'
        ) {FROM_MODEL}"""


class TestTableConstraintsRuntimeDdlEnforcement(
    ColumnConstraints, constraints.TestTableConstraintsRuntimeDdlEnforcement
):
    pass


class TestIncrementalConstraintsRuntimeDdlEnforcement(
    ColumnConstraints, constraints.TestIncrementalConstraintsRuntimeDdlEnforcement
):
    pass


class TestModelConstraintsRuntimeEnforcement(constraints.TestModelConstraintsRuntimeEnforcement):
    @pytest.fixture(scope="class")
    def expected_sql(self) -> str:
        return f"""create or replace table <model_identifier> tblproperties (
            'delta.constraints.id_not_null' = '`id` is not null',
            'delta.constraints.check' = '(id > 0)',
            'delta.constraints.check_2' = 'id >= 1'
        ) {FROM_MODEL}"""


class TestConstraintQuotedColumn(constraints.TestConstraintQuotedColumn):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {
            "my_model.sql": fixtures.my_model_with_quoted_column_name_sql,
            "constraints_schema.yml": fixtures.model_quoted_column_schema_yml.replace('"from"', "`from`"),
        }

    @pytest.fixture(scope="class")
    def expected_sql(self) -> str:
        return """create or replace table <model_identifier> tblproperties (
            'delta.constraints.id_not_null' = '`id` is not null',
            'delta.constraints.from_not_null' = '`from` is not null',
            'delta.constraints.check' = '(`from` = \\'blue\\')'
        )
        as select id, `from`, date_day from (
            select 'blue' as `from`, 1 as id, '2019-01-01' as date_day
        ) as model_subq"""


class DeltaMessages:
    @pytest.fixture(scope="class")
    def expected_error_messages(self) -> list[str]:
        return ["DELTA_VIOLATE_CONSTRAINT_WITH_VALUES", "id"]


class TestTableConstraintsRollback(DeltaMessages, constraints.TestTableConstraintsRollback):
    pass


class TestIncrementalConstraintsRollback(DeltaMessages, constraints.TestIncrementalConstraintsRollback):
    pass


class HeaderInSpark:
    """Spark's SET TIME ZONE and its function for Postgres' ones."""

    @pytest.fixture(scope="class")
    def models(self) -> dict[str, Any]:
        model = fixtures.my_model_contract_sql_header_sql
        if "Incremental" in type(self).__name__:
            model = fixtures.my_model_incremental_contract_sql_header_sql
        model = model.replace("set session time zone", "set time zone")
        return {
            "my_model_contract_sql_header.sql": model.replace("current_setting('timezone')", "current_timezone()"),
            "constraints_schema.yml": in_files(fixtures.model_contract_header_schema_yml),
        }


class TestTableContractSqlHeader(HeaderInSpark, constraints.TestTableContractSqlHeader):
    pass


class TestIncrementalContractSqlHeader(HeaderInSpark, constraints.TestIncrementalContractSqlHeader):
    pass


class TestIncrementalForeignKeyConstraint(constraints.TestIncrementalForeignKeyConstraint):
    pass
