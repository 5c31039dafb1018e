"""What the lake knows of its tables, for `dbt docs` and for the freshness of sources."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.events.logging import AdapterLogger
from dbt_common.contracts.metadata import CatalogTable

from headrace.errors import Forbidden, NotFound, QueryFailed
from headrace.sql.tokens import scan

if TYPE_CHECKING:
    import agate

Rows = Callable[[str], list[dict[str, Any]]]

_log = AdapterLogger("Headrace")

_DETAILS = "detailed table information:"
_PAIR = re.compile(r'\("((?:[^"\\]|\\.)*)","((?:[^"\\]|\\.)*)"\)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_CONSTRAINT = "delta.constraints."
_OF_DELTA = ("delta.minReader", "delta.minWriter", "delta.columnMapping.maxColumnId", "delta.rowTracking.")
_STATISTICS = re.compile(r"(\d+) rows (\d+) bytes")
_COLUMNS = [
    "table_database", "table_schema", "table_name", "table_type", "table_comment", "table_owner", "column_name",
    "column_index", "column_type", "column_comment",
]  # fmt: skip
_STATS = [
    ("rows", "Rows", "How many rows there are"),
    ("bytes", "Size", "Bytes of the stored files"),
    ("last_modified", "Last changed", "When the newest version was committed"),
]


@dataclass(frozen=True)
class TableSettings:
    """What a table has besides its rows."""

    properties: Mapping[str, str]
    comment: str | None

    def without(self, gone: Iterable[str]) -> TableSettings:
        """What is left when the table is written anew without some columns."""
        return TableSettings(kept(self.properties, gone), self.comment)


class CatalogReader:
    """Reads with DESC: once for the columns and their comments, once for the rest."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def table(self, relations: Iterable[BaseRelation]) -> agate.Table:
        """A row for each column."""
        import agate

        names = _COLUMNS + [f"stats:{key}:{part}" for key, _, _ in _STATS for part in _STAT_PARTS]
        found = [row for relation in relations for row in self._rows_of(relation)]
        kinds = [agate.Number() if name == "column_index" else _kind_of(name) for name in names]
        return agate.Table(found, names, kinds)

    def entry(self, relation: BaseRelation) -> CatalogTable | None:
        """The same for one relation, in dbt's own form."""
        rows = self._rows_of(relation)
        if not rows:
            return None
        database, schema, name, kind, comment, owner = rows[0][:6]
        return CatalogTable.from_dict(
            {
                "metadata": {
                    "type": kind,
                    "schema": schema,
                    "name": name,
                    "database": database,
                    "comment": comment,
                    "owner": owner,
                },
                "columns": {
                    row[6]: {"type": row[8], "index": row[7], "name": row[6], "comment": row[9]} for row in rows
                },
                "stats": _entry_stats(rows[0][10:]),
            }
        )

    def settings(self, relation: BaseRelation) -> TableSettings:
        facts = self._facts(relation)
        return TableSettings(properties_of(facts), facts.get("comment") or None)

    def last_modified(self, relation: BaseRelation) -> datetime | None:
        """When the table was last changed, in the lake's time zone."""
        facts = self._facts(relation)
        if facts.get("type") != "VIEW":
            return _moment(facts.get("last_modified_time", ""))
        stream = self._stream(relation)
        if not stream:
            return None
        return _moment(
            {
                str(row["column_name"]): str(row["data_type"]) for row in self._rows(f"DESC EXTENDED {stream['table']}")
            }.get("last_modified_time", "")
        )

    def _stream(self, relation: BaseRelation) -> dict[str, Any]:
        """What DESC TABLE STREAM tells; nothing of what is none."""
        try:
            rows = self._rows(f"DESC TABLE STREAM {relation.render()}")
        except NotFound:
            return {}
        return {str(row["property"]): row["value"] for row in rows}

    def _rows_of(self, relation: BaseRelation) -> list[list[Any]]:
        try:
            columns = self._rows(f"DESC TABLE {relation.render()}")
            facts = self._facts(relation)
        except NotFound:
            return []
        except (Forbidden, QueryFailed) as error:
            # The others of its schema are told of all the same.
            _log.warning(f"{relation.render()} is left out of the catalog. {error.code}: {error.message}")
            return []
        kind = facts.get("type", "TABLE")
        looks_so = tuple(row["column_name"] for row in columns[: len(_OF_A_STREAM)]) == _OF_A_STREAM
        if kind == "VIEW" and looks_so and self._stream(relation):
            kind = "TABLE STREAM"
        about = [
            relation.database, relation.schema, relation.identifier, kind.lower().replace(" ", "_"),
            facts.get("comment") or None,
            facts.get("creator") or None,
        ]  # fmt: skip
        stats = _stats(facts)
        return [
            [*about, row["column_name"], place, row["data_type"], row["comment"] or None, *stats]
            for place, row in enumerate(columns, 1)
        ]

    def _facts(self, relation: BaseRelation) -> dict[str, str]:
        rows = self._rows(f"DESC EXTENDED {relation.render()}")
        names = [row["column_name"] for row in rows]
        begin = names.index(_DETAILS) + 1 if _DETAILS in names else len(names)
        return {str(row["column_name"]): str(row["data_type"]) for row in rows[begin:]}


_OF_A_STREAM = ("__change_type", "__commit_version", "__commit_timestamp")
"""The first columns of every table stream. Spark's catalog takes it for a view, and a view of it may have them, too."""
_STAT_PARTS = ("label", "value", "description", "include")


def _stats(facts: dict[str, str]) -> list[Any]:
    counted = _STATISTICS.fullmatch(facts.get("statistics", ""))
    values = {
        "rows": counted[1] if counted else None,
        "bytes": counted[2] if counted else None,
        "last_modified": facts.get("last_modified_time") or None,
    }
    return [
        part
        for key, label, description in _STATS
        for part in (label, values[key], description, values[key] is not None)
    ]


def _entry_stats(parts: list[Any]) -> dict[str, dict[str, Any]]:
    """The numbers of one relation, and whether there are any, in the form in which `dbt docs` has them."""
    found = {
        key: {"id": key} | dict(zip(_STAT_PARTS, parts[4 * place : 4 * place + 4], strict=True))
        for place, (key, _, _) in enumerate(_STATS)
    }
    shown = {key: stat for key, stat in found.items() if stat["include"]}
    told = ("Has Stats?", bool(shown), "Indicates whether there are statistics for this table", False)
    return shown | {"has_stats": {"id": "has_stats"} | dict(zip(_STAT_PARTS, told, strict=True))}


def properties_of(facts: Mapping[str, str]) -> dict[str, str]:
    """
    >>> properties_of({"properties": '(("a","1"),("b","x,(y)"))'})
    {'a': '1', 'b': 'x,(y)'}
    >>> properties_of({"properties": r'(("c","a in (\\"x\\", \\"y\\")"),("d","\\\\"))'})
    {'c': 'a in ("x", "y")', 'd': '\\'}
    """
    pairs = _PAIR.findall(facts.get("properties", ""))
    return {_ESCAPED.sub(r"\1", key): _ESCAPED.sub(r"\1", value) for key, value in pairs}


def kept(properties: Mapping[str, str], gone: Iterable[str]) -> dict[str, str]:
    """Those that a table keeps when it is written anew without some columns: not what Delta counts for itself, and no
    constraint on a column that goes.

    >>> kept({"change_tracking": "true", "delta.minReaderVersion": "3", "delta.constraints.c": "Old > 0"}, ["old"])
    {'change_tracking': 'true'}
    """
    names = {name.lower() for name in gone}

    def stays(key: str, value: str) -> bool:
        if key.startswith(_CONSTRAINT):
            return not any(token.is_name and token.value.lower() in names for token in scan(value))
        return not key.startswith(_OF_DELTA)

    return {key: value for key, value in properties.items() if stays(key, value)}


def _kind_of(name: str) -> Any:
    import agate

    return agate.Boolean() if name.endswith(":include") else agate.Text(null_values=())


def _moment(text: str) -> datetime | None:
    """
    >>> _moment("2024-06-22 21:08:41.184")
    datetime.datetime(2024, 6, 22, 21, 8, 41, 184000)
    """
    return datetime.fromisoformat(text) if text else None
