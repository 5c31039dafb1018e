"""Runs every `.test` file (rule_format.py): weighted rows, INCREMENTAL and one commit after each step; VERIFY last."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from headrace import Lake
from headrace.ivm import stages
from headrace.refresh import states
from rules.rule_format import Step, Weighted, parse_rule_test
from rules.rule_steps import contents_of, create, nonzero, refresh, texts, verify, versions_of

USUAL = stages.BIG_ROWS
FILES = sorted(Path(__file__).parent.glob("*.test"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_rule(
    lake: Lake, schema: str, path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = parse_rule_test(path)
    # Interpreted, Spark's own VERIFY would divide by zero for a group that HAVING hides.
    request.getfixturevalue("compiled" if path.stem == "having" else "interpreted")
    create(lake, test)
    contents = contents_of(lake)
    for number, step in enumerate(test.steps):
        # Every second step takes its tables for big: changesets are then computed first and their keys pushed down.
        monkeypatch.setattr(stages, "BIG_ROWS", 0 if number % 2 else USUAL)
        monkeypatch.setattr(stages, "ORDERED_ROWS", 0 if number % 2 else 10**9)
        # The first step has state tables made; the others find them.
        monkeypatch.setattr(stages, "STATE_ROWS", 10**9 if number else 0)
        monkeypatch.setattr(states, "WORTH", 0)
        where = f"{path.name}:{step.line} ({step.title})"
        versions = versions_of(lake)
        if step.statements.strip():
            lake.sql(step.statements)
        refreshed = dict(zip(*refresh(lake), strict=True))
        after = contents_of(lake)
        change: Weighted = Counter(after)
        change.subtract(contents)
        assert nonzero(change) == nonzero(step.expected), (
            f"{where}: changed by {dict(nonzero(change))}, expected {dict(nonzero(step.expected))}"
        )
        assert refreshed["refresh_mode"] == "INCREMENTAL", (
            f"{where}: {refreshed['refresh_mode']}, {refreshed['reason']}"
        )
        if step.technique is not None:
            assert refreshed["technique"] == step.technique, where
        assert versions_of(lake) == versions + 1, f"{where}: not exactly one commit"
        contents = after
    verify(lake, f"{path.name}: at the end")
    assert texts(lake.spark.table("result"), lake) == contents, "the view shows what is stored"


def test_there_are_sixty_steps() -> None:
    steps: list[Step] = [step for path in FILES for step in parse_rule_test(path).steps]
    assert len(steps) >= 60
