"""Saying in few words which keys a small changeset has, so that files and pages without them are never read.

    up to PUSHED_KEYS values:  key IN (…)
    whole numbers, dates:      key BETWEEN … OR key BETWEEN …    the values cut into ranges at their widest gaps

Where the key is a column of a source as it is, the ranges also say which of its files are opened at all.

All this only ever saves reading: the join or the grouping that follows decides what matches.
"""

from __future__ import annotations

import datetime
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from headrace.names import quote_text
from headrace.plan.nodes import Aggregate, Filter, InnerJoin, Node, Project, Relation, SemiJoin

PUSHED_KEYS = 500
"""Up to so many distinct key values are pushed down as literals."""
_FEW = 10
"""Up to so many literals reach the file reader one by one; more of them as their smallest and largest."""
_RANGES = 8
_GAP = 0.02
"""A gap of this share of the whole span is worth a cut."""
_FILE_RANGES = 64
_FILE_GAP = 0.001
"""Choosing files, and pages of an ordered copy, may go by more ranges than a condition on every row."""
_FIRST_YEAR = 1900
"""Dates long ago have other calendars on their way from Python to the JVM."""
_EPOCH = datetime.date(1970, 1, 1)
_FIRST_DAY = (datetime.date(_FIRST_YEAR, 1, 1) - _EPOCH).days
_LAST_DAY = (datetime.date.max - _EPOCH).days


def one_of(text: str, values: pa.ChunkedArray) -> SparkColumn | None:
    """`text` is one of the values, NULL included when it is among them; None when that cannot be said in few words."""
    if pa.types.is_nested(values.type):
        return None
    key = F.expr(text)
    present = pc.drop_null(values.unique())
    if not len(present):
        condition: SparkColumn | None = F.lit(False)
    else:
        condition = _few(text, present)
        if len(present) > _FEW:
            spans = _within(key, present)
            condition = spans if condition is None else condition if spans is None else spans & condition
    if condition is None:
        return None
    return condition | key.isNull() if values.null_count else condition


def passed_up(node: Node) -> set[str]:
    """The columns of sources that come out of a node as they are, so that a condition on one of them may as well be put
    where the source is read."""
    match node:
        case Relation():
            return {column.name for _, column in node.columns}
        case Filter() | Project():
            return names_passed(node) & passed_up(node.child)
        case InnerJoin():
            return passed_up(node.left) | passed_up(node.right)
        case SemiJoin():
            return passed_up(node.left)
        case Aggregate():
            return {key.name for key in node.keys if key.name == key.text} & passed_up(node.child)
        case _:
            return set()


def names_passed(node: Filter | Project) -> set[str]:
    """The columns that come out of a node as they are below it."""
    if isinstance(node, Filter):
        return {column.name for column in node.output}
    return {each.name for each in node.expressions if each.name == each.text}


def spans(values: pa.ChunkedArray) -> list[tuple[Any, Any]] | None:
    """The few ranges that whole numbers or dates lie in; None for other values, and where NULL is among them."""
    if values.null_count or pa.types.is_nested(values.type):
        return None
    return _spans(values.unique(), _FILE_RANGES, _FILE_GAP)


def in_range(text: str, values: pa.ChunkedArray) -> SparkColumn | None:
    """`text` is in one of the few ranges that the values lie in; None where there is no such thing to say."""
    if pa.types.is_nested(values.type):
        return None
    present = pc.drop_null(values.unique())
    condition = _within(F.expr(text), present) if len(present) else None
    return condition | F.expr(text).isNull() if condition is not None and values.null_count else condition


def _few(text: str, present: pa.Array) -> SparkColumn | None:
    if len(present) > PUSHED_KEYS:
        return None
    try:
        literals = [_literal(value) for value in present.to_pylist()]
    except (OverflowError, ValueError):  # a date or timestamp that Python has no value for
        return None
    # As text: made one by one, Spark's literals would cost a millisecond each.
    return F.expr(f"({text}) IN ({', '.join(literals)})") if all(literals) else None


def _within(key: SparkColumn, present: pa.Array) -> SparkColumn | None:
    found = _spans(present)
    return reduce(or_, (key.between(low, high) for low, high in found)) if found else None


def _spans(present: pa.Array, most: int = _RANGES, gap: float = _GAP) -> list[tuple[Any, Any]] | None:
    if not len(present):
        return []
    if pa.types.is_integer(present.type):
        return ranges(present.to_numpy(zero_copy_only=False), most, gap)
    if not pa.types.is_date32(present.type):
        return None
    days = ranges(present.cast(pa.int32()).to_numpy(zero_copy_only=False), most, gap)
    if days[0][0] < _FIRST_DAY or days[-1][1] > _LAST_DAY:
        return None
    return [(_EPOCH + datetime.timedelta(low), _EPOCH + datetime.timedelta(high)) for low, high in days]


def ranges(values: list[int] | np.ndarray, at_most: int = _RANGES, gap: float = _GAP) -> list[tuple[int, int]]:
    """Few ranges that hold all the values, cut where a gap is at least such a share of the whole span.

    >>> ranges([3, 1, 2, 1000, 1001, 5])
    [(1, 5), (1000, 1001)]
    >>> ranges(list(range(0, 100, 7)))
    [(0, 98)]
    """
    ordered = np.unique(np.asarray(values, dtype=np.int64))
    least, most = int(ordered[0]), int(ordered[-1])
    gaps = np.diff(ordered.view(np.uint64))  # Between far numbers there is more than a signed one can say.
    wide = np.flatnonzero(gaps > int(max((most - least) * gap, 8)))
    widest = wide[np.argsort(gaps[wide])[::-1][: at_most - 1]]
    cuts = [0, *sorted(int(place) + 1 for place in widest), len(ordered)]
    return [(int(ordered[start]), int(ordered[end - 1])) for start, end in pairwise(cuts)]


def _literal(value: object) -> str:
    """The value as SQL; empty when it is better not said."""
    if isinstance(value, bool | int):
        return str(value)
    if isinstance(value, str):
        return "" if "${" in value else quote_text(value)  # Spark puts a setting's value there
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime) and value.year >= _FIRST_YEAR:
        return f"DATE'{value.isoformat()}'"
    return ""
