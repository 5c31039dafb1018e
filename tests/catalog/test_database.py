"""Opening, migrating and losing the operations database, mostly as seen by the Store that uses it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from catalog.examples import NOW, a_record, a_table
from headrace.catalog import migrations
from headrace.catalog.database import Database
from headrace.catalog.loads import LoadStore
from headrace.catalog.models import Model
from headrace.catalog.records import AuditEntry, Load, VCluster
from headrace.catalog.store import Store
from headrace.errors import BadSetting, EnvironmentFault, HeadraceError


def scalar(database: Database, statement: str) -> Any:
    return database.read(lambda connection: connection.execute(text(statement)).scalar())


def execute(database: Database, statement: str) -> None:
    database.write(lambda connection: connection.execute(text(statement)))


# ---- migrations


def test_models_and_migrated_schema_agree(database: Database) -> None:
    options = {"compare_type": True, "compare_server_default": True, "target_metadata": Model.metadata}

    def differences(connection: Connection) -> list[Any]:
        return compare_metadata(MigrationContext.configure(connection, opts=options), Model.metadata)

    assert database.read(differences) == []


def test_users_that_were_dropped_before_are_known(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "HEAD", "0005")
    before = Store.open(url)
    for action, detail in (
        ("DROP_USER", "DROP USER Ann"),
        ("DROP_USER", "drop user if exists `bob`;"),
        ("STATEMENT", "succeeded: DROP USER carol"),
    ):
        before.users.audit(AuditEntry(at=NOW, user="root", action=action, detail=detail))
    before.close()
    monkeypatch.undo()
    store = Store.open(url)
    assert [store.users.was_dropped(name) for name in ("ann", "BOB", "carol", "root")] == [True, True, False, False]
    store.close()


def test_loads_of_before_are_known_by_their_paths(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "HEAD", "0006")
    before = Database.open(url)
    for number in range(2):
        load = Load(
            id=f"l{number}", table_path="/t", table_id="t1", workspace="main", schema_name="public", name="t",
            kind="BATCH" if number else "FILE", key="1 2 - /in/a b.csv", state="COMMITTED", rows=1, received_at=NOW,
        )  # fmt: skip
        names = "id, table_id, kind, key_digest, state, received_at, payload"
        payload = json.dumps(load.model_dump(mode="json"))
        values = (load.id, "t1", load.kind, str(number), "COMMITTED", "2026-01-01 00:00:00", payload)
        execute(before, f"INSERT INTO loads ({names}) VALUES ({', '.join(map(repr, values))})")
    before.close()
    monkeypatch.undo()
    after = Database.open(url)
    found = LoadStore(after).of_paths("t1", ["/in/a b.csv"])
    assert [load.id for load in found["/in/a b.csv"]] == ["l0"]
    after.close()


def test_head_is_the_newest_script() -> None:
    assert ScriptDirectory(str(migrations.FOLDER)).get_current_head() == migrations.HEAD


def test_many_open_a_new_database_at_once(url: str) -> None:
    def open_one(_: int) -> tuple[str, ...]:
        store = Store.open(url)
        try:
            return store.vclusters()
        finally:
            store.close()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(open_one, range(8))) == {("default",)}


def test_clusters_of_an_older_schema_become_whole_records(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "HEAD", "0002")
    older = Database.open(url)
    assert scalar(older, "SELECT type FROM vclusters") == "GENERAL"
    older.close()
    monkeypatch.undo()
    store = Store.open(url)
    (cluster,) = store.clusters.all()
    assert cluster == VCluster(name="default", auto_suspend_seconds=0, created_at=cluster.created_at)
    assert abs(datetime.now(timezone.utc) - cluster.created_at) < timedelta(minutes=5)
    store.close()


def test_newer_schema_is_refused(database: Database, url: str) -> None:
    execute(database, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(EnvironmentFault, match=r"newer version.*9999") as caught:
        Store.open(url)
    assert caught.value.hint is not None
    assert "Upgrade" in caught.value.hint


def test_failed_migration_leaves_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = migrations.upgrade

    def half(connection: Any) -> None:
        real(connection)
        raise RuntimeError("killed here")

    monkeypatch.setattr(migrations, "upgrade", half)
    with pytest.raises(RuntimeError, match="killed here"):
        Store.open(url)
    monkeypatch.undo()
    store = Store.open(url)
    assert store.vclusters() == ("default",)
    store.close()


# ---- opening


def test_what_was_written_is_there_after_reopening(url: str) -> None:
    first = Store.open(url)
    first.put_table(a_table())
    first.close()
    second = Store.open(url)
    assert second.tables() == [a_table()]
    second.close()


@pytest.mark.parametrize("url", ["mysql://me:s3cret@host/x", "sqlite://", "sqlite:///:memory:", "nonsense", ""])
def test_unusable_url(url: str) -> None:
    with pytest.raises(BadSetting) as caught:
        Store.open(url)
    assert "s3cret" not in str(caught.value)


def test_unreachable_postgres_names_no_password() -> None:
    with pytest.raises(EnvironmentFault) as caught:
        Store.open("postgresql://me:s3cret@127.0.0.1:1/ops?sslpassword=s3cret")
    assert "127.0.0.1" in caught.value.message
    assert "***" in caught.value.message
    assert "s3cret" not in str(caught.value)
    assert caught.value.hint


def test_missing_postgres_database(postgres_url: str) -> None:
    with pytest.raises(EnvironmentFault, match="does not exist"):
        Store.open(postgres_url.replace("/t", "/no_such_", 1))


def test_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("hello, I am a text file " * 100)
    with pytest.raises(EnvironmentFault, match="not a database"):
        Store.open(f"sqlite:///{tmp_path}/x.db")


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentFault, match="cannot be made"):
        Store.open(f"sqlite:///{tmp_path}/file/ops/x.db")


def test_odd_characters_in_the_file_name(tmp_path: Path) -> None:
    folder = tmp_path / "a?b=c %20 @ü#'"
    Store.open(f"sqlite:///{folder}/x.db").close()
    assert (folder / "x.db").exists()


def test_sqlite_is_durable_and_concurrent(tmp_path: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path}/x.db")
    assert scalar(database, "PRAGMA journal_mode") == "wal"
    assert scalar(database, "PRAGMA synchronous") == 2
    assert scalar(database, "PRAGMA foreign_keys") == 1
    assert scalar(database, "PRAGMA busy_timeout") == 60000
    database.close()


def test_deleted_sqlite_file_is_made_again(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    store = Store.open(f"sqlite:///{file}")
    store.put_table(a_table())
    file.unlink()  # While open, so that its write-ahead log stays behind.
    again = Store.open(f"sqlite:///{file}")
    assert again.tables() == []
    assert again.vclusters() == ("default",)
    store.close()
    again.put_table(a_table())
    again.close()
    last = Store.open(f"sqlite:///{file}")
    assert last.tables() == [a_table()]
    last.close()


# ---- faults


def test_sqlite_locked_by_another_process(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    store = Store.open(f"sqlite:///{file}", patience=0.2)
    script = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); "
        "c.execute('BEGIN IMMEDIATE'); print('locked', flush=True); sys.stdin.read(); c.execute('ROLLBACK')"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "locked\n"
    assert store.tables() == []  # Readers are not held up.
    with pytest.raises(EnvironmentFault, match="locked") as caught:
        store.put_table(a_table())
    assert caught.value.hint is not None
    assert "Another program" in caught.value.hint
    patient = Store.open(f"sqlite:///{file}", patience=30)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(patient.put_table, a_table())
        other.communicate("")  # It lets go; the one that waits goes on.
        waiting.result(timeout=30)
    assert store.tables() == [a_table()]
    store.close()
    patient.close()


def test_waiting_for_others_and_for_sqlite_is_one_patience(tmp_path: Path) -> None:
    file = tmp_path / "x.db"
    store = Store.open(f"sqlite:///{file}", patience=2)
    blocker = sqlite3.connect(file, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")

    def tried() -> float:
        began = time.monotonic()
        with pytest.raises(EnvironmentFault):
            store.put_table(a_table())
        return time.monotonic() - began

    with ThreadPoolExecutor(6) as pool:
        waited = [found.result() for found in [pool.submit(tried) for _ in range(6)]]
    assert max(waited) < 3.5, "each in its turn, and none for longer than the first"
    assert min(waited) > 1.5
    blocker.rollback()
    blocker.close()
    store.put_table(a_table())
    assert store.tables() == [a_table()]
    store.close()


def test_who_has_little_patience_does_not_wait(tmp_path: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path / 'x.db'}", patience=60)
    blocker = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    with pytest.raises(EnvironmentFault, match="locked"):
        database.write(lambda connection: connection.execute(text("DELETE FROM workspaces")), patience=0.1)
    assert time.monotonic() - began < 10
    blocker.rollback()
    blocker.close()
    database.close()


def test_postgres_connections_cut_between_transactions(postgres_url: str) -> None:
    store = Store.open(postgres_url)
    store.put_table(a_table())
    killer = Database.open(postgres_url)
    execute(
        killer,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    assert store.tables() == [a_table()]
    store.close()
    killer.close()


def test_postgres_restarted(postgres: Any, postgres_url: str) -> None:
    patient, hasty = Store.open(postgres_url, patience=60), Store.open(postgres_url, patience=0.1)
    patient.put_table(a_table())
    postgres.stop()
    try:
        with pytest.raises(EnvironmentFault):
            hasty.tables()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(patient.acquire_lease, "t1", "me", 60, NOW)
            postgres.start()
            fencing = waiting.result(timeout=60)
    except BaseException:
        postgres.start()
        raise
    assert (lease := hasty.lease("t1")) is not None
    assert lease.fencing == fencing
    patient.close()
    hasty.close()


def test_errors_carry_no_statement(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/x.db")
    with sqlite3.connect(tmp_path / "x.db") as connection:
        connection.execute("DROP TABLE refreshes")
    with pytest.raises(HeadraceError) as caught:
        store.finish_refresh(a_record(error_message="c4nary"))
    assert "c4nary" not in str(caught.value)
    assert "INSERT" not in str(caught.value)
    store.close()
