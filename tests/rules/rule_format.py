"""The format of the rule tests.

    table orders (id INT, amount DECIMAL(10,2))

    setup
    INSERT INTO orders VALUES (1, 2.50)

    query
    SELECT id, amount FROM orders WHERE amount > 1

    step an update that moves a row out of the result
    UPDATE orders SET amount = 0 WHERE id = 1
    expect
    -1 | 1 | 2.50
    technique REPLACE_ROWS

Blank lines and lines that start with `#` mean nothing. `expect` lists the weighted rows by which the table changes; an
empty list means that it must not change. `technique` is optional. A step may hold several statements, separated by `;`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

Weighted = Counter[tuple[str, ...]]


@dataclass
class Step:
    title: str
    line: int
    statements: str = ""
    expected: Weighted = field(default_factory=Counter)
    technique: str | None = None


@dataclass
class RuleTest:
    path: Path
    tables: list[str] = field(default_factory=list)
    setup: str = ""
    query: str = ""
    steps: list[Step] = field(default_factory=list)


def parse_rule_test(path: Path) -> RuleTest:
    """Read one file; anything out of place is an error that names the line."""
    test = RuleTest(path)
    section = ""
    for number, raw in enumerate(path.read_text().splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        if word == "table" and section in ("", "table"):
            section = "table"
            test.tables.append(rest)
        elif line in ("setup", "query"):
            section = line
        elif word == "step":
            section = "step"
            test.steps.append(Step(rest, number))
        elif line == "expect" and section == "step":
            section = "expect"
        elif word == "technique" and section in ("step", "expect"):
            test.steps[-1].technique = rest
        elif section == "setup":
            test.setup += raw + "\n"
        elif section == "query":
            test.query += raw + "\n"
        elif section == "step":
            test.steps[-1].statements += raw + "\n"
        elif section == "expect":
            weight, *values = (part.strip() for part in line.split("|"))
            test.steps[-1].expected[tuple(values)] += int(weight)
        else:
            raise ValueError(f"{path.name}:{number}: '{line}' is out of place")
    if not test.query or not test.steps:
        raise ValueError(f"{path.name}: a rule test has a query and steps")
    return test
