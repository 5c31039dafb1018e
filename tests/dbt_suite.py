"""What there is in dbt's own suite of tests for adapters, and which of it this adapter does not pass.

An *item* is one test of one class of the suite. Counted are the classes at the end of inheritance in their own module,
each with its parameters, as they are when an adapter inherits them. An item's name is
`area.module::Class::test`, as in the table of docs/dbt-conformance.md.
"""

from __future__ import annotations

import importlib
import inspect
import math
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import dbt.tests.adapter

SUITE = "dbt.tests.adapter."
TABLE = Path(__file__).parent.parent / "docs" / "dbt-conformance.md"
CORE = ("basic", "query_comment", "relations", "dbt_debug")
"""The areas that `make test` runs; `make test-dbt` runs all."""

_ROW = re.compile(r"^\| `(?P<item>[^`]+)` \| (?P<kind>not applicable|not passed) \| (?P<reason>.+) \|$", re.MULTILINE)
_COUNT = re.compile(
    r"^\| (?P<area>[a-z_ *]+) \| +(?P<all>\d+) \| +(?P<passed>\d+) \| +(?P<not>\d+) \| +(?P<na>\d+) \|$", re.M
)


@dataclass(frozen=True)
class Gap:
    """An item that does not pass, and why."""

    item: str
    applies: bool
    reason: str


def gaps() -> dict[str, Gap]:
    """As the table in the docs says: the tests read it, so that it cannot differ from them."""
    found = [
        Gap(row["item"], row["kind"] == "not passed", row["reason"]) for row in _ROW.finditer(TABLE.read_text("utf-8"))
    ]
    names = Counter(gap.item for gap in found)
    assert max(names.values(), default=0) <= 1, f"listed twice: {names.most_common(3)}"
    return {gap.item: gap for gap in found}


def items() -> Counter[str]:
    """Every item of the installed suite, with the number of its parameters."""
    folder = Path(next(iter(dbt.tests.adapter.__path__)))
    found: Counter[str] = Counter()
    for file in sorted(folder.rglob("*.py")):
        module = importlib.import_module(SUITE + ".".join(file.relative_to(folder).with_suffix("").parts))
        own = [kind for kind in vars(module).values() if inspect.isclass(kind) and kind.__module__ == module.__name__]
        for kind in own:
            if not any(other is not kind and issubclass(other, kind) for other in own):
                for name in tests_of(kind):
                    found[f"{name_of(kind)}::{name}"] = _parameters(getattr(kind, name))
    return found


def tests_of(kind: type) -> list[str]:
    names = {name for each in kind.__mro__ for name in vars(each) if name.startswith("test_")}
    return sorted(name for name in names if inspect.isfunction(getattr(kind, name)))


def _parameters(test: object) -> int:
    return math.prod(len(mark.args[1]) for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize")


def name_of(kind: type) -> str:
    return f"{kind.__module__.removeprefix(SUITE)}::{kind.__name__}"


def inherited(kind: type) -> str:
    """The class of the suite that a class here stands for."""
    return next(name_of(each) for each in kind.__mro__ if each.__module__.startswith(SUITE))


def area(item: str) -> str:
    return item.partition(".")[0].removesuffix("_tests")


@dataclass
class Count:
    passed: int = 0
    not_passed: int = 0
    not_applicable: int = 0

    @property
    def all(self) -> int:
        return self.passed + self.not_passed + self.not_applicable


def written_counts() -> dict[str, Count]:
    return {
        row["area"].strip(" *"): Count(int(row["passed"]), int(row["not"]), int(row["na"]))
        for row in _COUNT.finditer(TABLE.read_text("utf-8"))
    }


def counts_table(counts: dict[str, Count]) -> str:
    lines = ["| area | items | passed | not passed | not applicable |", "|---|---:|---:|---:|---:|"]
    for name, count in counts.items():
        shown = f"**{name}**" if name == "all" else name
        lines.append(f"| {shown} | {count.all} | {count.passed} | {count.not_passed} | {count.not_applicable} |")
    return "\n".join(lines)
