"""Holding a table's lease for as long as its refresh takes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

from headrace.catalog.store import Store


@contextmanager
def held_lease(store: Store, table_id: str, owner: str, seconds: float, clock: Callable[[], datetime]) -> Iterator[int]:
    """The lease's fencing number; renewed in the background, given back at the end if nobody did so before."""
    fencing = store.acquire_lease(table_id, owner, seconds, clock())
    done = threading.Event()

    def renew() -> None:
        while not done.wait(seconds / 3):
            if not store.renew_lease(table_id, fencing, seconds, clock()):
                return

    keeper = threading.Thread(target=renew, name=f"lease-{table_id[:8]}", daemon=True)
    keeper.start()
    try:
        yield fencing
    except BaseException:
        done.set()
        store.release_lease(table_id, fencing)
        raise
    finally:
        done.set()
