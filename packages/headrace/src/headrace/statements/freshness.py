"""SHOW FRESHNESS: how far each dynamic table is behind, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from headrace.catalog.records import DynamicTable, Mark, RefreshRecord
from headrace.catalog.store import Store
from headrace.result import Result, from_rows
from headrace.schedule.freshness import freshness
from headrace.schedule.status import Status
from headrace.sql import statements as sql
from headrace.statements.context import Context
from headrace.statements.listing import matches, narrowed
from headrace.statements.permitting import viewer

_TEXT = pa.string()
_NUMBER = pa.int64()
_TIME = pa.timestamp("us", tz="UTC")

_COLUMNS = [
    ("schema_name", _TEXT), ("name", _TEXT), ("status", _TEXT), ("lag_second", _NUMBER), ("target_second", _NUMBER),
    ("last_refresh", _TIME), ("last_mode", _TEXT), ("rows_inserted", _NUMBER), ("rows_deleted", _NUMBER),
    ("last_duration", pa.duration("us")), ("next_refresh", _TIME), ("running_job", _TEXT), ("failures", _NUMBER),
    ("reason", _TEXT), ("is_late", pa.bool_()),
]  # fmt: skip


@dataclass(frozen=True)
class _Known:
    """What is known of all tables, by their ids: read once for a whole list."""

    newest: Mapping[str, RefreshRecord]
    successes: Mapping[str, RefreshRecord]
    """The newest of each that took all there was."""
    marks: Mapping[str, Mark]
    status: Status | None
    """Of the schedule; None where nothing is refreshed by itself."""
    now: datetime


def show(context: Context, statement: sql.ShowFreshness) -> Result:
    """By name. Asks the operations database and the scheduler only: a condition is Spark's to evaluate, without a
    job."""
    wanted = context.require_database(statement.schema)[2] if statement.schema is not None else None
    sees = viewer(context)
    tables = [
        table
        for table in context.store.tables()
        if wanted in (None, table.table_name.database(context.home))
        and matches(table.name, statement.like)
        and sees(table.table_name)
    ]
    # The status before the records: what ends between the two looks is shown as ended, never as lost.
    status = None if context.scheduler is None else context.scheduler.status()
    known = _known(context.store, status, context.clock()) if tables else None
    rows = [_row(table, known) for table in tables if known is not None]
    return narrowed(context, from_rows(_COLUMNS, rows, context.settings.timezone), statement.where, statement.limit)


def _known(store: Store, status: Status | None, now: datetime) -> _Known:
    newest = store.latest_refreshes()
    successes = {each: record for each, record in newest.items() if record.took_all}
    if len(successes) < len(newest):
        successes = store.latest_refreshes(took_all=True)
    return _Known(newest, successes, {mark.object_id: mark for mark in store.marks.all()}, status, now)


def _row(table: DynamicTable, known: _Known) -> tuple[Any, ...]:
    status, success = known.status, known.successes.get(table.id)
    found = freshness(
        table,
        success,
        known.newest.get(table.id),
        known.marks.get(table.id),
        None if status is None else status.run_of(table.id),
        known.now,
        next_tick=None if status is None else status.next_ticks.get(table.id),
    )
    took = None if success is None or success.end_time is None else success.end_time - success.start_time
    return (
        table.schema_name, table.name, found.status, None if found.lag_seconds is None else int(found.lag_seconds),
        found.target_seconds, None if success is None else success.end_time,
        None if success is None else success.refresh_mode, None if success is None else success.rows_inserted,
        None if success is None else success.rows_deleted, took, None if status is None else found.next_tick,
        found.job_id, found.failures, found.reason, found.is_late,
    )  # fmt: skip
