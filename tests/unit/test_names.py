"""Names of tables: parsing, quoting, and how Spark knows them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import UserError
from headrace.names import (
    TableName,
    check_parts,
    parse_parts,
    quote,
    quote_text,
    resolve,
    spark_database,
    split_database,
)
from headrace.sql.tokens import string_value

PART = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), min_size=1, max_size=255)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("t", ("t",)),
        ("s.t", ("s", "t")),
        ("ws.`my schema`.t", ("ws", "my schema", "t")),
        ("`a``b`.`c.d`", ("a`b", "c.d")),
        ("2024_t", ("2024_t",)),
    ],
)
def test_parse_parts(text: str, parts: tuple[str, ...]) -> None:
    assert parse_parts(text) == parts


@pytest.mark.parametrize(
    "text", ["", ".", "a.", ".a", "a..b", "a b", "a.b.c.d", "`a", "``", "a-b", "'a'", "`a\0`", "x" * 256]
)
def test_what_is_no_name(text: str) -> None:
    with pytest.raises(UserError):
        parse_parts(text)


@given(st.lists(PART, min_size=1, max_size=3).map(tuple))
def test_quoting_comes_back(parts: tuple[str, ...]) -> None:
    assert parse_parts(".".join(quote(part) for part in parts)) == parts == check_parts(parts)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_quoted_text_comes_back(value: str) -> None:
    assert string_value(quote_text(value)) == value


def test_spark_knows_a_foreign_workspace_by_a_prefix() -> None:
    assert TableName("home", "S", "T").spark("HOME") == "`s`.`T`"
    assert TableName("sales", "raw", "t").spark("home") == "`sales__raw`.`t`"
    assert split_database("sales__raw", "home", ("home", "sales")) == ("sales", "raw")
    assert split_database(spark_database("home", "raw", "home"), "home", ("home", "sales")) == ("home", "raw")


def test_resolve_fills_in_and_folds() -> None:
    assert resolve(("T",), workspace="W", schema="S") == TableName("w", "s", "t")
    assert resolve(("A", "T"), workspace="W", schema="S") == TableName("w", "a", "t")
    assert resolve(("X", "A", "T"), workspace="W", schema="S") == TableName("x", "a", "t")
    assert str(TableName("w", "s", "t")) == "w.s.t"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (TableName("main", "public", "orders_2"), "main.public.orders_2"),
        (TableName("main", "chain", "1. time processing"), "main.chain.`1. time processing`"),
        (TableName("main", "my schema", "a`b"), "main.`my schema`.`a``b`"),
        (TableName("main", "public", "2024"), "main.public.`2024`"),
        (TableName("main", "public", ""), "main.public."),
    ],
)
def test_a_name_is_shown_as_a_statement_may_have_it(name: TableName, shown: str) -> None:
    assert str(name) == shown


@given(PART, PART, PART)
def test_what_is_shown_can_be_written(workspace: str, schema: str, table: str) -> None:
    assert parse_parts(str(TableName(workspace, schema, table))) == (workspace, schema, table)
