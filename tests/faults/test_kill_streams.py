"""kill -9 at every failpoint of a statement that reads a stream: no change is lost, none is read twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults.test_kill import run

POINTS = ("before-reading", "after-reading", "mid-reading", "after-stream-commit", "after-offsets")
CONSUME = "sql INSERT INTO target SELECT id FROM s"
COUNTS = "sql SELECT (SELECT count(*) FROM target), (SELECT count(*) FROM s)"
SAME = (
    "sql SELECT count(*), count(DISTINCT id) FROM target UNION ALL "
    "SELECT count(*), (SELECT count(*) FROM s) FROM source"
)


@pytest.mark.timeout(900)
def test_kill_at_every_failpoint_of_a_reading(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    run(lake, "sql CREATE TABLE source (id INT); CREATE TABLE STREAM s ON TABLE source; CREATE TABLE target (id INT)")
    written = 0
    before: str | None = None
    for number, point in enumerate(POINTS):
        answers = run(
            lake, COUNTS, f"sql INSERT INTO source VALUES ({number * 2}), ({number * 2 + 1})", f"fail {point}",
            CONSUME, dies=True,
        )  # fmt: skip
        taken, waiting = map(int, answers[0][COUNTS][0])
        assert taken + waiting == written, (before, taken, waiting)
        if before is not None:
            # The commit decides: once it is there, the offset has moved, whether or not anybody lived to see it.
            assert (waiting == 0) == (before in ("after-stream-commit", "after-offsets")), (before, waiting)
        written += 2
        before = point
    (totals, rest) = run(lake, CONSUME, SAME)[1][SAME]
    assert totals == ["10", "10"], "every change once"
    assert rest == ["10", "0"]
    # CREATE TABLE … AS: the table and the offset come together, and a table nobody can see is no obstacle.
    make = "sql CREATE TABLE made AS SELECT id FROM s"
    run(lake, "sql INSERT INTO source VALUES (77)", "fail after-reading", make, dies=True)
    run(lake, "fail after-stream-commit", make, dies=True)
    look = "sql SELECT (SELECT count(*) FROM made), (SELECT count(*) FROM s)"
    assert run(lake, look)[0][look] == [["1", "0"]]
    # An operations database from before the last reading would read its changes again.
    old = {file.name: file.read_bytes() for file in lake.glob("headrace.db*")}
    run(lake, "sql INSERT INTO source VALUES (78)", CONSUME)
    for file in lake.glob("headrace.db*"):
        file.unlink()
    for name, content in old.items():
        (lake / name).write_bytes(content)
    refused = "refused INSERT INTO made SELECT id FROM s"
    assert run(lake, refused)[0][refused]["code"] == "STALE_STREAM"
    # Without any, the offset is not known.
    for file in lake.glob("headrace.db*"):
        file.unlink()
    answers = run(lake, "refused SELECT * FROM s", "sql CREATE TABLE STREAM s ON TABLE source")
    assert answers[0]["refused SELECT * FROM s"]["code"] == "NOT_FOUND"
