"""CREATE, ALTER and DROP TASK.

A task runs in the name of whoever wrote its body. So its body is never changed in place: who replaces it, makes it
their own. What each statement of it may do is judged at every run; here only what its user's role allows at all.
"""

from __future__ import annotations

import re
import shlex
import threading
import uuid
from collections.abc import Iterable
from typing import Any

from headrace.catalog.records import Task, is_by_hand, suspended_by
from headrace.errors import AlreadyExists, Forbidden, HeadraceError, NotAllowed, NotFound
from headrace.names import TableName
from headrace.plan.jvm import Jvm
from headrace.result import Result, done
from headrace.schedule.items import items_of
from headrace.schedule.timing import parse_cron
from headrace.security.roles import nobody, require_role
from headrace.sql import statements as sql
from headrace.sql.parser import parse
from headrace.sql.split import StatementText, split_statements
from headrace.sql.tokens import position_at
from headrace.statements import failures, guarding
from headrace.statements.checking import require_vcluster
from headrace.statements.context import Context
from headrace.statements.judging import parsed_text
from headrace.statements.permitting import require_code, require_read
from headrace.tasks.code import FOLDER

_TIMES = {"interval_seconds", "cron", "zone", "after"}
_changing = threading.Lock()
"""A change is read, altered and written; two at once would undo each other, or close a cycle that neither sees."""


def create(context: Context, statement: sql.CreateTask) -> Result:
    name = context.resolve(statement.name)
    context.require_database((name.workspace, name.schema))
    _require_maker(context)
    _require_body(context, statement)
    with _changing:
        present = context.store.tasks.named(name)
        if present is not None and statement.if_not_exists:
            return done(f"Task {name} exists already; nothing was done.")
        if present is not None and not statement.or_replace:
            raise AlreadyExists(f"The task {name} exists already.", hint="Write CREATE OR REPLACE, or IF NOT EXISTS.")
        if present is not None:
            require_may_change(context, present)
        task = _new(context, statement, name, present)
        _refuse_cycle(context, task)
        context.store.tasks.put(task, new=present is None)
    _tell_scheduler(context)
    how = "created" if present is None else "replaced"
    return done(f"Task {name} {how}: {_when(task)}.{_by_hand(context, task)}{_missing(context, task)}")


def _new(context: Context, statement: sql.CreateTask, name: TableName, present: Task | None) -> Task:
    """All of it as the statement says. A replaced one keeps its history, and stays suspended if its user wanted so."""
    vcluster = statement.vcluster or "default"
    require_vcluster(context, vcluster)
    if statement.cron is not None:
        parse_cron(statement.cron, statement.zone or "UTC")
    now = context.clock()
    stays_suspended = present is not None and present.suspended and is_by_hand(present.suspended_reason)
    return Task(
        id=uuid.uuid4().hex if present is None else present.id,
        workspace=name.workspace,
        schema_name=name.schema,
        name=name.table,
        kind=statement.kind,
        body=statement.body,
        database=str(context.spark.catalog.currentDatabase()),
        interval_seconds=statement.interval_seconds,
        cron=statement.cron,
        zone=statement.zone,
        after=_predecessors(context, name, statement.after),
        vcluster=vcluster.lower(),
        timeout_seconds=statement.timeout_seconds or 0,
        retries=statement.retries or 0,
        suspended=stays_suspended,
        suspended_reason=present.suspended_reason if present is not None and stays_suspended else None,
        comment=statement.comment,
        creator=context.user.name,
        role=None if context.user.unlimited else context.user.role,
        by_owner=context.user.unlimited,
        created_at=now if present is None else present.created_at,
        modified_at=now,
        times_from=now,
    )


def _require_maker(context: Context) -> None:
    """Raise when nobody would be there in whose name it could run: the local token stands for `admin`, who may have
    been dropped."""
    if not context.user.unlimited and context.store.users.user(context.user.name) is None:
        raise Forbidden(
            f"A task runs in the name of who creates it, and there is no user {context.user.name} any more.",
            hint=f"Log in as another user, or make this one again: CREATE USER {context.user.name} WITH PASSWORD '…'.",
        )


def _require_body(context: Context, statement: sql.CreateTask) -> None:
    """Raise when the user could not run it anyway."""
    if statement.kind != "SQL":
        require_code(context)
        return
    for part in split_statements(statement.body):
        offset = statement.body_offset + part.offset
        place = position_at(statement.text, offset)
        try:
            inner = parse(part.text)
            what = inner.verb if isinstance(inner, sql.SparkStatement) else type(inner)
            require_role(context.user, what, f"{part.text.split(maxsplit=1)[0].upper()} in a task")
            guarding.refuse_dangerous(context, inner)
            if isinstance(inner, sql.SparkStatement):
                _parse_with_spark(context, inner, statement.text[:offset])
        except HeadraceError as error:
            if error.position is not None:
                error.position = StatementText(part.text, offset, place.line, place.column).in_script(error.position)
            raise


def _parse_with_spark(context: Context, statement: sql.SparkStatement, before: str) -> None:
    """Have Spark's parser look at it. What stands before is left blank, so that an error tells the place in it all."""
    text = parsed_text(context, statement, lambda _: True)
    Jvm(context.spark).parse(re.sub(r"[^\n]", " ", before) + text)


def _predecessors(context: Context, name: TableName, after: Iterable[tuple[str, ...]]) -> tuple[TableName, ...]:
    """Full names of what is there and may be seen."""
    found: dict[TableName, None] = {}
    for parts in after:
        other = context.resolve(parts)
        require_read(context, other)
        is_task = other != name and context.store.tasks.named(other) is not None
        if not is_task and context.store.table(other) is None:
            if other == name:
                raise NotAllowed(f"{name} cannot run after itself.", hint="Leave it out of AFTER.")
            raise NotFound(
                f"There is no task or dynamic table {other} to run after.",
                hint="SHOW TASKS and SHOW DYNAMIC TABLES list them.",
            )
        found[other] = None
    return tuple(found)


def _refuse_cycle(context: Context, task: Task) -> None:
    """No task waits for itself through others. Dynamic tables wait for no task."""
    after = {other.table_name: other.after for other in context.store.tasks.all()} | {task.table_name: task.after}
    trails = [[task.table_name, other] for other in task.after if other != task.table_name]
    seen: set[TableName] = set()
    while trails:
        trail = trails.pop()
        if trail[-1] == task.table_name:
            raise NotAllowed(
                f"This would be a cycle: {' runs after '.join(map(str, trail))}.",
                hint="Leave one of them out of AFTER.",
            )
        if trail[-1] not in seen:
            seen.add(trail[-1])
            # A name that a task gives itself is a dynamic table of that name.
            trails += [[*trail, other] for other in after.get(trail[-1], ()) if other != trail[-1]]


def _by_hand(context: Context, task: Task) -> str:
    """What a task may wait for that nobody does by the clock."""
    items = items_of(context.store.tables(), context.store.tasks.all())
    item = items.get(task.id)
    if item is None or not item.follows or item.suspended:
        return ""
    before = (items[each] for each in item.upstream)
    names = sorted(str(each.name) for each in before if each.kind == "TABLE" and not each.roots)
    if not names:
        return ""
    have = "has" if len(names) == 1 else "have"
    return f" {', '.join(names)} {have} no times: each refresh by hand or by a task counts."


def _missing(context: Context, task: Task) -> str:
    if task.kind != "PYTHON":
        return ""
    file = shlex.split(task.body)[0]
    return "" if (context.settings.path / FOLDER / file).is_file() else f" There is no file {FOLDER}/{file} yet."


# ALTER and DROP


def alter(context: Context, statement: sql.AlterTask) -> Result:
    action = statement.action
    with _changing:
        task = required(context, statement.name)
        require_may_change(context, task)
        name = task.table_name
        changes: dict[str, Any]
        if isinstance(action, sql.Suspend):
            changes = {"suspended": True, "suspended_reason": suspended_by(context.user.name)}
            told = f"Task {name} is suspended: it runs only by hand until it is resumed."
        elif isinstance(action, sql.Resume):
            require_may_start(context, task)
            failures.resume(context, task)
            changes = {"suspended": False, "suspended_reason": None}
            told = f"Task {name} is resumed."
        else:
            changes = _checked(context, task, action.options)
            told = f"The settings of task {name} are changed."
        now = context.clock()
        if isinstance(action, sql.Resume) or changes.keys() & _TIMES:
            changes["times_from"] = now
        changed = Task.model_validate({**dict(task), **changes, "modified_at": now})
        _refuse_cycle(context, changed)
        context.store.tasks.put(changed, new=False)
    _tell_scheduler(context)
    return done(told)


def _checked(context: Context, task: Task, options: dict[str, Any]) -> dict[str, Any]:
    if options.get("vcluster") is not None:
        require_vcluster(context, options["vcluster"])
    if options.get("cron") is not None:
        parse_cron(options["cron"], options["zone"])
    if "after" in options:
        return {**options, "after": _predecessors(context, task.table_name, options["after"])}
    return options


def drop(context: Context, statement: sql.DropTask) -> Result:
    with _changing:
        name = context.resolve(statement.name)
        task = context.store.tasks.named(name)
        if task is None and statement.if_exists:
            return done(f"There is no task {name}; nothing was done.")
        if task is None:
            raise _unknown(name)
        require_may_change(context, task)
        _drop(context, [task])
    waiting = [str(other.table_name) for other in context.store.tasks.all() if name in other.after]
    if waiting and context.store.table(name) is None:
        left = f"{waiting[0]} runs" if len(waiting) == 1 else f"{waiting[0]} and {len(waiting) - 1} more run"
        return done(f"Task {name} dropped. {left} after it, and will be skipped until AFTER is changed.")
    return done(f"Task {name} dropped.")


def drop_tasks_in(context: Context, database: str) -> int:
    """Drop all tasks of a schema, given as Spark knows it; gives how many there were."""
    with _changing:
        gone = tasks_in(context, database)
        _drop(context, gone)
    return len(gone)


def tasks_in(context: Context, database: str) -> list[Task]:
    return [task for task in context.store.tasks.all() if task.table_name.database(context.home) == database]


def suspend_tasks_of(context: Context, creator: str) -> list[Task]:
    """For a user who is no more: nothing runs in their name. Gives the tasks that are suspended now."""
    reason = f"Its creator, {creator}, is not a user any more. CREATE OR REPLACE TASK makes it somebody else's."
    changed = {
        "suspended": True, "suspended_reason": reason, "creator": nobody(creator), "modified_at": context.clock(),
    }  # fmt: skip
    with _changing:
        theirs = [
            task for task in context.store.tasks.all() if not task.by_owner and task.creator.lower() == creator.lower()
        ]
        for task in theirs:
            context.store.tasks.put(task.model_copy(update=changed), new=False)
    _tell_scheduler(context)
    return theirs


def _drop(context: Context, tasks: list[Task]) -> None:
    for task in tasks:
        context.store.tasks.drop(task.id)
    context.store.marks.drop([task.id for task in tasks])
    if tasks:
        _tell_scheduler(context)


def require_may_change(context: Context, task: Task) -> None:
    """Who changes or starts a task has something run in its creator's name."""
    if task.kind != "SQL":
        require_role(context.user, "RUN CODE", "A task with a Python file or a command")
    if not context.user.is_admin and context.store.users.user(task.creator) is None:
        raise Forbidden(
            f"The creator of {task.table_name}, {task.creator}, is not a user: it is for administrators.",
            hint="An administrator can make it anew with CREATE OR REPLACE TASK.",
        )


def require_may_start(context: Context, task: Task) -> None:
    require_may_change(context, task)
    if task.kind != "SQL":
        require_code(context)


# Words


def required(context: Context, parts: tuple[str, ...]) -> Task:
    name = context.resolve(parts)
    task = context.store.tasks.named(name)
    if task is None:
        raise _unknown(name)
    return task


def _unknown(name: TableName) -> NotFound:
    return NotFound(f"There is no task {name}.", hint="SHOW TASKS lists them.")


def schedule_text(task: Task) -> str | None:
    """As SCHEDULE has it."""
    if task.cron is not None:
        return f"USING CRON {task.cron} {task.zone}"
    if task.interval_seconds is None:
        return None
    for unit, seconds in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        count, rest = divmod(task.interval_seconds, seconds)
        if not rest:
            return f"{count} {unit}{'' if count == 1 else 's'}"
    return None


def _when(task: Task) -> str:
    after = f"after {', '.join(map(str, task.after))}" if task.after else ""
    schedule = schedule_text(task)
    if task.suspended:
        return "it is suspended"
    if task.cron is not None:
        return f"it runs at {task.cron} in {task.zone}{f', {after}' if after else ''}"
    if schedule is not None:
        return f"it runs every {schedule.removeprefix('1 ')}{f', {after}' if after else ''}"
    return f"it runs {after}" if after else "it runs when EXECUTE TASK says so"


def _tell_scheduler(context: Context) -> None:
    if context.scheduler is not None:
        context.scheduler.changed()
