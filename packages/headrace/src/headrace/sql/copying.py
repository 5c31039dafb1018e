"""COPY INTO."""

from __future__ import annotations

from typing import Any, Literal, cast

from headrace.errors import SyntaxFault
from headrace.sql.cursor import Cursor
from headrace.sql.statements import CopyInto
from headrace.sql.tokens import Kind

_FORM = (
    "COPY INTO name FROM 'files' [FILE_FORMAT = CSV|JSON|PARQUET] [OPTIONS ('option' = 'value', …)] "
    "[FORCE = TRUE|FALSE]"
)
_FORMATS = ("CSV", "JSON", "PARQUET")
_CLAUSES = ("FILE_FORMAT", "OPTIONS", "FORCE")


def parse_copy(cursor: Cursor) -> CopyInto:
    """The clauses after the files come in any order."""
    cursor.form = _FORM
    cursor.expect("COPY", "INTO")
    cursor.accept("TABLE")
    name = cursor.name()
    cursor.expect("FROM")
    files = cursor.string("the files in quotes")
    found: dict[str, Any] = {}
    while not cursor.at_end:
        at = cursor.token()
        if at.upper not in _CLAUSES:
            raise cursor.fault(f"{', '.join(_CLAUSES)} or the end of the statement")
        if at.upper in found:
            raise SyntaxFault(f"{at.upper} is given twice.", hint=cursor.hint, position=cursor.position(at))
        cursor.next()
        found[at.upper] = _value(cursor, at.upper)
    return CopyInto(
        cursor.text,
        name,
        files,
        cast(Literal["CSV", "JSON", "PARQUET"] | None, found.get("FILE_FORMAT")),
        found.get("OPTIONS", {}),
        found.get("FORCE", False),
    )


def _value(cursor: Cursor, clause: str) -> Any:
    cursor.accept("=")
    if clause == "OPTIONS":
        return cursor.properties()
    words = _FORMATS if clause == "FILE_FORMAT" else ("TRUE", "FALSE")
    token = cursor.token()
    word = token.value.upper() if token.kind in (Kind.WORD, Kind.STRING) else ""
    if word not in words:
        raise cursor.fault(f"{', '.join(words[:-1])} or {words[-1]}")
    cursor.next()
    return word if clause == "FILE_FORMAT" else word == "TRUE"
