"""Every statement we know, as data. Queries and conditions stay text: what they mean is for Spark to say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from headrace.errors import Position

Parts = tuple[str, ...]
RefreshMode = Literal["AUTO", "INCREMENTAL", "FULL"]


@dataclass(frozen=True)
class Statement:
    """`text` is what the user wrote, from the start of the given text, without a final `;`."""

    text: str


# Dynamic tables


class DeclaredColumn(NamedTuple):
    name: str
    comment: str | None


@dataclass(frozen=True)
class CreateDynamicTable(Statement):
    """`start_with` is the timestamp as an SQL expression; `query_offset` is where `query` begins in `text`."""

    name: Parts
    query: str
    query_offset: int
    columns: tuple[DeclaredColumn, ...] = ()
    or_replace: bool = False
    if_not_exists: bool = False
    partitioned_by: tuple[str, ...] = ()
    clustered_by: tuple[str, ...] = ()
    comment: str | None = None
    properties: dict[str, str] = field(default_factory=dict, hash=False)
    start_with: str | None = None
    interval_seconds: int | None = None
    vcluster: str | None = None
    refresh_mode: RefreshMode | None = None
    target_lag: str | None = None


@dataclass(frozen=True)
class RefreshDynamicTables(Statement):
    names: tuple[Parts, ...]
    partition: dict[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Suspend:
    pass


@dataclass(frozen=True)
class Resume:
    pass


@dataclass(frozen=True)
class SetComment:
    comment: str


@dataclass(frozen=True)
class SetProperties:
    properties: dict[str, str] = field(hash=False)


@dataclass(frozen=True)
class UnsetProperties:
    keys: tuple[str, ...]


@dataclass(frozen=True)
class SetInterval:
    seconds: int


@dataclass(frozen=True)
class SetVcluster:
    vcluster: str


@dataclass(frozen=True)
class SetRefreshMode:
    refresh_mode: RefreshMode


@dataclass(frozen=True)
class SetTargetLag:
    target_lag: str


@dataclass(frozen=True)
class RenameColumn:
    old: str
    new: str


@dataclass(frozen=True)
class CommentColumn:
    column: str
    comment: str


@dataclass(frozen=True)
class AddColumn:
    """`type` is the declared type's text, None when the expression's own type is wanted."""

    name: str
    type: str | None
    expression: str


Action = (
    Suspend
    | Resume
    | SetComment
    | SetProperties
    | UnsetProperties
    | SetInterval
    | SetVcluster
    | SetRefreshMode
    | SetTargetLag
    | RenameColumn
    | CommentColumn
    | AddColumn
)


@dataclass(frozen=True)
class AlterDynamicTable(Statement):
    name: Parts
    action: Action


@dataclass(frozen=True)
class DropDynamicTable(Statement):
    name: Parts
    if_exists: bool


@dataclass(frozen=True)
class ExplainRefresh(Statement):
    name: Parts


@dataclass(frozen=True)
class ExplainIncremental(Statement):
    query: str
    query_offset: int


@dataclass(frozen=True)
class VerifyDynamicTable(Statement):
    name: Parts


# SHOW


@dataclass(frozen=True)
class ShowDynamicTables(Statement):
    """`where` is the text of a condition over the printed columns, here and in the other SHOWs."""

    schema: Parts | None = None
    like: str | None = None
    where: str | None = None
    limit: int | None = None


@dataclass(frozen=True)
class ShowRefreshHistory(Statement):
    where: str | None = None
    limit: int | None = None


@dataclass(frozen=True)
class ShowTables(Statement):
    schema: Parts | None = None
    like: str | None = None
    where: str | None = None
    limit: int | None = None


@dataclass(frozen=True)
class ShowCreateTable(Statement):
    name: Parts


@dataclass(frozen=True)
class SelectFromShow(Statement):
    """A query that reads a SHOW. Run the `show`, give its rows a name, and parse `before + name + after` again: a
    second SHOW in the same query comes out the next time."""

    before: str
    show: Statement
    after: str


# Table streams

StreamMode = Literal["STANDARD", "APPEND_ONLY"]


@dataclass(frozen=True)
class CreateStream(Statement):
    """At most one of `version` and `timestamp` is set; `timestamp` is the text of an SQL expression."""

    name: Parts
    table: Parts
    or_replace: bool = False
    if_not_exists: bool = False
    version: int | None = None
    timestamp: str | None = None
    comment: str | None = None
    mode: StreamMode = "STANDARD"
    show_initial_rows: bool = False


@dataclass(frozen=True)
class SetOffset:
    version: int


@dataclass(frozen=True)
class AlterStream(Statement):
    name: Parts
    action: SetOffset | SetComment


@dataclass(frozen=True)
class DropStream(Statement):
    name: Parts
    if_exists: bool


@dataclass(frozen=True)
class DescribeStream(Statement):
    name: Parts


@dataclass(frozen=True)
class ShowStreams(Statement):
    schema: Parts | None = None
    like: str | None = None
    where: str | None = None
    limit: int | None = None


# Tables and schemas


@dataclass(frozen=True)
class DescribeTable(Statement):
    name: Parts
    extended: bool


@dataclass(frozen=True)
class DescribeHistory(Statement):
    name: Parts
    limit: int | None


@dataclass(frozen=True)
class DescribeJob(Statement):
    job_id: str


@dataclass(frozen=True)
class RestoreTable(Statement):
    """One of `version` and `timestamp` is set; `timestamp` is the text of an SQL expression."""

    name: Parts
    version: int | None
    timestamp: str | None


@dataclass(frozen=True)
class Vacuum(Statement):
    """`kind` is LITE, FULL or empty, as Delta has it."""

    name: Parts
    kind: str
    retain_hours: int | None
    dry_run: bool


@dataclass(frozen=True)
class DropTable(Statement):
    """DROP TABLE, or DROP VIEW when `is_view`."""

    name: Parts
    if_exists: bool
    is_view: bool


@dataclass(frozen=True)
class UseSchema(Statement):
    """One part, or two with the workspace first; so too in the other statements about schemas."""

    parts: Parts


@dataclass(frozen=True)
class CreateSchema(Statement):
    parts: Parts
    if_not_exists: bool
    comment: str | None = None


@dataclass(frozen=True)
class DropSchema(Statement):
    parts: Parts
    if_exists: bool
    cascade: bool


# Everything else


@dataclass(frozen=True)
class WriteTarget:
    """A table or view that a statement changes, and where the statement names it."""

    parts: Parts
    position: Position


@dataclass(frozen=True)
class SparkStatement(Statement):
    """For Spark to run. `verb` is its leading keywords in upper case, without OR REPLACE and the like."""

    verb: str
    writes: tuple[WriteTarget, ...] = ()
