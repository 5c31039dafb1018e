"""About users, grants and tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from headrace.sql.statements.base import Parts, Statement

Role = Literal["admin", "operator", "developer", "analyst"]


@dataclass(frozen=True)
class CreateUser(Statement):
    name: str
    password: str = field(repr=False)
    role: Role = "analyst"
    if_not_exists: bool = False


@dataclass(frozen=True)
class AlterUser(Statement):
    """SET PASSWORD 'p' or SET ROLE r."""

    name: str
    password: str | None = field(default=None, repr=False)
    role: Role | None = None


@dataclass(frozen=True)
class DropUser(Statement):
    name: str
    if_exists: bool


@dataclass(frozen=True)
class ShowUsers(Statement):
    like: str | None = None
    where: str | None = None
    limit: int | None = None


@dataclass(frozen=True)
class GrantPrivilege(Statement):
    """GRANT, or REVOKE when `revoke`. `object` has one or two parts for a schema, one to three for a table."""

    privilege: Literal["SELECT", "ALL"]
    kind: Literal["SCHEMA", "TABLE"]
    object: Parts
    user: str
    revoke: bool = False


@dataclass(frozen=True)
class ShowGrants(Statement):
    """Of a user, or on an object. `user` is empty for one's own."""

    user: str = ""
    kind: Literal["SCHEMA", "TABLE"] | None = None
    object: Parts = ()


@dataclass(frozen=True)
class CreateToken(Statement):
    """`role` is what the token may do at most."""

    name: str
    days: int | None = None
    role: Role | None = None


@dataclass(frozen=True)
class DropToken(Statement):
    """`user` is whose it is; None for one's own."""

    name: str
    user: str | None = None


@dataclass(frozen=True)
class ShowTokens(Statement):
    where: str | None = None
    limit: int | None = None
