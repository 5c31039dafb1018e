"""kill -9 at every failpoint of a batch and of a COPY INTO, with Spark: no row is lost, none is there twice.

As a program it is the process that dies: `test_loading.py LAKE ACTION…`, with a line of JSON for each action. These are
`sql TEXT`, `send BATCH FROM UPTO` (rows with these ids, and one that does not fit), `commit` and `fail NAME`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

POINTS = (
    "load-before-spool", "load-after-spool", "load-after-record", "load-after-sequence", "mid-load",
    "load-after-commit", "load-after-rejects", "load-before-finish", "load-after-finish",
)  # fmt: skip
COUNTS = "sql SELECT (SELECT count(*) FROM t), (SELECT count(DISTINCT id) FROM t), (SELECT count(*) FROM t_rejects)"


def run(folder: Path, *actions: str, dies: bool = False) -> list[dict[str, Any]]:
    variables = {key: value for key, value in os.environ.items() if key != "HEADRACE_FAILPOINT"}
    done = subprocess.run(
        [sys.executable, __file__, str(folder), *actions],
        capture_output=True, text=True, env=variables, timeout=500, check=False,
    )  # fmt: skip
    expected = -signal.SIGKILL if dies else 0
    assert done.returncode == expected, f"exit {done.returncode}: {done.stdout[-2000:]} {done.stderr[-3000:]}"
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.timeout(1500)
def test_kill_at_every_failpoint_of_a_batch(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    run(
        lake,
        "sql CREATE TABLE t (id BIGINT NOT NULL)",
        "sql CREATE DYNAMIC TABLE d AS SELECT id % 3 AS k, count(*) AS n FROM t GROUP BY 1",
    )
    sent = 0
    again: list[str] = []
    for number, point in enumerate(POINTS):
        batch = f"send b{number} {sent} {sent + 5}"
        # The client of the last batch may not have had its answer: it sends that one again.
        answers = run(lake, *again, f"fail {point}", batch, "commit", dies=True)
        if again:
            assert answers[2][COUNTS] == [[str(sent), str(sent), str(number)]], (POINTS[number - 1], answers)
            assert answers[4]["sql VERIFY DYNAMIC TABLE d"][0][1] == "EQUAL"
        sent += 5
        again = [batch, "commit", COUNTS, "sql REFRESH DYNAMIC TABLE d", "sql VERIFY DYNAMIC TABLE d"]
    answers = run(lake, *again)
    assert answers[2][COUNTS] == [[str(sent), str(sent), str(len(POINTS))]]
    assert answers[4]["sql VERIFY DYNAMIC TABLE d"][0][1] == "EQUAL"
    assert not [path for path in (lake / "loads").rglob("*") if path.is_file()]


@pytest.mark.timeout(1500)
def test_kill_at_every_failpoint_of_a_copy(tmp_path: Path) -> None:
    lake, files = tmp_path / "lake", tmp_path / "in"
    files.mkdir()
    run(lake, "sql CREATE TABLE t (id BIGINT NOT NULL)")
    copy = f"sql COPY INTO t FROM '{files}' FILE_FORMAT = JSON"
    written = 0
    for number, point in enumerate(POINTS[3:]):
        rows = [json.dumps({"id": written + n}) for n in range(5)]
        (files / f"{number}.json").write_text("\n".join([*rows, '{"id": "x"}']))
        run(lake, f"fail {point}", copy, dies=True)
        written += 5
        answers = run(lake, copy, COUNTS)
        assert answers[1][COUNTS] == [[str(written), str(written), str(number + 1)]], (point, answers)
        assert {row[1] for row in answers[0][copy][:-1]} <= {"SKIPPED"}
    assert not [path for path in (lake / "loads").rglob("*") if path.is_file()]


@pytest.mark.timeout(600)
def test_the_operations_database_is_deleted(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    run(lake, "sql CREATE TABLE t (id BIGINT NOT NULL)", "send b1 0 5", "commit", "send b2 5 10")
    for file in lake.glob("headrace.db*"):
        file.unlink()
    answers = run(lake, "send b2 5 10", "commit", "send b1 0 5", "commit", COUNTS)
    assert answers[0]["send b2 5 10"][3] is True, "what waits is known again by its file"
    assert answers[2]["send b1 0 5"] == [5, 1, "COMMITTED", True], "what was committed, by the table's log"
    assert answers[4][COUNTS] == [["10", "10", "2"]]


def main(folder: str, actions: list[str]) -> None:
    import headrace
    from headrace.security.roles import Principal

    ann = Principal("ann", "admin", unlimited=True)
    quick = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1", "spark.sql.codegen.wholeStage": "false"}
    with headrace.open(folder, spark_master="local[2]", driver_memory="2g", spark_settings=quick) as lake:
        for action in actions:
            name, _, argument = action.partition(" ")
            found: object = None
            if name == "fail":
                os.environ["HEADRACE_FAILPOINT"] = argument
                continue
            if name == "sql":
                found = [list(map(str, row)) for row in lake.sql(argument).rows]
            elif name == "send":
                batch, first, upto = argument.split()
                rows = [json.dumps({"id": number}) for number in range(int(first), int(upto))]
                body = "\n".join([*rows, '{"id": "x"}']).encode()
                sent = lake.load_rows(ann, "t", body, "json", batch)
                found = [sent.load.rows, sent.load.rejected, sent.load.state, sent.duplicate]
            elif name == "commit":
                lake.loads.committer.flush()
            print(json.dumps({action: found}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
