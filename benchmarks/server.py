"""`make bench-server`: many clients of one server, next to the same statements through Spark's own Connect server.

First 50 clients send short statements, one after the other, to a Headrace server for a minute, then to a Spark Connect
server with the same tables and the same settings (needs `pip install 'pyspark[connect]'`). The two never run at the
same time. Then a few clients ask short questions while heavy refreshes run: nowhere, on another virtual cluster, on
their own.

Settings, from the environment:

    SECONDS=60       how long each part lasts
    CLIENTS=50       clients of the first part
    ROWS=1000000     rows of the table they ask about; the refreshes read twenty times as many
    CONNECT=1        0 leaves Spark Connect out
    REFRESHES=1      0 leaves out the part with refreshes

Prints tables and writes benchmarks/results/server.json. Ends with 1 if a statement failed or gave a wrong answer.
"""

from __future__ import annotations

import json
import math
import os
import platform
import secrets
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.report import RESULTS
from headrace import settings as settings_module
from headrace.client.lake import RemoteLake, connect
from headrace.storage.jars import ensure_jars
from headrace.storage.java import check_java
from headrace.storage.spark import spark_configuration

SECONDS = float(os.environ.get("SECONDS", "60"))
CLIENTS = int(os.environ.get("CLIENTS", "50"))
ROWS = int(os.environ.get("ROWS", "1000000"))
WITH_CONNECT = os.environ.get("CONNECT", "1") != "0"
WITH_REFRESHES = os.environ.get("REFRESHES", "1") != "0"

LAKE = Path(__file__).parent / "data" / "lake-server"
LOGS = LAKE.parent / "server-logs"
KINDS = 20
ASKING, LOADING = 4, 2
"""Clients that ask and clients that refresh, in the second part."""
_START_SECONDS = 300
_LAST_ANSWER_SECONDS = 120

Run = Callable[[str], list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Address:
    """Of the running server; the token is that of an administrator."""

    url: str
    token: str = field(repr=False)


@dataclass(frozen=True)
class Question:
    """A short statement and its one right answer."""

    text: str
    answer: tuple[Any, ...]


def question(number: int) -> Question:
    """The three kinds in turn: no table, a row by its key, a thousand rows summed."""
    key = number * 7919 % (ROWS - 1000)
    if number % 3 == 0:
        return Question(f"SELECT {number} + 1 AS a", (number + 1,))
    if number % 3 == 1:
        return Question(f"SELECT id, kind FROM items WHERE id = {key}", (key, f"k{key % KINDS}"))
    total = sum(range(key, key + 1000))
    return Question(f"SELECT sum(id) AS s FROM items WHERE id BETWEEN {key} AND {key + 999}", (total,))


@dataclass
class Timings:
    """What the clients of one part saw."""

    name: str
    clients: int
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list, repr=False)
    failures: list[str] = field(default_factory=list)

    def percentile(self, share: float) -> float | None:
        """The smallest latency that so many of all are not above."""
        ordered = sorted(self.latencies)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "clients": self.clients,
            "seconds": self.seconds,
            "statements": len(self.latencies),
            "per_second": len(self.latencies) / self.seconds if self.seconds else None,
            "mean_s": statistics.fmean(self.latencies) if self.latencies else None,
            "p50_s": self.percentile(0.5),
            "p99_s": self.percentile(0.99),
            "longest_s": max(self.latencies, default=None),
            "failures": len(self.failures),
            "first_failures": self.failures[:5],
        }


def measured(name: str, runs: Sequence[Run], seconds: float) -> Timings:
    """Each client sends its next statement when it has the answer to the one before."""
    found = Timings(name, len(runs))
    lock = threading.Lock()
    begin = threading.Barrier(len(runs) + 1)
    ended = threading.Event()

    def client(place: int, run: Run) -> None:
        begin.wait()
        number = place
        while not ended.is_set():
            asked = question(number)
            number += len(runs)
            began = time.perf_counter()
            try:
                rows = run(asked.text)
                wrong = None if rows == [asked.answer] else f"{asked.text}: {rows} is not {asked.answer}"
            except Exception as error:
                wrong = f"{asked.text}: {error}"
            took = time.perf_counter() - began
            with lock:
                if wrong is None:
                    found.latencies.append(took)
                else:
                    found.failures.append(wrong.splitlines()[0])

    threads = [threading.Thread(target=client, args=(n, run), daemon=True) for n, run in enumerate(runs)]
    for thread in threads:
        thread.start()
    begin.wait()
    began = time.perf_counter()
    ended.wait(seconds)
    ended.set()
    deadline = time.monotonic() + _LAST_ANSWER_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            with lock:
                found.failures.append(f"{name}: a client got no answer for {_LAST_ANSWER_SECONDS} s")
    found.seconds = time.perf_counter() - began
    return found


# ---------------------------------------------------------------------- Headrace


@contextmanager
def headrace_server() -> Iterator[Address]:
    """`headrace up` on a free port."""
    environment = os.environ | {"HEADRACE_PATH": str(LAKE), "HEADRACE_PORT": "0"}
    with (LOGS / "headrace.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli.main", "up"],
            env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        yield _started(process, lambda: _address_of(process.pid), LOGS / "headrace.log")
    finally:
        _ended(process)


def _address_of(pid: int) -> Address | None:
    try:
        found = json.loads((LAKE / "server.json").read_text("utf-8"))
    except FileNotFoundError:
        return None
    return Address(found["url"], found["token"]) if found["pid"] == pid and _is_ready(found["url"]) else None


def _is_ready(url: str) -> bool:
    import httpx

    try:
        return httpx.get(f"{url}/health", trust_env=False, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def _filled(admin: RemoteLake) -> str:
    """The tables, the virtual clusters and a user who may read; the user's password."""
    password = secrets.token_urlsafe(24)
    items = f"SELECT id, concat('k', id % {KINDS}) AS kind, id / 4 AS amount FROM range({{rows}})"
    admin.sql(
        f"""
        CREATE TABLE items AS {items.format(rows=ROWS)};
        CREATE TABLE many AS {items.format(rows=20 * ROWS)};
        CREATE USER asker WITH PASSWORD '{password}' ROLE analyst;
        GRANT SELECT ON SCHEMA public TO asker;
        CREATE VCLUSTER asking VCLUSTER_TYPE = ANALYTICS VCLUSTER_SIZE = LARGE MAX_CONCURRENCY = {ASKING};
        CREATE VCLUSTER loading VCLUSTER_TYPE = GENERAL VCLUSTER_SIZE = XSMALL MAX_CONCURRENCY = {LOADING}
        """
    )
    return password


def _asker(url: str, password: str, vcluster: str | None = None) -> RemoteLake:
    return connect(url, username="asker", password=password, vcluster=vcluster)


def _rows_of(lake: RemoteLake) -> Run:
    return lambda text: [tuple(row) for row in lake.sql(text).rows]


def through_headrace(url: str, password: str) -> Timings:
    with ExitStack() as stack:
        lakes = [stack.enter_context(_asker(url, password)) for _ in range(CLIENTS)]
        runs = [_rows_of(lake) for lake in lakes]
        measured("warm-up", runs[:8], min(10.0, SECONDS))
        return measured("Headrace", runs, SECONDS)


# ---------------------------------------------------------------------- refreshes beside


@contextmanager
def refreshing(admin_of: Callable[[], AbstractContextManager[RemoteLake]], vcluster: str) -> Iterator[list[float]]:
    """Until the block ends, as many tables as there are loaders are computed anew on this cluster, again and again.
    Gives the seconds of each refresh."""
    took: list[float] = []
    ended = threading.Event()
    faults: list[Exception] = []

    def load(number: int) -> None:
        try:
            with admin_of() as lake:
                while not ended.is_set():
                    # A change that any refresh must take up; with REFRESH_MODE = FULL it reads everything.
                    lake.sql(f"INSERT INTO change_{vcluster}_{number} VALUES (1)")
                    began = time.perf_counter()
                    lake.sql(f"REFRESH DYNAMIC TABLE heavy_{vcluster}_{number}")
                    took.append(time.perf_counter() - began)
        except Exception as error:
            faults.append(error)

    with admin_of() as lake:
        for number in range(LOADING):
            lake.sql(
                f"""
                CREATE TABLE change_{vcluster}_{number} (n INT);
                CREATE DYNAMIC TABLE heavy_{vcluster}_{number} REFRESH VCLUSTER {vcluster} REFRESH_MODE = FULL AS
                SELECT kind, id % 1000 AS part, sum(amount) AS amount, count(DISTINCT id % 9973) AS n,
                       (SELECT count(*) FROM change_{vcluster}_{number}) AS changes
                FROM many GROUP BY kind, id % 1000
                """
            )
    threads = [threading.Thread(target=load, args=(number,), daemon=True) for number in range(LOADING)]
    for thread in threads:
        thread.start()
    try:
        yield took
    finally:
        ended.set()
        for thread in threads:
            thread.join(600)
    if faults:
        raise faults[0]


def beside_refreshes(found: Address, password: str) -> list[dict[str, Any]]:
    """The same few clients on the cluster `asking`, while refreshes run nowhere, on `loading`, and on `asking`."""
    parts = []
    with ExitStack() as stack:
        lakes = [stack.enter_context(_asker(found.url, password, "asking")) for _ in range(ASKING)]
        runs = [_rows_of(lake) for lake in lakes]
        measured("warm-up", runs, min(10.0, SECONDS))
        parts.append(measured("no refreshes", runs, SECONDS).as_dict() | {"refreshes": 0})
        for vcluster, title in (("loading", "on another cluster"), ("asking", "on the same cluster")):
            with refreshing(lambda: connect(found.url, token=found.token), vcluster) as took:
                timings = measured(f"refreshes {title}", runs, SECONDS)
                seen = list(took)
            middle = statistics.median(seen) if seen else None
            parts.append(timings.as_dict() | {"refreshes": len(seen), "refresh_s": middle})
    return parts


# ---------------------------------------------------------------------- Spark Connect


@contextmanager
def connect_server() -> Iterator[str]:
    """Spark's own server, from PySpark's jars, over the same catalog and with the same settings."""
    import pyspark

    java = check_java()
    settings = settings_module.load(LAKE)
    port = _free_port()
    configuration = spark_configuration(settings, ensure_jars(settings.jars, java=java)) | {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-submit"), "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for key, value in configuration.items():
        command += ["--conf", f"{key}={value}"]
    environment = os.environ | {"JAVA_HOME": str(java.home), "SPARK_HOME": str(home)}
    log = LOGS / "connect.log"
    with log.open("wb") as out:
        # A session of its own: the script starts Java, and both must end.
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield _started(process, lambda: f"sc://127.0.0.1:{port}" if _listens(port) else None, log)
    finally:
        _ended(process, group=True)


def through_connect(url: str) -> Timings:
    from pyspark.sql.connect.session import SparkSession

    sessions = [SparkSession.builder.remote(url).create() for _ in range(CLIENTS)]
    try:
        for session in sessions:
            session.sql("USE public").collect()
        runs = [_connect_rows(session) for session in sessions]
        measured("warm-up", runs[:8], min(10.0, SECONDS))
        return measured("Spark Connect", runs, SECONDS)
    finally:
        for session in sessions:
            session.client.close()


def _connect_rows(session: Any) -> Run:
    return lambda text: [tuple(row) for row in session.sql(text).collect()]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


# ---------------------------------------------------------------------- both


def _started(process: subprocess.Popen[bytes], look: Callable[[], Any], log: Path) -> Any:
    deadline = time.monotonic() + _START_SECONDS
    while (found := look()) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"The server did not start; {log} tells why.")
        time.sleep(0.1)
    return found


def _ended(process: subprocess.Popen[bytes], *, group: bool = False) -> None:
    for sign, patience in ((signal.SIGTERM, 40.0), (signal.SIGKILL, 10.0)):
        if process.poll() is not None:
            return
        if group:
            os.killpg(process.pid, sign)
        else:
            process.send_signal(sign)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue


def _print(title: str, parts: Sequence[dict[str, Any]]) -> None:
    headings = ["", "clients", "statements", "per second", "p50 ms", "p99 ms", "longest ms", "failures", "refreshes"]
    table = [headings]
    for part in parts:
        times = [f"{1000 * part[key]:,.0f}" if part[key] else "" for key in ("p50_s", "p99_s", "longest_s")]
        rate = f"{part['per_second'] or 0:.1f}"
        counts = [str(part["clients"]), f"{part['statements']:,}", rate]
        table.append([part["name"], *counts, *times, str(part["failures"]), str(part.get("refreshes", ""))])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    print(f"\n{title}:\n")
    for row in table:
        print("  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip())
    print(flush=True)


def main() -> int:
    shutil.rmtree(LAKE, ignore_errors=True)
    LOGS.mkdir(parents=True, exist_ok=True)
    many: list[dict[str, Any]] = []
    beside: list[dict[str, Any]] = []
    with headrace_server() as found:
        print(f"Headrace at {found.url}; filling the tables …", flush=True)
        with connect(found.url, token=found.token) as admin:
            password = _filled(admin)
        many.append(through_headrace(found.url, password).as_dict())
        if WITH_REFRESHES:
            print("Short questions beside refreshes …", flush=True)
            beside = beside_refreshes(found, password)
    if WITH_CONNECT:
        with connect_server() as url:
            print(f"Spark Connect at {url} …", flush=True)
            many.append(through_connect(url).as_dict())
    _print(f"{CLIENTS} clients of short statements, {SECONDS:g} s, {os.cpu_count()} cores", many)
    if beside:
        _print(f"{ASKING} clients of short statements beside {LOADING} refreshes", beside)
    RESULTS.mkdir(exist_ok=True)
    about = {"cores": os.cpu_count(), "python": platform.python_version(), "seconds": SECONDS, "rows": ROWS}
    body = about | {"short_statements": many, "beside_refreshes": beside}
    (RESULTS / "server.json").write_text(json.dumps(body, indent=1), "utf-8")
    return 1 if any(part["failures"] for part in (*many, *beside)) else 0


if __name__ == "__main__":
    sys.exit(main())
