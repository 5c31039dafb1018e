from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from catalog.examples import NOW, a_grant, a_user, later
from headrace.catalog import users
from headrace.catalog.records import ApiToken, AuditEntry
from headrace.catalog.store import Store
from headrace.errors import AlreadyExists, NotAllowed, NotFound


def a_token(token_id: str = "1", user: str = "ann", name: str = "night job", **changes: Any) -> ApiToken:
    values = {"id": token_id, "user": user, "name": name, "digest": f"digest {token_id}", "created_at": NOW}
    return ApiToken(**{**values, **changes})


# ---- users


def test_round_trip(store: Store) -> None:
    user = a_user("Ann", "developer", creator="root", last_login=later(1))
    store.users.put(user, new=True)
    kept = user.model_copy(update={"name": "ann"})
    assert store.users.user("ANN") == kept
    store.users.put(a_user("aaron"), new=True)
    assert store.users.users() == [a_user("aaron"), kept]
    assert "hash" not in repr(kept).replace("password_hash", "")


def test_put_knows_new_from_old(store: Store) -> None:
    with pytest.raises(NotFound, match="no user ann"):
        store.users.put(a_user(), new=False)
    store.users.put(a_user(), new=True)
    with pytest.raises(AlreadyExists, match="user ann exists already"):
        store.users.put(a_user("ANN", password_hash="other"), new=True)
    assert store.users.user("ann") == a_user()
    store.users.put(a_user("ANN", "admin", password_hash="other"), new=False)
    assert store.users.user("ann") == a_user(role="admin", password_hash="other")
    assert store.users.count_admins() == 1


def test_changes_of_one_thing_leave_the_others(store: Store) -> None:
    store.users.put(a_user("root", "admin"), new=True)
    store.users.put(a_user(), new=True)
    store.users.set_password("Ann", "new")
    store.users.set_role("Ann", "developer")
    store.users.logged_in("Ann", later(5))
    assert store.users.user("ann") == a_user(role="developer", password_hash="new", last_login=later(5))
    for change in (
        lambda: store.users.set_password("bob", "x"),
        lambda: store.users.set_role("bob", "analyst"),
        lambda: store.users.logged_in("bob", NOW),
    ):
        with pytest.raises(NotFound, match="no user bob"):
            change()


def test_a_login_does_not_bring_an_old_password_back(store: Store) -> None:
    store.users.put(a_user("root", "admin"), new=True)
    store.users.put(a_user(), new=True)

    def work(number: int) -> None:
        if number % 2:
            store.users.logged_in("ann", later(number))
        else:
            store.users.set_role("ann", "developer" if number % 4 else "analyst")

    store.users.set_password("ann", "new")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(40)))
    assert (found := store.users.user("ann")) is not None
    assert found.password_hash == "new"
    assert found.last_login is not None


def test_the_last_administrator_stays(store: Store) -> None:
    store.users.put(a_user("root", "admin"), new=True)
    store.users.put(a_user(), new=True)
    for change in (
        lambda: store.users.drop("Root"),
        lambda: store.users.set_role("Root", "analyst"),
        lambda: store.users.put(a_user("Root"), new=False),
    ):
        with pytest.raises(NotAllowed, match="root is the last administrator"):
            change()
    store.users.put(a_user("root", "admin", password_hash="new"), new=False)
    store.users.set_role("ann", "admin")
    store.users.drop("root")
    assert [user.name for user in store.users.users()] == ["ann"]


def test_administrators_who_drop_each_other_leave_one(store: Store) -> None:
    names = [f"root{number}" for number in range(8)]
    for name in names:
        store.users.put(a_user(name, "admin"), new=True)

    def drop(name: str) -> bool:
        try:
            store.users.drop(name)
            return True
        except NotAllowed:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(drop, names)) == 7
    assert store.users.count_admins() == 1


def test_racing_for_a_name_one_wins(store: Store) -> None:
    def put(number: int) -> bool:
        try:
            store.users.put(a_user(password_hash=str(number)), new=True)
            return True
        except AlreadyExists:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(put, range(8))) == 1


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "x" * 5000, "' OR 1=1 --"])
def test_a_name_that_nobody_has(store: Store, name: str) -> None:
    store.users.put(a_user(), new=True)
    assert store.users.user(name) is None
    assert store.users.token_by_digest(name) is None


def test_dropping_takes_grants_and_tokens_along(store: Store) -> None:
    for name in ("ann", "bob"):
        store.users.put(a_user(name), new=True)
        store.users.grant(a_grant(name))
        store.users.add_token(a_token(name, name))
    store.users.audit(AuditEntry(at=NOW, user="ann", action="LOGIN", detail=""))
    store.users.drop("ANN")
    assert store.users.user("ann") is None
    assert store.users.grants("ann") == []
    assert store.users.token_by_digest("digest ann") is None
    assert store.users.grants("bob") == [a_grant("bob")]
    assert store.users.tokens() == [a_token("bob", "bob")]
    assert len(store.users.audited(10)) == 1
    with pytest.raises(NotFound):
        store.users.drop("ann")
    store.users.put(a_user(), new=True)
    assert store.users.grants("ann") == []


# ---- grants


def test_grants(store: Store) -> None:
    store.users.put(a_user(), new=True)
    table, schema = a_grant(), a_grant(name="main.public", privilege="ALL")
    for grant in (table, schema, a_grant("ANN", "MAIN.Public.ORDERS"), a_grant(privilege="ALL")):
        store.users.grant(grant)
    assert store.users.grants("Ann") == [schema, a_grant(privilege="ALL"), table]
    renewed = table.model_copy(update={"granted_by": "root", "granted_at": later(1)})
    store.users.grant(renewed)
    assert store.users.grants("ann")[-1] == renewed
    with pytest.raises(NotFound, match="no user bob"):
        store.users.grant(a_grant("bob"))


def test_revoke(store: Store) -> None:
    store.users.put(a_user(), new=True)
    assert not store.users.revoke("ann", "main.public.orders", "ALL")
    store.users.grant(a_grant())
    store.users.grant(a_grant(privilege="ALL"))
    store.users.grant(a_grant(name="main.public"))
    assert store.users.revoke("Ann", "Main.public.orders", "SELECT")
    assert not store.users.revoke("ann", "main.public.orders", "SELECT")
    assert [grant.privilege for grant in store.users.grants("ann")] == ["SELECT", "ALL"]
    store.users.grant(a_grant())
    assert store.users.revoke("ann", "main.public.orders", "ALL")
    assert store.users.grants("ann") == [a_grant(name="main.public")]


def test_grants_on_an_object(store: Store) -> None:
    for name in ("ann", "bob"):
        store.users.put(a_user(name), new=True)
    for grant in (a_grant("bob"), a_grant("ann", privilege="ALL"), a_grant("ann", name="main.public.other")):
        store.users.grant(grant)
    found = store.users.grants_on(a_grant().kind, a_grant().object.upper())
    assert [(grant.user, grant.privilege) for grant in found] == [("ann", "ALL"), ("bob", a_grant().privilege)]
    assert store.users.grants_on("SCHEMA", "main.nothing") == []


def test_grants_on_what_is_gone(store: Store) -> None:
    names = ["main.public", "main.public.a", "main.public.b", "main.public_2.a", "main.publicx", "main.public%.a"]
    for user in ("ann", "bob"):
        store.users.put(a_user(user), new=True)
        for name in names:
            store.users.grant(a_grant(user, name))
    assert store.users.drop_grants_on("TABLE", "MAIN.public.b") == 2
    assert store.users.drop_grants_on("TABLE", "main.public") == 0
    assert store.users.drop_grants_on("SCHEMA", "Main.Public") == 4
    left = {"main.public_2.a", "main.publicx", "main.public%.a"}
    assert {grant.object for user in ("ann", "bob") for grant in store.users.grants(user)} == left
    assert store.users.drop_grants_on("SCHEMA", "main.public_") == 0


# ---- tokens


def test_tokens(store: Store) -> None:
    for user in ("ann", "bob"):
        store.users.put(a_user(user), new=True)
    mine, other = a_token(expires_at=later(60)), a_token("2", "BOB")
    store.users.add_token(mine)
    store.users.add_token(other)
    store.users.add_token(a_token("3", name="a"))
    assert store.users.tokens("ANN") == [a_token("3", name="a"), mine]
    assert [token.id for token in store.users.tokens()] == ["3", "1", "2"]
    assert store.users.token_by_digest("digest 1") == mine
    assert store.users.token_by_digest("digest") is None
    assert "digest 1" not in repr(mine)
    with pytest.raises(AlreadyExists, match="ann has a token 'night job' already"):
        store.users.add_token(a_token("4"))
    with pytest.raises(NotFound, match="no user carl"):
        store.users.add_token(a_token("5", "carl"))
    assert not store.users.drop_token("bob", "a")
    assert store.users.drop_token("Ann", "a")
    assert not store.users.drop_token("ann", "a")
    assert [token.id for token in store.users.tokens()] == ["1", "2"]


def test_the_last_use_of_a_token_moves_forwards(store: Store) -> None:
    store.users.put(a_user(), new=True)
    store.users.add_token(a_token())
    for at, expected in ((later(5), later(5)), (later(3), later(5)), (later(6), later(6))):
        store.users.touch_token("1", at)
        assert store.users.token_by_digest("digest 1") == a_token(last_used=expected)
    store.users.touch_token("2", NOW)
    assert len(store.users.tokens()) == 1


# ---- audit log


def test_the_audit_log_keeps_its_order(store: Store) -> None:
    entries = [
        AuditEntry(at=later(-number), user="ann", address="::1", action="STATEMENT", detail=f"{number} ü\0'")
        for number in range(5)
    ]
    for entry in entries:
        store.users.audit(entry)
    assert store.users.audited(100) == entries[::-1]
    assert store.users.audited(2) == [entries[4], entries[3]]


def test_the_audit_log_is_cut_by_age(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "_PRUNED_AT_ONCE", 3)
    for number in range(10):
        store.users.audit(AuditEntry(at=later(number), user=f"u{number}", action="LOGIN", detail=""))
    assert store.users.prune_audit(later(0)) == 0
    assert store.users.prune_audit(later(6)) == 6
    assert [entry.user for entry in store.users.audited(100)] == ["u9", "u8", "u7", "u6"]
    assert store.users.prune_audit(later(100)) == 4
    assert store.users.prune_audit(later(100)) == 0
