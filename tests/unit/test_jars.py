"""Fetching jars once, with a made-up Java that plays Ivy."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import Cancelled, EnvironmentFault
from headrace.storage import jars
from headrace.storage.jars import DeltaRelease, ensure_jars, find_jars, installed_release
from headrace.storage.java import JavaFound
from headrace.storage.maven import MavenSettings, Repository

RELEASE = DeltaRelease("delta-spark_4.2_2.13", "4.4.0")
NAMES = [
    f"{name}-4.4.0.jar" for name in ("delta-kernel-api", "delta-kernel-defaults", RELEASE.artifact, "delta-storage")
]

# Writes what Ivy would: it finds the pattern after -retrieve, and notes each run.
PLAY = """#!{python}
import sys, pathlib, time
pathlib.Path({runs!r}).open("a").write(" ".join(sys.argv[1:]) + "\\n")
{before}
target = pathlib.Path(sys.argv[sys.argv.index("-retrieve") + 1]).parent
for name in {names!r}:
    (target / name).write_bytes(b"contents of " + name.encode())
"""

Play = Callable[..., JavaFound]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    def make(before: str = "", names: list[str] = NAMES) -> JavaFound:
        executable = tmp_path / "java"
        runs = str(tmp_path / "runs")
        executable.write_text(PLAY.format(python=sys.executable, runs=runs, before=before, names=names))
        executable.chmod(0o755)
        return JavaFound(executable, "17.0.1")

    return make


@pytest.fixture
def maven(tmp_path: Path) -> MavenSettings:
    return MavenSettings(tmp_path / "m2", (Repository("corp", "https://corp.example/maven"),), ())


def runs(tmp_path: Path) -> int:
    file = tmp_path / "runs"
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_jars_are_fetched_once(play: Play, maven: MavenSettings, tmp_path: Path) -> None:
    said: list[str] = []
    folder = tmp_path / "jars"
    first = ensure_jars(folder, said.append, release=RELEASE, maven=maven, java=play())
    again = ensure_jars(folder, said.append, release=RELEASE, maven=maven, java=play())
    assert [path.name for path in first] == NAMES
    assert again == first
    assert runs(tmp_path) == 1
    assert said[0].startswith("Fetching Delta 4.4.0")
    assert said[-1].startswith("Fetched Delta 4.4.0")
    assert not list(folder.glob(".fetch-*"))


@pytest.mark.parametrize("harm", ["shorter", "changed", "gone", "manifest"])
def test_a_broken_download_is_fetched_again(play: Play, maven: MavenSettings, tmp_path: Path, harm: str) -> None:
    folder = tmp_path / "jars"
    jar = ensure_jars(folder, print, release=RELEASE, maven=maven, java=play())[0]
    whole = jar.read_bytes()
    if harm == "gone":
        jar.unlink()
    elif harm == "manifest":
        (jar.parent / "manifest.json").write_text("{")
    else:
        jar.write_bytes(whole[:-1] + (b"" if harm == "shorter" else b"?"))
    assert find_jars(folder, RELEASE) is None
    assert ensure_jars(folder, print, release=RELEASE, maven=maven, java=play())[0].read_bytes() == whole
    assert runs(tmp_path) == 2


def test_a_failure_says_why_and_what_to_do_and_leaves_nothing(play: Play, maven: MavenSettings, tmp_path: Path) -> None:
    folder = tmp_path / "jars"
    failing = play(before="print('\\tHost corp.example not found. url=https://corp.example/x.pom'); sys.exit(1)")
    with pytest.raises(EnvironmentFault) as caught:
        ensure_jars(folder, print, release=RELEASE, maven=maven, java=failing)
    assert caught.value.message == (
        "Delta's jars (io.delta:delta-spark_4.2_2.13:4.4.0) could not be fetched: "
        "Host corp.example not found. url=https://corp.example/x.pom."
    )
    assert caught.value.hint is not None
    assert str(folder / "fetch.log") in caught.value.hint
    assert "HEADRACE_JARS" in caught.value.hint
    assert {path.name for path in folder.iterdir()} == {".lock", "fetch.log"}


def test_a_fetch_that_nobody_wants_any_more_ends(play: Play, maven: MavenSettings, tmp_path: Path) -> None:
    folder = tmp_path / "jars"
    asked = 0

    def wanted() -> None:
        nonlocal asked
        asked += 1
        if asked > 2 and runs(tmp_path):
            raise Cancelled("The server was stopped while it started.")

    with pytest.raises(Cancelled):
        ensure_jars(folder, print, release=RELEASE, maven=maven, java=play(before="time.sleep(600)"), wanted=wanted)
    assert {path.name for path in folder.iterdir()} == {".lock", "fetch.log"}


def test_who_waits_for_another_fetch_can_give_up(play: Play, maven: MavenSettings, tmp_path: Path) -> None:
    folder = tmp_path / "jars"
    folder.mkdir()

    def unwanted() -> None:
        raise Cancelled("The server was stopped while it started.")

    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Cancelled):
            ensure_jars(folder, print, release=RELEASE, maven=maven, java=play(), wanted=unwanted)
    assert runs(tmp_path) == 0


def test_an_answer_without_jars_is_a_failure(play: Play, maven: MavenSettings, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="nothing arrived"):
        ensure_jars(tmp_path / "jars", print, release=RELEASE, maven=maven, java=play(names=[]))


def test_a_folder_that_cannot_be_written(play: Play, maven: MavenSettings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match="cannot be used"):
        ensure_jars(tmp_path / "file" / "jars", print, release=RELEASE, maven=maven, java=play())


@pytest.mark.parametrize("prefix", ["", "io.delta_"])
def test_jars_placed_by_hand_need_no_fetch(tmp_path: Path, prefix: str) -> None:
    for name in NAMES:
        with zipfile.ZipFile(tmp_path / f"{prefix}{name}", "w") as jar:
            jar.writestr("a", "b")
    assert [path.name for path in find_jars(tmp_path, RELEASE) or []] == sorted(f"{prefix}{name}" for name in NAMES)
    (tmp_path / f"{prefix}{NAMES[0]}").unlink()
    assert find_jars(tmp_path, RELEASE) is None


def test_another_release_is_another_folder(play: Play, maven: MavenSettings, tmp_path: Path) -> None:
    folder = tmp_path / "jars"
    ensure_jars(folder, print, release=RELEASE, maven=maven, java=play())
    assert find_jars(folder, DeltaRelease(RELEASE.artifact, "4.5.0")) is None


def test_two_processes_fetch_once(play: Play, tmp_path: Path) -> None:
    java = play(before="time.sleep(0.5)")
    code = f"""
from pathlib import Path
from headrace.storage.jars import DeltaRelease, ensure_jars
from headrace.storage.java import JavaFound
from headrace.storage.maven import MavenSettings, Repository
maven = MavenSettings(Path("m2"), (Repository("central"),), ())
release = DeltaRelease({RELEASE.artifact!r}, "4.4.0")
java = JavaFound(Path({str(java.path)!r}), "17")
found = ensure_jars(Path({str(tmp_path / "jars")!r}), lambda text: None, release=release, maven=maven, java=java)
assert len(found) == {len(NAMES)}
"""
    both = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert runs(tmp_path) == 1


def test_ivy_is_told_the_mirror_and_only_asked_for_deltas_own_jars(
    play: Play, maven: MavenSettings, tmp_path: Path
) -> None:
    settings = jars._ivy_settings(tmp_path / "cache", RELEASE, maven)
    assert 'root="https://corp.example/maven"' in settings
    assert 'name="local"' not in settings
    jar = tmp_path / "m2/io/delta" / RELEASE.artifact / "4.4.0" / f"{RELEASE.artifact}-4.4.0.jar"
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"")
    assert 'name="local"' in jars._ivy_settings(tmp_path / "cache", RELEASE, maven)
    assert r'<exclude org="(?!io\.delta$).*" matcher="regexp"/>' in jars._ivy_module(RELEASE)


def test_the_release_follows_the_installed_packages() -> None:
    assert installed_release() == RELEASE


def test_the_manifest_names_what_was_fetched(play: Play, maven: MavenSettings, tmp_path: Path) -> None:
    path = ensure_jars(tmp_path / "jars", print, release=RELEASE, maven=maven, java=play())[0]
    manifest = json.loads((path.parent / "manifest.json").read_text())
    assert manifest["coordinates"] == RELEASE.coordinates
    assert sorted(manifest["files"]) == NAMES
