"""CREATE, ALTER, DROP, USE, DESC VCLUSTER and SHOW VCLUSTERS.

The record says what a cluster is; whether it runs or is suspended at the moment, and its jobs, are `compute`'s to tell.
"""

from __future__ import annotations

import threading
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from headrace.catalog.records import VCluster
from headrace.errors import NotAllowed, NotFound
from headrace.result import Result, done, from_rows
from headrace.sql import statements as sql
from headrace.statements.context import Context
from headrace.statements.elsewhere import check_properties
from headrace.statements.listing import matches, narrowed

DEFAULT = "default"

_COLUMNS = [
    ("name", pa.string()), ("type", pa.string()), ("size", pa.int64()), ("state", pa.string()),
    ("running_jobs", pa.int64()), ("queued_jobs", pa.int64()), ("max_concurrency", pa.int64()),
    ("auto_suspend_in_second", pa.int64()), ("auto_resume", pa.bool_()), ("query_runtime_limit_in_second", pa.int64()),
    ("spark_master", pa.string()), ("creator", pa.string()), ("created_time", pa.timestamp("us", tz="UTC")),
    ("comment", pa.string()),
]  # fmt: skip
_changing = threading.Lock()
"""A change is read, altered and written; two at once would undo each other."""


def create(context: Context, statement: sql.CreateVcluster) -> Result:
    name = statement.name.lower()
    if statement.if_not_exists and context.store.clusters.named(name) is not None:
        return done(f"Virtual cluster {name} exists already; nothing was done.")
    check_properties(statement.properties)
    cluster = VCluster.model_validate(
        {
            **statement.options,
            "name": name,
            "properties": statement.properties,
            "comment": statement.comment,
            "creator": context.user.name,
            "created_at": context.clock(),
        }
    )
    with _changing:
        context.store.clusters.put(cluster, new=True)
        context.compute.changed(cluster)
    return done(f"Virtual cluster {name} created.")


def alter(context: Context, statement: sql.AlterVcluster) -> Result:
    action = statement.action
    with _changing:
        cluster = _required(context, statement.name)
        name = cluster.name
        if isinstance(action, sql.Resume):
            _put(context, cluster, suspended=False)
            context.compute.resume(name)
            return done(f"Virtual cluster {name} runs.")
        if isinstance(action, sql.SuspendVcluster):
            _put(context, cluster, suspended=True)
            context.compute.suspend(name, action.force)
            return done(_suspended(context, name, action.force))
        if isinstance(action, sql.SetVclusterOptions):
            changed = _put(context, cluster, **action.options)
            told = f"The settings of virtual cluster {name} are changed."
        elif isinstance(action, sql.SetProperties):
            properties = {**cluster.properties, **action.properties}
            check_properties(properties)
            changed = _put(context, cluster, properties=properties)
            told = f"The properties of virtual cluster {name} are set."
        else:
            changed = _put(context, cluster, comment=action.comment)
            told = f"The comment of virtual cluster {name} is set."
        context.compute.changed(changed)
        return done(told)


def _put(context: Context, cluster: VCluster, **changes: Any) -> VCluster:
    changed = VCluster.model_validate({**cluster.model_dump(), **changes})
    context.store.clusters.put(changed, new=False)
    return changed


def _suspended(context: Context, name: str, force: bool) -> str:
    jobs = context.compute.running(name) + context.compute.waiting(name)
    if context.compute.state(name) == "SUSPENDED":
        return f"Virtual cluster {name} is suspended."
    left = f"{jobs} {'job' if jobs == 1 else 'jobs'}"
    if force:
        return f"Virtual cluster {name} is being suspended; {left} of it {'is' if jobs == 1 else 'are'} being stopped."
    return f"Virtual cluster {name} is being suspended: it takes no new jobs, and {left} will be finished first."


def drop(context: Context, statement: sql.DropVcluster) -> Result:
    with _changing:
        cluster = context.store.clusters.named(statement.name)
        if cluster is None and statement.if_exists:
            return done(f"There is no virtual cluster {statement.name.lower()}; nothing was done.")
        name = _required(context, statement.name).name
        if name == DEFAULT:
            raise NotAllowed(f"The virtual cluster {DEFAULT} cannot be dropped.", hint="ALTER VCLUSTER suspends it.")
        users = [str(table.table_name) for table in context.store.tables() if table.vcluster.lower() == name]
        if users:
            raise NotAllowed(
                f"{users[0]} {'refreshes' if len(users) == 1 else f'and {len(users) - 1} more refresh'} on the virtual "
                f"cluster {name}.",
                hint=f"First write ALTER DYNAMIC TABLE {users[0]} SET VCLUSTER {DEFAULT}.",
            )
        tasks = [str(task.table_name) for task in context.store.tasks.all() if task.vcluster == name]
        if tasks:
            raise NotAllowed(
                f"The {'task' if len(tasks) == 1 else 'tasks'} {', '.join(tasks[:3])} "
                f"{'runs' if len(tasks) == 1 else 'run'} on the virtual cluster {name}.",
                hint=f"First write ALTER TASK {tasks[0]} SET VCLUSTER = {DEFAULT}.",
            )
        jobs = context.compute.running(name) + context.compute.waiting(name)
        if jobs:
            raise NotAllowed(
                f"The virtual cluster {name} has {jobs} {'job' if jobs == 1 else 'jobs'} that have not ended.",
                hint=f"Wait for them, or write ALTER VCLUSTER {name} SUSPEND FORCE first.",
            )
        context.store.clusters.drop(name)
        context.compute.dropped(name)
    return done(f"Virtual cluster {name} dropped.")


def use(context: Context, statement: sql.UseVcluster) -> Result:
    context.vcluster = _required(context, statement.name).name
    return done(f"The virtual cluster is {context.vcluster}.")


def describe(context: Context, statement: sql.DescribeVcluster) -> Result:
    cluster = _required(context, statement.name)
    created = cluster.created_at.astimezone(ZoneInfo(context.settings.timezone))
    lines: list[tuple[str, Any]] = [
        ("name", cluster.name),
        ("type", cluster.type),
        ("size", cluster.size),
        ("state", context.compute.state(cluster.name)),
        ("running_jobs", context.compute.running(cluster.name)),
        ("queued_jobs", context.compute.waiting(cluster.name)),
        ("max_concurrency", cluster.max_concurrency),
        ("auto_suspend_in_second", cluster.auto_suspend_seconds),
        ("auto_resume", str(cluster.auto_resume).lower()),
        ("query_runtime_limit_in_second", cluster.runtime_limit_seconds),
        ("spark_master", cluster.spark_master or ""),
        ("properties", ", ".join(f"{key}={value}" for key, value in sorted(cluster.properties.items()))),
        ("creator", cluster.creator),
        ("created_time", f"{created:%Y-%m-%d %H:%M:%S}"),
        ("comment", cluster.comment or ""),
    ]
    return from_rows([("property", pa.string()), ("value", pa.string())], [(key, str(value)) for key, value in lines])


def show(context: Context, statement: sql.ShowVclusters) -> Result:
    rows = [_row(context, cluster) for cluster in context.store.clusters.all() if matches(cluster.name, statement.like)]
    return narrowed(context, from_rows(_COLUMNS, rows, context.settings.timezone), statement.where, statement.limit)


def _row(context: Context, cluster: VCluster) -> tuple[Any, ...]:
    compute, name = context.compute, cluster.name
    return (
        name, cluster.type, cluster.size, compute.state(name), compute.running(name), compute.waiting(name),
        cluster.max_concurrency, cluster.auto_suspend_seconds, cluster.auto_resume, cluster.runtime_limit_seconds,
        cluster.spark_master, cluster.creator, cluster.created_at, cluster.comment,
    )  # fmt: skip


def _required(context: Context, name: str) -> VCluster:
    cluster = context.store.clusters.named(name)
    if cluster is None:
        raise NotFound(f"There is no virtual cluster '{name}'.", hint="SHOW VCLUSTERS lists them.")
    return cluster
