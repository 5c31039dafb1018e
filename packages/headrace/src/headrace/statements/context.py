"""What every statement works with: Spark, the operations database, the logs, and how names are resolved."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from headrace.catalog.records import DynamicTable, TableStream
from headrace.catalog.store import Store
from headrace.collecting import Limit
from headrace.compute.clusters import Compute
from headrace.compute.workers import Workers
from headrace.errors import NotAllowed, NotFound, Position
from headrace.ivm.layout import layout_of
from headrace.loading.loader import Loader
from headrace.names import TableName, check_parts, quote, resolve, spark_database, split_database
from headrace.plan.catalyst import Located
from headrace.plan.jvm import Jvm, cloned
from headrace.plan.query import OutputColumn, Source
from headrace.progress import Progress
from headrace.refresh.runner import Runner
from headrace.schedule.scheduler import Scheduler
from headrace.schedule.work import Work
from headrace.security.roles import Principal
from headrace.settings import Settings
from headrace.storage.delta import DeltaLogs
from headrace.storage.paths import local_path
from headrace.storage.spark import SUBSTITUTE
from headrace.streams.reading import Streams

DECIDE_MEANING = (
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.decimalOperations.allowPrecisionLoss",
    "spark.sql.mapKeyDedupPolicy",
    SUBSTITUTE,
)


@dataclass
class Context:
    """One session of an open lake. Sessions share all but Spark's session, which holds the current schema, settings
    and temporary views."""

    spark: SparkSession
    store: Store
    logs: DeltaLogs
    settings: Settings
    progress: Progress
    clock: Callable[[], datetime]
    meaning: Mapping[str, str] = field(default_factory=dict)
    """The Spark settings that decide what a query means, as they were when the lake was opened."""
    runner: Runner = None  # type: ignore[assignment]
    """Set right after: the runner needs this context to read a query again. So is what follows."""
    compute: Compute = None  # type: ignore[assignment]
    workers: Workers | None = None
    loads: Loader = None  # type: ignore[assignment]
    find_scheduler: Callable[[], Scheduler | None] = lambda: None
    task_work: Callable[[bool], Work] = None  # type: ignore[assignment]
    """Who runs tasks for one who waits for them, where there is no scheduler; their statements guarded or not."""
    user: Principal = field(default_factory=lambda: Principal("", "admin", unlimited=True))
    """In whose name statements run."""
    guarded: bool = False
    """Whether statements that reach beyond the lake are refused, as a server does."""
    vcluster: str = "default"
    query_tag: str | None = None
    session_id: str | None = None
    result_limit: Limit | None = None
    """How much of a query's rows a client is given; an embedded lake gives all."""
    reads_hidden: bool = False
    """Whether a DataFrame of this session reads, through a view, tables that its user may not read."""
    access_changed: Callable[[str], None] = lambda _: None
    behind: set[str] = field(default_factory=set)
    """Tables, by id, whose definition beside the data is older than that in the operations database."""

    def __post_init__(self) -> None:
        traces = self.settings.path / "streams"
        self.streams = Streams(self.spark, self.store, self.logs, self.home, self.clock, traces)

    def new_session(self) -> Context:
        """Another session of the same lake, which begins as this one is now."""
        other = copy.copy(self)
        other.spark = cloned(self.spark)
        other.streams = self.streams.in_session(other.spark)
        return other

    def for_user(self, user: Principal) -> Context:
        """This session in another user's name, to look at what that one may see."""
        other = copy.copy(self)
        other.user = user
        return other

    @contextmanager
    def own_meaning(self) -> Iterator[None]:
        """Dynamic tables mean the same in every session, whatever it has SET. Queries are read in this session, and
        refreshed in the lake's own."""
        before: list[tuple[SparkSession, str, str]] = []
        for session in {id(each): each for each in (self.spark, self.runner.spark)}.values():
            for key, value in self.meaning.items():
                present = str(session.conf.get(key))
                if present != value:
                    before.append((session, key, present))
                    session.conf.set(key, value)
        try:
            yield
        finally:
            for session, key, present in before:
                session.conf.set(key, present)

    @property
    def scheduler(self) -> Scheduler | None:
        """The lake's, now; None where nothing runs by itself."""
        return self.find_scheduler()

    @property
    def home(self) -> str:
        return self.settings.workspace

    def workspaces(self) -> tuple[str, ...]:
        return (self.home, *(name for name in self.store.workspaces() if name.lower() != self.home.lower()))

    def require_workspace(self, named: tuple[str, ...]) -> None:
        """Raise when a workspace is named that is not there."""
        for workspace in named:
            if workspace.lower() not in {name.lower() for name in self.workspaces()}:
                raise no_workspace(workspace)

    def current(self) -> tuple[str, str]:
        """The current workspace and schema."""
        return split_database(self.spark.catalog.currentDatabase(), self.home, self.workspaces())

    def resolve(self, parts: tuple[str, ...]) -> TableName:
        """A full name. Two parts are schema.table, as in Spark."""
        workspace, schema = self.current() if len(parts) == 1 else (self.home, "")
        return resolve(check_parts(parts), workspace=workspace, schema=schema)

    def database(self, parts: tuple[str, ...] | None) -> tuple[str, str, str]:
        """(workspace, schema, Spark database) of a one- or two-part schema name, or of the current schema."""
        if parts is None:
            workspace, schema = self.current()
        else:
            workspace, schema = parts if len(parts) == 2 else (self.home, parts[-1])
        return workspace, schema, spark_database(workspace, schema, self.home)

    def require_database(self, parts: tuple[str, ...] | None) -> tuple[str, str, str]:
        workspace, schema, database = self.database(parts)
        if not self.spark.catalog.databaseExists(database):
            raise NotFound(
                f"There is no schema {workspace}.{schema}.", hint=f"Create it: CREATE SCHEMA {'.'.join(parts or ())}"
            )
        return workspace, schema, database

    def name_of(self, database: str, table: str) -> TableName:
        workspace, schema = split_database(database, self.home, self.workspaces())
        return TableName(workspace.lower(), schema.lower(), table.lower())

    def dynamic(self, parts: tuple[str, ...]) -> DynamicTable | None:
        return self.store.table(self.resolve(parts))

    def require_dynamic(self, parts: tuple[str, ...]) -> DynamicTable:
        """The dynamic table of this name, or an error that tells what the name is instead."""
        name = self.resolve(parts)
        table = self.store.table(name)
        if table is not None:
            return table
        if self.exists(name):
            raise NotFound(f"{name} is not a dynamic table.", hint="SHOW DYNAMIC TABLES lists them.")
        raise NotFound(f"There is no dynamic table {name}.", hint="SHOW DYNAMIC TABLES lists them.")

    def stream(self, parts: tuple[str, ...]) -> TableStream | None:
        return self.store.streams.named(self.resolve(parts))

    def require_stream(self, parts: tuple[str, ...]) -> TableStream:
        stream = self.stream(parts)
        if stream is None:
            raise NotFound(f"There is no table stream {self.resolve(parts)}.", hint="SHOW TABLE STREAMS lists them.")
        return stream

    def is_temporary(self, name: str) -> bool:
        """Whether this session has a temporary view of this name."""
        return bool(Jvm(self.spark).state.catalog().getTempView(name).isDefined())

    def is_temporary_name(self, parts: tuple[str, ...]) -> bool:
        """Whether a name in a statement means one: it has one part, and goes before a table of the current schema."""
        return len(parts) == 1 and self.is_temporary(parts[0])

    def exists(self, name: TableName) -> bool:
        """Whether Spark's catalog has a table or view of this name."""
        try:
            return bool(self.spark.catalog.tableExists(name.spark(self.home)))
        except AnalysisException:
            return False

    def locate(self, database: str, table: str) -> Located | None:
        """What a name in Spark's catalog is, for the reader of queries: a Delta table, a dynamic table, or None."""
        name = self.name_of(database, table)
        dynamic = self.store.table(name)
        if dynamic is not None:
            return Located(dynamic_source(dynamic))
        if self.store.streams.named(name) is not None:
            raise NotAllowed(
                f"{name} is a table stream: what it shows depends on what has been read, so it is no source here.",
                hint="Name the table that the stream reads.",
            )
        try:
            detail = self.spark.sql(f"DESCRIBE DETAIL {quote(database)}.{quote(table)}").first()
        except AnalysisException:
            return None
        if detail is None or detail["format"] != "delta":
            return None
        return Located(
            Source(
                workspace=name.workspace,
                schema_name=name.schema,
                table=name.table,
                path=local_path(detail["location"]),
                kind="table",
                columns=tuple(
                    OutputColumn(name=own, type=kind)
                    for own, kind in self.logs.snapshot(local_path(detail["location"])).columns
                ),
            )
        )

    def database_of(self, workspace: str, schema: str) -> str | None:
        known = {name.lower() for name in self.workspaces()}
        return spark_database(workspace, schema, self.home) if workspace.lower() in known else None


def no_workspace(name: str, position: Position | None = None) -> NotFound:
    return NotFound(
        f"There is no workspace {name}.",
        hint="SHOW SCHEMAS lists what there is. An administrator makes one with its first schema: "
        f"CREATE SCHEMA {name}.s.",
        position=position,
    )


def dynamic_source(table: DynamicTable) -> Source:
    return Source(
        workspace=table.workspace,
        schema_name=table.schema_name,
        table=table.name,
        path=table.storage_path,
        kind="dynamic",
        columns=tuple(OutputColumn(name=column.name, type=column.type) for column in table.query.columns),
        hides_groups=layout_of(table.query).hides_groups,
        cut=table.query.cut,
    )
