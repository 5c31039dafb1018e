"""Doing what a scenario says, and noting what is not as it should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone

import pytest

from headrace import Lake
from headrace.errors import HeadraceError, Unsupported
from headrace.ivm import narrowing, stages
from headrace.refresh import states
from headrace.storage import maintenance
from property.scenarios import Dynamic, Scenario
from property.values import DAY

OFTEN = "often"
"""A table with the first query, refreshed after every statement: it must end like the one that is refreshed seldom."""
_NEW_DAY = "A new day, and current_date is used in an aggregate"
_NOT_IN_SPARK = "Spark cannot run it"
_ROUNDED = "the stored rows are not as they should be"


@dataclass(frozen=True)
class Finding:
    table: str
    what: str


@dataclass
class Outcome:
    findings: list[Finding] = field(default_factory=list)
    tables: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Why queries are not incremental."""
    refreshes: Counter[str] = field(default_factory=Counter)
    """By mode; FULL ones with their reason, where it is a lawful one."""

    def add(self, other: Outcome) -> None:
        self.findings += other.findings
        self.tables += other.tables
        self.refused += other.refused
        self.refreshes += other.refreshes


def follow(lake: Lake, scenario: Scenario, schema: str) -> Outcome:
    """What came of a scenario in a schema of its own."""
    lake.sql(f"CREATE SCHEMA {schema}; USE {schema}")
    try:
        with _circumstances(lake, scenario) as set_day:
            return _Following(lake, scenario).outcome(set_day)
    finally:
        lake.sql(f"USE public; DROP SCHEMA {schema} CASCADE")


@contextmanager
def _circumstances(lake: Lake, scenario: Scenario) -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lake._context.runner, "off", scenario.off)
        patch.setattr(lake._context.logs, "off", scenario.off)
        patch.setattr(states, "WORTH", 0)
        if scenario.big:
            patch.setattr(stages, "BIG_ROWS", 0)
            patch.setattr(stages, "STATE_ROWS", 0)
            patch.setattr(stages, "ORDERED_ROWS", 0)
        if scenario.eager:
            patch.setattr(maintenance, "FOLD_AFTER_APPENDS", 2)
            patch.setattr(narrowing, "PUSHED_KEYS", 1)
            patch.setattr(narrowing, "_FEW", 0)
        yield patch


class _Following:
    def __init__(self, lake: Lake, scenario: Scenario) -> None:
        self._lake = lake
        self._scenario = scenario
        self._found = Outcome()
        self._given_up: set[str] = set()
        self._whole: set[str] = set()
        """Tables that are not incremental."""

    def outcome(self, patch: pytest.MonkeyPatch) -> Outcome:
        scenario = self._scenario
        _set_day(patch, self._lake, DAY)
        for statement in (*(source.ddl for source in scenario.sources), *scenario.setup):
            self._lake.sql(statement)
        tables = {each.name: each for each in scenario.dynamic}
        if "d0" in tables:
            tables[OFTEN] = Dynamic(OFTEN, tables["d0"].relation)
        for each in tables.values():
            self._watched(each, self._create)
        for round_ in scenario.rounds:
            _set_day(patch, self._lake, round_.day)
            for statement in round_.statements:
                self._lake.sql(statement)
                if OFTEN in tables:
                    self._watched(tables[OFTEN], self._refresh)
            for name in round_.refreshed:
                self._watched(tables[name], self._refresh)
                self._watched(tables[name], self._verify)
            if OFTEN in tables:
                self._watched(tables[OFTEN], self._verify)
        return self._found

    def _watched(self, table: Dynamic, work: Callable[[Dynamic], str | None]) -> None:
        """Do it; a table that something is wrong with is left alone from then on."""
        if table.name in self._given_up:
            return
        try:
            what = work(table)
        except HeadraceError as error:
            what = f"{type(error).__name__}: {error.message}"
        if what is None:
            return
        self._given_up.add(table.name)
        if self._spark_runs(table):
            self._found.findings.append(Finding(table.name, what))
        else:
            self._found.refused[_NOT_IN_SPARK] += 1

    def _spark_runs(self, table: Dynamic) -> bool:
        """Spark's own optimizer stumbles over some queries, and over those of tables that read their tables."""
        try:
            self._lake.sql(table.relation.text)
        except HeadraceError:
            return False
        return True

    def _create(self, table: Dynamic) -> str | None:
        self._found.tables += 1
        try:
            self._lake.sql(f"CREATE DYNAMIC TABLE {table.name} REFRESH_MODE = INCREMENTAL AS {table.relation.text}")
        except Unsupported as refusal:
            self._found.refused[refusal.message] += 1
            self._whole.add(table.name)
            # Others may read it: they get all its rows as changes.
            self._lake.sql(f"CREATE DYNAMIC TABLE {table.name} AS {table.relation.text}")
        return None

    def _refresh(self, table: Dynamic) -> str | None:
        result = self._lake.sql(f"REFRESH DYNAMIC TABLE {table.name}")
        row = dict(zip(result.columns, result.rows[0], strict=True))
        mode, reason = str(row["refresh_mode"]), str(row["reason"])
        if mode != "FULL" or table.name in self._whole:
            self._found.refreshes[mode] += 1
            return None
        if reason.startswith(_NEW_DAY) or (_ROUNDED in reason and table.inexact):
            self._found.refreshes[f"FULL: {reason}"] += 1
            return None
        return f"FULL: {reason}"

    def _verify(self, table: Dynamic) -> str | None:
        verdict = self._lake.sql(f"VERIFY DYNAMIC TABLE {table.name}").rows[0]
        return None if verdict[1] == "EQUAL" else f"VERIFY: {verdict}"


def _set_day(patch: pytest.MonkeyPatch, lake: Lake, day: str) -> None:
    noon = datetime.fromisoformat(f"{day}T12:00:00").replace(tzinfo=timezone.utc)
    patch.setattr(lake._context.runner, "_clock", lambda: noon)
