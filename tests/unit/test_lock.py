from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.errors import EnvironmentFault, LakeLocked
from headrace.storage.lock import FILE_NAME, LakeLock, holder

HOLD = """
import sys
from headrace.storage.lock import LakeLock
with LakeLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""
HOLD_WITH_CHILD = """
import os, subprocess, sys
from headrace.storage.lock import LakeLock
lock = LakeLock(sys.argv[1]).acquire()
sleep = [sys.executable, "-c", "import sys; sys.stdin.read()"]
if sys.argv[2] == "subprocess":
    child = subprocess.Popen(sleep, close_fds=False).pid
elif sys.argv[2] == "spawn":
    child = os.posix_spawn(sleep[0], sleep, os.environ)
else:
    child = os.fork()
    if child == 0:
        assert not lock.held
        lock.release()  # Must not free what the parent holds.
        sys.stdin.read()
        os._exit(0)
print(child, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def run(script: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_held_and_released(tmp_path: Path) -> None:
    lake = tmp_path / "new" / "lake"
    assert holder(lake) is None
    with LakeLock(lake) as lock:
        assert lock.held
        assert lock.acquire() is lock
        content = json.loads((lake / FILE_NAME).read_text())
        assert set(content) == {"pid", "host", "user", "command", "started"}
        who = holder(lake)
        assert who is not None
        assert (who.pid, who.host) == (os.getpid(), socket.gethostname())
        with pytest.raises(LakeLocked, match="already open in this process"):
            LakeLock(lake).acquire()
        assert lock.held
    assert holder(lake) is None
    lock.release()
    with LakeLock(lake):
        pass


def test_second_process_is_told_about_the_first(tmp_path: Path, start: Callable[..., subprocess.Popen[str]]) -> None:
    first = start(HOLD, str(tmp_path), "--database-url", "postgresql://me:s3cret@host/ops")
    assert line(first) == "held"
    with pytest.raises(LakeLocked) as caught:
        LakeLock(tmp_path).acquire()
    who = holder(tmp_path)
    assert who is not None
    assert who.pid == first.pid
    for part in (str(first.pid), socket.gethostname(), who.started, str(tmp_path), "LakeLock", "me:***@host"):
        assert part in caught.value.message
    assert f"kill {first.pid}" in str(caught.value.hint)
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in (tmp_path / FILE_NAME).read_text()
    first.communicate("")
    assert holder(tmp_path) is None
    with LakeLock(tmp_path):
        pass


def test_killed_holder_frees_the_lake(tmp_path: Path, start: Callable[..., subprocess.Popen[str]]) -> None:
    first = start(HOLD, str(tmp_path))
    assert line(first) == "held"
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert str(first.pid) in (tmp_path / FILE_NAME).read_text()  # A stale file, and no lock.
    assert holder(tmp_path) is None
    with LakeLock(tmp_path):
        assert (who := holder(tmp_path)) is not None
        assert who.pid == os.getpid()


@pytest.mark.parametrize("way", ["subprocess", "spawn", "fork"])
def test_child_does_not_inherit(tmp_path: Path, start: Callable[..., subprocess.Popen[str]], way: str) -> None:
    first = start(HOLD_WITH_CHILD, str(tmp_path), way)
    child = int(line(first))
    with pytest.raises(LakeLocked):
        LakeLock(tmp_path).acquire()
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert running(child)
    deadline = time.monotonic() + 10
    while holder(tmp_path) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert running(child)
    assert holder(tmp_path) is None
    with LakeLock(tmp_path):
        pass


def test_asking_does_not_disturb_taking(tmp_path: Path) -> None:
    done = False

    def ask() -> None:
        while not done:
            holder(tmp_path)

    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(ask) for _ in range(2)]
        try:
            for _ in range(50):
                LakeLock(tmp_path).acquire().release()
        finally:
            done = True
        for task in asking:
            task.result(timeout=30)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}', '{"pid": 1}', "\x00\xff"])
def test_unreadable_name(tmp_path: Path, start: Callable[..., subprocess.Popen[str]], content: str) -> None:
    first = start(HOLD, str(tmp_path))
    assert line(first) == "held"
    (tmp_path / FILE_NAME).write_text(content)
    with pytest.raises(LakeLocked, match="not left its name"):
        LakeLock(tmp_path).acquire()
    assert (who := holder(tmp_path)) is not None
    assert who.pid == 0


def test_lake_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "lake").touch()
    with pytest.raises(EnvironmentFault, match="cannot be used"):
        LakeLock(tmp_path / "lake").acquire()
    assert holder(tmp_path / "lake") is None
