"""`make bench`: refresh against full recompute and against a bare Delta append, in one run, as ratios.

Settings, from the environment:

    SCALE=1                    TPC-H's scale
    ROUNDS=5                   rounds of the one-row part (at scale 10 and above: 3; 0 leaves it out)
    CHANGES=0.01,0.1,1,10      percent of the data that change, for the 22 queries (empty leaves them out)
    QUERIES=q01,q21            only these of the 22
    GROWTH=1                   0 leaves out the part that doubles the base
    AGAIN_AFTER=5              percent of the data that change until a recompute is timed again (at a scale below 10: 0)
    STREAMS=1,1000,1000000     changes to read through a table stream (empty, as at scale 10 and above, leaves it out)

Prints tables and writes benchmarks/results/.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

import headrace
from benchmarks import measure, report, streams, tpch
from benchmarks.tpch import Change

SCALE = os.environ.get("SCALE", "1")
LARGE = float(SCALE) >= 10
"""Where recomputing all queries once takes seven minutes."""
ROUNDS = int(os.environ.get("ROUNDS", "3" if LARGE else "5"))
CHANGES = [float(part) / 100 for part in os.environ.get("CHANGES", "0.01,0.1,1,10").split(",") if part]
NAMES = [name for name in os.environ.get("QUERIES", ",".join(tpch.QUERIES)).split(",") if name]
STREAMS = [int(part) for part in os.environ.get("STREAMS", "" if LARGE else "1,1000,1000000").split(",") if part]
AGAIN_AFTER = float(os.environ.get("AGAIN_AFTER", "5" if LARGE else "0")) / 100
GROWTH = os.environ.get("GROWTH", "1") != "0"


def main() -> None:
    data = tpch.generated(SCALE)
    folder = tpch.HERE / "data" / f"lake-{SCALE}"
    shutil.rmtree(folder, ignore_errors=True)
    body: dict[str, Any] = {}
    with headrace.open(folder, driver_memory="8g") as lake:
        tpch.load(lake, data)
        if ROUNDS:
            small = measure.small_changes(lake, ROUNDS, recomputes=1 if LARGE else ROUNDS)
            report.print_timings(f"TPC-H scale {SCALE}, {os.cpu_count()} cores, medians of {ROUNDS}", small)
            body["small_changes"] = [timing.as_dict() for timing in small]
        if STREAMS:
            read = streams.consuming(lake, STREAMS, max(ROUNDS, 3))
            report.print_streams(read)
            body["streams"] = [timing.as_dict() for timing in read]
        if CHANGES:
            body |= _every_query(lake)
    report.write(SCALE, body)


def _every_query(lake: headrace.Lake) -> dict[str, Any]:
    for name in NAMES:
        measure.create(lake, name, tpch.QUERIES[name], "AUTO")
    shop = tpch.Shop(lake, float(SCALE))
    full = measure.Recomputes(lake, AGAIN_AFTER)
    print("Warming up …", flush=True)
    measure.every_query(lake, shop, [Change(CHANGES[0], "mixed")], NAMES, full)
    changes = [Change(share, kind) for share in CHANGES for kind in ("inserts", "mixed")]
    timings: list[measure.Timing] = []
    for change in changes:
        timings += measure.every_query(lake, shop, [change], NAMES, full)
        # A run at a large scale takes hours: what is measured is kept.
        report.write(SCALE, {"queries": [timing.as_dict() for timing in timings]})
    for name in NAMES:
        measure.require_equal(lake, name)
    grown = measure.growth(lake, shop, NAMES, Change(CHANGES[0], "inserts")) if GROWTH else []
    report.print_timings(f"TPC-H scale {SCALE}, {os.cpu_count()} cores, REFRESH_MODE = AUTO", timings)
    means = report.print_means(timings)
    report.plot(SCALE, means, timings)
    growth = report.print_growth(grown) if grown else {}
    return {"queries": [timing.as_dict() for timing in timings], "means": means, "growth": growth}


if __name__ == "__main__":
    main()
