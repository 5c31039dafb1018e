from __future__ import annotations

import shutil
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headrace.errors import NotFound, Unsupported
from headrace.storage.commits import kind_of
from headrace.storage.delta import DeltaLogs, all_rows


def test_a_table_created_again_is_seen_as_another_one(tmp_path: Path) -> None:
    path, logs = str(tmp_path / "t"), DeltaLogs()
    write_deltalake(path, pa.table({"a": [1]}))
    write_deltalake(path, pa.table({"a": [2]}), mode="append")
    first = logs.snapshot(path)
    assert (first.version, logs.effective(path)) == (1, 1)
    shutil.rmtree(path)
    with pytest.raises(NotFound):
        logs.snapshot(path)
    write_deltalake(path, pa.table({"a": [1]}))
    DeltaTable(path).alter.set_table_properties({"x": "y"}, raise_if_not_exists=False)
    again = logs.snapshot(path)
    assert again.version == 1
    assert again.table_id != first.table_id
    assert logs.effective(path) == 0


def test_commits_of_others_are_seen(tmp_path: Path) -> None:
    path, logs = str(tmp_path / "with space é"), DeltaLogs()
    write_deltalake(path, pa.table({"a": [1]}))
    assert logs.snapshot(path).version == 0
    write_deltalake(path, pa.table({"a": [2]}), mode="append")
    assert logs.snapshot(path).version == 1
    plain = logs.plain_files(path, 1)
    assert plain is not None
    assert all(Path(file).exists() for file in plain.files)
    found = logs.commits(path, 0, 1)
    assert found is not None
    assert [commit.changes for commit in found] == ["append"]


def test_rows_are_read_without_python_in_the_threads_of_arrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that called Python while the process ends would abort it."""
    path = str(tmp_path / "with space é")
    for key in ("a b", "ü%41", "x=y/z", None):
        rows = pa.table({"n": [1], "key": pa.array([key], pa.string())})
        write_deltalake(path, rows, mode="append", partition_by="key")
    expected = DeltaTable(path).to_pyarrow_table().to_pylist()
    assert len(expected) == 4

    def never(*_: object) -> None:
        raise AssertionError("Python reads the files")

    monkeypatch.setattr("deltalake.fs.DeltaStorageHandler.from_table", never)
    assert sorted(all_rows(DeltaTable(path), path).to_pylist(), key=str) == sorted(expected, key=str)
    monkeypatch.chdir(tmp_path)
    assert all_rows(DeltaTable(path), Path(path).name).num_rows == 4


@pytest.mark.parametrize(
    ("operation", "parameters", "metrics", "kind"),
    [
        ("WRITE", {"mode": "Append"}, {"numOutputRows": "3"}, "append"),
        ("WRITE", {"mode": "Append"}, {"numOutputRows": "0"}, "none"),
        ("WRITE", {"mode": "Overwrite"}, {"numOutputRows": "3"}, "mixed"),
        ("WRITE", {}, {}, "mixed"),
        ("STREAMING UPDATE", {"outputMode": "Append"}, {}, "append"),
        ("STREAMING UPDATE", {"outputMode": "Complete"}, {}, "mixed"),
        ("OPTIMIZE", {}, {}, "none"),
        ("MERGE", {}, {"numTargetRowsUpdated": "0", "numTargetRowsDeleted": "0"}, "append"),
        ("MERGE", {}, {"numTargetRowsUpdated": "1", "numTargetRowsDeleted": "0"}, "mixed"),
        ("MERGE", {}, {}, "mixed"),
        ("CREATE OR REPLACE TABLE AS SELECT", {}, {}, "mixed"),
        ("REPLACE TABLE", {}, {}, "mixed"),
        ("RESTORE", {}, {}, "mixed"),
        ("SOMETHING NEW", {}, {}, "mixed"),
    ],
)
def test_what_a_commit_means(operation: str, parameters: dict[str, str], metrics: dict[str, str], kind: str) -> None:
    assert kind_of(operation, parameters, metrics) == kind


def test_files_that_have_no_such_row_are_left_out(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for first in (0, 100, 200):
        days = [date(2024, 1, 1) + timedelta(first), date(2024, 1, 1) + timedelta(first + 9)]
        rows = pa.table({"a": [first, first + 9], "d": days, "n": pa.array([None, None], pa.int32())})
        write_deltalake(path, rows, mode="append")
    logs = DeltaLogs()

    def files(**within: list[tuple[Any, Any]]) -> int:
        plain = logs.plain_files(path, 2, within)
        assert plain is not None
        return len(plain.files)

    assert files() == 3
    assert files(a=[(5, 7), (205, 999)]) == 2
    assert files(a=[(10, 99)]) == 0
    assert files(a=[(5, 105)], d=[(date(2024, 1, 5), date(2024, 1, 6))]) == 1
    assert files(n=[(1, 2)], other=[(1, 2)]) == 3, "nobody can tell"


def test_a_table_in_a_bucket_is_refused_in_words() -> None:
    with pytest.raises(Unsupported, match="not on a file system"):
        DeltaLogs().snapshot("s3a://bucket/t")


def test_where_the_values_of_a_column_lie(tmp_path: Path) -> None:
    path, logs = str(tmp_path / "t"), DeltaLogs()
    for start in (0, 100, 200, 300):
        ids = list(range(start, start + 100))
        days = [date(2025, 1, 1) + timedelta(n % 50) for n in ids]
        rows = pa.table({"id": ids, "scattered": [n * 37 % 400 for n in ids], "day": days, "text": ["x"] * 100})
        write_deltalake(path, rows, mode="append")
    by_id, scattered, day = (logs.reach(path, name) for name in ("id", "scattered", "day"))
    assert by_id is not None
    assert scattered is not None
    assert day is not None
    assert (by_id.least, by_id.most) == (0, 399)
    assert 0.2 < by_id.opened < 0.3
    assert scattered.opened > 0.9
    assert day.opened == 1
    assert by_id.covered([(0, 3), (396, 1000)]) == 8 / 400
    assert day.covered([(date(2025, 1, 1), date(2025, 1, 5))]) == 0.1
    assert logs.reach(path, "text") is None
    assert logs.reach(path, "missing") is None
    write_deltalake(
        path, pa.table({"id": [None], "scattered": [1], "day": [None], "text": [None]}, rows.schema), mode="append"
    )
    assert logs.reach(path, "id") is None, "a file without a value has no ends"


def test_files_are_put_together(tmp_path: Path) -> None:
    path, logs = str(tmp_path / "t"), DeltaLogs()
    for number in range(5):
        write_deltalake(path, pa.table({"a": [number]}), mode="append")
    logs.compact(path)
    assert len(list(Path(path).glob("*.parquet"))) == 1
    assert sorted(logs.rows(path, logs.snapshot(path).version).column("a").to_pylist()) == [0, 1, 2, 3, 4]
