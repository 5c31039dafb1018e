"""Folding: rewriting a dynamic table's storage without tombstones, so that it is a plain table again.

A fold is a commit without change (`dataChange=false`): what is downstream sees nothing of it. The policy keeps its cost
in proportion to the work done since the last one.
"""

from __future__ import annotations

FOLD_AFTER_APPENDS = 24
"""Small tables are folded after so many refreshes: every append leaves a file to open."""
_SMALL_TABLE = 200_000
_MANY_APPENDS = 200
_MANY_TOMBSTONES = 10_000


def needs_fold(live_rows: int, tombstones: int, appends: int) -> str | None:
    """Why a table should be folded now, or None."""
    if (appends >= FOLD_AFTER_APPENDS and live_rows <= _SMALL_TABLE) or appends >= _MANY_APPENDS:
        return f"{appends} appends since the last fold"
    if tombstones >= _MANY_TOMBSTONES and tombstones * 4 >= live_rows:
        return f"{tombstones} tombstones among {live_rows} rows"
    return None
