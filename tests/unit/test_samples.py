"""The generator's text; what it makes is looked at in tests/cli, with Spark."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from headrace import samples
from headrace.sql.tokens import scan


class FakeLake:
    """Remembers the statements, and counts rows as told."""

    def __init__(self, rows: int = 0) -> None:
        self.rows = rows
        self.statements: list[str] = []

    def sql(self, text: str) -> Any:
        self.statements.append(text)
        return SimpleNamespace(rows=[(self.rows,)])


def test_the_same_rows_are_the_same_text() -> None:
    assert samples.events_query(10, 5) == samples.events_query(10, 5)
    assert samples.events_query(10, 5) != samples.events_query(10, 5, seed=1)
    assert "range(10, 15)" in samples.events_query(10, 5)


def test_the_text_is_sql_with_the_columns_of_the_table() -> None:
    text = samples.events_query(0, 1)
    assert scan(text)
    for line in samples.COLUMNS.splitlines():
        assert f"AS {line.split()[0]}" in text


def test_shares_of_the_categories_make_a_whole() -> None:
    assert samples._running_shares()[-1] == 100


def test_creating_twice_adds_only_what_is_missing() -> None:
    lake: Any = FakeLake(rows=30)
    made = samples.create_sample_data(lake, 100)
    assert (made.added, made.total) == (70, 100)
    assert "range(30, 100)" in lake.statements[-1]
    full: Any = FakeLake(rows=500)
    assert samples.create_sample_data(full, 100).added == 0
    assert not any(statement.startswith("INSERT") for statement in full.statements)


def test_names_have_three_parts() -> None:
    lake: Any = FakeLake()
    samples.create_sample_data(lake, 1)
    assert lake.statements[0] == "CREATE SCHEMA IF NOT EXISTS headrace_sample_data.ecommerce_events_history"
    assert samples.SAMPLE_NAME in lake.statements[1]


def test_live_events_end_now(monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime(2025, 5, 5, 12, tzinfo=timezone.utc)
    seen: dict[str, Any] = {}
    monkeypatch.setattr(samples, "append_events", lambda lake, table, rows, **given: seen.update(given) or rows)
    lake: Any = FakeLake()
    assert samples.append_live_events(lake, "t", 100, first=1_000_000, seconds=2.0, now=now) == 100
    last = seen["begins"] + timedelta(seconds=seen["gap_seconds"] * (seen["first"] + 100))
    assert abs((last - now).total_seconds()) < 0.001
