"""Holding a table's lease for as long as its refresh takes, or a statement that changes its storage."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from headrace import running
from headrace.catalog.store import FOLD, STATEMENT, Store
from headrace.errors import HeadraceError, RefreshRunning

PATIENCE_SECONDS = 30.0
"""For so long whoever wants the lease waits for work that is soon over."""
_LOOK_SECONDS = 0.1
_log = logging.getLogger(__name__)


@contextmanager
def held_lease(
    store: Store,
    table_id: str,
    owner: str,
    seconds: float,
    clock: Callable[[], datetime],
    *,
    patience: float = 0.0,
    also_for_refreshes: bool = False,
) -> Iterator[int]:
    """The lease's fencing number; renewed in the background, given back at the end if nobody did so before. A statement
    or fold that has it is waited for, as long as `patience` says; a refresh only where that is asked for. Raises
    RefreshRunning."""
    fencing = _acquired(store, table_id, owner, seconds, clock, time.monotonic() + patience, also_for_refreshes)
    done = threading.Event()

    def renew() -> None:
        while not done.wait(seconds / 3):
            try:
                if not store.renew_lease(table_id, fencing, seconds, clock()):
                    return
            except HeadraceError:
                _log.exception("The lease of the table %s could not be renewed; the next try follows.", table_id)

    keeper = threading.Thread(target=renew, name=f"lease-{table_id[:8]}", daemon=True)
    keeper.start()
    try:
        yield fencing
    except BaseException:
        done.set()
        try:
            store.release_lease(table_id, fencing)
        except HeadraceError:  # What went wrong before is what matters; the lease runs out by itself.
            _log.exception("The lease of the table %s could not be released.", table_id)
        raise
    finally:
        done.set()


def _acquired(
    store: Store,
    table_id: str,
    owner: str,
    seconds: float,
    clock: Callable[[], datetime],
    until: float,
    also_for_refreshes: bool,
) -> int:
    while True:
        try:
            return store.acquire_lease(table_id, owner, seconds, clock())
        except RefreshRunning:
            held = store.lease(table_id)
            soon_over = held is None or also_for_refreshes or held.owner.endswith((f"/{STATEMENT}", f"/{FOLD}"))
            if not soon_over or time.monotonic() >= until:
                raise
        time.sleep(_LOOK_SECONDS)
        running.require_wanted()
