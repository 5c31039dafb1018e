"""Where alerts may go, and how addresses are kept."""

from __future__ import annotations

import ipaddress
import logging
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headrace.alerts.sealing import FILE_NAME, Seal, Unreadable
from headrace.alerts.targets import Mailbox, Webhook, is_private, parse_target, require_allowed
from headrace.errors import BadSetting, EnvironmentFault, NotAllowed
from headrace.settings import Settings


def settings(**given: Any) -> Settings:
    return Settings(**given)


# What is an address


@pytest.mark.parametrize(
    ("text", "host", "shown"),
    [
        ("https://hooks.test/services/canary", "hooks.test", "https://hooks.test/…"),
        ("https://canary:canary@Hooks.Test.:8443/canary?canary=canary", "hooks.test", "https://hooks.test:8443/…"),
        ("HTTPS://münchen.test/canary", "xn--mnchen-3ya.test", "https://xn--mnchen-3ya.test/…"),
        ("https://[2606:4700::1111]:8443/canary", "2606:4700::1111", "https://[2606:4700::1111]:8443/…"),
        ("http://localhost:9/canary", "localhost", "http://localhost:9/…"),
    ],
)
def test_webhooks(text: str, host: str, shown: str) -> None:
    found = parse_target(text)
    assert isinstance(found, Webhook)
    assert (found.host, found.shown) == (host, shown)
    assert "canary" not in repr(found)


@pytest.mark.parametrize("text", ["mailto:ann@example.com", "MAILTO:o'neil+ops@mail.example.co.uk"])
def test_mailboxes(text: str) -> None:
    found = parse_target(text)
    assert isinstance(found, Mailbox)
    assert found.shown == f"mailto:{text.partition(':')[2]}"


@pytest.mark.parametrize(
    "text",
    [
        "", "canary", "ftp://canary", "file:///etc/canary", "https:canary", "https://", "https:///canary",
        "https://canary/a b", "https://canary/\r\nX: y", "https://canary/#f", "https://canary:0/", "https://canary:70000/",
        "https://h\\@canary/", "https://canary%6c/", "https://canary..x/", "https://canary/" + "x" * 2000,
        "javascript:canary", " https://canary", "https://canary/\u2028",
        "mailto:", "mailto:canary", "mailto:a@canary,b@c", "mailto:a@canary?bcc=x@y.z", "mailto:Ann <a@canary>",
        "mailto:a@canary\r\nBcc: x@y.z", "mailto:a b@canary", "mailto:é@canary", "mailto:" + "a" * 250 + "@canary",
    ],
)  # fmt: skip
def test_what_is_no_address_is_not_repeated(text: str) -> None:
    with pytest.raises(BadSetting) as caught:
        parse_target(text)
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None


# What the settings allow


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "240.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fc00::1", "fec0::1", "ff02::1", "::ffff:10.0.0.1",
        "::127.0.0.1", "2002:7f00:1::", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2001:db8::1",
    ],
)  # fmt: skip
def test_private_addresses(text: str) -> None:
    assert is_private(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", ["1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101", "2002:101:101::"])
def test_public_addresses(text: str) -> None:
    assert not is_private(ipaddress.ip_address(text))


@pytest.mark.parametrize(
    ("text", "given", "message"),
    [
        ("https://127.0.0.1/canary", {}, "private network"),
        ("https://[::1]/canary", {}, "private network"),
        ("https://localhost/canary", {}, "private network"),
        ("https://a.localhost/canary", {}, "private network"),
        ("http://hooks.test/canary", {}, "without TLS"),
        ("http://1.1.1.1/canary", {"alert_private_hosts": True}, "own network only"),
        ("https://hooks.test/canary", {"alert_hosts": ("other.test",)}, "alert_hosts"),
        ("https://test/canary", {"alert_hosts": ("*.test",)}, "alert_hosts"),
        ("https://evilhooks.test/canary", {"alert_hosts": ("hooks.test", "*.hooks.test")}, "alert_hosts"),
        ("mailto:a@hooks.test", {}, "smtp_host"),
        (
            "mailto:a@hooks.test",
            {"smtp_host": "mail", "smtp_from": "h@mail", "alert_hosts": ("other.test",)},
            "alert_hosts",
        ),
    ],
)
def test_what_is_refused(text: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(NotAllowed, match=message) as caught:
        require_allowed(parse_target(text), settings(**given))
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("https://hooks.test/x", {}),
        ("https://1.1.1.1/x", {}),
        ("https://Hooks.test/x", {"alert_hosts": ("HOOKS.test",)}),
        ("https://a.b.hooks.test/x", {"alert_hosts": ("x.test", "*.hooks.test")}),
        ("http://127.0.0.1:9/x", {"alert_private_hosts": True}),
        ("mailto:a@hooks.test", {"smtp_host": "mail", "smtp_from": "h@mail"}),
        ("mailto:a@Hooks.test", {"smtp_host": "mail", "smtp_from": "h@mail", "alert_hosts": ("hooks.test",)}),
    ],
)
def test_what_is_allowed(text: str, given: dict[str, Any]) -> None:
    require_allowed(parse_target(text), settings(**given))


# Sealing


def test_what_is_sealed_opens_again(tmp_path: Path) -> None:
    seal = Seal(tmp_path / "lake")
    sealed = seal.seal("https://hooks.test/canary-ü", "alert a")
    assert "canary" not in sealed
    assert sealed != seal.seal("https://hooks.test/canary-ü", "alert a")
    assert Seal(tmp_path / "lake").open(sealed, "alert a") == "https://hooks.test/canary-ü"


def test_the_key_is_its_owner_s_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seal = Seal(tmp_path)
    sealed = seal.seal("x", "p")
    key = tmp_path / FILE_NAME
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == [FILE_NAME]
    key.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert seal.open(sealed, "p") == seal.open(sealed, "p") == "x"
    assert len(caplog.records) == 1


def test_nothing_else_opens_it(tmp_path: Path) -> None:
    seal = Seal(tmp_path)
    sealed = seal.seal("x", "alert a")
    damaged = sealed[:-2] + ("AA" if not sealed.endswith("AA") else "BB")
    for text, purpose in ((sealed, "alert b"), (damaged, "alert a"), ("", "alert a"), ("v1:é", "alert a"), ("x", "p")):
        with pytest.raises(Unreadable):
            seal.open(text, purpose)
    (tmp_path / FILE_NAME).rename(tmp_path / "kept")
    with pytest.raises(Unreadable, match="is not there"):
        seal.open(sealed, "alert a")
    seal.seal("y", "alert b")
    with pytest.raises(Unreadable, match="not sealed with"):
        seal.open(sealed, "alert a")


def test_a_damaged_key_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"short")
    with pytest.raises(EnvironmentFault, match="is no key"):
        Seal(tmp_path).seal("x", "p")
    assert (tmp_path / FILE_NAME).read_bytes() == b"short"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file")
    with pytest.raises(EnvironmentFault, match="cannot be"):
        Seal(tmp_path / "lake").seal("x", "p")


def test_threads_make_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        sealed = list(pool.map(lambda number: Seal(tmp_path).seal(str(number), "p"), range(16)))
    assert [Seal(tmp_path).open(each, "p") for each in sealed] == [str(number) for number in range(16)]


def test_fingerprints_tell_texts_apart_and_lakes_too(tmp_path: Path) -> None:
    one, two = Seal(tmp_path / "one"), Seal(tmp_path / "two")
    assert one.fingerprint("a") == one.fingerprint("a")
    assert len({one.fingerprint("a"), one.fingerprint("b"), two.fingerprint("a")}) == 3


def test_a_new_key_is_on_the_disk_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[Path, list[str]]] = []
    monkeypatch.setattr(
        "headrace.alerts.sealing.sync", lambda path: synced.append((path, [each.name for each in path.iterdir()]))
    )
    Seal(tmp_path).seal("x", "y")
    assert synced == [(tmp_path, [FILE_NAME])], "the folder, when the key has its name"
