"""dbt's own tests: empty."""

from __future__ import annotations

from dbt.tests.adapter.empty import test_empty as empty_suite


class TestEmptyInlineSourceRef(empty_suite.BaseTestEmptyInlineSourceRef):
    pass


class TestEmptySeedFlag(empty_suite.BaseTestEmptySeedFlag):
    pass


class TestMetadataWithEmptyFlag(empty_suite.MetadataWithEmptyFlag):
    pass


class TestEmpty(empty_suite.TestEmpty):
    pass
