"""Python code in a session of the lake, beside its Spark: what dbt's Python models are.

It is code on the machine of the lake, with all that the process may do. So it needs what a task with a Python file
needs: the server must allow it, and the user must be an operator. Reading and writing through `_headrace` asks for the
user's grants as SQL does; that is a help for the honest, not a wall.
"""

from __future__ import annotations

import hashlib
import traceback
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame as SparkFrame

from headrace.errors import HeadraceError, NotAllowed, TaskFailed, UserError
from headrace.names import parse_parts, quote, quote_text
from headrace.plan.jvm import rows_of
from headrace.result import Result, done
from headrace.session.embedded import query_rows, table_rows
from headrace.session.frames import told
from headrace.session.interrupting import interruptible
from headrace.sql.parser import parse
from headrace.statements import dispatch, guarding, permitting
from headrace.statements.context import Context

_LONGEST = 4000


@dataclass(frozen=True)
class CodeWork:
    """A piece of code, and its name."""

    code: str
    name: str

    @property
    def text(self) -> str:
        """For the list of jobs."""
        return f"PYTHON {self.name}"

    @property
    def digest(self) -> str:
        """For the audit log, which says what was run without holding it."""
        return hashlib.sha256(self.code.encode("utf-8", "surrogatepass")).hexdigest()

    def run(self, context: Context) -> Result:
        permitting.require_code(context, "A Python model", "Python models")
        try:
            program = compile(self.code, self.name, "exec")
        except (SyntaxError, ValueError) as error:
            raise UserError(f"{self.name} is no Python: {error}.", hint="Mend it, then run it again.") from None
        names: dict[str, Any] = {"__name__": "__headrace__", "_headrace": Tables(context), "spark": context.spark}

        try:
            # This is what it is for; see above who may.
            interruptible(lambda: exec(program, names), self.name)  # noqa: S102
        except HeadraceError:
            raise
        except PySparkException as error:
            raise dispatch.as_query_failure(error, "") from error
        except Exception as error:
            raise self._failed(error) from error
        except SystemExit as error:
            raise TaskFailed(
                f"{self.name} ended itself with {error.code!r}.", hint="Let the code return instead of calling exit()."
            ) from None
        return done(f"{self.name} has run.")

    def _failed(self, error: Exception) -> TaskFailed:
        """The error with the lines of the code that led to it."""
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == self.name]
        lines = self.code.splitlines()
        shown = "".join(
            f"\n  line {frame.lineno}: {lines[frame.lineno - 1].strip()}"
            for frame in own
            if frame.lineno is not None and frame.lineno <= len(lines)
        )
        return TaskFailed(
            f"{self.name} failed: {type(error).__name__}: {error}{shown}"[:_LONGEST],
            hint="The lines are those of the code that was sent: mend them, then run it again.",
        )


def work_of(code: str, name: str) -> CodeWork:
    return CodeWork(code, name)


class Tables:
    """What the code reads and writes the lake with."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.spark = context.spark

    def table(self, name: str) -> SparkFrame:
        """A table, view or dynamic table, or a query in parentheses."""
        with told():
            if name.lstrip().startswith("("):
                text = f"SELECT * FROM {name}"
                statement = parse(text)
                guarding.refuse_dangerous(self._context, statement)
                permitting.require(self._context, statement)
                return self._without_streams(query_rows(self._context, statement))
            parts = parse_parts(name)
            permitting.require_read(self._context, self._context.resolve(parts))
            return self._without_streams(table_rows(self._context, parts))

    def _without_streams(self, rows: SparkFrame) -> SparkFrame:
        """Code may take rows out of a DataFrame, or write them in two steps: nobody could tell whether a stream that
        they came from must move."""
        if self._context.streams.read_by(rows):
            raise NotAllowed(
                "Python code of a model cannot read a table stream, nor a view of one: its changes could be lost.",
                hint="Read the stream in an incremental SQL model, and let the Python model read that.",
            )
        return rows

    def save(
        self,
        rows: Any,
        name: str,
        *,
        partition_by: Sequence[str] = (),
        clustered_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Put the rows into a table, in the place of what it has: one commit."""
        parts = parse_parts(name)
        permitting.require_change(self._context, self._context.resolve(parts))
        frame = self._without_streams(self._frame(rows))
        # The user may have made these rows of anything, and may write the table: that is asked for above.
        own = self._context.for_user(replace(self._context.user, unlimited=True))
        own.guarded = False
        view = f"__hr_rows_{uuid.uuid4().hex[:8]}"
        frame.createOrReplaceTempView(view)
        try:
            dispatch.execute(
                own,
                f"CREATE OR REPLACE TABLE {'.'.join(map(quote, parts))} "
                f"{_clauses(partition_by, clustered_by, properties or {})} AS SELECT * FROM {view}",
            )
        finally:
            self.spark.catalog.dropTempView(view)

    def _frame(self, rows: Any) -> SparkFrame:
        if isinstance(rows, pandas.DataFrame):
            rows = self.spark.createDataFrame(rows)
        elif hasattr(rows, "to_spark"):  # pandas on Spark, which need not be loaded to look.
            rows = self._here(rows.to_spark())
        if not isinstance(rows, SparkFrame):
            raise UserError(
                f"The rows are a {type(rows).__name__}, which is no table.",
                hint="Return a DataFrame of PySpark or of pandas.",
            )
        return rows

    def _here(self, rows: SparkFrame) -> SparkFrame:
        """In this session: pandas on Spark uses the one that any thread of the process used last."""
        return rows_of(self.spark, rows._jdf.queryExecution().analyzed())


def _clauses(partition_by: Sequence[str], clustered_by: Sequence[str], properties: Mapping[str, str]) -> str:
    """
    >>> _clauses(["day"], [], {"owner": "ann"})
    "PARTITIONED BY (`day`) TBLPROPERTIES ('owner' = 'ann')"
    """
    found = []
    if partition_by:
        found.append(f"PARTITIONED BY ({', '.join(map(quote, partition_by))})")
    if clustered_by:
        found.append(f"CLUSTER BY ({', '.join(map(quote, clustered_by))})")
    if properties:
        pairs = (f"{quote_text(str(key))} = {quote_text(str(value))}" for key, value in properties.items())
        found.append(f"TBLPROPERTIES ({', '.join(pairs)})")
    return " ".join(found)
