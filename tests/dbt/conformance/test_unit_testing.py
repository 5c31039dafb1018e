"""dbt's own tests: unit testing."""

from __future__ import annotations

import pytest
from dbt.tests.adapter.unit_testing import test_case_insensitivity as case_insensitivity
from dbt.tests.adapter.unit_testing import test_invalid_input as invalid_input
from dbt.tests.adapter.unit_testing import test_quoted_reserved_word_column_names as quoted_reserved_word_column_names
from dbt.tests.adapter.unit_testing import test_types as types


class TestUnitTestCaseInsensitivity(case_insensitivity.TestPosgresUnitTestCaseInsensitivity):
    pass


class TestUnitTestInvalidInput(invalid_input.TestPostgresUnitTestInvalidInput):
    pass


class TestQuotedReservedWordColumnNames(quoted_reserved_word_column_names.BaseUnitTestQuotedReservedWordColumnNames):
    @pytest.fixture(scope="class")
    def models(self) -> dict[str, str]:
        return {
            "my_model.sql": quoted_reserved_word_column_names.my_model_sql,
            "my_upstream_model.sql": "select 1 as `GROUP`",
            "unit_tests.yml": quoted_reserved_word_column_names.test_my_model_csv_fixtures_yml,
        }


class TestUnitTestingVarcharFixtureNoTruncation(types.BaseUnitTestingVarcharFixtureNoTruncation):
    pass


class TestUnitTestingTypes(types.TestPostgresUnitTestingTypes):
    @pytest.fixture
    def data_types(self) -> list[list[str]]:
        return [
            ["1", "1"],
            ["'1'", "1"],
            ["true", "true"],
            ["DATE '2020-01-02'", "2020-01-02"],
            ["TIMESTAMP '2013-11-03 00:00:00-0'", "2013-11-03 00:00:00-0"],
            ["TIMESTAMP_NTZ '2013-11-03 00:00:00'", "2013-11-03 00:00:00"],
            ["'1'::decimal(10,0)", "1"],
            ["cast('1.5' as double)", "1.5"],
            ["""'{"bar": "baz", "balance": 7.77, "active": false}'""",
             """'{"bar": "baz", "balance": 7.77, "active": false}'"""],
        ]  # fmt: skip
