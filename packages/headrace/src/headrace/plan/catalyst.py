"""Read a query, once, when its dynamic table is created: what it reads, what it returns, and how it is computed.

Spark parses, analyses and lowers the query; nothing here decides what a query means. The steps are one file each:
`binding` (the text and its sources), `lowering` (Catalyst's rules), `reading` and `spelling` (our algebra, its texts).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pydantic_core import from_json
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.errors import NonDeterministic, NotAllowed, QueryFailed, UserError
from headrace.names import own_column_problem, quote_text
from headrace.plan.binding import Binding, DatabaseOf, Locate, Located, bind
from headrace.plan.dates import at_date
from headrace.plan.definitions import function_definition
from headrace.plan.jvm import Jvm, items, kind, optional, position_at, short_message, span, spark_errors
from headrace.plan.lowering import lower
from headrace.plan.nodes import Plan
from headrace.plan.query import BoundText, Definition, OutputColumn, Query, Slot, ViewSlot
from headrace.plan.reading import read_plan, table_name
from headrace.plan.render import render, subquery
from headrace.plan.spelling import NoRule, shown
from headrace.plan.subqueries import own_subqueries
from headrace.sql.tokens import Kind, Token, scan

__all__ = ["Located", "read_query"]

_SPECIAL_DATES = ("now", "today", "tomorrow", "yesterday")
_READ_DATES = ("Cast", "ParseToDate", "ParseToTimestamp")
_DATES = ("date", "timestamp", "timestamp_ntz")
_SUBQUERIES = ("ScalarSubquery", "Exists", "ListQuery", "LateralSubquery", "InSubquery")
_NO_DAY = "5881-03-07"
"""Stands for the present day where it is looked what would be taken for that."""
_OF_SESSIONS = '"spark.sessionWindow":true'
"""In the metadata of a column: rows whose values of it overlap are merged, by whatever groups by it."""
_AROUND = 20
"""Levels of JSON that the records of dynamic tables may have around a query's plan and text."""


def read_query(spark: SparkSession, text: str, *, locate: Locate, database_of: DatabaseOf | None = None) -> Query:
    """Everything that CREATE DYNAMIC TABLE must know about a query.

    `locate` says what a name in Spark's catalog is. `database_of` gives the Spark database of a (workspace, schema);
    without it, only names of the lake's own workspace are known, in one or two parts. Raises UserError when the query
    is wrong or must be refused; a query that is fine but has no incremental rule comes back with `plan` None and
    `unsupported` saying why.
    """
    try:
        query = _read_query(spark, text, locate, database_of)
    except RecursionError:
        raise _too_deep() from None
    except Py4JJavaError as error:
        if "StackOverflowError" in str(error.java_exception.getClass().getName()):
            raise _too_deep() from None
        raise
    if not can_be_kept(query.bound):
        raise _too_deep()
    return query


def _too_deep() -> QueryFailed:
    return QueryFailed(
        "The query is nested too deep to be read.", hint="Put parts of it into dynamic tables of their own."
    )


def can_be_kept(part: Plan | BoundText) -> bool:
    """Whether it comes back from the JSON that a dynamic table is kept as: there is a limit to its nesting."""
    try:
        from_json("[" * _AROUND + part.model_dump_json() + "]" * _AROUND)
    except ValueError:
        return False
    return True


def _read_query(spark: SparkSession, text: str, locate: Locate, database_of: DatabaseOf | None) -> Query:
    jvm = Jvm(spark)
    binding = bind(jvm, text, locate, database_of)
    with spark_errors(lambda position: binding.place(text, position)):
        analyzed = jvm.analyze(jvm.parse(binding.plan_text))
    _check_sources(jvm, analyzed, binding)
    uses_current_date = _check_determinism(jvm, analyzed, binding, text)
    if uses_current_date:
        _check_dates(jvm, analyzed, binding)
    columns = _columns(analyzed)
    _check_rendering(jvm, analyzed, binding)
    plan, unsupported = _plan(jvm, analyzed, binding, [column.name for column in columns])
    return Query(
        text=text,
        resolved_text=binding.resolved_text,
        bound=binding.bound,
        sources=tuple(binding.sources),
        columns=columns,
        plan=plan,
        unsupported=unsupported,
        uses_current_date=uses_current_date,
        order=_order(analyzed),
        definitions=(*binding.views, *_functions(jvm, analyzed)),
    )


def _functions(jvm: Jvm, analyzed: Any) -> list[Definition]:
    """The SQL functions in the query, and those that they call."""
    scalar = jvm.pattern("SQL_SCALAR_FUNCTION")
    calls = [node for node in _nodes(analyzed) if kind(node) == "SQLFunctionNode"]
    waiting = [each for node in _nodes(analyzed) if node.containsPattern(scalar) for each in items(node.expressions())]
    while waiting:
        expression = waiting.pop()
        if expression.containsPattern(scalar):
            calls += [expression] if kind(expression) == "SQLScalarFunction" else []
            waiting += items(expression.children())
    names = {f"{optional(name.database()) or ''}.{name.funcName()}" for name in (c.function().name() for c in calls)}
    found = [function_definition(jvm, name.lstrip(".")) for name in sorted(names)]
    return [definition for definition in found if definition is not None]


def _plan(jvm: Jvm, analyzed: Any, binding: Binding, public: list[str]) -> tuple[Plan | None, str | None]:
    names = {name.replace("`", ""): index for name, index in binding.names.items()}
    dynamic = {name: index for name, index in names.items() if binding.sources[index].kind == "dynamic"}
    cut = next((source.name for source in binding.sources if source.cut is not None), None)
    if cut is not None:
        return None, f"read of {cut}, which ends in a LIMIT"
    try:
        if any(_OF_SESSIONS in str(node.schema().json()) for node in _nodes(analyzed)):
            raise NoRule("session_window")
        lowered, leaves = lower(jvm, analyzed, dynamic)
        plan = read_plan(jvm, lowered, public, names, leaves)
        if not can_be_kept(plan):
            raise NoRule("operators nested too deep")
        return plan, None
    except NoRule as gap:
        return None, str(gap)
    except RecursionError:
        return None, "operators nested too deep"
    except PySparkException as error:
        return None, f"form that Spark could not simplify ({shown(short_message(error))})"
    except Py4JError as error:
        return None, f"form that could not be read from Spark's plan ({shown(str(error).splitlines()[0])})"


def _order(analyzed: Any) -> tuple[tuple[str, str], ...]:
    plan = analyzed.plan() if kind(analyzed) == "WithCTE" else analyzed
    if kind(plan) != "Sort":
        return ()
    found = []
    names = {int(attribute.exprId().id()): str(attribute.name()) for attribute in items(plan.output())}
    for each in items(plan.order()):
        if kind(each.child()) != "AttributeReference":
            return ()
        name = names.get(int(each.child().exprId().id()))
        if name is None:
            return ()
        found.append((name, f"{each.direction().sql()} {each.nullOrdering().sql()}"))
    return tuple(found)


def _nodes(plan: Any) -> list[Any]:
    """The plan's nodes, those of subqueries in expressions included."""
    found = [plan]
    for below in (*items(plan.subqueries()), *items(plan.children())):
        found.extend(_nodes(below))
    return found


def _check_sources(jvm: Jvm, analyzed: Any, binding: Binding) -> None:
    """A SQL function can read tables that the text does not name: those could not be read at a fixed version."""
    read: Counter[str] = Counter()
    dynamic = {name.replace("`", "") for name, at in binding.names.items() if binding.sources[at].kind == "dynamic"}
    waiting = [analyzed]
    while waiting:
        node = waiting.pop()
        if kind(node) == "View":
            identifier = node.desc().identifier()
            name = f"{identifier.database().get()}.{identifier.table()}".lower()
            if name in dynamic:
                read[name] += 1
                continue
        if kind(node) == "LogicalRelation":
            read[table_name(node) or str(node.simpleString(1))] += 1
            if node.output().size() > node.relation().schema().size():
                raise NonDeterministic(
                    "_metadata tells in which file a row is stored, which changes without the row changing.",
                    hint="Leave _metadata out.",
                )
        waiting += [*_subqueries(jvm, node), *items(node.children())]
    named = {name.replace("`", ""): count for name, count in binding.mentions.items()}
    for name, count in read.items():
        if count > named.get(name, 0):
            raise NotAllowed(
                f"The query reads {name} through a function, where it cannot be read at a fixed version.",
                hint="Write the function's query out in a WITH clause or a view.",
            )


def _subqueries(jvm: Jvm, node: Any) -> list[Any]:
    """The plans of the subqueries in its expressions. One that is a key, in GROUP BY and in the SELECT list, counts
    once."""
    plans = items(node.subqueries())
    own = [each.query() if kind(each) == "InSubquery" else each for each in own_subqueries(jvm, node)]
    if kind(node) != "Aggregate" or len(own) != len(plans):
        return plans
    return list({int(each.exprId().id()): each.plan() for each in own}.values())


def _check_determinism(jvm: Jvm, analyzed: Any, binding: Binding, text: str) -> bool:
    """Refuse functions that differ from one call to the next; say whether current_date is used."""
    current = jvm.pattern("CURRENT_LIKE")
    if _has_special_dates(binding.bound):
        _refuse_moments(analyzed, current)
    if analyzed.containsPattern(jvm.pattern("RUNTIME_REPLACEABLE")):
        _refuse_version(analyzed, binding, text)
    variable = jvm.pattern("VARIABLE_REFERENCE")
    uses_current_date = False
    if analyzed.deterministic() and not analyzed.containsPattern(current) and not analyzed.containsPattern(variable):
        return False
    for node in _nodes(analyzed):
        for expression in items(node.expressions()):
            for culprit in _culprits(expression, current, variable):
                name = kind(culprit)
                if name == "CurrentDate":
                    uses_current_date = True
                    continue
                spelled, position = _as_written(culprit, binding, text)
                if name == "VariableReference":
                    raise NotAllowed(
                        f"{spelled} is a variable of this session; it is gone when the session ends.",
                        hint="Write the value itself.",
                        position=position,
                    )
                raise NonDeterministic(
                    f"{spelled} gives a different result each time, so the table could never equal its query.",
                    hint="Only current_date is allowed. Compute the value when the source rows are written.",
                    position=position,
                )
    if not analyzed.deterministic():
        raise NonDeterministic(
            "The query contains an operator whose result differs from one run to the next.",
            hint="Take such operators, as TABLESAMPLE, out of the query.",
        )
    return uses_current_date


def _refuse_version(analyzed: Any, binding: Binding, text: str) -> None:
    for node in _nodes(analyzed):
        for expression in items(node.expressions()):
            if "version()" in str(expression.sql()):
                for each in _parts(expression):
                    if kind(each) == "SparkVersion":
                        spelled, position = _as_written(each, binding, text)
                        raise NonDeterministic(
                            f"{spelled} gives a different result with another version of Spark, "
                            "so the table would not equal its query then.",
                            hint="Write the value itself.",
                            position=position,
                        )


def _has_special_dates(bound: BoundText) -> bool:
    """Whether there are texts such as 'now'. TIMESTAMP 'now' and the like are refused here: Spark's parser reads them
    as the moment of parsing."""
    found = False
    for piece in bound.pieces:
        if isinstance(piece, ViewSlot):
            found = _has_special_dates(piece.query) or found
        elif isinstance(piece, str):
            for token in scan(piece):
                if token.kind is Kind.STRING and _is_special(token.value):
                    found = True
                    _refuse_if_moment(piece, token)
    return found


def _is_special(text: str) -> bool:
    return text.strip().lower().split(" ")[0] in _SPECIAL_DATES


def _refuse_moments(analyzed: Any, current: Any) -> None:
    """A text that is taken for a date, as in d > 'today': Spark's optimizer reads it as the moment at which it runs."""
    for node in _nodes(analyzed):
        for expression in items(node.expressions()):
            for each in _parts(expression):
                if kind(each) in _READ_DATES and str(each.dataType().typeName()) in _DATES:
                    text = items(each.children())[0]
                    is_fixed = text.foldable() and text.deterministic() and not text.containsPattern(current)
                    is_text = is_fixed and str(text.dataType().typeName()).startswith("string")
                    value = str(text.eval(None)) if is_text else ""
                    if _is_special(value):
                        raise _moment(quote_text(value))


def _parts(expression: Any) -> list[Any]:
    return [expression, *(part for child in items(expression.children()) for part in _parts(child))]


def _refuse_if_moment(piece: str, token: Token) -> None:
    before, after = piece[: token.start].rstrip().upper(), piece[token.end :].lstrip().upper()
    typed = re.search(r"\b(DATE|TIMESTAMP(_NTZ|_LTZ)?)\s*\(?$", before) is not None
    cast = re.match(r"(AS|::)\s*(DATE|TIMESTAMP)", after) is not None
    if typed or cast:
        raise _moment(token.text)


def _moment(text: str) -> NonDeterministic:
    return NonDeterministic(
        f"{text} as a date or timestamp is the moment at which it is read, so the table could never equal its query.",
        hint="Use current_date, or compute the value when the source rows are written.",
    )


def _culprits(expression: Any, current: Any, variable: Any) -> list[Any]:
    """The innermost expressions that are not fixed; those inside a subquery's plan are found in that plan."""

    def suspect(each: Any) -> bool:
        return bool(not each.deterministic() or each.containsPattern(current) or each.containsPattern(variable))

    if not suspect(expression):
        return []
    inner = [child for child in items(expression.children()) if suspect(child)]
    if inner:
        return [culprit for child in inner for culprit in _culprits(child, current, variable)]
    return [] if kind(expression) in _SUBQUERIES else [expression]


def _as_written(expression: Any, binding: Binding, text: str) -> tuple[str, Any]:
    """The call's name as the user wrote it, and where; a place inside a view has no position in the query."""
    origin, place = expression.origin(), span(expression)
    written = optional(origin.sqlText())
    if place is None or written is None:
        return f"{expression.prettyName()}()", None
    call = str(written)[place[0] : place[1] + 1].split("(")[0].strip()
    call = call if kind(expression) == "VariableReference" else f"{call}()"
    if optional(origin.objectName()) is not None:
        return f"{call}, in the view {str(optional(origin.objectName())).replace('spark_catalog.', '')},", None
    return call, position_at(text, binding.written(place[0]))


def _columns(analyzed: Any) -> tuple[OutputColumn, ...]:
    columns: list[OutputColumn] = []
    known: set[str] = set()
    types = json.loads(analyzed.schema().json())["fields"]
    for attribute, field in zip(items(analyzed.output()), types, strict=True):
        name, type_text = str(attribute.name()), str(attribute.dataType().sql())
        problem = own_column_problem(name)
        if problem is not None:
            raise NotAllowed(problem, hint="Give it another name (AS …).")
        if name.lower() in known:
            raise QueryFailed(
                f"The query returns two columns named '{name}'.", hint="Give one of them an alias (AS …)."
            )
        unstorable = _unstorable(field["type"])
        if unstorable:
            raise NotAllowed(
                f"Column '{name}' has type {unstorable}, which a table cannot store.",
                hint="Give it a type: CAST(… AS …).",
            )
        known.add(name.lower())
        columns.append(OutputColumn(name=name, type=type_text, comment=field["metadata"].get("comment")))
    return tuple(columns)


def _casts_columns(node: Any) -> bool:
    """Whether this is a view whose columns have other types now than it says: Spark casts them back, and its text
    written out does not."""
    if kind(node) != "View" or kind(node.child()) != "Project":
        return False
    values = [each.child() for each in items(node.child().projectList()) if kind(each) == "Alias"]
    casts = [value for value in values if kind(value) in ("Cast", "UpCast")]
    return any(str(cast.child().dataType().sql()) != str(cast.dataType().sql()) for cast in casts)


def _unstorable(shape: Any) -> str | None:
    """The part of a type that Delta has no storage for."""
    if isinstance(shape, str):
        fits = shape != "void" and "interval" not in shape and not shape.startswith("time(")
        return None if fits else shape
    if shape["type"] == "struct":
        inner = [field["type"] for field in shape["fields"]]
    else:
        inner = [shape[part] for part in ("elementType", "keyType", "valueType") if part in shape]
    return next((found for found in map(_unstorable, inner) if found), None)


def _check_dates(jvm: Jvm, analyzed: Any, binding: Binding) -> None:
    """Full refreshes and VERIFY write a day into the text in the place of current_date: nothing else may have the
    name."""
    try:
        with spark_errors():
            dated = jvm.analyze(jvm.parse(at_date(_written_out(binding), _NO_DAY)))
        called = _count(analyzed, _is_today) - _count(dated, _is_today)
        replaced = _count(dated, _is_no_day) - _count(analyzed, _is_no_day)
    except UserError:
        called, replaced = 0, 1
    if replaced > called:  # A day in VALUES becomes a row at once, and is not counted.
        raise NotAllowed(
            "The query uses current_date both for the present day and as a name of its own.",
            hint="Put the name of the column, alias or CTE into back-quotes: `current_date`, `curdate`.",
        )


def _is_today(expression: Any) -> bool:
    return kind(expression) == "CurrentDate"


def _is_no_day(expression: Any) -> bool:
    return kind(expression) == "Literal" and str(expression.sql()) == f"DATE '{_NO_DAY}'"


def _count(plan: Any, is_meant: Callable[[Any], bool]) -> int:
    found = [part for node in _nodes(plan) for expression in items(node.expressions()) for part in _parts(expression)]
    return sum(map(is_meant, found))


def _written_out(binding: Binding) -> str:
    """The query with its views written out."""

    def table_at(slot: Slot) -> str:
        if binding.sources[slot.source].kind == "table":
            return slot.spark_name
        return subquery(f"SELECT * FROM {slot.spark_name}", slot.alias)

    return render(binding.bound, table_at)


def _check_rendering(jvm: Jvm, analyzed: Any, binding: Binding) -> None:
    """The text with its slots filled must still be the same query; full refreshes and VERIFY run that text."""

    if not any(source.kind == "dynamic" for source in binding.sources) and all(
        isinstance(piece, str | Slot) for piece in binding.bound.pieces
    ):
        return
    try:
        with spark_errors():
            rendered = jvm.analyze(jvm.parse(_written_out(binding)))
    except UserError as error:
        raise NotAllowed(
            f"With its views and dynamic tables written out, Spark refuses the query: {error.message}",
            hint="Qualify columns with the table's name or an alias alone, not with its schema.",
        ) from None
    before, after = (
        [(str(attribute.name()), str(attribute.dataType().sql())) for attribute in items(plan.output())]
        for plan in (analyzed, rendered)
    )
    if before != after or any(map(_casts_columns, _nodes(analyzed))):
        raise NotAllowed(
            "A view that the query reads has other column types now than when it was created.",
            hint="Create the view again (CREATE OR REPLACE VIEW).",
        )
