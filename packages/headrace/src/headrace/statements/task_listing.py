"""DESC TASK, SHOW TASKS and SHOW TASK HISTORY."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from headrace.catalog.records import Task, TaskRun
from headrace.names import TableName
from headrace.result import Result, from_rows
from headrace.schedule.timing import timing_of_task
from headrace.sql import statements as sql
from headrace.statements.context import Context
from headrace.statements.listing import matches, narrowed
from headrace.statements.permitting import viewer
from headrace.statements.tasks import required, schedule_text

_TEXT = pa.string()
_TIME = pa.timestamp("us", tz="UTC")
_TASKS = [
    ("schema_name", _TEXT), ("name", _TEXT), ("kind", _TEXT), ("schedule", _TEXT), ("after", _TEXT),
    ("vcluster", _TEXT), ("state", _TEXT), ("suspended_reason", _TEXT), ("timeout_second", pa.int64()),
    ("retry", pa.int64()), ("problem", _TEXT), ("next_run", _TIME), ("last_run", _TIME), ("last_state", _TEXT),
    ("last_job", _TEXT), ("last_error", _TEXT), ("creator", _TEXT), ("created_time", _TIME), ("comment", _TEXT),
]  # fmt: skip
_HISTORY = [
    ("schema_name", _TEXT), ("name", _TEXT), ("scheduled_time", _TIME), ("start_time", _TIME), ("end_time", _TIME),
    ("duration", _TEXT), ("state", _TEXT), ("trigger", _TEXT), ("attempt", pa.int64()), ("job_id", _TEXT),
    ("error_message", _TEXT), ("reason", _TEXT), ("merged", pa.int64()), ("output", _TEXT),
]  # fmt: skip
_RUN = "__hr_run"
WHOLE_OUTPUTS = 100
"""Lists of so many runs show all that is kept of their outputs."""


def show(context: Context, statement: sql.ShowTasks) -> Result:
    wanted = context.require_database(statement.schema)[2] if statement.schema is not None else None
    sees = viewer(context)
    latest = context.store.task_runs.latest()
    rows = [
        _row(context, task, latest.get(task.id))
        for task in context.store.tasks.all()
        if (wanted is None or task.table_name.database(context.home) == wanted)
        and matches(task.name, statement.like)
        and sees(task.table_name)
    ]
    return narrowed(context, from_rows(_TASKS, rows, context.settings.timezone), statement.where, statement.limit)


def _row(context: Context, task: Task, last: TaskRun | None) -> tuple[Any, ...]:
    return (
        task.schema_name, task.name, task.kind, schedule_text(task), _after(task), task.vcluster, _state(task),
        task.suspended_reason, task.timeout_seconds or None, task.retries, _problem(context, task),
        _next_run(context, task), *_last(last), task.creator, task.created_at, task.comment,
    )  # fmt: skip


def _last(run: TaskRun | None) -> tuple[Any, ...]:
    return (None,) * 4 if run is None else (run.tick, run.state, run.job_id, run.error_message or run.reason)


def describe(context: Context, statement: sql.DescribeTask) -> Result:
    task = required(context, statement.name)
    last = next(iter(context.store.task_runs.recent(1, task.id)), None)
    zone = ZoneInfo(context.settings.timezone)

    def time(moment: datetime | None) -> str:
        return "" if moment is None else f"{moment.astimezone(zone):%Y-%m-%d %H:%M:%S}"

    lines: list[tuple[str, Any]] = [
        ("workspace", task.workspace),
        ("schema", task.schema_name),
        ("name", task.name),
        ("kind", task.kind),
        ("body", task.body),
        ("schedule", schedule_text(task) or ""),
        ("after", _after(task) or ""),
        ("vcluster", task.vcluster),
        ("timeout_second", task.timeout_seconds or ""),
        ("retry", task.retries),
        ("state", _state(task)),
        ("suspended_reason", task.suspended_reason or ""),
        ("problem", _problem(context, task) or ""),
        ("next_run", time(_next_run(context, task))),
        ("last_run", time(None if last is None else last.tick)),
        ("last_state", "" if last is None else last.state),
        ("last_error", "" if last is None else last.error_message or last.reason or ""),
        ("begins_in", context.name_of(task.database, "").schema),
        ("creator", task.creator),
        ("created_time", time(task.created_at)),
        ("last_modified_time", time(task.modified_at)),
        ("comment", task.comment or ""),
    ]
    return from_rows([("property", _TEXT), ("value", _TEXT)], [(key, str(value)) for key, value in lines])


def show_history(context: Context, statement: sql.ShowTaskHistory) -> Result:
    """By the times that the runs stand for, the newest first."""
    limit = statement.limit if statement.where is None and context.user.is_admin else None
    sees = viewer(context)
    runs = context.store.task_runs.recent(limit)
    seen = [(*_history_row(run), run.id) for run in runs if sees(TableName(run.workspace, run.schema_name, run.name))]
    found = from_rows([*_HISTORY, (_RUN, _TEXT)], seen, context.settings.timezone)
    return _with_outputs(context, narrowed(context, found, statement.where, statement.limit))


def _with_outputs(context: Context, found: Result) -> Result:
    """Of many runs the ends of their outputs are enough: all of them could be gigabytes."""
    table = found.to_arrow()
    ids = table.column(_RUN).to_pylist()
    table = table.drop_columns([_RUN])
    if len(ids) <= WHOLE_OUTPUTS:
        whole = context.store.task_runs.outputs(ids)
        outputs = pa.array([whole.get(each) for each in ids], type=_TEXT)
        table = table.set_column(table.column_names.index("output"), "output", outputs)
    return Result(table, zone=context.settings.timezone)


def _history_row(run: TaskRun) -> tuple[Any, ...]:
    return (
        run.schema_name, run.name, run.tick, run.started_at, run.ended_at, _duration(run), run.state, run.trigger,
        run.attempt, run.job_id, run.error_message, run.reason, run.merged, run.output,
    )  # fmt: skip


def _duration(run: TaskRun) -> str | None:
    """As in the history of refreshes: `0 00:00:00.327000000`."""
    if run.started_at is None or run.ended_at is None:
        return None
    took = run.ended_at - run.started_at
    hours, rest = divmod(took.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{took.days} {hours:02d}:{minutes:02d}:{seconds:02d}.{took.microseconds:06d}000"


def _after(task: Task) -> str | None:
    return ", ".join(map(str, task.after)) or None


def _state(task: Task) -> str:
    return "SUSPENDED" if task.suspended else "STARTED"


def _next_run(context: Context, task: Task) -> datetime | None:
    """None where nothing runs by itself."""
    if context.scheduler is None or task.suspended or _problem(context, task):
        return None
    known = context.scheduler.status().next_ticks.get(task.id)
    timing = timing_of_task(task)
    if known is not None or timing is None:
        return known
    return timing.after(context.clock())  # The scheduler has not seen it yet.


def _problem(context: Context, task: Task) -> str | None:
    """Why it is always skipped."""
    return None if context.scheduler is None else context.scheduler.status().problems.get(task.id)
