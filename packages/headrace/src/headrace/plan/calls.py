"""Aggregate functions and window functions, as Catalyst has them, into our calls."""

from __future__ import annotations

from typing import Any

from headrace.plan.jvm import Jvm, items, kind
from headrace.plan.nodes import AggregateCall, Expression
from headrace.plan.spelling import NoRule, Speller
from headrace.plan.types import comparable

# Computed anew from all rows of a changed group. (Those that may give another value for the same rows: ivm/layout.py.)
_RECOMPUTED = {
    "StddevPop", "StddevSamp", "VariancePop", "VarianceSamp", "CovPopulation", "CovSample", "Corr", "Skewness",
    "Kurtosis", "Percentile", "PercentileCont", "PercentileDisc", "Median", "ApproximatePercentile",
    "HyperLogLogPlusPlus", "MinBy", "MaxBy", "BitAndAgg", "BitOrAgg", "BitXorAgg", "RegrCount", "RegrAvgX", "RegrAvgY",
    "CollectSet", "CollectList", "RegrR2", "RegrSXX", "RegrSXY", "RegrSYY", "RegrSlope", "RegrIntercept", "Product",
    "ListAgg", "Mode", "First", "Last", "AnyValue",
}  # fmt: skip
_ATOMIC = (
    "BooleanType", "ByteType", "ShortType", "IntegerType", "LongType", "FloatType", "DoubleType", "DecimalType",
    "StringType", "VarcharType", "CharType", "BinaryType", "DateType", "TimestampType", "TimestampNTZType",
)  # fmt: skip
# Window functions that treat rows which are equal in ORDER BY alike, and aggregates that do not look at the order.
_RANKS = ("Rank", "DenseRank", "PercentRank", "CumeDist")
_ORDERLESS = {
    "Count", "CountIf", "Sum", "Average", "Min", "Max", "BoolAnd", "BoolOr", "StddevPop", "StddevSamp", "VariancePop",
    "VarianceSamp", "CovPopulation", "CovSample", "Corr", "Skewness", "Kurtosis", "Percentile", "PercentileCont",
    "PercentileDisc", "Median", "HyperLogLogPlusPlus", "BitAndAgg", "BitOrAgg", "BitXorAgg", "RegrCount", "RegrAvgX",
    "RegrAvgY", "RegrR2", "RegrSXX", "RegrSXY", "RegrSYY", "RegrSlope", "RegrIntercept", "Product",
}  # fmt: skip
_FUNCTIONS: dict[str, str] = {
    "Count": "count",
    "CountIf": "count",
    "Sum": "sum",
    "Average": "avg",
    "Min": "min",
    "Max": "max",
    "BoolAnd": "min",  # false < true
    "BoolOr": "max",
}


_EXTREME_BY = {"MaxBy": "max", "MinBy": "min"}
_ANY_OF_ALL = ("First", "Last", "AnyValue")


def read_call(jvm: Jvm, speller: Speller, call: Any) -> AggregateCall:
    """One aggregate call of a query."""
    function = call.aggregateFunction()
    name, spelled = kind(function), str(function.prettyName())
    distinct = call.isDistinct() and _FUNCTIONS.get(name) not in ("min", "max")
    if name not in _FUNCTIONS or spelled.startswith("try_") or distinct:
        return _other_call(jvm, speller, call, name, spelled)
    arguments = items(function.children())
    conditions = [] if call.filter().isEmpty() else [speller.text(call.filter().get())]
    argument: Any = arguments[0] if len(arguments) == 1 else None
    if name == "CountIf":
        conditions.append(speller.text(argument))
        argument = None
    elif name == "Count" and (argument is None or kind(argument) == "Literal"):
        # count(a, b) counts the rows where neither is NULL; count(1) is count(*).
        conditions += [
            f"{speller.text(each)} IS NOT NULL" for each in arguments if len(arguments) > 1 or each.nullable()
        ]
        argument = None
    column = speller.column(call.resultAttribute())
    text = None if argument is None else speller.text(argument)
    condition = " AND ".join(f"({each})" for each in conditions) or None
    speller.call_checks.append((f"{_FUNCTIONS[name]}({text or '*'})", column.type))
    return AggregateCall(
        name=column.name,
        function=_FUNCTIONS[name],
        argument=text,
        argument_type=None if argument is None else str(argument.dataType().sql()),
        type=column.type,
        filter=conditions[0] if len(conditions) == 1 else condition,
    )


def _other_call(jvm: Jvm, speller: Speller, call: Any, name: str, spelled: str) -> AggregateCall:
    """A call that is always computed from all rows of its group."""
    if name == "PivotFirst":
        return _pivot(jvm, speller, call)
    if name == "MaxMinByK":
        raise NoRule(f"{spelled}(value, by, n)")
    if name not in _FUNCTIONS and name not in _RECOMPUTED:
        raise NoRule(f"aggregate function {spelled}")
    column = speller.column(call.resultAttribute())
    text = speller.aggregate(call)
    return AggregateCall(
        name=column.name,
        function=spelled,
        argument=None,
        argument_type=None,
        type=column.type,
        text=text,
        distinct_of=_distinct_values(speller, call, name) if call.isDistinct() else (),
        chance=_chance(speller, call, name),
    )


def _chance(speller: Speller, call: Any, name: str) -> str | None:
    """Whether the rows of a group leave the call's value open; None where it takes more than a look at them to tell."""
    if name == "ListAgg":
        return _chance_in_list(speller, call.aggregateFunction())
    if name not in _EXTREME_BY and name not in _ANY_OF_ALL:
        return None
    function = call.aggregateFunction()
    value, *rest = items(function.children())
    if kind(value.dataType()).removesuffix("$") not in _ATOMIC:
        return None
    text = speller.text(value)
    conditions = [] if call.filter().isEmpty() else [speller.text(call.filter().get())]
    # Not a comparison of the values: as numbers, 0.0 and -0.0 are the same. What is hashed passes over NULLs.
    shown = f"xxhash64({text}, CAST({text} AS STRING), {text} IS NULL)"
    if name in _EXTREME_BY:
        by = speller.text(rest[0])
        conditions.append(f"{by} IS NOT NULL")
        least, most = f"~{_EXTREME_BY[name]}({{}}).seen", f"{_EXTREME_BY[name]}({{}}).seen"
        seen = [f"named_struct('by', {by}, 'seen', {each})" for each in (f"~{shown}", shown)]
    else:
        if function.ignoreNulls():
            conditions.append(f"{text} IS NOT NULL")
        least, most = "min({})", "max({})"
        seen = [shown, shown]
    where = " AND ".join(f"({each})" for each in conditions) or "true"
    first, second = (f"CASE WHEN {where} THEN {each} END" for each in seen)
    return f"coalesce({least.format(first)} <> {most.format(second)}, false)"


def _chance_in_list(speller: Speller, function: Any) -> str | None:
    """A list in the order of what it lists comes out the same: what ties is equal."""
    listed = speller.text(items(function.children())[0])
    order = [speller.text(each.child()) for each in items(function.orderExpressions())]
    return "false" if listed in order else None


def _distinct_values(speller: Speller, call: Any, name: str) -> tuple[Expression, ...]:
    """What a call with DISTINCT looks at once each."""
    if name not in ("Count", "Sum", "Average"):
        return ()
    condition = None if call.filter().isEmpty() else speller.text(call.filter().get())
    found = []
    for argument in items(call.aggregateFunction().children()):
        text = speller.text(argument)
        told = text if condition is None else f"CASE WHEN {condition} THEN {text} END"
        found.append(Expression(name="", text=told, type=str(argument.dataType().sql())))
    return tuple(found)


def _pivot(jvm: Jvm, speller: Speller, call: Any) -> AggregateCall:
    """PIVOT: one value for each listed key, in an array. A group has at most one row for a key."""
    function, column = call.aggregateFunction(), speller.column(call.resultAttribute())
    key, value = speller.text(function.pivotColumn()), speller.text(function.valueColumn())
    keys = function.pivotColumnValues()
    literals = jvm.literals(keys, [function.pivotColumn().dataType()] * keys.size())
    values = ", ".join(f"max(CASE WHEN {key} <=> {literal} THEN {value} END)" for literal in literals)
    if not comparable(str(function.valueColumn().dataType().sql())):
        raise NoRule("PIVOT of a value that cannot be compared")
    return AggregateCall(
        name=column.name,
        function="pivot",
        argument=None,
        argument_type=None,
        type=column.type,
        text=f"array({values})",
    )


def depends_on_ties(expression: Any) -> bool:
    """Whether a window function can give other values when rows that are equal in ORDER BY change places."""
    function = expression.windowFunction()
    called = kind(function.aggregateFunction()) if kind(function) == "AggregateExpression" else kind(function)
    if called in _RANKS:
        return False
    frame = expression.windowSpec().frameSpecification()
    by_rows = kind(frame) == "SpecifiedWindowFrame" and kind(frame.frameType()).startswith("RowFrame")
    whole = by_rows and kind(frame.lower()).startswith("Unbounded") and kind(frame.upper()).startswith("Unbounded")
    return called not in _ORDERLESS or (by_rows and not whole)
