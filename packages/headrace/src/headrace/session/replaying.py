"""Plans of clients, done on the server: what a session over a URL recorded, on an open lake, with the user's rights.

A plan has been read by `recording.plans.from_json` before it comes here: it holds listed names and plain values only.
What is left to look at is what those values mean. Every table and query is permitted as the same SQL would be; SQL
inside expressions is guarded as a statement is; and Spark's resolved plan is looked at before rows are read, because
only there a subquery in an expression is seen for what it reads.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame as SparkFrame

from headrace.errors import NotAllowed, NotFound, TooBusy, UserError
from headrace.names import parse_parts, quote
from headrace.plan.jvm import Jvm, active
from headrace.recording.columns import told as told_plan
from headrace.recording.plans import from_json
from headrace.recording.tree import (
    Kept,
    LocalRows,
    LocalTable,
    Node,
    Part,
    Query,
    Table,
    in_order,
    texts_in,
)
from headrace.recording.values import bad_plan, from_plain
from headrace.result import Result, from_frame, from_rows
from headrace.session.building import build, mistakes, native_row
from headrace.session.embedded import is_query, query_of_table, query_rows, table_rows
from headrace.session.frames import DataFrame, Moves, Writer, told
from headrace.session.local_rows import read_arrow
from headrace.session.writing import checked
from headrace.sql.parser import parse
from headrace.statements import guarding, permitting
from headrace.statements.context import Context
from headrace.statements.relations import named_in
from headrace.streams.plans import plan_of
from headrace.streams.view import ranges_in

KEPT_PER_SESSION = 100
"""Results of `cache_result()`; a client gives back those that it no longer holds."""
_KEPT = "__hr_kept_"
_KEPT_NAME = re.compile(rf"{_KEPT}[0-9a-f]{{32}}")
_MAX_TEXT = 2000
_EXPLAIN_MODES = ("simple", "extended", "codegen", "cost", "formatted")

Given = TypeVar("Given")


@dataclass(frozen=True)
class Work:
    """A plan and what is to be done with it, both sound in form."""

    root: Node
    action: str
    arguments: tuple[Any, ...]
    release: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """For the list of jobs."""
        told = f"{self.action} of {told_plan(self.root)}"
        shown = "".join(character if character.isprintable() else " " for character in told)
        return shown if len(shown) <= _MAX_TEXT else f"{shown[: _MAX_TEXT - 1]}…"

    def run(self, context: Context) -> Result:
        """Do it in this session."""
        for name in self.release:
            context.spark.catalog.dropTempView(name)
        function, _ = _ACTIONS[self.action]
        with told(), active(context.spark):
            return function(_Replay(context, self.root), *self.arguments)


def work_of(plan: Any, action: Any, release: Sequence[str] = ()) -> Work:
    """What a client asks for; anything that is no plan or no action is refused, whatever it is."""
    root = from_json(plan)
    if root.kind != "frame":
        raise bad_plan("it must end with a DataFrame")
    if not isinstance(action, dict) or set(action) != {"name", "arguments"}:
        raise bad_plan("an action has a name and arguments")
    name, written = action["name"], action["arguments"]
    if not isinstance(name, str) or name not in _ACTIONS:
        raise NotAllowed(f"There is no action {str(name)[:50]!r}.", hint=f"There are {', '.join(sorted(_ACTIONS))}.")
    if not isinstance(written, list):
        raise bad_plan("the arguments of an action are a list")
    arguments = tuple(from_plain(each, _no_node) for each in written)
    _, kinds = _ACTIONS[name]
    if len(arguments) != len(kinds) or not all(
        _is_of(argument, kind) for argument, kind in zip(arguments, kinds, strict=True)
    ):
        raise bad_plan(f"the action {name} does not take these arguments")
    unknown = next((each for each in release if not _KEPT_NAME.fullmatch(each)), None)
    if unknown is not None:
        raise bad_plan("release names what cache_result gave")
    return Work(root, name, arguments, tuple(release))


def _no_node(_: Any) -> Any:
    raise bad_plan("an action takes no columns or DataFrames")


def _is_of(value: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


# ---------------------------------------------------------------------- the DataFrame


class _Replay:
    """One plan in one session, as a DataFrame of `session.frames`, which knows how streams are read and moved."""

    def __init__(self, context: Context, root: Node) -> None:
        self.context = context
        self._root = root
        self._ordered = in_order(root)
        self._local: dict[Node, SparkFrame] = {}
        self.guard("SELECT 1")  # Some names and texts of a plan are read by Spark's parser, too: see _harden there.
        for text in texts_in(self._ordered):
            self.guard(f"SELECT {text}")
            self._permit_names(text)

    @cached_property
    def frame(self) -> DataFrame:
        return DataFrame(self.context, self._built, self._moves(), query=self._query())

    def look(self, take: Callable[[SparkFrame], Given]) -> Given:
        """For actions that move nothing."""
        rows = self.frame._look()
        with self.context.streams.explained(rows):
            return take(rows)

    def guard(self, text: str) -> None:
        """Refuse what reaches beyond the lake, in a statement or in a part of one."""
        guarding.refuse_dangerous(self.context, parse(text))

    def guard_condition(self, text: str) -> None:
        """Refuse a condition of a writer that reaches beyond the lake, or names what the user may not read."""
        self.guard(text)
        self._permit_names(text.removeprefix("SELECT "))

    def permit(self, text: str) -> None:
        """Refuse what this user may not do, as if it were this statement."""
        statement = parse(text)
        guarding.refuse_dangerous(self.context, statement)
        permitting.require(self.context, statement)

    def _permit_names(self, expression: str) -> None:
        """By the names in it, before Spark looks at what is behind them: its errors tell the columns of tables."""
        if self.context.user.is_admin:
            return
        jvm = Jvm(self.context.spark)
        for parts in sorted(named_in(jvm, jvm.parse(f"SELECT {expression}")).reads):
            if len(parts) > 1 or not self.context.is_temporary(parts[0]):
                permitting.require_read(self.context, self.context.resolve(parts))

    def _permit_reading(self, rows: SparkFrame) -> None:
        permitting.require_frame(self.context, rows)

    def _built(self) -> SparkFrame:
        """Everything anew, so that it shows what there is now; and permitted anew, because rights change, too."""
        rows: SparkFrame = build(self._root, self._leaf, self._permit_reading)
        self._permit_reading(rows)
        return rows

    def _leaf(self, node: Node) -> SparkFrame:
        match node:
            case Table(name):
                parts = parse_parts(name)
                self.permit(query_of_table(parts))
                return table_rows(self.context, parts)
            case Query(text):
                statement = parse(text)
                if not is_query(statement):
                    raise NotAllowed("A plan holds queries only.", hint="Send other statements as statements.")
                self.permit(text)
                return query_rows(self.context, statement)
            case LocalTable() | LocalRows():
                if node not in self._local:
                    self._local[node] = self._local_rows(node)
                return self._local[node]
            case Kept(name):
                return self._kept(name)
            case _:
                raise bad_plan(f"a {type(node).__name__} is no DataFrame")

    def _local_rows(self, node: LocalTable | LocalRows) -> SparkFrame:
        schema = native_row(node.schema)
        data: Any
        if isinstance(node, LocalRows):
            data = [native_row(row) for row in node.rows]
        else:
            table = read_arrow(node.arrow)
            data = table.to_pandas(ignore_metadata=True) if node.pandas else table
        try:
            return self.context.spark.createDataFrame(data, schema)
        except (TypeError, ValueError, AttributeError, AssertionError, LookupError, pa.ArrowException) as error:
            raise UserError(
                f"These rows cannot be made a DataFrame: {str(error).splitlines()[0]}.",
                hint="Give a schema that fits them, with values of one type in each column.",
            ) from error

    def _kept(self, name: str) -> SparkFrame:
        if not _KEPT_NAME.fullmatch(name):
            raise bad_plan("it names what no cache_result gave")
        try:
            return self.context.spark.table(quote(name))
        except AnalysisException:
            raise NotFound(
                "The rows of this cache_result() are no longer kept: they end with the session, and when Spark is "
                "started again.",
                hint="Make the DataFrame again.",
            ) from None

    def _query(self) -> str | None:
        """The plan as SQL, where it is plainly known."""
        match self._root:
            case Table(name):
                return query_of_table(parse_parts(name))
            case Query(text):
                return text.strip()
            case _:
                return None

    def _moves(self) -> Moves:
        """When the streams that the plan reads are moved: that depends on how each was named."""
        leaves = {node: _moves_of(node) for node in self._ordered if isinstance(node, (Table, Query))}
        if not leaves or not self.context.store.streams.all():
            return Moves.NEVER
        reading = {moves for node, moves in leaves.items() if ranges_in(plan_of(self._leaf(node)))}
        if len(reading) > 1:
            raise NotAllowed(
                "One of these DataFrames moves the table stream that it reads, and another only looks at its own.",
                hint="Make both with session.table(…), with the same value of consume.",
            )
        moves = next(iter(reading), next(iter(leaves.values())))
        if reading and moves is not Moves.NEVER and any(isinstance(node, Part) for node in self._ordered):
            raise NotAllowed(
                "The first part of a split table stream would move it, and the others would find nothing.",
                hint="Split cache_result(), or session.table(…, consume=False).",
            )
        return moves


def _moves_of(node: Table | Query) -> Moves:
    if isinstance(node, Query):
        return Moves.WHEN_WRITTEN
    return Moves.ALWAYS if node.consume else Moves.NEVER


# ---------------------------------------------------------------------- actions


def _value(value: Any) -> Result:
    return from_rows([("value", pa.string())], [(json.dumps(value),)])


def _deliver(replay: _Replay) -> Result:
    context = replay.context

    def take(rows: SparkFrame) -> Result:
        result = from_frame(rows, context.settings.timezone, context.result_limit)
        # Before the streams move: rows that are cut off would be lost.
        if result.truncated:
            raise UserError(
                f"This gives more than {len(result):,} rows; the server's settings result_rows_max and "
                "result_bytes_max allow no more. Nothing was moved.",
                hint="Use limit(…), or write them to a table: write.save_as_table(…).",
            )
        return result

    found: Result = replay.frame._delivered(take)
    return found


def _take(replay: _Replay, number: int) -> Result:
    context = replay.context
    return replay.look(lambda rows: from_frame(rows.limit(number), context.settings.timezone, context.result_limit))


def _tail(replay: _Replay, number: int) -> Result:
    context = replay.context
    most = min(number, context.settings.result_rows_max)
    return replay.look(
        lambda rows: from_frame(context.spark.createDataFrame(rows.tail(most), rows.schema), context.settings.timezone)
    )


def _show(replay: _Replay, number: int, truncate: bool | int, vertical: bool) -> Result:
    most = min(number, replay.context.settings.result_rows_max)

    def shown(rows: Any) -> str:  # PySpark's own show() prints this.
        return str(rows._show_string(most, truncate, vertical))

    return _value(replay.look(shown))


def _explain(replay: _Replay, extended: bool | str | None, mode: str | None) -> Result:
    if extended is not None and mode is not None:
        raise UserError("explain takes extended or mode, not both.", hint="Leave one of them out.")
    chosen = mode or (extended if isinstance(extended, str) else "extended" if extended else "simple")
    if chosen.lower() not in _EXPLAIN_MODES:
        raise UserError(f"explain has no mode '{chosen[:50]}'.", hint=f"There are {', '.join(_EXPLAIN_MODES)}.")
    explained = Jvm(replay.context.spark).root.PythonSQLUtils.explainString

    def shown(rows: SparkFrame) -> str:
        permitting.require_explainable(replay.context, rows)
        return str(explained(rows._jdf.queryExecution(), chosen))

    return _value(replay.look(shown))


def _print_schema(replay: _Replay, level: int | None) -> Result:
    def tree(rows: SparkFrame) -> str:
        schema = rows._jdf.schema()
        return str(schema.treeString(level) if level else schema.treeString())

    return _value(replay.look(tree))


def _schema(replay: _Replay) -> Result:
    return _value(
        replay.look(lambda rows: {"schema": rows.schema.jsonValue(), "dtypes": [list(each) for each in rows.dtypes]})
    )


def _keep(replay: _Replay) -> Result:
    context = replay.context
    present = Jvm(context.spark).state.catalog().listLocalTempViews(f"{_KEPT}*").size()
    if present >= KEPT_PER_SESSION:
        raise TooBusy(
            f"This session keeps {present} results of cache_result() already.",
            hint="Let go of those DataFrames that are no longer needed: del df.",
        )
    name = f"{_KEPT}{uuid.uuid4().hex}"
    replay.frame.cache_result()._first.createOrReplaceTempView(name)
    return _value(name)


def _temporary_view(replay: _Replay, name: str, replace: bool) -> Result:
    parts = parse_parts(name)
    if len(parts) != 1 or parts[0].lower().startswith("__hr_"):
        raise UserError(f"'{name}' cannot be the name of a temporary view.", hint="Write a name of one part.")
    quoted = quote(parts[0])
    replay.permit(f"CREATE {'OR REPLACE ' if replace else ''}TEMPORARY VIEW {quoted} AS SELECT 1 AS one")
    replay.look(lambda rows: rows.createOrReplaceTempView(quoted) if replace else rows.createTempView(quoted))
    return _value(None)


def _view(replay: _Replay, name: str) -> Result:
    replay.frame._first  # noqa: B018 - it is permitted before it is written as SQL
    replay.frame.create_or_replace_view(name)
    return _value(None)


def _dynamic_table(
    replay: _Replay, name: str, interval: str | None, vcluster: str | None, mode: str | None, comment: str | None
) -> Result:
    replay.frame._first  # noqa: B018
    replay.frame.create_or_replace_dynamic_table(
        name, refresh_interval=interval, vcluster=vcluster, refresh_mode=mode, comment=comment
    )
    return _value(None)


def _save_as_table(replay: _Replay, name: str, mode: str, options: Mapping[Any, Any], calls: Sequence[Any]) -> Result:
    writer = Writer(replay.frame, checked(replay.guard_condition, options, calls))
    _permit_writing(replay, name)
    with mistakes("save_as_table"):
        writer.save_as_table(name, mode, **options)
    return _value(None)


def _insert_into(
    replay: _Replay, name: str, overwrite: bool, options: Mapping[Any, Any], calls: Sequence[Any]
) -> Result:
    writer = Writer(replay.frame, checked(replay.guard_condition, options, calls))
    _permit_writing(replay, name)
    with mistakes("insert_into"):
        writer.insert_into(name, overwrite)
    return _value(None)


def _permit_writing(replay: _Replay, name: str) -> None:
    replay.guard(query_of_table(parse_parts(name)))
    permitting.require_change(replay.context, replay.context.resolve(parse_parts(name)))


_NONE = type(None)
_ACTIONS: dict[str, tuple[Callable[..., Result], tuple[tuple[type, ...], ...]]] = {
    "deliver": (_deliver, ()),
    "take": (_take, ((int,),)),
    "tail": (_tail, ((int,),)),
    "count": (lambda replay: _value(replay.look(lambda rows: rows.count())), ()),
    "is_empty": (lambda replay: _value(replay.look(lambda rows: bool(rows.isEmpty()))), ()),
    "show": (_show, ((int,), (bool, int), (bool,))),
    "explain": (_explain, ((bool, str, _NONE), (str, _NONE))),
    "print_schema": (_print_schema, ((int, _NONE),)),
    "schema": (_schema, ()),
    "approx_quantile": (
        lambda replay, *given: _value(replay.look(lambda rows: rows.approxQuantile(*given))),
        ((str, list, tuple), (list, tuple), (int, float)),
    ),
    "corr": (
        lambda replay, *given: _value(replay.look(lambda rows: rows.corr(*given))),
        ((str,), (str,), (str, _NONE)),
    ),
    "cov": (lambda replay, *given: _value(replay.look(lambda rows: rows.cov(*given))), ((str,), (str,))),
    "keep": (_keep, ()),
    "temporary_view": (_temporary_view, ((str,), (bool,))),
    "view": (_view, ((str,),)),
    "dynamic_table": (_dynamic_table, ((str,), (str, _NONE), (str, _NONE), (str, _NONE), (str, _NONE))),
    "save_as_table": (_save_as_table, ((str,), (str,), (dict,), (list,))),
    "insert_into": (_insert_into, ((str,), (bool,), (dict,), (list,))),
}
"""What can be done with a plan: the function, and the types of its arguments."""
