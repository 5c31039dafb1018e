"""EXECUTE TASK: a run by hand, now or as if it were another time, and backfills."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Literal

import pyarrow as pa
from pyspark.errors import PySparkException

from headrace.catalog.records import Task, TaskRun, TaskTrigger
from headrace.catalog.tasks import NOT_BEGUN
from headrace.errors import BadSetting, NotAllowed, UserError
from headrace.result import Result, from_rows
from headrace.schedule import attempts
from headrace.schedule.here import Here
from headrace.schedule.items import items_of
from headrace.schedule.live import new_run
from headrace.schedule.looking import MOST_RUNS
from headrace.schedule.timing import EPOCH, timing_of_task
from headrace.sql import statements as sql
from headrace.statements.context import Context
from headrace.statements.permitting import viewer
from headrace.statements.tasks import require_may_change, require_may_start, required
from headrace.storage.errors import short_message

Trigger = Literal["MANUAL", "BACKFILL"]

_RUNS = [
    ("schema_name", pa.string()), ("name", pa.string()), ("scheduled_time", pa.timestamp("us", tz="UTC")),
    ("trigger", pa.string()), ("state", pa.string()), ("error_message", pa.string()),
]  # fmt: skip


def execute(context: Context, statement: sql.ExecuteTask) -> Result:
    """Have it run now, whether it is suspended or not: by the scheduler where there is one, else here, to its end."""
    task = required(context, statement.name)
    if statement.cancel:
        return _rows(context, _cancelled(context, task))
    ticks = _ticks(context, task, statement)
    trigger: Trigger = "MANUAL" if statement.start is None else "BACKFILL"
    if statement.preview:
        return _rows(context, _preview(context, task, ticks, trigger), state="PREVIEW")
    require_may_start(context, task)
    if context.scheduler is not None:
        return _rows(context, context.scheduler.execute(task, ticks, trigger))
    here = Here(context.store, context.clock, context.task_work(context.guarded))
    return _rows(context, here.execute(task, ticks, trigger))


def _cancelled(context: Context, task: Task) -> list[TaskRun]:
    """End what was asked for by hand and waits. What runs goes on: CANCEL JOB is for that."""
    require_may_change(context, task)
    reason = f"It was cancelled by {context.user.name}."
    if context.scheduler is not None:
        return context.scheduler.cancel(task, reason)
    # Left by a server: it finds them ended when it is started again.
    runs, now = context.store.task_runs, context.clock()
    waiting = [
        run
        for run in runs.unfinished()
        if run.task_id == task.id and run.trigger in ("MANUAL", "BACKFILL") and run.state in NOT_BEGUN
    ]
    ended = [attempts.not_run(run, "CANCELLED", reason, now) for run in waiting]
    return [run for run in ended if runs.update(run)]


def _ticks(context: Context, task: Task, statement: sql.ExecuteTask) -> list[datetime]:
    now = context.clock()
    if statement.start is None or statement.end is None:
        at = now if statement.at is None else _moment(context, statement.at)
        if at > now and context.scheduler is None:
            raise BadSetting(
                f"{_shown(at)} has not come yet, and nothing runs by itself in a lake that a program opens.",
                hint="On a server it waits for its time.",
            )
        return [at]
    timing = timing_of_task(task)
    if timing is None:
        raise NotAllowed(
            f"{task.table_name} has no times of its own, so there are none to go through.",
            hint=f"Write EXECUTE TASK {task.table_name} AT a timestamp.",
        )
    start, end = _moment(context, statement.start), _moment(context, statement.end)
    if start >= end:
        raise BadSetting(
            f"FROM is {_shown(start)}, which is not before TO, {_shown(end)}.", hint="TO is the later one."
        )
    ticks = [tick for tick in timing.between(start, end, MOST_RUNS + 1) if tick <= now]
    if len(ticks) > MOST_RUNS:
        raise BadSetting(
            f"These are more than {MOST_RUNS} runs.", hint=f"Go up to {_shown(ticks[-1])} first: TO is not included."
        )
    if not ticks:
        raise BadSetting(
            f"{task.table_name} has no time from {_shown(start)} until {_shown(end)} that has come.",
            hint="DESC TASK tells its schedule. FROM is included, TO is not.",
        )
    return ticks


def _moment(context: Context, text: str) -> datetime:
    try:
        found = context.spark.sql(f"SELECT unix_micros(CAST({text} AS TIMESTAMP))").first()
    except PySparkException as error:
        raise UserError(f"This is no timestamp: {short_message(error)}", hint="Write TIMESTAMP '…'.") from error
    if found is None or found[0] is None:
        raise UserError(f"{text} is no timestamp.", hint="Write TIMESTAMP '2025-01-31 09:00:00'.")
    try:
        return EPOCH + timedelta(microseconds=found[0])
    except OverflowError:
        raise UserError(
            f"{text} is beyond the years 1 to 9999.", hint="Write TIMESTAMP '2025-01-31 09:00:00'."
        ) from None


def _preview(context: Context, task: Task, ticks: list[datetime], trigger: Trigger) -> list[TaskRun]:
    """The runs that there would be, those of the tasks that follow a run by hand among them."""
    why: dict[str, TaskTrigger] = {task.id: trigger}
    items = items_of(context.store.tables(), context.store.tasks.all())
    if trigger == "MANUAL":
        for item in items.values():  # Upstream first.
            if item.follows and not item.suspended and item.problem is None and item.upstream & why.keys():
                why.setdefault(item.id, "AFTER")
    now, sees = context.clock(), viewer(context)
    seen = [each for each in why if each == task.id or sees(items[each].name)]
    return [new_run(items[each], tick, why[each], now) for tick in ticks for each in seen]


def _rows(context: Context, runs: list[TaskRun], *, state: str | None = None) -> Result:
    """As they are; or, where there are none yet, with another word for their state."""
    rows = [(run.schema_name, run.name, run.tick, run.trigger, state or run.state, run.error_message) for run in runs]
    return from_rows(_RUNS, rows, context.settings.timezone)


def _shown(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).isoformat(sep=" ", timespec="seconds")
