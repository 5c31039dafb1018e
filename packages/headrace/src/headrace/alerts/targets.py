"""Where alerts go: webhooks and mailboxes, and which of them the settings allow.

The text of a webhook's address is never part of an error: who words one here uses `shown`.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field

import httpx

from headrace.errors import BadSetting, NotAllowed
from headrace.settings import Settings

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_LONGEST = 2000
_MAILBOX = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63})*")
_HOST = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


@dataclass(frozen=True)
class Webhook:
    url: httpx.URL = field(repr=False)
    host: str
    """As it is compared and resolved: in ASCII and lower case, without a dot at its end."""

    @property
    def shown(self) -> str:
        """Without what may be a secret."""
        port = "" if self.url.port is None else f":{self.url.port}"
        return f"{self.url.scheme}://{f'[{self.host}]' if ':' in self.host else self.host}{port}/…"


@dataclass(frozen=True)
class Mailbox:
    address: str

    @property
    def host(self) -> str:
        return self.address.rpartition("@")[2].lower()

    @property
    def shown(self) -> str:
        return f"mailto:{self.address}"


Target = Webhook | Mailbox


def parse_target(text: str) -> Target:
    """What the text of NOTIFY names."""
    scheme = text.partition(":")[0].lower()
    if scheme == "mailto":
        return Mailbox(mail_address(text.partition(":")[2]))
    if scheme not in ("https", "http") or len(text) > _LONGEST or not text.isprintable() or " " in text:
        raise _no_target()
    try:
        url = httpx.URL(text)
        host = url.raw_host.decode("ascii").lower().rstrip(".")
    except (httpx.InvalidURL, ValueError):
        raise _no_target() from None
    known = _HOST.fullmatch(host) or _literal(host) is not None
    port = 443 if url.port is None else url.port
    if not known or url.fragment or "\\" in text or not 0 < port < 65536:
        raise _no_target()
    return Webhook(url, host)


def _no_target() -> BadSetting:
    return BadSetting(
        "An address after NOTIFY is none that alerts can go to.",
        hint=f"Write 'https://host/path', with at most {_LONGEST:,} characters and none of them a space, or "
        "'mailto:ann@example.com'.",
    )


def mail_address(text: str) -> str:
    """The address, if it is one. What could end a line of a mail's head, or add a second recipient, is none."""
    if not _MAILBOX.fullmatch(text) or len(text) > 254:
        raise BadSetting(
            "A mail address after NOTIFY is none that mail can go to.",
            hint="Write 'mailto:ann@example.com': one address in plain letters, without a name and without options.",
        )
    return text


def require_allowed(target: Target, settings: Settings) -> None:
    """Raise unless the settings let alerts go there, as far as that can be said without asking the network."""
    if settings.alert_hosts and not _is_listed(target.host, settings.alert_hosts):
        raise NotAllowed(
            f"Alerts may not go to {target.shown}: {target.host} is not among the hosts of the setting alert_hosts.",
            hint="Whoever runs the lake can add it there.",
        )
    if isinstance(target, Mailbox):
        if settings.smtp_host is None or settings.smtp_from is None:
            raise NotAllowed(
                f"No mail can go to {target.shown}: the settings smtp_host and smtp_from are not set.",
                hint="Whoever runs the lake can set them, or notify a webhook instead.",
            )
        return
    if target.url.scheme == "http" and not settings.alert_private_hosts:
        raise NotAllowed(
            f"Alerts may not go to {target.shown}: without TLS everybody on the way can read them.",
            hint="Write https://. (With the setting alert_private_hosts, http:// works inside one's own network.)",
        )
    literal = _literal(target.host)
    if literal is not None:
        require_allowed_address(target, literal, settings)
    elif (target.host == "localhost" or target.host.endswith(".localhost")) and not settings.alert_private_hosts:
        raise _private(target)


def require_allowed_address(target: Webhook, address: Address, settings: Settings) -> None:
    """Raise unless the settings let alerts go to this address, which is what the target's host means now."""
    if is_private(address):
        if not settings.alert_private_hosts:
            raise _private(target)
    elif target.url.scheme == "http":
        raise NotAllowed(
            f"Alerts may not go to {target.shown}: http:// is for hosts of one's own network only.",
            hint="Write https://.",
        )


def _private(target: Webhook) -> NotAllowed:
    return NotAllowed(
        f"Alerts may not go to {target.shown}: it is an address of this machine or of a private network.",
        hint="Whoever runs the lake can allow such addresses: alert_private_hosts = true.",
    )


def is_private(address: Address) -> bool:
    """Whether it means something else to everybody, or nobody at all: only the rest is the internet.

    >>> [is_private(ipaddress.ip_address(each)) for each in ("10.0.0.1", "::ffff:127.0.0.1", "169.254.169.254")]
    [True, True, True]
    >>> is_private(ipaddress.ip_address("1.1.1.1")), is_private(ipaddress.ip_address("2606:4700:4700::1111"))
    (False, False)
    """
    inner = _carried(address)
    if inner is not None:
        return is_private(inner)
    site_local = isinstance(address, ipaddress.IPv6Address) and address.is_site_local
    return not address.is_global or address.is_multicast or address.is_reserved or site_local


def _carried(address: Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address stands for."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_listed(host: str, hosts: tuple[str, ...]) -> bool:
    """`example.com` is that host only, `*.example.com` is every host below it."""
    wanted = (each.lower().rstrip(".") for each in hosts)
    return any(host.endswith(each[1:]) if each.startswith("*.") else host == each for each in wanted)
