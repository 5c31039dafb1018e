"""`headrace sql`: run statements and print what they give."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.faults import exit_code, show_error
from headrace.cli.lakes import LakeOption, at_work, opened
from headrace.cli.output import Format, FormatOption, write_result
from headrace.errors import HeadraceError, SyntaxFault
from headrace.sql.parser import parse
from headrace.sql.split import split_statements


def sql(
    text: Annotated[
        str | None, typer.Argument(help="The statements, separated by `;`. - reads them from stdin.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", exists=True, dir_okay=False, readable=True, help="Run the statements of a file."),
    ] = None,
    form: FormatOption = Format.table,
    lake: LakeOption = None,
) -> None:
    """Run SQL statements.

    As a table, every statement's result is printed; as csv or json, the last one's, so that a program can read it.
    """
    statements = _statements(text, file)
    _check_first(statements)
    with opened(lake) as open_lake:
        try:
            last = None
            results = open_lake.statements(statements)
            while True:
                with at_work("Running"):
                    result = next(results, None)
                if result is None:
                    break
                last = result
                if form is Format.table:
                    write_result(result, form)
            if last is not None and form is not Format.table:
                write_result(last, form)
        except HeadraceError as error:
            sys.stdout.flush()
            show_error(error, statements)
            raise typer.Exit(exit_code(error)) from error


def _check_first(text: str) -> None:
    """A first statement that is no statement at all is refused at once, before Spark starts."""
    first = None
    try:
        first = next(iter(split_statements(text)), None)
        if first is not None:
            parse(first.text)
    except SyntaxFault as error:
        if first is not None and error.position is not None:
            error.position = first.in_script(error.position)
        show_error(error, text)
        raise typer.Exit(exit_code(error)) from error


def _statements(text: str | None, file: Path | None) -> str:
    if (text is None) == (file is None):
        raise typer.BadParameter("Give the statements as an argument (or - for stdin), or a file with -f.")
    try:
        if file is not None:
            return file.read_text("utf-8")
        return sys.stdin.read() if text == "-" else text or ""
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"The statements are not UTF-8 text ({error.reason}).") from error
