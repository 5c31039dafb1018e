"""Named places where a test can make the process die, as a power cut would.

`HEADRACE_FAILPOINT=after-intent` kills the process with SIGKILL the first time that place is reached;
`after-intent:3` the third time. Without the variable a failpoint costs a dictionary look-up.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

NAMES = (
    "refresh-start",
    "after-lease",
    "after-frontier",
    "after-intent",
    "after-compute",
    "mid-write",
    "before-state-tables",
    "after-commit",
    "before-finish",
    "after-finish",
    "fold-start",
    "after-fold",
    "create-after-storage",
    "create-after-load",
    "drop-after-rename",
    "before-reading",
    "after-reading",
    "mid-reading",
    "after-stream-commit",
    "after-offsets",
    "load-before-spool",
    "load-after-spool",
    "load-after-record",
    "load-after-sequence",
    "mid-load",
    "load-after-commit",
    "load-after-rejects",
    "load-before-finish",
    "load-after-finish",
)

_hits: dict[str, int] = {}


def reach(name: str) -> None:
    """Die here if the environment asks for it."""
    if _due(name):
        os.kill(os.getpid(), signal.SIGKILL)


def watch_for_file(name: str, folder: str) -> None:
    """Die as soon as a new data file appears in the folder: in the middle of a write."""
    if not _due(name):
        return
    before = set(Path(folder).rglob("*.parquet"))

    def wait() -> None:
        while set(Path(folder).rglob("*.parquet")) <= before:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def _due(name: str) -> bool:
    wanted = os.environ.get("HEADRACE_FAILPOINT", "")
    point, _, nth = wanted.partition(":")
    if point != name:
        return False
    _hits[name] = _hits.get(name, 0) + 1
    return _hits[name] == int(nth or 1)
