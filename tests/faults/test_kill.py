"""kill -9 at every failpoint of a refresh, then restart, refresh, VERIFY.

Each process first settles what the one before it left behind, then changes the source and dies at the next place: so
every start of Spark serves two ends.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.refresh.recovery import INTERRUPTED

WORKER = Path(__file__).with_name("worker.py")
REFRESH_POINTS = (
    "refresh-start", "after-lease", "after-frontier", "after-intent", "after-compute", "before-state-tables",
    "after-commit", "before-finish", "after-finish",
)  # fmt: skip

AROUND_THE_COMMIT = ("after-intent", "after-compute", "after-commit")


def run(
    folder: Path, *actions: str, dies: bool = False, environment: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """The worker's answers, in order."""
    variables = {key: value for key, value in os.environ.items() if key != "HEADRACE_FAILPOINT"}
    done = subprocess.run(
        [sys.executable, str(WORKER), str(folder), *actions],
        capture_output=True, text=True, env=variables | (environment or {}), timeout=500, check=False,
    )  # fmt: skip
    expected = -signal.SIGKILL if dies else 0
    assert done.returncode == expected, f"exit {done.returncode}: {done.stdout[-2000:]} {done.stderr[-3000:]}"
    return [json.loads(line) for line in done.stdout.splitlines()]


def settled(answer: dict[str, Any]) -> dict[str, Any]:
    verdict: dict[str, Any] = answer["settle"]
    assert verdict["verdicts"] == ["EQUAL", "EQUAL"], answer
    return verdict


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults") / "lake"
    run(folder, "setup", "settle")
    return folder


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("points", "first"), [(AROUND_THE_COMMIT, 50), (REFRESH_POINTS, 100)], ids=["commit", "every"])
def test_kill_at_failpoints(folder: Path, points: tuple[str, ...], first: int) -> None:
    before: str | None = None
    for number, point in enumerate(points):
        answers = run(folder, "settle", "history", f"change {first + number}", f"fail {point}", "refresh", dies=True)
        verdict = settled(answers[0])
        if before in ("before-state-tables", "after-commit", "before-finish", "after-finish"):
            # The commit was there: the start-up check recorded the success, nothing was done twice.
            assert verdict["modes"][0] == "NO_DATA", (before, verdict)
        elif before is not None:
            assert verdict["modes"][0] == "INCREMENTAL", (before, verdict)
        rows = answers[1]["history"]
        assert not [row for row in rows if row[1] not in ("SUCCEED", "FAILED")], (before, rows)
        if before in ("after-intent", "after-compute"):
            assert [row for row in rows if row[4] == INTERRUPTED], (before, rows)
        before = point
    verdict = settled(run(folder, "settle")[0])
    assert verdict["modes"][0] == "NO_DATA"


@pytest.mark.timeout(900)
def test_kill_during_full_write_fold_create_and_drop(folder: Path) -> None:
    # In the middle of writing the files of a full refresh.
    run(folder, "settle", "sql ALTER DYNAMIC TABLE clean SET REFRESH_MODE = FULL", "change 200", "fail mid-write",
        "refresh", dies=True)  # fmt: skip
    # A CREATE that dies before its load never happened; before its view, it did.
    answers = run(folder, "settle", "sql ALTER DYNAMIC TABLE clean SET REFRESH_MODE = AUTO",
                  "fail create-after-storage", "sql CREATE DYNAMIC TABLE extra AS SELECT id FROM raw",
                  dies=True)  # fmt: skip
    assert settled(answers[0])["modes"][0] == "FULL"
    answers = run(folder, "settle", "sql SHOW DYNAMIC TABLES", "fail create-after-load",
                  "sql CREATE DYNAMIC TABLE extra AS SELECT id FROM raw", dies=True)  # fmt: skip
    settled(answers[0])
    assert len(answers[1]["sql SHOW DYNAMIC TABLES"]) == 2
    # Then a DROP that dies half-way is finished at the next start.
    answers = run(folder, "sql VERIFY DYNAMIC TABLE extra", "settle", "fail drop-after-rename",
                  "sql DROP DYNAMIC TABLE extra", dies=True)  # fmt: skip
    assert answers[0]["sql VERIFY DYNAMIC TABLE extra"][0][1] == "EQUAL"
    settled(answers[1])
    answers = run(folder, "sql SHOW TABLES", "settle")
    assert sorted(row[1] for row in answers[0]["sql SHOW TABLES"]) == ["clean", "raw", "totals"]
    settled(answers[1])


@pytest.mark.timeout(900)
def test_kill_while_a_query_is_replaced(folder: Path) -> None:
    replace = "sql CREATE OR REPLACE DYNAMIC TABLE clean AS SELECT id, lower(kind) AS kind, amount FROM raw"
    widen = "sql ALTER DYNAMIC TABLE clean ADD COLUMN double_amount AS amount * 2"
    look = ("sql DESC clean", "sql VERIFY DYNAMIC TABLE clean", "sql SELECT min(kind) FROM clean", "settle")

    def looked(answers: list[dict[str, Any]]) -> tuple[int, str]:
        described, verified, kinds = (next(iter(answer.values())) for answer in answers[:3])
        assert verified[0][1] == "EQUAL"
        settled(answers[3])
        return len(described), kinds[0][0]

    # Before the commit of the new contents: nothing happened.
    run(folder, "settle", "fail after-intent", replace, dies=True)
    assert looked(run(folder, *look, "fail after-commit", replace, dies=True)) == (3, "K0")
    # After it: everything did, also the view.
    assert looked(run(folder, *look, "fail after-intent", widen, dies=True)) == (3, "k0")
    assert looked(run(folder, *look, "fail after-commit", widen, dies=True)) == (3, "k0")
    assert looked(run(folder, *look)) == (4, "k0")


@pytest.mark.timeout(600)
def test_operations_database_deleted(folder: Path) -> None:
    run(folder, "settle", "change 300")
    for file in folder.glob("headrace.db*"):
        file.unlink()
    answers = run(folder, "settle", "sql SHOW DYNAMIC TABLES", "sql SELECT count(*) FROM totals")
    verdict = settled(answers[0])
    # The frontier was read from the tables' own logs: no full refresh was needed.
    assert verdict["modes"] == ["INCREMENTAL", "INCREMENTAL"]
    assert len(answers[1]["sql SHOW DYNAMIC TABLES"]) == 2


@pytest.mark.timeout(600)
def test_a_lake_with_its_operations_database_on_postgresql(tmp_path: Path, postgres_url: str) -> None:
    on_postgres = {"HEADRACE_DATABASE_URL": postgres_url}
    run(tmp_path / "lake", "setup", "change 1", "fail after-commit", "refresh", dies=True, environment=on_postgres)
    answers = run(tmp_path / "lake", "settle", "history", environment=on_postgres)
    assert settled(answers[0])["modes"] == ["NO_DATA", "INCREMENTAL"]
    assert {row[1] for row in answers[1]["history"]} == {"SUCCEED"}
    assert not list((tmp_path / "lake").glob("*.db")), "nothing was kept in SQLite"


@pytest.mark.timeout(600)
def test_a_full_disk(tmp_path: Path) -> None:
    """The lake is on a small disk of its own, in a mount namespace that ends with the process."""
    lake = tmp_path / "lake"
    mount = f"mount -t tmpfs -o size=64m tmpfs {tmp_path}"
    actions = ("setup", "change 1", "fill", "refused REFRESH DYNAMIC TABLE clean", "sql SELECT count(*) FROM clean",
               "refused INSERT INTO raw VALUES (7, 'x', 1)", "free", "settle", "history")  # fmt: skip
    worker = shlex.join([sys.executable, str(WORKER), str(lake), *actions])
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", f"{mount} && exec {worker}"],
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-2000:]} {done.stderr[-3000:]}"
    answers = {name: found for line in done.stdout.splitlines() for name, found in json.loads(line).items()}
    for text in ("REFRESH DYNAMIC TABLE clean", "INSERT INTO raw VALUES (7, 'x', 1)"):
        assert "disk" in answers[f"refused {text}"]["message"].lower(), answers
    assert answers["sql SELECT count(*) FROM clean"] == [["36"]], "still readable"
    settled(answers)
    assert answers["settle"]["modes"] == ["INCREMENTAL", "INCREMENTAL"]
    assert {row[1] for row in answers["history"]} <= {"SUCCEED", "FAILED"}, "nothing is left running"


def test_a_second_process_is_told_who_holds_the_lake(shared_lake: Any) -> None:
    script = f"import headrace; headrace.open({str(shared_lake.settings.path)!r})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert "LakeLocked" in done.stderr
    assert str(os.getpid()) in done.stderr
