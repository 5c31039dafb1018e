"""`make test-dbt`: runs dbt's own suite whole and counts what passes.

    python tests/dbt_conformance.py            run all, print the counts, compare them with docs/dbt-conformance.md
    python tests/dbt_conformance.py --write    … and write them there
    python tests/dbt_conformance.py basic      only these areas; the counts of the others are taken from the docs

Ends with 1 if an item passes or fails against what the table says, or if the counts in the docs are others.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dbt_suite import TABLE, Count, area, counts_table, items, written_counts

FOLDER = Path(__file__).parent / "dbt" / "conformance"


class Outcomes:
    """What became of every item; one that fails in any of its phases has failed."""

    def __init__(self) -> None:
        self.of: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = dict(report.user_properties).get("item")
        if name is None:
            return
        if hasattr(report, "wasxfail"):
            self.of[name] = "not passed"
        elif report.skipped:
            self.of[name] = "not applicable"
        elif report.failed:
            self.of[name] = "failed"
        elif report.when == "call":
            self.of.setdefault(name, "passed")

    def counts(self) -> dict[str, Count]:
        found: dict[str, Count] = {}
        for name, outcome in sorted(self.of.items()):
            count = found.setdefault(area(name), Count())
            count.passed += outcome == "passed"
            count.not_passed += outcome in ("not passed", "failed")
            count.not_applicable += outcome == "not applicable"
        return _together(found)


def _together(counts: Mapping[str, Count]) -> dict[str, Count]:
    """With the sum as the last."""
    areas = {name: counts[name] for name in sorted(counts) if name != "all"}
    total = Count()
    for count in areas.values():
        total.passed += count.passed
        total.not_passed += count.not_passed
        total.not_applicable += count.not_applicable
    return {**areas, "all": total}


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs dbt's own suite and counts what passes.")
    parser.add_argument("--write", action="store_true", help="write the counts into docs/dbt-conformance.md")
    parser.add_argument("areas", nargs="*", help="areas, such as basic; all unless named")
    arguments = parser.parse_args()
    os.environ["HEADRACE_TEST_DBT"] = "all"
    outcomes = Outcomes()
    where = [str(FOLDER / f"test_{name}.py") for name in arguments.areas] or [str(FOLDER)]
    code = int(pytest.main([*where, "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider"], plugins=[outcomes]))
    counts = outcomes.counts()
    print(f"\n{counts_table(counts)}\n")
    if failed := [name for name, outcome in sorted(outcomes.of.items()) if outcome == "failed"]:
        print("Failed, against what the table says:\n  " + "\n  ".join(failed))
    written = written_counts()
    if arguments.areas:
        counts = _together(written | counts)
    total = sum(items().values())
    if counts["all"].all != total:
        print(f"The suite has {total} items, and the counts are of {counts['all'].all}.")
        return 1
    if arguments.write:
        text = TABLE.read_text("utf-8")
        table = re.compile(r"^\| area \|.*?(?=^$)", re.MULTILINE | re.DOTALL)
        assert table.search(text), f"{TABLE} has no table of counts."
        TABLE.write_text(table.sub(lambda _: counts_table(counts) + "\n", text), "utf-8")
    elif written != counts:
        print(f"{TABLE} has other counts: run `make test-dbt WRITE=1`.")
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
