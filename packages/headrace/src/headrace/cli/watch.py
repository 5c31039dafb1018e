"""Progress for a person who is watching: on stderr, and only when that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Watch:
    """Something to tell progress to. This one keeps silent."""

    def say(self, text: str, fraction: float | None = None) -> None:
        """What is being done now, and how much of it is done."""


class _OnScreen(Watch):
    def __init__(self, progress: Any, task: Any) -> None:
        self._progress = progress
        self._task = task

    def say(self, text: str, fraction: float | None = None) -> None:
        total = None if fraction is None else 1.0
        self._progress.update(self._task, description=text, total=total, completed=fraction or 0.0)


SILENT = Watch()


@contextmanager
def watching(text: str) -> Iterator[Watch]:
    """A spinner with a text (and a bar, once a fraction is known) that disappears when the work is done."""
    if not sys.stderr.isatty():
        yield SILENT
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _OnScreen(progress, progress.add_task(text, total=None))
