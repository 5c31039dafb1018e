"""Results as tables, CSV or JSON."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from enum import Enum
from typing import Annotated, Any, TextIO

import typer


class Format(str, Enum):
    table = "table"
    csv = "csv"
    json = "json"


FormatOption = Annotated[
    Format,
    typer.Option("--format", help="table for people; csv with a header line; json as an array of objects."),
]


class Table:
    """Columns and rows of our own making, to be printed like a result."""

    def __init__(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self.columns = list(columns)
        self.rows = [tuple(row) for row in rows]


def write_result(result: Any, form: Format, out: TextIO | None = None, *, vertical: bool | None = None) -> None:
    from headrace.display import as_json, as_text, print_result

    out = out or sys.stdout
    if form is Format.table:
        print_result(result, out=out, vertical=vertical)
    elif form is Format.csv:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(result.columns)
        writer.writerows([["" if value is None else as_text(value) for value in row] for row in result.rows])
    else:
        objects = [
            "{"
            + ", ".join(f"{as_json(name)}: {as_json(value)}" for name, value in zip(result.columns, row, strict=True))
            + "}"
            for row in result.rows
        ]
        out.write("[" + ",\n ".join(objects) + "]\n")
    out.flush()
