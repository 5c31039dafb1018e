"""`headrace shell`: statements typed by a person."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from headrace.cli.faults import FAILED, OK, show_error
from headrace.cli.lakes import LakeOption, at_work, opened
from headrace.cli.output import Format, write_result
from headrace.errors import HeadraceError, SyntaxFault

if TYPE_CHECKING:
    from headrace.client import RemoteLake
    from headrace.engine import Lake

HELP = r"""Statements end with ; and may take several lines. Ctrl-C drops the line, Ctrl-D leaves.
  \d           the tables of the current schema
  \d NAME      a table's columns
  \dt          the dynamic tables
  \timing      show how long each statement takes, or stop it
  \x           one block a row: auto, on, off
  \?           this help
  \q           leave"""

WORDS = {"help": "\\?", "exit": "\\q", "quit": "\\q"}
"""What people type who do not know the commands yet."""

KEYWORDS = (
    *("ADD", "ALTER", "AND", "AS", "ASC", "BETWEEN", "BY", "CASE", "CAST", "COLUMN", "COMMENT", "COUNT", "CREATE"),
    *("DELETE", "DESC", "DESCRIBE", "DISTINCT", "DROP", "DYNAMIC", "ELSE", "END", "EXISTS", "EXPLAIN", "EXTENDED"),
    *("FROM", "FULL", "GROUP", "HAVING", "HISTORY", "IF", "IN", "INCREMENTAL", "INNER", "INSERT", "INTERVAL", "INTO"),
    *("IS", "JOIN", "LEFT", "LIKE", "LIMIT", "MATCHED", "MERGE", "MINUTE", "NOT", "NULL", "ON", "OR", "ORDER"),
    *("PARTITIONED", "PROPERTIES", "REFRESH", "REFRESH_MODE", "REPLACE", "RESTORE", "RESUME", "SCHEMA", "SELECT"),
    *("SET", "SHOW", "SUSPEND", "TABLE", "TABLES", "THEN", "TIMESTAMP", "TO", "UNION", "UPDATE", "USE", "USING"),
    *("VALUES", "VCLUSTER", "VERIFY", "VERSION", "VIEW", "WHEN", "WHERE", "WITH"),
)


_SECRET = re.compile(r"\bPASSWORD\b", re.IGNORECASE)
"""An entry with one is not written to the history."""


def shell(lake: LakeOption = None) -> None:
    """Type SQL and see results. Reads statements from stdin when that is not a terminal."""
    import typer

    with opened(lake) as open_lake:
        code = Shell(open_lake, _typed(open_lake) if sys.stdin.isatty() else piped(sys.stdin)).run()
    raise typer.Exit(code)


class Shell:
    """Reads entries, runs them, shows what they give. A failed statement ends the shell only when nobody is there."""

    def __init__(
        self,
        lake: Lake | RemoteLake,
        entries: Iterable[str],
        *,
        out: TextIO | None = None,
        err: TextIO | None = None,
    ) -> None:
        self._lake = lake
        self._entries = entries
        self._out = out or sys.stdout
        self._err = err or sys.stderr
        self._timing = False
        self._vertical: bool | None = None
        self._interactive = sys.stdin.isatty()

    def run(self) -> int:
        for entry in self._entries:
            text = WORDS.get(entry.strip().rstrip("; ").lower(), entry.strip())
            if text.startswith("\\"):
                if not self._command(text):
                    break
            elif text and not self._statements(entry) and not self._interactive:
                return FAILED
        return OK

    def _command(self, text: str) -> bool:
        """Run a \\ command; False means leave."""
        word, _, rest = text.rstrip("; ").partition(" ")
        rest = rest.strip()
        if word == "\\q":
            return False
        if word == "\\timing":
            self._timing = not self._timing
            self._say(f"Timing is {'on' if self._timing else 'off'}.")
        elif word == "\\x":
            self._vertical = {None: True, True: False, False: None}[self._vertical]
            self._say(f"One block a row: {'auto' if self._vertical is None else 'on' if self._vertical else 'off'}.")
        elif word == "\\d":
            self._statements(f"DESC TABLE {rest}" if rest else "SHOW TABLES")
        elif word == "\\dt":
            self._statements("SELECT schema_name, name, refresh_mode, state, incremental FROM (SHOW DYNAMIC TABLES)")
        elif word in ("\\?", "\\h", "\\help"):
            self._say(HELP)
        else:
            self._say(f"There is no command {word}. \\? shows those there are.")
        return True

    def _statements(self, text: str) -> bool:
        started = time.monotonic()
        try:
            results = self._lake.statements(text)
            while True:
                with at_work("Running"):
                    result = next(results, None)
                if result is None:
                    break
                write_result(result, Format.table, self._out, vertical=self._vertical)
                if self._timing:
                    self._say(f"Time: {time.monotonic() - started:.3f} s")
                started = time.monotonic()
        except HeadraceError as error:
            self._out.flush()
            show_error(error, text, self._err)
            return False
        except KeyboardInterrupt:
            if not self._interactive:
                raise
            self._lake.cancel()
            self._say("Cancelled.")
        return True

    def _say(self, text: str) -> None:
        self._out.write(f"{text}\n")
        self._out.flush()


def is_complete(text: str) -> bool:
    """Whether Enter should run the text: a \\ command, nothing at all, or statements up to a last `;`.

    >>> [is_complete(text) for text in ("select 1", "select 1;", "select ';", "\\\\d", "")]
    [False, True, False, True, True]
    """
    from headrace.sql.split import is_ended
    from headrace.sql.tokens import scan

    stripped = text.strip()
    if not stripped or stripped.startswith("\\") or stripped.lower() in WORDS:
        return True
    try:
        tokens = scan(text)
    except SyntaxFault:  # An open string or comment goes on in the next line.
        return False
    return not tokens or is_ended(tokens)


def completions(typed: str, names: Iterable[str]) -> list[str]:
    """What a word may become: names of the lake first, then keywords, in the case they are being typed in.

    >>> completions("s", ["sales", "public"])
    ['sales', 'schema', 'select', 'set', 'show', 'suspend']
    >>> completions("SEL", [])
    ['SELECT']
    """
    if not typed or not (typed[0].isalnum() or typed[0] == "_"):
        return []
    keywords = (word.lower() if typed.islower() else word for word in KEYWORDS)
    begin = typed.lower()
    return [word for word in (*names, *keywords) if word.lower().startswith(begin) and word.lower() != begin]


def piped(lines: Iterable[str]) -> Iterator[str]:
    """Entries out of the lines of a stream; what is left at its end counts as complete."""
    entry = ""
    for line in lines:
        entry += line
        if is_complete(entry):
            yield entry
            entry = ""
    if entry.strip():
        yield entry


def _typed(lake: Lake | RemoteLake) -> Iterator[str]:
    """Entries typed at a prompt, with history, completion and several lines."""
    prompt = make_prompt(lake)
    sys.stdout.write(f"{greeting(lake)}\nStatements end with ; and \\? shows help.\n")
    while True:
        try:
            yield prompt()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return


def greeting(lake: Lake | RemoteLake) -> str:
    """Which lake statements go to, as whom, and where they begin."""
    from headrace.client import RemoteLake

    if isinstance(lake, RemoteLake):
        return f"Headrace at {lake.url}, as {lake.acting}. The schema is {lake.schema}."
    settings = lake.settings
    schema = f"{settings.workspace}.{settings.schema_name}"
    return f"Headrace with the lake {settings.path}, open in this process, as its owner. The schema is {schema}."


def history_file(lake: Lake | RemoteLake) -> Path:
    """Where entries are kept: with the lake when it is open here, else with the user."""
    from headrace.client import RemoteLake

    if not isinstance(lake, RemoteLake):
        return lake.settings.path / "logs" / "shell_history"
    folder = Path.home() / ".local" / "state" / "headrace"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder / "shell_history"


def make_prompt(lake: Lake | RemoteLake, **terminal: Any) -> Callable[[], str]:
    """A function that asks for one entry. `terminal` replaces prompt_toolkit's input and output, for tests."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    known: list[str] = []

    class Remembered(FileHistory):
        def store_string(self, string: str) -> None:
            if not _SECRET.search(string):
                super().store_string(string)

    class Words(Completer):
        def get_completions(self, document: Document, complete_event: Any) -> Iterator[Completion]:
            typed = document.get_word_before_cursor(WORD=False)
            for word in completions(typed, known):
                yield Completion(word, start_position=-len(typed))

    keys = KeyBindings()

    def _complete_now() -> bool:
        return is_complete(session.default_buffer.text)

    @keys.add("enter", filter=Condition(_complete_now))
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    session: PromptSession[str] = PromptSession(
        "headrace> ",
        multiline=True,
        prompt_continuation=lambda width, number, soft: "." * (width - 2) + "> ",
        history=Remembered(str(history_file(lake))),
        completer=Words(),
        complete_while_typing=False,
        key_bindings=keys,
        **terminal,
    )

    def ask() -> str:
        try:
            known[:] = lake.names()
        except HeadraceError:
            known[:] = []
        return session.prompt()

    return ask
