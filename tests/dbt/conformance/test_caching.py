"""dbt's own tests: caching."""

from __future__ import annotations

from dbt.tests.adapter.caching import test_caching as caching


class TestCachingLowerCaseModel(caching.TestCachingLowerCaseModel):
    pass


class TestCachingSelectedSchemaOnly(caching.TestCachingSelectedSchemaOnly):
    pass


class TestCachingUppercaseModel(caching.TestCachingUppercaseModel):
    pass


class TestNoPopulateCache(caching.TestNoPopulateCache):
    pass
