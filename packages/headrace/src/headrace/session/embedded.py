"""A session of a lake that is open in this process: where its DataFrames begin."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame as SparkFrame

from headrace.engine import Lake
from headrace.errors import BadSetting
from headrace.names import parse_parts, quote
from headrace.session.frames import DataFrame, Moves, quoted_name, told
from headrace.sql import statements as sql
from headrace.sql.parser import parse
from headrace.statements import dispatch
from headrace.statements.context import Context


class LakeFrames:
    """What `headrace.session.Session` does in an open lake."""

    def __init__(self, lake: Lake, *, schema: str | None, vcluster: str | None) -> None:
        self._lake = lake
        self._context: Context = lake._context if schema is None else lake._context.new_session()
        if vcluster is not None and not self._context.store.has_vcluster(vcluster):
            known = ", ".join(self._context.store.vclusters())
            raise BadSetting(f"There is no virtual cluster '{vcluster}'.", hint=f"There are: {known}.")
        if schema is not None:
            dispatch.execute(self._context, f"USE {quoted_name(schema)}")

    def sql(self, text: str) -> DataFrame:
        self._lake._require_open()
        statement = parse(text)
        if is_query(statement):
            return DataFrame(
                self._context,
                lambda: query_rows(self._context, statement),
                Moves.WHEN_WRITTEN,
                query=text.strip(),
            )
        return DataFrame.of_statement(self._context, lambda: dispatch.execute(self._context, text))

    def table(self, name: str, consume: bool = True) -> DataFrame:
        self._lake._require_open()
        parts = parse_parts(name)
        return DataFrame(
            self._context,
            lambda: table_rows(self._context, parts),
            Moves.ALWAYS if consume else Moves.NEVER,
            query=query_of_table(parts),
        )

    def create_dataframe(self, data: Any, schema: Any = None) -> DataFrame:
        self._lake._require_open()
        with told():
            rows = self._context.spark.createDataFrame(data, schema)
        return DataFrame(self._context, lambda: rows, Moves.NEVER)


def is_query(statement: sql.Statement) -> bool:
    return isinstance(statement, sql.SparkStatement) and statement.verb in dispatch.QUERIES


def query_rows(context: Context, statement: sql.Statement) -> SparkFrame:
    assert isinstance(statement, sql.SparkStatement)
    return context.streams.frame(dispatch.prepared_text(context, statement))


def table_rows(context: Context, parts: tuple[str, ...]) -> SparkFrame:
    # A name of one part may be that of a temporary view; Spark looks in the current schema next.
    name = quote(parts[0]) if len(parts) == 1 else context.resolve(parts).spark(context.home)
    return context.streams.table(name)


def query_of_table(parts: tuple[str, ...]) -> str:
    return f"SELECT * FROM {'.'.join(map(quote, parts))}"
