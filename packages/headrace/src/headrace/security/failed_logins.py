"""Lines of the audit log for failed logins: bounded, however many there are, for nobody needs a login to fail one.

Ten failures of an address have a line each. Further ones within ten minutes of the first are counted, and have one line
together when these are over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from headrace.catalog.records import AuditEntry

ACTION = "LOGIN_FAILED"
OTHERS = "other addresses"
"""In place of an address, when there are very many."""
_OWN_LINES = 10
_TOGETHER = timedelta(minutes=10)
_MOST_ADDRESSES = 1000
_NAMED = 3
_SHOWN = 60


@dataclass
class _Span:
    """The failures of one address since the first of them."""

    began: datetime
    count: int = 0
    names: list[str] = field(default_factory=list)
    """Of some users whose failures have no line of their own."""

    @property
    def unwritten(self) -> int:
        return max(0, self.count - _OWN_LINES)

    def and_then(self, later: _Span | None) -> _Span:
        return self if later is None else _Span(self.began, self.count + later.count, [*self.names, *later.names])

    def is_over(self, now: datetime) -> bool:
        return not timedelta(0) <= now - self.began < _TOGETHER


class FailedLogins:
    """Shared by all threads."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._spans: dict[str, _Span] = {}

    def line(self, user: str, address: str) -> AuditEntry | None:
        """Note a failure. Gives its line, if it has one of its own."""
        now = self._clock()
        with self._lock:
            place = address if address in self._spans or len(self._spans) < _MOST_ADDRESSES else OTHERS
            span = self._spans.setdefault(place, _Span(now))
            span.count += 1
            if span.count > _OWN_LINES:
                if user not in span.names and len(span.names) <= _NAMED:
                    span.names.append(user)
                return None
        return AuditEntry(at=now, user=user, address=address, action=ACTION, detail="Wrong user name or password.")

    def write_sums(self, write: Callable[[AuditEntry], None], *, everything: bool = False) -> None:
        """Write a line for what has none yet, of addresses whose time is over. What cannot be written stays."""
        now = self._clock()
        while (taken := self._taken(now, everything)) is not None:
            place, span = taken
            try:
                if span.unwritten:
                    write(AuditEntry(at=now, user="", address=place, action=ACTION, detail=_told(span)))
            except BaseException:
                with self._lock:
                    self._spans[place] = span.and_then(self._spans.get(place))
                raise

    def _taken(self, now: datetime, everything: bool) -> tuple[str, _Span] | None:
        with self._lock:
            over = (place for place, span in self._spans.items() if everything or span.is_over(now))
            place = next(over, None)
            return None if place is None else (place, self._spans.pop(place))


def _told(span: _Span) -> str:
    """
    >>> _told(_Span(datetime(2026, 1, 1), count=12, names=["ann", "bob"]))
    'Wrong user name or password: 2 more since 2026-01-01 00:00:00, for ann, bob.'
    """
    shown = [name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…" for name in span.names[:_NAMED]]
    more = " and others" if len(span.names) > _NAMED else ""
    since = f"{span.began:%Y-%m-%d %H:%M:%S}"
    return f"Wrong user name or password: {span.unwritten} more since {since}, for {', '.join(shown)}{more}."
