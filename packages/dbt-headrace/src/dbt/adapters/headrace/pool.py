"""The sessions that dbt's threads take and give back, and the embedded lake behind them."""

from __future__ import annotations

import getpass
import threading
from typing import TYPE_CHECKING, Any

from dbt.adapters.headrace.credentials import HeadraceCredentials
from dbt.adapters.headrace.sessions import EmbeddedSession, RemoteSession, Session
from headrace.errors import Cancelled, UserError

if TYPE_CHECKING:
    from headrace.client import RemoteLake
    from headrace.client.http import Http
    from headrace.engine import Lake
    from headrace.security.roles import Principal


_LOGIN_HINT = (
    "Check username and password, or token, of this target in profiles.yml, and the variables that it takes them from. "
    "An administrator can set a new password: ALTER USER name SET PASSWORD '…'."
)


class Sessions:
    """The sessions that no thread uses at the moment, and the embedded lake behind them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: dict[tuple[Any, ...], list[Session]] = {}
        self._doors: dict[tuple[Any, ...], Http] = {}
        """To servers: one login is enough for all sessions of a profile."""
        self._lake: Lake | None = None
        self._path = ""
        self._only_for: int | None = None
        """After an interrupt, the thread that still gets sessions: nodes that had not begun do not begin."""

    def take(self, credentials: HeadraceCredentials) -> Session:
        """A session for one thread: one that is free, or a new one."""
        if self._only_for not in (None, threading.get_ident()):
            raise Cancelled("dbt was interrupted.")
        key = _key(credentials)
        with self._lock:
            free = self._free.get(key)
            found = free.pop() if free else None
        session = found or self._begun(credentials)
        try:
            session.begin_node()
        except BaseException:
            session.close()
            raise
        return session

    def give_back(self, credentials: HeadraceCredentials, session: Session) -> None:
        if session.has_state:
            session.close()
            return
        with self._lock:
            self._free.setdefault(_key(credentials), []).append(session)

    def interrupt(self) -> None:
        """From now on, until all are closed, only this thread gets sessions."""
        self._only_for = threading.get_ident()

    def close_all(self) -> None:
        """End what no thread uses, and close the embedded lake: another process may want it."""
        with self._lock:
            left = [session for sessions in self._free.values() for session in sessions]
            self._free.clear()
            doors = list(self._doors.values())
            self._doors.clear()
            lake, self._lake = self._lake, None
            self._only_for = None
        for session in left:
            session.close()
        for door in doors:
            door.close()
        if lake is not None:
            lake.close()

    def _begun(self, credentials: HeadraceCredentials) -> Session:
        from headrace.client import RemoteLake

        if not credentials.is_embedded:
            lake = RemoteLake(self._door(credentials), vcluster=credentials.vcluster)
            return RemoteSession(credentials, lake)
        with self._lock:
            opened = self._opened(credentials)
            if isinstance(opened, RemoteLake):
                return self._through_server(credentials, opened)
            return EmbeddedSession(
                credentials,
                opened.session(_owner(), vcluster=credentials.vcluster, guarded=False),
                opened.settings,
            )

    def _door(self, credentials: HeadraceCredentials) -> Http:
        """To be closed by whoever gets it."""
        from headrace.client.http import Http, trusting

        with self._lock:
            key = _key(credentials)
            if key not in self._doors:
                self._doors[key] = Http(
                    credentials.service,
                    username=credentials.username,
                    password=credentials.password,
                    token=credentials.token,
                    trust=trusting(credentials.ca_file),
                    login_hint=_LOGIN_HINT,
                )
            return self._doors[key].shared()

    def _through_server(self, credentials: HeadraceCredentials, lake: RemoteLake) -> Session:
        """A server holds the folder: the session is one of the server's, on the virtual cluster of the profile."""
        session = RemoteSession(credentials, lake)
        try:
            if credentials.vcluster is not None:
                lake.use_vcluster(credentials.vcluster)
        except BaseException:
            session.close()
            raise
        return session

    def _opened(self, credentials: HeadraceCredentials) -> Lake | RemoteLake:
        """The lake in its folder. While a server holds it, each session is one of the server's."""
        from headrace import opening
        from headrace.engine import Lake

        path = credentials.instance or "lake"
        if self._lake is not None:
            if path != self._path:
                raise UserError(
                    f"This process has the lake {self._path} open already.", hint="Use one embedded lake at a time."
                )
            return self._lake
        lake = opening.open(path, username=credentials.username, password=credentials.password, token=credentials.token)
        if isinstance(lake, Lake):
            self._lake, self._path = lake, path
        return lake


def _owner() -> Principal:
    """Whoever opens a lake's folder may do everything in it."""
    from headrace.security.roles import Principal

    return Principal(getpass.getuser(), "admin", unlimited=True)


def _key(credentials: HeadraceCredentials) -> tuple[Any, ...]:
    return (
        credentials.service, credentials.instance, credentials.database, credentials.schema, credentials.vcluster,
        credentials.username, credentials.password, credentials.token, credentials.query_tag, credentials.ca_file,
    )  # fmt: skip
