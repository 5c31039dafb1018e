"""Files for COPY INTO: which may be read, what their rows are, and that each is loaded once."""

from __future__ import annotations

import bz2
import glob
import gzip
import json
import os
from collections.abc import Iterator
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from headrace.catalog.records import path_in
from headrace.errors import BadSetting, Dangerous, EnvironmentFault, NotAllowed, NotFound, Unsupported, UserError
from headrace.loading import files as files_module
from headrace.loading.checked import BadBatch
from headrace.loading.copying import LOADED_BEFORE
from headrace.loading.files import FileFormat, FileReader, SourceFile, format_of, listed
from headrace.loading.files import _told as told
from unit.loading_double import NAME, LoadingLake, lines
from unit.test_loading_rows import UTC, array_of, column, map_of, shape, struct_of


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[LoadingLake]:
    (tmp_path / "lake").mkdir()
    made = LoadingLake(tmp_path / "lake")
    yield made
    made.close()


def read(
    path: Path, file_format: FileFormat, *columns: dict[str, Any], **options: str
) -> tuple[list[dict[str, Any]], dict[int, str]]:
    """The rows of a file, and the errors of those that do not fit."""
    reader = FileReader.with_options(file_format, options)
    rows: list[dict[str, Any]] = []
    errors: dict[int, str] = {}
    (file,) = listed(str(path), path.parent, None)
    for checked in reader.rows(file, shape(*columns), UTC):
        rows += checked.rows.to_pylist()
        errors |= {reject.number: reject.error for reject in checked.rejects}
    return rows, errors


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


A, B = column("a", "integer"), column("b", "string")


# ---------------------------------------------------------------------- which files


def test_files_folders_and_patterns(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "c.txt", ".hidden", "_SUCCESS"):
        (tmp_path / name).write_text("x")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "d.csv").write_text("x")
    os.mkfifo(tmp_path / "pipe.csv")

    def names(files: str) -> list[str]:
        return [Path(file.path).name for file in listed(files, tmp_path, None)]

    assert names("a.csv") == ["a.csv"]
    assert names(str(tmp_path / "a.csv")) == ["a.csv"]
    assert names(f"file://{tmp_path}/a.csv") == ["a.csv"]
    assert names("*.csv") == ["a.csv", "b.csv"]
    assert names(".") == ["a.csv", "b.csv", "c.txt"]
    assert names("**/*.csv") == ["a.csv", "b.csv", "d.csv"]
    assert names("[ab].csv") == ["a.csv", "b.csv"]
    (file,) = listed("a.csv", tmp_path, None)
    assert file.key == f"1 {(tmp_path / 'a.csv').stat().st_mtime_ns} - {tmp_path / 'a.csv'}"
    assert path_in(file.key_again("x")) == str(tmp_path / "a.csv")
    for missing in ("no.csv", "*.parquet", "deep", "pipe.csv", "a.csv/x"):
        with pytest.raises(NotFound, match="There is no file"):
            listed(missing, tmp_path, None)
    for odd in ("", " ", "a\0b"):
        with pytest.raises(UserError):
            listed(odd, tmp_path, None)
    with pytest.raises(Unsupported):
        listed("s3://bucket/x", tmp_path, None)


def test_a_server_reads_only_below_its_folders(tmp_path: Path) -> None:
    own, other, secret = tmp_path / "files", tmp_path / "other", tmp_path / "secret"
    for folder in (own, other, secret):
        folder.mkdir()
        (folder / "x.csv").write_text("x")
    (own / "link.csv").symlink_to(secret / "x.csv")
    (own / "folder").symlink_to(secret)
    (own / "fine.csv").symlink_to(other / "x.csv")
    roots = (own, other)
    assert len(listed("x.csv", own, roots)) == 1
    assert len(listed(str(other / "x.csv"), own, roots)) == 1
    assert listed("fine.csv", own, roots)[0].path == str(other / "x.csv"), "a link's own place counts"
    for outside in (
        "../secret/x.csv", str(secret / "x.csv"), str(secret / "no.csv"), "/etc/passwd", "/etc/*", "link.csv", "../*",
        "folder/x.csv", "*/*.csv", "../files_of_another/x", f"file://{secret}/x.csv",
    ):  # fmt: skip
        with pytest.raises(Dangerous, match="a server refuses that"):
            listed(outside, own, roots)
    with pytest.raises(NotFound):
        listed("no.csv", own, roots)


def test_nobody_learns_what_lies_outside(tmp_path: Path) -> None:
    own, secret = tmp_path / "files", tmp_path / "secret"
    for folder in (own, own / "in", secret):
        folder.mkdir()
    (secret / "plans.csv").write_text("x")
    (secret / "sub").mkdir()
    (own / "link").symlink_to(secret)
    (own / "x.csv").write_text("x")
    # The last would lead out through a link, if a pattern could go up from there.
    for files in ("li*/*", "*/*.csv", "**/*.csv", "in/../x.csv", "*/../../secret/*", "li*/sub/../*"):
        with pytest.raises(Dangerous) as raised:
            listed(files, own, (own,))
        assert "plans" not in str(raised.value), files
        assert json.dumps(files) in raised.value.message
    assert len(listed("in/../x.csv", own, None)) == 1


def test_a_pattern_that_fits_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        (tmp_path / f"{number}.csv").write_text("x")
        (tmp_path / "in" / str(number)).mkdir(parents=True)
    monkeypatch.setattr(files_module, "_MOST_FILES", 8)
    assert len(listed("*", tmp_path, None)) == 8
    monkeypatch.setattr(files_module, "_MOST_FILES", 7)
    with pytest.raises(UserError, match="More than 7 files fit"):
        listed("*.csv", tmp_path, None)
    with pytest.raises(UserError, match="More than 7 files fit"):
        listed(".", tmp_path, None)
    walked: list[str] = []
    monkeypatch.setattr(files_module, "_MOST_PATHS", 5)
    entries = files_module._entries
    monkeypatch.setattr(files_module, "_entries", lambda folder: (walked.append(e.name) or e for e in entries(folder)))
    with pytest.raises(UserError, match="More than 7 files fit"):
        listed("in/*", tmp_path, None)
    assert len(walked) == 6, "it is not walked to its end"
    walked.clear()
    with pytest.raises(UserError, match="More than 7 files fit"):
        listed("**", tmp_path, None)
    assert len(walked) < 17, "it is not walked to its end"


def test_a_pattern_that_leads_to_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        (tmp_path / "in" / f"{number % 3}" / f"{number}").mkdir(parents=True)
        (tmp_path / "in" / f"{number % 3}" / f"{number}" / "x.csv").write_text("x")
    looked: list[str] = []
    entries = files_module._entries
    monkeypatch.setattr(files_module, "_entries", lambda folder: (looked.append(e.name) or e for e in entries(folder)))
    assert len(listed("**/*.csv", tmp_path, None)) == 30
    assert len(listed("in/*/[0-9]/x.csv", tmp_path, None)) == 10
    monkeypatch.setattr(files_module, "_MOST_LOOKED", 50)
    looked.clear()
    with pytest.raises(UserError, match=r'More than 50 files and folders are where "\*\*/\*\.parquet" could lead'):
        listed("**/*.parquet", tmp_path, None)
    assert len(looked) == 51
    assert len(listed("in/2/29/**", tmp_path, None)) == 1


def test_links_in_a_tree(tmp_path: Path) -> None:
    own, secret = tmp_path / "files", tmp_path / "secret"
    (own / "a" / "b").mkdir(parents=True)
    (own / "a" / "b" / "x.csv").write_text("x")
    (own / "a" / "up").symlink_to(own)
    (own / "again").symlink_to(own / "a" / "b")
    for roots in (None, (own,)):
        assert [file.path for file in listed("**/*.csv", own, roots)] == [str(own / "a" / "b" / "x.csv")]
        assert len(listed("again/*", own, roots)) == 1
        assert len(listed("*/x.csv", own, roots)) == 1
    secret.mkdir()
    (own / "a" / "out").symlink_to(secret)
    for content in ((), ("x.csv",)):
        for name in content:
            (secret / name).write_text("x")
        for files in ("**/*.csv", "a/*/*.csv", "*/out/*.csv", "**/out/*"):
            with pytest.raises(Dangerous):  # Whether there is anything or not.
                listed(files, own, (own,))


def test_patterns_mean_what_they_mean_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.csv", ".hidden/x.csv", "in/.x.csv", "in/_y.csv", "in/deep/er/z.csv", "in/[odd].csv", "in/B.CSV"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    monkeypatch.chdir(tmp_path)
    for pattern in (
        "*", "**", "**/*", "**/*.csv", "in/**", "in/**/*.csv", "*/*.csv", "*/.*", ".h*/*", "in/[[]odd].csv", "in/[!_]*",
        "**/deep/**/*.csv", "**/**/z.csv", "i?/*", "in/**/er/z.csv", "*/deep", "./*.csv", "in//*.csv", "*.CSV",
    ):  # fmt: skip
        expected = {path for path in map(os.path.realpath, glob.glob(pattern, recursive=True)) if os.path.isfile(path)}
        try:
            found = {file.path for file in listed(pattern, Path(), None)}
        except NotFound:
            found = set()
        assert found == expected, pattern


# ---------------------------------------------------------------------- JSON


def test_json_lines(tmp_path: Path) -> None:
    path = written(tmp_path / "x.json", '\ufeff{"a": 1, "b": "ü"}\r\n\n{"A": "2"}\n{"a": 1.5}\nno\n{"a": 3}')
    rows, errors = read(path, "JSON", A, B)
    assert rows == [{"a": 1, "b": "ü"}, {"a": 2, "b": None}, {"a": 3, "b": None}]
    assert errors == {
        4: "Column a: 1.5 is no INT: it must be a whole number.",
        5: "The row is no valid JSON: Expecting value at character 1.",
    }
    for packed in (gzip.compress, bz2.compress):
        suffix = ".gz" if packed is gzip.compress else ".bz2"
        assert read(written(tmp_path / f"x.json{suffix}", packed(path.read_bytes())), "JSON", A, B)[0] == rows
    assert read(written(tmp_path / "empty.json", ""), "JSON", A, B) == ([], {})
    latin = written(tmp_path / "latin.json", '{"b": "ü"}'.encode("latin-1"))
    assert read(latin, "JSON", A, B)[1] == {1: "The row is no UTF-8 (byte 8)."}
    assert read(latin, "JSON", A, B, encoding="ISO-8859-1")[0] == [{"a": None, "b": "ü"}]
    with pytest.raises(BadSetting, match="no encoding"):
        read(latin, "JSON", A, B, encoding="klingon")
    with pytest.raises(BadSetting, match="multiLine"):
        read(latin, "JSON", A, B, multiLine="true")
    with pytest.raises(BadBatch, match=r"broken\.json\.gz: it cannot be read"):
        read(written(tmp_path / "broken.json.gz", b"no gzip"), "JSON", A, B)


def test_large_files_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.loading.files._BLOCK", 100)
    path = written(tmp_path / "x.json", "\n".join(json.dumps({"a": n, "b": "x" * (n % 40)}) for n in range(500)))
    rows, errors = read(path, "JSON", A, B)
    assert [row["a"] for row in rows] == list(range(500))
    assert not errors
    path = written(
        tmp_path / "x.csv", "a,b\n" + "\n".join(f"{n if n % 50 else 'x'},{'y' * (n % 40)}" for n in range(500))
    )
    rows, errors = read(path, "CSV", A, B, header="true")
    assert len(rows) == 490
    assert sorted(errors) == list(range(1, 500, 50))


# ---------------------------------------------------------------------- CSV


@pytest.mark.parametrize("multi_line", ["true", "false"])
@pytest.mark.parametrize("blank", ["\n", "\r\n", "\n\r\n\n"])
def test_empty_lines_before_the_names_are_no_rows(tmp_path: Path, blank: str, multi_line: str) -> None:
    path = written(tmp_path / "x.csv", f"{blank}b,a\nx,1\ny,bad\n")
    rows, errors = read(path, "CSV", A, B, header="true", multiLine=multi_line)
    assert rows == [{"a": 1, "b": "x"}]
    assert list(errors) == [2]


@pytest.mark.parametrize("block", [8 * 1024**2, 7, 20])
@pytest.mark.parametrize("end", ["\r", "\r\n", "\n"])
@pytest.mark.parametrize("multi_line", ["true", "false"])
def test_the_ends_of_lines(
    tmp_path: Path, end: str, multi_line: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.loading.files._BLOCK", block)
    rows = ["1,x", "bad,y", '3,"z ""quoted"", and 5"', '4,5" pipe', "5,"]
    values = [
        {"a": 1, "b": "x"}, {"a": 3, "b": 'z "quoted", and 5'}, {"a": 4, "b": '5" pipe'}, {"a": 5, "b": None},
    ]  # fmt: skip
    plain = written(tmp_path / "plain.csv", end.join(rows) + end)
    named = written(tmp_path / "named.csv", end.join(["a,b", *rows]))
    for path, options in ((plain, {}), (named, {"header": "true"})):
        found, errors = read(path, "CSV", A, B, multiLine=multi_line, **options)
        assert found == values
        assert errors == {2: 'Column a: "bad" is no INT: it must be a whole number.'}


def test_a_carriage_return_is_the_end_of_a_line_but_in_quotes(tmp_path: Path) -> None:
    mixed = written(tmp_path / "mixed.csv", 'a,b\r1,x\n2,"y\rz"\r\n3,w\r4,"v\r\n5,u\r\n')
    rows, errors = read(mixed, "CSV", A, B, header="true")
    assert rows == [{"a": 1, "b": "x"}, {"a": 2, "b": "y\rz"}, {"a": 3, "b": "w"}, {"a": 5, "b": "u"}]
    assert list(errors) == [4]
    assert errors[4].startswith("A quote is not closed")
    one = written(tmp_path / "one.csv", '1,"x\ry"')
    assert read(one, "CSV", A, B) == ([{"a": 1, "b": "x\ry"}], {})
    escaped = written(tmp_path / "e.csv", "1;'x\\'\r;y'\r2;z\r")
    assert read(escaped, "CSV", A, B, quote="'", escape="\\", sep=";")[0] == [
        {"a": 1, "b": "x'\r;y"}, {"a": 2, "b": "z"},
    ]  # fmt: skip


def test_the_tables_columns_say_how_many_fields_a_row_has(tmp_path: Path) -> None:
    """Not the first row: that may be the one that is wrong."""
    for first, counted in (("1", "1 fields"), ("1,x,y", "3 fields")):
        for multi_line in ("true", "false"):
            path = written(tmp_path / "x.csv", f"{first}\n2,b\n3,d\n")
            rows, errors = read(path, "CSV", A, B, multiLine=multi_line)
            assert rows == [{"a": 2, "b": "b"}, {"a": 3, "b": "d"}]
            assert errors == {1: f"The row has {counted}, not 2."}
    rows, errors = read(written(tmp_path / "x.csv", "1\n2\n"), "CSV", A, B)
    assert (rows, len(errors)) == ([], 2)


def test_columns_at_the_end_that_the_table_fills_may_be_left_out(tmp_path: Path) -> None:
    default = column("c", "integer", CURRENT_DEFAULT="7")
    assert read(written(tmp_path / "x.csv", "1,x\n2,y\n"), "CSV", A, B, default)[0] == [
        {"a": 1, "b": "x"}, {"a": 2, "b": "y"},
    ]  # fmt: skip
    assert len(read(written(tmp_path / "x.csv", "1,x,3\n2,y,4\n"), "CSV", A, B, default)[0]) == 2
    rows, errors = read(written(tmp_path / "x.csv", "1\n2,y,4\n"), "CSV", A, B, default)
    assert rows == [{"a": 2, "b": "y", "c": 4}]
    assert errors == {1: "The row has 1 fields, not 3."}


def test_csv(tmp_path: Path) -> None:
    path = written(tmp_path / "x.csv", 'B, a\r\n"x ""y"", z",1\r\n,\r\n"",2\r\nNA,3\r\n')
    rows, errors = read(path, "CSV", A, B, header="true")
    assert rows == [{"a": 1, "b": 'x "y", z'}, {"a": None, "b": None}, {"a": 2, "b": ""}, {"a": 3, "b": "NA"}]
    assert not errors
    assert read(path, "CSV", A, B, header="true", nullValue="NA")[0][3] == {"a": 3, "b": None}
    plain = written(tmp_path / "y.csv", "1|'a|b'\n2|c")
    assert read(plain, "CSV", A, B, sep="|", quote="'")[0] == [{"a": 1, "b": "a|b"}, {"a": 2, "b": "c"}]
    tabs = written(tmp_path / "t.tsv", "1\tx\n")
    assert read(tabs, "CSV", A, B, delimiter="\t")[0] == [{"a": 1, "b": "x"}]
    escaped = written(tmp_path / "e.csv", '1,"x\\"y"\n')
    assert read(escaped, "CSV", A, B, escape="\\")[0] == [{"a": 1, "b": 'x"y'}]
    assert read(written(tmp_path / "one.csv", "7"), "CSV", A)[0] == [{"a": 7}]


def test_rows_of_csv_that_do_not_fit(tmp_path: Path) -> None:
    content = b'a,b\n1,x\n2\n3,y,z\nx,y\n4,"open\n5,\xff\n\n6,fine\n007,x\n+8,x\n'
    rows, errors = read(written(tmp_path / "x.csv", content), "CSV", A, B, header="true")
    assert [row["a"] for row in rows] == [1, 6]
    assert errors[2] == "The row has 1 fields, not 2."
    assert errors[3] == "The row has 3 fields, not 2."
    assert errors[4] == 'Column a: "x" is no INT: it must be a whole number.'
    assert errors[5].startswith("A quote is not closed")
    assert errors[6] == "Column b: b'\\xff' is no UTF-8."
    assert sorted(errors) == [2, 3, 4, 5, 6, 9, 10]


def test_all_types_of_csv(tmp_path: Path) -> None:
    columns = (
        column("t", "boolean"), column("n", "decimal(6,2)"), column("d", "date"), column("at", "timestamp"),
        column("local", "timestamp_ntz"), column("x", "binary"), column("f", "float"), column("l", array_of("integer")),
        column("m", map_of("string", "integer")), column("s", struct_of(column("y", "long"))),
    )  # fmt: skip
    good = (
        'TRUE,1.50,2026-01-31,2026-01-31T10:00:00Z,2026-01-31 10:00:00,AP8=,0.5,"[1, null]","{""a"": 1}","{""y"": 2}"'
    )
    bad = 'yes,1.505,31.1.26,10:00,2026-01-31T10:00:00Z,%,1e39,"[1.5]","[1]","{"'
    rows, errors = read(written(tmp_path / "x.csv", f"{good}\n{bad}\n"), "CSV", *columns)
    assert rows == [
        {
            "t": True, "n": Decimal("1.50"), "d": datetime(2026, 1, 31).date(),
            "at": datetime(2026, 1, 31, 10, tzinfo=timezone.utc), "local": datetime(2026, 1, 31, 10), "x": b"\x00\xff",
            "f": 0.5, "l": [1, None], "m": [("a", 1)], "s": {"y": 2},
        }
    ]  # fmt: skip
    assert errors[2].endswith("And 7 more.")


def test_lines_in_values(tmp_path: Path) -> None:
    content = 'a,b\n1,"x\ny"\n2,z\n3\n4,"u\n\nv"\nno,w\n'
    rows, errors = read(written(tmp_path / "x.csv", content), "CSV", A, B, header="true", multiLine="true")
    assert rows == [{"a": 1, "b": "x\ny"}, {"a": 2, "b": "z"}, {"a": 4, "b": "u\n\nv"}]
    assert errors == {3: "The row has 1 fields, not 2.", 5: 'Column a: "no" is no INT: it must be a whole number.'}
    rows, errors = read(written(tmp_path / "y.csv", content), "CSV", A, B, header="true")
    assert [row["a"] for row in rows] == [2], "without the option, a row is a line"


def test_uneven_rows_with_lines_in_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.loading.csv_rows._BLOCK", 200)
    monkeypatch.setattr("headrace.loading.csv_rows._MOST_UNEVEN", 60)
    content = "".join(f'{n},"x\ny"\n' if n % 3 == 0 else f"{n}\n" for n in range(600))
    (file,) = listed(str(written(tmp_path / "x.csv", content)), tmp_path, None)
    reader = FileReader.with_options("CSV", {"multiLine": "true"})
    most, numbers, wrong = 0, [], []
    for checked in reader.rows(file, shape(A, B), UTC):
        most = max(most, len(checked.rejects))
        numbers += checked.numbers.to_pylist()
        wrong += [reject.number for reject in checked.rejects]
    assert numbers == [n + 1 for n in range(600) if n % 3 == 0]
    assert sorted(wrong) == [n + 1 for n in range(600) if n % 3]
    assert most < 100, "they do not wait for the end"
    monkeypatch.setattr("headrace.loading.csv_rows._BLOCK", 10_000)
    for text in ("1,x\n" + "1,2,3\n" * 1000, "1,2,3\n" * 1000 + "1,x\n"):
        path = written(tmp_path / "y.csv", "a,b\n" + text)
        with pytest.raises(BadBatch, match="More than 60 rows that have not 2 fields follow one another"):
            read(path, "CSV", A, B, header="true", multiLine="true")
        assert len(read(path, "CSV", A, B, header="true")[1]) == 1000
    monkeypatch.setattr("headrace.loading.csv_rows._MOST_UNEVEN_TEXT", 100)
    with pytest.raises(BadBatch, match="cannot be kept in memory"):
        read(written(tmp_path / "z.csv", "1,x\n1,2," + "x" * 200), "CSV", A, B, multiLine="true")


def test_headers_of_csv(tmp_path: Path) -> None:
    for content, options, words in (
        ("a,c\n1,2", {"header": "true"}, 'no column "c"'),
        ("a,A\n1,2", {"header": "true"}, "Column a is given twice"),
        ("1,2,3", {}, "3 fields, and the table has 2 columns"),
        ("b\nx", {"header": "true"}, "INT NOT NULL, and the file does not give it"),
    ):
        with pytest.raises(BadBatch, match=words):
            read(written(tmp_path / "x.csv", content), "CSV", column("a", "integer", nullable=False), B, **options)
    for empty in ("", "a,b\n", "a,b"):
        assert read(written(tmp_path / "x.csv", empty), "CSV", A, B, header="true") == ([], {})
    for options, words in (
        ({"inferSchema": "true"}, 'no option "inferSchema"'), ({"header": "yes"}, "true or false"),
        ({"sep": "||"}, "one ASCII"), ({"sep": ""}, "one ASCII"), ({"Header": "true", "header": "true"}, "twice"),
        ({"sep": "é"}, "one ASCII"),
    ):  # fmt: skip
        with pytest.raises(BadSetting, match=words):
            FileReader.with_options("CSV", options)
    with pytest.raises(BadSetting, match="PARQUET"):
        FileReader.with_options("PARQUET", {"header": "true"})


# ---------------------------------------------------------------------- Parquet


def test_parquet(tmp_path: Path) -> None:
    table = pa.table({"B": ["x", None, "y"], "a": pa.array([1, 2**40, 3], pa.int64())})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=1)
    rows, errors = read(tmp_path / "x.parquet", "PARQUET", A, B)
    assert rows == [{"a": 1, "b": "x"}, {"a": 3, "b": "y"}]
    assert list(errors) == [2]
    assert "is no INT" in errors[2]
    moments = pa.table({"at": pa.array([datetime(2026, 1, 31)], pa.timestamp("ns"))})
    pq.write_table(moments, tmp_path / "old.parquet", use_deprecated_int96_timestamps=True)
    reader = FileReader.with_options("PARQUET", {})
    (file,) = listed("old.parquet", tmp_path, None)
    (checked,) = reader.rows(file, shape(column("at", "timestamp")), ZoneInfo("Asia/Tokyo"))
    assert checked.rows.to_pylist() == [{"at": datetime(2026, 1, 31, tzinfo=timezone.utc)}]
    for content, words in ((b"no parquet", "cannot be read"), (b"", "cannot be read")):
        with pytest.raises(BadBatch, match=words):
            read(written(tmp_path / "bad.parquet", content), "PARQUET", A)
    pq.write_table(pa.table({"z": [1]}), tmp_path / "z.parquet")
    with pytest.raises(BadBatch, match=r'z.parquet: There is no column "z"'):
        read(tmp_path / "z.parquet", "PARQUET", A)


def test_an_encoding_whose_errors_have_no_reason(tmp_path: Path) -> None:
    (file,) = listed(str(written(tmp_path / "x.csv", "x")), tmp_path, None)
    with pytest.raises(BadBatch, match=r"x\.csv: it is not in the encoding that was given: odd\."), told(file):
        raise UnicodeError("odd")


# ---------------------------------------------------------------------- loading


def states(copied: list[Any]) -> list[tuple[str, str, int, int]]:
    return [(Path(each.file).name, each.state, each.rows, each.rejected) for each in copied]


def test_each_file_once(lake: LoadingLake) -> None:
    files = lake.folder / "in"
    files.mkdir()
    written(files / "a.json", lines(0, 3))
    written(files / "b.json", lines(3, 5) + '\n{"id": "x"}\n{"no": 1}')
    written(files / "empty.json", "")
    copied = lake.copy("in")
    assert states(copied) == [("a.json", "LOADED", 3, 0), ("b.json", "LOADED", 2, 2), ("empty.json", "EMPTY", 0, 0)]
    assert copied[1].error == 'Column id: "x" is no BIGINT: it must be a whole number.'
    assert lake.rows() == list(range(5))
    assert lake.rejects() == [(str(files / "b.json"), 3), (str(files / "b.json"), 4)]
    assert lake.writer.commits == 2
    assert [state for _, state, _, _ in states(lake.copy("in"))] == ["SKIPPED"] * 3
    assert {each.note for each in lake.copy("in")} == {LOADED_BEFORE}
    written(files / "c.json", lines(5, 6))
    assert [state for _, state, _, _ in states(lake.copy("in"))] == ["SKIPPED", "SKIPPED", "LOADED", "SKIPPED"]
    assert lake.rows() == [0, 1, 2, 3, 4, 5]
    assert states(lake.copy("in/c.json", force=True)) == [("c.json", "LOADED", 1, 0)]
    assert states(lake.copy("in/c.json")) == [("c.json", "SKIPPED", 0, 0)]
    assert lake.rows().count(5) == 2
    assert lake.spooled() == []


def test_a_file_that_was_only_touched_is_the_same_file(lake: LoadingLake, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(lake.folder / "a.json", lines(0, 3))
    empty = written(lake.folder / "b.json", "")
    lake.copy("*.json")
    digested: list[str] = []
    digest = SourceFile.digest
    monkeypatch.setattr(SourceFile, "digest", lambda file: digested.append(file.path) or digest(file))
    for times in (1, 2):
        for each in (path, empty):
            os.utime(each, ns=(times, times))
        assert [state for _, state, _, _ in states(lake.copy("*.json"))] == ["SKIPPED"] * 2
        assert digested == [str(path), str(empty)] * times, "its contents are looked at"
        assert [state for _, state, _, _ in states(lake.copy("*.json"))] == ["SKIPPED"] * 2
        assert digested == [str(path), str(empty)] * times, "and not again while its time is the same"
    written(lake.folder / "c.json", lines(0, 3))
    assert states(lake.copy("c.json")) == [("c.json", "LOADED", 3, 0)], "under another name it is another file"
    assert lake.rows() == [0, 0, 1, 1, 2, 2]


def test_a_file_with_other_contents_is_another_file_and_that_is_said(lake: LoadingLake) -> None:
    path = written(lake.folder / "a.json", lines(0, 2))
    (first,) = lake.copy("a.json")
    assert first.note is None
    written(path, lines(0, 3))
    (grown,) = lake.copy("a.json")
    assert (grown.state, grown.rows) == ("LOADED", 3)
    assert (
        grown.note
        == "It was loaded before, and has changed since: all of its rows are in the table now, besides those."
    )
    written(path, lines(7, 10))
    (same_size,) = lake.copy("a.json")
    assert (same_size.state, same_size.rows, same_size.note) == ("LOADED", 3, grown.note)
    assert lake.rows() == [0, 0, 1, 1, 2, 7, 8, 9]
    written(path, lines(0, 2))
    assert [each.state for each in lake.copy("a.json")] == ["SKIPPED"], "each of its contents once"


def test_a_load_of_an_earlier_version_is_known_by_its_time(lake: LoadingLake) -> None:
    path = written(lake.folder / "a.json", lines(0, 2))
    lake.copy("a.json")
    (record,) = lake.store.of_paths(DeltaTable(lake.table).metadata().id, [str(path)])[str(path)]
    lake.store.forget([record.id])
    lake.store.add(record.model_copy(update={"digest": None}))
    assert [each.state for each in lake.copy("a.json")] == ["SKIPPED"]
    os.utime(path, ns=(1, 1))
    assert [each.state for each in lake.copy("a.json")] == ["LOADED"], "nobody knows what it held"
    os.utime(path, ns=(2, 2))
    assert [each.state for each in lake.copy("a.json")] == ["SKIPPED"]


def test_nothing_but_empty_files(lake: LoadingLake) -> None:
    written(lake.folder / "e.json", "")
    assert states(lake.copy("e.json")) == [("e.json", "EMPTY", 0, 0)]
    assert states(lake.copy("e.json")) == [("e.json", "SKIPPED", 0, 0)]
    assert lake.writer.commits == 0
    written(lake.folder / "f.json", lines(0, 1))
    assert states(lake.copy("f.json")) == [("f.json", "LOADED", 1, 0)]


def test_a_statement_that_fails_has_loaded_nothing(lake: LoadingLake) -> None:
    written(lake.folder / "a.csv", "1,x,1.5\n")
    written(lake.folder / "b.csv", "1,2,3,4,5\n")
    with pytest.raises(BadBatch, match=r"b\.csv: Its rows have 5 fields"):
        lake.copy("*.csv", "CSV")
    lake.writer.fails = [EnvironmentFault("Spark is away.")]
    with pytest.raises(EnvironmentFault):
        lake.copy("a.csv", "CSV")
    assert (lake.rows(), lake.store.count(), lake.spooled()) == ([], 0, [])
    assert states(lake.copy("a.csv", "CSV")) == [("a.csv", "LOADED", 1, 0)]
    assert lake.rows() == [1]


def test_a_file_that_changes_while_it_is_read(lake: LoadingLake) -> None:
    path = written(lake.folder / "a.json", lines(0, 3))
    files = listed("a.json", lake.folder, None)
    path.write_text(lines(0, 4))
    with pytest.raises(BadBatch, match="changed while it was read"):
        lake.loader.copies.copy(NAME, lake.table, files, FileReader("JSON"))
    assert lake.rows() == []


def test_files_are_remembered_by_the_table_itself(lake: LoadingLake) -> None:
    for name in "ab":
        written(lake.folder / f"{name}.json", lines(ord(name), ord(name) + 1))
        lake.copy(f"{name}.json")
    lake.close()
    for file in lake.folder.glob("ops.db*"):
        file.unlink()
    lake = LoadingLake(lake.folder, lake.clock)
    os.utime(lake.folder / "a.json", ns=(1, 1))
    assert [state for _, state, _, _ in states(lake.copy("*.json"))] == ["SKIPPED", "SKIPPED"]
    lake.close()
    for file in lake.folder.glob("ops.db*"):
        file.unlink()
    log = Path(lake.table) / "_delta_log"
    DeltaTable(lake.table).create_checkpoint()
    (log / "00000000000000000001.json").unlink()
    lake = LoadingLake(lake.folder, lake.clock)
    with pytest.raises(NotAllowed, match="not known which files were loaded"):
        lake.copy("*.json")
    assert [state for _, state, _, _ in states(lake.copy("a.json", force=True))] == ["LOADED"]


def test_batches_and_files_do_not_get_in_each_others_way(lake: LoadingLake) -> None:
    lake.send(lines(0, 2), "b1")
    lake.writer.fails = [EnvironmentFault("away")]
    lake.look(61)
    written(lake.folder / "a.json", lines(2, 4))
    assert states(lake.copy("a.json")) == [("a.json", "LOADED", 2, 0)]
    lake.look(61)
    assert lake.rows() == [0, 1, 2, 3]


def test_rejects_are_not_lost_when_their_commit_fails(lake: LoadingLake) -> None:
    DeltaTable(lake.table).alter.add_constraint({"small": "id < 3"})
    lake.writer.bad = lambda row: row["id"] >= 3
    path = str(written(lake.folder / "a.json", lines(0, 5) + '\n{"id": "x"}'))
    lake.writer.fails_rejects = [EnvironmentFault("Spark is away.")]
    with pytest.raises(EnvironmentFault):
        lake.copy("a.json")
    assert (lake.rows(), lake.rejects()) == ([0, 1, 2], [])
    assert states(lake.copy("a.json")) == [("a.json", "SKIPPED", 0, 0)]
    assert lake.rows() == [0, 1, 2]
    assert lake.rejects() == [(path, 4), (path, 5), (path, 6)]
    assert lake.spooled() == []


def test_force_does_not_hide_that_records_were_lost(lake: LoadingLake) -> None:
    for name in "ab":
        written(lake.folder / f"{name}.json", lines(ord(name), ord(name) + 1))
        lake.copy(f"{name}.json")
    lake.close()
    for file in lake.folder.glob("ops.db*"):
        file.unlink()
    lake = LoadingLake(lake.folder, lake.clock)
    assert states(lake.copy("a.json", force=True)) == [("a.json", "LOADED", 1, 0)]
    assert [state for _, state, _, _ in states(lake.copy("*.json"))] == ["SKIPPED", "SKIPPED"]
    assert lake.rows() == [ord("a"), ord("a"), ord("b")]


# ---------------------------------------------------------------------- formats


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a.csv", "B.CSV", "c.csv.gz", "d.csv.bz2", "e.csv.zst", "f.csv.lz4"], "CSV"),
        (["a.json", "b.jsonl", "c.ndjson", "d.JSONL.GZ"], "JSON"),
        (["part-0.snappy.parquet", "b.parquet"], "PARQUET"),
    ],
)
def test_the_names_tell_the_format(names: list[str], expected: str) -> None:
    assert format_of([SourceFile(f"/in.put/{name}", 1, 1) for name in names]) == expected


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["a.csv", "b.json"], "/in/a.csv is CSV and /in/b.json is JSON, as their names say."),
        (["a.csv", "notes.txt"], "/in/notes.txt does not tell its format by its name."),
        (["csv"], "/in/csv does not tell its format by its name."),
        (["a.gz"], "/in/a.gz does not tell its format by its name."),
        (["a.parquet.gz"], "/in/a.parquet.gz does not tell its format by its name."),
    ],
)
def test_names_that_do_not_tell_one_format(names: list[str], told: str) -> None:
    with pytest.raises(UserError) as raised:
        format_of([SourceFile(f"/in/{name}", 1, 1) for name in names])
    assert raised.value.message == told
    assert "FILE_FORMAT = CSV, JSON or PARQUET" in (raised.value.hint or "")
