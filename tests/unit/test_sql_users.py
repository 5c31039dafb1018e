"""Statements about users, grants and tokens, parsed."""

from __future__ import annotations

import dataclasses

import pytest

from headrace.errors import BadSetting, HeadraceError, Position, SyntaxFault, UserError
from headrace.sql import parse
from headrace.sql import statements as s


def fault(text: str) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        parse(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE USER Ann WITH PASSWORD 'p'", s.CreateUser("", "ann", "p", "analyst", False)),
        (
            "create user if not exists `a@b.c` with password 'it\\'s' role Developer",
            s.CreateUser("", "a@b.c", "it's", "developer", True),
        ),
        ("ALTER USER ann SET PASSWORD 'p'", s.AlterUser("", "ann", "p", None)),
        ("ALTER USER Ann SET ROLE admin", s.AlterUser("", "ann", None, "admin")),
        ("DROP USER Ann", s.DropUser("", "ann", False)),
        ("DROP USER IF EXISTS ann", s.DropUser("", "ann", True)),
        ("SHOW USERS", s.ShowUsers("")),
        ("SHOW USERS LIKE 'a%' LIMIT 3", s.ShowUsers("", "a%", None, 3)),
        ("SHOW USERS WHERE role = 'admin'", s.ShowUsers("", None, "role = 'admin'")),
        ("GRANT SELECT ON TABLE t TO Ann", s.GrantPrivilege("", "SELECT", "TABLE", ("t",), "ann")),
        ("GRANT ALL ON TABLE w.s.t TO ann", s.GrantPrivilege("", "ALL", "TABLE", ("w", "s", "t"), "ann")),
        ("grant all privileges on schema w.s to ann", s.GrantPrivilege("", "ALL", "SCHEMA", ("w", "s"), "ann")),
        ("REVOKE ALL ON DATABASE s FROM ann", s.GrantPrivilege("", "ALL", "SCHEMA", ("s",), "ann", True)),
        ("REVOKE SELECT ON TABLE t FROM ann", s.GrantPrivilege("", "SELECT", "TABLE", ("t",), "ann", True)),
        ("SHOW GRANTS TO Ann", s.ShowGrants("", "ann")),
        ("SHOW GRANTS", s.ShowGrants("", "")),
        ("SHOW GRANTS ON TABLE a.t", s.ShowGrants("", "", "TABLE", ("a", "t"))),
        ("SHOW GRANTS ON DATABASE a", s.ShowGrants("", "", "SCHEMA", ("a",))),
        ("CREATE TOKEN 'night job'", s.CreateToken("", "night job", None)),
        ("CREATE TOKEN 'a' EXPIRES IN 30 DAY", s.CreateToken("", "a", 30)),
        ("create token 'a' expires in 1 days", s.CreateToken("", "a", 1)),
        ("CREATE TOKEN 'a' ROLE analyst", s.CreateToken("", "a", None, "analyst")),
        ("create token 'a' role Developer expires in 7 day", s.CreateToken("", "a", 7, "developer")),
        ("DROP TOKEN 'a'", s.DropToken("", "a")),
        ("DROP TOKEN 'a' OF Ann", s.DropToken("", "a", "ann")),
        ("drop token 'a' of `a@b.c`", s.DropToken("", "a", "a@b.c")),
        ("SHOW TOKENS", s.ShowTokens("")),
        ("SHOW TOKENS WHERE name = 'a' LIMIT 1", s.ShowTokens("", "name = 'a'", 1)),
        ("DESC user", s.DescribeTable("", ("user",), False)),
        ("DESC user.t", s.DescribeTable("", ("user", "t"), False)),
        ("USE user", s.UseSchema("", ("user",))),
        ("DROP TABLE user", s.DropTable("", ("user",), False, False)),
    ],
)
def test_statements(text: str, expected: s.Statement) -> None:
    found = parse(f"{text};")
    assert type(found) is type(expected)
    assert dataclasses.replace(found, text="") == expected
    assert found.text == text


@pytest.mark.parametrize("text", ["DESC user name", "DESC token id", "CREATE TABLE user (a int)", "SELECT * FROM user"])
def test_tables_may_be_called_user_and_token(text: str) -> None:
    assert isinstance(parse(text), s.SparkStatement)


@pytest.mark.parametrize("show", ["SHOW USERS LIKE 'a'", "SHOW GRANTS TO ann", "SHOW GRANTS", "SHOW TOKENS LIMIT 1"])
def test_shows_stand_in_queries(show: str) -> None:
    for text in (f"SELECT * FROM ({show}) t", f"SELECT * FROM x JOIN ({show}) t", f"WITH t AS ({show}) SELECT 1"):
        found = parse(text)
        assert isinstance(found, s.SelectFromShow)
        assert found.show == parse(show)


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("CREATE USER", "expected a user's name, found the end", (1, 12)),
        ("CREATE OR REPLACE USER u WITH PASSWORD 'p'", "expected USER, found 'OR'", (1, 8)),
        ("CREATE USER u", "expected WITH, found the end", (1, 14)),
        ("CREATE USER 'u' WITH PASSWORD 'p'", "expected a user's name, found something else", (1, 13)),
        ("CREATE USER u WITH PASSWORD", "expected the password in quotes, found the end", (1, 28)),
        (
            "CREATE USER u WITH\nPASSWORD 'p' ROLE boss",
            "expected admin, operator, developer or analyst, found 'boss'",
            (2, 19),
        ),
        ("CREATE USER u WITH PASSWORD 'p' AS admin", "expected ROLE or the end", (1, 33)),
        ("ALTER USER u", "expected SET, found the end", (1, 13)),
        ("ALTER USER u SET NAME v", "expected PASSWORD or ROLE, found 'NAME'", (1, 18)),
        ("ALTER USER u SET ROLE admin SET ROLE analyst", "expected the end of the statement", (1, 29)),
        ("DROP USER a.b", "expected the end of the statement, found '.'", (1, 12)),
        ("GRANT", "expected SELECT or ALL, found the end", (1, 6)),
        ("GRANT admin TO u", "expected SELECT or ALL, found 'admin'", (1, 7)),
        ("GRANT SELECT TO u", "expected ON, found 'TO'", (1, 14)),
        ("GRANT SELECT ON t TO u", "expected SCHEMA or TABLE, found 't'", (1, 17)),
        ("GRANT SELECT ON TABLE t FROM u", "expected TO, found 'FROM'", (1, 25)),
        ("REVOKE SELECT ON TABLE t TO u", "expected FROM, found 'TO'", (1, 26)),
        ("GRANT SELECT ON TABLE t TO u, v", "expected the end of the statement, found ','", (1, 29)),
        ("SHOW GRANTS TO", "expected a user's name, found the end", (1, 15)),
        ("SHOW GRANTS TO u, v", "expected the end of the statement, found ','", (1, 17)),
        ("SHOW GRANTS FOR u", "expected TO, ON or the end of the statement, found 'FOR'", (1, 13)),
        ("SHOW GRANTS ON VIEW t", "expected SCHEMA or TABLE, found 'VIEW'", (1, 16)),
        ("CREATE TOKEN a", "expected the token's name in quotes, found 'a'", (1, 14)),
        ("CREATE TOKEN 'a' FOR u", "expected ROLE, EXPIRES IN or the end", (1, 18)),
        ("CREATE TOKEN 'a' ROLE", "expected admin, operator, developer or analyst, found the end", (1, 22)),
        ("CREATE TOKEN 'a' ROLE boss", "expected admin, operator, developer or analyst, found 'boss'", (1, 23)),
        ("CREATE TOKEN 'a' ROLE admin FOR u", "expected EXPIRES IN or the end", (1, 29)),
        ("CREATE TOKEN 'a' EXPIRES IN 3 DAY ROLE admin", "expected the end of the statement, found 'ROLE'", (1, 35)),
        ("CREATE TOKEN 'a' EXPIRES IN soon", "expected a number of days, found 'soon'", (1, 29)),
        ("CREATE TOKEN 'a' EXPIRES IN 3 WEEKS", "expected DAY, found 'WEEKS'", (1, 31)),
        ("DROP TOKEN", "expected the token's name in quotes, found the end", (1, 11)),
        ("DROP TOKEN 'a' OF", "expected a user's name, found the end", (1, 18)),
        ("DROP TOKEN 'a' FROM u", "expected the end of the statement, found 'FROM'", (1, 16)),
        ("SHOW TOKENS LIKE 'a'", "expected the end of the statement, found 'LIKE'", (1, 13)),
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
    "text",
    [
        "CREATE USER u 's3cret'",
        "CREATE USER u WITH 's3cret'",
        "CREATE USER u WITH PASSWORD s3cret",
        "CREATE USER u WITH PASSWORD `s3cret`",
        "CREATE USER u WITH PASSWORD = 's3cret'",
        "CREATE USER u WITH PASSWORD 'a' 's3cret'",
        "CREATE USER u WITH PASSWORD 's3cret' ROLE boss",
        "CREATE OR REPLACE USER u WITH PASSWORD 's3cret'",
        "ALTER USER u SET 's3cret'",
        "ALTER USER u SET PASSWORD s3cret",
        "ALTER USER u SET PASSWORD 's3cret' NOW",
        "ALTER USER u SET PASSWORD 's3cret",
    ],
)
def test_no_fault_repeats_a_password(text: str) -> None:
    assert "s3cret" not in str(fault(text))


def test_a_password_is_not_shown_by_its_field() -> None:
    created = parse("CREATE USER u WITH PASSWORD 's3cret'")
    assert "s3cret" not in repr(dataclasses.replace(created, text=""))


def test_a_schema_has_no_three_parts() -> None:
    error = fault("GRANT ALL ON SCHEMA a.b.c TO u")
    assert isinstance(error, SyntaxFault)
    assert "a schema name has one or two" in error.message
    assert error.position == Position(1, 21)


@pytest.mark.parametrize("days", ["0", "36501"])
def test_days_out_of_range(days: str) -> None:
    error = fault(f"CREATE TOKEN 'a' EXPIRES IN {days} DAY")
    assert isinstance(error, BadSetting)
    assert error.position == Position(1, 29)


@pytest.mark.parametrize("name", ["''", f"'{'x' * 256}'", "'a\\0b'", "'a\\nb'"])
def test_names_of_tokens(name: str) -> None:
    for text in (f"CREATE TOKEN {name}", f"DROP TOKEN   {name}"):
        error = fault(text)
        assert type(error) is UserError
        assert error.position == Position(1, 14)
