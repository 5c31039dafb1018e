"""Scripts into statements, and the tokens underneath."""

from __future__ import annotations

import pytest

from headrace.errors import Position, SyntaxFault
from headrace.sql import split_statements
from headrace.sql.tokens import Kind, scan, string_value


@pytest.mark.parametrize(
    ("script", "statements"),
    [
        ("", []),
        (" ;;\n-- nothing; here\n/* nor; here */;", []),
        ("select 1", ["select 1"]),
        ("a;b ; c;", ["a", "b", "c"]),
        ("select ';', \";\", `;` ; b", ["select ';', \";\", `;`", "b"]),
        (r"select 'a\';b'; c", [r"select 'a\';b'", "c"]),
        ("select 'a'';b'; c", ["select 'a'';b'", "c"]),
        (r"select r'a\'; c", [r"select r'a\'", "c"]),
        ("select 1 /* a /* ; */ ; */; b", ["select 1", "b"]),
        ("select 1 -- a; 'b\n, 2; b", ["select 1 -- a; 'b\n, 2", "b"]),
        ("/* dbt */ select 1", ["/* dbt */ select 1"]),
        ("select `a``;b`; c", ["select `a``;b`", "c"]),
    ],
)
def test_split(script: str, statements: list[str]) -> None:
    assert [statement.text for statement in split_statements(script)] == statements


def test_places() -> None:
    script = "select 1;\n\n  select\n 2"
    second = split_statements(script)[1]
    assert (second.offset, second.line, second.column) == (13, 3, 3)
    assert script[second.offset :].startswith(second.text)
    assert second.in_script(Position(1, 2)) == Position(3, 4)
    assert second.in_script(Position(2, 2)) == Position(4, 2)


@pytest.mark.parametrize("opener", ["'", '"', "`", "/*"])
def test_what_never_ends(opener: str) -> None:
    with pytest.raises(SyntaxFault) as caught:
        split_statements(f"select 1;\nselect {opener} ; b")
    assert caught.value.position == Position(2, 8)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("a.b1.2c", ["a", ".", "b1", ".", "2c"]),
        ("a.1.b", ["a", ".", "1", ".", "b"]),
        ("1.5e3 .5 1e5 5L 7.", ["1.5e3", ".5", "1e5", "5L", "7."]),
        ("5minute 2024_t", ["5minute", "2024_t"]),
        ("a<=>b", ["a", "<", "=", ">", "b"]),
        ("é.ß", ["é", ".", "ß"]),
    ],
)
def test_tokens(text: str, tokens: list[str]) -> None:
    assert [token.text for token in scan(text)] == tokens
    assert [text[token.start : token.end] for token in scan(text)] == tokens


def test_kinds() -> None:
    kinds = [token.kind for token in scan("a `b` 'c' 1 +")]
    assert kinds == [Kind.WORD, Kind.QUOTED, Kind.STRING, Kind.NUMBER, Kind.SYMBOL]


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        (r"'a\tb\\c'", "a\tb\\c"),
        (r"'\u0041\101\%'", "AA\\%"),
        (r"'\U0001F600\ud83d\ude00'", "😀😀"),
        (r"'\UFFFFFFFF'", "\ufffd"),
        (r"'\'''", "''"),
        ("'a\"\"b'", 'a""b'),
        ('"a""b"', 'a"b'),
        (r"r'\n'", r"\n"),
        ("''", ""),
    ],
)
def test_string_values(literal: str, value: str) -> None:
    assert string_value(literal) == value
