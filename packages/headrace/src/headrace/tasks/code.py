"""A Python file or a command as a child process: in the lake's folder `tasks`, with an environment of a few variables,
without a shell. Who may have one run is decided before this.
"""

from __future__ import annotations

import os
import selectors
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timezone
from pathlib import Path
from types import MappingProxyType

from headrace import running
from headrace.catalog.records import Task, TaskRun
from headrace.errors import NotAllowed, NotFound, TaskFailed
from headrace.settings import Settings
from headrace.tasks import keeper

FOLDER = "tasks"
LONGEST_OUTPUT = 64 * 1024

_PATIENCE_SECONDS = 5.0
"""How long a command that is stopped may take to end by itself."""
_LOOK_SECONDS = 0.1
_TELL_SECONDS = 0.5
_CHUNK = 64 * 1024
_MOST_CHUNKS = 64
_LONGEST_LINE = 500
_PATH = "/usr/local/bin:/usr/bin:/bin"
_NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


def run_code(task: Task, run: TaskRun, settings: Settings, variables: Mapping[str, str] = _NO_VARIABLES) -> str:
    """Run a PYTHON or SHELL task to its end and give the end of what it printed. It gets these variables, too.

    Raises TaskFailed unless it exits with 0, and the job's own error once the job of this thread is stopped: by then
    nothing of the process is left.
    """
    folder = settings.path / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = folder.resolve()
    environment = {
        "PATH": os.environ.get("PATH") or _PATH,
        "LANG": os.environ.get("LANG") or "C.UTF-8",
        "HOME": str(folder),
        "TZ": settings.timezone,
        "PYTHONUNBUFFERED": "1",
        "HEADRACE_TASK": str(task.table_name),
        "HEADRACE_SCHEDULED_TIME": run.tick.astimezone(timezone.utc).isoformat(),
        **variables,
    }
    output = _Output()
    ending = _ran(_command(task, folder), folder, environment, output)
    running.require_wanted()
    if ending == "exit 0":
        return output.text
    raise TaskFailed(
        _told(task, ending, output.last_line),
        hint="SHOW TASK HISTORY has the end of its output.",
        output=output.text,
    )


def require_file(folder: Path, file: str) -> Path:
    """The file of a Python task, inside the folder also when links are followed."""
    root = folder.resolve()
    try:
        path = (root / file).resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        raise NotFound(f"There is no file {file} in {root}.", hint="Put the task's Python file there.") from None
    if not path.is_relative_to(root) or not path.is_file():
        raise NotAllowed(
            f"{file} is no file inside {root}.", hint="Put the file itself there: a link out of the folder is refused."
        )
    return path


def _command(task: Task, folder: Path) -> list[str]:
    words = shlex.split(task.body)
    if task.kind == "PYTHON":
        return [sys.executable, str(require_file(folder, words[0])), *words[1:]]
    return words


def _told(task: Task, ending: str, last_line: str) -> str:
    what = f"The {'Python file' if task.kind == 'PYTHON' else 'command'} of {task.table_name}"
    said = f": {last_line}" if last_line else "."
    kind, _, number = ending.partition(" ")
    if kind == "exit":
        return f"{what} ended with exit status {number}{said}"
    if kind == "signal":
        with suppress(ValueError):
            number = signal.Signals(int(number)).name
        return f"{what} was ended by signal {number}{said}"
    if kind == "start":
        return f"{what} cannot be started: {os.strerror(int(number))}."
    return f"{what} was killed{said}"


# The process


def _ran(command: list[str], folder: Path, environment: dict[str, str], output: _Output) -> str:
    """Run the command until it ends, or nobody wants it any more; how it ended, in the keeper's words, or nothing."""
    status, written = os.pipe()
    try:
        with _started(command, folder, environment, written) as process:
            os.close(written)
            written = -1
            _follow(process, output)
        return os.read(status, 100).decode()
    finally:
        os.close(status)
        if written >= 0:
            os.close(written)


@contextmanager
def _started(
    command: list[str], folder: Path, environment: dict[str, str], status: int
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", keeper.__file__, str(status), str(_PATIENCE_SECONDS), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env=environment,
        start_new_session=True,
        pass_fds=(status,),
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            with suppress(OSError):
                stream.close()


def _follow(process: subprocess.Popen[bytes], output: _Output) -> None:
    """Read what it prints until it has ended. Whoever it leaves running may hold its output open: nobody waits."""
    assert process.stdin is not None
    assert process.stdout is not None
    job = running.current()
    source = process.stdout.fileno()
    os.set_blocking(source, False)
    deadline: float | None = None
    with selectors.DefaultSelector() as ready:
        ready.register(source, selectors.EVENT_READ)
        while process.poll() is None:
            if ready.get_map():
                if ready.select(_LOOK_SECONDS) and not _read(source, output, 1):
                    ready.unregister(source)
            else:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_SECONDS)
            if deadline is None and job is not None and job.stopped is not None:
                process.stdin.close()
                deadline = time.monotonic() + 2 * _PATIENCE_SECONDS
            if deadline is not None and time.monotonic() > deadline:
                return
        _read(source, output, _MOST_CHUNKS)


def _read(source: int, output: _Output, most: int) -> bool:
    """Whether more may come."""
    for _ in range(most):
        try:
            data = os.read(source, _CHUNK)
        except BlockingIOError:
            return True
        if not data:
            return False
        output.add(data)
    return True


class _Output:
    """The end of what a process has printed."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._is_cut = False
        self._told = 0.0

    def add(self, data: bytes) -> None:
        self._kept += data
        if len(self._kept) > 2 * LONGEST_OUTPUT:
            del self._kept[:-LONGEST_OUTPUT]
            self._is_cut = True
        if time.monotonic() - self._told > _TELL_SECONDS:
            self._told = time.monotonic()
            running.tell(self.last_line)

    @property
    def text(self) -> str:
        text = self._kept.decode("utf-8", "replace")
        is_cut = self._is_cut or len(text) > LONGEST_OUTPUT
        return f"…{text[-LONGEST_OUTPUT:]}" if is_cut else text

    @property
    def last_line(self) -> str:
        lines = self.text.strip().splitlines()
        return lines[-1].strip()[:_LONGEST_LINE] if lines else ""
