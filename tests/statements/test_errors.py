"""Bad input: each error has its text and its position, and nothing is changed by it."""

from __future__ import annotations

import errno
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake.exceptions import DeltaError

from headrace import Lake
from headrace.errors import EnvironmentFault, HeadraceError, Position
from headrace.statements import storing

# (statement, code, part of the message, position)
CASES = [
    ("CREATE DYNAMIC TABLE x AS SELECT k, rand() AS r FROM t", "NON_DETERMINISTIC", r"rand\(\)", (1, 37)),
    ("CREATE DYNAMIC TABLE x AS\nSELECT k,\n  current_timestamp() AS r FROM t", "NON_DETERMINISTIC",
     "current_timestamp", (3, 3)),
    ("CREATE DYNAMIC TABLE x AS SELECT k, uuid() AS r FROM t", "NON_DETERMINISTIC", r"uuid\(\)", (1, 37)),
    ("CREATE DYNAMIC TABLE x REFRESH_MODE = INCREMENTAL AS SELECT k, histogram_numeric(k, 2) AS r FROM t GROUP BY k",
     "UNSUPPORTED", "incremental refresh not supported: .*aggregate function histogram_numeric", None),
    ("CREATE DYNAMIC TABLE x REFRESH_MODE = INCREMENTAL AS SELECT k FROM t LIMIT 3",
     "UNSUPPORTED", "incremental refresh not supported: .*LIMIT", None),
    ("CREATE DYNAMIC TABLE x AS SELECT k, 'a' AS _change_type FROM t", "NOT_ALLOWED", "Delta's change feed", None),
    ("CREATE DYNAMIC TABLE x AS SELECT k, TIMESTAMP 'now' AS n FROM t", "NON_DETERMINISTIC", "'now'", None),
    ("CREATE DYNAMIC TABLE x AS SELECT k, CAST('today' AS DATE) AS n FROM t", "NON_DETERMINISTIC", "'today'", None),
    ("CREATE DYNAMIC TABLE x AS SELECT k FROM t WHERE DATE'2024-01-01' < 'today'", "NON_DETERMINISTIC", "today", None),
    ("CREATE DYNAMIC TABLE x AS SELECT k, date_add('Tomorrow', 1) AS n FROM t", "NON_DETERMINISTIC", "Tomorrow", None),
    ("CREATE DYNAMIC TABLE x AS SELECT k, to_timestamp('now') AS n FROM t", "NON_DETERMINISTIC", "'now'", None),
    ("CREATE DYNAMIC TABLE x AS SELECT CASE WHEN k = 1 THEN 'now' END AS n, uuid() AS u FROM t "
     "WHERE CAST(concat(year(current_date), '-01-01') AS DATE) < DATE'2024-01-01'", "NON_DETERMINISTIC", "uuid", None),
    ("SELECT reflect('java.lang.System', 'exit', 3)", "UNSAFE", "runs Java code", (1, 8)),
    ("SET optimisations_off = 'local_rows'", "NOT_ALLOWED", "is a setting of the lake, not of a session", (1, 5)),
    ("REFRESH d", "NOT_ALLOWED", "REFRESH does not refresh the dynamic table", (1, 9)),
    ("REFRESH TABLE d", "NOT_ALLOWED", "REFRESH TABLE does not refresh the dynamic table", (1, 15)),
    ("INSERT INTO t VALUES (1)", "QUERY_FAILED", "DELTA_INSERT_COLUMN_ARITY_MISMATCH", None),
    ("SELECT * FROM t VERSION AS OF 99", "QUERY_FAILED", "DELTA_VERSION_NOT_FOUND", None),
    ("ALTER TABLE t RENAME COLUMN k TO kk", "QUERY_FAILED", "DELTA_UNSUPPORTED_RENAME_COLUMN", None),
    ("CREATE TABLE t (k INT)", "ALREADY_EXISTS", "already exists", None),
    ("DROP TABLE nothing", "NOT_FOUND", "nothing", None),
    ("SELECT * FROM other.s.t", "NOT_FOUND", "There is no workspace other", None),
    ("INSERT INTO other.s.t VALUES (1)", "NOT_FOUND", "There is no workspace other", None),
    ("CREATE TABLE other.s.t (k INT)", "NOT_FOUND", "There is no workspace other", None),
    ("SUSPEND TASK load", "SYNTAX_ERROR", "expected", (1, 1)),
    ("INSERT INTO d VALUES (1, 1)", "NOT_ALLOWED", "INSERT on the dynamic table .*d is not allowed", (1, 13)),
    ("UPDATE d SET n = 1", "NOT_ALLOWED", "UPDATE on the dynamic table", (1, 8)),
    ("DELETE FROM d", "NOT_ALLOWED", "DELETE on the dynamic table", (1, 13)),
    ("MERGE INTO d USING t ON d.k = t.k WHEN MATCHED THEN DELETE", "NOT_ALLOWED", "MERGE on the dynamic table",
     (1, 12)),
    ("TRUNCATE TABLE d", "NOT_ALLOWED", "TRUNCATE on the dynamic table", (1, 16)),
    ("ALTER TABLE d ADD COLUMN z INT", "NOT_ALLOWED", "cannot be used on the dynamic table", (1, 13)),
    ("DROP TABLE d", "NOT_ALLOWED", "is a dynamic table", None),
    ("CREATE DYNAMIC TABLE x AS SELECT * FROM nowhere", "NOT_FOUND", "nowhere", (1, 41)),
    ("CREATE DYNAMIC TABLE x AS SELECT nothing FROM t", "QUERY_FAILED", "nothing", (1, 34)),
    ("CREATE OR REPLACE DYNAMIC TABLE d AS SELECT k, n FROM e", "NOT_ALLOWED", "cycle", None),
    ("CREATE DYNAMIC TABLE x REFRESH INTERVAL 59 SECOND AS SELECT k FROM t", "USER_ERROR", "smallest.* 1 minute",
     (1, 41)),
    ("CREATE DYNAMIC TABLE x REFRESH INTERVAL 1 MINUTE VCLUSTER gone AS SELECT k FROM t", "NOT_FOUND",
     "no virtual cluster 'gone'", None),
    ("CREATE DYNAMIC TABLE d AS SELECT k FROM t", "ALREADY_EXISTS", "exists already", None),
    ("CREATE DYNAMIC TABLE t AS SELECT k FROM t", "ALREADY_EXISTS", "not a dynamic table", None),
    ("CREATE DYNAMIC TABLE x (a, b, c) AS SELECT k FROM t", "USER_ERROR", "names 3 columns", None),
    ("CREATE DYNAMIC TABLE x AS SELECT k, k FROM t", "QUERY_FAILED", "two columns named", None),
    ("CREATE DYNAMIC TABLE x AS SELECT k AS __hr_k FROM t", "NOT_ALLOWED", "Headrace's own", None),
    ("CREATE DYNAMIC TABLE x AS SELECT NULL AS nothing FROM t", "NOT_ALLOWED", "void", None),
    ("CREATE DYNAMIC TABLE x PARTITIONED BY (zz) AS SELECT k FROM t", "NOT_FOUND", "no column 'zz'", None),
    ("CREATE DYNAMIC TABLE x AS INSERT INTO t VALUES (1, 1)", "SYNTAX_ERROR", "", None),
    ("CREATE DYNAMIC TABLE x TARGET_LAG = '1 second' AS SELECT k FROM t", "USER_ERROR", "smallest is 1 minute", None),
    ("CREATE DYNAMIC x AS SELECT 1", "SYNTAX_ERROR", "expected", (1, 16)),
    ("REFRESH DYNAMIC TABLE nowhere", "NOT_FOUND", "no dynamic table", None),
    ("REFRESH DYNAMIC TABLE t", "NOT_FOUND", "is not a dynamic table", None),
    ("REFRESH DYNAMIC TABLE d, nowhere", "NOT_FOUND", "no dynamic table", None),
    ("VERIFY DYNAMIC TABLE t", "NOT_FOUND", "is not a dynamic table", None),
    ("ALTER DYNAMIC TABLE d SET VCLUSTER gone", "NOT_FOUND", "no virtual cluster", None),
    ("ALTER DYNAMIC TABLE d SET REFRESH INTERVAL 5 SECOND", "USER_ERROR", "smallest.* 1 minute", (1, 44)),
    ("ALTER DYNAMIC TABLE d RENAME COLUMN zz TO y", "NOT_FOUND", "no column 'zz'", None),
    ("ALTER DYNAMIC TABLE d RENAME COLUMN k TO n", "USER_ERROR", "same name", None),
    ("ALTER DYNAMIC TABLE d SET PROPERTIES ('initialize'='never')", "BAD_SETTING", "initialize", None),
    ("DROP DYNAMIC TABLE nowhere", "NOT_FOUND", "no dynamic table", None),
    ("SELECT * FROM nowhere", "NOT_FOUND", "nowhere", (1, 15)),
    ("SELECT 1 +", "SYNTAX_ERROR", "", (1, 11)),
    ("SELEC 1", "SYNTAX_ERROR", "", (1, 1)),
    ("UNDROP TABLE t", "UNSUPPORTED", "not available yet", None),
    ("SHOW TABLES IN nowhere", "NOT_FOUND", "no schema", None),
    ("SHOW TABLES WHERE nothing = 1", "QUERY_FAILED", "nothing", None),
    ("DESC nowhere", "NOT_FOUND", "nowhere", None),
    ("CREATE TABLE y (a INT) PROPERTIES ('change_tracking'='maybe')", "BAD_SETTING", "change_tracking", None),
]  # fmt: skip


@pytest.fixture(scope="module")
def prepared(shared_lake: Lake) -> Lake:
    shared_lake.sql(
        """
        CREATE SCHEMA bad_input; USE bad_input;
        CREATE TABLE t (k INT, v INT); INSERT INTO t VALUES (1, 1), (2, 2);
        CREATE DYNAMIC TABLE d AS SELECT k, count(*) AS n FROM t GROUP BY k;
        CREATE DYNAMIC TABLE e AS SELECT k, n FROM d
        """
    )
    return shared_lake


@pytest.mark.parametrize(("statement", "code", "message", "position"), CASES, ids=[case[0][:60] for case in CASES])
def test_bad_input(prepared: Lake, statement: str, code: str, message: str, position: tuple[int, int] | None) -> None:
    prepared.sql("USE bad_input")
    before = _state(prepared)
    with pytest.raises(HeadraceError) as caught:
        prepared.sql(statement)
    error = caught.value
    assert error.code == code, error
    assert re.search(message, error.message, re.I | re.S), error
    if position is not None:
        assert error.position == Position(*position), error
    assert len(error.message) < 700
    assert "\tat " not in str(error), "no stack trace"
    assert _state(prepared) == before


def _state(lake: Lake) -> object:
    tables = [(t.name, t.generation, t.stale_reason, t.modified_at) for t in lake._context.store.tables()]
    versions = [lake._context.logs.snapshot(t.storage_path).version for t in lake._context.store.tables()]
    return sorted(tables), versions, [row.name for row in lake.spark.catalog.listTables("bad_input")]


def test_the_position_counts_from_the_start_of_the_whole_text(prepared: Lake) -> None:
    with pytest.raises(HeadraceError) as caught:
        prepared.sql("USE bad_input;\nSELECT 1;\n  INSERT INTO d VALUES (1, 1)")
    assert caught.value.position == Position(3, 15)


@pytest.mark.parametrize(
    "fault",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        DeltaError("Generic LocalFileSystem error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_leaves_nothing_of_a_new_dynamic_table(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def full(path: str, **given: Any) -> None:
        Path(path, "_delta_log").mkdir(parents=True)
        raise fault

    lake.sql("CREATE TABLE small AS SELECT 1 AS k")
    folder = Path(lake._context.settings.warehouse).absolute() / storing.FOLDER
    before = sorted(folder.glob("*")) if folder.exists() else []
    with monkeypatch.context() as patched:
        patched.setattr(storing, "DeltaTable", SimpleNamespace(create=full))
        with pytest.raises(EnvironmentFault, match=r"could not be created: .*No space left on device") as raised:
            lake.sql("CREATE DYNAMIC TABLE x AS SELECT k FROM small")
    assert raised.value.hint is not None
    assert raised.value.hint.startswith("Free some space")
    assert (sorted(folder.glob("*")) if folder.exists() else []) == before
    lake.sql("CREATE DYNAMIC TABLE x AS SELECT k FROM small")
