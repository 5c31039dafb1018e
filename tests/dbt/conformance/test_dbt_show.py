"""dbt's own tests: dbt show."""

from __future__ import annotations

from dbt.tests.adapter.dbt_show import test_dbt_show as dbt_show


class TestShowLimit(dbt_show.TestPostgresShowLimit):
    pass


class TestShowSqlHeader(dbt_show.TestPostgresShowSqlHeader):
    pass


class TestShowDoesNotHandleDoubleLimit(dbt_show.TestShowDoesNotHandleDoubleLimit):
    DATABASE_ERROR_MESSAGE = "Syntax error at or near 'limit'"
