"""Names of tables and columns: parsing and quoting in one place."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.errors import NotAllowed, UserError

_PART = re.compile(r"`((?:[^`]|``)+)`|([A-Za-z0-9_]+)")
_BARE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_MAX_PART = 255
_MAX_PLAIN = 200
_PLAIN = re.compile(rf"\w{{1,{_MAX_PLAIN}}}", re.ASCII)
_WORKSPACE_MARK = "__"


def quote(identifier: str) -> str:
    """The identifier in backquotes, safe to put into Spark SQL text."""
    return "`" + identifier.replace("`", "``") + "`"


def quote_if_needed(part: str) -> str:
    """The part of a name with backquotes where it needs them.

    >>> quote_if_needed("orders_2"), quote_if_needed("1. load")
    ('orders_2', '`1. load`')
    """
    return part if not part or _BARE.fullmatch(part) else quote(part)


def quote_text(value: str) -> str:
    """The value as a single-quoted Spark SQL string."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


@dataclass(frozen=True, order=True)
class TableName:
    """A full name. Spark's catalog has two levels; a workspace other than the lake's own is a prefix of the
    schema there (`sales.raw.t` is stored as `sales__raw.t`)."""

    workspace: str
    schema: str
    table: str

    def __str__(self) -> str:
        """As a statement may have it."""
        return ".".join(map(quote_if_needed, (self.workspace, self.schema, self.table)))

    def spark(self, home: str) -> str:
        """How Spark knows this table, given the name of the lake's own workspace."""
        return f"{quote(self.database(home))}.{quote(self.table)}"

    def database(self, home: str) -> str:
        """The Spark database that holds this table."""
        return spark_database(self.workspace, self.schema, home)


def spark_database(workspace: str, schema: str, home: str) -> str:
    """The Spark database for a schema of a workspace; Spark folds these to lower case, and so do we."""
    database = schema if workspace.lower() == home.lower() else f"{workspace}{_WORKSPACE_MARK}{schema}"
    return database.lower()


def split_database(database: str, home: str, workspaces: tuple[str, ...]) -> tuple[str, str]:
    """The inverse of `spark_database`: (workspace, schema)."""
    for workspace in workspaces:
        prefix = f"{workspace.lower()}{_WORKSPACE_MARK}"
        if workspace.lower() != home.lower() and database.lower().startswith(prefix):
            return workspace, database[len(prefix) :]
    return home, database


RESERVED_COLUMNS = ("_change_type", "_commit_version", "_commit_timestamp")
"""Columns of Delta's change feed: a table with one of them cannot be read as changes."""


def own_column_problem(name: str) -> str | None:
    """Why a result column cannot have this name."""
    if name.lower().startswith("__hr_"):
        return f"Column names that start with __hr_ are Headrace's own: '{name}'."
    if name.lower() in RESERVED_COLUMNS:
        return f"The column name '{name}' belongs to Delta's change feed."
    return None


def parse_parts(text: str) -> tuple[str, ...]:
    """One to three name parts out of `a.b.c`, with backquotes where needed.

    >>> parse_parts("ws.`my schema`.t")
    ('ws', 'my schema', 't')
    """
    parts: list[str] = []
    position = 0
    while True:
        match = _PART.match(text, position)
        if match is None:
            raise UserError(
                f"'{text}' is not a table name.", hint="Write workspace.schema.table, with `…` where needed."
            )
        parts.append(match.group(1).replace("``", "`") if match.group(1) is not None else match.group(2))
        position = match.end()
        if position == len(text):
            break
        if text[position] != ".":
            raise UserError(
                f"'{text}' is not a table name.", hint="Write workspace.schema.table, with `…` where needed."
            )
        position += 1
    return check_parts(tuple(parts))


def check_parts(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse what no catalog can hold: too many parts, too long, or with control characters."""
    if not 1 <= len(parts) <= 3:
        raise UserError(
            f"'{'.'.join(parts)}' has {len(parts)} parts; a table name has one to three.",
            hint="Write workspace.schema.table; a part that has a dot in it stands in `…`.",
        )
    for part in parts:
        if not part or len(part) > _MAX_PART:
            raise UserError(
                f"A name part has {len(part)} characters; it may have 1 to {_MAX_PART}.", hint="Choose another name."
            )
        if any(ord(character) < 32 for character in part):
            raise UserError(f"The name {part!r} contains a control character.", hint="Choose another name.")
    return parts


def require_plain(part: str, what: str) -> None:
    """Refuse a name for something new that Spark's catalog cannot hold, before any of it is made: the name becomes
    that of a folder."""
    if not _PLAIN.fullmatch(part):
        raise NotAllowed(
            f"'{part}' cannot be the name of a {what}.",
            hint=f"Use letters without accents, digits and underscores, at most {_MAX_PLAIN} characters.",
        )


def resolve(parts: tuple[str, ...], *, workspace: str, schema: str) -> TableName:
    """Complete a one- to three-part name with the current workspace and schema."""
    filled = (workspace, schema)[: 3 - len(parts)] + parts
    return TableName(filled[0].lower(), filled[1].lower(), filled[2].lower())
