"""`headrace`: the command line.

Nothing heavy is imported here or by the command modules at their top: `headrace --help` must come at once.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, NoReturn

import typer

from headrace.cli import faults
from headrace.cli.commands import demo, doctor, down, sample_data, shell, sql, status, tables, top, up
from headrace.errors import HeadraceError

app = typer.Typer(
    name="headrace",
    help=f"Headrace: an incremental lakehouse on Apache Spark.\n\n{faults.EXIT_CODES}",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("sql")(sql.sql)
app.command("shell")(shell.shell)
app.command("refresh")(tables.refresh)
app.command("history")(tables.history)
app.command("explain")(tables.explain)
app.command("verify")(tables.verify)
app.command("top")(top.top)
app.command("up")(up.up)
app.command("status")(status.status)
app.command("down")(down.down)
app.command("doctor")(doctor.doctor)
app.command("sample-data")(sample_data.sample_data)
app.command("demo")(demo.demo)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {installed_version()}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show where an error came from.")] = False,
) -> None:
    """Options before the command."""


def installed_version() -> str:
    from importlib import metadata

    try:
        return metadata.version("headrace")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def main() -> NoReturn:
    """Run the command, and turn every error into one message and one exit code."""
    trace = "--traceback" in sys.argv[1:]
    try:
        app()
        sys.exit(faults.OK)
    except HeadraceError as error:
        if trace:
            faults.show_unexpected(error, trace=True)
        faults.show_error(error)
        sys.exit(faults.exit_code(error))
    except KeyboardInterrupt:
        sys.exit(faults.INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has seen enough (`headrace sql … | head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(faults.OK)
    except Exception as error:
        faults.show_unexpected(error, trace=trace)
        sys.exit(faults.exit_code(error))


if __name__ == "__main__":
    main()
