"""dbt's own tests: incremental."""

from __future__ import annotations

from dbt.tests.adapter.incremental import test_incremental_merge_exclude_columns as incremental_merge_exclude_columns
from dbt.tests.adapter.incremental import test_incremental_microbatch as incremental_microbatch
from dbt.tests.adapter.incremental import test_incremental_on_schema_change as incremental_on_schema_change
from dbt.tests.adapter.incremental import test_incremental_predicates as incremental_predicates
from dbt.tests.adapter.incremental import test_incremental_unique_id as incremental_unique_id


class TestMergeExcludeColumns(incremental_merge_exclude_columns.BaseMergeExcludeColumns):
    pass


class TestMicrobatch(incremental_microbatch.BaseMicrobatch):
    pass


class TestIncrementalOnSchemaChange(incremental_on_schema_change.TestIncrementalOnSchemaChange):
    pass


class TestIncrementalPredicatesDeleteInsert(incremental_predicates.TestIncrementalPredicatesDeleteInsert):
    pass


class TestPredicatesDeleteInsert(incremental_predicates.TestPredicatesDeleteInsert):
    pass


class TestIncrementalUniqueKey(incremental_unique_id.TestIncrementalUniqueKey):
    pass
