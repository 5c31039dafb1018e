"""Rows as text."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from rich.cells import cell_len

from headrace.display import as_text, lines


def text(*arguments: object, **options: object) -> str:
    return "\n".join(lines(*arguments, **options))  # type: ignore[arg-type]


def test_a_table_that_fits() -> None:
    assert text(["name", "n"], [("a", 1), ("bb", None)], width=80).splitlines() == [
        " name |    n",
        "------+------",
        " a    |    1",
        " bb   | NULL",
        "(2 rows)",
    ]


def test_sixteen_columns_become_blocks() -> None:
    columns = [f"column_{number}" for number in range(16)]
    shown = text(columns, [tuple(range(16)), tuple(range(16))], width=80)
    assert "-[ row 2 ]" in shown
    assert "column_15 | 15" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_blocks_and_tables_on_demand() -> None:
    assert "-[ row 1 ]" in text(["a"], [(1,)], vertical=True)
    assert "-[ row 1 ]" not in text(["a" * 100], [(1,)], width=80, vertical=False)


def test_no_rows() -> None:
    assert text(["a", "b"], [], width=3) == " a | b\n---+---\n(0 rows)"


def test_lines_within_values() -> None:
    assert text(["plan"], [("one\n  two",)]) == "one\n  two"
    assert "a⏎b" in text(["x", "y"], [("a\nb", 1)])
    assert "x | a\n  | b" in text(["x", "y"], [("a\nb", 1)], vertical=True)


def test_a_status_is_a_sentence() -> None:
    assert text(["status"], [("Table created.",)]) == "Table created."


def test_wide_characters_keep_the_columns_straight() -> None:
    table = text(["a", "b"], [("日本", "x"), ("abcd", "y")]).splitlines()
    assert table[2] == " 日本 | x"
    assert table[3] == " abcd | y"


def test_nothing_in_a_value_can_move_the_cursor() -> None:
    assert "\x1b" not in text(["a"], [("\x1b[2J\r\x00",)])


def test_values() -> None:
    assert as_text(datetime(2024, 5, 17, 11, 33, 15, 512_000)) == "2024-05-17 11:33:15.512"
    assert as_text(datetime(2024, 5, 17, 11, 33, 15, 1)) == "2024-05-17 11:33:15.000001"
    assert as_text(Decimal("0.00")) == "0.00"
    assert as_text(b"\x01\xff") == "01FF"
    assert as_text({"k": [1, None]}) == '{"k": [1, null]}'


PROPERTIES = [
    ("name", "load"),
    ("body", "BEGIN\n  INSERT INTO daily_sales SELECT day, sum(amount) FROM orders GROUP BY day;\nEND"),
    ("suspended_reason", ""),
    ("comment", None),
]


def test_a_list_of_properties_wraps_its_values() -> None:
    assert text(["property", "value"], PROPERTIES, width=60).splitlines() == [
        " property         | value",
        "------------------+---------------------------------------",
        " name             | load",
        " body             | BEGIN",
        "                  |   INSERT INTO daily_sales SELECT day,",
        "                  | sum(amount) FROM orders GROUP BY day;",
        "                  | END",
        " suspended_reason | NULL",
        " comment          | NULL",
        "(4 rows)",
    ]
    # Into a pipe, a row is a line. On a screen that is far too narrow there are blocks, and on demand.
    assert "BEGIN⏎" in text(["property", "value"], PROPERTIES)
    assert "-[ row 2 ]" in text(["property", "value"], PROPERTIES, width=30)
    assert "-[ row 2 ]" in text(["property", "value"], PROPERTIES, width=60, vertical=True)


def test_the_last_column_wraps_where_it_has_a_third_of_the_screen() -> None:
    rows = [("a", "one two three four five six seven eight nine ten " * 2)]
    assert text(["name", "what"], rows, width=60).splitlines()[2:4] == [
        " a    | one two three four five six seven eight nine ten",
        "      | one two three four five six seven eight nine ten",
    ]
    assert "-[ row 1 ]" in text(["name", "what"], [("a" * 45, rows[0][1])], width=60)
    assert "-[ row 1 ]" in text(["what", "n"], [(rows[0][1], 1)], width=60)
    assert '"' not in text(["name", "what"], [("a", "")])  # an empty text of a query is an empty text


def test_what_is_wrapped_fits_whatever_it_is() -> None:
    for value in ("x" * 500, "日本語" * 90, "a " * 300, " " * 300, "é" + "\u0301" * 400, "\x1b" * 200):
        shown = text(["property", "value"], [("p", value)], width=50).splitlines()
        assert max(map(cell_len, shown)) <= 50
