"""The decision alone: definitions, marks, pending runs and a time in; steps out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from headrace.catalog.records import DynamicTable, Mark, MarkState, Task
from headrace.names import TableName
from headrace.schedule.deciding import Begin, Forget, Pending, Reset, Skip, Step, Wait, decide, reason_below
from headrace.schedule.items import items_of
from unit.schedule_world import START, a_table, a_task, tick

MINUTE, FIVE = {"interval_seconds": 60}, {"interval_seconds": 300}


class Case:
    """Definitions with their marks and pending runs."""

    def __init__(self, *definitions: DynamicTable | Task) -> None:
        tables = [each for each in definitions if isinstance(each, DynamicTable)]
        self.items = items_of(tables, [each for each in definitions if isinstance(each, Task)])
        self._ids = {item.name.table: item.id for item in self.items.values()}
        self._marks: dict[str, Mark] = {}
        self._pending: dict[str, Pending] = {}

    def mark(self, name: str, at: datetime, state: MarkState = "SUCCEED", reason: str | None = None) -> Case:
        self._marks[self._ids[name]] = Mark(object_id=self._ids[name], tick=at, state=state, reason=reason, at=at)
        return self

    def pending(self, name: str, at: datetime, *, begun: bool = False) -> Case:
        self._pending[self._ids.get(name, name)] = Pending(at, 0, begun)
        if name in self._ids:
            self.mark(name, at, "CLAIMED")
        return self

    def at(self, now: datetime, busy: Sequence[str] = ()) -> dict[str, Step]:
        """The steps by name."""
        steps = decide(self.items, self._marks, self._pending, now, {self._ids[each] for each in busy})
        assert len({step.item for step in steps}) == len(steps)
        names = {each: name for name, each in self._ids.items()}
        return {names.get(step.item, step.item): step for step in steps}

    def words(self, now: datetime) -> dict[str, str]:
        """What happens to each, as `begin 12:01`, `wait for a`, `skip because …`."""
        names = {each: name for name, each in self._ids.items()}

        def word(step: Step) -> str:
            if isinstance(step, Begin):
                return f"begin {step.tick:%H:%M}" + (f" +{step.merged}" if step.merged else "")
            if isinstance(step, Wait):
                return f"{step.tick:%H:%M} waits for {', '.join(names[each] for each in step.on)}"
            return f"skip {step.tick:%H:%M}" if isinstance(step, Skip) else type(step).__name__

        return {name: word(step) for name, step in self.at(now).items()}


# ---- ticks


def test_nothing_is_due_before_the_first_tick_after_the_creation() -> None:
    case = Case(a_table("a", **MINUTE))
    assert case.at(START) == {}
    assert case.at(tick(1) - timedelta(microseconds=1)) == {}
    assert case.words(tick(1)) == {"a": "begin 12:01"}


def test_a_creation_at_a_tick_is_not_due_at_it() -> None:
    case = Case(a_table("a", created_at=tick(1), **MINUTE))
    assert case.at(tick(1)) == {}
    assert case.words(tick(2)) == {"a": "begin 12:02"}


def test_nothing_before_start_with() -> None:
    case = Case(a_table("a", start_with=tick(10), **MINUTE))
    assert case.at(tick(9)) == {}
    assert case.words(tick(10)) == {"a": "begin 12:10"}


def test_a_tick_is_due_once() -> None:
    case = Case(a_table("a", **MINUTE)).mark("a", tick(1))
    assert case.at(tick(1)) == case.at(tick(1.99)) == {}
    assert case.words(tick(2)) == {"a": "begin 12:02"}


@pytest.mark.parametrize("state", ["SUCCEED", "FAILED", "SKIPPED"])
def test_however_the_last_one_ended(state: MarkState) -> None:
    assert Case(a_table("a", **MINUTE)).mark("a", tick(1), state).words(tick(2)) == {"a": "begin 12:02"}


def test_late_ticks_are_merged_into_the_newest() -> None:
    case = Case(a_table("a", **MINUTE)).mark("a", tick(1))
    assert case.at(tick(9.5)) == {"a": Begin("table-a", tick(9), 7)}
    assert Case(a_table("a", **MINUTE)).at(tick(9.5)) == {"a": Begin("table-a", tick(9), 8)}


def test_one_that_is_pending_gets_no_second_run() -> None:
    case = Case(a_table("a", **MINUTE)).pending("a", tick(1), begun=True)
    assert case.at(tick(7)) == {}


def test_by_hand_only() -> None:
    assert Case(a_table("a"), a_task("t")).at(tick(99)) == {}


def test_what_is_suspended_is_not_due() -> None:
    assert Case(a_table("a", suspended=True, **MINUTE), a_task("t", suspended=True, **MINUTE)).at(tick(9)) == {}


def test_what_is_suspended_while_it_waits_is_skipped() -> None:
    case = Case(a_table("a", suspended=True, suspended_reason="By ann.", **MINUTE)).pending("a", tick(1))
    assert case.at(tick(2)) == {"a": Skip("table-a", tick(1), 0, "It is suspended: By ann.")}
    case = Case(a_table("a", suspended=True, **MINUTE)).pending("a", tick(1), begun=True)
    assert case.at(tick(2)) == {}


def test_what_is_gone_before_it_began_is_forgotten() -> None:
    assert Case().pending("gone", tick(1)).at(tick(2)) == {"gone": Forget("gone")}
    assert Case().pending("gone", tick(1), begun=True).at(tick(2)) == {}


def test_what_is_being_run_by_hand_waits_for_itself() -> None:
    case = Case(a_task("t", **MINUTE))
    assert case.at(tick(1), busy=["t"]) == {"t": Wait("task-t", tick(1), 0, ("task-t",))}


# ---- order


def diamond(**bottom: Any) -> Case:
    return Case(
        a_table("top", **MINUTE),
        a_table("left", "top", **MINUTE),
        a_table("right", "top", **MINUTE),
        a_table("bottom", "left", "right", **{**MINUTE, **bottom}),
    )


def test_a_diamond_begins_at_its_top() -> None:
    assert diamond().words(tick(1)) == {
        "top": "begin 12:01",
        "left": "12:01 waits for top",
        "right": "12:01 waits for top",
        "bottom": "12:01 waits for left, right",
    }


def test_then_its_sides_and_then_its_bottom() -> None:
    case = diamond().mark("top", tick(1))
    for name in ("left", "right", "bottom"):
        case.pending(name, tick(1))
    assert case.words(tick(1.1)) == {
        "left": "begin 12:01", "right": "begin 12:01", "bottom": "12:01 waits for left, right",
    }  # fmt: skip
    case = diamond().mark("top", tick(1)).mark("left", tick(1)).pending("right", tick(1), begun=True)
    assert case.pending("bottom", tick(1)).words(tick(1.1)) == {"bottom": "12:01 waits for right"}
    case = diamond().mark("top", tick(1)).mark("left", tick(1)).mark("right", tick(1)).pending("bottom", tick(1))
    assert case.words(tick(1.1)) == {"bottom": "begin 12:01"}


def test_one_failing_side_holds_up_its_own_branch_only() -> None:
    case = diamond().mark("top", tick(1)).mark("left", tick(1), "FAILED", "No such column.")
    case.pending("right", tick(1), begun=True).pending("bottom", tick(1))
    reason = "Its upstream main.public.left failed: No such column."
    assert case.at(tick(1.1)) == {"bottom": Skip("table-bottom", tick(1), 0, reason)}


def test_a_skip_goes_down_to_the_last_with_its_first_cause() -> None:
    chain = Case(*(a_table(f"t{n}", *([f"t{n - 1}"] if n else []), **MINUTE) for n in range(5)))
    chain.mark("t0", tick(1), "FAILED", "boom")
    steps = chain.at(tick(1))
    assert [step.reason for step in steps.values() if isinstance(step, Skip)] == [
        "Its upstream main.public.t0 failed: boom",
        "Its upstream main.public.t1 was skipped: main.public.t0 failed: boom",
        "Its upstream main.public.t2 was skipped: main.public.t0 failed: boom",
        "Its upstream main.public.t3 was skipped: main.public.t0 failed: boom",
    ]


def test_a_skip_is_known_also_when_it_was_written_long_ago() -> None:
    case = Case(a_table("a", **MINUTE), a_table("b", "a", **MINUTE))
    case.mark("a", tick(1), "SKIPPED", "Its upstream main.public.x failed: boom").pending("b", tick(1))
    reason = "Its upstream main.public.a was skipped: main.public.x failed: boom"
    assert case.at(tick(1.5)) == {"b": Skip("table-b", tick(1), 0, reason)}


def test_a_skip_at_another_tick_is_another_matter() -> None:
    case = Case(a_table("x", suspended=True), a_table("a", "x", **MINUTE), a_table("b", "a", **MINUTE))
    case.mark("a", tick(1)).pending("b", tick(1))
    assert case.words(tick(2)) == {"a": "skip 12:02", "b": "begin 12:01"}


def test_a_failure_at_another_tick_is_another_matter() -> None:
    case = Case(a_table("a", **FIVE), a_table("b", "a", **MINUTE)).mark("a", tick(5), "FAILED").mark("b", tick(5))
    assert case.words(tick(6)) == {"b": "begin 12:06"}


def test_a_failure_counts_also_when_the_next_tick_has_come() -> None:
    """What waited for the failed run must not begin with the next one."""
    case = Case(a_table("a", **MINUTE), a_table("b", "a", **MINUTE))
    case.mark("a", tick(1), "FAILED", "boom").pending("b", tick(1))
    assert case.words(tick(2)) == {"a": "begin 12:02", "b": "skip 12:01"}


def test_an_older_run_upstream_is_waited_for() -> None:
    case = Case(a_table("a", **FIVE), a_table("b", "a", **MINUTE)).pending("a", tick(5), begun=True).mark("b", tick(5))
    assert case.words(tick(7)) == {"b": "12:07 waits for a"}


def test_a_newer_run_upstream_is_not() -> None:
    case = Case(a_table("a", **MINUTE), a_table("b", "a", **MINUTE)).pending("a", tick(2), begun=True)
    assert case.pending("b", tick(1)).words(tick(2)) == {"b": "begin 12:01"}


def test_what_is_not_due_upstream_is_not_waited_for() -> None:
    case = Case(a_table("a", **FIVE), a_table("b", "a", **MINUTE)).mark("a", tick(0))
    assert case.words(tick(1)) == {"b": "begin 12:01"}


def test_upstream_by_hand_only_is_not_waited_for() -> None:
    assert Case(a_table("a"), a_table("b", "a", **MINUTE)).words(tick(1)) == {"b": "begin 12:01"}


def test_suspended_upstream() -> None:
    case = Case(
        a_table("a", suspended=True, suspended_reason="Five failed.", **MINUTE),
        a_table("b", "a", **MINUTE),
        a_table("c", "b", **MINUTE),
        a_table("other", **MINUTE),
    )
    steps = case.at(tick(1))
    assert steps["b"] == Skip("table-b", tick(1), 0, "Its upstream main.public.a is suspended: Five failed.")
    why = "Its upstream main.public.b was skipped: main.public.a is suspended: Five failed."
    assert steps["c"] == Skip("table-c", tick(1), 0, why)
    assert steps["other"] == Begin("table-other", tick(1), 0)


def test_suspended_while_it_runs_is_waited_for() -> None:
    case = Case(a_table("a", suspended=True, **MINUTE), a_table("b", "a", **MINUTE))
    case.pending("a", tick(1), begun=True).pending("b", tick(1))
    assert case.words(tick(1.1)) == {"b": "12:01 waits for a"}
    case = Case(a_table("a", suspended=True, **MINUTE), a_table("b", "a", **MINUTE))
    assert case.mark("a", tick(1)).pending("b", tick(1)).words(tick(1.2)) == {"b": "begin 12:01"}
    assert case.words(tick(2)) == {"b": "begin 12:01"}  # And skipped at 12:02.


def test_tables_and_tasks_wait_for_each_other() -> None:
    case = Case(
        a_task("load", **MINUTE),
        a_table("a", **MINUTE),
        a_task("report", "load", "a", **MINUTE),
        a_task("mail", "report"),
    )
    assert case.words(tick(1)) == {
        "load": "begin 12:01",
        "a": "begin 12:01",
        "report": "12:01 waits for a, load",
        "mail": "12:01 waits for report",
    }


# ---- after others


def test_a_follower_runs_at_each_tick_of_what_it_follows() -> None:
    case = Case(a_task("quick", **MINUTE), a_task("slow", **FIVE), a_task("after", "quick", "slow"))
    for name in ("quick", "slow", "after"):
        case.mark(name, tick(5))
    assert case.words(tick(6)) == {"quick": "begin 12:06", "after": "12:06 waits for quick"}
    for name in ("quick", "after"):
        case.mark(name, tick(9))
    assert case.words(tick(10)) == {
        "quick": "begin 12:10", "slow": "begin 12:10", "after": "12:10 waits for quick, slow",
    }  # fmt: skip


def test_a_follower_that_was_busy_makes_up_for_what_it_missed() -> None:
    case = Case(a_task("a", **MINUTE), a_task("after", "a")).mark("a", tick(5)).mark("after", tick(1))
    assert case.at(tick(5.5)) == {"after": Begin("task-after", tick(5), 3)}


def test_a_follower_is_skipped_with_what_it_follows() -> None:
    case = Case(a_task("a", **MINUTE), a_task("after", "a")).mark("a", tick(5), "FAILED", "boom").mark("after", tick(4))
    reason = "Its upstream main.public.a failed: boom"
    assert case.at(tick(5.5)) == {"after": Skip("task-after", tick(5), 0, reason)}


def test_a_follower_is_newer_than_the_tick() -> None:
    case = Case(a_task("a", **MINUTE), a_task("after", "a", created_at=tick(5.2))).mark("a", tick(5))
    assert case.at(tick(5.5)) == {}
    assert case.words(tick(6)) == {"a": "begin 12:06", "after": "12:06 waits for a"}


def test_nobody_follows_what_was_never_run() -> None:
    assert Case(a_table("a"), a_task("after", "a"), a_task("b"), a_task("c", "b")).at(tick(5)) == {}


def test_a_follower_of_what_runs_by_hand_only() -> None:
    case = Case(a_table("a"), a_task("after", "a"), a_task("last", "after")).mark("a", tick(3.2))
    assert case.words(tick(5)) == {"after": "begin 12:03", "last": "12:03 waits for after"}
    assert case.mark("after", tick(3.2)).mark("last", tick(3.2)).at(tick(5)) == {}


def test_a_follower_whose_mark_lies_far_ahead_is_put_right() -> None:
    case = Case(a_table("a"), a_task("after", "a")).mark("a", tick(3)).mark("after", tick(500))
    assert case.at(tick(5)) == {"after": Reset("task-after", tick(5), tick(500))}
    assert case.mark("after", tick(12)).at(tick(5)) == {}, "so little is waited for"


def test_followers_of_followers() -> None:
    case = Case(a_table("a", **MINUTE), a_task("b", "a"), a_task("c", "b"), a_task("d", "c", "a"))
    assert case.words(tick(1)) == {
        "a": "begin 12:01", "b": "12:01 waits for a", "c": "12:01 waits for b", "d": "12:01 waits for a, c",
    }  # fmt: skip


# ---- before others


def test_downstream_is_refreshed_before_who_reads_it() -> None:
    case = Case(
        a_table("base", target_lag="DOWNSTREAM"),
        a_table("middle", "base", target_lag="DOWNSTREAM"),
        a_table("quick", "middle", **MINUTE),
        a_table("slow", "base", **FIVE),
    )
    assert case.words(tick(1)) == {
        "base": "begin 12:01", "middle": "12:01 waits for base", "quick": "12:01 waits for middle",
    }  # fmt: skip
    for name in ("base", "middle", "quick"):
        case.mark(name, tick(4))
    assert set(case.words(tick(5))) == {"base", "middle", "quick", "slow"}
    assert case.words(tick(5))["slow"] == "12:05 waits for base"


def test_downstream_catches_up_for_a_reader_that_waits_for_it() -> None:
    """base still ran for 12:03 when slow became due at 12:05: it runs once more before slow."""
    case = Case(
        a_table("base", target_lag="DOWNSTREAM"),
        a_table("quick", "base", **MINUTE),
        a_table("slow", "base", **FIVE),
    )
    case.mark("base", tick(3)).pending("quick", tick(3), begun=True).pending("slow", tick(5))
    assert case.words(tick(7)) == {"base": "begin 12:05 +1", "slow": "12:05 waits for base"}


def test_downstream_of_nobody_and_of_what_is_suspended() -> None:
    assert Case(a_table("base", target_lag="DOWNSTREAM")).at(tick(5)) == {}
    case = Case(a_table("base", target_lag="DOWNSTREAM"), a_table("top", "base", suspended=True, **MINUTE))
    assert case.at(tick(5)) == {}


def test_downstream_that_is_suspended_skips_who_reads_it() -> None:
    case = Case(a_table("base", target_lag="DOWNSTREAM", suspended=True), a_table("top", "base", **MINUTE))
    assert case.words(tick(1)) == {"top": "skip 12:01"}


def test_a_reader_that_has_begun_needs_nothing_any_more() -> None:
    case = Case(a_table("base", target_lag="DOWNSTREAM"), a_table("top", "base", **MINUTE))
    assert case.mark("base", tick(0)).pending("top", tick(1), begun=True).at(tick(1.5)) == {}


# ---- what can never run


def test_an_unknown_predecessor_and_a_circle_are_reasons_to_skip() -> None:
    case = Case(
        a_task("t", "gone", **MINUTE), a_task("a", "b", **MINUTE), a_task("b", "a"), a_task("below", "b"),
        a_task("never", "gone"), a_task("fine", **MINUTE),
    )  # fmt: skip
    assert case.words(tick(1)) == {
        "t": "skip 12:01", "fine": "begin 12:01", "a": "skip 12:01", "b": "skip 12:01", "below": "skip 12:01",
    }  # fmt: skip
    step = case.at(tick(1))["t"]
    assert isinstance(step, Skip)
    assert step.reason == "It runs after main.public.gone, which does not exist."


# ---- the clock


def test_a_clock_put_back_a_little_is_waited_for() -> None:
    case = Case(a_table("a", **MINUTE)).mark("a", tick(10))
    assert case.at(tick(0.5)) == {}
    assert case.at(tick(9)) == {}
    assert case.words(tick(11)) == {"a": "begin 12:11"}


def test_a_clock_put_back_far_resets_the_mark() -> None:
    case = Case(a_table("a", **MINUTE)).mark("a", tick(60))
    assert case.at(tick(49.5)) == {"a": Reset("table-a", tick(49), tick(60))}
    assert case.at(tick(50)) == {}  # Ten minutes exactly.


def test_two_periods_are_waited_for() -> None:
    case = Case(a_table("a", interval_seconds=3600)).mark("a", tick(240))
    assert case.at(tick(120)) == {}
    assert case.at(tick(119)) == {"a": Reset("table-a", tick(60), tick(240))}


def test_a_creation_in_the_future_is_put_right_as_well() -> None:
    case = Case(a_table("a", created_at=tick(1000), **MINUTE), a_table("manual", created_at=tick(1000)))
    assert case.at(tick(0.5)) == {"a": Reset("table-a", tick(0), tick(1000))}


def test_a_task_does_not_make_up_for_the_time_it_was_suspended() -> None:
    case = Case(a_task("t", times_from=tick(10.5), **MINUTE)).mark("t", tick(1))
    assert case.at(tick(10.9)) == {}
    assert case.at(tick(11)) == {"t": Begin("task-t", tick(11), 0)}


def test_times_set_by_a_wrong_clock_do_not_hold_it_up() -> None:
    case = Case(a_task("t", times_from=tick(1000), **MINUTE), a_task("u", times_from=tick(1000), **MINUTE))
    case.mark("t", tick(1))
    assert case.words(tick(2)) == {"t": "begin 12:02", "u": "Reset"}
    case.mark("t", tick(995))
    assert case.at(tick(996)) == {}  # By now it can be waited for.
    assert case.mark("u", tick(1000)).words(tick(1001)) == {"t": "begin 04:41", "u": "begin 04:41"}


def test_before_the_anchor_the_mark_is_put_to_now() -> None:
    case = Case(a_table("a", start_with=tick(100), **MINUTE)).mark("a", tick(160))
    assert case.at(tick(50.5)) == {"a": Reset("table-a", tick(50.5), tick(160))}


def test_what_is_pending_is_not_reset() -> None:
    assert Case(a_table("a", **MINUTE)).pending("a", tick(60), begun=True).at(tick(0)) == {}


def test_a_follower_is_reset_with_what_it_follows() -> None:
    case = Case(a_task("a", **MINUTE), a_task("after", "a")).mark("a", tick(60)).mark("after", tick(60))
    assert case.words(tick(5.5)) == {"a": "Reset", "after": "Reset"}


def test_a_follower_does_not_follow_into_the_future() -> None:
    case = Case(a_task("a", **MINUTE), a_task("after", "a")).mark("a", tick(60)).mark("after", tick(12))
    assert case.words(tick(5.5)) == {"a": "Reset"}
    case = Case(a_task("a", **MINUTE), a_task("after", "a")).pending("a", tick(6), begun=True).mark("after", tick(5))
    assert case.at(tick(5.9)) == {}
    assert case.words(tick(6)) == {"after": "12:06 waits for a"}


def test_a_jump_forward_is_one_late_tick() -> None:
    case = Case(a_table("a", **MINUTE)).mark("a", tick(1))
    assert case.at(tick(60 * 24 * 365)) == {"a": Begin("table-a", tick(60 * 24 * 365), 60 * 24 * 365 - 2)}


# ---- words


def test_reasons_stay_short_and_true() -> None:
    name = TableName("main", "public", "x")
    assert reason_below(name, "FAILED", None) == "Its upstream main.public.x failed."
    assert (
        reason_below(name, "SKIPPED", "It is suspended.") == "Its upstream main.public.x was skipped: It is suspended."
    )
    assert reason_below(name, "SKIPPED", None).startswith("Its upstream main.public.x was skipped: ")
