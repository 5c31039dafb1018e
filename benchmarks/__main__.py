"""`make bench`: refresh against full recompute and against a bare Delta append, in one run, as ratios.

TPC-H data (made by tpchgen-cli), query 1 and a three-way join with an aggregate as dynamic tables; changes of one row
and of 0.1 % to lineitem. SCALE=1 and ROUNDS=5 are the defaults. Prints a table
and writes benchmarks/results/latest.json.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import headrace
from headrace import Lake
from headrace.storage.meter import Meter

HERE = Path(__file__).parent
SCALE = os.environ.get("SCALE", "1")
ROUNDS = int(os.environ.get("ROUNDS", "5"))
ONE_ROW = "SELECT * FROM lineitem LIMIT 1"
TABLES = ("lineitem", "orders", "customer")
QUERIES = {
    "q1": """
        SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
               sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
               sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge, avg(l_quantity) AS avg_qty,
               avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc, count(*) AS count_order
        FROM lineitem WHERE l_shipdate <= DATE '1998-09-02' GROUP BY l_returnflag, l_linestatus""",
    "three_way_join": """
        SELECT c_mktsegment, year(o_orderdate) AS year, count(*) AS items,
               sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM customer JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey
        GROUP BY c_mktsegment, year(o_orderdate)""",
}


def main() -> None:
    data = _generated()
    folder = HERE / "data" / f"lake-{SCALE}"
    shutil.rmtree(folder, ignore_errors=True)
    with headrace.open(folder, spark_settings={"spark.driver.memory": "8g"}, driver_memory="8g") as lake:
        rows = _load(lake, data)
        results = [result for name in QUERIES for result in _measure(lake, name, rows)]
        results.append(_no_data(lake))
    _report(results)


def _generated() -> Path:
    folder = HERE / "data" / f"tpch-{SCALE}"
    if all((folder / f"{table}.parquet").exists() for table in TABLES):
        return folder
    print(f"Making TPC-H data at scale {SCALE} …", flush=True)
    tool = Path(sys.executable).with_name("tpchgen-cli")
    command = [str(tool), "parquet", "-s", SCALE, f"--tables={','.join(TABLES)}", f"--output-dir={folder}"]
    subprocess.run(command, check=True)
    return folder


def _load(lake: Lake, data: Path) -> int:
    print("Loading …", flush=True)
    for table in TABLES:
        lake.spark.read.parquet(str(data / f"{table}.parquet")).write.saveAsTable(table)
    lake.sql("CREATE TABLE scratch AS SELECT * FROM lineitem LIMIT 0")
    for name, query in QUERIES.items():
        began = time.perf_counter()
        lake.sql(f"CREATE DYNAMIC TABLE {name} REFRESH_MODE = INCREMENTAL AS {query}")
        print(f"  {name} loaded in {time.perf_counter() - began:.1f} s", flush=True)
    return int(lake.sql("SELECT count(*) FROM lineitem").rows[0][0])


def _measure(lake: Lake, name: str, rows: int) -> list[dict[str, Any]]:
    """One-row and 0.1 % changes of lineitem: insertions, and a mix of updates and deletes."""
    some = max(rows // 1000, 1)
    cases: dict[str, Callable[[int], str]] = {
        "1 row": lambda n: f"INSERT INTO lineitem SELECT * FROM lineitem WHERE l_orderkey = {n * 32 + 1} LIMIT 1",
        "0.1 % inserted": lambda n: f"INSERT INTO lineitem SELECT * FROM lineitem WHERE l_orderkey > {n} LIMIT {some}",
        "0.1 % changed": lambda n: (
            "UPDATE lineitem SET l_quantity = l_quantity + 1 "
            f"WHERE l_orderkey BETWEEN {n * 20000 % rows} AND {n * 20000 % rows + some}"
        ),
    }
    bare = f"INSERT INTO scratch VALUES ({', '.join(_literal(v) for v in lake.sql(ONE_ROW).rows[0])})"
    full = _timed(ROUNDS, lambda _: _recompute(lake, name))
    found = []
    for case, change in cases.items():
        append, refresh, jobs, read, changed = [], [], [], [], []
        for number in range(ROUNDS + 2):
            began = time.perf_counter()
            lake.sql(bare)
            append.append(time.perf_counter() - began)
            lake.sql(change(number))
            before = _versions(lake, name)
            began = time.perf_counter()
            result = lake.sql(f"REFRESH DYNAMIC TABLE {name}")
            refresh.append(time.perf_counter() - began)
            row = dict(zip(result.columns, result.rows[0], strict=True))
            assert row["refresh_mode"] == "INCREMENTAL", row
            profile = lake._context.store.history(1)[0].profile
            jobs.append(profile["spark_jobs"])
            read.append(profile["bytes_read"])
            changed.append(profile["change_rows"])
            commits = _versions(lake, name) - before
        # The first two rounds warm the JVM up and are left out, for the append too.
        verdict = lake.sql(f"VERIFY DYNAMIC TABLE {name}").rows[0][1]
        assert verdict == "EQUAL", verdict
        one_refresh, one_append = statistics.median(refresh[2:]), statistics.median(append[2:])
        found.append(
            {
                "query": name, "change": case, "changed_rows": changed[-1], "technique": row["technique"],
                "refresh_s": one_refresh, "recompute_s": full, "append_s": one_append,
                "recompute_ratio": full / one_refresh, "append_ratio": one_refresh / one_append,
                "spark_jobs": statistics.median(jobs[2:]), "commits": commits,
                "bytes_read": statistics.median(read[2:]),
                "verify": verdict,
            }
        )  # fmt: skip
        print(f"  {name}, {case}: {one_refresh:.2f} s", flush=True)
    return found


def _literal(value: object) -> str:
    return str(value) if isinstance(value, int | Decimal) else f"'{value}'"


def _recompute(lake: Lake, name: str) -> None:
    """What a job without Headrace would do: the query, written over the old result."""
    rows = lake.spark.sql(QUERIES[name])
    rows.write.mode("overwrite").saveAsTable(f"recomputed_{name}")


def _timed(rounds: int, work: Callable[[int], None]) -> float:
    times = []
    for number in range(rounds + 1):
        began = time.perf_counter()
        work(number)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def _versions(lake: Lake, name: str) -> int:
    table = lake._context.require_dynamic((name,))
    return int(lake._context.logs.snapshot(table.storage_path).version)


def _no_data(lake: Lake) -> dict[str, Any]:
    with Meter(lake.spark, "no-data") as meter:
        seconds = _timed(50, lambda _: lake.sql("REFRESH DYNAMIC TABLE q1"))
    jobs = meter.readings().get("spark_jobs")
    return {"query": "q1", "change": "none (NO_DATA)", "refresh_s": seconds, "spark_jobs": jobs, "commits": 0}


def _report(results: list[dict[str, Any]]) -> None:
    columns = [
        ("query", "query", "{}"), ("change", "change", "{}"), ("technique", "technique", "{}"),
        ("refresh s", "refresh_s", "{:.3f}"), ("recompute s", "recompute_s", "{:.2f}"),
        ("append s", "append_s", "{:.2f}"), ("recompute ÷ refresh", "recompute_ratio", "{:.1f}×"),
        ("refresh ÷ append", "append_ratio", "{:.1f}×"), ("jobs", "spark_jobs", "{:g}"), ("commits", "commits", "{}"),
        ("MB read", "bytes_read", "{:.2f}"),
    ]  # fmt: skip
    table = [[title for title, _, _ in columns]]
    for result in results:
        shown = {**result, "bytes_read": result["bytes_read"] / 1e6} if "bytes_read" in result else result
        table.append([form.format(shown[key]) if key in shown else "" for _, key, form in columns])
    widths = [max(len(row[i]) for row in table) for i in range(len(columns))]
    print(f"\nTPC-H scale {SCALE}, {os.cpu_count()} cores, medians of {ROUNDS}:\n")
    for row in table:
        print("  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip())
    (HERE / "results").mkdir(exist_ok=True)
    body = {"scale": SCALE, "cores": os.cpu_count(), "python": platform.python_version(), "results": results}
    (HERE / "results" / "latest.json").write_text(json.dumps(body, indent=1))


if __name__ == "__main__":
    main()
