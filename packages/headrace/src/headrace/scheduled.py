"""What a lake does when the time of a dynamic table or a task has come: the scheduler's hands.

A refresh without anything to do is no job: the logs are looked at in the scheduler's own thread, and all such refreshes
of a tick are recorded together. Everything else is a job of a virtual cluster, in the name of whoever made the table or
task.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING

from headrace import running
from headrace.catalog.records import DynamicTable, Mark, Occasion, RefreshRecord, Task, TaskRun
from headrace.compute.jobs import LiveJob
from headrace.errors import Cancelled, Forbidden, HeadraceError
from headrace.lake_session import told
from headrace.names import quote
from headrace.result import Result, done
from headrace.running import require_wanted
from headrace.schedule.adopting import BY_CLOCK
from headrace.schedule.live import ByHandEnd
from headrace.security import masked_sql
from headrace.security.roles import Principal, lesser
from headrace.sql import statements as sql
from headrace.sql.parser import parse
from headrace.sql.scheduled_time import with_scheduled_time
from headrace.sql.split import split_statements
from headrace.statements import dispatch, permitting
from headrace.statements.context import Context
from headrace.statements.storing import keep_beside
from headrace.tasks.code import run_code

if TYPE_CHECKING:
    from headrace.engine import Lake

Access = Callable[[Principal], AbstractContextManager[Mapping[str, str]]]

_FIRST_WORDS = 6
_LONGEST_BEGINNING = 80
_log = logging.getLogger(__name__)


class ScheduledWork:
    """Refreshes tables and runs tasks of one lake."""

    def __init__(
        self,
        lake: Lake,
        *,
        guarded: bool,
        queued: bool = True,
        ended: Callable[[str, Mark], None] = lambda object_id, mark: None,
        ended_by_hand: Callable[[str, ByHandEnd], None] = lambda object_id, end: None,
    ) -> None:
        """Tasks that are not `queued` run beside the slots: who waits for one may have the last slot."""
        self._lake = lake
        self._guarded = guarded
        self._queued = queued
        self._ended = ended
        self._ended_by_hand = ended_by_hand

    @property
    def _context(self) -> Context:
        return self._lake._context  # Another one after each start of Spark.

    # ------------------------------------------------------------------ refreshes

    def idle(self, tables: list[DynamicTable], ticks: Mapping[str, datetime]) -> list[RefreshRecord]:
        """The finished records of those tables that have nothing to do. Rights need no look: nothing is read."""
        runner, found = self._context.runner, []
        for table in tables:
            try:
                record = runner.idle(table, Occasion(trigger="SYSTEM_SCHEDULED", tick=ticks[table.id]))
            except HeadraceError:
                continue  # Its refresh tells what is wrong, as a job.
            except Exception:
                _log.exception("It could not be seen whether %s has anything to do.", table.table_name)
                continue
            if record is not None:
                found.append(record)
        return found

    def refresh(self, table: DynamicTable, tick: datetime, completion_target: datetime | None) -> LiveJob:
        """Have the table refreshed on its virtual cluster."""
        self._lake.require_spark()
        occasion = Occasion(trigger="SYSTEM_SCHEDULED", tick=tick, completion_target=completion_target)

        def work() -> Result:
            self._lake.require_spark()
            context = self._context
            # As it is now: it may have waited long in its queue.
            present = context.store.table_by_id(table.id)
            if present is None or present.suspended:
                how = "dropped" if present is None else "suspended"
                raise Cancelled(f"{table.table_name} was {how} before this refresh began.")
            permitting.require_maker_reads(context.new_session(), present)
            with context.own_meaning():
                record = dispatch.refresh_table(context, present, occasion)
            return done(f"{table.table_name} is refreshed ({record.refresh_mode}).")

        record = RefreshRecord.begun(table, occasion, job_id="", at=self._context.clock(), state="SETUP")
        parts = (table.workspace, table.schema_name, table.name)
        return self._lake.compute.submit(
            lambda: told(work),
            ready=self._lake.await_spark,
            text=f"REFRESH DYNAMIC TABLE {'.'.join(map(quote, parts))}",
            creator=table.creator,
            vcluster=table.vcluster,
            refresh=(record,),
        )

    def suspend(self, table: DynamicTable, reason: str) -> None:
        """Take the table out of the schedule."""
        context = self._context

        def change(present: DynamicTable) -> DynamicTable:
            if present.suspended:
                return present  # Somebody did so by hand, for a reason of their own.
            return present.model_copy(update={"suspended": True, "suspended_reason": reason, "modified_at": now})

        now = context.clock()
        keep_beside(context, context.store.change_table(table.id, change))
        _log.warning("%s is suspended: %s", table.table_name, reason)

    # ------------------------------------------------------------------ tasks

    def run_task(self, task: Task, run: TaskRun) -> LiveJob:
        """Have the task's body run on its virtual cluster, in a session of its own."""
        self._lake.require_spark()
        self._maker(task)  # One that is gone is told at once.

        def work() -> Result:
            self._lake.require_spark()
            job = running.current()
            store = self._context.store
            present = store.tasks.by_id(task.id)  # As it is now: the run may have waited long in its queue.
            if present is None:
                raise Cancelled(f"{task.table_name} was dropped before this run began.")
            if present.suspended and run.trigger in BY_CLOCK:
                raise Cancelled(f"{task.table_name} was suspended before this run began.")
            if not store.task_runs.begin(run, None if job is None else job.id, self._context.clock()):
                raise Cancelled(f"This run of {task.table_name} was ended before it began.")
            return self._run(present, run, self._maker(present))

        text = masked_sql(task.body) if task.kind == "SQL" else f"{task.kind} {task.body}"
        return self._lake.compute.submit(
            lambda: told(work),
            ready=self._lake.await_spark,
            text=text,
            creator=task.creator,
            vcluster=task.vcluster,
            query_tag=f"task {task.table_name}",
            queued=self._queued,
        )

    def _run(self, task: Task, run: TaskRun, maker: Principal) -> Result:
        context = self._context.new_session()
        context.user, context.guarded, context.vcluster = maker, self._guarded, task.vcluster
        name = context.name_of(task.database, "")
        parts = (name.workspace, name.schema)
        dispatch.run(context, sql.UseSchema(f"USE {'.'.join(map(quote, parts))}", parts))
        return run_body(context, task, run, self._lake.task_access)

    def _maker(self, task: Task) -> Principal:
        """In whose name it runs."""
        if task.by_owner:
            return Principal(task.creator, "admin", unlimited=True)
        maker = self._context.store.users.user(task.creator)
        if maker is None:
            raise Forbidden(
                f"{task.creator}, who made {task.table_name}, is not a user any more.",
                hint="An administrator can make it anew with CREATE OR REPLACE TASK.",
            )
        # Never more than who made it could at the time: a token may have had less than its user.
        return Principal(maker.name, lesser(maker.role, task.role))

    # ------------------------------------------------------------------ ends

    def ended(self, object_id: str, mark: Mark) -> None:
        """Somebody may want to know."""
        self._ended(object_id, mark)

    def ended_by_hand(self, object_id: str, end: ByHandEnd) -> None:
        self._ended_by_hand(object_id, end)


def run_body(context: Context, task: Task, run: TaskRun, access: Access) -> Result:
    """All of a task, in this thread and session. A program finds the server with what `access` gives it."""
    if task.kind != "SQL":
        permitting.require_code(context)
        with access(context.user) as variables:
            return done(run_code(task, run, context.settings, variables))
    result = done("There was no statement.")
    parts = split_statements(with_scheduled_time(task.body, run.tick))
    for number, part in enumerate(parts, start=1):
        require_wanted()
        try:
            result = dispatch.run(context, parse(part.text))
        except HeadraceError as error:
            require_wanted()  # What was stopped did not fail by itself.
            if len(parts) > 1:
                error.message = f"Statement {number} of {len(parts)}, {_beginning(part.text)}: {error.message}"
            raise
    return result


def _beginning(statement: str) -> str:
    """The first words, enough to find it by."""
    words = masked_sql(statement).split()
    shown = " ".join(words[:_FIRST_WORDS])[:_LONGEST_BEGINNING]
    return f"{shown} …" if len(words) > _FIRST_WORDS or len(shown) == _LONGEST_BEGINNING else shown
