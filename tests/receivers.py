"""Local receivers of alerts: a web server and a mail server that keep what they get."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session


@dataclass
class Certificate:
    """For localhost, hooks.test and 127.0.0.1, and its own authority."""

    certificate: Path
    key: Path

    def serving(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.key)
        return context

    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.certificate))


def new_certificate(folder: Path) -> Certificate:
    made = Certificate(folder / "cert.pem", folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=receiver", "-days", "2"]
    names = ["-addext", "subjectAltName=DNS:localhost,DNS:hooks.test,IP:127.0.0.1"]
    files = ["-keyout", str(made.key), "-out", str(made.certificate)]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)
    return made


# ---------------------------------------------------------------------- the web


@dataclass
class Posted:
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Web:
    """`answer` may write whatever it likes; without one, everything is taken."""

    port: int = 0
    got: list[Posted] = field(default_factory=list)
    answer: Callable[[BaseHTTPRequestHandler], None] | None = None

    def url(self, path: str = "/", host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"


@contextmanager
def web_receiver(tls: ssl.SSLContext | None = None) -> Iterator[Web]:
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            web.got.append(Posted(self.path, dict(self.headers.items()), json.loads(body)))
            if web.answer is not None:
                web.answer(self)
                return
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """A client that hangs up is what some tests want."""

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    web.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def answering(status: int, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """An answer that repeats the path wherever it can, as some servers do."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status, f"No {handler.path}")
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(f"There is no {handler.path} here.".encode())

    return answer


# ---------------------------------------------------------------------- mail


@dataclass
class Mail:
    sender: str
    recipients: list[str]
    message: EmailMessage
    encrypted: bool
    user: str | None


@dataclass
class Mailserver:
    port: int
    got: list[Mail] = field(default_factory=list)
    refuses: str | None = None
    """An answer to every recipient."""

    async def handle_RCPT(  # noqa: N802
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.refuses is not None:
            return self.refuses
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        assert isinstance(envelope.content, bytes)
        message = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(message, EmailMessage)
        user = session.auth_data.decode() if session.auth_data else None
        encrypted = session.ssl is not None
        self.got.append(Mail(str(envelope.mail_from), list(envelope.rcpt_tos), message, encrypted, user))
        return "250 Taken"


@contextmanager
def mail_receiver(
    tls: ssl.SSLContext | None = None, *, login: tuple[str, str] | None = None, always_tls: bool = False
) -> Iterator[Mailserver]:
    """With `tls` it offers STARTTLS, or speaks TLS from the first byte on (`always_tls`)."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    mails = Mailserver(port)

    def authenticated(server: SMTP, session: Session, envelope: Envelope, how: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        if (data.login.decode(), data.password.decode()) != login:
            return AuthResult(success=False, handled=False)
        return AuthResult(success=True, auth_data=data.login)

    controller = Controller(
        mails,
        hostname="127.0.0.1",
        port=port,
        ssl_context=tls if always_tls else None,
        tls_context=None if always_tls else tls,
        authenticator=authenticated if login else None,
        auth_required=login is not None,
        auth_require_tls=tls is not None and not always_tls,
    )
    controller.start()
    try:
        yield mails
    finally:
        controller.stop()
