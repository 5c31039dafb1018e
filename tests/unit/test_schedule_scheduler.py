"""Looks over tables and tasks, with jobs that end when the test says so and a clock that the test moves."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headrace.errors import (
    Cancelled,
    EnvironmentFault,
    NotAllowed,
    NotFound,
    QueryFailed,
    RefreshFailed,
    RefreshRunning,
)
from unit.schedule_world import START, World, tick


@pytest.fixture
def world() -> World:
    return World()


# ---- ticks


def test_a_table_is_refreshed_at_each_of_its_ticks(world: World) -> None:
    world.table("a")
    assert world.look() == 10.0
    assert world.begun == []
    for minute in (1, 2, 3):
        world.advance(1)
        world.end("a")
        assert world.mark("a").tick == tick(minute)
    assert world.begun == [("a", tick(1)), ("a", tick(2)), ("a", tick(3))]
    assert world.mark("a").state == "SUCCEED"
    assert world.mark("a").job_id == "job-3"
    assert world.work.targets["a"] == tick(4)


def test_a_tick_is_claimed_before_its_job_is_submitted(world: World) -> None:
    world.table("a")
    world.work.refuse["a"] = QueryFailed("no")
    world.advance(1)
    assert world.store.marks.claims == [("table-a", tick(1))]


def test_the_pause_until_the_next_look(world: World) -> None:
    world.table("a")
    world.clock.advance(25)
    assert world.look() == pytest.approx(5.0)
    world.clock.advance(4.9)
    assert world.look() == pytest.approx(0.1)
    world.clock.advance(0.1)
    assert world.look() == 10.0  # Its job goes on; there are 60 seconds until its next tick.
    world.job("a").end()
    assert world.look() == 10.0


def test_while_it_runs_later_ticks_wait_and_are_merged(world: World) -> None:
    world.table("a")
    world.advance(1)
    for _ in range(5):
        world.advance(1)
    assert world.at_work == ["a"]
    world.end("a")
    assert world.begun == [("a", tick(1)), ("a", tick(6))]
    assert world.mark("a").merged == 4
    world.end("a")
    assert (world.mark("a").state, world.mark("a").merged) == ("SUCCEED", 4)


def test_what_was_missed_while_nobody_looked_is_one_run(world: World) -> None:
    world.table("a")
    world.look()
    world.advance(600)
    assert world.begun == [("a", tick(600))]
    assert world.mark("a").merged == 599


def test_a_changed_interval(world: World) -> None:
    world.table("a", minutes=60)
    world.succeed_from_now_on()
    world.advance(60)
    world.look()
    world.alter("a", interval_seconds=60)
    world.advance(1)
    world.look()
    assert world.begun == [("a", tick(60)), ("a", tick(61))]
    world.alter("a", interval_seconds=None)
    world.advance(60)
    assert len(world.begun) == 2


# ---- nothing to do


def test_a_wave_without_work_is_one_transaction(world: World) -> None:
    for number in range(50):
        world.table(f"t{number}")
        world.work.idle_tables.add(f"t{number}")
    world.look()
    world.store.faults.calls.clear()
    world.advance(1)
    assert world.begun == []
    assert [call for call in world.store.faults.calls if call.startswith("marks")] == ["marks.record_idle"]
    assert len(world.store.marks.idle) == 50
    record = world.store.marks.idle[0]
    assert (record.tick, record.completion_target, record.trigger) == (tick(1), tick(2), "SYSTEM_SCHEDULED")
    assert world.mark("t7").job_id == next(each.job_id for each in world.store.marks.idle if each.name == "t7")
    assert len(world.work.ends) == 50


def test_layers_without_work_go_down_in_one_look(world: World) -> None:
    for number in range(10):
        world.table(f"t{number}", *([f"t{number - 1}"] if number else []))
        world.work.idle_tables.add(f"t{number}")
    world.advance(1)
    assert [names for names in world.work.idle_calls if names] == [[f"t{number}"] for number in range(10)]
    assert set(world.marks().values()) == {"SUCCEED"}
    assert world.store.marks.claims == []


def test_only_what_has_work_becomes_a_job(world: World) -> None:
    world.table("a")
    world.table("b", "a")
    world.table("c", "b")
    world.table("d", "a")
    world.work.idle_tables = {"a", "c", "d"}
    world.advance(1)
    assert world.at_work == ["b"]
    assert world.marks() == {"a": "SUCCEED", "b": "CLAIMED", "c": "CLAIMED", "d": "SUCCEED"}
    assert world.waiting() == {"c": ("b",)}
    world.end("b")
    assert world.marks()["c"] == "SUCCEED"
    assert world.begun == [("b", tick(1))]


def test_if_that_cannot_be_seen_all_become_jobs(world: World) -> None:
    world.table("a")
    world.work.idle_error = RuntimeError("odd")
    world.advance(1)
    assert world.at_work == ["a"]


def test_records_of_others_are_not_taken(world: World) -> None:
    world.table("a")
    world.table("b", minutes=None)
    other = world.work._no_data(world.store.definitions["table-b"])
    world.work.idle = lambda tables, ticks: [other]  # type: ignore[method-assign]
    world.advance(1)
    assert world.store.marks.idle == []
    assert world.at_work == ["a"]


# ---- order


def test_a_diamond_with_a_failing_side(world: World) -> None:
    world.table("top")
    world.table("left", "top")
    world.table("right", "top")
    world.table("bottom", "left", "right")
    world.table("below_right", "right")
    world.advance(1)
    assert world.at_work == ["top"]
    world.end("top")
    assert world.at_work == ["left", "right"]
    world.fail("left", "No such column.")
    assert world.mark("bottom").state == "SKIPPED"
    assert world.mark("bottom").reason == "Its upstream main.public.left failed: No such column."
    assert world.at_work == ["right"]
    world.end("right")
    assert world.at_work == ["below_right"]
    world.end("below_right")
    assert world.marks() == {
        "top": "SUCCEED", "left": "FAILED", "right": "SUCCEED", "bottom": "SKIPPED", "below_right": "SUCCEED",
    }  # fmt: skip
    world.advance(1)
    world.end_all()
    assert set(world.marks().values()) == {"SUCCEED"}


def test_bottom_never_begins_with_one_side_of_another_tick(world: World) -> None:
    """A side that is slow: what waits for it waits with its own tick, and is late with the next."""
    world.table("left")
    world.table("right")
    world.table("bottom", "left", "right")
    world.advance(1)
    world.end("left")
    world.advance(1)  # left runs for 12:02, right still for 12:01.
    assert world.at_work == ["right", "left"]
    world.end("right")
    assert ("bottom", tick(1)) in world.begun
    world.end_all()
    assert world.begun[-1] == ("bottom", tick(2))
    assert world.mark("bottom").merged == 0


def test_a_whole_chain_is_skipped_in_one_look(world: World) -> None:
    for number in range(6):
        world.table(f"t{number}", *([f"t{number - 1}"] if number else []))
    world.advance(1)
    world.fail("t0", "boom")
    assert [mark.reason for _, mark in world.work.ends[1:]] == [
        "Its upstream main.public.t0 failed: boom",
        *(f"Its upstream main.public.t{n} was skipped: main.public.t0 failed: boom" for n in range(1, 5)),
    ]
    assert world.at_work == []


def test_a_suspended_table_stops_what_reads_it_and_nothing_else(world: World) -> None:
    world.table("a")
    world.table("b", "a")
    world.table("other")
    world.suspend("a", "Suspended by the user.")
    world.advance(1)
    assert world.at_work == ["other"]
    assert world.mark("b").reason == "Its upstream main.public.a is suspended: Suspended by the user."
    world.resume("a")
    world.look()
    assert world.at_work == ["other", "a"]
    world.end_all()
    world.advance(1)
    world.end_all()
    assert world.mark("b").state == "SUCCEED"


def test_resumed_after_a_long_time_it_runs_once_and_at_once(world: World) -> None:
    world.table("a")
    world.suspend("a")
    world.advance(100)
    world.resume("a")
    world.advance(0.1)
    assert world.begun == [("a", tick(100))]


# ---- downstream and followers


def test_downstream_tables_move_with_their_readers(world: World) -> None:
    world.table("base", minutes=None, target_lag="DOWNSTREAM")
    world.table("middle", "base", minutes=None, target_lag="DOWNSTREAM")
    world.table("top", "middle", minutes=5)
    world.advance(1)
    assert world.begun == []
    world.advance(4)
    assert world.at_work == ["base"]
    assert world.waiting() == {"middle": ("base",), "top": ("middle",)}
    world.end("base")
    world.end("middle")
    assert world.at_work == ["top"]
    assert world.work.targets == {"base": tick(10), "middle": tick(10), "top": tick(10)}
    world.end("top")
    world.advance(1)
    assert world.at_work == []


def test_downstream_for_readers_at_different_times(world: World) -> None:
    world.table("base", minutes=None, target_lag="DOWNSTREAM")
    world.table("quick", "base", minutes=1)
    world.table("slow", "base", minutes=5)
    world.succeed_from_now_on()
    world.work.at_once = lambda name, tick: None if name != "base" else False
    world.advance(3)
    world.end("base")
    world.advance(1)  # base runs for 12:04 until after 12:05.
    world.advance(1)
    assert world.waiting() == {"quick": ("base",), "slow": ("base",)}
    world.end("base")
    world.look()
    assert world.begun[-2:] == [("base", tick(5)), ("quick", tick(4))]
    assert world.waiting() == {"slow": ("base",), "quick": ("base",)}
    world.advance(0.1)
    world.end("base")
    world.look()
    assert ("slow", tick(5)) in world.begun
    assert ("quick", tick(5)) in world.begun


def test_a_failing_downstream_table_skips_its_reader(world: World) -> None:
    world.table("base", minutes=None, target_lag="DOWNSTREAM")
    world.table("top", "base")
    world.advance(1)
    world.fail("base", "boom")
    assert world.mark("top").state == "SKIPPED"


def test_followers_come_after_tables_and_tasks(world: World) -> None:
    world.task("load", minutes=1)
    world.table("a", minutes=1)
    world.task("report", "load", "a")
    world.task("mail", "report")
    world.advance(1)
    assert world.at_work == ["a", "load"]
    world.end("a")
    assert world.waiting() == {"report": ("load",), "mail": ("report",)}
    world.end("load")
    assert world.at_work == ["report"]
    world.end("report")
    world.end("mail")
    assert world.states("mail") == ["SUCCEED"]
    (run,) = world.runs("mail")
    assert (run.trigger, run.tick, run.job_id) == ("AFTER", tick(1), "job-4")
    (run,) = world.runs("load")
    assert (run.trigger, run.tick, run.started_at, run.ended_at) == ("SCHEDULE", tick(1), tick(1.5), tick(1.5))


def test_a_slow_follower_merges_what_it_missed(world: World) -> None:
    world.task("a", minutes=1)
    world.task("after", "a")
    world.work.at_once = lambda name, tick: None if name == "a" else False
    for _ in range(4):
        world.advance(1)
        world.look()
    assert world.at_work == ["after"]
    world.end("after")
    assert world.begun[-1] == ("after", tick(4))
    assert world.mark("after").merged == 2
    assert [run.merged for run in world.runs("after")] == [0, 2]


# ---- failures


def test_five_failures_in_a_row_suspend_a_table(world: World) -> None:
    world.table("a")
    world.table("b", "a")
    world.fail_from_now_on("a")
    for failures in range(1, 5):
        world.advance(1)
        world.look()
        assert (world.mark("a").state, world.mark("a").failures) == ("FAILED", failures)
        assert world.work.suspensions == []
    world.advance(1)
    world.look()
    told = (
        "Five scheduled refreshes in a row failed; mend it, then ALTER DYNAMIC TABLE main.public.a RESUME. "
        "The last error: boom"
    )
    assert world.work.suspensions == [("a", told)]
    assert world.mark("a").failures == 5
    assert world.mark("b").failures == 0
    assert world.mark("b").reason == "Its upstream main.public.a failed: boom"
    world.advance(1)
    assert len(world.begun) == 5
    assert str(world.mark("b").reason).startswith("Its upstream main.public.a is suspended: Five scheduled refreshes")


def test_a_success_between_them_counts_anew(world: World) -> None:
    world.table("a")
    for outcome in ("fail", "fail", "fail", "fail", "end", "fail", "fail", "fail", "fail"):
        world.advance(1)
        world.fail("a") if outcome == "fail" else world.end("a")
    assert world.work.suspensions == []
    assert world.mark("a").failures == 4


def test_skips_neither_count_nor_reset(world: World) -> None:
    world.table("a")
    world.table("b", "a")
    for _ in range(2):
        world.advance(1)
        world.end("a")
        world.fail("b")
    assert world.mark("b").failures == 2
    for _ in range(7):
        world.advance(1)
        world.fail("a") if world.mark("a").failures < 4 else world.end("a")
        if "b" in world.at_work:
            world.job("b").end(Cancelled("The job was cancelled by ann."))
            world.look()
    assert (world.mark("b").state, world.mark("b").failures) == ("SKIPPED", 2)
    assert world.work.suspensions == []


def test_a_resumed_table_has_five_more(world: World) -> None:
    world.table("a")
    world.fail_from_now_on("a")
    for _ in range(5):
        world.advance(1)
        world.look()
    assert world.mark("a").failures == 5
    world.resume("a")
    assert world.mark("a").failures == 0
    world.look()  # It is tried at once.
    world.look()
    assert [world.mark("a").failures, len(world.begun)] == [1, 6]
    for failures in range(2, 5):
        world.advance(1)
        world.look()
        assert world.mark("a").failures == failures
    assert len(world.work.suspensions) == 1
    world.advance(1)
    world.look()
    assert len(world.work.suspensions) == 2
    assert world.mark("a").failures == 5


def test_what_a_resumed_table_has_missed_follows_at_once(world: World) -> None:
    world.table("a")
    world.fail_from_now_on("a")
    for _ in range(5):
        world.advance(1)
        world.look()
    world.succeed_from_now_on()
    world.resume("a")  # Within the minute of the fifth failure.
    world.look()
    world.look()
    assert (world.mark("a").state, world.mark("a").tick, len(world.begun)) == ("SUCCEED", tick(5), 6)
    world.suspend("a")
    world.advance(3)
    world.resume("a")
    world.look()
    world.look()
    assert (world.mark("a").tick, world.mark("a").merged, len(world.begun)) == (tick(8), 2, 7)
    world.resume("a")  # Nothing is left to do.
    world.look()
    assert len(world.begun) == 7


def test_the_count_outlives_a_restart_and_so_does_its_end(world: World) -> None:
    world.table("a")
    world.fail_from_now_on("a")
    for _ in range(3):
        world.advance(1)
        world.look()
    world.restart()
    for failures in (4, 5):
        world.advance(1)
        world.look()
        assert world.mark("a").failures == failures
    assert len(world.work.suspensions) == 1
    world.restart()
    world.resume("a")  # The first look of this process has not been yet.
    world.restart()
    for _ in range(4):
        world.look()
        world.look()
        world.clock.advance(60)
    assert (world.mark("a").failures, len(world.work.suspensions)) == (4, 1)


def test_a_refresh_by_hand_that_succeeds_counts_anew(world: World) -> None:
    world.table("a")
    for _ in range(4):
        world.advance(1)
        world.fail("a")
    world.refreshed_by_hand("a")
    assert (world.mark("a").failures, world.mark("a").error) == (0, None)
    world.advance(1)
    world.fail("a")
    assert (world.mark("a").failures, world.work.suspensions) == (1, [])
    world.advance(1)
    world.refreshed_by_hand("a")  # While a scheduled one goes on.
    world.fail("a")
    assert world.mark("a").failures == 1


def test_what_is_counted_anew_while_its_suspension_is_held_up_is_not_suspended(world: World) -> None:
    world.table("a")
    for _ in range(4):
        world.advance(1)
        world.fail("a")
    world.work.suspend_errors = [RefreshRunning("By hand.")]
    world.advance(1)
    world.fail("a")
    assert world.mark("a").state == "CLAIMED"
    world.refreshed_by_hand("a")
    world.look()
    assert (world.mark("a").state, world.mark("a").failures, world.work.suspensions) == ("FAILED", 1, [])


def test_ends_are_logged_with_names_and_failures_as_warnings(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world.table("a")
    world.task("1. load", minutes=1)
    world.task("after", "1. load")
    world.advance(1)
    world.fail("a")
    world.fail("1. load", "No file.")
    by_hand = world.task("by hand")
    world.scheduler.execute(by_hand, [world.clock.now()], "MANUAL")
    world.look()
    world.fail("by hand")
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert told == [
        ("WARNING", "The scheduled refresh of main.public.a at 2025-03-01 12:01:00+00:00 failed: boom"),
        ("WARNING", "The scheduled run of main.public.`1. load` at 2025-03-01 12:01:00+00:00 failed: No file."),
        (
            "INFO",
            "The scheduled run of main.public.after at 2025-03-01 12:01:00+00:00 was skipped: "
            "Its upstream main.public.`1. load` failed: No file.",
        ),
        ("WARNING", "The run of main.public.`by hand` at 2025-03-01 12:01:30+00:00 by hand failed: boom"),
    ]


def test_what_to_do_next_is_part_of_what_is_kept(world: World) -> None:
    world.table("a")
    world.task("t", minutes=1)
    world.advance(1)
    fault = NotFound("There is no table raw.", hint="SHOW TABLES lists them.")
    told = "There is no table raw. Hint: SHOW TABLES lists them."
    for name in ("a", "t"):
        world.job(name).end(fault)
    world.look()
    assert (world.mark("a").reason, world.mark("a").error) == (told, told)
    assert [run.error_message for run in world.runs("t")] == [told]


def test_idle_refreshes_reset_the_count(world: World) -> None:
    world.table("a")
    world.advance(1)
    world.fail("a")
    world.work.idle_tables = {"a"}
    world.advance(1)
    assert world.mark("a").failures == 0


def test_suspending_is_tried_again_when_it_cannot_be_done_yet(world: World) -> None:
    world.table("a")
    world.table("other")
    world.fail_from_now_on("a")
    for _ in range(4):
        world.advance(1)
        world.look()
    world.work.suspend_errors = [RefreshRunning("By hand."), EnvironmentFault("away")]
    world.clock.advance(60)
    world.look()
    assert world.look() == 1.0
    assert world.mark("a").state == "CLAIMED"
    assert world.mark("other").tick == tick(5)  # Nobody else is held up.
    world.look()
    assert world.work.suspensions == []
    world.look()
    assert len(world.work.suspensions) == 1
    assert (world.mark("a").state, world.mark("a").failures) == ("FAILED", 5)
    assert world.mark("a").tick == tick(5)


def test_a_table_that_is_suspended_now_is_not_begun_for_the_tick_that_has_come(world: World) -> None:
    world.table("a")
    for _ in range(4):
        world.advance(1)
        world.fail("a")
    world.advance(1)
    world.clock.advance(300)
    world.fail("a")
    assert len(world.work.suspensions) == 1
    assert world.at_work == []
    assert world.mark("a").tick == tick(5)


def test_a_suspension_that_fails_in_an_odd_way_is_tried_a_few_times(world: World) -> None:
    world.table("a")
    world.fail_from_now_on("a")
    for _ in range(4):
        world.advance(1)
        world.look()
    world.work.suspend_errors = [RuntimeError("odd")] * 5
    world.advance(1)
    for _ in range(4):
        world.look()
    assert world.mark("a").state == "CLAIMED"
    world.look()
    assert (world.mark("a").tick, world.mark("a").failures) == (tick(5), 5)
    world.advance(1)
    world.look()
    assert (world.mark("a").tick, world.mark("a").failures) == (tick(6), 6)
    assert len(world.work.suspensions) == 1


def test_nothing_is_suspended_while_spark_is_away(world: World) -> None:
    world.table("a")
    world.fail_from_now_on("a")
    for _ in range(4):
        world.advance(1)
        world.look()
    world.advance(1)
    world.scheduler.pause()
    assert world.look() == 1.0
    assert world.work.suspensions == []
    world.scheduler.resume()
    world.look()
    assert [name for name, _ in world.work.suspensions] == ["a"]


@pytest.mark.parametrize(
    "refusal",
    [
        NotFound("There is no virtual cluster 'x'.", hint="There are: default."),
        NotAllowed("The virtual cluster x is suspended, and does not resume by itself."),
        RuntimeError("odd"),
    ],
)
def test_what_cannot_be_submitted_has_failed(world: World, refusal: Exception) -> None:
    world.table("a")
    world.table("b", "a")
    world.task("t", minutes=1)
    world.table("other")
    world.work.refuse = {"a": refusal, "t": refusal}
    world.advance(1)
    assert world.marks() == {"a": "FAILED", "b": "SKIPPED", "t": "FAILED", "other": "CLAIMED"}
    assert str(refusal).splitlines()[0] in str(world.mark("a").reason)
    (run,) = world.runs("t")
    assert (run.state, run.started_at, run.job_id) == ("FAILED", None, None)
    assert run.error_message is not None
    for _ in range(4):
        world.advance(1)
    assert [name for name, _ in world.work.suspensions] == ["a"]  # Never a task.


def test_without_spark_a_submission_is_tried_for_a_minute(world: World) -> None:
    world.table("a")
    world.task("t", minutes=1)
    world.table("other")
    fault = EnvironmentFault("Spark's Java process has ended and is being started again.")
    world.work.refuse = {"a": fault, "t": fault}
    world.advance(1)
    assert world.at_work == ["other"]
    assert world.marks() == {"a": "CLAIMED", "t": "CLAIMED", "other": "CLAIMED"}
    assert world.look() == 2.0
    world.clock.advance(2)
    world.work.refuse = {"t": fault}
    world.look()
    assert world.at_work == ["other", "a"]
    assert world.begun[-1] == ("a", tick(1))
    for _ in range(30):
        world.clock.advance(2)
        world.look()
    run = world.runs("t")[0]
    assert (run.state, run.error_code) == ("FAILED", "ENVIRONMENT")
    assert run.ended_at == tick(2.5)


def test_somebody_else_refreshes_it_or_cancels_it(world: World) -> None:
    world.table("a")
    world.table("b", "a")
    world.advance(1)
    world.job("a").end(RefreshRunning("A refresh of this table is running."))
    world.look()
    assert (world.mark("a").state, world.mark("a").failures) == ("SKIPPED", 0)
    assert world.mark("b").reason == ("Its upstream main.public.a was skipped: A refresh of this table is running.")
    world.advance(1)
    world.job("a").end(Cancelled("The job was cancelled by ann."))
    world.look()
    assert (world.mark("a").state, world.mark("a").reason) == ("SKIPPED", "The job was cancelled by ann.")


def test_the_name_is_told_once(world: World) -> None:
    world.table("a")
    world.table("b", "a")
    world.advance(1)
    world.job("a").end(RefreshFailed("The refresh of main.public.a failed: No such column."))
    world.look()
    assert world.mark("a").reason == "No such column."
    assert world.mark("b").reason == "Its upstream main.public.a failed: No such column."


def test_reasons_have_an_end_and_no_halves_of_characters(world: World) -> None:
    world.table("a")
    world.table("b", "a")
    world.advance(1)
    world.fail("a", "\ud800" + "x" * 10_000)
    assert len(str(world.mark("a").reason)) == 2000
    assert str(world.mark("b").reason).encode()


# ---- changes while something is pending


def test_dropped_while_it_waits_and_while_it_runs(world: World) -> None:
    world.table("a")
    world.table("b", "a")
    world.task("t", "b")
    world.advance(1)
    assert world.marks() == {"a": "CLAIMED", "b": "CLAIMED", "t": "CLAIMED"}
    world.drop("b")
    world.drop("t")
    world.look()
    assert world.marks() == {"a": "CLAIMED"}
    assert [(run.state, run.reason) for run in world.runs("t")] == [("CANCELLED", "The task was dropped.")]
    world.drop("a")
    world.look()
    assert world.at_work == ["a"]
    world.fail("a", "The table is gone.")
    assert world.marks() == {}
    assert world.work.ends == []
    assert world.scheduler.status().runs == ()


def test_dropped_and_made_again_begins_anew(world: World) -> None:
    world.table("a")
    world.advance(1)
    world.end("a")
    world.drop("a")
    world.advance(1)
    assert world.marks() == {}
    world.table("a", id="table-a2", created_at=world.clock.now())
    world.look()
    assert world.at_work == []
    world.advance(1)
    assert world.begun[-1] == ("a", tick(3))


def test_suspended_while_it_waits(world: World) -> None:
    world.table("a")
    world.table("b", "a")
    world.table("c", "b")
    world.advance(1)
    world.suspend("b", "Suspended by the user.")
    world.look()
    assert world.mark("b").reason == "It is suspended: Suspended by the user."
    assert world.mark("c").reason == "Its upstream main.public.b was skipped: It is suspended: Suspended by the user."
    world.end("a")
    assert world.at_work == []


def test_suspended_while_it_runs_ends_as_it_ends(world: World) -> None:
    world.table("a")
    world.table("b", "a")
    world.advance(1)
    world.suspend("a")
    world.look()
    assert world.waiting() == {"b": ("a",)}
    world.end("a")
    assert world.at_work == ["b"]
    world.end("b")
    world.advance(1)
    assert (world.mark("a").tick, world.mark("b").state) == (tick(1), "SKIPPED")


def test_changes_that_nobody_tells_of_are_seen_within_ten_seconds(world: World) -> None:
    table = world.table("a")
    world.look()
    world.store.put_table(table.model_copy(update={"suspended": True}))
    world.clock.advance(9)
    world.look()
    world.store.faults.calls.clear()
    world.clock.advance(1)
    world.look()
    assert "tables" in world.store.faults.calls
    world.advance(1)
    assert world.begun == []


def test_definitions_are_not_read_at_every_look(world: World) -> None:
    world.table("a")
    world.look()
    world.store.faults.calls.clear()
    world.look()
    assert world.store.faults.calls == []
    world.scheduler.changed()
    world.look()
    assert world.store.faults.calls == ["tables", "tasks.all"]


# ---- others


def test_paused_nothing_begins_and_ends_are_written(world: World) -> None:
    world.table("a")
    world.table("b")
    world.advance(1)
    world.scheduler.pause()
    world.end("a")
    assert world.mark("a").state == "SUCCEED"
    for _ in range(3):
        world.advance(1)
    assert world.scheduler.status().paused
    assert len(world.begun) == 2
    world.fail("b", "Spark's Java process ended while this ran.")
    world.scheduler.resume()
    world.look()
    assert world.begun[2:] == [("a", tick(4)), ("b", tick(4))]
    assert world.mark("a").merged == 2


def test_status_tells_what_is_pending_and_what_comes(world: World) -> None:
    world.table("a")
    world.table("b", "a", minutes=5)
    world.table("manual", minutes=None)
    world.table("off", suspended=True)
    world.task("broken", minutes=None, cron="x")
    world.advance(5)
    status = world.scheduler.status()
    assert status.next_ticks == {"table-a": tick(6), "table-b": tick(10)}
    assert list(status.problems) == ["task-broken"]
    assert (status.looked_at, status.fault, status.paused) == (tick(5.5), None, False)
    run = status.run_of("table-a")
    assert run is not None
    assert (run.state, run.job_id, run.tick, run.merged, run.kind) == ("QUEUED", "job-1", tick(5), 4, "TABLE")
    world.job("a").run_now()
    world.look()
    assert [run.state for run in world.scheduler.status().runs] == ["RUNNING", "WAITING"]
    assert world.scheduler.status().run_of("table-manual") is None
    world.end_all()
    assert world.scheduler.status().ends == {"SUCCEED": 2}


def test_a_listener_that_fails_holds_up_nothing(world: World) -> None:
    world.table("a")

    def fails(object_id: str, mark: object) -> None:
        raise RuntimeError("odd")

    world.work.ended = fails  # type: ignore[method-assign]
    world.succeed_from_now_on()
    for _ in range(3):
        world.advance(1)
        world.look()
    assert world.mark("a").tick == tick(3)


def test_settle_looks_until_nothing_happens(world: World) -> None:
    for number in range(5):
        world.table(f"t{number}", *([f"t{number - 1}"] if number else []))
    world.succeed_from_now_on()
    world.clock.advance(60)
    assert world.scheduler.settle(5)
    assert set(world.marks().values()) == {"SUCCEED"}
    world.work.at_once = lambda name, tick: False
    world.clock.advance(60)
    assert not world.scheduler.settle(0.1)
    assert world.at_work == ["t0"]


def test_an_empty_lake(world: World) -> None:
    assert world.look() == 10.0
    assert world.scheduler.status().runs == ()


def test_many_tables_and_few_transactions(world: World) -> None:
    for number in range(30):
        world.table(f"t{number}")
    world.look()
    world.store.faults.calls.clear()
    world.advance(1)
    assert world.store.faults.calls.count("marks.claim") == 1
    for job in world.work.jobs:
        job.end()
    world.look()
    assert world.store.faults.calls.count("marks.end") == 1


def test_a_new_table_waits_for_the_first_tick_after_its_creation(world: World) -> None:
    world.look()
    world.clock.advance(45)
    world.table("late", created_at=START + timedelta(seconds=45))
    world.look()
    assert world.begun == []
    world.advance(1)
    assert world.begun == [("late", tick(2))]


# ---- what the history tells of refreshes that were not made


def test_a_table_that_is_skipped_says_so_once_in_the_history(world: World) -> None:
    for name, *reads in (("a",), ("b", "a"), ("c", "b")):
        world.table(name, *reads)
    world.task("t", "c")
    world.fail_from_now_on("a")
    for _ in range(4):
        world.advance(1)
        world.look()
    assert world.skips("a") == []
    assert world.skips("b") == ["Skipped: its upstream main.public.a failed: boom"]
    assert world.skips("c") == ["Skipped: its upstream main.public.b was skipped: main.public.a failed: boom"]
    (record,) = (each for each in world.store.marks.idle if each.name == "b")
    assert (record.state, record.refresh_mode, record.trigger) == ("SUCCEED", "NO_DATA", "SYSTEM_SCHEDULED")
    assert (record.tick, record.rows_inserted, record.took_all) == (tick(1), 0, False)
    world.advance(1)  # The fifth failure suspends it: a table downstream waits for something else now.
    world.advance(1)
    world.advance(1)
    assert [each and each.partition(": Five")[0] for each in world.skips("b")[1:]] == [
        "Skipped: its upstream main.public.a is suspended"
    ]
    assert len(world.skips("c")) == 2
    assert len(world.states("t")) == 7, "a task has a row for each, as before"


def test_a_new_incident_is_told_anew(world: World) -> None:
    world.table("a")
    world.table("b", "a")
    for _ in range(3):
        world.fail_from_now_on("a")
        world.advance(1)
        world.look()
        world.advance(1)
        world.look()
        world.succeed_from_now_on()
        world.advance(1)
        world.look()
    assert len(world.skips("b")) == 3
    world.fail_from_now_on("a")
    world.advance(1)
    world.look()
    world.restart()
    world.advance(1)
    world.look()
    assert len(world.skips("b")) == 4, "a restart is none"
    world.refreshed_by_hand("b")
    world.advance(1)
    world.look()
    assert len(world.skips("b")) == 5, "somebody had refreshed it meanwhile"


def test_what_somebody_refreshes_by_hand_at_its_tick_has_its_own_row(world: World) -> None:
    world.table("a")
    world.advance(1)
    world.job("a").end(RefreshRunning("By hand."))
    world.look()
    assert (world.mark("a").state, world.skips("a")) == ("SKIPPED", [])


def test_the_failure_that_suspends_a_table_says_so_in_the_history(world: World) -> None:
    world.table("a")
    for _ in range(5):
        world.advance(1)
        job = world.job("a").live.id
        world.fail("a")
    assert list(world.store.marks.suspended) == [job]
    assert world.store.marks.suspended[job] == world.work.suspensions[0][1]
