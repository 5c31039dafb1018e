"""Deciding how to refresh, as data and without side effects: EXPLAIN REFRESH and the runner read the same decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from headrace.catalog.records import ASKED_FOR, WAITING, DynamicTable, RefreshMode, SourceVersion
from headrace.errors import UserError
from headrace.ivm.layout import grouped_root
from headrace.ivm.rules.top import top_root
from headrace.ivm.sources import SourceRange
from headrace.plan.dates import moves_by_row
from headrace.plan.nodes import Plan, Window, walk
from headrace.plan.query import Query
from headrace.refresh.cost import Estimate
from headrace.refresh.stored import Stored
from headrace.storage.commits import Commit

Mode = Literal["NO_DATA", "INCREMENTAL", "FULL"]
_BY_NO_ROW = "current_date is used in an aggregate, a join condition or VALUES"


@dataclass(frozen=True)
class SourceFacts:
    """One source as the logs show it now."""

    name: str
    is_dynamic: bool
    old: SourceVersion | None
    new: SourceVersion
    commits: tuple[Commit, ...] | None
    """Between the two versions; None when the log no longer has them all."""
    tracks_changes: bool
    newer_rows: bool = False
    """Whether rows changed after the new version, which the tables upstream do not agree on yet."""

    @property
    def is_another_table(self) -> bool:
        """Whether it was dropped and created again: nothing that the two versions say can be compared."""
        return self.old is not None and self.old.table_id != self.new.table_id


@dataclass(frozen=True)
class Check:
    """A precondition of an incremental refresh, with its present value."""

    text: str
    holds: bool


@dataclass(frozen=True)
class Decision:
    mode: Mode
    reason: str | None
    ranges: tuple[SourceRange, ...]
    checks: tuple[Check, ...]
    rebind: bool = False
    """A source's columns changed or it was created again: the query must be read again before the full refresh."""
    estimate: Estimate | None = None
    """What both ways would take, where there is a choice and something to go by."""
    whole_seconds: float | None = None
    """What computing all rows would take, where earlier refreshes tell."""

    @property
    def full_by_choice(self) -> bool:
        return self.mode == "FULL" and self.estimate is not None


def has_choice(table: DynamicTable, decision: Decision) -> bool:
    """Whether the table could as well be computed whole: AUTO, and changes to apply."""
    return table.refresh_mode == "AUTO" and decision.mode == "INCREMENTAL" and any(r.changed for r in decision.ranges)


def weighed(decision: Decision, estimate: Estimate, readers: Callable[[], list[str]]) -> Decision:
    """The decision after a look at its cost. `readers` names the dynamic tables and streams that read this one: they
    would get all of its rows as changes."""
    if not estimate.prefers_full:
        told = " ".join(filter(None, (decision.reason, str(estimate))))
        return replace(decision, reason=told, estimate=estimate)
    reading = readers()
    if reading:
        kept = f"{estimate} Incremental all the same, because {reading[0]} reads the changes."
        return replace(decision, reason=kept, estimate=estimate)
    return replace(decision, mode="FULL", reason=str(estimate), estimate=estimate)


def decide(
    table: DynamicTable,
    stored: Stored,
    facts: tuple[SourceFacts, ...],
    *,
    today: str,
    disagreement: str | None = None,
    redefined: str | None = None,
) -> Decision:
    """The mode of the next refresh, its reason, and every precondition that led to it. `redefined` says what
    the query is written with that means something else now: a view, a function, a LIMIT upstream."""
    checks: list[Check] = []
    ranges = tuple(_range(fact) for fact in facts)

    def full(reason: str, *, rebind: bool = False) -> Decision:
        return Decision("FULL", reason, ranges, tuple(checks), rebind)

    loaded = stored.note is not None
    checks.append(Check("the table is loaded and its frontier is known", loaded))
    if disagreement is not None:
        checks.append(Check("the tables upstream agree on their common sources", False))
        is_stale = table.stale_reason not in (None, ASKED_FOR)
        if stored.note is None or is_stale or stored.note.generation != table.generation:
            raise UserError(
                f"{table.table_name} cannot be loaded: {disagreement}",
                hint="Refresh the tables upstream first.",
            )
        return Decision("NO_DATA", f"{WAITING}{disagreement}", ranges, tuple(checks))
    if stored.note is None:
        return full(f"The frontier is unknown: {stored.distrust}." if stored.distrust else "First load.")
    if table.stale_reason is not None:
        return full(table.stale_reason)
    if stored.note.generation != table.generation:
        return full("The query was replaced.")

    if table.query.definitions:
        checks.append(Check("the views and functions in the query are unchanged", redefined is None))
    if redefined is not None:
        return full(redefined, rebind=True)
    for fact in facts:
        reason = _broken(fact, checks)
        if reason is not None:
            return full(reason, rebind=True)

    behind = next((f for f in facts if f.old is not None and f.new.version < f.old.version), None)
    if behind is not None:
        reason = f"{WAITING}{behind.name} has no newer version that agrees."
        return Decision("NO_DATA", reason, ranges, tuple(checks))
    new_day = table.query.uses_current_date and stored.note.frontier.date != today
    changed = any(source.changed for source in ranges)
    checks.append(Check("a source has changes", changed))
    moved = any(f.is_dynamic and f.old is not None and f.new.version > f.old.version for f in facts)
    if not changed and not new_day:
        if moved:
            # Nothing to compute, but what is upstream of the source moved: tables downstream that compare frontiers
            # must see it.
            return Decision("INCREMENTAL", _waiting(facts) or "Only the frontier moves.", ranges, tuple(checks))
        return Decision("NO_DATA", _waiting(facts), ranges, tuple(checks))
    if table.refresh_mode == "FULL":
        return full("REFRESH_MODE is FULL.")
    if table.query.plan is None:
        checks.append(Check("every operator has an incremental rule", False))
        return full(f"No incremental rule: {table.query.unsupported}.")
    checks.append(Check("every operator has an incremental rule", True))
    if new_day:
        by_row = _moves_by_row(table.query.plan)
        checks.append(Check("a new day only moves rows of filters and projections", by_row))
        if not by_row:
            return full(f"A new day, and {_BY_NO_ROW}.")
    for fact in facts:
        reason = _unreadable(fact, checks)
        if reason is not None:
            return full(reason)
    return Decision("INCREMENTAL", _waiting(facts) or _one_partition(table.query.plan), ranges, tuple(checks))


def _one_partition(plan: Plan) -> str | None:
    best = top_root(plan)
    windows = [node for node in walk(plan.root) if isinstance(node, Window) and not node.keys]
    whole = any(best is None or node is not best.window for node in windows)
    return "A window function without PARTITION BY: all its rows are computed anew." if whole else None


def _moves_by_row(plan: Plan) -> bool:
    """Whether a new day only moves single rows. What is above an aggregate at the root is computed from its states."""
    grouped = grouped_root(plan)
    return moves_by_row(plan.root if grouped is None else grouped.aggregate)


def each_new_day(query: Query, refresh_mode: RefreshMode) -> str | None:
    """What the first refresh of a day has to do, by the rules of `decide`; None where it is as good as any other."""
    if not query.uses_current_date:
        return None
    if refresh_mode == "FULL":
        return "one FULL refresh: REFRESH_MODE is FULL."
    if query.plan is None:
        return f"one FULL refresh: No incremental rule: {query.unsupported}."
    if not _moves_by_row(query.plan):
        return f"one FULL refresh: {_BY_NO_ROW}."
    return "moves rows of filters and projections, incrementally."


def _waiting(facts: tuple[SourceFacts, ...]) -> str | None:
    """That there are rows which cannot be taken yet, and who has to be refreshed first; None when there are none."""
    newer = [fact.name for fact in facts if fact.newer_rows]
    if not newer:
        return None
    behind = [fact.name for fact in facts if fact.is_dynamic and not fact.newer_rows] or ["a table upstream"]
    have, were = "has" if len(newer) == 1 else "have", "was" if len(behind) == 1 else "were"
    return f"{WAITING}{', '.join(newer)} {have} newer rows, and {', '.join(behind)} {were} not refreshed from them yet."


def _range(fact: SourceFacts) -> SourceRange:
    commits = None if fact.is_another_table else fact.commits
    effective = [commit for commit in commits or () if commit.changes != "none"]
    known = all(commit.rows is not None for commit in effective)
    return SourceRange(
        path=fact.new.path,
        is_dynamic=fact.is_dynamic,
        old=None if fact.old is None else fact.old.version,
        new=fact.new.version,
        changed=(fact.old is not None and commits is None) or bool(effective),
        insert_only=commits is not None and all(commit.changes == "append" for commit in effective),
        rows=sum(commit.rows or 0 for commit in effective) if known and commits is not None else None,
    )


def _broken(fact: SourceFacts, checks: list[Check]) -> str | None:
    """Why the source is no longer the one the contents were computed from."""
    if fact.old is None:
        checks.append(Check(f"{fact.name} is in the frontier", False))
        return f"{fact.name} was not read before."
    same = not fact.is_another_table
    checks.append(Check(f"{fact.name} is the same table as before", same))
    if not same:
        return f"{fact.name} was dropped and created again."
    same_columns = fact.old.schema_digest == fact.new.schema_digest
    checks.append(Check(f"the columns read from {fact.name} are unchanged", same_columns))
    if not same_columns:
        return f"A column that the query reads from {fact.name} changed its name or type."
    return None


def _unreadable(fact: SourceFacts, checks: list[Check]) -> str | None:
    """Why the changes of a source cannot be read one by one."""
    complete = fact.commits is not None
    checks.append(Check(f"the log of {fact.name} has every version since the frontier", complete))
    if not complete:
        return f"The log of {fact.name} no longer has every version since the last refresh."
    if not any(commit.changes != "none" for commit in fact.commits or ()):
        return None
    checks.append(Check(f"change_tracking is on for {fact.name}", fact.tracks_changes))
    if not fact.tracks_changes:
        return f"change_tracking is off for {fact.name}."
    return None
