"""Python sessions: `Session.builder.configs({…}).create()`, then SQL, tables, streams and DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from pyspark.sql import DataFrame as SparkFrame

import headrace
from headrace.engine import Lake
from headrace.errors import BadSetting
from headrace.names import parse_parts, quote
from headrace.session.frames import DataFrame, Moves, quoted_name, told
from headrace.sql import statements as sql
from headrace.sql.parser import parse
from headrace.statements import dispatch
from headrace.statements.context import Context

__all__ = ["DataFrame", "Session"]

_KEYS = ("username", "password", "service", "instance", "workspace", "schema", "vcluster", "path")
_EMBEDDED = "embedded"


class Builder:
    """Collects the connection's values; `create` opens it."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def config(self, key: str, value: Any) -> Builder:
        return self.configs({key: value})

    def configs(self, values: Mapping[str, Any]) -> Builder:
        for key in values:
            if key not in _KEYS:
                raise BadSetting(f"A session has no setting '{key}'.", hint=f"The settings are {', '.join(_KEYS)}.")
        self._values |= values
        return self

    def create(self) -> Session:
        service = str(self._values.get("service", _EMBEDDED))
        if service != _EMBEDDED:
            raise BadSetting(
                f"There is no way to connect to the service '{service}' yet.",
                hint="Write service: 'embedded' and path: the folder of a lake; it is opened in this process.",
            )
        if not self._values.get("path"):
            raise BadSetting("An embedded session needs a path.", hint="path: the folder of the lake, new or not.")
        lake = headrace.open(Path(str(self._values["path"])), workspace=self._values.get("workspace"))
        try:
            schema = self._values.get("schema")
            if schema is not None:
                lake.sql(f"USE {quoted_name(schema)}")
            return Session(lake, vcluster=self._values.get("vcluster"))
        except BaseException:
            lake.close()
            raise


class _BuilderForEach:
    """`Session.builder` is a new builder each time."""

    def __get__(self, instance: object, owner: type) -> Builder:
        return Builder()


class Session:
    """An open connection. Use it as a context manager, or call `close()`. It shares the lake's current schema, settings
    and temporary views; one made with a schema has its own."""

    builder = _BuilderForEach()

    def __init__(self, lake: Lake, *, schema: str | None = None, vcluster: str | None = None) -> None:
        self.lake = lake
        context: Context = lake._context if schema is None else lake._context.new_session()
        self._context = context
        if vcluster is not None and not context.store.has_vcluster(vcluster):
            known = ", ".join(context.store.vclusters())
            raise BadSetting(f"There is no virtual cluster '{vcluster}'.", hint=f"There are: {known}.")
        if schema is not None:
            dispatch.execute(context, f"USE {quoted_name(schema)}")

    def sql(self, text: str) -> DataFrame:
        """A statement. A query can be worked on like a table; any other statement runs once, at the first action."""
        self.lake._require_open()
        statement = parse(text)
        if isinstance(statement, sql.SparkStatement) and statement.verb in dispatch.QUERIES:

            def build() -> SparkFrame:
                return self._context.streams.frame(dispatch.prepared_text(self._context, statement))

            return DataFrame(self._context, build, Moves.WHEN_WRITTEN, query=text.strip())
        return DataFrame.of_statement(self._context, lambda: dispatch.execute(self._context, text))

    def table(self, name: str, consume: bool = True) -> DataFrame:
        """A table, view, dynamic table or table stream. A stream's offset moves when its rows are delivered or written,
        unless `consume` is False."""
        self.lake._require_open()
        parts = parse_parts(name)
        # A name of one part may be that of a temporary view; Spark looks in the current schema next.
        spark_name = quote(parts[0]) if len(parts) == 1 else self._context.resolve(parts).spark(self._context.home)
        return DataFrame(
            self._context,
            lambda: self._context.streams.table(spark_name),
            Moves.ALWAYS if consume else Moves.NEVER,
            query=f"SELECT * FROM {'.'.join(map(quote, parts))}",
        )

    def create_dataframe(self, data: Any, schema: Any = None) -> DataFrame:
        """Rows of this program: a list of rows, tuples or dicts, a pandas DataFrame or an Arrow table."""
        self.lake._require_open()
        with told():
            rows = self._context.spark.createDataFrame(data, schema)
        return DataFrame(self._context, lambda: rows, Moves.NEVER)

    def __getattr__(self, name: str) -> Any:
        if name == "createDataFrame":
            return self.create_dataframe
        raise AttributeError(f"A session has no attribute {name!r}.")

    def close(self) -> None:
        """Stop Spark and give the lake free."""
        self.lake.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
