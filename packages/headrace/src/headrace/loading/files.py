"""Files to load: which they are, and their rows, piece by piece."""

from __future__ import annotations

import codecs
import fnmatch
import glob
import hashlib
import io
import os
import re
import stat
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq

from headrace import running
from headrace.catalog.records import Load
from headrace.errors import BadSetting, Bug, Dangerous, NotFound, Unsupported, UserError
from headrace.loading.arrow_rows import Fitter
from headrace.loading.checked import BadBatch, Checked, shown
from headrace.loading.csv_rows import CsvOptions, CsvRows, csv_options, fields_of, with_line_feeds
from headrace.loading.json_rows import Lines
from headrace.loading.shapes import Shape
from headrace.storage.paths import local_path

FileFormat = Literal["CSV", "JSON", "PARQUET"]

_BLOCK = 8 * 1024**2
_LONGEST_LINE = 64 * 1024**2
_BATCH_ROWS = 65_536
_MOST_FILES = 10_000
_MOST_PATHS = 10 * _MOST_FILES
"""Also folders and the like may fit a pattern."""
_MOST_LOOKED = 1_000_000
"""Names that are looked at for one pattern, whether they fit it or not."""
_BOM = b"\xef\xbb\xbf"
_BREAKS = b"\r\n"
_HIDDEN = (".", "_")
_FORMATS: dict[str, FileFormat] = {
    ".csv": "CSV", ".json": "JSON", ".jsonl": "JSON", ".ndjson": "JSON", ".parquet": "PARQUET",
}  # fmt: skip
_PACKED = (".gz", ".bz2", ".zst", ".lz4")


# ---------------------------------------------------------------------- which files


@dataclass(frozen=True)
class SourceFile:
    """A file as it was when it was looked at. With the same size and time it is the same file; with others, its
    contents tell."""

    path: str
    size: int
    modified: int
    """In nanoseconds."""

    @property
    def key(self) -> str:
        return self.key_again("-")

    def key_again(self, mark: str) -> str:
        """Another key for the same file, which is loaded once more."""
        return f"{self.size} {self.modified} {mark} {self.path}"

    def is_as(self, load: Load) -> bool:
        """Whether nobody has touched the file since this load of its path."""
        return load.key.startswith(f"{self.size} {self.modified} ")

    def may_be(self, load: Load) -> bool:
        """Whether it could still hold the same as at this load of its path."""
        return load.digest is not None and load.key.startswith(f"{self.size} ")

    def digest(self) -> str:
        """Of its contents, whatever they are."""
        found = hashlib.blake2b(digest_size=16)
        with _told(self), open(self.path, "rb", buffering=0) as opened:
            while piece := opened.read(_BLOCK):
                running.require_wanted()
                found.update(piece)
        return found.hexdigest()


def listed(files: str, base: Path, roots: Sequence[Path] | None) -> list[SourceFile]:
    """The files that a path, a folder or a pattern stands for, by name. With `roots`, all must be inside one of them:
    also where a link leads."""
    if "\0" in files or not files.strip():
        raise UserError(f"{shown(files)} is no path.", hint="Write a file, a folder or a pattern such as 'in/*.csv'.")
    if "://" in files and not files.startswith("file:"):
        raise Unsupported(
            f"{shown(files)} is not on this machine.", hint="COPY INTO reads local files; SELECT … FROM reads others."
        )
    wanted = os.path.join(os.getcwd(), base, local_path(files))
    if roots is not None:
        if ".." in Path(wanted).parts:
            raise _outside(files, roots)
        _require_inside(_fixed_part(wanted), files, roots)
    paths = list(islice(_paths(wanted, files, roots), _MOST_PATHS + 1))
    found = (source for path in sorted(paths) if (source := _source(path, files, roots)) is not None)
    sources = list(islice(found, _MOST_FILES + 1))
    if len(sources) > _MOST_FILES or len(paths) > _MOST_PATHS:
        raise UserError(
            f"More than {_MOST_FILES:,} files fit {shown(files)}; COPY INTO takes no more at once.", hint="Name fewer."
        )
    if not sources:
        raise NotFound(f"There is no file {shown(files)}.", hint=f"A path counts from {base}.")
    return list({source.path: source for source in sources}.values())


def format_of(files: Sequence[SourceFile]) -> FileFormat:
    """What the names of the files say that all of them are. Raises UserError when they do not say one thing."""
    hint = "Write FILE_FORMAT = CSV, JSON or PARQUET, or name the files more exactly."
    first: tuple[str, FileFormat] | None = None
    for file in files:
        found = _named_format(file.path)
        if found is None:
            raise UserError(f"{file.path} does not tell its format by its name.", hint=hint)
        first = first or (file.path, found)
        if found != first[1]:
            raise UserError(f"{first[0]} is {first[1]} and {file.path} is {found}, as their names say.", hint=hint)
    if first is None:
        raise Bug("There are no files to tell a format by.")
    return first[1]


def _named_format(path: str) -> FileFormat | None:
    stem, last = os.path.splitext(path.lower())
    if last not in _PACKED:
        return _FORMATS.get(last)
    found = _FORMATS.get(os.path.splitext(stem)[1])
    return None if found == "PARQUET" else found  # Only texts are unpacked: Parquet files are compressed within.


def _paths(wanted: str, files: str, roots: Sequence[Path] | None) -> Iterator[str]:
    """What there is, files or not, in no order."""
    if glob.has_magic(wanted):
        yield from _fitting(wanted, files, roots)
    elif os.path.isdir(wanted):
        with os.scandir(wanted) as entries:
            yield from (entry.path for entry in entries if not entry.name.startswith(_HIDDEN))
    else:
        yield wanted


def _fitting(wanted: str, files: str, roots: Sequence[Path] | None) -> Iterator[str]:
    """What fits a pattern, as `glob` means it. A folder is looked into once, wherever links lead, and with `roots`
    only when it is inside of them: nobody learns here whether something fits elsewhere."""
    parts = Path(wanted).parts
    steps: list[tuple[str, tuple[str, ...]]] = [(parts[0], parts[1:])]
    seen: set[tuple[str, int]] = set()
    left = _MOST_LOOKED
    while steps:
        folder, (part, *rest) = steps.pop()
        after = tuple(rest)
        if not glob.has_magic(part):
            path = os.path.join(folder, part)
            if after:
                steps.append((path, after))
            else:
                yield path
            continue
        real = os.path.realpath(folder)
        if roots is not None:
            _require_inside(real, files, roots)
        if (real, len(after)) in seen:
            continue
        seen.add((real, len(after)))
        running.require_wanted()
        anywhere = part == "**"
        if anywhere and after:
            steps.append((folder, after))
        fits = re.compile(fnmatch.translate("*" if anywhere else part)).match
        for entry in _entries(folder):
            left -= 1
            if left < 0:
                raise UserError(
                    f"More than {_MOST_LOOKED:,} files and folders are where {shown(files)} could lead; COPY INTO "
                    "looks at no more.",
                    hint="Name the folder more exactly.",
                )
            if not fits(entry.name) or (entry.name.startswith(".") and not part.startswith(".")):
                continue
            if anywhere and _is_folder(entry):
                steps.append((entry.path, (part, *after)))
            elif not after:
                yield entry.path
            elif not anywhere:
                steps.append((entry.path, after))


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """What is in a folder; nothing where it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        return


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _source(path: str, files: str, roots: Sequence[Path] | None) -> SourceFile | None:
    """None for what is no file with contents of its own. `files` is what the statement says."""
    real = os.path.realpath(path)
    if roots is not None:
        _require_inside(real, files, roots)
    try:
        path.encode("utf-8")
        about = os.stat(real)
    except UnicodeEncodeError:
        raise UserError(f"The name of {shown(path)} is no UTF-8.", hint="Rename the file.") from None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(
            f"{shown(path)} cannot be looked at: {error.strerror or error}.",
            hint="Look at its permissions, and those of its folder.",
        ) from None
    return SourceFile(real, about.st_size, about.st_mtime_ns) if stat.S_ISREG(about.st_mode) else None


def _fixed_part(pattern: str) -> str:
    """The folder below which everything lies that a pattern can find."""
    parts = Path(pattern).parts
    plain = next((place for place, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    return os.path.realpath(os.path.join(*parts[:plain]))


def _require_inside(real: str, files: str, roots: Sequence[Path]) -> None:
    """The error names what the statement says, not what was found: nobody learns here what there is elsewhere."""
    allowed = [Path(os.path.realpath(root)) for root in roots]
    if not any(root == Path(real) or root in Path(real).parents for root in allowed):
        raise _outside(files, roots)


def _outside(files: str, roots: Sequence[Path]) -> Dangerous:
    return Dangerous(
        f"{shown(files)} leads outside the folders that files are loaded from: a server refuses that.",
        hint=f"Put the files into {roots[0]}, or have their folder added to the setting copy_folders.",
    )


# ---------------------------------------------------------------------- their rows


@dataclass(frozen=True)
class FileReader:
    """How the rows of files are read; made once for a statement."""

    file_format: FileFormat
    csv: CsvOptions = field(default_factory=CsvOptions)
    encoding: str = "utf-8"

    @classmethod
    def with_options(cls, file_format: FileFormat, options: Mapping[str, str]) -> FileReader:
        """Raises BadSetting."""
        names = [name.lower() for name in options]
        if len(set(names)) < len(names):
            raise BadSetting("An option is given twice, in another case.", hint="Keep one.")
        encoding = "utf-8"
        given: dict[str, str] = {}
        for name, value in options.items():
            if name.lower() in ("encoding", "charset") and file_format != "PARQUET":
                encoding = _known_encoding(value)
            elif (file_format, name.lower(), value.lower()) != ("JSON", "multiline", "false"):
                given[name] = value
        if file_format == "CSV":
            return cls(file_format, csv_options(given), encoding)
        if given:
            hint = "JSON has one object a line." if file_format == "JSON" else "Parquet files need none."
            raise BadSetting(f"The option {shown(next(iter(given)))} cannot be used for {file_format}.", hint=hint)
        return cls(file_format, encoding=encoding)

    def rows(self, file: SourceFile, shape: Shape, zone: ZoneInfo) -> Iterator[Checked]:
        """The rows of a file, checked. Raises BadBatch when its form or its columns do not fit."""
        readers: dict[FileFormat, Callable[[SourceFile, Shape, ZoneInfo], Iterator[Checked]]] = {
            "JSON": self._json, "CSV": self._csv, "PARQUET": self._parquet,
        }  # fmt: skip
        with _told(file):
            yield from readers[self.file_format](file, shape, zone)
            about = os.stat(file.path)
            if (about.st_size, about.st_mtime_ns) != (file.size, file.modified):
                raise BadBatch("It was changed while it was read.", hint="Load it again when it is complete.")

    def _json(self, file: SourceFile, shape: Shape, zone: ZoneInfo) -> Iterator[Checked]:
        lines = Lines(shape, zone)
        number = 1
        for block in self._blocks(file):
            yield lines.check(block, number)
            number += block.count(b"\n") + 1

    def _csv(self, file: SourceFile, shape: Shape, zone: ZoneInfo) -> Iterator[Checked]:
        with closing(self._blocks(file)) as blocks:
            head = next(blocks, b"")
        names, begins_blank = fields_of(head, shape, self.csv), head != head.lstrip(_BREAKS)
        if names is None:
            return
        rows = CsvRows(names, shape, zone, self.csv)
        skip = 1 if self.csv.header else 0
        if self.csv.multi_line:
            with _opened(file) as opened:
                source = self._transcoded(opened)
                yield from rows.stream(pa.PythonFile(_FromFirstLine(source), "r") if begins_blank else source, skip)
            return
        number = 1
        for place, block in enumerate(self._blocks(file)):
            if skip and place == 0:
                _, _, block = block.lstrip(_BREAKS).partition(b"\n")
                if not block:
                    continue
            yield rows.check(block, number)
            number += block.count(b"\n") + 1

    def _parquet(self, file: SourceFile, shape: Shape, zone: ZoneInfo) -> Iterator[Checked]:
        with pq.ParquetFile(file.path, coerce_int96_timestamp_unit="us") as source:
            instants = _int96(source)
            fitter = Fitter(_with_instants(source.schema_arrow, instants), shape, zone)
            number = 1
            for batch in source.iter_batches(batch_size=_BATCH_ROWS):
                rows = pa.Table.from_batches([batch])
                rows = rows.cast(_with_instants(rows.schema, instants)) if instants else rows
                rows.validate(full=True)
                yield fitter.check(rows, number)
                number += rows.num_rows

    def _transcoded(self, source: pa.NativeFile) -> pa.NativeFile:
        return source if self.encoding == "utf-8" else pa.transcoding_input_stream(source, self.encoding, "utf8")

    def _blocks(self, file: SourceFile) -> Generator[bytes, None, None]:
        """Whole lines, without the last line break."""
        with _opened(file) as opened:
            source = self._transcoded(opened)
            rest, first = b"", True
            while piece := source.read(_BLOCK):
                piece = bytes(piece)
                if first:
                    piece, first = piece.removeprefix(_BOM), False
                end = piece.rfind(b"\n")
                if end < 0:
                    rest = self._lines(rest + piece)
                    end = rest.rfind(b"\n")
                    if end >= 0:
                        yield rest[:end]
                        rest = rest[end + 1 :]
                    elif len(rest) > _LONGEST_LINE:
                        raise BadBatch(f"It has a line of more than {_LONGEST_LINE // 1024**2} MiB.")
                    continue
                yield self._lines(rest + piece[:end])
                rest = piece[end + 1 :]
            if rest:
                yield self._lines(rest)

    def _lines(self, block: bytes) -> bytes:
        return with_line_feeds(block, self.csv) if self.file_format == "CSV" else block


def _known_encoding(name: str) -> str:
    try:
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        raise BadSetting(f"{shown(name)} is no encoding.", hint="Such as utf-8 or iso-8859-1.") from None


def _int96(source: pq.ParquetFile) -> frozenset[str]:
    """Columns of Parquet's old timestamps: they have no zone in the file, and mean UTC."""
    columns = (source.schema.column(place) for place in range(len(source.schema)))
    return frozenset(column.path for column in columns if column.physical_type == "INT96")


def _with_instants(schema: pa.Schema, instants: frozenset[str]) -> pa.Schema:
    return pa.schema(
        [field.with_type(pa.timestamp("us", tz="UTC")) if field.name in instants else field for field in schema]
    )


@contextmanager
def _opened(file: SourceFile) -> Iterator[pa.NativeFile]:
    """The file's contents; what its name says is compressed, unpacked."""
    with pa.input_stream(file.path, compression="detect") as source:
        yield source


class _FromFirstLine(io.RawIOBase):
    """A file without the empty lines that it begins with: a reader that skips the names would skip one of these."""

    def __init__(self, source: pa.NativeFile) -> None:
        self._source = source
        self._at_start = True

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        piece = bytes(self._source.read(size if size >= 0 else None))
        while self._at_start and piece:
            if piece := piece.lstrip(_BREAKS):
                self._at_start = False
            else:
                piece = bytes(self._source.read(size if size >= 0 else None))
        return piece


@contextmanager
def _told(file: SourceFile) -> Iterator[None]:
    """Errors that name the file."""
    try:
        yield
    except BadBatch as error:
        raise BadBatch(f"{file.path}: {error.message}", hint=error.hint) from None
    except UnicodeError as error:
        raise BadBatch(
            f"{file.path}: it is not in the encoding that was given: {getattr(error, 'reason', error)}."
        ) from None
    except (pa.ArrowException, OSError, EOFError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        raise BadBatch(f"{file.path}: it cannot be read: {reason}.") from None
