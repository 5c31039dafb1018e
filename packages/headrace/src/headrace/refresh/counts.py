"""Counting what a refresh appends, for the note of its commit, and checking that it is all there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.ivm.layout import VISIBLE, WEIGHT
from headrace.ivm.stages import Uncertain
from headrace.refresh.compute import Computed
from headrace.refresh.stored import CommitNote


@dataclass(frozen=True)
class Counts:
    """Storage rows to append: all of them, and those that the public can see."""

    added: int
    removed: int
    visible_added: int
    visible_removed: int

    @staticmethod
    def of_arrow(rows: pa.Table) -> Counts:
        weights = rows.column(WEIGHT).to_pylist()
        seen = rows.column(VISIBLE).to_pylist() if VISIBLE in rows.column_names else [True] * len(weights)
        return Counts(
            sum(1 for w in weights if w > 0),
            sum(1 for w in weights if w < 0),
            sum(1 for w, v in zip(weights, seen, strict=True) if w > 0 and v),
            sum(1 for w, v in zip(weights, seen, strict=True) if w < 0 and v),
        )

    @staticmethod
    def of_frame(rows: DataFrame) -> Counts:
        seen = VISIBLE if VISIBLE in rows.columns else "true"
        found = rows.selectExpr(
            f"count_if({WEIGHT} > 0)",
            f"count_if({WEIGHT} < 0)",
            f"count_if({WEIGHT} > 0 AND {seen})",
            f"count_if({WEIGHT} < 0 AND {seen})",
        ).first()
        assert found is not None
        return Counts(*found)


def counted_note(note: CommitNote, counts: Counts, found: Computed) -> CommitNote:
    """The note with its numbers, after checking that every row that must go was found."""
    if found.removals is not None and counts.removed != found.removals:
        raise Uncertain(
            f"{found.removals} rows had to be removed and {counts.removed} were found: the stored rows are not as "
            "they should be."
        )
    return replace(
        note,
        rows_inserted=counts.visible_added,
        rows_deleted=counts.visible_removed,
        live_rows=(note.live_rows or 0) + counts.added - counts.removed,
        visible_rows=(note.visible_rows or 0) + counts.visible_added - counts.visible_removed,
        tombstones=note.tombstones + counts.removed,
        appends_since_fold=note.appends_since_fold + 1,
        technique=found.technique,
    )
