"""About tasks, freshness and alerts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from headrace.sql.statements.base import Parts, Resume, Statement, Suspend


@dataclass(frozen=True)
class CreateTask(Statement):
    """`body` begins at `body_offset` in `text`. `cron` comes with its `zone`; both and the interval exclude each
    other."""

    name: Parts
    kind: Literal["SQL", "PYTHON", "SHELL"]
    body: str
    body_offset: int
    or_replace: bool = False
    if_not_exists: bool = False
    interval_seconds: int | None = None
    cron: str | None = None
    zone: str | None = None
    after: tuple[Parts, ...] = ()
    vcluster: str | None = None
    timeout_seconds: int | None = None
    retries: int | None = None
    comment: str | None = None


@dataclass(frozen=True)
class SetTaskOptions:
    """Those that ALTER TASK … SET names, under the names that CreateTask has for them."""

    options: dict[str, object] = field(hash=False)


@dataclass(frozen=True)
class AlterTask(Statement):
    name: Parts
    action: Suspend | Resume | SetTaskOptions


@dataclass(frozen=True)
class DropTask(Statement):
    name: Parts
    if_exists: bool


@dataclass(frozen=True)
class ExecuteTask(Statement):
    """Now; or as if it were `at`; or at each of its times from `start` until `end`. All are timestamps as SQL
    expressions. A preview only tells what would run. With `cancel` nothing runs: what was asked for before, and still
    waits, is ended."""

    name: Parts
    at: str | None = None
    start: str | None = None
    end: str | None = None
    preview: bool = False
    cancel: bool = False


@dataclass(frozen=True)
class DescribeTask(Statement):
    name: Parts


@dataclass(frozen=True)
class ShowTasks(Statement):
    schema: Parts | None = None
    like: str | None = None
    where: str | None = None
    limit: int | None = None


@dataclass(frozen=True)
class ShowTaskHistory(Statement):
    where: str | None = None
    limit: int | None = None


@dataclass(frozen=True)
class ShowFreshness(Statement):
    schema: Parts | None = None
    like: str | None = None
    where: str | None = None
    limit: int | None = None


@dataclass(frozen=True)
class CreateAlert(Statement):
    """`kind` says whether it is about one dynamic table or task, called `object`, or about all."""

    name: str
    events: tuple[Literal["FAILURE", "TIMEOUT", "LAG", "SUSPENSION"], ...]
    notify: tuple[str, ...]
    lag_seconds: int | None = None
    kind: Literal["ALL", "TABLE", "TASK"] = "ALL"
    object: Parts | None = None
    comment: str | None = None
    or_replace: bool = False


@dataclass(frozen=True)
class AlterAlert(Statement):
    name: str
    action: Suspend | Resume


@dataclass(frozen=True)
class DropAlert(Statement):
    name: str
    if_exists: bool


@dataclass(frozen=True)
class ShowAlerts(Statement):
    like: str | None = None
    where: str | None = None
    limit: int | None = None


@dataclass(frozen=True)
class ShowAlertHistory(Statement):
    where: str | None = None
    limit: int | None = None
