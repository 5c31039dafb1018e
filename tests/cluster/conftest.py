"""A real standalone Spark cluster on loopback, from PySpark's own files: a master and two workers, one core each."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from headrace.storage.java import check_java

WORKERS = 2
_PATIENCE = 120
_OPENED = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.lang", "java.lang.invoke", "java.io", "java.net", "java.nio", "java.util", "sun.nio.ch")
)
_LOGGING = """
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %p %c{1}: %m%n%ex
"""


@dataclass(frozen=True)
class Cluster:
    """The URL for `spark_master`, and the workers' folders: every application leaves one in each."""

    url: str
    work: tuple[Path, ...]

    def executors(self) -> int:
        """How many executors the workers have started, over all time."""
        return sum(1 for folder in self.work for _ in folder.glob("app-*/*/stderr"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "log4j2.properties").write_text(_LOGGING, "utf-8")
    loopback = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with ExitStack() as stack:
        log = folder / "master.log"
        master = _started(stack, folder, log, "master.Master", *loopback)
        url = _told(master, log, re.compile(r"Starting Spark master at (spark://\S+)"))
        work = tuple(folder / f"work-{number}" for number in range(WORKERS))
        for place in work:
            worker_log = place.with_suffix(".log")
            sizes = ("--cores", "1", "--memory", "1g", "--work-dir", str(place))
            worker = _started(stack, folder, worker_log, "worker.Worker", *loopback, *sizes, url)
            _told(worker, worker_log, re.compile(r"(Successfully registered with master)"))
        yield Cluster(url, work)


def _started(stack: ExitStack, folder: Path, log: Path, program: str, *arguments: str) -> subprocess.Popen[bytes]:
    """One of Spark's daemons, ended with the stack. Started by its class: the scripts for it are not in PySpark."""
    java = check_java()
    home = Path(pyspark.__file__).parent
    logging = f"-Dlog4j2.configurationFile={(folder / 'log4j2.properties').as_uri()}"
    options = ("-Xmx256m", "-XX:TieredStopAtLevel=1", logging, *_OPENED)
    command = [str(java.path), *options, "-cp", f"{home}/jars/*", f"org.apache.spark.deploy.{program}", *arguments]
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "HEADRACE_"))}
    # Workers start executors by what they find there; the address keeps everything off the machine's network.
    environment = kept | {"SPARK_HOME": str(home), "JAVA_HOME": str(java.home), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["SPARK_SCALA_VERSION"] = "2.13"  # Spark's scripts say so, which are not used here.
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    stack.callback(_ended, process)
    return process


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _told(process: subprocess.Popen[bytes], log: Path, wanted: re.Pattern[str]) -> str:
    """What a daemon has written to its log, as soon as it has."""
    found: list[str] = []

    def written() -> bool:
        assert process.poll() is None, f"ended with {process.returncode}: {log.read_text('utf-8', 'replace')[-3000:]}"
        found[:] = wanted.findall(log.read_text("utf-8", "replace"))
        return bool(found)

    until(written, lambda: f"{wanted.pattern!r} is not in {log.read_text('utf-8', 'replace')[-3000:]}")
    return found[0]


def until(condition: Callable[[], bool], otherwise: Callable[[], str], seconds: float = _PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(0.05)
