"""Timing refreshes, full recomputation and bare appends in one run, so that their ratios mean something."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from decimal import Decimal

from benchmarks.tpch import QUERIES, Change, Shop
from headrace import Lake
from headrace.storage.meter import Meter

THREE_WAY_JOIN = """
    SELECT c_mktsegment, year(o_orderdate) AS year, count(*) AS items,
           sum(l_extendedprice * (1 - l_discount)) AS revenue
    FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey
    GROUP BY c_mktsegment, year(o_orderdate)"""


@dataclass(frozen=True)
class Timing:
    """One refresh, or the median of several, next to what it competes with."""

    query: str
    change: str
    refresh_s: float
    mode: str = ""
    technique: str = ""
    recompute_s: float | None = None
    append_s: float | None = None
    spark_jobs: float | None = None
    commits: int | None = None
    """Those to its state tables and ordered copies among them."""
    changed_rows: int | None = None
    changed_bytes: int | None = None
    bytes_read: float | None = None
    estimate_s: float | None = None

    @property
    def recompute_ratio(self) -> float | None:
        return None if self.recompute_s is None else self.recompute_s / self.refresh_s

    @property
    def append_ratio(self) -> float | None:
        return None if self.append_s is None else self.refresh_s / self.append_s

    @property
    def read_amplification(self) -> float | None:
        return self.bytes_read / self.changed_bytes if self.bytes_read is not None and self.changed_bytes else None

    def as_dict(self) -> dict[str, object]:
        ratios = ("recompute_ratio", "append_ratio", "read_amplification")
        return asdict(self) | {name: getattr(self, name) for name in ratios}


def create(lake: Lake, name: str, query: str, mode: str) -> None:
    began = time.perf_counter()
    lake.sql(f"CREATE DYNAMIC TABLE {name} REFRESH_MODE = {mode} AS {query}")
    print(f"  {name} loaded in {time.perf_counter() - began:.1f} s", flush=True)


def one_refresh(lake: Lake, name: str, change: str) -> Timing:
    began = time.perf_counter()
    result = lake.sql(f"REFRESH DYNAMIC TABLE {name}")
    seconds = time.perf_counter() - began
    row = dict(zip(result.columns, result.rows[0], strict=True))
    profile = lake._context.store.history(1)[0].profile
    return Timing(
        query=name,
        change=change,
        refresh_s=seconds,
        mode=row["refresh_mode"],
        technique=row["technique"],
        spark_jobs=profile.spark_jobs or 0,
        commits=profile.commits,
        changed_rows=profile.change_rows,
        changed_bytes=profile.change_bytes,
        bytes_read=profile.bytes_read,
        estimate_s=profile.estimated_incremental_seconds,
    )


def small_changes(lake: Lake, rounds: int, recomputes: int) -> list[Timing]:
    """Query 1 and a three-way join, one row and 0.1 % of lineitem, next to a bare append of one row."""
    tables = {"one_q1": QUERIES["q01"], "one_join": THREE_WAY_JOIN}
    rows = int(lake.sql("SELECT count(*) FROM lineitem").rows[0][0])
    some = max(rows // 1000, 1)
    cases: dict[str, Callable[[int], str]] = {
        "1 row": lambda n: f"INSERT INTO lineitem SELECT * FROM lineitem WHERE l_orderkey = {n * 32 + 1} LIMIT 1",
        "0.1 % inserts": lambda n: f"INSERT INTO lineitem SELECT * FROM lineitem WHERE l_orderkey > {n} LIMIT {some}",
        "0.1 % updates": lambda n: (
            "UPDATE lineitem SET l_quantity = l_quantity + 1 "
            f"WHERE l_orderkey BETWEEN {n * 20000 % rows} AND {n * 20000 % rows + some}"
        ),
    }
    lake.sql("CREATE TABLE scratch AS SELECT * FROM lineitem LIMIT 0")
    one_row = lake.sql("SELECT * FROM lineitem LIMIT 1").rows[0]
    bare = f"INSERT INTO scratch VALUES ({', '.join(map(_literal, one_row))})"
    found = []
    for name, query in tables.items():
        create(lake, name, query, "INCREMENTAL")
        recompute_s = statistics.median([recompute(lake, name, query) for _ in range(recomputes)])
        for title, change in cases.items():
            timings, appends = [], []
            for number in range(rounds + 2):
                appends.append(_seconds(lambda: lake.sql(bare)))
                lake.sql(change(number))
                timings.append(one_refresh(lake, name, title))
            # The first two rounds warm the JVM up and are left out, for the append too.
            found.append(_median(timings[2:], recompute_s, statistics.median(appends[2:])))
            print(f"  {name}, {title}: {found[-1].refresh_s:.2f} s", flush=True)
        require_equal(lake, name)
    with Meter(lake.spark, "no-data") as meter:
        seconds = statistics.median([_seconds(lambda: lake.sql("REFRESH DYNAMIC TABLE one_q1")) for _ in range(50)])
    jobs = meter.readings().get("spark_jobs")
    for name in tables:
        lake.sql(f"DROP DYNAMIC TABLE {name}")
    return [*found, Timing("one_q1", "none", seconds, "NO_DATA", "NO_DATA", spark_jobs=jobs, commits=0)]


class Recomputes:
    """What plain Spark takes for each query, timed again when `again_after` of the data changed since: where one takes
    minutes, a thousandth more rows is no reason to wait for it again. 0 times it each time."""

    def __init__(self, lake: Lake, again_after: float) -> None:
        self._lake = lake
        self._again_after = again_after
        self._changed = 0.0
        self._taken: dict[str, tuple[float, float]] = {}

    def note(self, change: Change) -> None:
        self._changed += change.share

    def seconds(self, name: str) -> float:
        seconds, at = self._taken.get(name, (0.0, -1.0))
        if at < 0 or self._changed - at >= self._again_after:
            seconds = recompute(self._lake, name, QUERIES[name])
            self._taken[name] = (seconds, self._changed)
        return seconds


def every_query(lake: Lake, shop: Shop, changes: list[Change], names: list[str], full: Recomputes) -> list[Timing]:
    """Each change once, then each query refreshed, next to its recomputation by plain Spark."""
    found = []
    for change in changes:
        print(f"{change.title} …", flush=True)
        shop.make(change)
        full.note(change)
        for name in names:
            timing = one_refresh(lake, name, change.title)
            found.append(_median([timing], full.seconds(name), None))
            print(
                f"  {name}: {timing.mode.lower()} {timing.refresh_s:.2f} s, recompute {found[-1].recompute_s:.2f} s, "
                f"{timing.spark_jobs} jobs",
                flush=True,
            )
    return found


def growth(lake: Lake, shop: Shop, names: list[str], change: Change) -> list[tuple[str, float, float]]:
    """Each query's refresh after the same change, before and after the base doubles."""

    def times() -> dict[str, float]:
        shop.make(change)
        for name in names:
            lake.sql(f"REFRESH DYNAMIC TABLE {name}")
        shop.make(change)
        return {name: one_refresh(lake, name, "").refresh_s for name in names}

    before = times()
    print("Doubling the base …", flush=True)
    shop.double()
    for name in names:
        lake.sql(f"REFRESH DYNAMIC TABLE {name}")
    after = times()
    return [(name, before[name], after[name]) for name in names]


def recompute(lake: Lake, name: str, query: str) -> float:
    """What a job without Headrace would do: the query, written over the old result."""
    return _seconds(lambda: lake.spark.sql(query).write.mode("overwrite").saveAsTable(f"recomputed_{name}"))


def require_equal(lake: Lake, name: str) -> None:
    verdict = lake.sql(f"VERIFY DYNAMIC TABLE {name}").rows[0][1]
    if verdict != "EQUAL":
        raise SystemExit(f"{name} is {verdict}")


def _median(timings: list[Timing], recompute_s: float, append_s: float | None) -> Timing:
    middle = {name: statistics.median([getattr(t, name) for t in timings]) for name in ("refresh_s", "spark_jobs")}
    read = [t.bytes_read for t in timings if t.bytes_read is not None]
    last = asdict(timings[-1]) | middle | {"recompute_s": recompute_s, "append_s": append_s}
    return Timing(**last | {"bytes_read": statistics.median(read) if read else None})


def _literal(value: object) -> str:
    return str(value) if isinstance(value, int | Decimal) else f"'{value}'"


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
