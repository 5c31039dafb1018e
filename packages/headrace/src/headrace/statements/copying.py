"""Loading rows: COPY INTO, and batches that a server's clients send. Both go into plain Delta tables only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from headrace.errors import EnvironmentFault, HeadraceError, NotFound
from headrace.loading.files import FileReader, format_of, listed
from headrace.loading.receiving import Form, Receipt
from headrace.loading.writing import delta_path
from headrace.names import TableName, parse_parts, resolve
from headrace.result import Result, from_rows
from headrace.sql import statements as sql
from headrace.statements import permitting
from headrace.statements.context import Context

FILES = "files"
"""The folder in a lake from which a server's users load files."""
_COLUMNS = (
    ("file", pa.string()), ("state", pa.string()), ("rows", pa.int64()), ("rejected", pa.int64()),
    ("error", pa.string()), ("note", pa.string()),
)  # fmt: skip


def copy_into(context: Context, statement: sql.CopyInto) -> Result:
    table = context.resolve(statement.name)
    path = plain_table(context, table, "COPY INTO")
    own = Path(context.settings.path) / FILES
    limited = context.guarded and not (context.user.is_admin and context.settings.allow_unsafe_sql)
    roots = (own, *context.settings.copy_folders) if limited else None
    files = listed(statement.files, own if context.guarded else Path.cwd(), roots)
    reader = FileReader.with_options(statement.file_format or format_of(files), statement.options)
    copied = context.loads.copies.copy(
        table,
        path,
        files,
        reader,
        force=statement.force,
        creator=context.user.name,
    )
    rows = [(each.file, each.state, each.rows, each.rejected, each.error, each.note) for each in copied]
    return from_rows(_COLUMNS, rows, context.settings.timezone)


def loadable(context: Context, name: str) -> TableName:
    """The table that the user of this context may send rows to. A name with one part means the lake's own schema.
    Nothing is known yet of whether it exists."""
    home = context.home
    table = resolve(parse_parts(name), workspace=home, schema=context.settings.schema_name)
    table = context.name_of(table.database(home), table.table)
    permitting.require_change(context, table)
    return table


def receive(context: Context, name: str, body: bytes, form: Form, batch_id: str | None) -> Receipt:
    """Take a batch from the user of this context."""
    table = loadable(context, name)
    with _spark_answers():
        path = plain_table(context, table, "a batch of rows")
    return context.loads.receiver.receive(table, path, body, form, batch_id, context.user.name)


def plain_table(context: Context, table: TableName, what: str) -> str:
    """Where a Delta table is that may be written. Dynamic tables, streams and views are refused."""
    from headrace.statements.dispatch import refuse_write  # It knows this module.

    refuse_write(context, (table.workspace, table.schema, table.table), what)
    path = delta_path(context.spark, table, context.home)
    if path is None:
        raise NotFound(f"There is no table {table}.", hint="SHOW TABLES lists them.")
    return path


@contextmanager
def _spark_answers() -> Iterator[None]:
    """A batch comes outside of any job: what Spark's end looks like is told here."""
    try:
        yield
    except HeadraceError:
        raise
    except (Py4JError, PySparkException, ConnectionError, EOFError) as error:
        raise EnvironmentFault("Spark's catalog does not answer now.", hint="Send the batch again.") from error
