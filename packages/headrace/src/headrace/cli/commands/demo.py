"""`headrace demo`: the tutorial, run for you."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    lake: Annotated[Path, typer.Option("--lake", metavar="PATH", help="The folder for the demo's lake.")] = Path(
        "demo-lake"
    ),
    rows: Annotated[int, typer.Option("--rows", min=1000, help="Events in the first batch.")] = 50_000,
) -> None:
    """Build raw events, a cleaning and an aggregating dynamic table; change the data; watch them stay fresh.

    An earlier demo's lake in the same folder is replaced; anything else there is left alone.
    """
    from headrace.demo import run_demo

    run_demo(lake, rows=rows)
