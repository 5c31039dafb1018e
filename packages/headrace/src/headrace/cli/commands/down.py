"""`headrace down`: end the lake's server."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import typer

from headrace.cli.faults import FAILED, LOCKED
from headrace.cli.lakes import LakeOption, command, note
from headrace.cli.watch import watching
from headrace.errors import NotAllowed

_PATIENCE_SECONDS = 30.0
_LOOK_SECONDS = 0.1


def down(lake: LakeOption = None) -> None:
    """End the lake's server: it takes no more work, cancels what still runs after a while, and closes the lake.

    Ends with 0 when no server runs (any more), with 1 when it has not ended after 30 seconds.
    """
    from headrace import opening, settings
    from headrace.storage import address
    from headrace.storage.lock import holder

    chosen = settings.load(lake)
    path = chosen.path
    if opening.service_of(chosen) is not None:
        note(
            f"`headrace down` looks at a lake's folder on this machine, here {path}, and not at the service "
            f"{chosen.service} ({chosen.origin('service')})."
        )
    found, held = address.read(path), holder(path)
    if held is None:
        typer.echo(f"No server runs for the lake {path}.")
        return
    if found is None:
        typer.echo(
            f"{path} is open in {held}, which is no server, or one that is starting. It is left alone.", err=True
        )
        raise typer.Exit(LOCKED)
    if held.host != socket.gethostname():
        raise NotAllowed(f"The server runs on {held.host}.", hint=f"Run `{command('down', lake)}` there.")
    try:
        os.kill(found.pid, signal.SIGTERM)
    except ProcessLookupError:
        pass  # It has just ended by itself.
    except PermissionError:
        raise NotAllowed(
            f"The server is process {found.pid} of the user {held.user}, whom you may not disturb.",
            hint=f"Run `{command('down', lake)}` as that user.",
        ) from None
    with watching("Waiting for the server to end"):
        ended = _ended(path, found.pid)
    if not ended:
        typer.echo(f"The server (process {found.pid}) has not ended in {_PATIENCE_SECONDS:.0f} seconds.", err=True)
        raise typer.Exit(FAILED)
    typer.echo(f"The server (process {found.pid}) has ended, and the lake {path} is free.")


def _ended(path: Path, pid: int) -> bool:
    from headrace.storage.lock import holder

    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (held := holder(path)) is not None and held.pid == pid:
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_SECONDS)
    return True
