"""Reading streams, and moving their offsets in step with the commit of the statement that read them.

A statement that writes goes through four steps: (1) analysis, which fixes the range of every stream it reads; (2) the
reading is written down, with a number; (3) the statement runs, and its commit carries that number in its user metadata;
(4) the offsets move and the reading is done, in one transaction. Whoever finds a reading that is not done looks for its
number in the target's log: there is nothing to guess.

One process holds a lake, so locks in this process are enough: one for each stream, held from before (1) to after (4),
and one for the texts of the views, held during analysis only.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace import failpoints, running
from headrace.catalog.records import StreamRange, TableStream
from headrace.catalog.store import Store
from headrace.errors import NotAllowed, NotFound, StaleStream
from headrace.plan.jvm import Jvm, cloned, rows_of
from headrace.plan.types import has_floats
from headrace.sql.tokens import Kind, scan
from headrace.storage.delta import DeltaLogs
from headrace.storage.errors import short_message
from headrace.storage.whole import to_its_end
from headrace.streams.plans import ViewRecord, analysed_plan, plan_of, plan_text, provider_of
from headrace.streams.ranges import Waiting, stale, waiting
from headrace.streams.settling import Readings, Target, mark_of, no_delta
from headrace.streams.traces import Traces
from headrace.streams.view import ranges_in, view_text

_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_SKIPS_WRITES = ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion")
_OPTIONS = ("usermetadata", "txnappid", "txnversion")
"""Options of a write that take the place of our mark, or let Delta skip it."""
_GONE = ("FileNotFoundException", "FILE_NOT_EXIST", "does not exist", "DELTA_CHANGE_DATA_FILE_NOT_FOUND")
_UNREADABLE = ("DELTA_MISSING_CHANGE_DATA", "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE", "change data feed was not enabled")

_LOOK_SECONDS = 0.2

Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class Prepared:
    """A statement or DataFrame whose names are resolved. `run` takes the mark that its commit must carry, or None when
    it reads no stream."""

    plan: str
    run: Callable[[str | None], Any]
    provider: str = "delta"
    """The format of a table that is to be created."""


@dataclass(frozen=True)
class Shown:
    """What the view of a stream shows now."""

    shape: tuple[tuple[str, str], ...]
    text: str
    record: ViewRecord | None = None


class Streams:
    """All streams of an open lake; shared by all threads."""

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        logs: DeltaLogs,
        home: str,
        clock: Callable[[], datetime],
        traces: Path,
    ) -> None:
        self._spark = spark
        self._store = store
        self._logs = logs
        self._home = home
        self.traces = Traces(traces, home)
        self.readings = Readings(spark, store, logs, clock, self.traces)
        self._views = threading.RLock()
        self._guard = threading.Lock()
        self._locks: dict[str, threading.RLock] = {}
        self._shown: dict[str, Shown] = {}
        self.moves = True
        """Whether the statements of this session move the streams that they read."""

    def in_session(self, spark: SparkSession) -> Streams:
        """The same streams, for the statements of another session; these move them."""
        other = copy.copy(self)
        other._spark = spark
        other.moves = True
        return other

    # ---- looking

    def waiting(self, stream: TableStream) -> Waiting:
        """What stands to be read."""
        dynamic = self._store.table(stream.source) if stream.is_dynamic else None
        return waiting(self._logs, stream, dynamic)

    def frame(self, text: str) -> DataFrame:
        """A query, with the range of every stream in it fixed."""
        return self._settled(lambda: self._named_in(text), lambda: self._spark.sql(text), plan_of)

    def table(self, parts: str) -> DataFrame:
        """A table, view or stream as a DataFrame, with the range of every stream in it fixed."""
        return self._settled(lambda: self._named_in(parts), lambda: self._spark.table(parts), plan_of)

    def present(self, build: Callable[[], DataFrame]) -> DataFrame:
        """What `build` gives, with every stream showing what stands to be read."""
        return self._settled(list, build, plan_of)

    def read_by(self, rows: DataFrame) -> frozenset[str]:
        """The ids of the streams that a DataFrame reads."""
        return frozenset(part.stream_id for part in ranges_in(plan_of(rows)))

    def refresh_named(self, text: str) -> None:
        """Let the views of the streams that a text names show what stands to be read."""
        with self._views:
            self._show_present(self._named_in(text), {})

    def _show_present(self, streams: Iterable[TableStream], shown: dict[str, StreamRange]) -> list[StaleStream]:
        """The errors of those that cannot be read: a word in a statement need not mean the stream of that name."""
        found = []
        for stream in streams:
            try:
                shown[stream.id] = self._bring_up_to_date(stream)
            except StaleStream as error:
                found.append(error)
        return found

    def _named_in(self, text: str) -> list[TableStream]:
        words = {token.value.lower() for token in scan(text) if token.is_name}
        return [stream for stream in self._store.streams.all() if stream.name in words]

    def _settled(
        self,
        named: Callable[[], Iterable[TableStream]],
        build: Callable[[], Outcome],
        plan: Callable[[Outcome], str],
    ) -> Outcome:
        """What `build` gives once every stream it turns out to read shows what stood to be read when this began."""
        shown: dict[str, StreamRange] = {}
        with self._views:
            stale_ones = self._show_present(named(), shown)
            before: frozenset[StreamRange] = frozenset()
            while True:
                try:
                    built = build()
                except (PySparkException, Py4JJavaError) as error:
                    if stale_ones:
                        raise stale_ones[0] from error
                    self._raise_if_stale(error, shown.values())
                    raise
                found = ranges_in(plan(built))
                for part in found:
                    if part.stream_id not in shown:
                        shown[part.stream_id] = self._bring_up_to_date(self._require(part))
                outdated = frozenset(part for part in found if shown[part.stream_id] != part)
                if outdated and outdated == before:
                    self._require_unread(outdated)
                elif outdated:
                    before = outdated
                    continue
                _refuse_two_ranges(found)
                return built

    def _require_unread(self, ranges: Iterable[StreamRange]) -> None:
        """A DataFrame that cannot be built anew shows an older range: that is right while nobody has read it."""
        for found in ranges:
            stream = self._require(found)
            if (stream.offset, stream.initial) != (found.after, found.initial):
                raise NotAllowed(
                    f"What this DataFrame shows of the table stream {stream.table_name} has been read already, and it "
                    "cannot show more, because it was built with columns of another DataFrame.",
                    hint='Make it again from session.table(…); or name columns with F.col("…").',
                )

    def _require(self, found: StreamRange) -> TableStream:
        stream = self._store.streams.by_id(found.stream_id)
        if stream is None:
            raise StaleStream(
                "A view of a table stream was found whose offset is not known: the operations database has no such "
                "stream.",
                hint="Create it again: CREATE OR REPLACE TABLE STREAM name ON TABLE table.",
            )
        return stream

    def _bring_up_to_date(self, stream: TableStream) -> StreamRange:
        """Let the stream's view show what stands to be read now, and tell what that is."""
        found = self.waiting(stream)
        text = view_text(
            stream, found.columns, found.part, changed=found.changed, began=found.began,
            hides_groups=found.hides_groups, first_columns=found.first_columns,
            floats=frozenset(name for name, type_text in found.shape if has_floats(type_text)),
        )  # fmt: skip
        known = self._shown.get(stream.id)
        if known is None or known.shape != found.shape:
            self._spark.sql(f"CREATE OR REPLACE VIEW {stream.table_name.spark(self._home)} AS {text}")
            self._shown[stream.id] = Shown(found.shape, text)
        elif known.text != text:
            jvm = Jvm(self._spark)
            record = known.record or ViewRecord(jvm, stream.table_name, self._home)
            self._shown.pop(stream.id)  # If this is interrupted, nobody knows what the view shows.
            record.set_text(jvm, text)
            self._shown[stream.id] = Shown(found.shape, text, record)
        return found.part

    def create_view(self, stream: TableStream) -> None:
        with self._views:
            self._shown.pop(stream.id, None)
            self._bring_up_to_date(stream)

    def drop_view(self, stream: TableStream) -> None:
        with self._views:
            self._shown.pop(stream.id, None)
            self._spark.sql(f"DROP VIEW IF EXISTS {stream.table_name.spark(self._home)}")

    # ---- reading

    def run(self, text: str, targets: tuple[Target, ...]) -> DataFrame:
        """A statement that writes. If it reads streams it runs in a session of its own: what a commit carries is a
        setting of the session."""
        jvm = Jvm(self._spark)

        def prepare() -> Prepared:
            analysed = analysed_plan(jvm, text)
            plan = plan_text(analysed)
            if ranges_in(plan):
                refuse_options(token.value for token in scan(text) if token.kind is Kind.STRING or token.is_name)

            def execute(mark: str | None) -> DataFrame:
                session = self._spark if mark is None else cloned(self._spark)
                return self._in_session(session, analysed, mark)

            return Prepared(plan, execute, provider_of(analysed))

        found: DataFrame = self.consume(lambda: self._named_in(text), prepare, targets)
        return found

    def marked(self, rows: DataFrame, mark: str | None) -> DataFrame:
        """The same rows in a session whose commits carry the mark."""
        if mark is None:
            return rows
        return self._in_session(cloned(self._spark), rows._jdf.queryExecution().analyzed(), mark)

    def _in_session(self, session: SparkSession, analysed: Any, mark: str | None) -> DataFrame:
        """A resolved plan in a session; a command runs now."""
        if mark is not None:
            own = str(session.conf.get(_METADATA, "") or "")
            session.conf.set(_METADATA, f"{own} {mark}".strip())
            for key in _SKIPS_WRITES:
                session.conf.unset(key)
        return rows_of(session, analysed)

    def consume(
        self,
        named: Callable[[], Iterable[TableStream]],
        prepare: Callable[[], Prepared],
        targets: tuple[Target, ...],
    ) -> Any:
        """Run what `prepare` gives; if it reads streams, move their offsets with its commit, unless the session does
        not."""
        if not self.moves:
            return self._run_in_place(self._settled(named, prepare, lambda found: found.plan))
        with ExitStack() as locks:
            prepared, ranges = self._held(locks, named, prepare, lambda found: found.plan)
            if not ranges:
                return prepared.run(None)
            if len(targets) != 1:
                raise NotAllowed(
                    "A statement that reads a table stream must write exactly one Delta table: the stream moves with "
                    "that table's commit.",
                    hint="Write a Delta table, or read the stream with SELECT, which does not move it.",
                )
            return self._move_with(prepared, ranges, targets[0])

    def _run_in_place(self, prepared: Prepared) -> Any:
        """As a query reads: nothing moves, and nobody waits."""
        try:
            return prepared.run(None)
        except Exception as error:
            self._raise_if_stale(error, ranges_in(prepared.plan))
            raise

    def _held(
        self,
        locks: ExitStack,
        named: Callable[[], Iterable[TableStream]],
        build: Callable[[], Outcome],
        plan: Callable[[Outcome], str],
    ) -> tuple[Outcome, tuple[StreamRange, ...]]:
        """What `build` gives while all streams that it reads are held by `locks`, and what it reads of them."""
        # Those that are named are taken first: mostly these are all, and one look is enough.
        held = self._hold(locks, [stream.id for stream in named()])
        while True:
            built = self._settled(named, build, plan)
            ranges = tuple(sorted(ranges_in(plan(built)), key=lambda part: part.stream_id))
            wanted = [part.stream_id for part in ranges]
            if set(wanted) <= held:
                return built, ranges
            # And then the ranges are fixed anew, because whoever held a lock has moved its stream.
            locks.close()
            held = self._hold(locks, wanted)

    def _hold(self, locks: ExitStack, stream_ids: Iterable[str]) -> set[str]:
        """In the order of their ids, so that two statements never wait for each other."""
        wanted = sorted(set(stream_ids))
        for stream_id in wanted:
            locks.enter_context(self.lock(stream_id))
        self.readings.settle_of(wanted)
        return set(wanted)

    def _move_with(self, prepared: Prepared, ranges: tuple[StreamRange, ...], target: Target) -> Any:
        path = self.readings.path_of(target)
        if path is None and not target.may_be_new:
            raise NotFound(
                f"There is no table {target.shown} to write what a table stream gives.",
                hint="Name a Delta table of the catalog; a view cannot be written here.",
            )
        if path is None and prepared.provider != "delta":
            raise no_delta(target)
        failpoints.reach("before-reading")
        reading = self.readings.begin(ranges, target, path)
        failpoints.reach("after-reading")
        if path is not None:
            failpoints.watch_for_file("mid-reading", path)
        try:
            outcome = to_its_end(self._spark, lambda: prepared.run(mark_of(reading)))
        except BaseException as error:
            if not self.readings.settle(reading) and isinstance(error, Exception):
                self._raise_if_stale(error, ranges)
            raise
        failpoints.reach("after-stream-commit")
        self.readings.finish(reading, target)
        failpoints.reach("after-offsets")
        return outcome

    @contextmanager
    def delivery(
        self, named: Callable[[], Iterable[TableStream]], build: Callable[[], DataFrame]
    ) -> Iterator[DataFrame]:
        """A DataFrame for a program that takes its rows: the offsets move when the block ends without an error, unless
        those of this session stay."""
        if not self.moves:
            rows = self._settled(named, build, plan_of)
            with self.explained(rows):
                yield rows
            return
        with ExitStack() as locks:
            rows, ranges = self._held(locks, named, build, plan_of)
            with self.explained(rows):
                yield rows
            if ranges:
                self.readings.deliver(ranges)

    @contextmanager
    def lock(self, stream_id: str) -> Iterator[None]:
        """Whoever moves a stream's offset, holds this."""
        with self._guard:
            lock = self._locks.setdefault(stream_id, threading.RLock())
        while not lock.acquire(timeout=_LOOK_SECONDS):
            running.require_wanted()  # Another may hold it for long.
        try:
            running.require_wanted()
            yield
        finally:
            lock.release()

    @contextmanager
    def explained(self, rows: DataFrame) -> Iterator[None]:
        """Missing files of a stream's changes become the error that says so."""
        try:
            yield
        except (PySparkException, Py4JJavaError) as error:
            self._raise_if_stale(error, ranges_in(plan_of(rows)))
            raise

    def _raise_if_stale(self, error: Exception, ranges: Iterable[StreamRange]) -> None:
        if not isinstance(error, PySparkException | Py4JJavaError):
            return
        text = f"{short_message(error)} {error}"
        for found in ranges:
            stream = self._store.streams.by_id(found.stream_id)
            if stream is None:
                continue
            if any(word in text for word in _UNREADABLE):
                why = f"{stream.source} was changed in a way that its change feed cannot tell"
                if "INCOMPATIBLE" in text:
                    why = f"a column of {stream.source} was renamed, dropped or given another type while it had changes"
                raise stale(stream, why) from error
            if any(word in text for word in _GONE) and stream.source_path in text:
                raise stale(stream, f"files with changes of {stream.source} were removed") from error


def refuse_options(keys: Iterable[str]) -> None:
    """Of a write that reads a table stream: its commit must be made, and carry our mark."""
    for key in keys:
        if key.lower() in _OPTIONS:
            raise NotAllowed(
                f"{key} cannot be given for a write that reads a table stream: the stream moves by its commit.",
                hint="Leave the option out.",
            )


def _refuse_two_ranges(found: Iterable[StreamRange]) -> None:
    """All reads of a stream in one statement see the same changes."""
    ids = [part.stream_id for part in found]
    if len(set(ids)) < len(ids):
        raise NotAllowed(
            "Two parts of this statement were made at different times and show different changes of one table stream.",
            hint="Make both from the stream again, with columns by name.",
        )
