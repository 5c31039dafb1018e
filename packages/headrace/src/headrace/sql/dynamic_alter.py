"""ALTER DYNAMIC TABLE."""

from __future__ import annotations

from headrace.sql.cursor import Cursor
from headrace.sql.dynamic import comment_text, dynamic_table_name, refresh_interval, refresh_mode, target_lag
from headrace.sql.statements import (
    Action,
    AddColumn,
    AlterDynamicTable,
    CommentColumn,
    RenameColumn,
    RenameTable,
    Resume,
    SetComment,
    SetInterval,
    SetProperties,
    SetRefreshMode,
    SetTargetLag,
    SetVcluster,
    Suspend,
    UnsetProperties,
)

_ALTER_FORM = (
    "ALTER DYNAMIC TABLE name {SUSPEND | RESUME | SET COMMENT 'c' | SET PROPERTIES (…) | UNSET PROPERTIES (…) "
    "| SET REFRESH INTERVAL n MINUTE | SET VCLUSTER name | SET REFRESH_MODE = mode | SET TARGET_LAG = lag "
    "| RENAME TO name | RENAME COLUMN a TO b | CHANGE COLUMN a COMMENT 'c' | ADD COLUMN a AS expression}"
)


def parse_alter(cursor: Cursor) -> AlterDynamicTable:
    cursor.form = _ALTER_FORM
    name = dynamic_table_name(cursor, "ALTER")
    action = _action(cursor)
    cursor.end()
    return AlterDynamicTable(cursor.text, name, action)


def _action(cursor: Cursor) -> Action:
    if cursor.accept("SUSPEND"):
        return Suspend()
    if cursor.accept("RESUME"):
        return Resume()
    if cursor.accept("SET"):
        return _set(cursor)
    if cursor.accept("UNSET"):
        return _unset(cursor)
    if cursor.accept("RENAME"):
        if cursor.accept("TO"):
            return RenameTable(cursor.name("the new name"))
        cursor.expect("COLUMN")
        old = cursor.identifier("a column name")
        cursor.expect("TO")
        return RenameColumn(old, cursor.identifier("the new column name"))
    if cursor.accept("CHANGE") or cursor.accept("ALTER"):
        cursor.expect("COLUMN")
        return CommentColumn(cursor.identifier("a column name"), comment_text(cursor))
    if cursor.accept("ADD"):
        cursor.expect("COLUMN")
        return _add_column(cursor)
    raise cursor.fault("SUSPEND, RESUME, SET, UNSET, RENAME TO, RENAME COLUMN, CHANGE COLUMN or ADD COLUMN")


def _set(cursor: Cursor) -> Action:
    if cursor.sees("COMMENT"):
        return SetComment(comment_text(cursor))
    if cursor.accept("PROPERTIES") or cursor.accept("TBLPROPERTIES"):
        return SetProperties(cursor.properties())
    if cursor.accept("REFRESH"):
        return SetInterval(refresh_interval(cursor))
    if cursor.accept("VCLUSTER"):
        return SetVcluster(cursor.identifier("the name of a virtual cluster"))
    if cursor.sees("REFRESH_MODE"):
        return SetRefreshMode(refresh_mode(cursor))
    if cursor.sees("TARGET_LAG"):
        return SetTargetLag(target_lag(cursor))
    raise cursor.fault("COMMENT, PROPERTIES, REFRESH INTERVAL, VCLUSTER, REFRESH_MODE or TARGET_LAG")


def _unset(cursor: Cursor) -> UnsetProperties:
    if not (cursor.accept("PROPERTIES") or cursor.accept("TBLPROPERTIES")):
        raise cursor.fault("PROPERTIES")
    cursor.accept("IF", "EXISTS")
    cursor.expect("(")
    keys = [cursor.property_key()]
    while cursor.accept(","):
        keys.append(cursor.property_key())
    if not cursor.accept(")"):
        raise cursor.fault("',' or ')'")
    return UnsetProperties(tuple(keys))


def _add_column(cursor: Cursor) -> AddColumn:
    name = cursor.identifier("a column name")
    column_type = None if cursor.sees("AS") else cursor.text_until("a type or AS", "AS")
    cursor.expect("AS")
    return AddColumn(name, column_type, cursor.text_until("an expression"))
