"""Users, what they were granted, their API tokens and the audit log in the operations database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, func, select, update
from sqlalchemy.exc import IntegrityError

from headrace.catalog.database import Database
from headrace.catalog.models import AuditRow, FormerUserRow, GrantRow, TokenRow, UserRow, is_storable, moment, utc
from headrace.catalog.records import ApiToken, AuditEntry, Grant, Privilege, Role, User
from headrace.errors import AlreadyExists, NotAllowed, NotFound

_TOUCH_PATIENCE = 0.2
_PRUNED_AT_ONCE = 1000


class UserStore:
    """Each method is one transaction. Names of users and objects are kept in lower case; times come back in UTC."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._add = database.insert(UserRow).on_conflict_do_nothing().returning(UserRow.name)
        self._put_grant = database.upsert(GrantRow)
        self._add_former = database.insert(FormerUserRow).on_conflict_do_nothing()

    # ---- users

    def user(self, name: str) -> User | None:
        if not is_storable(name):
            return None
        wanted = select(UserRow.definition).where(UserRow.name == name.lower())
        row = self._database.read(lambda connection: connection.execute(wanted).scalar())
        return None if row is None else User.model_validate_json(row)

    def users(self) -> list[User]:
        """By name."""
        wanted = select(UserRow.definition).order_by(UserRow.name)
        rows = self._database.read(lambda connection: connection.execute(wanted).scalars().all())
        return [User.model_validate_json(row) for row in rows]

    def put(self, user: User, *, new: bool) -> None:
        """Add the user, or replace the one of this name, who must be there. The last administrator stays one.

        To change one thing there are methods of their own: what was read before may be out of date.
        """
        user = utc(user.model_copy(update={"name": user.name.lower()}))
        if new:
            values = _user_values(user)
            added = self._database.write(lambda connection: connection.execute(self._add, values).scalar())
            if added is None:
                raise AlreadyExists(
                    f"The user {user.name} exists already.", hint="Choose another name, or use ALTER USER."
                )
            return

        def work(connection: Connection) -> None:
            if user.role != "admin":
                _keep_an_admin(connection, user.name)
            _replace(connection, user.name, lambda _: user)

        self._database.write(work)

    def set_password(self, name: str, password_hash: str) -> None:
        """Only that: whatever else changes at the same moment stays changed. So too in the next two."""
        self._change(name, {"password_hash": password_hash})

    def set_role(self, name: str, role: Role) -> None:
        """The last administrator stays one."""
        self._change(name, {"role": role})

    def logged_in(self, name: str, at: datetime) -> None:
        """Note the time of a login."""
        self._change(name, {"last_login": moment(at)})

    def _change(self, name: str, changes: dict[str, Any]) -> None:
        def work(connection: Connection) -> None:
            if changes.get("role", "admin") != "admin":
                _keep_an_admin(connection, name.lower())
            _replace(connection, name.lower(), lambda user: user.model_copy(update=changes))

        self._database.write(work)

    def drop(self, name: str) -> None:
        """With the user go the grants and tokens; jobs, the audit log and the name stay. The last administrator stays
        too."""

        def work(connection: Connection) -> None:
            _keep_an_admin(connection, name.lower())
            if connection.execute(delete(UserRow).where(UserRow.name == name.lower())).rowcount != 1:
                raise _missing(name)
            connection.execute(self._add_former, {"name": name.lower()})

        self._database.write(work)

    def was_dropped(self, name: str) -> bool:
        """Whether there was a user of this name, who was dropped. Others who are no users made what is theirs with the
        lake's own files."""
        if not is_storable(name):
            return False
        wanted = select(FormerUserRow.name).where(FormerUserRow.name == name.lower())
        return self._database.read(lambda connection: connection.execute(wanted).scalar()) is not None

    def count_admins(self) -> int:
        wanted = select(func.count()).select_from(UserRow).where(UserRow.role == "admin")
        return self._database.read(lambda connection: connection.execute(wanted).scalar_one())

    # ---- grants

    def grants(self, user: str) -> list[Grant]:
        """By object, then privilege."""
        wanted = (
            select(GrantRow.payload)
            .where(GrantRow.user_name == user.lower())
            .order_by(GrantRow.object_name, GrantRow.kind, GrantRow.privilege)
        )
        rows = self._database.read(lambda connection: connection.execute(wanted).scalars().all())
        return [Grant.model_validate_json(row) for row in rows]

    def grants_on(self, kind: str, object_name: str) -> list[Grant]:
        """By user, then privilege."""
        wanted = (
            select(GrantRow.payload)
            .where(GrantRow.kind == kind, GrantRow.object_name == object_name.lower())
            .order_by(GrantRow.user_name, GrantRow.privilege)
        )
        rows = self._database.read(lambda connection: connection.execute(wanted).scalars().all())
        return [Grant.model_validate_json(row) for row in rows]

    def grant(self, grant: Grant) -> None:
        """A grant that exists already is renewed."""
        grant = utc(grant.model_copy(update={"user": grant.user.lower(), "object": grant.object.lower()}))
        values = {
            "user_name": grant.user,
            "kind": grant.kind,
            "object_name": grant.object,
            "privilege": grant.privilege,
            "payload": grant.model_dump_json(),
        }
        try:
            self._database.write(lambda connection: connection.execute(self._put_grant, values))
        except IntegrityError:  # The user is a foreign key, and nothing else here can fail so.
            raise _missing(grant.user) from None

    def revoke(self, user: str, object_name: str, privilege: Privilege) -> bool:
        """Whether there was something to take away. ALL takes SELECT with it; SELECT leaves an ALL as it is."""
        gone = delete(GrantRow).where(GrantRow.user_name == user.lower(), GrantRow.object_name == object_name.lower())
        if privilege != "ALL":
            gone = gone.where(GrantRow.privilege == privilege)
        return self._database.write(lambda connection: connection.execute(gone).rowcount > 0)

    def drop_grants_on(self, kind: str, object_name: str) -> int:
        """For an object that is gone, and for the tables of a schema that is gone; returns how many there were."""
        name = object_name.lower()
        on = (GrantRow.kind == kind) & (GrantRow.object_name == name)
        if kind == "SCHEMA":
            on |= (GrantRow.kind == "TABLE") & GrantRow.object_name.startswith(f"{name}.", autoescape=True)
        return self._database.write(lambda connection: connection.execute(delete(GrantRow).where(on)).rowcount)

    # ---- tokens

    def tokens(self, user: str | None = None) -> list[ApiToken]:
        """By user and name."""
        wanted = select(TokenRow.payload).order_by(TokenRow.user_name, TokenRow.name)
        if user is not None:
            wanted = wanted.where(TokenRow.user_name == user.lower())
        rows = self._database.read(lambda connection: connection.execute(wanted).scalars().all())
        return [ApiToken.model_validate_json(row) for row in rows]

    def token_by_digest(self, digest: str) -> ApiToken | None:
        """Run out or not."""
        if not is_storable(digest):
            return None
        wanted = select(TokenRow.payload).where(TokenRow.digest == digest)
        row = self._database.read(lambda connection: connection.execute(wanted).scalar())
        return None if row is None else ApiToken.model_validate_json(row)

    def add_token(self, token: ApiToken) -> None:
        token = utc(token.model_copy(update={"user": token.user.lower()}))
        values = {
            "id": token.id,
            "user_name": token.user,
            "name": token.name,
            "digest": token.digest,
            "payload": token.model_dump_json(),
        }

        def work(connection: Connection) -> None:
            owner = select(UserRow.name).where(UserRow.name == token.user).with_for_update(read=True)
            if connection.execute(owner).scalar() is None:
                raise _missing(token.user)
            connection.execute(self._database.insert(TokenRow), values)

        try:
            self._database.write(work)
        except IntegrityError:
            raise AlreadyExists(
                f"The user {token.user} has a token '{token.name}' already.",
                hint="Choose another name, or drop it first with DROP TOKEN.",
            ) from None

    def drop_token(self, user: str, name: str) -> bool:
        """Whether there was one."""
        gone = delete(TokenRow).where(TokenRow.user_name == user.lower(), TokenRow.name == name)
        return self._database.write(lambda connection: connection.execute(gone).rowcount == 1)

    def touch_token(self, token_id: str, at: datetime) -> None:
        """Note when a token was used; one that was dropped meanwhile is left dropped. A database that is busy is not
        waited for: nobody who reads is to stand behind those who write."""
        seen = moment(at)
        ours = TokenRow.id == token_id

        def work(connection: Connection) -> None:
            found = connection.execute(select(TokenRow.payload).where(ours).with_for_update()).scalar()
            if found is None:
                return
            token = ApiToken.model_validate_json(found)
            if token.last_used is None or token.last_used < seen:
                payload = token.model_copy(update={"last_used": seen}).model_dump_json()
                connection.execute(update(TokenRow).where(ours).values(payload=payload))

        self._database.write(work, patience=_TOUCH_PATIENCE)

    # ---- audit log

    def audit(self, entry: AuditEntry) -> None:
        """Add a line. Nothing changes one, and only age deletes it."""
        values = {"payload": utc(entry).model_dump_json()}
        self._database.write(lambda connection: connection.execute(self._database.insert(AuditRow), values))

    def prune_audit(self, before: datetime) -> int:
        """Delete lines that are older, the oldest first, up to the first that is not; returns how many."""
        before, deleted = moment(before), 0
        oldest = select(AuditRow.id, AuditRow.payload).order_by(AuditRow.id).limit(_PRUNED_AT_ONCE)

        def work(connection: Connection) -> tuple[int, bool]:
            rows = connection.execute(oldest).all()
            young = (
                number for number, row in enumerate(rows) if AuditEntry.model_validate_json(row.payload).at >= before
            )
            count = next(young, len(rows))
            if count:
                connection.execute(delete(AuditRow).where(AuditRow.id <= rows[count - 1].id))
            return count, count == _PRUNED_AT_ONCE

        more = True
        while more:
            count, more = self._database.write(work)
            deleted += count
        return deleted

    def audited(self, limit: int) -> list[AuditEntry]:
        """Newest first."""
        wanted = select(AuditRow.payload).order_by(AuditRow.id.desc()).limit(limit)
        rows = self._database.read(lambda connection: connection.execute(wanted).scalars().all())
        return [AuditEntry.model_validate_json(row) for row in rows]


def _replace(connection: Connection, name: str, change: Callable[[User], User]) -> None:
    """Change a user's record as it stands now, whoever changed it since it was read."""
    found = connection.execute(select(UserRow.definition).where(UserRow.name == name).with_for_update()).scalar()
    if found is None:
        raise _missing(name)
    values = _user_values(change(User.model_validate_json(found)))
    connection.execute(update(UserRow).where(UserRow.name == name).values(**values))


def _keep_an_admin(connection: Connection, name: str) -> None:
    """Refuse when this is the only administrator. All of them are locked, always in the same order: of two who drop
    each other at the same moment, one must stay."""
    wanted = select(UserRow.name).where(UserRow.role == "admin").order_by(UserRow.name).with_for_update()
    if list(connection.execute(wanted).scalars()) == [name]:
        raise NotAllowed(
            f"{name} is the last administrator.",
            hint="Make another one first: CREATE USER name WITH PASSWORD 'p' ROLE admin.",
        )


def _missing(name: str) -> NotFound:
    return NotFound(f"There is no user {name}.", hint="SHOW USERS lists them.")


def _user_values(user: User) -> dict[str, Any]:
    return {"name": user.name, "role": user.role, "definition": user.model_dump_json()}
