"""Steps 6 and 7 of a refresh: what it brings is computed, and committed at once with its `txn` pair."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace import failpoints, running
from headrace.catalog.records import DynamicTable, StepProfile
from headrace.ivm.layout import VISIBLE, layout_of, schema_text
from headrace.ivm.sources import SourceRange
from headrace.ivm.stages import Stages, Uncertain, state_key
from headrace.ivm.ties import told_ties
from headrace.optimisations import ORDERED_COPIES, SMALL_COMMITS, STATE_TABLES
from headrace.progress import Progress
from headrace.refresh import compute
from headrace.refresh.counts import Counts, counted_note
from headrace.refresh.failures import is_java_s_end, is_of_the_data
from headrace.refresh.fold import clustered, partition_columns
from headrace.refresh.ordered import OrderedCopies
from headrace.refresh.outlook import Outlook
from headrace.refresh.profile import steps_of
from headrace.refresh.states import StateTables
from headrace.refresh.stored import CommitNote, app_id, readable, readable_versions
from headrace.storage.arrow import committable, for_delta
from headrace.storage.delta import DeltaLogs
from headrace.storage.errors import is_of_surroundings, short_message


@dataclass(frozen=True)
class Done:
    """A refresh that has committed."""

    note: CommitNote
    steps: tuple[StepProfile, ...] = ()
    made_states: bool = False


@dataclass(frozen=True)
class Committer:
    """Makes the one commit of one refresh."""

    spark: SparkSession
    logs: DeltaLogs
    progress: Progress
    off: frozenset[str]
    table: DynamicTable
    look: Outlook
    job_id: str
    sequence: int

    def commit(self) -> Done:
        """Compute and commit; an incremental computation that cannot go on becomes a full one."""
        assert self.look.frontier is not None
        reason = self.look.decision.reason
        if self.look.decision.mode == "INCREMENTAL":
            done = self._changes_or_why_not(self.off)
            if isinstance(done, Done):
                return done
            reason = done
            if self.table.refresh_mode == "INCREMENTAL":
                reason += " (Recomputed although REFRESH_MODE is INCREMENTAL: the contents must be right.)"
        self.progress.tell(f"{self.table.table_name}: full refresh. {reason or ''}")
        return Done(self._commit_whole(reason))

    def _changes_or_why_not(self, off: frozenset[str]) -> Done | str:
        """Compute and commit the changes, if need be without what is kept to be faster; or why that cannot be."""
        try:
            return self._commit_changes(off)
        except Uncertain as doubt:
            running.require_wanted()
            return str(doubt)
        except (PySparkException, Py4JJavaError, pa.ArrowException, DeltaError, OSError) as error:
            running.require_wanted()  # What was cancelled is not recomputed whole.
            if is_java_s_end(error) or is_of_surroundings(error) or self._has_committed():
                raise
            ties = told_ties(error)
            if ties is not None:
                return ties
            reason = f"The changes could not be computed: {short_message(error)}"
            if off >= {STATE_TABLES, ORDERED_COPIES} or is_of_the_data(error):
                return reason
        had_states = StateTables(self.spark, self.logs, self.table, self.progress).discard()
        had_copies = OrderedCopies(self.spark, self.logs, self.table, self.progress).discard()
        if not (had_states or had_copies):
            return reason
        self.progress.tell(f"{self.table.table_name}: once more, without what was kept to be faster. {reason}")
        return self._changes_or_why_not(off | {STATE_TABLES, ORDERED_COPIES})

    def _has_committed(self) -> bool:
        """Whether the commit of this refresh is there, whatever failed after it."""
        self.logs.forget(self.table.storage_path)
        return (self.logs.sequence(self.table.storage_path, app_id(self.table)) or 0) >= self.sequence

    def _commit_changes(self, off: frozenset[str]) -> Done:
        note = self.look.stored.note
        assert note is not None
        assert self.look.frontier is not None
        empty = replace(
            note,
            sequence=self.sequence,
            frontier=self.look.frontier,
            rows_inserted=0,
            rows_deleted=0,
            job_id=self.job_id,
            mode="INCREMENTAL",
            technique="ADVANCE",
            reason=self.look.decision.reason,
            generation=self.table.generation,
            fold=False,
        )
        if self.table.query.plan is None:  # Only the frontier moves.
            self._append_local(None, empty)
            return Done(empty)
        ranges = tuple(self._readable(source) for source in self.look.decision.ranges)
        dates = (note.frontier.date, self.look.frontier.date)
        states = StateTables(self.spark, self.logs, self.table, self.progress)
        kept = states.kept(note.frontier, off)
        copies = OrderedCopies(self.spark, self.logs, self.table, self.progress)
        stages = compute.stages_of(
            self.spark, self.logs, ranges, self.table.query.plan, dates, off, kept, copies.lookup
        )
        if not stages.new_day and not any(source.changed for source in ranges):
            self._append_local(None, empty)
            states.advance(stages, note.frontier, self.look.frontier)
            return Done(empty)
        try:
            done = self._append_changes(stages, empty)
            failpoints.reach("before-state-tables")
            states.advance(stages, note.frontier, self.look.frontier)
            changed_rows = (done.rows_inserted or 0) + (done.rows_deleted or 0)
            kept_groups = {state_key(node): found.note.live_rows or 0 for node, found in states.all()}
            steps = steps_of(self.table.query, stages, changed_rows, done.live_rows, kept_groups)
            return Done(done, steps, made_states=bool(states.made or copies.made))
        finally:
            stages.close()

    def _append_changes(self, stages: Stages, empty: CommitNote) -> CommitNote:
        """Compute the changes and append them; `empty` is the note of a refresh that changes no row."""
        self.progress.tell(f"{self.table.table_name}: reading changes")
        found = compute.changes_of(self.spark, self.logs, self.table, self.look.stored, stages, empty.sequence)
        if found is None:
            self._append_local(None, empty)
            return empty
        local = stages.local(found.rows) if stages.small and self._commits_itself() else None
        failpoints.reach("after-compute")
        if local is not None:
            counted = counted_note(empty, Counts.of_arrow(local), found)
            self._append_local(local, counted)
            return counted
        rows = stages.cache(found.rows)
        counted = counted_note(empty, Counts.of_frame(rows), found)
        self.progress.tell(f"{self.table.table_name}: writing {counted.rows_inserted} rows")
        failpoints.watch_for_file("mid-write", self.table.storage_path)
        self._write(rows, counted, "append")
        return counted

    def _commit_whole(self, reason: str | None) -> CommitNote:
        assert self.look.frontier is not None
        OrderedCopies(self.spark, self.logs, self.table, self.progress).remove_unused()
        layout = layout_of(self.table.query)
        versions = readable_versions(self.logs, self.table.query, self.look.frontier)
        whole = compute.whole(
            self.spark, self.logs, self.table.query, versions, self.look.frontier.date, layout, self.sequence
        )
        return self.overwrite(whole, "FULL", reason)

    def overwrite(self, whole: DataFrame, technique: str, reason: str | None) -> CommitNote:
        """Commit these storage rows in place of all there are."""
        assert self.look.frontier is not None
        last = self.look.stored.note
        groups = None if last is None else last.live_rows
        if groups is None:
            groups = sum(self.logs.statistics(source.path)[0] for source in self.look.frontier.sources)
        rows = clustered(whole, self.table, groups)
        before = last.visible_rows if last is not None else None
        hides = layout_of(self.table.query).hides_groups
        if hides:
            # The commit itself must say how many of its rows can be seen.
            rows = rows.persist()
        try:
            note = CommitNote(
                sequence=self.sequence,
                frontier=self.look.frontier,
                rows_inserted=None,
                rows_deleted=0 if self.look.stored.sequence == 0 else before,
                live_rows=None,
                visible_rows=rows.where(VISIBLE).count() if hides else None,
                tombstones=0,
                appends_since_fold=0,
                job_id=self.job_id,
                mode="FULL",
                technique=technique,
                reason=reason,
                generation=self.table.generation,
            )
            failpoints.reach("after-compute")
            failpoints.watch_for_file("mid-write", self.table.storage_path)
            self._write(rows, note, "overwrite")
        finally:
            if hides:
                rows.unpersist()
        self.logs.forget(self.table.storage_path)
        written = self.logs.history(self.table.storage_path, 1)[0].rows_written
        visible = note.visible_rows if hides else written
        return replace(note, rows_inserted=visible, live_rows=written, visible_rows=visible)

    def _commits_itself(self) -> bool:
        """Whether small changesets can be committed without Spark."""
        # delta-rs names the folder of a timestamp without its zone, and Delta reads it in that of the session.
        folders = {name.lower() for name in partition_columns(self.table)}
        timed = any(
            c.type.lower().startswith("timestamp") for c in self.table.query.columns if c.name.lower() in folders
        )
        return SMALL_COMMITS not in self.off and not timed and committable(layout_of(self.table.query).columns)

    def _append_local(self, rows: pa.Table | None, note: CommitNote) -> None:
        columns = layout_of(self.table.query).columns
        if not self._commits_itself():
            self._write(self.spark.createDataFrame([], schema_text(columns)), note, "append")
            return
        self.logs.append(
            self.table.storage_path, for_delta(rows, columns), app_id(self.table), note.sequence, note.text()
        )

    def _write(self, rows: DataFrame, note: CommitNote, mode: str) -> None:
        writer = rows.write.format("delta").mode(mode).option("userMetadata", note.text())
        writer = writer.option("txnAppId", app_id(self.table)).option("txnVersion", str(note.sequence))
        if mode == "overwrite":
            writer = writer.option("overwriteSchema", "true").partitionBy(*partition_columns(self.table))
        writer.save(self.table.storage_path)
        running.count({"commits": 1})

    def _readable(self, source: SourceRange) -> SourceRange:
        """The same range, its rows read where VACUUM has left them."""
        if source.old is None:
            return source
        return replace(
            source,
            old_rows=readable(self.logs, source.path, source.old, is_dynamic=source.is_dynamic),
            new_rows=readable(self.logs, source.path, source.new, is_dynamic=source.is_dynamic),
        )
