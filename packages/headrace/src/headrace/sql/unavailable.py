"""What the reference describes and this version does not do yet.

Everything here is refused before it can reach Spark. To lift one, take its row out: parts of statements are parsed in
full already, statements need their parser.
"""

from __future__ import annotations

from headrace.errors import Unsupported
from headrace.sql.cursor import Cursor
from headrace.sql.tokens import Kind, Token

TARGET_LAG = "TARGET_LAG"
REFRESH_PARTITION = "REFRESH DYNAMIC TABLE … PARTITION"

_PARTS: dict[str, str] = {
    TARGET_LAG: "Use REFRESH INTERVAL n MINUTE instead.",
    REFRESH_PARTITION: "Refresh the whole table: REFRESH DYNAMIC TABLE name.",
}

_DDL = ("CREATE", "ALTER", "DROP", "DESC", "DESCRIBE")
_STATEMENTS: tuple[tuple[tuple[str, ...], str], ...] = (
    ((*_DDL, "USE"), "VCLUSTER"),
    (("SHOW",), "VCLUSTERS"),
    (("CANCEL",), "JOB"),
    (("SHOW",), "JOBS"),
    (_DDL, "USER"),
    (("SHOW",), "USERS"),
    (_DDL, "TOKEN"),
    (("SHOW",), "TOKENS"),
    ((*_DDL, "EXECUTE"), "TASK"),
    (("SHOW",), "TASKS"),
    (("SHOW",), "GRANTS"),
    (("UNDROP",), "TABLE"),
    # A statement in a string would get past the checks on what is written where.
    (("EXECUTE",), "IMMEDIATE"),
)
_VERBS = ("GRANT", "REVOKE")


def refuse_part(part: str, cursor: Cursor, at: Token) -> None:
    """Refuse a part of a statement that has been parsed, if this version does not do it yet."""
    if part in _PARTS:
        raise Unsupported(f"{part} is not available yet.", hint=_PARTS[part], position=cursor.position(at))


def refuse_unavailable(cursor: Cursor) -> None:
    """Refuse a whole statement that this version does not do yet; the cursor stands at its first word."""
    what = _unavailable(cursor)
    if what:
        raise Unsupported(f"{what} is not available yet.", position=cursor.position())


def _unavailable(cursor: Cursor) -> str | None:
    verb = cursor.token().upper
    ahead = 3 if cursor.sees(verb, "OR", "REPLACE") else 1
    word = cursor.token(ahead).upper
    if verb in _VERBS:
        return verb
    if any(verb in verbs and word == expected for verbs, expected in _STATEMENTS) and _names_something(cursor, verb):
        return f"{verb} {word}"
    return None


def _names_something(cursor: Cursor, verb: str) -> bool:
    """`DESC user` and `USE task` mean a table and a schema of that name; `DESC user u` does not."""
    following = cursor.token(2)
    return verb not in ("DESC", "DESCRIBE", "USE") or following.is_name or following.kind is Kind.STRING
