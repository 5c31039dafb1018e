"""The refresh protocol, step by step: lease, frontier, intent, one commit with its `txn`, record.

A crash at any point leaves either the old or the new version; `recovery.py` finds out which from the table's own log.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from zoneinfo import ZoneInfo

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace import failpoints, running
from headrace.catalog.records import (
    DynamicTable,
    Intent,
    Occasion,
    Profile,
    RefreshRecord,
)
from headrace.catalog.store import FOLD, Store, dropped
from headrace.compute.jobs import new_job_id
from headrace.errors import (
    EnvironmentFault,
    HeadraceError,
    NotFound,
    RefreshRunning,
    UserError,
    with_hint,
)
from headrace.ivm.layout import live_rows
from headrace.ivm.sources import read_delta
from headrace.plan.jvm import active
from headrace.progress import Progress
from headrace.refresh import compute
from headrace.refresh.committing import Committer, Done
from headrace.refresh.cost import insert_only
from headrace.refresh.failures import failure, reason_of
from headrace.refresh.fold import fold, fold_is_due
from headrace.refresh.lease import PATIENCE_SECONDS, held_lease
from headrace.refresh.outlook import SOURCE_CHANGED, SOURCE_GONE, Lookout, Outlook
from headrace.refresh.planner import Decision
from headrace.refresh.profile import inputs_of, total, with_reads
from headrace.refresh.states import StateTables
from headrace.refresh.stored import app_id, read_note, read_stored
from headrace.storage.delta import DeltaLogs, require_sequence
from headrace.storage.errors import is_of_surroundings, short_message
from headrace.storage.meter import Meter
from headrace.storage.scans import scans_of

BY_HAND = Occasion()
KEEP_ROWS = "KEEP_ROWS"
"""The technique of a replaced query that took over the stored rows."""
_MEND_SURROUNDINGS = "Free some space or raise the limit on the server's machine; the next refresh tries again."

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _End:
    """The end of a refresh: what the operations database is told of it, in one transaction."""

    record: RefreshRecord
    settle: tuple[str, int] | None
    release: tuple[str, int]


class Runner:
    """Refreshes dynamic tables, one at a time each."""

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        logs: DeltaLogs,
        *,
        owner: str,
        lease_seconds: float,
        rebind: Callable[[DynamicTable], DynamicTable],
        reloaded: Callable[[DynamicTable], None],
        progress: Progress,
        zone: ZoneInfo,
        clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
        off: frozenset[str] = frozenset(),
        definition: Callable[[str], DynamicTable | None] | None = None,
    ) -> None:
        """`definition` gives a table as it is now, by its id; unless told otherwise, from the operations database."""
        self.off = off
        self._definition = definition or store.table_by_id
        self.spark = spark
        self._store = store
        self._logs = logs
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._rebind = rebind
        self._reloaded = reloaded
        self._progress = progress
        self._zone = zone
        self._lookout = Lookout(spark, store, logs)
        self._clock = clock
        self._unwritten: dict[str, _End] = {}
        """By job id, the ends that the operations database did not take: its disk was full, say."""
        self._unwritten_lock = threading.Lock()

    # ------------------------------------------------------------------ looking

    def outlook(self, table: DynamicTable) -> Outlook:
        """What the next refresh would do, without side effects."""
        return self._lookout.outlook(table, today=self.today(), off=self.off)

    def today(self) -> str:
        return self._clock().astimezone(self._zone).date().isoformat()

    # ------------------------------------------------------------------ doing

    def refresh(
        self,
        table: DynamicTable,
        occasion: Occasion = BY_HAND,
        before: DynamicTable | None = None,
        undoing: str | None = None,
    ) -> RefreshRecord:
        """Move the table to the newest frontier. With `before`, the table as it was with another query, this definition
        takes that one's place, all of it or nothing; where it can take over the rows it has, it only does that. With
        `undoing`, the job that took over the rows for `before`, the rows and the frontier of earlier come back. Raises
        RefreshFailed, with the history row written, when it cannot."""
        failpoints.reach("refresh-start")
        self.settle_unwritten()
        started = self._clock()
        job = running.current()
        job_id = (job.take_id() if job is not None else None) or new_job_id(started)
        record = RefreshRecord.begun(table, occasion, job_id=job_id, at=started)
        no_data = self._if_nothing_to_do(table, record)
        if no_data is not None:
            self._store.record_no_data(no_data)
            return no_data
        owner = f"{self._owner}/{job_id}"
        lease = held_lease(self._store, table.id, owner, self._lease_seconds, self._clock, patience=PATIENCE_SECONDS)
        with lease as fencing:
            failpoints.reach("after-lease")
            try:
                with nullcontext() if before is None else self._in_place_of(before, table):
                    finished = self._refresh(self._present(table), record, fencing, before, undoing)
            except Exception as error:
                stopped = None if job is None else job.stopped
                told = stopped or error
                reason = reason_of(told)
                hint = told.hint if isinstance(told, HeadraceError) else None
                if isinstance(told, NotFound):
                    hint = hint or SOURCE_GONE
                elif not isinstance(told, HeadraceError) and is_of_surroundings(told):
                    hint = _MEND_SURROUNDINGS
                kept = with_hint(reason, hint)
                failed = record.model_copy(update={"state": "FAILED", "end_time": self._clock(), "error_message": kept})
                end = _End(failed, None, (table.id, fencing))
                try:
                    self._finish(end)
                except (EnvironmentFault, OSError):
                    _log.exception("The end of the refresh %s is written later.", job_id)
                running.require_wanted()
                raise failure(told, f"The refresh of {table.table_name} failed: {reason}", hint) from error
            sequence = finished.profile.sequence
            settled = None if sequence is None else (table.id, sequence)
            self._finish(_End(finished, settled, (table.id, fencing)))
        failpoints.reach("after-finish")
        return finished

    def idle(self, table: DynamicTable, occasion: Occasion) -> RefreshRecord | None:
        """The record of a refresh that finds nothing new, for the caller to write down; None when there is something
        to do, or to tell."""
        self.settle_unwritten()
        now = self._clock()
        return self._if_nothing_to_do(table, RefreshRecord.begun(table, occasion, job_id=new_job_id(now), at=now))

    def settle_unwritten(self) -> None:
        """Write the ends of refreshes that the operations database would not take before. Where it still does not, they
        wait for the next call."""
        if not self._unwritten:
            return
        with self._unwritten_lock:
            for job_id, end in list(self._unwritten.items()):
                try:
                    self._store.finish_refresh(end.record, settle=end.settle, release=end.release)
                except (EnvironmentFault, OSError) as error:
                    _log.warning("The end of the refresh %s still cannot be written: %s", job_id, error)
                    return
                except Exception:
                    del self._unwritten[job_id]
                    raise
                del self._unwritten[job_id]

    def _finish(self, end: _End) -> None:
        """Write the end of a refresh, or keep it for later and raise."""
        try:
            self._store.finish_refresh(end.record, settle=end.settle, release=end.release)
        except (EnvironmentFault, OSError):
            with self._unwritten_lock:
                self._unwritten[end.record.job_id] = end
            raise

    def _if_nothing_to_do(self, table: DynamicTable, record: RefreshRecord) -> RefreshRecord | None:
        """The NO_DATA record, when that is what a first look shows: no lease, no Spark, one small transaction."""
        try:
            decision = self.outlook(table).decision
        except UserError:
            return None  # The same under the lease, where the failure is recorded.
        if decision.mode != "NO_DATA":
            return None
        return self._no_data(record, decision.reason)

    def _no_data(self, record: RefreshRecord, reason: str | None) -> RefreshRecord:
        return record.model_copy(
            update={
                "state": "SUCCEED",
                "end_time": self._clock(),
                "refresh_mode": "NO_DATA",
                "technique": "NO_DATA",
                "reason": reason,
                "rows_inserted": 0,
                "rows_deleted": 0,
            }
        )

    def _refresh(
        self,
        table: DynamicTable,
        record: RefreshRecord,
        fencing: int,
        before: DynamicTable | None,
        undoing: str | None,
    ) -> RefreshRecord:
        with active(self.spark):
            return self._refresh_by_own_settings(table, record, fencing, before, undoing)

    def _refresh_by_own_settings(
        self,
        table: DynamicTable,
        record: RefreshRecord,
        fencing: int,
        before: DynamicTable | None,
        undoing: str | None,
    ) -> RefreshRecord:
        kept: DataFrame | None = None
        if undoing is not None:
            look, kept = self._taken_back(table, undoing)
        else:
            table, look = self._outlook_or_rebound(table)
            if before is not None:
                look, kept = self._kept(before, table, look)
        failpoints.reach("after-frontier")
        decision = look.decision
        if decision.mode == "NO_DATA":
            return self._no_data(record, decision.reason)
        self._store.start_refresh(record)
        assert look.frontier is not None
        sequence = look.stored.sequence + 1
        intent = Intent(
            table_id=table.id,
            sequence=sequence,
            job_id=record.job_id,
            old=look.stored.note.frontier if look.stored.note is not None else None,
            new=look.frontier,
        )
        self._store.write_intent(intent, fencing)
        failpoints.reach("after-intent")
        committer = Committer(self.spark, self._logs, self._progress, self.off, table, look, record.job_id, sequence)
        meter = Meter(self.spark, record.job_id)
        began = time.monotonic()
        with meter:
            if kept is None:
                done = committer.commit()
            else:
                done = Done(committer.overwrite(kept, KEEP_ROWS, decision.reason))
        note = done.note
        failpoints.reach("after-commit")
        require_sequence(self._logs.sequence(table.storage_path, app_id(table)), sequence, table.storage_path)
        if table.stale_reason is not None:
            self._reloaded(table)
        inputs = inputs_of(self._logs, look.facts, decision.ranges)
        scans = scans_of(self.spark, meter.jobs())
        inputs = with_reads(inputs, [fact.new.path for fact in look.facts], scans)
        state_rows, state_bytes = self._logs.statistics(table.storage_path)
        guess = decision.estimate
        profile = Profile(
            sequence=sequence,
            generation=table.generation,
            seconds=round(time.monotonic() - began, 3),
            commits=1,
            change_rows=total([each.changed_rows for each in inputs]),
            change_bytes=total([each.changed_bytes for each in inputs]),
            insert_only=insert_only(decision.ranges),
            source_rows=sum(each.rows for each in inputs),
            estimated_incremental_seconds=None if guess is None else round(guess.incremental_seconds, 3),
            estimated_full_seconds=None if decision.whole_seconds is None else round(decision.whole_seconds, 3),
            full_by_choice=decision.full_by_choice and note.mode == "FULL",
            abandoned=decision.mode == "INCREMENTAL" and note.mode == "FULL",
            made_states=done.made_states,
            state_rows=state_rows,
            state_bytes=state_bytes,
            inputs=inputs,
            steps=done.steps,
        ).model_copy(update=meter.readings())
        failpoints.reach("before-finish")
        return record.model_copy(
            update={
                "state": "SUCCEED",
                "end_time": self._clock(),
                "refresh_mode": note.mode,
                "technique": note.technique,
                "reason": note.reason,
                "rows_inserted": note.rows_inserted,
                "rows_deleted": note.rows_deleted,
                "profile": profile,
            }
        )

    def _present(self, table: DynamicTable) -> DynamicTable:
        """The table as it is defined now, which nobody else changes while the lease is held: this refresh may have
        waited for long since it was asked for."""
        present = self._definition(table.id)
        if present is None:
            raise dropped(table.id)
        return present

    @contextmanager
    def _in_place_of(self, before: DynamicTable, table: DynamicTable) -> Iterator[None]:
        """The table's definition is the new one; and the one before again if its contents do not come to be."""
        if self._present(table).generation != before.generation:
            raise RefreshRunning(
                f"{table.table_name} was replaced by somebody else meanwhile.", hint="Look at it, then try again."
            )
        self._store.change_table(table.id, lambda present: present.with_changes(before, table))
        try:
            yield
        except BaseException:
            if not self._is_loaded(table):
                self._store.change_table(table.id, lambda present: present.with_changes(table, before))
            raise

    def _is_loaded(self, table: DynamicTable) -> bool:
        """Whether the stored rows are those of this definition."""
        try:
            self._logs.forget(table.storage_path)
            note = read_stored(self._logs, table).note
        except NotFound:
            return False
        return note is not None and note.generation == table.generation

    def _kept(self, before: DynamicTable, table: DynamicTable, look: Outlook) -> tuple[Outlook, DataFrame | None]:
        """Storage rows from those of `before`, if they can be had: they stay at its frontier."""
        old = self.outlook(before)
        note = old.stored.note
        if old.decision.mode == "FULL" or note is None:
            return look, None
        rows = compute.taken_over(self.spark, self._logs, before, table, old.stored, old.stored.sequence + 1)
        if rows is None or isinstance(rows, str):
            if rows is not None and look.decision.reason == table.stale_reason:
                told = f"{table.stale_reason} Its rows could not be kept: {rows}."
                look = replace(look, decision=replace(look.decision, reason=told))
            return look, None
        sources = tuple(
            fact.new.model_copy(update={"version": note.frontier.version_of(fact.new.path)}) for fact in look.facts
        )
        frontier = note.frontier.model_copy(update={"sources": sources})
        reason = f"{table.stale_reason} Its columns were computed from the stored rows; no source was read."
        decision = replace(look.decision, mode="FULL", reason=reason, estimate=None)
        return replace(look, frontier=frontier, decision=decision), rows

    def _taken_back(self, table: DynamicTable, job_id: str) -> tuple[Outlook, DataFrame]:
        """Storage rows as they were before this job took them over for another query, at their frontier."""
        commits = self._logs.history(table.storage_path)
        notes = [read_note(commit.user_metadata) for commit in commits]
        place = next(i for i, note in enumerate(notes) if note is not None and note.job_id == job_id)
        frontier = next(note.frontier for note in notes[place + 1 :] if note is not None)
        rows = read_delta(self.spark, self._logs, table.storage_path, commits[place + 1].version)
        decision = Decision("FULL", table.stale_reason, (), ())
        return Outlook(read_stored(self._logs, table), decision, frontier, ()), live_rows(rows)

    def _outlook_or_rebound(self, table: DynamicTable) -> tuple[DynamicTable, Outlook]:
        """The outlook; where a source is gone or changed its columns, after reading the query again."""
        try:
            look = self.outlook(table)
            if not look.decision.rebind:
                return table, look
            reason, mend = look.decision.reason, SOURCE_CHANGED
        except NotFound as missing:
            reason, mend = missing.message, SOURCE_GONE
        try:
            rebound = self._rebind(table)
        except HeadraceError as error:
            error.message = f"{reason} {error.message}"
            # What the query's names are like is no help here: a view that reads the missing one would be suggested.
            error.hint = SOURCE_GONE if isinstance(error, NotFound) else error.hint or mend
            raise
        rebound = rebound.model_copy(update={"stale_reason": reason})
        rebound = self._store.change_table(table.id, lambda present: present.with_changes(table, rebound))
        return rebound, self.outlook(rebound)

    def tidy(self, table: DynamicTable, *, folds: bool = True) -> str | None:
        """What is better done after a refresh than in it: fold the storage when the policy says so and `folds` allows
        it, and those of its state tables. Gives the reason for a fold, None when there was none."""
        fold_due = folds and fold_is_due(self._logs, table)
        states = StateTables(self.spark, self._logs, table, self._progress)
        if not fold_due and not states.need_folding():
            return None
        with held_lease(self._store, table.id, f"{self._owner}/{FOLD}", self._lease_seconds, self._clock) as fencing:
            reason = None
            table = self._present(table)
            try:
                if fold_due:
                    self._progress.tell(f"{table.table_name}: folding its storage")
                    reason = fold(self.spark, self._logs, table)
                states.fold()
            except (PySparkException, Py4JJavaError, DeltaError, OSError) as error:
                # The refresh itself is done and right; the next one tries again.
                reason = f"not tidied: {short_message(error)}"
                self._progress.tell(f"{table.table_name}: {reason}")
            self._store.release_lease(table.id, fencing)
        return reason
