"""Opening the lake a command works on."""

from __future__ import annotations

import shlex
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.watch import SILENT, Watch, watching

if TYPE_CHECKING:
    from headrace.client import RemoteLake
    from headrace.engine import Lake
    from headrace.progress import ProgressEvent
    from headrace.settings import Settings

LakeOption = Annotated[
    Path | None,
    typer.Option("--lake", metavar="PATH", help="The lake's folder. Default: the setting 'path', or ./lake."),
]


_listening: Watch = SILENT


@contextmanager
def opened(path: Path | None, *, must_exist: bool = False) -> Iterator[Lake | RemoteLake]:
    """The lake, open until the block ends: here, or through the server that holds it or that the settings name. Opened
    here, it first fetches Delta's jars when they are missing. `must_exist` is for commands that have nothing to do in
    a new lake."""
    from headrace import opening, settings
    from headrace.client import RemoteLake, ResultCut

    chosen = settings.load(path)
    service = opening.service_of(chosen)
    if service is None and chosen.service != "embedded":
        note(f"--lake wins: the service {chosen.service} ({chosen.origin('service')}) is not used.")
    lake = _connected(chosen, service) if service else _opened_folder(chosen, must_exist)
    lake.on_progress(_hear)
    with warnings.catch_warnings():
        warnings.simplefilter("always", ResultCut)
        warnings.showwarning = lambda message, *_, **__: note(str(message))
        try:
            yield lake
        finally:
            with watching(f"Leaving {lake.url}" if isinstance(lake, RemoteLake) else "Closing the lake"):
                lake.close()


@contextmanager
def ending_gently() -> Iterator[None]:
    """Until the block ends, SIGTERM does what Ctrl-C does: timeouts, systemd and schedulers end programs with it, and
    what they had begun on a server is to end as well."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _connected(chosen: Settings, service: str) -> RemoteLake:
    from headrace.opening import connect_service

    with watching(f"Connecting to {service}"):
        return connect_service(chosen)


def _opened_folder(chosen: Settings, must_exist: bool) -> Lake | RemoteLake:
    from headrace.errors import NotFound
    from headrace.opening import open_folder
    from headrace.storage import address
    from headrace.storage.jars import ensure_jars

    if must_exist and not chosen.path.is_dir():
        raise NotFound(
            f"There is no lake at {chosen.path.absolute()}.",
            hint="Name its folder with --lake. `headrace sql` makes a new one.",
        )
    served = address.read(chosen.path)
    with watching("Starting Spark" if served is None else f"Connecting to {served.url}") as watch:
        if served is None and watch is not SILENT:
            ensure_jars(chosen.jars, watch.say)
            watch.say("Starting Spark")
        return open_folder(chosen)


def command(name: str, lake: Path | None) -> str:
    """A command to tell people of, about the same lake as this one.

    >>> command("down", None), command("down", Path("my lake"))
    ('headrace down', "headrace down --lake 'my lake'")
    """
    return f"headrace {name}" if lake is None else f"headrace {name} --lake {shlex.quote(str(lake))}"


def note(text: str) -> None:
    sys.stderr.write(f"Note: {text}\n")
    sys.stderr.flush()


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
