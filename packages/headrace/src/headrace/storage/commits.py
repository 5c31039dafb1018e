"""What the commits of a Delta log mean to those who read its changes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from headrace.storage.paths import commit_file, commit_mark

ChangeKind = Literal["none", "append", "mixed"]

_APPENDING = {"COPY INTO", "CREATE TABLE AS SELECT"}
_QUIET_OPERATIONS = {
    "OPTIMIZE", "CREATE TABLE", "SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "ADD COLUMNS", "CHANGE COLUMN",
    "ADD CONSTRAINT", "DROP CONSTRAINT", "VACUUM START", "VACUUM END", "REORG", "UPGRADE PROTOCOL", "CLUSTER BY",
    "ANALYZE", "CREATE OR REPLACE TABLE", "REPLACE TABLE", "DROP FEATURE",
}  # fmt: skip
_REPLACING = {"CREATE OR REPLACE TABLE", "REPLACE TABLE"}


@dataclass(frozen=True)
class Commit:
    """One version of a table: what was done, and what that means for a reader of changes."""

    version: int
    timestamp: int
    """In milliseconds, as Delta's time travel and change feed have it."""
    operation: str
    changes: ChangeKind
    rows: int | None
    """Rows that the commit touched, as far as its metrics tell."""
    user_metadata: str | None
    restored: int | str | None = None
    """Of a RESTORE, the version, or else the time, that it went back to."""
    rows_written: int | None = None
    """Those in the files that it added."""


def read_commit(path: str, entry: dict[str, Any]) -> Commit:
    metrics = {str(k): v for k, v in (entry.get("operationMetrics") or {}).items()}
    changes = kind_of(str(entry.get("operation")), entry.get("operationParameters") or {}, metrics)
    return Commit(
        version=int(entry["version"]),
        timestamp=_committed_at(path, entry),
        operation=str(entry.get("operation")),
        changes=changes,
        rows=None if changes == "mixed" and _drops_files(metrics) else _rows(metrics),
        user_metadata=entry.get("userMetadata"),
        restored=_restored(entry),
        rows_written=rows_written(entry),
    )


def rows_written(entry: dict[str, Any]) -> int | None:
    rows = (entry.get("operationMetrics") or {}).get("numOutputRows")
    return None if rows is None else int(rows)


def _restored(entry: dict[str, Any]) -> int | str | None:
    if entry.get("operation") != "RESTORE":
        return None
    parameters = entry.get("operationParameters") or {}
    version = parameters.get("version")
    return int(version) if version not in (None, "", "null") else str(parameters.get("timestamp"))


def kind_of(operation: str, parameters: dict[str, Any], metrics: dict[str, Any]) -> ChangeKind:
    """Whether a commit changes nothing, only adds rows, or may also remove some. When in doubt: mixed."""
    mode = str(parameters.get("mode", "")).strip('"').lower()
    if (operation == "WRITE" and mode in {"append", "errorifexists"}) or operation in _APPENDING:
        return "none" if _rows(metrics) == 0 else "append"
    if operation == "STREAMING UPDATE" and str(parameters.get("outputMode", "")).strip('"').lower() == "append":
        return "append"
    if operation in _QUIET_OPERATIONS and operation not in _REPLACING:
        return "none"
    if operation == "MERGE" and merged_nothing({"operation": operation, "operationMetrics": metrics}):
        return "none"
    if operation == "MERGE":
        touched = [metrics.get("numTargetRowsUpdated"), metrics.get("numTargetRowsDeleted")]
        if all(value is not None and int(value) == 0 for value in touched):
            return "append"
    return "mixed"


def merged_nothing(commit: dict[str, Any]) -> bool:
    """Whether a commit is a MERGE that only wrote rows anew as they were: Delta's change feed leaves it out, too."""
    metrics = commit.get("operationMetrics") or {}
    counts = [metrics.get(f"numTargetRows{what}") for what in ("Inserted", "Updated", "Deleted")]
    return commit.get("operation") == "MERGE" and all(count is not None and int(count) == 0 for count in counts)


def _drops_files(metrics: dict[str, Any]) -> bool:
    """Whether a commit lets go of files with an unknown number of rows: an overwrite counts only what it wrote."""
    counted = ("numDeletedRows", "numUpdatedRows", "numTargetRowsDeleted")
    return not any(key in metrics for key in counted) and metrics.get("numRemovedFiles") not in (None, "0", 0)


def _rows(metrics: dict[str, Any]) -> int | None:
    total = 0
    known = False
    for key in (
        "numOutputRows", "num_added_rows", "numDeletedRows", "numUpdatedRows",
        "numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted",
    ):  # fmt: skip
        if metrics.get(key) is not None:
            total += int(metrics[key])
            known = True
    return total if known else None


def _committed_at(path: str, entry: dict[str, Any]) -> int:
    """Delta goes by the time of the commit's file, which is a little later than what is written in it, unless the
    table has the time in its commits."""
    if "inCommitTimestamp" in entry:
        return int(entry["inCommitTimestamp"])
    mark = commit_mark(path, int(entry["version"]))
    return int(entry.get("timestamp") or 0) if mark is None else mark[1] // 1_000_000


def added_bytes(path: str, version: int) -> int:
    """Of the files that a commit brought; 0 where its file is not there to be read."""
    try:
        text = commit_file(path, version).read_text(encoding="utf-8")
        actions = [json.loads(line) for line in text.split("\n") if line.strip()]
    except (OSError, ValueError):
        return 0
    return sum(int(action["add"].get("size", 0)) for action in actions if "add" in action)
