"""Statements about virtual clusters and jobs, parsed."""

from __future__ import annotations

import dataclasses

import pytest

from headrace.errors import BadSetting, HeadraceError, Position, SyntaxFault
from headrace.sql import parse
from headrace.sql import statements as s


def fault(text: str) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        parse(text)
    return caught.value


def strip(statement: s.Statement) -> s.Statement:
    return dataclasses.replace(statement, text="")


# Clusters


def test_create_with_everything_in_any_order() -> None:
    text = """CREATE VCLUSTER IF NOT EXISTS `Big One`
        max_concurrency 4 PROPERTIES ('spark.master' = 'spark://h:7077', a.b = 1) AUTO_RESUME = false
        COMMENT = 'it''s big' VCLUSTER_SIZE = large AUTO_SUSPEND_IN_SECOND=0 VCLUSTER_TYPE ANALYTICS
        QUERY_RUNTIME_LIMIT_IN_SECOND = 3600"""
    assert parse(f"{text};") == s.CreateVcluster(
        text,
        "big one",
        True,
        {
            "max_concurrency": 4,
            "auto_resume": False,
            "size": 8,
            "auto_suspend_seconds": 0,
            "type": "ANALYTICS",
            "runtime_limit_seconds": 3600,
        },
        {"spark.master": "spark://h:7077", "a.b": "1"},
        "it's big",
    )
    assert parse("create vcluster N") == s.CreateVcluster("create vcluster N", "n")


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("XSMALL", 1),
        ("small", 2),
        ("'Medium'", 4),
        ("LARGE", 8),
        ("XLARGE", 16),
        ("1", 1),
        ("3", 3),
        ("256", 256),
    ],
)
def test_sizes(written: str, size: int) -> None:
    created = parse(f"CREATE VCLUSTER n VCLUSTER_SIZE = {written}")
    assert isinstance(created, s.CreateVcluster)
    assert created.options == {"size": size}
    altered = parse(f"ALTER VCLUSTER n SET VCLUSTER_SIZE {written}")
    assert isinstance(altered, s.AlterVcluster)
    assert altered.action == s.SetVclusterOptions({"size": size})


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("RESUME", s.Resume()),
        ("suspend", s.SuspendVcluster(False)),
        ("SUSPEND FORCE", s.SuspendVcluster(True)),
        ("SET MAX_CONCURRENCY = 2", s.SetVclusterOptions({"max_concurrency": 2})),
        (
            "SET AUTO_RESUME = TRUE, VCLUSTER_TYPE = integration AUTO_SUSPEND_IN_SECOND = 5",
            s.SetVclusterOptions({"auto_resume": True, "type": "INTEGRATION", "auto_suspend_seconds": 5}),
        ),
        ("SET PROPERTIES ('a'='b')", s.SetProperties({"a": "b"})),
        ("SET COMMENT 'c'", s.SetComment("c")),
    ],
)
def test_alter(action: str, expected: object) -> None:
    text = f"ALTER VCLUSTER N {action}"
    found = parse(text)
    assert isinstance(found, s.AlterVcluster)
    assert (found.text, found.name, found.action) == (text, "n", expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DROP VCLUSTER n", s.DropVcluster("", "n", False)),
        ("drop vcluster if exists N", s.DropVcluster("", "n", True)),
        ("USE VCLUSTER Big", s.UseVcluster("", "big")),
        ("USE VCLUSTER default", s.UseVcluster("", "default")),
        ("USE vcluster", s.UseSchema("", ("vcluster",))),
        ("USE vcluster.s", s.UseSchema("", ("vcluster", "s"))),
        ("DESC VCLUSTER n", s.DescribeVcluster("", "n")),
        ("DESCRIBE VCLUSTER `n`", s.DescribeVcluster("", "n")),
        ("DESC vcluster", s.DescribeTable("", ("vcluster",), False)),
        ("DESC vcluster.t", s.DescribeTable("", ("vcluster", "t"), False)),
        ("SHOW VCLUSTERS", s.ShowVclusters("")),
        ("show vclusters like 'a%' limit 2", s.ShowVclusters("", "a%", None, 2)),
        ("SHOW VCLUSTERS WHERE size > 1", s.ShowVclusters("", None, "size > 1")),
        ("SHOW JOBS", s.ShowJobs("")),
        ("SHOW JOBS 'x*'", s.ShowJobs("", None, "x*")),
        (
            "SHOW JOBS IN VCLUSTER Big LIKE '2024%' WHERE status = 'FAILED' LIMIT 5",
            s.ShowJobs("", "big", "2024%", "status = 'FAILED'", 5),
        ),
        ("CANCEL JOB 'a'", s.CancelJob("", "a")),
        ("SET query_tag = 'nightly load'", s.SetQueryTag("", "nightly load")),
        ("set QUERY_TAG='x'", s.SetQueryTag("", "x")),
        ("SET query_tag = ''", s.SetQueryTag("", None)),
        ("RESET query_tag", s.SetQueryTag("", None)),
    ],
)
def test_statements(text: str, expected: s.Statement) -> None:
    found = parse(text)
    assert type(found) is type(expected)
    assert strip(found) == strip(expected)
    assert found.text == text


@pytest.mark.parametrize("text", ["SET query_tags = 'x'", "SET query_tag.x = 1", "SET x = query_tag", "RESET x"])
def test_other_settings_are_sparks(text: str) -> None:
    assert isinstance(parse(text), s.SparkStatement)


@pytest.mark.parametrize("show", ["SHOW VCLUSTERS WHERE size > 1", "SHOW JOBS IN VCLUSTER v LIKE 'a' LIMIT 1"])
def test_shows_stand_in_queries(show: str) -> None:
    for text in (f"SELECT * FROM ({show}) t", f"SELECT * FROM x JOIN ({show}) t", f"WITH t AS ({show}) SELECT 1"):
        found = parse(text)
        assert isinstance(found, s.SelectFromShow)
        assert found.show == parse(show)


# Faults


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("CREATE VCLUSTER", "expected the name of a virtual cluster, found the end", (1, 16)),
        ("CREATE OR REPLACE VCLUSTER n", "expected VCLUSTER, found 'OR'", (1, 8)),
        ("CREATE VCLUSTER a.b", "expected VCLUSTER_TYPE, VCLUSTER_SIZE, AUTO_SUSPEND_IN_SECOND", (1, 18)),
        ("CREATE VCLUSTER n\n  SIZE = 3", "PROPERTIES, COMMENT or the end of the statement, found 'SIZE'", (2, 3)),
        (
            "CREATE VCLUSTER n VCLUSTER_SIZE = HUGE",
            "expected XSMALL, SMALL, MEDIUM, LARGE, XLARGE or a number",
            (1, 35),
        ),
        ("CREATE VCLUSTER n VCLUSTER_SIZE = 1.5", "expected a number from 1 to 256, found '1.5'", (1, 35)),
        ("CREATE VCLUSTER n VCLUSTER_TYPE = 3", "expected GENERAL, ANALYTICS or INTEGRATION, found '3'", (1, 35)),
        ("CREATE VCLUSTER n AUTO_RESUME", "expected TRUE or FALSE, found the end", (1, 30)),
        ("CREATE VCLUSTER n MAX_CONCURRENCY = -1", "expected a number from 1 to 1000, found '-'", (1, 37)),
        ("CREATE VCLUSTER n AUTO_RESUME = TRUE auto_resume = TRUE", "AUTO_RESUME is given twice", (1, 38)),
        ("CREATE VCLUSTER n COMMENT 'a' COMMENT 'b'", "COMMENT is given twice", (1, 31)),
        ("CREATE VCLUSTER n PROPERTIES ('a'='b') PROPERTIES ('a'='b')", "PROPERTIES is given twice", (1, 40)),
        ("ALTER VCLUSTER n", "expected RESUME, SUSPEND or SET, found the end", (1, 17)),
        ("ALTER VCLUSTER n SET", "PROPERTIES or COMMENT, found the end", (1, 21)),
        ("ALTER VCLUSTER n SET AUTO_RESUME = TRUE x", "the end of the statement, found 'x'", (1, 41)),
        ("ALTER VCLUSTER n SET AUTO_RESUME = TRUE, x = 1", "or QUERY_RUNTIME_LIMIT_IN_SECOND, found 'x'", (1, 42)),
        ("ALTER VCLUSTER n SET AUTO_RESUME = TRUE,", "or QUERY_RUNTIME_LIMIT_IN_SECOND, found the end", (1, 41)),
        ("ALTER VCLUSTER n RESUME FORCE", "expected the end of the statement, found 'FORCE'", (1, 25)),
        ("DROP VCLUSTER n, m", "expected the end of the statement, found ','", (1, 16)),
        ("SHOW JOBS IN v", "expected VCLUSTER, found 'v'", (1, 14)),
        ("SHOW JOBS BY me", "expected IN VCLUSTER, LIKE, WHERE, LIMIT or the end", (1, 11)),
        ("SHOW VCLUSTERS IN s", "expected LIKE, WHERE, LIMIT or the end", (1, 16)),
        ("CANCEL 'a'", "expected JOB, found ''a''", (1, 8)),
        ("CANCEL JOB a", "expected the job's id in quotes, found 'a'", (1, 12)),
        ("SET query_tag", "expected =, found the end", (1, 14)),
        ("SET query_tag = x", "expected the tag in quotes, found 'x'", (1, 17)),
        ("RESET query_tag x", "expected the end of the statement", (1, 17)),
    ],
)
def test_syntax_faults(text: str, message: str, place: tuple[int, int]) -> None:
    error = fault(text)
    assert isinstance(error, SyntaxFault)
    assert message in error.message
    assert error.position == Position(*place)
    assert error.hint is not None
    assert error.hint.startswith("Write: ")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("SUSPEND VCLUSTER etl", "Write ALTER VCLUSTER etl SUSPEND."),
        ("suspend vcluster `my etl` force;", "Write ALTER VCLUSTER `my etl` SUSPEND FORCE."),
        ("RESUME VCLUSTER etl", "Write ALTER VCLUSTER etl RESUME."),
        ("RESUME VCLUSTER", "Write ALTER VCLUSTER name RESUME."),
        ("SUSPEND DYNAMIC TABLE a.t", "Write ALTER DYNAMIC TABLE a.t SUSPEND."),
    ],
)
def test_a_verb_in_front_is_told_its_place(text: str, hint: str) -> None:
    error = fault(text)
    assert isinstance(error, SyntaxFault)
    assert (error.hint, error.position) == (hint, Position(1, 1))


@pytest.mark.parametrize(
    ("rest", "form"), [("COMMENT = 'c'", "SET COMMENT 'c'"), ("PROPERTIES ('a'='b')", "SET PROPERTIES ('k'='v', …)")]
)
@pytest.mark.parametrize("comma", [",", ""])
def test_what_is_no_option_of_a_cluster_is_told_its_place(rest: str, form: str, comma: str) -> None:
    error = fault(f"ALTER VCLUSTER etl SET MAX_CONCURRENCY = 2{comma} {rest}")
    assert isinstance(error, SyntaxFault)
    assert f"{form} is an action of its own" in error.message
    assert error.hint == f"Write a second statement: ALTER VCLUSTER name {form}."
    assert error.position == Position(1, 44 + len(comma))


@pytest.mark.parametrize("job", ["nope", "4711", "`a`"])
def test_the_id_of_a_job_stands_in_quotes(job: str) -> None:
    error = fault(f"DESC JOB {job}")
    assert f"expected the job's id in quotes, found '{job}'" in error.message
    assert "DESC JOB 'id'" in str(error.hint)


def test_a_table_may_be_called_job() -> None:
    assert isinstance(parse("DESC TABLE job id"), s.SparkStatement)
    assert isinstance(parse("DESC job"), s.DescribeTable)


@pytest.mark.parametrize(
    ("option", "message", "hint"),
    [
        ("VCLUSTER_SIZE = 0", "VCLUSTER_SIZE cannot be 0.", "from 1 to 256"),
        ("VCLUSTER_SIZE = 257", "VCLUSTER_SIZE cannot be 257.", "from 1 to 256"),
        ("MAX_CONCURRENCY = 0", "MAX_CONCURRENCY cannot be 0.", "from 1 to 1000"),
        ("AUTO_SUSPEND_IN_SECOND = 99999999", "AUTO_SUSPEND_IN_SECOND cannot be 99999999.", "from 0 to 31536000"),
    ],
)
def test_numbers_out_of_range(option: str, message: str, hint: str) -> None:
    error = fault(f"CREATE VCLUSTER n {option}")
    assert isinstance(error, BadSetting)
    assert error.message == message
    assert hint in str(error.hint)
    assert error.position is not None
    assert error.position.column == 22 + option.index("=") - 1


def test_a_tag_has_an_end() -> None:
    assert isinstance(fault(f"SET query_tag = '{'x' * 1001}'"), BadSetting)
    assert isinstance(parse(f"SET query_tag = '{'x' * 1000}'"), s.SetQueryTag)
