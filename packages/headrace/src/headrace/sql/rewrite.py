"""Text for Spark out of text for Headrace, token by token: whatever is not rewritten stays as it was, byte for byte."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headrace.errors import BadSetting, SyntaxFault
from headrace.names import parse_parts, quote
from headrace.sql.cursor import Cursor
from headrace.sql.table_names import CLAUSE_WORDS, DottedName, dotted_names, table_aliases
from headrace.sql.tokens import Kind, Token, position_at, scan

_QUERIES = frozenset(
    ("SELECT", "WITH", "FROM", "VALUES", "INSERT", "UPDATE", "DELETE", "MERGE", "CREATE", "EXPLAIN", "")
)


@dataclass(frozen=True)
class _Edit:
    start: int
    end: int
    text: str


def _apply(text: str, edits: list[_Edit]) -> str:
    pieces: list[str] = []
    done = 0
    for edit in edits:
        pieces += [text[done : edit.start], edit.text]
        done = edit.end
    return "".join(pieces) + text[done:]


# Words of others


def trigger_names(text: str) -> str:
    """In text about the history of refreshes: the name that others have for what the schedule does, in ours.

    >>> trigger_names("refresh_trigger = 'lh_scheduled' -- not 'LH_SCHEDULED'")
    "refresh_trigger = 'SYSTEM_SCHEDULED' -- not 'LH_SCHEDULED'"
    """
    theirs = [each for each in scan(text) if each.kind is Kind.STRING and each.value.upper() == "LH_SCHEDULED"]
    return _apply(text, [_Edit(token.start, token.end, "'SYSTEM_SCHEDULED'") for token in theirs])


# Names of three parts


def spark_names(text: str, home: str, workspaces: frozenset[str], replace: Callable[[tuple[str, ...]], str]) -> str:
    """Put `replace(parts)` for every `workspace.schema.table` of a known workspace, also in front of `.column`.

    A name that is not where a table must be can also be a column's field: it is left alone when the text gives its
    first part to a table as an alias, and, with three parts only, when no table of the query has that name.
    """
    tokens = scan(text)
    known = {workspace.lower() for workspace in workspaces} | {home.lower()}
    names = [name for name in dotted_names(tokens) if len(name.parts) >= 3 and name.parts[0].lower() in known]
    names = [name for name in names if name.first == 0 or tokens[name.first - 1].text != "."]
    tables = {_folded(name) for name in names if name.is_table}
    defined = table_aliases(tokens) if names else frozenset()
    is_query = tokens[0].upper in _QUERIES if tokens else False

    def means_a_table(name: DottedName) -> bool:
        following = tokens[name.last + 1].text if name.last + 1 < len(tokens) else ""
        if name.is_table:
            return True
        if name.parts[0].lower() in defined or (len(name.parts) == 3 and following == "("):
            return False
        return _folded(name) in tables or len(name.parts) > 3 or not is_query

    return _apply(
        text,
        [
            _Edit(tokens[name.first].start, tokens[name.first + 4].end, replace(name.parts[:3]))
            for name in names
            if means_a_table(name)
        ],
    )


def _folded(name: DottedName) -> tuple[str, ...]:
    return tuple(part.lower() for part in name.parts[:3])


# Table properties


def table_properties(text: str) -> str:
    """Our property names as Delta's, in CREATE TABLE and ALTER TABLE … SET and UNSET; other text comes back as it is.

    >>> table_properties("ALTER TABLE t SET PROPERTIES ('change_tracking'='true')")
    "ALTER TABLE t SET TBLPROPERTIES ('delta.enableChangeDataFeed'='true')"
    """
    tokens = scan(text)
    edits: list[_Edit] = []
    for keyword in _property_lists(tokens):
        if tokens[keyword].upper == "PROPERTIES":
            start = tokens[keyword - 1] if tokens[keyword - 1].upper == "WITH" else tokens[keyword]
            edits.append(_Edit(start.start, tokens[keyword].end, "TBLPROPERTIES"))
        for entry in _entries(tokens, keyword):
            edits += _property_edits(text, entry)
    return _apply(text, edits)


def _property_lists(tokens: tuple[Token, ...]) -> Iterator[int]:
    """Where the word before a property list is, outside parentheses and before the query of a CREATE TABLE … AS."""
    words = [token.upper or token.text for token in tokens]
    if not words or words[0] not in ("CREATE", "REPLACE", "ALTER") or "TABLE" not in words[1:6]:
        return
    depth = 0
    for index, word in enumerate(words):
        depth += (word == "(") - (word == ")")
        if depth == 0 and (word == "SELECT" or (word == "AS" and words[index + 1 : index + 2] != ["OF"])):
            return
        if depth == 0 and word in ("PROPERTIES", "TBLPROPERTIES") and _is_list_keyword(words, index):
            yield index


def _is_list_keyword(words: list[str], index: int) -> bool:
    """Not so when it is a table's name: a list follows, and before it there is SET, UNSET or anything but the name."""
    has_list = words[index + 1 : index + 2] == ["("] or words[index + 1 : index + 4] == ["IF", "EXISTS", "("]
    if words[0] == "ALTER":
        return has_list and words[index - 1] in ("SET", "UNSET")
    return has_list and words[index - 1] not in ("TABLE", "EXISTS", ".")


def _entries(tokens: tuple[Token, ...], keyword: int) -> Iterator[tuple[Token, ...]]:
    """The tokens of each entry of the list after the keyword."""
    start = keyword + (2 if tokens[keyword + 1].text == "(" else 4)
    entry: list[Token] = []
    for token in tokens[start:]:
        if token.text in (",", ")"):
            if entry:
                yield tuple(entry)
            entry = []
        else:
            entry.append(token)
        if token.text == ")":
            return


def _property_edits(text: str, entry: tuple[Token, ...]) -> list[_Edit]:
    key = entry[0].value.lower()
    if key not in _PROPERTIES or (len(entry) > 1 and entry[1].text == "."):
        return []
    value = entry[2:] if len(entry) > 1 and entry[1].text == "=" else entry[1:]
    translate, delta_keys = _PROPERTIES[key]
    if not value:
        return [_Edit(entry[0].start, entry[-1].end, ", ".join(f"'{name}'" for name in delta_keys))]
    given = "".join(token.value for token in value)
    translated = translate(given)
    if translated is None:
        raise BadSetting(
            f"The property '{key}' cannot be '{given}'.",
            hint=_ALLOWED[key],
            position=position_at(text, value[0].start),
        )
    between = text[entry[0].end : value[0].start]
    written = ", ".join(f"'{name}'{between}'{translated}'" for name in delta_keys)
    return [_Edit(entry[0].start, entry[-1].end, written)]


def _flag(value: str) -> str | None:
    return value.lower() if value.lower() in ("true", "false") else None


def _days(value: str) -> str | None:
    return f"interval {int(value)} days" if re.fullmatch(r"[0-9]{1,5}", value) and int(value) else None


_PROPERTIES: dict[str, tuple[Callable[[str], str | None], tuple[str, ...]]] = {
    "change_tracking": (_flag, ("delta.enableChangeDataFeed",)),
    "data_retention_days": (_days, ("delta.deletedFileRetentionDuration", "delta.logRetentionDuration")),
}
_ALLOWED = {
    "change_tracking": "It is 'true' or 'false'.",
    "data_retention_days": "It is a whole number of days, 1 to 99999.",
}


# Table streams


def stream_has_data(text: str, has_data: Callable[[tuple[str, ...]], bool]) -> str:
    """Put TRUE or FALSE for every STREAM_HAS_DATA('stream'); where it is a column by itself it keeps its name.

    >>> stream_has_data("SELECT stream_has_data('s') AS x, STREAM_HAS_DATA('a.s')", lambda parts: len(parts) > 1)
    "SELECT false AS x, true AS `STREAM_HAS_DATA('a.s')`"
    """
    tokens = scan(text)
    words = [token.upper or token.text for token in tokens]
    edits: list[_Edit] = []
    for index, token in enumerate(tokens):
        if words[index] != "STREAM_HAS_DATA" or words[index + 1 : index + 2] != ["("]:
            continue
        literal = tokens[index + 2] if index + 2 < len(tokens) else token
        if literal.kind is not Kind.STRING or words[index + 3 : index + 4] != [")"]:
            raise SyntaxFault(
                "STREAM_HAS_DATA takes the name of a table stream in quotes.",
                hint="Write STREAM_HAS_DATA('name').",
                position=position_at(text, literal.start),
            )
        end = tokens[index + 3].end
        after = words[index + 4] if index + 4 < len(words) else ""
        before = words[index - 1] if index else ""
        is_column = before in ("SELECT", ",") and after in ("", ",", "FROM", ")") and _in_select_list(words[:index])
        name = f" AS {quote(text[token.start : end])}" if is_column else ""
        edits.append(_Edit(token.start, end, str(has_data(parse_parts(literal.value))).lower() + name))
    return _apply(text, edits)


def _in_select_list(before: list[str]) -> bool:
    """Whether the last clause that was opened, at this depth of parentheses, is SELECT."""
    depth = 0
    for word in reversed(before):
        depth += (word == ")") - (word == "(")
        if depth < 0:
            return False
        if depth == 0 and word in ("SELECT", "FROM", "WHERE", "BY", "HAVING", "VALUES", "SET", "ON", "LIMIT"):
            return word == "SELECT"
    return False


# Time travel

Replacement = Callable[[tuple[str, ...], int | None, str | None], str | None]
_VERSION_WORDS = ("VERSION", "SYSTEM_VERSION")
_TIME_WORDS = ("TIMESTAMP", "SYSTEM_TIME")
_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")


def time_travel(text: str, replace: Replacement) -> str:
    """Put `replace(parts, version, timestamp text)` for every table read `VERSION AS OF` or `TIMESTAMP AS OF`.

    The table's own name becomes the alias unless the text gives one. None from `replace` leaves the place as it is,
    and so does a version that is no number.
    """
    tokens = scan(text)
    edits: list[_Edit] = []
    for name in dotted_names(tokens):
        inside_an_edit = edits and tokens[name.first].start < edits[-1].end
        if not name.is_table or inside_an_edit:
            continue
        cursor = Cursor(text, tokens)
        cursor.index = name.last + 1
        as_of = _as_of(cursor)
        new = replace(name.parts, *as_of) if as_of else None
        if new is not None:
            alias = "" if _alias_follows(cursor) else f" AS {quote(name.parts[-1])}"
            edits.append(_Edit(tokens[name.first].start, cursor.token(-1).end, new + alias))
    return _apply(text, edits)


def _as_of(cursor: Cursor) -> tuple[int | None, str | None] | None:
    """The version or the timestamp, with the cursor after it; None when there is neither."""
    cursor.accept("FOR")
    kind = cursor.token().upper
    if kind not in _VERSION_WORDS + _TIME_WORDS:
        return None
    cursor.next()
    if not cursor.accept("AS", "OF"):
        return None
    start = cursor.token()
    if kind in _VERSION_WORDS:
        cursor.next()
        return (int(start.value), None) if re.fullmatch(r"[0-9]{1,18}", start.value) else None
    return (None, cursor.text[start.start : cursor.token(-1).end]) if _expression(cursor) else None


def _expression(cursor: Cursor) -> bool:
    """Move past an arithmetic expression of literals, intervals and calls; an alias after it is not part of it."""
    if not _operand(cursor):
        return False
    while cursor.sees_any("+", "-", "*", "/", "%", "|"):
        while cursor.sees_any("+", "-", "*", "/", "%", "|"):
            cursor.next()
        if not _operand(cursor):
            return False
    return True


def _operand(cursor: Cursor) -> bool:
    token = cursor.token()
    if token.text == "(":
        cursor.skip_parentheses()
    elif token.upper == "INTERVAL":
        cursor.next()
        _interval(cursor)
    elif token.upper in ("TIMESTAMP", "DATE", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ") and cursor.token(1).kind is Kind.STRING:
        cursor.index += 2
    elif token.is_name:
        cursor.next()
        while cursor.sees(".") and cursor.token(1).is_name:
            cursor.index += 2
        if cursor.sees("("):
            cursor.skip_parentheses()
    elif token.kind in (Kind.STRING, Kind.NUMBER):
        cursor.next()
    else:
        return False
    while cursor.accept(":", ":"):
        cursor.next()
    return cursor.index <= len(cursor.tokens)


def _interval(cursor: Cursor) -> None:
    """Move past `1 DAY`, `'1' DAY 2 HOURS`, `'1-2' YEAR TO MONTH` or `'1 day'`."""
    cursor.accept("-")
    while cursor.token().kind in (Kind.NUMBER, Kind.STRING):
        cursor.next()
        for step in ("", "TO"):
            if (not step or cursor.accept(step)) and cursor.token().upper.removesuffix("S") in _UNITS:
                cursor.next()


def _alias_follows(cursor: Cursor) -> bool:
    token = cursor.token()
    return token.upper == "AS" or (token.is_name and token.upper not in CLAUSE_WORDS)
