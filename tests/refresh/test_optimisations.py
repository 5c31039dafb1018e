"""Each optimisation switched off, and all of them: the same results."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import Lake
from headrace.ivm import stages
from headrace.optimisations import CHOICE_BY_COST, OPTIMISATIONS
from headrace.refresh import cost, states

QUERIES = {
    "nested": """WITH per AS (SELECT customer, sum(price) AS total, max(price) AS most FROM o GROUP BY customer)
        SELECT p.customer, p.total, p.most FROM per p WHERE p.total > (SELECT avg(total) FROM per)""",
    "grouped": """SELECT c.name, count(*) AS n, sum(o.price) AS total, min(o.price) AS least FROM o LEFT JOIN c
        ON o.customer = c.id WHERE EXISTS (SELECT 1 FROM o other WHERE other.customer = o.customer AND other.id <> o.id)
        GROUP BY c.name""",
    "best": """SELECT customer, id, price, n FROM
        (SELECT *, row_number() OVER (PARTITION BY customer ORDER BY price DESC, id) AS n FROM o) WHERE n <= 2""",
}
CHANGES = """
    INSERT INTO o VALUES (1000 + {round}, 1, 5.00);
    INSERT INTO o SELECT id + 100 * {round}, customer + 1, price + {round} FROM o WHERE id % 3 = 0 AND id < 100;
    DELETE FROM o WHERE id % 11 = {round} OR customer = 3 + {round};
    INSERT INTO c VALUES (20 + {round}, 'new'), (NULL, NULL), (3 + {round}, 'twice')
    """


@pytest.fixture
def everything_on(lake: Lake) -> Iterator[None]:
    yield
    _switch_off(lake, frozenset())


def _switch_off(lake: Lake, names: frozenset[str]) -> None:
    lake._context.runner.off = names
    lake._context.logs.off = names


@pytest.mark.usefixtures("everything_on")
@pytest.mark.timeout(900)
def test_results_do_not_depend_on_optimisations(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "BIG_ROWS", 0)
    monkeypatch.setattr(stages, "STATE_ROWS", 0)
    monkeypatch.setattr(stages, "ORDERED_ROWS", 0)
    monkeypatch.setattr(states, "WORTH", 0)
    lake.sql(
        """
        CREATE TABLE o AS SELECT id, nullif(id % 9, 8) AS customer, CAST(id AS decimal(10,2)) AS price FROM range(60);
        CREATE TABLE c AS SELECT id, 'c' || (id % 4) AS name FROM range(12)
        """
    )
    for name, query in QUERIES.items():
        lake.sql(f"CREATE DYNAMIC TABLE {name} AS {query}")
    settings = [frozenset({name}) for name in OPTIMISATIONS] + [frozenset(OPTIMISATIONS)]
    for number, off in enumerate(settings):
        lake.sql(CHANGES.format(round=number))
        _switch_off(lake, off)
        for name in QUERIES:
            result = lake.sql(f"REFRESH DYNAMIC TABLE {name}")
            row = dict(zip(result.columns, result.rows[0], strict=True))
            assert row["refresh_mode"] == "INCREMENTAL", (off, name, row)
            assert lake.sql(f"VERIFY DYNAMIC TABLE {name}").rows[0][1] == "EQUAL", (off, name)


@pytest.mark.usefixtures("everything_on")
def test_without_choice_by_cost_changes_are_computed_however_dear(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "SMALL", 0)
    monkeypatch.setattr(cost, "_FIXED_SECONDS", 1000)
    lake.sql("CREATE TABLE o AS SELECT id FROM range(100)")
    lake.sql("CREATE DYNAMIC TABLE d AS SELECT id % 7 AS k, count(*) AS n FROM o GROUP BY id % 7")
    found = []
    for off in (frozenset[str](), frozenset({CHOICE_BY_COST})):
        _switch_off(lake, off)
        lake.sql("INSERT INTO o SELECT id FROM range(200)")
        result = lake.sql("REFRESH DYNAMIC TABLE d")
        found.append(dict(zip(result.columns, result.rows[0], strict=True)))
        assert lake.sql("VERIFY DYNAMIC TABLE d").rows[0][1] == "EQUAL"
    assert [row["refresh_mode"] for row in found] == ["FULL", "INCREMENTAL"]
    assert "estimated" in found[0]["reason"]


def test_each_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()
    assert [name for name in OPTIMISATIONS if f"| `{name}` |" not in page] == []
