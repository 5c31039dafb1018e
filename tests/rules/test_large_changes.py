"""The form that large changes take, for one `.test` file for each piece of code that they go through."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from headrace import Lake
from headrace.ivm import stages
from rules.rule_format import Weighted, parse_rule_test
from rules.rule_steps import contents_of, create, nonzero, refresh, verify

LARGE_FORMS = ("filter", "three_way_join", "aggregate", "grouped_extremes", "having")


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("name", LARGE_FORMS)
def test_rule_at_once_without_local_rows(lake: Lake, schema: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps in one refresh, with nothing held in the driver: the form that large changes take."""
    monkeypatch.setattr(stages, "LOCAL_ROWS", -1)
    monkeypatch.setattr(stages, "CHANGED_ROWS", -1)
    test = parse_rule_test(Path(__file__).with_name(f"{name}.test"))
    create(lake, test)
    contents = contents_of(lake)
    expected: Weighted = Counter()
    for step in test.steps:
        if step.statements.strip():
            lake.sql(step.statements)
        expected.update(step.expected)
    refreshed = dict(zip(*refresh(lake), strict=True))
    change: Weighted = Counter(contents_of(lake))
    change.subtract(contents)
    assert nonzero(change) == nonzero(expected), f"{name}: changed by {dict(nonzero(change))}"
    assert refreshed["refresh_mode"] == "INCREMENTAL", f"{name}: {refreshed['reason']}"
    verify(lake, name)
