"""The commands' own work, on the lake of the test process: no Spark is started here."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headrace import Lake
from headrace.cli.commands import doctor, sample_data, shell, sql, tables
from headrace.cli.main import app

Run = Callable[..., Result]


def runner_on(lake: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    @contextmanager
    def opened(path: Path | None, *, must_exist: bool = False) -> Iterator[Any]:
        yield lake

    for module in (sql, tables, shell, sample_data):
        monkeypatch.setattr(module, "opened", opened)
    return lambda *arguments, **given: CliRunner().invoke(app, [*arguments], **given)


@pytest.fixture
def run(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner_on(lake, monkeypatch)


def test_the_three_formats(run: Run) -> None:
    query = "SELECT 1 AS a, CAST(NULL AS STRING) AS b, CAST(2.50 AS DECIMAL(5,2)) AS c, 'x,\"y' AS d"
    assert run("sql", query).stdout.splitlines() == [
        " a | b    |    c | d",
        "---+------+------+------",
        ' 1 | NULL | 2.50 | x,"y',
        "(1 row)",
    ]
    assert list(csv.reader(io.StringIO(run("sql", query, "--format", "csv").stdout))) == [
        ["a", "b", "c", "d"],
        ["1", "", "2.50", 'x,"y'],
    ]
    assert json.loads(run("sql", query, "--format", "json").stdout) == [{"a": 1, "b": None, "c": 2.5, "d": 'x,"y'}]


def test_a_script_prints_every_result_as_tables_and_the_last_as_json(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "script.sql"
    file.write_text("SELECT 1 AS first; -- one\nSELECT 2 AS second;\n")
    shown = run("sql", "-f", str(file)).stdout
    assert "first" in shown
    assert "second" in shown
    assert json.loads(run("sql", "-f", str(file), "--format", "json").stdout) == [{"second": 2}]


def test_statements_from_stdin(run: Run) -> None:
    assert json.loads(run("sql", "-", "--format", "json", input="SELECT 7 AS n").stdout) == [{"n": 7}]


def test_an_error_shows_its_place_and_keeps_what_was_printed(run: Run) -> None:
    result = run("sql", "SELECT 1 AS fine;\nREFRESH DYNAMIC TABLE\n  no_such_table")
    assert result.exit_code == 1
    assert "fine" in result.stdout
    assert result.stderr.startswith("Error [NOT_FOUND]: There is no dynamic table")
    assert "Hint: " in result.stderr
    syntax = run("sql", "SELECT 1;\nREFRESH DYNAMIC tabel t")
    assert syntax.exit_code == 1
    assert syntax.stderr.splitlines()[:3] == [
        syntax.stderr.splitlines()[0],
        "  2 | REFRESH DYNAMIC tabel t",
        "    |                 ^",
    ]


@pytest.fixture
def sales(lake: Lake) -> None:
    lake.sql(
        "CREATE TABLE orders (item STRING, price INT); INSERT INTO orders VALUES ('a', 1), ('b', 2);"
        "CREATE DYNAMIC TABLE totals AS SELECT item, sum(price) AS total FROM orders GROUP BY item"
    )


@pytest.mark.usefixtures("sales")
def test_refresh_history_explain_verify(run: Run, lake: Lake, schema: str) -> None:
    lake.sql("INSERT INTO orders VALUES ('a', 10)")
    refreshed = run("refresh", "totals")
    assert refreshed.exit_code == 0, refreshed.output
    assert f" {schema}.totals | " in refreshed.stdout
    assert "SUCCEED" in refreshed.stdout

    entries = json.loads(run("history", f"{schema}.totals", "--limit", "5", "--format", "json").stdout)
    assert [entry["refresh_mode"] for entry in entries] == [entries[0]["refresh_mode"], "FULL"]
    assert len(entries[0]) == 18
    assert "technique" in run("history").stdout
    assert run("history", "no_such").exit_code == 1

    explained = run("explain", "totals").stdout
    assert "DECISION\n" in explained
    assert "NO_DATA" in explained

    verified = run("verify", "totals")
    assert verified.exit_code == 0
    assert "EQUAL" in verified.stdout


def test_a_refresh_that_fails_still_shows_those_before_it(run: Run, sales: None) -> None:
    result = run("refresh", "totals", "no_such_table")
    assert result.exit_code == 1
    assert "totals" in result.stdout
    assert "Error [NOT_FOUND]" in result.stderr


ENTRY = {
    "schema_name": "public", "name": "counts", "start_time": datetime(2026, 1, 1, 12, 0, 5, 123), "state": "SUCCEED",
    "duration": "0 00:00:00.327000000", "refresh_mode": "INCREMENTAL", "technique": "RECOMPUTE_KEYS",
    "stats": '{"rows_deleted":"12","rows_inserted":"1234"}', "error_message": None, "reason": None,
}  # fmt: skip


def history(*changes: dict[str, Any]) -> tables.Table:
    entries = [ENTRY | change for change in changes]
    return tables.brief(tables.Table(list(ENTRY), [tuple(entry.values()) for entry in entries]))


def test_a_history_for_people() -> None:
    failed = {"state": "FAILED", "refresh_mode": None, "technique": None, "stats": None, "duration": None}
    shown = history({}, {"reason": "First load. " * 12}, failed | {"error_message": "No."})
    assert shown.rows[0][2:] == ("0.33s", "SUCCEED", "INCREMENTAL", "RECOMPUTE_KEYS", 1234, 12, None)
    assert "\n".join(line.plain for line in tables.on_screen(shown, 100)).splitlines() == [
        "NAME           STARTED               TOOK  STATE    MODE         TECHNIQUE       ROWS",
        "public.counts  2026-01-01 12:00:05  0.33s  SUCCEED  INCREMENTAL  RECOMPUTE_KEYS  +1234 -12",
        "public.counts  2026-01-01 12:00:05  0.33s  SUCCEED  INCREMENTAL  RECOMPUTE_KEYS  +1234 -12",
        "    First load. First load. First load. First load. First load. First load. First load. First load.",
        "    First load. First load. First load. First load.",
        "public.counts  2026-01-01 12:00:05         FAILED",
        "    No.",
        "(3 rows)",
    ]
    for width in (20, 40, 60, 80, 100):
        lines = "\n".join(line.plain for line in tables.on_screen(history({"name": "n" * 90}), width)).splitlines()
        assert max(map(len, lines)) <= max(width, 29)


def test_a_value_that_is_not_there_is_null_in_an_explanation_too() -> None:
    assert tables.sections([("job", "tag", None), ("job", "rows", 0)]) == ["JOB", "  tag   NULL", "  rows  0"]


def test_verify_ends_with_1_when_a_table_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(text: str) -> Any:
        if text == "SHOW DYNAMIC TABLES":
            return SimpleNamespace(
                columns=["workspace_name", "schema_name", "name"], rows=[("w", "s", "a"), ("w", "s", "b")]
            )
        return SimpleNamespace(
            columns=["name", "result"], rows=[(text, "EQUAL" if text.endswith("`a`") else "DIFFERENT")]
        )

    result = runner_on(SimpleNamespace(sql=answer), monkeypatch)("verify", "--all")
    assert result.exit_code == 1
    assert "VERIFY DYNAMIC TABLE `w`.`s`.`b` | DIFFERENT" in result.stdout


def test_names_are_quoted_not_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    lake = SimpleNamespace(sql=lambda text: asked.append(text) or SimpleNamespace(columns=["name", "result"], rows=[]))
    run = runner_on(lake, monkeypatch)
    assert run("verify", "s.`odd; name`").exit_code == 0
    assert asked == ["VERIFY DYNAMIC TABLE `s`.`odd; name`"]
    assert run("verify", "t; DROP TABLE u").exit_code == 1
    assert len(asked) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["sql"],
        ["sql", "x", "-f", "y"],
        ["verify"],
        ["verify", "t", "--all"],
        ["history", "--limit", "0"],
        ["nonsense"],
        ["refresh"],
    ],
)
def test_wrong_usage_is_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


def test_doctor_finds_what_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor, "_NO_DISK", 10**18)
    result = CliRunner().invoke(app, ["doctor", "--lake", "l", "--format", "json"])
    found = {row["check"]: row for row in json.loads(result.stdout)}
    assert result.exit_code == 3
    assert found["disk"]["state"] == "fail"
    assert found["Java"]["state"] == "ok"
    assert found["setting path"]["details"] == f"{tmp_path / 'l'} (argument)"
    assert not (tmp_path / "l").exists()
