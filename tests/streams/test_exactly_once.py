"""Every change is read once: by two consumers at once, and in any order of changing and reading."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections import Counter

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from headrace import Lake
from headrace.session import Session

ROUNDS = 200
_numbers = itertools.count(1)


@pytest.mark.timeout(900)
def test_two_consumers_racing(lake: Lake) -> None:
    """One writes what it reads to a table, the other takes rows into this program."""
    lake.sql("CREATE TABLE t (id INT); CREATE TABLE STREAM s ON TABLE t; CREATE TABLE target (id INT)")
    session = Session(lake)
    path = lake._context.store.streams.all()[0].source_path
    written = threading.Event()
    delivered: list[int] = []
    failures: list[BaseException] = []

    def produce() -> None:
        for number in range(ROUNDS):
            write_deltalake(path, pa.table({"id": pa.array([number], pa.int32())}), mode="append")
            before = lake._context.store.streams.all()[0].offset
            while lake._context.store.streams.all()[0].offset == before and not failures:
                time.sleep(0.01)
        written.set()

    def consume(take: object) -> None:
        assert callable(take)
        try:
            while not written.is_set():
                take()
            take()
        except BaseException as error:
            failures.append(error)

    def deliver() -> None:
        delivered.extend(row.id for row in session.table("s").collect())

    workers = [
        threading.Thread(target=produce),
        threading.Thread(target=consume, args=(lambda: lake.sql("INSERT INTO target SELECT id FROM s"),)),
        threading.Thread(target=consume, args=(deliver,)),
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures
    stored = [row[0] for row in lake.sql("SELECT id FROM target").rows]
    assert stored
    assert delivered
    assert Counter(stored + delivered) == Counter(range(ROUNDS))


def test_a_cancelled_statement_moves_nothing(lake: Lake) -> None:
    """Ctrl-C stops Spark's work, and the changes stand to be read as before."""
    lake.sql("CREATE TABLE t (id INT); CREATE TABLE STREAM s ON TABLE t; CREATE TABLE target (id INT)")
    lake.sql("INSERT INTO t VALUES (1), (2)")
    status = lake.spark.sparkContext.statusTracker()

    def interrupt() -> None:
        deadline = time.monotonic() + 60
        while not status.getActiveJobsIds() and time.monotonic() < deadline:
            time.sleep(0.05)
        for _ in range(3):  # Impatient people press it again.
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.02)

    endless = "INSERT INTO target SELECT s.id FROM s JOIN range(1000000000000) AS many ON many.id % 7 = -s.id"
    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        lake.sql(endless)
    interrupter.join()
    deadline = time.monotonic() + 30  # Spark's own list of jobs lags behind.
    while status.getActiveJobsIds() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert status.getActiveJobsIds() == []
    assert lake._context.store.streams.unfinished() == []
    assert sorted(lake.sql("SELECT id FROM s").rows) == [(1,), (2,)]
    assert lake.sql("SELECT id FROM target").rows == []
    lake.sql("INSERT INTO target SELECT id FROM s")
    assert sorted(lake.sql("SELECT id FROM target").rows) == [(1,), (2,)]
    assert lake.sql("SELECT id FROM s").rows == []


STEPS = st.lists(
    st.sampled_from(
        (
            "INSERT INTO t SELECT id % 3, CASE WHEN id % 2 = 0 THEN 'x' END FROM range(4)",
            "INSERT INTO t VALUES (1, 'x'), (1, 'x'), (NULL, NULL)",
            "UPDATE t SET name = 'y' WHERE id = 1",
            "UPDATE t SET name = name WHERE id = 2",
            "DELETE FROM t WHERE id = 1",
            "DELETE FROM t WHERE name IS NULL",
            "MERGE INTO t USING (SELECT DISTINCT id FROM t WHERE id = 2) m ON t.id = m.id "
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, name) VALUES (5, 'm')",
            "INSERT OVERWRITE t SELECT DISTINCT * FROM t",
            "OPTIMIZE t",
            "read",
            "read",
            "deliver",
        )
    ),
    min_size=5,
    max_size=9,
)


@settings(
    max_examples=4, deadline=None, derandomize=True, database=None,
    phases=(Phase.explicit, Phase.generate), suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(steps=STEPS)
def follow(lake: Lake, steps: list[str]) -> None:
    """The changes that were read, put together, are the table."""
    schema = f"stream_property_{next(_numbers)}"
    lake.sql(f"CREATE SCHEMA {schema}; USE {schema}; CREATE TABLE t (id INT, name STRING)")
    lake.sql("CREATE TABLE STREAM s ON TABLE t; CREATE TABLE log (kind STRING, id INT, name STRING)")
    session = Session(lake)
    read = "INSERT INTO log SELECT __change_type, id, name FROM s"
    changes: list[tuple[str, int | None, str | None]] = []
    for step in steps:
        note(step)
        if step == "deliver":
            changes += [tuple(row) for row in session.table("s").select("__change_type", "id", "name").collect()]
        else:
            lake.sql(read if step == "read" else step)
    lake.sql(read)
    changes += lake.sql("SELECT * FROM log").rows
    rebuilt: Counter[tuple[int | None, str | None]] = Counter()
    for kind, key, name in changes:
        rebuilt[(key, name)] += 1 if kind in ("INSERT", "UPDATE_AFTER") else -1
    assert {row: n for row, n in rebuilt.items() if n} == Counter(lake.sql("SELECT * FROM t").rows)
    lake.sql(f"USE public; DROP SCHEMA {schema} CASCADE")


def test_changes_rebuild_the_table(shared_lake: Lake) -> None:
    follow(shared_lake)
