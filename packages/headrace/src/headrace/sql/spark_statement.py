"""What we need to know about a statement that Spark runs: its verb and the tables it changes."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from headrace.errors import SyntaxFault, Unsupported, UserError
from headrace.names import parse_parts
from headrace.sql.cursor import Cursor
from headrace.sql.statements import SparkStatement, WriteTarget
from headrace.sql.tokens import Kind

QUERY_STARTS = ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "MAP", "REDUCE", "(")
_WRITES = ("INSERT", "UPDATE", "DELETE", "MERGE")
_OURS = ("VERIFY", "UNDROP", "CANCEL", "GRANT", "REVOKE", "USE")
# fmt: off
_SPARKS = (
    "ADD", "ALTER", "ANALYZE", "BEGIN", "CACHE", "CALL", "CLEAR", "COMMENT", "CONVERT", "COPY", "CREATE", "DECLARE",
    "DESC", "DESCRIBE", "DFS", "DROP", "EXECUTE", "EXPLAIN", "EXPORT", "FSCK", "GENERATE", "IMPORT", "LIST", "LOAD",
    "LOCK", "MSCK", "OPTIMIZE", "REFRESH", "REORG", "REPAIR", "REPLACE", "RESET", "RESTORE", "SET", "SHOW",
    "TRUNCATE", "UNCACHE", "UNLOCK", "VACUUM",
)
# fmt: on
_KNOWN = frozenset((*QUERY_STARTS, *_WRITES, *_OURS, *_SPARKS))
_MODIFIERS = ("OR", "REPLACE", "EXTERNAL", "GLOBAL", "LOCAL", "TEMPORARY", "TEMP", "MATERIALIZED", "STREAMING", "LIVE")
_TWO_WORDS = ("ALTER", "ANALYZE", "CACHE", "COMMENT", "DROP", "MSCK", "REFRESH", "REORG", "REPLACE", "SHOW", "UNCACHE")
_DESCRIBED = ("CATALOG", "DATABASE", "DETAIL", "FUNCTION", "NAMESPACE", "PROCEDURE", "QUERY", "SCHEMA")

# The words between the verb and the table it changes; "?" marks a word that may be left out.
_TARGET_PATHS: dict[str, tuple[str, ...]] = {
    "UPDATE": (),
    "DELETE": ("FROM?",),
    "MERGE": ("WITH?", "SCHEMA?", "EVOLUTION?", "INTO"),
    "TRUNCATE": ("TABLE",),
    "OPTIMIZE": (),
    "VACUUM": (),
    "COPY": ("INTO",),
    "REFRESH": ("TABLE?",),
    "REORG": ("TABLE",),
    "REPLACE": ("TABLE",),
    "LOAD": ("INTO", "TABLE"),
    "MSCK": ("REPAIR", "TABLE"),
    "FSCK": ("REPAIR", "TABLE"),
}
_OBJECTS = ("TABLE", "VIEW")


def parse_spark(cursor: Cursor) -> SparkStatement:
    """Anything we do not parse ourselves; a first word that no statement starts with is refused here."""
    cursor.index = 0
    first = cursor.token()
    if first.upper not in _KNOWN and first.text != "(":
        raise _unknown_start(cursor)
    verb_index = _verb_index(cursor)
    verb = cursor.tokens[verb_index].upper
    writes = tuple(_writes(cursor, verb, verb_index))
    return SparkStatement(cursor.text, _verb(cursor, verb, verb_index), writes)


def _unknown_start(cursor: Cursor) -> SyntaxFault:
    word = cursor.token().upper
    near = difflib.get_close_matches(word, sorted(_KNOWN), n=1)
    fault = cursor.fault("a statement")
    if word in ("SUSPEND", "RESUME"):
        fault.hint = f"Write ALTER DYNAMIC TABLE name {word}, or ALTER TASK name {word}."
    else:
        fault.hint = (
            f"Did you mean {near[0]}?" if near else "A statement starts with a word such as SELECT, CREATE or SHOW."
        )
    return fault


def _verb_index(cursor: Cursor) -> int:
    """Where the verb is: after the opening parentheses, the WITH clause, or the FROM of a multi-table INSERT."""
    index = 0
    while index < len(cursor.tokens) - 1 and cursor.tokens[index].text == "(":
        index += 1
    if cursor.tokens[index].upper == "WITH":
        index = min(_after_with(cursor, index), len(cursor.tokens) - 1)
    if cursor.tokens[index].upper == "FROM":
        return next((i for i in _top_level(cursor, index) if cursor.tokens[i].upper == "INSERT"), index)
    return index


def _after_with(cursor: Cursor, index: int) -> int:
    """Past `WITH a [(columns)] [MAX RECURSION LEVEL n] [AS] (query), …`."""
    cursor.index = index + 1
    if cursor.sees("RECURSIVE") and cursor.token(1).is_name and cursor.token(1).upper != "AS":
        cursor.next()
    while True:
        cursor.identifier("the name of a common table expression")
        if cursor.sees("("):
            cursor.skip_parentheses()
        if cursor.accept("MAX", "RECURSION", "LEVEL"):
            cursor.next()
        cursor.accept("AS")
        if cursor.sees("("):
            cursor.skip_parentheses()
        if not cursor.accept(","):
            return cursor.index


def _top_level(cursor: Cursor, start: int) -> Iterator[int]:
    """Indexes of the tokens outside parentheses, except parts of dotted names."""
    depth = 0
    for index in range(start, len(cursor.tokens)):
        text = cursor.tokens[index].text
        depth += (text == "(") - (text == ")")
        if depth == 0 and (index == 0 or cursor.tokens[index - 1].text != "."):
            yield index


def _verb(cursor: Cursor, verb: str, index: int) -> str:
    words = [token.upper for token in cursor.tokens[index : index + 8]]
    if verb == "CREATE":
        rest = [word for word in words[1:] if word not in _MODIFIERS]
        return f"CREATE {rest[0]}".strip() if rest else "CREATE"
    if verb in ("DESC", "DESCRIBE"):
        return f"DESCRIBE {words[1]}" if len(words) > 2 and words[1] in _DESCRIBED else "DESCRIBE"
    if verb in _TWO_WORDS and len(words) > 1:
        return f"{verb} {words[1]}".strip()
    return "SELECT" if verb in ("WITH", "FROM", "") else verb


def _writes(cursor: Cursor, verb: str, index: int) -> Iterator[WriteTarget]:
    if verb == "INSERT":
        for insert in [i for i in _top_level(cursor, index) if cursor.tokens[i].upper == "INSERT"]:
            cursor.index = insert + 1
            if cursor.accept("INTO") or cursor.accept("OVERWRITE"):
                cursor.accept("TABLE")
                yield from _target(cursor)
        return
    cursor.index = index + 1
    if verb in ("CREATE", "ALTER", "COMMENT", "DROP"):
        yield from _object_target(cursor, verb)
    elif verb in _TARGET_PATHS:
        if verb == "LOAD":
            cursor.index = next(
                (i for i in _top_level(cursor, index) if cursor.tokens[i].upper == "INTO"), cursor.index
            )
        if all(_follow(cursor, step) for step in _TARGET_PATHS[verb]):
            yield from _target(cursor)


def _follow(cursor: Cursor, step: str) -> bool:
    return cursor.accept(step.removesuffix("?")) or step.endswith("?")


def _object_target(cursor: Cursor, verb: str) -> Iterator[WriteTarget]:
    if verb == "COMMENT" and not cursor.accept("ON"):
        return
    while cursor.sees_any(*_MODIFIERS):
        cursor.next()
    if cursor.sees_any(*_OBJECTS):
        cursor.next()
        if cursor.accept("IF"):
            cursor.accept("NOT")
            cursor.accept("EXISTS")
        yield from _target(cursor)


def _target(cursor: Cursor) -> Iterator[WriteTarget]:
    """The name that comes next; a path ('/dir', a DIRECTORY) is no table, and what is malformed is left to Spark."""
    start = cursor.token()
    if not start.is_name or (cursor.sees_any("DIRECTORY", "LOCAL") and cursor.token(1).kind is not Kind.SYMBOL):
        return
    if cursor.sees("IDENTIFIER", "("):
        yield WriteTarget(_identifier_clause(cursor), cursor.position(start))
        return
    yield WriteTarget(cursor.name(), cursor.position(start))


def _identifier_clause(cursor: Cursor) -> tuple[str, ...]:
    """IDENTIFIER('a.b'). A computed name would hide which table is written, so it is refused."""
    literal = cursor.token(2)
    if literal.kind is not Kind.STRING or cursor.token(3).text != ")":
        raise Unsupported(
            "IDENTIFIER with a computed name cannot be the target of a write.",
            hint="Write the table's name, or IDENTIFIER('schema.table').",
            position=cursor.position(),
        )
    try:
        return parse_parts(literal.value)
    except UserError as fault:
        raise UserError(fault.message, hint=fault.hint, position=cursor.position(literal)) from None
