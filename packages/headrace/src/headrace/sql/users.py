"""Statements about users, grants and API tokens."""

from __future__ import annotations

from typing import Literal

from headrace.errors import BadSetting, SyntaxFault, UserError
from headrace.names import check_parts
from headrace.sql.cursor import Cursor
from headrace.sql.shows import granted_object
from headrace.sql.statements import (
    AlterUser,
    CreateToken,
    CreateUser,
    DropToken,
    DropUser,
    GrantPrivilege,
    Role,
)
from headrace.sql.tokens import Kind

_ROLES = "admin, operator, developer or analyst"
_PASSWORD = "the password in quotes"
_LONGEST_DAYS = 36500


class _Discreet(Cursor):
    """Its faults do not repeat what may be a password: they are shown, logged and kept."""

    def fault(self, expected: str) -> SyntaxFault:
        if expected != _PASSWORD and self.token().kind is not Kind.STRING:
            return super().fault(expected)
        found = "the end of the statement" if self.at_end else "something else"
        return SyntaxFault(
            f"Syntax error: expected {expected}, found {found}.", hint=self.hint, position=self.position()
        )


def parse_create_user(cursor: Cursor) -> CreateUser:
    cursor = _Discreet(
        cursor.text,
        cursor.tokens,
        "CREATE USER [IF NOT EXISTS] name WITH PASSWORD 'p' [ROLE admin|operator|developer|analyst]",
    )
    cursor.expect("CREATE", "USER")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    name = user_name(cursor)
    cursor.expect("WITH", "PASSWORD")
    password = cursor.string(_PASSWORD)
    role: Role = _role(cursor) if cursor.accept("ROLE") else "analyst"
    if not cursor.at_end:
        raise cursor.fault("ROLE or the end of the statement")
    return CreateUser(cursor.text, name, password, role, if_not_exists)


def parse_alter_user(cursor: Cursor) -> AlterUser:
    cursor = _Discreet(
        cursor.text, cursor.tokens, "ALTER USER name {SET PASSWORD 'p' | SET ROLE admin|operator|developer|analyst}"
    )
    cursor.expect("ALTER", "USER")
    name = user_name(cursor)
    cursor.expect("SET")
    password: str | None = None
    role: Role | None = None
    if cursor.accept("PASSWORD"):
        password = cursor.string(_PASSWORD)
    elif cursor.accept("ROLE"):
        role = _role(cursor)
    else:
        raise cursor.fault("PASSWORD or ROLE")
    cursor.end()
    return AlterUser(cursor.text, name, password, role)


def parse_drop_user(cursor: Cursor) -> DropUser:
    cursor.form = "DROP USER [IF EXISTS] name"
    cursor.expect("DROP", "USER")
    if_exists = cursor.accept("IF", "EXISTS")
    name = user_name(cursor)
    cursor.end()
    return DropUser(cursor.text, name, if_exists)


def user_name(cursor: Cursor) -> str:
    return cursor.identifier("a user's name").lower()


def _role(cursor: Cursor) -> Role:
    roles: tuple[Role, ...] = ("admin", "operator", "developer", "analyst")
    for role in roles:
        if cursor.accept(role.upper()):
            return role
    raise cursor.fault(_ROLES)


# Grants


def parse_grant(cursor: Cursor) -> GrantPrivilege:
    """GRANT and REVOKE, which differ in one word."""
    revoke = cursor.next().upper == "REVOKE"
    verb, preposition = ("REVOKE", "FROM") if revoke else ("GRANT", "TO")
    cursor.form = f"{verb} {{SELECT | ALL}} ON {{SCHEMA schema | TABLE table}} {preposition} user"
    privilege = _privilege(cursor)
    cursor.expect("ON")
    kind, parts = granted_object(cursor)
    cursor.expect(preposition)
    user = user_name(cursor)
    cursor.end()
    return GrantPrivilege(cursor.text, privilege, kind, parts, user, revoke)


def _privilege(cursor: Cursor) -> Literal["SELECT", "ALL"]:
    if cursor.accept("SELECT"):
        return "SELECT"
    if cursor.accept("ALL"):
        cursor.accept("PRIVILEGES")
        return "ALL"
    raise cursor.fault("SELECT or ALL")


# Tokens


def parse_create_token(cursor: Cursor) -> CreateToken:
    cursor.form = "CREATE TOKEN 'name' [ROLE role] [EXPIRES IN n DAY]"
    cursor.expect("CREATE", "TOKEN")
    name = _token_name(cursor)
    role = _role(cursor) if cursor.accept("ROLE") else None
    days = None
    if cursor.accept("EXPIRES"):
        cursor.expect("IN")
        at = cursor.token()
        days = cursor.integer("a number of days")
        if not 1 <= days <= _LONGEST_DAYS:
            raise BadSetting(
                f"A token cannot expire in {days} days.",
                hint=f"Write a number from 1 to {_LONGEST_DAYS}; without EXPIRES it is 90.",
                position=cursor.position(at),
            )
        if not cursor.accept("DAYS"):
            cursor.expect("DAY")
    if not cursor.at_end:
        could = "" if days is not None else "EXPIRES IN or " if role is not None else "ROLE, EXPIRES IN or "
        raise cursor.fault(f"{could}the end of the statement")
    return CreateToken(cursor.text, name, days, role)


def parse_drop_token(cursor: Cursor) -> DropToken:
    cursor.form = "DROP TOKEN 'name' [OF user]"
    cursor.expect("DROP", "TOKEN")
    name = _token_name(cursor)
    user = user_name(cursor) if cursor.accept("OF") else None
    cursor.end()
    return DropToken(cursor.text, name, user)


def _token_name(cursor: Cursor) -> str:
    at = cursor.token()
    try:
        return check_parts((cursor.string("the token's name in quotes"),))[0]
    except SyntaxFault:
        raise
    except UserError as fault:
        raise UserError(fault.message, hint=fault.hint, position=cursor.position(at)) from None
