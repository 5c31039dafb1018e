"""Statements about tasks, as far as they need no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from catalog.examples import a_table
from catalog.task_examples import a_run, a_task
from headrace.catalog.records import Grant, Job, Mark, Role, Task, TaskRun, User
from headrace.catalog.store import Store
from headrace.compute.jobs import LiveJob
from headrace.errors import (
    AlreadyExists,
    BadSetting,
    Dangerous,
    Forbidden,
    HeadraceError,
    NotAllowed,
    NotFound,
    Position,
    QueryFailed,
    SyntaxFault,
    TaskFailed,
    UserError,
)
from headrace.names import TableName, resolve
from headrace.result import Result, done
from headrace.schedule.live import new_run
from headrace.schedule.status import Status
from headrace.security.roles import Principal
from headrace.settings import Settings
from headrace.sql import parse
from headrace.statements import task_execution, task_listing, tasks, users
from headrace.statements.permitting import require_code

NOW = datetime(2025, 3, 1, 12, 0, 30, tzinfo=timezone.utc)
_HANDLERS: dict[str, Callable[[Any, Any], Result]] = {
    "CreateTask": tasks.create, "AlterTask": tasks.alter, "DropTask": tasks.drop, "ExecuteTask": task_execution.execute,
    "DescribeTask": task_listing.describe, "ShowTasks": task_listing.show, "ShowTaskHistory": task_listing.show_history,
}  # fmt: skip


class Scheduler:
    """Remembers what it is told."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.changes = 0
        self.asked: list[TaskRun] = []
        self.cancelled: list[str] = []
        self.recounted: list[str] = []
        self.known = Status()

    def status(self) -> Status:
        return self.known

    def changed(self) -> None:
        self.changes += 1

    def execute(self, task: Task, ticks: list[datetime], trigger: Any) -> list[TaskRun]:
        runs = [new_run(task, tick, trigger, NOW) for tick in ticks]
        self.asked += runs
        return runs

    def recount(self, object_id: str, change: Any) -> None:
        self.recounted.append(object_id)

    def cancel(self, task: Task, reason: str) -> list[TaskRun]:
        self.cancelled.append(reason)
        return [run.model_copy(update={"state": "CANCELLED", "reason": reason}) for run in self.asked]


class Context:
    """A session without Spark."""

    home = "main"
    guarded = False
    workspaces = staticmethod(lambda: ("main",))
    dynamic = staticmethod(lambda _: None)

    def __init__(self, store: Store, folder: Path, user: Principal) -> None:
        self.store, self.user = store, user
        self.settings = Settings(path=folder, code_tasks=True)
        self.scheduler: Scheduler | None = Scheduler(store)
        self.spark = SimpleNamespace(catalog=SimpleNamespace(currentDatabase=lambda: "public"), sql=self._sql)
        self.ran: list[tuple[str, datetime]] = []
        self.fails: Any = None

    def clock(self) -> datetime:
        return NOW

    def resolve(self, parts: tuple[str, ...]) -> TableName:
        return resolve(parts, workspace="main", schema="public")

    def require_database(self, parts: tuple[str, ...]) -> tuple[str, str, str]:
        if parts[-1] == "nowhere":
            raise NotFound("There is no schema.")
        return "main", parts[-1], parts[-1]

    def name_of(self, database: str, table: str) -> TableName:
        return TableName("main", database, table)

    def task_work(self, guarded: bool) -> Any:
        return SimpleNamespace(run_task=self._run_task)

    def _run_task(self, task: Task, run: TaskRun) -> LiveJob:
        """A job that has ended already."""
        if self.fails is not None and not isinstance(self.fails, HeadraceError):
            raise self.fails
        self.store.task_runs.begin(run, "j1", NOW)
        self.ran.append((task.name, run.tick))
        record = Job(id="j1", status="RUNNING", creator="ann", text="", vcluster="default", submitted_at=NOW)
        job = LiveJob(record, lambda: done(""), lambda job, reason: None)
        job.claim_end()
        job.settle(record.model_copy(update={"started_at": NOW}), done("It is done."), self.fails)
        return job

    def _sql(self, text: str) -> Any:
        """Understands a moment in quotes."""
        written = text.removeprefix("SELECT unix_micros(CAST('").removesuffix("' AS TIMESTAMP))")
        moment = None if written == "never" else datetime.fromisoformat(written).replace(tzinfo=timezone.utc)
        found = None if moment is None else int(moment.timestamp()) * 1_000_000
        return SimpleNamespace(first=lambda: (found,))


class Here:
    def __init__(self, context: Context) -> None:
        self.context = context

    def sql(self, text: str) -> Result:
        statement = parse(text)
        return _HANDLERS[type(statement).__name__](self.context, statement)

    def told(self, text: str) -> str:
        return str(self.sql(text).rows[0][0])

    def rows(self, text: str) -> list[dict[str, Any]]:
        result = self.sql(text)
        return [dict(zip(result.columns, row, strict=True)) for row in result.rows]

    def task(self, name: str = "t") -> Task:
        found = self.context.store.tasks.named(TableName("main", "public", name))
        assert found is not None
        return found


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(f"sqlite:///{tmp_path / 'ops.db'}")
    yield store
    store.close()


@pytest.fixture(autouse=True)
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What Spark's parser was given."""
    texts: list[str] = []
    monkeypatch.setattr(tasks, "Jvm", lambda _: SimpleNamespace(parse=texts.append))
    return texts


@pytest.fixture
def here(store: Store, tmp_path: Path) -> Here:
    return Here(Context(store, tmp_path, Principal("ann", "admin", unlimited=True)))


@pytest.fixture
def login(store: Store, tmp_path: Path) -> Callable[[str, Role], Here]:
    """A user of a server, who may do everything in the schema public."""

    def make(name: str, role: Role) -> Here:
        store.users.put(User(name=name, role=role, password_hash="x", created_at=NOW), new=True)
        grant = Grant(user=name, kind="SCHEMA", object="main.public", privilege="ALL", granted_at=NOW)
        store.users.grant(grant)
        return Here(Context(store, tmp_path, Principal(name, role)))

    return make


# CREATE


def test_create(here: Here) -> None:
    told = here.told("CREATE TASK T SCHEDULE = '5 minutes' TIMEOUT = '1 hour' RETRY 2 COMMENT 'c' AS SELECT 1")
    assert told == "Task main.public.t created: it runs every 5 minutes."
    task = here.task()
    assert (task.kind, task.body, task.database, task.vcluster) == ("SQL", "SELECT 1", "public", "default")
    assert (task.interval_seconds, task.cron, task.timeout_seconds, task.retries) == (300, None, 3600, 2)
    assert (task.creator, task.comment, task.created_at, task.suspended) == ("ann", "c", NOW, False)
    assert here.context.scheduler is not None
    assert here.context.scheduler.changes == 1


def test_a_name_with_blanks_and_dots(here: Here) -> None:
    told = here.told("CREATE TASK `1. Time Processing` SCHEDULE = '1 minute' AS BEGIN SELECT 1; SELECT 2; END")
    assert told == "Task main.public.`1. time processing` created: it runs every minute."
    here.sql("CREATE TASK `2. Aggregate` SCHEDULE = '1 minute' AFTER `1. Time Processing` AS SELECT 1")
    assert here.task("2. aggregate").after == (TableName("main", "public", "1. time processing"),)
    (first, second) = here.rows("SHOW TASKS")
    assert (first["name"], second["after"]) == ("1. time processing", "main.public.`1. time processing`")


def test_create_once(here: Here) -> None:
    here.sql("CREATE TASK t AS SELECT 1")
    with pytest.raises(AlreadyExists, match=r"task main\.public\.t exists already"):
        here.sql("CREATE TASK t AS SELECT 2")
    assert "nothing was done" in here.told("CREATE TASK IF NOT EXISTS t AS SELECT 2")
    assert here.task().body == "SELECT 1"
    with pytest.raises(NotFound):
        here.sql("CREATE TASK nowhere.t AS SELECT 1")


def test_replace_keeps_the_history_and_what_was_suspended(here: Here) -> None:
    here.sql("CREATE TASK t SCHEDULE = '1 minute' RETRY 3 COMMENT 'c' AS SELECT 1")
    before = here.task()
    here.sql("ALTER TASK t SUSPEND")
    told = here.told("CREATE OR REPLACE TASK t SCHEDULE = '2 minutes' AS SELECT 2")
    assert told == "Task main.public.t replaced: it is suspended."
    task = here.task()
    assert (task.id, task.body, task.interval_seconds, task.retries) == (before.id, "SELECT 2", 120, 0)
    assert (task.suspended, task.comment) == (True, None)


@pytest.mark.parametrize(
    ("clauses", "told"),
    [
        ("", "it runs when EXECUTE TASK says so"),
        ("SCHEDULE = '1 day'", "it runs every day"),
        ("SCHEDULE = '90 seconds'", "it runs every 90 seconds"),
        ("SCHEDULE = 'USING CRON 0 9 * * * Asia/Tokyo'", "it runs at 0 9 * * * in Asia/Tokyo"),
        ("AFTER d", "it runs after main.public.d"),
        ("AFTER d SCHEDULE = '1 minute'", "it runs every minute, after main.public.d"),
    ],
)
def test_when_it_runs_is_told(here: Here, store: Store, clauses: str, told: str) -> None:
    store.put_table(a_table(name="d", interval_seconds=60))
    assert here.told(f"CREATE TASK t {clauses} AS SELECT 1") == f"Task main.public.t created: {told}."


def test_what_it_needs_must_be_there(here: Here) -> None:
    with pytest.raises(NotFound, match="no virtual cluster 'etl'"):
        here.sql("CREATE TASK t VCLUSTER etl AS SELECT 1")
    with pytest.raises(NotFound, match=r"no task or dynamic table main\.public\.x"):
        here.sql("CREATE TASK t AFTER x AS SELECT 1")
    with pytest.raises(SyntaxFault):
        here.sql("CREATE TASK t SCHEDULE = 'USING CRON 61 * * * * UTC' AS SELECT 1")
    with pytest.raises(SyntaxFault):
        here.sql("CREATE TASK t SCHEDULE = 'USING CRON 0 0 30 2 * UTC' AS SELECT 1")
    assert here.rows("SHOW TASKS") == []


def test_a_missing_python_file_is_told(here: Here, tmp_path: Path) -> None:
    assert here.told("CREATE TASK t AS PYTHON 'x.py' 'a'").endswith("There is no file tasks/x.py yet.")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "x.py").write_text("")
    assert here.told("CREATE OR REPLACE TASK t AS PYTHON 'x.py'").endswith("says so.")


# AFTER


def test_cycles_are_refused_with_their_path(here: Here) -> None:
    here.sql("CREATE TASK a AS SELECT 1")
    here.sql("CREATE TASK b AFTER a AS SELECT 1")
    here.sql("CREATE TASK c AFTER b, a AS SELECT 1")
    with pytest.raises(NotAllowed) as caught:
        here.sql("ALTER TASK a SET AFTER (c)")
    path = " runs after ".join(f"main.public.{name}" for name in ("a", "c", "a"))
    assert path in caught.value.message or path.replace("c runs", "c runs after main.public.b runs") in str(
        caught.value
    )
    with pytest.raises(NotAllowed, match="cycle"):
        here.sql("CREATE OR REPLACE TASK a AFTER b AS SELECT 1")
    with pytest.raises(NotAllowed, match="cannot run after itself"):
        here.sql("ALTER TASK a SET AFTER a")
    assert here.task("a").after == ()


def test_a_task_may_have_the_name_of_the_table_that_it_runs_after(here: Here, store: Store) -> None:
    store.put_table(a_table(name="d"))
    here.sql("CREATE TASK d AFTER d AS SELECT 1")
    here.sql("CREATE TASK e AFTER d, d AS SELECT 1")
    assert here.task("e").after == (TableName("main", "public", "d"),)
    with pytest.raises(NotAllowed, match=r"main\.public\.d runs after main\.public\.e runs after main\.public\.d"):
        here.sql("ALTER TASK d SET AFTER (d, e)")


def test_a_task_after_a_table_without_times_says_when_that_is(here: Here, store: Store) -> None:
    store.put_table(a_table(name="d"))
    store.put_table(a_table("t2", name="timed", storage_path="/lake/timed", interval_seconds=60))
    assert here.told("CREATE TASK t AFTER d, timed AS SELECT 1") == (
        "Task main.public.t created: it runs after main.public.d, main.public.timed. "
        "main.public.d has no times: each refresh by hand or by a task counts."
    )
    assert here.told("CREATE TASK u AFTER timed AS SELECT 1").endswith("it runs after main.public.timed.")
    assert here.told("CREATE TASK v SCHEDULE = '1 minute' AFTER d AS SELECT 1").endswith("after main.public.d.")


# ALTER and DROP


def test_suspend_and_resume(here: Here) -> None:
    here.sql("CREATE TASK t SCHEDULE = '1 minute' AS SELECT 1")
    assert "until it is resumed" in here.told("ALTER TASK t SUSPEND")
    (row,) = here.rows("SHOW TASKS")
    assert (row["state"], row["suspended_reason"]) == ("SUSPENDED", "Suspended by ann.")
    assert here.told("ALTER TASK t RESUME") == "Task main.public.t is resumed."
    assert (here.task().suspended, here.task().suspended_reason) == (False, None)
    assert here.context.scheduler is not None
    assert here.context.scheduler.changes == 3
    assert here.context.scheduler.recounted == [here.task().id]


def test_without_a_scheduler_failures_are_counted_anew_in_the_store(here: Here, store: Store) -> None:
    here.sql("CREATE TASK t SCHEDULE = '1 minute' AS SELECT 1")
    mark = Mark(object_id=here.task().id, tick=NOW, state="FAILED", failures=3, error="boom", at=NOW)
    store.marks.reset([mark, mark.model_copy(update={"object_id": "another"})])
    here.context.scheduler = None
    here.sql("ALTER TASK t RESUME")
    found = {each.object_id: (each.failures, each.error, each.tick) for each in store.marks.all()}
    assert found == {here.task().id: (0, "boom", NOW), "another": (3, "boom", NOW)}


def test_set(here: Here, store: Store) -> None:
    store.put_table(a_table(name="d"))
    here.sql("CREATE TASK t SCHEDULE = '1 minute' TIMEOUT = '1 minute' AS SELECT 1")
    here.sql("ALTER TASK t SET SCHEDULE = 'USING CRON 0 9 * * * UTC', AFTER (d), RETRY = 4, COMMENT = 'c'")
    task = here.task()
    assert (task.interval_seconds, task.cron, task.zone, task.retries, task.comment) == (
        None,
        "0 9 * * *",
        "UTC",
        4,
        "c",
    )
    assert task.after == (TableName("main", "public", "d"),)
    here.sql("ALTER TASK t SET SCHEDULE = NONE, AFTER (), TIMEOUT = NONE")
    task = here.task()
    assert (task.interval_seconds, task.cron, task.after, task.timeout_seconds, task.retries) == (None, None, (), 0, 4)
    for options in ("VCLUSTER etl", "AFTER x", "SCHEDULE = 'USING CRON 61 * * * * UTC'"):
        with pytest.raises(UserError):
            here.sql(f"ALTER TASK t SET {options}")
    assert here.task() == task


def test_drop(here: Here, store: Store) -> None:
    here.sql("CREATE TASK t AS SELECT 1")
    here.sql("CREATE TASK u AFTER t AS SELECT 1")
    store.marks.reset([Mark(object_id=here.task().id, tick=NOW, state="SUCCEED", at=NOW)])
    store.task_runs.add(a_run(task_id=here.task().id, name="t"))
    assert here.told("DROP TASK t") == (
        "Task main.public.t dropped. main.public.u runs after it, and will be skipped until AFTER is changed."
    )
    assert store.marks.all() == []
    assert [row["name"] for row in here.rows("SHOW TASK HISTORY")] == ["t"]
    assert "nothing was done" in here.told("DROP TASK IF EXISTS t")
    for text in ("DROP TASK t", "ALTER TASK t SUSPEND", "EXECUTE TASK t", "DESC TASK t"):
        with pytest.raises(NotFound, match=r"There is no task main\.public\.t"):
            here.sql(text)
    assert here.told("DROP TASK u") == "Task main.public.u dropped."


def test_tasks_of_a_schema_and_of_a_user(here: Here) -> None:
    here.sql("CREATE TASK t AS SELECT 1; ")
    here.context.store.tasks.put(a_task("other", "o", schema_name="s", creator="BOB"), new=True)
    context: Any = here.context
    assert [task.name for task in tasks.tasks_in(context, "s")] == ["o"]
    assert [task.name for task in tasks.suspend_tasks_of(context, "bob")] == ["o"]
    found = here.context.store.tasks.by_id("other")
    assert found is not None
    assert found.suspended
    assert "is not a user any more" in str(found.suspended_reason)
    assert tasks.drop_tasks_in(context, "s") == 1
    assert [row["name"] for row in here.rows("SHOW TASKS")] == ["t"]


# EXECUTE


def times(rows: list[dict[str, Any]]) -> list[str]:
    return [f"{row['scheduled_time']:%d %H:%M:%S}" for row in rows]


def test_execute_now_and_as_if(here: Here) -> None:
    here.sql("CREATE TASK t AS SELECT 1")
    (row,) = here.rows("EXECUTE TASK t")
    assert (row["name"], row["trigger"], row["state"]) == ("t", "MANUAL", "WAITING")
    assert times([row]) == ["01 12:00:30"]
    assert times(here.rows("EXECUTE TASK t AT '2025-02-27 01:02:03'")) == ["27 01:02:03"]
    assert here.context.scheduler is not None
    assert [run.trigger for run in here.context.scheduler.asked] == ["MANUAL", "MANUAL"]
    assert times(here.rows("EXECUTE TASK t AT '2025-03-02'")) == ["02 00:00:00"], "it waits for its time"
    with pytest.raises(UserError, match="is no timestamp"):
        here.sql("EXECUTE TASK t AT 'never'")


def test_a_backfill_goes_through_the_times_that_have_come(here: Here) -> None:
    here.sql("CREATE TASK t SCHEDULE = '1 hour' AS SELECT 1")
    rows = here.rows("EXECUTE TASK t FROM '2025-03-01 09:30:00' TO '2025-03-01 12:00:00'")
    assert times(rows) == ["01 10:00:00", "01 11:00:00"]
    assert {row["trigger"] for row in rows} == {"BACKFILL"}
    assert times(here.rows("EXECUTE TASK t FROM '2025-03-01 11:00:00' TO '2025-03-09'")) == [
        "01 11:00:00",
        "01 12:00:00",
    ]
    here.sql("ALTER TASK t SET SCHEDULE = 'USING CRON 30 2 * * * Europe/Berlin'")
    assert times(here.rows("EXECUTE TASK t FROM '2025-02-27' TO '2025-03-01'")) == ["27 01:30:00", "28 01:30:00"]


def test_backfills_that_cannot_be(here: Here) -> None:
    here.sql("CREATE TASK t SCHEDULE = '1 minute' AS SELECT 1")
    for span, message in (
        ("'2025-03-01' TO '2025-03-01'", "not before TO"),
        ("'2025-03-02' TO '2025-03-03'", "no time"),
        ("'2025-02-01' TO '2025-03-01'", "more than 1000 runs"),
    ):
        with pytest.raises(BadSetting, match=message):
            here.sql(f"EXECUTE TASK t FROM {span}")
    assert len(here.rows("EXECUTE TASK t FROM '2025-02-28 07:20:00' TO '2025-03-01'")) == 1000
    here.sql("ALTER TASK t SET SCHEDULE = NONE")
    with pytest.raises(NotAllowed, match="has no times of its own"):
        here.sql("EXECUTE TASK t FROM '2025-02-01' TO '2025-03-01'")


def test_a_preview_does_nothing(here: Here, store: Store) -> None:
    here.sql("CREATE TASK a SCHEDULE = '1 hour' AS SELECT 1")
    here.sql("CREATE TASK b AFTER a AS SELECT 1")
    here.sql("CREATE TASK c AFTER b, a AS SELECT 1")
    here.sql("CREATE TASK own SCHEDULE = '1 hour' AFTER a AS SELECT 1")
    here.sql("CREATE TASK asleep AFTER a AS SELECT 1")
    here.sql("CREATE TASK below AFTER asleep AS SELECT 1")
    here.sql("ALTER TASK asleep SUSPEND")
    rows = here.rows("EXECUTE TASK a PREVIEW")
    assert [(row["name"], row["trigger"]) for row in rows] == [("a", "MANUAL"), ("b", "AFTER"), ("c", "AFTER")]
    assert {row["state"] for row in rows} == {"PREVIEW"}
    rows = here.rows("EXECUTE TASK a FROM '2025-03-01 10:00:00' TO '2025-03-01 12:00:00' PREVIEW")
    assert [row["name"] for row in rows] == ["a", "a"]
    assert here.context.scheduler is not None
    assert here.context.scheduler.asked == []
    assert store.task_runs.recent() == []


def test_without_a_scheduler_it_runs_here(here: Here, store: Store) -> None:
    here.context.scheduler = None
    here.sql("CREATE TASK t SCHEDULE = '1 hour' AS SELECT 1")
    (row,) = here.rows("EXECUTE TASK t")
    assert row["state"] == "SUCCEED"
    here.sql("EXECUTE TASK t FROM '2025-03-01 10:00:00' TO '2025-03-01 12:00:00'")
    assert [f"{tick:%H}" for _, tick in here.context.ran] == ["12", "10", "11"]
    rows = here.rows("SHOW TASK HISTORY")
    assert [(row["trigger"], row["state"], row["output"]) for row in rows] == [
        ("MANUAL", "SUCCEED", "It is done."),
        ("BACKFILL", "SUCCEED", "It is done."),
        ("BACKFILL", "SUCCEED", "It is done."),
    ]
    assert rows[0]["duration"] == "0 00:00:00.000000000"


@pytest.mark.parametrize(
    ("error", "code", "output"),
    [
        (QueryFailed("No such column.", hint="h"), "QUERY_FAILED", None),
        (TaskFailed("It ended with exit status 1.", output="Traceback"), "TASK_FAILED", "Traceback"),
    ],
)
def test_a_failure_here_is_raised_and_recorded(
    here: Here, store: Store, error: HeadraceError, code: str, output: str | None
) -> None:
    here.context.scheduler, here.context.fails = None, error
    here.sql("CREATE TASK t SCHEDULE = '1 hour' AS SELECT 1")
    with pytest.raises(type(error)) as raised:
        here.sql("EXECUTE TASK t FROM '2025-03-01 10:00:00' TO '2025-03-01 12:00:00'")
    assert (raised.value.message, getattr(raised.value, "output", None)) == (error.message, output)
    assert raised.value.hint == (error.hint or "SHOW TASK HISTORY has all of its runs, and what they printed.")
    for run in store.task_runs.recent():
        assert run.error_message == error.kept
        assert (run.state, run.error_code, run.output, run.ended_at) == ("FAILED", code, output, NOW)
    assert len(store.task_runs.recent()) == 2


def test_an_interrupt_here_leaves_nothing_waiting(here: Here, store: Store) -> None:
    here.context.scheduler, here.context.fails = None, KeyboardInterrupt()
    here.sql("CREATE TASK t SCHEDULE = '1 hour' AS SELECT 1")
    with pytest.raises(KeyboardInterrupt):
        here.sql("EXECUTE TASK t FROM '2025-03-01 10:00:00' TO '2025-03-01 12:00:00'")
    assert [(run.state, run.reason) for run in store.task_runs.recent()] == [("CANCELLED", "It was interrupted.")] * 2


def test_what_waits_is_cancelled(here: Here, store: Store) -> None:
    here.sql("CREATE TASK t SCHEDULE = '1 hour' AS SELECT 1")
    here.sql("EXECUTE TASK t FROM '2025-03-01 10:00:00' TO '2025-03-01 12:00:00'")
    rows = here.rows("EXECUTE TASK t CANCEL")
    assert [(row["trigger"], row["state"]) for row in rows] == [("BACKFILL", "CANCELLED")] * 2
    assert here.context.scheduler is not None
    assert here.context.scheduler.cancelled == ["It was cancelled by ann."]


def test_what_a_server_left_waiting_is_cancelled_without_one(here: Here, store: Store) -> None:
    here.sql("CREATE TASK t SCHEDULE = '1 hour' AS SELECT 1")
    here.context.scheduler = None
    of_task = {"task_id": here.task().id}
    store.task_runs.add(a_run("r1", NOW, state="WAITING", trigger="BACKFILL", **of_task))
    store.task_runs.add(a_run("r2", NOW, state="QUEUED", trigger="MANUAL", **of_task))
    store.task_runs.add(a_run("r3", NOW, state="WAITING", trigger="SCHEDULE", **of_task))
    store.task_runs.add(a_run("r4", NOW, state="RUNNING", trigger="BACKFILL", **of_task))
    store.task_runs.add(a_run("r5", NOW, state="WAITING", trigger="BACKFILL"))
    assert [row["state"] for row in here.rows("EXECUTE TASK t CANCEL")] == ["CANCELLED", "CANCELLED"]
    assert {run.id: run.state for run in store.task_runs.recent()} == {
        "r1": "CANCELLED", "r2": "CANCELLED", "r3": "WAITING", "r4": "RUNNING", "r5": "WAITING",
    }  # fmt: skip


# SHOW and DESC


def test_show(here: Here, store: Store) -> None:
    here.sql("CREATE TASK t SCHEDULE = 'USING CRON 0 9 * * * UTC' TIMEOUT = '1 minute' RETRY 1 AS SHELL 'true'")
    here.sql("CREATE TASK u AS SELECT 1")
    store.task_runs.add(a_run("r1", NOW - timedelta(hours=2), task_id=here.task().id, state="FAILED"))
    store.task_runs.add(a_run("r2", NOW - timedelta(hours=1), task_id=here.task().id))
    result = here.sql("SHOW TASKS")
    assert result.columns == [
        "schema_name", "name", "kind", "schedule", "after", "vcluster", "state", "suspended_reason", "timeout_second",
        "retry", "problem", "next_run", "last_run", "last_state", "last_job", "last_error", "creator", "created_time",
        "comment",
    ]  # fmt: skip
    (first, second) = here.rows("SHOW TASKS")
    assert (first["kind"], first["schedule"], first["timeout_second"]) == ("SHELL", "USING CRON 0 9 * * * UTC", 60)
    assert (first["last_state"], first["last_run"]) == ("SUCCEED", datetime(2025, 3, 1, 11, 0, 30))
    assert (first["last_job"], first["last_error"]) == (a_run("r2", NOW).job_id, None)
    assert (second["schedule"], second["last_run"], second["timeout_second"], second["after"]) == (None,) * 4
    assert (first["next_run"], second["next_run"]) == (datetime(2025, 3, 2, 9, 0), None)
    assert [row["name"] for row in here.rows("SHOW TASKS IN public LIKE 'U%'")] == ["u"]
    assert here.rows("SHOW TASKS IN other") == []
    store.task_runs.add(a_run("r3", NOW, task_id=here.task("u").id, state="FAILED", job_id="j3", error_message="No."))
    assert (here.rows("SHOW TASKS")[1]["last_job"], here.rows("SHOW TASKS")[1]["last_error"]) == ("j3", "No.")
    assert len(here.rows("SHOW TASKS LIMIT 1")) == 1


def test_when_it_runs_next(here: Here) -> None:
    here.sql("CREATE TASK t SCHEDULE = '1 hour' AS SELECT 1")
    here.sql("CREATE TASK u AFTER t AS SELECT 1")
    scheduler = here.context.scheduler
    assert scheduler is not None
    # A tick that is still to be run may lie in the past.
    due, problem = datetime(2025, 3, 1, 12, 0), "It runs after main.public.x, which does not exist."
    scheduler.known = Status(next_ticks={here.task("t").id: due.replace(tzinfo=timezone.utc)})
    assert [row["next_run"] for row in here.rows("SHOW TASKS")] == [due, None]
    scheduler.known = Status(problems={here.task("t").id: problem})
    assert dict(here.sql("DESC TASK t").rows)["problem"] == problem
    assert here.rows("SHOW TASKS")[0]["next_run"] is None
    assert [row["problem"] for row in here.rows("SHOW TASKS")] == [problem, None]
    here.context.scheduler = None
    assert here.rows("SHOW TASKS")[0]["next_run"] is None
    assert dict(here.sql("DESC TASK t").rows)["problem"] == ""


def test_history(here: Here, store: Store) -> None:
    store.task_runs.add(
        a_run("r1", NOW, started_at=NOW, ended_at=NOW + timedelta(days=1, seconds=3725, microseconds=5), attempt=2)
    )
    store.task_runs.add(a_run("r2", NOW + timedelta(hours=1), state="SKIPPED", reason="Its upstream failed.", merged=3))
    result = here.sql("SHOW TASK HISTORY")
    assert result.columns == [
        "schema_name", "name", "scheduled_time", "start_time", "end_time", "duration", "state", "trigger", "attempt",
        "job_id", "error_message", "reason", "merged", "output",
    ]  # fmt: skip
    (second, first) = here.rows("SHOW TASK HISTORY")
    assert (first["duration"], first["attempt"]) == ("1 01:02:05.000005000", 2)
    assert (second["duration"], second["reason"], second["merged"]) == (None, "Its upstream failed.", 3)
    assert len(here.rows("SHOW TASK HISTORY LIMIT 1")) == 1


def test_outputs_are_whole_where_few_are_shown(here: Here, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_listing, "WHOLE_OUTPUTS", 2)
    read: list[int] = []
    outputs = store.task_runs.outputs
    monkeypatch.setattr(store.task_runs, "outputs", lambda ids: (read.append(len(ids)), outputs(ids))[1])
    long = "a" + "b" * 50_000
    for number in range(3):
        store.task_runs.add(a_run(f"r{number}", NOW + timedelta(hours=number), output=long))
    assert {len(row["output"]) for row in here.rows("SHOW TASK HISTORY")} == {1001}
    assert read == []
    assert [row["output"] for row in here.rows("SHOW TASK HISTORY LIMIT 2")] == [long, long]
    assert read == [2]


def test_describe(here: Here, store: Store) -> None:
    here.sql("CREATE TASK t SCHEDULE = '1 hour' AS BEGIN SELECT 1; SELECT 2; END")
    failed = {"state": "FAILED", "error_message": "No such column."}
    store.task_runs.add(a_run("r1", NOW, task_id=here.task().id, **failed))
    facts = dict(here.sql("DESC TASK t").rows)
    assert (facts["body"], facts["schedule"], facts["retry"], facts["state"]) == (
        "SELECT 1; SELECT 2;", "1 hour", "0", "STARTED",
    )  # fmt: skip
    assert (facts["last_state"], facts["last_error"], facts["timeout_second"]) == ("FAILED", "No such column.", "")
    assert (facts["begins_in"], facts["created_time"], facts["comment"]) == ("public", "2025-03-01 12:00:30", "")


# Who may


def test_code_is_for_operators(login: Callable[[str, Role], Here]) -> None:
    dev, operator = login("dev", "developer"), login("op", "operator")
    for body in ("PYTHON 'x.py'", "SHELL 'true'"):
        with pytest.raises(Forbidden, match="operator"):
            dev.sql(f"CREATE TASK t AS {body}")
    operator.sql("CREATE TASK t AS SHELL 'true'")
    for text in ("ALTER TASK t SUSPEND", "EXECUTE TASK t", "DROP TASK t", "CREATE OR REPLACE TASK t AS SELECT 1"):
        with pytest.raises(Forbidden, match="operator"):
            dev.sql(text)
    assert len(dev.rows("EXECUTE TASK t PREVIEW")) == 1
    operator.sql("EXECUTE TASK t")


def test_a_server_may_run_no_code_at_all(login: Callable[[str, Role], Here]) -> None:
    operator = login("op", "operator")
    operator.sql("CREATE TASK t AS SHELL 'true'")
    operator.context.settings = Settings(path=operator.context.settings.path)
    for text in ("CREATE TASK u AS SHELL 'true'", "EXECUTE TASK t", "ALTER TASK t RESUME"):
        with pytest.raises(NotAllowed, match="runs no tasks"):
            operator.sql(text)
    operator.sql("ALTER TASK t SUSPEND")
    operator.sql("DROP TASK t")


def test_who_replaces_a_task_makes_it_their_own(login: Callable[[str, Role], Here]) -> None:
    one, other = login("one", "developer"), login("other", "developer")
    one.sql("CREATE TASK t AS SELECT 1")
    other.sql("ALTER TASK t SET RETRY 1")
    assert one.task().creator == "one"
    other.sql("CREATE OR REPLACE TASK t AS SELECT 2")
    assert one.task().creator == "other"


def test_a_body_that_its_user_could_not_run(login: Callable[[str, Role], Here]) -> None:
    dev = login("dev", "developer")
    with pytest.raises(Forbidden, match="CREATE in a task needs an administrator"):
        dev.sql("CREATE TASK t AS CREATE VCLUSTER v")
    with pytest.raises(Forbidden, match="CALL in a task"):
        dev.sql("CREATE TASK t AS BEGIN SELECT 1; CALL x(); END")


def test_spark_parses_the_statements_in_their_places(here: Here, parsed: list[str]) -> None:
    text = "CREATE TASK t AS BEGIN\n SELECT 1;\n /* x */ INSERT INTO a SELECT 2; SHOW TASKS;\nEND"
    here.sql(text)
    assert [(each.count("\n"), each.strip()) for each in parsed] == [
        (1, "SELECT 1"),
        (2, "/* x */ INSERT INTO a SELECT 2"),
    ]
    assert [each.rindex("SELECT") for each in parsed] == [text.index("SELECT 1"), text.index("SELECT 2")]


def test_a_body_that_reaches_beyond_the_lake_is_refused_where_it_stands(here: Here) -> None:
    with pytest.raises(Dangerous) as caught:
        here.sql("CREATE TASK t AS BEGIN\n SELECT 1;\n SELECT reflect('a', 'b');\nEND")
    assert caught.value.position == Position(3, 9)


def test_a_task_of_nobody_is_for_administrators(login: Callable[[str, Role], Here], store: Store) -> None:
    dev, admin = login("dev", "developer"), login("root", "admin")
    store.tasks.put(a_task(name="t", creator="gone"), new=True)
    for text in ("ALTER TASK t RESUME", "EXECUTE TASK t", "DROP TASK t"):
        with pytest.raises(Forbidden, match="is not a user"):
            dev.sql(text)
    admin.sql("ALTER TASK t RESUME")


def test_what_may_not_be_seen_is_not_waited_for_or_listed(login: Callable[[str, Role], Here], store: Store) -> None:
    dev = login("dev", "developer")
    store.tasks.put(a_task("k2", "x", schema_name="secret"), new=True)
    store.task_runs.add(a_run("r1", task_id="k2", name="x", schema_name="secret"))
    for name in ("secret.x", "secret.there_is_none"):
        with pytest.raises(Forbidden, match="may not read"):
            dev.sql(f"CREATE TASK t AFTER {name} AS SELECT 1")
    dev.sql("CREATE TASK t AS SELECT 1")
    assert [row["name"] for row in dev.rows("SHOW TASKS")] == ["t"]
    assert dev.rows("SHOW TASK HISTORY") == []


def test_a_task_remembers_what_its_maker_could(
    login: Callable[[str, Role], Here], store: Store, tmp_path: Path
) -> None:
    """A token may have less than its user: what is made with it never runs with more."""
    login("ann", "operator")
    here = Here(Context(store, tmp_path, Principal("ann", "developer", by_token=True)))
    here.sql("CREATE TASK t AS SELECT 1")
    assert (here.task().role, here.task().by_owner) == ("developer", False)
    assert Here(Context(store, tmp_path, Principal("root", "admin", unlimited=True))).told("CREATE TASK u AS SELECT 1")
    assert (here.task("u").role, here.task("u").by_owner) == (None, True)


def test_who_comes_later_does_not_get_the_tasks_of_a_dropped_namesake(
    login: Callable[[str, Role], Here], store: Store, tmp_path: Path
) -> None:
    here = login("ann", "developer")
    context: Any = here.context
    here.sql("CREATE TASK t AS SELECT 1")
    owner = Here(Context(store, tmp_path, Principal("ann", "admin", unlimited=True)))
    owner.sql("CREATE TASK u AS SELECT 1")
    tasks.suspend_tasks_of(context, "ann")
    assert (here.task().suspended, here.task().creator) == (True, "ann (dropped)")
    assert (here.task("u").suspended, here.task("u").creator) == (False, "ann"), "made by who owns the files"


@pytest.mark.parametrize(
    "statement", ["DROP USER IF EXISTS ann", "DROP USER ann", "CREATE USER ann WITH PASSWORD 'long enough' ROLE admin"]
)
def test_a_drop_user_that_was_cut_short_is_made_good(
    login: Callable[[str, Role], Here], store: Store, statement: str
) -> None:
    login("root", "admin")
    here = login("ann", "developer")
    here.sql("CREATE TASK t AS SELECT 1")
    store.users.drop("ann")
    ended: list[str] = []
    context: Any = here.context
    context.user, context.access_changed = Principal("root", "admin"), ended.append
    parsed: Any = parse(statement)
    if "CREATE" in statement:
        users.create_user(context, parsed)
    elif "IF EXISTS" in statement:
        users.drop_user(context, parsed)
    else:
        with pytest.raises(NotFound):
            users.drop_user(context, parsed)
    assert (here.task().suspended, here.task().creator, ended) == (True, "ann (dropped)", ["ann"])


def test_code_is_for_who_runs_the_server_to_allow(store: Store, tmp_path: Path) -> None:
    context = Context(store, tmp_path, Principal("root", "admin", unlimited=True))
    context.settings = Settings(path=tmp_path)
    require_code(context)
    context.guarded = True
    with pytest.raises(NotAllowed, match="runs no tasks with a Python file"):
        require_code(context)


def test_nobody_creates_a_task_that_could_never_run(login: Callable[[str, Role], Here], store: Store) -> None:
    """The local token stands for `admin`, also when there are other administrators and that one was dropped."""
    login("root", "admin")
    local = login("admin", "admin")
    local.sql("CREATE TASK t AS SELECT 1")
    store.users.drop("admin")
    for text in ("CREATE TASK u AS SELECT 1", "CREATE OR REPLACE TASK t AS SELECT 1"):
        with pytest.raises(Forbidden, match="no user admin any more") as refused:
            local.sql(text)
        assert refused.value.hint is not None
        assert "CREATE USER admin" in refused.value.hint
    local.sql("ALTER TASK t SUSPEND")
    local.sql("DROP TASK t")
