"""Delta's jars: fetched once, checked at every start, never resolved again.

Ivy, which Spark carries, does the fetching, with Maven's client settings. Only Delta's own jars are asked for:
everything they depend on is in Spark already (its Unity Catalog client apart, which an embedded lake never calls).
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from headrace.errors import EnvironmentFault
from headrace.storage.java import JavaFound, check_java
from headrace.storage.maven import MavenSettings, Repository, java_options, read_maven_settings

Progress = Callable[[str], None]

_GROUP = "io.delta"
_MANIFEST = "manifest.json"
_NEEDED = ("delta-spark", "delta-storage", "delta-kernel-api", "delta-kernel-defaults")
_GIVE_UP_SECONDS = 900
_LOOK_SECONDS = 0.2
_CONNECT_MILLISECONDS = 20_000
_READ_MILLISECONDS = 60_000


@dataclass(frozen=True)
class DeltaRelease:
    """The Delta that fits the installed PySpark, as Maven names it."""

    artifact: str
    version: str

    @property
    def coordinates(self) -> str:
        return f"{_GROUP}:{self.artifact}:{self.version}"

    @property
    def folder(self) -> str:
        return f"{self.artifact}-{self.version}"


def installed_release() -> DeltaRelease:
    """Which jars the installed Python packages need."""
    spark = metadata.version("pyspark").split(".")
    core = next(iter(spark_jars().glob("spark-core_*.jar")), None)
    scala = core.name.split("_")[1].split("-")[0] if core else "2.13"
    return DeltaRelease(f"delta-spark_{spark[0]}.{spark[1]}_{scala}", metadata.version("delta-spark"))


def find_jars(folder: Path, release: DeltaRelease | None = None) -> list[Path] | None:
    """The jars in the folder when they are all there and whole, else None. Touches no network."""
    release = release or installed_release()
    return _fetched(folder / release.folder, release) or _placed_by_hand(folder, release)


def ensure_jars(
    folder: Path,
    progress: Progress | None = None,
    *,
    release: DeltaRelease | None = None,
    maven: MavenSettings | None = None,
    java: JavaFound | None = None,
    wanted: Callable[[], None] = lambda: None,
) -> list[Path]:
    """The jars to put on Spark's class path, fetched into the folder if they are not there or not whole.

    `progress` gets one line of text, again and again while the fetch runs; by default it is shown on stderr.
    Safe to call from several processes at once: one fetches, the others wait for it. `wanted` is called meanwhile, and
    ends the fetch by raising.
    """
    release = release or installed_release()
    jars = find_jars(folder, release)
    if jars is not None:
        return jars
    java = java or check_java()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _only_one(folder, wanted):
            jars = find_jars(folder, release)
            if jars is None:
                with _shown(progress) as tell:
                    _fetch(folder, release, maven or read_maven_settings(), java, _heeding(tell, wanted))
                jars = find_jars(folder, release)
    except OSError as fault:
        raise EnvironmentFault(
            f"The folder for Delta's jars, {folder}, cannot be used: {fault.strerror or fault}.",
            hint="Set HEADRACE_JARS to a folder that can be written.",
        ) from fault
    if jars is None:
        raise _not_fetched(folder, release, "what arrived is not complete")
    return jars


def _fetched(target: Path, release: DeltaRelease) -> list[Path] | None:
    """What an earlier fetch left, compared with its manifest down to the last byte (12 MB: a few milliseconds)."""
    try:
        manifest = json.loads((target / _MANIFEST).read_text("utf-8"))
        if manifest["coordinates"] != release.coordinates:
            return None
        files = {target / name: (entry["size"], entry["sha256"]) for name, entry in manifest["files"].items()}
        whole = all(path.stat().st_size == size and _sha256(path) == digest for path, (size, digest) in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return sorted(files) if files and whole else None


def _placed_by_hand(folder: Path, release: DeltaRelease) -> list[Path] | None:
    """Jars somebody copied into the folder, for machines without a network. They may carry their group's name."""
    found = [
        path
        for path in sorted(folder.glob(f"*delta-*-{release.version}.jar"))
        if path.name.removeprefix(f"{_GROUP}_").startswith("delta-") and zipfile.is_zipfile(path)
    ]
    names = [path.name.removeprefix(f"{_GROUP}_") for path in found]
    needed = [release.artifact if part == "delta-spark" else part for part in _NEEDED]
    return found if all(f"{part}-{release.version}.jar" in names for part in needed) else None


def _fetch(folder: Path, release: DeltaRelease, maven: MavenSettings, java: JavaFound, tell: Progress) -> None:
    for leftover in folder.glob(".fetch-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=".fetch-", dir=folder))
    try:
        arrived = work / "jars"
        arrived.mkdir()
        _run_ivy(work, arrived, _log_file(folder), release, maven, java, tell)
        files = {
            path.name: {"size": path.stat().st_size, "sha256": _sha256(path)} for path in sorted(arrived.glob("*.jar"))
        }
        if not files:
            raise _not_fetched(folder, release, "nothing arrived")
        manifest = {"coordinates": release.coordinates, "files": files}
        (arrived / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")
        target = folder / release.folder
        if target.exists():
            target.rename(work / "broken")
        arrived.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run_ivy(
    work: Path,
    arrived: Path,
    log_file: Path,
    release: DeltaRelease,
    maven: MavenSettings,
    java: JavaFound,
    tell: Progress,
) -> None:
    ivy = next(iter(spark_jars().glob("ivy-*.jar")), None)
    if ivy is None:
        raise EnvironmentFault(
            f"The installed PySpark has no Ivy among its jars ({spark_jars()}).",
            hint="Install PySpark again: `pip install --force-reinstall pyspark`.",
        )
    (work / "ivysettings.xml").write_text(_ivy_settings(work / "cache", release, maven), "utf-8")
    (work / "ivy.xml").write_text(_ivy_module(release), "utf-8")
    command = [
        str(java.path),
        f"-Dsun.net.client.defaultConnectTimeout={_CONNECT_MILLISECONDS}",
        f"-Dsun.net.client.defaultReadTimeout={_READ_MILLISECONDS}",
        *java_options(maven.proxies),
        *("-jar", str(ivy)),
        *("-settings", str(work / "ivysettings.xml")),
        *("-ivy", str(work / "ivy.xml")),
        *("-types", "jar"),
        *("-retrieve", f"{arrived}/[artifact]-[revision].[ext]"),
    ]
    folder = log_file.parent
    started = time.monotonic()
    with log_file.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        try:
            while True:
                tell(f"Fetching Delta {release.version} for Spark, once: {_megabytes(work / 'cache')}")
                try:
                    code = process.wait(timeout=_LOOK_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    if time.monotonic() - started > _GIVE_UP_SECONDS:
                        raise _not_fetched(folder, release, "it took more than 15 minutes") from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if code != 0:
        raise _not_fetched(folder, release, _reason(log_file))
    tell(f"Fetched Delta {release.version} for Spark: {_megabytes(arrived)}")


def _ivy_settings(cache: Path, release: DeltaRelease, maven: MavenSettings) -> str:
    resolvers = []
    local = maven.local_repository / _GROUP.replace(".", "/") / release.artifact / release.version
    # A local repository may hold a description without its jar, and Ivy would stop at that.
    if (local / f"{release.artifact}-{release.version}.jar").is_file():
        root = maven.local_repository.absolute().as_uri()
        resolvers.append(f'<ibiblio name="local" m2compatible="true" root={quoteattr(root)}/>')
    credentials = []
    for number, repository in enumerate(maven.repositories):
        root = f" root={quoteattr(repository.url)}" if repository.url else ""
        resolvers.append(f'<ibiblio name={quoteattr(f"{repository.name}-{number}")} m2compatible="true"{root}/>')
        credentials += _credentials(repository)
    return "\n".join(
        [
            "<ivysettings>",
            *credentials,
            '<settings defaultResolver="all"/>',
            f"<caches defaultCacheDir={quoteattr(str(cache))}/>",
            '<resolvers><chain name="all" returnFirst="true">',
            *resolvers,
            "</chain></resolvers>",
            "</ivysettings>",
        ]
    )


def _ivy_module(release: DeltaRelease) -> str:
    others = rf"(?!{re.escape(_GROUP)}$).*"
    return f"""<ivy-module version="2.0">
<info organisation="headrace" module="jars"/>
<configurations><conf name="default"/></configurations>
<dependencies>
<dependency org="{_GROUP}" name="{release.artifact}" rev="{release.version}" conf="default->default"/>
<exclude org={quoteattr(others)} matcher="regexp"/>
</dependencies>
</ivy-module>
"""


def _credentials(repository: Repository) -> list[str]:
    """Ivy keeps passwords by the server's realm, which only the server knows: ask it."""
    if not (repository.url and repository.user and repository.password):
        return []
    login = base64.b64encode(f"{repository.user}:{repository.password}".encode()).decode()
    realm = ""
    for headers in ({}, {"Authorization": f"Basic {login}"}):
        try:
            request = urllib.request.Request(repository.url, headers=headers, method="HEAD")
            urllib.request.urlopen(request, timeout=_CONNECT_MILLISECONDS / 1000).close()
        except urllib.error.HTTPError as refusal:
            match = re.search(r'realm="([^"]*)"', refusal.headers.get("WWW-Authenticate", ""))
            realm = match.group(1) if match else realm
        except OSError:
            pass
        if realm:
            break
    return [
        f"<credentials host={quoteattr(urlsplit(repository.url).hostname or '')} realm={quoteattr(realm)} "
        f"username={quoteattr(repository.user)} passwd={quoteattr(repository.password)}/>"
    ]


def _not_fetched(folder: Path, release: DeltaRelease, reason: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"Delta's jars ({release.coordinates}) could not be fetched: {reason}.",
        hint=(
            f"Check the network, or Maven's mirror and proxy in ~/.m2/settings.xml; the whole story is in "
            f"{_log_file(folder)}. Without a network, copy the jars {_GROUP}:{{{', '.join(_NEEDED)}}} of version "
            f"{release.version} into a folder and set HEADRACE_JARS to it."
        ),
    )


def _reason(log_file: Path) -> str:
    """The line of Ivy's log that tells a person most."""
    lines = [line.strip() for line in log_file.read_text("utf-8", "replace").splitlines()]
    for mark in ("not found. url=", "UnknownHost", "Connection refused", "timed out", "401", "403", "407", "checksum"):
        for line in lines:
            if mark in line:
                return line.rstrip(".")
    for line in lines:
        if "not found" in line or "Exception" in line or "rror" in line:
            return line.rstrip(".")
    return "Ivy stopped without saying why"


def _log_file(folder: Path) -> Path:
    return folder / "fetch.log"


def spark_jars() -> Path:
    """Spark's own jars, found without importing PySpark (which takes a good part of a second)."""
    found = importlib.util.find_spec("pyspark")
    if found is None or not found.submodule_search_locations:
        raise EnvironmentFault("PySpark is not installed.", hint="Install it with `pip install pyspark==4.2.0`.")
    return Path(found.submodule_search_locations[0]) / "jars"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _megabytes(folder: Path) -> str:
    size = 0
    for path in folder.rglob("*"):
        try:
            size += path.stat().st_size if path.is_file() else 0
        except OSError:  # Ivy renames its files while we count them.
            continue
    return f"{size / 1e6:.1f} MB"


@contextmanager
def _only_one(folder: Path, wanted: Callable[[], None]) -> Iterator[None]:
    with (folder / ".lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                wanted()
                time.sleep(_LOOK_SECONDS)
        yield


def _heeding(tell: Progress, wanted: Callable[[], None]) -> Progress:
    """What is told again and again is also when somebody can end it."""

    def told(text: str) -> None:
        wanted()
        tell(text)

    return told


@contextmanager
def _shown(progress: Progress | None) -> Iterator[Progress]:
    """The caller's progress, or one line on stderr that is rewritten in place when a person is watching."""
    if progress is not None:
        yield progress
        return
    person = sys.stderr.isatty()
    last = ""

    def tell(text: str) -> None:
        nonlocal last
        if person:
            sys.stderr.write(f"\r\033[K{text}")
            sys.stderr.flush()
        last = text

    try:
        yield tell
    finally:
        if last:
            sys.stderr.write("\n" if person else f"{last}\n")
            sys.stderr.flush()
