"""kill -9 during a scheduled refresh, then restart: the tick is done, once, and nothing counts as a failure."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from faults.test_kill import run, settled

DONE = {"clean": ["SUCCEED", 0], "totals": ["SUCCEED", 0]}


@pytest.mark.timeout(900)
def test_kill_during_a_scheduled_refresh(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    minute = "SET REFRESH INTERVAL 1 MINUTE"
    setup = ("setup", f"sql ALTER DYNAMIC TABLE clean {minute}", f"sql ALTER DYNAMIC TABLE totals {minute}")
    now = datetime.now(timezone.utc).replace(second=1) + timedelta(minutes=2)
    before = now
    for number, point in enumerate(("refresh-start", "after-intent", "after-commit", "before-finish")):
        actions = setup if number == 0 else (f"tick {before.isoformat()}", "settle")
        now += timedelta(minutes=1)
        answers = run(folder, *actions, f"change {100 + number}", f"fail {point}", f"tick {now.isoformat()}", dies=True)
        if number:
            assert answers[0][f"tick {before.isoformat()}"] == DONE, (number, answers)
            assert settled(answers[1])["modes"] == ["NO_DATA", "NO_DATA"], "the schedule has done it all"
        before = now
    answers = run(folder, f"tick {before.isoformat()}", "history", "settle")
    assert answers[0][f"tick {before.isoformat()}"] == DONE
    assert not [row for row in answers[1]["history"] if row[1] not in ("SUCCEED", "FAILED")]
    assert settled(answers[2])["modes"] == ["NO_DATA", "NO_DATA"]
