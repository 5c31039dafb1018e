"""What the operations database remembers, as frozen records."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from headrace.names import TableName
from headrace.plan.nodes import Frozen
from headrace.plan.query import Query

RefreshMode = Literal["AUTO", "INCREMENTAL", "FULL"]
State = Literal["SETUP", "RESUMING_CLUSTER", "QUEUED", "RUNNING", "SUCCEED", "FAILED"]
Trigger = Literal["MANUAL", "SYSTEM_SCHEDULED"]


class SourceVersion(Frozen):
    """One source in a frontier: which table (by Delta's own id, not by name) at which version, with which columns."""

    path: str
    table_id: str
    version: int
    schema_digest: str
    """Digest of the columns that the query reads, with their types."""


class Frontier(Frozen):
    """The version of every source that a table's contents were computed from."""

    sources: tuple[SourceVersion, ...]
    lineage: dict[str, int] = Field(default_factory=dict)
    """Every table upstream at any depth, as `path#table id`, with the version that is contained in these contents."""
    date: str | None = None
    """The day that current_date stood for, when the query uses it."""

    def version_of(self, path: str) -> int | None:
        return next((source.version for source in self.sources if source.path == path), None)


class DynamicTable(Frozen):
    """A definition with its settings. `generation` grows when the definition's meaning changes."""

    id: str
    workspace: str
    schema_name: str
    name: str
    query: Query
    storage_path: str
    database: str = "public"
    """The Spark database that was current at CREATE: names in the query with one part are found there."""
    comment: str | None = None
    column_comments: dict[str, str] = Field(default_factory=dict)
    properties: dict[str, str] = Field(default_factory=dict)
    partitioned_by: tuple[str, ...] = ()
    clustered_by: tuple[str, ...] = ()
    interval_seconds: int | None = None
    start_with: datetime | None = None
    vcluster: str = "default"
    refresh_mode: RefreshMode = "AUTO"
    suspended: bool = False
    suspended_reason: str | None = None
    creator: str = ""
    created_at: datetime
    modified_at: datetime
    generation: int = 1
    stale_reason: str | None = None
    """Set when the contents must be rebuilt at the next refresh, with the reason (after RESTORE, for example)."""

    @property
    def table_name(self) -> TableName:
        return TableName(self.workspace, self.schema_name, self.name)


class Intent(Frozen):
    """Written before a refresh commits: sequence number and both frontiers."""

    table_id: str
    sequence: int
    job_id: str
    old: Frontier | None
    new: Frontier
    settled: bool = False


class TableStream(Frozen):
    """A cursor in the changes of one table."""

    id: str
    workspace: str
    schema_name: str
    name: str
    source: TableName
    source_path: str
    source_table_id: str
    """Delta's own id: a table dropped and created again under the same name has another one."""
    is_dynamic: bool
    mode: Literal["STANDARD", "APPEND_ONLY"] = "STANDARD"
    show_initial_rows: bool = False
    offset: int
    """Everything up to this version has been read."""
    initial: bool = False
    """The rows of the table at `offset` are still to be read, as inserts."""
    last_reading: int = 0
    """The number of the last read that moved the offset."""
    lost: str | None = None
    """Why the offset cannot be trusted any more."""
    offset_moved_at: datetime
    comment: str | None = None
    creator: str = ""
    created_at: datetime

    @property
    def table_name(self) -> TableName:
        return TableName(self.workspace, self.schema_name, self.name)


class StreamRange(Frozen):
    """What a statement reads of one stream: the changes of versions `after`+1 … `upto`."""

    stream_id: str
    after: int
    upto: int
    initial: bool = False


class Reading(Frozen):
    """A statement that reads streams and writes a table: written down before it runs, done when the offsets moved.

    The target's commit carries its `id`: so a crash on either side of it leaves no doubt.
    """

    id: int
    ranges: tuple[StreamRange, ...]
    target: str
    """As people name it."""
    target_path: str | None
    """None while the statement that creates the target has not ended."""
    target_before: int | None = None
    """The target's version before the statement."""
    target_database: str = ""
    target_table: str = ""
    target_version: int | None = None
    """Of the commit, once done; None when there was nothing to write."""
    began_at: datetime
    done: bool = False


class StepProfile(Frozen):
    """One operator of the plan in one refresh."""

    depth: int
    kind: str
    """The operator's own name, which is that of its rule."""
    operator: str
    detail: str
    rows_in: int | None = None
    rows_out: int | None = None
    """Rows of the changesets that went in and came out, where they were counted."""
    state_rows: int | None = None
    """Groups or keys that are kept for it."""
    rule: str = ""


class InputProfile(Frozen):
    """One source in one refresh: how much of it changed, and how much there is."""

    name: str
    changed_rows: int | None
    changed_bytes: int | None
    """Estimated: the changed rows times the source's average row."""
    rows: int
    size: int
    rows_read: int | None = None
    bytes_opened: int | None = None
    """Rows that came out of its files, also more than once, and the size of the files that were opened for them."""


class Profile(Frozen):
    """What a refresh took and what it worked on."""

    sequence: int | None = None
    generation: int | None = None
    """That of the table's query."""
    recovered: bool = False
    """Its commit was found in the table after a crash; nothing else is known about it."""
    seconds: float | None = None
    commits: int | None = None
    spark_jobs: int | None = None
    bytes_read: int | None = None
    rows_read: int | None = None
    change_rows: int | None = None
    change_bytes: int | None = None
    insert_only: bool | None = None
    """Whether no row went or changed; None where that was not written down."""
    source_rows: int = 0
    estimated_incremental_seconds: float | None = None
    estimated_full_seconds: float | None = None
    full_by_choice: bool = False
    state_rows: int | None = None
    state_bytes: int | None = None
    inputs: tuple[InputProfile, ...] = ()
    steps: tuple[StepProfile, ...] = ()


class RefreshRecord(Frozen):
    """One row of the refresh history."""

    job_id: str
    table_id: str
    workspace: str
    schema_name: str
    name: str
    vcluster: str
    start_time: datetime
    end_time: datetime | None = None
    state: State
    trigger: Trigger
    suspended_reason: str | None = None
    refresh_mode: Literal["NO_DATA", "INCREMENTAL", "FULL"] | None = None
    error_message: str | None = None
    source_tables: tuple[TableName, ...] = ()
    rows_inserted: int | None = None
    rows_deleted: int | None = None
    completion_target: datetime | None = None
    technique: str | None = None
    reason: str | None = None
    profile: Profile = Profile()
