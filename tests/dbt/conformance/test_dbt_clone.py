"""dbt's own tests: dbt clone."""

from __future__ import annotations

from dbt.tests.adapter.dbt_clone import test_dbt_clone as dbt_clone


class TestClonePossible(dbt_clone.BaseClonePossible):
    pass


class TestCloneSameSourceAndTarget(dbt_clone.BaseCloneSameSourceAndTarget):
    pass


class TestCloneSameTargetAndState(dbt_clone.TestCloneSameTargetAndState):
    pass


class TestCloneNotPossible(dbt_clone.TestPostgresCloneNotPossible):
    pass
