"""Tasks and their runs in the operations database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, get_args

from sqlalchemy import Connection, and_, case, delete, func, literal, or_, select, update
from sqlalchemy.exc import IntegrityError

from headrace.catalog.database import Database
from headrace.catalog.models import MarkRow, TaskRow, TaskRunRow, is_storable, moment, utc
from headrace.catalog.records import RunState, Task, TaskRun
from headrace.errors import AlreadyExists, Bug, NotFound
from headrace.names import TableName

FINISHED: tuple[RunState, ...] = ("SUCCEED", "FAILED", "SKIPPED", "CANCELLED")
UNFINISHED: tuple[RunState, ...] = tuple(state for state in get_args(RunState) if state not in FINISHED)
NOT_BEGUN: tuple[RunState, ...] = ("WAITING", "QUEUED")

SHORT_OUTPUT = 1000
"""So many characters of an output are read where many runs are."""

_PRUNED_AT_ONCE = 500
_LENGTH = func.length(TaskRunRow.output)
_END = case(
    (_LENGTH > SHORT_OUTPUT, literal("…").concat(func.substr(TaskRunRow.output, _LENGTH - SHORT_OUTPUT + 1))),
    else_=TaskRunRow.output,
)
_WHOLE = (TaskRunRow.payload, TaskRunRow.output)
_SHORT = (TaskRunRow.payload, _END)


class TaskStore:
    """Each method is one transaction. Names are those of resolved objects, in lower case."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._add = database.insert(TaskRow).on_conflict_do_nothing().returning(TaskRow.id)

    def all(self) -> list[Task]:
        """By name."""
        return self._tasks(select(TaskRow.definition).order_by(TaskRow.workspace, TaskRow.schema_name, TaskRow.name))

    def named(self, name: TableName) -> Task | None:
        if not all(map(is_storable, (name.workspace, name.schema, name.table))):
            return None
        return next(iter(self._tasks(select(TaskRow.definition).where(_named(name)))), None)

    def by_id(self, task_id: str) -> Task | None:
        return next(iter(self._tasks(select(TaskRow.definition).where(TaskRow.id == task_id))), None)

    def put(self, task: Task, *, new: bool) -> None:
        """Add it, or replace the one with its id, which must be there."""
        values = _values(task)
        if new:
            if self._database.write(lambda connection: connection.execute(self._add, values).scalar()) is None:
                raise _taken(task)
            return
        change = update(TaskRow).where(TaskRow.id == task.id).values(**values)
        try:
            known = self._database.write(lambda connection: connection.execute(change).rowcount == 1)
        except IntegrityError:
            raise _taken(task) from None
        if not known:
            raise NotFound(f"There is no task {task.table_name}.", hint="It may have been dropped. See SHOW TASKS.")

    def drop(self, task_id: str) -> bool:
        """Forget the task; its runs stay. False when it is gone already."""
        gone = delete(TaskRow).where(TaskRow.id == task_id)
        return self._database.write(lambda connection: connection.execute(gone).rowcount == 1)

    def _tasks(self, wanted: Any) -> list[Task]:
        rows = self._database.read(lambda connection: connection.execute(wanted).scalars().all())
        return [Task.model_validate_json(row) for row in rows]


class RunStore:
    """Each method is one transaction. Times come back in UTC."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._add = database.insert(TaskRunRow).on_conflict_do_nothing().returning(TaskRunRow.id)

    def add(self, run: TaskRun) -> None:
        """Write a new run, finished or not."""
        self.add_all([run])

    def add_all(self, runs: Sequence[TaskRun]) -> None:
        """Write new runs, all of them or none."""

        def work(connection: Connection) -> None:
            for run in runs:
                if connection.execute(self._add, _run_values(run)).scalar() is None:
                    raise Bug(f"The task run {run.id} was recorded twice.")

        self._database.write(work)

    def update(self, run: TaskRun) -> bool:
        """Replace the record of an unfinished run. One that has ended is left as it is: the first end stands; and one
        that RUNS does not go back into the queue. False then, and for a run that is not recorded."""
        values = _run_values(run)
        before = NOT_BEGUN if run.state == "QUEUED" else UNFINISHED
        change = (
            update(TaskRunRow).where(TaskRunRow.id == values.pop("id"), TaskRunRow.state.in_(before)).values(values)
        )
        return self._database.write(lambda connection: connection.execute(change).rowcount == 1)

    def begin(self, run: TaskRun, job_id: str | None, now: datetime) -> bool:
        """An attempt at the run is about to do its work. What is not RUNNING here has done nothing, whatever becomes of
        its process. False when nobody wants it any more. Who looks after the job may have seen it run before it came
        here, and have said so."""
        started = run.started_at or now
        begun = run.model_copy(update={"state": "RUNNING", "job_id": job_id, "started_at": started})
        values = _run_values(begun)
        may: Any = TaskRunRow.state.in_(NOT_BEGUN)
        if job_id is not None:
            its_own = TaskRunRow.payload.contains(f'"job_id":"{job_id}"', autoescape=True)
            may = or_(may, and_(TaskRunRow.state == "RUNNING", its_own))
        change = update(TaskRunRow).where(TaskRunRow.id == values.pop("id"), may).values(values)
        return self._database.write(lambda connection: connection.execute(change).rowcount == 1)

    def count_unfinished(self, task_id: str) -> int:
        """How many runs of the task wait or run."""
        wanted = select(func.count()).where(TaskRunRow.task_id == task_id, TaskRunRow.state.in_(UNFINISHED))
        return self._database.read(lambda connection: int(connection.execute(wanted).scalar_one()))

    def get(self, run_id: str) -> TaskRun | None:
        if not is_storable(run_id):
            return None
        return next(iter(self._runs(select(*_WHOLE).where(TaskRunRow.id == run_id))), None)

    def recent(self, limit: int | None = None, task_id: str | None = None) -> list[TaskRun]:
        """Newest tick first: the runs of a backfill stand where their ticks belong. Of long outputs they have the end;
        `outputs` has all."""
        wanted = select(*_SHORT).order_by(TaskRunRow.tick.desc(), TaskRunRow.id.desc())
        if task_id is not None:
            wanted = wanted.where(TaskRunRow.task_id == task_id)
        return self._runs(wanted if limit is None else wanted.limit(limit))

    def outputs(self, run_ids: Sequence[str]) -> dict[str, str]:
        """All that is kept of what these runs printed, by their ids. Not for very many at once."""
        found = self._runs(select(*_WHOLE).where(TaskRunRow.id.in_(run_ids)))
        return {run.id: run.output for run in found if run.output is not None}

    def latest(self) -> dict[str, TaskRun]:
        """The run with the newest tick of each task, by the task's id; of several, the one made last. Of long outputs
        they have the end."""
        newest = (
            select(TaskRunRow.task_id, func.max(TaskRunRow.tick).label("tick")).group_by(TaskRunRow.task_id).subquery()
        )
        wanted = select(*_SHORT).join(
            newest, (TaskRunRow.task_id == newest.c.task_id) & (TaskRunRow.tick == newest.c.tick)
        )
        runs = sorted(self._runs(wanted), key=lambda run: (run.created_at, run.id))
        return {run.task_id: run for run in runs}

    def unfinished(self) -> list[TaskRun]:
        """Oldest tick first: after a crash, those that nobody runs any more."""
        wanted = select(*_WHOLE).where(TaskRunRow.state.in_(UNFINISHED))
        return self._runs(wanted.order_by(TaskRunRow.tick, TaskRunRow.id))

    def beyond_marks(self) -> list[TaskRun]:
        """Oldest tick first: those of later ticks than their task's mark, as a clock that was put back leaves them."""
        wanted = select(*_SHORT).join(MarkRow, MarkRow.object_id == TaskRunRow.task_id)
        return self._runs(wanted.where(TaskRunRow.tick > MarkRow.tick).order_by(TaskRunRow.tick, TaskRunRow.id))

    def prune(self, before: datetime) -> int:
        """Delete runs that ended before this time; returns how many."""
        before = moment(before)
        # No run ends before its tick, so the index finds all of them. A backfill's ticks are long past when it ends,
        # and only the record itself tells that.
        wanted = select(*_SHORT).where(TaskRunRow.tick < before, TaskRunRow.state.in_(FINISHED))
        old = [run.id for run in self._runs(wanted) if (run.ended_at or run.created_at) < before]

        def work(connection: Connection) -> None:
            for start in range(0, len(old), _PRUNED_AT_ONCE):
                part = old[start : start + _PRUNED_AT_ONCE]
                connection.execute(delete(TaskRunRow).where(TaskRunRow.id.in_(part)))

        if old:
            self._database.write(work)
        return len(old)

    def _runs(self, wanted: Any) -> list[TaskRun]:
        rows = self._database.read(lambda connection: connection.execute(wanted).all())
        return [_run(payload, output) for payload, output in rows]


def _named(name: TableName) -> Any:
    return (TaskRow.workspace == name.workspace) & (TaskRow.schema_name == name.schema) & (TaskRow.name == name.table)


def _taken(task: Task) -> AlreadyExists:
    return AlreadyExists(f"The task {task.table_name} exists already.", hint="Drop it or choose another name.")


def _values(task: Task) -> dict[str, Any]:
    return {
        "id": task.id,
        "workspace": task.workspace,
        "schema_name": task.schema_name,
        "name": task.name,
        "definition": utc(task).model_dump_json(),
    }


def _run(payload: str, output: str | None) -> TaskRun:
    run = TaskRun.model_validate_json(payload)
    # Runs of earlier versions have it in their payload.
    return run if output is None else run.model_copy(update={"output": output})


def _run_values(run: TaskRun) -> dict[str, Any]:
    run = utc(run)
    return {
        "id": run.id,
        "task_id": run.task_id,
        "tick": run.tick,
        "state": run.state,
        "payload": run.model_dump_json(exclude={"output"}),
        "output": None if run.output is None else run.output.replace("\0", "\N{REPLACEMENT CHARACTER}"),
    }
