"""The shell: its loop on the test process's lake, its prompt on a made-up terminal."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from headrace import Lake
from headrace.cli.commands.shell import Shell, make_prompt, piped


def converse(lake: Lake, text: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code = Shell(lake, piped(io.StringIO(text)), out=out, err=err).run()
    return code, out.getvalue(), err.getvalue()


def test_a_conversation(lake: Lake) -> None:
    code, out, err = converse(
        lake,
        "CREATE TABLE pets (name STRING,\n  legs INT);\n\\timing\nSELECT 1 AS one;\n\\timing\n\\d\n\\d pets\n\\x\n"
        "SELECT 2 AS two;\n\\nonsense\n\\q\nSELECT 'never reached';\n",
    )
    assert (code, err) == (0, "")
    assert "Timing is on." in out
    assert "Time: " in out
    assert "pets" in out
    assert "legs" in out
    assert "-[ row 1 ]" in out
    assert "There is no command \\nonsense." in out
    assert "never reached" not in out


def test_an_error_has_a_caret_and_no_trace_and_ends_a_script(lake: Lake) -> None:
    code, out, err = converse(lake, "REFRESH DYNAMIC tabel t;\nSELECT 'never reached';\n")
    assert code == 1
    assert out == ""
    assert "  1 | REFRESH DYNAMIC tabel t;\n    |                 ^\n" in err
    assert "Traceback" not in err


def test_entries_out_of_a_stream() -> None:
    lines = ["select ';\n", "';\n", "\\d\n", "-- only a comment\n", "select 2"]
    assert [entry.strip() for entry in piped(lines)] == ["select ';\n';", "\\d", "-- only a comment", "select 2"]


@pytest.fixture
def stub(tmp_path: Path) -> Any:
    (tmp_path / "logs").mkdir()
    return SimpleNamespace(settings=SimpleNamespace(path=tmp_path), names=lambda: ["customers", "public"])


@pytest.fixture
def keyboard() -> Iterator[Any]:
    with create_pipe_input() as pipe:
        yield pipe


def test_enter_goes_on_until_the_semicolon(stub: Any, keyboard: Any) -> None:
    keyboard.send_text("select 1\rfrom t;\r")
    assert make_prompt(stub, input=keyboard, output=DummyOutput())() == "select 1\nfrom t;"


def test_control_c_drops_the_line_and_control_d_leaves(stub: Any, keyboard: Any) -> None:
    ask = make_prompt(stub, input=keyboard, output=DummyOutput())
    keyboard.send_text("select\x03")
    with pytest.raises(KeyboardInterrupt):
        ask()
    keyboard.send_text("\x04")
    with pytest.raises(EOFError):
        ask()


def test_history_is_kept_in_the_lake_folder(stub: Any, keyboard: Any) -> None:
    keyboard.send_text("select 1;\r")
    make_prompt(stub, input=keyboard, output=DummyOutput())()
    assert "select 1;" in (stub.settings.path / "logs" / "shell_history").read_text()
