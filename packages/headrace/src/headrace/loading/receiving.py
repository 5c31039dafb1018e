"""Batches from clients: checked, written to disk, recorded; only then acknowledged."""

from __future__ import annotations

import hashlib
import logging
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from zoneinfo import ZoneInfo

from headrace import failpoints
from headrace.catalog.loads import LoadStore
from headrace.catalog.records import Load
from headrace.errors import EnvironmentFault, NotFound, Unsupported, UserError
from headrace.loading import arrow_rows, json_rows
from headrace.loading.backlog import Backlog
from headrace.loading.checked import BatchDiffers, Checked, shown
from headrace.loading.shapes import Shape, Shapes
from headrace.loading.spool import Spool
from headrace.loading.types import is_loadable
from headrace.names import TableName

Form = Literal["json", "arrow"]

LONGEST_BATCH_ID = 255
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Receipt:
    """What a client is told. `duplicate` says that the batch had come before: then this is what was said of it."""

    load: Load
    duplicate: bool = False


class Receiver:
    """Takes batches; safe for many threads."""

    def __init__(
        self,
        store: LoadStore,
        spool: Spool,
        shapes: Shapes,
        backlog: Backlog,
        clock: Callable[[], datetime],
        zone: ZoneInfo,
        *,
        is_in: Callable[[Load], bool],
        recall: Callable[[TableName, str, str], None] = lambda table, path, table_id: None,
        received: Callable[[], None] = lambda: None,
        mended: Callable[[Load], None] = lambda load: None,
    ) -> None:
        """`is_in` says whether a batch's rows are in its table; `recall` has the batches written down that a table
        knows and the store may not; `received` and `mended` are told of new batches, and of old ones whose rows have
        come again."""
        self._store = store
        self._spool = spool
        self._shapes = shapes
        self._backlog = backlog
        self._clock = clock
        self._zone = zone
        self._is_in = is_in
        self._recall = recall
        self._received = received
        self._mended = mended
        self._mending = threading.Lock()
        self._doubtful: dict[str, Load] = {}
        """Batches that were refused, of which nobody knows whether they are recorded; by id."""

    def receive(
        self,
        table: TableName,
        path: str,
        body: bytes,
        form: Form,
        batch_id: str | None = None,
        creator: str = "",
    ) -> Receipt:
        """When this returns, the rows will be in the table, whatever happens to this process."""
        key = new_id(self._clock()) if batch_id is None else checked_batch_id(batch_id)
        shape = self._shapes.now(path)
        self._settle_doubtful()
        self._recall(table, path, shape.table_id)
        before = self._store.with_key(shape.table_id, "BATCH", key)
        digest = digest_of(body)
        if before is not None and not self._is_lost(before):
            return self._again(before, digest)
        require_loadable(table, shape)
        with self._backlog.room(shape.table_id, len(body)):
            checked = self._checked(body, form, shape)
            if before is not None:
                return self._mend(before, checked, shape, digest)
            load = Load(
                id=new_id(self._clock()),
                table_path=path,
                table_id=shape.table_id,
                workspace=table.workspace,
                schema_name=table.schema,
                name=table.table,
                kind="BATCH",
                key=key,
                digest=digest,
                state="RECEIVED",
                rows=checked.rows.num_rows,
                rejected=len(checked.rejects),
                creator=creator,
                received_at=self._clock(),
            )
            return self._keep(load, checked, shape)

    def _checked(self, body: bytes, form: Form, shape: Shape) -> Checked:
        check = json_rows.check if form == "json" else arrow_rows.check
        return check(body, shape, self._zone)

    def _keep(self, load: Load, checked: Checked, shape: Shape) -> Receipt:
        failpoints.reach("load-before-spool")
        load = load.model_copy(update={"bytes": self._spool.put(load, checked, shape)})
        failpoints.reach("load-after-spool")
        first = self._recorded(load)
        if first is not None and first.id != load.id:
            self._spool.remove([load])
            return self._again(first, load.digest)
        failpoints.reach("load-after-record")
        self._backlog.add([load])
        self._received()
        return Receipt(load)

    def _recorded(self, load: Load) -> Load | None:
        """As the store's `add`. Where that fails, the client is told so, and the next start must not load the file."""
        try:
            return self._store.add(load)
        except Exception:
            try:
                if self._store.ids([load.id]):
                    return None  # What failed after the record was written has not failed.
            except Exception:
                # Nobody knows whether there is a record: it must not lose its file.
                self._doubtful[load.id] = load
                _log.warning("Batch %s was refused, but its file is kept: the database does not answer.", load.key)
            else:
                with suppress(OSError):
                    self._spool.remove([load])
            raise

    def _settle_doubtful(self) -> None:
        """See what became of batches that were refused in doubt, before anything else comes: without a record their
        files must go, for what the client sends again is another batch, and both would be loaded."""
        for load in list(self._doubtful.values()):
            record = self._store.ids([load.id]).get(load.id)
            if record is not None and record.state == "RECEIVED":
                self._backlog.add([record])
                self._received()
            with suppress(OSError):
                if record is None:
                    self._spool.remove([load])
                self._doubtful.pop(load.id, None)

    def _again(self, before: Load, digest: str | None) -> Receipt:
        """A batch that had come before. If nobody would commit it, it waits from now on."""
        if None not in (before.digest, digest) and before.digest != digest:
            raise BatchDiffers(
                f"The batch {shown(before.key)} has come before, with another content; nothing of this one was taken.",
                hint="Send other rows under another batch_id. A batch that is sent again must be the same to the byte.",
            )
        if before.state == "RECEIVED" and before.id not in self._backlog.of(before.table_id):
            self._mended(before)
            self._backlog.add([before])
            self._received()
        return Receipt(before, duplicate=True)

    def _is_lost(self, before: Load) -> bool:
        """Whether the rows of a batch that had come before are neither in its table nor on disk as they were. One that
        cannot be read at the moment is not lost."""
        try:
            if before.state != "RECEIVED" or self._spool.is_sound(before):
                return False
        except EnvironmentFault:
            return False
        # Its file goes when its end stands in the record, and not before.
        present = self._store.ids([before.id]).get(before.id)
        return present is not None and present.state == "RECEIVED" and not self._is_in(present)

    def _mend(self, before: Load, checked: Checked, shape: Shape, digest: str) -> Receipt:
        """Give a batch its rows again, under the record that it has: so it is one batch, however far its commit is."""
        with self._mending:
            present = self._store.ids([before.id]).get(before.id)
            if present is None:
                raise NotFound(f"{before.name} was dropped meanwhile.", hint="SHOW TABLES lists what there is now.")
            if not self._is_lost(present):
                return self._again(present, digest)
            rows, rejected = checked.rows.num_rows, len(checked.rejects)
            counted = present.model_copy(update={"rows": rows, "rejected": rejected, "digest": digest})
            size = self._spool.put(counted, checked, shape)
            mended = self._store.recount(present.id, rows=rows, rejected=rejected, size=size, digest=digest)
            if mended is None:  # It was committed after all, and nobody needs the file.
                self._spool.remove([present])
                return self._again(self._store.ids([present.id]).get(present.id, present), digest)
        _log.warning("The file of batch %s was damaged; it has come again, with %s rows.", mended.key, mended.rows)
        self._mended(mended)
        self._backlog.add([mended])
        self._received()
        return Receipt(mended)


def digest_of(body: bytes) -> str:
    return hashlib.blake2b(body, digest_size=16).hexdigest()


def checked_batch_id(batch_id: str) -> str:
    """Raises UserError for what cannot be a batch's name."""
    if not 1 <= len(batch_id) <= LONGEST_BATCH_ID:
        raise UserError(f"The batch id has {len(batch_id):,} characters.", hint=f"It may have 1 to {LONGEST_BATCH_ID}.")
    if any(ord(c) < 32 or ord(c) == 127 or 0xD800 <= ord(c) <= 0xDFFF for c in batch_id):
        raise UserError("The batch id has a character that cannot be used.", hint="Use letters, digits and signs.")
    return batch_id


def require_loadable(table: TableName, shape: Shape) -> None:
    """Raise for a table that no row could be made for."""
    for column in shape.columns:
        if not is_loadable(column.type) and not column.nullable and column.role == "given":
            raise Unsupported(
                f"{table} cannot be loaded: its column {column.name} is {column.sql} NOT NULL, and values of that type "
                "can only be written with SQL.",
                hint="Use INSERT INTO.",
            )
    if not shape.columns:
        raise NotFound(f"{table} has no columns.", hint="Add some: ALTER TABLE … ADD COLUMNS.")


def new_id(now: datetime) -> str:
    """Sorts by time."""
    return f"{now:%Y%m%d%H%M%S%f}{uuid.uuid4().hex[:12]}"
