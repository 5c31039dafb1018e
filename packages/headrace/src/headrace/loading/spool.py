"""Rows on disk until they are in their table: `<lake>/loads/<table id>/<load id>.arrow`, and beside it, if there are
any, `<load id>.rejects.arrow`.

A file appears under its name when it is whole and on the disk. It carries its own record, so that nothing depends on
the operations database alone. For a commit, the rows of many loads are put into few Parquet files, which Spark can
read; these are made anew whenever they are needed. Beside them is the verdict on these rows, where only Spark can give
one: that is made anew until the commit is there, and then stays until all of it is told.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from headrace.catalog.records import Load
from headrace.errors import EnvironmentFault
from headrace.loading.checked import Checked, Reject
from headrace.loading.shapes import Shape
from headrace.storage.durable import sync

_RECORD, _COLUMNS = b"headrace.load", b"headrace.columns"
_ROWS, _REJECTS, _PARQUET, _UNFINISHED, _VERDICT = ".arrow", ".rejects.arrow", ".parquet", ".part", ".verdict"
_JUDGED = "_loads.json"
"""In the folder of a verdict: the loads that it is about. Spark reads no files with such names."""
_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")
REJECT_SCHEMA = pa.schema([("number", pa.int64()), ("row", pa.string()), ("error", pa.string())])
_REJECTS_AT_ONCE = 10_000

_log = logging.getLogger(__name__)


class SpoolFault(EnvironmentFault):
    """A spooled file is gone, or not as it was written."""

    code = "SPOOL"
    usual_hint = "Look at the disk, and whether somebody changed files in the lake's folder."


@dataclass(frozen=True)
class Spooled:
    """Some columns as they were when rows were checked against them, in the order of the file: the name, the type in
    JSON, and whether NULL was allowed."""

    columns: tuple[tuple[str, str, bool], ...]

    @classmethod
    def of(cls, shape: Shape, names: Iterable[str]) -> Spooled:
        known = {column.name: column for column in shape.columns}
        return cls(tuple((name, known[name].declared, known[name].nullable) for name in names))

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _, _ in self.columns)

    def text(self) -> str:
        return json.dumps(self.columns)

    @classmethod
    def parsed(cls, text: bytes) -> Spooled:
        return cls(tuple((str(name), str(declared), bool(null)) for name, declared, null in json.loads(text)))


@dataclass(frozen=True)
class RowFile:
    """A Parquet file with `load` (the place of a row's load in its set), `number` and `row`, a struct."""

    path: str
    spooled: Spooled


@dataclass(frozen=True)
class Verdict:
    """Rows of a set that do not fit its table. The files have `load`, `number`, `row` (a text) and `error`; `counts`
    says how many rows of each load there are, by its place in the set."""

    files: tuple[str, ...] = ()
    counts: Mapping[int, int] = field(default_factory=dict, hash=False)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Raises SpoolFault."""
        for path in map(Path, self.files):
            with _readable(path), pq.ParquetFile(path) as file:
                yield from file.iter_batches(columns=["load", "number", "row", "error"])


class Spool:
    """The folder of all tables' waiting rows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, load: Load, checked: Checked, shape: Shape) -> int:
        """Write the rows down so that they outlive a power cut; gives their bytes on disk."""
        folder = self._prepared(load.table_id)
        about = {
            _RECORD: load.model_dump_json().encode(),
            _COLUMNS: Spooled.of(shape, checked.rows.column_names).text().encode(),
        }
        numbered = checked.rows.add_column(0, pa.field("number", pa.int64()), checked.numbers)
        numbered = numbered.replace_schema_metadata(about)
        with _disk_faults():
            size = 0
            if checked.rejects:
                # First: whoever finds the rows finds all of the load.
                with self.rejects_writer(load) as rejects:
                    rejects.write(checked.rejects)
                size += self._rejects_path(load).stat().st_size
            try:
                with (
                    _whole(folder / f"{load.id}{_ROWS}") as unfinished,
                    _arrow_file(unfinished, numbered.schema) as file,
                ):
                    file.write_table(numbered)
            except BaseException:
                self._rejects_path(load).unlink(missing_ok=True)
                raise
            return size + (folder / f"{load.id}{_ROWS}").stat().st_size

    @contextmanager
    def rejects_writer(self, load: Load) -> Iterator[RejectsWriter]:
        """Bad rows of a load, piece by piece. Without any, no file is left."""
        self._prepared(load.table_id)
        writer = RejectsWriter()
        path = self._rejects_path(load)
        with (
            _disk_faults(),
            _whole(path, lambda: writer.count > 0) as unfinished,
            _arrow_file(unfinished, REJECT_SCHEMA) as file,
        ):
            writer.open(file)
            yield writer

    def read(self, load: Load) -> tuple[pa.Table, Spooled]:
        """A batch's rows, with their numbers first. Raises SpoolFault."""
        table = _read(self.folder / load.table_id / f"{load.id}{_ROWS}")
        metadata = table.schema.metadata or {}
        try:
            spooled = Spooled.parsed(metadata[_COLUMNS])
        except (KeyError, ValueError):
            raise SpoolFault(f"The file of the load {load.id} does not tell its columns.") from None
        if table.num_columns != len(spooled.columns) + 1:
            raise SpoolFault(f"The file of the load {load.id} does not have its columns.")
        return table, spooled

    def is_sound(self, load: Load) -> bool:
        """Whether all that a batch needs is there, as far as a quick look tells."""
        try:
            rows, _ = self.read(load)
            rejected = sum(piece.num_rows for piece in self.read_rejects(load)) if load.rejected else 0
        except SpoolFault:
            return False
        return rows.num_rows == load.rows and rejected == load.rejected

    def read_rejects(self, load: Load) -> Iterator[pa.RecordBatch]:
        """Raises SpoolFault."""
        path = self._rejects_path(load)
        with _readable(path), pa.OSFile(str(path)) as file:
            reader = pa.ipc.open_file(file)
            for place in range(reader.num_record_batches):
                piece = reader.get_batch(place)
                piece.validate(full=True)
                yield piece

    def remove(self, loads: Sequence[Load]) -> None:
        for load in loads:
            for suffix in (_ROWS, _REJECTS):
                (self.folder / load.table_id / f"{load.id}{suffix}").unlink(missing_ok=True)

    # ------------------------------------------------------------------ for Spark

    def for_spark(self, loads: Sequence[Load], name: str) -> tuple[RowFile, ...]:
        """The rows of batches in Parquet files, one for each set of columns among them. Raises SpoolFault."""
        with self.parquet(loads[0].table_id, name) as writer:
            for place, load in enumerate(loads):
                table, spooled = self.read(load)
                writer.write(place, table.column(0), table.select(range(1, table.num_columns)), spooled)
        return writer.files

    @contextmanager
    def parquet(self, table_id: str, name: str) -> Iterator[ParquetWriter]:
        """Files for Spark, on disk when the block ends; none is left when it fails."""
        self.remove_parquet(table_id, name)
        writer = ParquetWriter(self._prepared(table_id), name)
        try:
            with _disk_faults():
                yield writer
                writer.close()
        except BaseException:
            writer.abandon()
            self.remove_parquet(table_id, name)
            raise

    def found_parquet(self, table_id: str, name: str) -> tuple[RowFile, ...]:
        """Files that an earlier process left for a commit; not that of the rejects."""
        found = []
        for path in sorted((self.folder / table_id).glob(f"{name}-[0-9]*{_PARQUET}")):
            with _readable(path):
                metadata = pq.read_schema(path).metadata or {}
            try:
                found.append(RowFile(str(path), Spooled.parsed(metadata[_COLUMNS])))
            except (KeyError, ValueError):
                raise SpoolFault(f"The file {path} does not tell its columns.") from None
        return tuple(found)

    # ------------------------------------------------------------------ verdicts

    def verdict_folder(self, table_id: str, name: str) -> str:
        """A place for Spark to write a new verdict to. An old one is gone for good."""
        folder = self._prepared(table_id) / f"{name}{_VERDICT}"
        if folder.exists():
            with _disk_faults():
                shutil.rmtree(folder)
                sync(folder.parent)
        return str(folder)

    def keep_verdict(self, loads: Sequence[Load], name: str) -> Verdict:
        """What Spark has written there; it outlives a power cut from now on."""
        folder = self.folder / loads[0].table_id / f"{name}{_VERDICT}"
        with _disk_faults():
            for path in folder.glob(f"*{_PARQUET}"):
                sync(path)
            with _whole(folder / _JUDGED) as unfinished:
                unfinished.write_text(json.dumps([load.id for load in loads]))
            sync(folder.parent)
        found = self.verdict(loads, name)
        if found is None:
            raise SpoolFault(f"The folder {folder} is not as it was written.")
        return found

    def verdict(self, loads: Sequence[Load], name: str) -> Verdict | None:
        """The verdict on exactly these loads, if there is one, and all of it can be read."""
        folder = self.folder / loads[0].table_id / f"{name}{_VERDICT}"
        try:
            with _readable(folder / _JUDGED):
                judged = json.loads((folder / _JUDGED).read_text())
            if judged != [load.id for load in loads]:
                return None
            found = Verdict(tuple(map(str, sorted(folder.glob(f"*{_PARQUET}")))))
            counts: dict[int, int] = {}
            for batch in found.batches():
                for one in batch.column(0).value_counts().to_pylist():
                    counts[one["values"]] = counts.get(one["values"], 0) + one["counts"]
        except (SpoolFault, ValueError):
            return None
        return Verdict(found.files, counts)

    def remove_prepared(self, table_id: str, name: str) -> None:
        """All that was made for a commit."""
        self.remove_parquet(table_id, name)
        shutil.rmtree(self.folder / table_id / f"{name}{_VERDICT}", ignore_errors=True)

    def remove_parquet(self, table_id: str, name: str) -> None:
        for path in (self.folder / table_id).glob(f"{name}-*{_PARQUET}*"):
            path.unlink(missing_ok=True)

    def rejects_for_spark(self, table_id: str, name: str, pieces: Iterable[pa.RecordBatch], schema: pa.Schema) -> str:
        """Rows for a table of rejects, in a Parquet file."""
        path = self._prepared(table_id) / f"{name}-rejects{_PARQUET}"
        with _disk_faults(), pq.ParquetWriter(path, schema) as writer:
            for piece in pieces:
                writer.write_batch(piece)
        return str(path)

    # ------------------------------------------------------------------ after a crash

    def records(self) -> Iterator[Load]:
        """The batches whose files are here, whatever the operations database knows. A file that cannot be read now is
        left for the next start."""
        for path in sorted(self.folder.glob(f"*/*{_ROWS}")):
            if path.name.endswith(_REJECTS) or not _ID.fullmatch(path.name.removesuffix(_ROWS)):
                continue
            try:
                with _readable(path), pa.OSFile(str(path)) as file:
                    metadata = pa.ipc.open_file(file).schema.metadata or {}
                load = Load.model_validate_json(metadata[_RECORD])
            except (SpoolFault, KeyError, ValidationError):
                continue
            except EnvironmentFault as fault:
                _log.warning("%s", fault.message)
                continue
            if load.id == path.name.removesuffix(_ROWS) and load.table_id == path.parent.name:
                yield load.model_copy(update={"bytes": path.stat().st_size})

    def tidy(self, waiting: Iterable[Load], kept: Iterable[tuple[str, str]]) -> None:
        """Remove rejects that belong to none of these loads, and what was made for commits but those with a table's id
        and a name in `kept`. Rows stay, whatever they are."""
        known = {load.id for load in waiting}
        names = {f"{table_id}/{name}" for table_id, name in kept}
        for path in self.folder.glob("*/*"):
            load_id, _, rest = path.name.partition(".")
            if path.name.endswith(_VERDICT):
                if f"{path.parent.name}/{path.name.removesuffix(_VERDICT)}" not in names:
                    shutil.rmtree(path, ignore_errors=True)
                continue
            if path.name.endswith(_PARQUET):
                unwanted = f"{path.parent.name}/{path.name.rpartition('-')[0]}" not in names
            elif f".{rest}" == _REJECTS:
                unwanted = load_id not in known and not (path.parent / f"{load_id}{_ROWS}").exists()
            else:
                unwanted = path.name.endswith(_UNFINISHED)
            if unwanted:
                path.unlink(missing_ok=True)
        for folder in self.folder.glob("*"):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()

    def remove_table(self, table_id: str) -> None:
        if _ID.fullmatch(table_id):
            shutil.rmtree(self.folder / table_id, ignore_errors=True)

    def _rejects_path(self, load: Load) -> Path:
        return self.folder / load.table_id / f"{load.id}{_REJECTS}"

    def _prepared(self, table_id: str) -> Path:
        if not _ID.fullmatch(table_id):
            raise SpoolFault(f"'{table_id[:64]}' cannot be the name of a folder.")
        folder = self.folder / table_id
        if not folder.is_dir():
            with _disk_faults():
                folder.mkdir(parents=True, exist_ok=True)
                for parent in (self.folder, self.folder.parent):
                    sync(parent)
        return folder


class RejectsWriter:
    def __init__(self) -> None:
        self.count = 0
        self.first: str | None = None
        """The first reason."""
        self._arrow: pa.ipc.RecordBatchFileWriter | None = None

    def open(self, arrow: pa.ipc.RecordBatchFileWriter) -> None:
        self._arrow = arrow

    def write(self, rejects: Sequence[Reject]) -> None:
        assert self._arrow is not None
        for start in range(0, len(rejects), _REJECTS_AT_ONCE):
            some = rejects[start : start + _REJECTS_AT_ONCE]
            columns = ([r.number for r in some], [r.row for r in some], [r.error for r in some])
            arrays = [pa.array(values, field.type) for values, field in zip(columns, REJECT_SCHEMA, strict=True)]
            self._arrow.write_batch(pa.RecordBatch.from_arrays(arrays, schema=REJECT_SCHEMA))
        if rejects and self.first is None:
            self.first = rejects[0].error
        self.count += len(rejects)


class ParquetWriter:
    """One file for each set of columns."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._open: dict[Spooled, tuple[pq.ParquetWriter, Path, pa.Schema]] = {}
        self.files: tuple[RowFile, ...] = ()

    def write(self, place: int, numbers: pa.ChunkedArray, rows: pa.Table, spooled: Spooled) -> None:
        """Also of no rows there is a file: a commit without any carries its number all the same."""
        writer, _, schema = self._writer(rows.schema, spooled)
        if not rows.num_rows:
            return
        structs = pa.chunked_array(
            [pa.StructArray.from_arrays(batch.columns, fields=list(rows.schema)) for batch in rows.to_batches()],
            schema.field("row").type,
        )
        places = pa.chunked_array([pa.repeat(pa.scalar(place, pa.int32()), rows.num_rows)])
        writer.write_table(pa.Table.from_arrays([places, numbers, structs], schema=schema))

    def _writer(self, columns: pa.Schema, spooled: Spooled) -> tuple[pq.ParquetWriter, Path, pa.Schema]:
        if spooled not in self._open:
            fields = [("load", pa.int32()), ("number", pa.int64()), ("row", pa.struct(list(columns)))]
            schema = pa.schema(fields, {_COLUMNS: spooled.text().encode()})
            path = self._folder / f"{self._name}-{len(self._open)}{_PARQUET}"
            self._open[spooled] = (pq.ParquetWriter(_unfinished(path), schema), path, schema)
        return self._open[spooled]

    def close(self) -> None:
        found = []
        for spooled, (writer, path, _) in self._open.items():
            writer.close()
            sync(_unfinished(path))
            _unfinished(path).rename(path)
            found.append(RowFile(str(path), spooled))
        if found:
            sync(self._folder)
        self.files = tuple(found)

    def abandon(self) -> None:
        for writer, path, _ in self._open.values():
            writer.close()
            _unfinished(path).unlink(missing_ok=True)


def _read(path: Path) -> pa.Table:
    # Not as a memory map: where the disk fails under one, the process dies. And first all of it: what fails after that
    # is its contents' fault.
    with _readable(path):
        content = path.read_bytes()
    try:
        table = pa.ipc.open_file(pa.BufferReader(content)).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from None
    return table


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Tells a file that is not as it was written (SpoolFault) from one that cannot be read at the moment: the system
    gives its errors a number, Arrow's own have none."""
    try:
        yield
    except FileNotFoundError:
        raise SpoolFault(f"The file {path} is gone.") from None
    except (OSError, MemoryError, pa.ArrowException) as error:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None):
            reason = _first_line(error)
            raise EnvironmentFault(
                f"The file {path} cannot be read now: {reason}", hint="It is tried again."
            ) from error
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> SpoolFault:
    return SpoolFault(f"The file {path} is damaged: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


@contextmanager
def _arrow_file(path: Path, schema: pa.Schema) -> Iterator[pa.ipc.RecordBatchFileWriter]:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        yield writer


def _unfinished(path: Path) -> Path:
    return path.with_name(f"{path.name}{_UNFINISHED}")


@contextmanager
def _whole(path: Path, keep: Callable[[], bool] | None = None) -> Iterator[Path]:
    """A file to write under another name; it gets its own once it is on the disk. `keep` may say that nobody needs
    it."""
    unfinished = _unfinished(path)
    try:
        yield unfinished
        if keep is not None and not keep():
            unfinished.unlink()
            return
        sync(unfinished)
        unfinished.rename(path)
        sync(path.parent)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


@contextmanager
def _disk_faults() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise EnvironmentFault(
            f"The rows could not be written to disk: {reason}.", hint="Free some disk space, then send them again."
        ) from error
