"""What a refresh would take, incrementally and whole, from the sizes and from what earlier refreshes of the table took.

    whole        =  the fastest of its last full refreshes  ×  source rows now ÷ source rows then
    incremental  =  the median of its last refreshes of about this size, else
                    that of the next smaller change  +  further changed rows  ×  a share of `whole` per source row

Below SMALL source rows nothing is estimated: either way is a matter of moments, and the table stays incremental.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from headrace.catalog.records import RefreshRecord

SMALL = 100_000
REMEMBERED = 30
"""So many of the last refreshes are looked at."""
RETRY_AFTER = 10
"""After so many full refreshes in a row by choice, an incremental one is tried again: data and machines change."""
_SAME_SIZE = 4
"""Changes within this factor count as of one size."""
_FIXED_SECONDS = 1.0
_PER_CHANGED_ROW = 3.0
"""A changed row costs so many times what a row of a full refresh does, until measured."""
_MARGIN = 1.1
"""An estimate must be worse by this factor before a table leaves the incremental way."""


@dataclass(frozen=True)
class Past:
    """An earlier refresh: how it was done, how long it took, and for how much."""

    incremental: bool
    seconds: float
    changed_rows: int | None
    source_rows: int
    by_choice: bool
    """Whether it was a full one because that was estimated to be cheaper."""


@dataclass(frozen=True)
class Estimate:
    incremental_seconds: float
    full_seconds: float
    changed_rows: int
    source_rows: int
    retry: bool = False
    """The last full refreshes were all made by choice: it is time to measure the other way again."""

    @property
    def prefers_full(self) -> bool:
        return not self.retry and self.incremental_seconds > self.full_seconds * _MARGIN

    def __str__(self) -> str:
        return (
            f"{self.changed_rows:,} changed of {self.source_rows:,} source rows: estimated "
            f"{self.incremental_seconds:.1f} s incrementally, {self.full_seconds:.1f} s for all rows."
        )


def past_of(records: Sequence[RefreshRecord], generation: int) -> list[Past]:
    """What a table's history tells about its present query, newest first."""
    return [
        Past(
            incremental=record.refresh_mode == "INCREMENTAL",
            seconds=record.profile.seconds,
            changed_rows=record.profile.change_rows,
            source_rows=record.profile.source_rows,
            by_choice=record.profile.full_by_choice,
        )
        for record in records
        if record.state == "SUCCEED"
        and record.profile.seconds is not None
        and record.profile.source_rows
        and record.profile.generation == generation
    ]


def estimate(past: Sequence[Past], changed_rows: int | None, source_rows: int) -> Estimate | None:
    """None when there is nothing to go by, or nothing to gain."""
    whole = [each for each in past if not each.incremental]
    if changed_rows is None or source_rows < SMALL or not whole:
        return None
    full_seconds = min(each.seconds * source_rows / each.source_rows for each in whole[:3])
    per_row = _PER_CHANGED_ROW * full_seconds / source_rows
    return Estimate(
        incremental_seconds=_incremental(past, changed_rows, per_row),
        full_seconds=full_seconds,
        changed_rows=changed_rows,
        source_rows=source_rows,
        retry=sum(1 for _ in takewhile(lambda each: each.by_choice, past)) >= RETRY_AFTER,
    )


def _incremental(past: Sequence[Past], changed_rows: int, per_row: float) -> float:
    measured = [
        (each.changed_rows, each.seconds) for each in past if each.incremental and each.changed_rows is not None
    ]
    near = [s for rows, s in measured if changed_rows <= rows * _SAME_SIZE and rows <= changed_rows * _SAME_SIZE]
    if near:
        return statistics.median(near[:3])
    smaller = [(rows, seconds) for rows, seconds in measured if rows < changed_rows]
    if smaller:
        rows, seconds = max(smaller, key=lambda each: each[0])
        return seconds + (changed_rows - rows) * per_row
    guess = _FIXED_SECONDS + changed_rows * per_row
    return min([guess, *(seconds for _, seconds in measured)])
