"""`headrace top`: dynamic tables, tasks and jobs, as they are now."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.lakes import LakeOption, at_work, command, opened
from headrace.errors import EnvironmentFault, NotAllowed, ServiceFault, SessionReset, TooBusy

if TYPE_CHECKING:
    from headrace.cli.board import Board
    from headrace.client import RemoteLake
    from headrace.engine import Lake

FRESHNESS = "SHOW FRESHNESS"
TASKS = "SHOW TASKS"
JOBS = "SHOW JOBS WHERE status IN ('SETUP', 'RESUMING_CLUSTER', 'QUEUED', 'RUNNING')"

_PASSES = (EnvironmentFault, ServiceFault, SessionReset, TooBusy)
"""What may be over at the next look: a server that is started again, Spark that is, a full house."""
_LEAVING = b"qQ\x04"


def top(
    interval: Annotated[
        float,
        typer.Option("--interval", min=0.5, max=3600, metavar="SECONDS", help="The time from one look to the next."),
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, print it and leave.")] = False,
    lake: LakeOption = None,
) -> None:
    """Watch the dynamic tables and the tasks: lag, last run, next one, what fails and why; and the jobs at work.

    Ends with q or Ctrl-C. When the output is no terminal, it is plain text, once.
    """
    if once or not sys.stdout.isatty():
        _print_once(lake)
        return
    _require_server(lake)
    try:
        with opened(lake, must_exist=True) as open_lake, _keys() as leaves:
            watch(open_lake, interval, leaves)
    except KeyboardInterrupt:
        pass  # That is how one leaves.


def _print_once(lake: Path | None) -> None:
    from rich.console import Console

    with opened(lake, must_exist=True) as open_lake:
        with at_work("Looking"):
            board = look(open_lake)
        if sys.stdout.isatty():
            Console().print(board)
        else:
            typer.echo("\n".join(line.plain for line in board.lines()))


def _require_server(lake: Path | None) -> None:
    """Without one nothing moves by itself, and a view that starts Spark and holds the lake would keep one away."""
    from headrace import opening, settings
    from headrace.storage import address

    chosen = settings.load(lake)
    if opening.service_of(chosen) is None and address.read(chosen.path) is None:
        raise NotAllowed(
            f"No server runs for the lake {chosen.path}: nothing in it is refreshed by itself.",
            hint=f"`{command('up', lake)}` starts one; `{command('top --once', lake)}` shows the tables as they are.",
        )


def watch(lake: Lake | RemoteLake, interval: float, leaves: Callable[[float], bool]) -> None:
    """Look again and again, until somebody leaves. A server that is away for a while is waited for."""
    from dataclasses import replace

    from rich.live import Live

    footer = f"q leaves. A look every {interval:g} s."
    board = look(lake, footer)
    with Live(board, screen=True, redirect_stdout=False, redirect_stderr=False) as screen:
        while not leaves(interval):
            try:
                board = look(lake, footer)
            except _PASSES as error:
                board = replace(board, problem=f"NO ANSWER since {board.now:%H:%M:%S}: {error.message}")
            screen.update(board)


def look(lake: Lake | RemoteLake, footer: str = "") -> Board:
    """What the lake tells of itself now."""
    from zoneinfo import ZoneInfo

    from headrace.cli.board import Board
    from headrace.client import RemoteLake

    tables, tasks, jobs = _rows(lake, FRESHNESS), _rows(lake, TASKS), _rows(lake, JOBS)
    note = ""
    if isinstance(lake, RemoteLake):
        where, zone = f"at {lake.url}", ZoneInfo(lake.timezone)
    else:
        where, zone = f"with the lake {lake.settings.path}", ZoneInfo(lake.settings.timezone)
        note = "No server: nothing is refreshed and no task runs by itself. `headrace up` starts one."
    # A job's beginning is told by the lake's own clock, and ours has just begun: whatever this machine's clock says.
    ours = [job["start_time"] for job in jobs if job["job_text"] == JOBS]
    now = max(ours).astimezone(zone) if ours else datetime.now(zone)
    return Board(
        title=f"Headrace {where}, {now:%Y-%m-%d %H:%M:%S %Z}",
        now=now,
        tables=tables,
        jobs=[job for job in jobs if job["job_text"] not in (FRESHNESS, TASKS, JOBS)],
        tasks=tasks,
        footer=footer,
        note=note,
        one_screen=bool(footer),
    )


def _rows(lake: Lake | RemoteLake, statement: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lake.sql(statement).to_arrow().to_pylist()
    return rows


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """A function that waits so many seconds, and tells whether somebody has asked to leave."""
    if not sys.stdin.isatty():
        yield _slept
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield partial(_asked_to_leave, terminal)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _slept(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _asked_to_leave(terminal: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([terminal], [], [], left)[0]:
            return False
        try:
            typed = os.read(terminal, 1024)
        except OSError:
            return True  # The terminal is gone.
        if not typed or any(key in _LEAVING for key in typed):
            return True
    return False
