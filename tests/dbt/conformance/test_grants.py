"""dbt's own tests: grants.

Headrace has the privileges SELECT and ALL: ALL stands where the suite says INSERT.
"""

from __future__ import annotations

from dbt.tests.adapter.grants import test_incremental_grants as incremental_grants
from dbt.tests.adapter.grants import test_invalid_grants as invalid_grants
from dbt.tests.adapter.grants import test_model_grants as model_grants
from dbt.tests.adapter.grants import test_seed_grants as seed_grants
from dbt.tests.adapter.grants import test_snapshot_grants as snapshot_grants


class Privileges:
    def privilege_grantee_name_overrides(self) -> dict[str, str]:
        return {
            "select": "select",
            "insert": "all",
            "fake_privilege": "fake_privilege",
            "invalid_user": "invalid_user",
        }


class TestIncrementalGrants(Privileges, incremental_grants.TestIncrementalGrants):
    pass


class TestInvalidGrants(Privileges, invalid_grants.TestInvalidGrants):
    def grantee_does_not_exist_error(self) -> str:
        return "There is no user invalid_user"

    def privilege_does_not_exist_error(self) -> str:
        return "expected SELECT or ALL"


class TestModelGrants(Privileges, model_grants.TestModelGrants):
    pass


class TestSeedGrants(Privileges, seed_grants.TestSeedGrants):
    pass


class TestSnapshotGrants(Privileges, snapshot_grants.TestSnapshotGrants):
    pass
