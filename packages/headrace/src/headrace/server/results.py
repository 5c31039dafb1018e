"""Results on disk: a finished statement's rows stay there, not in memory, until nobody asked for them for a while.

One Arrow file a result. Its batches are small, so that a page of rows or a piece of a stream reads little.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa

from headrace.errors import EnvironmentFault, NotFound
from headrace.result import Result
from headrace.server.models import ColumnInfo
from headrace.server.problems import sound
from headrace.server.values import plain, type_name

FOLDER = "results"
_DISCARDED = "results.discarded"
ZONE_KEY = b"headrace.timezone"
"""In the Arrow schema's metadata: the zone in which a person is to see timestamps."""
_BATCH_ROWS = 4096
_BATCH_BYTES = 2 * 1024**2
_PAGE_BYTES = 8 * 1024**2
_STEP_ROWS = 256


@dataclass(frozen=True)
class Kept:
    """A result on disk."""

    path: Path
    columns: tuple[ColumnInfo, ...]
    row_count: int
    truncated: bool
    size: int
    starts: tuple[int, ...]
    """The first row of each batch."""


class ResultFiles:
    """The folder of results. Which of them are still wanted is for the caller to say."""

    def __init__(self, lake: Path, *, zone: str, rows_max: int, bytes_max: int) -> None:
        self._folder = lake / FOLDER
        self._discarded = lake / _DISCARDED
        self._zone = ZoneInfo(zone)
        self._zone_name = zone
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._numbers = 0
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """An empty folder that only this user can look into: results of an earlier run belong to nobody."""
        try:
            _remove(self._folder)
            _remove(self._discarded)
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.chmod(0o700)
        except OSError as error:
            raise EnvironmentFault(
                f"The folder for results cannot be made: {error}.", hint=f"Check {self._folder} and its folder."
            ) from error

    def discard(self) -> None:
        """Delete all results, for good. A statement that ends meanwhile finds no folder for its result: that is why
        the folder is renamed first."""
        try:
            _remove(self._discarded)
            self._folder.rename(self._discarded)
            _remove(self._discarded)
        except FileNotFoundError:
            pass  # There never was one.
        except OSError as error:
            raise EnvironmentFault(
                f"The results cannot be deleted: {error}.", hint=f"Delete {self._folder} yourself."
            ) from error

    def write(self, result: Result) -> Kept:
        """Put the rows on disk, at most as many as the settings allow."""
        table = result.to_arrow()
        wanted = table.slice(0, min(self._rows_max, table.num_rows))
        schema = wanted.schema.with_metadata({**(wanted.schema.metadata or {}), ZONE_KEY: self._zone_name.encode()})
        path = self._new_path()
        starts: list[int] = []
        rows = 0
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                with pa.ipc.new_file(file, schema) as writer:
                    for batch in wanted.to_batches(max_chunksize=_batch_rows(wanted)):
                        if file.tell() + batch.nbytes > self._bytes_max and starts:
                            break
                        writer.write_batch(batch)
                        starts.append(rows)
                        rows += batch.num_rows
                size = file.tell()
        except BaseException as error:
            path.unlink(missing_ok=True)
            if not isinstance(error, OSError):
                raise
            raise EnvironmentFault(
                f"The statement succeeded, but its result could not be written to disk: {error.strerror or error}.",
                hint=f"Free some space where {self._folder} is.",
            ) from error
        columns = tuple(ColumnInfo(name=sound(field.name), type=sound(type_name(field.type))) for field in schema)
        return Kept(path, columns, rows, result.truncated or rows < table.num_rows, size, tuple(starts))

    def page(self, kept: Kept, offset: int, limit: int) -> bytes:
        """Rows as the JSON text of a `Rows`. A page of very long rows has fewer of them than `limit`."""
        rows: list[str] = []
        size = 0
        for batch in self._batches(kept, offset):
            for start in range(0, batch.num_rows, _STEP_ROWS):
                part = batch.slice(start, min(_STEP_ROWS, limit - len(rows)))
                columns = [plain(column, self._zone) for column in part.columns]
                lists = zip(*columns, strict=True) if columns else iter([()] * part.num_rows)
                for values in lists:
                    rows.append(json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
                    size += len(rows[-1])
                    if len(rows) == limit or size >= _PAGE_BYTES:
                        return _page(kept, rows, offset)
        return _page(kept, rows, offset)

    def stream(self, kept: Kept) -> Iterator[bytes]:
        """The whole result as an Arrow IPC stream, batch by batch. The file may be deleted meanwhile."""
        source = _opened(kept)
        return _stream(source)

    def column(self, kept: Kept, name: str) -> list[object]:
        """All values of one column; none when there is no such column."""
        reader = _opened(kept)
        if name not in reader.schema.names:
            return []
        return [value for batch in self._batches(kept, 0) for value in batch.column(name).to_pylist()]

    def drop(self, kept: Kept) -> None:
        kept.path.unlink(missing_ok=True)

    def _new_path(self) -> Path:
        with self._lock:
            self._numbers += 1
            return self._folder / f"{self._numbers}.arrow"

    def _batches(self, kept: Kept, offset: int) -> Iterator[pa.RecordBatch]:
        """What lies at and after `offset`."""
        if offset >= kept.row_count:
            return
        reader = _opened(kept)
        first = bisect_right(kept.starts, offset) - 1
        yield reader.get_batch(first).slice(offset - kept.starts[first])
        for number in range(first + 1, reader.num_record_batches):
            yield reader.get_batch(number)


def _remove(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def gone(job_id: str) -> NotFound:
    return NotFound(
        f"The result of job {job_id} is no longer kept.",
        hint="A result is kept for ten minutes after it was last asked for. Run the statement again.",
    )


def _batch_rows(table: pa.Table) -> int:
    """So many that a batch stays near 2 MiB."""
    if not table.num_rows:
        return _BATCH_ROWS
    a_row = max(1.0, table.nbytes / table.num_rows)
    return max(1, min(_BATCH_ROWS, int(_BATCH_BYTES / a_row)))


def _opened(kept: Kept) -> pa.RecordBatchFileReader:
    try:
        return pa.ipc.open_file(pa.memory_map(str(kept.path), "r"))
    except FileNotFoundError:
        raise NotFound(
            "This result is no longer kept.",
            hint="Results are kept for ten minutes, and fewer when they need much room. Run the statement again.",
        ) from None


def _page(kept: Kept, rows: list[str], offset: int) -> bytes:
    after = offset + len(rows)
    following = str(after) if after < kept.row_count else "null"
    columns = json.dumps([column.model_dump() for column in kept.columns], ensure_ascii=False)
    text = f'{{"columns":{columns},"rows":[{",".join(rows)}],"next_offset":{following}}}'
    return sound(text).encode("utf-8")


def _stream(reader: pa.RecordBatchFileReader) -> Iterator[bytes]:
    pieces = _Pieces()
    with pa.ipc.new_stream(pa.PythonFile(pieces, mode="w"), reader.schema) as writer:
        for number in range(reader.num_record_batches):
            writer.write_batch(reader.get_batch(number))
            yield pieces.taken()
    yield pieces.taken()


class _Pieces:
    """A file to write to, whose contents are taken away piece by piece."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._position = 0

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        """There is nothing behind it."""

    def close(self) -> None:
        self.closed = True

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def taken(self) -> bytes:
        data, self._parts = b"".join(self._parts), []
        return data
