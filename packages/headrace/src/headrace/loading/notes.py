"""What a commit of ours says about itself, in its user metadata: the log alone tells which loads are in the table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headrace.catalog.loads import LoadKind
from headrace.storage.commits import Commit
from headrace.storage.delta import DeltaLogs

_MARK = "headrace_loads"
_STEPS = (50, 1000, None)


@dataclass(frozen=True)
class Held:
    """A load that a commit holds. Earlier versions wrote less of it down."""

    id: str
    key: str | None = None
    """The client's batch id, or the file with its size and time."""
    digest: str | None = None
    rows: int = 0
    rejected: int = 0

    def written(self) -> Any:
        return self.id if self.key is None else (self.id, self.key, self.digest, self.rows, self.rejected)


@dataclass(frozen=True)
class Note:
    kind: LoadKind
    sequence: int
    based_on: int
    """The table's version whose columns and constraints the rows were held against."""
    held: tuple[Held, ...]

    def text(self) -> str:
        found = {"kind": self.kind, "sequence": self.sequence, "based_on": self.based_on}
        loads = [each.written() for each in self.held]
        return json.dumps({_MARK: {**found, "loads": loads}}, separators=(",", ":"))


def app_id(kind: LoadKind, table_id: str) -> str:
    """Under which commits of loads are numbered. Batches and files are numbered apart: neither waits for the other."""
    return f"headrace-{'loads' if kind == 'BATCH' else 'copies'}-{table_id}"


def note_of(commit: Commit) -> Note | None:
    """The note in a commit; None for a commit of somebody else."""
    text = commit.user_metadata or ""
    if _MARK not in text:
        return None
    try:
        found = json.loads(text)[_MARK]
        loads, keys = found["loads"], found.get("keys", ())
        kind: LoadKind = "FILE" if found["kind"] == "FILE" else "BATCH"
        held = tuple(_held(load, keys[place] if keys else None) for place, load in enumerate(loads))
        return Note(kind, int(found["sequence"]), int(found["based_on"]), held)
    except (ValueError, KeyError, TypeError, IndexError):
        return None


def _held(written: Any, key: str | None) -> Held:
    """`key` is what an earlier version wrote apart."""
    if isinstance(written, str):
        return Held(written, key)
    load_id, own, digest, rows, rejected = written
    return Held(str(load_id), str(own), None if digest is None else str(digest), int(rows), int(rejected))


def noted(logs: DeltaLogs, path: str, kind: LoadKind) -> Iterator[tuple[Commit, Note]]:
    """All commits of ours that the log still has, newest first. Few are looked at unless more are asked for."""
    seen = 0
    for limit in _STEPS:
        commits = logs.history(path, limit)
        for commit in commits[seen:]:
            note = note_of(commit)
            if note is not None and note.kind == kind:
                yield commit, note
        if limit is None or len(commits) < limit:
            return
        seen = len(commits)


def find_sequence(logs: DeltaLogs, path: str, kind: LoadKind, sequence: int) -> tuple[int, Note] | None:
    """The version that holds the loads of this number, with its note."""
    for commit, note in noted(logs, path, kind):
        if note.sequence == sequence:
            return commit.version, note
        if note.sequence < sequence:
            break
    return None


def loads_since(logs: DeltaLogs, path: str, since: datetime) -> dict[str, tuple[int, int]]:
    """The ids of batches that commits since then hold, each with its version and number."""
    found: dict[str, tuple[int, int]] = {}
    earliest = int(since.timestamp() * 1000) - 60_000
    for commit, note in noted(logs, path, "BATCH"):
        if commit.timestamp < earliest:
            break
        found |= {held.id: (commit.version, note.sequence) for held in note.held}
    return found
