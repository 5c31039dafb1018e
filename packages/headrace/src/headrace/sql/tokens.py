"""Words, strings and symbols of SQL text, with their offsets.

This is a scanner of our own because sqlglot's swallows everything after SHOW, EXPLAIN, OPTIMIZE and VACUUM into one
string, merges words (`GROUP BY`) and invents tokens (`1d` becomes `1 :: double`); rewriting text byte for byte needs
neither. It follows the lexer of Spark: backslash escapes, raw strings, doubled quotes, nested comments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

from headrace.errors import Position, SyntaxFault


class Kind(Enum):
    WORD = "word"
    QUOTED = "quoted name"
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of text from `start` up to, not including, `end`; comments and spaces lie between tokens."""

    kind: Kind
    text: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        """The keyword this may be; empty for anything in quotes."""
        return self.text.upper() if self.kind is Kind.WORD else ""

    @property
    def value(self) -> str:
        """What the token means: a name without backquotes, a string without quotes and escapes."""
        if self.kind is Kind.QUOTED:
            return self.text[1:-1].replace("``", "`")
        return string_value(self.text) if self.kind is Kind.STRING else self.text

    @property
    def is_name(self) -> bool:
        return self.kind in (Kind.WORD, Kind.QUOTED)


_GAP = re.compile(r"(?:\s+|--(?:\\\n|[^\r\n])*)+")
_NUMBER = r"(?:\d+\.\d*|\d+|\.\d+)(?:[eE][+-]?\d+)?(?:BD|bd|[LSYFDlsyfd])?(?!\w)"
_TOKEN = re.compile(
    r"(?P<STRING>[rR]'[^']*'|[rR]\"[^\"]*\"|'[^'\\]*(?:(?:\\.|'')[^'\\]*)*'|\"[^\"\\]*(?:(?:\\.|\"\")[^\"\\]*)*\")"
    r"|(?P<QUOTED>`[^`]*(?:``[^`]*)*`)"
    rf"|(?P<NUMBER>(?a:{_NUMBER}))"
    r"|(?P<WORD>\w+)"
    r"|(?P<SYMBOL>.)",
    re.DOTALL,
)
_NAME_PART = re.compile(r"\w+")
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_OPENERS = {"'": "string", '"': "string", "`": "quoted name"}


def scan(text: str) -> tuple[Token, ...]:
    """All tokens of the text; a string, quoted name or comment that never ends is a SyntaxFault where it starts."""
    tokens: list[Token] = []
    offset = 0
    while (offset := _skip_gap(text, offset)) < len(text):
        token = _token_at(text, offset, after_dot=bool(tokens) and tokens[-1].text == "." and tokens[-1].end == offset)
        tokens.append(token)
        offset = token.end
    return tuple(tokens)


def position_at(text: str, offset: int) -> Position:
    """Line and column, from 1, of an offset."""
    line_start = text.rfind("\n", 0, offset) + 1
    return Position(text.count("\n", 0, offset) + 1, offset - line_start + 1)


def _token_at(text: str, offset: int, *, after_dot: bool) -> Token:
    if after_dot and (part := _NAME_PART.match(text, offset)):
        return Token(Kind.WORD, part.group(), offset, part.end())
    match = _TOKEN.match(text, offset)
    assert match is not None, "the last alternative takes any character"
    assert match.lastgroup is not None, "every alternative is a named group"
    kind, piece = Kind[match.lastgroup], match.group()
    if kind is Kind.SYMBOL and piece in _OPENERS:
        raise SyntaxFault(
            f"Syntax error: this {_OPENERS[piece]} never ends.",
            hint=f"Close it with {piece}.",
            position=position_at(text, offset),
        )
    if (
        kind is Kind.NUMBER
        and piece.startswith(".")
        and offset
        and (text[offset - 1].isalnum() or text[offset - 1] in "_`")
    ):
        return Token(Kind.SYMBOL, ".", offset, offset + 1)
    return Token(kind, piece, offset, match.end())


def _skip_gap(text: str, offset: int) -> int:
    while True:
        gap = _GAP.match(text, offset)
        offset = gap.end() if gap else offset
        # A hint is no comment: Spark reads what is in it.
        if not text.startswith("/*", offset) or text.startswith("/*+", offset):
            return offset
        offset = _comment_end(text, offset)


def _comment_end(text: str, start: int) -> int:
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    raise SyntaxFault(
        "Syntax error: this comment never ends.",
        hint="Close it with */, once for every /* inside it.",
        position=position_at(text, start),
    )


_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[01][0-7]{2}|.)|''|\"\"", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def string_value(literal: str) -> str:
    """The value of a Spark string literal.

    >>> string_value(r"'it\\'s'"), string_value("'it''s'"), string_value(r"r'a\\b'")
    ("it's", "it's", 'a\\\\b')
    """
    if literal[0] in "rR":
        return literal[2:-1]
    unescaped = _ESCAPE.sub(lambda match: _unescape(match, literal[0]), literal[1:-1])
    return unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unescape(match: re.Match[str], quote: str) -> str:
    escape: str | None = match.group(1)
    if escape is None:
        return quote if match.group() == quote * 2 else match.group()
    if len(escape) == 1:
        return _ESCAPED.get(escape, escape)
    code = int(escape[1:], 16) if escape[0] in "uU" else int(escape, 8)
    return chr(code) if code <= 0x10FFFF else "\ufffd"
