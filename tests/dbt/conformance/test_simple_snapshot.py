"""dbt's own tests: simple snapshot."""

from __future__ import annotations

from dbt.tests.adapter.simple_snapshot import (
    new_record_check_mode,
    new_record_dbt_valid_to_current,
    new_record_timestamp_mode,
)
from dbt.tests.adapter.simple_snapshot import test_ephemeral_snapshot_hard_deletes as ephemeral_snapshot_hard_deletes
from dbt.tests.adapter.simple_snapshot import test_snapshot as snapshot
from dbt.tests.adapter.simple_snapshot import test_various_configs as various_configs


class TestSnapshotNewRecordCheckMode(new_record_check_mode.BaseSnapshotNewRecordCheckMode):
    pass


class TestSnapshotNewRecordDbtValidToCurrent(new_record_dbt_valid_to_current.BaseSnapshotNewRecordDbtValidToCurrent):
    pass


class TestSnapshotNewRecordTimestampMode(new_record_timestamp_mode.BaseSnapshotNewRecordTimestampMode):
    pass


class TestSnapshotEphemeralHardDeletes(ephemeral_snapshot_hard_deletes.BaseSnapshotEphemeralHardDeletes):
    pass


class TestSnapshotNewColumnSpecificCheckCols(ephemeral_snapshot_hard_deletes.BaseSnapshotNewColumnSpecificCheckCols):
    pass


class TestSnapshotNewColumnTimestampStrategy(ephemeral_snapshot_hard_deletes.BaseSnapshotNewColumnTimestampStrategy):
    pass


class TestSnapshotNewColumnWithDeletes(ephemeral_snapshot_hard_deletes.BaseSnapshotNewColumnWithDeletes):
    pass


class TestSnapshot(snapshot.TestSnapshot):
    pass


class TestSnapshotCheck(snapshot.TestSnapshotCheck):
    pass


class TestSnapshotColumnNames(various_configs.BaseSnapshotColumnNames):
    pass


class TestSnapshotColumnNamesFromDbtProject(various_configs.BaseSnapshotColumnNamesFromDbtProject):
    pass


class TestSnapshotDbtValidToCurrent(various_configs.BaseSnapshotDbtValidToCurrent):
    pass


class TestSnapshotInvalidColumnNames(various_configs.BaseSnapshotInvalidColumnNames):
    pass


class TestSnapshotMultiUniqueKey(various_configs.BaseSnapshotMultiUniqueKey):
    pass
