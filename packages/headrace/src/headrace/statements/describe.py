"""DESC [EXTENDED], DESC HISTORY."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pyarrow as pa

from headrace.catalog.records import DynamicTable
from headrace.errors import NotFound, Unsupported
from headrace.ivm.layout import grouped_root
from headrace.names import TableName, quote
from headrace.plan.types import type_text
from headrace.refresh.ordered import OrderedCopies
from headrace.refresh.states import StateTables
from headrace.refresh.stored import read_note, read_stored
from headrace.result import Result, counted, from_frame, from_rows
from headrace.sql import statements as sql
from headrace.statements.context import Context

_DESC = [("column_name", pa.string()), ("data_type", pa.string()), ("comment", pa.string())]

_STORAGE_HISTORY = [
    ("version", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")), ("operation", pa.string()),
    ("refresh_mode", pa.string()), ("technique", pa.string()), ("rows_inserted", pa.int64()),
    ("rows_deleted", pa.int64()), ("reason", pa.string()), ("job_id", pa.string()),
]  # fmt: skip


def describe(context: Context, statement: sql.DescribeTable) -> Result:
    if context.is_temporary_name(statement.name):
        return _temporary_view(context, statement)
    name = context.resolve(statement.name)
    table = context.store.table(name)
    if table is not None:
        rows = [(c.name, shown_type(c.type), table.column_comments.get(c.name, "")) for c in table.query.columns]
        block = _dynamic_block(context, table) if statement.extended else []
    elif context.exists(name):
        rows = _columns(context, name.spark(context.home))
        block = _table_block(context, name) if statement.extended else []
    else:
        raise NotFound(f"There is no table or view {name}.", hint="SHOW TABLES lists what there is.")
    if not statement.extended:
        return from_rows(_DESC, rows)
    comments = {column: comment for column, _, comment in rows if comment}
    found = [(column, kind) for column, kind, _ in rows]
    found.append(("detailed table information:", ""))
    found += block + ([("column_comments", _pairs(comments))] if comments else [])
    return from_rows(_DESC[:2], found)


def _columns(context: Context, spark_name: str) -> list[tuple[str, str, str]]:
    fields = context.spark.table(spark_name).schema.fields
    return [(each.name, type_text(each.dataType), each.metadata.get("comment", "")) for each in fields]


def _temporary_view(context: Context, statement: sql.DescribeTable) -> Result:
    """It has columns, and is known to its session only."""
    rows = _columns(context, quote(statement.name[0]))
    if not statement.extended:
        return from_rows(_DESC, rows)
    found = [(column, kind) for column, kind, _ in rows]
    about = [("detailed table information:", ""), ("name", statement.name[0]), ("type", "TEMPORARY VIEW")]
    return from_rows(_DESC[:2], found + about)


def _time(context: Context, moment: datetime | None) -> str:
    if moment is None:
        return ""
    from zoneinfo import ZoneInfo

    return moment.astimezone(ZoneInfo(context.settings.timezone)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _pairs(properties: dict[str, Any]) -> str:
    r"""
    >>> print(_pairs({"owner": "ann", "note": 'so-called "facts"'}))
    (("note","so-called \"facts\""),("owner","ann"))
    """
    pairs = ",".join(f'("{_in_quotes(key)}","{_in_quotes(value)}")' for key, value in sorted(properties.items()))
    return f"({pairs})" if pairs else ""


def _in_quotes(text: Any) -> str:
    """As JSON has it, so that whoever reads it knows where the text ends."""
    return str(text).replace("\\", "\\\\").replace('"', '\\"')


def _dynamic_block(context: Context, table: DynamicTable) -> list[tuple[str, str]]:
    stored = read_stored(context.logs, table)
    frontier = stored.note.frontier if stored.note is not None else None
    history = context.logs.history(table.storage_path, 1)
    changed = datetime.fromtimestamp(history[0].timestamp / 1000, tz=timezone.utc) if history else table.modified_at
    _, size = context.logs.statistics(table.storage_path)
    rows = stored.note.visible_rows if stored.note is not None else 0
    sources = [
        f"{source.name}={frontier.version_of(source.path) if frontier is not None else 'not read yet'}"
        for source in table.query.sources
    ]
    root = grouped_root(table.query.plan)
    keys = ", ".join(key.name.rsplit("_", 1)[0] for key in root.aggregate.keys) if root is not None else ""
    return [
        ("schema", table.schema_name),
        ("name", table.name),
        ("creator", table.creator),
        ("created_time", _time(context, table.created_at)),
        ("last_modified_time", _time(context, max(changed, table.modified_at))),
        ("comment", table.comment or ""),
        ("properties", _pairs({"refresh_vc": table.vcluster, **table.properties})),
        ("type", "DYNAMIC TABLE"),
        ("view_text", table.query.resolved_text),
        ("view_original_text", table.query.text),
        ("source_tables", "[" + ", ".join(sources) + "]"),
        ("refresh_type", "on demand" if table.interval_seconds is None and table.target_lag is None else "on schedule"),
        ("refresh_start_time", _time(context, table.start_with or table.created_at)),
        ("refresh_interval_second", "" if table.interval_seconds is None else str(table.interval_seconds)),
        ("target_lag_second", "" if table.target_lag is None else str(table.target_lag)),
        ("refresh_vc", table.vcluster),
        ("refresh_mode", table.refresh_mode),
        ("suspended", "true" if table.suspended else "false"),
        ("incremental", "yes" if table.query.plan is not None else f"no: {table.query.unsupported}"),
        ("unique_key_is_valid", "true" if root is not None else "false"),
        ("unique_key_version_info", f"group key: {keys or '(one row)'}" if root is not None else ""),
        ("format", "PARQUET"),
        ("format_options", '(("table_format","delta"))'),
        ("location", table.storage_path),
        ("statistics", f"{rows} rows {size} bytes"),
        ("state", _state(context, table, grouped=root is not None)),
    ]


def _state(context: Context, table: DynamicTable, *, grouped: bool) -> str:
    """What is kept so that a refresh need not read everything."""
    tables, groups, size = StateTables(context.spark, context.logs, table, context.progress).size()
    kept = ["hidden columns of the table"] if grouped else []
    kept += [f"{counted(tables, 'state table')} {counted(groups, 'group')} {size} bytes"] if tables else []
    copies, size = OrderedCopies(context.spark, context.logs, table, context.progress).size()
    kept += [f"{counted(copies, 'ordered copy', 'ordered copies')} {size} bytes"] if copies else []
    return ", ".join(kept)


def _last_modified(context: Context, path: str) -> datetime | None:
    try:
        last = context.logs.history(path, 1)
    except Unsupported:  # A shallow clone.
        return None
    return datetime.fromtimestamp(last[0].timestamp / 1000, tz=timezone.utc) if last else None


def _table_block(context: Context, name: TableName) -> list[tuple[str, str]]:
    info: dict[str, str] = {}
    past_columns = False
    for row in context.spark.sql(f"DESCRIBE TABLE EXTENDED {name.spark(context.home)}").collect():
        past_columns = past_columns or row[0].startswith("# Detailed")
        if past_columns:
            info[row[0]] = row[1]
    is_view = info.get("Type", "").upper() == "VIEW"
    block = [
        ("schema", name.schema),
        ("name", name.table),
        ("creator", info.get("Owner", "")),
        ("created_time", info.get("Created Time", "")),
        ("last_modified_time", ""),
        ("comment", info.get("Comment", "")),
        ("properties", info.get("Table Properties", "")),
        ("type", "VIEW" if is_view else "TABLE"),
    ]
    if is_view:
        return [
            *block,
            ("view_text", info.get("View Text", "")),
            ("view_original_text", info.get("View Original Text", "")),
        ]
    located = context.locate(name.database(context.home), name.table)
    if located is None:
        return [*block, ("format", info.get("Provider", "").upper()), ("location", info.get("Location", ""))]
    path = located.source.path
    block[3] = ("created_time", _time(context, context.logs.created(path)))
    block[4] = ("last_modified_time", _time(context, _last_modified(context, path)))
    block[6] = ("properties", _pairs(shown_properties(context.logs.snapshot(path).properties)))
    rows, size = context.logs.statistics(path)
    return [
        *block,
        ("format", "PARQUET"),
        ("format_options", '(("table_format","delta"))'),
        ("location", path),
        ("statistics", f"{rows} rows {size} bytes"),
    ]


def shown_type(type_text: str) -> str:
    """Types in lower case, but not the field names inside a struct."""
    return type_text if "<" in type_text else type_text.lower()


def shown_properties(properties: dict[str, str]) -> dict[str, str]:
    """Delta's own names back into ours, where we have one."""
    ours = {"delta.enableChangeDataFeed": "change_tracking"}
    return {ours.get(key, key): value for key, value in properties.items()}


def describe_history(context: Context, statement: sql.DescribeHistory) -> Result:
    """Delta's history of a table; of a dynamic table's storage what its commits say of themselves. The versions are
    those that VERSION AS OF takes."""
    name = context.resolve(statement.name)
    table = context.store.table(name)
    if table is None and not context.exists(name):
        raise NotFound(f"There is no table {name}.", hint="SHOW TABLES lists them.")
    place = f"delta.`{table.storage_path}`" if table is not None else name.spark(context.home)
    limit = f" LIMIT {statement.limit}" if statement.limit is not None else ""
    found = context.spark.sql(f"DESCRIBE HISTORY {place}{limit}")
    if table is None:
        return from_frame(found, context.settings.timezone)
    rows = "CAST(operationMetrics['numOutputRows'] AS BIGINT)"
    commits = found.selectExpr("version", "unix_micros(timestamp)", "operation", rows, "userMetadata").collect()
    return from_rows(_STORAGE_HISTORY, [_commit(*commit) for commit in commits], context.settings.timezone)


def _commit(version: int, micros: int, operation: str, rows: int | None, metadata: str | None) -> tuple[object, ...]:
    note = read_note(metadata)
    if note is None:
        return (version, micros, operation, *[None] * 6)
    if note.fold:
        return (version, micros, "FOLD", *[None] * 6)
    known = (note.rows_inserted, note.visible_rows if note.live_rows is None else None, rows)
    inserted = next((each for each in known if each is not None), None)
    return (
        version, micros, "REFRESH", note.mode, note.technique, inserted, note.rows_deleted, note.reason, note.job_id
    )  # fmt: skip
