"""What the reference describes and this version does not do yet.

Everything here is refused before it can reach Spark. To lift one, take its row out: parts of statements are parsed in
full already, statements need their parser.
"""

from __future__ import annotations

from headrace.errors import Unsupported
from headrace.sql.cursor import Cursor
from headrace.sql.tokens import Kind, Token

REFRESH_PARTITION = "REFRESH DYNAMIC TABLE … PARTITION"

_PARTS: dict[str, str] = {
    REFRESH_PARTITION: "Refresh the whole table: REFRESH DYNAMIC TABLE name.",
}

_STATEMENTS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("UNDROP",), "TABLE"),
    # A statement in a string would get past the checks on what is written where.
    (("EXECUTE",), "IMMEDIATE"),
)


def refuse_part(part: str, cursor: Cursor, at: Token) -> None:
    """Refuse a part of a statement that has been parsed, if this version does not do it yet."""
    if part in _PARTS:
        raise Unsupported(f"{part} is not available yet.", hint=_PARTS[part], position=cursor.position(at))


def refuse_unavailable(cursor: Cursor) -> None:
    """Refuse a whole statement that this version does not do yet; the cursor stands at its first word."""
    what = _unavailable(cursor)
    if what:
        raise Unsupported(
            f"{what} is not available yet.", hint="docs/sql lists the statements that are.", position=cursor.position()
        )


def _unavailable(cursor: Cursor) -> str | None:
    verb = cursor.token().upper
    ahead = 3 if cursor.sees(verb, "OR", "REPLACE") else 1
    word = cursor.token(ahead).upper
    if any(verb in verbs and word == expected for verbs, expected in _STATEMENTS) and _names_something(cursor, verb):
        return f"{verb} {word}"
    return None


def _names_something(cursor: Cursor, verb: str) -> bool:
    """`DESC task` means a table of that name; `DESC task t` does not."""
    following = cursor.token(2)
    return verb not in ("DESC", "DESCRIBE") or following.is_name or following.kind is Kind.STRING
