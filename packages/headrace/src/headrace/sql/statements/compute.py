"""About virtual clusters and jobs."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.sql.statements.base import Resume, SetComment, SetProperties, Statement


@dataclass(frozen=True)
class DescribeJob(Statement):
    job_id: str


@dataclass(frozen=True)
class CreateVcluster(Statement):
    """`options` are the given ones, checked, under the names of the record's fields (`type`, `size`, …)."""

    name: str
    if_not_exists: bool = False
    options: dict[str, str | int | bool] = field(default_factory=dict, hash=False)
    properties: dict[str, str] = field(default_factory=dict, hash=False)
    comment: str | None = None


@dataclass(frozen=True)
class SuspendVcluster:
    force: bool


@dataclass(frozen=True)
class SetVclusterOptions:
    options: dict[str, str | int | bool] = field(hash=False)


@dataclass(frozen=True)
class AlterVcluster(Statement):
    """`Resume`, SUSPEND [FORCE], SET k = v, SET PROPERTIES (…) or SET COMMENT."""

    name: str
    action: Resume | SuspendVcluster | SetVclusterOptions | SetProperties | SetComment


@dataclass(frozen=True)
class DropVcluster(Statement):
    name: str
    if_exists: bool


@dataclass(frozen=True)
class UseVcluster(Statement):
    name: str


@dataclass(frozen=True)
class DescribeVcluster(Statement):
    name: str


@dataclass(frozen=True)
class ShowVclusters(Statement):
    like: str | None = None
    where: str | None = None
    limit: int | None = None


@dataclass(frozen=True)
class ShowJobs(Statement):
    vcluster: str | None = None
    like: str | None = None
    where: str | None = None
    limit: int | None = None


@dataclass(frozen=True)
class CancelJob(Statement):
    job_id: str


@dataclass(frozen=True)
class SetQueryTag(Statement):
    """SET query_tag = 'x'; None takes it away (RESET query_tag, or an empty text)."""

    tag: str | None
