"""Messages to a real web server and a real mail server of this machine."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import time
import traceback
from collections.abc import Iterator
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.alerts import sending
from headrace.alerts.messages import Message
from headrace.alerts.sending import Address, Sender, Undelivered
from headrace.alerts.targets import parse_target
from headrace.settings import Settings
from receivers import Certificate, Mailserver, Web, answering, mail_receiver, new_certificate, web_receiver

NOW = datetime(2025, 3, 30, 12, tzinfo=timezone.utc)
HERE = ipaddress.ip_address("127.0.0.1")
MESSAGE = Message("i1-open", None, NOW, "[headrace lake] FAILURE: ü", "It failed: ü\n.\nsecond line", {"state": "OPEN"})
ANSWER = Message("i1-closed", "i1-open", NOW, "over", "It works.", {"state": "CLOSED"})


@pytest.fixture
def web() -> Iterator[Web]:
    with web_receiver() as web:
        yield web


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return new_certificate(tmp_path_factory.mktemp("tls"))


def at(*addresses: str) -> Any:
    """Resolves every name to these, and counts how often it was asked."""

    class Resolver:
        asked = 0

        def __call__(self, host: str, port: int) -> list[Address]:
            self.asked += 1
            return [ipaddress.ip_address(each) for each in addresses]

    return Resolver()


def private(**given: Any) -> Settings:
    return Settings(alert_private_hosts=True, **given)


def failure(sender: Sender, target: str, message: Message = MESSAGE) -> Undelivered:
    with pytest.raises(Undelivered) as caught:
        sender.send(parse_target(target), message)
    return caught.value


# ---------------------------------------------------------------------- webhooks


def test_a_webhook_gets_text_and_fields(web: Web) -> None:
    Sender(private()).send(parse_target(web.url("/services/T/B?x=%20y")), MESSAGE)
    (got,) = web.got
    assert got.path == "/services/T/B?x=%20y"
    assert got.body == {"text": MESSAGE.text, "state": "OPEN"}
    assert got.headers["Content-Type"] == "application/json"
    assert got.headers["Host"] == f"127.0.0.1:{web.port}"
    assert "Authorization" not in got.headers


def test_a_user_in_the_address_logs_in(web: Web) -> None:
    Sender(private(), resolver=at("127.0.0.1")).send(parse_target(f"http://ann:p%40ss@hooks.test:{web.port}/"), MESSAGE)
    assert web.got[0].headers["Authorization"] == "Basic YW5uOnBAc3M="
    assert web.got[0].headers["Host"] == f"hooks.test:{web.port}"


def test_the_name_is_resolved_once_and_that_address_is_used(web: Web) -> None:
    resolver = at("127.0.0.1")
    Sender(private(), resolver=resolver).send(parse_target(web.url(host="nowhere.invalid")), MESSAGE)
    assert resolver.asked == 1
    assert len(web.got) == 1


def test_a_second_address_is_tried_when_the_first_has_nobody(web: Web) -> None:
    resolver = at("127.0.0.2", "127.0.0.1")
    Sender(private(), resolver=resolver).send(parse_target(web.url(host="hooks.test")), MESSAGE)
    assert len(web.got) == 1


@pytest.mark.parametrize("addresses", [("127.0.0.1",), ("1.1.1.1", "127.0.0.1"), ("::ffff:127.0.0.1",), ("10.0.0.1",)])
def test_names_of_private_addresses_are_refused(web: Web, addresses: tuple[str, ...]) -> None:
    found = failure(Sender(Settings(), resolver=at(*addresses)), web.url(host="hooks.test", scheme="https"))
    assert "private network" in str(found)
    assert found.away
    assert not web.got


def test_numbers_that_mean_this_machine_are_refused(web: Web) -> None:
    assert "private network" in str(failure(Sender(Settings()), f"https://2130706433:{web.port}/"))
    assert "private network" in str(failure(Sender(Settings()), f"https://0x7f.1:{web.port}/"))
    assert not web.got


def test_without_tls_messages_stay_in_one_s_own_network() -> None:
    assert "own network only" in str(failure(Sender(private(), resolver=at("1.1.1.1")), "http://hooks.test/"))


def test_a_name_that_nobody_knows() -> None:
    def unknown(host: str, port: int) -> list[Address]:
        raise OSError("canary")

    found = failure(Sender(private(), resolver=unknown), "https://hooks.test/canary")
    assert str(found) == "the address of hooks.test cannot be found"
    assert "cannot be found" in str(failure(Sender(private(), resolver=at()), "https://hooks.test/"))


def test_tls_is_for_the_name_and_not_for_the_address(certificate: Certificate) -> None:
    with web_receiver(certificate.serving()) as web:
        sender = Sender(private(), resolver=at("127.0.0.1"), trust=certificate.trusting())
        sender.send(parse_target(web.url("/x", host="hooks.test", scheme="https")), MESSAGE)
        assert [got.path for got in web.got] == ["/x"]
        wrong = failure(sender, web.url("/canary", host="other.test", scheme="https"))
        assert "its certificate is not trusted" in str(wrong)
        stranger = Sender(private(), resolver=at("127.0.0.1"))
        assert "its certificate is not trusted" in str(failure(stranger, web.url(host="hooks.test", scheme="https")))
        assert len(web.got) == 1


def test_who_speaks_no_tls(web: Web) -> None:
    sender = Sender(private(), resolver=at("127.0.0.1"))
    assert "no TLS" in str(failure(sender, web.url(host="hooks.test", scheme="https")))


def test_redirects_are_not_followed(web: Web) -> None:
    with web_receiver() as other:
        web.answer = answering(307, Location=other.url("/canary"))
        found = failure(Sender(private()), web.url())
        assert str(found) == "it answered 307 Temporary Redirect, and redirects are not followed"
        assert not other.got


@pytest.mark.parametrize(
    ("status", "told", "away"),
    [(400, "400 Bad Request", False), (404, "404 Not Found", False), (429, "429 Too Many Requests", True),
     (503, "503 Service Unavailable", True), (599, "599", True)],
)  # fmt: skip
def test_answers(web: Web, status: int, told: str, away: bool) -> None:
    web.answer = answering(status)
    found = failure(Sender(private()), web.url("/canary"))
    assert (str(found), found.away) == (f"it answered {told}", away)


def test_nobody_there(web: Web) -> None:
    found = failure(Sender(private(), resolver=at("127.0.0.2", "127.0.0.3")), web.url(host="hooks.test"))
    assert str(found) == "no connection (connection refused)"
    assert found.away


def test_an_answer_is_not_read_for_ever(web: Web) -> None:
    written = 0

    def endless(handler: BaseHTTPRequestHandler) -> None:
        nonlocal written
        handler.send_response(200)
        handler.end_headers()
        with contextlib.suppress(OSError):
            for _ in range(10_000):
                written += handler.wfile.write(b"x" * 65536)

    web.answer = endless
    Sender(private()).send(parse_target(web.url()), MESSAGE)
    assert written < 10_000 * 65536


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK\r\nX: ", b"", b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n"])
def test_who_answers_a_byte_at_a_time_is_not_waited_for(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch, start: bytes, scheme: str
) -> None:
    monkeypatch.setattr(sending, "SECONDS", 0.5)

    def dribbling(handler: BaseHTTPRequestHandler) -> None:
        with contextlib.suppress(OSError):
            handler.wfile.write(start)
            for _ in range(600):
                handler.wfile.write(b"x")
                time.sleep(0.05)

    with web_receiver(certificate.serving() if scheme == "https" else None) as web:
        web.answer = dribbling
        began = time.monotonic()
        sender, url = Sender(private(), trust=certificate.trusting()), web.url(scheme=scheme)
        if b"\r\n\r\n" in start:  # Its status has come: the message is there, whatever the rest is.
            sender.send(parse_target(url), MESSAGE)
            assert time.monotonic() - began < 10
            return
        found = failure(sender, url)
        assert time.monotonic() - began < 10
    assert str(found).startswith("it did not answer within")


def test_what_is_no_web_server(web: Web) -> None:
    web.answer = lambda handler: handler.wfile.write(b"canary\r\n" * 10) and None
    assert str(failure(Sender(private()), web.url("/canary"))) == "it did not answer as a web server does"


@pytest.mark.parametrize("status", [200, 404, 500])
def test_no_part_of_an_address_is_told_or_logged(web: Web, caplog: pytest.LogCaptureFixture, status: int) -> None:
    web.answer = answering(status)
    address = web.url("/canary?canary=canary").replace("//", "//canary:canary@")
    with caplog.at_level(logging.DEBUG):
        if status == 200:
            Sender(private()).send(parse_target(address), MESSAGE)
        else:
            told = failure(Sender(private()), address)
            assert "canary" not in "".join(traceback.format_exception(told))
    assert web.got
    assert "canary" not in caplog.text
    with httpx.Client() as other, caplog.at_level(logging.DEBUG):
        other.post(web.url("/another"), json={})
    assert "/another" in caplog.text, "requests of others are logged as ever"


# ---------------------------------------------------------------------- mail


def mailing(server: Mailserver, **given: Any) -> Settings:
    return Settings(smtp_host="127.0.0.1", smtp_port=server.port, smtp_from="headrace@lake.test", **given)


def test_a_mail() -> None:
    with mail_receiver() as server:
        sender = Sender(mailing(server))
        for message in (MESSAGE, ANSWER):
            sender.send(parse_target("mailto:ann@example.com"), message)
    first, second = server.got
    assert (first.sender, first.recipients) == ("headrace@lake.test", ["ann@example.com"])
    assert first.message["Subject"] == MESSAGE.subject
    assert first.message["From"] == "headrace@lake.test"
    assert first.message["To"] == "ann@example.com"
    assert first.message["Auto-Submitted"] == "auto-generated"
    assert first.message["Message-ID"] == "<i1-open@lake.test>"
    assert first.message["In-Reply-To"] is None
    assert first.message["Date"].datetime == NOW
    assert first.message.get_content().replace("\r\n", "\n").rstrip("\n") == MESSAGE.text
    assert second.message["Message-ID"] == "<i1-closed@lake.test>"
    assert second.message["In-Reply-To"] == second.message["References"] == "<i1-open@lake.test>"
    assert not first.encrypted


@pytest.mark.parametrize("how", ["auto", "starttls"])
def test_tls_is_used_where_it_is_offered_and_passwords_go_through_it(certificate: Certificate, how: str) -> None:
    with mail_receiver(certificate.serving(), login=("lake", "canary")) as server:
        given = mailing(server, smtp_username="lake", smtp_password="canary", smtp_tls=how)
        Sender(given, trust=certificate.trusting()).send(parse_target("mailto:ann@example.com"), MESSAGE)
        (got,) = server.got
        assert (got.encrypted, got.user) == (True, "lake")
        wrong = mailing(server, smtp_username="lake", smtp_password="wrong-canary")
        found = failure(Sender(wrong, trust=certificate.trusting()), "mailto:ann@example.com")
        assert str(found) == "the mail server does not know smtp_username and smtp_password"
        stranger = failure(Sender(given), "mailto:ann@example.com")
        assert "its certificate is not trusted" in str(stranger)
        assert len(server.got) == 1


def test_tls_from_the_first_byte_on(certificate: Certificate) -> None:
    with mail_receiver(certificate.serving(), always_tls=True) as server:
        sender = Sender(mailing(server, smtp_tls="tls"), trust=certificate.trusting())
        sender.send(parse_target("mailto:ann@example.com"), MESSAGE)
        assert server.got


@pytest.mark.filterwarnings("ignore:Requiring AUTH")
def test_a_password_is_not_sent_in_the_open() -> None:
    with mail_receiver(login=("lake", "canary")) as server:
        given = {"smtp_username": "lake", "smtp_password": "canary"}
        assert "a password is not sent without" in str(
            failure(Sender(mailing(server, **given)), "mailto:ann@example.com")
        )
        required = failure(Sender(mailing(server, smtp_tls="starttls")), "mailto:ann@example.com")
        assert str(required) == "the mail server offers no TLS, which smtp_tls asks for"
        assert not server.got
        Sender(mailing(server, smtp_tls="off", **given)).send(parse_target("mailto:ann@example.com"), MESSAGE)
        assert server.got[0].user == "lake"


@pytest.mark.parametrize(
    ("answer", "told"), [("550 No canary here", "does not take mail for it"), ("450 Later", "does not take mail")]
)
def test_mail_that_is_not_taken(answer: str, told: str) -> None:
    with mail_receiver() as server:
        server.refuses = answer
        found = failure(Sender(mailing(server)), "mailto:ann@example.com")
    assert told in str(found)
    assert "canary" not in str(found)


def test_no_mail_server_and_one_that_is_none(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "SECONDS", 0.5)
    with mail_receiver() as server:
        pass
    gone = failure(Sender(mailing(server)), "mailto:ann@example.com")
    assert str(gone) == "the mail server: no connection (connection refused)"
    other = Settings(smtp_host="127.0.0.1", smtp_port=web.port, smtp_from="h@lake.test")
    assert str(failure(Sender(other), "mailto:ann@example.com")).startswith("the mail server")
    assert "smtp_host" in str(failure(Sender(Settings()), "mailto:ann@example.com"))


def test_a_head_has_no_line_of_somebody_else_s() -> None:
    odd = Message("i", None, NOW, "a\r\nBcc: x@y.z", "t", {})
    with mail_receiver() as server, pytest.raises(ValueError, match="linefeed"):
        Sender(mailing(server)).send(parse_target("mailto:ann@example.com"), odd)
    assert not server.got


def test_the_lake_s_certificates_are_those_that_everybody_trusts(tmp_path: Path) -> None:
    context = Sender(Settings())._trust()
    assert context.check_hostname
    assert context.verify_mode.name == "CERT_REQUIRED"
