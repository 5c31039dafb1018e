"""Rows on their way into tables, in the operations database: batches that clients sent, and files that were copied."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Connection, bindparam, delete, func, select, update

from headrace.catalog.database import Database
from headrace.catalog.models import LoadRow, moment, utc
from headrace.catalog.records import Load
from headrace.errors import AlreadyExists

LoadKind = Literal["BATCH", "FILE"]
_AT_ONCE = 500
"""Keys in one question: databases have a limit."""


class LoadStore:
    """Each method is one transaction. Times come back in UTC."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._add = database.insert(LoadRow).on_conflict_do_nothing().returning(LoadRow.id)

    def add(self, load: Load) -> Load | None:
        """Write a new load. Where there is one with its key already, nothing is written, and that one returned."""
        values = _values(load)

        def work(connection: Connection) -> Load | None:
            if connection.execute(self._add, values).scalar() is not None:
                return None
            found = connection.execute(_with_key(load.table_id, load.kind, [load.key])).scalar()
            return load if found is None else _load(found)

        return self._database.write(work)

    def add_all(self, loads: Sequence[Load]) -> None:
        """Write new loads, or none of them when one has a key that is taken."""

        def work(connection: Connection) -> None:
            for load in loads:
                if connection.execute(self._add, _values(load)).scalar() is None:
                    raise AlreadyExists(
                        f"A file is being loaded, or was loaded, by another statement: {load.key}.", hint="Try again."
                    )

        self._database.write(work)

    def with_key(self, table_id: str, kind: LoadKind, key: str) -> Load | None:
        return self.with_keys(table_id, kind, [key]).get(key)

    def with_keys(self, table_id: str, kind: LoadKind, keys: Sequence[str]) -> dict[str, Load]:
        """The loads that have one of these keys, by key."""

        def work(connection: Connection) -> list[str]:
            found: list[str] = []
            for start in range(0, len(keys), _AT_ONCE):
                wanted = _with_key(table_id, kind, keys[start : start + _AT_ONCE])
                found += connection.execute(wanted).scalars().all()
            return found

        return {load.key: load for load in map(_load, self._database.read(work))}

    def of_paths(self, table_id: str, paths: Sequence[str]) -> dict[str, list[Load]]:
        """The files that were loaded from these paths, oldest first; only the paths that there are any of."""
        digests = [_digest(path) for path in paths]

        def work(connection: Connection) -> list[str]:
            found: list[str] = []
            for start in range(0, len(digests), _AT_ONCE):
                own = LoadRow.path_digest.in_(digests[start : start + _AT_ONCE])
                wanted = select(LoadRow.payload).where(LoadRow.table_id == table_id, own)
                found += connection.execute(wanted.order_by(LoadRow.received_at, LoadRow.id)).scalars().all()
            return found

        by_path: dict[str, list[Load]] = {}
        for load in map(_load, self._database.read(work)):
            by_path.setdefault(load.path, []).append(load)
        return by_path

    def rekey(self, load_id: str, key: str) -> None:
        """The file of a load has another key, though it is the same: somebody has touched it."""
        ours = LoadRow.id == load_id

        def work(connection: Connection) -> None:
            found = connection.execute(select(LoadRow.payload).where(ours).with_for_update()).scalar()
            if found is not None:
                payload = _load(found).model_copy(update={"key": key}).model_dump_json()
                connection.execute(update(LoadRow).where(ours).values(key_digest=_digest(key), payload=payload))

        self._database.write(work)

    def ids(self, wanted: Iterable[str]) -> dict[str, Load]:
        """Those of these ids that there are."""
        every = sorted(set(wanted))

        def work(connection: Connection) -> list[str]:
            found: list[str] = []
            for start in range(0, len(every), _AT_ONCE):
                some = every[start : start + _AT_ONCE]
                found += connection.execute(select(LoadRow.payload).where(LoadRow.id.in_(some))).scalars().all()
            return found

        return {load.id: load for load in map(_load, self._database.read(work))}

    def waiting(self, table_id: str | None = None, kind: LoadKind | None = None) -> list[Load]:
        """Those whose rows are not known to be in their table, oldest first."""
        wanted = select(LoadRow.payload).where(LoadRow.state == "RECEIVED").order_by(LoadRow.received_at, LoadRow.id)
        if table_id is not None:
            wanted = wanted.where(LoadRow.table_id == table_id)
        if kind is not None:
            wanted = wanted.where(LoadRow.kind == kind)
        rows = self._database.read(lambda connection: connection.execute(wanted).scalars().all())
        return [_load(row) for row in rows]

    def last_sequence(self, table_id: str, kind: LoadKind) -> int:
        """The largest number of a committed load of the table; 0 when there is none."""
        wanted = (
            select(LoadRow.payload)
            .where(LoadRow.table_id == table_id, LoadRow.kind == kind, LoadRow.state == "COMMITTED")
            .order_by(LoadRow.received_at.desc(), LoadRow.id.desc())
            .limit(_AT_ONCE)
        )
        rows = self._database.read(lambda connection: connection.execute(wanted).scalars().all())
        return max((_load(row).sequence or 0 for row in rows), default=0)

    def change(self, loads: Sequence[Load]) -> None:
        """Write what these are now, all or none. One that is committed stays so."""
        if not loads:
            return
        values = [_values(load) for load in loads]
        put = (
            update(LoadRow)
            .where(LoadRow.id == bindparam("of_id"), LoadRow.state == "RECEIVED")
            .values(state=bindparam("new_state"), payload=bindparam("new_payload"))
        )
        rows = [{"of_id": v["id"], "new_state": v["state"], "new_payload": v["payload"]} for v in values]
        # Through the table: a model's own way of changing many rows would ask for their keys.
        self._database.write(lambda connection: connection.execute(put, rows))

    def recount(self, load_id: str, *, rows: int, rejected: int, size: int, digest: str | None = None) -> Load | None:
        """A batch that waits has other rows now; what else is known of it stays. None when it does not wait."""
        waits = (LoadRow.id == load_id) & (LoadRow.state == "RECEIVED")

        def work(connection: Connection) -> Load | None:
            found = connection.execute(select(LoadRow.payload).where(waits).with_for_update()).scalar()
            if found is None:
                return None
            counts = {"rows": rows, "rejected": rejected, "bytes": size, "digest": digest}
            load = _load(found).model_copy(update=counts)
            connection.execute(update(LoadRow).where(waits).values(payload=load.model_dump_json()))
            return load

        return self._database.write(work)

    def forget(self, load_ids: Sequence[str]) -> None:
        """As if they had never come."""

        def work(connection: Connection) -> None:
            for start in range(0, len(load_ids), _AT_ONCE):
                some = load_ids[start : start + _AT_ONCE]
                connection.execute(delete(LoadRow).where(LoadRow.id.in_(some)))

        self._database.write(work)

    def prune(self, before: datetime) -> int:
        """Forget batches that were committed before this time; files are remembered for good. Returns how many."""
        # No batch is committed before it is received; those that waited long are few.
        wanted = select(LoadRow.payload).where(
            LoadRow.received_at < moment(before), LoadRow.state == "COMMITTED", LoadRow.kind == "BATCH"
        )
        found = map(_load, self._database.read(lambda connection: connection.execute(wanted).scalars().all()))
        old = [load.id for load in found if (load.committed_at or load.received_at) < before]
        if old:
            self.forget(old)
        return len(old)

    def count(self) -> int:
        return self._database.read(lambda connection: connection.execute(select(func.count(LoadRow.id))).scalar_one())


def _with_key(table_id: str, kind: LoadKind, keys: Sequence[str]) -> Any:
    digests = [_digest(key) for key in keys]
    return select(LoadRow.payload).where(
        LoadRow.table_id == table_id, LoadRow.kind == kind, LoadRow.key_digest.in_(digests)
    )


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _load(payload: str) -> Load:
    return utc(Load.model_validate_json(payload))


def _values(load: Load) -> dict[str, Any]:
    load = utc(load)
    return {
        "id": load.id,
        "table_id": load.table_id,
        "kind": load.kind,
        "key_digest": _digest(load.key),
        "path_digest": _digest(load.path) if load.kind == "FILE" else None,
        "state": load.state,
        "received_at": load.received_at,
        "payload": load.model_dump_json(),
    }
