"""Task runs: attempts, pauses between them, limits, what stands in their history, and runs by hand."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import Cancelled, EnvironmentFault, HeadraceError, NotAllowed, QueryFailed, UserError
from headrace.result import done, from_rows
from headrace.schedule import attempts
from headrace.schedule.attempts import Failure
from headrace.schedule.live import new_run
from headrace.schedule.looking import MOST_RUNS
from unit.schedule_world import START, Begun, World, a_task, tick


@pytest.fixture
def world() -> World:
    return World()


# ---- one attempt


def test_a_run_goes_through_its_states(world: World) -> None:
    world.task("first", minutes=1)
    world.task("t", "first", minutes=1)
    world.advance(1)
    (run,) = world.runs("t")
    assert (run.state, run.trigger, run.tick, run.attempt) == ("WAITING", "SCHEDULE", tick(1), 1)
    assert (run.created_at, run.started_at, run.job_id) == (tick(1.5), None, None)
    world.end("first")
    (run,) = world.runs("t")
    assert (run.state, run.job_id) == ("QUEUED", "job-2")
    world.clock.advance(5)
    world.job("t").run_now()
    assert world.look() <= 10
    (run,) = world.runs("t")
    assert (run.state, run.started_at) == ("RUNNING", tick(1.5) + timedelta(seconds=5))
    world.clock.advance(3)
    world.job("t").end(result=done("3 rows were inserted."))
    world.look()
    (run,) = world.runs("t")
    assert (run.state, run.output, run.error_message) == ("SUCCEED", "3 rows were inserted.", None)
    assert run.ended_at == tick(1.5) + timedelta(seconds=8)
    mark = world.mark("t")
    assert (mark.state, mark.job_id, mark.failures) == ("SUCCEED", "job-2", 0)


def test_while_it_is_queued_somebody_looks_when_it_begins(world: World) -> None:
    world.task("t", minutes=1)
    world.advance(1)
    assert world.look() == 1.0
    world.job("t").run_now()
    assert world.look() == 10.0


def test_a_failed_run(world: World) -> None:
    world.task("t", minutes=1)
    world.advance(1)
    world.fail("t", "No such table.")
    (run,) = world.runs("t")
    assert (run.state, run.error_code, run.error_message) == ("FAILED", "QUERY_FAILED", "No such table.")
    assert (world.mark("t").state, world.mark("t").reason) == ("FAILED", "No such table.")


def test_tasks_are_not_suspended_by_failures(world: World) -> None:
    world.task("t", minutes=1)
    world.fail_from_now_on("t")
    for _ in range(12):
        world.advance(1)
        world.look()
    assert world.mark("t").failures == 12
    assert world.work.suspensions == []


def test_a_skipped_run_stands_in_the_history(world: World) -> None:
    world.task("a", minutes=1)
    world.task("b", "a")
    world.task("c", "gone", minutes=1)
    world.advance(1)
    world.fail("a", "boom")
    (run,) = world.runs("b")
    assert (run.state, run.reason) == ("SKIPPED", "Its upstream main.public.a failed: boom")
    assert (run.started_at, run.ended_at, run.error_message) == (None, tick(1.5), None)
    (run,) = world.runs("c")
    assert (run.state, run.reason) == ("SKIPPED", "It runs after main.public.gone, which does not exist.")


def test_a_cancelled_run_is_no_failure(world: World) -> None:
    world.task("t", minutes=1, retries=3)
    world.task("after", "t")
    world.advance(1)
    world.job("t").end(Cancelled("The job was cancelled by ann."))
    world.look()
    assert world.states("t") == ["CANCELLED"]
    assert (world.mark("t").state, world.mark("t").failures) == ("SKIPPED", 0)
    reason = "Its upstream main.public.t was skipped: The job was cancelled by ann."
    assert [run.reason for run in world.runs("after")] == [reason]


# ---- retries


def test_retries_with_growing_pauses(world: World) -> None:
    world.task("t", minutes=60, retries=7)
    world.task("after", "t")
    world.advance(60)
    pauses = []
    for _ in range(7):
        world.fail("t", "not yet")
        (run,) = world.runs("t")
        assert (run.state, run.error_message) == ("WAITING", "not yet")
        pause = 0.0
        while not world.at_work:
            left = world.look()
            world.clock.advance(left)
            pause += left
            world.look()
        pauses.append(pause)
        assert world.runs("after")[0].state == "WAITING"
    assert pauses == [10, 20, 40, 80, 160, 300, 300]
    world.fail("t", "never")
    (run,) = world.runs("t")
    assert (run.state, run.attempt, run.error_message) == ("FAILED", 8, "never")
    assert world.mark("t").failures == 1
    assert world.states("after") == ["SKIPPED"]


def test_the_last_attempt_may_succeed(world: World) -> None:
    world.task("t", minutes=60, retries=1)
    world.advance(60)
    world.fail("t")
    world.clock.advance(10)
    world.look()
    world.end("t")
    (run,) = world.runs("t")
    assert (run.state, run.attempt, run.error_message, run.error_code) == ("SUCCEED", 2, None, None)
    assert (run.job_id, run.started_at) == ("job-2", tick(60.5))
    assert world.mark("t").state == "SUCCEED"


def test_ticks_that_come_while_it_is_tried_again_are_merged(world: World) -> None:
    world.task("t", minutes=1, retries=5)
    world.fail_from_now_on("t")
    for _ in range(40):
        world.clock.advance(10)
        world.look()
    runs = world.runs("t")
    assert runs[0].attempt == 6
    assert [run.tick for run in runs][:2] == [tick(1), tick(7)]
    assert runs[1].merged == 5


def test_what_cannot_be_submitted_is_tried_again_as_well(world: World) -> None:
    world.task("t", minutes=60, retries=1)
    world.work.refuse["t"] = UserError("No such cluster.")
    world.advance(60)
    assert world.runs("t")[0].state == "WAITING"
    world.work.refuse.clear()
    world.clock.advance(10)
    world.look()
    assert world.at_work == ["t"]


def test_each_attempt_waits_for_spark_for_a_minute(world: World) -> None:
    world.task("t", minutes=60, retries=1)
    world.work.refuse["t"] = EnvironmentFault("Spark is away.")
    world.advance(60)
    states = []
    for _ in range(66):
        world.clock.advance(2)
        world.look()
        run = world.runs("t")[0]
        states.append((run.state, run.attempt))
    assert [states.index(("WAITING", 2)), states.index(("FAILED", 2))] == [29, 64]


def test_suspended_or_dropped_before_the_next_attempt(world: World) -> None:
    world.task("t", minutes=60, retries=3)
    world.task("u", minutes=60, retries=3)
    world.advance(60)
    world.fail("t", "boom")
    world.fail("u", "boom")
    world.suspend("t")
    world.drop("u")
    world.look()
    (run,) = world.runs("t")
    assert (run.state, run.error_message, run.reason) == ("FAILED", "boom", "It was suspended before the next attempt.")
    (run,) = world.runs("u")
    assert (run.state, run.error_message, run.reason) == ("FAILED", "boom", "The task was dropped.")
    assert world.marks() == {"t": "FAILED"}


def test_the_clock_does_not_change_the_pause(world: World) -> None:
    world.task("t", minutes=60, retries=1)
    world.advance(60)
    world.fail("t")
    world.clock.put_to(tick(65))
    world.look()
    assert world.at_work == []
    world.clock.advance(10)
    world.look()
    assert world.at_work == ["t"]


# ---- limits


def test_a_run_that_takes_too_long_is_cancelled(world: World) -> None:
    world.task("t", minutes=60, timeout_seconds=90)
    world.advance(60)
    world.clock.advance(200)  # In the queue: that is no fault of the task.
    world.look()
    world.job("t").run_now()
    world.look()
    world.clock.advance(85)
    assert world.look() == pytest.approx(5.0)
    world.clock.advance(5)
    world.look()
    assert world.at_work == []
    world.look()
    (run,) = world.runs("t")
    assert (run.state, run.error_code) == ("FAILED", "TIMED_OUT")
    assert run.error_message == "The run took longer than its TIMEOUT of 90 seconds."
    assert world.mark("t").state == "FAILED"


def test_a_limit_is_one_of_each_attempt(world: World) -> None:
    world.task("t", minutes=60, timeout_seconds=90, retries=1)
    world.advance(60)
    for attempt in (1, 2):
        world.job("t").run_now()
        world.look()
        world.clock.advance(90)
        world.look()
        world.look()
        assert world.runs("t")[0].state == ("WAITING" if attempt == 1 else "FAILED")
        world.clock.advance(10)
        world.look()
    assert world.runs("t")[0].error_code == "TIMED_OUT"


def test_one_that_ends_well_in_the_last_moment_has_succeeded(world: World) -> None:
    world.task("t", minutes=60, timeout_seconds=90)
    world.advance(60)
    job = world.job("t")
    job.heeds_cancel = False
    job.run_now()
    world.look()
    world.clock.advance(90)
    world.look()
    assert world.at_work == ["t"]  # It is being cancelled.
    assert world.look() == 10.0
    job.end()
    world.look()
    assert world.states("t") == ["SUCCEED"]


def test_one_that_fails_by_itself_in_the_last_moment_tells_its_own_error(world: World) -> None:
    world.task("t", minutes=60, timeout_seconds=90)
    world.advance(60)
    job = world.job("t")
    job.heeds_cancel = False
    job.run_now()
    world.look()
    world.clock.advance(90)
    world.look()
    job.end(QueryFailed("x"))
    world.look()
    assert world.runs("t")[0].error_code == "QUERY_FAILED"


def test_the_next_attempt_does_not_begin_beside_a_run_by_hand(world: World) -> None:
    task = world.task("t", minutes=60, retries=1)
    world.advance(60)
    world.fail("t")
    world.scheduler.execute(task, [START], "MANUAL")
    world.look()
    world.clock.advance(10)
    assert world.look() == 1.0
    assert world.begun == [("t", tick(60)), ("t", START)]
    world.end("t")
    assert world.begun[2:] == [("t", tick(60))]


def test_a_skipped_run_is_written_once(world: World) -> None:
    world.task("c", "gone", minutes=1)
    world.advance(1)
    assert "runs.update" not in world.store.faults.calls


# ---- what runs say


def test_what_a_run_says() -> None:
    run = new_run(a_task("t"), tick(0), "MANUAL", START)
    assert attempts.succeeded(run, done("Yes."), START).output == "Yes."
    assert attempts.succeeded(run, None, START).output is None
    rows = from_rows([("a", pa.int64()), ("b", pa.int64())], [(1, 2)])
    assert attempts.succeeded(run, rows, START).output == "1 row"
    many = from_rows([("a", pa.int64())], [(1,), (2,)])
    assert attempts.succeeded(run, many, START).output == "2 rows"
    long = attempts.succeeded(run, done("x" * 100_000 + "end"), START).output
    assert long is not None
    assert (len(long), long[-3:]) == (64 * 1024, "end")


def test_what_a_failed_program_printed_is_kept() -> None:
    error = QueryFailed("exit status 1")
    error.output = "first line\nlast \ud800line"  # type: ignore[attr-defined]
    failure = Failure.of(error)
    assert failure.output == "first line\nlast ?line"
    run = attempts.failed(new_run(a_task("t"), tick(0), "MANUAL", START), failure, retries=0, now=START)
    assert (run.output, run.state) == (failure.output, "FAILED")
    odd = HeadraceError("x")
    odd.output = SimpleNamespace()  # type: ignore[attr-defined]
    assert Failure.of(odd).output is None


def test_ids_of_runs_sort_by_time_and_are_never_equal() -> None:
    ids = [new_run(a_task("t"), tick(0), "BACKFILL", START).id for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert max(ids) < new_run(a_task("t"), tick(0), "MANUAL", START + timedelta(milliseconds=1)).id
    assert len(ids[0]) <= 64


# ---- by hand


def test_a_run_by_hand(world: World) -> None:
    task = world.task("t")
    (run,) = world.scheduler.execute(task, [START], "MANUAL")
    assert (run.state, run.trigger, run.tick) == ("WAITING", "MANUAL", START)
    assert world.runs("t") == [run]
    assert world.look() <= 1.0
    assert world.at_work == ["t"]
    assert world.work.jobs[0].run == run
    world.end("t")
    assert world.states("t") == ["SUCCEED"]
    assert world.marks() == {}
    assert world.work.ends == []


def test_also_of_a_suspended_task_with_its_retries_and_limit(world: World) -> None:
    task = world.task("t", minutes=1, suspended=True, retries=1, timeout_seconds=60)
    world.scheduler.execute(task, [START], "MANUAL")
    world.look()
    world.fail("t", "boom")
    assert world.states("t") == ["WAITING"]
    world.clock.advance(10)
    world.look()
    world.job("t").run_now()
    world.look()
    world.clock.advance(60)
    world.look()
    world.look()
    (run,) = world.runs("t")
    assert (run.state, run.attempt, run.error_code) == ("FAILED", 2, "TIMED_OUT")
    assert world.scheduler.status().runs == ()


def test_a_backfill_runs_one_after_the_other_in_its_order(world: World) -> None:
    task = world.task("t", minutes=None)
    ticks = [tick(-30), tick(-20), tick(-10)]
    runs = world.scheduler.execute(task, ticks, "BACKFILL")
    assert [run.tick for run in runs] == ticks
    world.look()
    for number, each in enumerate(ticks):
        assert world.at_work == ["t"]
        assert world.begun[-1] == ("t", each)
        world.fail("t") if number == 1 else world.end("t")
    by_tick = {run.tick: run.state for run in world.runs("t")}
    assert by_tick == {tick(-30): "SUCCEED", tick(-20): "FAILED", tick(-10): "SUCCEED"}


def test_two_tasks_are_filled_beside_each_other(world: World) -> None:
    first, second = world.task("a"), world.task("b")
    world.scheduler.execute(first, [tick(-2), tick(-1)], "BACKFILL")
    world.scheduler.execute(second, [tick(-2), tick(-1)], "BACKFILL")
    world.look()
    assert world.at_work == ["a", "b"]


def test_a_task_never_runs_twice_at_once(world: World) -> None:
    task = world.task("t", minutes=1)
    world.scheduler.execute(task, [tick(-2), tick(-1)], "BACKFILL")
    world.look()
    world.advance(1)
    assert world.begun == [("t", tick(-2))]
    assert [(run.tick, run.state, run.trigger) for run in world.scheduler.status().runs] == [
        (tick(1), "WAITING", "SCHEDULE"),
        (tick(-2), "QUEUED", "BACKFILL"),
        (tick(-1), "WAITING", "BACKFILL"),
    ]
    world.end("t")
    assert world.begun[-1] == ("t", tick(1))  # The schedule goes first,
    world.scheduler.execute(task, [tick(1.5)], "MANUAL")
    world.look()
    assert world.at_work == ["t"]
    world.end("t")
    assert world.begun[-1] == ("t", tick(1.5))  # then what somebody waits for,
    world.end("t")
    assert world.begun[-1] == ("t", tick(-1))  # then the backfill.
    world.end("t")
    assert sorted(run.trigger for run in world.runs("t")) == ["BACKFILL", "BACKFILL", "MANUAL", "SCHEDULE"]
    assert set(world.states("t")) == {"SUCCEED"}


def test_by_hand_is_not_kept_waiting_by_a_schedule_that_is_always_late(world: World) -> None:
    task = world.task("t", minutes=1)
    world.advance(1)
    world.scheduler.execute(task, [tick(1.5)], "MANUAL")
    world.advance(1)
    world.end("t")
    assert world.begun[-1] == ("t", tick(1.5))
    world.end("t")
    assert world.begun[-1] == ("t", tick(2))


def test_followers_run_after_one_by_hand_each_once(world: World) -> None:
    root = world.task("root")
    world.task("left", "root")
    world.task("right", "root")
    world.task("bottom", "left", "right")
    world.task("scheduled", "root", minutes=60)
    world.task("off", "root", suspended=True)
    world.task("below_off", "off")
    world.task("lost", "root", "gone")
    world.scheduler.execute(root, [START], "MANUAL")
    world.look()
    assert world.at_work == ["root"]
    assert world.waiting() == {"left": ("root",), "right": ("root",), "bottom": ("left", "right")}
    world.end("root")
    assert world.at_work == ["left", "right"]
    world.end("left")
    assert world.waiting() == {"bottom": ("right",)}
    world.end("right")
    world.end("bottom")
    assert [(run.trigger, run.tick, run.state) for run in world.runs("bottom")] == [("AFTER", START, "SUCCEED")]
    assert len(world.begun) == 4
    assert world.marks() == {}


def test_a_failure_by_hand_goes_down(world: World) -> None:
    root = world.task("root")
    world.task("a", "root")
    world.task("b", "a")
    world.scheduler.execute(root, [START], "MANUAL")
    world.look()
    world.fail("root", "boom")
    assert [run.reason for run in world.runs("a")] == ["Its upstream main.public.root failed: boom"]
    why = "Its upstream main.public.a was skipped: main.public.root failed: boom"
    assert [(run.state, run.reason) for run in world.runs("b")] == [("SKIPPED", why)]
    assert world.scheduler.status().runs == ()


def test_nobody_follows_a_backfill(world: World) -> None:
    root = world.task("root")
    world.task("a", "root")
    world.scheduler.execute(root, [tick(-5)], "BACKFILL")
    world.look()
    world.end("root")
    assert world.runs("a") == []


def test_dropped_while_it_waits_for_a_run_by_hand(world: World) -> None:
    task = world.task("t")
    world.scheduler.execute(task, [tick(-2), tick(-1)], "BACKFILL")
    world.look()
    world.drop("t")
    world.look()
    assert world.at_work == ["t"]
    world.end("t")
    assert {run.tick: run.state for run in world.runs("t")} == {tick(-2): "SUCCEED", tick(-1): "CANCELLED"}


def test_a_task_that_the_scheduler_has_not_seen_yet(world: World) -> None:
    world.look()
    task = a_task("new")
    world.store.put_task(task)
    world.scheduler.execute(task, [START], "MANUAL")
    world.scheduler.changed()
    world.look()
    assert world.at_work == ["new"]


def test_paused_by_hand_waits_as_well(world: World) -> None:
    task = world.task("t")
    world.scheduler.pause()
    world.scheduler.execute(task, [START], "MANUAL")
    world.look()
    assert world.at_work == []
    world.scheduler.resume()
    world.look()
    assert world.at_work == ["t"]


def test_not_more_than_so_many_at_once(world: World) -> None:
    task = world.task("t")
    with pytest.raises(UserError, match="may be asked for at once"):
        world.scheduler.execute(task, [tick(-n) for n in range(MOST_RUNS + 1)], "BACKFILL")
    assert world.runs("t") == []
    assert world.scheduler.execute(task, [], "BACKFILL") == []


def test_not_more_than_so_many_wait(world: World) -> None:
    task = world.task("t")
    other = world.task("other")
    world.scheduler.execute(task, [tick(-minute) for minute in range(MOST_RUNS)], "BACKFILL")
    with pytest.raises(NotAllowed) as refused:
        world.scheduler.execute(task, [START], "MANUAL")
    assert refused.value.message == "1000 runs of main.public.t have not ended; with 1 more these would be over 1000."
    assert refused.value.hint is not None
    assert "EXECUTE TASK main.public.t CANCEL" in refused.value.hint
    world.scheduler.execute(other, [START], "MANUAL")
    world.look()
    world.end("t")
    world.scheduler.execute(task, [START], "MANUAL")
    with pytest.raises(NotAllowed):
        world.scheduler.execute(task, [START], "MANUAL")


def test_what_waits_can_be_cancelled_and_what_runs_goes_on(world: World) -> None:
    task = world.task("t", minutes=60)
    root = world.task("root")
    world.task("t2", "root")
    world.scheduler.execute(task, [tick(-3), tick(-2), tick(-1)], "BACKFILL")
    world.scheduler.execute(root, [tick(30)], "MANUAL")
    world.look()
    world.job("t").run_now()
    ended = world.scheduler.cancel(task, "It was cancelled by ann.")
    assert [(run.tick, run.state, run.reason) for run in ended] == [
        (tick(-2), "CANCELLED", "It was cancelled by ann."), (tick(-1), "CANCELLED", "It was cancelled by ann."),
    ]  # fmt: skip
    assert {run.tick: run.state for run in world.runs("t")} == {
        tick(-3): "RUNNING", tick(-2): "CANCELLED", tick(-1): "CANCELLED",
    }  # fmt: skip
    world.end("t")
    assert [(name, at) for name, at in world.begun] == [("t", tick(-3))]
    assert {run.tick: run.state for run in world.runs("t")}[tick(-3)] == "SUCCEED"
    assert world.scheduler.cancel(task, "Again.") == []
    # The schedule is another matter, and so are other tasks: one for a time to come waits still.
    world.advance(60)
    assert sorted(world.at_work) == ["root", "t"]
    assert world.scheduler.cancel(root, "It is too late.") == []


def test_those_after_a_cancelled_run_are_skipped(world: World) -> None:
    root = world.task("root")
    world.task("after", "root")
    world.scheduler.execute(root, [tick(30)], "MANUAL")
    world.scheduler.cancel(root, "It was cancelled by ann.")
    assert world.states("root") == ["CANCELLED"]
    assert [(run.state, run.reason) for run in world.runs("after")] == [
        ("SKIPPED", "Its upstream main.public.root was skipped: It was cancelled by ann.")
    ]


def test_what_waits_for_its_next_attempt_is_cancelled_as_a_failure(world: World) -> None:
    task = world.task("t", retries=3)
    world.scheduler.execute(task, [START], "MANUAL")
    world.look()
    world.fail("t")
    (run,) = world.scheduler.cancel(task, "It was cancelled by ann.")
    assert (run.state, run.reason, run.error_message) == ("FAILED", "It was cancelled by ann.", "boom")
    world.clock.advance(60)
    world.look()
    assert len(world.begun) == 1


def test_a_run_by_hand_for_a_time_to_come_waits_for_it(world: World) -> None:
    task = world.task("t")
    later = START + timedelta(minutes=5)
    world.scheduler.execute(task, [later], "MANUAL")
    world.look()
    assert (world.at_work, world.states("t")) == ([], ["WAITING"])
    world.restart()
    world.look()
    assert world.at_work == []
    world.clock.advance(300)
    world.look()
    assert world.at_work == ["t"]
    world.end("t")
    assert world.states("t") == ["SUCCEED"]


# ---- after a table that runs by hand only


def test_a_task_runs_after_each_refresh_by_hand_of_a_table_without_times(world: World) -> None:
    world.table("a", minutes=None)
    world.task("after", "a")
    world.advance(5)
    assert world.begun == []
    world.refreshed_by_hand("a")
    first = world.clock.now()
    world.look()
    world.end_all()
    world.advance(2)
    assert world.begun == [("after", first)]
    assert [(run.tick, run.trigger, run.state) for run in world.runs("after")] == [(first, "AFTER", "SUCCEED")]
    world.refreshed_by_hand("a")
    world.restart()
    world.look()
    assert world.begun == [("after", world.clock.now())], "also when the server ended right after the refresh"


def test_a_refresh_by_hand_of_a_table_with_times_leaves_its_followers_to_them(world: World) -> None:
    world.table("a")
    world.task("after", "a")
    world.refreshed_by_hand("a")
    world.look()
    assert world.begun == []
    world.table("b", minutes=None)
    world.refreshed_by_hand("b")
    assert "b" not in world.marks(), "nobody runs after it"


def test_a_refresh_by_a_task_has_the_time_of_its_run(world: World) -> None:
    world.table("a", minutes=None)
    world.task("refresh", minutes=1)
    world.task("after", "a")
    world.task("both", "a", "refresh")
    world.advance(1)
    world.refreshed_by_hand("a", world.job("refresh"))
    world.end_all()
    assert world.begun == [("refresh", tick(1)), ("after", tick(1)), ("both", tick(1))]
    world.advance(1)
    world.refreshed_by_hand("a", world.job("refresh"))
    world.end_all()
    assert world.begun[3:] == [("refresh", tick(2)), ("after", tick(2)), ("both", tick(2))]


def test_a_task_that_refreshes_what_it_runs_after_does_not_run_for_ever(world: World) -> None:
    world.table("a", minutes=None)
    world.task("again", "a")
    world.advance(1)
    world.refreshed_by_hand("a")
    world.look()
    world.clock.advance(1)
    world.refreshed_by_hand("a", world.job("again"))
    world.end_all()
    world.advance(5)
    assert len(world.begun) == 1


def test_a_backfill_that_refreshes_a_table_moves_nobody_back(world: World) -> None:
    world.table("a", minutes=None)
    world.task("after", "a")
    task = world.task("refresh")
    world.advance(1)
    world.refreshed_by_hand("a")
    world.look()
    world.end_all()
    world.scheduler.execute(task, [tick(-60)], "BACKFILL")
    world.look()
    before = world.mark("a")
    world.refreshed_by_hand("a", world.job("refresh"))
    world.end_all()
    assert world.mark("a") == before
    assert [name for name, _ in world.begun] == ["after", "refresh"]


def test_a_clock_that_was_put_back_does_not_keep_followers_of_a_table_without_times(world: World) -> None:
    world.table("a", minutes=None)
    world.task("after", "a")
    world.clock.put_to(tick(100_000))
    world.refreshed_by_hand("a")
    world.look()
    world.end_all()
    world.clock.put_to(tick(10))
    world.look()
    world.clock.advance(5)
    world.refreshed_by_hand("a")
    world.look()
    assert world.begun[1:] == [("after", world.clock.now())]


# Who hears of runs by hand


def told(world: World) -> list[tuple[str, str, str | None, bool]]:
    return [(name, end.state, end.error, end.backfill) for name, end in world.work.ends_by_hand]


def test_how_runs_by_hand_end_is_told(world: World) -> None:
    root = world.task("root")
    world.task("after", "root")
    world.scheduler.execute(root, [START], "MANUAL")
    world.look()
    world.end("root")
    world.fail("after", "boom")
    assert told(world) == [("root", "SUCCEED", None, False), ("after", "FAILED", "boom", False)]
    world.work.ends_by_hand.clear()
    world.scheduler.execute(root, [tick(-3), tick(-2)], "BACKFILL")
    world.look()
    world.fail("root", "old")
    world.end("root")
    assert told(world) == [("root", "FAILED", "old", True), ("root", "SUCCEED", None, True)]


def test_a_run_by_hand_that_was_skipped_or_cancelled_is_not_told(world: World) -> None:
    root = world.task("root")
    world.task("after", "root")
    world.scheduler.execute(root, [START], "MANUAL")
    world.look()
    world.job("root").end(Cancelled("The job was cancelled by ann."))
    world.look()
    assert told(world) == []


def test_a_run_by_hand_that_worked_ends_a_row_of_failures(world: World) -> None:
    task = world.task("t", minutes=1)
    world.fail_from_now_on("t")
    for _ in range(3):
        world.advance(1)
        world.look()
    assert (world.mark("t").failures, world.mark("t").error) == (3, "boom")
    world.succeed_from_now_on()
    world.scheduler.execute(task, [tick(-3)], "BACKFILL")
    world.look()
    world.look()
    assert world.mark("t").failures == 3, "old times say nothing about the present ones"
    world.scheduler.execute(task, [world.clock.now()], "MANUAL")
    world.look()
    world.look()
    assert (world.mark("t").failures, world.mark("t").error) == (0, None)


def test_refreshes_by_hand_are_told(world: World) -> None:
    world.table("a", minutes=None)
    world.look()
    world.scheduler.failed_by_hand("table-a", QueryFailed("boom", hint="Mend it."), "j1")
    world.refreshed_by_hand("a")
    assert told(world) == [("a", "FAILED", "boom Hint: Mend it.", False), ("a", "SUCCEED", None, False)]
    assert world.work.ends_by_hand[0][1].job_id == "j1"


# Jobs that do not stop


def a_stuck_task(world: World, **changes: Any) -> Begun:
    """A run whose time is over, and whose job does not care."""
    world.task("t", minutes=5, timeout_seconds=30, **changes)
    world.advance(5)
    job = world.job("t")
    job.heeds_cancel = False
    job.run_now()
    world.look()
    world.clock.advance(31)
    world.look()
    assert world.states("t") == ["RUNNING"], "it is given time to stop"
    return job


def test_a_run_whose_job_does_not_stop_has_failed_all_the_same(world: World) -> None:
    job = a_stuck_task(world)
    world.clock.advance(60)
    world.look()
    (run,) = world.runs("t")
    assert (run.state, run.error_code) == ("FAILED", "TIMED_OUT")
    assert run.error_message == (
        "The run took longer than its TIMEOUT of 30 seconds, and its job job-1 does not stop. "
        "Hint: It is not run again until that has ended; a restart of the server ends it."
    )
    assert (world.mark("t").state, world.mark("t").error_code) == ("FAILED", "TIMED_OUT")
    for _ in range(3):
        world.advance(5)
        world.look()
    assert len(world.work.jobs) == 1, "two runs of one task never overlap"
    assert world.waiting() == {"t": ("t",)}
    job.end()
    world.look()
    assert world.at_work == ["t"]
    world.end("t")
    assert world.states("t")[:2] == ["FAILED", "SUCCEED"], "the end of what was given up changes nothing"


def test_neither_a_retry_nor_a_run_by_hand_begins_beside_it(world: World) -> None:
    job = a_stuck_task(world, retries=1)
    world.clock.advance(60)
    world.look()
    world.scheduler.execute(world.store.tasks.all()[0], [world.clock.now()], "MANUAL")
    for _ in range(5):
        world.advance(1)
        world.look()
    assert len(world.work.jobs) == 1
    job.end()
    world.look()
    assert len(world.work.jobs) == 2
    world.end_all()
    assert len(set(world.states("t"))) == 1


def test_a_job_that_stops_late_is_a_timeout_as_any(world: World) -> None:
    job = a_stuck_task(world)
    world.clock.advance(50)
    job.end(Cancelled("It was cancelled."))
    world.look()
    (run,) = world.runs("t")
    assert run.error_message == "The run took longer than its TIMEOUT of 30 seconds."


# A task that is another one


def test_a_task_that_is_made_anew_while_the_old_one_runs_waits_for_it(world: World) -> None:
    world.task("t", minutes=1)
    world.advance(1)
    assert world.at_work == ["t"]
    world.drop("t")
    world.store.put_task(a_task("t", id="task-new", interval_seconds=60))
    world.scheduler.changed()
    for _ in range(3):
        world.advance(1)
        world.look()
    assert len(world.work.jobs) == 1
    world.end("t")
    assert [job.run.task_id for job in world.work.jobs if job.run is not None] == ["task-t", "task-new"]
