"""`make dbt-demo`: the project of this folder against a server of its own, from the first build to the third run.

Everything happens in ./demo-dbt-lake and on this machine.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from rich.console import Console
from rich.rule import Rule

from headrace.client.lake import RemoteLake, connect
from headrace.result import Result

HERE = Path(__file__).parent
LAKE = Path("demo-dbt-lake")
MARKER = LAKE / ".headrace-dbt-demo"
BEFORE, AFTER, MORE = 4_900, 100, 40
"""Trips that come before the streams are made, after it, and after the first build."""
START_SECONDS = 300

console = Console(highlight=False)


def main() -> int:
    if LAKE.exists() and not MARKER.exists():
        console.print(f"The folder {LAKE} is not from this demo: move it away, then run make dbt-demo again.")
        return 1
    shutil.rmtree(LAKE, ignore_errors=True)
    LAKE.mkdir()
    MARKER.touch()
    began = time.monotonic()
    console.print(
        f"dbt on Headrace: the lake is the folder [bold]{LAKE}[/bold], with a server of its own.", style="dim"
    )
    with server() as (url, lake):
        console.print(f"The server is up after {time.monotonic() - began:.0f} s, at {url}.", style="dim")
        password = secrets.token_urlsafe(18)
        lake.sql(f"CREATE USER dbt WITH PASSWORD '{password}' ROLE admin")
        Demo(lake, {"HEADRACE_URL": url, "HEADRACE_USER": "dbt", "HEADRACE_PASSWORD": password}).run()
    console.print(f"\nDone in {time.monotonic() - began:.0f} s. The lake stays in {LAKE}. Try next:\n")
    program = os.path.relpath(Path(sys.executable).parent / "headrace")
    for command in (
        f'{program} sql --lake {LAKE} "SELECT * FROM bikes_dev.district_revenue"',
        f"{program} verify --lake {LAKE} --all",
        f"{program} shell --lake {LAKE}",
    ):
        console.print(f"  {command}", style="bold", soft_wrap=True, markup=False)
    return 0


class Demo:
    """The steps, each with a heading, a command or statement, and what came of it."""

    def __init__(self, lake: RemoteLake, environment: dict[str, str]) -> None:
        self._lake = lake
        self._environment = environment
        self._trips = 0

    def run(self) -> None:
        self._heading("1", "The source", "A table with change tracking and two streams on it, made outside dbt.")
        self._runs("raw.sql")
        self._arrive(BEFORE)
        self._runs("streams.sql")
        self._arrive(AFTER)
        self._offsets()

        self._heading("2", "dbt debug", "The profile reads the address and the password from the environment.")
        self._dbt("debug", only=("Connection test", "All checks"))

        self._heading(
            "3", "dbt build", "trips_enriched is new and reads all trips; trips_arrived reads only its stream."
        )
        self._dbt("build")
        self._counts()
        self._offsets()

        self._heading("4", "New trips, and dbt run", "Now trips_enriched is incremental: it reads its stream.")
        self._arrive(MORE)
        self._dbt("run")
        self._counts()
        self._offsets()

        self._heading("5", "dbt run again", "Nothing is new: no row arrives, no offset moves, no table is rebuilt.")
        self._dbt("run")
        self._counts()
        self._offsets()

        self._heading("6", "What happened", "The refreshes of the dynamic tables, newest first.")
        self._table(
            "SELECT name, start_time, refresh_trigger, refresh_mode, technique, stats "
            "FROM (SHOW DYNAMIC TABLE REFRESH HISTORY)"
        )

        self._heading("7", "Is it right?", "VERIFY computes each dynamic table's query anew and compares.")
        for table in ("station_revenue", "district_revenue"):
            self._table(f"VERIFY DYNAMIC TABLE bikes_dev.{table}")

    def _heading(self, number: str, title: str, told: str) -> None:
        console.print()
        console.print(Rule(f"[bold]{number}. {title}[/bold]", align="left", style="cyan"))
        console.print(told, style="italic")

    def _runs(self, file: str) -> None:
        text = (HERE / "sql" / file).read_text("utf-8")
        for line in text.strip().splitlines():
            console.print(f"  {line}", style="green", markup=False, soft_wrap=True)
        self._lake.sql(text)

    def _arrive(self, trips: int) -> None:
        text = (HERE / "sql" / "trips.sql").read_text("utf-8")
        self._lake.sql(text.format(first=self._trips, last=self._trips + trips))
        self._trips += trips
        console.print(f"  {trips:,} trips arrive in raw.trips.", style="yellow")

    def _dbt(self, *arguments: str, only: tuple[str, ...] = ()) -> None:
        """Shows what dbt says, as it says it; only the lines with one of these words, if some are given."""
        console.print(f"  $ dbt {' '.join(arguments)}", style="bold green")
        environment = os.environ | self._environment | {
            "DBT_PROFILES_DIR": str(HERE), "DBT_PROJECT_DIR": str(HERE), "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
            "DBT_VERSION_CHECK": "false", "DBT_TARGET_PATH": str((LAKE / "dbt" / "target").absolute()),
            "DBT_LOG_PATH": str((LAKE / "dbt" / "logs").absolute()), "DBT_USE_COLORS": "false",
        }  # fmt: skip
        began = time.monotonic()
        dbt = subprocess.Popen(
            [str(Path(sys.executable).parent / "dbt"), *arguments],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert dbt.stdout
        for line in dbt.stdout:
            if not only or any(word in line for word in only):
                console.print(f"  {line.rstrip()}", style="dim", markup=False, soft_wrap=True)
        if dbt.wait() != 0:
            raise SystemExit(f"dbt {arguments[0]} failed.")
        console.print(f"  {time.monotonic() - began:.1f} s", style="dim")

    def _counts(self) -> None:
        self._table(
            "SELECT 'raw.trips' AS table, count(*) AS rows FROM raw.trips "
            "UNION ALL SELECT 'trips_enriched', count(*) FROM bikes_dev.trips_enriched "
            "UNION ALL SELECT 'trips_arrived', count(*) FROM bikes_dev.trips_arrived "
            "UNION ALL SELECT 'station_revenue: trips', sum(trips) FROM bikes_dev.station_revenue "
            "UNION ALL SELECT 'district_revenue: trips', sum(trips) FROM bikes_dev.district_revenue"
        )

    def _offsets(self) -> None:
        self._table("SELECT name, offset, has_data FROM (SHOW TABLE STREAMS IN raw)")

    def _table(self, statement: str) -> None:
        result: Result = self._lake.sql(statement)
        rows = [[str(value) for value in row] for row in (result.columns, *result.rows)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for number, row in enumerate(rows):
            line = "  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip()
            console.print(f"  {line}", style="bold" if number == 0 else "", markup=False, soft_wrap=True)


@contextmanager
def server() -> Iterator[tuple[str, RemoteLake]]:
    """`headrace up` on a free port; stopped at the end, whatever happens."""
    environment = os.environ | {"HEADRACE_PATH": str(LAKE.absolute()), "HEADRACE_PORT": "0"}
    with (LAKE / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli.main", "up"],
            env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        with console.status("Starting a server"):
            url, token = _address(process)
        with connect(url, token=token) as lake:
            yield url, lake
    finally:
        with console.status("Stopping the server"):
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _address(process: subprocess.Popen[bytes]) -> tuple[str, str]:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            found = json.loads((LAKE / "server.json").read_text("utf-8"))
            if httpx.get(f"{found['url']}/health", trust_env=False).status_code == 200:
                return found["url"], found["token"]
        except (FileNotFoundError, httpx.HTTPError):
            pass
        time.sleep(0.1)
    raise SystemExit(f"The server did not start; {LAKE / 'server.log'} tells why.")


if __name__ == "__main__":
    sys.exit(main())
