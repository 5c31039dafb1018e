"""Maven's client settings, as far as fetching a jar needs them: mirrors, repositories, proxies and passwords.

People behind a company mirror have these in `~/.m2/settings.xml` already; nobody should have to write them twice.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

_VARIABLE = re.compile(r"\$\{([^}]+)\}")


@dataclass(frozen=True)
class Repository:
    """Where jars come from. No url means Maven's central repository, whose address the resolver knows itself."""

    name: str
    url: str | None = None
    user: str | None = None
    password: str | None = None


@dataclass(frozen=True)
class Proxy:
    protocol: str
    host: str
    port: int
    user: str | None = None
    password: str | None = None
    skip: tuple[str, ...] = ()


@dataclass(frozen=True)
class MavenSettings:
    local_repository: Path
    repositories: tuple[Repository, ...]
    proxies: tuple[Proxy, ...]


def read_maven_settings(environment: Mapping[str, str] | None = None, home: Path | None = None) -> MavenSettings:
    """The user's and the machine's settings together; the user's come first, as in Maven itself."""
    environment = os.environ if environment is None else environment
    home = home or Path.home()
    documents = [_Document(path, environment, home) for path in _settings_files(environment, home) if path.is_file()]
    local = next((found for document in documents for found in document.texts("localRepository")), None)
    proxies = tuple(proxy for document in documents for proxy in document.proxies())
    return MavenSettings(
        local_repository=Path(local) if local else home / ".m2" / "repository",
        repositories=_repositories(documents),
        proxies=proxies or tuple(_proxies_from(environment)),
    )


def mirrors_central(pattern: str) -> bool:
    """Whether a `mirrorOf` pattern covers the central repository.

    >>> [mirrors_central(p) for p in ("*", "central", "external:*", "*,!central", "external:http:*", "internal")]
    [True, True, True, False, False, False]
    """
    words = [word.strip() for word in pattern.split(",")]
    return "!central" not in words and any(word in ("*", "central", "external:*") for word in words)


def java_options(proxies: tuple[Proxy, ...]) -> list[str]:
    """Proxies the way a Java program takes them."""
    options: list[str] = []
    for proxy in proxies:
        prefix = f"-D{proxy.protocol}.proxy"
        options += [f"{prefix}Host={proxy.host}", f"{prefix}Port={proxy.port}"]
        if proxy.user is not None:
            options += [f"{prefix}User={proxy.user}", f"{prefix}Password={proxy.password or ''}"]
        if proxy.skip:
            # Java has one list for both protocols, under the name of the older one.
            options.append(f"-Dhttp.nonProxyHosts={'|'.join(proxy.skip)}")
    return options


def _settings_files(environment: Mapping[str, str], home: Path) -> Iterator[Path]:
    yield home / ".m2" / "settings.xml"
    for variable in ("MAVEN_HOME", "M2_HOME"):
        if environment.get(variable):
            yield Path(environment[variable]) / "conf" / "settings.xml"
    yield Path("/etc/maven/settings.xml")


def _repositories(documents: list[_Document]) -> tuple[Repository, ...]:
    servers: dict[str, tuple[str | None, str | None]] = {}
    for document in documents:
        for name, login in document.servers():
            servers.setdefault(name, login)
    mirror = next((found for document in documents for found in document.mirrors_of_central()), None)
    places = [mirror] if mirror else [found for document in documents for found in document.repositories()]
    known = [Repository(name, url, *servers.get(name, (None, None))) for name, url in places]
    return tuple(known) if mirror else (*known, Repository("central"))


class _Document:
    """One settings.xml, read without regard to its name space and with its ${variables} filled in."""

    def __init__(self, path: Path, environment: Mapping[str, str], home: Path) -> None:
        self._environment = environment
        self._home = home
        try:
            self._root = ElementTree.fromstring(path.read_bytes())
        except ElementTree.ParseError:
            self._root = ElementTree.Element("settings")
        for element in self._root.iter():
            element.tag = element.tag.rpartition("}")[2]

    def texts(self, path: str) -> list[str]:
        return [text for element in self._root.findall(path) if (text := self._fill(element.text or ""))]

    def mirrors_of_central(self) -> Iterator[tuple[str, str]]:
        for mirror in self._root.findall("mirrors/mirror"):
            blocked = self._value(mirror, "blocked") == "true"
            url = self._value(mirror, "url")
            if url and not blocked and mirrors_central(self._value(mirror, "mirrorOf") or ""):
                yield self._value(mirror, "id") or "mirror", url

    def repositories(self) -> Iterator[tuple[str, str]]:
        """Repositories of the profiles that are active without asking for them."""
        active = set(self.texts("activeProfiles/activeProfile"))
        for profile in self._root.findall("profiles/profile"):
            by_default = self._value(profile, "activation/activeByDefault") == "true"
            if by_default or self._value(profile, "id") in active:
                for repository in profile.findall("repositories/repository"):
                    url = self._value(repository, "url")
                    if url:
                        yield self._value(repository, "id") or "repository", url

    def servers(self) -> Iterator[tuple[str, tuple[str | None, str | None]]]:
        for server in self._root.findall("servers/server"):
            name = self._value(server, "id")
            if name:
                yield name, (self._value(server, "username"), self._value(server, "password"))

    def proxies(self) -> Iterator[Proxy]:
        for proxy in self._root.findall("proxies/proxy"):
            host = self._value(proxy, "host")
            if host and self._value(proxy, "active") != "false":
                skip = (self._value(proxy, "nonProxyHosts") or "").replace(",", "|").split("|")
                # Maven sends https through a proxy of either protocol; Java keeps the two apart.
                for protocol in ("http", "https"):
                    yield Proxy(
                        protocol,
                        host,
                        int(self._value(proxy, "port") or 8080),
                        self._value(proxy, "username"),
                        self._value(proxy, "password"),
                        tuple(name.strip() for name in skip if name.strip()),
                    )
                return

    def _value(self, element: ElementTree.Element, path: str) -> str | None:
        found = element.find(path)
        return (self._fill(found.text or "") or None) if found is not None else None

    def _fill(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            name = match.group(1)
            if name == "user.home":
                return str(self._home)
            return self._environment.get(name.removeprefix("env."), match.group(0))

        return _VARIABLE.sub(value, text.strip())


def _proxies_from(environment: Mapping[str, str]) -> Iterator[Proxy]:
    skip = tuple(
        f"*{name}" if name.startswith(".") else name
        for name in (part.strip() for part in (_either_case(environment, "no_proxy") or "").split(","))
        if name
    )
    for protocol in ("http", "https"):
        address = _either_case(environment, f"{protocol}_proxy") or _either_case(environment, "all_proxy")
        if not address:
            continue
        parts = urlsplit(address if "//" in address else f"//{address}")
        if parts.hostname:
            user = unquote(parts.username) if parts.username else None
            password = unquote(parts.password) if parts.password else None
            yield Proxy(protocol, parts.hostname, parts.port or 8080, user, password, skip)


def _either_case(environment: Mapping[str, str], name: str) -> str | None:
    return environment.get(name) or environment.get(name.upper())
