"""Incremental equals recompute, for random schemas, queries and histories of changes, however often it is refreshed.

`make test` runs a few examples, always the same. `make fuzz` runs many, from a seed that it prints; each example is
given by the seed and its number, so that one can be run again alone. It goes on after a finding, and shrinks it.
"""

from __future__ import annotations

import itertools
import os
import time

from headrace import Lake
from property.following import Finding, Outcome, follow
from property.queries import ROOTS
from property.scenarios import Scenario, scenario
from property.shrinking import script, shrunk

SHORT = 3
"""So many examples have a query that ends with each of the operators."""
EXAMPLES = int(os.environ.get("HEADRACE_TEST_EXAMPLES", SHORT))
SEED = os.environ.get("HEADRACE_TEST_SEED")
ONLY = os.environ.get("HEADRACE_TEST_ONLY") or None
"""The number of the one example to run."""
MOST_REFUSED = 0.15
"""Of all queries, at most so many may have no incremental rule."""
_schemas = itertools.count(1)


def test_incremental_equals_recompute(shared_lake: Lake) -> None:
    seed, numbers = int(SEED or 0), range(EXAMPLES) if ONLY is None else [int(ONLY)]
    total, scripts = Outcome(), list[str]()
    for number in numbers:
        began = time.monotonic()
        example = scenario(seed, number)
        found = _follow(shared_lake, example)
        total.add(found)
        for finding in found.findings:
            scripts.append(_told(shared_lake, example, finding, f"SEED={seed} ONLY={number}"))
        if SEED is not None:
            print(f"example {number} of {EXAMPLES}: {time.monotonic() - began:.0f} s, {len(scripts)} findings")
            print(*scripts[len(scripts) - len(found.findings) :], sep="\n\n", flush=True)
    if SEED is not None:
        print(f"{total.tables} tables; refused: {dict(total.refused)}; refreshes: {dict(total.refreshes)}")
    assert not scripts, "\n\n".join(scripts)
    assert total.refused.total() <= MOST_REFUSED * total.tables, total.refused


def test_a_short_run_meets_every_operator() -> None:
    examples = [scenario(0, number) for number in range(SHORT)]
    assert {each.relation.operator for example in examples for each in example.dynamic} >= {r.__name__ for r in ROOTS}


def _follow(lake: Lake, example: Scenario) -> Outcome:
    return follow(lake, example, f"property_{next(_schemas)}")


def _told(lake: Lake, example: Scenario, finding: Finding, where: str) -> str:
    """A finding with a script that shows it; in a long run the shortest that was found."""
    told = f"{where} {finding.table}: {finding.what}"
    if SEED is None:
        return f"{told}\nmake fuzz {where} shrinks it."
    kind = finding.what.partition(":")[0]

    def fails(smaller: Scenario) -> bool:
        return any(each.what.startswith(kind) for each in _follow(lake, smaller).findings)

    return f"{told}\n{script(shrunk(example, finding.table, fails))}"
