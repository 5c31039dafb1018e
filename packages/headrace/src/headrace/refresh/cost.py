"""What a refresh would take, incrementally and whole, from the sizes and from what earlier refreshes of the table took.

    whole        =  the fastest of its last full refreshes  ×  source rows now ÷ source rows then;
                    handed on from refresh to refresh when the last full one is long ago
    incremental  =  the median of its last refreshes of about this size and kind, else
                    that of the next smaller change  +  further changed rows  ×  a share of `whole` per source row

Changes are of two kinds: insertions only, and others, which cost more.

Below SMALL source rows nothing is estimated: either way is a matter of moments, and the table stays incremental.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from headrace.catalog.records import RefreshRecord
from headrace.ivm.sources import SourceRange

SMALL = 100_000
REMEMBERED = 30
"""So many of the last refreshes that did something are looked at."""
RETRY_AFTER = 10
"""After so many full refreshes in a row by choice, an incremental one is tried again: data and machines change."""
_MADE_OFTEN = 2
"""After so many refreshes that all made state tables first, the next one is taken to do so, too."""
_SAME_SIZE = 4
"""Changes within this factor count as of one size."""
_FIXED_SECONDS = 1.0
_PER_CHANGED_ROW = 4.0
_WITH_JOINS = 12.0
"""A changed row costs so many times what a row of a full refresh does, until measured (docs/adr/0015)."""
_NOT_ONLY_INSERTED = 1.5
"""So much more if rows also go."""
_SMALL_CHANGE = 0.01
"""A change of a smaller share of the source rows is tried incrementally before anything is measured: the guess for it
is hardly more than `_FIXED_SECONDS`, whatever the machine."""
_MARGIN = 1.1
"""An estimate must be worse by this factor before a table leaves the incremental way."""


@dataclass(frozen=True)
class Past:
    """An earlier refresh: how it was done, how long it took, and for how much. One that was begun incrementally and had
    to be finished by computing all rows counts as incremental: that is what the attempt took."""

    incremental: bool
    seconds: float
    changed_rows: int | None
    source_rows: int
    by_choice: bool
    """Whether it was a full one because that was estimated to be cheaper."""
    insert_only: bool = False
    whole_seconds: float | None = None
    """What computing all rows was estimated to take then."""
    made_states: bool = False
    """Whether it made state tables first."""


@dataclass(frozen=True)
class Work:
    """What a refresh would have to do."""

    changed_rows: int
    source_rows: int
    insert_only: bool
    joins: bool

    @property
    def per_changed_row(self) -> float:
        """How many rows of a full refresh a changed row costs as much as, for all that is known beforehand."""
        return (_WITH_JOINS if self.joins else _PER_CHANGED_ROW) * (1 if self.insert_only else _NOT_ONLY_INSERTED)


@dataclass(frozen=True)
class Estimate:
    incremental_seconds: float
    full_seconds: float
    changed_rows: int
    source_rows: int
    measures: bool = False
    """The incremental way is taken to see what it takes: for a small change, when that was never measured, or when the
    last full refreshes were all made by choice."""

    @property
    def prefers_full(self) -> bool:
        return not self.measures and self.incremental_seconds > self.full_seconds * _MARGIN

    def __str__(self) -> str:
        return (
            f"{self.changed_rows:,} changed of {self.source_rows:,} source rows: estimated "
            f"{self.incremental_seconds:.1f} s incrementally, {self.full_seconds:.1f} s for all rows."
        )


def past_of(records: Sequence[RefreshRecord], generation: int) -> list[Past]:
    """What a table's history tells about its present query, newest first."""
    return [
        Past(
            incremental=record.refresh_mode == "INCREMENTAL" or record.profile.abandoned,
            seconds=record.profile.seconds,
            changed_rows=record.profile.change_rows,
            source_rows=record.profile.source_rows,
            by_choice=record.profile.full_by_choice,
            insert_only=bool(record.profile.insert_only),
            whole_seconds=record.profile.estimated_full_seconds,
            made_states=record.profile.made_states,
        )
        for record in records
        if record.state == "SUCCEED"
        and record.profile.seconds is not None
        and record.profile.source_rows
        and record.profile.generation == generation
    ]


def insert_only(ranges: Iterable[SourceRange]) -> bool:
    """Whether no source has lost or changed a row."""
    return all(each.insert_only for each in ranges if each.changed)


def whole_seconds(past: Sequence[Past], source_rows: int) -> float | None:
    """What computing all rows would take; None when there is nothing to go by."""
    measured = [(each.seconds, each.source_rows) for each in past if not each.incremental][:3]
    told = [(each.whole_seconds, each.source_rows) for each in past if each.whole_seconds is not None][:1]
    return min((seconds * source_rows / rows for seconds, rows in measured or told), default=None)


def estimate(past: Sequence[Past], work: Work) -> Estimate | None:
    """None when there is nothing to go by, or nothing to gain."""
    full_seconds = whole_seconds(past, work.source_rows)
    if full_seconds is None or work.source_rows < SMALL:
        return None
    per_row = work.per_changed_row * full_seconds / work.source_rows
    incremental = _incremental(past)
    is_untried = not incremental and work.changed_rows < work.source_rows * _SMALL_CHANGE
    by_choice = sum(1 for _ in takewhile(lambda each: each.by_choice, past))
    return Estimate(
        incremental_seconds=_seconds(incremental, work.changed_rows, work.insert_only, per_row),
        full_seconds=full_seconds,
        changed_rows=work.changed_rows,
        source_rows=work.source_rows,
        measures=is_untried or by_choice >= RETRY_AFTER,
    )


def _incremental(past: Sequence[Past]) -> list[Past]:
    """The incremental ones that tell what the next one takes. One that makes state tables takes long, and the next ones
    do not; unless that happens again and again."""
    incremental = [each for each in past if each.incremental]
    with_states = [each for each in incremental if not each.made_states]
    return with_states if with_states or len(incremental) < _MADE_OFTEN else incremental


def _seconds(incremental: Sequence[Past], changed_rows: int, only_inserted: bool, per_row: float) -> float:
    # What insertions took says little about removals of that number, only about what even a small change costs.
    measured = [
        (each.changed_rows, each.seconds)
        for each in incremental
        if each.changed_rows is not None
        and (each.insert_only is only_inserted or each.changed_rows * _SAME_SIZE < changed_rows)
    ]
    near = _near(measured, changed_rows)
    if not near and only_inserted:  # As many changes of all kinds took at least as long.
        near = _near([(each.changed_rows or 0, each.seconds) for each in incremental], changed_rows)
    if near:
        return statistics.median(near[:3])
    smaller = [(rows, seconds) for rows, seconds in measured if rows < changed_rows]
    if smaller:
        rows, seconds = max(smaller, key=lambda each: each[0])
        return seconds + (changed_rows - rows) * per_row
    guess = _FIXED_SECONDS + changed_rows * per_row
    return min([guess, *(seconds for _, seconds in measured)])


def _near(measured: Sequence[tuple[int, float]], changed_rows: int) -> list[float]:
    """What changes of about this size took."""
    return [s for rows, s in measured if changed_rows <= rows * _SAME_SIZE and rows <= changed_rows * _SAME_SIZE]
