"""Who is asking: logins, API tokens and the local token.

A login lives in this process only, and only its digest does: a restart ends it, and so does a new password that is set
elsewhere.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Literal

from headrace.catalog.records import ApiToken, AuditEntry
from headrace.catalog.store import Store
from headrace.errors import EnvironmentFault, Unauthenticated
from headrace.security import passwords
from headrace.security.failed_logins import FailedLogins
from headrace.security.roles import LOCAL_USER, Principal, lesser
from headrace.security.throttling import LoginThrottle
from headrace.security.tokens import digest_of

LOGIN_LIFE = timedelta(hours=12)
_LOGINS_PER_USER = 1000
_TOKEN_LONGEST = 512
_TOUCH_EVERY = timedelta(minutes=1)
_log = logging.getLogger(__name__)


def now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(frozen=True)
class Caller:
    """Somebody who has shown who they are, and how."""

    principal: Principal
    kind: Literal["login", "token", "local"]
    digest: str


@dataclass(frozen=True)
class _Login:
    principal: Principal
    expires_at: datetime


class Logins:
    """The logins that hold now, by the digest of their tokens."""

    def __init__(self, clock: Callable[[], datetime] = now) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[str, _Login] = {}
        self._endings: dict[str, int] = {}

    def endings(self, user: str) -> int:
        """How often all logins of the user were ended. A login that began before the last time must not hold."""
        with self._lock:
            return self._endings.get(user, 0)

    def add(self, principal: Principal, endings: int, life: timedelta = LOGIN_LIFE) -> tuple[str, datetime]:
        """A new login's token and when it runs out."""
        token = f"hl_{secrets.token_urlsafe(32)}"
        expires_at = self._clock() + life
        with self._lock:
            if self._endings.get(principal.name, 0) != endings:
                raise _wrong_login()
            own = [digest for digest, login in self._held.items() if login.principal.name == principal.name]
            if len(own) >= _LOGINS_PER_USER:
                del self._held[own[0]]
            self._held[digest_of(token)] = _Login(principal, expires_at)
        return token, expires_at

    def find(self, digest: str) -> Principal | None:
        with self._lock:
            login = self._held.get(digest)
            return login.principal if login is not None and login.expires_at > self._clock() else None

    def end(self, digest: str) -> None:
        with self._lock:
            self._held.pop(digest, None)

    def end_all(self, user: str, *, but: str | None = None) -> None:
        """End the user's logins, `but` the one with this digest."""
        with self._lock:
            self._endings[user] = self._endings.get(user, 0) + 1
            self._held = {
                digest: held for digest, held in self._held.items() if held.principal.name != user or digest == but
            }

    def forget_expired(self) -> None:
        at = self._clock()
        with self._lock:
            self._held = {digest: login for digest, login in self._held.items() if login.expires_at > at}


class Authenticator:
    """Checks passwords and tokens. All but `known` ask the database, or take a while: not for the event loop."""

    def __init__(self, local_token: str, clock: Callable[[], datetime] = now) -> None:
        self.logins = Logins(clock)
        self._throttle = LoginThrottle(clock)
        self._failed = FailedLogins(clock)
        self._local = digest_of(local_token)
        self._clock = clock
        self._touching = threading.Lock()
        self._touched: dict[str, datetime] = {}
        """When the use of API tokens was last to be written down, by their ids."""

    def known(self, token: str) -> Caller | None:
        """Who bears this token, as far as that can be said without the database."""
        digest = digest_of(token)
        if hmac.compare_digest(digest, self._local):
            return Caller(Principal(LOCAL_USER, "admin"), "local", digest)
        principal = self.logins.find(digest)
        return None if principal is None else Caller(principal, "login", digest)

    def by_api_token(self, token: str, store: Store) -> Caller:
        digest, at = digest_of(token), self._clock()
        found, principal = self._held_token(digest, store, at)
        if self._wants_touch(found, at):
            try:
                store.users.touch_token(found.id, at)
            except EnvironmentFault as fault:
                _log.info("The use of a token was not written down: %s", fault.message)
        return Caller(principal, "token", digest)

    def _held_token(self, digest: str, store: Store, at: datetime) -> tuple[ApiToken, Principal]:
        found = store.users.token_by_digest(digest)
        if found is None or (found.expires_at is not None and found.expires_at <= at):
            raise _not_held()
        user = store.users.user(found.user)
        if user is None:
            raise _not_held()
        return found, Principal(user.name, lesser(user.role, found.role), by_token=True)

    def require_still(self, caller: Caller, store: Store) -> None:
        """Raise when the caller's login or token has ended since it was looked at, or gives another role now: between
        the head of a request and its work there may be a minute."""
        if caller.kind == "local":
            return
        if caller.kind == "login":
            present = self.logins.find(caller.digest)
        else:
            _, present = self._held_token(caller.digest, store, self._clock())
        if present is None:
            raise _not_held()
        if present != caller.principal:
            raise Unauthenticated(
                f"The role of {caller.principal.name} has changed since this request began.", hint="Send it again."
            )

    def _wants_touch(self, token: ApiToken, at: datetime) -> bool:
        """A write for every request would be too dear; also one that fails is tried again only after a while."""
        with self._touching:
            latest = max((each for each in (token.last_used, self._touched.get(token.id)) if each), default=None)
            if latest is not None and at - latest <= _TOUCH_EVERY:
                return False
            self._touched = {key: each for key, each in self._touched.items() if at - each <= _TOUCH_EVERY}
            self._touched[token.id] = at
            return True

    def turn(self, username: str, address: str) -> float:
        """The seconds after which this login may be tried."""
        return self._throttle.turn(username, address)

    def write_failures(self, store: Store, *, everything: bool = False) -> None:
        """Write down how many logins failed that have no line of their own in the audit log."""
        self._failed.write_sums(store.users.audit, everything=everything)

    def login(self, username: str, password: str, address: str, store: Store) -> tuple[str, datetime, Principal]:
        """A login's token, when it runs out, and whose it is."""
        name = username.lower()
        self._throttle.allow(name, address)
        endings = self.logins.endings(name)
        user = store.users.user(name)
        fits = passwords.matches(None if user is None else user.password_hash, password)
        if user is None or not fits:
            self._throttle.failed(name, address)
            line = self._failed.line(name, address)
            if line is not None:
                store.users.audit(line)
            raise _wrong_login()
        self._throttle.succeeded(name, address)
        principal = Principal(user.name, user.role)
        store.users.logged_in(user.name, self._clock())
        store.users.audit(_entry(self._clock(), user.name, address, "LOGIN", "By password."))
        token, expires_at = self.logins.add(principal, endings)
        return token, expires_at, principal


def bearer(header: str | None) -> str:
    """The token in an Authorization header."""
    kind, _, token = (header or "").partition(" ")
    token = token.strip()
    if not token or kind.lower() != "bearer":
        raise Unauthenticated(
            "This needs a login.", hint="Send the header `Authorization: Bearer <token>`; POST /v1/login gives a token."
        )
    if len(token) > _TOKEN_LONGEST:
        raise _not_held()
    return token


def _entry(at: datetime, user: str, address: str, action: str, detail: str) -> AuditEntry:
    return AuditEntry(at=at, user=user, address=address, action=action, detail=detail)


def _wrong_login() -> Unauthenticated:
    # The same words for both: who has an account here is nobody's business.
    return Unauthenticated("The user name or the password is wrong.", hint="An administrator can set a new password.")


def _not_held() -> Unauthenticated:
    return Unauthenticated(
        "This token is not known, or it has run out.", hint="Log in again, or make another with CREATE TOKEN."
    )
