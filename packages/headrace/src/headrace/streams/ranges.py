"""What of a stream stands to be read now, and whether it can still be."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from headrace.catalog.records import DynamicTable, StreamRange, TableStream
from headrace.errors import NotFound, StaleStream
from headrace.ivm.layout import layout_of
from headrace.storage.commits import Commit
from headrace.storage.delta import DeltaLogs, Snapshot

_RESHAPING = (
    "ADD COLUMNS", "CHANGE COLUMN", "RENAME COLUMN", "DROP COLUMNS", "REPLACE COLUMNS", "SET TBLPROPERTIES",
    "UNSET TBLPROPERTIES", "UPGRADE PROTOCOL", "RESTORE", "CREATE OR REPLACE TABLE AS SELECT", "REPLACE TABLE",
)  # fmt: skip


@dataclass(frozen=True)
class Waiting:
    """A stream's range up to the newest version, and what its view needs to know."""

    part: StreamRange
    columns: tuple[str, ...]
    shape: tuple[tuple[str, str], ...]
    """The columns with their types: when these change, the view must be made anew."""
    commits: tuple[Commit, ...]
    """Those that changed rows, oldest first."""
    began: int
    """When the version at the offset was committed, in milliseconds; only known while initial rows are waiting."""
    hides_groups: bool = False
    is_dynamic: bool = False
    reshaped: bool = False
    """Whether the table's columns or properties changed in the range: what is there then cannot always be read."""
    first_columns: tuple[str, ...] = ()
    """Those that the initial rows have."""

    @property
    def changed(self) -> bool:
        return bool(self.commits)

    @property
    def surely_has_data(self) -> bool:
        """Only inserts into a plain table tell by themselves; a MERGE or an INSERT OVERWRITE may have changed nothing,
        and what is appended to a dynamic table's storage may be a row that goes."""
        if self.is_dynamic or self.reshaped:
            return False
        return any(commit.changes == "append" and commit.rows for commit in self.commits)


def waiting(logs: DeltaLogs, stream: TableStream, dynamic: DynamicTable | None) -> Waiting:
    """Raises StaleStream when the changes are gone. `dynamic` is the source when it is a dynamic table."""
    if stream.lost is not None:
        raise stale(stream, stream.lost)
    try:
        now = logs.snapshot(stream.source_path)
    except NotFound:
        gone = f"the table {stream.source} was dropped or renamed"
        raise stale(stream, gone, f"When there is a table {stream.source} again, create the stream again:") from None
    if stream.is_dynamic and (dynamic is None or dynamic.storage_path != stream.source_path):
        if dynamic is not None:
            raise stale(stream, f"the dynamic table {stream.source} was replaced")
        gone = f"the dynamic table {stream.source} was dropped"
        raise stale(stream, gone, f"When there is a table {stream.source} again, create the stream again:")
    if now.table_id != stream.source_table_id:
        raise stale(stream, f"the table {stream.source} was dropped and created again")
    if stream.offset > now.version:
        raise stale(stream, f"{stream.source} has only {now.version} versions; the stream stands at {stream.offset}")
    if not now.tracks_changes:
        raise stale(
            stream, f"change tracking of {stream.source} was switched off", "Switch it on again, then recreate it:"
        )
    commits = logs.commits(stream.source_path, stream.offset, now.version)
    if commits is None:
        raise stale(stream, f"the log of {stream.source} no longer has all versions after {stream.offset}")
    shape = now.columns
    columns = tuple(name for name, _ in shape)
    hides_groups = False
    if dynamic is not None:
        shape = tuple((column.name, column.type) for column in dynamic.query.columns)
        columns = tuple(column.name for column in dynamic.query.columns)
        hides_groups = layout_of(dynamic.query).hides_groups
    began = 0
    first_columns: tuple[str, ...] = ()
    if stream.initial:
        first_columns = _first_columns(logs, stream, now)
        first = logs.commits(stream.source_path, stream.offset - 1, stream.offset)
        began = first[0].timestamp if first else 0
    part = StreamRange(stream_id=stream.id, after=stream.offset, upto=now.version, initial=stream.initial)
    changing = tuple(commit for commit in commits if commit.changes != "none")
    reshaped = any(commit.operation in _RESHAPING for commit in commits)
    return Waiting(part, columns, shape, changing, began, hides_groups, stream.is_dynamic, reshaped, first_columns)


def _first_columns(logs: DeltaLogs, stream: TableStream, now: Snapshot) -> tuple[str, ...]:
    """Those of the initial rows. Columns may have come since; one that went or changed may be another by its name."""
    try:
        then = logs.snapshot_at(stream.source_path, stream.offset)
    except NotFound:
        raise stale(stream, f"the log of {stream.source} no longer tells what version {stream.offset} was") from None
    if not set(then.columns) <= set(now.columns):
        raise stale(
            stream, f"a column of {stream.source} was renamed, dropped or given another type before its rows were read"
        )
    return tuple(name for name, _ in then.columns)


def stale(stream: TableStream, why: str, first: str = "Create it again:") -> StaleStream:
    properties = f"'TABLE_STREAM_MODE'='{stream.mode}', 'SHOW_INITIAL_ROWS'='{str(stream.show_initial_rows).upper()}'"
    since = f"{stream.offset_moved_at:%Y-%m-%d %H:%M:%S} UTC"
    return StaleStream(
        f"The table stream {stream.table_name} is stale: {why}. It was last moved at {since}, to version "
        f"{stream.offset}; what changed after that cannot be read through it any more.",
        hint=f"{first} CREATE OR REPLACE TABLE STREAM {stream.table_name} ON TABLE {stream.source} "
        f"WITH PROPERTIES ({properties}). With 'SHOW_INITIAL_ROWS'='TRUE' it begins with the rows that the table has "
        "then.",
    )


def stale_after(logs: DeltaLogs, stream: TableStream, retention_hours: int) -> datetime:
    """When VACUUM could take away the oldest change that has not been read."""
    commits = logs.commits(stream.source_path, stream.offset, logs.snapshot(stream.source_path).version) or []
    changing = [commit for commit in commits if commit.changes != "none"]
    oldest = datetime.fromtimestamp(changing[0].timestamp / 1000, tz=timezone.utc) if changing else None
    return (oldest or datetime.now(timezone.utc)) + timedelta(hours=retention_hours)
