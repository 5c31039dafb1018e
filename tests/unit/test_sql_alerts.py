"""Statements about alerts, parsed."""

from __future__ import annotations

import dataclasses

import pytest

from headrace.errors import BadSetting, HeadraceError, SyntaxFault, UserError
from headrace.security import masked_sql
from headrace.sql import parse
from headrace.sql import statements as s

HOOK = "https://hooks.test/canary"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"CREATE ALERT Ops ON FAILURE NOTIFY '{HOOK}'", s.CreateAlert("", "ops", ("FAILURE",), (HOOK,))),
        (
            f"create or replace alert `my ops` on timeout, suspension, lag > '10 minutes' for dynamic table w.s.T "
            f"notify '{HOOK}', 'mailto:a@b.c' comment 'c'",
            s.CreateAlert(
                "", "my ops", ("TIMEOUT", "SUSPENSION", "LAG"), (HOOK, "mailto:a@b.c"), lag_seconds=600, kind="TABLE",
                object=("w", "s", "T"), comment="c", or_replace=True,
            ),
        ),
        (
            f"CREATE ALERT a ON FAILURE COMMENT = 'c' NOTIFY '{HOOK}', '{HOOK}' FOR TASK t",
            s.CreateAlert("", "a", ("FAILURE",), (HOOK,), kind="TASK", object=("t",), comment="c"),
        ),
        (
            f"CREATE ALERT a ON LAG > '1 DAY' FOR ALL NOTIFY '{HOOK}'",
            s.CreateAlert("", "a", ("LAG",), (HOOK,), lag_seconds=86400),
        ),
        ("ALTER ALERT Ops SUSPEND", s.AlterAlert("", "ops", s.Suspend())),
        ("ALTER ALERT ops RESUME", s.AlterAlert("", "ops", s.Resume())),
        ("DROP ALERT Ops", s.DropAlert("", "ops", False)),
        ("DROP ALERT IF EXISTS ops", s.DropAlert("", "ops", True)),
        ("SHOW ALERTS", s.ShowAlerts("")),
        ("SHOW ALERTS LIKE 'o%' LIMIT 3", s.ShowAlerts("", "o%", None, 3)),
        ("SHOW ALERTS WHERE state = 'ACTIVE'", s.ShowAlerts("", None, "state = 'ACTIVE'")),
        ("SHOW ALERT HISTORY", s.ShowAlertHistory("")),
        ("SHOW ALERT HISTORY WHERE event = 'LAG' LIMIT 1", s.ShowAlertHistory("", "event = 'LAG'", 1)),
        ("DESC alert", s.DescribeTable("", ("alert",), False)),
        ("DROP TABLE alert", s.DropTable("", ("alert",), False, False)),
    ],
)  # fmt: skip
def test_statements(text: str, expected: s.Statement) -> None:
    found = parse(f"{text};")
    assert type(found) is type(expected)
    assert dataclasses.replace(found, text="") == expected
    assert found.text == text


@pytest.mark.parametrize("show", ["SHOW ALERTS LIKE 'a'", "SHOW ALERT HISTORY LIMIT 1"])
def test_shows_stand_in_queries(show: str) -> None:
    found = parse(f"SELECT * FROM ({show}) t")
    assert isinstance(found, s.SelectFromShow)
    assert found.show == parse(show)


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("CREATE ALERT", "expected the name of an alert, found the end", 13),
        ("CREATE ALERT a.b ON FAILURE NOTIFY 'x'", "expected ON, found '.'", 15),
        ("CREATE ALERT a NOTIFY 'x'", "expected ON, found 'NOTIFY'", 16),
        ("CREATE ALERT a ON TROUBLE NOTIFY 'x'", "expected FAILURE, TIMEOUT, SUSPENSION or LAG > 'n unit'", 19),
        ("CREATE ALERT a ON FAILURE, FAILURE NOTIFY 'x'", "FAILURE is given twice", 28),
        ("CREATE ALERT a ON LAG > '1 hour', LAG > '2 hours' NOTIFY 'x'", "LAG is given twice", 35),
        ("CREATE ALERT a ON LAG NOTIFY 'x'", "expected >, found 'NOTIFY'", 23),
        ("CREATE ALERT a ON LAG > 10 NOTIFY 'x'", "expected 'n unit', such as '10 minutes', found '10'", 25),
        ("CREATE ALERT a ON FAILURE", "expected NOTIFY, found the end", 26),
        ("CREATE ALERT a ON FAILURE FOR TABLE t NOTIFY 'x'", "expected DYNAMIC TABLE, TASK or ALL", 31),
        ("CREATE ALERT a ON FAILURE FOR DYNAMIC t NOTIFY 'x'", "expected TABLE, found 't'", 39),
        ("CREATE ALERT a ON FAILURE FOR ALL FOR ALL NOTIFY 'x'", "FOR is given twice", 35),
        ("CREATE ALERT a ON FAILURE TELL 'x'", "expected FOR, NOTIFY or COMMENT, found 'TELL'", 27),
        ("CREATE ALERT a ON FAILURE NOTIFY 'x' y", "expected FOR, COMMENT or the end of the statement, found 'y'", 38),
        (
            "CREATE ALERT a ON FAILURE FOR ALL NOTIFY 'x' COMMENT 'c' y",
            "expected the end of the statement, found 'y'",
            58,
        ),
        ("CREATE ALERT a ON FAILURE NOTIFY https", "expected 'https://…' or 'mailto:address' in quotes", 34),
        ("ALTER ALERT a STOP", "expected SUSPEND or RESUME, found 'STOP'", 15),
        ("DROP ALERT a b", "expected the end of the statement", 14),
        ("SHOW ALERT", "expected HISTORY", 11),
    ],
)
def test_faults(text: str, message: str, column: int) -> None:
    with pytest.raises(SyntaxFault) as caught:
        parse(text)
    assert message in caught.value.message
    assert caught.value.position is not None
    assert (caught.value.position.line, caught.value.position.column) == (1, column)


@pytest.mark.parametrize("lag", ["0 minutes", "367 days", "soon", "", "-1 day", "10", "999999999 days"])
def test_thresholds_that_are_none(lag: str) -> None:
    with pytest.raises(BadSetting, match="threshold of LAG"):
        parse(f"CREATE ALERT a ON LAG > '{lag}' NOTIFY 'x'")


def test_a_task_has_no_lag() -> None:
    with pytest.raises(UserError, match="A task has no lag"):
        parse("CREATE ALERT a ON LAG > '1 hour' FOR TASK t NOTIFY 'x'")


def test_at_most_ten_addresses() -> None:
    addresses = ", ".join(f"'mailto:a{n}@b.c'" for n in range(11))
    with pytest.raises(BadSetting, match="at most 10"):
        parse(f"CREATE ALERT a ON FAILURE NOTIFY {addresses}")


@pytest.mark.parametrize(
    "text",
    [
        "CREATE ALERT a ON FAILURE NOTIFY 'https://h/canary' 'canary'",
        "CREATE ALERT a ON FAILURE 'https://h/canary'",
        "CREATE ALERT a ON FAILURE NOTIFY `https://h/canary`",
        "CREATE ALERT a ON 'https://h/canary'",
        "CREATE ALERT a ON LAG > 'https://h/canary' NOTIFY 'x'",
        "CREATE ALERT a 'https://h/canary'",
        "CREATE ALERT a ON FAILURE NOTIFY 'https://h/canary",
        "CREATE ALERT a ON FAILURE NOTIFY 'x' COMMENT `https://h/canary`",
    ],
)
def test_faults_do_not_repeat_an_address(text: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        parse(text)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f"CREATE ALERT a ON FAILURE NOTIFY '{HOOK}', \"{HOOK}\" COMMENT 'c'",
        f"create or replace alert a on lag > '1 day' notify /* x */ '{HOOK}' , r'{HOOK}'",
        f"CREATE TASK t AS CREATE ALERT a ON FAILURE NOTIFY '{HOOK}'",
        f"CREATE ALERT a ON FAILURE NOTIFY '{HOOK}",
        "CREATE ALERT a ON FAILURE NOTIFY 'hooks.test/canary'",
    ],
)
def test_no_address_is_stored_with_a_statement(text: str) -> None:
    assert "canary" not in masked_sql(text)


def test_the_rest_of_the_statement_is_stored() -> None:
    text = f"CREATE ALERT a ON LAG > '1 day' NOTIFY '{HOOK}', 'mailto:a@b.c' COMMENT 'c'"
    assert masked_sql(text) == "CREATE ALERT a ON LAG > '1 day' NOTIFY '***', '***' COMMENT 'c'"
