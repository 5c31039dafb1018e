"""How many rows an INSERT has put in. Spark says nothing of it; Delta writes it down in the commit, and tells the
session which version that was. So it costs no job, and nobody else's commit is counted."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.errors import HeadraceError
from headrace.result import Result, from_rows
from headrace.statements.context import Context
from headrace.streams.settling import Target

_LAST_COMMIT = "spark.databricks.delta.lastCommitVersionInSession"
_COUNTS = [("num_affected_rows", pa.int64()), ("num_inserted_rows", pa.int64())]


def forget(session: SparkSession) -> None:
    """Before the statement: what the session did until now is not asked."""
    session.conf.unset(_LAST_COMMIT)


def inserted(context: Context, session: SparkSession, targets: tuple[Target, ...]) -> Result | None:
    """The count, in the form that UPDATE and MERGE have; None where nobody can tell, as of a table that is no Delta's.
    `session` is the one that ran the statement."""
    if len(targets) != 1:
        return None
    version = session.conf.get(_LAST_COMMIT, None)
    try:
        path = context.streams.readings.path_of(targets[0])
        if path is None:
            return None
        if version is None:
            return _counted(0)  # Delta commits nothing where there is nothing to write.
        rows = context.logs.rows_written(path, int(version))
    except HeadraceError:
        return None
    return None if rows is None else _counted(rows)


def _counted(rows: int) -> Result:
    return from_rows(_COUNTS, [(rows, rows)])
