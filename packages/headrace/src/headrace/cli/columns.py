"""Columns side by side on a screen that may be too narrow for all of them, and values short enough to stand there."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.cells import cell_len
from rich.text import Text

from headrace.display import printable

_GAP = "  "
_FLEXIBLE = 18
"""So many columns the names of tables should have before a column beside them is kept."""


@dataclass(frozen=True)
class Column:
    """A heading and its cells. Those that have the least `worth` are left out first."""

    head: str
    cells: Sequence[Text]
    worth: int
    right: bool = False
    least: int = 0
    """So wide also while its cells are short: the screen must not jitter."""
    flexible: bool = False
    """It takes what the others leave. Cut in the middle, or, as the last one, at the end of the line."""

    @property
    def width(self) -> int:
        return max(self.least, cell_len(self.head), *(cell.cell_len for cell in self.cells), 0)


def grid(columns: Sequence[Column], width: int | None) -> list[Text]:
    """The heading and a line for each row. Columns that find no room are left out; what is too long is cut."""
    kept = list(columns)
    while width is not None and len(kept) > 1 and _needed(kept) > width:
        least = min(kept, key=lambda column: column.worth)
        if least.worth >= 9:
            break
        kept.remove(least)
    rest = None if width is None else width - sum(c.width + len(_GAP) for c in kept if not c.flexible)
    widths = [c.width if rest is None or not c.flexible else max(1, min(c.width, rest)) for c in kept]
    head = _joined([Text(c.head, "dim") for c in kept], kept, widths)
    return [head, *(_joined(cells, kept, widths) for cells in zip(*(c.cells for c in kept), strict=True))]


def _needed(columns: Sequence[Column]) -> int:
    widths = [min(column.width, _FLEXIBLE) if column.flexible else column.width for column in columns]
    return sum(widths) + len(_GAP) * (len(columns) - 1)


def _joined(cells: Sequence[Text], columns: Sequence[Column], widths: Sequence[int]) -> Text:
    whole = Text()
    for cell, column, width in zip(cells, columns, widths, strict=True):
        is_cut = cell.cell_len > width and column is not columns[-1]
        shown = Text(_middle_cut(cell.plain, width), cell.style) if is_cut else cell
        space = " " * (width - shown.cell_len)
        whole.append(_GAP if whole.plain else "")
        whole.append_text(Text(space).append_text(shown) if column.right else shown.copy().append(space))
    whole.rstrip()
    return whole


def _middle_cut(text: str, width: int) -> str:
    """The beginning and the end: long names often differ in the end only.

    >>> _middle_cut("orders_by_customer_and_day", 13)
    'orders…nd_day'
    """
    head, tail = width - width // 2 - 1, width // 2
    first, last = Text(text), Text(text[::-1])
    first.truncate(head)
    last.truncate(tail)
    return f"{first.plain}…{last.plain[::-1]}"


# ---------------------------------------------------------------------- one value


def changes(inserted: int | None, deleted: int | None) -> str:
    """
    >>> changes(12, 3), changes(1_234_567, 0), changes(0, 0), changes(None, None)
    ('+12 -3', '+1.2M -0', '', '')
    """
    if not inserted and not deleted:
        return ""
    return f"+{amount(inserted or 0)} -{amount(deleted or 0)}"


def amount(number: int) -> str:
    """
    >>> [amount(n) for n in (9999, 10_000, 999_999, 1_500_000, 2_000_000_000)]
    ['9999', '10k', '999k', '1.5M', '2.0G']
    """
    if number < 10_000:
        return str(number)
    if number < 1_000_000:
        return f"{number // 1000}k"
    return f"{number / 1e6:.1f}M" if number < 1_000_000_000 else f"{number / 1e9:.1f}G"


def clock(moment: datetime | None, now: datetime) -> str:
    """The time of day, or the day if that is another one, in the zone of `now`.

    >>> from datetime import timedelta
    >>> now = datetime.fromisoformat("2026-01-02T00:30:00+00:00")
    >>> clock(now - timedelta(minutes=1), now), clock(now - timedelta(hours=1), now)
    ('00:29:00', '01-01 23:30')
    """
    if moment is None:
        return ""
    here = moment.astimezone(now.tzinfo)
    return f"{here:%H:%M:%S}" if here.date() == now.date() else f"{here:%m-%d %H:%M}"


def line(text: object) -> str:
    """A text of anybody's as one line that does nothing to the screen."""
    return printable(" ".join(str(text).split()))


def folded(text: str, width: int | None, indent: int = 0) -> list[str]:
    """A text as lines that are no wider; without a width as one. No text has no lines."""
    if not text or width is None:
        return [line(text)] if text else []
    return textwrap.wrap(line(text), max(20, width - indent))
