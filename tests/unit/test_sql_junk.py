"""Any text gives a statement or one of our errors, and nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.errors import HeadraceError
from headrace.sql import parse, split_statements
from headrace.sql.rewrite import spark_names, table_properties, time_travel
from headrace.sql.tokens import scan

VALID = [
    "CREATE OR REPLACE DYNAMIC TABLE a.`b c`.d (x COMMENT 'c', y) PARTITIONED BY (x) CLUSTERED BY (y) COMMENT = 'c' "
    "PROPERTIES ('k'='v', a.b = -1) REFRESH START WITH now() + INTERVAL 1 DAY INTERVAL '5' MINUTE VCLUSTER default "
    "REFRESH_MODE = AUTO AS WITH q AS (SELECT 1) SELECT * FROM q",
    "CREATE DYNAMIC TABLE d TARGET_LAG = '5 minutes' AS SELECT 1",
    "REFRESH DYNAMIC TABLE a, b PARTITION (ds = 'v')",
    "ALTER DYNAMIC TABLE d ADD COLUMN a decimal(1, 2) AS cast(b AS int)",
    "ALTER DYNAMIC TABLE d UNSET PROPERTIES IF EXISTS ('a', b.c)",
    "ALTER DYNAMIC TABLE d SET REFRESH INTERVAL '5 hours'",
    "SELECT * FROM ((SHOW DYNAMIC TABLES IN a.b LIKE 'x' WHERE (a) = 1 LIMIT 3)) t JOIN (SHOW SCHEMAS) u",
    "WITH a AS (SHOW TABLES), b AS (SELECT 1) INSERT INTO TABLE IDENTIFIER('a.b') SELECT * FROM a",
    "FROM a INSERT OVERWRITE TABLE b SELECT 1 INSERT INTO c SELECT 2",
    "SHOW DYNAMIC TABLE REFRESH HISTORY WHERE name = 'x' LIMIT 10",
    "DESCRIBE TABLE EXTENDED ws.s.t",
    "DESC HISTORY t LIMIT 1",
    "RESTORE TABLE t TO TIMESTAMP AS OF '2024-01-01'",
    "CREATE TABLE STREAM s ON TABLE t",
    "SELECT ws.s.t.c FROM ws.s.t TIMESTAMP AS OF now() - INTERVAL '1-2' YEAR TO MONTH a, b FOR VERSION AS OF 3",
    "ALTER TABLE ws.s.t SET PROPERTIES ('change_tracking'='true', data_retention_days = 7)",
    "MERGE WITH SCHEMA EVOLUTION INTO t USING u ON a WHEN MATCHED THEN DELETE",
    "LOAD DATA INPATH 'x' INTO TABLE t",
    "COMMENT ON TABLE t IS 'x'",
    "DROP SCHEMA IF EXISTS ws.s CASCADE",
    "USE SCHEMA ws.s;",
    "EXPLAIN INCREMENTAL SELECT 1",
    "CREATE VCLUSTER IF NOT EXISTS v VCLUSTER_TYPE = ANALYTICS VCLUSTER_SIZE = XSMALL AUTO_RESUME = FALSE "
    "MAX_CONCURRENCY = 4 AUTO_SUSPEND_IN_SECOND 60 QUERY_RUNTIME_LIMIT_IN_SECOND = 5 PROPERTIES ('a'='b') COMMENT 'c'",
    "ALTER VCLUSTER v SUSPEND FORCE",
    "ALTER VCLUSTER v SET VCLUSTER_SIZE = 3, AUTO_RESUME = TRUE",
    "SELECT * FROM (SHOW JOBS IN VCLUSTER v LIKE 'x' WHERE status = 'FAILED' LIMIT 3)",
    "DESC VCLUSTER v",
    "USE VCLUSTER v",
    "CANCEL JOB 'x'",
    "SET query_tag = 'x'",
    "RESET query_tag",
    "CREATE USER IF NOT EXISTS u WITH PASSWORD 'p' ROLE admin",
    "ALTER USER u SET ROLE analyst",
    "GRANT ALL PRIVILEGES ON SCHEMA a.b TO u",
    "REVOKE SELECT ON TABLE a.b.c FROM u",
    "SHOW GRANTS TO u",
    "CREATE TOKEN 'x' EXPIRES IN 3 DAYS",
]
PIECES = sorted({token.text for text in VALID for token in scan(text)})
JUNK = [
    "\0",
    "'",
    '"',
    "`",
    "``",
    "/*",
    "*/",
    "--",
    "\n",
    "\\",
    ";",
    "(",
    ")",
    ".",
    ",",
    "\u2028",
    "²",
    "9" * 5000,
    "x" * 256,
]


def mutations() -> st.SearchStrategy[str]:
    """A valid statement with a few of its words left out, doubled, or replaced."""

    def mutate(text: str, changes: list[tuple[int, int, str]]) -> str:
        words = [token.text for token in scan(text)]
        for place, taken, new in changes:
            at = place % (len(words) + 1)
            words[at : at + taken] = [new]
        return " ".join(words)

    change = st.tuples(st.integers(0, 80), st.integers(0, 3), st.sampled_from(PIECES + JUNK) | st.text(max_size=3))
    return st.builds(mutate, st.sampled_from(VALID), st.lists(change, min_size=1, max_size=4))


TEXTS = st.text(max_size=80) | st.lists(st.sampled_from(PIECES + JUNK), max_size=25).map(" ".join) | mutations()


def spark(text: str) -> object:
    return spark_names(text, "home", frozenset({"ws"}), ".".join)


def travel(text: str) -> object:
    return time_travel(text, lambda parts, version, timestamp: f"({parts} {version} {timestamp})")


@pytest.mark.parametrize("function", [parse, split_statements, spark, table_properties, travel])
@given(text=TEXTS)
@example("\0")
@example("SELECT * FROM (SHOW")
@example("(((((" * 2000)
@example("/*" * 5000)
@example("DROP TABLE " + "`" * 5001)
@settings(max_examples=600, deadline=None)
def test_only_our_errors(function: Callable[[str], object], text: str) -> None:
    with contextlib.suppress(HeadraceError):
        function(text)


@given(TEXTS)
@settings(max_examples=300, deadline=None)
def test_a_script_s_statements_are_its_own_text(text: str) -> None:
    try:
        statements = split_statements(text)
    except HeadraceError:
        return
    for statement in statements:
        assert text[statement.offset : statement.offset + len(statement.text)] == statement.text
        assert split_statements(statement.text)[0].text == statement.text


@pytest.mark.parametrize("text", VALID)
def test_text_without_our_words_is_left_alone(text: str) -> None:
    assert spark_names(text, "nowhere", frozenset(), lambda parts: "never") == text
    assert time_travel(text, lambda parts, version, timestamp: None) == text
