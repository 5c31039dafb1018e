"""Slowing down whoever guesses passwords.

Failures count for a user at an address, and only there: a colleague behind the same address, or the user elsewhere, is
not made to wait. Checks that run at the same time do not count against each other until one of them fails.

Who tries many users at one address is slowed down, too, but locks nobody out: beyond a generous number of tries that
have not succeeded, those from this address take turns, one each second. Who was let in there before needs no turn.
"""

from __future__ import annotations

import ipaddress
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from headrace.errors import TooBusy

_FREE_FAILURES = 5
_LONGEST = timedelta(seconds=60)
_FORGOTTEN_AFTER = timedelta(minutes=15)
_MOST_KEPT = 10_000
_FREE_TRIES = 60
_TRIES_A_SECOND = 1.0
_LONGEST_TURN = 10.0
"""Seconds. Who would have to wait longer is told to come again."""


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


@dataclass(frozen=True)
class _Tries:
    """Tries at an address that have not succeeded, less those that time has made good."""

    count: float
    at: datetime

    def now(self, now: datetime) -> float:
        return max(0.0, self.count - max(0.0, (now - self.at).total_seconds()) * _TRIES_A_SECOND)


class LoginThrottle:
    """Shared by all threads; it keeps ten thousand pairs and addresses at most, and lets go of the oldest."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: OrderedDict[tuple[str, str], _Failures] = OrderedDict()
        self._tries: OrderedDict[str, _Tries] = OrderedDict()
        self._let_in: OrderedDict[tuple[str, str], None] = OrderedDict()

    def turn(self, user: str, address: str) -> float:
        """The seconds after which it is this try's turn. Every try has one; `succeeded` gives it back. Raises when this
        user must wait at this address, which takes no turn from others, and when too many there wait already."""
        self.allow(user, address)
        now, place = self._clock(), _place(address)
        with self._lock:
            if _key(user, address) in self._let_in:
                return 0.0
            count = self._tries.pop(place, _Tries(0.0, now)).now(now) + 1
            wait = max(0.0, count - _FREE_TRIES) / _TRIES_A_SECOND
            self._tries[place] = _Tries(count if wait <= _LONGEST_TURN else count - 1, now)
            _shorten(self._tries)
        if wait > _LONGEST_TURN:
            raise TooBusy(
                "Too many logins from this address have failed, and others wait for their turn.",
                hint="Try again in a few seconds.",
                retry_after=2.0,
            )
        return wait

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
            _shorten(self._failures)

    def succeeded(self, user: str, address: str) -> None:
        key, place, now = _key(user, address), _place(address), self._clock()
        with self._lock:
            self._failures.pop(key, None)
            tries = self._tries.get(place)
            if key not in self._let_in and tries is not None:
                self._tries[place] = _Tries(max(0.0, tries.now(now) - 1), now)
            self._let_in.pop(key, None)
            self._let_in[key] = None
            _shorten(self._let_in)


def _shorten(kept: OrderedDict[Any, Any]) -> None:
    while len(kept) > _MOST_KEPT:
        kept.popitem(last=False)


def _place(address: str) -> str:
    """Whose tries count together: of IPv6 a whole network, for one machine has all of it.

    >>> _place("2001:db8:1:2:3::4"), _place("10.0.0.1"), _place("")
    ('2001:db8:1:2::', '10.0.0.1', '')
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return address
    return str(ipaddress.ip_network((found, 64), strict=False).network_address)


def _key(user: str, address: str) -> tuple[str, str]:
    return user.lower()[:255], address
