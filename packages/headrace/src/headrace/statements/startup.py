"""What opening a lake does before the first statement: schema, drops that were cut short, lost definitions, refreshes
and streams' readings that were cut short."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from headrace.errors import NotFound, StaleStream
from headrace.names import quote
from headrace.refresh.recovery import settle_unfinished
from headrace.refresh.stored import read_stored
from headrace.statements.context import Context
from headrace.statements.dropping import drop_table
from headrace.statements.replacing import settle_replacement
from headrace.statements.storing import (
    DROPPED,
    FOLDER,
    create_view,
    is_behind,
    kept_definition,
    set_storage_properties,
)
from headrace.statements.streaming import forget_lost


def prepare(context: Context) -> None:
    """Bring the lake into the state that the statements expect."""
    schema = context.settings.schema_name
    if not context.spark.catalog.databaseExists(schema):
        context.spark.sql(f"CREATE SCHEMA IF NOT EXISTS {quote(schema)}")
    context.spark.catalog.setCurrentDatabase(schema)
    _finish_drops(context)
    _find_lost_definitions(context)
    settle_unfinished(context.store, context.logs, context.clock())
    _finish_definitions(context)
    context.streams.readings.settle_all()
    forget_lost(context)
    _finish_streams(context)


def _folder(context: Context) -> Path:
    return Path(context.settings.warehouse).absolute() / FOLDER


def _finish_drops(context: Context) -> None:
    """A storage folder renamed by DROP, which then died: finish it."""
    if not _folder(context).exists():
        return
    by_path = {table.storage_path: table for table in context.store.tables()}
    for gone in _folder(context).glob(f"*{DROPPED}"):
        table = by_path.get(str(gone).removesuffix(DROPPED))
        if table is not None:
            drop_table(context, table)
        shutil.rmtree(gone, ignore_errors=True)


def _find_lost_definitions(context: Context) -> None:
    """The operations database is new or old: read back the definitions that the tables carry themselves."""
    if not _folder(context).exists():
        return
    known = {table.storage_path: table for table in context.store.tables()}
    for storage in sorted(_folder(context).iterdir()):
        if storage.name.endswith(DROPPED) or str(storage) in known:
            continue
        table = kept_definition(context, str(storage))
        if table is None or table.storage_path != str(storage) or context.store.table(table.table_name) is not None:
            # Not certain to be ours, of another place, or an older namesake: nothing is ever deleted on a guess.
            context.progress.tell(f"{storage} is no dynamic table of this lake; it is left alone.")
            continue
        for workspace in {table.workspace, *(source.workspace for source in table.query.sources)}:
            if workspace.lower() not in {name.lower() for name in context.workspaces()}:
                context.store.add_workspace(workspace)
        context.store.put_table(table)
        context.progress.tell(f"Found {table.table_name} again from its own storage.")


def _finish_definitions(context: Context) -> None:
    """A CREATE that died before its first load never happened; one that died before its view gets the view. A setting
    that was altered while a refresh was at work is written down beside the data, too."""
    for table in context.store.tables():
        try:
            stored = read_stored(context.logs, table)
        except NotFound:
            continue  # Its storage is gone or elsewhere; the next refresh says so.
        waits = table.properties.get("initialize", "").lower() == "on_schedule"
        if not context.exists(table.table_name):
            # The view is made last: without it, and without a load, the CREATE never happened.
            if stored.sequence == 0 and not waits:
                drop_table(context, table)
            else:
                create_view(context, table)
        elif table.stale_reason is not None:
            settle_replacement(context, table, stored)
        elif is_behind(context, table):
            set_storage_properties(context, table)


def _finish_streams(context: Context) -> None:
    """A CREATE TABLE STREAM that died before its view gets the view."""
    for stream in context.store.streams.all():
        if not context.exists(stream.table_name):
            with suppress(StaleStream):
                context.streams.create_view(stream)
