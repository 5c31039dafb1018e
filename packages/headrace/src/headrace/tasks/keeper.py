"""Runs one command and takes care that nothing of it stays behind.

A program of its own, `python keeper.py status-fd patience argument …`: the leader of a process group that holds the
command and all that it starts. While its standard input is open, somebody wants the command. When it closes, because
the command is to be stopped or because the server has died, everything in the group gets TERM and, so many seconds
later, KILL. How the command ended goes to the status pipe as `exit n`, `signal n` or `start errno`; then the group,
this process with it, is ended.

Nothing of Headrace is imported here: it would take longer than most commands do.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time


def main(arguments: list[str]) -> None:
    status, patience, command = int(arguments[0]), float(arguments[1]), arguments[2:]
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    # Handlers, not SIG_IGN: that one would be handed on to the command.
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        os.write(status, f"start {error.errno}".encode())
        return
    deadline: float | None = None
    while child.poll() is None:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            break
        ready, _, _ = select.select([woken] if deadline else [woken, 0], [], [], left)
        if woken in ready:
            os.read(woken, 512)
        if 0 in ready and not os.read(0, 512):
            deadline = time.monotonic() + patience
            os.killpg(0, signal.SIGTERM)
    if child.returncode is not None:
        code = child.returncode
        os.write(status, (f"exit {code}" if code >= 0 else f"signal {-code}").encode())
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
