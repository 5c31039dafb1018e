"""Brings received batches into their tables: once a minute, or when enough rows wait."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from headrace import failpoints
from headrace.catalog.loads import LoadStore
from headrace.catalog.records import Load
from headrace.errors import EnvironmentFault, HeadraceError, NotFound
from headrace.loading.backlog import Backlog, Waiting
from headrace.loading.commits import Commits, TableMoved, Writer, files_name, table_name
from headrace.loading.notes import loads_since
from headrace.loading.recalling import KEPT_DAYS, BatchIds
from headrace.loading.shapes import Shapes, has_conditions, identity_columns
from headrace.loading.spool import Spool
from headrace.names import TableName
from headrace.result import Result, done
from headrace.running import require_wanted
from headrace.storage.delta import DeltaLogs

if TYPE_CHECKING:
    from headrace.compute.jobs import LiveJob

COMMIT_SECONDS = 60
COMMIT_ROWS = 100_000
_SET_ROWS, _SET_BYTES, _SET_LOADS, _SET_KEYS = 1_000_000, 256 * 1024**2, 5000, 256 * 1024
"""What one commit takes at most: rows, bytes of them, batches, and bytes of their ids, which its note has."""
_IDLE_SECONDS = 60.0
_LOOK_SECONDS = 0.2
_MOST_MOVES = 3
_PRUNE_EVERY = timedelta(hours=1)
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 60.0
_TROUBLE_SECONDS, _LONGEST_WAIT = 120.0, 600.0
"""After so long rows that cannot be committed, or that nobody has come to commit, are worth telling of."""

Submit = Callable[[Callable[[], Result], str], "LiveJob"]
"""Has work run as a job with this text."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Condition:
    """How it is with the rows on their way into one table."""

    table_id: str
    table: TableName
    rows: int
    batches: int
    bytes: int
    waits_seconds: float
    """The longest of them."""
    is_well: bool | None
    """Whether the last commit worked; None while nobody can say."""
    trouble: str | None = None
    """What is wrong, as a sentence, where it is not well."""


class Committer:
    """One job a table at a time. Whoever received a batch calls `wake`."""

    def __init__(
        self,
        store: LoadStore,
        logs: DeltaLogs,
        shapes: Shapes,
        spool: Spool,
        backlog: Backlog,
        writer: Writer,
        clock: Callable[[], datetime],
        submit: Submit,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        seconds: float = COMMIT_SECONDS,
        rows: int = COMMIT_ROWS,
    ) -> None:
        """`monotonic` says when something is due: a clock that is put right must keep nobody waiting."""
        self._store = store
        self._logs = logs
        self._shapes = shapes
        self._spool = spool
        self._backlog = backlog
        self._writer = writer
        self._commits = Commits(store, logs, shapes, spool, writer, clock)
        self.batch_ids = BatchIds(store, logs, clock)
        self._clock = clock
        self._monotonic = monotonic
        self._submit = submit
        self._seconds = seconds
        self._rows = rows
        self._lock = threading.Lock()
        self._running: dict[str, LiveJob | None] = {}
        self._paused: dict[str, tuple[float, float]] = {}
        """Tables whose last attempt failed: when to try again, and how long to wait after the next failure."""
        self._turns: dict[str, threading.Lock] = {}
        self._damaged: dict[str, Load] = {}
        self._errors: dict[str, str] = {}
        self._failing: dict[str, float] = {}
        """Since when no commit of a table has worked."""
        self._worked: set[str] = set()
        """Tables whose last commit did."""
        self._pruned_at: datetime | None = None
        self._woken = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------------ time

    def look(self) -> float:
        """Have everything committed that is due. Gives the seconds until the next look, unless somebody wakes it."""
        self._prune(self._clock())
        now = self._monotonic()
        pause = _IDLE_SECONDS
        for waiting in self._backlog.tables():
            due = self._due_at(waiting)
            if due <= now:
                self._begin(waiting)
            else:
                pause = min(pause, due - now)
        return pause

    def _due_at(self, waiting: Waiting) -> float:
        due = waiting.since if waiting.rows >= self._rows else waiting.since + self._seconds
        with self._lock:
            paused = self._paused.get(waiting.table_id)
        return due if paused is None else max(due, paused[0])

    def _begin(self, waiting: Waiting) -> None:
        with self._lock:
            if self._closed or waiting.table_id in self._running:
                return
            self._running[waiting.table_id] = None
        rows = f"{waiting.rows:,} {'row' if waiting.rows == 1 else 'rows'}"
        try:
            live = self._submit(lambda: self._work(waiting.table_id), f"LOAD {rows} INTO {waiting.table}")
        except Exception as error:
            self._ended(waiting.table_id, error)
            return
        live.on_done(lambda job: self._ended(waiting.table_id, job.error))

    def _ended(self, table_id: str, error: Exception | None) -> None:
        now = self._monotonic()
        with self._lock:
            self._running.pop(table_id, None)
            if error is None:
                self._paused.pop(table_id, None)
                self._errors.pop(table_id, None)
                self._failing.pop(table_id, None)
                self._worked.add(table_id)
            else:
                self._failing.setdefault(table_id, now)
                self._worked.discard(table_id)
                pause = self._paused.get(table_id, (now, _FIRST_PAUSE))[1]
                self._paused[table_id] = (now + pause, min(pause * 2, _LONGEST_PAUSE))
                self._errors[table_id] = error.message if isinstance(error, HeadraceError) else str(error)
                _log.error("Rows that wait for a table could not be committed yet: %s", self._errors[table_id])
        self.wake()

    def _prune(self, now: datetime) -> None:
        if self._pruned_at is None or not timedelta(0) <= now - self._pruned_at < _PRUNE_EVERY:
            self._pruned_at = now
            self._store.prune(now - timedelta(days=KEPT_DAYS))

    def status(self) -> list[tuple[Waiting, str | None]]:
        """What waits, the longest wait first, each with the last error of its table, if there was one."""
        with self._lock:
            return [(waiting, self._errors.get(waiting.table_id)) for waiting in self._backlog.tables()]

    def conditions(self) -> list[Condition]:
        """Of every table that something waits for, or has lost rows on their way. What fails is trouble only when it
        lasts: the next try comes soon."""
        now = self._monotonic()
        with self._lock:
            waiting = {each.table_id: each for each in self._backlog.tables()}
            damaged: dict[str, list[Load]] = {}
            for load in self._damaged.values():
                damaged.setdefault(load.table_id, []).append(load)
            every = [*waiting, *(each for each in damaged if each not in waiting)]
            return [self._condition(each, waiting.get(each), damaged.get(each, []), now) for each in every]

    def _condition(self, table_id: str, waiting: Waiting | None, damaged: list[Load], now: float) -> Condition:
        seconds = 0.0 if waiting is None else max(0.0, now - waiting.since)
        failing = now - self._failing.get(table_id, now)
        trouble = None
        if damaged:
            first = damaged[0]
            more = f", and of {len(damaged) - 1} more" if len(damaged) > 1 else ""
            trouble = (
                f"The file of batch {first.key}{more} with {first.rows} rows is gone or damaged: it must be sent again."
            )
        elif waiting is not None and (failing >= _TROUBLE_SECONDS or seconds >= _LONGEST_WAIT):
            count = f"{waiting.rows:,} rows in {waiting.batches:,} {'batch' if waiting.batches == 1 else 'batches'}"
            error = self._errors.get(table_id)
            told = f", and cannot be committed: {error}" if error else "."
            trouble = f"{count} wait since {int(seconds // 60)} minutes{told}"
        well = False if trouble is not None else True if table_id in self._worked else None
        if waiting is None:
            return Condition(table_id, table_name(damaged[0]), 0, 0, 0, 0.0, well, trouble)
        return Condition(table_id, waiting.table, waiting.rows, waiting.batches, waiting.bytes, seconds, well, trouble)

    # ------------------------------------------------------------------ the thread

    def start(self) -> None:
        """Look by itself from now on."""
        self._thread = threading.Thread(target=self._keep_looking, name="loads", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._woken.set()

    def close(self, patience: float = 5.0) -> None:
        """Begin nothing more. What has begun is for those who run the jobs to end; the next start goes on with it."""
        with self._lock:
            self._closed = True
        self.wake()
        if self._thread is not None:
            self._thread.join(patience)

    def _keep_looking(self) -> None:
        pause = 0.0
        while True:
            self._woken.wait(pause)
            self._woken.clear()
            if self._closed:
                return
            try:
                pause = self.look()
            except Exception:
                _log.exception("Looking for rows to commit failed.")
                pause = 5.0

    # ------------------------------------------------------------------ the work of a job

    def flush(self) -> None:
        """Commit everything that waits, here and now."""
        for waiting in self._backlog.tables():
            self._work(waiting.table_id)

    def _work(self, table_id: str) -> Result:
        """Commit all that waits for a table, in as few commits as may be; one of them at a time."""
        with self._lock:
            turn = self._turns.setdefault(table_id, threading.Lock())
        while not turn.acquire(timeout=_LOOK_SECONDS):
            require_wanted()
        try:
            return self._commit_all(table_id)
        finally:
            turn.release()

    def _commit_all(self, table_id: str) -> Result:
        batches = rows = moves = dropped = 0
        while True:
            require_wanted()
            try:
                before = self._backlog.of(table_id)
                loads = self._next_set(table_id)
                if not loads:
                    self._agree(table_id, before)
                    break
                finished = self._finish(loads)
            except TableMoved:
                moves += 1
                if moves > _MOST_MOVES:
                    raise
                dropped += self._follow(table_id)
                continue
            self._backlog.remove(finished)
            batches, rows = batches + len(finished), rows + sum(load.rows for load in finished)
        lost = f" {dropped} rows were dropped: their table is not there any more." if dropped else ""
        return done(f"{rows} rows of {batches} batches were committed.{lost}")

    def _agree(self, table_id: str, before: dict[str, Load]) -> None:
        """The store has nothing to commit: what the backlog had `before` that was asked, and the store has not, would
        begin one job after the other. What has come since then stays."""
        waiting = {load.id: load for load in self._store.waiting(table_id, "BATCH") if load.id not in self._damaged}
        self._backlog.remove(load for load in before.values() if load.id not in waiting)
        self._backlog.add(waiting.values())

    def _finish(self, loads: Sequence[Load]) -> list[Load]:
        sequence = loads[0].sequence
        assert sequence is not None
        name = files_name("BATCH", sequence)
        return self._commits.finish(loads, lambda: self._spool.for_spark(loads, name))

    def _next_set(self, table_id: str) -> list[Load]:
        """A set that has its number already, or else a new one, which gets it now."""
        waiting = self._store.waiting(table_id, "BATCH")
        numbered = [load for load in waiting if load.sequence is not None]
        if numbered:
            sequence = min(load.sequence or 0 for load in numbered)
            return self._without_damaged([load for load in numbered if load.sequence == sequence])
        chosen = self._chosen(waiting)
        if not chosen:
            return []
        sequence = self._commits.next_number(chosen[0])
        # Once it is recorded, nobody sees that the records lack what earlier commits hold.
        self.batch_ids.recall(table_name(chosen[0]), chosen[0].table_path, table_id)
        chosen = [load.model_copy(update={"sequence": sequence}) for load in chosen]
        self._store.change(chosen)
        failpoints.reach("load-after-sequence")
        return chosen

    def _chosen(self, waiting: Sequence[Load]) -> list[Load]:
        """The oldest batches, as many as go into one commit."""
        chosen: list[Load] = []
        rows = size = keys = 0
        first: frozenset[str] | None = None
        faults: list[EnvironmentFault] = []
        for load in waiting:
            if load.id in self._damaged or not self._can_be_read(load, faults):
                continue
            keys += len(json.dumps(load.key))
            too_many = rows + load.rows > _SET_ROWS or len(chosen) >= _SET_LOADS
            if chosen and (too_many or size + load.bytes > _SET_BYTES or keys > _SET_KEYS):
                break
            # Delta numbers the rows of a commit itself, or takes the numbers that all of them bring.
            numbers = self._numbers_in(load)
            if first is None:
                first = numbers
            if numbers == first:
                chosen.append(load)
                rows, size = rows + load.rows, size + load.bytes
        if faults and not chosen:
            raise faults[0]
        return chosen

    def _numbers_in(self, load: Load) -> frozenset[str]:
        """The identity columns that a batch gives values for."""
        own = identity_columns(self._commits.shape(load))
        return own & self._spool.read(load)[1].names if own else own

    def _can_be_read(self, load: Load, faults: list[EnvironmentFault]) -> bool:
        """What the system does not let anybody read now waits for the next time, and nothing waits for it."""
        try:
            return self._is_sound(load)
        except EnvironmentFault as fault:
            _log.warning("Batch %s for %s waits until it can be read: %s", load.key, table_name(load), fault.message)
            faults.append(fault)
            return False

    def _is_sound(self, load: Load) -> bool:
        if self._spool.is_sound(load):
            return True
        self._damaged[load.id] = load
        self._backlog.remove([load])
        if self._spool.is_sound(load):  # Its client has sent it again meanwhile.
            self.mended(load)
            return True
        _log.error(
            "The file of batch %s (%s rows) for %s is gone or damaged; it is left out until the batch is sent again.",
            load.key, load.rows, table_name(load),
        )  # fmt: skip
        return False

    def mended(self, load: Load) -> None:
        """A batch that was damaged has its rows again."""
        self._damaged.pop(load.id, None)

    def is_in(self, load: Load) -> bool:
        """Whether the rows of a batch are known to be in its table, whatever its record says. When its table is not
        where it was, nobody can tell yet, and it counts as if they were."""
        try:
            return self._commits.is_in(load)
        except TableMoved:
            return True

    def _without_damaged(self, loads: list[Load]) -> list[Load]:
        """A set whose commit is not made yet can do without what cannot be read: it would keep up all the others."""
        if self._commits.is_in(loads[0]):
            return loads
        sound = [load for load in loads if load.id not in self._damaged and self._is_sound(load)]
        known = {load.id for load in sound}
        self._store.change([load.model_copy(update={"sequence": None}) for load in loads if load.id not in known])
        return sound

    def _follow(self, table_id: str) -> int:
        """The table is not where it was. One that has another place now is followed; rows for one that was dropped are
        dropped as well: gives how many these are."""
        every = self._store.waiting(table_id, "BATCH")
        name = table_name(every[0])
        found = self._writer.find(name, table_id)
        if found is None:
            _log.warning(
                "%s was dropped; %s rows in %s batches that waited for it are dropped as well.",
                name, sum(load.rows for load in every), len(every),
            )  # fmt: skip
            self._store.forget([load.id for load in every])
            self._backlog.remove(every)
            self._spool.remove_table(table_id)
            return sum(load.rows for load in every)
        if found.path == every[0].table_path:
            raise NotFound(f"The log of {name} at {found.path} cannot be read.", hint="It is tried again by itself.")
        place = {
            "table_path": found.path,
            "workspace": found.table.workspace,
            "schema_name": found.table.schema,
            "name": found.table.table,
        }
        self._store.change([load.model_copy(update=place) for load in every])
        return 0

    # ------------------------------------------------------------------ after a crash

    def recover(self) -> None:
        """What an earlier process left, once, before anything is received. Spark is not needed: a set that is in its
        table, with nothing to reject, gets its end here; all others wait for the next look."""
        self._adopt()
        for table_id in sorted({load.table_id for load in self._store.waiting(kind="BATCH")}):
            try:
                self._settle(table_id)
            except (HeadraceError, DeltaError, OSError) as error:
                _log.warning("Rows that wait for a table will be looked at later: %s", error)
        self._backlog.add(self._store.waiting(kind="BATCH"))

    def _adopt(self) -> None:
        """Files without a record: the process died before it was written, or the operations database is another one.
        Whether the client was told or not: it may count on the batch, and knows it by its id."""
        found = list(self._spool.records())
        known = self._store.ids(load.id for load in found)
        for load in found:
            record = known.get(load.id)
            if record is None:
                first = self._store.add(load.model_copy(update={"state": "RECEIVED", "sequence": None}))
                if first is not None and first.id != load.id:
                    self._spool.remove([load])
            elif record.state == "COMMITTED":
                self._spool.remove([load])

    def _settle(self, table_id: str) -> None:
        waiting = self._store.waiting(table_id, "BATCH")
        path = waiting[0].table_path
        self.batch_ids.recall(table_name(waiting[0]), path, table_id)
        held = loads_since(self._logs, path, min(load.received_at for load in waiting))
        # What the log holds is in, also where the records are those of an older copy of the database.
        strangers = [
            load.model_copy(update={"sequence": held[load.id][1]})
            for load in waiting
            if load.id in held and load.sequence != held[load.id][1]
        ]
        self._store.change(strangers)
        sets: dict[int, list[Load]] = {}
        for load in self._store.waiting(table_id, "BATCH"):
            if load.sequence is not None:
                sets.setdefault(load.sequence, []).append(load)
        for loads in sets.values():
            is_plain = not any(load.rejected for load in loads) and not has_conditions(self._shapes.now(path))
            if is_plain and loads[0].id in held:
                self._finish(loads)
