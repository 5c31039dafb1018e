"""Opening the lake a command works on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.watch import SILENT, Watch, watching

if TYPE_CHECKING:
    from headrace.engine import Lake
    from headrace.progress import ProgressEvent

LakeOption = Annotated[
    Path | None,
    typer.Option("--lake", metavar="PATH", help="The lake's folder. Default: the setting 'path', or ./lake."),
]


_listening: Watch = SILENT


@contextmanager
def opened(path: Path | None, *, must_exist: bool = False) -> Iterator[Lake]:
    """The lake, open until the block ends. Fetches Delta's jars first when they are missing. `must_exist` is for
    commands that have nothing to do in a new lake."""
    import headrace
    from headrace import settings
    from headrace.errors import NotFound
    from headrace.storage.jars import ensure_jars

    chosen = settings.load(path)
    if must_exist and not chosen.path.is_dir():
        raise NotFound(
            f"There is no lake at {chosen.path.absolute()}.",
            hint="Name its folder with --lake. `headrace sql` makes a new one.",
        )
    with watching("Starting Spark") as watch:
        if watch is not SILENT:
            ensure_jars(chosen.jars, watch.say)
            watch.say("Starting Spark")
        lake = headrace.open(path)
    lake.on_progress(_hear)
    try:
        yield lake
    finally:
        with watching("Closing the lake"):
            lake.close()


@contextmanager
def at_work(text: str) -> Iterator[None]:
    """Show what the open lake is doing while the block runs."""
    global _listening
    with watching(text) as _listening:
        try:
            yield
        finally:
            _listening = SILENT


def _hear(event: ProgressEvent) -> None:
    _listening.say(event.text, event.fraction)
