"""Where a dynamic table is kept: its storage folder, its definition beside the data, and the view that is its name."""

from __future__ import annotations

import json
import logging
import re
import shutil
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from deltalake import DeltaTable
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import DeltaError
from pydantic import ValidationError
from pyspark.sql.types import StructType

from headrace import failpoints
from headrace.catalog.records import DynamicTable
from headrace.errors import NotFound, RefreshRunning
from headrace.ivm.layout import layout_of, schema_text, select_live
from headrace.names import TableName, quote, quote_text
from headrace.refresh.fold import partition_columns
from headrace.statements.context import Context
from headrace.statements.elsewhere import alone
from headrace.storage.errors import is_of_surroundings

DEFINITION = "headrace.definition"
DROPPED = ".dropped"
FOLDER = "dynamic-tables"
"""Under the warehouse. Spark allows no table name with a dash, so no table can ever lie there."""

_log = logging.getLogger(__name__)


def storage_path(context: Context, name: TableName, table_id: str) -> str:
    """Where a new table will lie: the name is for people who look, the id makes it unique."""
    readable = re.sub(r"[^A-Za-z0-9_]+", "_", f"{name.database(context.home)}.{name.table}")[:80]
    return str(Path(context.settings.warehouse).absolute() / FOLDER / f"{readable}-{table_id[:12]}")


def create_storage(context: Context, table: DynamicTable) -> None:
    """The empty storage table; its first version already carries the definition."""
    layout = layout_of(table.query)
    structure = StructType.fromDDL(schema_text(layout.columns))
    configuration = {
        "delta.enableChangeDataFeed": "true",
        **_retention(context, table),
        DEFINITION: definition_text(table),
    }
    Path(table.storage_path).parent.mkdir(parents=True, exist_ok=True)
    try:
        DeltaTable.create(
            table.storage_path,
            schema=DeltaSchema.from_json(structure.json()),
            partition_by=list(partition_columns(table)),
            configuration=configuration,
            raise_if_key_not_exists=False,
        )
    except (DeltaError, ValueError, TypeError) as error:
        if is_of_surroundings(error):
            raise
        # Types that delta-rs does not know (variant, for example).
        writer = (
            context.spark.createDataFrame([], schema_text(layout.columns))
            .write.format("delta")
            .partitionBy(*partition_columns(table))
        )
        for key, value in configuration.items():
            if key.startswith("delta."):
                writer = writer.option(key, value)
        writer.save(table.storage_path)
        set_storage_properties(context, table)


def _retention(context: Context, table: DynamicTable) -> dict[str, str]:
    days = table.properties.get("data_retention_days", str(context.settings.data_retention_days))
    return {
        "delta.deletedFileRetentionDuration": f"interval {days} days",
        "delta.logRetentionDuration": f"interval {days} days",
    }


def definition_text(table: DynamicTable) -> str:
    return json.dumps(json.loads(table.model_dump_json()), separators=(",", ":"))


def kept_definition(context: Context, storage: str) -> DynamicTable | None:
    """The definition that a storage table carries; None when it has none that can be read."""
    try:
        text = context.logs.snapshot(storage).properties.get(DEFINITION)
        return None if text is None else DynamicTable.model_validate_json(text)
    except (NotFound, ValidationError):
        return None


def set_storage_properties(context: Context, table: DynamicTable) -> None:
    """Keep the definition beside the data, so that the operations database can be rebuilt from it."""
    DeltaTable(table.storage_path).alter.set_table_properties(
        {DEFINITION: definition_text(table), **_retention(context, table)}, raise_if_not_exists=False
    )
    context.logs.forget(table.storage_path)


def keep_beside(context: Context, table: DynamicTable) -> None:
    """Have the definition, as the operations database has it, beside the data, too. While a refresh is at work, that
    must not be disturbed: `keep_up` does it when it has ended, or the next start of the lake."""
    context.behind.add(table.id)
    keep_up(context, table)


def keep_up(context: Context, table: DynamicTable) -> None:
    """Bring the definition beside the data up to date, if it is behind and nobody is at work there."""
    if table.id not in context.behind:
        return
    with suppress(RefreshRunning, NotFound), alone(context, table, patience=0.0):
        context.behind.discard(table.id)
        present = context.store.table_by_id(table.id)
        try:
            if present is not None:
                set_storage_properties(context, present)
        except (DeltaError, OSError):
            context.behind.add(table.id)
            _log.exception("The definition of %s could not be written to its storage yet.", table.table_name)


def is_behind(context: Context, table: DynamicTable) -> bool:
    """Whether the definition that the storage table carries is older than this one."""
    text = context.logs.snapshot(table.storage_path).properties.get(DEFINITION)
    try:
        return text is None or datetime.fromisoformat(json.loads(text)["modified_at"]) < table.modified_at
    except (KeyError, TypeError, ValueError):
        return True


def create_view(context: Context, table: DynamicTable) -> None:
    """The public name: a view over the live rows. Spark itself refuses DML on it."""
    columns = ", ".join(
        quote(c.name) + (f" COMMENT {quote_text(comment)}" if (comment := table.column_comments.get(c.name)) else "")
        for c in table.query.columns
    )
    comment = f" COMMENT {quote_text(table.comment)}" if table.comment else ""
    stored = f"delta.{quote(table.storage_path)}"
    body = select_live(table.query.columns, layout_of(table.query).hides_groups, stored, table.query.cut)
    name = table.table_name.spark(context.home)
    context.spark.sql(f"CREATE OR REPLACE VIEW {name} ({columns}){comment} AS {body}")


def remove_storage(context: Context, table: DynamicTable) -> None:
    """Rename first, which is atomic: a crash leaves a folder that the next start knows to be dropped."""
    storage = Path(table.storage_path)
    context.logs.forget(table.storage_path)
    if storage.exists():
        gone = storage.with_name(storage.name + DROPPED)
        shutil.rmtree(gone, ignore_errors=True)
        storage.rename(gone)
        failpoints.reach("drop-after-rename")
        shutil.rmtree(gone, ignore_errors=True)
