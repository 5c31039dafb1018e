"""Whether a dynamic table's query, with the same text as before, gives other columns.

It may when it takes all that a source has, or when something that it reads is not what it was. Only then are they asked
for: Spark has to analyse the query.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dbt.adapters.headrace.relation_configs.dynamic_table import DETAILS, DynamicTableChanges, DynamicTableConfig
from headrace.errors import NotFound, QueryFailed, SyntaxFault, UserError
from headrace.sql.tokens import Kind, scan

Rows = Callable[[str], list[dict[str, Any]]]

_ABOUT_SOURCES = re.compile(r" (is the same table as before|is in the frontier|are unchanged)$")
_BEFORE_STAR = ("SELECT", "DISTINCT", "ALL", ",", ".")


def changes_of(ask: Rows, name: str, asked: DynamicTableConfig, sql: str) -> DynamicTableChanges:
    """What lies between the dynamic table of this name and what a model asks for."""
    rows = ask(f"DESC EXTENDED {name}")
    found = DynamicTableConfig.found(rows)
    columns = None
    if found.query == asked.query and (takes_all_columns(sql) or _is_redefined(ask, name)):
        columns = column_changes(rows, _columns_of(ask, sql))
    return DynamicTableChanges.between(found, asked, name, columns)


def _is_redefined(ask: Rows, name: str) -> bool:
    """Whether what the query reads is not what it was: then it is read again."""
    try:
        told = ask(f"EXPLAIN REFRESH DYNAMIC TABLE {name}")
    except UserError:
        return True
    return any(
        row["section"] == "precondition" and row["value"] == "no" and _ABOUT_SOURCES.search(str(row["item"]))
        for row in told
    )


def _columns_of(ask: Rows, sql: str) -> list[tuple[str, str]]:
    """None of a query that is refused: that is told when it is run."""
    try:
        rows = ask(f"DESCRIBE QUERY\n{sql}")
    except (QueryFailed, SyntaxFault, NotFound):
        return []
    return [(str(row["col_name"]), str(row["data_type"])) for row in rows]


def takes_all_columns(sql: str) -> bool:
    """Whether the query takes what columns its sources have, whichever these are.

    >>> [takes_all_columns(sql) for sql in ("select * from t", "select t.*, 1 from t", "select struct(*) from t")]
    [True, True, True]
    >>> [takes_all_columns(sql) for sql in ("select count(*), a * b from t", "from t |> select a", "table t")]
    [False, True, True]
    """
    words = [token.text if token.kind is Kind.SYMBOL else token.upper for token in scan(sql)]
    if words[:1] in (["FROM"], ["TABLE"]):
        return True
    return any(
        word == "*" and (last in _BEFORE_STAR or (last == "(" and called != "COUNT"))
        for called, last, word in zip(["", "", *words], ["", *words], words, strict=False)
    )


def column_changes(described: Iterable[Mapping[str, Any]], query: Sequence[tuple[str, str]]) -> str | None:
    """How the columns that a query gives differ from those of DESC EXTENDED, in words; None where they do not, or the
    query could not be asked."""
    listed = [(str(row["column_name"]), str(row["data_type"])) for row in described]
    there = listed[: [name for name, _ in listed].index(DETAILS)]
    old, new = ({name.lower(): _bare(kind) for name, kind in columns} for columns in (there, query))
    if not new or (old == new and [*old] == [*new]):
        return None
    parts = [f"new {name}" for name in new if name not in old]
    parts += [f"without {name}" for name in old if name not in new]
    parts += [f"{name} {new[name]} instead of {old[name]}" for name in new if name in old and old[name] != new[name]]
    return f"the columns: {', '.join(parts) or 'in another order'}"


def _bare(type_text: str) -> str:
    """Two texts of one type are the same without white space and quotes."""
    return re.sub(r"[\s`]|NOT NULL", "", type_text, flags=re.IGNORECASE).lower()
