"""dbt's own tests: aliases."""

from __future__ import annotations

from dbt.tests.adapter.aliases import test_aliases as aliases


class TestAliasErrors(aliases.TestAliasErrors):
    pass


class TestAliases(aliases.TestAliases):
    pass


class TestSameAliasDifferentDatabases(aliases.TestSameAliasDifferentDatabases):
    pass


class TestSameAliasDifferentSchemas(aliases.TestSameAliasDifferentSchemas):
    pass
