"""Passwords, tokens, the login throttle, roles and rights: all without Spark."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta, timezone

import pytest

from headrace.catalog.records import AuditEntry, Grant, Privilege
from headrace.errors import BadSetting, EnvironmentFault, Forbidden, TooBusy
from headrace.names import TableName
from headrace.security import masked_sql, passwords, tokens
from headrace.security.failed_logins import FailedLogins
from headrace.security.rights import Rights
from headrace.security.roles import LEAST_ROLE, LEAST_ROLE_FOR_VERB, Principal, lesser, require_role
from headrace.security.throttling import LoginThrottle
from headrace.sql import statements as sql
from headrace.statements.listing import matches

START = datetime(2026, 5, 1, tzinfo=timezone.utc)


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


# Passwords and tokens


def test_a_password_matches_its_own_hash_only() -> None:
    stored = passwords.hashed("correct horse")
    assert stored.startswith("$argon2id$")
    assert passwords.matches(stored, "correct horse")
    assert not passwords.matches(stored, "correct hors")
    assert stored != passwords.hashed("correct horse"), "each has a salt of its own"


def test_nobody_has_no_password() -> None:
    assert not passwords.matches(None, "")
    assert not passwords.matches(None, "anything")
    assert not passwords.matches("no hash at all", "anything")


def test_a_long_text_is_not_its_beginning() -> None:
    stored = passwords.hashed("x" * 1024)
    assert passwords.matches(stored, "x" * 1024)
    assert not passwords.matches(stored, "x" * 1025)
    assert not passwords.matches(stored, "x" * 8_000_000)


@pytest.mark.parametrize("text", ["", "seven77", "x" * 1025])
def test_what_is_no_password(text: str) -> None:
    with pytest.raises(BadSetting):
        passwords.require_good(text)


def test_generated_secrets_differ() -> None:
    assert len({passwords.generated() for _ in range(100)}) == 100
    passwords.require_good(passwords.generated())
    assert all(passwords.generated().isalnum() for _ in range(100))
    text, digest = tokens.new()
    assert text.startswith("hr_")
    assert len(text) == 3 + 43
    assert digest == tokens.digest_of(text)
    assert text not in digest
    assert len(digest) == 64


# What is stored of a statement


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE USER ann WITH PASSWORD 'canary'",
        'create /* x */ user ann\nwith password "canary" role analyst',
        "ALTER USER ann SET PASSWORD 'canary'",
        "ALTER USER ann SET PASSWORD canary",
        "ALTER USER ann SET PASWORD 'canary'",
        "CREATE USER ann WITH PASSWORD 'canary",
        "CREATE USER IF NOT EXISTS ann WITH PASSWORD r'canary'",
        "SELECT 1; CREATE USER ann WITH PASSWORD 'canary'",
        "SET spark.hadoop.fs.s3a.secret.key = canary",
        "SET spark.x.password=canary and more",
        "CREATE TABLE t USING jdbc OPTIONS (url 'u', password 'canary')",
        "CREATE TABLE t TBLPROPERTIES ('account.key' = 'canary')",
        "ALTER USER ann SET PASSWORD 'it''s canary'",
        r"ALTER USER ann SET PASSWORD 'it\'s canary'",
    ],
)
def test_no_password_is_stored(statement: str) -> None:
    assert "canary" not in masked_sql(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM users WHERE password = 'x' AND name = 'ann'",
        "CREATE TOKEN 'nightly' EXPIRES IN 30 DAY",
        "DROP USER ann",
        "SELECT 'password', 'x'",
        "GRANT SELECT ON TABLE passwords TO ann",
        "SELECT 'never ends",
        "",
    ],
)
def test_other_statements_are_stored_as_they_are(statement: str) -> None:
    assert masked_sql(statement) == statement


# The throttle


def test_five_wrong_passwords_are_free_then_the_wait_grows() -> None:
    clock = Clock()
    throttle = LoginThrottle(clock)
    for _ in range(5):
        throttle.allow("ann", "10.0.0.1")
        throttle.failed("ann", "10.0.0.1")
    waits = []
    for _ in range(8):
        with pytest.raises(TooBusy) as caught:
            throttle.allow("ann", "10.0.0.1")
        waits.append(caught.value.retry_after)
        clock.forward(caught.value.retry_after)
        throttle.allow("ann", "10.0.0.1")
        throttle.failed("ann", "10.0.0.1")
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_others_are_not_made_to_wait() -> None:
    throttle = LoginThrottle(Clock())
    for _ in range(20):
        throttle.failed("ann", "10.0.0.1")
    throttle.allow("bob", "10.0.0.1")
    throttle.allow("ann", "10.0.0.2")
    with pytest.raises(TooBusy):
        throttle.allow("ANN", "10.0.0.1")


def spray(throttle: LoginThrottle, count: int, address: str = "10.0.0.1", first: int = 0) -> list[float]:
    """Tries of as many users, one each, which fail; the seconds that each has to wait."""
    waits = []
    for number in range(first, first + count):
        waits.append(throttle.turn(f"user {number}", address))
        throttle.failed(f"user {number}", address)
    return waits


def test_who_tries_many_users_at_an_address_takes_turns() -> None:
    clock = Clock()
    throttle = LoginThrottle(clock)
    assert spray(throttle, 60) == [0.0] * 60
    assert spray(throttle, 10, first=60) == [float(number) for number in range(1, 11)]
    with pytest.raises(TooBusy) as caught:
        spray(throttle, 1)
    assert caught.value.retry_after < 5
    assert throttle.turn("ann", "10.0.0.2") == 0.0
    clock.forward(1)
    assert throttle.turn("newcomer", "10.0.0.1") == 10.0, "who waits in line is let through within seconds"
    clock.forward(75)
    assert throttle.turn("another", "10.0.0.1") == 0.0


def test_who_was_let_in_before_needs_no_turn() -> None:
    throttle = LoginThrottle(Clock())
    throttle.turn("ann", "10.0.0.1")
    throttle.succeeded("ann", "10.0.0.1")
    spray(throttle, 70)
    assert throttle.turn("Ann", "10.0.0.1") == 0.0
    throttle.failed("ann", "10.0.0.1")  # Somebody else tries her name.
    assert throttle.turn("ann", "10.0.0.1") == 0.0
    with pytest.raises(TooBusy):
        throttle.turn("bob", "10.0.0.1")


def test_logins_that_succeed_slow_nobody_down() -> None:
    throttle = LoginThrottle(Clock())
    for number in range(500):
        assert throttle.turn(f"user {number}", "10.0.0.1") == 0.0
        throttle.succeeded(f"user {number}", "10.0.0.1")


def test_one_user_who_is_put_off_takes_no_turn_from_others() -> None:
    throttle = LoginThrottle(Clock())
    for _ in range(5):
        throttle.turn("robot", "10.0.0.1")
        throttle.failed("robot", "10.0.0.1")
    for _ in range(200):
        with pytest.raises(TooBusy, match="wrong passwords"):
            throttle.turn("robot", "10.0.0.1")
    assert throttle.turn("ann", "10.0.0.1") == 0.0


def test_a_network_of_one_machine_counts_as_one() -> None:
    throttle = LoginThrottle(Clock())
    for number in range(60):
        assert throttle.turn(f"user {number}", f"2001:db8::{number + 1:x}") == 0.0
    assert throttle.turn("ann", "2001:db8::ffff") == 1.0
    assert throttle.turn("ann", "2001:db8:0:1::1") == 0.0


# What the audit log has of failures


def test_the_first_failures_of_an_address_have_lines_of_their_own() -> None:
    clock, written = Clock(), list[AuditEntry]()
    failed = FailedLogins(clock)
    for number in range(500):
        line = failed.line(f"user {number}", "10.0.0.1")
        assert (line is not None) == (number < 10)
    assert failed.line("ann", "10.0.0.2") is not None
    failed.write_sums(written.append)
    assert written == []
    clock.forward(600)
    failed.write_sums(written.append)
    (line,) = written
    assert (line.action, line.address) == ("LOGIN_FAILED", "10.0.0.1")
    assert "490 more since" in line.detail
    assert line.detail.endswith("for user 10, user 11, user 12 and others.")
    failed.write_sums(written.append)
    assert len(written) == 1
    assert failed.line("ann", "10.0.0.1") is not None, "then it begins anew"


def test_very_many_addresses_share_a_line() -> None:
    failed, written = FailedLogins(Clock()), list[AuditEntry]()
    lines = [failed.line("ann", f"address {number}") for number in range(5000)]
    assert sum(line is not None for line in lines) == 1010
    failed.write_sums(written.append, everything=True)
    assert [line.address for line in written] == ["other addresses"]


def test_what_cannot_be_written_is_written_later() -> None:
    failed, written = FailedLogins(Clock()), list[AuditEntry]()

    def fails(_line: AuditEntry) -> None:
        failed.line("bob", "10.0.0.1")
        raise EnvironmentFault("The database is away.")

    for _ in range(12):
        failed.line("ann", "10.0.0.1")
    with pytest.raises(EnvironmentFault):
        failed.write_sums(fails, everything=True)
    failed.write_sums(written.append, everything=True)
    assert "3 more since" in written[0].detail


def test_a_clock_that_is_set_back_makes_nobody_wait_longer() -> None:
    clock = Clock()
    throttle = LoginThrottle(clock)
    throttle.failed("ann", "a")
    clock.forward(-24 * 3600)
    throttle.allow("ann", "a")
    for _ in range(20):
        throttle.failed("ann", "a")
    clock.forward(-24 * 3600)
    with pytest.raises(TooBusy) as caught:
        throttle.allow("ann", "a")
    assert caught.value.retry_after == 60


def test_a_good_login_wipes_the_slate_and_so_does_time() -> None:
    clock = Clock()
    throttle = LoginThrottle(clock)
    for _ in range(5):
        throttle.failed("ann", "a")
    throttle.succeeded("ann", "a")
    throttle.allow("ann", "a")
    for _ in range(4):
        throttle.failed("ann", "a")
    clock.forward(16 * 60)
    throttle.failed("ann", "a")
    throttle.allow("ann", "a")


def test_parallel_good_logins_do_not_refuse_each_other() -> None:
    throttle = LoginThrottle(Clock())
    refused: list[BaseException] = []
    begin = threading.Barrier(20)

    def login() -> None:
        try:
            begin.wait()
            throttle.allow("ann", "a")
            throttle.succeeded("ann", "a")
        except TooBusy as error:
            refused.append(error)

    threads = [threading.Thread(target=login) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not refused


def test_the_throttle_stays_small() -> None:
    throttle = LoginThrottle(Clock())
    for number in range(12_000):
        throttle.failed(f"user{number}", "a")
    assert len(throttle._failures) == 10_000


# Roles


def _all_statements(kind: type[sql.Statement] = sql.Statement) -> set[type[sql.Statement]]:
    return {each for below in kind.__subclasses__() for each in ({below} | _all_statements(below))}


def test_every_statement_has_a_role() -> None:
    assert set(LEAST_ROLE) == _all_statements()


@pytest.mark.parametrize(
    "verb", ["ADD", "LIST", "LOAD", "CALL", "BEGIN", "CLEAR", "CONVERT", "MSCK REPAIR", "UNHEARD OF"]
)
def test_what_is_not_listed_is_for_administrators(verb: str) -> None:
    assert verb not in LEAST_ROLE_FOR_VERB
    require_role(Principal("root", "admin"), verb, verb)
    with pytest.raises(Forbidden, match="needs an administrator, and dev is a developer"):
        require_role(Principal("dev", "developer"), verb, verb)


def test_roles_include_each_other() -> None:
    analyst, developer = Principal("ann", "analyst"), Principal("dev", "developer")
    for user in (analyst, developer):
        require_role(user, "SELECT", "SELECT")
        require_role(user, sql.ShowTables, "SHOW TABLES")
    require_role(developer, "INSERT", "INSERT")
    with pytest.raises(Forbidden) as caught:
        require_role(analyst, "INSERT", "INSERT")
    assert caught.value.hint is not None
    assert "ALTER USER ann SET ROLE developer" in caught.value.hint
    with pytest.raises(Forbidden):
        require_role(developer, sql.CreateUser, "CREATE USER")


def test_an_embedded_lake_has_no_limits() -> None:
    assert Principal("me", "analyst", unlimited=True).is_admin


# Rights


def _rights(*grants: tuple[str, str, Privilege]) -> Rights:
    return Rights(
        Grant(
            user="ann", kind="SCHEMA" if kind == "schema" else "TABLE", object=on, privilege=privilege, granted_at=START
        )
        for kind, on, privilege in grants
    )


def test_no_grant_no_access() -> None:
    rights = _rights()
    assert not rights.may("SELECT", TableName("main", "sales", "t"))
    assert not rights.may_in("SELECT", "main", "sales")
    assert not rights.sees("main", "sales")


def test_a_grant_on_a_schema_holds_for_all_in_it_and_nothing_else() -> None:
    rights = _rights(("schema", "main.sales", "SELECT"))
    assert rights.may("SELECT", TableName("main", "sales", "t"))
    assert rights.may("SELECT", TableName("MAIN", "Sales", "T"))
    assert not rights.may("ALL", TableName("main", "sales", "t"))
    assert not rights.may("SELECT", TableName("main", "sales2", "t"))
    assert not rights.may("SELECT", TableName("other", "sales", "t"))


def test_a_grant_on_a_table_holds_for_it_alone() -> None:
    rights = _rights(("table", "main.sales.t", "ALL"))
    assert rights.may("ALL", TableName("main", "sales", "t"))
    assert rights.may("SELECT", TableName("main", "sales", "t"))
    assert not rights.may("SELECT", TableName("main", "sales", "t2"))
    assert not rights.may_in("SELECT", "main", "sales")
    assert rights.sees("main", "sales")
    assert not rights.sees("main", "sal")


def test_a_table_grant_is_not_one_on_a_schema_of_that_name() -> None:
    rights = _rights(("table", "main.sales.t", "ALL"))
    assert not rights.may("SELECT", TableName("main.sales", "t", "x"))
    assert not rights.may_in("ALL", "main.sales", "t")


# What a hostile text costs


def test_masking_takes_no_longer_for_odd_texts() -> None:
    text = "SELECT 1 -- SET " + "key" * 100_000
    assert masked_sql(text) == text


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("ALTER USER ann SET PASSWORD = hunter22x", "ALTER USER ann SET PASSWORD = '***'"),
        ("SELECT 1 IDENTIFIED BY 'p'", "SELECT 1 IDENTIFIED BY '***'"),
        ("SET fs.s3a.secret.key = abc def", "SET fs.s3a.secret.key = '***'"),
        ("SET `my.password`='x'", "SET `my.password`= '***'"),
        ("SET spark.sql.shuffle.partitions = 4", "SET spark.sql.shuffle.partitions = 4"),
    ],
)
def test_secrets_without_quotes(text: str, kept: str) -> None:
    masked = masked_sql(text)
    assert "hunter" not in masked
    assert masked.startswith(kept)


def test_a_pattern_of_many_signs() -> None:
    assert not matches("2026111612455832", "%" * 40 + "~")
    assert matches("orders_2024", "ord%2_2*|x")
    assert not matches("order", "ord_")


def test_a_token_is_never_more_than_its_user() -> None:
    assert lesser("developer", "analyst") == "analyst"
    assert lesser("analyst", "admin") == "analyst"
    assert lesser("developer", None) == "developer"
