"""Delivering one message to one webhook or mailbox.

A webhook's host is resolved once, every address that it has is judged, and the connection goes to one of these: what
the name means a moment later does not matter. Nothing that a receiver says is passed on, for it may repeat its address,
which is a secret; nor is the address: `Undelivered` is worded here.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import http
import ipaddress
import logging
import os
import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from typing import Any
from urllib.parse import unquote

import httpx

from headrace.alerts.messages import Message
from headrace.alerts.targets import Address, Mailbox, Target, Webhook, require_allowed, require_allowed_address
from headrace.errors import HeadraceError
from headrace.settings import Settings

SECONDS = 10.0
"""How long one delivery may take."""
ANSWER_BYTES = 64 * 1024
"""How much of an answer is read, at most. It is not looked at."""

_MOST_ADDRESSES = 3
_NOT_THE_MESSAGE = (408, 425, 429)
_TLS_PORT = 465


class Undelivered(Exception):
    """Why a message did not arrive. `away` means that no other message would have arrived either."""

    def __init__(self, reason: str, *, away: bool) -> None:
        super().__init__(reason)
        self.away = away


def resolve(host: str, port: int) -> list[Address]:
    """Every address of a host, those to try first in front."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(ipaddress.ip_address(str(place[4][0])) for place in found))


class Sender:
    """Sends in the caller's thread. A webhook keeps it for `SECONDS` at most, and as long as its name takes to resolve;
    the mail server, whom the settings name and nobody else, for as long at each step."""

    def __init__(
        self,
        settings: Settings,
        *,
        resolver: Callable[[str, int], list[Address]] = resolve,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self._settings = settings
        self._resolver = resolver
        self._trusted = trust

    def send(self, target: Target, message: Message) -> None:
        """Return when the receiver has taken the message; raise Undelivered otherwise."""
        try:
            require_allowed(target, self._settings)
            if isinstance(target, Mailbox):
                self._mail(target, message)
            else:
                self._post(target, message)
        except HeadraceError as error:
            raise Undelivered(error.message, away=True) from None

    # ------------------------------------------------------------------ webhooks

    def _post(self, target: Webhook, message: Message) -> None:
        deadline = time.monotonic() + SECONDS
        *others, last = self._addresses(target)
        for address in others:
            with contextlib.suppress(httpx.ConnectError, httpx.ConnectTimeout):
                self._judge(self._status(target, address, message, deadline))
                return
        try:
            self._judge(self._status(target, last, message, deadline))
        except httpx.ConnectError as error:
            raise Undelivered(_why_not_connected(error), away=True) from None
        except httpx.ConnectTimeout:
            raise Undelivered(f"there was no connection within {SECONDS:.0f} seconds", away=True) from None

    def _addresses(self, target: Webhook) -> list[Address]:
        try:
            found = self._resolver(target.host, target.url.port or _usual_port(target))[:_MOST_ADDRESSES]
        except (OSError, UnicodeError, ValueError):
            found = []
        if not found:
            raise Undelivered(f"the address of {target.host} cannot be found", away=True)
        for address in found:
            require_allowed_address(target, address, self._settings)
        return found

    def _status(self, target: Webhook, address: Address, message: Message, deadline: float) -> int:
        left = deadline - time.monotonic()
        if left <= 0:
            raise httpx.ConnectTimeout("")
        with _limited(left) as limit, _unlogged():
            # The transport itself is asked. A client around it would follow redirects and proxies, and write the URL
            # into the log.
            transport = httpx.HTTPTransport(verify=self._trust(), trust_env=False)
            try:
                with transport:
                    response = transport.handle_request(_request(target, address, message, left, limit.trace))
                    _drain(response)
                return response.status_code
            except (httpx.ConnectError, httpx.ConnectTimeout):
                raise
            except (httpx.HTTPError, httpx.StreamError, OSError):
                if limit.over:
                    raise Undelivered(f"it did not answer within {SECONDS:.0f} seconds", away=True) from None
                raise Undelivered("it did not answer as a web server does", away=True) from None

    def _judge(self, status: int) -> None:
        if 200 <= status < 300:
            return
        known = next((each.phrase for each in http.HTTPStatus if each == status), "")
        told = f"it answered {status} {known}".rstrip()
        if 300 <= status < 400:
            raise Undelivered(f"{told}, and redirects are not followed", away=True)
        # It may be this one message that it does not like: others are worth a try.
        raise Undelivered(told, away=status >= 500 or status in _NOT_THE_MESSAGE)

    def _trust(self) -> ssl.SSLContext:
        if self._trusted is None:
            self._trusted = httpx.create_ssl_context()
        return self._trusted

    # ------------------------------------------------------------------ mail

    def _mail(self, target: Mailbox, message: Message) -> None:
        mail = as_mail(message, sender=str(self._settings.smtp_from), recipient=target.address)
        try:
            with self._connected() as server:
                server.send_message(mail, self._settings.smtp_from, [target.address])
        except smtplib.SMTPRecipientsRefused:
            raise Undelivered("the mail server does not take mail for it", away=True) from None
        except smtplib.SMTPAuthenticationError:
            raise Undelivered("the mail server does not know smtp_username and smtp_password", away=True) from None
        except smtplib.SMTPResponseException as error:
            raise Undelivered(f"the mail server answered {error.smtp_code}", away=error.smtp_code < 500) from None
        except smtplib.SMTPException:
            raise Undelivered("the mail server did not answer as one does", away=True) from None
        except (OSError, UnicodeError) as error:
            raise Undelivered(f"the mail server: {_why_not_connected(error)}", away=True) from None

    @contextlib.contextmanager
    def _connected(self) -> Iterator[smtplib.SMTP]:
        settings = self._settings
        host, port, how = str(settings.smtp_host), settings.smtp_port, settings.smtp_tls
        if how == "tls" or (how == "auto" and port == _TLS_PORT):
            server: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=SECONDS, context=self._trust())
            encrypted = True
        else:
            server = smtplib.SMTP(host, port, timeout=SECONDS)
            encrypted = False
        with server:
            server.ehlo_or_helo_if_needed()
            if not encrypted and how != "off" and (how == "starttls" or server.has_extn("starttls")):
                if not server.has_extn("starttls"):
                    raise Undelivered("the mail server offers no TLS, which smtp_tls asks for", away=True)
                server.starttls(context=self._trust())
                server.ehlo()
                encrypted = True
            if settings.smtp_username is not None:
                if not encrypted and how != "off":
                    raise Undelivered("the mail server offers no TLS, and a password is not sent without", away=True)
                server.login(settings.smtp_username, settings.smtp_password or "")
            yield server


def as_mail(message: Message, *, sender: str, recipient: str) -> EmailMessage:
    """The message as a mail, which answers the one that it follows."""
    host = sender.rpartition("@")[2]
    mail = EmailMessage(policy=SMTP)
    mail["From"] = sender
    mail["To"] = recipient
    mail["Subject"] = message.subject
    mail["Date"] = format_datetime(message.at)
    mail["Message-ID"] = f"<{message.id}@{host}>"
    if message.follows is not None:
        mail["In-Reply-To"] = mail["References"] = f"<{message.follows}@{host}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(message.text)
    return mail


# ---------------------------------------------------------------------- one request


def _request(
    target: Webhook, address: Address, message: Message, seconds: float, trace: Callable[[str, Any], None]
) -> httpx.Request:
    """To the address, in the name of the host: for the certificate as for the server."""
    headers = {"Host": target.url.netloc.decode("ascii"), "User-Agent": "headrace", "Connection": "close"}
    if target.url.userinfo:
        user = unquote(target.url.userinfo.decode("ascii")).encode()
        headers["Authorization"] = f"Basic {base64.b64encode(user).decode('ascii')}"
    limits = dict.fromkeys(("connect", "read", "write", "pool"), seconds)
    extensions = {"timeout": limits, "trace": trace, "sni_hostname": target.host}
    url = target.url.copy_with(host=str(address), username=None, password=None)
    return httpx.Request(
        "POST", url, json={"text": message.text, **message.fields}, headers=headers, extensions=extensions
    )


def _usual_port(target: Webhook) -> int:
    return 443 if target.url.scheme == "https" else 80


def _drain(response: httpx.Response) -> None:
    """Take an answer of usual size, so that a receiver sees no broken connection. Its status has come already: what is
    wrong with the rest does not matter."""
    taken = 0
    with contextlib.suppress(httpx.HTTPError, httpx.StreamError, OSError):
        for piece in response.iter_raw(8192):
            taken += len(piece)
            if taken >= ANSWER_BYTES:
                break
        response.close()


class _Limit:
    """A request's time as a whole. httpx limits single steps: who sends a byte now and then would never be over."""

    def __init__(self) -> None:
        self.over = False
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []

    def trace(self, event: str, info: dict[str, Any]) -> None:
        """Told by httpx of every step."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            with self._lock:
                self._sockets.append(info["return_value"].get_extra_info("socket"))
            if self.over:
                self.end()

    def end(self) -> None:
        self.over = True
        with self._lock:
            for each in self._sockets:
                with contextlib.suppress(OSError):
                    # Of the plain socket: that of TLS would say goodbye first, and wait for an answer.
                    socket.socket.shutdown(each, socket.SHUT_RDWR)


@contextlib.contextmanager
def _limited(seconds: float) -> Iterator[_Limit]:
    limit = _Limit()
    timer = threading.Timer(seconds, limit.end)
    timer.daemon = True
    timer.start()
    try:
        yield limit
    finally:
        timer.cancel()


class _Discretion(logging.Filter):
    """What a receiver answers may repeat its address, and httpcore writes it into the log for those who debug."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not getattr(_here, "unlogged", False)


_here = threading.local()
for _name in ("httpcore.connection", "httpcore.http11"):
    logging.getLogger(_name).addFilter(_Discretion())


@contextlib.contextmanager
def _unlogged() -> Iterator[None]:
    """Until the block ends, requests of this thread leave no trace in the log."""
    _here.unlogged = True
    try:
        yield
    finally:
        _here.unlogged = False


def _why_not_connected(error: BaseException) -> str:
    """The reason behind an error, without any text that came over the network."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({seen.verify_message})"
        if isinstance(seen, ssl.SSLError):
            return "it speaks no TLS that is understood"
        if isinstance(seen, TimeoutError):
            return f"there was no connection within {SECONDS:.0f} seconds"
        if isinstance(seen, socket.gaierror):
            return "its address cannot be found"
        if isinstance(seen, OSError) and seen.errno is not None and seen.errno in errno.errorcode:
            return f"no connection ({os.strerror(seen.errno).lower()})"
        seen = seen.__cause__ or seen.__context__
    return "no connection"
