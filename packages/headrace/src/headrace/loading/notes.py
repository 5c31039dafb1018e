"""What a commit of ours says about itself, in its user metadata: the log alone tells which loads are in the table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from headrace.catalog.loads import LoadKind
from headrace.storage.delta import Commit, DeltaLogs

_MARK = "headrace_loads"
_STEPS = (50, 1000, None)


@dataclass(frozen=True)
class Note:
    kind: LoadKind
    sequence: int
    based_on: int
    """The table's version whose columns and constraints the rows were held against."""
    loads: tuple[str, ...]
    """Their ids."""
    keys: tuple[str, ...] = ()
    """Of files: each with its size and time."""

    def text(self) -> str:
        found = {"kind": self.kind, "sequence": self.sequence, "based_on": self.based_on, "loads": self.loads}
        return json.dumps({_MARK: found | ({"keys": self.keys} if self.keys else {})}, separators=(",", ":"))


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
        return Note(
            "FILE" if found["kind"] == "FILE" else "BATCH",
            int(found["sequence"]),
            int(found["based_on"]),
            tuple(map(str, found["loads"])),
            tuple(map(str, found.get("keys", ()))),
        )
    except (ValueError, KeyError, TypeError):
        return None


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
        found |= dict.fromkeys(note.loads, (commit.version, note.sequence))
    return found
