"""Values into SQL, at the places that a statement leaves for them.

There is one place marker for one whole value. One that stands inside quotes or in a comment is refused: there a value
could become more than a value.
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from headrace.dbapi.exceptions import DataError, InterfaceError, ProgrammingError, translated
from headrace.names import quote_text
from headrace.sql.tokens import Kind, Token, position_at, scan

_MARKER = re.compile(r"%(?:(?P<percent>%)|\((?P<name>[^)]*)\)s|(?P<next>s)|(?P<wrong>.?))", re.DOTALL)


def literal(value: Any) -> str:
    """The value as Spark SQL writes it.

    >>> literal(None), literal(True), literal(-3), literal(1.5), literal(Decimal("1.10")), literal("it's")
    ('NULL', 'TRUE', '(-3)', '1.5D', '1.10BD', "'it\\\\'s'")
    >>> literal(date(2024, 2, 29)), literal(b"hi"), literal([1, None])
    ("DATE '2024-02-29'", "X'6869'", 'array(1, NULL)')
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"X'{bytes(value).hex().upper()}'"
    if isinstance(value, (datetime, date, time, timedelta)):
        return _moment(value)
    if isinstance(value, UUID):
        return _text(str(value))
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise DataError(f"The decimal {value} has no SQL.")
        return _signed(f"{value:f}BD")
    if isinstance(value, numbers.Integral):
        return _signed(str(int(value)))
    if isinstance(value, numbers.Real):
        return _double(float(value))
    if isinstance(value, (list, tuple)):
        return f"array({', '.join(map(literal, value))})"
    if isinstance(value, Mapping):
        return f"map({', '.join(literal(part) for pair in value.items() for part in pair)})"
    if type(value).__module__ == "numpy" and type(value).__name__.startswith("bool"):
        return literal(bool(value))
    if _is_missing(value):
        return "NULL"
    raise InterfaceError(f"There is no SQL for a value of the type {type(value).__name__}.")


@dataclass(frozen=True)
class Template:
    """A statement with places for values: the texts around them, and the name or number of each."""

    texts: tuple[str, ...]
    places: tuple[str | int, ...]

    def filled(self, values: Mapping[str, Any] | Sequence[Any]) -> str:
        """The statement with these values."""
        given: Any = values
        numbered = bool(self.places) and isinstance(self.places[0], int)
        if isinstance(given, (str, bytes)) or (self.places and numbered == isinstance(given, Mapping)):
            raise ProgrammingError("Places of the form %(name)s take a mapping, places of the form %s a sequence.")
        if numbered and len(given) != len(self.places):
            raise ProgrammingError(f"The statement has {len(self.places)} places for values, not {len(given)}.")
        parts = [self.texts[0]]
        for place, text in zip(self.places, self.texts[1:], strict=True):
            try:
                value = given[place]
            except KeyError:
                raise ProgrammingError(f"There is no value for %({place})s.") from None
            parts += (literal(value), text)
        return "".join(parts)


def template(statement: str) -> Template:
    """Find the places. `%%` stands for one `%`.

    >>> template("SELECT %(a)s % 2").places
    Traceback (most recent call last):
    ...
    headrace.dbapi.exceptions.ProgrammingError: A single % stands at line 1, column 14; write %% for a percent sign.
    """
    markers = list(_MARKER.finditer(statement))
    kept = [marker for marker in markers if marker["percent"] is None]
    for marker in kept:
        if marker["wrong"] is not None:
            raise ProgrammingError(f"A single % stands at {_at(statement, marker)}; write %% for a percent sign.")
    _require_outside_quotes(statement, kept)
    texts: list[str] = []
    places: list[str | int] = []
    begin = 0
    for marker in kept:
        texts.append(statement[begin : marker.start()].replace("%%", "%"))
        places.append(marker["name"] if marker["name"] is not None else len(places))
        begin = marker.end()
    texts.append(statement[begin:].replace("%%", "%"))
    if len({type(place) for place in places}) > 1:
        raise ProgrammingError("A statement has places of the form %(name)s or %s, not both.")
    return Template(tuple(texts), tuple(places))


def row_template(statement: str) -> tuple[str, Template] | None:
    """For `INSERT … VALUES (…)`: what comes before the row, and the row. Many rows then make one statement, and so one
    commit. None for any other statement.

    >>> row_template("INSERT INTO t VALUES (%s, upper(%s))")
    ('INSERT INTO t VALUES ', Template(texts=('(', ', upper(', '))'), places=(0, 1)))
    """
    markers = [marker for marker in _MARKER.finditer(statement) if marker["percent"] is None]
    tokens = [token for token in _tokens(statement, markers) if token.text != ";"]
    if not tokens or tokens[0].upper != "INSERT" or tokens[-1].text != ")":
        return None
    last = max((place for place, token in enumerate(tokens) if token.upper == "VALUES"), default=0)
    row = tokens[last + 1 :]
    if not last or row[0].text != "(" or _closing(row) != len(row) - 1:
        return None
    begin = row[0].start
    if any(marker.start() < begin for marker in markers):
        return None
    return statement[:begin].replace("%%", "%"), template(statement[begin : tokens[-1].end])


def _closing(tokens: Sequence[Token]) -> int:
    """Where the parenthesis closes that the first token opens."""
    depth = 0
    for place, token in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth == 0:
            return place
    return -1


def _require_outside_quotes(statement: str, markers: Sequence[re.Match[str]]) -> None:
    """A marker must be a token of its own, also in the eyes of whoever reads the text next to it: `r%s` would make a
    raw string of a text, in which nothing is escaped."""
    if not markers:
        return
    tokens = {token.start: token for token in _tokens(statement, markers)}
    for marker in markers:
        token = tokens.get(marker.start())
        if token is None or token.kind is not Kind.WORD or token.end != marker.end():
            raise ProgrammingError(
                f"The place {marker[0]} at {_at(statement, marker)} stands inside quotes, in a comment or next to a "
                "word. Write it alone: a text brings its own quotes."
            )


def _tokens(statement: str, markers: Sequence[re.Match[str]]) -> tuple[Token, ...]:
    """The statement's tokens, each place for a value taken as a word."""
    masked, begin = [], 0
    for marker in markers:
        masked += [statement[begin : marker.start()], "x" * len(marker[0])]
        begin = marker.end()
    with translated():
        return scan("".join([*masked, statement[begin:]]))


def _at(statement: str, marker: re.Match[str]) -> str:
    return str(position_at(statement, marker.start()))


def _text(value: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise DataError("A text holds half a character (a lone surrogate), which UTF-8 cannot write.") from None
    # Spark looks for ${…} in a statement's text before anything else, and puts a setting's value there.
    return quote_text(value).replace("${", "\\u0024{")


def _moment(value: date | time | timedelta) -> str:
    if _is_missing(value):  # pandas' NaT calls itself a datetime.
        return "NULL"
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ', timespec='microseconds')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, time):
        return f"'{value.isoformat()}'"
    sign, size = ("-", -value) if value < timedelta(0) else ("", value)
    minutes, seconds = divmod(size.seconds, 60)
    clock = f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}.{size.microseconds:06d}"
    return f"INTERVAL '{sign}{size.days} {clock}' DAY TO SECOND"


def _double(value: float) -> str:
    if math.isnan(value):
        return "double('NaN')"
    if math.isinf(value):
        return "double('Infinity')" if value > 0 else "double('-Infinity')"
    return _signed(f"{value!r}D")


def _signed(number: str) -> str:
    """Two minus signs in a row would begin a comment."""
    return f"({number})" if number.startswith("-") else number


def _is_missing(value: Any) -> bool:
    """pandas' NaT and NA: neither is equal to itself."""
    return type(value).__name__ in ("NaTType", "NAType")
