"""What the deployment files promise is what is tested."""

from __future__ import annotations

import re
from pathlib import Path

from postgres import _VERSION_FOLDERS

ROOT = Path(__file__).parents[2]


def test_one_version_of_postgresql() -> None:
    tested = _VERSION_FOLDERS[0].removeprefix("pginstall")
    assert re.findall(r"image: postgres:(\S+)", (ROOT / "deploy/compose.yaml").read_text()) == [tested]
    assert f"the tests run on {tested} |" in (ROOT / "docs/deploy.md").read_text()
