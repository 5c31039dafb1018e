"""What `headrace top` draws: from rows to lines, without a lake."""

from __future__ import annotations

import io
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.screen import Screen

from headrace.cli.board import STYLES, Board, in_order, purpose
from headrace.cli.commands import top
from headrace.lake_session import _AT_ONCE
from headrace.sql.parser import parse

NOW = datetime(2026, 1, 1, 12, 0, 5, tzinfo=timezone.utc)
LONG = "orders_by_customer_and_day_and_region_of_the_warehouse_hourly"
ERROR = "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate the divisor being 0 and return NULL instead."


def table(name: str, status: str = "FRESH", **changes: Any) -> dict[str, Any]:
    row = {
        "schema_name": "public",
        "name": name,
        "status": status,
        "lag_second": 12,
        "target_second": 60,
        "last_refresh": NOW - timedelta(seconds=12),
        "last_mode": "INCREMENTAL",
        "rows_inserted": 12,
        "rows_deleted": 3,
        "last_duration": timedelta(seconds=0.41),
        "next_refresh": NOW + timedelta(seconds=48),
        "running_job": None,
        "failures": 0,
        "reason": None,
        "is_late": status == "LATE",
    }
    return row | changes


def job(number: int, status: str = "RUNNING", **changes: Any) -> dict[str, Any]:
    row = {
        "job_id": f"20260101120000{number:03d}a1b2c3d4",
        "status": status,
        "creator": "ann",
        "priority": 0,
        "start_time": NOW - timedelta(seconds=30),
        "end_time": None,
        "execution_time": timedelta(seconds=25 if status == "RUNNING" else 0),
        "vcluster_name": "default",
        "job_text": "INSERT INTO daily\nSELECT * FROM staged WHERE day = current_date()",
        "query_tag": None,
    }
    return row | changes


def task(name: str, last_state: str | None = "SUCCEED", **changes: Any) -> dict[str, Any]:
    row = {
        "schema_name": "public",
        "name": name,
        "schedule": "1 minute",
        "after": None,
        "state": "STARTED",
        "suspended_reason": None,
        "problem": None,
        "next_run": NOW + timedelta(seconds=55),
        "last_run": None if last_state is None else NOW - timedelta(seconds=5),
        "last_state": last_state,
        "last_job": None,
        "last_error": None,
    }
    return row | changes


NEVER_REFRESHED: dict[str, Any] = dict.fromkeys(
    (
        "lag_second", "target_second", "last_refresh", "last_mode", "rows_inserted", "rows_deleted", "last_duration",
        "next_refresh", "failures",
    )
)  # fmt: skip


def board(*tables: dict[str, Any], jobs: tuple[dict[str, Any], ...] = (), **more: Any) -> Board:
    return Board("Headrace at http://127.0.0.1:8910, 2026-01-01 12:00:05 UTC", NOW, tables, jobs, **more)


def plain(drawn: Board, width: int | None = None, height: int | None = None) -> list[str]:
    return [line.plain for line in drawn.lines(width, height)]


MIXED = board(
    table("orders_clean"),
    table("daily", "RUNNING", running_job="j1"),
    table(LONG, "FAILED", lag_second=400, failures=3, reason=ERROR),
    table("report", "SKIPPED", reason="Its upstream main.public.orders_clean is suspended."),
    table("by_hand", "MANUAL", target_second=None, next_refresh=None, lag_second=90_000, last_mode="FULL"),
    table("new", "WAITING", **NEVER_REFRESHED),
    jobs=(job(2, "QUEUED"), job(1), job(3, "RESUMING_CLUSTER")),
)
TASKS = board(
    table("daily"),
    jobs=(job(1), job(2, job_text="REFRESH DYNAMIC TABLE `main`.`public`.`orders_by_customer_and_day`")),
    tasks=(
        task("arrivals", "RUNNING", last_job=job(1)["job_id"]),
        task("load", "FAILED", last_error=f"{ERROR}\nat line 1", next_run=None),
        task("tell", "SKIPPED", schedule=None, after="main.public.load", last_error="main.public.load failed."),
        task("off", "FAILED", state="SUSPENDED", suspended_reason="By ann.", next_run=None),
        task("new", None),
        task("lost", None, problem="It runs after main.public.x, which does not exist.", next_run=None),
        task("fine", last_run=NOW - timedelta(seconds=150)),
    ),
)


def test_eighty_columns() -> None:
    assert plain(MIXED, 80) == [
        "Headrace at http://127.0.0.1:8910, 2026-01-01 12:00:05 UTC",
        "6 tables: 1 FAILED, 1 SKIPPED, 1 REFRESHING, 1 WAITING, 1 FRESH, 1 MANUAL",
        "1 job running, 2 waiting",
        "",
        "TABLE               STATUS         LAG  TARGET    NEXT  MODE         ROWS",
        "orders_b…se_hourly  FAILED       6m40s     60s     48s  INCREMENTAL  +12 -3",
        "    3 failures in a row: [DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to",
        "    tolerate the divisor being 0 and return NULL instead.",
        "report              SKIPPED        12s     60s     48s  INCREMENTAL  +12 -3",
        "    Its upstream main.public.orders_clean is suspended.",
        "by_hand             MANUAL         25h                  FULL         +12 -3",
        "daily               REFRESHING     12s     60s     48s  INCREMENTAL  +12 -3",
        "new                 WAITING",
        "orders_clean        FRESH          12s     60s     48s  INCREMENTAL  +12 -3",
        "",
        "JOB                        STATUS               FOR  WHAT",
        "20260101120000001a1b2c3d4  RUNNING              25s  INSERT INTO daily SELECT *…",
        "20260101120000002a1b2c3d4  QUEUED               30s  INSERT INTO daily SELECT *…",
        "20260101120000003a1b2c3d4  RESUMING_CLUSTER     30s  INSERT INTO daily SELECT *…",
    ]


def test_a_wide_screen_has_more_columns() -> None:
    lines = plain(MIXED, 120)
    assert lines[1].endswith("1 MANUAL; 1 job running, 2 waiting")
    assert lines[3].split() == ["TABLE", "STATUS", "LAG", "TARGET", "NEXT", "MODE", "ROWS", "TOOK", "LAST"]
    assert lines[4].split()[-2:] == ["0.41s", "11:59:53"]
    jobs = next(line for line in lines if line.startswith("JOB"))
    assert jobs.split() == ["JOB", "STATUS", "FOR", "VCLUSTER", "BY", "WHAT"]


def test_tasks_and_what_fails_of_them() -> None:
    assert plain(TASKS, 100) == [
        "Headrace at http://127.0.0.1:8910, 2026-01-01 12:00:05 UTC",
        "1 table: 1 FRESH",
        "7 tasks: 1 FAILED, 1 SUSPENDED, 2 SKIPPED, 1 RUNNING, 1 SUCCEED, 1 NEW",
        "2 jobs running, 0 waiting",
        "",
        "TABLE  STATUS         LAG  TARGET    NEXT  MODE         ROWS          TOOK  LAST",
        "daily  FRESH          12s     60s     48s  INCREMENTAL  +12 -3       0.41s  11:59:53",
        "",
        "TASK      STATE      LAST RUN      AGO    NEXT  SCHEDULE",
        "load      STARTED    FAILED         5s          1 minute",
        "    [DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate the divisor being 0 and return",
        "    NULL instead. at line 1",
        "off       SUSPENDED  FAILED         5s          1 minute",
        "    By ann.",
        "lost      STARTED                               1 minute",
        "    It runs after main.public.x, which does not exist.",
        "tell      STARTED    SKIPPED        5s     55s  after main.public.load",
        "    main.public.load failed.",
        "arrivals  STARTED    RUNNING        5s     55s  1 minute",
        "fine      STARTED    SUCCEED     2m30s     55s  1 minute",
        "new       STARTED                          55s  1 minute",
        "",
        "JOB                        STATUS      FOR  VCLUSTER  BY   WHAT",
        "20260101120000001a1b2c3d4  RUNNING     25s  default   ann  TASK public.arrivals",
        "20260101120000002a1b2c3d4  RUNNING     25s  default   ann  REFRESH public.orders_by_customer_and_day",
    ]


def test_a_low_screen_has_some_of_everything() -> None:
    tasks = (*(task(f"task{n:02d}") for n in range(50)), task("zz", "FAILED", last_error="No."))
    many = board(*(table(f"t{n:02d}") for n in range(50)), jobs=tuple(job(n) for n in range(50)), tasks=tasks)
    lines = plain(many, 100, 24)
    assert len(lines) == 24
    assert lines[lines.index("… and 45 more: 45 FRESH") + 1] == ""
    assert [line.split()[0] for line in lines if line.startswith("zz ")] == ["zz"]
    assert "… and 48 more: 48 SUCCEED" in lines
    assert lines[-1] == "… and 46 more jobs"


@pytest.mark.parametrize("status", ["FRESH", "LATE", "MANUAL", "FAILED", "RUNNING"])
@pytest.mark.parametrize("name", ["`main`.`public`.`Counts`", "other, public.counts", "counts"])
def test_a_table_that_a_job_refreshes_is_refreshing(name: str, status: str) -> None:
    refresh = job(1, job_text=f"refresh dynamic table {name}")
    drawn = board(table("counts", status, reason="No."), table("other2"), jobs=(refresh,))
    assert plain(drawn)[1].startswith("2 tables: 1 REFRESHING, 1 FRESH;")
    assert "    No." not in plain(drawn)


def test_only_what_runs_is_refreshing() -> None:
    text = "REFRESH DYNAMIC TABLE public.counts"
    for status, job_status in (("SUSPENDED", "RUNNING"), ("FRESH", "QUEUED")):
        assert f"1 {status}" in plain(board(table("counts", status), jobs=(job(1, job_status, job_text=text),)))[1]
    # One of two, and nobody knows which.
    two = board(
        table("counts"), table("counts", schema_name="s"), jobs=(job(1, job_text="REFRESH DYNAMIC TABLE counts"),)
    )
    assert "2 FRESH" in plain(two)[1]


def test_what_a_job_is_for() -> None:
    assert purpose("REFRESH DYNAMIC TABLE a, `odd name`.`b.c`") == "REFRESH a, odd name.b.c"
    for other in ("REFRESH DYNAMIC TABLE", "REFRESH TABLE t", "SELECT 'REFRESH DYNAMIC TABLE a'"):
        assert purpose(other) == other


@pytest.mark.parametrize("statement", [top.FRESHNESS, top.TASKS, top.JOBS])
def test_a_look_waits_for_no_slot(statement: str) -> None:
    assert isinstance(parse(statement), _AT_ONCE)


def test_without_a_server_the_head_says_so() -> None:
    lines = plain(board(table("a"), note="No server: nothing is refreshed and no task runs by itself."), 80, 24)
    assert lines[2] == "No server: nothing is refreshed and no task runs by itself."


@pytest.mark.parametrize("board", [MIXED, TASKS])
@pytest.mark.parametrize("width", [20, 40, 60, 79, 80, 100, 120, 200])
@pytest.mark.parametrize("height", [None, 1, 5, 10, 24, 100])
def test_it_fits_any_screen(board: Board, width: int, height: int | None) -> None:
    lines = plain(board, width, height)
    assert max(map(cell_len, lines)) <= width
    assert lines[0].startswith("Headrace")
    if height is not None:
        assert len(lines) <= height


def test_without_a_screen_nothing_is_cut() -> None:
    lines = plain(MIXED)
    assert any(line.startswith(f"{LONG}  FAILED") for line in lines)
    assert f"    3 failures in a row: {ERROR}" in lines
    assert sum("SELECT * FROM staged WHERE day = current_date()" in line for line in lines) == 3


def test_a_low_screen_shows_the_worst_and_counts_the_rest() -> None:
    many = board(*(table(f"t{n:03d}") for n in range(200)), table("z", "FAILED", reason="No."), jobs=(job(1),))
    lines = plain(many, 80, 24)
    assert len(lines) <= 24
    assert lines[4].startswith("z ")
    assert lines[5] == "    No."
    assert "… and 186 more: 186 FRESH" in lines
    assert lines[-1].startswith("2026")

    jobs = plain(board(table("t"), jobs=tuple(job(n) for n in range(50))), 80, 24)
    assert len(jobs) == 24
    assert jobs[-1] == "… and 34 more jobs"


def test_no_tables_and_no_jobs() -> None:
    assert plain(board(footer="q leaves."), 80) == [
        "Headrace at http://127.0.0.1:8910, 2026-01-01 12:00:05 UTC",
        "0 tables; 0 jobs running, 0 waiting",
        "",
        "There are no dynamic tables that you may see.",
        "",
        "q leaves.",
    ]


@pytest.mark.parametrize("width", [80, 120])
def test_all_failing(width: int) -> None:
    failing = board(*(table(f"t{n}", "FAILED", failures=n, reason=f"{n}: {ERROR}") for n in range(1, 5)))
    lines = plain(failing, width)
    assert lines[1] == "4 tables: 4 FAILED; 0 jobs running, 0 waiting"
    assert [line.split()[0] for line in lines if " FAILED " in line] == ["t1", "t2", "t3", "t4"]
    assert any(line.startswith("    1: [DIVIDE") for line in lines)
    assert any(line.startswith("    4 failures in a row: 4: [DIVIDE") for line in lines)
    on_screen = plain(failing, width, 24)
    assert sum(line.startswith("    ") for line in on_screen) == 4  # one line each


@pytest.mark.parametrize("width", [None, 80, 120])
def test_nothing_is_known_yet(width: int | None) -> None:
    line = plain(board(table("new", "MANUAL", **NEVER_REFRESHED)), width)[4]
    assert line.split() == ["new", "MANUAL"]


def test_the_schema_is_told_when_there_are_several() -> None:
    two = board(table("a"), table("a", schema_name="other"))
    assert [line.split()[0] for line in plain(two)[4:]] == ["other.a", "public.a"]


def test_trouble_first_then_names() -> None:
    rows = [table(status.lower(), status) for status in STYLES]
    assert [row["name"] for row in in_order(rows)] == [
        "failed", "suspended", "skipped", "late",
        *sorted(status.lower() for status in STYLES if status not in ("FAILED", "SUSPENDED", "SKIPPED", "LATE")),
    ]  # fmt: skip


def test_a_refresh_that_is_due_is_next_now() -> None:
    due = [table(f"t{n}", next_refresh=NOW + timedelta(seconds=n)) for n in (-60, 0, 1, 150, 90)]
    assert [line.split()[4] for line in plain(board(*due))[4:]] == ["now", "now", "1s", "2m30s", "90s"]


def test_texts_of_others_do_nothing_to_the_screen() -> None:
    bad = "a\x1b[31m\n\tb [bold]"
    drawn = board(
        table(bad, "FAILED", reason=bad), jobs=(job(1, job_text=bad, creator=bad, vcluster_name=bad),), problem=bad
    )
    lines = plain(drawn)
    assert all(line.isprintable() for line in lines)
    assert sum(r"a\x1b[31m b [bold]" in line for line in lines) == 4
    out = io.StringIO()
    Console(file=out, width=200, color_system=None).print(drawn)
    assert "[bold]" in out.getvalue()


def test_wide_characters_take_their_room() -> None:
    lines = plain(board(table("顧客別の注文の合計と平均と最大と最小の一覧"), table("b")), 80)
    assert max(map(cell_len, lines)) <= 80
    assert {line.index(" FRESH") + sum(cell_len(c) - 1 for c in line) for line in lines[4:]} == {
        lines[3].index(" STATUS")
    }


def test_a_problem_stands_above_what_was_seen_before() -> None:
    problem = f"NO ANSWER since 12:00:05: The server at http://lake.example.com:8910 cannot be reached: {ERROR * 2}"
    lines = plain(board(table("a"), problem=problem), 80, 24)
    assert lines[2] == "NO ANSWER since 12:00:05: The server at http://lake.example.com:8910 cannot be"
    assert lines[3].startswith("reached: [DIV")
    assert lines[6].startswith("a ")  # two lines of it are enough on a screen


def test_rich_gives_it_the_size_of_the_screen() -> None:
    out = io.StringIO()
    console = Console(file=out, width=80, height=12, force_terminal=True, color_system=None)
    console.print(Screen(board(*(table(f"t{n:03d}") for n in range(50)), one_screen=True)))
    assert "… and 43 more: 43 FRESH" in out.getvalue()
    printed = io.StringIO()
    Console(file=printed, width=80, color_system=None).print(board(*(table(f"t{n:03d}") for n in range(50))))
    assert "t049" in printed.getvalue()
