"""Incremental equals recompute, for random schemas, queries and histories of changes, however often it is refreshed.

`make test` runs a few examples, always the same. `make fuzz` runs many, from a seed that it prints.
"""

from __future__ import annotations

import itertools
import os

from hypothesis import HealthCheck, Phase, given, note, seed, settings

from headrace import Lake
from headrace.ivm import stages
from headrace.refresh import states
from property.queries import Scenario, scenarios

EXAMPLES = int(os.environ.get("HEADRACE_TEST_EXAMPLES", "4"))
SEED = os.environ.get("HEADRACE_TEST_SEED")
USUAL = (stages.BIG_ROWS, stages.STATE_ROWS, states.WORTH)
_numbers = itertools.count(1)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=SEED is None,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(scenario=scenarios())
def check(lake: Lake, scenario: Scenario) -> None:
    number = next(_numbers)
    if SEED is not None:
        print(f"example {number} of {EXAMPLES}", flush=True)
    schema = f"property_{number}"
    lake.sql(f"CREATE SCHEMA {schema}; USE {schema}")
    lake._context.runner.off = lake._context.logs.off = scenario.off
    stages.BIG_ROWS = stages.STATE_ROWS = scenario.big_rows
    states.WORTH = 0
    try:
        _follow(lake, scenario)
    finally:
        lake._context.runner.off = lake._context.logs.off = frozenset()
        stages.BIG_ROWS, stages.STATE_ROWS, states.WORTH = USUAL
        lake.sql(f"USE public; DROP SCHEMA {schema} CASCADE")


def _follow(lake: Lake, scenario: Scenario) -> None:
    note(f"without {set(scenario.off)}")
    for statement in (*(table.ddl for table in scenario.tables), *scenario.setup):
        note(statement)
        lake.sql(statement)
    names = [f"d{number}" for number in range(len(scenario.queries))]
    for name, query in zip(names, scenario.queries, strict=True):
        note(query)
        lake.sql(f"CREATE DYNAMIC TABLE {name} REFRESH_MODE = INCREMENTAL AS {query}")
    # The first query once more: refreshed after every statement, it must end like the one that is refreshed seldom.
    lake.sql(f"CREATE DYNAMIC TABLE often REFRESH_MODE = INCREMENTAL AS {scenario.queries[0]}")
    for statements in scenario.rounds:
        for statement in statements:
            note(statement)
            lake.sql(statement)
            _refresh(lake, "often", scenario.queries[0])
        for name, query in zip(names, scenario.queries, strict=True):
            _refresh(lake, name, query)
            _verify(lake, name, query)
        _verify(lake, "often", scenario.queries[0])


def _refresh(lake: Lake, name: str, query: str) -> None:
    result = lake.sql(f"REFRESH DYNAMIC TABLE {name}")
    row = dict(zip(result.columns, result.rows[0], strict=True))
    assert row["refresh_mode"] in ("INCREMENTAL", "NO_DATA"), (query, row["reason"])


def _verify(lake: Lake, name: str, query: str) -> None:
    verdict = lake.sql(f"VERIFY DYNAMIC TABLE {name}").rows[0]
    assert verdict[1] == "EQUAL", (query, verdict)


def test_incremental_equals_recompute(shared_lake: Lake) -> None:
    run = check if SEED is None else seed(int(SEED))(check)
    run(shared_lake)
