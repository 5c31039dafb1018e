"""What a table takes: its columns and constraints, as its log says now or said at an earlier version."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from headrace.errors import EnvironmentFault, NotFound, Unsupported
from headrace.loading.types import Column, columns_of
from headrace.storage.delta import DeltaLogs

_CONSTRAINT = "delta.constraints."


@dataclass(frozen=True)
class Shape:
    """One version of a table, as far as new rows must fit it."""

    path: str
    table_id: str
    version: int
    columns: tuple[Column, ...]
    constraints: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Conditions that every row must meet, in SQL, by name."""

    @cached_property
    def by_name(self) -> dict[str, Column]:
        """In lower case: SQL does not tell `Id` from `id`."""
        return {column.name.lower(): column for column in self.columns}


def identity_columns(shape: Shape) -> frozenset[str]:
    """Columns that Delta numbers itself, unless a row brings a number."""
    return frozenset(c.name for c in shape.columns if c.role == "default" and c.expression is None)


def has_conditions(shape: Shape) -> bool:
    """Whether only Spark can say if a row fits."""
    return bool(shape.constraints) or any(c.role == "computed" and c.expression is not None for c in shape.columns)


class Shapes:
    """Looks at logs; what it found is kept until the table has another version."""

    def __init__(self, logs: DeltaLogs) -> None:
        self._logs = logs
        self._lock = threading.Lock()
        self._newest: dict[str, Shape] = {}

    def now(self, path: str) -> Shape:
        """The newest version. Raises NotFound when there is no Delta table."""
        try:
            snapshot = self._logs.snapshot(path)
            kept = self._newest.get(path)
            if kept is not None and (kept.table_id, kept.version) == (snapshot.table_id, snapshot.version):
                return kept
            found = self._read(path, snapshot.table_id, snapshot.version, snapshot.properties)
        except DeltaError as error:
            raise _unreadable(path, error) from error
        except OSError as error:
            raise EnvironmentFault(
                f"The log of the table at {path} cannot be read: {error}.", hint="Look at the disk, then try again."
            ) from error
        with self._lock:
            self._newest[path] = found
        return found

    def at(self, path: str, version: int) -> Shape:
        """An earlier version. Raises NotFound when the log no longer tells about it."""
        try:
            snapshot = self._logs.snapshot_at(path, version)
            return self._read(path, snapshot.table_id, version, snapshot.properties)
        except (DeltaError, OSError) as error:
            raise NotFound(
                f"Version {version} of the table at {path} cannot be read any more.",
                hint="Its log or files were cleaned up since. A newer version can be read.",
            ) from error

    def _read(self, path: str, table_id: str, version: int, properties: Mapping[str, str]) -> Shape:
        schema = DeltaTable(path, version=version).schema().to_json()
        constraints = {
            key.removeprefix(_CONSTRAINT): text
            for key, text in sorted(properties.items())
            if key.startswith(_CONSTRAINT)
        }
        return Shape(path, table_id, version, columns_of(schema), constraints)


def _unreadable(path: str, error: Exception) -> Unsupported:
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return Unsupported(f"The table at {path} cannot be loaded: {first[:300]}", hint="Write it with INSERT INTO.")
