"""How a refresh is decided, from facts alone."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timezone

import pytest

from headrace.catalog.records import ASKED_FOR, DynamicTable, Frontier, RefreshMode, SourceVersion
from headrace.errors import UserError
from headrace.plan.nodes import Aggregate, AggregateCall, Column, Filter, Plan, Relation
from headrace.plan.query import BoundText, OutputColumn, Query, Source
from headrace.refresh.planner import Decision, SourceFacts, decide, each_new_day
from headrace.refresh.stored import CommitNote, Stored
from headrace.statements.explaining import source_change
from headrace.storage.commits import ChangeKind, Commit

NOON = datetime(2024, 5, 1, 12, tzinfo=timezone.utc)
TODAY = "2024-05-01"
OLD = SourceVersion(path="/t", table_id="one", version=3, schema_digest="same")


def table(**changes: object) -> DynamicTable:
    column = Column(name="k_1", type="int")
    plan = Plan(root=Relation(source=0, columns=(("k", column),)), columns=(("k", column),))
    query = Query(
        text="SELECT k FROM t",
        resolved_text="SELECT k FROM main.public.t",
        bound=BoundText(pieces=()),
        sources=(Source(workspace="main", schema_name="public", table="t", path="/t", kind="table"),),
        columns=(OutputColumn(name="k", type="int"),),
        plan=plan,
    )
    first = DynamicTable(
        id="d1", workspace="main", schema_name="public", name="d", query=query, storage_path="/d",
        created_at=NOON, modified_at=NOON,
    )  # fmt: skip
    return first.model_copy(update=changes)


def stored(**changes: object) -> Stored:
    note = CommitNote(
        sequence=1, frontier=Frontier(sources=(OLD,)), rows_inserted=1, rows_deleted=0, live_rows=1, visible_rows=1,
        tombstones=0, appends_since_fold=0, job_id="j", mode="FULL", technique="FULL", reason=None, generation=1,
    )  # fmt: skip
    return Stored(version=1, sequence=1, note=replace(note, **changes), distrust=None)  # type: ignore[arg-type]


def commit(version: int, changes: ChangeKind = "append", rows: int | None = 2) -> Commit:
    return Commit(version, 0, "WRITE", changes, rows, None)


def facts(*commits: Commit, new: SourceVersion | None = None, **changes: object) -> SourceFacts:
    newest = new or OLD.model_copy(update={"version": OLD.version + len(commits)})
    base = SourceFacts("main.public.t", is_dynamic=False, old=OLD, new=newest, commits=commits, tracks_changes=True)
    return replace(base, **changes)  # type: ignore[arg-type]


def decided(
    fact: SourceFacts, *, of: DynamicTable | None = None, at: Stored | None = None, today: str = TODAY
) -> Decision:
    return decide(of or table(), at or stored(), (fact,), today=today)


def test_nothing_new() -> None:
    assert decided(facts()).mode == "NO_DATA"


def test_commits_without_changes_are_nothing_new() -> None:
    assert decided(facts(commit(4, "none"))).mode == "NO_DATA"


def test_appended_rows() -> None:
    decision = decided(facts(commit(4), commit(5, rows=3)))
    assert (decision.mode, decision.reason) == ("INCREMENTAL", None)
    (source,) = decision.ranges
    assert (source.old, source.new, source.changed, source.insert_only, source.rows) == (3, 5, True, True, 5)


def test_one_commit_of_unknown_size_makes_the_sum_unknown() -> None:
    (source,) = decided(facts(commit(4), commit(5, "mixed", rows=None))).ranges
    assert (source.insert_only, source.rows) == (False, None)


@pytest.mark.parametrize(
    ("fact", "reason"),
    [
        (facts(old=None), "was not read before"),
        (facts(new=OLD.model_copy(update={"table_id": "two"})), "was dropped and created again"),
        (facts(new=OLD.model_copy(update={"schema_digest": "other"})), "changed its name or type"),
    ],
)
def test_a_source_that_is_not_the_same_is_read_again(fact: SourceFacts, reason: str) -> None:
    decision = decided(fact)
    assert (decision.mode, decision.rebind) == ("FULL", True)
    assert reason in (decision.reason or "")


@pytest.mark.parametrize(
    ("fact", "reason"),
    [
        (facts(commit(4), tracks_changes=False), "change_tracking is off"),
        (facts(new=OLD.model_copy(update={"version": 9}), commits=None), "no longer has every version"),
    ],
)
def test_changes_that_cannot_be_read(fact: SourceFacts, reason: str) -> None:
    decision = decided(fact)
    assert (decision.mode, decision.rebind) == ("FULL", False)
    assert reason in (decision.reason or "")


def test_tracking_does_not_matter_while_nothing_changes() -> None:
    assert decided(facts(tracks_changes=False)).mode == "NO_DATA"


def test_a_version_that_went_back_waits() -> None:
    decision = decided(facts(new=OLD.model_copy(update={"version": 2})))
    assert (decision.mode, (decision.reason or "")[:8]) == ("NO_DATA", "Waiting:")


def test_only_the_frontier_of_a_dynamic_source_moves() -> None:
    moved = facts(commit(4, "none"), is_dynamic=True)
    assert (decided(moved).mode, decided(moved).reason) == ("INCREMENTAL", "Only the frontier moves.")


@pytest.mark.parametrize(
    ("of", "at", "reason"),
    [
        (table(), Stored(0, 0, None, None), "First load."),
        (table(), Stored(4, 2, None, "it was restored"), "The frontier is unknown: it was restored."),
        (table(stale_reason="A reason."), stored(), "A reason."),
        (table(generation=2), stored(), "The query was replaced."),
        (table(refresh_mode="FULL"), stored(), "REFRESH_MODE is FULL."),
        (
            table(query=table().query.model_copy(update={"plan": None, "unsupported": "a window"})),
            stored(),
            "No incremental rule: a window.",
        ),
    ],
)
def test_full_always_has_its_reason(of: DynamicTable, at: Stored, reason: str) -> None:
    decision = decided(facts(commit(4)), of=of, at=at)
    assert (decision.mode, decision.reason) == ("FULL", reason)


def test_a_table_in_full_mode_with_nothing_new_does_nothing() -> None:
    assert decided(facts(), of=table(refresh_mode="FULL")).mode == "NO_DATA"


def test_a_new_day_is_a_change_for_a_query_over_current_date() -> None:
    dated = table(query=table().query.model_copy(update={"uses_current_date": True}))
    same_day = stored(frontier=Frontier(sources=(OLD,), date=TODAY))
    assert decided(facts(), of=dated, at=same_day).mode == "NO_DATA"
    assert decided(facts(), of=dated, at=same_day, today="2024-05-02").mode == "INCREMENTAL"


def test_disagreement_upstream_waits_but_a_first_load_cannot() -> None:
    decision = decide(table(), stored(), (), today=TODAY, disagreement="refresh a first.")
    assert (decision.mode, decision.reason) == ("NO_DATA", "Waiting: refresh a first.")
    with pytest.raises(UserError, match="refresh a first"):
        decide(table(), Stored(0, 0, None, None), (), today=TODAY, disagreement="refresh a first.")
    for reason, waits in ((ASKED_FOR, True), ("The query was replaced.", False)):
        stale = table().model_copy(update={"stale_reason": reason})
        with nullcontext() if waits else pytest.raises(UserError, match="refresh a first"):
            assert decide(stale, stored(), (), today=TODAY, disagreement="refresh a first.").mode == "NO_DATA"


def test_rows_that_the_tables_upstream_do_not_agree_on_are_waited_for() -> None:
    left = facts(name="main.public.left", is_dynamic=True, newer_rows=True)
    right = facts(name="main.public.right", is_dynamic=True)
    decision = decide(table(), stored(), (left, right), today=TODAY)
    assert (decision.mode, decision.reason) == (
        "NO_DATA", "Waiting: main.public.left has newer rows, and main.public.right was not refreshed from them yet.",
    )  # fmt: skip
    several = decide(table(), stored(), (left, left, right, right), today=TODAY).reason or ""
    assert several.startswith("Waiting: main.public.left, main.public.left have newer rows, and main.public.right, ")
    assert decide(table(), stored(), (right, right), today=TODAY).reason is None
    taken = decide(table(), stored(), (facts(commit(4), newer_rows=True), right), today=TODAY)
    assert taken.mode == "INCREMENTAL", "what can be taken is taken"
    assert (taken.reason or "").startswith("Waiting: "), "and does not make the table fresh"


def test_checks_tell_what_was_looked_at() -> None:
    checks = {check.text: check.holds for check in decided(facts(commit(4))).checks}
    assert all(checks.values())
    assert "change_tracking is on for main.public.t" in checks


def test_changes_are_not_counted_between_two_tables() -> None:
    other = facts(commit(1), commit(2), new=OLD.model_copy(update={"table_id": "two", "version": 5}))
    (span,) = decided(other).ranges
    assert (span.changed, span.rows, span.insert_only) == (True, None, False)
    assert source_change(other, span) == "version 3 → 5: another table, created since under this name"
    same = facts(commit(4), commit(5))
    assert source_change(same, decided(same).ranges[0]) == "version 3 → 5: 4 rows touched, only insertions"
    assert source_change(facts(), decided(facts()).ranges[0]) == "version 3 → 3: no change"
    one = facts(commit(4, rows=1))
    assert source_change(one, decided(one).ranges[0]) == "version 3 → 4: 1 row touched, only insertions"


def test_what_a_new_day_does() -> None:
    """Told beforehand as it is decided then."""
    column = Column(name="k_1", type="int")
    leaf = Relation(source=0, columns=(("k", column),))
    by_row = Plan(root=Filter(child=leaf, condition="(k_1 < day(current_date()))"), columns=(("k", column),))
    call = AggregateCall(name="m_2", function="max", argument="current_date()", argument_type="date", type="date")
    grouped = Plan(root=Aggregate(child=leaf, keys=(), calls=(call,)), columns=())
    yesterday = stored(frontier=Frontier(sources=(OLD,), date="2024-04-30"))
    cases: tuple[tuple[Plan | None, RefreshMode, str], ...] = (
        (by_row, "AUTO", "moves rows of filters and projections, incrementally."),
        (grouped, "AUTO", "one FULL refresh: current_date is used in an aggregate"),
        (None, "AUTO", "one FULL refresh: No incremental rule: nothing."),
        (by_row, "FULL", "one FULL refresh: REFRESH_MODE is FULL."),
    )
    for plan, mode, word in cases:
        query = table().query.model_copy(update={"plan": plan, "uses_current_date": True, "unsupported": "nothing"})
        decision = decided(facts(), of=table(query=query, refresh_mode=mode), at=yesterday)
        told = each_new_day(query, mode)
        assert told is not None
        assert told.startswith(word)
        assert (decision.mode == "FULL") is ("FULL" in told)
        assert (decision.reason or "").removeprefix("A new day, and ") in told
    assert each_new_day(table().query, "AUTO") is None
