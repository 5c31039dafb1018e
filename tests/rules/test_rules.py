"""Runs every `.test` file (rule_format.py). After each step: weighted rows, VERIFY, INCREMENTAL, exactly one commit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from headrace import Lake
from headrace.ivm import stages
from headrace.ivm.layout import VISIBLE, layout_of, live_local, schema_text
from rules.rule_format import RuleTest, Step, Weighted, parse_rule_test

FILES = sorted(Path(__file__).parent.glob("*.test"))
# One for each piece of code that large changes go through.
LARGE_FORMS = [
    path for path in FILES if path.stem in ("filter", "three_way_join", "aggregate", "grouped_extremes", "having")
]


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_rule(lake: Lake, schema: str, path: Path, request: pytest.FixtureRequest) -> None:
    test = parse_rule_test(path)
    if path.stem == "having":  # Interpreted, Spark's own VERIFY would divide by zero for a group that HAVING hides.
        request.getfixturevalue("compiled")
    _create(lake, test)
    contents = _contents(lake)
    for step in test.steps:
        where = f"{path.name}:{step.line} ({step.title})"
        versions = _versions(lake)
        if step.statements.strip():
            lake.sql(step.statements)
        refreshed = dict(zip(*_refresh(lake), strict=True))
        _verify(lake, where)
        after = _contents(lake)
        change: Weighted = Counter(after)
        change.subtract(contents)
        assert _nonzero(change) == _nonzero(step.expected), (
            f"{where}: changed by {dict(_nonzero(change))}, expected {dict(_nonzero(step.expected))}"
        )
        assert refreshed["refresh_mode"] == "INCREMENTAL", (
            f"{where}: {refreshed['refresh_mode']}, {refreshed['reason']}"
        )
        if step.technique is not None:
            assert refreshed["technique"] == step.technique, where
        assert _versions(lake) == versions + 1, f"{where}: not exactly one commit"
        contents = after
    assert _texts(lake.spark.table("result"), lake) == contents, "the view shows what is stored"


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("path", LARGE_FORMS, ids=[path.stem for path in LARGE_FORMS])
def test_rule_at_once_without_local_rows(lake: Lake, schema: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps in one refresh, with nothing held in the driver: the form that large changes take."""
    monkeypatch.setattr(stages, "LOCAL_ROWS", -1)
    test = parse_rule_test(path)
    _create(lake, test)
    contents = _contents(lake)
    expected: Weighted = Counter()
    for step in test.steps:
        if step.statements.strip():
            lake.sql(step.statements)
        expected.update(step.expected)
    refreshed = dict(zip(*_refresh(lake), strict=True))
    change: Weighted = Counter(_contents(lake))
    change.subtract(contents)
    assert _nonzero(change) == _nonzero(expected), f"{path.name}: changed by {dict(_nonzero(change))}"
    assert refreshed["refresh_mode"] == "INCREMENTAL", f"{path.name}: {refreshed['reason']}"
    _verify(lake, path.name)


def _create(lake: Lake, test: RuleTest) -> None:
    for table in test.tables:
        lake.sql(f"CREATE TABLE {table}")
    if test.setup.strip():
        lake.sql(test.setup)
    lake.sql(f"CREATE DYNAMIC TABLE result REFRESH_MODE = INCREMENTAL AS {test.query}")
    _verify(lake, f"{test.path.name}: after CREATE")


def _nonzero(rows: Weighted) -> Weighted:
    return Counter({row: weight for row, weight in rows.items() if weight})


def _contents(lake: Lake) -> Weighted:
    """The public rows as text, from storage: the view that users read is compared with them at the end of a test."""
    table = lake._context.require_dynamic(("result",))
    stored = live_local(DeltaTable(table.storage_path).to_pyarrow_table())
    if VISIBLE in stored.column_names:
        stored = stored.filter(stored.column(VISIBLE))
    rows = lake.spark.createDataFrame(stored, schema=schema_text(layout_of(table.query).columns))
    return _texts(rows, lake)


def _texts(rows: DataFrame, lake: Lake) -> Weighted:
    columns = [name for name, *_ in lake.sql("DESC result").rows]
    shown = rows.selectExpr(*(f"coalesce(CAST(`{name}` AS STRING), 'NULL') AS `{name}`" for name in columns))
    return Counter(tuple(row) for row in shown.collect())


def _refresh(lake: Lake) -> tuple[list[str], tuple[object, ...]]:
    result = lake.sql("REFRESH DYNAMIC TABLE result")
    return result.columns, result.rows[0]


def _versions(lake: Lake) -> int:
    place = dict(row[:2] for row in lake.sql("DESC EXTENDED result").rows)["location"]
    return int(DeltaTable(place).version())


def _verify(lake: Lake, where: str) -> None:
    verdict = lake.sql("VERIFY DYNAMIC TABLE result").rows[0]
    assert verdict[1] == "EQUAL", f"{where}: {verdict}"


def test_there_are_sixty_steps() -> None:
    steps: list[Step] = [step for path in FILES for step in parse_rule_test(path).steps]
    assert len(steps) >= 60
