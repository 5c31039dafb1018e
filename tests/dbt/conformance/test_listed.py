"""The table in the docs, the tests here and the suite that is installed say the same."""

from __future__ import annotations

import importlib.util
import inspect
from collections import Counter
from pathlib import Path

import dbt_suite


def inherited_here() -> Counter[str]:
    """Every item that a class of this folder inherits."""
    found: Counter[str] = Counter()
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        if file.name == Path(__file__).name:
            continue
        spec = importlib.util.spec_from_file_location(f"conformance_{file.stem}", file)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name, kind in vars(module).items():
            if inspect.isclass(kind) and name.startswith("Test") and kind.__module__ == module.__name__:
                found.update(f"{dbt_suite.inherited(kind)}::{each}" for each in dbt_suite.tests_of(kind))
    return found


def test_every_item_of_the_suite_is_inherited_once() -> None:
    here, suite = inherited_here(), dbt_suite.items()
    assert set(suite) - set(here) == set(), "not inherited"
    assert set(here) - set(suite) == set(), "not in the suite, or not at the end of inheritance there"
    assert {name for name, times in here.items() if times > 1} == set(), "inherited twice"


def test_the_table_lists_items_that_there_are() -> None:
    names = {name.partition("[")[0] for name in dbt_suite.gaps()}
    assert names - set(dbt_suite.items()) == set()


def test_the_counts_add_up() -> None:
    counts = dbt_suite.written_counts()
    total = counts.pop("all")
    assert total.all == sum(dbt_suite.items().values())
    assert total.passed == sum(count.passed for count in counts.values())
    gaps = dbt_suite.gaps().values()
    sizes = dbt_suite.items()
    listed = Counter({True: 0, False: 0})
    for gap in gaps:
        listed[gap.applies] += 1 if "[" in gap.item else sizes[gap.item]
    assert (total.not_passed, total.not_applicable) == (listed[True], listed[False])


def test_as_much_passes_as_was_promised() -> None:
    assert dbt_suite.written_counts()["all"].passed >= 260
