"""CREATE, ALTER, DROP USER, GRANT and REVOKE, API tokens, and the SHOWs of them.

Who may do this was asked before (`permitting`). Every change is written into the audit log, without passwords.
"""

from __future__ import annotations

import re
import uuid
from datetime import timedelta
from typing import Literal

import pyarrow as pa

from headrace.catalog.records import ApiToken, AuditEntry, Grant, User
from headrace.errors import Forbidden, NotFound, UserError
from headrace.names import TableName
from headrace.result import Result, done, from_rows
from headrace.security import masked_sql, passwords, tokens
from headrace.security.rights import object_of, schema_object
from headrace.security.roles import nobody
from headrace.sql import statements as sql
from headrace.statements.context import Context
from headrace.statements.listing import matches, narrowed
from headrace.statements.tasks import suspend_tasks_of

_TEXT = pa.string()
_TIME = pa.timestamp("us", tz="UTC")
_USERS = [("user_name", _TEXT), ("role", _TEXT), ("creator", _TEXT), ("created_time", _TIME), ("last_login", _TIME)]
_GRANTS = [
    ("user_name", _TEXT), ("privilege", _TEXT), ("object_type", _TEXT), ("object_name", _TEXT), ("granted_by", _TEXT),
    ("granted_time", _TIME),
]  # fmt: skip
_TOKENS = [
    ("name", _TEXT), ("user_name", _TEXT), ("created_time", _TIME), ("expires_time", _TIME), ("last_used", _TIME),
    ("role", _TEXT),
]  # fmt: skip
_TOKEN_DAYS = 90
_NEW_TOKEN = [("name", _TEXT), ("token", _TEXT), ("expires_time", _TIME)]
_NAME = re.compile(r"[a-z0-9_](?:[a-z0-9_.@-]{0,98}[a-z0-9_])?")


def create_user(context: Context, statement: sql.CreateUser) -> Result:
    _refuse_token(context, "make users")
    name = statement.name.lower()
    if not _NAME.fullmatch(name):
        raise UserError(
            f"'{name}' is no name for a user.",
            hint="Use letters, digits, _, and inside also . @ and -; at most 100 characters.",
        )
    if statement.if_not_exists and context.store.users.user(name) is not None:
        return done(f"User {name} exists already; nothing was done.")
    passwords.require_good(statement.password)
    user = User(
        name=name,
        role=statement.role,
        password_hash=passwords.hashed(statement.password),
        creator=context.user.name,
        created_at=context.clock(),
    )
    _end_what_runs(context, name)
    context.store.users.put(user, new=True)
    _audit(context, "CREATE_USER", statement)
    return done(f"User {name} created with the role {statement.role}.")


def alter_user(context: Context, statement: sql.AlterUser) -> Result:
    name = _require_user(context, statement.name).name
    _refuse_token(context, "change users")
    if statement.password is not None:
        passwords.require_good(statement.password)
        context.store.users.set_password(name, passwords.hashed(statement.password))
        told = f"User {name} has a new password; other logins have ended."
    else:
        assert statement.role is not None, "the parser takes one or the other"
        context.store.users.set_role(name, statement.role)
        told = f"User {name} has the role {statement.role}."
    context.access_changed(name)
    _audit(context, "ALTER_USER", statement)
    return done(told)


def drop_user(context: Context, statement: sql.DropUser) -> Result:
    name = statement.name.lower()
    if context.store.users.user(name) is None:
        _end_what_runs(context, name)
        if statement.if_exists:
            return done(f"There is no user {name}; nothing was done.")
    context.store.users.drop(name)
    theirs = _end_what_runs(context, name)
    _audit(context, "DROP_USER", statement)
    tasks = f" {theirs} of their tasks {'is' if theirs == 1 else 'are'} suspended." if theirs else ""
    left = _left(context, name)
    return done(f"User {name} dropped, with their grants and tokens. What they made stays.{tasks}{left}")


def _end_what_runs(context: Context, name: str) -> int:
    """Nothing goes on in the name of a user who was dropped; gives how many tasks are suspended now. Each step is a
    write of its own: one that was cut short is made good by the next, and before somebody else gets the name."""
    if not context.store.users.was_dropped(name):
        return 0
    context.access_changed(name)
    context.store.alerts.suspend_all_of(name, whose=nobody(name))
    return len(suspend_tasks_of(context, name))


def _left(context: Context, name: str) -> str:
    """What read in the user's name, and does so no more."""
    tables = sum(table.creator.lower() == name for table in context.store.tables())
    streams = sum(stream.creator.lower() == name for stream in context.store.streams.all())
    told = ""
    if tables:
        many = "dynamic table that they made is" if tables == 1 else "dynamic tables that they made are"
        told += f" {tables} {many} not refreshed any more: replace {'it' if tables == 1 else 'them'} to change that."
    if streams:
        told += f" {streams} {'table stream' if streams == 1 else 'table streams'} of theirs cannot be read any more."
    return told


def show_users(context: Context, statement: sql.ShowUsers) -> Result:
    rows = [
        (user.name, user.role, user.creator, user.created_at, user.last_login)
        for user in context.store.users.users()
        if matches(user.name, statement.like)
    ]
    return narrowed(context, from_rows(_USERS, rows, context.settings.timezone), statement.where, statement.limit)


# Grants


def grant(context: Context, statement: sql.GrantPrivilege) -> Result:
    """GRANT and REVOKE. What is granted must be there; what is revoked need not be any more."""
    user = _require_user(context, statement.user)
    named, exists = _object(context, statement.kind, statement.object)
    shown = f"{statement.privilege} on {statement.kind.lower()} {named}"
    if statement.revoke:
        gone = context.store.users.revoke(user.name, named, statement.privilege)
        if gone:
            _audit(context, "REVOKE", statement)
        return done(f"{shown} revoked from {user.name}." if gone else f"{user.name} had no {shown}; nothing was done.")
    if not exists:
        context.require_workspace(statement.object[: -1 if statement.kind == "SCHEMA" else -2])
        what = "SHOW SCHEMAS lists" if statement.kind == "SCHEMA" else "SHOW TABLES and SHOW TABLE STREAMS list"
        raise NotFound(f"There is no {statement.kind.lower()} {named}.", hint=f"{what} what there is.")
    context.store.users.grant(
        Grant(
            user=user.name,
            kind=statement.kind,
            object=named,
            privilege=statement.privilege,
            granted_by=context.user.name,
            granted_at=context.clock(),
        )
    )
    _audit(context, "GRANT", statement)
    note = " An administrator needs no grants." if user.role == "admin" else ""
    if user.role == "analyst" and statement.privilege == "ALL":
        note = " An analyst can only read with it."
    return done(f"{shown} granted to {user.name}.{note}")


def granted_to_creator(context: Context, workspace: str, schema: str) -> None:
    """Whoever has created a schema may use it. Only for a schema that this statement has made."""
    if context.user.is_admin:
        return
    named = _schema_name(context, workspace, schema)
    context.store.users.grant(
        Grant(
            user=context.user.name,
            kind="SCHEMA",
            object=named,
            privilege="ALL",
            granted_by=context.user.name,
            granted_at=context.clock(),
        )
    )


def show_grants(context: Context, statement: sql.ShowGrants) -> Result:
    if statement.kind is not None:
        named, _ = _object(context, statement.kind, statement.object)
        found = context.store.users.grants_on(statement.kind, named)
    else:
        user = _require_user(context, statement.user).name if statement.user else context.user.name
        found = context.store.users.grants(user)
    rows = [(held.user, held.privilege, held.kind, held.object, held.granted_by, held.granted_at) for held in found]
    return from_rows(_GRANTS, rows, context.settings.timezone)


def _object(context: Context, kind: Literal["SCHEMA", "TABLE"], parts: tuple[str, ...]) -> tuple[str, bool]:
    """The one name of what is granted, and whether it is there."""
    if kind == "SCHEMA":
        workspace, schema, database = context.database(parts)
        return _schema_name(context, workspace, schema), bool(context.spark.catalog.databaseExists(database))
    name = context.resolve(parts)
    own = context.name_of(name.database(context.home), name.table)
    return object_of(own), context.exists(own)


def _schema_name(context: Context, workspace: str, schema: str) -> str:
    """`sales__raw` is `sales.raw` where sales is a workspace."""
    own = context.name_of(TableName(workspace.lower(), schema.lower(), "").database(context.home), "")
    return schema_object(own.workspace, own.schema)


# Tokens


def create_token(context: Context, statement: sql.CreateToken) -> Result:
    """Prints the token, once: nobody can read it anywhere later."""
    _refuse_token(context, "make other tokens")
    user = _require_user(context, context.user.name)
    text, digest = tokens.new()
    now = context.clock()
    expires = now + timedelta(days=statement.days or _TOKEN_DAYS)
    context.store.users.add_token(
        ApiToken(
            id=uuid.uuid4().hex,
            user=user.name,
            name=statement.name,
            digest=digest,
            role=statement.role,
            created_at=now,
            expires_at=expires,
        )
    )
    _audit(context, "CREATE_TOKEN", statement)
    return from_rows(_NEW_TOKEN, [(statement.name, text, expires)], context.settings.timezone)


def drop_token(context: Context, statement: sql.DropToken) -> Result:
    owner = statement.user or context.user.name
    if not context.store.users.drop_token(owner, statement.name):
        raise NotFound(f"{owner} has no token '{statement.name}'.", hint="SHOW TOKENS lists those that there are.")
    _audit(context, "DROP_TOKEN", statement)
    return done(f"Token '{statement.name}' dropped: it opens nothing any more.")


def show_tokens(context: Context, statement: sql.ShowTokens) -> Result:
    """One's own; an administrator's list has everybody's."""
    owner = None if context.user.is_admin else context.user.name
    rows = [
        (token.name, token.user, token.created_at, token.expires_at, token.last_used, token.role)
        for token in context.store.users.tokens(owner)
    ]
    return narrowed(context, from_rows(_TOKENS, rows, context.settings.timezone), statement.where, statement.limit)


def _refuse_token(context: Context, what: str) -> None:
    """A token that leaks must not turn into something that outlives it."""
    if context.user.by_token:
        raise Forbidden(f"A token cannot be used to {what}.", hint="Log in with your password for that.")


def _require_user(context: Context, name: str) -> User:
    user = context.store.users.user(name)
    if user is None:
        raise NotFound(f"There is no user {name.lower()}.", hint="SHOW USERS lists them.")
    return user


def _audit(context: Context, action: str, statement: sql.Statement) -> None:
    entry = AuditEntry(
        at=context.clock(), user=context.user.name, action=action, detail=masked_sql(statement.text.strip())
    )
    context.store.users.audit(entry)
