"""`.ci/setup`, where everything is set up: what it says, and to whom."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """As much of the project as the script looks at, with an environment that is up to date."""
    for name in (".ci/setup", "Makefile", "pyproject.toml", *_of_packages()):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "packages/headrace/src").symlink_to(ROOT / "packages/headrace/src")
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    # The script makes links in the folder that Python names: it must be one of this tree.
    for name, program in (("python", f'[ "$1" != -c ] || echo "{tmp_path}/.venv"\n'), ("headrace", "")):
        (programs / name).write_text(f"#!/bin/sh\n{program}")
        (programs / name).chmod(0o755)
    described = "".join((tmp_path / name).read_text() for name in ("pyproject.toml", *_of_packages()))
    state = subprocess.run(["cksum"], input=described, capture_output=True, text=True, check=True).stdout
    (tmp_path / ".venv" / ".set-up").write_text(state)
    return tmp_path


def _of_packages() -> list[str]:
    return sorted(str(found.relative_to(ROOT)) for found in ROOT.glob("packages/*/pyproject.toml"))


def make(tree: Path, *goals: str) -> str:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(["make", *goals], cwd=tree, env=plain, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


def test_who_asks_for_it_is_told_in_one_line_that_all_is_there(tree: Path) -> None:
    (told,) = make(tree, "setup").splitlines()
    assert told.startswith("All is set up already. Next: 'make demo'")


def test_other_targets_are_not_disturbed(tree: Path) -> None:
    assert make(tree, "demo") == ""


def test_a_new_environment_ends_with_what_to_do_next(tree: Path) -> None:
    (tree / ".venv" / ".set-up").unlink()
    done = subprocess.run([".ci/setup", "--say"], cwd=tree, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("All is set up. Next: ")
    assert "done in" in done.stderr
    assert (tree / ".venv" / "headrace").is_symlink()
    assert make(tree, "demo") == ""
