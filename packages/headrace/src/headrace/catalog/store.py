"""The operations database: definitions, leases, intents and history, on SQLite or PostgreSQL.

Each method is one transaction. SQLite serialises writers by BEGIN IMMEDIATE; on PostgreSQL every transaction that
touches a table's lease or intents first locks that table's row, always in this order, so that none can deadlock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any, Protocol, get_args

from sqlalchemy import Connection, Select, and_, case, delete, exists, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import aliased

from headrace.catalog.alerts import AlertStore, IncidentStore
from headrace.catalog.clusters import ClusterStore
from headrace.catalog.database import PATIENCE_SECONDS, Database
from headrace.catalog.jobs import JobStore
from headrace.catalog.loads import LoadStore
from headrace.catalog.models import IntentRow, LeaseRow, RefreshRow, TableRow, WorkspaceRow, moment, refresh_values, utc
from headrace.catalog.paging import newest_first
from headrace.catalog.records import SKIPPED, WAITING, DynamicTable, Intent, RefreshRecord, State
from headrace.catalog.schedules import MarkStore
from headrace.catalog.streams import StreamStore
from headrace.catalog.tasks import RunStore, TaskStore
from headrace.catalog.users import UserStore
from headrace.errors import AlreadyExists, Bug, NotFound, RefreshRunning, UserError
from headrace.names import TableName
from headrace.plan.nodes import Frozen

KEPT_INTENTS = 100
FINISHED: tuple[State, ...] = ("SUCCEED", "FAILED")
STATEMENT, FOLD = "statement", "fold"
"""How the owner of a lease ends that is no refresh."""
UNFINISHED: tuple[State, ...] = tuple(state for state in get_args(State) if state not in FINISHED)

_HISTORY_KEPT = timedelta(days=90)
_IDLE_KEPT = timedelta(days=1)
_WORKSPACE = re.compile(r"[A-Za-z0-9]+(_[A-Za-z0-9]+)*")


class Lease(Frozen):
    """Who refreshes a table now. Whoever holds a smaller `fencing` number has lost it."""

    table_id: str
    owner: str
    fencing: int
    acquired_at: datetime
    expires_at: datetime


class CatalogReader(Protocol):
    """What a part of the program that only looks may use."""

    streams: StreamStore

    def tables(self) -> list[DynamicTable]: ...
    def table(self, name: TableName) -> DynamicTable | None: ...
    def table_by_id(self, table_id: str) -> DynamicTable | None: ...
    def lease(self, table_id: str) -> Lease | None: ...
    def intent(self, table_id: str, sequence: int) -> Intent | None: ...
    def intents(self, table_id: str, settled: bool | None = None) -> list[Intent]: ...
    def history(self, limit: int | None = None, table_id: str | None = None) -> list[RefreshRecord]: ...
    def refreshes_with_changes(self, table_id: str, limit: int) -> list[RefreshRecord]: ...
    def refresh(self, job_id: str) -> RefreshRecord | None: ...
    def unfinished(self) -> list[RefreshRecord]: ...
    def workspaces(self) -> tuple[str, ...]: ...
    def vclusters(self) -> tuple[str, ...]: ...
    def has_vcluster(self, name: str) -> bool: ...


class Store(CatalogReader):
    """Reads and writes; shared by all threads of a process. Timestamps are aware, and come back in UTC."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.streams = StreamStore(database)
        self.clusters = ClusterStore(database)
        self.jobs = JobStore(database)
        self.users = UserStore(database)
        self.loads = LoadStore(database)
        self.marks = MarkStore(database)
        self.tasks = TaskStore(database)
        self.task_runs = RunStore(database)
        self.alerts = AlertStore(database)
        self.incidents = IncidentStore(database)
        self._put_table = database.upsert(TableRow, keep=("fence",))
        self._put_lease = database.upsert(LeaseRow)
        self._put_intent = database.upsert(IntentRow)
        self._put_refresh = database.upsert(RefreshRow)
        # A late "it runs now" must not reopen what has ended.
        self._put_unfinished = database.upsert(RefreshRow, only_if=RefreshRow.state.in_(UNFINISHED))

    @classmethod
    def open(cls, url: str, *, patience: float = PATIENCE_SECONDS) -> Store:
        """Connect, creating or migrating the schema first. `patience` is how many seconds a locked or vanished
        database is waited for, later on; opening itself waits only for locks."""
        return cls(Database.open(url, patience=patience))

    def close(self) -> None:
        self._database.close()

    # ---- dynamic tables

    def tables(self) -> list[DynamicTable]:
        """All of them, by name."""
        return self._definitions(
            select(TableRow.definition).order_by(TableRow.workspace, TableRow.schema_name, TableRow.name)
        )

    def table(self, name: TableName) -> DynamicTable | None:
        return next(iter(self._definitions(select(TableRow.definition).where(_named(name)))), None)

    def table_by_id(self, table_id: str) -> DynamicTable | None:
        return next(iter(self._definitions(select(TableRow.definition).where(TableRow.id == table_id))), None)

    def put_table(self, table: DynamicTable) -> None:
        """Insert, or update by id; its lease and fencing number stay."""

        def work(connection: Connection) -> None:
            _require_free(connection, table)
            connection.execute(self._put_table, _row(table))

        try:
            self._database.write(work)
        except IntegrityError:  # PostgreSQL: another process took the name after we looked.
            raise _taken(table) from None

    def change_table(self, table_id: str, change: Callable[[DynamicTable], DynamicTable]) -> DynamicTable:
        """The definition as `change` makes it from the present one, in one transaction: what another changes meanwhile
        is not lost."""
        found = select(TableRow.definition).where(TableRow.id == table_id)
        put = update(TableRow).where(TableRow.id == table_id)

        def work(connection: Connection) -> DynamicTable:
            self._lock_table(connection, table_id)
            text = connection.execute(found).scalar()
            if text is None:
                raise dropped(table_id)
            present = utc(DynamicTable.model_validate_json(text))
            changed = change(present)
            if changed.table_name != present.table_name:
                _require_free(connection, changed)
            connection.execute(put.values(_row(changed)))
            return changed

        return self._database.write(work)

    def drop_table(self, table_id: str) -> None:
        """Forget the definition, its lease and its intents; its history stays."""
        self._database.write(lambda connection: connection.execute(delete(TableRow).where(TableRow.id == table_id)))

    # ---- leases

    def acquire_lease(self, table_id: str, owner: str, seconds: float, now: datetime) -> int:
        """Take the table's lease and return its fencing number; a lease that has run out is taken over."""
        now = moment(now)
        # At least the time in milliseconds: so numbers also grow when the database was deleted or restored from a
        # backup, or the table dropped and put back.
        floor = int(now.timestamp() * 1000)
        next_fence = case((TableRow.fence >= floor, TableRow.fence + 1), else_=floor)
        take = update(TableRow).where(TableRow.id == table_id).values(fence=next_fence).returning(TableRow.fence)

        def work(connection: Connection) -> int:
            fencing = connection.execute(take).scalar()
            if fencing is None:
                raise dropped(table_id)
            held = self._read_lease(connection, table_id)
            if held is not None and held.expires_at > now:
                is_refresh = not held.owner.endswith((f"/{STATEMENT}", f"/{FOLD}"))
                what = "A refresh of this table is running" if is_refresh else "This table is being changed or folded"
                raise RefreshRunning(
                    f"{what}: {held.owner}, since {_shown(held.acquired_at)}, "
                    f"with a lease until {_shown(held.expires_at)}.",
                    hint="Wait for it to end. If its process is gone, the lease runs out by itself.",
                )
            values = {"table_id": table_id, "owner": owner, "fencing": fencing, "acquired_at": now}
            connection.execute(self._put_lease, {**values, "expires_at": now + timedelta(seconds=seconds)})
            return int(fencing)

        return self._database.write(work)

    def renew_lease(self, table_id: str, fencing: int, seconds: float, now: datetime) -> bool:
        """False when another has taken the lease over. One that ran out but was not taken is still ours."""
        renew = (
            update(LeaseRow)
            .where(LeaseRow.table_id == table_id, LeaseRow.fencing == fencing)
            .values(expires_at=moment(now) + timedelta(seconds=seconds))
        )
        return self._database.write(lambda connection: connection.execute(renew).rowcount == 1)

    def release_lease(self, table_id: str, fencing: int) -> None:
        """Does nothing when another has taken it over."""
        self._database.write(lambda connection: connection.execute(_release(table_id, fencing)))

    def lease(self, table_id: str) -> Lease | None:
        """The lease as it stands, run out or not."""
        return self._database.read(lambda connection: self._read_lease(connection, table_id))

    # ---- intents

    def write_intent(self, intent: Intent, fencing: int) -> None:
        """Write or replace the intent, provided that the lease with this number still stands."""
        values = {
            "table_id": intent.table_id,
            "sequence": intent.sequence,
            "job_id": intent.job_id,
            "payload": intent.model_dump_json(exclude={"settled"}),
            "settled": intent.settled,
        }

        def work(connection: Connection) -> None:
            self._lock_table(connection, intent.table_id)
            held = self._read_lease(connection, intent.table_id)
            if held is None or held.fencing != fencing:
                by = f"{held.owner} has held it since {_shown(held.acquired_at)}" if held else "nobody holds it now"
                raise RefreshRunning(
                    f"This refresh has lost the table's lease: {by}.",
                    hint="Nothing was changed. Refresh again; raise lease_seconds if this machine often stalls.",
                )
            connection.execute(self._put_intent, values)

        self._database.write(work)

    def intent(self, table_id: str, sequence: int) -> Intent | None:
        found = self._intents(_select_intents(table_id).where(IntentRow.sequence == sequence))
        return found[0] if found else None

    def intents(self, table_id: str, settled: bool | None = None) -> list[Intent]:
        """By sequence number, oldest first."""
        wanted = _select_intents(table_id).order_by(IntentRow.sequence)
        return self._intents(wanted if settled is None else wanted.where(IntentRow.settled.is_(settled)))

    def settle(self, table_id: str, sequence: int) -> None:
        """Mark that the intent's commit is known to be in the table."""
        self._database.write(lambda connection: self._settle(connection, table_id, sequence))

    def forget_intent(self, table_id: str, sequence: int) -> None:
        forget = delete(IntentRow).where(IntentRow.table_id == table_id, IntentRow.sequence == sequence)

        def work(connection: Connection) -> None:
            self._lock_table(connection, table_id)
            connection.execute(forget)

        self._database.write(work)

    # ---- refresh history

    def start_refresh(self, record: RefreshRecord) -> None:
        """Write or replace the record of an unfinished refresh; a finished one is left as it is."""
        if record.state in FINISHED:
            raise Bug(f"start_refresh was given the finished refresh {record.job_id}.")
        values = refresh_values(record)
        self._database.write(lambda connection: connection.execute(self._put_unfinished, values))

    def finish_refresh(
        self,
        record: RefreshRecord,
        *,
        settle: tuple[str, int] | None = None,
        release: tuple[str, int] | None = None,
    ) -> None:
        """Write the finished record and, in the same transaction, settle the intent (table id, sequence) and release
        the lease (table id, fencing number). A lease lost meanwhile is left to its new holder."""
        if record.state not in FINISHED:
            raise Bug(f"finish_refresh was given the unfinished refresh {record.job_id} ({record.state}).")
        values = refresh_values(record)

        def work(connection: Connection) -> None:
            for table_id in sorted({pair[0] for pair in (settle, release) if pair is not None}):
                self._lock_table(connection, table_id)
            connection.execute(self._put_refresh, values)
            if settle is not None:
                self._settle(connection, *settle)
            if release is not None:
                connection.execute(_release(*release))

        self._database.write(work)

    def record_no_data(self, record: RefreshRecord) -> None:
        """Record a refresh that found nothing new, in one transaction and without a lease.

        None is needed: such a refresh writes no data, and "the contents stand at the sources' newest versions" was
        true at the instant it looked, whoever else refreshes the table before or after.
        """
        if record.refresh_mode != "NO_DATA" or record.state != "SUCCEED":
            raise Bug(f"record_no_data was given the refresh {record.job_id} ({record.refresh_mode}, {record.state}).")
        self.finish_refresh(record)

    def history(self, limit: int | None = None, table_id: str | None = None) -> list[RefreshRecord]:
        """Newest first, by start time."""
        wanted = select(RefreshRow.payload).order_by(RefreshRow.start_time.desc(), RefreshRow.job_id.desc())
        if table_id is not None:
            wanted = wanted.where(RefreshRow.table_id == table_id)
        return self._refreshes(wanted if limit is None else wanted.limit(limit))

    def refreshes_with_changes(self, table_id: str, limit: int) -> list[RefreshRecord]:
        """The newest refreshes of a table that did something, newest first."""
        wanted = (
            select(RefreshRow.payload)
            .where(RefreshRow.table_id == table_id, RefreshRow.state == "SUCCEED", ~_found_nothing(RefreshRow))
            .order_by(RefreshRow.start_time.desc(), RefreshRow.job_id.desc())
        )
        return self._refreshes(wanted.limit(limit))

    def history_pages(self, size: int) -> Iterator[list[RefreshRecord]]:
        """All of the history, newest first, so many at a time."""
        columns = (RefreshRow.start_time, RefreshRow.job_id)
        wanted = select(RefreshRow.payload)
        return newest_first(wanted, columns, self._refreshes, lambda each: (each.start_time, each.job_id), size)

    def latest_refreshes(self, *, took_all: bool = False) -> dict[str, RefreshRecord]:
        """The newest refresh of each table, by the table's id; or the newest that took all there was."""
        # The index has each table's newest first: one step for each, however long the history is; of a table that
        # waits for others, one for each refresh of the last day at most.
        other = aliased(RefreshRow)
        newest = select(other.job_id).where(other.table_id == TableRow.id)
        newest = newest.where(_took_all(other)) if took_all else newest
        newest = newest.order_by(other.start_time.desc(), other.job_id.desc()).limit(1)
        wanted = select(RefreshRow.payload).join(TableRow, RefreshRow.job_id == newest.scalar_subquery())
        return {record.table_id: record for record in self._refreshes(wanted)}

    def refresh(self, job_id: str) -> RefreshRecord | None:
        return next(iter(self._refreshes(select(RefreshRow.payload).where(RefreshRow.job_id == job_id))), None)

    def unfinished(self) -> list[RefreshRecord]:
        """Refreshes that have not ended, oldest first: after a crash, those to look into."""
        return self._refreshes(
            select(RefreshRow.payload)
            .where(RefreshRow.state.in_(UNFINISHED))
            .order_by(RefreshRow.start_time, RefreshRow.job_id)
        )

    def prune_history(self, before: datetime) -> int:
        """Delete finished refreshes that started before this time; returns how many."""
        old = delete(RefreshRow).where(RefreshRow.start_time < moment(before), RefreshRow.state.in_(FINISHED))
        return self._database.write(lambda connection: connection.execute(old).rowcount)

    def prune(self, now: datetime, jobs: timedelta) -> None:
        """Delete what is old: jobs and runs of tasks after `jobs`, refreshes that found nothing to do or waited after a
        day, all others after a quarter of a year."""
        self.jobs.prune(now - jobs)
        self.task_runs.prune(now - jobs)
        self.prune_history(now - _HISTORY_KEPT)
        newer = aliased(RefreshRow)
        followed = exists().where(newer.table_id == RefreshRow.table_id, newer.start_time > RefreshRow.start_time)
        idle = delete(RefreshRow).where(
            # The newest that took all tells how far the table is behind, the newest that waited what it waits for.
            or_(followed.where(_took_all(newer)), and_(_waits(RefreshRow), followed.where(_waits(newer)))),
            RefreshRow.start_time < moment(now - _IDLE_KEPT),
            RefreshRow.state == "SUCCEED",
            RefreshRow.payload.contains('"refresh_mode":"NO_DATA"', autoescape=True),
            ~_was_skipped(RefreshRow),
        )
        self._database.write(lambda connection: connection.execute(idle))

    # ---- workspaces and virtual clusters

    def workspaces(self) -> tuple[str, ...]:
        return self._names(select(WorkspaceRow.name).order_by(WorkspaceRow.name))

    def add_workspace(self, name: str) -> None:
        """Add it, in lower case as names resolve; one that exists already is left alone."""
        if len(name) > 100 or not _WORKSPACE.fullmatch(name):
            raise UserError(
                f"'{name}' is no name for a workspace.",
                hint="Use letters and digits, with single underscores between them, at most 100 characters.",
            )
        add = self._database.insert(WorkspaceRow).on_conflict_do_nothing()
        self._database.write(lambda connection: connection.execute(add, {"name": name.lower()}))

    def vclusters(self) -> tuple[str, ...]:
        return self.clusters.names()

    def has_vcluster(self, name: str) -> bool:
        return self.clusters.named(name) is not None

    # ---- pieces of transactions

    def _lock_table(self, connection: Connection, table_id: str) -> None:
        if self._database.is_postgres:
            connection.execute(select(TableRow.id).where(TableRow.id == table_id).with_for_update())

    def _settle(self, connection: Connection, table_id: str, sequence: int) -> None:
        self._lock_table(connection, table_id)
        ours = IntentRow.table_id == table_id
        connection.execute(update(IntentRow).where(ours, IntentRow.sequence == sequence).values(settled=True))
        settled = select(IntentRow.sequence).where(ours, IntentRow.settled).order_by(IntentRow.sequence.desc())
        oldest_kept = settled.limit(1).offset(KEPT_INTENTS - 1).scalar_subquery()
        connection.execute(delete(IntentRow).where(ours, IntentRow.settled, IntentRow.sequence < oldest_kept))

    def _read_lease(self, connection: Connection, table_id: str) -> Lease | None:
        row = connection.execute(select(LeaseRow.__table__).where(LeaseRow.table_id == table_id)).one_or_none()
        return None if row is None else Lease(**row._mapping)

    def _definitions(self, wanted: Select[str]) -> list[DynamicTable]:
        rows = self._database.read(lambda connection: connection.execute(wanted).scalars().all())
        return [utc(DynamicTable.model_validate_json(row)) for row in rows]

    def _intents(self, wanted: Select[str, bool]) -> list[Intent]:
        rows = self._database.read(lambda connection: connection.execute(wanted).all())
        return [Intent.model_validate_json(row.payload).model_copy(update={"settled": row.settled}) for row in rows]

    def _refreshes(self, wanted: Select[str]) -> list[RefreshRecord]:
        rows = self._database.read(lambda connection: connection.execute(wanted).scalars().all())
        return [utc(RefreshRecord.model_validate_json(row)) for row in rows]

    def _names(self, wanted: Select[str]) -> tuple[str, ...]:
        return self._database.read(lambda connection: tuple(connection.execute(wanted).scalars()))


def dropped(table_id: str) -> NotFound:
    return NotFound(f"There is no dynamic table with id {table_id}.", hint="It may have been dropped.")


def _row(table: DynamicTable) -> dict[str, str]:
    return {
        "id": table.id,
        "workspace": table.workspace,
        "schema_name": table.schema_name,
        "name": table.name,
        "definition": utc(table).model_dump_json(),
    }


def _require_free(connection: Connection, table: DynamicTable) -> None:
    """No other table has its name."""
    other = connection.execute(select(TableRow.id).where(_named(table.table_name))).scalar()
    if other is not None and other != table.id:
        raise _taken(table)


def _taken(table: DynamicTable) -> AlreadyExists:
    return AlreadyExists(f"The table {table.table_name} exists already.", hint="Drop it or choose another name.")


def _named(name: TableName) -> Any:
    return (
        (TableRow.workspace == name.workspace) & (TableRow.schema_name == name.schema) & (TableRow.name == name.table)
    )


def _took_all(row: type[RefreshRow]) -> Any:
    """As the record's `took_all`."""
    return and_(row.state == "SUCCEED", ~_waits(row), ~_was_skipped(row))


def _found_nothing(row: type[RefreshRow]) -> Any:
    return row.payload.contains('"refresh_mode":"NO_DATA"', autoescape=True)


def _waits(row: type[RefreshRow]) -> Any:
    return row.payload.contains(f'"reason":"{WAITING}', autoescape=True)


def _was_skipped(row: type[RefreshRow]) -> Any:
    return row.payload.contains(f'"technique":"{SKIPPED}"', autoescape=True)


def _select_intents(table_id: str) -> Select[str, bool]:
    return select(IntentRow.payload, IntentRow.settled).where(IntentRow.table_id == table_id)


def _release(table_id: str, fencing: int) -> Any:
    return delete(LeaseRow).where(LeaseRow.table_id == table_id, LeaseRow.fencing == fencing)


def _shown(moment: datetime) -> str:
    return moment.isoformat(sep=" ", timespec="seconds")
