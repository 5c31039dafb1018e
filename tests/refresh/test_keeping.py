"""CREATE OR REPLACE and ALTER with another query: stored rows are kept where they tell the new columns."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import Lake
from headrace.errors import HeadraceError
from headrace.refresh.runner import Runner
from refresh.test_sources import refresh

ORDERS = """
    CREATE TABLE o (id INT, customer STRING, price DECIMAL(10,2), note STRING);
    INSERT INTO o VALUES (1, 'ann', 10, 'a'), (2, 'bob', 20, NULL), (3, 'ann', 5, 'total_1')
    """


def replaced(lake: Lake, query: str) -> tuple[str, list[dict[str, Any]]]:
    """The message, and the history that OR REPLACE made, oldest first."""
    before = _history(lake)
    message = str(lake.sql(f"CREATE OR REPLACE DYNAMIC TABLE d AS {query}").rows[0][0])
    assert lake.sql("VERIFY DYNAMIC TABLE d").rows[0][1] == "EQUAL"
    return message, _history(lake)[len(before) :]


def _history(lake: Lake) -> list[dict[str, Any]]:
    found = lake.sql("SHOW DYNAMIC TABLE REFRESH HISTORY WHERE name = 'd'")
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows][::-1]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("SELECT * FROM o", "SELECT price * 2 AS twice, upper(customer) AS customer, id, price FROM o"),
        ("SELECT id, customer AS who FROM o", "SELECT concat(customer, '!') AS loud, id AS number FROM o"),
        ("SELECT id, price FROM o WHERE price > 6", "SELECT id, price, id + 1 AS next FROM o WHERE price > 6"),
        (
            "SELECT customer, count(*) AS n, sum(price) AS total, min(note) AS note FROM o GROUP BY customer",
            "SELECT sum(price) / count(*) AS average, customer FROM o GROUP BY customer HAVING count(*) > 1",
        ),
        ("SELECT id, 'customer_1' AS c FROM o", "SELECT id, 'customer_2' AS c FROM o"),
        ("SELECT count(*) AS n, max(price) AS most FROM o", "SELECT max(price) + 1 AS more FROM o"),
        (
            "SELECT a.id, b.price FROM o a JOIN o b ON a.id = b.id + 1",
            "SELECT b.price AS price, a.id, a.id * 2 AS twice FROM o a JOIN o b ON a.id = b.id + 1",
        ),
    ],
)
def test_rows_are_kept(lake: Lake, before: str, after: str) -> None:
    lake.sql(f"{ORDERS}; CREATE DYNAMIC TABLE d AS {before}")
    lake.sql("DELETE FROM o WHERE id = 2; INSERT INTO o VALUES (4, 'eve', 7, 'b'), (5, 'ann', NULL, NULL)")
    refresh(lake, "d")
    lake.sql("INSERT INTO o VALUES (6, 'bob', 8, 'c')")
    message, rows = replaced(lake, after)
    assert "kept and its columns computed from them" in message
    assert [row["technique"] for row in rows] == ["KEEP_ROWS", rows[-1]["technique"]]
    assert rows[0]["reason"].startswith("The query was replaced. Its columns were computed from the stored rows")
    assert rows[-1]["refresh_mode"] == "INCREMENTAL"
    lake.sql("DELETE FROM o WHERE id = 1")
    assert refresh(lake, "d")["refresh_mode"] == "INCREMENTAL"


def test_a_column_that_is_new_in_the_source(lake: Lake) -> None:
    lake.sql(f"{ORDERS}; CREATE DYNAMIC TABLE d AS SELECT o.id, p.price FROM o LEFT JOIN o p ON o.id = p.id + 1")
    lake.sql("ALTER TABLE o ADD COLUMNS (shipped DATE); INSERT INTO o VALUES (4, 'eve', 7, 'b', DATE'2024-01-01')")
    _, rows = replaced(
        lake, "SELECT o.id, p.price, o.shipped, p.shipped AS other FROM o LEFT JOIN o p ON o.id = p.id + 1"
    )
    assert [row["technique"] for row in rows] == ["KEEP_ROWS", "APPEND"]
    lake.sql("UPDATE o SET shipped = DATE'2025-01-01' WHERE id < 3")
    assert refresh(lake, "d")["refresh_mode"] == "INCREMENTAL"


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("SELECT id FROM o", "SELECT id, note FROM o", "the column note was not stored"),
        ("SELECT id, price FROM o", "SELECT id, price FROM o WHERE price > 6", None),
        (
            "SELECT customer, sum(price) AS s FROM o GROUP BY customer",
            "SELECT customer, max(price) AS s FROM o GROUP BY 1",
            "max(price) was not stored",
        ),
        ("SELECT customer FROM o GROUP BY customer", "SELECT note FROM o GROUP BY note", None),
        (
            "SELECT customer, sum(price) AS s FROM o GROUP BY customer",
            "SELECT note, sum(price) AS s FROM o GROUP BY note",
            None,
        ),
        ("SELECT a.id AS x, b.id AS y FROM o a, o b", "SELECT b.id AS x, b.id AS y FROM o a, o b", None),
        (
            "SELECT id, price FROM o",
            "SELECT id, CAST(price AS double) AS price, note FROM o",
            "the column note was not stored",
        ),
        ("SELECT id FROM o", "SELECT id, current_date AS day FROM o", "current_date is used"),
        (
            "SELECT id FROM o",
            "SELECT id, row_number() OVER (PARTITION BY customer ORDER BY id) AS n FROM o",
            "the window function of n was not stored",
        ),
    ],
)
def test_rows_that_do_not_tell_are_computed(lake: Lake, before: str, after: str, why: str | None) -> None:
    lake.sql(f"{ORDERS}; CREATE DYNAMIC TABLE d AS {before}")
    message, rows = replaced(lake, after)
    assert "computed from the sources" in message
    told = "The query was replaced." + ("" if why is None else f" Its rows could not be kept: {why}.")
    assert [(row["technique"], row["reason"]) for row in rows] == [("FULL", told)]


def test_a_renamed_and_an_added_column(lake: Lake) -> None:
    lake.sql(f"{ORDERS}; CREATE DYNAMIC TABLE d AS SELECT customer, sum(price) AS total FROM o GROUP BY customer")
    before = len(_history(lake))
    lake.sql("ALTER DYNAMIC TABLE d RENAME COLUMN total TO spent")
    lake.sql("ALTER DYNAMIC TABLE d ADD COLUMN twice AS 2 * sum(price)")
    assert [row["technique"] for row in _history(lake)][before:] == ["KEEP_ROWS", "NO_DATA"] * 2
    assert lake.sql("SELECT * FROM d ORDER BY customer").columns == ["customer", "spent", "twice"]
    lake.sql("INSERT INTO o VALUES (9, 'ann', 1, NULL)")
    refresh(lake, "d")


def test_a_renamed_column_of_the_source_is_not_new(lake: Lake) -> None:
    lake.sql(f"{ORDERS}; ALTER TABLE o SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    lake.sql("CREATE DYNAMIC TABLE d AS SELECT id FROM o; ALTER TABLE o RENAME COLUMN note TO remark")
    _, rows = replaced(lake, "SELECT id, remark FROM o")
    assert [row["technique"] for row in rows] == ["FULL"]
    assert lake.sql("SELECT remark FROM d ORDER BY id").rows == [("a",), (None,), ("total_1",)]
    lake.sql("ALTER TABLE o DROP COLUMN remark; ALTER TABLE o ADD COLUMNS (remark STRING)")
    assert refresh(lake, "d")["refresh_mode"] == "FULL"
    assert lake.sql("SELECT remark FROM d").rows == [(None,)] * 3


def test_settings_are_those_of_the_statement(lake: Lake) -> None:
    """A comment that it does not repeat is gone, whatever becomes of the rows; those of columns that stay are not."""
    lake.sql(f"{ORDERS}; CREATE DYNAMIC TABLE d (id COMMENT 'a number', price) AS SELECT id, price FROM o")
    for query in ("SELECT id, price FROM o", "SELECT id, price + 1 AS more FROM o", "SELECT id FROM o WHERE id > 1"):
        lake.sql("ALTER DYNAMIC TABLE d SET COMMENT 'old'")
        assert "COMMENT 'old'" in lake.sql("SHOW CREATE TABLE d").rows[0][0]
        replaced(lake, query)
        text = lake.sql("SHOW CREATE TABLE d").rows[0][0]
        assert "old" not in text
        assert "COMMENT 'a number'" in text
        assert ("comment", "") in lake.sql("DESC EXTENDED d").rows


def test_why_does_not_tell_what_is_behind_a_view(lake: Lake) -> None:
    lake.sql(f"{ORDERS}; CREATE VIEW v AS SELECT id, note AS remark, price AS cost FROM o")
    lake.sql("CREATE DYNAMIC TABLE d AS SELECT id FROM v")
    _, rows = replaced(lake, "SELECT id, upper(remark) AS loud FROM v")
    assert rows[0]["reason"].endswith("Its rows could not be kept: the column loud was not stored.")
    replaced(lake, "SELECT id, count(*) AS n FROM v GROUP BY id")
    _, rows = replaced(lake, "SELECT id, max(cost) AS most FROM v GROUP BY id")
    assert rows[0]["reason"].endswith("Its rows could not be kept: max(cost) was not stored.")


KEPT = """
    CREATE TABLE z AS SELECT id, 1 + id % 3 AS k FROM range(10);
    CREATE DYNAMIC TABLE d AS SELECT id, k FROM z
    """
ADDED = "ALTER DYNAMIC TABLE d ADD COLUMN q AS 10 DIV k"
REPLACED = "CREATE OR REPLACE DYNAMIC TABLE d AS SELECT k, 10 DIV k AS q FROM z"


@pytest.mark.parametrize("statement", [ADDED, REPLACED, f"DELETE FROM z WHERE id = 1; {ADDED}"])
def test_a_refresh_that_fails_after_the_rows_were_kept_undoes_that(lake: Lake, statement: str) -> None:
    lake.sql(KEPT)
    lake.sql("INSERT INTO z VALUES (98, 4); DELETE FROM z WHERE id = 0")
    refresh(lake, "d")
    shown, rows = lake.sql("SHOW CREATE TABLE d").rows, sorted(lake.sql("SELECT * FROM d").rows)
    lake.sql("INSERT INTO z VALUES (99, 0)")
    with pytest.raises(HeadraceError, match="zero") as raised:
        lake.sql(statement)
    assert "undone" not in str(raised.value)
    assert lake.sql("SHOW CREATE TABLE d").rows == shown
    assert sorted(lake.sql("SELECT * FROM d").rows) == rows
    assert lake.sql("VERIFY DYNAMIC TABLE d").rows[0][1] == "EQUAL"
    assert _history(lake)[-1]["reason"].endswith("The refresh after that failed, and it was undone.")
    row = refresh(lake, "d")
    assert row["refresh_mode"] == "INCREMENTAL"
    lake.sql("DELETE FROM z WHERE k = 0")
    refresh(lake, "d")
    lake.sql(ADDED)
    assert refresh(lake, "d")["refresh_mode"] == "NO_DATA"


def test_what_cannot_be_undone_is_told(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.sql(KEPT)
    lake.sql("INSERT INTO z VALUES (99, 0)")

    def gone(*given: Any) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Runner, "_taken_back", gone)
        with pytest.raises(HeadraceError, match=r"zero.* The new definition stays.*No space left") as raised:
            lake.sql(ADDED)
    assert "OR REPLACE" in (raised.value.hint or "")
    assert lake.sql("SELECT * FROM d").columns == ["id", "k", "q"]
    lake.sql("DELETE FROM z WHERE k = 0")
    refresh(lake, "d")
