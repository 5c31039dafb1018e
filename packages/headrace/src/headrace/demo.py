"""The tutorial, run from end to end: raw events, a cleaned table, an aggregate, and all of them kept fresh.

raw_events ──► events_clean ──► daily_sales
(a table)      (dynamic)        (dynamic)
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import NotAllowed
from headrace.samples import COLUMNS, append_events

if TYPE_CHECKING:
    from rich.console import Console

    from headrace.engine import Lake
    from headrace.progress import ProgressEvent

MARKER = ".headrace-demo"
ROUNDS = 3
ROUND_EVENTS = 2_000

RAW = f"""CREATE TABLE raw_events (
  {COLUMNS}
) TBLPROPERTIES ('change_tracking'='true')"""

CLEAN = """CREATE DYNAMIC TABLE events_clean
  COMMENT 'Events with a price, with dates and departments'
  REFRESH INTERVAL 1 MINUTE VCLUSTER default
AS SELECT
  event_time,
  to_date(event_time) AS event_date,
  hour(event_time) AS event_hour,
  event_type,
  product_id,
  coalesce(split_part(category_code, '.', 1), 'other') AS department,
  coalesce(brand, 'unknown') AS brand,
  price,
  user_id
FROM raw_events
WHERE price > 0"""

SALES = """CREATE DYNAMIC TABLE daily_sales
  COMMENT 'Sales of each day and department'
  REFRESH INTERVAL 1 MINUTE VCLUSTER default
AS SELECT
  event_date,
  department,
  count(*) AS events,
  count_if(event_type = 'purchase') AS purchases,
  sum(CASE WHEN event_type = 'purchase' THEN price ELSE 0 END) AS revenue,
  max(event_time) AS newest_event
FROM events_clean
GROUP BY event_date, department"""

RECALL = (
    "UPDATE raw_events SET price = price * 0.5 WHERE brand = 'spoke' AND event_time >= TIMESTAMP '2024-11-02 00:00:00'"
)
FORGET = "DELETE FROM raw_events WHERE user_id = '500000000'"

FRESHNESS = """SELECT 'raw_events' AS layer, count(*) AS rows, max(event_time) AS newest_event FROM raw_events
UNION ALL SELECT 'events_clean', count(*), max(event_time) FROM events_clean
UNION ALL SELECT 'daily_sales', count(*), max(newest_event) FROM daily_sales"""

LAYERS = ("events_clean", "daily_sales")


def run_demo(path: Path, *, rows: int, console: Console | None = None) -> None:
    """Run the tutorial in a lake of its own at `path` and leave the lake there."""
    from rich.console import Console

    from headrace.engine import open as open_embedded

    console = console or Console(highlight=False)
    folder = path.absolute()
    _make_room(folder)
    started = time.monotonic()
    console.print(
        f"Headrace demo: the lake is the folder [bold]{path}[/bold], Spark runs inside this process.", style="dim"
    )
    with _busy(console, "Starting Spark"):
        # A short run on little data: the JVM's second compiler would cost more time than it saves.
        lake = open_embedded(folder, spark_settings={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
    console.print(f"Spark is up after {time.monotonic() - started:.0f} s.", style="dim")
    try:
        _Tutorial(lake, console, rows).run()
    finally:
        with _busy(console, "Closing the lake"):
            lake.close()
    console.print(f"\nDone in {time.monotonic() - started:.0f} s. The lake stays in {path}. Try next:\n")
    for command in next_commands(path):
        console.print(f"  {command}", style="bold", soft_wrap=True, markup=False)


def next_commands(path: Path) -> list[str]:
    """What to type next, with the program as it can be typed from here."""
    program = Path(sys.argv[0]).absolute()
    here = program.name == "headrace" and program.is_relative_to(Path.cwd())
    shown = str(program.relative_to(Path.cwd())) if here else "headrace"
    lake = f"--lake {shlex.quote(str(path))}"
    best = "SELECT department, sum(revenue) AS revenue FROM daily_sales GROUP BY department ORDER BY revenue DESC"
    return [
        f'{shown} sql {lake} "{best}"',
        f"{shown} sql {lake} \"UPDATE raw_events SET price = 1 WHERE brand = 'norda'\"",
        f"{shown} refresh {lake} events_clean daily_sales",
        f"{shown} history {lake} daily_sales",
        f"{shown} explain {lake} daily_sales",
        f"{shown} verify {lake} --all",
        f"{shown} shell {lake}",
    ]


class _Tutorial:
    def __init__(self, lake: Lake, console: Console, rows: int) -> None:
        self._lake = lake
        self._console = console
        self._rows = rows
        self._made = 0
        self._tell: Callable[[str], None] | None = None
        lake.on_progress(self._hear)

    def run(self) -> None:
        self._heading("1", "Raw events", "A plain table, with its change feed on. A first batch of events arrives.")
        self._statement(RAW)
        self._arrive(self._rows)

        self._heading(
            "2", "Transform", "A dynamic table cleans the raw events. It is a query; Headrace keeps it filled."
        )
        self._statement(CLEAN)

        self._heading("3", "Aggregate", "A second one, over the first, counts and sums for each day and department.")
        self._statement(SALES)
        self._show("SELECT * FROM daily_sales ORDER BY revenue DESC LIMIT 5")

        why = "New events arrive, the layers are refreshed upstream first. Only what changed is computed."
        self._heading("4", "New data", why)
        for number in range(1, ROUNDS + 1):
            self._say(f"\nRound {number}")
            self._arrive(ROUND_EVENTS)
            self._refresh()

        why = (
            "Updates and deletions are changes like any other: a recalled price, and a user who asked to be forgotten."
        )
        self._heading("5", "Corrections", why)
        self._statement(RECALL)
        self._statement(FORGET)
        self._refresh()
        self._say("\nNothing has changed since, so refreshing again costs nothing:")
        self._refresh()

        self._heading("6", "Is it fresh?", "Rows and the newest event of each layer: they agree.")
        self._show(FRESHNESS)
        self._heading("7", "What happened", "The refresh history: how each refresh was done, its rows, its time.")
        self._history()
        self._heading("8", "Is it right?", "VERIFY runs each query from scratch, and compares it row by row.")
        self._verify()

    def _arrive(self, rows: int) -> None:
        with self._working(f"{rows:,} events arrive") as took:
            append_events(self._lake, "raw_events", rows, first=self._made)
        self._made += rows
        self._say(f"  + {rows:,} events into raw_events ({took():.1f} s)")

    def _refresh(self) -> None:
        for table in LAYERS:
            with self._working(f"Refreshing {table}"):
                result = self._lake.sql(f"REFRESH DYNAMIC TABLE {table}")
            for row in result.rows:
                entry = _history_entry(dict(zip(result.columns, row, strict=True)))
                self._say(f"  ↻ {table:<13} {entry[1]:<11} +{entry[3]} −{entry[4]} rows ({entry[5]} s)")

    def _history(self) -> None:
        result = self._lake.sql("SHOW DYNAMIC TABLE REFRESH HISTORY")
        entries = [_history_entry(dict(zip(result.columns, row, strict=True))) for row in reversed(result.rows)]
        self._table(["name", "mode", "technique", "inserted", "deleted", "seconds"], entries)

    def _verify(self) -> None:
        rows = []
        for table in LAYERS:
            with self._working(f"Verifying {table}"):
                result = self._lake.sql(f"VERIFY DYNAMIC TABLE {table}")
            entry = dict(zip(result.columns, result.rows[0], strict=True))
            rows.append((table, entry["result"], entry["rows"], entry["missing"], entry["unexpected"]))
        self._table(["name", "result", "rows", "missing", "unexpected"], rows)

    def _statement(self, text: str) -> None:
        from rich.syntax import Syntax

        self._console.print(Syntax(text, "sql", theme="ansi_light", background_color="default", word_wrap=True))
        with self._working("Running") as took:
            self._lake.sql(text)
        self._say(f"  done ({took():.1f} s)")

    def _show(self, query: str) -> None:
        with self._working("Running"):
            result = self._lake.sql(query)
        self._table(result.columns, result.rows)

    def _table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        from rich import box
        from rich.table import Table

        from headrace.display import as_text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for position, column in enumerate(columns):
            number = all(isinstance(row[position], (int, float)) for row in rows)
            table.add_column(column, justify="right" if number else "left")
        for row in rows:
            table.add_row(*(as_text(value) for value in row))
        self._console.print(table)

    def _heading(self, number: str, title: str, explanation: str) -> None:
        self._console.print(f"\n[bold cyan]{number}. {title}[/bold cyan]")
        self._console.print(explanation, style="dim")

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False)

    def _hear(self, event: ProgressEvent) -> None:
        if self._tell is not None:
            done = "" if event.fraction is None else f" ({event.fraction:.0%})"
            self._tell(f"{event.text}{done}")

    @contextmanager
    def _working(self, text: str) -> Iterator[Callable[[], float]]:
        started = time.monotonic()
        ended: list[float] = []
        with _busy(self._console, text) as self._tell:
            try:
                yield lambda: (ended[0] if ended else time.monotonic()) - started
            finally:
                ended.append(time.monotonic())
                self._tell = None


@contextmanager
def _busy(console: Console, text: str) -> Iterator[Callable[[str], None] | None]:
    """A spinner with a text, when somebody is watching."""
    if not console.is_terminal:
        yield None
        return
    with console.status(text) as status:
        yield lambda news: status.update(news)


def _history_entry(entry: dict[str, Any]) -> tuple[str, str, str, int, int, float]:
    stats = json.loads(entry["stats"]) if entry["stats"] else {}
    hours, minutes, seconds = entry["duration"].split(" ")[1].split(":")
    took = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    inserted, deleted = int(stats.get("rows_inserted", 0)), int(stats.get("rows_deleted", 0))
    return entry["name"], entry["refresh_mode"], entry["technique"] or "", inserted, deleted, round(took, 2)


def _make_room(folder: Path) -> None:
    """An empty folder with our mark. An earlier demo is replaced; anything else is not ours to touch."""
    if folder.exists() and any(folder.iterdir()):
        from headrace.storage.lock import LakeLock

        if not (folder / MARKER).is_file():
            raise NotAllowed(
                f"{folder} holds something that is not an earlier demo's lake.",
                hint="Choose another folder: headrace demo --lake PATH.",
            )
        with LakeLock(folder):  # Somebody may be looking at the earlier demo right now.
            for entry in folder.iterdir():
                if entry.name in (MARKER, ".headrace.lock"):
                    continue
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text("Made by `headrace demo`, which replaces this folder when it runs again.\n", "utf-8")
