"""Finding a Java that Spark can run on."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import EnvironmentFault

OLDEST_JAVA = 17
_VERSION = re.compile(r'version "([^"]+)"')
_WAIT_SECONDS = 20
SYSTEM_PLACES = (
    "/usr/lib/jvm/*/bin/java",
    "/opt/homebrew/opt/openjdk*/bin/java",
    "/usr/local/opt/openjdk*/bin/java",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java",
)


@dataclass(frozen=True)
class JavaFound:
    """A Java that is new enough: the executable and its version as it names itself."""

    path: Path
    version: str

    @property
    def home(self) -> Path:
        """What JAVA_HOME must be for this executable to be the one that runs."""
        return self.path.resolve().parent.parent


def check_java(environment: Mapping[str, str] | None = None, system_places: Sequence[str] = SYSTEM_PLACES) -> JavaFound:
    """The first Java new enough for Spark, looking at JAVA_HOME, then PATH, then the places where systems install it.

    An old JAVA_HOME is passed over when a good Java is elsewhere, so that a forgotten variable stops nobody.
    """
    environment = os.environ if environment is None else environment
    too_old: list[JavaFound] = []
    broken: list[Path] = []
    for executable in _candidates(environment, system_places):
        version = _version_of(executable)
        if version is None:
            broken.append(executable)
        elif major(version) >= OLDEST_JAVA:
            return JavaFound(executable, version)
        else:
            too_old.append(JavaFound(executable, version))
    raise EnvironmentFault(_what_is_wrong(too_old, broken), hint=_how_to_install(sys.platform))


def major(version: str) -> int:
    """The number people use for a Java version.

    >>> major("17.0.15"), major("1.8.0_412"), major("21"), major("25-ea")
    (17, 8, 21, 25)
    """
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def _candidates(environment: Mapping[str, str], system_places: Sequence[str]) -> Iterator[Path]:
    home = environment.get("JAVA_HOME")
    if home:
        yield Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        yield Path(on_path)
    for pattern in system_places:
        yield from (Path(found) for found in sorted(glob.glob(pattern)))


def _version_of(executable: Path) -> str | None:
    """The version the executable reports, or None when it is missing or does not run (as macOS' placeholder)."""
    try:
        answer = subprocess.run(
            [str(executable), "-version"], capture_output=True, text=True, timeout=_WAIT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(answer.stderr + answer.stdout)
    return match.group(1) if match and answer.returncode == 0 else None


def _what_is_wrong(too_old: list[JavaFound], broken: list[Path]) -> str:
    if too_old:
        found = too_old[0]
        return f"Headrace needs Java {OLDEST_JAVA} or newer, and {found.path} is Java {major(found.version)}."
    if broken:
        return f"Headrace needs Java {OLDEST_JAVA} or newer, and {broken[0]} does not run."
    return f"Headrace needs Java {OLDEST_JAVA} or newer, and no Java was found (JAVA_HOME is not set, PATH has none)."


def _how_to_install(platform: str) -> str:
    if platform == "darwin":
        return "Install it with `brew install openjdk@17`, then try again."
    if platform == "win32":
        return "Install a JDK 17 or newer, set JAVA_HOME to its folder, then try again."
    return (
        "Install it with `sudo apt install openjdk-17-jre-headless` (Debian, Ubuntu) or `sudo dnf install "
        "java-17-openjdk-headless` (Fedora, RHEL), or set JAVA_HOME to the folder of a newer Java, then try again."
    )


def main() -> int:
    """`python -m headrace.storage.java`: what `make` asks before it sets anything up. Needs nothing but Python."""
    try:
        found = check_java()
    except EnvironmentFault as fault:
        sys.stderr.write(f"{fault.message} {fault.hint}\n")
        return 3
    sys.stdout.write(f"Java {found.version} at {found.path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
