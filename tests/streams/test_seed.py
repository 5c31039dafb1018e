"""The script of the Session API's guide, as a user would run it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("seed_002.py")


@pytest.mark.timeout(300)
def test_the_guides_script(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path / "lake")], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    printed = done.stdout
    assert " |-- __change_type: string" in printed
    assert " |-- __commit_version: long" in printed
    header = next(line for line in printed.splitlines() if line.startswith("|__change_type"))
    assert re.sub(r"\s", "", header) == "|__change_type|__commit_version|__commit_timestamp|id|name|amount|status|"
    shown = [re.sub(r"\s", "", line) for line in printed.splitlines() if line.startswith("|")]
    dated = [line.split("|") for line in shown if re.search(r"\d{4}-\d\d-\d\d", line)]
    changes = sorted((cells[1], cells[4], cells[6]) for cells in dated)
    assert changes == [
        ("DELETE", "3", "500.00"), ("INSERT", "4", "3000.00"), ("UPDATE_AFTER", "1", "1500.00"),
        ("UPDATE_BEFORE", "1", "1000.00"),
    ]  # fmt: skip
    assert "left in the stream: 0" in printed
    assert shown[-3:] == [
        "|1|Alice|1500.00|closed|", "|2|Bob|2000.00|closed|", "|4|Dave|3000.00|active|",
    ]  # fmt: skip
