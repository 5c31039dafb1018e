"""`headrace up`: start the lake's server."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.faults import FAILED
from headrace.cli.lakes import LakeOption, command
from headrace.cli.watch import watching
from headrace.errors import LakeLocked

if TYPE_CHECKING:
    from headrace.settings import Settings

_LOOK_SECONDS = 0.2
_LAST_WORDS_SECONDS = 2.0
_LAST_WORD = b"Ready.\n"
_UNTOLD = (
    "This is the first start. Whoever started the server has gone, so the password of admin was told to nobody. On "
    "this machine, `headrace sql \"ALTER USER admin SET PASSWORD '…'\"` sets one."
)


def up(
    host: Annotated[
        str | None, typer.Option("--host", help="The address to listen on. Default: the setting 'host'.")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="The port; 0 takes any free one.")
    ] = None,
    background: Annotated[
        bool,
        typer.Option("--background/--foreground", help="Leave the server running, or serve until Ctrl-C (default)."),
    ] = False,
    lake: LakeOption = None,
    tell: Annotated[int | None, typer.Option("--tell", hidden=True)] = None,
) -> None:
    """Start the lake's server, and show its address. The first start also shows the password of the user admin."""
    from headrace import settings
    from headrace.storage import address

    chosen = settings.load(lake, host=host, port=port)
    running = address.read(chosen.path)
    if running is not None and background:
        typer.echo(f"The server of this lake runs already: {running.url} (process {running.pid}).")
        return
    if running is not None:
        raise LakeLocked(
            f"The server of this lake runs already: {running.url} (process {running.pid}).",
            hint=f"`{command('status', lake)}` shows what it does; `{command('down', lake)}` ends it.",
        )
    if background:
        _start(chosen, lake)
        return
    from headrace.server.lifecycle import serve

    settings.forget_secrets(os.environ)
    if tell is None:
        serve(chosen, say=typer.echo)
    else:
        serve(chosen, say=_teller(tell), whisper=_teller(tell, otherwise=_UNTOLD))


def _start(chosen: Settings, lake: Path | None) -> None:
    """A server of its own, which outlives this program. What it says goes to us until it is ready, and only to us: the
    first password is among it."""
    from headrace.server.listening import bound

    if chosen.port:
        bound(chosen.host, chosen.port).close()  # One that is taken is told before there is a folder or a log.
    log = chosen.path / "logs" / "server.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    listening, telling = os.pipe()
    program = [sys.executable, "-m", "headrace.cli.main", "up", "--foreground", "--tell", str(telling)]
    program += ["--lake", str(chosen.path), "--host", chosen.host, "--port", str(chosen.port)]
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
        begin = output.tell()
        process = subprocess.Popen(
            program,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=(telling,),
        )
    os.close(telling)
    try:
        with watching("Starting the server"):
            said, ready = _until_ready(process, listening, chosen)
    except KeyboardInterrupt:
        process.terminate()
        raise
    finally:
        os.close(listening)
    typer.echo(said, nl=False)
    if not ready:
        sys.stderr.write(_written_since(log, begin))
        typer.echo(f"The server ended while it started. Its log is {log}.", err=True)
        raise typer.Exit(process.returncode if process.returncode > 0 else FAILED)
    ends = command("down", lake)
    typer.echo(f"It runs in the background as process {process.pid}; its log is {log}. `{ends}` ends it.")


def _until_ready(process: subprocess.Popen[bytes], listening: int, chosen: Settings) -> tuple[str, bool]:
    """What the server said, and whether it serves now; if not, it has ended."""
    said = b""
    while True:
        ended = process.poll() is not None
        ready = not ended and _is_ready(process.pid, chosen)
        if ended or ready:
            while not said.endswith(_LAST_WORD) and (words := _heard(listening, _LAST_WORDS_SECONDS)):
                said += words
            return said.decode(errors="replace"), ready
        said += _heard(listening, _LOOK_SECONDS)


def _heard(listening: int, patience: float) -> bytes:
    return os.read(listening, 65536) if select.select([listening], [], [], patience)[0] else b""


def _is_ready(pid: int, chosen: Settings) -> bool:
    from headrace.opening import owner_door
    from headrace.storage import address

    found = address.read(chosen.path)
    if found is None or found.pid != pid:
        return False
    door = owner_door(found, chosen)
    try:
        return door.health() == "ok"
    finally:
        door.close()


def _teller(descriptor: int, otherwise: str | None = None) -> Callable[[str], None]:
    """Say to whoever started us; once that one has gone, to the log: the same, or what may stand there."""
    os.set_inheritable(descriptor, False)

    def say(text: str) -> None:
        try:
            os.write(descriptor, f"{text}\n".encode())
        except OSError:
            sys.stderr.write(f"{text if otherwise is None else otherwise}\n")
            sys.stderr.flush()

    return say


def _written_since(log: Path, begin: int) -> str:
    with log.open("rb") as stream:
        stream.seek(begin)
        return stream.read().decode(errors="replace")
