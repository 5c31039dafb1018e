"""Incremental equals recompute, for random schemas, queries and histories of changes."""

from __future__ import annotations

import itertools
import os

from hypothesis import HealthCheck, Phase, given, note, settings

from headrace import Lake
from property.queries import Scenario, scenarios

EXAMPLES = int(os.environ.get("HEADRACE_TEST_EXAMPLES", "4"))
_numbers = itertools.count(1)


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
@given(scenario=scenarios())
def test_incremental_equals_recompute(shared_lake: Lake, scenario: Scenario) -> None:
    lake = shared_lake
    schema = f"property_{next(_numbers)}"
    lake.sql(f"CREATE SCHEMA {schema}; USE {schema}")
    try:
        for table in scenario.tables:
            lake.sql(table.ddl)
        for statement in scenario.setup:
            lake.sql(statement)
        for number, query in enumerate(scenario.queries):
            note(query)
            lake.sql(f"CREATE DYNAMIC TABLE d{number} REFRESH_MODE = INCREMENTAL AS {query}")
        for statements in scenario.rounds:
            for statement in statements:
                note(statement)
                lake.sql(statement)
            for number, query in enumerate(scenario.queries):
                result = lake.sql(f"REFRESH DYNAMIC TABLE d{number}")
                row = dict(zip(result.columns, result.rows[0], strict=True))
                assert row["refresh_mode"] in ("INCREMENTAL", "NO_DATA"), (query, row["reason"])
                verdict = lake.sql(f"VERIFY DYNAMIC TABLE d{number}").rows[0]
                assert verdict[1] == "EQUAL", (query, statements, verdict)
    finally:
        lake.sql(f"USE public; DROP SCHEMA {schema} CASCADE")
