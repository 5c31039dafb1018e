"""VACUUM: removing files that no version within the retention needs, and no dynamic table downstream."""

from __future__ import annotations

import re
from contextlib import nullcontext

import pyarrow as pa

from headrace.errors import NotAllowed, NotFound
from headrace.names import TableName, quote
from headrace.refresh.retention import need_of
from headrace.result import Result, from_frame, from_rows
from headrace.sql import statements as sql
from headrace.statements.context import Context
from headrace.statements.elsewhere import alone

_VACUUM = [("path", pa.string()), ("retain_hours", pa.int64()), ("held_back_by", pa.string())]
_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"
_RETENTION = "delta.deletedFileRetentionDuration"
_INTERVAL = re.compile(r"interval (\d+) (day|hour|week)s?", re.IGNORECASE)
_HOURS = {"hour": 1, "day": 24, "week": 168}


def vacuum(context: Context, statement: sql.Vacuum) -> Result:
    name = context.resolve(statement.name)
    path = _path(context, name)
    hours = statement.retain_hours
    if hours is None:
        hours = retention_hours(context, path)
    _refuse_too_short(context, path, hours)
    need = need_of(context.store, context.logs, path, context.clock())
    held_by = None
    if need is not None and need.hours > hours:
        hours, held_by = need.hours, need.name
        context.progress.tell(f"{name}: files of the last {hours} hours are kept, because {held_by} needs them.")
    kind = f" {statement.kind}" if statement.kind else ""
    dry_run = " DRY RUN" if statement.dry_run else ""
    # Unsaid, it is the table's own retention, in whatever form that is written.
    retain = f" RETAIN {hours} HOURS" if statement.retain_hours is not None or held_by is not None else ""
    table = context.store.table(name)
    with alone(context, table) if table is not None else nullcontext():
        found = context.spark.sql(f"VACUUM delta.{quote(path)}{kind}{retain}{dry_run}")
    if statement.dry_run:
        return from_frame(found, context.settings.timezone)
    return from_rows(_VACUUM, [(path, hours, held_by)])


def _refuse_too_short(context: Context, path: str, hours: int) -> None:
    """Files that are younger than the retention may belong to a commit that is being written."""
    least = retention_hours(context, path)
    checked = str(context.spark.conf.get(_CHECK, "true")).lower() == "true"
    if hours < least and checked:
        raise NotAllowed(
            f"RETAIN {hours} HOURS is less than the table's retention of {least} hours: files of writes that are still "
            "running could go.",
            hint=f"Keep {least} hours; or, when nobody writes to the table, SET {_CHECK} = false first.",
        )


def _path(context: Context, name: TableName) -> str:
    """Where the files are: those of a dynamic table in its storage."""
    table = context.store.table(name)
    if table is not None:
        return table.storage_path
    located = context.locate(name.database(context.home), name.table)
    if located is None:
        raise NotFound(f"There is no Delta table {name}.", hint="SHOW TABLES lists what there is.")
    return located.source.path


def retention_hours(context: Context, path: str) -> int:
    """The table's own retention."""
    found = _INTERVAL.fullmatch(context.logs.snapshot(path).properties.get(_RETENTION, ""))
    if found is None:
        return context.settings.data_retention_days * 24
    return int(found.group(1)) * _HOURS[found.group(2).lower()]
