"""Requests to a server: who asks, what is asked again when an answer is lost, and what never is.

A GET may be asked again. Anything else may have been done although its answer was lost, so it is sent once; only an
answer that says "who are you?" leads to a second time, because then nothing was done.
"""

from __future__ import annotations

import io
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from headrace.client.errors import from_body
from headrace.errors import BadSetting, HeadraceError, ServiceFault, Unauthenticated

if TYPE_CHECKING:
    import pyarrow as pa

PAUSES = (0.1, 0.3, 1.0, 2.0, 4.0)
"""Seconds before each further try of a GET."""

_ADDRESS = re.compile(r"https?://[^/@\s?#]+/?")
_PATIENCE = 30.0
_CONNECT_SECONDS = 10.0
_LONGEST_PAUSE = 5.0
# A server ends connections that nobody uses for 5 seconds; one that we take up again must not be just ending.
_KEPT_SECONDS = 3.0
_AWAY = (502, 503, 504)
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


def trusting(ca_file: str | Path | None) -> ssl.SSLContext | None:
    """Which certificates to believe: those that this file vouches for, or, without one, those that everybody does."""
    if ca_file is None:
        return None
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise BadSetting(
            f"The certificates in {ca_file} cannot be read: {error}.", hint="ca_file must be a file in PEM form."
        ) from None


def trusting_only(certificate: str | Path) -> ssl.SSLContext:
    """Believe exactly this certificate, whatever name it was made for."""
    context = trusting(certificate)
    assert context is not None
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def require_whole_login(username: str | None, password: str | None) -> None:
    """Half a login is a mistake: whoever names a user must not act as somebody else."""
    if (username is None) == (password is None):
        return
    missing = "password" if password is None else "username"
    whose = f"The user {username} is named" if password is None else "A password is given"
    raise BadSetting(
        f"{whose} without a {missing}.",
        hint=f"A username and a password belong together: give the {missing} (HEADRACE_{missing.upper()}) as well, "
        "or a token (HEADRACE_TOKEN) instead.",
    )


class Http:
    """A server's door. Threads may share it."""

    def __init__(
        self,
        url: str,
        *,
        username: str | None = None,
        password: str | None = None,
        token: str | None = None,
        trust: ssl.SSLContext | None = None,
        owner: bool = False,
        login_hint: str | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        if not _ADDRESS.fullmatch(url):
            raise BadSetting(
                f"'{url.rpartition('@')[2]}' is no address of a server.",
                hint="Write it as http://127.0.0.1:8910; a username and a password are given beside it.",
            )
        if token is not None:
            username = password = None  # One way of saying who asks is enough, and this one tells the least.
        require_whole_login(username, password)
        self.url = url.rstrip("/")
        self._given_hint = login_hint
        """What to do about a login that is refused, where it does not come from the usual variables."""
        self._owner = owner
        """Whether the token is the one that the lake's own server has left for programs of its machine."""
        self.acting = "the lake's owner" if owner else "a token's user" if token is not None else username
        """As whom requests are made, in words; None when nobody was named."""
        self._username, self._password, self._token = username, password, token
        self._pause = pause
        self._login_lock = threading.Lock()
        self._holders = 1
        try:
            self._client = httpx.Client(
                base_url=self.url,
                verify=True if trust is None else trust,
                timeout=httpx.Timeout(_PATIENCE, connect=_CONNECT_SECONDS),
                limits=httpx.Limits(keepalive_expiry=_KEPT_SECONDS),
                # The proxies of the surroundings do not lead to this machine itself.
                trust_env=not _is_here(self.url),
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise BadSetting(
                f"'{url}' is no address of a server: {error}.", hint="Write it as http://host:8910 or https://host."
            ) from None

    @property
    def logged_in(self) -> bool:
        """Whether a password was exchanged for a token here, which can be given back."""
        return self._password is not None and self._token is not None

    def get(self, path: str, *, wait_seconds: int | None = None) -> dict[str, Any]:
        """The answer's JSON. `wait_seconds` lets the server wait that long before it answers."""
        query = "" if wait_seconds is None else f"?wait_seconds={wait_seconds}"
        return _json(self._answer("GET", path + query, patience=_PATIENCE + (wait_seconds or 0)))

    def text(self, path: str) -> str:
        """The answer as it is."""
        return self._answer("GET", path).text

    def health(self) -> str:
        """What the server says of itself: ok, starting or degraded; `away` when none answers. Asks once."""
        try:
            return str(_json(self._client.get("/health", timeout=_CONNECT_SECONDS)).get("status", "away"))
        except (httpx.TransportError, ServiceFault):
            return "away"

    def post(self, path: str, body: Any = None, *, wait_seconds: int = 0) -> dict[str, Any]:
        return _json(self._answer("POST", path, body=body, patience=_PATIENCE + wait_seconds))

    def delete(self, path: str) -> None:
        self._answer("DELETE", path)

    def arrow(self, path: str, rows: int | None = None) -> pa.Table:
        """The rows of an answer in Arrow's stream form. If the connection breaks, they are fetched again; `rows` is
        how many there must be, since a stream that ends early can look like a whole one."""
        import pyarrow as pa

        for pause in (*PAUSES, None):
            response = self._answer("GET", path, streamed=True)
            reason = "it ended early"
            try:
                with pa.ipc.open_stream(io.BufferedReader(_Body(response.iter_bytes()), 1 << 20)) as reader:
                    table = reader.read_all()
                if rows is None or table.num_rows == rows:
                    return table
            except (httpx.TransportError, OSError, pa.ArrowInvalid) as error:
                reason = str(error) or type(error).__name__
            finally:
                response.close()
            if pause is not None:
                self._pause(pause)
        raise ServiceFault(
            f"The rows of a result could not be fetched from {self.url}: {reason}.",
            hint="Run the statement again; if the network breaks large results off, ask for fewer rows.",
        )

    def shared(self) -> Http:
        """The same door for one more who uses it, with the same login."""
        with self._login_lock:
            self._holders += 1
        return self

    def close(self) -> None:
        """Whoever uses it is done with it. The last one gives the login back, and the connections."""
        with self._login_lock:
            self._holders -= 1
            if self._holders > 0:
                return
        try:
            if self.logged_in:
                self.post("/v1/logout")
        except HeadraceError:
            pass  # A server that is gone has no logins, and one that cannot be reached ends them in time.
        finally:
            self._client.close()

    # ------------------------------------------------------------------ one request

    def _answer(
        self, method: str, path: str, *, body: Any = None, patience: float = _PATIENCE, streamed: bool = False
    ) -> httpx.Response:
        def request() -> httpx.Response:
            headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
            timeout = httpx.Timeout(patience, connect=_CONNECT_SECONDS)
            built = self._client.build_request(method, path, json=body, headers=headers, timeout=timeout)
            return self._client.send(built, stream=streamed)

        if self._token is None and self._password is not None:
            self._log_in(None)
        used = self._token
        response = self._tried(request) if method == "GET" else self._once(request)
        if response.status_code == 401 and self._password is not None:
            response.close()
            self._log_in(used)
            response = self._tried(request) if method == "GET" else self._once(request)
        if response.is_success:
            return response
        raise self._error(response)

    def _tried(self, request: Callable[[], httpx.Response]) -> httpx.Response:
        """Ask until there is an answer; a server that is away for a moment is asked again."""
        for pause in PAUSES:
            try:
                response = request()
            except httpx.TransportError:
                self._pause(pause)
                continue
            if response.status_code not in _AWAY:
                return response
            response.close()
            self._pause(max(pause, min(_retry_after(response) or 0.0, _LONGEST_PAUSE)))
        try:
            return request()
        except httpx.TransportError as error:
            raise self._lost(error) from error

    def _once(self, request: Callable[[], httpx.Response]) -> httpx.Response:
        try:
            return request()
        except httpx.TransportError as error:
            raise self._lost(error) from error

    def _lost(self, error: httpx.TransportError) -> ServiceFault:
        reason = str(error) or type(error).__name__
        if "WRONG_VERSION_NUMBER" in reason:
            return ServiceFault(
                f"The server at {self.url} does not speak HTTPS: {reason}.",
                hint=f"Write {self.url.replace('https://', 'http://', 1)}, if the network between can be trusted.",
            )
        if isinstance(error, _NOT_SENT):
            return ServiceFault(
                f"The server at {self.url} cannot be reached: {reason}.",
                hint="Check the address, and that the server runs: on its machine, `headrace up --lake …` starts it.",
            )
        return ServiceFault(
            f"The connection to the server at {self.url} was lost: {reason}.",
            hint="What was being run may have been done, or may still go on: SHOW JOBS tells.",
        )

    def _log_in(self, used: str | None) -> None:
        """Exchange the password for a token, unless another thread has done so since `used` was refused."""
        with self._login_lock:
            if self._token is not None and self._token != used:
                return
            self._token = None
            body = {"username": self._username, "password": self._password}
            response = self._once(lambda: self._client.post("/v1/login", json=body))
            if not response.is_success:
                raise self._error(response)
            token = _json(response).get("token")
            if not isinstance(token, str):
                raise _not_ours()
            self._token = token

    def _error(self, response: httpx.Response) -> HeadraceError:
        error = _told(response)
        if isinstance(error, Unauthenticated):
            # The server's own hint is for programs that speak HTTP themselves.
            error.hint = self._given_hint or self._login_hint()
        return error

    def _login_hint(self) -> str:
        if self._password is not None:
            return (
                "Check username and password (HEADRACE_USERNAME, HEADRACE_PASSWORD), or give a token (HEADRACE_TOKEN). "
                "An administrator can set a new password: ALTER USER name SET PASSWORD '…'."
            )
        if self._owner:
            return (
                "The server may have been started again: open the lake again. Or give username and password "
                "(HEADRACE_USERNAME, HEADRACE_PASSWORD), or a token (HEADRACE_TOKEN)."
            )
        if self._token is not None:
            return (
                "Check the token (HEADRACE_TOKEN): CREATE TOKEN makes another. Or give username and password "
                "(HEADRACE_USERNAME, HEADRACE_PASSWORD)."
            )
        return (
            "Give username and password, or token. For commands and headrace.open, the variables HEADRACE_USERNAME and "
            "HEADRACE_PASSWORD, or HEADRACE_TOKEN, do the same."
        )


class _Body(io.RawIOBase):
    """What arrives, as a file to read from."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._left = memoryview(chunk)
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


def _json(response: httpx.Response) -> dict[str, Any]:
    if not response.content:
        return {}
    try:
        body = response.json()
    except ValueError:
        raise _not_ours() from None
    if not isinstance(body, dict):
        raise _not_ours()
    return body


def _not_ours() -> ServiceFault:
    return ServiceFault(
        "What answered is not a Headrace server.", hint="Check the address and the port of the service."
    )


def _told(response: httpx.Response) -> HeadraceError:
    try:
        response.read()
        body = response.json()
    except (httpx.TransportError, ValueError):
        body = None
    finally:
        response.close()
    return from_body(body, status=response.status_code, retry_after=_retry_after(response))


def _retry_after(response: httpx.Response) -> float | None:
    try:
        return max(0.0, float(response.headers["Retry-After"]))
    except (KeyError, ValueError):  # It may also be a date, which we do not need.
        return None


def _is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")
