"""Where a Delta table's files lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote


def local_path(path: str) -> str:
    """A plain file-system path out of what Spark's catalog gives (`file:/x`, `file:///x`)."""
    if path.startswith("file:"):
        rest = path[5:]
        return "/" + rest.lstrip("/")
    return path


def file_path(path: str, action: dict[str, Any]) -> str:
    name = unquote(str(action["path"]))
    return local_path(name) if "://" in name or name.startswith(("file:", "/")) else str(Path(path) / name)


def commit_file(path: str, version: int) -> Path:
    return Path(path) / "_delta_log" / f"{version:020d}.json"


def commit_mark(path: str, version: int) -> tuple[int, int, int] | None:
    """Identity of a version's commit file. A table dropped and created again has another one, whatever its version."""
    if "://" in path:
        return None
    try:
        status = commit_file(path, version).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size
