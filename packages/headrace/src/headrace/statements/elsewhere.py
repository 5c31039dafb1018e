"""Which statements run on a virtual cluster with a Spark master of its own, and how they get there.

Two kinds do: queries over Delta tables, views of them and dynamic tables; and refreshes. Both can do without the
catalog once the lake has looked everything up. All else runs on the lake's own Spark: Delta's commits on a local file
system are safe within one JVM only, and a dynamic table's storage is the one place where a lease keeps others out.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from deltalake.exceptions import DeltaError
from pyspark.errors import PySparkException

from headrace import running
from headrace.catalog.records import DynamicTable, Occasion, RefreshRecord, VCluster
from headrace.catalog.store import STATEMENT, UNFINISHED
from headrace.compute.jobs import new_job_id
from headrace.compute.process import Ended, NotThere
from headrace.compute.workers import Workers
from headrace.errors import BadSetting, NotFound, SyntaxFault, UserError
from headrace.plan.binding import Binding, bind
from headrace.plan.jvm import Jvm, items, kind
from headrace.plan.query import OutputColumn, Query
from headrace.refresh.lease import PATIENCE_SECONDS, held_lease
from headrace.refresh.recovery import settle
from headrace.result import Result
from headrace.sql.statements import SparkStatement
from headrace.statements.context import DECIDE_MEANING, Context
from headrace.storage.errors import short_message

KeptHere = Callable[[str], None]

_QUERIES = ("SELECT", "TABLE", "VALUES", "FROM", "(")
_OF_THE_SESSION = {
    "PYTHON_UDF": "it calls a Python function",
    "SCALA_UDF": "it calls a Java function",
    "SQL_SCALAR_FUNCTION": "it calls an SQL function",
    "SQL_FUNCTION_EXPRESSION": "it calls an SQL function",
    "SQL_TABLE_FUNCTION": "it calls an SQL function",
    "VARIABLE_REFERENCE": "it reads a variable of the session",
}
"""Marks in Spark's plan of what the cluster's process does not have."""
_PLACES = ("CurrentDatabase", "CurrentCatalog", "CurrentPath")

_MASTER = re.compile(
    r"spark://[^:,/\s]+:\d+(,[^:,/\s]+:\d+)*|yarn|k8s://\S+|local(\[(\d+|\*)(\s*,\s*(\d+|\*))?\])?", re.ASCII
)
_MEANING = re.compile(r"spark\.sql\.(ansi\.|session\.timeZone|caseSensitive|legacy\.|decimalOperations\.|mapKeyDedup)")
_ALLOWED = re.compile(
    r"spark\.(?:"
    r"master|cores\.max|default\.parallelism|speculation(?:\..+)?|task\.(?:cpus|maxFailures)"
    r"|executor\.(?:memory|memoryOverhead|memoryOverheadFactor|cores|instances|heartbeatInterval|pyspark\.memory)"
    r"|driver\.(?:memory|memoryOverhead|cores|host|port|bindAddress|blockManager\.port|maxResultSize)"
    r"|blockManager\.port|port\.maxRetries|memory\.(?:fraction|storageFraction|offHeap\.(?:enabled|size))"
    r"|dynamicAllocation\..+|shuffle\.(?:compress|spill\.compress|service\.(?:enabled|port)|file\.buffer)"
    r"|network\.timeout|rpc\.(?:askTimeout|lookupTimeout|message\.maxSize)|locality\.wait(?:\..+)?"
    r"|scheduler\.(?:minRegisteredResourcesRatio|maxRegisteredResourcesWaitingTime)|excludeOnFailure\..+"
    r"|sql\.(?:shuffle\.partitions|adaptive\.(?!customCost).+|autoBroadcastJoinThreshold|broadcastTimeout"
    r"|files\.(?:maxPartitionBytes|openCostInBytes|minPartitionNum|maxPartitionNum)"
    r"|codegen\..+|sources\.parallelPartitionDiscovery\..+)"
    r"|yarn\.(?:queue|priority|executor\.memoryOverhead|maxAppAttempts)"
    r"|kubernetes\.(?:namespace|node\.selector\..+|executor\.(?:request\.cores|limit\.cores|node\.selector\..+))"
    r")"
)
"""Sizes, limits, ports and tuning. What loads code, names files or holds secrets belongs to who runs the lake."""


def check_properties(properties: dict[str, str]) -> None:
    """What the PROPERTIES of a virtual cluster may be."""
    for key, value in properties.items():
        if _MEANING.match(key):
            raise BadSetting(
                f"'{key}' decides what a query means, which must not depend on where it runs.",
                hint="SET it in the session, or in spark_settings for the whole lake.",
            )
        if not _ALLOWED.fullmatch(key):
            raise BadSetting(
                f"'{key}' cannot be a property of a virtual cluster.",
                hint="Properties are Spark's settings of size and tuning, such as spark.executor.memory. Others stand "
                "in spark_settings in headrace.toml, and hold for all virtual clusters.",
            )
        if not value or "\n" in value:
            raise BadSetting(f"The property '{key}' needs a value of one line.", hint="Write it without line breaks.")
    master = properties.get("spark.master")
    if properties and master is None:
        raise BadSetting(
            f"'{next(iter(properties))}' needs a Spark master of the cluster's own: the lake's serves all.",
            hint="Add 'spark.master' = 'spark://host:7077', or leave the properties out.",
        )
    if master is not None and not _MASTER.fullmatch(master):
        raise BadSetting(
            f"'{master}' is no Spark master that a virtual cluster can have.",
            hint="Write spark://host:7077, yarn, k8s://https://host:443 or local[4].",
        )


# ---------------------------------------------------------------------- queries


def query(context: Context, statement: SparkStatement, text: str) -> Result | None:
    """The rows of a query, from the virtual cluster that its job was submitted to, whatever the session uses by now;
    None when it is to be run here. `text` is the statement as Spark gets it."""
    job = running.current()
    found = _own_master(context, (None if job is None else job.vcluster) or context.vcluster)
    if found is None or statement.verb not in _QUERIES:
        return None
    workers, cluster = found
    kept_here = _keeper(context, cluster.name)
    ready = _bound(context, text, kept_here)
    if ready is None:
        return None
    bound, types = ready
    versions = {source.path: context.logs.snapshot(source.path).version for source in bound.sources}
    settings = _session_settings(context)
    try:
        return workers.run_query(
            cluster, bound, versions, settings, types, tell=context.progress.tell, limit=context.result_limit
        )
    except NotThere as refusal:
        kept_here(refusal.why)
        return None
    except Ended as ended:
        raise ended.fault from ended


def _bound(context: Context, text: str, kept_here: KeptHere) -> tuple[Query, list[str]] | None:
    """The query with its sources found, and the types of its columns; None when it cannot leave, or is wrong: then
    Spark itself says so, with the right position, when it is run here."""
    jvm = Jvm(context.spark)
    with running.phase("binding"):
        try:
            binding = bind(jvm, text, context.locate, context.database_of)
            rows = context.spark.sql(binding.plan_text)
        except (NotFound, SyntaxFault, PySparkException):
            return None
        except UserError as refusal:
            kept_here(_why_not_bound(refusal))
            return None
        except (DeltaError, OSError) as error:
            kept_here(f"the log of a table cannot be read without Spark ({short_message(error)})")
            return None
        analyzed: Any = rows._jdf.queryExecution().analyzed()  # type: ignore[attr-defined,unused-ignore]
        why = _tied_to_session(jvm, analyzed)
        if why is not None:
            kept_here(why)
            return None
        return _as_query(binding, text, list(rows.columns)), [f.dataType.simpleString() for f in rows.schema.fields]


def _as_query(binding: Binding, text: str, names: list[str]) -> Query:
    return Query(
        text=text,
        resolved_text=binding.resolved_text,
        bound=binding.bound,
        sources=tuple(binding.sources),
        columns=tuple(OutputColumn(name=name, type="") for name in names),
        plan=None,
    )


def _why_not_bound(refusal: UserError) -> str:
    """The first half of the sentence: the second is about dynamic tables, for which the reader was made."""
    said = refusal.message.split(";")[0].rstrip(".")
    return "it reads a table at a fixed version or time" if said.startswith("A dynamic table") else said


def _tied_to_session(jvm: Jvm, analyzed: Any) -> str | None:
    """What in the plan only this session has. A function of its own may have the name of one of Spark's."""
    mark = jvm.contains(analyzed, *_OF_THE_SESSION)
    if mark is not None:
        return _OF_THE_SESSION[mark]
    current = jvm.pattern("CURRENT_LIKE")
    for node in _nodes(analyzed):
        if kind(node) == "SQLFunctionNode":
            return _OF_THE_SESSION["SQL_TABLE_FUNCTION"]
        if kind(node) == "Generate" and kind(node.generator()) == "PythonUDTF":
            return _OF_THE_SESSION["PYTHON_UDF"]
        waiting = items(node.expressions()) if node.containsPattern(current) else []
        while waiting:
            expression = waiting.pop()
            if kind(expression) in _PLACES:
                return "it asks for the session's current schema"
            if expression.containsPattern(current):
                waiting += items(expression.children())
    return None


def _nodes(plan: Any) -> Iterator[Any]:
    """The plan's nodes, those of subqueries in expressions included."""
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [*items(node.subqueries()), *items(node.children())]


def _session_settings(context: Context) -> dict[str, str]:
    """What the session has SET, and always what decides the meaning of a query."""
    conf = context.spark.conf
    at_start = dict(context.spark.sparkContext.getConf().getAll())
    changed = {key: value for key, value in conf.getAll.items() if at_start.get(key) != value}
    found = {
        key: value
        for key, value in changed.items()
        if key.startswith(("spark.sql.", "spark.databricks.delta.")) and conf.isModifiable(key)
    }
    return found | {key: str(conf.get(key)) for key in DECIDE_MEANING}


# ---------------------------------------------------------------------- refreshes


def refresh(context: Context, table: DynamicTable, occasion: Occasion) -> RefreshRecord | None:
    """Refresh the table on its virtual cluster, and tidy it there; None when it is to be refreshed here."""
    found = _own_master(context, table.vcluster)
    if found is None:
        return None
    workers, cluster = found
    kept_here = _keeper(context, cluster.name)
    if not _can_leave(context, table, kept_here):
        return None
    job = running.current()
    job_id = (job.take_id() if job is not None else None) or new_job_id(context.clock())
    folds = cluster.type == "GENERAL"

    def settle_left(owner: str) -> None:
        _settle(context, table, job_id, owner)

    try:
        return workers.refresh(
            cluster, table, occasion, job_id, folds=folds, tell=context.progress.tell, settle=settle_left
        )
    except NotThere as refusal:
        if job is not None and job.id == job_id:
            job.give_back_id()  # The refresh here is the one that has it.
        kept_here(refusal.why)
        return None
    except Ended as ended:
        raise ended.fault from ended
    finally:
        context.logs.forget(table.storage_path)


def _can_leave(context: Context, table: DynamicTable, kept_here: KeptHere) -> bool:
    if table.stale_reason is not None:
        kept_here("its definition changed")
        return False
    if any(definition.kind == "function" for definition in table.query.definitions):
        kept_here(_OF_THE_SESSION["SQL_SCALAR_FUNCTION"])
        return False
    try:
        decision = context.runner.outlook(table).decision
    except UserError:
        return False  # The refresh here says what is wrong, and writes it down.
    if decision.rebind:
        kept_here("a source or a view changed, so its query must be read again")
        return False
    return decision.mode != "NO_DATA"  # Saying that there is nothing to do takes no Spark.


def _settle(context: Context, table: DynamicTable, job_id: str, owner: str) -> None:
    """Give the refresh its end: its commit is in the table or not, and nobody works on it any more. Whoever waits for
    it is told afterwards; when the job was cancelled, nobody does. The lease goes last: the next refresh's commit
    would hide this one's."""
    context.logs.forget(table.storage_path)
    record = context.store.refresh(job_id)
    if record is not None and record.state in UNFINISHED:
        settle(context.store, context.logs, record, context.clock())
    lease = context.store.lease(table.id)
    if lease is not None and lease.owner.startswith(f"{owner}/"):
        context.store.release_lease(table.id, lease.fencing)


@contextmanager
def alone(context: Context, table: DynamicTable, patience: float | None = None) -> Iterator[None]:
    """For a statement that changes the table's storage itself: keep refreshes from it meanwhile. Their commits would
    collide, and in a cluster's own process a commit of one JVM can even replace that of another. A job waits a while
    for the one that is at work, the scheduler's own thread does not; then RefreshRunning is raised."""
    owner = f"{socket.gethostname()}:{os.getpid()}/{STATEMENT}"
    if patience is None:
        patience = PATIENCE_SECONDS if running.current() is not None else 0.0
    seconds = context.settings.lease_seconds
    with held_lease(
        context.store, table.id, owner, seconds, context.clock, patience=patience, also_for_refreshes=True
    ) as fencing:
        yield
        context.store.release_lease(table.id, fencing)


# ---------------------------------------------------------------------- both


def _own_master(context: Context, name: str) -> tuple[Workers, VCluster] | None:
    if context.workers is None:
        return None
    cluster = context.store.clusters.named(name)
    return None if cluster is None or cluster.spark_master is None else (context.workers, cluster)


def _keeper(context: Context, cluster: str) -> KeptHere:
    """The function to call with the reason why something stays here: it is told to who watches, and stands among the
    job's phases with the time that it took to find out."""
    began = time.monotonic()

    def kept_here(why: str) -> None:
        job = running.current()
        if job is not None:
            job.phases[f"not on {cluster}: {why}"] = time.monotonic() - began
        context.progress.tell(f"This runs on the lake's own Spark, not on {cluster}: {why}.")

    return kept_here
