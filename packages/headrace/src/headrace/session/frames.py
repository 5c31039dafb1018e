"""DataFrames of a session: PySpark's, with its methods under their own names and in snake_case.

The rule: an attribute is looked up on PySpark's DataFrame, as it is written or else without regard to underscores and
case (`with_column` is `withColumn`, `to_df` is `toDF`). A method that gives a DataFrame gives one of these. Written out
by hand are only the methods that PySpark has not (`rename`, `cache_result`, `create_or_replace_view`, …) and those
that deliver rows, because these move the offsets of streams.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from functools import cached_property
from typing import Any

import pandas
import pyarrow as pa
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, GroupedData, Row
from pyspark.sql import DataFrame as SparkFrame
from pyspark.sql.readwriter import DataFrameWriter

from headrace.errors import AlreadyExists, BadSetting, EnvironmentFault, NotAllowed
from headrace.names import parse_parts, quote, quote_text
from headrace.plan.writing import query_of
from headrace.result import Result
from headrace.session.building import native
from headrace.statements import dispatch
from headrace.statements.context import Context
from headrace.streams.plans import plan_of
from headrace.streams.reading import Prepared, refuse_options
from headrace.streams.settling import Target
from headrace.streams.view import ranges_in

_BYPASSES = (
    "na", "stat", "rdd", "writeStream", "writeTo", "mergeInto", "pandas_api", "foreach", "foreachPartition",
    "checkpoint", "localCheckpoint",
)  # fmt: skip
"""What would take the rows of a stream past us."""
_MODES = ("append", "overwrite", "errorifexists", "error", "ignore")


@contextmanager
def told() -> Iterator[None]:
    """Spark's errors in our form, as in SQL."""
    # PySpark logs every such error with its whole stack trace; ours says all that is needed.
    PySparkLogger.getLogger("DataFrameQueryContextLogger").disabled = True
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise dispatch.as_query_failure(error, "") from error
    except (Py4JNetworkError, ConnectionError) as error:
        raise EnvironmentFault(
            "Spark does not answer: the session is closed, or its Java process has ended.", hint="Open another session."
        ) from error


class Moves(Enum):
    """When a DataFrame moves the offsets of the streams that it reads."""

    NEVER = 0
    WHEN_WRITTEN = 1
    ALWAYS = 2
    """When written, and when its rows are delivered."""


def _spelled(kind: type, name: str) -> str | None:
    """The name under which PySpark knows an attribute."""
    if name.startswith("_"):
        return None
    if hasattr(kind, name):
        return name
    plain = name.replace("_", "").lower()
    return next(
        (found for found in dir(kind) if found.replace("_", "").lower() == plain and not found.startswith("_")), None
    )


class DataFrame:
    """Rows to be computed: tables show what is in them, and streams what stands to be read, when an action begins."""

    def __init__(
        self,
        context: Context,
        build: Callable[[], SparkFrame],
        moves: Moves,
        *,
        query: str | None = None,
        first: SparkFrame | None = None,
        waits: Callable[[], bool] = lambda: False,
    ) -> None:
        self._waits = waits
        self._context = context
        self._build = build
        self._moves = moves
        self._query = query
        self._made = first

    @classmethod
    def of_statement(cls, context: Context, run: Callable[[], Result]) -> DataFrame:
        """A statement that runs once, when its result is first asked for."""
        done: list[SparkFrame] = []

        def build() -> SparkFrame:
            if not done:
                done.append(context.spark.createDataFrame(run().to_arrow()))
            return done[0]

        return cls(context, build, Moves.NEVER, waits=lambda: not done)

    @cached_property
    def _first(self) -> SparkFrame:
        """As it was when it was made."""
        with told():
            return self._build() if self._made is None else self._made

    @cached_property
    def _reads_streams(self) -> bool:
        return bool(ranges_in(plan_of(self._first)))

    @property
    def _may_read_streams(self) -> bool:
        """A view that it reads may be another one by now: it surely reads no stream only while there is none."""
        return bool(self._context.store.streams.all())

    def _again(self) -> SparkFrame:
        """Built anew, so that it shows what stands to be read now. Columns taken from a DataFrame (`df["id"]`) belong
        to that one alone; where they are used, the first one stays."""
        try:
            return self._build()
        except AnalysisException as error:
            if (error.getCondition() or "").startswith("MISSING_ATTRIBUTES"):
                return self._first
            raise

    def _look(self) -> SparkFrame:
        """For actions that move nothing."""
        return self._context.streams.present(self._again) if self._may_read_streams else self._again()

    # ---- PySpark's methods, by the rule

    def __getattr__(self, name: str) -> Any:
        own = _spelled(DataFrame, name)
        if own is not None:
            return getattr(self, own)
        spelled = _spelled(SparkFrame, name)
        if spelled is None:
            if not name.startswith("_") and name in self._first.columns:
                return self._first[name]
            raise AttributeError(f"A DataFrame has no attribute {name!r}.")
        if spelled in _BYPASSES and self._reads_streams:
            raise NotAllowed(
                f"{name} of a DataFrame that reads a table stream would not move it.",
                hint="Use write.save_as_table, or session.table(…, consume=False); cache_result keeps the rows, and "
                "fillna and dropna do what na does.",
            )
        method = getattr(SparkFrame, spelled)
        if not callable(method):
            return getattr(self._first, spelled)
        gives = str(inspect.signature(method).return_annotation)
        if spelled == "randomSplit":
            return self._split
        if re.fullmatch(r"['\"]?(Parent)?DataFrame['\"]?", gives):
            return lambda *arguments, **named: self._derived(spelled, arguments, named)
        if "GroupedData" in gives:
            return lambda *arguments, **named: self._grouped(spelled, arguments, named)
        return lambda *arguments, **named: self._acted(spelled, arguments, named)

    def __getitem__(self, item: Any) -> Any:
        found = self._first[native(item)]
        return found if isinstance(found, Column) else self._derived("__getitem__", (item,), {})

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *dir(SparkFrame), *self._first.columns})

    def __repr__(self) -> str:
        # A look at it, as every notebook takes one, must not run a statement.
        return "<a statement that has not run yet: collect() runs it>" if self._waits() else repr(self._first)

    def _derived(self, method: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> DataFrame:
        others = [each for each in (*arguments, *named.values()) if isinstance(each, DataFrame)]
        reading = {frame._moves for frame in (self, *others) if frame._reads_streams}
        if len(reading) > 1:
            raise NotAllowed(
                "One of these DataFrames moves the table stream that it reads, and another only looks at its own.",
                hint="Make both with session.table(…), with the same value of consume.",
            )
        moves = next(iter(reading), self._moves)
        with told():
            first = _called(self._first, method, arguments, named, _first_of)
        return DataFrame(
            self._context,
            lambda: _called(self._again(), method, arguments, named, _again_of),
            moves,
            first=first,
        )

    def _grouped(self, method: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Grouped:
        return Grouped(self, lambda: _called(self._again(), method, arguments, named, _again_of))

    def _split(self, weights: list[float], seed: int | None = None) -> list[DataFrame]:
        if self._reads_streams and self._moves is not Moves.NEVER:
            raise NotAllowed(
                "The first part of a split table stream would move it, and the others would find nothing.",
                hint="Split cache_result(), or session.table(…, consume=False).",
            )

        def part(place: int) -> DataFrame:
            return DataFrame(self._context, lambda: self._again().randomSplit(weights, seed)[place], self._moves)

        return [part(place) for place in range(len(weights))]

    def _acted(self, method: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        with told():
            rows = self._look()
            with self._context.streams.explained(rows):
                return _called(rows, method, arguments, named, _again_of)

    # ---- what delivers rows

    def collect(self) -> list[Row]:
        found: list[Row] = self._delivered(lambda rows: rows.collect())
        return found

    def to_pandas(self) -> pandas.DataFrame:
        return self._delivered(lambda rows: rows.toPandas())

    def to_arrow(self) -> pa.Table:
        return self._delivered(lambda rows: rows.toArrow())

    def to_local_iterator(self, prefetch_partitions: bool = False) -> Iterator[Row]:
        return iter(self.collect())

    def __iter__(self) -> Iterator[Row]:
        return iter(self.collect())

    def _delivered(self, take: Callable[[SparkFrame], Any]) -> Any:
        with told():
            if self._moves is not Moves.ALWAYS or not self._may_read_streams:
                rows = self._look()
                with self._context.streams.explained(rows):
                    return take(rows)
            with self._context.streams.delivery(list, self._again) as rows:
                return take(rows)

    # ---- what PySpark has not

    def rename(self, columns: Mapping[str, str] | str, new: str | None = None) -> DataFrame:
        """rename("a", "b") or rename({"a": "b"})"""
        if isinstance(columns, str):
            if new is None:
                raise BadSetting("rename needs the new name.", hint='rename("old", "new") or rename({"old": "new"}).')
            columns = {columns: new}
        return self._derived("withColumnsRenamed", (dict(columns),), {})

    def cache_result(self) -> DataFrame:
        """The rows as they are now, computed once and kept while this program runs. Moves nothing."""
        with told():
            rows = self._look()
            with self._context.streams.explained(rows):
                kept = rows.localCheckpoint(eager=True)
        return DataFrame(self._context, lambda: kept, Moves.NEVER)

    def create_or_replace_view(self, name: str) -> None:
        dispatch.execute(self._context, f"CREATE OR REPLACE VIEW {quoted_name(name)} AS {self._as_sql()}")

    def create_or_replace_dynamic_table(
        self,
        name: str,
        *,
        refresh_interval: str | None = None,
        vcluster: str | None = None,
        refresh_mode: str | None = None,
        comment: str | None = None,
    ) -> None:
        """CREATE OR REPLACE DYNAMIC TABLE with this query; `refresh_interval` is "5 MINUTE" and the like."""
        clauses = [f"REFRESH INTERVAL {refresh_interval}"] if refresh_interval is not None else []
        if vcluster is not None:
            clauses.append(f"{'' if clauses else 'REFRESH '}VCLUSTER {quote(vcluster)}")
        if refresh_mode is not None:
            clauses.append(f"REFRESH_MODE = {refresh_mode}")
        if comment is not None:
            clauses.append(f"COMMENT {quote_text(comment)}")
        dispatch.execute(
            self._context,
            f"CREATE OR REPLACE DYNAMIC TABLE {quoted_name(name)} {' '.join(clauses)} AS {self._as_sql()}",
        )

    def _as_sql(self) -> str:
        if self._query is not None:
            return self._query
        if self._reads_streams:
            raise NotAllowed(
                "This DataFrame reads a table stream: its query is known only as it is at this moment.",
                hint='Write it as SQL: session.sql("SELECT … FROM stream").create_or_replace_view(…).',
            )
        home = self._context.home
        dynamic = frozenset(
            f"{table.table_name.database(home)}.{table.name}".lower() for table in self._context.store.tables()
        )
        return query_of(self._context.spark, self._first, dynamic)

    @property
    def write(self) -> Writer:
        return Writer(self)


class Writer:
    """PySpark's DataFrameWriter, by the same rule. Writing a table moves the offsets of streams with its commit."""

    def __init__(self, rows: DataFrame, calls: tuple[tuple[str, tuple[Any, ...], Mapping[str, Any]], ...] = ()) -> None:
        self._rows = rows
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        own = _spelled(Writer, name)
        if own is not None:
            return getattr(self, own)
        spelled = _spelled(DataFrameWriter, name)
        if spelled is None:
            raise AttributeError(f"A writer has no attribute {name!r}.")

        def call(*arguments: Any, **named: Any) -> Any:
            after = Writer(self._rows, (*self._calls, (spelled, arguments, named)))
            if spelled in ("mode", "format", "option", "options", "partitionBy", "bucketBy", "sortBy", "clusterBy"):
                return after
            return after._write_elsewhere()

        return call

    def save_as_table(self, name: str, mode: str = "errorifexists", **options: Any) -> None:
        """`mode` is append, overwrite, errorifexists or ignore."""
        context = self._rows._context
        parts = parse_parts(name)
        full = context.resolve(parts)
        mode = next((str(arguments[0]) for method, arguments, _ in reversed(self._calls) if method == "mode"), mode)
        if mode.lower() not in _MODES:
            raise BadSetting(f"There is no mode '{mode}'.", hint=f"The modes are {', '.join(_MODES)}.")
        dispatch.refuse_write(context, parts, "save_as_table")
        there = context.exists(full)
        if there and mode.lower() == "ignore":
            return
        if there and mode.lower() in ("errorifexists", "error"):
            raise AlreadyExists(f"The table {full} exists already.", hint='Write mode="append" or mode="overwrite".')
        target = Target(str(full), full.database(context.home), full.table, may_be_new=True)

        configured = Writer(self._rows, (*self._calls, ("options", (), options)))

        def write(rows: SparkFrame) -> None:
            configured._configured(rows).mode(mode).saveAsTable(full.spark(context.home))

        configured._run(write, (target,))

    def insert_into(self, name: str, overwrite: bool = False) -> None:
        """By position, as SQL's INSERT."""
        context = self._rows._context
        full = context.resolve(parse_parts(name))
        dispatch.refuse_write(context, parse_parts(name), "insert_into")

        def write(rows: SparkFrame) -> None:
            self._configured(rows).insertInto(full.spark(context.home), overwrite)

        self._run(write, (Target(str(full), full.database(context.home), full.table),))

    def _configured(self, rows: SparkFrame) -> DataFrameWriter:
        writer = rows.write
        for method, arguments, named in self._calls:
            writer = getattr(writer, method)(*arguments, **named)
        return writer

    def _write_elsewhere(self) -> None:
        """Files and other formats have no commit that an offset could move with."""
        (method, arguments, named) = self._calls[-1]
        before = Writer(self._rows, self._calls[:-1])
        self._run(lambda rows: getattr(before._configured(rows), method)(*arguments, **named), ())

    def _run(self, write: Callable[[SparkFrame], None], targets: tuple[Target, ...]) -> None:
        with told():
            self._write(write, targets)

    def _write(self, write: Callable[[SparkFrame], None], targets: tuple[Target, ...]) -> None:
        rows = self._rows
        if rows._moves is Moves.NEVER or not rows._may_read_streams:
            frame = rows._look()
            with rows._context.streams.explained(frame):
                write(frame)
            return

        provider = next(
            (str(given[0]).lower() for name, given, _ in reversed(self._calls) if name == "format"), "delta"
        )

        def prepare() -> Prepared:
            frame = rows._again()
            plan = plan_of(frame)
            if ranges_in(plan):
                refuse_options(str(key) for _, arguments, named in self._calls for key in (*arguments[:1], *named))
            return Prepared(plan, lambda mark: write(rows._context.streams.marked(frame, mark)), provider)

        rows._context.streams.consume(list, prepare, targets)


class Grouped:
    """PySpark's GroupedData, by the same rule."""

    def __init__(self, rows: DataFrame, build: Callable[[], GroupedData]) -> None:
        self._rows = rows
        self._build = build

    def __getattr__(self, name: str) -> Any:
        spelled = _spelled(GroupedData, name)
        if spelled is None:
            raise AttributeError(f"Groups have no attribute {name!r}.")

        def call(*arguments: Any, **named: Any) -> Any:
            def build() -> Any:
                return _called(self._build(), spelled, arguments, named, native)

            with told():
                found = build()
            if isinstance(found, GroupedData):
                return Grouped(self._rows, build)
            return DataFrame(self._rows._context, build, self._rows._moves, first=found)

        return call


def _called(
    rows: Any, method: str, arguments: tuple[Any, ...], named: Mapping[str, Any], plain: Callable[[Any], Any]
) -> Any:
    return getattr(rows, method)(*map(plain, arguments), **{key: plain(each) for key, each in named.items()})


def _first_of(value: Any) -> Any:
    return value._first if isinstance(value, DataFrame) else native(value)


def _again_of(value: Any) -> Any:
    return value._again() if isinstance(value, DataFrame) else native(value)


def quoted_name(name: str) -> str:
    return ".".join(map(quote, parse_parts(name)))
