"""Rows that waited while their table changed, as texts for Spark."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlglot

from headrace.loading.fitting import Fit, first_error, fit, spark_type
from headrace.loading.shapes import Shape, has_conditions
from headrace.loading.spool import Spooled
from headrace.loading.types import columns_of
from unit.test_loading_rows import array_of, column, map_of, shape, struct_of


def spooled(*columns: dict[str, Any]) -> Spooled:
    return Spooled.of(shape(*columns), [each["name"] for each in columns])


def with_constraints(*columns: dict[str, Any], **constraints: str) -> Shape:
    return Shape("/t", "id", 0, columns_of(json.dumps({"type": "struct", "fields": columns})), constraints)


def parsable(found: Fit) -> Fit:
    texts = [text for text, _ in (*found.values, *found.computed)]
    for text in (*texts, first_error(found.errors), first_error(found.unmet)):
        sqlglot.parse_one(f"SELECT {text}", dialect="spark")
    return found


def test_nothing_changed() -> None:
    columns = (column("a", "integer", nullable=False), column("b c`d", array_of("string")))
    found = parsable(fit(spooled(*columns), shape(*columns)))
    assert found.is_plain
    assert found.values == (("`row`.`a`", "a"), ("`row`.`b c``d`", "b c`d"))
    assert found.written == ("a", "b c`d")


def test_columns_that_came_and_went() -> None:
    before = spooled(column("a", "integer"), column("gone", "string"), column("now_required", "integer"))
    after = shape(
        column("a", "integer"), column("now_required", "integer", nullable=False),
        column("new", map_of("string", "long")), column("d", "integer", CURRENT_DEFAULT="7"),
        column("required", "string", nullable=False),
        column("i", "long", **{"delta.identity.start": 1, "delta.identity.allowExplicitInsert": True}),
    )  # fmt: skip
    found = parsable(fit(before, after))
    assert {name: text for text, name in found.values} == {
        "a": "`row`.`a`",
        "now_required": "`row`.`now_required`",
        "new": "CAST(NULL AS MAP<STRING, BIGINT>)",
        "d": "CAST((7) AS INT)",
        "required": "CAST(NULL AS STRING)",
    }
    assert "i" not in found.written, "Delta numbers it"
    assert found.errors == (
        ("`row`.`now_required` IS NULL", "Column now_required: it is INT NOT NULL now."),
        ("true", "Column required: it is STRING NOT NULL now, and the row does not give it."),
        ("`row`.`gone` IS NOT NULL", "There is no column gone any more."),
    )


def test_types_that_changed() -> None:
    before = spooled(column("a", "integer"), column("s", struct_of(column("x", "long"))), column("g", "long"))
    after = shape(
        column("a", "long"), column("s", struct_of(column("x", "long"), column("y", "string"))),
        column("g", "long", **{"delta.generationExpression": "a + 1"}),
    )  # fmt: skip
    found = parsable(fit(before, after))
    assert found.values[0] == ("try_cast(`row`.`a` AS BIGINT)", "a")
    assert found.values[1][0] == "CAST(NULL AS STRUCT<`x`: BIGINT, `y`: STRING>)"
    assert [text for _, text in found.errors] == [
        "Column a was INT and is BIGINT now.",
        "Column s was STRUCT<x: BIGINT> and is STRUCT<x: BIGINT, y: STRING> now.",
        "Column g is computed by the table now.",
    ]


def test_constraints() -> None:
    columns = (column("a", "integer"), column("g", "integer", **{"delta.generationExpression": "a + 1"}))
    found = parsable(fit(spooled(columns[0]), with_constraints(*columns, small="a < 3", odd="g <> 'x\\'y'")))
    assert not found.is_plain
    assert found.computed == (("CAST((a + 1) AS INT)", "g"),)
    assert found.written == ("a",)
    assert found.unmet[1] == (
        "NOT coalesce(try_to_binary(CAST((a < 3) AS STRING), 'utf-8') = X'74727565', false)",
        "The row does not meet the constraint small: a < 3.",
    )


def test_a_generated_column_that_cannot_be_computed() -> None:
    made = column("g", "integer", nullable=False, **{"delta.generationExpression": "CAST(s AS INT)"})
    maps = column("m", map_of("string", "long"), **{"delta.generationExpression": "f(s)"})
    found = parsable(fit(spooled(column("s", "string")), shape(column("s", "string"), made, maps)))
    assert found.unmet == (
        (
            "try_to_binary(CAST(xxhash64(CAST((CAST(s AS INT)) AS INT)) AS STRING), 'utf-8') IS NULL",
            "Column g: it cannot be computed from the row: CAST(s AS INT).",
        ),
        ("`g` IS NULL", "Column g: it is INT NOT NULL, and is computed to NULL from the row."),
    )
    assert has_conditions(shape(column("s", "string"), made))
    assert not has_conditions(shape(column("s", "string")))


def test_what_only_delta_can_check_is_left_to_it() -> None:
    identity = column("N", "long", **{"delta.identity.start": 1})
    given = column("i", "long", **{"delta.identity.start": 1, "delta.identity.allowExplicitInsert": True})
    made = column("g", "long", **{"delta.generationExpression": "n * 2"})
    a = column("a", struct_of(column("n", "long")))
    after = with_constraints(
        a, identity, given, made, first="n > 0", second="a.n > 0 AND `N` < 5", third="g > 1", fourth="i <> 3",
        fifth="a.n > 1 AND n(a) <> 'n'",
    )  # fmt: skip
    assert [text for _, text in parsable(fit(spooled(a), after)).unmet] == [
        "The row does not meet the constraint fifth: a.n > 1 AND n(a) <> 'n'."
    ]
    assert len(fit(spooled(a, given), after).unmet) == 2, "the rows bring their numbers"
    assert fit(spooled(a), with_constraints(a, identity, first="n > 0")).is_plain


def test_notes_about_parts_make_no_other_type() -> None:
    mapped = column("x", "long", **{"delta.columnMapping.id": 3})
    assert fit(spooled(column("s", struct_of(column("x", "long")))), shape(column("s", struct_of(mapped)))).is_plain


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ("decimal(10,2)", "DECIMAL(10,2)"),
        ("timestamp_ntz", "TIMESTAMP_NTZ"),
        (array_of(map_of("string", "short")), "ARRAY<MAP<STRING, SMALLINT>>"),
        ("variant", "VARIANT"),
    ],
)
def test_types_for_spark(declared: Any, text: str) -> None:
    assert spark_type(declared) == text
