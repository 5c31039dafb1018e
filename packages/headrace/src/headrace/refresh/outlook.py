"""What the next refresh of a dynamic table would do: its frontier, the facts about its sources, the decision.

Reads logs, the operations database and Spark's catalog; changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from headrace.catalog.records import DynamicTable, Frontier, SourceVersion
from headrace.catalog.store import Store
from headrace.errors import NotFound
from headrace.ivm.layout import VISIBLE
from headrace.names import TableName
from headrace.optimisations import CHOICE_BY_COST
from headrace.plan.definitions import redefined
from headrace.plan.nodes import AnyJoin, Relation, walk
from headrace.plan.query import Query
from headrace.refresh.cost import REMEMBERED, Work, estimate, insert_only, past_of, whole_seconds
from headrace.refresh.frontier import Candidate, Choice, Offer, choose
from headrace.refresh.planner import Decision, SourceFacts, decide, has_choice, weighed
from headrace.refresh.profile import inputs_of
from headrace.refresh.stored import Stored, as_source, read_note, read_stored
from headrace.storage.delta import DeltaLogs

SOURCE_GONE = "Create it again, or give the dynamic table another query with CREATE OR REPLACE DYNAMIC TABLE."
SOURCE_CHANGED = "Change it back, or give the dynamic table another query with CREATE OR REPLACE DYNAMIC TABLE."


@dataclass(frozen=True)
class Outlook:
    """What the next refresh would do, and from what."""

    stored: Stored
    decision: Decision
    frontier: Frontier | None
    facts: tuple[SourceFacts, ...]


class Lookout:
    """Looks ahead for all dynamic tables."""

    def __init__(self, spark: SparkSession, store: Store, logs: DeltaLogs) -> None:
        self._spark = spark
        self._store = store
        self._logs = logs

    def outlook(self, table: DynamicTable, *, today: str, off: frozenset[str]) -> Outlook:
        """Steps 2 to 4 of the protocol, without side effects and without a Spark job. `off` are optimisations to do
        without."""
        stored = read_stored(self._logs, table)
        old = stored.note.frontier if stored.note is not None else None
        offers = [self._offer(table.query, index) for index in range(len(table.query.sources))]
        choice = choose(offers)
        if choice.disagreement is not None:
            decision = decide(table, stored, (), today=today, disagreement=choice.disagreement)
            return Outlook(stored, decision, old, ())
        facts = tuple(self._facts(table.query, index, old, choice, offer) for index, offer in enumerate(offers))
        said = redefined(self._spark, table.query.definitions) or self._other_limit(table.query)
        decision = decide(table, stored, facts, today=today, redefined=said)
        if has_choice(table, decision) and CHOICE_BY_COST not in off:
            decision = self._weighed(table, decision, facts)
        return Outlook(stored, decision, _frontier(table, facts, choice, today), facts)

    def _weighed(self, table: DynamicTable, decision: Decision, facts: tuple[SourceFacts, ...]) -> Decision:
        inputs = inputs_of(self._logs, facts, decision.ranges)
        past = past_of(self._store.refreshes_with_changes(table.id, REMEMBERED), table.generation)
        root = table.query.plan.root if table.query.plan is not None else None
        work = Work(
            # A source that was overwritten may have lost all its rows and got as many new ones.
            changed_rows=sum(2 * each.rows if each.changed_rows is None else each.changed_rows for each in inputs),
            source_rows=sum(each.rows for each in inputs),
            insert_only=insert_only(decision.ranges),
            joins=root is not None and any(isinstance(node, AnyJoin) for node in walk(root)),
        )
        decision = replace(decision, whole_seconds=whole_seconds(past, work.source_rows))
        found = estimate(past, work)
        return decision if found is None else weighed(decision, found, lambda: self._readers(table))

    def _other_limit(self, query: Query) -> str | None:
        """A dynamic table among the sources that ends in another LIMIT than when the query was read, as a sentence:
        its storage holds all rows, so nothing else would tell."""
        for source in query.sources:
            if source.kind == "dynamic":
                upstream = self._store.table(TableName(source.workspace, source.schema_name, source.table))
                if upstream is not None and upstream.query.cut != source.cut:
                    return f"The LIMIT of {source.name} changed."
        return None

    def _readers(self, table: DynamicTable) -> list[str]:
        """The dynamic tables and table streams that read this one."""
        tables = [
            str(other.table_name)
            for other in self._store.tables()
            if any(source.path == table.storage_path for source in other.query.sources)
        ]
        streams = [each for each in self._store.streams.all() if each.source_path == table.storage_path]
        return tables + [str(each.table_name) for each in streams]

    def _identity(self, path: str) -> str:
        """Which table, not only where: one that was dropped and created again has versions of its own."""
        return f"{path}#{self._logs.snapshot(path).table_id}"

    def _offer(self, query: Query, index: int) -> Offer:
        source = query.sources[index]
        try:
            identity = self._identity(source.path)
        except NotFound:
            raise NotFound(f"{source.name} does not exist any more.", hint=SOURCE_GONE) from None
        if source.kind == "table":
            return Offer(identity, source.name, self._logs.effective(source.path))

        def candidates() -> Iterator[Candidate]:
            oldest = None
            for look in (self._logs.recent, self._logs.history):
                for commit in look(source.path):
                    note = read_note(commit.user_metadata)
                    if note is not None and not note.fold and (oldest is None or commit.version < oldest):
                        oldest = commit.version
                        yield Candidate(commit.version, note.frontier.lineage)

        newest = next(candidates(), None)
        if newest is None:
            raise NotFound(
                f"{source.name} has no contents yet.", hint=f"Run REFRESH DYNAMIC TABLE {source.name} first."
            )
        return Offer(identity, source.name, newest.version, is_dynamic=True, candidates=candidates)

    def _facts(self, query: Query, index: int, old: Frontier | None, choice: Choice, offer: Offer) -> SourceFacts:
        source = query.sources[index]
        snapshot = self._logs.snapshot(source.path)
        dynamic = source.kind == "dynamic"
        new = SourceVersion(
            path=source.path,
            table_id=snapshot.table_id,
            version=choice.versions[self._identity(source.path)],
            schema_digest=snapshot.digest(columns_read(query, index)),
        )
        before = next((s for s in old.sources if s.path == source.path), None) if old is not None else None
        commits = None
        if before is not None:
            found = self._logs.commits(source.path, before.version, new.version)
            commits = None if found is None else tuple(as_source(c) if dynamic else c for c in found)
        newer = new.version < offer.newest and (not dynamic or self._changed_after(source.path, new.version))
        return SourceFacts(source.name, dynamic, before, new, commits, dynamic or snapshot.tracks_changes, newer)

    def _changed_after(self, path: str, version: int) -> bool:
        """Whether a dynamic table's rows changed after this version. Its newest ones may only have carried on which
        versions it contains."""
        for look in (self._logs.recent, self._logs.history):
            for commit in look(path):
                if commit.version <= version:
                    return False
                if as_source(commit).changes != "none":
                    return True
        return True


def _frontier(table: DynamicTable, facts: tuple[SourceFacts, ...], choice: Choice, today: str) -> Frontier:
    return Frontier(
        sources=tuple(fact.new for fact in facts),
        lineage=choice.lineage,
        date=today if table.query.uses_current_date else None,
    )


def columns_read(query: Query, index: int) -> tuple[str, ...] | None:
    """The columns that the query reads from a source; None (all of them) when that is not known."""
    if query.plan is None:
        known = tuple(column.name for column in query.sources[index].columns)
        return (VISIBLE, *known) if known else None
    relations = [node for node in walk(query.plan.root) if isinstance(node, Relation) and node.source == index]
    return (VISIBLE, *sorted({own for relation in relations for own, _ in relation.columns}))
