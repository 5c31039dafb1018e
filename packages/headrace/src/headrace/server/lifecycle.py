"""A server's life: it listens, opens its lake, serves, and stops within half a minute of being asked.

It listens first, because Spark takes many seconds to start: whoever asks meanwhile is told so. The lake is opened in a
thread of its own, so that a stop is heard at any moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import uvicorn

from headrace.engine import Lake
from headrace.errors import BadSetting, Cancelled, EnvironmentFault
from headrace.security.roles import LOCAL_USER
from headrace.server import logs
from headrace.server.app import build
from headrace.server.gates import MOST_CONNECTIONS
from headrace.server.listening import bound
from headrace.server.service import Service
from headrace.settings import Settings
from headrace.storage import address
from headrace.storage.lock import LakeLock, holder

GRACE_SECONDS = 10.0
"""How long statements may go on after a stop was asked for."""
_CANCEL_SECONDS = 2.0
_CONNECTIONS_SECONDS = 2
_LAST_CONNECTION = MOST_CONNECTIONS + 100
"""uvicorn's own limit, for what comes faster than it can be told: its answer is plain text."""
_IDLE_SECONDS = 30.0
"""So long a connection may be without a request."""
_CLOSE_SECONDS = 12.0
_LAST_MOMENT = 28.0
_LOOK_SECONDS = 0.05
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_log = logging.getLogger(__name__)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def serve(
    settings: Settings,
    *,
    say: Callable[[str], None] = _say,
    whisper: Callable[[str], None] | None = None,
    open_lake: Callable[[Settings], Lake] | None = None,
) -> None:
    """Serve the lake until SIGTERM or SIGINT. The first administrator's password, which is written down nowhere, goes
    to `whisper`, or to `say` as all else."""
    require_safe(settings)
    if settings.path.exists():  # Else nobody has it, and a port that is taken is to leave no folder behind.
        with LakeLock(settings.path):
            pass  # Before the port is tried: that another server has the lake says more than that its port is taken.
    before = os.umask(0o077)  # What the server writes is its user's alone.
    try:
        with logs.to_stderr():
            Serving(settings, say, whisper or say, open_lake).run()
    finally:
        os.umask(before)


class Serving:
    """One run of a server. Signals are heard when it runs in the main thread; `stop` works from any."""

    def __init__(
        self,
        settings: Settings,
        say: Callable[[str], None],
        whisper: Callable[[str], None],
        open_lake: Callable[[Settings], Lake] | None,
    ) -> None:
        self._settings = settings
        self._say = say
        self._whisper = whisper
        self._open_lake = open_lake or (lambda chosen: Lake(chosen, wanted=self._require_wanted))
        self._service = Service(settings)
        self._lake: Lake | None = None
        self._failure: BaseException | None = None
        self._asked = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._last_moment: threading.Timer | None = None

    def run(self) -> None:
        listening = bound(self._settings.host, self._settings.port)
        opening = threading.Thread(target=self._open, name="open-lake", daemon=True)
        with self._signals():
            try:
                asyncio.run(self._serve(listening, opening))
            finally:
                listening.close()
                address.remove(self._settings.path)
                self._close(opening)
                _log.info("Stopped.")
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Ask for the end. Asking again does nothing."""
        self._asked.set()
        if self._loop is not None and self._wake is not None:
            with contextlib.suppress(RuntimeError):  # The loop has ended already.
                self._loop.call_soon_threadsafe(self._wake.set)

    # ------------------------------------------------------------------ serving

    async def _serve(self, listening: socket.socket, opening: threading.Thread) -> None:
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if self._asked.is_set():
            return
        url = url_of(self._settings, listening)
        self._service.url = url
        server = _Server(_configuration(self._settings, self._service))
        self._service.connections = lambda: len(server.server_state.connections)
        logging.getLogger("uvicorn.error").addFilter(_is_news)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        serving.add_done_callback(lambda _: self.stop())
        self._say(f"Listening on {url}. Starting Spark …")
        _log.info("Listening on %s as process %s; the lake is %s.", url, os.getpid(), self._settings.path)
        opening.start()
        beside = [asyncio.create_task(self._publish(server, url)), asyncio.create_task(close_idle(server))]
        await self._wake.wait()
        for task in beside:
            task.cancel()
        if self._failure is None:
            self._say("Stopping …")
            _log.info("Stopping.")
        await self._service.drain(GRACE_SECONDS, _CANCEL_SECONDS)
        address.remove(self._settings.path)
        server.should_exit = True
        await serving

    async def _publish(self, server: uvicorn.Server, url: str) -> None:
        """Write the address as soon as we listen and hold the lake: it would be another server's file before."""
        path = self._settings.path
        while not (server.started and (held := holder(path)) is not None and held.pid == os.getpid()):
            await asyncio.sleep(_LOOK_SECONDS)
        certificate = self._settings.tls_certificate
        shown = None if certificate is None else str(certificate)
        try:
            address.write(path, address.Address(url, os.getpid(), self._service.local_token, shown))
        except EnvironmentFault as fault:
            self._fail(fault)

    def _open(self) -> None:
        """In a thread of its own."""
        try:
            self._lake = self._open_lake(self._settings)
            self._lake.task_access = self._service.task_access
            self._lake.keep_spark_alive()
            self._lake.loads.start()
            self._lake.compute.keep_tidy()
            if self._settings.scheduler:
                self._lake.start_scheduler(guarded=True)
            password = self._service.begin(self._lake)
        except BaseException as error:
            if not (isinstance(error, Cancelled) and self._asked.is_set()):
                self._fail(error)
            return
        if password is not None:
            self._whisper(
                f"This is the first start. The administrator is {LOCAL_USER}, the password {password}\n"
                f"It is shown only now. ALTER USER {LOCAL_USER} SET PASSWORD '…' changes it."
            )
        _log.info("Ready.")
        self._say("Ready.")

    def _require_wanted(self) -> None:
        """Raise when a stop was asked for: there is no use in a lake then."""
        if self._asked.is_set():
            raise Cancelled("The server was stopped while it started.")

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self.stop()

    # ------------------------------------------------------------------ stopping

    def _close(self, opening: threading.Thread) -> None:
        if opening.ident is not None:
            opening.join()  # What is half open cannot be closed.
        if self._lake is not None:
            try:
                # While the lake is ours: the next server has results of its own in the same place.
                self._service.statements.files.discard()
            except EnvironmentFault as fault:
                _log.error("%s", fault.message)
            try:
                self._lake.close(_CLOSE_SECONDS)
            except Exception:
                _log.exception("The lake was not closed as it should be; the next start repairs what is left.")
        if self._last_moment is not None and not _something_holds_up_the_exit():
            self._last_moment.cancel()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self._last_moment is None:
            # A thread can be stuck where nothing reaches it, in Java or in a system call.
            self._last_moment = threading.Timer(_LAST_MOMENT, os._exit, (1,))
            self._last_moment.daemon = True
            self._last_moment.start()
        elif number == signal.SIGINT:
            os._exit(1)  # Somebody at the keyboard who does not want to wait.
        self.stop()


def _is_news(record: logging.LogRecord) -> bool:
    """That a request was cut because the server stops is no error to report."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or not issubclass(kind, (asyncio.CancelledError, ConnectionAbortedError))


async def close_idle(server: uvicorn.Server, patience: float = _IDLE_SECONDS, look: float = _IDLE_SECONDS / 3) -> None:
    """Until cancelled: close connections over which no request has come for so long, or only a part of one. uvicorn
    closes those alone that have had an answer; the others would count against the limit of connections for ever."""
    since: dict[Any, float] = {}
    while True:
        await asyncio.sleep(look)
        now = time.monotonic()
        waiting = {each for each in server.server_state.connections if not _has_request(each)}
        since = {each: since.get(each, now) for each in waiting}
        for connection, begun in since.items():
            if now - begun >= patience:
                connection.transport.close()


def _has_request(connection: Any) -> bool:
    return connection.cycle is not None and not connection.cycle.response_complete


class _Server(uvicorn.Server):
    """Signals are ours: uvicorn would close connections before statements had their time."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


# ---------------------------------------------------------------------- settings


def require_safe(settings: Settings) -> None:
    """Refuse to listen where passwords would cross a network in the clear."""
    if settings.tls_certificate is None:
        if settings.tls_key is not None:
            raise BadSetting(
                "There is a tls_key without a tls_certificate.", hint="Set both; or neither, for this machine only."
            )
        if not _is_loopback(settings.host) and not settings.allow_insecure:
            raise BadSetting(
                f"The server would listen on {settings.host} without TLS: passwords and rows could be read on the way.",
                hint="Set tls_certificate and tls_key, or host = 127.0.0.1. Behind a proxy that speaks TLS, "
                "allow_insecure = true.",
            )
        return
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A key with a passphrase would otherwise be asked for at the terminal.
        context.load_cert_chain(settings.tls_certificate, settings.tls_key, password=lambda: "")
    except (OSError, ValueError) as error:  # ssl's own errors are OSErrors.
        raise BadSetting(
            f"The certificate and key cannot be used: {error}.",
            hint="tls_certificate and tls_key must be readable files in PEM form that belong together, the key without "
            "a passphrase.",
        ) from None


def url_of(settings: Settings, listening: socket.socket) -> str:
    """Where programs of this machine find the server."""
    host = settings.host
    if host in _EVERYWHERE:
        # With TLS the name must be one that the certificate is for.
        named = settings.server_hosts[:1] if settings.tls_certificate is not None else ()
        host = named[0] if named else _EVERYWHERE[host]
    shown = f"[{host}]" if ":" in host else host
    return f"{'http' if settings.tls_certificate is None else 'https'}://{shown}:{listening.getsockname()[1]}"


def _configuration(settings: Settings, service: Service) -> uvicorn.Config:
    return uvicorn.Config(
        build(service),
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        # Anybody can send them; the audit log and the throttle of logins believe those alone who are named.
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_graceful_shutdown=_CONNECTIONS_SECONDS,
        limit_concurrency=_LAST_CONNECTION,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
    )


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _something_holds_up_the_exit() -> bool:
    """Python waits at its end for threads that are no daemons."""
    here = threading.current_thread()
    return any(not thread.daemon and thread is not here for thread in threading.enumerate())
