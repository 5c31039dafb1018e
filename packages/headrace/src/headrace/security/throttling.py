"""Slowing down whoever guesses passwords.

Failures count for a user at an address, and only there: a colleague behind the same address, or the user elsewhere, is
not made to wait. Checks that run at the same time do not count against each other until one of them fails.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from headrace.errors import TooBusy

_FREE_FAILURES = 5
_LONGEST = timedelta(seconds=60)
_FORGOTTEN_AFTER = timedelta(minutes=15)
_MOST_KEPT = 10_000


@dataclass
class _Failures:
    count: int
    last: datetime

    def wait(self, now: datetime) -> float:
        """After five failures one second, then twice as long each time, up to a minute; also when the clock was set
        back since."""
        if self.count < _FREE_FAILURES:
            return 0.0
        pause = min(timedelta(seconds=2 ** min(self.count - _FREE_FAILURES, 10)), _LONGEST)
        return (min(self.last, now) + pause - now).total_seconds()


class LoginThrottle:
    """Shared by all threads; it keeps ten thousand pairs at most, and lets go of the oldest."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: OrderedDict[tuple[str, str], _Failures] = OrderedDict()

    def allow(self, user: str, address: str) -> None:
        """Raise when this user must wait at this address before the next try."""
        with self._lock:
            failures = self._failures.get(_key(user, address))
            if failures is None:
                return
            wait = failures.wait(self._clock())
        if wait > 0:
            raise TooBusy(
                "There were too many wrong passwords.", hint=f"Try again in {int(wait) + 1} seconds.", retry_after=wait
            )

    def failed(self, user: str, address: str) -> None:
        key, now = _key(user, address), self._clock()
        with self._lock:
            before = self._failures.pop(key, None)
            if before is None or now - before.last > _FORGOTTEN_AFTER:
                before = _Failures(0, now)
            self._failures[key] = _Failures(before.count + 1, now)
            while len(self._failures) > _MOST_KEPT:
                self._failures.popitem(last=False)

    def succeeded(self, user: str, address: str) -> None:
        with self._lock:
            self._failures.pop(_key(user, address), None)


def _key(user: str, address: str) -> tuple[str, str]:
    return user.lower()[:255], address
