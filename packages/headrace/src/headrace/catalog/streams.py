"""Table streams in the operations database. Offsets and readings move together, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, delete, func, select, update
from sqlalchemy.exc import IntegrityError

from headrace.catalog.database import Database
from headrace.catalog.models import ReadingRow, StreamRow
from headrace.catalog.records import Reading, StreamRange, TableStream
from headrace.errors import AlreadyExists, Bug
from headrace.names import TableName

A_PROGRAM = "a program"
"""Where rows went that no table got."""
KEPT_DAYS = 30
"""RESTORE looks among the readings of so many days for those that it undoes."""


class StreamStore:
    """Each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._put = database.upsert(StreamRow)
        self._put_reading = database.upsert(ReadingRow)

    def all(self) -> list[TableStream]:
        """By name."""
        wanted = select(StreamRow.definition).order_by(StreamRow.workspace, StreamRow.schema_name, StreamRow.name)
        return self._streams(wanted)

    def named(self, name: TableName) -> TableStream | None:
        return next(iter(self._streams(select(StreamRow.definition).where(_named(name)))), None)

    def by_id(self, stream_id: str) -> TableStream | None:
        return next(iter(self._streams(select(StreamRow.definition).where(StreamRow.id == stream_id))), None)

    def put(self, stream: TableStream) -> None:
        """Insert, or update by id."""
        taken = AlreadyExists(
            f"The table stream {stream.table_name} exists already.", hint="Drop it or choose another name."
        )

        def work(connection: Connection) -> None:
            other = connection.execute(select(StreamRow.id).where(_named(stream.table_name))).scalar()
            if other is not None and other != stream.id:
                raise taken
            connection.execute(self._put, _values(stream))

        try:
            self._database.write(work)
        except IntegrityError:  # PostgreSQL: another process took the name after we looked.
            raise taken from None

    def replace(self, old_id: str, new: TableStream) -> None:
        def work(connection: Connection) -> None:
            connection.execute(delete(StreamRow).where(StreamRow.id == old_id))
            connection.execute(self._put, _values(new))

        self._database.write(work)

    def drop(self, stream_id: str) -> None:
        self._database.write(lambda connection: connection.execute(delete(StreamRow).where(StreamRow.id == stream_id)))

    # ---- readings

    def next_reading(self, now: datetime) -> int:
        """A number above all others, also when the clock was set back: a smaller one would let Delta skip the write."""
        last = self._database.read(lambda connection: connection.execute(select(func.max(ReadingRow.id))).scalar())
        return max(int(now.timestamp() * 1_000_000), (last or 0) + 1)

    def begin(self, reading: Reading) -> None:
        self._database.write(lambda connection: connection.execute(self._put_reading, _reading_values(reading)))

    def finish(self, reading: Reading, now: datetime) -> list[TableStream]:
        """Move the offsets of all streams that were read, and mark the reading as done. The streams as they are now."""
        ended = reading.model_copy(update={"done": True})
        oldest = int((now - timedelta(days=KEPT_DAYS)).timestamp() * 1_000_000)

        def work(connection: Connection) -> list[TableStream]:
            moved = self._move(connection, reading.ranges, now, reading.id, reading.target)
            connection.execute(self._put_reading, _reading_values(ended))
            connection.execute(delete(ReadingRow).where(ReadingRow.done, ReadingRow.id < oldest))
            return moved

        return self._database.write(work)

    def deliver(self, ranges: tuple[StreamRange, ...], now: datetime, number: int) -> list[TableStream]:
        """Move the offsets for rows that went to a program instead of a table. The streams as they are now."""
        return self._database.write(lambda connection: self._move(connection, ranges, now, number, A_PROGRAM))

    def forget(self, reading_id: int) -> None:
        gone = delete(ReadingRow).where(ReadingRow.id == reading_id)
        self._database.write(lambda connection: connection.execute(gone))

    def unfinished(self) -> list[Reading]:
        """Oldest first: after a crash, those to look into."""
        return self._readings(select(ReadingRow.payload).where(~ReadingRow.done).order_by(ReadingRow.id))

    def into(self, target_path: str) -> list[Reading]:
        """What has been read into a table, oldest first."""
        ours = (ReadingRow.target_path == target_path) & ReadingRow.done
        return self._readings(select(ReadingRow.payload).where(ours).order_by(ReadingRow.id))

    def _move(
        self,
        connection: Connection,
        ranges: tuple[StreamRange, ...],
        now: datetime,
        reading_id: int,
        read_into: str | None,
    ) -> list[TableStream]:
        streams = []
        for part in ranges:
            wanted = select(StreamRow.definition).where(StreamRow.id == part.stream_id)
            found = connection.execute(wanted.with_for_update()).scalar()
            if found is None:
                continue  # Dropped meanwhile: it has no offset to move.
            stream = TableStream.model_validate_json(found)
            if (stream.offset, stream.initial) != (part.after, part.initial):
                raise Bug(f"The stream {stream.table_name} stands at {stream.offset}, not at {part.after}.")
            changed = {"offset": part.upto, "initial": False, "offset_moved_at": now, "read_into": read_into}
            changed["last_reading"] = max(stream.last_reading, reading_id)
            moved = stream.model_copy(update=changed)
            definition = moved.model_dump_json()
            connection.execute(update(StreamRow).where(StreamRow.id == stream.id).values(definition=definition))
            streams.append(moved)
        return streams

    def _streams(self, wanted: Any) -> list[TableStream]:
        rows: Sequence[str] = self._database.read(lambda connection: connection.execute(wanted).scalars().all())
        return [TableStream.model_validate_json(row) for row in rows]

    def _readings(self, wanted: Any) -> list[Reading]:
        rows: Sequence[str] = self._database.read(lambda connection: connection.execute(wanted).scalars().all())
        return [Reading.model_validate_json(row) for row in rows]


def _named(name: TableName) -> Any:
    return (
        (StreamRow.workspace == name.workspace)
        & (StreamRow.schema_name == name.schema)
        & (StreamRow.name == name.table)
    )


def _values(stream: TableStream) -> dict[str, Any]:
    return {
        "id": stream.id,
        "workspace": stream.workspace,
        "schema_name": stream.schema_name,
        "name": stream.name,
        "definition": stream.model_dump_json(),
    }


def _reading_values(reading: Reading) -> dict[str, Any]:
    return {
        "id": reading.id,
        "target_path": reading.target_path,
        "done": reading.done,
        "payload": reading.model_dump_json(),
    }
