"""Finding Java, with made-up executables in place of real ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.errors import EnvironmentFault
from headrace.storage import java
from headrace.storage.java import check_java

MakeJava = Callable[..., Path]


@pytest.fixture
def make_java(tmp_path: Path) -> MakeJava:
    """Makes <tmp>/<name>/bin/java, which says that it is `version`."""

    def make(name: str, version: str | None, code: int = 0) -> Path:
        executable = tmp_path / name / "bin" / "java"
        executable.parent.mkdir(parents=True)
        said = f'openjdk version "{version}" 2025-04-15' if version else "no Java runtime is present"
        executable.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit {code}\n")
        executable.chmod(0o755)
        return executable

    return make


def test_java_home_comes_first(make_java: MakeJava) -> None:
    home, on_path = make_java("home", "21.0.2"), make_java("path", "17.0.1")
    found = check_java({"JAVA_HOME": str(home.parent.parent), "PATH": str(on_path.parent)}, ())
    assert (found.path, found.version) == (home, "21.0.2")


def test_an_old_java_home_is_passed_over(make_java: MakeJava) -> None:
    home, on_path = make_java("home", "11.0.2"), make_java("path", "17.0.1")
    found = check_java({"JAVA_HOME": str(home.parent.parent), "PATH": str(on_path.parent)}, ())
    assert found.path == on_path


def test_a_java_that_is_installed_but_not_on_the_path_is_found(make_java: MakeJava, tmp_path: Path) -> None:
    installed = make_java("jvm/java-17", "17.0.15")
    assert check_java({"PATH": ""}, (str(tmp_path / "jvm/*/bin/java"),)).path == installed


def test_home_leads_through_links(make_java: MakeJava, tmp_path: Path) -> None:
    real = make_java("jvm", "17.0.1")
    (tmp_path / "links").mkdir()
    os.symlink(real, tmp_path / "links" / "java")
    assert check_java({"PATH": str(tmp_path / "links")}, ()).home == tmp_path / "jvm"


@pytest.mark.parametrize(
    ("version", "code", "sentence"),
    [
        ("11.0.22", 0, "is Java 11."),
        ("1.8.0_412", 0, "is Java 8."),
        (None, 1, "does not run."),
    ],
)
def test_a_wrong_java_is_one_sentence_with_the_fix(
    make_java: MakeJava, version: str | None, code: int, sentence: str
) -> None:
    executable = make_java("path", version, code)
    with pytest.raises(EnvironmentFault) as caught:
        check_java({"PATH": str(executable.parent)}, ())
    assert caught.value.message == f"Headrace needs Java 17 or newer, and {executable} {sentence}"
    assert caught.value.hint is not None
    assert "17" in caught.value.hint


def test_no_java_at_all() -> None:
    with pytest.raises(EnvironmentFault, match="no Java was found"):
        check_java({"PATH": "/nowhere"}, ())


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_every_platform_gets_a_fix_it_can_use(platform: str) -> None:
    fix = java._how_to_install(platform)
    assert ("brew" in fix) == (platform == "darwin")
    assert ("apt" in fix) == (platform == "linux")


def test_make_learns_it_from_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(java, "check_java", lambda: check_java({"PATH": str(tmp_path)}, ()))
    assert java.main() == 3
    assert capsys.readouterr().err.count("\n") == 1
