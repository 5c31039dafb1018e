"""`headrace refresh`, `history`, `explain` and `verify`: what one does with dynamic tables."""

from __future__ import annotations

import json
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.faults import FAILED, exit_code, show_error
from headrace.cli.lakes import LakeOption, at_work, ending_gently, opened
from headrace.cli.output import Format, FormatOption, Table, write_result
from headrace.errors import HeadraceError
from headrace.names import parse_parts, quote, quote_text

if TYPE_CHECKING:
    from rich.text import Text

    from headrace.client import RemoteLake
    from headrace.engine import Lake

NamesArgument = Annotated[list[str], typer.Argument(metavar="NAME...", help="Tables, as name, schema.name or in full.")]
FullOption = Annotated[bool, typer.Option("--full", help="Show all columns of the history.")]


def refresh(
    names: NamesArgument, form: FormatOption = Format.table, full: FullOption = False, lake: LakeOption = None
) -> None:
    """Bring dynamic tables up to date, in the order given, and print what was done."""
    tables = [_quoted(name) for name in names]
    with ending_gently(), opened(lake, must_exist=True) as open_lake:
        rows: list[tuple[Any, ...]] = []
        columns: list[str] = []
        failure: HeadraceError | None = None
        for name, table in zip(names, tables, strict=True):
            try:
                with at_work(f"Refreshing {name}"):
                    result = open_lake.sql(f"REFRESH DYNAMIC TABLE {table}")
            except HeadraceError as error:
                failure = error
                break
            columns, rows = result.columns, rows + result.rows
        if rows:
            _write_history(Table(columns, rows), form, full)
        if failure is not None:
            sys.stdout.flush()
            show_error(failure)
            raise typer.Exit(exit_code(failure))


def history(
    name: Annotated[str | None, typer.Argument(help="One table's history only.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many refreshes, the newest first.")] = 20,
    form: FormatOption = Format.table,
    full: FullOption = False,
    lake: LakeOption = None,
) -> None:
    """Show past refreshes: when, how, how many rows, how long, and why."""
    where = f" WHERE {_condition(name)}" if name else ""
    with opened(lake, must_exist=True) as open_lake:
        with at_work("Reading the history"):
            result = open_lake.sql(f"SHOW DYNAMIC TABLE REFRESH HISTORY{where} LIMIT {limit}")
            if name and not result.rows:
                open_lake.sql(f"EXPLAIN REFRESH DYNAMIC TABLE {_quoted(name)}")  # says so when there is no such table
        _write_history(result, form, full)


def explain(
    name: Annotated[str, typer.Argument(help="A dynamic table.")],
    form: FormatOption = Format.table,
    lake: LakeOption = None,
) -> None:
    """Show what the next refresh of a dynamic table would do, and why."""
    table = _quoted(name)
    with opened(lake, must_exist=True) as open_lake:
        with at_work("Looking"):
            result = open_lake.sql(f"EXPLAIN REFRESH DYNAMIC TABLE {table}")
        if form is Format.table and len(result.columns) == 3:
            for line in sections(result.rows):
                typer.echo(line)
        else:
            write_result(result, form)


def verify(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Dynamic tables.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All dynamic tables of the lake.")] = False,
    form: FormatOption = Format.table,
    lake: LakeOption = None,
) -> None:
    """Check that dynamic tables equal their queries at the versions they were computed from.

    Ends with 1 when one differs.
    """
    if bool(names) == every:
        raise typer.BadParameter("Name the tables to verify, or give --all.")
    tables = [_quoted(name) for name in names or []]
    with opened(lake, must_exist=True) as open_lake:
        if every:
            tables = _all_tables(open_lake)
        rows: list[tuple[Any, ...]] = []
        columns: list[str] = ["name", "result"]
        failures: list[HeadraceError] = []
        for number, table in enumerate(tables):
            try:
                with at_work(f"Verifying {table} ({number + 1} of {len(tables)})"):
                    result = open_lake.sql(f"VERIFY DYNAMIC TABLE {table}")
            except HeadraceError as error:
                failures.append(error)
                continue
            columns, rows = result.columns, rows + result.rows
    if rows or not failures:
        write_result(Table(columns, rows), form)
    sys.stdout.flush()
    for failure in failures:
        show_error(failure)
    if failures:
        raise typer.Exit(exit_code(failures[0]))
    if any(row[columns.index("result")] == "DIFFERENT" for row in rows):
        raise typer.Exit(FAILED)


def sections(rows: list[tuple[Any, ...]]) -> list[str]:
    """(section, item, value) rows under one heading a section, values in one column."""
    from headrace.display import NULL

    lines: list[str] = []
    width = min(60, max((len(str(item)) for _, item, _ in rows), default=0))
    last = None
    for section, item, value in rows:
        shown = NULL if value is None else value
        if section != last:
            lines += ([""] if lines else []) + [str(section).upper()]
            last = section
        if len(str(item)) > width:
            lines += [f"  {item}", f"  {'':<{width}}  {shown}".rstrip()]
        else:
            lines.append(f"  {item:<{width}}  {shown}".rstrip())
    return lines


def brief(result: Any) -> Table:
    """The columns of the history that a person looks at first."""
    from headrace.display import elapsed

    columns = ["name", "start_time", "duration", "state", "refresh_mode", "technique", "inserted", "deleted", "reason"]
    rows = []
    for row in result.rows:
        entry = dict(zip(result.columns, row, strict=True))
        stats = json.loads(entry["stats"]) if entry["stats"] else {}
        rows.append(
            (
                f"{entry['schema_name']}.{entry['name']}",
                entry["start_time"].replace(microsecond=0) if entry["start_time"] else None,
                elapsed(_took(entry["duration"])) or None,
                entry["state"],
                entry["refresh_mode"],
                entry["technique"],
                _number(stats.get("rows_inserted")),
                _number(stats.get("rows_deleted")),
                entry["error_message"] or entry["reason"],
            )
        )
    return Table(columns, rows)


def on_screen(history: Table, width: int) -> list[Text]:
    """The same for a screen: a line for each refresh, and below it why, if there is a reason."""
    from rich.text import Text

    from headrace.cli.board import STYLES
    from headrace.cli.columns import Column, folded, grid, line

    def text(value: Any) -> Text:
        return Text("" if value is None else line(value))

    rows = [dict(zip(history.columns, row, strict=True)) for row in history.rows]
    counts = [
        "" if row["inserted"] is None and row["deleted"] is None else f"+{row['inserted'] or 0} -{row['deleted'] or 0}"
        for row in rows
    ]
    columns = (
        Column("NAME", [text(row["name"]) for row in rows], 9, flexible=True),
        Column("STARTED", [text(row["start_time"]) for row in rows], 6),
        Column("TOOK", [text(row["duration"]) for row in rows], 5, right=True),
        Column("STATE", [Text(row["state"], STYLES.get(row["state"], "")) for row in rows], 8),
        Column("MODE", [text(row["refresh_mode"]) for row in rows], 7),
        Column("TECHNIQUE", [text(row["technique"]) for row in rows], 3),
        Column("ROWS", [text(count) for count in counts], 4),
    )
    head, *lines = grid(columns, width)
    for own, row in zip(lines, rows, strict=True):
        own.truncate(width, overflow="ellipsis")
        own.append_text(Text("".join(f"\n    {part}" for part in folded(row["reason"] or "", width, 4)), "dim"))
    return [head, *lines, Text(f"({len(rows)} row{'' if len(rows) == 1 else 's'})")]


def _write_history(result: Any, form: Format, full: bool) -> None:
    if form is not Format.table or full:
        write_result(result, form)
    elif not sys.stdout.isatty():
        write_result(brief(result), form)
    else:
        from rich.console import Console

        console = Console()
        for line in on_screen(brief(result), console.width):
            console.print(line, soft_wrap=True)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _took(duration: str | None) -> timedelta | None:
    """
    >>> _took("0 00:01:01.500000000"), _took(None)
    (datetime.timedelta(seconds=61, microseconds=500000), None)
    """
    if duration is None:
        return None
    days, _, clock = duration.partition(" ")
    hours, minutes, seconds = clock.split(":")
    return timedelta(days=int(days), hours=int(hours), minutes=int(minutes), seconds=float(seconds))


def _all_tables(lake: Lake | RemoteLake) -> list[str]:
    found = lake.sql("SHOW DYNAMIC TABLES")
    positions = [found.columns.index(column) for column in ("workspace_name", "schema_name", "name")]
    return [".".join(quote(row[position]) for position in positions) for row in found.rows]


def _quoted(name: str) -> str:
    return ".".join(quote(part) for part in parse_parts(name))


def _condition(name: str) -> str:
    parts = parse_parts(name)
    columns = ("workspace_name", "schema_name", "name")[-len(parts) :]
    return " AND ".join(f"{column} = {quote_text(part.lower())}" for column, part in zip(columns, parts, strict=True))
