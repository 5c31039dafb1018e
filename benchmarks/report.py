"""Results for people (a table, a plot) and for programs (JSON)."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Timing
from benchmarks.streams import StreamTiming

RESULTS = Path(__file__).parent / "results"

_COLUMNS = [
    ("query", "query", "{}"), ("change", "change", "{}"), ("mode", "mode", "{}"), ("technique", "technique", "{}"),
    ("refresh s", "refresh_s", "{:.3f}"), ("recompute s", "recompute_s", "{:.2f}"), ("append s", "append_s", "{:.2f}"),
    ("recompute ÷ refresh", "recompute_ratio", "{:.1f}×"), ("refresh ÷ append", "append_ratio", "{:.1f}×"),
    ("jobs", "spark_jobs", "{:g}"), ("commits", "commits", "{}"), ("MB read", "bytes_read", "{:.1f}"),
    ("read ÷ changed bytes", "read_amplification", "{:.1f}×"),
]  # fmt: skip


def print_timings(title: str, timings: Sequence[Timing]) -> None:
    rows = [result.as_dict() for result in timings]
    for row in rows:
        read = row["bytes_read"]
        row["bytes_read"] = None if read is None else float(str(read)) / 1e6
    shown = [column for column in _COLUMNS if any(row[column[1]] not in (None, "") for row in rows)]
    table = [[heading for heading, _, _ in shown]]
    table += [["" if row[key] is None else form.format(row[key]) for _, key, form in shown] for row in rows]
    _print(title, table)


def print_means(timings: Sequence[Timing]) -> dict[str, dict[str, float]]:
    """Geometric means of each change, over the queries it concerned."""
    means: dict[str, dict[str, float]] = {}
    for change in dict.fromkeys(timing.change for timing in timings):
        found = [t for t in timings if t.change == change and t.mode != "NO_DATA"]
        ratios = [t.recompute_ratio for t in found if t.recompute_ratio is not None]
        if not ratios:
            continue  # At a small scale a small change may be no row at all.
        means[change] = {
            "queries": len(found),
            "incremental": sum(t.mode == "INCREMENTAL" for t in found),
            "refresh_s": geometric_mean(t.refresh_s for t in found),
            "recompute_s": geometric_mean(t.recompute_s for t in found if t.recompute_s is not None),
            "recompute_ratio": geometric_mean(ratios),
            "worst_ratio": min(ratios),
            "slower_than_1.15": sum(ratio < 1 / 1.15 for ratio in ratios),
        }
    headings = ["change", "queries", "incremental", "refresh s", "recompute s", "ratio", "worst", "slower than 1.15×"]
    table = [headings]
    for change, mean in means.items():
        forms = ("{:.0f}", "{:.0f}", "{:.2f}", "{:.2f}", "{:.2f}×", "{:.2f}×", "{:.0f}")
        table.append([change, *(form.format(value) for form, value in zip(forms, mean.values(), strict=True))])
    _print("Geometric means", table)
    return means


def print_growth(times: Sequence[tuple[str, float, float]]) -> dict[str, float]:
    table = [["query", "before s", "after s", "growth"]]
    table += [[name, f"{a:.2f}", f"{b:.2f}", f"{(b / a - 1) * 100:+.0f} %"] for name, a, b in times]
    mean = geometric_mean(b / a for _, a, b in times)
    table.append(["geometric mean", "", "", f"{(mean - 1) * 100:+.0f} %"])
    _print("The same change, before and after the base doubled", table)
    return {name: b / a for name, a, b in times} | {"geometric mean": mean}


def print_streams(timings: Sequence[StreamTiming]) -> None:
    table = [["changes", "through the stream s", "by hand s", "ratio"]]
    table += [[f"{t.changes:,}", f"{t.stream_s:.2f}", f"{t.by_hand_s:.2f}", f"{t.ratio:.2f}×"] for t in timings]
    _print("INSERT … SELECT of new changes, medians", table)


def write(scale: str, body: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    about = {"scale": scale, "cores": os.cpu_count(), "python": platform.python_version()}
    (RESULTS / "latest.json").write_text(json.dumps(about | body, indent=1))
    (RESULTS / f"scale-{scale}.json").write_text(json.dumps(about | body, indent=1))


def plot(scale: str, means: dict[str, dict[str, float]], timings: Sequence[Timing]) -> None:
    """Refresh against recompute, each change a group of dots, each dot a query."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 5))
    changes = list(means)
    for place, change in enumerate(changes):
        found = [t for t in timings if t.change == change and t.recompute_ratio is not None and t.mode != "NO_DATA"]
        for mode, colour in (("INCREMENTAL", "tab:blue"), ("FULL", "tab:orange")):
            ratios = [t.recompute_ratio for t in found if t.mode == mode]
            label = mode.lower() if place == 0 else None
            axes.scatter([place] * len(ratios), ratios, s=18, color=colour, alpha=0.7, label=label)
        axes.plot([place - 0.3, place + 0.3], [means[change]["recompute_ratio"]] * 2, color="black", linewidth=2)
    axes.axhline(1, color="grey", linewidth=0.8, linestyle="--")
    axes.set_yscale("log")
    axes.set_xticks(range(len(changes)), [change.replace(" % ", " %\n") for change in changes])
    axes.set_ylabel("times faster than recomputing")
    axes.set_title(f"TPC-H scale {scale}: 22 queries per change, black: geometric mean")
    axes.legend()
    figure.tight_layout()
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / f"scale-{scale}.svg")


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else float("nan")


def _print(title: str, table: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    print(f"\n{title}:\n")
    for row in table:
        print("  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip())
    print(flush=True)
