"""Statements as jobs: of a server's sessions in the queues of virtual clusters, of an embedded lake at once.

A session runs one statement after the other. Statements about jobs and clusters wait for nobody: they must work while
everything else is busy, or suspended.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import AnalysisException, ParseException, PySparkException

from headrace import running
from headrace.catalog.records import Occasion, RefreshRecord
from headrace.collecting import Limit
from headrace.compute.clusters import LiveJob
from headrace.compute.line import Line
from headrace.errors import Cancelled, HeadraceError, NotFound, QueryFailed, SessionReset, UserError, spark_ended
from headrace.names import check_parts, parse_parts, resolve
from headrace.plan.jvm import Jvm, items
from headrace.result import Result
from headrace.security import masked_sql
from headrace.security.roles import Principal
from headrace.sql import statements as sql
from headrace.sql.parser import parse
from headrace.sql.tokens import scan
from headrace.statements import dispatch, permitting
from headrace.statements.checking import require_vcluster
from headrace.statements.clusters import DEFAULT
from headrace.statements.context import Context
from headrace.storage.spark import ended_since, has_stopped, java_process

if TYPE_CHECKING:
    from headrace.engine import Lake

Given = TypeVar("Given")

_AT_ONCE = (
    sql.AlterVcluster, sql.CancelJob, sql.CreateVcluster, sql.DescribeJob, sql.DescribeVcluster, sql.DropVcluster,
    sql.SetQueryTag, sql.ShowFreshness, sql.ShowJobs, sql.ShowTasks, sql.ShowVclusters, sql.UseVcluster,
)  # fmt: skip
"""These run at once, outside the queues."""
_LOOK_SECONDS = 0.1
_DEATH_SECONDS = 1.0
"""So long after its last word a Java process may take to end."""
_LONGEST = 1024 * 1024
_CACHES = ("CACHE TABLE", "CACHE LAZY")
_log = logging.getLogger(__name__)
_LEAVES_STATE = ("TEMP", "TEMPORARY", "SET", "RESET", "DECLARE", "CACHE")


def run_here(context: Context, text: str) -> Result:
    """One statement of an embedded lake, in this thread."""
    statement = parse(text)
    gone = isinstance(statement, _AT_ONCE) and not context.store.has_vcluster(context.vcluster)
    return context.compute.run_here(
        lambda: told(lambda: dispatch.run(context, statement)),
        text=masked_sql(text),
        creator=context.user.name,
        vcluster=DEFAULT if gone else context.vcluster,
        query_tag=context.query_tag,
    )


class LakeSession:
    """One user's session: a schema, settings and temporary views of its own."""

    def __init__(
        self,
        lake: Lake,
        user: Principal,
        *,
        schema: str | None,
        vcluster: str | None,
        query_tag: str | None,
        guarded: bool,
        session_id: str | None,
    ) -> None:
        self._lake = lake
        self._turn = threading.Lock()
        self._line = Line()
        """Its jobs that have not ended, one after the other."""
        self._closed = False
        self._user = user
        self._guarded = guarded
        self._id = session_id
        self._has_state = False
        self._lost_state = False
        self._cached: set[str] = set()
        """Tables that its statements have cached, by their names in Spark."""
        lake.require_spark()
        self._generation = lake.generation
        self._context = self._new_context()
        if vcluster is not None:
            require_vcluster(self._context, vcluster)
            self._context.vcluster = vcluster.lower()
        self._context.query_tag = query_tag
        self._schema = self._context.current()
        if schema is not None:
            self._use(parse_parts(schema))

    def _new_context(self) -> Context:
        context = self._lake._context.new_session()
        context.user = self._user
        context.guarded = self._guarded
        context.session_id = self._id
        settings = context.settings
        size = min(settings.result_bytes_max, settings.result_bytes_kept)
        context.result_limit = Limit(settings.result_rows_max, size)
        return context

    def _use(self, parts: tuple[str, ...]) -> None:
        dispatch.run(self._context, sql.UseSchema(f"USE {'.'.join(parts)}", parts))
        self._schema = self._context.current()

    @property
    def context(self) -> Context:
        return self._context

    @property
    def schema(self) -> str:
        """The current one, with its workspace."""
        return ".".join(self._schema)

    @property
    def vcluster(self) -> str:
        return self._context.vcluster

    def submit(self, text: str, query_tag: str | None = None) -> LiveJob:
        """Have the statement run; what is no statement is refused at once."""
        if len(text) > _LONGEST:
            raise UserError(
                f"The statement has {len(text):,} characters; a server takes {_LONGEST:,}.",
                hint="Write many rows in several statements, or from a DataFrame.",
            )
        statement = parse(text)
        at_once = isinstance(statement, _AT_ONCE)

        def work() -> Result:
            if at_once:
                self._require_open()
                self._look_for_spark()
                return dispatch.run(self._context, statement)
            return self._in_turn(lambda: self._executed(statement))

        vcluster, refreshes = self._refreshed(statement)
        tag = query_tag if query_tag is not None else self._context.query_tag
        common: dict[str, Any] = {"text": masked_sql(text), "creator": self._user.name, "session_id": self._id}
        common |= {"query_tag": tag, "refresh": refreshes}
        if at_once:
            here = vcluster if self._context.store.has_vcluster(vcluster) else DEFAULT
            return self._lake.compute.submit(lambda: told(work), vcluster=here, queued=False, **common)
        return self._submit_in_order(work, vcluster=vcluster, **common)

    def submit_work(self, work: Callable[[Context], Result], *, text: str, query_tag: str | None = None) -> LiveJob:
        """Have a piece of work run that is no statement, in its turn."""
        self._has_state = True  # It may make temporary views, or keep rows.
        return self._submit_in_order(
            lambda: self._in_turn(lambda: self._without_hidden_rows(work)),
            text=text,
            creator=self._user.name,
            vcluster=self._context.vcluster,
            query_tag=query_tag if query_tag is not None else self._context.query_tag,
            session_id=self._id,
        )

    def _without_hidden_rows(self, work: Callable[[Context], Result]) -> Result:
        try:
            return work(self._context)
        except QueryFailed as error:
            cause = error.__cause__
            if self._context.reads_hidden and not isinstance(cause, (AnalysisException, ParseException)):
                raise permitting.without_rows(None) from None
            raise

    def _submit_in_order(self, work: Callable[[], Result], **about: Any) -> LiveJob:
        return self._lake.compute.submit(lambda: told(work), ready=self._lake.await_spark, line=self._line, **about)

    def _executed(self, statement: sql.Statement) -> Result:
        if any(token.upper in _LEAVES_STATE for token in scan(statement.text)[:4]):
            self._has_state = True
        result = dispatch.run(self._context, statement)
        if isinstance(statement, sql.UseSchema):
            self._schema = self._context.current()
        if isinstance(statement, sql.SparkStatement) and statement.verb in _CACHES:
            self._cached.add(self._context.resolve(_after_table(statement.text)).spark(self._context.home))
        return result

    def _refreshed(self, statement: sql.Statement) -> tuple[str, tuple[RefreshRecord, ...]]:
        """A refresh runs on its table's own cluster, and stands in the history from the moment it was asked for."""
        if not isinstance(statement, sql.RefreshDynamicTables):
            return self._context.vcluster, ()
        # Without Spark: this runs beside the session's statements, and must not touch what they work with.
        context, parts = self._context, statement.names[0]
        workspace, schema = self._schema if len(parts) == 1 else (context.home, "")
        try:
            name = resolve(check_parts(parts), workspace=workspace, schema=schema)
            permitting.require_change(context, name)
        except HeadraceError:
            return context.vcluster, ()  # The statement itself says what is wrong, as a job.
        table = context.store.table(name)
        if table is None:
            return context.vcluster, ()
        record = RefreshRecord.begun(table, Occasion(), job_id="", at=self._context.clock(), state="SETUP")
        return table.vcluster, (record,)

    def _in_turn(self, work: Callable[[], Result]) -> Result:
        while not self._turn.acquire(timeout=_LOOK_SECONDS):
            running.require_wanted()
        try:
            self._require_open()
            self._follow_spark()
            return work()
        finally:
            self._turn.release()

    def _follow_spark(self) -> None:
        """After Spark was started again, a new session of it takes this one's place."""
        self._lake.require_spark()
        self._renew()
        if self._lost_state:
            self._lost_state = False
            raise SessionReset(
                "Spark was started again since the last statement of this session: its settings and temporary views "
                f"are gone. The current schema is {self.schema}, the virtual cluster {self.vcluster}.",
                hint="Set them again, then repeat this statement; it was not run.",
            )

    def _look_for_spark(self) -> None:
        """The same for a statement that waits for nobody and uses nothing that could be lost. If one of the session's
        statements is at work, that one has looked."""
        if self._lake.spark_is_up and self._turn.acquire(blocking=False):
            try:
                self._renew()
            finally:
                self._turn.release()

    def _renew(self) -> None:
        if self._generation == self._lake.generation:
            return
        generation = self._lake.generation
        before, self._context = self._context, self._new_context()
        self._context.vcluster, self._context.query_tag = before.vcluster, before.query_tag
        self._context.streams.moves = before.streams.moves
        self._lost_state = self._lost_state or self._has_state
        self._has_state = False
        self._cached.clear()
        try:
            self._use(self._schema)
        except NotFound:  # It was dropped meanwhile; where the session stands now must be told.
            self._schema = self._context.current()
            self._lost_state = True
        self._generation = generation

    def close(self) -> None:
        """Begin nothing more, and let go of what Spark keeps for the session once none of its jobs is left; one at work
        is not stopped by this."""
        self._closed = True
        self._line.when_empty(self._clear)

    def _require_open(self) -> None:
        if self._closed:
            raise Cancelled("The session ended before this began.", hint="Send it again in another session.")

    def _clear(self) -> None:
        """Spark keeps temporary views and cached rows as long as its process lives, whoever uses them."""
        if not self._has_state:
            return
        self._has_state = False
        if self._generation != self._lake.generation or not self._lake.spark_is_up:
            return
        catalog = self._context.spark.catalog
        try:
            views = items(Jvm(self._context.spark).state.catalog().listLocalTempViews("*"))
            for name in [str(view.table()) for view in views]:
                catalog.dropTempView(name)
            for name in self._cached:
                with suppress(AnalysisException):  # It is gone, or was a temporary view.
                    catalog.uncacheTable(name)
        except (Py4JError, PySparkException, OSError) as error:
            _log.warning("What Spark keeps for the session %s could not be dropped: %s", self._id, error)


def _after_table(text: str) -> tuple[str, ...]:
    """The name after the word TABLE.

    >>> _after_table("CACHE LAZY TABLE a.`b c` OPTIONS ('x' = 'y')")
    ('a', 'b c')
    """
    tokens = iter(scan(text))
    next(token for token in tokens if token.upper == "TABLE")
    parts = [next(tokens).value]
    while (token := next(tokens, None)) is not None and token.text == ".":
        parts.append(next(tokens).value)
    return tuple(parts)


def told(work: Callable[[], Given]) -> Given:
    """What the work gives; the end of Spark's Java process becomes an error for people."""
    process = java_process()
    try:
        return work()
    except (HeadraceError, Py4JJavaError, PySparkException):
        raise
    except (Py4JNetworkError, ConnectionError, EOFError) as error:
        raise spark_gone() from error
    except Exception as error:
        if ended_since(process, patience=_DEATH_SECONDS):  # py4j then fails in many ways, some of them odd.
            raise spark_gone() from error
        raise


def asked(lake: Lake, work: Callable[[], Given]) -> Given:
    """What Spark is asked outside of a statement, by the thread of a request: whatever it fails with is an error for
    people."""
    try:
        return told(work)
    except (Py4JJavaError, PySparkException) as error:
        if has_stopped(lake.spark):
            raise spark_gone() from error
        raise dispatch.as_query_failure(error, "") from error


def spark_gone() -> UserError:
    """What is told of a statement whose Spark ended under it."""
    return spark_ended(
        "Spark's Java process ended while this ran.",
        hint="A server starts it again by itself: repeat the statement in half a minute. An embedded lake must be "
        "closed and opened again. The log tells more: logs/headrace.log in the lake.",
    )
