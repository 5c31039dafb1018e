"""How fresh a dynamic table is, from what is known about it: pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from headrace.catalog.records import DynamicTable, Mark, RefreshRecord
from headrace.schedule.status import PendingRun
from headrace.schedule.timing import timing_of_table

FreshnessStatus = Literal["MANUAL", "SUSPENDED", "RUNNING", "WAITING", "FAILED", "SKIPPED", "LATE", "FRESH"]


@dataclass(frozen=True)
class Freshness:
    """One row of SHOW FRESHNESS, but for what the newest refresh itself tells."""

    status: FreshnessStatus
    lag_seconds: float | None
    """As the function of this name tells."""
    target_seconds: int | None
    """A lag above this is LATE. None for a table that nothing promises anything about."""
    next_tick: datetime | None
    job_id: str | None
    """The refresh that runs now."""
    failures: int
    """Scheduled refreshes that failed, in a row."""
    reason: str | None
    """Why it is suspended, waits, failed or was skipped."""
    is_late: bool = False
    """Whether the lag is over the target, or the table was never loaded, also where the status is about something
    else. What is suspended promises nothing."""


def freshness(
    table: DynamicTable,
    last_success: RefreshRecord | None,
    last_record: RefreshRecord | None,
    mark: Mark | None,
    pending: PendingRun | None,
    now: datetime,
    *,
    next_tick: datetime | None = None,
) -> Freshness:
    """`last_success` is the last that took all there was. `next_tick` is what the scheduler says; a table with times of
    its own needs none."""
    timing = timing_of_table(table)
    downstream = table.target_lag == "DOWNSTREAM"
    if next_tick is None and timing is not None and not table.suspended:
        next_tick = timing.after(now)
    lag = lag_seconds(table, last_success, now)
    target = target_seconds(table)
    late = target is not None and not table.suspended and (last_success is None or lag is None or lag > target)
    running = _running_job(last_record, pending)
    status: FreshnessStatus
    reason: str | None = None
    if timing is None and not downstream:
        status = "MANUAL"
    elif table.suspended:
        status, reason = "SUSPENDED", table.suspended_reason
    elif running is not None:
        status = "RUNNING"
    elif pending is not None:
        status, reason = "WAITING", _waits_for(pending)
    elif (failed := _failure(last_success, last_record, mark)) is not None:
        status, reason = "FAILED", failed
    elif mark is not None and mark.state == "SKIPPED" and not _refreshed_since(mark, last_success, last_record):
        status, reason = "SKIPPED", mark.reason
    else:
        status = "LATE" if late else "FRESH"
        reason = last_record.reason if last_record is not None and last_record.waits else None
    failures = 0 if mark is None else mark.failures
    return Freshness(status, lag, target, next_tick, running, failures, reason, late)


def lag_seconds(table: DynamicTable, last_success: RefreshRecord | None, now: datetime) -> float | None:
    """Since the start of the last refresh that took all there was: what came into the sources later is not in the
    table. Before the first one, since the table was there to be refreshed; None while its times have not begun."""
    if last_success is not None:
        since = last_success.start_time
    elif table.start_with is not None and table.start_with > now:
        return None
    else:
        since = max(table.created_at, table.start_with or table.created_at)
    return max(0.0, (now - since).total_seconds())


def target_seconds(table: DynamicTable) -> int | None:
    """The largest lag that is in order: TARGET_LAG, or twice the interval; the smaller where both are given."""
    found = [] if table.interval_seconds is None else [2 * table.interval_seconds]
    if table.target_lag == "DOWNSTREAM":
        return None
    if table.target_lag is not None:
        found.append(table.target_lag)
    return min(found, default=None)


def _running_job(last_record: RefreshRecord | None, pending: PendingRun | None) -> str | None:
    if pending is not None and pending.state == "RUNNING":
        return pending.job_id
    if last_record is not None and last_record.state == "RUNNING":
        return last_record.job_id  # By hand.
    return None


def _waits_for(pending: PendingRun) -> str | None:
    if pending.state == "QUEUED":
        return "It waits for its virtual cluster."
    if not pending.waits_for:
        return None
    return f"It waits for {', '.join(str(name) for name in pending.waits_for)}."


def _failure(last_success: RefreshRecord | None, last_record: RefreshRecord | None, mark: Mark | None) -> str | None:
    """What the newest refresh failed with, by schedule or by hand."""
    if mark is not None and mark.state == "FAILED" and not _refreshed_since(mark, last_success, last_record):
        return mark.reason or "The refresh failed."
    if last_record is not None and last_record.state == "FAILED":
        return last_record.error_message or "The refresh failed."
    return None


def _refreshed_since(mark: Mark, *records: RefreshRecord | None) -> bool:
    """Whether somebody has refreshed the table since; also if that found rows which cannot be taken yet."""
    worked = (each for each in records if each is not None and (each.took_all or each.waits))
    return any(each.state == "SUCCEED" and each.start_time > mark.at for each in worked)
