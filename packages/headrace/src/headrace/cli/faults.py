"""Errors on the screen and in the exit code: one wording for people, one number for scripts."""

from __future__ import annotations

import sys
import traceback
from typing import TextIO

from headrace.errors import BadSetting, EnvironmentFault, HeadraceError, LakeLocked, ServiceFault

OK = 0
FAILED = 1
WRONG_USAGE = 2
ENVIRONMENT = 3
LOCKED = 4
INTERRUPTED = 130

EXIT_CODES = """Exit codes: 0 all went well; 1 a statement failed, or verify found a difference; 2 wrong usage;
3 the environment (Java, jars, disk, database, server) is not as it must be; 4 another process has the lake open;
130 interrupted."""


def exit_code(error: BaseException) -> int:
    if isinstance(error, LakeLocked):
        return LOCKED
    if isinstance(error, (EnvironmentFault, ServiceFault)):
        return ENVIRONMENT
    if isinstance(error, BadSetting):
        return WRONG_USAGE
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else FAILED


def show_error(error: HeadraceError, text: str | None = None, out: TextIO | None = None) -> None:
    """Print the error once. With the statement's text, its line and a caret under the place are shown too."""
    out = out or sys.stderr
    where = f" ({error.position})" if error.position and text is None else ""
    out.write(f"Error [{error.code}]: {error.message}{where}\n")
    if text is not None and error.position is not None:
        for line in pointed_at(text, error.position.line, error.position.column):
            out.write(f"{line}\n")
    if error.hint:
        out.write(f"Hint: {error.hint}\n")
    out.flush()


def show_unexpected(error: BaseException, *, trace: bool, out: TextIO | None = None) -> None:
    """An error that is not ours to expect: say what it is, and how to see where it came from."""
    out = out or sys.stderr
    if trace:
        out.write("".join(traceback.format_exception(error)))
        return
    first = str(error).strip().splitlines() or ["no details"]
    out.write(f"Error [BUG]: {type(error).__name__}: {first[0]}\n")
    out.write("Hint: This should not happen: please report it, with the output of `headrace --traceback …`.\n")


def pointed_at(text: str, line: int, column: int) -> list[str]:
    """The line of the text with a caret under the column.

    >>> print(*pointed_at("SELECT 1;\\nSELEC 2", 2, 1), sep="\\n")
      2 | SELEC 2
        | ^
    """
    lines = text.splitlines()
    if not 1 <= line <= len(lines):
        return []
    number = f"{line:>3}"
    shown = lines[line - 1].replace("\t", " ")
    begin = max(0, column - 70)  # A statement in one long line: show the part around the place.
    shown = shown[begin : begin + 110]
    return [f"{number} | {shown}".rstrip(), f"{' ' * len(number)} | {' ' * (column - 1 - begin)}^"]
