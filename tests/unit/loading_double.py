"""A lake's loading without Spark: everything is real, but that delta-rs makes the commits.

As a program, for tests that kill it: `loading_double.py FOLDER ACTION…`, with a line of JSON for each action. These are
`send BATCH FROM UPTO` (rows with these ids, and one that does not fit), `commit`, `copy PATTERN`, `fail NAME`, `show`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction, write_deltalake

from headrace.catalog.database import Database
from headrace.catalog.loads import LoadStore
from headrace.compute.jobs import LiveJob
from headrace.errors import HeadraceError, NotAllowed, QueryFailed
from headrace.loading.commits import REJECTS_SCHEMA, Files, Found, Numbered
from headrace.loading.files import FileReader, listed
from headrace.loading.loader import Loader
from headrace.loading.receiving import Receipt
from headrace.loading.spool import RowFile
from headrace.names import TableName
from headrace.result import Result
from headrace.storage.delta import all_rows

NAME = TableName("main", "public", "events")
_JUDGED = pa.schema([("load", pa.int32()), ("number", pa.int64()), ("row", pa.string()), ("error", pa.string())])
ROW_SCHEMA = Schema([Field("id", "long", nullable=False), Field("kind", "string"), Field("amount", "decimal(10,2)")])


class Clock:
    """Wall-clock time and time that only goes forward."""

    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
        self.seconds = 1000.0

    def __call__(self) -> datetime:
        return self.now

    def monotonic(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.seconds += seconds

    def put_by(self, seconds: float) -> None:
        """Somebody sets the clock; no time passes."""
        self.now += timedelta(seconds=seconds)


class DoubleWriter:
    """Commits as Delta does: one whose number it has seen is left out, without a word."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.bad: Callable[[dict[str, Any]], bool] = lambda row: False
        """Which rows do not meet a constraint, in files where a fit has one."""
        self.fails: list[Exception] = []
        """To raise at the next commits, before they are made."""
        self.fails_after: list[Exception] = []
        self.fails_rejects: list[Exception] = []
        self.places: dict[str, str] = {}
        """Tables that were moved, by id."""
        self.commits = self.judged = 0
        self.before_append: Callable[[], None] | None = None

    def judge(self, files: Files, folder: str) -> None:
        found = [
            {"load": row["load"], "number": row["number"], "row": json.dumps(row["row"], default=str), "error": error}
            for file, how in files
            for row in pq.read_table(file.path).to_pylist()
            if (error := how.unmet[0][1] if how.unmet and self.bad(row["row"]) else None) is not None
        ]
        Path(folder).mkdir()
        pq.write_table(pa.Table.from_pylist(found, _JUDGED), Path(folder) / "part-0.parquet")
        self.judged += 1

    def append(self, path: str, files: Files, unfit: Sequence[str], carries: Numbered) -> None:
        if self.before_append is not None:
            self.before_append()
        if self.fails:
            raise self.fails.pop(0)
        if not DeltaTable.is_deltatable(path):
            raise QueryFailed("There is no table, and none is created.")
        bad = {(row["load"], row["number"]) for file in unfit for row in pq.read_table(file).to_pylist()}
        tables = [
            pa.Table.from_pylist(
                [r["row"] for r in pq.read_table(f.path).to_pylist() if (r["load"], r["number"]) not in bad], _struct(f)
            )
            for f, _ in files
        ]
        self._commit(path, pa.concat_tables(tables, promote_options="default"), carries)
        if self.fails_after:
            raise self.fails_after.pop(0)

    def existing(self, tables: Sequence[TableName]) -> list[str]:
        paths = [str(self._folder / table.table) for table in tables]
        return [path for path in paths if DeltaTable.is_deltatable(path)]

    def rejects_path(self, table: TableName, comment: str) -> str:
        path = str(self._folder / table.table)
        if not DeltaTable.is_deltatable(path):
            write_deltalake(path, REJECTS_SCHEMA.empty_table(), description=comment)
        elif pa.schema(DeltaTable(path).schema().to_arrow()).names != REJECTS_SCHEMA.names:
            raise NotAllowed(f"{table} has other columns.")
        return path

    def append_rejects(self, path: str, rows: str, carries: Numbered) -> None:
        if self.fails_rejects:
            raise self.fails_rejects.pop(0)
        self._commit(path, pq.read_table(rows), carries)

    def _commit(self, path: str, rows: pa.Table, carries: Numbered) -> None:
        table = DeltaTable(path)
        if (table.transaction_version(carries.app_id) or 0) >= carries.sequence:
            return
        about = CommitProperties(
            custom_metadata={"userMetadata": carries.note},
            app_transactions=[Transaction(carries.app_id, carries.sequence)],
        )
        wanted = pa.schema(table.schema().to_arrow())
        arrays = {name: rows.column(name) for name in rows.column_names}
        columns = [arrays.get(f.name, pa.nulls(rows.num_rows, f.type)) for f in wanted]
        write_deltalake(
            table, pa.table(columns, names=wanted.names).cast(wanted), mode="append", commit_properties=about
        )
        self.commits += 1

    def find(self, table: TableName, table_id: str) -> Found | None:
        path = self.places.get(table_id)
        return None if path is None else Found(path, table)


def _struct(file: RowFile) -> pa.Schema:
    return pa.schema(list(pq.read_schema(file.path).field("row").type))


class LoadingLake:
    """A table `events`, and everything that loads it."""

    def __init__(self, folder: Path, clock: Clock | None = None, **limits: Any) -> None:
        self.folder = folder
        self.clock = clock or Clock()
        self.table = str(folder / "events")
        if not DeltaTable.is_deltatable(self.table):
            DeltaTable.create(self.table, ROW_SCHEMA)
        self.database = Database.open(f"sqlite:///{folder}/ops.db")
        self.store = LoadStore(self.database)
        self.writer = DoubleWriter(folder)
        self.jobs: list[str] = []
        self.loader = Loader(
            self.store, folder, self.clock, zone=ZoneInfo("UTC"), home="main", spark=_no_spark, submit=self._submit,
            writer=self.writer, monotonic=self.clock.monotonic, **limits,
        )  # fmt: skip
        self.loader.recover()

    def _submit(self, work: Callable[[], Result], text: str) -> LiveJob:
        """At once, in this thread."""
        from headrace.catalog.records import Job

        self.jobs.append(text)
        record = Job(id=text, status="RUNNING", creator="", text=text, vcluster="default", submitted_at=self.clock())
        job = LiveJob(record, work, lambda *_: None)
        result, error = None, None
        try:
            result = job.work()
        except HeadraceError as fault:
            error = fault
        job.settle(record, result, error)
        return job

    def send(self, body: str | bytes, batch_id: str | None = None, form: Any = "json") -> Receipt:
        data = body.encode() if isinstance(body, str) else body
        return self.loader.receiver.receive(NAME, self.table, data, form, batch_id, "ann")

    def copy(self, pattern: str, file_format: Any = "JSON", force: bool = False, **options: str) -> list[Any]:
        reader = FileReader.with_options(file_format, options)
        files = listed(pattern, self.folder, None)
        return self.loader.copies.copy(NAME, self.table, files, reader, force=force, creator="ann")

    def look(self, seconds: float = 0) -> float:
        self.clock.advance(seconds)
        return self.loader.committer.look()

    def rows(self) -> list[int]:
        return sorted(all_rows(DeltaTable(self.table), self.table).column("id").to_pylist())

    def rejects(self) -> list[tuple[str, int]]:
        path = str(self.folder / "events_rejects")
        if not DeltaTable.is_deltatable(path):
            return []
        found = all_rows(DeltaTable(path), path).to_pylist()
        return sorted((row["batch_id"], row["row_number"]) for row in found)

    def spooled(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "loads").rglob("*") if path.is_file())

    def close(self) -> None:
        self.loader.close()
        self.database.close()


def _no_spark() -> Any:
    raise AssertionError("There is no Spark here.")


def lines(first: int, upto: int) -> str:
    """Rows with these ids, the last one not included."""
    return "\n".join(
        json.dumps({"id": number, "kind": f"k{number % 3}", "amount": "1.25"}) for number in range(first, upto)
    )


def main(folder: Path, actions: list[str]) -> None:
    folder.mkdir(exist_ok=True)
    lake = LoadingLake(folder)
    for action in actions:
        name, _, argument = action.partition(" ")
        found: Any = None
        if name == "fail":
            os.environ["HEADRACE_FAILPOINT"] = argument
        elif name == "send":
            batch, first, upto = argument.split()
            sent = lake.send(f'{lines(int(first), int(upto))}\n{{"id": "x"}}', batch)
            found = [sent.load.rows, sent.load.rejected, sent.load.state, sent.duplicate]
        elif name == "commit":
            lake.loader.committer.flush()
        elif name == "copy":
            found = [[each.state, each.rows, each.rejected] for each in lake.copy(argument)]
        else:
            found = {"rows": lake.rows(), "rejects": lake.rejects(), "spooled": lake.spooled()}
        print(json.dumps({action: found}), flush=True)
    lake.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
