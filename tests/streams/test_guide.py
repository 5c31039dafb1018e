"""The statements of the guide "From changes to tables", run as they stand there, three times each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace import Lake
from headrace.sql.split import split_statements

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "from_changes_to_tables.md").read_text(encoding="utf-8")
SECOND = """
    UPDATE orders SET amount = 25 WHERE id = 2;
    UPDATE orders SET amount = 26 WHERE id = 2;
    UPDATE orders SET status = 'cancelled' WHERE id = 1;
    DELETE FROM orders WHERE id = 1;
    INSERT INTO orders VALUES (3, 'cid', 31, 'again'), (4, 'dee', 40, 'new'), (5, 'eve', 50, 'new');
    DELETE FROM orders WHERE id = 4;
    UPDATE orders SET id = 6 WHERE id = 5
"""
THIRD = "UPDATE orders SET id = 7 WHERE id = 6"


def statements(title: str) -> list[str]:
    section = GUIDE.split(f"\n## {title}\n")[1].split("\n## ")[0] if title else GUIDE.split("\n## ")[0]
    blocks = re.findall(r"```sql\n(.*?)```", section, re.DOTALL)
    return [part.text for block in blocks for part in split_statements(block)]


@pytest.mark.parametrize(
    ("title", "query", "expected"),
    [
        (
            "Append", "SELECT id, amount FROM order_log ORDER BY 1, 2",
            [(1, 10), (2, 20), (3, 30), (3, 31), (4, 40), (5, 50)],
        ),
        (
            "Upsert through a staging table", "SELECT id, amount, status FROM orders_copy ORDER BY 1",
            [(2, 26, "new"), (3, 31, "again"), (7, 50, "new")],
        ),
        (
            "Soft deletes", "SELECT id, amount, status, deleted_at IS NULL FROM orders_kept ORDER BY 1",
            [
                (1, 10, "cancelled", False), (2, 26, "new", True), (3, 31, "again", True), (4, 40, "new", False),
                (5, 50, "new", False), (6, 50, "new", False), (7, 50, "new", True),
            ],
        ),
        (
            "History of every row (SCD type 2)",
            "SELECT id, amount, status, valid_to IS NULL FROM orders_history ORDER BY id, valid_from",
            [
                (1, 10, "new", False), (1, 10, "paid", False), (1, 10, "cancelled", False), (2, 20, "new", False),
                (2, 25, "new", False), (2, 26, "new", True), (3, 30, "new", False), (3, 31, "again", True),
                (4, 40, "new", False), (5, 50, "new", False), (6, 50, "new", False), (7, 50, "new", True),
            ],
        ),
    ],
)  # fmt: skip
def test_the_guide(lake: Lake, title: str, query: str, expected: list[tuple[object, ...]]) -> None:
    for statement in statements(""):
        lake.sql(statement)
    wanted = statements(title)
    makes = [text for text in wanted if re.match(r"\s*CREATE TABLE", text)]
    moves = [text for text in wanted if text not in makes]
    assert makes
    for statement in makes:
        lake.sql(statement)
    for changes in ("", SECOND, THIRD):
        lake.sql(changes)
        for statement in moves:
            lake.sql(statement)
    assert lake.sql(query).rows == expected
