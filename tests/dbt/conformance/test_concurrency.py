"""dbt's own tests: concurrency."""

from __future__ import annotations

from dbt.tests.adapter.concurrency import test_concurrency as concurrency


class TestConcurenncy(concurrency.TestConcurenncy):
    pass
