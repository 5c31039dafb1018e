"""One process of a virtual cluster with a Spark master of its own, from its start to its end: what is said to it, what
it answers, and what becomes of the refreshes that it leaves."""

from __future__ import annotations

import logging
import queue
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from headrace import running
from headrace.catalog.records import VCluster
from headrace.compute.messages import (
    Answer,
    Cancel,
    Done,
    End,
    Failed,
    Fault,
    NotHere,
    NotStarted,
    Ready,
    Request,
    Start,
    Told,
    Work,
    line,
    read_answer,
)
from headrace.errors import EnvironmentFault, HeadraceError, spark_ended
from headrace.storage.spark import end_orphan as end_java_orphan

START_SECONDS = 100.0
"""Spark itself gives a master three times twenty seconds to answer."""
END_SECONDS = 10.0
LOOK_SECONDS = 0.1
_CANCEL_SECONDS = 10.0
"""What was cancelled and goes on for so long is left alone; its answer will find nobody."""
_log = logging.getLogger(__name__)

Tell = Callable[[str, float | None], None]
Settle = Callable[[str], None]
"""Gives a refresh its end when its process is gone; called with the name under which that took leases."""


class NotThere(Exception):
    """The cluster cannot do this, and has done nothing: the lake's own Spark must."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Ended(Exception):
    """The process ended before it answered. Nothing of it works any more, its JVM included; its refreshes have been
    given their ends."""

    def __init__(self, fault: EnvironmentFault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class Process:
    """The lake's end of the pipes. Any number of jobs may use it at once, each in a thread of its own."""

    def __init__(
        self, cluster: VCluster, folder: Path, start: Start, command: Sequence[str], *, suspended: bool
    ) -> None:
        self.properties = dict(cluster.properties)
        self.auto_suspend_seconds = cluster.auto_suspend_seconds
        self.folder = folder
        self.suspended = suspended
        """Whether the cluster counts as suspended although it has this process."""
        self.is_over = False
        self._name = cluster.name
        self._master = start.settings.spark_master
        self._log_file = folder / "logs" / "worker.log"
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._claims = 0
        self._idle_since = time.monotonic()
        self._ending = False
        self._asked: dict[str, queue.SimpleQueue[Answer | None]] = {}
        """Those who wait for an answer, by the id of the request."""
        self._unanswered: dict[str, Settle] = {}
        """Refreshes that it works on, whether or not anybody still waits for them."""
        self._began = time.monotonic()
        self._start_over = threading.Event()
        """It is ready, or it never will be."""
        self._not_started: EnvironmentFault | None = None
        self._ready = False
        self._process = self._spawned(command)
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read, name=f"worker-{self._name}", daemon=True)
        self._reader.start()
        self._send(start)

    def _spawned(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        try:
            (self.folder / "logs").mkdir(parents=True, exist_ok=True)
            if self._log_file.exists():
                self._log_file.replace(self._log_file.with_suffix(".log.1"))
            with self._log_file.open("wb") as log:
                # A session of its own: Ctrl-C in the lake's terminal is the lake's business.
                return subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd=self.folder,
                    start_new_session=True,
                )
        except OSError as error:
            raise EnvironmentFault(
                f"The process of the virtual cluster {self._name} could not be started: {error.strerror or error}.",
                hint=f"Check the folder {self.folder}, and that this machine has memory and processes left.",
            ) from error

    # ---- who uses it

    def claim(self) -> bool:
        """Whether it takes another job; then `release` must follow."""
        with self._lock:
            if self._ending or self.is_over:
                return False
            self._claims += 1
            return True

    def release(self) -> None:
        with self._lock:
            self._claims -= 1
            self._idle_since = time.monotonic()

    @property
    def is_idle(self) -> bool:
        with self._lock:
            return self._claims == 0 and not self._ending

    @property
    def idle_seconds(self) -> float:
        return time.monotonic() - self._idle_since

    def wait_until_ready(self, tell: Tell) -> None:
        if not self._start_over.is_set():
            tell(f"Starting the virtual cluster {self._name} on {self._master}", None)
            with running.phase("starting the cluster"), running.resuming():
                self._wait_for_start()
        if self._not_started is not None:
            raise self._not_started
        if not self._ready:
            raise self._could_not_start(f"its process ended ({self._exit()})")

    def _wait_for_start(self) -> None:
        while not self._start_over.wait(LOOK_SECONDS):
            running.require_wanted()
            if time.monotonic() - self._began > START_SECONDS:
                self._not_started = self._could_not_start(f"it was not ready after {START_SECONDS:.0f} seconds")
                self._process.kill()
                return

    def ask(self, request: Work, tell: Tell, settle: Settle | None = None) -> Done:
        """Have the work done; ends also when the job of this thread is not wanted any more. `settle` is called if the
        process ends before it has answered, be it after this has returned."""
        answers: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
        with self._lock:
            if self.is_over:
                raise self._ended()
            self._asked[request.id] = answers
            if settle is not None:
                self._unanswered[request.id] = settle
        answered = False
        try:
            self._send(request)
            done = self._answer(request.id, answers, tell)
            answered = True
            return done
        except (NotThere, HeadraceError, Ended):
            answered = True
            raise
        finally:
            with self._lock:
                del self._asked[request.id]
            if not answered:  # Ctrl-C, for one.
                self._send(Cancel(id=request.id, reason=Fault(code="CANCELLED", message="The job was interrupted.")))

    def _answer(self, request_id: str, answers: queue.SimpleQueue[Answer | None], tell: Tell) -> Done:
        job = running.current()
        give_up = float("inf")
        while True:
            stopped = None if job is None else job.stopped
            if stopped is not None and give_up == float("inf"):
                self._send(Cancel(id=request_id, reason=Fault.of(stopped)))
                give_up = time.monotonic() + _CANCEL_SECONDS
            if stopped is not None and time.monotonic() > give_up:
                raise stopped
            try:
                answer = answers.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                continue
            if answer is None:
                raise self._ended()
            if isinstance(answer, Told):
                tell(answer.text, answer.fraction)
                continue
            if isinstance(answer, NotHere):
                raise NotThere(answer.why)
            if isinstance(answer, Done | Failed) and job is not None:
                for name, seconds in answer.phases.items():
                    job.phases[name] = job.phases.get(name, 0.0) + seconds
                running.count(answer.counts)
            if isinstance(answer, Done):
                return answer
            if isinstance(answer, Failed):
                raise stopped or answer.fault.error()

    # ---- what goes to and fro

    def _send(self, request: Request) -> None:
        """A process that does not read any more is at its end; whoever waits for it is told so by `_over`."""
        stream = self._process.stdin
        assert stream is not None
        with self._writing:
            try:
                stream.write(line(request))
                stream.flush()
            except (OSError, ValueError):
                pass

    def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        try:
            for text in stream:
                try:
                    self._take(read_answer(text))
                except ValueError:
                    _log.error("The process of the virtual cluster %s said: %r", self._name, text[:200])
        finally:
            self._over()

    def _take(self, answer: Answer) -> None:
        if isinstance(answer, Ready):
            _log.info("The virtual cluster %s runs on %s as %s.", self._name, self._master, answer.application)
            self._ready = True
            self._start_over.set()
        elif isinstance(answer, NotStarted):
            self._not_started = self._could_not_start(answer.fault.message.rstrip("."), answer.fault.hint)
            self._start_over.set()
        else:
            with self._lock:
                waiting = self._asked.get(answer.id)
                if not isinstance(answer, Told):
                    self._unanswered.pop(answer.id, None)
            if waiting is not None:
                waiting.put(answer)

    # ---- its end

    def end(self, patience: float) -> None:
        """Have it stop Spark and end, or kill it after so many seconds."""
        with self._lock:
            self._ending = True
        self._send(End(patience=patience))
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reader.join(END_SECONDS)

    def _over(self) -> None:
        """Its output has ended. What it leaves is settled first, then those who wait for it are told."""
        gone = self._is_gone()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass
        with self._lock:
            self.is_over = True
            waiting, left = list(self._asked.values()), list(self._unanswered.items())
        self._start_over.set()
        for job_id, settle in left if gone else ():
            try:
                settle(f"{socket.gethostname()}:{self.pid}")
            except Exception:
                _log.exception("The refresh %s has no end yet; it gets one when the lake is opened again.", job_id)
        for answers in waiting:
            answers.put(None)

    def _is_gone(self) -> bool:
        """Whether nothing can be committed any more: for that its JVM must be gone, too."""
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        try:
            end_java_orphan(self.folder)
        except EnvironmentFault as fault:
            _log.error("%s", fault)
            return False
        return True

    def _ended(self) -> Ended:
        why = "was ended" if self._ending else f"ended ({self._exit()})"
        return Ended(
            spark_ended(
                f"The process of the virtual cluster {self._name} {why} while this ran.",
                hint=f"Run it again: the process is started anew. Its logs tell more: {self._logs()}.",
            )
        )

    def _could_not_start(self, why: str, hint: str | None = None) -> EnvironmentFault:
        return EnvironmentFault(
            f"The virtual cluster {self._name} could not be started on {self._master}: {why}.",
            hint=hint
            or f"Check that the master runs and can be reached from here. The logs tell more: {self._logs()}.",
        )

    def _exit(self) -> str:
        code = self._process.poll()
        if code is None:
            return "and has not said how"
        return f"signal {-code}" if code < 0 else f"code {code}"

    def _logs(self) -> str:
        return f"{self._log_file} and headrace.log beside it"
