"""A process ends at any moment; the next one goes on: nothing twice, nothing lost."""

from __future__ import annotations

import pytest

from headrace.compute.jobs import INTERRUPTED as SERVER_ENDED
from unit.schedule_world import START, World, tick


@pytest.fixture
def world() -> World:
    return World()


def test_a_claimed_tick_of_a_table_is_run_again(world: World) -> None:
    world.table("a")
    world.advance(3)
    assert world.mark("a").merged == 2
    world.restart()
    world.advance(0.1)
    assert world.begun == [("a", tick(3))]
    world.end("a")
    mark = world.mark("a")
    assert (mark.state, mark.failures, mark.merged) == ("SUCCEED", 0, 2)
    assert world.store.marks.claims == [("table-a", tick(3))]


def test_then_the_newest_one(world: World) -> None:
    world.table("a")
    world.advance(1)
    world.restart()
    world.advance(60)
    assert world.begun == [("a", tick(1))]
    assert world.work.targets["a"] == tick(62)
    world.end("a")
    assert world.begun == [("a", tick(1)), ("a", tick(61))]
    assert world.mark("a").merged == 59


def test_what_had_ended_is_not_run_again(world: World) -> None:
    world.table("a")
    world.task("t", minutes=1)
    world.advance(1)
    world.end("a", "t")
    world.restart()
    world.advance(0.2)
    assert world.begun == []


def test_a_restart_in_the_middle_of_a_diamond(world: World) -> None:
    world.table("top")
    world.table("left", "top")
    world.table("right", "top")
    world.table("bottom", "left", "right")
    world.advance(1)
    world.end("top")
    world.end("left")
    world.restart()
    world.look()
    assert world.at_work == ["right"]
    assert world.waiting() == {"bottom": ("right",)}
    world.end("right")
    assert world.at_work == ["bottom"]


def test_a_failure_that_was_written_is_seen_by_those_who_waited_for_it(world: World) -> None:
    world.table("a")
    world.table("b", "a")
    world.advance(1)
    # The process ends right after it wrote that a failed.
    failed = world.mark("a").model_copy(update={"state": "FAILED", "reason": "boom", "failures": 1})
    world.store.marks.rows["table-a"] = failed
    world.restart()
    world.advance(1)
    assert (world.mark("b").state, world.mark("b").tick) == ("CLAIMED", tick(2))
    assert [(name, mark.tick, mark.reason) for name, mark in world.work.ends] == [
        ("b", tick(1), "Its upstream main.public.a failed: boom")
    ]
    assert world.begun == [("a", tick(2))]


def test_suspended_or_dropped_meanwhile(world: World) -> None:
    world.table("a")
    world.table("b")
    world.task("t", minutes=1)
    world.task("u", minutes=1)
    world.advance(1)
    world.job("t").run_now()
    world.restart()
    world.suspend("a")
    world.drop("b")
    world.drop("t")
    world.drop("u")
    world.look()
    assert world.begun == []
    assert world.marks() == {"a": "SKIPPED"}
    (run,) = world.runs("t")
    assert (run.state, run.error_message) == ("FAILED", SERVER_ENDED)
    (run,) = world.runs("u")
    assert (run.state, run.reason) == ("CANCELLED", "The task was dropped.")


def test_five_failures_are_counted_over_restarts(world: World) -> None:
    world.table("a")
    for _ in range(5):
        world.advance(1)
        world.fail("a")
        world.restart()
    assert len(world.work.suspensions) == 1


# ---- tasks


def test_a_task_that_ran_has_failed_and_is_not_run_again(world: World) -> None:
    world.task("t", minutes=1)
    world.task("after", "t")
    world.advance(1)
    world.job("t").run_now()
    world.look()
    world.restart()
    world.look()
    assert world.begun == []
    (run,) = world.runs("t")
    assert (run.state, run.error_code, run.error_message) == ("FAILED", "INTERRUPTED", SERVER_ENDED)
    assert (world.mark("t").state, world.mark("t").failures) == ("FAILED", 1)
    assert [run.reason for run in world.runs("after")] == [f"Its upstream main.public.t failed: {SERVER_ENDED}"]


@pytest.mark.parametrize("trigger", ["SCHEDULE", "MANUAL", "BACKFILL"])
@pytest.mark.parametrize("seen", [True, False])
def test_one_whose_job_never_began_is_run_once(world: World, trigger: str, seen: bool) -> None:
    """Its process ended while it waited for a slot, or before it was written down that it does."""
    task = world.task("t", minutes=60)
    world.task("after", "t")
    if trigger == "SCHEDULE":
        world.advance(60)
    else:
        world.scheduler.execute(task, [START], trigger)  # type: ignore[arg-type]
        world.look()
    (before,) = world.runs("t")
    assert before.state == "QUEUED"
    if not seen:
        world.store.task_runs.rows[before.id] = before.model_copy(update={"state": "WAITING", "job_id": None})
    for _ in range(3):
        world.restart()
        world.look()
        assert [name for name, _ in world.begun] == ["t"]
    world.end("t")
    world.restart()
    world.look()
    (run,) = world.runs("t")
    assert (run.id, run.state, run.attempt, run.error_message) == (before.id, "SUCCEED", 1, None)
    assert [name for name, _ in world.begun] == ([] if trigger == "BACKFILL" else ["after"])
    assert len(world.runs("after")) == (trigger != "BACKFILL")


def test_one_that_began_before_anybody_saw_it_is_not_run_again(world: World) -> None:
    """The scheduler looks now and then whether a job began; what has begun is known without that."""
    world.task("t", minutes=1)
    world.work.at_once = lambda name, tick: world.work.jobs[-1].run_now() or False
    world.advance(1)
    assert world.states("t") == ["RUNNING"]
    world.restart()
    world.look()
    assert world.begun == []
    assert world.states("t") == ["FAILED"]


def test_a_second_attempt_that_never_began(world: World) -> None:
    world.task("t", minutes=60, retries=1)
    world.advance(60)
    world.fail("t")
    world.clock.advance(10)
    world.look()
    assert world.states("t") == ["QUEUED"]
    world.restart()
    world.look()
    world.clock.advance(10)
    world.look()
    assert world.begun == [("t", tick(60))]
    world.end("t")
    assert [(run.state, run.attempt) for run in world.runs("t")] == [("SUCCEED", 2)]


def test_with_retries_it_is_tried_again(world: World) -> None:
    world.task("t", minutes=60, retries=1)
    world.advance(60)
    world.job("t").run_now()
    world.restart()
    world.look()
    (run,) = world.runs("t")
    assert (run.state, run.attempt, run.error_message) == ("WAITING", 2, SERVER_ENDED)
    assert world.begun == []
    world.clock.advance(10)
    world.look()
    assert world.begun == [("t", tick(60))]
    world.job("t").run_now()
    world.restart()
    world.look()
    assert world.states("t") == ["FAILED"]


def test_one_that_only_waited_goes_on_waiting(world: World) -> None:
    world.table("a")
    world.task("t", "a")
    world.advance(1)
    (before,) = world.runs("t")
    world.restart()
    world.look()
    assert world.waiting() == {"t": ("a",)}
    world.end("a")
    world.end("t")
    (run,) = world.runs("t")
    assert (run.id, run.state, run.attempt) == (before.id, "SUCCEED", 1)


def test_one_that_waited_for_its_next_attempt(world: World) -> None:
    world.task("t", minutes=60, retries=2)
    world.advance(60)
    world.fail("t")
    world.restart()
    world.look()
    assert world.runs("t")[0].attempt == 2
    world.clock.advance(10)
    world.look()
    assert world.at_work == ["t"]


def test_claimed_and_not_yet_in_the_history(world: World) -> None:
    world.task("t", minutes=1)
    world.advance(1)
    world.store.task_runs.rows.clear()
    world.restart()
    world.look()
    assert world.begun == [("t", tick(1))]
    assert world.states("t") == ["QUEUED"]


@pytest.mark.parametrize(
    ("state", "mark"),
    [("SUCCEED", "SUCCEED"), ("FAILED", "FAILED"), ("SKIPPED", "SKIPPED"), ("CANCELLED", "SKIPPED")],
)
def test_ended_in_the_history_and_not_yet_in_its_mark(world: World, state: str, mark: str) -> None:
    """Above all: a task that has done its work must not do it again."""
    world.task("t", minutes=1)
    world.advance(1)
    (run,) = world.runs("t")
    ended = run.model_copy(update={"state": state, "ended_at": tick(1.6), "error_message": "why"})
    world.store.task_runs.rows[run.id] = ended
    world.restart()
    world.look()
    assert world.begun == []
    assert world.mark("t").state == mark
    assert world.states("t") == [state]


def test_an_older_run_of_the_same_tick_does_not_count(world: World) -> None:
    """The clock was put back, the tick claimed once more, and then the process ended."""
    world.task("t", minutes=1)
    world.advance(1)
    world.end("t")
    (old,) = world.runs("t")
    claimed = world.mark("t").model_copy(update={"state": "CLAIMED", "at": tick(5)})
    world.store.marks.rows["task-t"] = claimed
    world.restart()
    world.look()
    assert world.begun == [("t", tick(1))]
    assert {run.id: run.state for run in world.runs("t")}[old.id] == "SUCCEED"


# ---- by hand


def test_a_backfill_goes_on(world: World) -> None:
    task = world.task("t")
    world.scheduler.execute(task, [tick(-3), tick(-2), tick(-1)], "BACKFILL")
    world.look()
    world.end("t")
    world.job("t").run_now()
    world.restart()
    world.look()
    by_tick = {run.tick: run.state for run in world.runs("t")}
    assert by_tick == {tick(-3): "SUCCEED", tick(-2): "FAILED", tick(-1): "QUEUED"}
    world.end("t")
    assert world.scheduler.status().runs == ()


def test_a_run_by_hand_that_nobody_had_looked_at_yet(world: World) -> None:
    root = world.task("root")
    world.task("after", "root")
    world.scheduler.execute(root, [START], "MANUAL")
    world.restart()
    world.look()
    assert world.at_work == ["root"]
    assert world.waiting() == {"after": ("root",)}
    world.end("root")
    world.end("after")
    assert world.states("root") == world.states("after") == ["SUCCEED"]


def test_followers_of_a_run_by_hand_go_on_waiting(world: World) -> None:
    root = world.task("root", retries=1)
    world.task("a", "root")
    world.task("b", "a")
    world.scheduler.execute(root, [START], "MANUAL")
    world.look()
    world.job("root").run_now()
    world.restart()
    world.look()
    assert world.states("root") == ["WAITING"]
    assert world.at_work == []
    world.clock.advance(10)
    world.look()
    world.end("root")
    world.job("a").run_now()
    world.restart()
    world.look()
    assert world.states("a") == ["FAILED"]  # It ran.
    assert world.states("b") == ["SKIPPED"]


def test_a_run_by_hand_that_waited_has_its_followers_once(world: World) -> None:
    root = world.task("root", minutes=1, retries=1)
    world.task("after", "root")
    world.advance(1)
    world.scheduler.execute(root, [START], "MANUAL")
    world.look()
    assert sorted(run.trigger for run in world.runs("root")) == ["MANUAL", "SCHEDULE"]
    world.job("root").run_now()
    world.restart()
    world.look()
    assert world.begun == [("root", START)]  # The other one waits for its next attempt.
    world.end("root")
    assert world.at_work == ["after"]
    assert sorted((run.tick, run.state) for run in world.runs("after")) == [(START, "QUEUED"), (tick(1), "WAITING")]


def test_runs_by_hand_keep_the_order_in_which_they_were_asked_for(world: World) -> None:
    task = world.task("t")
    for at in (tick(-1), tick(-5), tick(-3)):
        world.clock.advance(1)
        world.scheduler.execute(task, [at], "BACKFILL")
    world.restart()
    world.look()
    for at in (tick(-1), tick(-5), tick(-3)):
        assert world.begun[-1] == ("t", at)
        world.end("t")


def test_a_follower_by_hand_whose_upstream_ended_before(world: World) -> None:
    root = world.task("root")
    world.task("a", "root")
    world.task("b", "root")
    world.scheduler.execute(root, [START], "MANUAL")
    world.look()
    world.work.refuse = {"a": ValueError("x")}
    world.end("root")
    assert world.look() == 1.0
    assert world.states("a") == ["FAILED"]
    (run,) = world.runs("b")
    world.store.task_runs.rows[run.id] = run.model_copy(update={"state": "WAITING", "job_id": None})
    world.restart()
    world.look()
    assert world.at_work == ["b"]


def test_a_follower_by_hand_whose_upstream_failed_before(world: World) -> None:
    root = world.task("root")
    world.task("a", "root")
    world.scheduler.execute(root, [START], "MANUAL")
    world.look()
    (run,) = world.runs("root")
    failed = run.model_copy(update={"state": "FAILED", "error_message": "boom", "ended_at": START})
    world.store.task_runs.rows[run.id] = failed
    world.restart()
    world.look()
    assert [(run.state, run.reason) for run in world.runs("a")] == [
        ("SKIPPED", "Its upstream main.public.root failed: boom")
    ]


def test_a_dropped_task_leaves_no_run_behind(world: World) -> None:
    task = world.task("t")
    world.scheduler.execute(task, [tick(-2), tick(-1)], "BACKFILL")
    world.look()
    world.job("t").run_now()
    world.drop("t")
    world.restart()
    world.look()
    world.look()
    by_tick = {run.tick: run.state for run in world.runs("t")}
    assert by_tick == {tick(-2): "FAILED", tick(-1): "CANCELLED"}


def test_many_restarts_while_everything_is_pending(world: World) -> None:
    world.table("a")
    world.table("b", "a")
    world.task("t", "b")
    world.advance(1)
    for _ in range(5):
        world.restart()
        world.look()
    world.end_all()
    assert set(world.marks().values()) == {"SUCCEED"}
    assert world.states("t") == ["SUCCEED"]
    assert world.store.marks.claims == [("table-a", tick(1)), ("table-b", tick(1)), ("task-t", tick(1))]
