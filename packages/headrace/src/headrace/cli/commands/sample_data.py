"""`headrace sample-data`: e-commerce events to try things with."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from headrace.cli.lakes import LakeOption, at_work, opened


def sample_data(
    rows: Annotated[
        int, typer.Option("--rows", min=1, help="How many events the table should have at least.")
    ] = 100_000,
    live: Annotated[bool, typer.Option("--live", help="Keep appending events until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between two live batches.")] = 1.0,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Events in a live batch.")] = 100,
    lake: LakeOption = None,
) -> None:
    """Create the sample table, headrace_sample_data.ecommerce_events_history.ecommerce_events_multicategorystore_live.

    Running it again adds only what is missing. The events are the same every time.
    """
    from headrace.samples import append_live_events, create_sample_data

    with opened(lake) as open_lake:
        with at_work(f"Making {rows:,} events"):
            made = create_sample_data(open_lake, rows)
        typer.echo(f"{made.table} has {made.total:,} events ({made.added:,} new).")
        if not live:
            return
        added = 0
        total = made.total
        try:
            while True:
                started = time.monotonic()
                added += append_live_events(open_lake, made.table, batch, first=total + added, seconds=every)
                _status(f"Live: {added:,} events added, {total + added:,} in all. Ctrl-C ends it.")
                time.sleep(max(0.0, every - (time.monotonic() - started)))
        except KeyboardInterrupt:
            if sys.stderr.isatty():
                sys.stderr.write("\n")
            typer.echo(f"Stopped: {added:,} live events added.")


def _status(text: str) -> None:
    """One line, rewritten in place when a person is watching."""
    sys.stderr.write(f"\r\033[K{text}" if sys.stderr.isatty() else f"{text}\n")
    sys.stderr.flush()
