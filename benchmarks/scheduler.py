"""`make bench-scheduler`: what the schedule costs, how far tables are behind, and how many rows a server takes in.

First, 200 dynamic tables at one minute for ten minutes: with no change at all, then with a change in the source of ten
of them before each minute. The clock runs, and is put forward to the next minute when all is done: nobody waits. Then
clients send rows to a server for two minutes of real time, some of them twice, and all are counted.

Settings, from the environment:

    TABLES=200       dynamic tables
    CHANGED=10       those whose source changes before each minute
    MINUTES=10       ticks of each of the first two parts (0 leaves them out)
    SECONDS=120      how long rows are sent (0 leaves that part out)
    CLIENTS=4        who send them at the same time
    BATCH=5000       rows of one request
    FORMS=json,arrow the forms to send them in, each for SECONDS

Prints tables and writes benchmarks/results/scheduler.json. Ends with 1 if a row was lost or came twice, if a tick was
left out or done twice, if one without changes started a job, or if a table is not equal to its query.
"""

from __future__ import annotations

import io
import json
import math
import os
import platform
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from benchmarks import measure, report, server
from headrace import Lake
from headrace.catalog.records import RefreshRecord
from headrace.client.lake import RemoteLake, connect
from headrace.engine import open as open_here
from headrace.schedule.scheduler import Scheduler

TABLES = int(os.environ.get("TABLES", "200"))
CHANGED = int(os.environ.get("CHANGED", "10"))
MINUTES = int(os.environ.get("MINUTES", "10"))
SECONDS = float(os.environ.get("SECONDS", "120"))
CLIENTS = int(os.environ.get("CLIENTS", "4"))
BATCH = int(os.environ.get("BATCH", "5000"))
FORMS = [form for form in os.environ.get("FORMS", "json,arrow").split(",") if form]

LAKE = Path(__file__).parent / "data" / "lake-scheduler"
MINUTE = timedelta(minutes=1)
ROWS = 10_000
"""Of each source."""
AIM_MS = 5.0
"""Of work for a table at a tick without changes."""
_PATIENCE = 300.0
_COMMIT_SECONDS = 180.0
_AGAIN = 50
"""Every so many-th request is sent twice, as a client does that has not seen the answer."""


# ---------------------------------------------------------------------- the schedule


class Clock:
    """Runs, and can be put forward."""

    def __init__(self) -> None:
        self._ahead = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(timezone.utc) + self._ahead

    @property
    def ahead(self) -> timedelta:
        """Of the real time."""
        return self._ahead

    def forward_to(self, moment: datetime) -> None:
        self._ahead += max(timedelta(0), moment - self())


@dataclass(frozen=True)
class Tick:
    """One minute of the schedule."""

    at: datetime
    seconds: float
    spark_jobs: int
    jobs: int
    ahead: timedelta
    """How far the clock was ahead of the real time, in which refreshes are recorded."""


@dataclass
class Ticks:
    """A part of the measurement: the same thing, minute by minute."""

    name: str
    ticks: list[Tick] = field(default_factory=list)
    records: list[RefreshRecord] = field(default_factory=list)
    """Of all of them, with times by the clock of the schedule."""

    def as_dict(self) -> dict[str, Any]:
        per_table = [1000 * tick.seconds / TABLES for tick in self.ticks]
        busy = [record for record in self.records if record.refresh_mode != "NO_DATA"]
        return {
            "name": self.name,
            "ticks": len(self.ticks),
            "refreshes": len(self.records),
            "with_changes": len(busy),
            "spark_jobs": sum(tick.spark_jobs for tick in self.ticks),
            "jobs": sum(tick.jobs for tick in self.ticks),
            "look_ms": 1000 * statistics.median(tick.seconds for tick in self.ticks),
            "look_longest_ms": 1000 * max(tick.seconds for tick in self.ticks),
            "table_ms": statistics.median(per_table),
            "table_longest_ms": max(per_table),
            "delay_p50_s": percentile([_delay(record) for record in busy], 0.5),
            "delay_p99_s": percentile([_delay(record) for record in busy], 0.99),
            "lag_p50_s": percentile(lags(busy), 0.5),
            "lag_p99_s": percentile(lags(busy), 0.99),
        }


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that so many of all are not above."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def lags(records: Sequence[RefreshRecord]) -> list[float]:
    """How far each table was behind, second by second, from its first refresh to its last: the time since the
    beginning of the refresh that one could read."""
    found = []
    by_table: dict[str, list[RefreshRecord]] = {}
    for record in records:
        by_table.setdefault(record.table_id, []).append(record)
    for own in by_table.values():
        own.sort(key=lambda record: record.start_time)
        for one, following in pairwise(own):
            assert one.end_time is not None
            assert following.end_time is not None
            moment = one.end_time
            while moment < following.end_time:
                found.append((moment - one.start_time).total_seconds())
                moment += timedelta(seconds=1)
    return found


def _delay(record: RefreshRecord) -> float:
    """From the tick until its refresh has ended."""
    assert record.end_time is not None
    assert record.tick is not None
    return (record.end_time - record.tick).total_seconds()


def filled(lake: Lake) -> None:
    """As many tables on each source as change at once: so one INSERT changes exactly those."""
    began = time.perf_counter()
    for number in range(TABLES):
        source = f"source_{number // CHANGED:03d}"
        if number % CHANGED == 0:
            rows = f"SELECT id, concat('k', id % 50) AS kind, id AS amount FROM range({ROWS})"
            lake.sql(f"CREATE TABLE {source} AS {rows}")
        lake.sql(
            f"CREATE DYNAMIC TABLE table_{number:03d} REFRESH INTERVAL 1 MINUTE AS "
            f"SELECT kind, count(*) AS n, sum(amount + {number}) AS total FROM {source} GROUP BY kind"
        )
        if number % 20 == 19:
            print(f"  {number + 1} tables after {time.perf_counter() - began:.0f} s", flush=True)


def by_the_clock(lake: Lake) -> list[Ticks]:
    clock = Clock()
    scheduler = lake.start_scheduler(guarded=False, clock=clock, thread=False)
    insert = f"INSERT INTO source_000 SELECT id, concat('k', id % 50), id FROM range({ROWS}, {ROWS} + 100)"
    _ticks(lake, scheduler, clock, "warm-up", 2, lambda: lake.sql(insert))
    return [
        _ticks(lake, scheduler, clock, "no changes", MINUTES, lambda: None),
        _ticks(lake, scheduler, clock, f"changes in {CHANGED}", MINUTES, lambda: lake.sql(insert)),
    ]


def _ticks(
    lake: Lake, scheduler: Scheduler, clock: Clock, name: str, count: int, change: Callable[[], object]
) -> Ticks:
    found = Ticks(name)
    for number in range(count):
        change()
        at = clock().replace(second=0, microsecond=0) + MINUTE
        clock.forward_to(at)
        spark_jobs, jobs, began = _spark_jobs(lake), len(lake.store.jobs.recent()), time.perf_counter()
        if not scheduler.settle(_PATIENCE):
            raise SystemExit(f"{name}: the refreshes of a tick have not ended after {_PATIENCE:g} s.")
        took = time.perf_counter() - began
        new_jobs = len(lake.store.jobs.recent()) - jobs
        tick = Tick(at, took, _spark_jobs(lake) - spark_jobs, new_jobs, clock.ahead)
        found.ticks.append(tick)
        found.records += _recorded(lake, tick)
        print(f"  {name}, minute {number + 1} of {count}: {1000 * took:.0f} ms", flush=True)
    return found


def _recorded(lake: Lake, tick: Tick) -> list[RefreshRecord]:
    """The refreshes of a tick, each table's once, with times by the clock of the schedule."""
    records = [record for record in lake.store.history(2 * TABLES + 100) if record.tick == tick.at]
    tables = {record.table_id for record in records if record.state == "SUCCEED"}
    if len(records) != TABLES or len(tables) != TABLES:
        raise SystemExit(f"{len(records)} refreshes of {len(tables)} tables, and not {TABLES}, at the tick {tick.at}.")
    return [
        record.model_copy(
            update={
                "start_time": record.start_time + tick.ahead,
                "end_time": None if record.end_time is None else record.end_time + tick.ahead,
            }
        )
        for record in records
    ]


def _spark_jobs(lake: Lake) -> int:
    """How many jobs Spark has had, whoever started them."""
    context: Any = lake.spark.sparkContext
    return int(context._jsc.sc().dagScheduler().numTotalJobs())


def scheduled() -> list[dict[str, Any]]:
    shutil.rmtree(LAKE, ignore_errors=True)
    with open_here(LAKE) as lake:
        print(f"Creating {TABLES} dynamic tables …", flush=True)
        filled(lake)
        parts = [part.as_dict() for part in by_the_clock(lake)]
        for number in (0, CHANGED - 1, TABLES - 1):
            measure.require_equal(lake, f"table_{number:03d}")
    return parts


# ---------------------------------------------------------------------- rows


@dataclass
class Sent:
    """What the clients of one part sent, and what became of it."""

    form: str
    clients: int = CLIENTS
    rows: int = 0
    """Acknowledged: those are in the table in the end, each once."""
    requests: int = 0
    repeated: int = 0
    put_off: int = 0
    """Requests that were answered with 429 or 503, and made again."""
    seconds: float = 0.0
    visible_s: float = 0.0
    """From the last answer until all rows were in the table."""
    counted: int = 0
    distinct: int = 0
    latencies: list[float] = field(default_factory=list, repr=False)
    faults: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        told = asdict(self)
        del told["latencies"]
        return told | {
            "per_second": self.rows / self.seconds if self.seconds else None,
            "p50_s": percentile(self.latencies, 0.5),
            "p99_s": percentile(self.latencies, 0.99),
            "lost": self.rows - self.distinct,
            "twice": self.counted - self.distinct,
        }


def body_of(form: str) -> tuple[str, Callable[[str], bytes]]:
    """The content type, and what makes the body of a batch: cheaply, for the client and the server share a machine."""
    if form == "json":
        row = '{{"batch": "@", "n": {n}, "kind": "k{kind}", "amount": {n}.5, "at": "2026-01-01T00:00:00Z"}}\n'
        whole = "".join(row.format(n=n, kind=n % 50) for n in range(BATCH)).encode()
        return "application/x-ndjson", lambda batch: whole.replace(b"@", batch.encode())
    numbers = pa.array(range(BATCH), type=pa.int64())
    fixed = {
        "n": numbers,
        "kind": pa.array([f"k{n % 50}" for n in range(BATCH)]),
        "amount": pa.array([n + 0.5 for n in range(BATCH)]),
        "at": pa.array([datetime(2026, 1, 1, tzinfo=timezone.utc)] * BATCH, type=pa.timestamp("us", tz="UTC")),
    }

    def stream(batch: str) -> bytes:
        table = pa.table({"batch": pa.array([batch] * BATCH), **fixed})
        out = io.BytesIO()
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
        return out.getvalue()

    return "application/vnd.apache.arrow.stream", stream


def sending(url: str, token: str, form: str, table: str) -> Sent:
    """Each client sends its next batch when it has the answer to the one before."""
    sent = Sent(form)
    lock = threading.Lock()
    ended = threading.Event()
    content_type, body = body_of(form)

    def client(place: int) -> None:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": content_type}
        with httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as http:
            number = 0
            while not ended.is_set():
                batch = f"{form}-{place}-{number}"
                repeats = number % _AGAIN == _AGAIN - 1
                content = body(batch)
                for _ in range(2 if repeats else 1):
                    began = time.perf_counter()
                    answer, put_off = _answered(http, table, batch, content)
                    with lock:
                        sent.requests += 1
                        sent.put_off += put_off
                        sent.latencies.append(time.perf_counter() - began)
                        if not answer.is_success or answer.json()["accepted"] != BATCH:
                            sent.faults.append(f"{batch}: {answer.status_code} {answer.text[:200]}")
                            return
                with lock:
                    sent.rows += BATCH
                    sent.repeated += repeats
                number += 1

    threads = [threading.Thread(target=client, args=(place,), daemon=True) for place in range(CLIENTS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    ended.wait(SECONDS)
    ended.set()
    for thread in threads:
        thread.join(_PATIENCE)
    sent.seconds = time.perf_counter() - began
    return sent


def _answered(http: httpx.Client, table: str, batch: str, content: bytes) -> tuple[httpx.Response, int]:
    """The answer, and how often it was put off before: a client that is asked to wait waits."""
    put_off = 0
    while True:
        answer = http.post(f"/v1/tables/{table}/rows", params={"batch_id": batch}, content=content)
        if answer.status_code not in (429, 503) or put_off > 600:
            return answer, put_off
        put_off += 1
        time.sleep(min(float(answer.headers.get("Retry-After", "1")), 5.0))


def counted(lake: RemoteLake, sent: Sent, table: str) -> None:
    """Wait until all rows are there; then see that each is there once."""
    began = time.perf_counter()
    while time.perf_counter() - began < _COMMIT_SECONDS:
        sent.counted = int(lake.sql(f"SELECT count(*) FROM {table}").rows[0][0])
        if sent.counted >= sent.rows:
            break
        time.sleep(0.5)
    sent.visible_s = time.perf_counter() - began
    sent.distinct = int(lake.sql(f"SELECT count(*) FROM (SELECT DISTINCT batch, n FROM {table})").rows[0][0])


def ingested() -> list[dict[str, Any]]:
    shutil.rmtree(server.LAKE, ignore_errors=True)
    server.LOGS.mkdir(parents=True, exist_ok=True)
    parts = []
    with server.headrace_server() as found, connect(found.url, token=found.token) as lake:
        for form in FORMS:
            table = f"rows_{form}"
            lake.sql(f"CREATE TABLE {table} (batch STRING, n BIGINT, kind STRING, amount DOUBLE, at TIMESTAMP)")
            print(f"Sending rows as {form} for {SECONDS:g} s …", flush=True)
            sent = sending(found.url, found.token, form, f"main.public.{table}")
            counted(lake, sent, table)
            parts.append(sent.as_dict())
    return parts


# ---------------------------------------------------------------------- both


def _print_ticks(parts: Sequence[dict[str, Any]]) -> None:
    columns = [
        ("", "name", "{}"), ("ticks", "ticks", "{}"), ("refreshes", "refreshes", "{:,}"),
        ("with changes", "with_changes", "{:,}"), ("jobs", "jobs", "{:,}"), ("Spark jobs", "spark_jobs", "{:,}"),
        ("tick ms", "look_ms", "{:,.0f}"), ("longest", "look_longest_ms", "{:,.0f}"),
        ("per table ms", "table_ms", "{:.2f}"), ("longest", "table_longest_ms", "{:.2f}"),
        ("delay p50 s", "delay_p50_s", "{:.2f}"), ("p99", "delay_p99_s", "{:.2f}"),
        ("lag p50 s", "lag_p50_s", "{:.1f}"), ("p99", "lag_p99_s", "{:.1f}"),
    ]  # fmt: skip
    _print(f"{TABLES} dynamic tables at one minute, {os.cpu_count()} cores", columns, parts)


def _print_sent(parts: Sequence[dict[str, Any]]) -> None:
    columns = [
        ("", "form", "{}"), ("clients", "clients", "{}"), ("seconds", "seconds", "{:.0f}"), ("rows", "rows", "{:,}"),
        ("per second", "per_second", "{:,.0f}"), ("requests", "requests", "{:,}"), ("sent twice", "repeated", "{}"),
        ("put off", "put_off", "{}"), ("p50 s", "p50_s", "{:.3f}"), ("p99 s", "p99_s", "{:.3f}"),
        ("all there after s", "visible_s", "{:.1f}"), ("lost", "lost", "{}"), ("twice", "twice", "{}"),
    ]  # fmt: skip
    _print(f"Rows sent to a server in batches of {BATCH:,}, {os.cpu_count()} cores", columns, parts)


def _print(title: str, columns: Sequence[tuple[str, str, str]], parts: Sequence[dict[str, Any]]) -> None:
    table = [[heading for heading, _, _ in columns]]
    table += [["" if part[key] is None else form.format(part[key]) for _, key, form in columns] for part in parts]
    report._print(title, table)


def shortcomings(ticks: Sequence[dict[str, Any]], sent: Sequence[dict[str, Any]]) -> list[str]:
    """What must not be, as sentences."""
    found = [
        f"Ticks without changes started {part['jobs']} jobs here and {part['spark_jobs']} in Spark."
        for part in ticks[:1]
        if part["spark_jobs"] or part["jobs"]
    ]
    for part in sent:
        found += part["faults"][:3]
        if part["lost"] or part["twice"]:
            found.append(f"{part['form']}: {part['lost']} rows were lost, {part['twice']} came twice.")
    return found


def main() -> int:
    ticks = scheduled() if MINUTES else []
    sent = ingested() if SECONDS and FORMS else []
    if ticks:
        _print_ticks(ticks)
        within = "within" if ticks[0]["table_ms"] < AIM_MS else "NOT within"
        print(f"A tick without changes: {ticks[0]['table_ms']:.2f} ms per table, {within} the aim of {AIM_MS:g} ms.")
    if sent:
        _print_sent(sent)
    report.RESULTS.mkdir(exist_ok=True)
    about = {"cores": os.cpu_count(), "python": platform.python_version(), "tables": TABLES, "batch": BATCH}
    body = about | {"schedule": ticks, "rows": sent}
    (report.RESULTS / "scheduler.json").write_text(json.dumps(body, indent=1), "utf-8")
    wrong = shortcomings(ticks, sent)
    for sentence in wrong:
        print(sentence)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
