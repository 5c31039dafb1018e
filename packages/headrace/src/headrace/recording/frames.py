"""DataFrames of a session over a URL: the same methods as those of an open lake, written down until an action."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.errors import BadSetting, NotAllowed
from headrace.recording import allowed
from headrace.recording.columns import Column, told
from headrace.recording.rows import Row, pandas_of, rows_of
from headrace.recording.sending import Sender
from headrace.recording.tree import Call, ColumnOf, LocalTable, Node, Part
from headrace.recording.values import recorded

if TYPE_CHECKING:
    import pandas


class DataFrame:
    """Rows to be computed by the server: tables show what is in them, and streams what stands to be read, when an
    action begins. Mistakes in names and types are found by the server, too, at the first action."""

    def __init__(self, sender: Sender, node: Node) -> None:
        self._sender = sender
        self._node = node

    def _recorded_node(self) -> Node:
        return self._node

    def _call(self, method: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        self._require_one_session((*arguments, *named.values()))
        node = Call(self._recorded_node(), method, recorded(tuple(arguments)), recorded(dict(named)))
        return _given(self._sender, node)

    def _require_one_session(self, values: Sequence[Any]) -> None:
        if any(isinstance(each, DataFrame) and each._sender is not self._sender for each in values):
            raise NotAllowed(
                "These DataFrames belong to different sessions.", hint="Make both of them with one session."
            )

    # ---- PySpark's methods, by the rule

    def __getattr__(self, name: str) -> Any:
        own = allowed.spelled(_OWN, name)
        if own == name:  # It is here, and raised an AttributeError of its own.
            raise AttributeError(name)
        if own is not None:
            return getattr(self, own)
        method = allowed.spelled(allowed.FRAME_METHODS, name)
        if method is not None:
            return lambda *arguments, **named: self._call(method, arguments, named)
        refused = allowed.spelled(allowed.FRAME_REFUSED, name)
        if refused is not None:
            raise NotAllowed(f"{name} cannot be used over a URL: {allowed.FRAME_REFUSED[refused]}.", hint=_HERE_ONLY)
        if not name.startswith("_") and name in self.columns:
            return self[name]
        raise AttributeError(f"A DataFrame has no attribute {name!r}.")

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, (str, int)) and not isinstance(item, bool):
            return Column(ColumnOf(self._recorded_node(), item))
        if isinstance(item, Column):
            return self._call("filter", (item,), {})
        if isinstance(item, (list, tuple)):
            return self._call("select", item, {})
        raise NotAllowed(f"A DataFrame has no item {item!r}.", hint="Write df['name'], df[condition] or df[[…]].")

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *allowed.FRAME_METHODS})

    def __repr__(self) -> str:
        return f"<DataFrame {told(self._node)}, computed by {self._sender.url}>"

    def transform(self, function: Callable[..., DataFrame], *arguments: Any, **named: Any) -> DataFrame:
        return function(self, *arguments, **named)

    def rename(self, columns: Mapping[str, str] | str, new: str | None = None) -> DataFrame:
        """rename("a", "b") or rename({"a": "b"})"""
        if isinstance(columns, str):
            if new is None:
                raise BadSetting("rename needs the new name.", hint='rename("old", "new") or rename({"old": "new"}).')
            columns = {columns: new}
        found: DataFrame = self._call("withColumnsRenamed", (dict(columns),), {})
        return found

    def random_split(self, weights: Sequence[float], seed: int | None = None) -> list[DataFrame]:
        chosen = secrets.randbits(62) if seed is None else seed
        sizes = tuple(float(weight) for weight in weights)
        on = self._recorded_node()
        return [DataFrame(self._sender, Part(on, sizes, chosen, place)) for place in range(len(sizes))]

    def cache(self) -> DataFrame:
        """The server decides what it keeps in memory; `cache_result` keeps rows as they are."""
        return self

    def persist(self, storageLevel: Any = None) -> DataFrame:  # noqa: N803 - PySpark's name
        return self

    def unpersist(self, blocking: bool = False) -> DataFrame:
        return self

    @property
    def na(self) -> _Missing:
        return _Missing(self)

    @property
    def stat(self) -> _Statistics:
        return _Statistics(self)

    @property
    def write(self) -> Writer:
        return Writer(self)

    # ---- what delivers rows, and so moves streams

    def collect(self) -> list[Row]:
        return rows_of(self.to_arrow())

    def to_arrow(self) -> pa.Table:
        return self._sender.run(self._recorded_node(), "deliver")

    def to_pandas(self) -> pandas.DataFrame:
        return pandas_of(self.to_arrow())

    def to_local_iterator(self, prefetch_partitions: bool = False) -> Iterator[Row]:
        return iter(self.collect())

    def __iter__(self) -> Iterator[Row]:
        return iter(self.collect())

    # ---- what looks

    def take(self, num: int) -> list[Row]:
        return rows_of(self._sender.run(self._recorded_node(), "take", num))

    def tail(self, num: int) -> list[Row]:
        return rows_of(self._sender.run(self._recorded_node(), "tail", num))

    def head(self, n: int | None = None) -> Row | list[Row] | None:
        return self.first() if n is None else self.take(n)

    def first(self) -> Row | None:
        return next(iter(self.take(1)), None)

    def count(self) -> int:
        return int(self._value("count"))

    def is_empty(self) -> bool:
        return bool(self._value("is_empty"))

    def show(self, n: int = 20, truncate: bool | int = True, vertical: bool = False) -> None:
        print(self._value("show", n, truncate, vertical))  # noqa: T201 - it is what the method is for

    def explain(self, extended: bool | str | None = None, mode: str | None = None) -> None:
        print(self._value("explain", extended, mode))  # noqa: T201

    def print_schema(self, level: int | None = None) -> None:
        print(self._value("print_schema", level))  # noqa: T201

    def approx_quantile(self, col: Any, probabilities: Any, relativeError: float) -> Any:  # noqa: N803
        return self._value("approx_quantile", col, probabilities, relativeError)

    def corr(self, col1: str, col2: str, method: str | None = None) -> float:
        return float(self._value("corr", col1, col2, method))

    def cov(self, col1: str, col2: str) -> float:
        return float(self._value("cov", col1, col2))

    @cached_property
    def _shape(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._value("schema")
        return found

    @property
    def columns(self) -> list[str]:
        return [name for name, _ in self._shape["dtypes"]]

    @property
    def dtypes(self) -> list[tuple[str, str]]:
        return [(name, kind) for name, kind in self._shape["dtypes"]]

    @property
    def schema(self) -> Any:
        """A `StructType` of PySpark, the one thing here that loads it; Java is not needed for that either."""
        from pyspark.sql.types import StructType

        return StructType.fromJson(self._shape["schema"])

    @property
    def is_streaming(self) -> bool:
        return False

    def _value(self, action: str, *arguments: Any) -> Any:
        return self._sender.value(self._recorded_node(), action, *arguments)

    # ---- what makes something

    def cache_result(self) -> DataFrame:
        """The rows as they are now, computed once and kept by the server while this DataFrame is in use, at the longest
        until the session ends. Moves nothing."""
        return DataFrame(self._sender, self._sender.kept(str(self._value("keep"))))

    def create_temp_view(self, name: str) -> None:
        self._value("temporary_view", name, False)

    def create_or_replace_temp_view(self, name: str) -> None:
        self._value("temporary_view", name, True)

    register_temp_table = create_or_replace_temp_view

    def create_or_replace_view(self, name: str) -> None:
        self._value("view", name)

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
        self._value("dynamic_table", name, refresh_interval, vcluster, refresh_mode, comment)


_OWN = frozenset(name for name in vars(DataFrame) if not name.startswith("_"))


class StatementFrame(DataFrame):
    """A statement that is no query. It runs once, when its result is first asked for; its rows are then here."""

    def __init__(self, sender: Sender, text: str) -> None:
        super().__init__(sender, _NOT_RUN)
        self._text = text
        self._ran = False

    @cached_property
    def _result(self) -> pa.Table:
        found = self._sender.statement(self._text)
        self._ran = True
        return found

    @cached_property
    def _rows_node(self) -> Node:
        return LocalTable(arrow_stream(self._result))

    def _recorded_node(self) -> Node:
        return self._rows_node

    def to_arrow(self) -> pa.Table:
        return self._result

    def take(self, num: int) -> list[Row]:
        return rows_of(self._result.slice(0, num))

    def count(self) -> int:
        return int(self._result.num_rows)

    @property
    def columns(self) -> list[str]:
        return list(self._result.column_names)

    def __repr__(self) -> str:
        # A look at it, as every notebook takes one, must not run a statement.
        return super().__repr__() if self._ran else "<a statement that has not run yet: collect() runs it>"


class Grouped:
    """Groups of rows, to be aggregated."""

    def __init__(self, sender: Sender, node: Node) -> None:
        self._sender = sender
        self._node = node

    def __getattr__(self, name: str) -> Any:
        method = allowed.spelled(allowed.GROUPS_METHODS, name)
        if method is not None:
            return lambda *arguments, **named: _given(
                self._sender, Call(self._node, method, recorded(arguments), recorded(named))
            )
        refused = allowed.spelled(allowed.GROUPS_REFUSED, name)
        if refused is not None:
            raise NotAllowed(f"{name} cannot be used over a URL: {allowed.GROUPS_REFUSED[refused]}.", hint=_HERE_ONLY)
        raise AttributeError(f"Groups have no attribute {name!r}.")

    def __repr__(self) -> str:
        return f"<groups of {told(self._node)}>"


class Writer:
    """PySpark's DataFrameWriter, for tables. Writing a table moves the offsets of streams with its commit."""

    def __init__(self, rows: DataFrame, calls: tuple[tuple[Any, ...], ...] = ()) -> None:
        self._rows = rows
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        own = allowed.spelled(allowed.WRITER_ENDS, name)
        if own is not None and own != name:
            return getattr(self, own)
        method = allowed.spelled(allowed.WRITER_SETTINGS, name)
        if method is not None:
            return lambda *arguments, **named: Writer(
                self._rows, (*self._calls, (method, list(arguments), dict(named)))
            )
        refused = allowed.spelled(allowed.WRITER_REFUSED, name)
        if refused is not None:
            raise NotAllowed(f"{name} cannot be used over a URL: {allowed.WRITER_REFUSED[refused]}.", hint=_HERE_ONLY)
        raise AttributeError(f"A writer has no attribute {name!r}.")

    def save_as_table(self, name: str, mode: str = "errorifexists", **options: Any) -> None:
        """`mode` is append, overwrite, errorifexists or ignore."""
        self._end("save_as_table", name, mode, options)

    def insert_into(self, name: str, overwrite: bool = False) -> None:
        """By position, as SQL's INSERT."""
        self._end("insert_into", name, overwrite, {})

    def _end(self, action: str, name: str, how: Any, options: Mapping[str, Any]) -> None:
        calls = [list(call) for call in self._calls]
        self._rows._value(action, name, how, dict(options), calls)


class _Missing:
    """df.na"""

    def __init__(self, rows: DataFrame) -> None:
        self.fill = rows.fillna
        self.drop = rows.dropna
        self.replace = rows.replace


class _Statistics:
    """df.stat"""

    def __init__(self, rows: DataFrame) -> None:
        self.approxQuantile = rows.approx_quantile
        self.corr = rows.corr
        self.cov = rows.cov
        self.crosstab = rows.crosstab
        self.freqItems = rows.freqItems
        self.sampleBy = rows.sampleBy


def _given(sender: Sender, node: Call) -> Any:
    match node.kind:
        case "frame":
            return DataFrame(sender, node)
        case "groups":
            return Grouped(sender, node)
        case _:
            return Column(node)


def arrow_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


_HERE_ONLY = "docs/python.md tells what a session over a URL can do; an embedded lake can do all of it."
_NOT_RUN = LocalTable(b"")
