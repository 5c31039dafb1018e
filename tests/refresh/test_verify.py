"""VERIFY tells a table that is wrong, whatever it is wrong in; and blames chance only where something is left to it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headrace import Lake
from headrace.refresh import compute
from headrace.result import Result


@pytest.fixture
def t(lake: Lake) -> Lake:
    lake.sql("CREATE TABLE t (k INT, v INT); INSERT INTO t VALUES (1, 10), (1, 10), (2, 20), (NULL, 5)")
    return lake


def verdict(lake: Lake, monkeypatch: pytest.MonkeyPatch, query: str, *, lost: str) -> dict[str, Any]:
    """What VERIFY says after a refresh that has lost the rows of which `lost` is true."""
    lake.sql(f"CREATE OR REPLACE DYNAMIC TABLE d AS {query}")
    lake.sql("INSERT INTO t VALUES (1, 10), (3, 30)")
    computed = compute.changes_of

    def losing(*given: Any) -> compute.Computed | None:
        found = computed(*given)
        return None if found is None else replace(found, rows=found.rows.where(f"NOT coalesce({lost}, false)"))

    with monkeypatch.context() as patch:
        patch.setattr(compute, "changes_of", losing)
        assert row(lake.sql("REFRESH DYNAMIC TABLE d"))["refresh_mode"] == "INCREMENTAL"
    return row(lake.sql("VERIFY DYNAMIC TABLE d"))


def row(result: Result) -> dict[str, Any]:
    return dict(zip(result.columns, result.rows[0], strict=True))


@pytest.mark.parametrize(
    ("query", "lost", "wrong"),
    [
        ("SELECT k, v FROM t", "k = 3", (1, 0)),
        ("SELECT k, v FROM t", "k = 1", (1, 0)),
        ("SELECT k, sum(v) AS total FROM t GROUP BY k", "k = 3", (1, 0)),
        ("SELECT k, sum(v) AS total FROM t GROUP BY k", "total = 30", (2, 0)),
        ("SELECT k, n FROM (SELECT k, size(collect_list(v)) AS n FROM t GROUP BY k) WHERE n > 0", "k = 3", (1, 0)),
    ],
)
def test_a_lost_row_is_told(
    t: Lake, monkeypatch: pytest.MonkeyPatch, query: str, lost: str, wrong: tuple[int, int]
) -> None:
    found = verdict(t, monkeypatch, query, lost=lost)
    assert (found["result"], found["missing"], found["unexpected"]) == ("DIFFERENT", *wrong)


def test_either_zero_is_as_right(lake: Lake) -> None:
    """What a group has of 0.0 and -0.0 as its least value depends on which of them Spark meets first."""
    lake.sql("CREATE TABLE z (k INT, x DOUBLE); INSERT INTO z VALUES (1, 0.0D), (2, 3.0D)")
    lake.sql("CREATE DYNAMIC TABLE d AS SELECT k, CAST(min(x) AS STRING) AS s FROM z GROUP BY k")
    lake.sql("INSERT INTO z SELECT /*+ COALESCE(1) */ if(id = 1, 1, id), if(id = 1, -0.0D, 1.0D) FROM range(1, 300)")
    assert row(lake.sql("REFRESH DYNAMIC TABLE d"))["refresh_mode"] == "INCREMENTAL"
    assert row(lake.sql("VERIFY DYNAMIC TABLE d"))["result"] in ("EQUAL", "AMBIGUOUS")
