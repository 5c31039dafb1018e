"""The control plane's view of Delta tables, through delta-rs: versions, ids, `txn`, history. No JVM, milliseconds.

Data is read and written by Spark, with one exception that was measured (docs/adr/0004): a small, already computed
changeset is committed to a dynamic table's own storage from here, because a Spark append of two rows costs twenty
times as much.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError

from headrace import running
from headrace.errors import Bug, NotFound, Unsupported
from headrace.optimisations import NAMED_FILES
from headrace.storage.commits import Commit, added_bytes, merged_nothing, read_commit, rows_written
from headrace.storage.paths import commit_file, commit_mark, file_path, local_path
from headrace.storage.spread import Reach, Spans, files_outside, reach_of

_MOST_PLAIN_FILES = 500
"""Up to so many paths Spark looks at without a job of its own (storage/spark.py)."""
_RECENT = 4


@dataclass(frozen=True)
class Snapshot:
    """The newest version of a table, as its log says."""

    path: str
    version: int
    table_id: str
    columns: tuple[tuple[str, str], ...]
    """Column names with their types, as the log spells them, and the name in the files where that is another."""
    properties: dict[str, str]

    def digest(self, columns: tuple[str, ...] | None) -> str:
        """A short digest of these columns' names and types (all of them when None)."""
        wanted = None if columns is None else {name.lower() for name in columns}
        kept = sorted((n.lower(), t) for n, t in self.columns if wanted is None or n.lower() in wanted)
        return hashlib.sha256(json.dumps(kept).encode()).hexdigest()[:16]

    @property
    def renames_columns(self) -> bool:
        """Whether a column may have another name in the files: one that is new by name need not be new."""
        return self.properties.get("delta.columnMapping.mode", "none").lower() != "none"

    @property
    def tracks_changes(self) -> bool:
        return self.properties.get("delta.enableChangeDataFeed", "false").lower() == "true"


@dataclass(frozen=True)
class PlainFiles:
    files: tuple[str, ...]
    schema: str
    """As JSON, which Spark and Delta share."""


@dataclass(frozen=True)
class PlainChanges:
    """The files that hold the changes between two versions: rows that came, rows that went, and rows that say in
    `_change_type` which they are."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    schema: str


def _snapshot(path: str, table: DeltaTable) -> Snapshot:
    metadata = table.metadata()
    schema = json.loads(table.schema().to_json())
    columns = tuple((field["name"], _typed(field)) for field in schema["fields"])
    return Snapshot(path, table.version(), str(metadata.id), columns, dict(metadata.configuration))


def _typed(field: dict[str, Any]) -> str:
    """A column's type; a column that was dropped and added again, or renamed, has a name of its own in the files."""
    stored_as = field.get("metadata", {}).get("delta.columnMapping.physicalName", field["name"])
    typed = json.dumps(field["type"])
    return typed if stored_as == field["name"] else f"{typed} AS {stored_as}"


class DeltaLogs:
    """Opened logs, kept and updated: a repeated look at an unchanged table costs two looks at the file system."""

    def __init__(self, off: frozenset[str] = frozenset()) -> None:
        self.off = off
        self._tables: dict[str, tuple[DeltaTable, tuple[int, int, int] | None]] = {}
        self._lock = threading.RLock()
        self._snapshots: dict[str, tuple[DeltaTable, Snapshot]] = {}
        self._recent: dict[str, tuple[DeltaTable, int, list[Commit]]] = {}
        self._effective: dict[str, tuple[int, int]] = {}
        self._statistics: dict[str, tuple[DeltaTable, int, tuple[int, int]]] = {}
        self._reaches: dict[tuple[str, str], tuple[DeltaTable, int, Reach | None]] = {}

    def snapshot(self, path: str) -> Snapshot:
        with self._lock:
            table = self._newest(path)
            seen = self._snapshots.get(path)
            if seen is not None and seen[0] is table and seen[1].version == table.version():
                return seen[1]
            found = _snapshot(path, table)
            self._snapshots[path] = (table, found)
            return found

    def exists(self, path: str) -> bool:
        return DeltaTable.is_deltatable(path)

    def sequence(self, path: str, app_id: str) -> int | None:
        """The last `txn` version of this app id in the newest snapshot."""
        with self._lock:
            version = self._newest(path).transaction_version(app_id)
            return None if version is None else int(version)

    def commits(self, path: str, after: int, upto: int) -> list[Commit] | None:
        """Versions after+1 … upto, oldest first; None when the log no longer has them all."""
        if upto <= after:
            return []
        with self._lock, _understood(path):
            table = self._newest(path)
            entries = table.history(table.version() - after)
        found = [read_commit(path, entry) for entry in entries if after < int(entry["version"]) <= upto]
        found.sort(key=lambda commit: commit.version)
        return found if [commit.version for commit in found] == list(range(after + 1, upto + 1)) else None

    def rows_written(self, path: str, version: int) -> int | None:
        """Those in the files that a version added, as far as its metrics tell; None when the log no longer has it."""
        if "://" in path:
            found = self.commits(path, version - 1, version)
            return found[0].rows_written if found else None
        try:
            text = commit_file(path, version).read_text(encoding="utf-8")
        except OSError:
            return None
        lines = (json.loads(line) for line in text.split("\n") if '"commitInfo"' in line)
        return next((rows_written(line["commitInfo"]) for line in lines if "commitInfo" in line), None)

    def history(self, path: str, limit: int | None = None) -> list[Commit]:
        """The commits that the log still has, newest first."""
        with self._lock, _understood(path):
            return [read_commit(path, entry) for entry in self._newest(path).history(limit)]

    def recent(self, path: str) -> list[Commit]:
        """The newest few commits, newest first: nearly always enough, and kept for the next look."""
        with self._lock, _understood(path):
            table = self._newest(path)
            kept = self._recent.get(path)
            if kept is None or kept[0] is not table or kept[1] != table.version():
                kept = (table, table.version(), [read_commit(path, entry) for entry in table.history(_RECENT)])
                self._recent[path] = kept
            return kept[2]

    def effective(self, path: str) -> int:
        """The newest version that changed any row: what came after it (OPTIMIZE, properties) needs no refresh."""
        newest = self.snapshot(path).version
        kept = self._effective.get(path)
        if kept is not None and kept[0] == newest:
            return kept[1]
        for look in (self.recent, self.history):
            commits = look(path)
            found = next((commit.version for commit in commits if commit.changes != "none"), None)
            if found is not None:
                break
        version = commits[-1].version if found is None else found
        self._effective[path] = (newest, version)
        return version

    def readable(self, path: str, version: int, seen: Callable[[Commit], Commit] | None = None) -> int:
        """The newest version with the same rows: VACUUM may have removed the files of the older ones. `seen` tells what
        a commit means to its readers, where that is not what it says."""
        later = self.commits(path, version, self.snapshot(path).version)
        for commit in later or ():
            if (commit if seen is None else seen(commit)).changes != "none":
                break
            version = commit.version
        return version

    def created(self, path: str) -> datetime.datetime | None:
        """When the table was made, or made anew."""
        with self._lock:
            made = self._newest(path).metadata().created_time
        return None if made is None else datetime.datetime.fromtimestamp(made / 1000, tz=datetime.timezone.utc)

    def statistics(self, path: str) -> tuple[int, int]:
        """(records, bytes) of the newest version, from file statistics."""
        with self._lock:
            table = self._newest(path)
            kept = self._statistics.get(path)
            if kept is not None and kept[0] is table and kept[1] == table.version():
                return kept[2]
            actions = pa.table(table.get_add_actions(flatten=True))
            found = (0, 0)
            if actions.num_rows:
                records = sum(value or 0 for value in actions.column("num_records").to_pylist())
                found = int(records), int(sum(actions.column("size_bytes").to_pylist()))
            self._statistics[path] = (table, table.version(), found)
            return found

    def reach(self, path: str, column: str) -> Reach | None:
        """Where the values of a column lie in the newest version, from file statistics; None where they do not tell."""
        with self._lock:
            table = self._newest(path)
            kept = self._reaches.get((path, column))
            if kept is None or kept[0] is not table or kept[1] != table.version():
                kept = (table, table.version(), reach_of(pa.table(table.get_add_actions(flatten=True)), column))
                self._reaches[path, column] = kept
            return kept[2]

    def snapshot_at(self, path: str, version: int) -> Snapshot:
        """An earlier version; NotFound when the log no longer tells what it was."""
        with self._lock:
            try:
                return _snapshot(path, self._at(path, version))
            except DeltaError as error:
                raise NotFound(
                    f"Version {version} of the table at {path} cannot be read any more.",
                    hint="Its log or files were cleaned up since. A newer version can be read.",
                ) from error

    def plain_files(self, path: str, version: int, within: Spans | None = None) -> PlainFiles | None:
        """The data files of a version, when reading them needs nothing but a Parquet reader: few of them, on this
        machine, and no partitions, deletion vectors, column mapping or other reader features. Else None. `within` says
        of columns which ranges matter: files whose statistics have none of these are left out."""
        with self._lock:  # Another thread may bring the handle of the newest version up to a newer one.
            if not self._is_plain(path, version):
                return None
            table = self._at(path, version)
            files = [unquote(local_path(uri)) for uri in table.file_uris()]
            if within:
                outside = files_outside(path, table, within)
                files = [file for file in files if os.path.normpath(file) not in outside]
            if len(files) > _MOST_PLAIN_FILES:
                return None
            return PlainFiles(tuple(files), table.schema().to_json())

    def _is_plain(self, path: str, version: int) -> bool:
        """On this machine, and without partitions, deletion vectors, column mapping or other reader features."""
        if "://" in path or NAMED_FILES in self.off:
            return False
        with self._lock:
            table = self._at(path, version)
            protocol, partitions = table.protocol(), table.metadata().partition_columns
        return not (protocol.min_reader_version > 1 or protocol.reader_features or partitions)

    def _at(self, path: str, version: int) -> DeltaTable:
        with self._lock:
            newest = self._newest(path)
            return newest if newest.version() == version else DeltaTable(path, version=version)

    def plain_changes(self, path: str, after: int, upto: int) -> PlainChanges | None:
        """The files with the changes of versions after+1 … upto, under the same conditions as `plain_files`. Else None.

        Delta's rule: a commit that has change files is described by them alone; any other by the files it adds and
        removes."""
        if not self._is_plain(path, upto):
            return None
        added, removed, changed = [], [], []
        for version in range(after + 1, upto + 1):
            try:
                text = commit_file(path, version).read_text(encoding="utf-8")
                actions = [json.loads(line) for line in text.split("\n") if line.strip()]
            except (OSError, ValueError):
                return None
            if any("commitInfo" in action and merged_nothing(action["commitInfo"]) for action in actions):
                continue
            if any("metaData" in action or "protocol" in action for action in actions) and version > 0:
                return None
            files = [body for action in actions for kind, body in action.items() if kind in ("add", "remove")]
            if any(body.get("deletionVector") for body in files):
                return None
            change_files = [file_path(path, action["cdc"]) for action in actions if "cdc" in action]
            changed += change_files
            if not change_files:
                counted = [action for action in actions if any(body.get("dataChange") for body in action.values())]
                added += [file_path(path, action["add"]) for action in counted if "add" in action]
                removed += [file_path(path, action["remove"]) for action in counted if "remove" in action]
        if len(added) + len(removed) + len(changed) > _MOST_PLAIN_FILES:
            return None
        schema = self._at(path, upto).schema().to_json()
        return PlainChanges(tuple(added), tuple(removed), tuple(changed), schema)

    def rows(self, path: str, version: int) -> pa.Table:
        """All stored records of a small dynamic table, without Spark."""
        with self._lock:
            table = self._newest(path)
            if table.version() != version:
                raise Bug(f"{path} is at version {table.version()}, not {version}.")
            found = all_rows(table, path)
        running.count({"rows_read": found.num_rows, "bytes_read": self.statistics(path)[1]})
        return found

    def append(self, path: str, rows: pa.Table, app_id: str, sequence: int, metadata: str) -> int:
        """Commit rows to a dynamic table's storage in one version with its `txn` pair; gives the new version."""
        with self._lock:
            table = self._newest(path)
            write_deltalake(
                table,
                rows,
                mode="append",
                commit_properties=CommitProperties(
                    custom_metadata={"userMetadata": metadata},
                    app_transactions=[Transaction(app_id, sequence)],
                    max_commit_retries=0,
                ),
            )
            table.update_incremental()
            version = int(table.version())
        running.count({"rows_written": rows.num_rows, "bytes_written": added_bytes(path, version), "commits": 1})
        return version

    def compact(self, path: str) -> None:
        """Put the files together, and remove those that were. Only for tables of which nobody reads older versions."""
        with self._lock:
            self._newest(path).optimize.compact()
            running.count({"commits": 1})
            self.forget(path)
            self.remove_old_files(path)

    def remove_old_files(self, path: str) -> None:
        """Remove every file that the newest version does not need. Only for tables of which nobody reads older ones."""
        with self._lock:
            self._newest(path).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
            self.forget(path)

    def forget(self, path: str) -> None:
        """Drop the kept handle, after a table was replaced or removed."""
        with self._lock:
            self._tables.pop(path, None)
            self._recent.pop(path, None)
            self._statistics.pop(path, None)

    def _newest(self, path: str) -> DeltaTable:
        kept = self._tables.get(path)
        if kept is not None and kept[1] is not None and commit_mark(path, kept[0].version()) == kept[1]:
            table = kept[0]
            if commit_mark(path, table.version() + 1) is None:
                return table
            try:
                table.update_incremental()
            except (DeltaError, OSError):
                table = self._opened(path)
        else:
            table = self._opened(path)
        self._tables[path] = (table, commit_mark(path, table.version()))
        return table

    def _opened(self, path: str) -> DeltaTable:
        self._tables.pop(path, None)
        self._effective.pop(path, None)
        if "://" in path:
            raise Unsupported(
                f"The table at {path} is not on a file system of this machine.",
                hint="Dynamic tables and streams read tables in folders: INSERT its rows into a table of the lake.",
            )
        try:
            return DeltaTable(path)
        except (TableNotFoundError, OSError) as error:
            raise NotFound(
                f"There is no Delta table at {path}.", hint="It was dropped or moved. SHOW TABLES lists what there is."
            ) from error


@contextmanager
def _understood(path: str) -> Iterator[None]:
    """delta-rs cannot read every log that Delta writes: of a shallow clone, for one."""
    try:
        yield
    except DeltaProtocolError as error:
        raise Unsupported(
            f"The log of the table at {path} cannot be read: {error}",
            hint="If it is a shallow clone, make a table of its own from it: CREATE TABLE … AS SELECT * FROM …",
        ) from error


def all_rows(table: DeltaTable, path: str) -> pa.Table:
    """What the table holds, read by Arrow alone where it can.

    delta-rs has Arrow's threads call Python for each read. A thread that does so while Python ends aborts the whole
    process (issue 34314 of apache/arrow) long after the rows are here: nine of 200 on a busy machine.
    """
    if "://" in path:
        return pa.table(table.to_pyarrow_table())
    local = pyarrow.fs.SubTreeFileSystem(str(Path(path).absolute()), pyarrow.fs.LocalFileSystem())
    return pa.table(table.to_pyarrow_table(filesystem=local))


def require_sequence(found: int | None, expected: int, path: str) -> None:
    """The check after every commit of ours: it carries our pair, or nothing may be trusted."""
    if found != expected:
        raise Bug(f"The commit to {path} carries sequence {found}, not {expected}: it was skipped or lost.")
