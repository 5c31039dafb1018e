"""Python files and commands as child processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from catalog.task_examples import a_run, a_task
from headrace import running
from headrace.errors import Cancelled, HeadraceError, NotAllowed, NotFound, TaskFailed, TimedOut
from headrace.settings import Settings
from headrace.tasks import code
from headrace.tasks.code import LONGEST_OUTPUT, run_code

PATIENCE = 20.0
TICK = datetime(2025, 3, 30, 10, 0, tzinfo=timezone(timedelta(hours=9)))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "tasks").mkdir()
    return Settings(path=tmp_path, timezone="Asia/Tokyo")


def shell(settings: Settings, line: str, **variables: str) -> str:
    return run_code(a_task(kind="SHELL", body=line), a_run(tick=TICK), settings, variables)


def python(settings: Settings, text: str, body: str = "x.py", **variables: str) -> str:
    (settings.path / "tasks" / "x.py").write_text(text)
    return run_code(a_task(kind="PYTHON", body=body), a_run(tick=TICK), settings, variables)


def failure(work: Callable[[], object]) -> TaskFailed:
    with pytest.raises(TaskFailed) as caught:
        work()
    return caught.value


def soon(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def is_gone(pid: int) -> bool:
    """A zombie that nobody has waited for is as good as gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


# What runs, and with what


def test_a_command(settings: Settings) -> None:
    assert shell(settings, "echo 'a b'  c") == "a b c\n"
    assert shell(settings, "sh -c 'echo out; echo err >&2'") == "out\nerr\n"


def test_there_is_no_shell(settings: Settings) -> None:
    assert shell(settings, "echo $HOME | cat; echo `id` > x") == "$HOME | cat; echo `id` > x\n"
    assert not (settings.path / "tasks" / "x").exists()


def test_a_command_of_the_folder(settings: Settings) -> None:
    script = settings.path / "tasks" / "load.sh"
    script.write_text("#!/bin/sh\npwd; echo $#\n")
    script.chmod(0o700)
    assert shell(settings, "./load.sh 'a b' c") == f"{(settings.path / 'tasks').resolve()}\n2\n"


def test_a_python_file_with_arguments_and_neighbours(settings: Settings) -> None:
    (settings.path / "tasks" / "beside.py").write_text("WORD = 'beside'\n")
    text = "import sys, beside\nprint(sys.argv[1:], beside.WORD, sys.executable)"
    assert python(settings, text, "x.py 'a b' ''") == f"['a b', ''] beside {sys.executable}\n"


def test_nothing_can_be_read_from_the_input(settings: Settings) -> None:
    assert shell(settings, "cat") == ""


def test_further_variables_are_handed_on(settings: Settings) -> None:
    given = {"HEADRACE_SERVICE": "http://127.0.0.1:8910", "HEADRACE_TOKEN": "hl_x"}
    text = "import os\nprint(os.environ['HEADRACE_SERVICE'], os.environ['HEADRACE_TOKEN'], os.environ['HEADRACE_TASK'])"
    assert python(settings, text, **given) == "http://127.0.0.1:8910 hl_x main.public.load\n"


def test_the_environment_is_scrubbed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_PASSWORD", "canary")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    monkeypatch.setenv("PYTHONPATH", "/canary")
    text = "import json, os\nprint(json.dumps(dict(os.environ)))"
    found = json.loads(python(settings, text))
    found.pop("LC_CTYPE", None)  # Python's own, where LANG is C.
    assert found == {
        "PATH": os.environ["PATH"],
        "LANG": os.environ.get("LANG") or "C.UTF-8",
        "HOME": str((settings.path / "tasks").resolve()),
        "TZ": "Asia/Tokyo",
        "PYTHONUNBUFFERED": "1",
        "HEADRACE_TASK": "main.public.load",
        "HEADRACE_SCHEDULED_TIME": "2025-03-30T01:00:00+00:00",
    }


# How it ends


def test_an_exit_status(settings: Settings) -> None:
    failed = failure(lambda: shell(settings, "sh -c 'echo first; echo the last word; exit 3'"))
    assert failed.message == "The command of main.public.load ended with exit status 3: the last word"
    assert (failed.code, failed.output) == ("TASK_FAILED", "first\nthe last word\n")
    failed = failure(lambda: python(settings, "raise ValueError('no rows')"))
    assert failed.message == "The Python file of main.public.load ended with exit status 1: ValueError: no rows"


def test_a_signal(settings: Settings) -> None:
    failed = failure(lambda: shell(settings, "sh -c 'kill -SEGV $$'"))
    assert failed.message == "The command of main.public.load was ended by signal SIGSEGV."


@pytest.mark.parametrize(("line", "why"), [("no-such-program x", "No such file"), ("./plain", "Permission denied")])
def test_what_cannot_be_started(settings: Settings, line: str, why: str) -> None:
    (settings.path / "tasks" / "plain").write_text("")
    assert f"cannot be started: {why}" in failure(lambda: shell(settings, line)).message


def test_only_the_end_of_a_long_output_is_kept(settings: Settings) -> None:
    found = python(settings, "for n in range(100000): print(n)")
    assert found.startswith("…")
    assert found.endswith("99998\n99999\n")
    assert len(found) == LONGEST_OUTPUT + 1


def test_odd_output(settings: Settings) -> None:
    text = "import sys\nsys.stdout.buffer.write(b'a\\xff\\x00b')"
    assert python(settings, text) == "a\ufffd\0b"


def test_the_last_line_is_told_while_it_runs(settings: Settings) -> None:
    job = running.Running(id="j")
    with running.begin(job):
        shell(settings, "sh -c 'echo half'")
    assert job.text == "half"


# Files


@pytest.mark.parametrize("name", ["../secret.py", "link.py", "folder", "away/secret.py"])
def test_a_file_outside_the_folder(settings: Settings, name: str) -> None:
    tasks = settings.path / "tasks"
    (settings.path / "secret.py").write_text("print('canary')")
    (tasks / "link.py").symlink_to(settings.path / "secret.py")
    (tasks / "folder").mkdir()
    (tasks / "away").symlink_to(settings.path)
    with pytest.raises(NotAllowed, match="is no file inside"):
        run_code(a_task(kind="PYTHON", body=name), a_run(), settings)


@pytest.mark.parametrize("name", ["missing.py", "circle.py", "x" * 5000])
def test_a_file_that_is_not_there(settings: Settings, name: str) -> None:
    (settings.path / "tasks" / "circle.py").symlink_to("circle.py")
    with pytest.raises(NotFound, match="There is no file"):
        run_code(a_task(kind="PYTHON", body=name), a_run(), settings)


def test_a_link_that_stays_inside(settings: Settings) -> None:
    (settings.path / "tasks" / "link.py").symlink_to("x.py")
    assert python(settings, "print(1)", "link.py") == "1\n"


def test_the_folder_is_made_for_its_owner_only(tmp_path: Path) -> None:
    shell(Settings(path=tmp_path / "lake"), "true")
    assert (tmp_path / "lake" / "tasks").stat().st_mode & 0o777 == 0o700


# Stopping


@contextmanager
def at_work(
    settings: Settings, line: str, count: int
) -> Iterator[tuple[running.Running, list[int], list[HeadraceError]]]:
    """A command in a thread that prints as many process ids as told."""
    job, errors = running.Running(id="j"), []
    pids_file = settings.path / "tasks" / "pids"

    def work() -> None:
        with running.begin(job):
            try:
                shell(settings, line)
            except HeadraceError as error:
                errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert soon(lambda: pids_file.exists() and len(pids_file.read_text().split()) == count)
    pids = [int(word) for word in pids_file.read_text().split()]
    yield job, pids, errors
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert soon(lambda: all(map(is_gone, pids)))


def test_a_stopped_job_ends_the_command_and_all_it_started(settings: Settings) -> None:
    line = "sh -c 'sleep 600 & echo $! $$ > pids; wait'"
    with at_work(settings, line, 2) as (job, pids, errors):
        assert not any(map(is_gone, pids))
        job.stop(TimedOut("It took too long."))
    assert [type(error) for error in errors] == [TimedOut]


def test_a_command_may_tidy_up_when_it_is_stopped(settings: Settings) -> None:
    line = "sh -c 'trap \"echo tidy > done; exit 0\" TERM; echo $$ > pids; while true; do sleep 0.05; done'"
    with at_work(settings, line, 1) as (job, _, errors):
        job.stop()
    assert (settings.path / "tasks" / "done").read_text() == "tidy\n"
    assert [type(error) for error in errors] == [Cancelled]


def test_a_command_that_will_not_end_is_killed(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "_PATIENCE_SECONDS", 0.2)
    line = "sh -c 'trap \"\" TERM; echo $$ > pids; while true; do sleep 0.05; done'"
    with at_work(settings, line, 1) as (job, _, errors):
        job.stop()
    assert [type(error) for error in errors] == [Cancelled]


def test_what_a_command_leaves_running_is_ended_and_not_waited_for(settings: Settings) -> None:
    began = time.monotonic()
    pid = int(shell(settings, "sh -c 'sleep 600 & echo $!'"))
    assert time.monotonic() - began < PATIENCE
    assert soon(lambda: is_gone(pid))


def test_output_held_open_by_another_session_is_not_waited_for(settings: Settings) -> None:
    found = shell(settings, "sh -c 'setsid sleep 600 & echo $!; sleep 0.2'")
    (pid,) = (int(word) for word in found.split())
    os.kill(pid, signal.SIGKILL)


def test_the_command_ends_with_the_server(settings: Settings) -> None:
    """The process that runs it is killed: nothing is left to do twice after its restart."""
    program = (
        "import sys\n"
        "from catalog.task_examples import a_run, a_task\n"
        "from headrace.settings import Settings\n"
        "from headrace.tasks.code import run_code\n"
        "line = \"sh -c 'sleep 600 & echo $! $$ > pids; wait'\"\n"
        "run_code(a_task(kind='SHELL', body=line), a_run(), Settings(path=sys.argv[1]))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    server = subprocess.Popen([sys.executable, "-c", program, str(settings.path)], env=environment)
    pids_file = settings.path / "tasks" / "pids"
    assert soon(lambda: pids_file.exists() and len(pids_file.read_text().split()) == 2)
    server.kill()
    server.wait()
    assert soon(lambda: all(is_gone(int(word)) for word in pids_file.read_text().split()))


def test_no_file_stays_open(settings: Settings) -> None:
    shell(settings, "true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        shell(settings, "true")
        failure(lambda: shell(settings, "no-such-program"))
    assert len(os.listdir("/proc/self/fd")) == before
