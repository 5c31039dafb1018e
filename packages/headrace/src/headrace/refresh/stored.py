"""What a dynamic table's own log says about its contents: sequence, frontier, and whether they can be trusted."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from pydantic import ValidationError

from headrace.catalog.records import DynamicTable, Frontier
from headrace.plan.query import Query
from headrace.storage.commits import Commit
from headrace.storage.delta import DeltaLogs

# Commits that others may make without touching the rows.
_HARMLESS = ("OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "UPGRADE PROTOCOL", "REORG", "CREATE TABLE")


@dataclass(frozen=True)
class CommitNote:
    """What each of our commits carries as `userMetadata`."""

    sequence: int
    frontier: Frontier
    rows_inserted: int | None
    rows_deleted: int | None
    live_rows: int | None
    """None for a full load: the commit's own metrics tell then."""
    visible_rows: int | None
    """Live rows without the groups that HAVING hides."""
    tombstones: int
    appends_since_fold: int
    job_id: str
    mode: str
    technique: str
    reason: str | None
    generation: int
    fold: bool = False

    def text(self) -> str:
        body = {**self.__dict__, "frontier": self.frontier.model_dump(mode="json")}
        return json.dumps({"headrace": body}, separators=(",", ":"))


def read_note(text: str | None) -> CommitNote | None:
    """The note of one of our commits; None for anybody else's."""
    if not text or '"headrace"' not in text:
        return None
    try:
        body = json.loads(text)["headrace"]
        return CommitNote(**{**body, "frontier": Frontier.model_validate(body["frontier"])})
    except (ValueError, TypeError, KeyError, ValidationError):
        return None


def readable(logs: DeltaLogs, path: str, version: int, *, is_dynamic: bool) -> int:
    """The newest version of a source with the same rows: VACUUM may have removed the files of the older ones. A fold
    of a dynamic table changes none."""
    return logs.readable(path, version, as_source if is_dynamic else None)


def readable_versions(logs: DeltaLogs, query: Query, frontier: Frontier) -> dict[str, int]:
    """Where the rows of each source of a frontier are read, by its path."""
    dynamic = {source.path for source in query.sources if source.kind == "dynamic"}
    return {
        each.path: readable(logs, each.path, each.version, is_dynamic=each.path in dynamic) for each in frontier.sources
    }


@dataclass(frozen=True)
class Stored:
    """The present contents. `note` is None when nothing was loaded yet, or when `distrust` says why it cannot be
    known what the contents were computed from."""

    version: int
    sequence: int
    note: CommitNote | None
    distrust: str | None


def app_id(table: DynamicTable) -> str:
    return f"headrace-{table.id}"


def read_stored(logs: DeltaLogs, table: DynamicTable) -> Stored:
    """Reads the newest commits of the storage table until one of ours is found."""
    path = table.storage_path
    version = logs.snapshot(path).version
    sequence = logs.sequence(path, app_id(table)) or 0
    commits = logs.recent(path)
    if not any(read_note(commit.user_metadata) for commit in commits):
        commits = logs.history(path)
    foreign: str | None = None
    for commit in commits:
        note = read_note(commit.user_metadata)
        if note is not None and foreign is None:
            if note.sequence != sequence:
                return Stored(version, sequence, None, f"its sequence {sequence} and its last commit do not agree")
            if note.live_rows is None:
                note = replace(
                    note,
                    live_rows=commit.rows_written,
                    visible_rows=commit.rows_written if note.visible_rows is None else note.visible_rows,
                    rows_inserted=commit.rows_written if note.visible_rows is None else note.visible_rows,
                )
            return Stored(version, sequence, note, None)
        if note is not None:
            return Stored(version, sequence, None, foreign)
        if commit.operation not in _HARMLESS and foreign is None:
            what = (
                "it was restored to an earlier version"
                if commit.operation == "RESTORE"
                else (f"somebody else changed its storage ({commit.operation}, version {commit.version})")
            )
            foreign = what
    if sequence == 0 and foreign is None:
        return Stored(version, 0, None, None)
    return Stored(version, sequence, None, foreign or "the commit that says what it was computed from is gone")


def as_source(commit: Commit) -> Commit:
    """A commit of a dynamic table's storage as those downstream see it: folding is nothing, tombstones are removals."""
    note = read_note(commit.user_metadata)
    if note is None:
        return commit
    if note.fold:
        return replace(commit, changes="none")
    if note.mode == "FULL":
        # Only the first load has nothing before it: later ones take out old rows and tombstones, also invisible ones.
        return replace(commit, changes="append" if note.sequence == 1 else "mixed", rows=None)
    rows = (note.rows_inserted or 0) + (note.rows_deleted or 0)
    if rows == 0:
        return replace(commit, changes="none", rows=0)
    return replace(commit, changes="mixed" if note.rows_deleted else "append", rows=rows)
