"""Executed statements in the operations database: the rows of SHOW JOBS."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, get_args

from sqlalchemy import delete, select, update

from headrace.catalog.database import Database
from headrace.catalog.models import JobRow, is_storable, moment, utc
from headrace.catalog.paging import newest_first
from headrace.catalog.records import Job, JobStatus
from headrace.errors import Bug

FINISHED: tuple[JobStatus, ...] = ("SUCCEED", "FAILED", "CANCELLED")
UNFINISHED: tuple[JobStatus, ...] = tuple(status for status in get_args(JobStatus) if status not in FINISHED)


class JobStore:
    """Each method is one transaction. Times come back in UTC."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._add = database.insert(JobRow).on_conflict_do_nothing().returning(JobRow.id)

    def add(self, job: Job) -> None:
        """Write the record of a new job, finished or not."""
        values = _values(job)
        added = self._database.write(lambda connection: connection.execute(self._add, values).scalar())
        if added is None:
            raise Bug(f"The job {job.id} was recorded twice.")

    def update(self, job: Job) -> bool:
        """Replace the record of an unfinished job. One that has ended is left as it is: the first end stands, and what
        a thread reports after that is too late. False then, and for a job that is not recorded."""
        values = _values(job)
        change = update(JobRow).where(JobRow.id == values.pop("id"), JobRow.status.in_(UNFINISHED)).values(**values)
        return self._database.write(lambda connection: connection.execute(change).rowcount == 1)

    def get(self, job_id: str) -> Job | None:
        if not is_storable(job_id):
            return None
        return next(iter(self._jobs(select(JobRow.payload).where(JobRow.id == job_id))), None)

    def recent(self, limit: int | None = None, vcluster: str | None = None, *, creator: str | None = None) -> list[Job]:
        """Newest first, by the time of submission."""
        wanted = _wanted(vcluster, creator).order_by(JobRow.submitted_at.desc(), JobRow.id.desc())
        return self._jobs(wanted if limit is None else wanted.limit(limit))

    def pages(self, size: int, vcluster: str | None = None, *, creator: str | None = None) -> Iterator[list[Job]]:
        """All of them, newest first, so many at a time."""
        columns = (JobRow.submitted_at, JobRow.id)
        wanted = _wanted(vcluster, creator)
        return newest_first(wanted, columns, self._jobs, lambda job: (job.submitted_at, job.id), size)

    def unfinished(self) -> list[Job]:
        """Oldest first: after a crash, those that nobody will end any more."""
        wanted = select(JobRow.payload).where(JobRow.status.in_(UNFINISHED))
        return self._jobs(wanted.order_by(JobRow.submitted_at, JobRow.id))

    def prune(self, before: datetime) -> int:
        """Delete finished jobs that were submitted before this time; returns how many."""
        old = delete(JobRow).where(JobRow.submitted_at < moment(before), JobRow.status.in_(FINISHED))
        return self._database.write(lambda connection: connection.execute(old).rowcount)

    def _jobs(self, wanted: Any) -> list[Job]:
        rows = self._database.read(lambda connection: connection.execute(wanted).scalars().all())
        return [Job.model_validate_json(row) for row in rows]


def _wanted(vcluster: str | None, creator: str | None) -> Any:
    wanted = select(JobRow.payload)
    if vcluster is not None:
        wanted = wanted.where(JobRow.vcluster == vcluster.lower())
    return wanted if creator is None else wanted.where(JobRow.creator == creator)


def _values(job: Job) -> dict[str, Any]:
    job = utc(job)
    return {
        "id": job.id,
        "vcluster": job.vcluster.lower(),
        "creator": job.creator,
        "submitted_at": job.submitted_at,
        "status": job.status,
        "payload": job.model_dump_json(),
    }
