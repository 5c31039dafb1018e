"""The sessions of clients: each belongs to one user, and ends when nobody used it for long enough."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from headrace.errors import NotFound, TooBusy
from headrace.security.roles import Principal, Role, lesser
from headrace.server.auth import now
from headrace.server.models import SessionInfo
from headrace.server.problems import sound
from headrace.server.statements import Statements

if TYPE_CHECKING:
    from headrace.lake_session import LakeSession

SESSIONS_PER_USER = 100


@dataclass
class OpenSession:
    id: str
    user: Principal
    session: LakeSession
    used: float
    login: str = ""
    """The digest of the token by which its user came."""
    created_at: datetime = field(default_factory=now)


class Sessions:
    """All open sessions. Another user's are as if they were not there."""

    def __init__(self, statements: Statements, *, zone: str, idle_seconds: float, clock: Callable[[], float]) -> None:
        self._zone = zone
        self._statements = statements
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[str, OpenSession] = {}
        self._count: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, user: Principal, begin: Callable[[str], LakeSession], *, login: str = "") -> OpenSession:
        """Have `begin` make a session under a new id. Blocks until Spark has made it."""
        with self._lock:
            if self._count[user.name] >= SESSIONS_PER_USER:
                raise TooBusy(
                    f"{user.name} has {SESSIONS_PER_USER} open sessions.",
                    hint="End those that are not needed: DELETE /v1/sessions/{session_id}.",
                    retry_after=10.0,
                )
            self._count[user.name] += 1
        session_id = uuid.uuid4().hex
        try:
            made = OpenSession(session_id, user, begin(session_id), self._clock(), login)
        except BaseException:
            self._one_less(user.name)
            raise
        with self._lock:
            self._open[session_id] = made
        return made

    def find(self, session_id: str, user: Principal) -> OpenSession:
        """The user's own session; using it keeps it open."""
        with self._lock:
            found = self._open.get(session_id)
            if found is None or found.user != user:
                raise NotFound(
                    "There is no such session of yours.",
                    hint="It may have ended: one that is not used for long, and all when the server restarts.",
                )
            found.used = self._clock()
            return found

    def is_open(self, session: OpenSession) -> bool:
        with self._lock:
            return session.id in self._open

    def login_of(self, session_id: str | None, user: str) -> str | None:
        """The login behind a session of the user; None for other sessions."""
        with self._lock:
            found = self._open.get(session_id or "")
            return found.login if found is not None and found.user.name == user else None

    def of(self, user: Principal) -> list[OpenSession]:
        with self._lock:
            return [session for session in self._open.values() if session.user == user]

    def touch(self, session_id: str) -> None:
        """Its client is still there, waiting for a statement."""
        with self._lock:
            if session_id in self._open:
                self._open[session_id].used = self._clock()

    def end(self, session: OpenSession) -> None:
        """Let go of it, so that nothing more begins in it, and cancel what it runs. Ending twice does nothing."""
        with self._lock:
            if self._open.pop(session.id, None) is None:
                return
        self._one_less(session.user.name)
        session.session.close()
        for statement in self._statements.of_session(session.id):
            statement.cancel()

    def end_idle(self) -> None:
        limit = self._clock() - self._idle_seconds
        with self._lock:
            idle = [session for session in self._open.values() if session.used < limit]
        for session in idle:
            if not self._statements.of_session(session.id):
                self.end(session)

    def end_unlike(self, user: str, role: Role | None) -> None:
        """The user has this role from now on, or is gone: sessions that began with another one end. A token may have a
        smaller role than its user: its sessions end when they may more than the user."""
        with self._lock:
            unlike = [s for s in self._open.values() if s.user.name == user and not _still_fits(s.user, role)]
        for session in unlike:
            self.end(session)

    def described(self, session: OpenSession) -> SessionInfo:
        return SessionInfo(
            session_id=session.id,
            schema=sound(session.session.schema),
            vcluster=sound(session.session.vcluster),
            timezone=self._zone,
            created_at=session.created_at,
            running=len(self._statements.of_session(session.id)),
        )

    def _one_less(self, user: str) -> None:
        with self._lock:
            self._count[user] -= 1
            if self._count[user] <= 0:
                del self._count[user]


def _still_fits(user: Principal, role: Role | None) -> bool:
    if role is None:
        return False
    return user.role == (lesser(user.role, role) if user.by_token else role)
