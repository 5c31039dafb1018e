"""About table streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headrace.sql.statements.base import Parts, SetComment, Statement

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
    read_by: str | None = None
    """A query; blanks stand before it, so that its positions are those of the whole statement."""


@dataclass(frozen=True)
class SetMoveStreams(Statement):
    """SET move_streams = false, and back (= true, or RESET move_streams)."""

    moves: bool
