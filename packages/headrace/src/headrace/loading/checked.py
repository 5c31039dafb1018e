"""What a check of incoming rows gives: those that fit the table, and those that do not, each with its reason."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.errors import AlreadyExists, UserError

MOST_ROWS = 100_000
"""Of one batch."""
LONGEST_ROW = 65_536
"""Characters of a rejected row that are kept."""
_SHOWN = 60
_REASONS = 3


class BadBatch(UserError):
    """Nothing of the batch can be used: not its form, or not its columns."""

    code = "BAD_BATCH"
    usual_hint = "Nothing of it was taken. Mend it, then try again."


class BatchDiffers(AlreadyExists):
    """A batch with this id has come before, and was another one."""

    code = "BATCH_DIFFERS"


class BatchTooLarge(UserError):
    code = "TOO_LARGE"


@dataclass(frozen=True)
class Reject:
    """A row that does not fit. `number` counts from 1, in the order of the batch or file."""

    number: int
    row: str
    error: str


@dataclass(frozen=True)
class Checked:
    """`numbers` has the place of every one of `rows`, which have the table's names and types."""

    rows: pa.Table
    numbers: pa.ChunkedArray
    rejects: tuple[Reject, ...] = ()

    def __post_init__(self) -> None:
        assert self.rows.num_rows == len(self.numbers)


@dataclass
class Gathered:
    """Pieces of one batch, checked one after the other."""

    schema: pa.Schema
    _rows: list[pa.Table] = field(default_factory=list)
    _numbers: list[pa.Array] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)

    def add(self, rows: pa.Table, numbers: Sequence[int] | pa.Array) -> None:
        self._rows.append(rows)
        self._numbers.append(numbers if isinstance(numbers, pa.Array) else pa.array(numbers, pa.int64()))

    def checked(self) -> Checked:
        rows = pa.concat_tables(self._rows) if self._rows else self.schema.empty_table()
        numbers = pa.chunked_array(self._numbers, pa.int64())
        return Checked(rows, numbers, tuple(sorted(self.rejects, key=lambda reject: reject.number)))


def shown(value: Any) -> str:
    """A value for an error message: as JSON writes it, and short."""
    if isinstance(value, (bytes, bytearray)):
        text = repr(bytes(value[:_SHOWN]))
    elif type(value) is not str and isinstance(value, str):  # A number, in its own digits.
        text = str(value[: _SHOWN + 1])
    elif isinstance(value, str):
        text = json.dumps(value[: _SHOWN + 1], ensure_ascii=False)
    else:
        text = json.dumps(value, ensure_ascii=False, default=str) if _is_small(value) else "a long value"
    return shortened(text, _SHOWN)


def _is_small(value: Any, deepest: int = 20) -> bool:
    """Whether a value can be written down at little cost."""
    if deepest == 0:
        return False
    if isinstance(value, (list, tuple)):
        return len(value) <= 50 and all(_is_small(item, deepest - 1) for item in value)
    if isinstance(value, dict):
        return len(value) <= 50 and all(_is_small(item, deepest - 1) for item in value.values())
    return not isinstance(value, str) or len(value) <= 10_000


def shortened(text: str, longest: int) -> str:
    """At most so many characters, and none that UTF-8 cannot write."""
    kept = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return kept.encode("utf-8", "replace").decode("utf-8")


def row_text(row: str | bytes) -> str:
    """A rejected row as it is kept."""
    text = row if isinstance(row, str) else row[: 4 * LONGEST_ROW].decode("utf-8", "replace")
    return shortened(text, LONGEST_ROW)


def range_of(first: int, count: int) -> pa.Array:
    """The numbers first, first + 1, …"""
    return pa.array(range(first, first + count), pa.int64())


def joined(reasons: Iterable[str]) -> str:
    """The first few reasons in one text."""
    found = list(reasons)
    more = f" And {len(found) - _REASONS} more." if len(found) > _REASONS else ""
    return " ".join(found[:_REASONS]) + more


def too_many_rows(rows: int) -> BatchTooLarge:
    return BatchTooLarge(
        f"The batch has {rows:,} rows; one may have {MOST_ROWS:,}.", hint="Send it in several batches."
    )


def too_many_bytes(most: int) -> BatchTooLarge:
    return BatchTooLarge(
        f"In memory, the rows of the batch need more than {most // 1024**2} MiB.", hint="Send it in several batches."
    )
