"""Statements about tasks, parsed; the texts of their bodies; SCHEDULED_TIME()."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta, timezone

import pytest

from headrace.errors import BadSetting, HeadraceError, NotAllowed, Position, SyntaxFault, UserError
from headrace.sql import parse, split_statements
from headrace.sql import statements as s
from headrace.sql.scheduled_time import with_scheduled_time
from headrace.sql.split import is_ended
from headrace.sql.tokens import scan

TICK = datetime(2025, 3, 30, 1, 0, tzinfo=timezone.utc)
PAIR = """CREATE TASK `1. Time Processing` SCHEDULE = '1 minute' AS BEGIN
  CREATE DYNAMIC TABLE IF NOT EXISTS event_gettime AS SELECT CASE WHEN a THEN 1 END x, end FROM event_tb;
  REFRESH DYNAMIC TABLE event_gettime;
END"""


def fault(text: str) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        parse(text)
    return caught.value


def created(text: str) -> s.CreateTask:
    found = parse(text)
    assert isinstance(found, s.CreateTask)
    return found


def strip(statement: s.Statement) -> s.Statement:
    return dataclasses.replace(statement, text="")


# CREATE


def test_create_with_everything_in_any_order() -> None:
    text = """CREATE TASK IF NOT EXISTS ws.s.`my task` COMMENT 'it''s mine' RETRY = 3 VCLUSTER Etl
        AFTER a, s.b , ws.s.c TIMEOUT '10 minutes' SCHEDULE = 'using cron 0 9 * * MON-FRI  Europe/Berlin'
        AS INSERT INTO t SELECT 1"""
    assert parse(f"{text} ; ") == s.CreateTask(
        text,
        ("ws", "s", "my task"),
        "SQL",
        "INSERT INTO t SELECT 1",
        text.index("INSERT"),
        if_not_exists=True,
        cron="0 9 * * MON-FRI",
        zone="Europe/Berlin",
        after=(("a",), ("s", "b"), ("ws", "s", "c")),
        vcluster="etl",
        timeout_seconds=600,
        retries=3,
        comment="it's mine",
    )


def test_create_with_nothing() -> None:
    text = "create or replace task t as refresh dynamic table d"
    assert parse(text) == s.CreateTask(text, ("t",), "SQL", "refresh dynamic table d", 28, or_replace=True)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("1 minute", 60), ("60 SECONDS", 60), (" 5  Minutes ", 300), ("2 hours", 7200), ("366 days", 31622400)],
)
def test_intervals(written: str, seconds: int) -> None:
    assert created(f"CREATE TASK t SCHEDULE = '{written}' AS SELECT 1").interval_seconds == seconds
    assert created(f"CREATE TASK t SCHEDULE '{written}' AS SELECT 1").interval_seconds == seconds


def test_after_in_parentheses_ends_where_it_closes() -> None:
    task = created("CREATE TASK t AFTER (a, `1. b`) RETRY 0 AS SELECT 1")
    assert (task.after, task.retries) == ((("a",), ("1. b",)), 0)
    assert created("CREATE TASK t AFTER () AS SELECT 1").after == ()


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("CREATE TASK t SCHEDULE = '59 seconds' AS SELECT 1", (1, 26), "smallest is 1 minute"),
        ("CREATE TASK t SCHEDULE = 'soon' AS SELECT 1", (1, 26), "SCHEDULE cannot be 'soon'"),
        ("CREATE TASK t SCHEDULE = '400 days' AS SELECT 1", (1, 26), "366 days"),
        ("CREATE TASK t SCHEDULE = 'USING CRON * * * * *' AS SELECT 1", (1, 26), "here are 5 words"),
        ("CREATE TASK t SCHEDULE = 'USING CRON' AS SELECT 1", (1, 26), "here are 0 words"),
        ("CREATE TASK t SCHEDULE = 'USING CRON * * * * * Mars' AS SELECT 1", (1, 26), "no time zone 'Mars'"),
        ("CREATE TASK t SCHEDULE = 'USING CRON * * * * * ../UTC' AS SELECT 1", (1, 26), "no time zone"),
        ("CREATE TASK t SCHEDULE = 'USING CRON * * * * * America' AS SELECT 1", (1, 26), "no time zone"),
        ("CREATE TASK t TIMEOUT = '0 seconds' AS SELECT 1", (1, 25), "TIMEOUT cannot be 0"),
        ("CREATE TASK t TIMEOUT = 'x' AS SELECT 1", (1, 25), "TIMEOUT cannot be 'x'"),
        ("CREATE TASK t RETRY 101 AS SELECT 1", (1, 21), "RETRY cannot be 101"),
    ],
)
def test_values_that_cannot_be(text: str, where: tuple[int, int], message: str) -> None:
    found = fault(text)
    assert isinstance(found, BadSetting)
    assert message in found.message
    assert found.position == Position(*where)


@pytest.mark.parametrize(
    ("text", "where", "expected"),
    [
        ("CREATE TASK", (1, 12), "a task's name"),
        ("CREATE TASK t", (1, 14), "a clause or AS"),
        ("CREATE TASK t AS", (1, 17), "a statement, BEGIN, PYTHON or SHELL"),
        ("CREATE TASK t RETRY 1 RETRY 2 AS SELECT 1", (1, 23), "RETRY is given twice"),
        ("CREATE TASK t SCHEDULE = 5 AS SELECT 1", (1, 26), "'n unit' or 'USING CRON …'"),
        ("CREATE TASK t AFTER (a b) AS SELECT 1", (1, 24), "',' or ')'"),
        ("CREATE TASK t AFTER a, AS SELECT 1", (1, 27), "a clause or AS"),  # A task may be called as.
        ("CREATE OR REPLACE TASK IF NOT EXISTS t AS SELECT 1", (1, 24), "exclude each other"),
        ("CREATE TASK t AS BEGIN END", (1, 24), "a statement"),
        ("CREATE TASK t AS BEGIN ; ; END", (1, 28), "a statement"),
        ("CREATE TASK t AS BEGIN SELECT 1; END x", (1, 38), "the end of the statement"),
        ("CREATE TASK t AS BEGIN SELECT 1 END", (1, 33), "';' before END"),
        ("CREATE TASK t AS BEGIN SELECT 1; SELECT 2;", (1, 18), "this BEGIN has no END"),
        ("CREATE TASK t AS PYTHON", (1, 24), "the file in quotes"),
        ("CREATE TASK t AS PYTHON 'a.py' b", (1, 32), "an argument in quotes"),
        ("CREATE TASK t AS PYTHON 'a.py' 'b' 'c'", (1, 36), ","),
        ("CREATE TASK t AS SHELL ls", (1, 24), "the command line in quotes"),
        ("CREATE TASK t AS SHELL 'ls' 'x'", (1, 29), "the end of the statement"),
    ],
)
def test_what_is_no_task(text: str, where: tuple[int, int], expected: str) -> None:
    found = fault(text)
    assert isinstance(found, SyntaxFault)
    assert expected in found.message
    assert found.position == Position(*where)


# Bodies


def test_the_statements_between_begin_and_end() -> None:
    task = created(PAIR)
    assert task.body.startswith("CREATE DYNAMIC TABLE IF NOT EXISTS event_gettime")
    assert task.body.endswith("REFRESH DYNAMIC TABLE event_gettime;")
    assert task.text[task.body_offset :].startswith(task.body)
    assert [part.text.split()[0] for part in split_statements(task.body)] == ["CREATE", "REFRESH"]
    assert task.name == ("1. Time Processing",)


def test_a_fault_in_a_body_points_into_the_whole_text() -> None:
    found = fault("CREATE TASK t\n AS BEGIN\n  SELECT 1;\n  /* x */ REFRESH DYNAMIC t;\nEND")
    assert found.position == Position(4, 27)
    assert fault("CREATE TASK t AS REFRESH DYNAMIC TABLE 1").position == Position(1, 40)
    assert fault("CREATE TASK t AS SELEKT 1").position == Position(1, 18)
    assert fault("CREATE TASK t AS BEGIN SELECT 1;\n SELECT SCHEDULED_TIME(2); END").position == Position(2, 24)


@pytest.mark.parametrize(
    ("body", "column"),
    [
        ("USE s", 18),
        ("USE VCLUSTER v", 18),
        ("CREATE TASK x AS SELECT 1", 18),
        ("CREATE OR REPLACE TASK x AS SELECT 1", 18),
        ("ALTER TASK x SUSPEND", 18),
        ("DROP TASK x", 18),
        ("EXECUTE TASK x", 18),
        ("CREATE USER u WITH PASSWORD 'p'", 18),
        ("ALTER USER u SET PASSWORD 'p'", 18),
        ("CREATE TOKEN 'x'", 18),
        ("BEGIN SELECT 1; /* 2 */ USE s; END", 42),
        ("BEGIN BEGIN SELECT 1; END", 24),
    ],
)
def test_statements_that_a_task_may_not_run(body: str, column: int) -> None:
    found = fault(f"CREATE TASK t AS {body}")
    assert isinstance(found, NotAllowed)
    assert found.position == Position(1, column)


def test_tasks_in_tasks_are_refused_however_deep() -> None:
    assert isinstance(fault("CREATE TASK t AS " * 5000 + "SELECT 1"), NotAllowed)


@pytest.mark.parametrize(
    ("body", "kind", "kept"),
    [
        ("PYTHON 'load.py'", "PYTHON", "load.py"),
        ("PYTHON 'a b/load.py' '--day', 'it''s', ''", "PYTHON", "'a b/load.py' --day 'it'\"'\"'s' ''"),
        ("python 'load.py', 'x'", "PYTHON", "load.py x"),
        ("SHELL ' sh load.sh \"a b\" '", "SHELL", 'sh load.sh "a b"'),
    ],
)
def test_code(body: str, kind: str, kept: str) -> None:
    task = created(f"CREATE TASK t AS {body}")
    assert (task.kind, task.body, task.body_offset) == (kind, kept, 17)


@pytest.mark.parametrize(
    "body",
    [
        "PYTHON ''",
        "PYTHON '/etc/x.py'",
        "PYTHON '../x.py'",
        "PYTHON 'a/../../x.py'",
        "PYTHON '-c'",
        "PYTHON 'a.py' 'b\\0'",
        "SHELL ''",
        "SHELL '  '",
        "SHELL '\"\" x'",
        "SHELL 'echo \"a'",
        "SHELL 'echo \\0'",
    ],
)
def test_code_that_cannot_be(body: str) -> None:
    found = fault(f"CREATE TASK t AS {body}")
    assert isinstance(found, BadSetting)
    assert found.position is not None


# Scripts


def test_a_script_is_not_split_inside_a_task() -> None:
    script = f"SELECT 1; {PAIR} ;\nSELECT 2; CREATE TASK u AS SELECT 3 AS begin; SELECT 4"
    assert [part.text for part in split_statements(script)] == [
        "SELECT 1",
        PAIR,
        "SELECT 2",
        "CREATE TASK u AS SELECT 3 AS begin",
        "SELECT 4",
    ]
    places = [part for part in split_statements(script) if part.text == PAIR]
    assert script[places[0].offset :].startswith(PAIR)


def test_begin_of_another_kind_is_split() -> None:
    assert len(split_statements("BEGIN SELECT 1; SELECT 2; END")) == 3
    assert len(split_statements("CREATE TABLE task AS BEGIN; SELECT 1")) == 2
    assert len(split_statements("CREATE TASK t; AS BEGIN SELECT 1; END")) == 3


def test_a_begin_without_end_swallows_what_follows() -> None:
    script = "CREATE TASK t AS BEGIN SELECT 1; DROP TABLE x; "
    (only,) = split_statements(script)
    assert isinstance(fault(only.text), SyntaxFault)


@pytest.mark.parametrize(
    ("text", "ended"),
    [
        ("", True),
        ("select 1", False),
        ("select 1;", True),
        (f"{PAIR}", False),
        (f"{PAIR};", True),
        ("create task t as begin select 1;", False),
        ("create task t as begin select 1; end", False),
        ("create task t as begin select 1; end; select 2", False),
        ("create task t as select 1;", True),
    ],
)
def test_whether_more_is_to_come(text: str, ended: bool) -> None:
    assert is_ended(scan(text)) is ended


# The others


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("SUSPEND", s.Suspend()),
        ("resume", s.Resume()),
        ("SET RETRY = 2", s.SetTaskOptions({"retries": 2})),
        (
            "SET SCHEDULE = '5 minutes', TIMEOUT '1 hour' COMMENT 'c'",
            s.SetTaskOptions(
                {"interval_seconds": 300, "cron": None, "zone": None, "timeout_seconds": 3600, "comment": "c"}
            ),
        ),
        ("SET AFTER (a, s.b), VCLUSTER v", s.SetTaskOptions({"after": (("a",), ("s", "b")), "vcluster": "v"})),
        ("SET AFTER a, RETRY 1", s.SetTaskOptions({"after": (("a",),), "retries": 1})),
        ("SET AFTER ()", s.SetTaskOptions({"after": ()})),
        ("SET SCHEDULE = NONE", s.SetTaskOptions({"interval_seconds": None, "cron": None, "zone": None})),
        ("SET TIMEOUT NONE", s.SetTaskOptions({"timeout_seconds": 0})),
    ],
)
def test_alter(action: str, expected: object) -> None:
    text = f"ALTER TASK S.T {action}"
    found = parse(text)
    assert isinstance(found, s.AlterTask)
    assert (found.text, found.name, found.action) == (text, ("S", "T"), expected)


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        ("ALTER TASK t", 13, "SUSPEND, RESUME or SET"),
        ("ALTER TASK t SET", 17, "SCHEDULE, AFTER, VCLUSTER, TIMEOUT, RETRY or COMMENT"),
        ("ALTER TASK t SET RETRY 1, RETRY 2", 27, "RETRY is given twice"),
        ("ALTER TASK t SET RETRY 1 x", 26, "',' or the end of the statement"),
        ("ALTER TASK t SUSPEND x", 22, "the end of the statement"),
        ("DROP TASK", 10, "a task's name"),
        ("EXECUTE TASK t NOW", 16, "AT, FROM, PREVIEW, CANCEL or the end of the statement"),
        ("EXECUTE TASK t CANCEL PREVIEW", 23, "the end of the statement"),
        ("EXECUTE TASK t PREVIEW CANCEL", 24, "the end of the statement"),
        ("EXECUTE TASK t FROM x", 22, "TO"),
        ("EXECUTE TASK t AT PREVIEW", 19, "a timestamp"),
        ("EXECUTE TASK t PREVIEW x", 24, "the end of the statement"),
        ("DESC TASK t x", 13, "the end of the statement"),
        ("SHOW TASK t", 11, "HISTORY"),
    ],
)
def test_what_is_no_statement(text: str, column: int, expected: str) -> None:
    found = fault(text)
    assert expected in found.message
    assert found.position == Position(1, column)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DROP TASK a.b.c", s.DropTask("", ("a", "b", "c"), False)),
        ("drop task if exists t", s.DropTask("", ("t",), True)),
        ("EXECUTE TASK t", s.ExecuteTask("", ("t",))),
        ("EXECUTE TASK t PREVIEW", s.ExecuteTask("", ("t",), preview=True)),
        ("EXECUTE TASK t CANCEL", s.ExecuteTask("", ("t",), cancel=True)),
        ("EXECUTE TASK t AT '2025-01-01'", s.ExecuteTask("", ("t",), at="'2025-01-01'")),
        (
            "execute task t from now() - INTERVAL 1 DAY to now() preview",
            s.ExecuteTask("", ("t",), start="now() - INTERVAL 1 DAY", end="now()", preview=True),
        ),
        ("DESC TASK t", s.DescribeTask("", ("t",))),
        ("DESCRIBE TASK `1. a`", s.DescribeTask("", ("1. a",))),
        ("DESC task", s.DescribeTable("", ("task",), False)),
        ("DESC task.t", s.DescribeTable("", ("task", "t"), False)),
        ("SHOW TASKS", s.ShowTasks("")),
        ("SHOW TASKS IN a.b LIKE 'x%' LIMIT 3", s.ShowTasks("", ("a", "b"), "x%", None, 3)),
        ("SHOW TASK HISTORY WHERE state = 'FAILED' LIMIT 5", s.ShowTaskHistory("", "state = 'FAILED'", 5)),
    ],
)
def test_other_statements(text: str, expected: s.Statement) -> None:
    assert strip(parse(text)) == expected


def test_a_table_may_be_called_task() -> None:
    for text in (
        "CREATE TABLE task (a INT)",
        "DROP TABLE task",
        "SELECT * FROM task",
        "ALTER TABLE task ADD COLUMN b INT",
    ):
        parse(text)


# SCHEDULED_TIME()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1", "SELECT 1"),
        ("SELECT scheduled_time()", "SELECT TIMESTAMP '2025-03-30 01:00:00+00:00'"),
        ("a>=SCHEDULED_TIME ( /* x */ )-INTERVAL 1 DAY", "a>=TIMESTAMP '2025-03-30 01:00:00+00:00'-INTERVAL 1 DAY"),
        (
            "SELECT 'SCHEDULED_TIME()', `SCHEDULED_TIME()` -- SCHEDULED_TIME()\n",
            "SELECT 'SCHEDULED_TIME()', `SCHEDULED_TIME()` -- SCHEDULED_TIME()\n",
        ),
        ("SELECT scheduled_time FROM t", "SELECT scheduled_time FROM t"),
        ("SELECT s.scheduled_time()", "SELECT s.scheduled_time()"),
    ],
)
def test_scheduled_time(text: str, expected: str) -> None:
    assert with_scheduled_time(text, TICK) == expected


def test_scheduled_time_is_an_instant() -> None:
    tokyo = TICK.astimezone(timezone(timedelta(hours=9)))
    assert with_scheduled_time("SCHEDULED_TIME()", tokyo) == "TIMESTAMP '2025-03-30 01:00:00+00:00'"
    odd = TICK.replace(microsecond=120)
    assert with_scheduled_time("SCHEDULED_TIME()", odd) == "TIMESTAMP '2025-03-30 01:00:00.000120+00:00'"


@pytest.mark.parametrize("text", ["SELECT SCHEDULED_TIME(1)", "SELECT SCHEDULED_TIME("])
def test_scheduled_time_takes_nothing(text: str) -> None:
    with pytest.raises(SyntaxFault, match="takes no arguments"):
        with_scheduled_time(text, TICK)


@pytest.mark.parametrize("text", ["CREATE TASK t AS '", "CREATE TASK `", "EXECUTE TASK t AT '", "\0 CREATE TASK"])
def test_junk(text: str) -> None:
    assert isinstance(fault(text), UserError)


@pytest.mark.parametrize(
    "text",
    [
        'CREATE TASK "1. Load" AS SELECT 1',
        'ALTER TASK public."1. Load" SUSPEND',
        'DESC TASK "t"',
        'CREATE TASK t AFTER "1. Load" AS SELECT 1',
        'REFRESH DYNAMIC TABLE "t"',
        'ALTER DYNAMIC TABLE "t" RESUME',
    ],
)
def test_names_in_double_quotes_are_told_how_to_be_written(text: str) -> None:
    hint = fault(text).hint or ""
    assert hint.startswith('Names stand in back-quotes: `…`, not "…". Write: ')


def test_a_password_in_the_wrong_place_is_not_repeated() -> None:
    error = fault('CREATE USER "hunter2" WITH PASSWORD "hunter2"')
    assert "back-quotes" in (error.hint or "")
    assert "hunter2" not in str(error)
