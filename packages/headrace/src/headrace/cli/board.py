"""What `headrace top` draws: dynamic tables and their lag, tasks and their last runs, the jobs that have not ended.

Drawing asks nobody and knows no clock: the same rows give the same lines. What is in trouble comes first. A screen that
is too narrow loses whole columns, the least telling ones first; one that is too low loses rows, and says how many.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rich.text import Text

from headrace.cli.columns import Column, changes, clock, folded, grid, line
from headrace.display import duration, elapsed
from headrace.errors import HeadraceError
from headrace.sql.parser import parse
from headrace.sql.statements import Parts, RefreshDynamicTables

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

Row = Mapping[str, Any]
"""One row of SHOW FRESHNESS, SHOW TASKS or SHOW JOBS, by the names of its columns; times have a zone."""

STYLES = {
    "FAILED": "bold red",
    "SUSPENDED": "red",
    "SKIPPED": "magenta",
    "LATE": "yellow",
    "CANCELLED": "magenta",
    "REFRESHING": "cyan",
    "RUNNING": "cyan",
    "QUEUED": "cyan",
    "WAITING": "cyan",
    "FRESH": "green",
    "SUCCEED": "green",
    "MANUAL": "dim",
    "NEW": "dim",
}
"""In this order they are counted."""
TROUBLE = ("FAILED", "SUSPENDED", "SKIPPED", "LATE")
"""These come first, in this order. All others are in the order of their names, so that nothing jumps about when its
turn to be refreshed comes."""

_STATEMENT = 200
"""Of a statement's text, where no screen ends the line."""
_REFRESH = re.compile(r"\s*REFRESH\s+DYNAMIC\s+TABLE\b", re.IGNORECASE)
_MOST_PROBLEM = 2
"""So many lines of a screen tell why it stands still."""


@dataclass(frozen=True)
class Board:
    """A Rich renderable that fits itself into the screen it is printed to."""

    title: str
    now: datetime
    """By the clock of the lake: lags, waits and times to come are told against it."""
    tables: Sequence[Row]
    jobs: Sequence[Row]
    tasks: Sequence[Row] = ()
    footer: str = ""
    note: str = ""
    """What is true of all of it."""
    problem: str = ""
    """Why the rows are not those of this moment."""
    one_screen: bool = False
    """Whether it may have no more lines than the screen: paper has as many as are needed."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("\n").join(self.lines(options.max_width, console.height if self.one_screen else None))

    def lines(self, width: int | None = None, height: int | None = None) -> list[Text]:
        """What is printed. Without a width nothing is cut off, without a height nothing is left out."""
        head = [Text(line(self.title), "bold"), *self.summary(width)]
        head += [Text(each, "yellow") for each in folded(self.note, width)]
        head += [Text(each, "bold red") for each in folded(self.problem, width)[: _MOST_PROBLEM if height else None]]
        foot = [Text(), Text(self.footer, "dim")] if self.footer else []
        tables = self._tables(width, wrapped=height is None)
        tasks = self._tasks(width, wrapped=height is None)
        jobs = self._jobs(width)
        if height is not None:
            room = height - len(head) - 1 - len(foot)
            sizes = (sum(map(len, tables)), sum(map(len, tasks)), len(jobs))
            # Blocks below others have an empty line above them.
            shares = _shares(room, (sizes[0], *(size + 1 if size else 0 for size in sizes[1:])))
            tables = _first_rows(tables, [_status(row) for row in in_order(self._rows)], shares[0])
            tasks = _first_rows(tasks, [_status(row) for row in in_order(self._task_rows)], shares[1] - 1)
            jobs = _first(jobs, shares[2] - 1)
        body = [each for block in tables for each in block]
        for below in ([each for block in tasks for each in block], jobs):
            body += [Text(), *below] if below else []
        return [_cut(each, width) for each in [*head, Text(), *body, *foot][:height]]

    def summary(self, width: int | None) -> list[Text]:
        """How many tables and tasks are how, and how many jobs run and wait: in one line if that fits."""
        running = sum(job["status"] == "RUNNING" for job in self.jobs)
        parts = [_counts("table", self._rows)]
        if self.tasks:
            parts.append(_counts("task", self._task_rows))
        parts.append(Text(f"{_number(running, 'job')} running, {len(self.jobs) - running} waiting"))
        one = Text("; ").join(parts)
        return [one] if width is None or one.cell_len <= width else parts

    @cached_property
    def _rows(self) -> list[Row]:
        """The tables. Those that a job refreshes are told so, also where it began after the tables were asked for."""
        jobs = [job["job_text"] for job in self.jobs if job["status"] == "RUNNING"]
        named = {tuple(part.lower() for part in parts[-2:]) for text in jobs for parts in refreshed(text)}
        once = Counter(row["name"] for row in self.tables)
        found = []
        for row in self.tables:
            own = (row["schema_name"].lower(), row["name"].lower())
            at_work = own in named or (own[1:] in named and once[row["name"]] == 1)
            if row["status"] == "RUNNING" or (at_work and row["status"] != "SUSPENDED"):
                row = {**row, "status": "REFRESHING", "reason": None}
            found.append(row)
        return found

    @cached_property
    def _task_rows(self) -> list[Row]:
        """The tasks, each with the one word for how it is, and with the reason for that."""
        return [{**row, **_condition(row)} for row in self.tasks]

    # ------------------------------------------------------------------ tables

    def _tables(self, width: int | None, *, wrapped: bool) -> list[list[Text]]:
        """The heading, then a block for each table: its line and, if it is in trouble, why."""
        if not self.tables:
            return [[Text("There are no dynamic tables that you may see.", "dim")]]
        rows = in_order(self._rows)
        lates = [STYLES["LATE"] if row.get("is_late") else "" for row in rows]
        lags = [duration(row["lag_second"]) for row in rows]
        columns = (
            Column("TABLE", self._names(rows), 9, flexible=True),
            Column("STATUS", [_styled(row["status"]) for row in rows], 9, least=10),
            Column("LAG", [Text(*cell) for cell in zip(lags, lates, strict=True)], 8, right=True, least=6),
            Column("TARGET", [Text(duration(row["target_second"])) for row in rows], 7, right=True),
            Column("NEXT", [Text(self._until(row["next_refresh"])) for row in rows], 3, right=True, least=6),
            Column("MODE", [Text(row["last_mode"] or "") for row in rows], 6, least=11),
            Column("ROWS", [Text(changes(row["rows_inserted"], row["rows_deleted"])) for row in rows], 5, least=11),
            Column("TOOK", [Text(elapsed(row["last_duration"])) for row in rows], 2, right=True, least=5),
            Column("LAST", [Text(clock(row["last_refresh"], self.now)) for row in rows], 1, least=8),
        )
        return _blocks(columns, rows, width, wrapped=wrapped)

    def _names(self, rows: Sequence[Row]) -> list[Text]:
        """With their schemas, where there are several of them on the board."""
        several = len({row["schema_name"] for row in (*self.tables, *self.tasks)}) > 1
        return [Text(line(f"{row['schema_name']}.{row['name']}" if several else row["name"])) for row in rows]

    def _until(self, moment: datetime | None) -> str:
        if moment is None:
            return ""
        left = (moment - self.now).total_seconds()
        return duration(left) if left >= 1 else "now"

    # ------------------------------------------------------------------ tasks

    def _tasks(self, width: int | None, *, wrapped: bool) -> list[list[Text]]:
        """The heading, then a block for each task: its line and, if its last run did not go well, why."""
        if not self.tasks:
            return []
        rows = in_order(self._task_rows)
        schedules = [line(row["schedule"] or (f"after {row['after']}" if row["after"] else "by hand")) for row in rows]
        columns = (
            Column("TASK", self._names(rows), 9, flexible=True),
            Column("STATE", [_styled(row["state"]) for row in rows], 7, least=9),
            Column("LAST RUN", [_styled(row["last_state"] or "") for row in rows], 9, least=9),
            Column("AGO", [Text(self._ago(row["last_run"])) for row in rows], 8, right=True, least=6),
            Column("NEXT", [Text(self._until(row["next_run"])) for row in rows], 6, right=True, least=6),
            Column("SCHEDULE", [Text(_shortened(text, 40)) for text in schedules], 3),
        )
        return _blocks(columns, rows, width, wrapped=wrapped)

    def _ago(self, moment: datetime | None) -> str:
        """How long a time is past; one to come is no age."""
        passed = -1.0 if moment is None else (self.now - moment).total_seconds()
        return duration(passed) if passed >= 0 else ""

    # ------------------------------------------------------------------ jobs

    def _jobs(self, width: int | None) -> list[Text]:
        if not self.jobs:
            return []
        rows = sorted(self.jobs, key=lambda job: (job["status"] != "RUNNING", job["start_time"], job["job_id"]))
        styles = [STYLES["RUNNING"] if job["status"] == "RUNNING" else "" for job in rows]
        statuses = [job["status"] for job in rows]
        tasks = {row["last_job"]: f"TASK {row['schema_name']}.{row['name']}" for row in self.tasks}
        texts = [_shortened(line(tasks.get(job["job_id"]) or purpose(job["job_text"])), _STATEMENT) for job in rows]
        return grid(
            (
                Column("JOB", [Text(job["job_id"]) for job in rows], 9),
                Column("STATUS", [Text(*cell) for cell in zip(statuses, styles, strict=True)], 9, least=7),
                Column("FOR", [Text(self._passed(job)) for job in rows], 8, right=True, least=6),
                Column("VCLUSTER", [Text(line(job["vcluster_name"])) for job in rows], 5),
                Column("BY", [Text(line(job["creator"])) for job in rows], 4),
                Column("WHAT", [Text(text) for text in texts], 9, flexible=True),
            ),
            width,
        )

    def _passed(self, job: Row) -> str:
        """How long it has been at work; for one that waits, how long it waits."""
        if job["status"] == "RUNNING" and job["execution_time"] is not None:
            return duration(job["execution_time"].total_seconds())
        return duration(max(0.0, (self.now - job["start_time"]).total_seconds()))


def refreshed(statement: str) -> tuple[Parts, ...]:
    """The tables that the statement refreshes, if that is what it does."""
    if not _REFRESH.match(statement):
        return ()
    try:
        found = parse(statement)
    except HeadraceError:
        return ()
    return found.names if isinstance(found, RefreshDynamicTables) else ()


def purpose(statement: str) -> str:
    """What a job is for, in few words; of statements that say it in other words, the statement.

    >>> purpose("REFRESH DYNAMIC TABLE `main`.`public`.`counts`, spend"), purpose("SELECT 1")
    ('REFRESH public.counts, spend', 'SELECT 1')
    """
    names = refreshed(statement)
    return f"REFRESH {', '.join('.'.join(parts[-2:]) for parts in names)}" if names else statement


def in_order(rows: Sequence[Row]) -> list[Row]:
    """What is in trouble, the worst first; then the others by name."""

    def place(row: Row) -> tuple[int, str, str]:
        status = row["status"]
        return TROUBLE.index(status) if status in TROUBLE else len(TROUBLE), row["schema_name"], row["name"]

    return sorted(rows, key=place)


# ---------------------------------------------------------------------- pieces


def _blocks(columns: Sequence[Column], rows: Sequence[Row], width: int | None, *, wrapped: bool) -> list[list[Text]]:
    """The heading, then each row's line with its reason."""
    head, *lines = grid(columns, width)
    return [[head], *([one, *_reason(row, width, wrapped=wrapped)] for one, row in zip(lines, rows, strict=True))]


def _reason(row: Row, width: int | None, *, wrapped: bool) -> list[Text]:
    """Why the table or task is as it is: one line on a screen that is full, all of it on paper."""
    if not row["reason"] or row["status"] not in (*TROUBLE, "WAITING", "CANCELLED"):
        return []
    count = row.get("failures") or 0
    told = f"{count} failures in a row: {row['reason']}" if count > 1 else str(row["reason"])
    style = STYLES["FAILED"].replace("bold ", "") if row["status"] == "FAILED" else "dim"
    return [Text(f"    {each}", style) for each in folded(told, width if wrapped else None, 4)]


def _condition(task: Row) -> dict[str, Any]:
    """How a task is, in one word, and why. One that cannot run at all is skipped each time, also before the first."""
    if task["state"] == "SUSPENDED":
        return {"status": "SUSPENDED", "reason": task["suspended_reason"] or task["last_error"]}
    if task["problem"]:
        return {"status": "SKIPPED", "reason": task["problem"]}
    return {"status": task["last_state"] or "NEW", "reason": task["last_error"]}


def _shares(room: int, needs: Sequence[int]) -> list[int]:
    """So many lines for each: what one does not need is the others', and what is left over the first one's.

    >>> _shares(20, (3, 0, 30)), _shares(20, (30, 2, 30)), _shares(11, (50, 50, 50))
    ([3, 0, 17], [9, 2, 9], [5, 3, 3])
    """
    shares, room = [0] * len(needs), max(0, room)
    waiting = [place for place, need in enumerate(needs) if need]
    while waiting:
        part = room // len(waiting)
        modest = [place for place in waiting if needs[place] <= part]
        for place in modest or waiting:
            shares[place] = needs[place] if modest else part
            room -= shares[place]
        if not modest:
            shares[waiting[0]] += room
        waiting = [place for place in waiting if place not in modest] if modest else []
    return shares


def _first_rows(blocks: list[list[Text]], statuses: Sequence[str], room: int) -> list[list[Text]]:
    """As many of the blocks, the first of which is the heading, as there is room for; the others are counted."""
    if sum(map(len, blocks)) <= room:
        return blocks
    taken: list[list[Text]] = []
    for block in blocks:
        if sum(map(len, taken)) + len(block) > room - 1:
            break
        taken.append(block)
    left = statuses[max(0, len(taken) - 1) :]
    told = ", ".join(f"{count} {status}" for status, count in _counted(left))
    return [*taken, [Text(f"… and {len(left)} more: {told}", "dim")]] if room > 0 else []


def _first(lines: list[Text], room: int) -> list[Text]:
    if len(lines) <= room:
        return lines
    # A heading alone, or a heading and a number, tell less than nothing.
    return [*lines[: room - 1], Text(f"… and {len(lines) - room + 1} more jobs", "dim")] if room > 2 else []


def _counted(statuses: Sequence[str]) -> list[tuple[str, int]]:
    """How many of each, in the order of the styles: what is in trouble first."""
    counts = Counter(statuses)
    order = [*STYLES, *(status for status in counts if status not in STYLES)]
    return [(status, counts[status]) for status in order if counts[status]]


def _counts(what: str, rows: Sequence[Row]) -> Text:
    parts = [_styled(status, f"{count} {status}") for status, count in _counted([_status(row) for row in rows])]
    return Text.assemble(_number(len(rows), what), ": " if parts else "", Text(", ").join(parts))


def _status(row: Row) -> str:
    return str(row["status"])


def _styled(status: str, text: str | None = None) -> Text:
    return Text(text or status, STYLES.get(status, ""))


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _cut(text: Text, width: int | None) -> Text:
    if width is not None:
        text.truncate(width, overflow="ellipsis")
    return text


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
