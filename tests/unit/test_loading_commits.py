"""Batches on their way into a table: when they are committed, and that each is in it once."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, Schema

from headrace.catalog.records import Load
from headrace.errors import EnvironmentFault, NotAllowed, NotFound, QueryFailed, TooBusy, Unsupported, UserError
from headrace.loading import json_rows
from headrace.loading import spool as spool_module
from headrace.loading.checked import BatchDiffers
from headrace.loading.commits import Commits
from headrace.loading.notes import noted
from headrace.loading.spool import Spool
from unit.loading_double import NAME, LoadingLake, lines
from unit.test_loading_rows import UTC, column, shape
from unit.test_loading_store import a_load

WORKER = Path(__file__).with_name("loading_double.py")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[LoadingLake]:
    made = LoadingLake(tmp_path)
    yield made
    made.close()


def reopened(lake: LoadingLake) -> LoadingLake:
    lake.close()
    return LoadingLake(lake.folder, lake.clock)


def test_a_batch_is_committed_a_minute_later(lake: LoadingLake) -> None:
    sent = lake.send(lines(0, 10), "b1")
    assert (sent.load.rows, sent.load.rejected, sent.load.state, sent.duplicate) == (10, 0, "RECEIVED", False)
    lake.look(59)
    assert lake.rows() == []
    assert lake.look() == pytest.approx(1)
    lake.look(1)
    assert lake.rows() == list(range(10))
    assert lake.jobs == ["LOAD 10 rows INTO main.public.events"]
    assert lake.spooled() == []
    again = lake.send(lines(0, 10), "b1")
    assert (again.duplicate, again.load.state, again.load.rows, again.load.version) == (True, "COMMITTED", 10, 1)
    assert lake.look(120) == 60
    assert lake.rows() == list(range(10))


@pytest.mark.parametrize("hours", [-1, -1000, 1])
def test_a_clock_that_is_set_keeps_nobody_waiting(lake: LoadingLake, hours: int) -> None:
    lake.send(lines(0, 1), "b1")
    lake.look(30)
    lake.clock.put_by(hours * 3600)
    lake.send(lines(1, 2), "b2")
    lake.look(29)
    assert lake.rows() == []
    lake.look(1)
    assert lake.rows() == [0, 1]
    lake.send(lines(2, 3), "b3")
    lake.writer.fails = [QueryFailed("Spark is tired.")]
    lake.look(60)
    lake.clock.put_by(hours * 3600)
    assert lake.look(4) == pytest.approx(1), "the pause after a failure is not longer either"
    lake.look(1)
    assert lake.rows() == [0, 1, 2]


@pytest.mark.parametrize(("hours", "waits"), [(-1, 60), (1, 0)])
def test_a_start_by_another_clock(lake: LoadingLake, hours: int, waits: float) -> None:
    lake.send(lines(0, 1), "b1")
    lake.clock.put_by(hours * 3600)
    lake = reopened(lake)
    lake.look()
    assert lake.rows() == ([0] if not waits else [])
    lake.look(waits)
    assert lake.rows() == [0]


def test_many_batches_are_one_commit(lake: LoadingLake) -> None:
    for number in range(20):
        lake.send(lines(number * 10, number * 10 + 10), f"b{number}")
        lake.clock.advance(1)
    lake.look(60)
    assert lake.rows() == list(range(200))
    assert lake.writer.commits == 1
    (commit, note), *_ = noted(lake.loader.logs, lake.table, "BATCH")
    assert (commit.version, note.sequence, len(note.held), commit.changes) == (1, 1, 20, "append")


def test_enough_rows_do_not_wait(tmp_path: Path) -> None:
    lake = LoadingLake(tmp_path, rows=100)
    lake.send(lines(0, 60))
    lake.look()
    assert lake.rows() == []
    lake.send(lines(60, 120))
    lake.look()
    assert len(lake.rows()) == 120


def test_bad_rows_go_to_the_rejects(lake: LoadingLake) -> None:
    sent = lake.send('{"id": 1}\n{"id": "x"}\n{"no": 1}\n{"id": 2}', "b1")
    assert (sent.load.rows, sent.load.rejected) == (2, 2)
    lake.send('{"id": 3.5}', "b2")
    lake.look(61)
    assert lake.rows() == [1, 2]
    assert lake.rejects() == [("b1", 2), ("b1", 3), ("b2", 1)]
    table = DeltaTable(str(lake.folder / "events_rejects")).to_pyarrow_table().to_pylist()
    first = next(row for row in table if row["row_number"] == 2)
    assert first["row"] == '{"id": "x"}'
    assert first["error"] == 'Column id: "x" is no BIGINT: it must be a whole number.'
    assert first["received_at"] == sent.load.received_at


def test_nothing_but_bad_rows(lake: LoadingLake) -> None:
    for number in range(3):
        lake.send('{"id": 3.5}', f"b{number}")
        lake.look(61)
    assert lake.rows() == []
    assert lake.rejects() == [("b0", 1), ("b1", 1), ("b2", 1)]
    lake.send(lines(0, 2) + '\n{"id": null}', "b3")
    lake.look(61)
    assert lake.rows() == [0, 1]
    assert len(lake.rejects()) == 4


def test_arrow_batches(lake: LoadingLake) -> None:
    table = pa.table({"ID": pa.array([1, 2, None], pa.int32()), "kind": pa.array(["a", None, "c"]).dictionary_encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    sent = lake.send(sink.getvalue().to_pybytes(), "a1", "arrow")
    assert (sent.load.rows, sent.load.rejected) == (2, 1)
    lake.look(61)
    assert lake.rows() == [1, 2]
    assert lake.rejects() == [("a1", 3)]


def test_the_same_batch_from_many_clients_at_once(lake: LoadingLake) -> None:
    with ThreadPoolExecutor(8) as pool:
        sent = list(pool.map(lambda _: lake.send(lines(0, 50), "same"), range(16)))
    assert sum(not each.duplicate for each in sent) == 1
    assert len({each.load.id for each in sent}) == 1
    assert len(lake.spooled()) == 1
    lake.look(61)
    assert lake.rows() == list(range(50))


def test_a_batch_without_an_id_gets_one(lake: LoadingLake) -> None:
    first, second = lake.send(lines(0, 1)), lake.send(lines(0, 1))
    assert first.load.key != second.load.key
    lake.look(61)
    assert lake.rows() == [0, 0]


@pytest.mark.parametrize("batch_id", ["", "a\0b", "x" * 256, "\ud800", "a\nb"])
def test_ids_that_no_batch_can_have(lake: LoadingLake, batch_id: str) -> None:
    with pytest.raises(UserError):
        lake.send(lines(0, 1), batch_id)
    assert lake.spooled() == []


def test_too_much_waits(tmp_path: Path) -> None:
    lake = LoadingLake(tmp_path, most_bytes=15_000)
    lake.send(lines(0, 100), "b1")
    with pytest.raises(TooBusy) as raised:
        lake.send(lines(100, 400), "b2")
    assert raised.value.retry_after > 1
    lake.look(61)
    lake.send(lines(100, 400), "b2")
    lake.look(61)
    assert len(lake.rows()) == 400


def test_a_failed_commit_is_tried_again_with_the_same_batches(lake: LoadingLake) -> None:
    lake.send(lines(0, 5), "b1")
    lake.writer.fails = [EnvironmentFault("Spark is away."), EnvironmentFault("Spark is away.")]
    lake.look(61)
    lake.send(lines(5, 10), "b2")
    (waiting, error), *_ = lake.loader.committer.status()
    assert (waiting.rows, waiting.batches, error) == (10, 2, "Spark is away.")
    assert 0 < lake.look(4) <= 1
    lake.look(1)
    assert lake.rows() == []
    lake.look(10)
    assert lake.rows() == list(range(10))
    found = [note for _, note in noted(lake.loader.logs, lake.table, "BATCH")]
    assert [(note.sequence, len(note.held)) for note in found] == [(2, 1), (1, 1)]
    assert lake.loader.committer.status() == []


def conditions(lake: LoadingLake) -> list[tuple[str, int, bool | None]]:
    return [(str(each.table), each.rows, each.is_well) for each in lake.loader.committer.conditions()]


def test_a_table_whose_rows_are_not_committed_for_long_is_in_trouble(lake: LoadingLake) -> None:
    lake.send(lines(0, 3), "b1")
    assert conditions(lake) == [("main.public.events", 3, None)]
    lake.writer.fails = [NotAllowed("The virtual cluster default is suspended.")] * 7
    for _ in range(2):
        lake.look(61)
        assert conditions(lake) == [("main.public.events", 3, None)], "it may be over soon"
    for _ in range(5):
        lake.look(61)
    (found,) = lake.loader.committer.conditions()
    assert found.is_well is False
    assert found.trouble == (
        "3 rows in 1 batch wait since 7 minutes, and cannot be committed: The virtual cluster default is suspended."
    )
    lake.look(61)
    lake.send(lines(3, 4), "b2")
    assert conditions(lake) == [("main.public.events", 1, True)], "the last commit worked"
    lake.look(61)
    assert conditions(lake) == []


def test_rows_that_nobody_comes_to_commit_are_trouble(lake: LoadingLake) -> None:
    lake.send(lines(0, 3), "b1")
    lake.clock.advance(599)
    assert conditions(lake) == [("main.public.events", 3, None)]
    lake.clock.advance(1)
    (found,) = lake.loader.committer.conditions()
    assert (found.is_well, found.trouble) == (False, "3 rows in 1 batch wait since 10 minutes.")


def test_a_damaged_batch_is_trouble_until_it_comes_again(lake: LoadingLake) -> None:
    sent = lake.send(lines(0, 3), "b1").load
    spool_file(lake, sent).write_bytes(b"damaged")
    lake.look(61)
    (found,) = lake.loader.committer.conditions()
    assert (found.is_well, found.rows) == (False, 0)
    assert found.trouble == "The file of batch b1 with 3 rows is gone or damaged: it must be sent again."
    lake.send(lines(0, 3), "b1")
    lake.look(61)
    assert conditions(lake) == []
    assert lake.rows() == [0, 1, 2]


def test_what_fails_after_the_commit_has_not_failed(lake: LoadingLake) -> None:
    lake.send(lines(0, 5), "b1")
    lake.writer.fails_after = [EnvironmentFault("A hook failed.")]
    lake.look(61)
    assert lake.rows() == list(range(5))
    assert lake.spooled() == []
    assert lake.loader.committer.status() == []


def test_a_table_that_was_dropped_takes_its_rows_along(lake: LoadingLake) -> None:
    lake.send(lines(0, 5), "b1")
    shutil.rmtree(lake.table)
    lake.look(61)
    assert lake.store.waiting() == []
    assert lake.spooled() == []
    with pytest.raises(NotFound):
        lake.send(lines(0, 5), "b2")


def test_a_table_that_was_created_again_gets_nothing_of_the_old_one(lake: LoadingLake) -> None:
    lake.send(lines(0, 5), "b1")
    shutil.rmtree(lake.table)
    second = LoadingLake(lake.folder, lake.clock)
    second.send(lines(5, 6), "b1")
    second.look(61)
    assert second.rows() == [5]


def test_a_table_that_was_moved_is_followed(lake: LoadingLake) -> None:
    lake.send(lines(0, 5), "b1")
    moved = str(lake.folder / "renamed")
    lake.writer.places[str(DeltaTable(lake.table).metadata().id)] = moved
    shutil.move(lake.table, moved)
    lake.look(61)
    lake.table = moved
    assert lake.rows() == list(range(5))


def test_files_that_cannot_be_found_keep_their_rows_waiting(lake: LoadingLake) -> None:
    lake.send(lines(0, 5), "b1")
    lake.writer.places[str(DeltaTable(lake.table).metadata().id)] = lake.table
    away = str(lake.folder / "unmounted")
    shutil.move(lake.table, away)
    lake.look(61)
    assert len(lake.store.waiting()) == 1
    shutil.move(away, lake.table)
    lake.look(61)
    assert lake.rows() == list(range(5))


def test_rows_that_do_not_meet_a_constraint(lake: LoadingLake) -> None:
    DeltaTable(lake.table).alter.add_constraint({"small": "id < 3"})
    lake.writer.bad = lambda row: row["id"] >= 3
    body = lines(0, 5) + '\n{"id": "x"}'
    lake.send(body, "b1")
    lake.send(lines(0, 1), "b2")
    lake.look(61)
    assert lake.rows() == [0, 0, 1, 2]
    assert lake.rejects() == [("b1", 4), ("b1", 5), ("b1", 6)]
    again = without_database(lake).send(body, "b1")
    assert (again.load.rows, again.load.rejected, again.load.state) == (3, 3, "COMMITTED")


def test_a_damaged_file_does_not_keep_up_the_others(lake: LoadingLake) -> None:
    for number in range(3):
        lake.send(lines(number, number + 1), f"b{number}")
    broken = sorted((lake.folder / "loads").rglob("*.arrow"))[1]
    broken.write_bytes(broken.read_bytes()[:100])
    lake.look(61)
    assert len(lake.rows()) == 2
    assert len(lake.store.waiting()) == 1
    assert lake.look(61) == 60, "it is not tried again and again"
    lake = reopened(lake)
    lake.look(61)
    assert len(lake.rows()) == 2
    assert broken.exists(), "nothing is deleted on a guess"


def test_a_file_that_cannot_be_read_does_not_keep_up_the_others(
    lake: LoadingLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        lake.send(lines(number, number + 1), f"b{number}")
    held = sorted((lake.folder / "loads").rglob("*.arrow"))[1]
    read = Path.read_bytes

    def fail(path: Path) -> bytes:
        if path == held:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(path)

    with monkeypatch.context() as failing:
        failing.setattr(Path, "read_bytes", fail)
        lake.look(61)
        assert len(lake.rows()) == 2
        lake.look(61)
        ((waiting, error),) = lake.loader.committer.status()
        assert (waiting.rows, "cannot be read now" in (error or "")) == (1, True), error
    lake.look(61)
    assert sorted(lake.rows()) == [0, 1, 2]


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.ENOMEM, errno.EACCES, errno.ESTALE])
@pytest.mark.parametrize("kind", ["rows", "rejects"])
def test_a_file_that_cannot_be_read_now_is_read_later(
    lake: LoadingLake, monkeypatch: pytest.MonkeyPatch, number: int, kind: str
) -> None:
    lake.send(lines(0, 2) + '\n{"id": "x"}', "b1")

    def fail(*_: Any) -> Any:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as failing:
        if kind == "rows":
            failing.setattr(Path, "read_bytes", fail)
        else:
            failing.setattr(spool_module.pa, "OSFile", fail)
        lake.look(61)
        ((waiting, error),) = lake.loader.committer.status()
        assert (waiting.rows, "cannot be read now" in (error or "")) == (2, True), error
    lake.look(61)
    assert lake.rows() == [0, 1]
    assert lake.rejects() == [("b1", 3)]
    assert lake.loader.committer.status() == []


def test_files_that_cannot_be_read_at_a_start(lake: LoadingLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.send(lines(0, 2) + '\n{"id": "x"}', "b1")
    lake.close()
    for file in lake.folder.glob("ops.db*"):
        file.unlink()

    def fail(*_: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as failing:
        failing.setattr(spool_module.pa, "OSFile", fail)
        lake = LoadingLake(lake.folder, lake.clock)
    lake = reopened(lake)
    lake.look(61)
    assert (lake.rows(), lake.rejects()) == ([0, 1], [("b1", 3)])


@pytest.mark.parametrize("damage", ["foot", "cut", "empty", "sizes"])
def test_a_file_with_wrong_contents_is_damaged(lake: LoadingLake, damage: str) -> None:
    sent = lake.send(lines(0, 1000), "b1").load
    lake.send(lines(1000, 1001), "b2")
    broken = lake.folder / "loads" / sent.table_id / f"{sent.id}.arrow"
    content = broken.read_bytes()
    wrong = b"\xff" * 64
    broken.write_bytes(
        {
            "foot": content[:-64] + wrong,
            "cut": content[: len(content) // 2],
            "empty": b"",
            "sizes": content[:-500] + b"\x7f" * 400 + content[-100:],
        }[damage]
    )
    lake.look(61)
    assert lake.rows() == [1000], "the other one is not kept up"
    assert lake.look(61) == 60


def spool_file(lake: LoadingLake, load: Load) -> Path:
    return lake.folder / "loads" / load.table_id / f"{load.id}.arrow"


@pytest.mark.parametrize("seen", [False, True], ids=["nobody has looked", "it was left out"])
@pytest.mark.parametrize("rows", [3, 5], ids=["the same", "other rows"])
def test_a_batch_whose_file_is_damaged_is_taken_again(lake: LoadingLake, rows: int, seen: bool) -> None:
    body = lines(0, 3) + '\n{"id": "x"}'
    sent = lake.send(body, "b1").load
    lake.send(lines(10, 11), "b2")
    spool_file(lake, sent).write_bytes(b"damaged")
    if seen:
        lake.look(61)
        assert lake.rows() == [10]
    body = lines(0, rows) + '\n{"id": "x"}'
    again = lake.send(body, "b1")
    assert (again.duplicate, again.load.id, again.load.rows, again.load.rejected) == (False, sent.id, rows, 1)
    assert lake.send(body, "b1").duplicate, "once is enough"
    lake.look(61)
    assert lake.rows() == [*range(rows), 10]
    assert lake.rejects() == [("b1", rows + 1)]
    assert lake.send(body, "b1").load.state == "COMMITTED"
    assert lake.spooled() == []


def test_a_batch_whose_file_is_gone_is_taken_again_after_a_restart(lake: LoadingLake) -> None:
    sent = lake.send(lines(0, 3), "b1").load
    spool_file(lake, sent).unlink()
    lake = reopened(lake)
    lake.look(61)
    assert lake.rows() == []
    assert not lake.send(lines(0, 3), "b1").duplicate
    lake.look(61)
    assert lake.rows() == [0, 1, 2]


def test_a_batch_whose_rows_are_in_the_table_is_not_taken_again(
    lake: LoadingLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is damaged, and only its record does not know yet that nobody needs it."""
    sent = lake.send(lines(0, 3), "b1").load
    with monkeypatch.context() as failing:
        failing.setattr(Commits, "_record", lambda *_: (_ for _ in ()).throw(EnvironmentFault("It is away.")))
        lake.look(61)
    assert lake.rows() == [0, 1, 2]
    spool_file(lake, sent).write_bytes(b"damaged")
    assert lake.send(lines(0, 3), "b1").duplicate
    lake.look(61)
    assert lake.rows() == [0, 1, 2]
    assert lake.store.waiting() == []


def test_a_batch_that_is_committed_while_it_comes_again_is_not_taken_again(
    lake: LoadingLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.send(lines(0, 3), "b1")
    is_sound = lake.loader._spool.is_sound

    def committed_meanwhile(load: Load) -> bool:
        monkeypatch.undo()
        lake.look(61)
        return is_sound(load)

    monkeypatch.setattr(lake.loader._spool, "is_sound", committed_meanwhile)
    assert lake.send(lines(0, 3), "b1").duplicate
    lake.look(61)
    assert lake.rows() == [0, 1, 2]


def test_a_damaged_batch_from_many_clients_at_once(lake: LoadingLake) -> None:
    sent = lake.send(lines(0, 50), "b1").load
    spool_file(lake, sent).write_bytes(b"")
    with ThreadPoolExecutor(8) as pool:
        every = list(pool.map(lambda _: lake.send(lines(0, 50), "b1"), range(16)))
    assert sum(not each.duplicate for each in every) == 1
    lake.look(61)
    assert lake.rows() == list(range(50))


# ---------------------------------------------------------------------- bad rows that have no place


def odd_rejects(lake: LoadingLake, name: str = "events_rejects") -> None:
    shutil.rmtree(lake.folder / name, ignore_errors=True)
    DeltaTable.create(str(lake.folder / name), Schema([Field("a", "long")]))


def rejected_in(lake: LoadingLake, name: str) -> list[str]:
    return sorted(row["batch_id"] for row in DeltaTable(str(lake.folder / name)).to_pyarrow_table().to_pylist())


def test_an_altered_table_of_rejects_holds_up_nothing(lake: LoadingLake, caplog: pytest.LogCaptureFixture) -> None:
    lake.send(lines(0, 1) + '\n{"id": "x"}', "b1")
    lake.look(61)
    odd_rejects(lake)
    lake.send(lines(1, 2) + '\n{"id": "x"}', "b2")
    lake.look(61)
    assert lake.rows() == [0, 1]
    assert lake.loader.committer.status() == []
    assert lake.spooled() == []
    assert rejected_in(lake, "events_rejects_2") == ["b2"]
    assert "go to main.public.events_rejects_2. main.public.events_rejects has other columns" in caplog.text
    odd_rejects(lake, "events_rejects_2")
    lake.send('{"id": "x"}', "b3")
    lake.look(61)
    assert rejected_in(lake, "events_rejects_3") == ["b3"]
    shutil.rmtree(lake.folder / "events_rejects")
    lake.send('{"id": "x"}', "b4")
    lake.look(61)
    assert lake.rejects() == [("b4", 1)], "the usual place is free again"


def test_rejects_are_written_once_wherever_they_go(lake: LoadingLake, monkeypatch: pytest.MonkeyPatch) -> None:
    odd_rejects(lake)
    change = lake.store.change

    def fail(loads: list[Load]) -> None:
        if any(load.state == "COMMITTED" for load in loads):
            raise EnvironmentFault("The database is away.")
        change(loads)

    lake.send(lines(0, 1) + '\n{"id": "x"}', "b1")
    with monkeypatch.context() as failing:
        failing.setattr(lake.store, "change", fail)
        lake.look(61)
    shutil.rmtree(lake.folder / "events_rejects")
    lake = reopened(lake)
    lake.look(61)
    assert (lake.rows(), lake.rejects(), rejected_in(lake, "events_rejects_2")) == ([0], [], ["b1"])


def test_no_place_for_rejects_at_all(lake: LoadingLake) -> None:
    for number in range(1, 10):
        odd_rejects(lake, "events_rejects" + (f"_{number}" if number > 1 else ""))
    lake.send(lines(0, 1) + '\n{"id": "x"}', "b1")
    lake.look(61)
    assert lake.rows() == [0]
    ((_, error),) = lake.loader.committer.status()
    assert "There is no place for rejected rows of main.public.events." in (error or "")
    shutil.rmtree(lake.folder / "events_rejects")
    lake.look(61)
    assert lake.rejects() == [("b1", 2)]


# ---------------------------------------------------------------------- conditions that change with the time


@pytest.mark.parametrize("fault", ["none", "rejects", "restart", "old verdict"])
def test_a_row_is_judged_once(lake: LoadingLake, fault: str) -> None:
    DeltaTable(lake.table).alter.add_constraint({"late": "id >= 0"})
    lake.send(lines(0, 4), "b1")
    lake.writer.bad = lambda row: row["id"] >= 2

    def later() -> None:
        lake.writer.bad = lambda row: row["id"] < 2

    lake.writer.before_append = later
    if fault in ("rejects", "restart"):
        lake.writer.fails_rejects = [EnvironmentFault("Spark is away.")]
    if fault == "old verdict":
        lake.writer.fails = [EnvironmentFault("Spark is away.")]
    lake.look(61)
    if fault == "restart":
        lake = reopened(lake)
        lake.writer.bad = lambda row: row["id"] < 2
    lake.look(61)
    expected = ([2, 3], [1, 2]) if fault == "old verdict" else ([0, 1], [3, 4])
    assert (lake.rows(), [number for _, number in lake.rejects()]) == expected
    assert lake.spooled() == []


def test_a_verdict_that_was_lost_is_given_anew(lake: LoadingLake) -> None:
    DeltaTable(lake.table).alter.add_constraint({"small": "id < 3"})
    lake.writer.bad = lambda row: row["id"] >= 3
    lake.writer.fails_rejects = [EnvironmentFault("Spark is away.")] * 2
    lake.send(lines(0, 5), "b1")
    lake.look(61)
    (kept,) = (lake.folder / "loads").rglob("*.verdict")
    next(kept.glob("*.parquet")).write_bytes(b"damaged")
    lake.look(61)
    shutil.rmtree(kept)
    lake.look(61)
    assert (lake.rows(), lake.rejects()) == ([0, 1, 2], [("b1", 4), ("b1", 5)])


def test_a_verdict_of_before_counts_no_more_when_the_constraint_is_gone(lake: LoadingLake) -> None:
    DeltaTable(lake.table).alter.add_constraint({"small": "id < 3"})
    lake.writer.bad = lambda row: row["id"] >= 3
    lake.writer.fails = [EnvironmentFault("Spark is away.")]
    lake.send(lines(0, 5), "b1")
    lake.look(61)
    DeltaTable(lake.table).alter.drop_constraint("small")
    lake.writer.fails_after = [EnvironmentFault("A hook failed.")]
    lake.look(61)
    lake.look(61)
    assert (lake.rows(), lake.rejects()) == ([0, 1, 2, 3, 4], [])


def test_a_table_that_is_dropped_right_before_its_commit(lake: LoadingLake) -> None:
    lake.send(lines(0, 5), "b1")
    lake.writer.before_append = lambda: shutil.rmtree(lake.table)
    lake.look(61)
    assert not Path(lake.table).exists()
    assert lake.store.waiting() == []
    assert lake.spooled() == []
    assert lake.loader.committer.status() == []


def test_a_table_that_is_dropped_right_before_the_commit_of_a_copy(lake: LoadingLake) -> None:
    (lake.folder / "x.json").write_text(lines(0, 5))
    lake.writer.before_append = lambda: shutil.rmtree(lake.table)
    with pytest.raises(NotFound, match=r"main\.public\.events was dropped, renamed or replaced"):
        lake.copy("x.json")
    assert not Path(lake.table).exists()
    assert lake.store.waiting() == []
    assert lake.spooled() == []


def test_a_backlog_that_knows_more_than_the_store(lake: LoadingLake) -> None:
    lake.send(lines(0, 1), "b1")
    lake.store.forget([load.id for load in lake.store.waiting()])
    lake.look(61)
    assert len(lake.jobs) == 1
    assert lake.look() == 60, "nothing is due"
    assert len(lake.jobs) == 1
    assert lake.loader.committer.status() == []


def test_a_batch_that_nobody_would_commit_is_sent_again(lake: LoadingLake) -> None:
    lake.send(lines(0, 2), "b1")
    (waiting, _), *_ = lake.loader.committer.status()
    backlog = lake.loader.committer._backlog
    backlog.remove(backlog.of(waiting.table_id).values())
    assert lake.look(61) == 60
    lake.loader.committer._woken.clear()
    assert lake.send(lines(0, 2), "b1").duplicate
    assert lake.loader.committer._woken.is_set()
    lake.look()
    assert lake.rows() == [0, 1]


def test_a_batch_that_could_not_be_written_leaves_nothing(lake: LoadingLake, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = spool_module.sync

    def full(path: Path) -> None:
        if path.name.endswith(".arrow.part") and ".rejects" not in path.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        synced(path)

    with monkeypatch.context() as failing:
        failing.setattr(spool_module, "sync", full)
        with pytest.raises(EnvironmentFault, match="No space left on device"):
            lake.send(lines(0, 2) + '\n{"id": "x"}', "b1")
    assert lake.spooled() == []
    assert not lake.send(lines(0, 2) + '\n{"id": "x"}', "b1").duplicate


def test_a_batch_that_could_not_be_recorded(lake: LoadingLake, monkeypatch: pytest.MonkeyPatch) -> None:
    add = lake.store.add

    def fail(load: Load) -> None:
        raise EnvironmentFault("The database is away.")

    def fail_late(load: Load) -> None:
        add(load)
        fail(load)

    monkeypatch.setattr(lake.store, "add", fail)
    with pytest.raises(EnvironmentFault):
        lake.send(lines(0, 1) + '\n{"id": "x"}', "b1")
    assert lake.spooled() == []
    with monkeypatch.context() as silent:
        silent.setattr(lake.store, "ids", fail)
        with pytest.raises(EnvironmentFault):
            lake.send(lines(0, 1), "b1")
    assert len(lake.spooled()) == 1, "there may be a record, which needs it"
    monkeypatch.setattr(lake.store, "add", fail_late)
    assert not lake.send(lines(1, 2), "b2").duplicate
    lake.look(61)
    assert lake.rows() == [1]


@pytest.mark.parametrize("written", [False, True], ids=["no record", "a record"])
def test_a_batch_that_was_refused_in_doubt_is_not_loaded_beside_its_second_try(
    lake: LoadingLake, monkeypatch: pytest.MonkeyPatch, written: bool
) -> None:
    add = lake.store.add

    def fail(load: Any) -> None:
        if written and isinstance(load, Load):
            add(load)
        raise EnvironmentFault("The database is away.")

    with monkeypatch.context() as away:
        away.setattr(lake.store, "add", fail)
        away.setattr(lake.store, "ids", fail)
        with pytest.raises(EnvironmentFault):
            lake.send(lines(0, 3), "b1")
    assert lake.send(lines(0, 3), "b1").duplicate is written
    assert len(lake.spooled()) == 1
    lake.look(61)
    assert (lake.rows(), lake.spooled()) == ([0, 1, 2], [])
    lake.look(8 * 86400)  # The id is forgotten.
    lake = reopened(lake)
    lake.look(61)
    assert lake.rows() == [0, 1, 2]


def test_a_batch_that_was_refused_in_doubt_and_is_recorded_is_loaded(
    lake: LoadingLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sends something else finds out."""
    add = lake.store.add

    def fail(load: Any) -> None:
        if isinstance(load, Load):
            add(load)
        raise EnvironmentFault("The database is away.")

    with monkeypatch.context() as away:
        away.setattr(lake.store, "add", fail)
        away.setattr(lake.store, "ids", fail)
        with pytest.raises(EnvironmentFault):
            lake.send(lines(0, 3), "b1")
    lake.send(lines(5, 6), "b2")
    lake.look(61)
    assert lake.rows() == [0, 1, 2, 5]


def test_old_batch_ids_are_forgotten(lake: LoadingLake) -> None:
    lake.send(lines(0, 1), "b1")
    lake.look(61)
    lake.look(8 * 86400)
    assert lake.store.count() == 0
    assert lake.send(lines(0, 1), "b1").duplicate is False


def test_a_table_with_a_type_that_only_sql_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.loading import shapes
    from headrace.loading.types import Column, Other

    lake = LoadingLake(tmp_path)
    real = shapes.columns_of
    odd = Column("v", Other("variant"), False, '"variant"')
    monkeypatch.setattr(shapes, "columns_of", lambda schema: (*real(schema), odd))
    with pytest.raises(Unsupported, match="v is VARIANT NOT NULL"):
        lake.send(lines(0, 1), "b1")


def test_columns_that_are_called_like_ours(tmp_path: Path) -> None:
    names = ("number", "load", "row", "Column with `quotes`")
    taken = shape(*(column(name, "integer") for name in names))
    checked = json_rows.check(json.dumps(dict.fromkeys(names, 1)).encode(), taken, UTC)
    spool = Spool(tmp_path)
    load = a_load("l1", rows=1)
    assert spool.put(load, checked, taken) > 0
    assert spool.is_sound(load)
    (file,) = spool.for_spark([load], "x")
    assert pq.read_table(file.path).to_pylist() == [{"load": 0, "number": 1, "row": dict.fromkeys(names, 1)}]
    assert spool.found_parquet("t1", "x") == (file,)


# ---------------------------------------------------------------------- after a crash


def run(folder: Path, *actions: str, dies: bool = False) -> list[dict[str, Any]]:
    variables = {key: value for key, value in os.environ.items() if key != "HEADRACE_FAILPOINT"}
    paths = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "packages/headrace/src")]
    done = subprocess.run(
        [sys.executable, str(WORKER), str(folder), *actions],
        capture_output=True,
        text=True,
        env=variables | {"PYTHONPATH": os.pathsep.join(paths)},
        timeout=120,
        check=False,
    )
    expected = -signal.SIGKILL if dies else 0
    assert done.returncode == expected, f"exit {done.returncode}: {done.stdout[-2000:]} {done.stderr[-3000:]}"
    return [json.loads(line) for line in done.stdout.splitlines()]


POINTS = (
    "load-before-spool", "load-after-spool", "load-after-record", "load-after-sequence", "mid-load",
    "load-after-commit", "load-after-rejects", "load-before-finish", "load-after-finish",
)  # fmt: skip


@pytest.mark.timeout(300)
def test_kill_at_every_failpoint_of_a_batch(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    sent = 0
    for number, point in enumerate(POINTS):
        batch = f"send b{number} {sent} {sent + 5}"
        run(folder, f"fail {point}", batch, "commit", dies=True)
        sent += 5
        # The client, who may not have had its answer, sends the batch again.
        answers = run(folder, batch, "commit", "show")
        acknowledged = point not in ("load-before-spool",)
        assert answers[0][batch][3] is acknowledged, (point, answers)
        found = answers[2]["show"]
        assert found["rows"] == list(range(sent)), (point, found)
        assert found["rejects"] == [[f"b{each}", 6] for each in range(number + 1)], (point, found)
        assert found["spooled"] == [], (point, found)


@pytest.mark.timeout(300)
def test_kill_at_every_failpoint_of_a_copy(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    files = folder / "in"
    files.mkdir(parents=True)
    written = 0
    for number, point in enumerate(POINTS[3:]):
        (files / f"{number}.jsonl").write_text(f'{lines(written, written + 5)}\n{{"id": "x"}}')
        run(folder, f"fail {point}", "copy in", dies=True)
        written += 5
        answers = run(folder, "copy in", "show")
        if point != "mid-load":  # The commit may have been quicker than the kill.
            state = "LOADED" if point == "load-after-sequence" else "SKIPPED"
            assert answers[0]["copy in"][-1][0] == state, (point, answers)
        found = answers[1]["show"]
        assert found["rows"] == list(range(written)), (point, found)
        assert len(found["rejects"]) == number + 1, (point, found)
        assert found["spooled"] == [], (point, found)


def test_the_operations_database_is_deleted(lake: LoadingLake) -> None:
    lake.send(lines(0, 5) + '\n{"id": "x"}', "b1")
    lake.look(61)
    lake.send(lines(5, 10) + '\n{"id": "x"}', "b2")
    lake.close()
    for file in lake.folder.glob("ops.db*"):
        file.unlink()
    lake = LoadingLake(lake.folder, lake.clock)
    lake.look(61)
    for number, name in enumerate(("b1", "b2")):
        again = lake.send(lines(5 * number, 5 * number + 5) + '\n{"id": "x"}', name)
        assert (again.duplicate, again.load.rows, again.load.rejected) == (True, 5, 1), name
    with pytest.raises(BatchDiffers):
        lake.send(lines(0, 6), "b1")
    lake.look(61)
    assert lake.rows() == list(range(10))
    assert lake.rejects() == [("b1", 6), ("b2", 6)]


def without_database(lake: LoadingLake) -> LoadingLake:
    """The lake after its operations database was lost."""
    lake.close()
    for file in lake.folder.glob("ops.db*"):
        file.unlink()
    return LoadingLake(lake.folder, lake.clock)


def test_committed_batches_are_known_by_the_tables_log(lake: LoadingLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when writing them down is cut short, and when other batches come first."""
    for number in range(5):
        lake.send(lines(number, number + 1), f"b{number}")
        lake.look(61)
    lake = without_database(lake)
    add, written = lake.store.add, iter(range(2))

    def failing(load: Load) -> Load | None:
        if next(written, None) is None:
            raise EnvironmentFault("The database is away.")
        return add(load)

    monkeypatch.setattr(lake.store, "add", failing)
    with pytest.raises(EnvironmentFault):
        lake.send(lines(0, 1), "b0")
    monkeypatch.undo()
    lake = reopened(lake)
    lake.send(lines(5, 6), "b5")
    lake.look(61)
    lake = reopened(lake)
    assert [lake.send(lines(number, number + 1), f"b{number}").duplicate for number in range(6)] == [True] * 6
    lake.look(61)
    assert lake.rows() == list(range(6))


def test_ids_of_an_old_copy_of_the_database_and_later_ones_are_known(lake: LoadingLake) -> None:
    lake.send(lines(0, 1), "b0")
    lake.look(61)
    lake.close()
    kept = {path: path.read_bytes() for path in lake.folder.glob("ops.db*")}
    lake = LoadingLake(lake.folder, lake.clock)
    for number in (1, 2):
        lake.send(lines(number, number + 1), f"b{number}")
        lake.look(61)
    lake.close()
    for path in lake.folder.glob("ops.db*"):
        path.unlink()
    for path, content in kept.items():
        path.write_bytes(content)
    lake = LoadingLake(lake.folder, lake.clock)
    assert [lake.send(lines(number, number + 1), f"b{number}").duplicate for number in range(3)] == [True] * 3


def test_ids_of_a_tables_log_are_forgotten_as_those_of_the_database_are(lake: LoadingLake) -> None:
    lake.clock.now = datetime.now(timezone.utc)  # Commits have the time of the machine.
    lake.send(lines(0, 1), "b0")
    lake.look(61)
    lake.clock.advance(8 * 24 * 3600)
    lake = without_database(lake)
    assert not lake.send(lines(0, 1), "b0").duplicate


def test_a_commit_names_no_more_batches_than_its_note_can_hold(
    lake: LoadingLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.loading.committer._SET_KEYS", 3000)
    names = [f"{'ü' * 200}{number}" for number in range(6)]
    for number, name in enumerate(names):
        lake.send(lines(number, number + 1), name)
    lake.look(61)
    found = [note for _, note in noted(lake.loader.logs, lake.table, "BATCH")]
    assert [len(note.held) for note in found] == [2, 2, 2]
    assert {held.key for note in found for held in note.held} == set(names)
    assert lake.rows() == list(range(6))


def test_another_content_under_the_same_id_is_refused(lake: LoadingLake) -> None:
    lake.send(lines(0, 3), "b1")
    for _ in range(2):
        with pytest.raises(BatchDiffers, match='The batch "b1" has come before, with another content') as refused:
            lake.send(lines(0, 4), "b1")
        assert "batch_id" in (refused.value.hint or "")
        assert lake.send(lines(0, 3), "b1").duplicate
        lake.look(61)
    assert lake.rows() == [0, 1, 2]
    assert lake.spooled() == []


def test_of_two_contents_at_once_one_is_taken(lake: LoadingLake) -> None:
    def send(number: int) -> bool | None:
        try:
            return lake.send(lines(10 * number, 10 * number + 1), "same").duplicate
        except BatchDiffers:
            return None

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(send, range(8)))
    assert (told.count(False), told.count(None)) == (1, 7)
    lake.look(61)
    assert len(lake.rows()) == 1


def test_the_operations_database_is_an_old_copy(lake: LoadingLake) -> None:
    lake.send(lines(0, 5), "b1")
    lake.send(lines(5, 10) + '\n{"id": "x"}', "b2")
    lake.close()
    kept = {
        path: path.read_bytes() for path in (*lake.folder.glob("ops.db*"), *(lake.folder / "loads").rglob("*.arrow"))
    }
    lake = LoadingLake(lake.folder, lake.clock)
    lake.look(61)
    assert lake.rows() == list(range(10))
    lake.close()
    for path in lake.folder.glob("ops.db*"):
        path.unlink()
    for path, content in kept.items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    lake = LoadingLake(lake.folder, lake.clock)
    lake.look(61)
    assert lake.rows() == list(range(10)), "the table's own log knows what it has"
    assert lake.rejects() == [("b2", 6)]
    assert lake.store.waiting() == []
    assert lake.spooled() == []


def test_rows_of_a_batch_that_was_never_finished_are_no_obstacle(lake: LoadingLake) -> None:
    sent = lake.send(lines(0, 5), "b1")
    folder = lake.folder / "loads" / sent.load.table_id
    (folder / "x.arrow.part").write_bytes(b"half")
    (folder / "y.rejects.arrow").write_bytes(b"half")
    (folder / "batches-9-0.parquet").write_bytes(b"half")
    (folder / "z.arrow").write_bytes(b"not ours")
    lake = reopened(lake)
    assert lake.spooled() == sorted([f"{sent.load.id}.arrow", "z.arrow"])
    lake.look(61)
    assert lake.rows() == list(range(5))


def test_the_thread_commits_by_itself(tmp_path: Path) -> None:
    lake = LoadingLake(tmp_path, seconds=0)
    lake.loader.start()
    lake.send(lines(0, 5), "b1")
    for _ in range(200):
        if lake.rows() == list(range(5)):
            break
        lake.loader.committer.wake()
        lake.loader.committer._thread.join(0.05)  # type: ignore[union-attr]
    lake.close()
    assert lake.rows() == list(range(5))
    assert str(NAME) == "main.public.events"
