"""About tables, schemas and files, and what only Spark knows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from headrace.errors import Position
from headrace.sql.statements.base import Parts, Statement


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


@dataclass(frozen=True)
class DescribeTable(Statement):
    name: Parts
    extended: bool


@dataclass(frozen=True)
class DescribeHistory(Statement):
    name: Parts
    limit: int | None


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


@dataclass(frozen=True)
class CopyInto(Statement):
    """`files` is a path or glob pattern; `options` are those of Spark's reader."""

    name: Parts
    files: str
    file_format: Literal["CSV", "JSON", "PARQUET"] | None
    """None means: as the names of the files say."""
    options: dict[str, str] = field(default_factory=dict, hash=False)
    force: bool = False
    """Load also what was loaded before."""
