"""Dynamic tables: what a model asks for, what is there, and what lies between.

The query is compared too. The table keeps a digest of it among its properties, and one of how it is laid out in files,
which DESC does not tell. A table that was replaced by hand has neither, and so is replaced.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dbt_common.exceptions import DbtRuntimeError

from dbt.adapters.headrace.catalog import properties_of
from dbt.adapters.headrace.column import bare, quote
from headrace.dbapi.literals import literal
from headrace.sql.tokens import scan

QUERY_DIGEST = "dbt_query"
LAYOUT_DIGEST = "dbt_layout"
_SET_BY_HEADRACE = ("refresh_vc",)
DETAILS = "detailed table information:"
_DOWNSTREAM = "DOWNSTREAM"
_VCLUSTER = "default"
_MODES = ("AUTO", "INCREMENTAL", "FULL")
_UNITS = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600, "DAY": 86400}
_DURATION = re.compile(r"(?:INTERVAL\s+)?'?\s*(\d+)\s*'?\s*([A-Z]+?)S?\s*'?", re.IGNORECASE)


@dataclass(frozen=True)
class DynamicTableConfig:
    """Settings of a dynamic table, each in one form only: '60 seconds' and '1 minute' are the same."""

    query: str
    """The digest of the query."""
    interval_seconds: int | None = None
    target_lag: int | str | None = None
    vcluster: str = "default"
    refresh_mode: str = "AUTO"
    partition_by: tuple[str, ...] = ()
    clustered_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    """None where dbt does not keep it."""
    layout: str = ""

    @classmethod
    def asked(cls, config: Mapping[str, Any], sql: str, description: str | None) -> DynamicTableConfig:
        """What a model's config says."""
        mode = str(config.get("refresh_mode") or "AUTO").upper()
        if mode not in _MODES:
            raise DbtRuntimeError(f"refresh_mode is '{mode}': write {', '.join(_MODES[:-1])} or {_MODES[-1]}.")
        partition_by, clustered_by = _names(config.get("partition_by")), _names(config.get("clustered_by"))
        lag = config.get("target_lag")
        interval = config.get("refresh_interval")
        cluster = config.get("refresh_vc")
        return cls(
            query=digest(sql),
            interval_seconds=None if interval is None else seconds(str(interval), "refresh_interval"),
            target_lag=None if lag is None else _lag(str(lag)),
            vcluster=_VCLUSTER if cluster is None else str(cluster).lower(),
            refresh_mode=mode,
            partition_by=partition_by,
            clustered_by=clustered_by,
            properties={str(key): str(value) for key, value in (config.get("properties") or {}).items()},
            comment=description,
            layout=_layout(partition_by, clustered_by),
        )

    @classmethod
    def found(cls, rows: Iterable[Mapping[str, Any]]) -> DynamicTableConfig:
        """What DESC EXTENDED says."""
        listed = [(str(row["column_name"]), str(row["data_type"])) for row in rows]
        names = [name for name, _ in listed]
        facts = dict(listed[names.index(DETAILS) + 1 :])
        properties = properties_of(facts)
        interval, lag = facts.get("refresh_interval_second", ""), facts.get("target_lag_second", "")
        return cls(
            query=properties.pop(QUERY_DIGEST, ""),
            interval_seconds=int(interval) if interval else None,
            target_lag=(int(lag) if lag.isdigit() else lag.upper()) if lag else None,
            vcluster=facts.get("refresh_vc") or _VCLUSTER,
            refresh_mode=facts.get("refresh_mode", "AUTO"),
            properties={
                key: value for key, value in properties.items() if key not in (*_SET_BY_HEADRACE, LAYOUT_DIGEST)
            },
            comment=facts.get("comment", ""),
            layout=properties.get(LAYOUT_DIGEST, ""),
        )

    @property
    def clauses(self) -> str:
        """Everything that stands between the table's name and AS."""
        parts = []
        if self.partition_by:
            parts.append(f"partitioned by ({_columns(self.partition_by)})")
        if self.clustered_by:
            parts.append(f"clustered by ({_columns(self.clustered_by)})")
        if self.comment:
            parts.append(f"comment {literal(self.comment)}")
        parts.append(f"properties ({pairs({**self.properties, QUERY_DIGEST: self.query, LAYOUT_DIGEST: self.layout})})")
        schedule = [f"interval {duration(self.interval_seconds)}"] if self.interval_seconds is not None else []
        parts.append(f"refresh {' '.join([*schedule, f'vcluster {quote(self.vcluster)}'])}")
        if self.refresh_mode != "AUTO":
            parts.append(f"refresh_mode = {self.refresh_mode}")
        if self.target_lag is not None:
            parts.append(f"target_lag = {_lag_sql(self.target_lag)}")
        return "\n  ".join(parts)


@dataclass(frozen=True)
class DynamicTableChanges:
    """What to do with a dynamic table that is there."""

    told: tuple[str, ...] = ()
    """The changes in words."""
    alters: tuple[str, ...] = ()
    """Statements that make them, one each."""
    replace_query: bool = False
    replace_settings: bool = False
    """They need CREATE OR REPLACE, which keeps the rows of a query that is the same."""
    clauses: str = ""

    @property
    def needs_replace(self) -> bool:
        return self.replace_query or self.replace_settings

    @property
    def is_empty(self) -> bool:
        return not self.told

    @classmethod
    def between(
        cls, found: DynamicTableConfig, asked: DynamicTableConfig, name: str, columns: str | None = None
    ) -> DynamicTableChanges:
        """`columns` says how those that the same query gives differ from those that are there."""
        told: list[str] = []
        alters: list[str] = []
        settings = False
        alter = f"ALTER DYNAMIC TABLE {name} SET"

        def differs(what: str, old: Any, new: Any) -> bool:
            if old == new:
                return False
            told.append(f"{what} from {_shown(old)} to {_shown(new)}")
            return True

        query = found.query != asked.query
        if query:
            told.append("the query")
        elif columns is not None:
            query = True
            told.append(columns)
        if differs("refresh_interval", found.interval_seconds, asked.interval_seconds):
            if asked.interval_seconds is None:
                settings = True
            else:
                alters.append(f"{alter} REFRESH INTERVAL {duration(asked.interval_seconds)}")
        if differs("target_lag", found.target_lag, asked.target_lag):
            if asked.target_lag is None:
                settings = True
            else:
                alters.append(f"{alter} TARGET_LAG = {_lag_sql(asked.target_lag)}")
        if differs("refresh_vc", found.vcluster, asked.vcluster):
            alters.append(f"{alter} VCLUSTER {quote(asked.vcluster)}")
        if differs("refresh_mode", found.refresh_mode, asked.refresh_mode):
            alters.append(f"{alter} REFRESH_MODE = {asked.refresh_mode}")
        if differs("properties", dict(found.properties), dict(asked.properties)):
            gone = [key for key in found.properties if key not in asked.properties]
            if asked.properties:
                alters.append(f"{alter} PROPERTIES ({pairs(asked.properties)})")
            if gone:
                alters.append(
                    f"ALTER DYNAMIC TABLE {name} UNSET PROPERTIES IF EXISTS ({', '.join(map(literal, gone))})"
                )
        if asked.comment is not None and differs("comment", found.comment, asked.comment):
            alters.append(f"{alter} COMMENT {literal(asked.comment)}")
        if differs("partition_by or clustered_by", found.layout, asked.layout):
            settings = True
        # A comment that dbt does not keep is somebody's: OR REPLACE must repeat it.
        kept = asked if asked.comment is not None else replace(asked, comment=found.comment)
        return cls(tuple(told), tuple(alters), query, settings, kept.clauses)


def digest(sql: str) -> str:
    """The same for queries that differ in white space and comments only.

    >>> digest("SELECT  a -- b\\n FROM t") == digest("SELECT a FROM t")
    True
    >>> digest("SELECT 'a  b'") == digest("SELECT 'a b'")
    False
    """
    return hashlib.sha256(" ".join(token.text for token in scan(sql)).encode()).hexdigest()[:32]


def seconds(text: str, key: str) -> int:
    """
    >>> seconds("5 MINUTE", "refresh_interval"), seconds("60 seconds", "x"), seconds("INTERVAL '2' HOUR", "x")
    (300, 60, 7200)
    """
    match = _DURATION.fullmatch(text.strip())
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise DbtRuntimeError(f"{key} is '{text}': write a number and SECOND, MINUTE, HOUR or DAY, such as '5 MINUTE'.")
    return int(match[1]) * unit


def duration(count: int) -> str:
    """In the largest unit that fits.

    >>> duration(300), duration(90), duration(86400)
    ('5 MINUTE', '90 SECOND', '1 DAY')
    """
    for unit in ("DAY", "HOUR", "MINUTE"):
        if count and count % _UNITS[unit] == 0:
            return f"{count // _UNITS[unit]} {unit}"
    return f"{count} SECOND"


def pairs(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{literal(key)}={literal(value)}" for key, value in properties.items())


def _lag(text: str) -> int | str:
    return _DOWNSTREAM if text.strip().upper() == _DOWNSTREAM else seconds(text, "target_lag")


def _lag_sql(lag: int | str) -> str:
    return lag if isinstance(lag, str) else f"'{duration(lag)}'"


def _layout(partition_by: Sequence[str], clustered_by: Sequence[str]) -> str:
    if not partition_by and not clustered_by:
        return ""
    text = ",".join(name.lower() for name in partition_by) + ";" + ",".join(name.lower() for name in clustered_by)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _names(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    return tuple(bare(str(name)) for name in ([value] if isinstance(value, str) else value))


def _columns(names: Iterable[str]) -> str:
    return ", ".join(quote(name) for name in names)


def _shown(value: Any) -> str:
    return "none" if value in (None, "", {}) else str(value)
