"""Statements about virtual clusters and jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from headrace.errors import BadSetting, SyntaxFault
from headrace.sql import tables
from headrace.sql.cursor import Cursor
from headrace.sql.dynamic import comment_text
from headrace.sql.statements import (
    AlterVcluster,
    CancelJob,
    CreateVcluster,
    DescribeVcluster,
    DropVcluster,
    Resume,
    SetComment,
    SetProperties,
    SetQueryTag,
    SetVclusterOptions,
    Statement,
    SuspendVcluster,
    UseVcluster,
)
from headrace.sql.tokens import Kind, Token

Option = str | int | bool

_OPTIONS_FORM = (
    "[VCLUSTER_TYPE = GENERAL|ANALYTICS|INTEGRATION] [VCLUSTER_SIZE = XSMALL|SMALL|MEDIUM|LARGE|XLARGE|n] "
    "[AUTO_SUSPEND_IN_SECOND = n] [AUTO_RESUME = TRUE|FALSE] [MAX_CONCURRENCY = n] [QUERY_RUNTIME_LIMIT_IN_SECOND = n]"
)
_CREATE_FORM = (
    f"CREATE VCLUSTER [IF NOT EXISTS] name {_OPTIONS_FORM} [PROPERTIES ('k'='v', …)] [COMMENT 'c'], in any order"
)
_ALTER_FORM = (
    "ALTER VCLUSTER name {RESUME | SUSPEND [FORCE] | SET option = value [, …] | SET PROPERTIES ('k'='v', …) "
    "| SET COMMENT 'c'}"
)
_SIZES = {"XSMALL": 1, "SMALL": 2, "MEDIUM": 4, "LARGE": 8, "XLARGE": 16}
_LARGEST_SIZE = 256
_MOST_JOBS = 1000
_YEAR_SECONDS = 365 * 86400
_LONGEST_TAG = 1000


def parse_create(cursor: Cursor) -> CreateVcluster:
    cursor.form = _CREATE_FORM
    cursor.expect("CREATE", "VCLUSTER")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = _name(cursor)
    options: dict[str, Option] = {}
    rest: dict[str, Any] = {}
    while not cursor.at_end:
        at = cursor.token()
        if cursor.sees("PROPERTIES"):
            _once(cursor, at, "properties", rest)
            cursor.next()
            rest["properties"] = cursor.properties()
        elif cursor.sees("COMMENT"):
            _once(cursor, at, "comment", rest)
            rest["comment"] = comment_text(cursor)
        else:
            _option(cursor, options, "PROPERTIES, COMMENT or the end of the statement")
    return CreateVcluster(cursor.text, name, if_not_exists, options, **rest)


def parse_alter(cursor: Cursor) -> AlterVcluster:
    cursor.form = _ALTER_FORM
    cursor.expect("ALTER", "VCLUSTER")
    name = _name(cursor)
    action = _action(cursor)
    cursor.end()
    return AlterVcluster(cursor.text, name, action)


def refuse_verb_first(cursor: Cursor) -> NoReturn:
    """SUSPEND and RESUME in front of what they are about, as some write it."""
    fault = cursor.fault("a statement")
    verb = cursor.next().upper
    what = "VCLUSTER" if cursor.accept("VCLUSTER") else "DYNAMIC TABLE"
    if what == "DYNAMIC TABLE":
        cursor.expect("DYNAMIC", "TABLE")
    start, last = cursor.token(), cursor.token()
    while cursor.token().is_name or cursor.sees("."):
        if cursor.sees("FORCE"):
            verb = f"{verb} FORCE"
            break
        last = cursor.next()
    name = cursor.text[start.start : last.end] or "name"
    fault.hint = f"Write ALTER {what} {name} {verb}."
    raise fault


def _action(cursor: Cursor) -> Resume | SuspendVcluster | SetVclusterOptions | SetProperties | SetComment:
    if cursor.accept("RESUME"):
        return Resume()
    if cursor.accept("SUSPEND"):
        return SuspendVcluster(force=cursor.accept("FORCE"))
    if not cursor.accept("SET"):
        raise cursor.fault("RESUME, SUSPEND or SET")
    if cursor.accept("PROPERTIES"):
        return SetProperties(cursor.properties())
    if cursor.sees("COMMENT"):
        return SetComment(comment_text(cursor))
    options: dict[str, Option] = {}
    _option(cursor, options, "PROPERTIES or COMMENT")
    while not cursor.at_end:
        after_comma = cursor.accept(",")
        if cursor.sees_any("COMMENT", "PROPERTIES"):
            raise _own_action(cursor)
        _option(cursor, options, None if after_comma else "the end of the statement")
    return SetVclusterOptions(options)


def _own_action(cursor: Cursor) -> SyntaxFault:
    """COMMENT or PROPERTIES among the options, as CREATE has them."""
    word = cursor.token().upper
    form = "SET COMMENT 'c'" if word == "COMMENT" else "SET PROPERTIES ('k'='v', …)"
    return SyntaxFault(
        f"Syntax error: {word} does not stand among the options of ALTER VCLUSTER: {form} is an action of its own.",
        hint=f"Write a second statement: ALTER VCLUSTER name {form}.",
        position=cursor.position(),
    )


def parse_drop(cursor: Cursor) -> DropVcluster:
    cursor.form = "DROP VCLUSTER [IF EXISTS] name"
    cursor.expect("DROP", "VCLUSTER")
    if_exists = cursor.accept("IF", "EXISTS")
    name = _name(cursor)
    cursor.end()
    return DropVcluster(cursor.text, name, if_exists)


def parse_use(cursor: Cursor) -> Statement:
    """`USE vcluster` alone means a schema of that name."""
    if not cursor.token(2).is_name:
        return tables.parse_use(cursor)
    cursor.form = "USE VCLUSTER name"
    cursor.expect("USE", "VCLUSTER")
    name = _name(cursor)
    cursor.end()
    return UseVcluster(cursor.text, name)


def parse_describe(cursor: Cursor) -> Statement:
    """`DESC vcluster` alone means a table of that name."""
    if not cursor.token(2).is_name and cursor.token(2).kind is not Kind.STRING:
        return tables.parse_describe(cursor)
    cursor.form = "DESC VCLUSTER name"
    cursor.index += 2
    name = _name(cursor)
    cursor.end()
    return DescribeVcluster(cursor.text, name)


def parse_cancel(cursor: Cursor) -> CancelJob:
    cursor.form = "CANCEL JOB 'id'"
    cursor.expect("CANCEL", "JOB")
    job_id = cursor.string("the job's id in quotes")
    cursor.end()
    return CancelJob(cursor.text, job_id)


def is_about_query_tag(cursor: Cursor) -> bool:
    """Tells `SET query_tag = 'x'` from a setting of Spark's whose name only begins so."""
    return (cursor.sees("SET", "QUERY_TAG") or cursor.sees("RESET", "QUERY_TAG")) and cursor.token(2).text != "."


def parse_query_tag(cursor: Cursor) -> SetQueryTag:
    cursor.form = "{SET query_tag = 'tag' | RESET query_tag}"
    tag = None
    if cursor.accept("SET"):
        cursor.expect("QUERY_TAG", "=")
        at = cursor.token()
        tag = cursor.string("the tag in quotes") or None
        if tag is not None and len(tag) > _LONGEST_TAG:
            raise BadSetting(
                f"The query tag has {len(tag)} characters.",
                hint=f"It may have up to {_LONGEST_TAG}.",
                position=cursor.position(at),
            )
    else:
        cursor.expect("RESET", "QUERY_TAG")
    cursor.end()
    return SetQueryTag(cursor.text, tag)


# The options of a cluster


def _option(cursor: Cursor, options: dict[str, Option], or_else: str | None) -> None:
    """Take one `option = value`; `or_else` is what could stand here too."""
    at = cursor.token()
    if at.upper not in _OPTIONS:
        *some, last = _OPTIONS
        raise cursor.fault(f"{', '.join(some)} or {last}" if or_else is None else f"{', '.join(_OPTIONS)}, {or_else}")
    field, value = _OPTIONS[at.upper]
    _once(cursor, at, field, options)
    cursor.next()
    cursor.accept("=")
    options[field] = value(cursor, at.upper)


def _once(cursor: Cursor, at: Token, field: str, found: dict[str, Any]) -> None:
    if field in found:
        raise SyntaxFault(f"{at.upper} is given twice.", hint=cursor.hint, position=cursor.position(at))


def _type(cursor: Cursor, _: str) -> str:
    return _word(cursor, ("GENERAL", "ANALYTICS", "INTEGRATION"), "GENERAL, ANALYTICS or INTEGRATION")


def _size(cursor: Cursor, option: str) -> int:
    if cursor.token().kind is Kind.NUMBER:
        return _number(1, _LARGEST_SIZE)(cursor, option)
    expected = f"XSMALL, SMALL, MEDIUM, LARGE, XLARGE or a number from 1 to {_LARGEST_SIZE}"
    return _SIZES[_word(cursor, tuple(_SIZES), expected)]


def _truth(cursor: Cursor, _: str) -> bool:
    return _word(cursor, ("TRUE", "FALSE"), "TRUE or FALSE") == "TRUE"


def _word(cursor: Cursor, words: tuple[str, ...], expected: str) -> str:
    """One of the words, in quotes or not."""
    token = cursor.token()
    word = token.value.upper() if token.kind in (Kind.WORD, Kind.STRING) else ""
    if word not in words:
        raise cursor.fault(expected)
    cursor.next()
    return word


def _number(least: int, most: int) -> Callable[[Cursor, str], int]:
    def parse(cursor: Cursor, option: str) -> int:
        at = cursor.token()
        number = cursor.integer(f"a number from {least} to {most}")
        if not least <= number <= most:
            raise BadSetting(
                f"{option} cannot be {number}.",
                hint=f"It is a number from {least} to {most}.",
                position=cursor.position(at),
            )
        return number

    return parse


_OPTIONS: dict[str, tuple[str, Callable[[Cursor, str], Option]]] = {
    "VCLUSTER_TYPE": ("type", _type),
    "VCLUSTER_SIZE": ("size", _size),
    "AUTO_SUSPEND_IN_SECOND": ("auto_suspend_seconds", _number(0, _YEAR_SECONDS)),
    "AUTO_RESUME": ("auto_resume", _truth),
    "MAX_CONCURRENCY": ("max_concurrency", _number(1, _MOST_JOBS)),
    "QUERY_RUNTIME_LIMIT_IN_SECOND": ("runtime_limit_seconds", _number(0, _YEAR_SECONDS)),
}


def _name(cursor: Cursor) -> str:
    return cursor.identifier("the name of a virtual cluster").lower()
