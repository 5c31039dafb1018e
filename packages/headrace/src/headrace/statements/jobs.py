"""SHOW JOBS, DESC JOB, CANCEL JOB and SET query_tag. Who is no administrator sees, and stops, their own jobs only."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from headrace.catalog.jobs import UNFINISHED
from headrace.catalog.records import Job
from headrace.errors import NotFound
from headrace.result import Result, done, from_rows
from headrace.security.own_jobs import is_own, made_at
from headrace.sql import statements as sql
from headrace.sql.tokens import Kind, scan
from headrace.statements.checking import require_vcluster
from headrace.statements.context import Context
from headrace.statements.listing import PAGE, gathered, matches

Fact = tuple[str, str, object]

NEWEST = 10_000
"""So many jobs are shown when no LIMIT says otherwise."""
_TIME = pa.timestamp("us", tz="UTC")
_COLUMNS = [
    ("job_id", pa.string()), ("status", pa.string()), ("creator", pa.string()), ("priority", pa.int64()),
    ("start_time", _TIME), ("end_time", _TIME), ("execution_time", pa.duration("us")), ("vcluster_name", pa.string()),
    ("job_text", pa.string()), ("query_tag", pa.string()),
]  # fmt: skip


def show(context: Context, statement: sql.ShowJobs) -> Result:
    """Newest first; those that have not ended are shown as they are now."""
    if statement.vcluster is not None:
        require_vcluster(context, statement.vcluster)
    now = context.clock()
    limit = NEWEST + 1 if statement.limit is None else statement.limit
    pages = (
        from_rows(_COLUMNS, [_row(job, now) for job in page if matches(job.id, statement.like)])
        for page in _pages(context, statement)
    )
    found = gathered(context, pages, statement.where, limit)
    if statement.limit is not None or len(found) <= NEWEST:
        return found
    return Result(found.to_arrow().slice(0, NEWEST), zone=context.settings.timezone, truncated=True)


def _pages(context: Context, statement: sql.ShowJobs) -> Iterator[list[Job]]:
    """The user's jobs, newest first: those that have not ended, which are in memory, among those that are recorded."""
    creator = None if context.user.is_admin else context.user.name
    live = {
        job.id: job
        for job in (each.job for each in context.compute.jobs())
        if creator in (None, job.creator) and (statement.vcluster or job.vcluster).lower() == job.vcluster
    }
    since = made_at(context.store, context.user)
    waiting = sorted((job for job in live.values() if job.submitted_at >= since), key=_place)
    picks = statement.where is not None or statement.like is not None
    size = PAGE if picks or statement.limit is None else min(PAGE, max(1, statement.limit))
    if not asks_for_live(statement.where):
        for page in context.store.jobs.pages(size, statement.vcluster, creator=creator):
            ended = [job for job in page if job.id not in live and job.submitted_at >= since]
            newer: list[Job] = []
            while waiting and page and _place(waiting[-1]) >= _place(page[-1]):
                newer.append(waiting.pop())
            yield sorted([*ended, *newer], key=_place, reverse=True)
            if page and page[-1].submitted_at < since:
                break
    yield waiting[::-1]


def _place(job: Job) -> tuple[datetime, str]:
    return job.submitted_at, job.id


def asks_for_live(where: str | None) -> bool:
    """Whether only jobs that have not ended can fulfil the condition, as far as its form tells: `status = …` and
    `status IN (…)`. Those are in memory: for whoever asks again and again, a week of records need not be read.

    >>> asks_for_live("status IN ('QUEUED', 'RUNNING')"), asks_for_live("status = 'FAILED'"), asks_for_live(None)
    (True, False, False)
    >>> asks_for_live("status = 'RUNNING' OR creator = 'ann'"), asks_for_live("status = lower('RUNNING')")
    (False, False)
    """
    tokens = [token for token in scan(where or "") if token.text not in ("(", ")", ",")]
    if len(tokens) < 3 or tokens[0].upper != "STATUS" or (tokens[1].upper or tokens[1].text) not in ("=", "IN"):
        return False
    return all(token.kind is Kind.STRING and token.value in UNFINISHED for token in tokens[2:])


def _row(job: Job, now: datetime) -> tuple[Any, ...]:
    return (
        job.id, job.status, job.creator, job.priority, job.submitted_at, job.ended_at, execution_time(job, now),
        job.vcluster, job.text, job.query_tag,
    )  # fmt: skip


def execution_time(job: Job, now: datetime) -> timedelta:
    """From the start of its work to its end, or until now; the time that it waited is not in it."""
    if job.started_at is None:
        return timedelta(0)
    return max(timedelta(0), (job.ended_at or now) - job.started_at)


def cancel(context: Context, statement: sql.CancelJob) -> Result:
    if known(context, statement.job_id) is None:
        raise NotFound(f"There is no job '{statement.job_id}'.", hint="SHOW JOBS lists them.")
    job = context.compute.cancel(statement.job_id, context.user.name)
    return done(f"Job {job.id} is cancelled." if job.done else f"Job {job.id} is being cancelled.")


def set_query_tag(context: Context, statement: sql.SetQueryTag) -> Result:
    context.query_tag = statement.tag or None
    if context.query_tag is None:
        return done("Jobs of this session have no query tag.")
    return done(f"Jobs of this session have the query tag '{context.query_tag}'.")


def known(context: Context, job_id: str) -> Job | None:
    """The job, as it is now. For those who may not know of it there is none."""
    live = context.compute.live(job_id)
    job = live.job if live is not None else context.store.jobs.get(job_id)
    if job is None or not (context.user.is_admin or is_own(context.store, context.user, job)):
        return None
    return job


def facts(context: Context, job: Job) -> list[Fact]:
    """What DESC JOB tells of any job: (section, item, value), without a value where there is none."""
    live = context.compute.live(job.id)
    phases = dict(live.running.phases) if live is not None else job.phases
    waited = (job.started_at or job.ended_at or context.clock()) - job.submitted_at
    return [
        ("job", "statement", job.text),
        ("job", "status", job.status),
        ("job", "creator", job.creator),
        ("job", "vcluster", job.vcluster),
        ("job", "query_tag", job.query_tag),
        ("job", "session", job.session_id),
        ("job", "submitted", _shown(job.submitted_at)),
        ("job", "started", _shown(job.started_at)),
        ("job", "ended", _shown(job.ended_at)),
        ("job", "progress", None if live is None else live.running.text),
        ("job", "error_code", job.error_code),
        ("job", "error", job.error_message),
        ("result", "rows", job.output_rows),
        ("result", "bytes", job.output_bytes),
        ("result", "rows written", job.rows_written or None),
        ("result", "bytes written", job.bytes_written or None),
        ("cost", "seconds waited", round(waited.total_seconds(), 3)),
        ("cost", "seconds", round(execution_time(job, context.clock()).total_seconds(), 3)),
        ("cost", "Spark jobs", job.spark_jobs),
        ("cost", "rows read", job.rows_read),
        ("cost", "bytes read", job.bytes_read),
        *(("phase", name, f"{seconds:.3f} s") for name, seconds in phases.items()),
    ]


def _shown(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(sep=" ", timespec="milliseconds")
