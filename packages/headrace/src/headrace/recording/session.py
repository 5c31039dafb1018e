"""A session over a URL: where its DataFrames begin."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headrace.client.lake import RemoteLake
from headrace.errors import UserError
from headrace.names import parse_parts
from headrace.recording.frames import DataFrame, StatementFrame, arrow_stream
from headrace.recording.plans import MAX_ROWS_BYTES, too_big
from headrace.recording.sending import Sender
from headrace.recording.tree import LocalRows, LocalTable, Query, Table
from headrace.recording.values import recorded
from headrace.sql import statements as sql
from headrace.sql.parser import parse

QUERIES = ("SELECT", "TABLE", "VALUES", "MAP", "REDUCE", "(")


class RemoteFrames:
    """What `headrace.session.Session` does on a server."""

    def __init__(self, lake: RemoteLake) -> None:
        self._sender = Sender(lake)

    def sql(self, text: str) -> DataFrame:
        statement = parse(text)
        if isinstance(statement, sql.SparkStatement) and statement.verb in QUERIES:
            return DataFrame(self._sender, Query(text))
        return StatementFrame(self._sender, text)

    def table(self, name: str, consume: bool = True) -> DataFrame:
        parse_parts(name)
        return DataFrame(self._sender, Table(name, bool(consume)))

    def create_dataframe(self, data: Any, schema: Any = None) -> DataFrame:
        wanted = list(schema) if isinstance(schema, tuple) else recorded(schema)
        if isinstance(data, pa.Table):
            return self._of_table(data, wanted, pandas=False)
        if type(data).__module__.partition(".")[0] == "pandas":
            return self._of_table(_from_pandas(data), wanted, pandas=True)
        if hasattr(data, "shape") and hasattr(data, "tolist"):
            data = data.tolist()
        try:
            rows = tuple(recorded(row) for row in data)
        except TypeError:
            raise UserError(
                f"A DataFrame cannot be made of a {type(data).__name__}.",
                hint="Give a list of rows, tuples or dicts, a pandas DataFrame or an Arrow table.",
            ) from None
        return DataFrame(self._sender, LocalRows(rows, wanted))

    def _of_table(self, table: pa.Table, schema: Any, *, pandas: bool) -> DataFrame:
        arrow = arrow_stream(table)
        if len(arrow) > MAX_ROWS_BYTES:
            raise too_big(len(arrow))
        return DataFrame(self._sender, LocalTable(arrow, schema, pandas))


def _from_pandas(data: Any) -> pa.Table:
    try:
        return pa.Table.from_pandas(data, preserve_index=False)
    except pa.ArrowException as error:
        raise UserError(
            f"This pandas DataFrame cannot be sent: {str(error).splitlines()[0]}.",
            hint="Give each column values of one type.",
        ) from None
