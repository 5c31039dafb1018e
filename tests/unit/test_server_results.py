from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import EnvironmentFault, NotFound
from headrace.result import Result, done
from headrace.server.results import FOLDER, ZONE_KEY, ResultFiles


def files(folder: Path, **limits: Any) -> ResultFiles:
    chosen = {"rows_max": 1_000_000, "bytes_max": 2**31, **limits}
    made = ResultFiles(folder, zone="Asia/Tokyo", **chosen)
    made.prepare()
    return made


def numbers(count: int, chunks: int = 1) -> Result:
    each = count // chunks
    parts = [pa.table({"n": range(part * each, (part + 1) * each)}) for part in range(chunks)]
    return Result(pa.concat_tables(parts))


def all_rows(kept_in: ResultFiles, kept: Any, limit: int) -> list[Any]:
    found: list[Any] = []
    offset: int | None = 0
    while offset is not None:
        page = json.loads(kept_in.page(kept, offset, limit))
        assert len(page["rows"]) <= limit
        found += page["rows"]
        offset = page["next_offset"]
    return found


@pytest.mark.parametrize("chunks", [1, 7])
@pytest.mark.parametrize("limit", [1, 999, 10_000])
def test_pages_give_every_row_once(tmp_path: Path, chunks: int, limit: int) -> None:
    folder = files(tmp_path)
    count = 70 if limit == 1 else 20_003 // chunks * chunks
    kept = folder.write(numbers(count, chunks))
    assert (kept.row_count, kept.truncated) == (count, False)
    assert all_rows(folder, kept, limit) == [[n] for n in range(count)]


def test_beyond_the_end(tmp_path: Path) -> None:
    folder = files(tmp_path)
    kept = folder.write(numbers(3))
    assert json.loads(folder.page(kept, 3, 10)) == {
        "columns": [{"name": "n", "type": "bigint"}], "rows": [], "next_offset": None
    }  # fmt: skip


def test_no_rows_and_no_columns(tmp_path: Path) -> None:
    folder = files(tmp_path)
    empty = folder.write(Result(pa.table({"n": pa.array([], pa.int64())})))
    assert json.loads(folder.page(empty, 0, 10))["rows"] == []
    assert pa.ipc.open_stream(b"".join(folder.stream(empty))).read_all().num_rows == 0
    nothing = folder.write(Result(pa.table({})))
    assert json.loads(folder.page(nothing, 0, 10)) == {"columns": [], "rows": [], "next_offset": None}


def test_the_stream_is_the_whole_result(tmp_path: Path) -> None:
    folder = files(tmp_path)
    result = numbers(50_000, chunks=4)
    pieces = list(folder.stream(folder.write(result)))
    assert len(pieces) > 4
    read = pa.ipc.open_stream(b"".join(pieces)).read_all()
    assert read.equals(result.to_arrow())
    assert read.schema.metadata[ZONE_KEY] == b"Asia/Tokyo"


def test_a_stream_goes_on_when_the_file_is_deleted(tmp_path: Path) -> None:
    folder = files(tmp_path)
    kept = folder.write(numbers(50_000))
    pieces = folder.stream(kept)
    first = next(pieces)
    folder.drop(kept)
    assert pa.ipc.open_stream(first + b"".join(pieces)).read_all().num_rows == 50_000
    with pytest.raises(NotFound):
        folder.page(kept, 0, 1)
    with pytest.raises(NotFound):
        folder.stream(kept)


def test_more_rows_than_are_kept(tmp_path: Path) -> None:
    folder = files(tmp_path, rows_max=10)
    kept = folder.write(numbers(11))
    assert (kept.row_count, kept.truncated) == (10, True)
    assert not folder.write(numbers(10)).truncated


def test_more_bytes_than_are_kept(tmp_path: Path) -> None:
    folder = files(tmp_path, bytes_max=1_000_000)
    kept = folder.write(Result(pa.table({"t": ["x" * 10_000] * 1000})))
    assert kept.truncated
    assert 0 < kept.row_count < 1000
    assert len(all_rows(folder, kept, 10_000)) == kept.row_count


def test_a_page_of_long_rows_is_short(tmp_path: Path) -> None:
    folder = files(tmp_path)
    kept = folder.write(Result(pa.table({"t": ["x" * 3_000_000] * 10})))
    page = folder.page(kept, 0, 10)
    assert len(page) < 12_000_000
    assert 1 <= len(json.loads(page)["rows"]) < 10
    assert len(all_rows(folder, kept, 10)) == 10


def test_only_the_user_can_read_results(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir(mode=0o755)
    (tmp_path / FOLDER / "old.arrow").write_text("of an earlier run")
    folder = files(tmp_path)
    kept = folder.write(done("Yes."))
    assert stat.S_IMODE((tmp_path / FOLDER).stat().st_mode) == 0o700
    assert stat.S_IMODE(kept.path.stat().st_mode) == 0o600
    assert [file.name for file in (tmp_path / FOLDER).iterdir()] == [kept.path.name]


def test_a_folder_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    (tmp_path / FOLDER).symlink_to(elsewhere)
    files(tmp_path)
    assert (elsewhere / "precious").exists()
    assert not (tmp_path / FOLDER).is_symlink()


def test_a_disk_that_does_not_take_it(tmp_path: Path) -> None:
    folder = files(tmp_path)
    (tmp_path / FOLDER).rmdir()
    with pytest.raises(EnvironmentFault, match="succeeded, but"):
        folder.write(numbers(1))


def test_discarded_results_are_gone_and_none_is_added(tmp_path: Path) -> None:
    folder = files(tmp_path)
    kept = folder.write(numbers(3))
    being_read = folder.stream(kept)
    folder.discard()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NotFound):
        folder.page(kept, 0, 1)
    with pytest.raises(EnvironmentFault):
        folder.write(numbers(3))
    assert pa.ipc.open_stream(b"".join(being_read)).read_all().num_rows == 3
    folder.discard()
    folder.prepare()
    assert folder.write(numbers(3)).row_count == 3


@pytest.mark.parametrize("fault", [pa.ArrowInvalid("no"), OSError(28, "No space left on device"), MemoryError()])
def test_a_result_that_cannot_be_written_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    class Broken:
        """Writes half of a file."""

        def __init__(self, file: Any, _schema: pa.Schema) -> None:
            file.write(b"half")

        def __enter__(self) -> Broken:
            raise fault

        def __exit__(self, *_: object) -> None: ...

    folder = files(tmp_path)
    monkeypatch.setattr(pa.ipc, "new_file", Broken)
    with pytest.raises(EnvironmentFault if isinstance(fault, OSError) else type(fault)):
        folder.write(numbers(3))
    assert list((tmp_path / FOLDER).iterdir()) == []
