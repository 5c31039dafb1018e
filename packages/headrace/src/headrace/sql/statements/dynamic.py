"""About dynamic tables."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from headrace.sql.statements.base import Parts, Resume, SetComment, SetProperties, Statement, Suspend

RefreshMode = Literal["AUTO", "INCREMENTAL", "FULL"]
TargetLag = int | Literal["DOWNSTREAM"]
"""In seconds."""


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
    target_lag: TargetLag | None = None


@dataclass(frozen=True)
class RefreshDynamicTables(Statement):
    names: tuple[Parts, ...]
    partition: dict[str, str] = field(default_factory=dict, hash=False)
    full: bool = False
    """Whether all rows are to be computed anew."""


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
    target_lag: TargetLag


@dataclass(frozen=True)
class RenameTable:
    name: Parts


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
    | RenameTable
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
