"""One process per lake.

Delta's commits on a local file system are safe within one JVM only, so a second process must not write. The lock is
the kernel's (flock): it goes when its process goes, however that ends. The text in the file only says whose it is.
"""

from __future__ import annotations

import errno
import fcntl
import getpass
import json
import os
import shlex
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any

from headrace.errors import EnvironmentFault, HeadraceError, LakeLocked
from headrace.settings import masked

FILE_NAME = ".headrace.lock"
_GRACE_SECONDS = 0.25
_PAUSE_SECONDS = 0.02
_MAX_BYTES = 65536
_MAX_COMMAND = 2000


@dataclass(frozen=True)
class Holder:
    """The process that holds a lake, as it described itself."""

    pid: int
    host: str
    user: str
    command: str
    started: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (user {self.user}, since {self.started}): {self.command}"


class LakeLock:
    """Holds the lake at `path` from `acquire` (or entering) until `release` (or leaving, or the process's end)."""

    def __init__(self, path: str | Path) -> None:
        self._folder = Path(path)
        self._file = self._folder / FILE_NAME
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    def acquire(self) -> LakeLock:
        if self._descriptor is not None:
            return self
        # Not one try only: `holder` takes the lock for an instant to see if it is free, and whoever has just taken
        # it needs an instant to write its name.
        deadline = time.monotonic() + _GRACE_SECONDS
        while (descriptor := self._try()) is None:
            if time.monotonic() >= deadline:
                raise self._locked()
            time.sleep(_PAUSE_SECONDS)
        try:
            _write(descriptor, _this_process())
        except OSError as error:
            os.close(descriptor)
            raise _fault(self._file, error) from error
        self._descriptor = descriptor
        _held.add(self)
        return self

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        _held.discard(self)
        try:
            os.ftruncate(descriptor, 0)
        except OSError:
            pass  # The text is a courtesy; closing is what frees the lake.
        finally:
            os.close(descriptor)

    def __enter__(self) -> LakeLock:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _try(self) -> int | None:
        """The locked file's descriptor, or None when another holds it."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            # Python opens files close-on-exec, so that the JVM and other programs we start do not share the lock.
            descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise _fault(self._file, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _same_file(descriptor, self._file):
                return descriptor
        except BlockingIOError:
            pass
        except OSError as error:
            os.close(descriptor)
            raise _fault(self._file, error) from error
        os.close(descriptor)
        return None

    def _locked(self) -> HeadraceError:
        first = _read(self._file)
        if first is None:
            return LakeLocked(
                f"The lake {self._folder} is in use by another process, which has not left its name.",
                hint=f"Find it with `fuser {self._file}`, then end it or use another lake.",
            )
        if first.host == socket.gethostname() and first.pid == os.getpid():
            return LakeLocked(
                f"The lake {self._folder} is already open in this process ({first.pid}, since {first.started}).",
                hint="Close the first one, or share it.",
            )
        return LakeLocked(
            f"The lake {self._folder} is in use by {first}",
            hint=f"Wait for it, end it with `kill {first.pid}` on {first.host}, or use another lake (--lake).",
        )


def holder(path: str | Path) -> Holder | None:
    """Who holds the lake; None when it is free. A holder that has not written its name yet has pid 0."""
    file = Path(path) / FILE_NAME
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _fault(file, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return _read(file) or Holder(0, socket.gethostname(), "unknown", "unknown", "unknown")
    except OSError as error:
        raise _fault(file, error) from error
    finally:
        os.close(descriptor)


def _this_process() -> Holder:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # A user id without a name, as in many containers.
        user = str(os.getuid())
    command = shlex.join(masked(word) for word in (sys.orig_argv or sys.argv))
    started = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return Holder(os.getpid(), socket.gethostname(), user, command[:_MAX_COMMAND], started)


def _write(descriptor: int, who: Holder) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(asdict(who)).encode(), 0)


def _read(file: Path) -> Holder | None:
    try:
        with file.open("rb") as stream:
            content: Any = json.loads(stream.read(_MAX_BYTES))
    except (OSError, ValueError):
        return None
    if not isinstance(content, Mapping):
        return None
    try:
        texts = {key: str(content[key]) for key in ("host", "user", "command", "started")}
        return Holder(pid=int(content["pid"]), **texts)
    except (KeyError, TypeError, ValueError):
        return None


def _same_file(descriptor: int, file: Path) -> bool:
    """False when the file was deleted or replaced between opening and locking it."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(file))
    except FileNotFoundError:
        return False


def _fault(file: Path, error: OSError) -> EnvironmentFault:
    if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL):
        hint = "This file system has no file locks; put the lake on a local disk."
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        hint = "Run as a user who may write to the lake's folder, or choose another one."
    else:
        hint = "Check that the lake's folder exists and its disk works."
    return EnvironmentFault(f"The lake's lock file {file} cannot be used: {error.strerror or error}.", hint=hint)


_held: set[LakeLock] = set()


def _forget_after_fork() -> None:
    """A forked child (as multiprocessing makes) shares the open file: it would hold the lake after we are gone.
    Closing its copy leaves ours locked."""
    for lock in list(_held):
        if lock._descriptor is not None:
            os.close(lock._descriptor)
            lock._descriptor = None
    _held.clear()


os.register_at_fork(after_in_child=_forget_after_fork)
