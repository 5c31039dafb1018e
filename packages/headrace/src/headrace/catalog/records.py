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

WAITING = "Waiting: "
"""How the reason of a refresh begins that left newer rows where they are: the tables upstream do not agree on them."""
ASKED_FOR = "All rows were asked for."
"""Why the contents are stale when the definition is the old one: REFRESH … FULL."""
SKIPPED = "SKIPPED"
"""The technique of a scheduled refresh that was not made."""


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
    target_lag: int | Literal["DOWNSTREAM"] | None = None
    """In seconds; DOWNSTREAM means that it is refreshed before the tables that read it are."""
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

    def with_changes(self, old: DynamicTable, new: DynamicTable) -> DynamicTable:
        """This one, with what differs between the other two: settings that were altered meanwhile stay."""
        differing = [name for name in DynamicTable.model_fields if getattr(old, name) != getattr(new, name)]
        return self.model_copy(update={name: getattr(new, name) for name in differing})


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
    read_into: str | None = None
    """The table that this read wrote, or "a program"; None before it, and after the offset was set."""
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
    """To the table itself, not to its state tables and ordered copies."""
    spark_jobs: int | None = None
    bytes_read: int | None = None
    rows_read: int | None = None
    bytes_written: int | None = None
    rows_written: int | None = None
    """Into its storage and its state tables, tombstones included."""
    change_rows: int | None = None
    change_bytes: int | None = None
    insert_only: bool | None = None
    """Whether no row went or changed; None where that was not written down."""
    source_rows: int = 0
    estimated_incremental_seconds: float | None = None
    estimated_full_seconds: float | None = None
    full_by_choice: bool = False
    abandoned: bool = False
    """Begun incrementally, and then computed whole, because the changes could not be computed."""
    made_states: bool = False
    """Whether state tables had to be made first: the next refreshes find them there."""
    state_rows: int | None = None
    state_bytes: int | None = None
    inputs: tuple[InputProfile, ...] = ()
    steps: tuple[StepProfile, ...] = ()


class Occasion(Frozen):
    """What made a refresh happen."""

    trigger: Trigger = "MANUAL"
    tick: datetime | None = None
    """The scheduled time that it stands for."""
    completion_target: datetime | None = None
    """When the next scheduled refresh is due: the end should lie before it."""


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
    tick: datetime | None = None
    technique: str | None = None
    reason: str | None = None
    profile: Profile = Profile()

    @property
    def waits(self) -> bool:
        """Whether it left newer rows where they are, until the tables upstream agree on them."""
        return self.reason is not None and self.reason.startswith(WAITING)

    @property
    def took_all(self) -> bool:
        """Whether the table was equal to its query over all that its sources had when this began. How far it is behind
        is counted from such a refresh only."""
        return self.state == "SUCCEED" and self.technique != SKIPPED and not self.waits

    @classmethod
    def begun(
        cls, table: DynamicTable, occasion: Occasion, *, job_id: str, at: datetime, state: State = "RUNNING"
    ) -> RefreshRecord:
        """The record of a refresh that begins."""
        return cls(
            job_id=job_id,
            table_id=table.id,
            workspace=table.workspace,
            schema_name=table.schema_name,
            name=table.name,
            vcluster=table.vcluster,
            start_time=at,
            state=state,
            trigger=occasion.trigger,
            suspended_reason=table.suspended_reason,
            source_tables=tuple(TableName(s.workspace, s.schema_name, s.table) for s in table.query.sources),
            completion_target=occasion.completion_target,
            tick=occasion.tick,
        )


VClusterType = Literal["GENERAL", "ANALYTICS", "INTEGRATION"]
Role = Literal["admin", "operator", "developer", "analyst"]
Privilege = Literal["SELECT", "ALL"]
JobStatus = Literal["SETUP", "RESUMING_CLUSTER", "QUEUED", "RUNNING", "SUCCEED", "FAILED", "CANCELLED"]


class VCluster(Frozen):
    """A named share of compute. Names are in lower case."""

    name: str
    type: VClusterType = "GENERAL"
    size: int = 1
    """The weight of its pool: with 2 it gets twice the cores of one with 1 while both want them."""
    max_concurrency: int = 8
    auto_suspend_seconds: int = 600
    """0 means never."""
    auto_resume: bool = True
    runtime_limit_seconds: int = 0
    """0 means none."""
    suspended: bool = False
    properties: dict[str, str] = Field(default_factory=dict)
    comment: str | None = None
    creator: str = ""
    created_at: datetime

    @property
    def spark_master(self) -> str | None:
        """A Spark master of its own; None when it shares the lake's."""
        return self.properties.get("spark.master")


class Job(Frozen):
    """One executed statement."""

    id: str
    status: JobStatus
    creator: str
    text: str
    """Passwords in it are masked."""
    vcluster: str
    priority: int = 0
    query_tag: str | None = None
    session_id: str | None = None
    owner: str = ""
    """The process that runs it: one that is gone has left its jobs unfinished."""
    submitted_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error_code: str | None = None
    error_message: str | None = None
    output_rows: int | None = None
    output_bytes: int | None = None
    spark_jobs: int | None = None
    rows_read: int | None = None
    bytes_read: int | None = None
    rows_written: int | None = None
    bytes_written: int | None = None
    phases: dict[str, float] = Field(default_factory=dict)


class User(Frozen):
    """Somebody who may log in. Names are in lower case."""

    name: str
    role: Role
    password_hash: str = Field(repr=False)
    creator: str = ""
    created_at: datetime
    last_login: datetime | None = None


class Grant(Frozen):
    """What a user may do with a schema (`workspace.schema`) or a table (`workspace.schema.table`), in lower case."""

    user: str
    kind: Literal["SCHEMA", "TABLE"]
    object: str
    privilege: Privilege
    granted_by: str = ""
    granted_at: datetime


class ApiToken(Frozen):
    """A token that a user made for programs. Only its digest is kept."""

    id: str
    user: str
    name: str
    digest: str = Field(repr=False)
    role: Role | None = None
    """What it may do at most; None means all that its user may."""
    created_at: datetime
    expires_at: datetime | None = None
    last_used: datetime | None = None


class AuditEntry(Frozen):
    """One line of the audit log."""

    at: datetime
    user: str
    address: str | None = None
    action: str
    """LOGIN, LOGIN_FAILED, STATEMENT, REFUSED, …"""
    detail: str


MarkState = Literal["CLAIMED", "SUCCEED", "FAILED", "SKIPPED"]


class Mark(Frozen):
    """How far the schedule of one dynamic table or task has come. A tick is claimed by moving the mark to it."""

    object_id: str
    tick: datetime
    """The newest tick that was claimed."""
    state: MarkState
    failures: int = 0
    """Scheduled runs that failed, in a row."""
    held_up: bool = False
    """Whether the last one failed for want of what all runs need: told as a failure, and not counted as one."""
    error: str | None = None
    error_code: str | None = None
    """Of the last of these."""
    merged: int = 0
    """How many ticks before this one were late and are done with it."""
    reason: str | None = None
    """Why it failed or was skipped."""
    skipped_for: str | None = None
    """Why a table is skipped, in short, as its history has it: at each tick the same is told only once."""
    job_id: str | None = None
    at: datetime
    """When this was written."""


TaskKind = Literal["SQL", "PYTHON", "SHELL"]
TaskTrigger = Literal["SCHEDULE", "AFTER", "MANUAL", "BACKFILL"]
RunState = Literal["WAITING", "QUEUED", "RUNNING", "SUCCEED", "FAILED", "SKIPPED", "CANCELLED"]


_BY = "Suspended by "


def suspended_by(user: str) -> str:
    """The reason of a table or task that somebody suspends."""
    return f"{_BY}{user}."


def is_by_hand(reason: str | None) -> bool:
    """Whether this is why somebody suspended it; nothing else suspends with such words."""
    return reason is not None and reason.startswith(_BY)


class Task(Frozen):
    """A statement, a Python file or a command that runs at its times, or after others."""

    id: str
    workspace: str
    schema_name: str
    name: str
    kind: TaskKind = "SQL"
    body: str
    """One or more statements, the path of a Python file, or a command line."""
    database: str = "public"
    """The Spark database that was current at CREATE: the statements begin there."""
    interval_seconds: int | None = None
    cron: str | None = None
    zone: str | None = None
    """The time zone of `cron`."""
    after: tuple[TableName, ...] = ()
    """Tasks and dynamic tables whose runs are waited for. Without times of its own, it runs after each of theirs."""
    vcluster: str = "default"
    timeout_seconds: int = 0
    """0 means none."""
    retries: int = 0
    """How often a failed run is tried again."""
    suspended: bool = False
    suspended_reason: str | None = None
    comment: str | None = None
    creator: str = ""
    role: Role | None = None
    """What its creator could when it was made: it never runs with more. None means all that the creator may."""
    by_owner: bool = False
    """Whether it was made by somebody who opened the lake's own files, and so runs without limits. The creator is no
    user of the server then."""
    created_at: datetime
    modified_at: datetime
    times_from: datetime | None = None
    """Ticks before this are not its own: it was suspended, or had other times. None means since it was created."""

    @property
    def table_name(self) -> TableName:
        return TableName(self.workspace, self.schema_name, self.name)


class TaskRun(Frozen):
    """One row of the task history: one task at one tick."""

    id: str
    task_id: str
    workspace: str
    schema_name: str
    name: str
    tick: datetime
    """The time that it stands for: in a backfill, long past."""
    trigger: TaskTrigger
    state: RunState
    attempt: int = 1
    merged: int = 0
    job_id: str | None = None
    in_process: bool = False
    """Whether who asked for it runs it and waits: in a lake without a scheduler. Then it ends with that process."""
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error_code: str | None = None
    error_message: str | None = None
    reason: str | None = None
    """Why it was skipped."""
    output: str | None = None
    """The end of what a command or a Python file printed, or what the last statement said."""


AlertEvent = Literal["FAILURE", "TIMEOUT", "LAG", "SUSPENSION"]


class Alert(Frozen):
    """Whom to tell of what. Names are in lower case."""

    name: str
    events: tuple[AlertEvent, ...]
    lag_seconds: int | None = None
    """The threshold of LAG."""
    kind: Literal["ALL", "TABLE", "TASK"] = "ALL"
    object: TableName | None = None
    """The dynamic table or task; None for all that the creator may read."""
    notify: tuple[str, ...]
    """`https://…` and `mailto:…`, encrypted (`alerts.sealing`): they may hold secrets."""
    suspended: bool = False
    comment: str | None = None
    creator: str = ""
    created_at: datetime


class Incident(Frozen):
    """An alert's event on one object, from its first sight until all is well again."""

    id: str
    alert: str
    event: AlertEvent
    object_id: str
    object_name: str
    opened_at: datetime
    closed_at: datetime | None = None
    closed_reason: str | None = None
    """Why it is over, as a sentence."""
    message: str
    advice: str | None = None
    """Where to look further, and what will happen else."""
    told: tuple[str, ...] = ()
    """Marks of those of `notify` that have the first message; they tell no secrets."""
    recovery_told: tuple[str, ...] = ()
    attempts: int = 0
    error: str | None = None
    """Why somebody could not be told, at the last try."""


LoadState = Literal["RECEIVED", "COMMITTED"]


class Load(Frozen):
    """Rows on their way into a table: a batch that a client sent, or a file that COPY INTO reads, exactly once."""

    id: str
    table_path: str
    """Where the table's Delta log is."""
    table_id: str
    """Delta's own id."""
    workspace: str
    schema_name: str
    name: str
    kind: Literal["BATCH", "FILE"]
    key: str
    """The client's batch id, or the file with its size and time: unique for the table and kind."""
    digest: str | None = None
    """Of what the client sent, or of the file's contents; records of earlier versions have none."""
    state: LoadState
    sequence: int | None = None
    """Of the commit that holds its rows, in the table's `txn`; written before that commit."""
    rows: int
    rejected: int = 0
    bytes: int = 0
    creator: str = ""
    received_at: datetime
    committed_at: datetime | None = None
    version: int | None = None
    """The table's version that holds the rows."""

    @property
    def path(self) -> str:
        """Of the file, as its key has it."""
        return path_in(self.key)


def path_in(key: str) -> str:
    """The path of the file that has this key."""
    return key.split(" ", 3)[-1]
