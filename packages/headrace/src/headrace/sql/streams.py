"""Statements about table streams."""

from __future__ import annotations

from headrace.errors import BadSetting, SyntaxFault
from headrace.sql.cursor import Cursor
from headrace.sql.statements import (
    AlterStream,
    CreateStream,
    DescribeStream,
    DropStream,
    SetComment,
    SetMoveStreams,
    SetOffset,
    StreamMode,
)
from headrace.sql.tokens import Token

_CREATE_FORM = (
    "CREATE [OR REPLACE] TABLE STREAM [IF NOT EXISTS] name ON TABLE table [TIMESTAMP AS OF ts | VERSION AS OF n] "
    "[COMMENT 'c'] [WITH PROPERTIES ('TABLE_STREAM_MODE'='STANDARD'|'APPEND_ONLY', 'SHOW_INITIAL_ROWS'='TRUE'|'FALSE')]"
)
_MODE = "TABLE_STREAM_MODE"
_INITIAL = "SHOW_INITIAL_ROWS"


def refuse_bare_stream(cursor: Cursor) -> None:
    """`CREATE STREAM s …`, as other systems have it."""
    verb = cursor.token().upper
    ahead = 3 if cursor.sees(verb, "OR", "REPLACE") else 1
    word, following = cursor.token(ahead).upper, cursor.token(ahead + 1)
    plural = verb == "SHOW" and word == "STREAMS"
    if plural or (verb in ("CREATE", "ALTER", "DROP", "DESC", "DESCRIBE") and word == "STREAM" and following.is_name):
        shown = f"{verb} TABLE {word}"
        raise SyntaxFault(
            f"Syntax error: expected TABLE, found '{cursor.token(ahead).text}'.",
            hint=f"Streams are table streams here: write {shown} …",
            position=cursor.position(cursor.token(ahead)),
        )


def is_about_stream(cursor: Cursor) -> bool:
    """Tells `CREATE TABLE STREAM s ON …` from `CREATE TABLE stream (…)`: a table may be called stream."""
    verb = cursor.token().upper
    stream = 4 if cursor.sees(verb, "OR", "REPLACE", "TABLE") else 2
    if verb not in ("CREATE", "ALTER", "DROP", "DESC", "DESCRIBE") or cursor.token(stream - 1).upper != "TABLE":
        return False
    following = cursor.token(stream + 1)
    if cursor.token(stream).upper != "STREAM" or not following.is_name:
        return False
    after = stream + 2
    while cursor.token(after).text == "." and cursor.token(after + 1).is_name:
        after += 2
    end_word = cursor.token(after).upper
    if verb == "CREATE":
        return following.upper == "IF" or end_word == "ON"
    return end_word == "SET" if verb == "ALTER" else following.upper != "PURGE"


def parse_stream(cursor: Cursor) -> CreateStream | AlterStream | DropStream | DescribeStream:
    """The cursor stands at the first word of a statement that is about a stream."""
    verb = cursor.token().upper
    if verb == "CREATE":
        return _create(cursor)
    if verb == "ALTER":
        return _alter(cursor)
    if verb == "DROP":
        return _drop(cursor)
    cursor.form = "DESC TABLE STREAM name"
    cursor.index += 3
    name = cursor.name("a stream's name")
    cursor.end()
    return DescribeStream(cursor.text, name)


def _create(cursor: Cursor) -> CreateStream:
    cursor.form = _CREATE_FORM
    cursor.expect("CREATE")
    or_replace = cursor.accept("OR", "REPLACE")
    cursor.expect("TABLE", "STREAM")
    at = cursor.token()
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    if or_replace and if_not_exists:
        raise SyntaxFault(
            "OR REPLACE and IF NOT EXISTS exclude each other.",
            hint="Keep one of them.",
            position=cursor.position(at),
        )
    name = cursor.name("a stream's name")
    cursor.expect("ON")
    if not cursor.accept("DYNAMIC", "TABLE"):
        cursor.expect("TABLE")
    table = cursor.name()
    version, timestamp = _start(cursor)
    comment, properties = None, None
    while not cursor.at_end:
        if comment is None and cursor.accept("COMMENT"):
            cursor.accept("=")
            comment = cursor.string("the comment in quotes")
        elif properties is None and cursor.sees_any("WITH", "PROPERTIES"):
            cursor.accept("WITH")
            cursor.expect("PROPERTIES")
            at = cursor.token()
            properties = _properties(cursor, at)
        else:
            raise cursor.fault("COMMENT, WITH PROPERTIES or the end of the statement")
    mode, initial = properties or ("STANDARD", False)
    return CreateStream(cursor.text, name, table, or_replace, if_not_exists, version, timestamp, comment, mode, initial)


def _start(cursor: Cursor) -> tuple[int | None, str | None]:
    if cursor.accept("VERSION", "AS", "OF"):
        return cursor.integer("a version number"), None
    if cursor.accept("TIMESTAMP", "AS", "OF"):
        return None, cursor.text_until("a timestamp", "COMMENT", "WITH", "PROPERTIES")
    return None, None


def _properties(cursor: Cursor, at: Token) -> tuple[StreamMode, bool]:
    given = {key.upper(): value.upper() for key, value in cursor.properties().items()}
    unknown = sorted(given.keys() - {_MODE, _INITIAL})
    if unknown:
        raise BadSetting(
            f"A table stream has no property '{unknown[0]}'.",
            hint=f"The properties are {_MODE} and {_INITIAL}.",
            position=cursor.position(at),
        )
    initial = given.get(_INITIAL, "FALSE")
    if initial not in ("TRUE", "FALSE"):
        raise BadSetting(
            f"{_INITIAL} cannot be '{initial}'.", hint="It is 'TRUE' or 'FALSE'.", position=cursor.position(at)
        )
    modes: dict[str, StreamMode] = {"STANDARD": "STANDARD", "APPEND_ONLY": "APPEND_ONLY"}
    mode = given.get(_MODE, "STANDARD")
    if mode not in modes:
        raise BadSetting(
            f"{_MODE} cannot be '{mode}'.", hint="It is 'STANDARD' or 'APPEND_ONLY'.", position=cursor.position(at)
        )
    return modes[mode], initial == "TRUE"


def _alter(cursor: Cursor) -> AlterStream:
    cursor.form = "ALTER TABLE STREAM name {SET OFFSET VERSION AS OF n | SET COMMENT 'c'}"
    cursor.expect("ALTER", "TABLE", "STREAM")
    name = cursor.name("a stream's name")
    cursor.expect("SET")
    if cursor.accept("COMMENT"):
        cursor.accept("=")
        comment = cursor.string("the comment in quotes")
        cursor.end()
        return AlterStream(cursor.text, name, SetComment(comment))
    if not cursor.accept("OFFSET"):
        raise cursor.fault("OFFSET or COMMENT")
    cursor.expect("VERSION", "AS", "OF")
    version = cursor.integer("a version number")
    cursor.end()
    return AlterStream(cursor.text, name, SetOffset(version))


def is_about_moving(cursor: Cursor) -> bool:
    """Tells `SET move_streams = …` from a setting of Spark's whose name only begins so."""
    return (cursor.sees("SET", "MOVE_STREAMS") or cursor.sees("RESET", "MOVE_STREAMS")) and cursor.token(2).text != "."


def parse_moving(cursor: Cursor) -> SetMoveStreams:
    cursor.form = "{SET move_streams = {true | false} | RESET move_streams}"
    moves = True
    if cursor.accept("SET"):
        cursor.expect("MOVE_STREAMS", "=")
        if not cursor.sees_any("TRUE", "FALSE"):
            raise cursor.fault("true or false")
        moves = cursor.next().upper == "TRUE"
    else:
        cursor.expect("RESET", "MOVE_STREAMS")
    cursor.end()
    return SetMoveStreams(cursor.text, moves)


def _drop(cursor: Cursor) -> DropStream:
    cursor.form = "DROP TABLE STREAM [IF EXISTS] name"
    cursor.expect("DROP", "TABLE", "STREAM")
    if_exists = cursor.accept("IF", "EXISTS")
    name = cursor.name("a stream's name")
    cursor.end()
    return DropStream(cursor.text, name, if_exists)
