"""How far the schedule of each dynamic table and task has come, in the operations database.

A tick belongs to whoever moves the mark to it: a mark moves forward only, and at one tick from CLAIMED to its end.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, and_, delete, or_, select

from headrace.catalog.database import Database
from headrace.catalog.models import MarkRow, RefreshRow, refresh_values, utc
from headrace.catalog.records import Mark, RefreshRecord
from headrace.errors import Bug

_AT_ONCE = 500
"""So many ids in one statement: both databases limit them."""


class MarkStore:
    """Each method is one transaction. Times come back in UTC."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._put = database.upsert(MarkRow)
        new = database.insert(MarkRow).excluded
        self._move = database.upsert(
            MarkRow,
            only_if=or_(
                MarkRow.tick < new.tick,
                and_(MarkRow.tick == new.tick, MarkRow.state == "CLAIMED", new.state != "CLAIMED"),
            ),
        )
        self._put_refresh = database.upsert(RefreshRow)

    def all(self) -> list[Mark]:
        """By the object's id."""
        wanted = select(MarkRow.payload).order_by(MarkRow.object_id)
        rows = self._database.read(lambda connection: connection.execute(wanted).scalars().all())
        return [Mark.model_validate_json(row) for row in rows]

    def claim(self, marks: Sequence[Mark]) -> frozenset[str]:
        """Take the ticks of these marks. Gives the ids of those objects whose tick is now the caller's; the others have
        a mark there or further on, of which nothing is changed."""
        if any(mark.state != "CLAIMED" for mark in marks):
            raise Bug("A tick is claimed with a mark that is CLAIMED.")
        return self._database.write(lambda connection: self._moved(connection, marks))

    def end(self, marks: Sequence[Mark], *, suspends: str | None = None) -> frozenset[str]:
        """Give ticks their ends, whether they were claimed before or need not be any more. Gives the ids of those
        objects whose marks are now as the caller wants them. `suspends` is why these refreshes have suspended their
        tables: in the same transaction their records say so, too."""

        def work(connection: Connection) -> frozenset[str]:
            for mark in marks if suspends is not None else ():
                self._note_suspension(connection, mark, suspends)
            return self._moved(connection, marks)

        _require_ends(marks)
        return self._database.write(work)

    def _note_suspension(self, connection: Connection, mark: Mark, reason: str | None) -> None:
        wanted = select(RefreshRow.payload).where(RefreshRow.job_id == mark.job_id)
        text = connection.execute(wanted.where(RefreshRow.table_id == mark.object_id)).scalar()
        if text is not None:
            record = RefreshRecord.model_validate_json(text).model_copy(update={"suspended_reason": reason})
            connection.execute(self._put_refresh, refresh_values(record))

    def record_idle(self, records: Sequence[RefreshRecord], marks: Sequence[Mark]) -> frozenset[str]:
        """As `end`; and in the same transaction the refreshes that found nothing to do, or were not made, go into the
        history, each with its table's mark or not at all."""
        _require_ends(marks)
        for record in records:
            if record.refresh_mode != "NO_DATA" or record.state != "SUCCEED":
                raise Bug(f"The refresh {record.job_id} had something to do ({record.refresh_mode}, {record.state}).")

        def work(connection: Connection) -> frozenset[str]:
            moved = self._moved(connection, marks)
            rows = [refresh_values(record) for record in records if record.table_id in moved]
            if rows:
                connection.execute(self._put_refresh, rows)
            return moved

        return self._database.write(work)

    def reset(self, marks: Sequence[Mark]) -> None:
        """Put marks where they are wanted, also further back."""
        if marks:
            rows = [_values(mark) for mark in marks]
            self._database.write(lambda connection: connection.execute(self._put, rows))

    def drop(self, object_ids: Collection[str]) -> None:
        """Forget the marks of objects that are gone."""

        def work(connection: Connection) -> None:
            for part in _parts(sorted(object_ids)):
                connection.execute(delete(MarkRow).where(MarkRow.object_id.in_(part)))

        if object_ids:
            self._database.write(work)

    def _moved(self, connection: Connection, marks: Sequence[Mark]) -> frozenset[str]:
        if not marks:
            return frozenset()
        # In the order of their ids, so that two who write the same rows wait for each other and do not deadlock.
        rows = sorted((_values(mark) for mark in marks), key=lambda row: str(row["object_id"]))
        connection.execute(self._move, rows)
        wanted = {row["object_id"]: row["payload"] for row in rows}
        found: dict[str, str] = {}
        for part in _parts(list(wanted)):
            present = select(MarkRow.object_id, MarkRow.payload).where(MarkRow.object_id.in_(part))
            found |= {row.object_id: row.payload for row in connection.execute(present)}
        return frozenset(each for each, payload in wanted.items() if found.get(each) == payload)


def _require_ends(marks: Sequence[Mark]) -> None:
    if any(mark.state == "CLAIMED" for mark in marks):
        raise Bug("A tick does not end with a mark that is CLAIMED.")


def _parts(ids: list[str]) -> list[list[str]]:
    return [ids[start : start + _AT_ONCE] for start in range(0, len(ids), _AT_ONCE)]


def _values(mark: Mark) -> dict[str, Any]:
    mark = utc(mark)
    return {
        "object_id": mark.object_id,
        "tick": mark.tick,
        "state": mark.state,
        "payload": mark.model_dump_json(),
    }
