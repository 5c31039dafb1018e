"""What Spark does for a load: reading the spooled rows, appending them in one commit, and finding tables.

Everything that needs a JVM is here, and PySpark is loaded only when something is to be done.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import reduce, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from urllib.parse import unquote

from headrace.errors import EnvironmentFault, NotAllowed, NotFound, QueryFailed, Unsupported
from headrace.loading.commits import Files, Found, Numbered
from headrace.loading.fitting import ERROR, LOAD, NUMBER, TEXT, Fit, first_error
from headrace.loading.shapes import Shape, Shapes
from headrace.loading.spool import RowFile
from headrace.loading.types import parsed
from headrace.names import TableName, quote, quote_text
from headrace.storage.delta import DeltaLogs
from headrace.storage.paths import local_path
from headrace.storage.whole import to_its_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_REJECT_TYPES = {
    "batch_id": "string", "row_number": "long", "row": "string", "error": "string", "received_at": "timestamp",
}  # fmt: skip
_ANSI = "spark.sql.ansi.enabled"
_LONGEST_TEXT = 65_536
_NO_NEW_TABLE = "spark.databricks.delta.properties.defaults.feature.headrace-loads-only-into-what-is-there"
"""Delta gives a new table this feature, which it does not know, and refuses. Tables that are there do without."""

Outcome = TypeVar("Outcome")
Arguments = ParamSpec("Arguments")


def _in_our_words(work: Callable[Arguments, Outcome]) -> Callable[Arguments, Outcome]:
    """Spark's errors become ours: whoever waits for a commit knows no Spark."""

    @wraps(work)
    def told(*arguments: Arguments.args, **named: Arguments.kwargs) -> Outcome:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        from headrace.storage.errors import short_message

        try:
            return work(*arguments, **named)
        except (PySparkException, Py4JJavaError) as error:
            message = short_message(error)
            if "No space left on device" in message:
                raise EnvironmentFault(f"The disk is full: {message}", hint="Free some space.") from error
            raise QueryFailed(
                f"Spark could not load the rows: {message}", hint="DESC TABLE shows what the table takes."
            ) from error

    return told


class SparkWriter:
    """`spark` gives a session to work in: a new one each time, whose settings are changed here."""

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        logs: DeltaLogs,
        shapes: Shapes,
        home: str,
        taken: Callable[[TableName], bool],
    ) -> None:
        self._spark = spark
        self._logs = logs
        self._shapes = shapes
        self._home = home
        self._taken = taken

    @_in_our_words
    def judge(self, files: Files, folder: str) -> None:
        session = self._spark()
        told = (f"{LOAD} AS load", f"{NUMBER} AS number", f"{TEXT} AS `row`", f"{ERROR} AS error")
        held = (_held_against(session, file, how).where(f"{ERROR} IS NOT NULL") for file, how in files)
        bad = _all(each.selectExpr(*told) for each in held)
        to_its_end(session, lambda: bad.write.mode("overwrite").parquet(folder))

    @_in_our_words
    def append(self, path: str, files: Files, unfit: Sequence[str], carries: Numbered) -> None:
        session = self._spark()
        self._commit(session, _all(_fitting_rows(session, file, how, unfit) for file, how in files), path, carries)

    @_in_our_words
    def append_rejects(self, path: str, rows: str, carries: Numbered) -> None:
        session = self._spark()
        self._commit(session, session.read.schema(_reject_type()).parquet(rows), path, carries)

    def _commit(self, session: SparkSession, rows: DataFrame, path: str, carries: Numbered) -> None:
        # Where the table was dropped a moment ago, `save` would create one. No table can be created with this.
        session.conf.set(_NO_NEW_TABLE, "supported")
        writer = rows.write.format("delta").mode("append").option("userMetadata", carries.note)
        writer = writer.option("txnAppId", carries.app_id).option("txnVersion", str(carries.sequence))
        to_its_end(session, lambda: writer.save(path))

    # ------------------------------------------------------------------ tables

    @_in_our_words
    def existing(self, tables: Sequence[TableName]) -> list[str]:
        session = self._spark()
        found = []
        for table in tables:
            with suppress(NotAllowed):
                found.append(delta_path(session, table, self._home))
        return [path for path in found if path is not None]

    @_in_our_words
    def rejects_path(self, table: TableName, comment: str) -> str:
        if self._taken(table):
            raise NotAllowed(f"{table} is no plain table.", hint="Rename it: rejected rows need this name.")
        session = self._spark()
        if delta_path(session, table, self._home) is None:
            self._create_rejects(session, table, comment)
        path = delta_path(session, table, self._home)
        if path is None:
            raise NotFound(f"The table {table} was created and cannot be found.", hint="Try again.")
        self._logs.forget(path)
        try:
            shape = self._shapes.now(path)
        except (NotFound, Unsupported) as error:
            raise NotAllowed(error.message, hint=error.hint) from error
        _require_takes_rejects(table, shape)
        return path

    def _create_rejects(self, session: SparkSession, table: TableName, comment: str) -> None:
        from pyspark.errors import AnalysisException

        from headrace.storage.errors import short_message

        types = {"long": "BIGINT", "string": "STRING", "timestamp": "TIMESTAMP"}
        columns = ", ".join(f"{column} {types[kind]}" for column, kind in _REJECT_TYPES.items())
        name = table.spark(self._home)
        try:
            session.sql(f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING delta COMMENT {quote_text(comment)}")
        except AnalysisException as error:  # There are files of somebody where it would be, for instance.
            raise NotAllowed(
                f"{table} cannot be created: {short_message(error)}",
                hint="Rejected rows need it; look at what is in its place.",
            ) from error

    @_in_our_words
    def find(self, table: TableName, table_id: str) -> Found | None:
        session = self._spark()
        try:
            path = delta_path(session, table, self._home)
        except NotAllowed:
            path = None  # Something else has the name now.
        if path is not None:
            try:
                if self._logs.snapshot(path).table_id == table_id:
                    return Found(path, table)
            except NotFound as missing:
                raise EnvironmentFault(
                    f"The files of {table} are not where they should be: {missing.message}",
                    hint="Look at the disk. The rows that wait for the table are kept.",
                ) from missing
        return self._find_renamed(session, table_id)

    def _find_renamed(self, session: SparkSession, table_id: str) -> Found | None:
        """Look at every table of the catalog."""
        for database in session.catalog.listDatabases():
            for each in session.catalog.listTables(database.name):
                if each.isTemporary or each.tableType == "VIEW":
                    continue
                name = TableName(self._home, database.name, each.name)
                try:
                    path = delta_path(session, name, self._home)
                    if path is not None and self._logs.snapshot(path).table_id == table_id:
                        return Found(path, name)
                except (NotAllowed, NotFound):
                    continue
        return None


def delta_path(spark: SparkSession, table: TableName, home: str) -> str | None:
    """Where a table of the catalog is; None when there is none. Raises NotAllowed for what is no Delta table."""
    from pyspark.errors import AnalysisException

    from headrace.plan.jvm import Jvm, optional

    jvm = Jvm(spark)
    database = jvm.root.scala.Some(table.database(home))
    try:
        found = jvm.state.catalog().getTableMetadata(jvm.catalyst.TableIdentifier(table.table, database))
    except AnalysisException:
        return None
    if str(optional(found.provider())).lower() != "delta":
        raise NotAllowed(f"{table} is no Delta table: rows cannot be loaded into it.", hint="Name a Delta table.")
    return unquote(local_path(str(found.location().toString())))


def _require_takes_rejects(table: TableName, shape: Shape) -> None:
    """Raise unless the table takes whatever is rejected."""
    hint = f"Rename it: ALTER TABLE {table} RENAME TO …; it is then created anew."
    for name, kind in _REJECT_TYPES.items():
        column = shape.by_name.get(name)
        if column is None or column.role == "computed" or column.type != parsed(kind):
            raise NotAllowed(f"{table} has not the columns {', '.join(_REJECT_TYPES)}.", hint=hint)
    others = [column for column in shape.columns if column.name.lower() not in _REJECT_TYPES]
    if shape.constraints or any(not column.nullable or column.role == "computed" for column in others):
        raise NotAllowed(f"{table} has conditions that a rejected row may not meet.", hint=hint)


# ---------------------------------------------------------------------- rows


def _read(session: SparkSession, file: RowFile) -> DataFrame:
    """The file's `load`, `number` and `row`."""
    from pyspark.sql import types as T

    fields = [
        {"name": name, "type": json.loads(declared), "nullable": True, "metadata": {}}
        for name, declared, _ in file.spooled.columns
    ]
    row = {"name": "row", "type": {"type": "struct", "fields": fields}, "nullable": True, "metadata": {}}
    others = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("load", "integer"), ("number", "long"))
    ]
    schema = T.StructType.fromJson({"type": "struct", "fields": [*others, row]})
    return session.read.schema(schema).parquet(file.path)


def _all(frames: Iterable[DataFrame]) -> DataFrame:
    return reduce(lambda one, other: one.unionByName(other), frames)


def _fitting_rows(session: SparkSession, file: RowFile, how: Fit, unfit: Sequence[str]) -> DataFrame:
    """What is written to the table: all but the rows that a verdict names."""
    rows = _read(session, file)
    if unfit and not how.is_plain:
        bad = session.read.schema("load INT, number BIGINT").parquet(*unfit)
        rows = rows.join(bad, ["load", "number"], "left_anti")
    return rows.selectExpr(*(f"{value} AS {quote(name)}" for value, name in how.values))


def _held_against(session: SparkSession, file: RowFile, how: Fit) -> DataFrame:
    """Every row with the table's columns, and the reason why it does not fit, if it does not."""
    rows = _read(session, file).selectExpr(
        f"`load` AS {LOAD}",
        f"`number` AS {NUMBER}",
        f"substring(to_json(`row`), 1, {_LONGEST_TEXT}) AS {TEXT}",
        f"{first_error(how.errors)} AS {ERROR}",
        *(f"{value} AS {quote(name)}" for value, name in how.values),
    )
    if how.computed:
        with _without_errors(session):
            rows = rows.selectExpr("*", *(f"{value} AS {quote(name)}" for value, name in how.computed))
    if not how.unmet:
        return rows
    # A part that two conditions share would be computed before both, where nothing catches its errors.
    session.conf.set("spark.sql.subexpressionElimination.enabled", "false")
    kept = [quote(name) for name in rows.columns if name != ERROR]
    return rows.selectExpr(*kept, f"coalesce({ERROR}, {first_error(how.unmet)}) AS {ERROR}")


@contextmanager
def _without_errors(session: SparkSession) -> Iterator[None]:
    """Expressions that are read in this block give NULL, or something, where they would raise: Spark decides that when
    it reads them. Whether they would raise is asked beside them."""
    before = session.conf.get(_ANSI) or "true"
    session.conf.set(_ANSI, "false")
    try:
        yield
    finally:
        session.conf.set(_ANSI, before)


def _reject_type() -> Any:
    from pyspark.sql import types as T

    fields = [{"name": n, "type": k, "nullable": True, "metadata": {}} for n, k in _REJECT_TYPES.items()]
    return T.StructType.fromJson({"type": "struct", "fields": fields})
