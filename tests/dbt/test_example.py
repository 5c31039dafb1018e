"""`make dbt-demo`: the project in examples/dbt_incremental, with a server of its own, as people run it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dbt_server import QUICK

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "dbt_incremental"

pytestmark = pytest.mark.timeout(900)


def test_the_example(tmp_path: Path) -> None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("DBT_")}
    quick = {"HEADRACE_DRIVER_MEMORY": "1g", "HEADRACE_SPARK_MASTER": "local[2]"}
    ran = subprocess.run(
        [sys.executable, str(EXAMPLE / "run.py")], cwd=tmp_path, text=True, timeout=800, stdin=subprocess.DEVNULL,
        env=kept | quick | {"HEADRACE_SPARK_SETTINGS": json.dumps(QUICK), "NO_PROXY": "127.0.0.1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    counts = re.findall(r"^  (raw\.trips|trips_\w+|\w+_revenue: trips) +(\d+)$", ran.stdout, re.MULTILINE)
    expected = [("5000", "100"), ("5040", "140"), ("5040", "140")]
    assert [count for _, count in counts] == [
        found for all_trips, arrived in expected for found in (all_trips, all_trips, arrived, all_trips, all_trips)
    ], ran.stdout
    assert ran.stdout.count("EQUAL") == 2
    parents = json.loads((tmp_path / "demo-dbt-lake/dbt/target/manifest.json").read_text("utf-8"))["parent_map"]
    assert "source.bikes.raw.trips_stream" in parents["model.bikes.trips_enriched"], "the stream is in the lineage"
