"""A stream's name is a view, and the view's text is the range of changes that stands to be read.

Whatever reads the stream, directly, through views, twice in one statement or as a DataFrame, is resolved by Spark to
this text. A mark in it survives analysis: so a plan itself tells which streams it reads, and which part of each.
"""

from __future__ import annotations

import re

from headrace.catalog.records import StreamRange, TableStream
from headrace.ivm.layout import VISIBLE, WEIGHT, select_live
from headrace.names import quote, quote_text
from headrace.plan.query import OutputColumn

CHANGE_TYPE = "__change_type"
COMMIT_VERSION = "__commit_version"
COMMIT_TIMESTAMP = "__commit_timestamp"
STREAM_COLUMNS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)

_MARK = re.compile(r"headrace-stream:([0-9a-f]+):(-?\d+):(\d+):([01])")
_WORDS = (
    "CASE _change_type WHEN 'insert' THEN 'INSERT' WHEN 'update_preimage' THEN 'UPDATE_BEFORE' "
    "WHEN 'update_postimage' THEN 'UPDATE_AFTER' ELSE 'DELETE' END"
)


def ranges_in(plan: str) -> frozenset[StreamRange]:
    """What a plan, as text, reads of which streams."""
    return frozenset(
        StreamRange(stream_id=found[1], after=int(found[2]), upto=int(found[3]), initial=found[4] == "1")
        for found in _MARK.finditer(plan)
    )


def view_text(
    stream: TableStream,
    columns: tuple[str, ...],
    part: StreamRange,
    *,
    changed: bool,
    began: int = 0,
    hides_groups: bool = False,
    first_columns: tuple[str, ...] | None = None,
    floats: frozenset[str] = frozenset(),
) -> str:
    """The view's query. `changed` tells whether any row changed in the range, `began` when the offset's version was
    committed, in milliseconds; `first_columns` are those that the initial rows have, `floats` those that have floats in
    them."""
    names = [quote(column) for column in columns]
    parts = []
    if part.initial:
        had = {name.lower() for name in (columns if first_columns is None else first_columns)}
        parts.append(_initial(stream, columns, began, hides_groups, had))
    if changed:
        parts.append(
            _dynamic(stream, columns, part, hides_groups, floats) if stream.is_dynamic else _table(stream, names, part)
        )
    if not changed:
        # No rows, but the types of all columns.
        parts.append(
            f"SELECT '' AS {CHANGE_TYPE}, 0L AS {COMMIT_VERSION}, TIMESTAMP '1970-01-01' AS {COMMIT_TIMESTAMP}, "
            f"{', '.join(names)} FROM delta.{quote(stream.source_path)} WHERE false"
        )
    mark = f"headrace-stream:{stream.id}:{part.after}:{part.upto}:{int(part.initial)}"
    shown = ", ".join([*STREAM_COLUMNS, *names])
    return f"SELECT {shown} FROM ({' UNION ALL '.join(parts)}) WHERE {quote_text(mark)} IS NOT NULL"


def _feed(stream: TableStream, part: StreamRange) -> str:
    return f"table_changes_by_path({quote_text(stream.source_path)}, {part.after + 1}, {part.upto})"


def _table(stream: TableStream, names: list[str], part: StreamRange) -> str:
    only = " WHERE _change_type = 'insert'" if stream.mode == "APPEND_ONLY" else ""
    return (
        f"SELECT {_WORDS} AS {CHANGE_TYPE}, _commit_version AS {COMMIT_VERSION}, "
        f"_commit_timestamp AS {COMMIT_TIMESTAMP}, {', '.join(names)} FROM {_feed(stream, part)}{only}"
    )


def _dynamic(
    stream: TableStream, columns: tuple[str, ...], part: StreamRange, hides_groups: bool, floats: frozenset[str]
) -> str:
    """A dynamic table's storage is itself a changelog: a stored row counts by its weight. What a refresh takes away and
    gives back in the same version is no change."""
    listed = ", ".join(map(quote, columns))
    # Grouping makes -0.0 and 0.0 the same; as text they differ.
    kept = ", ".join(f"any_value({quote(c)}) AS {quote(c)}" if c in floats else quote(c) for c in columns)
    keys = ", ".join([listed, *(f"CAST({quote(column)} AS STRING)" for column in columns if column in floats)])
    sign = "IF(_change_type IN ('insert', 'update_postimage'), 1, -1)"
    net = (
        f"SELECT {kept}, _commit_version, _commit_timestamp, sum({sign} * {WEIGHT}) AS __hr_net "
        f"FROM {_feed(stream, part)}{f' WHERE {VISIBLE}' if hides_groups else ''} "
        f"GROUP BY {keys}, _commit_version, _commit_timestamp"
    )
    only = ">" if stream.mode == "APPEND_ONLY" else "<>"
    return (
        f"SELECT IF(__hr_net > 0, 'INSERT', 'DELETE') AS {CHANGE_TYPE}, _commit_version AS {COMMIT_VERSION}, "
        f"_commit_timestamp AS {COMMIT_TIMESTAMP}, {listed} FROM ({net}) "
        f"LATERAL VIEW explode(sequence(1, CAST(abs(__hr_net) AS INT))) AS __hr_copy WHERE __hr_net {only} 0"
    )


def _initial(stream: TableStream, columns: tuple[str, ...], began: int, hides_groups: bool, had: set[str]) -> str:
    """The rows that the table had when the stream began, as inserts of that version. Later columns are NULL."""
    then = f"delta.{quote(stream.source_path)} VERSION AS OF {stream.offset}"
    rows = then
    if stream.is_dynamic:
        rows = f"({select_live(tuple(OutputColumn(name=name, type='') for name in columns), hides_groups, then)})"
    return (
        f"SELECT 'INSERT' AS {CHANGE_TYPE}, {stream.offset}L AS {COMMIT_VERSION}, "
        f"timestamp_millis({began}L) AS {COMMIT_TIMESTAMP}, "
        f"{', '.join(quote(name) if name.lower() in had else f'NULL AS {quote(name)}' for name in columns)} FROM {rows}"
    )
