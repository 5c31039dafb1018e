"""Counting the failures of a dynamic table or task anew, for statements: the scheduler's count, where there is one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace import running
from headrace.catalog.records import DynamicTable, Mark, Task
from headrace.errors import Cancelled, EnvironmentFault, HeadraceError, RefreshRunning, TooBusy
from headrace.schedule.recounting import refreshed, resumed
from headrace.statements.context import Context

_log = logging.getLogger(__name__)


def resume(context: Context, one: DynamicTable | Task) -> None:
    """It has as many tries again as a new one; a table whose last refresh failed has the first of them at once."""
    _recount(context, one, lambda mark: resumed(mark, at_once=isinstance(one, DynamicTable)))


def note_success(context: Context, table: DynamicTable) -> None:
    """Somebody has refreshed the table: what failed before does not count any more, and who runs after it may have to.
    The refresh itself is done, and does not fail for want of this."""
    try:
        if context.scheduler is None:
            _recount(context, table, refreshed)
        else:
            job = running.current()
            context.scheduler.refreshed(table.id, None if job is None else job.id)
    except EnvironmentFault as fault:
        _log.warning("The failures of %s are not counted anew yet: %s", table.table_name, fault.message)


@contextmanager
def noting_failure(context: Context, table: DynamicTable) -> Iterator[None]:
    """Tell the scheduler when a refresh that somebody asked for fails, as another one who keeps the times may: whoever
    watches the table hears of it. One that was stopped, or found another at work, did not fail."""
    try:
        yield
    except (Cancelled, RefreshRunning, TooBusy):
        raise
    except HeadraceError as error:
        if context.scheduler is not None:
            job = running.current()
            context.scheduler.failed_by_hand(table.id, error, None if job is None else job.id)
        raise


def _recount(context: Context, one: DynamicTable | Task, change: Callable[[Mark], Mark]) -> None:
    if context.scheduler is not None:
        context.scheduler.recount(one.id, change)
        return
    for mark in context.store.marks.all():
        if mark.object_id == one.id and change(mark) != mark:
            context.store.marks.reset([change(mark)])
