"""Every error that we word ourselves says what to do next."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import headrace
from headrace.errors import Bug, Cancelled, HeadraceError

ROOT = Path(headrace.__file__).parent


def kinds() -> dict[str, type[HeadraceError]]:
    """All classes of errors, by their names."""
    found: dict[str, type[HeadraceError]] = {}
    waiting: list[type[HeadraceError]] = [HeadraceError]
    while waiting:
        kind = waiting.pop()
        found[kind.__name__] = kind
        waiting += kind.__subclasses__()
    return found


def needs_one(kind: type[HeadraceError], call: ast.Call) -> bool:
    """Not where the class brings a hint, nor where somebody wanted it so, nor where the words are another program's."""
    if kind.usual_hint is not None or issubclass(kind, Cancelled):
        return False
    if any(keyword.arg in ("hint", None) for keyword in call.keywords):
        return False
    match call.args:
        case [ast.JoinedStr(values=[ast.Constant(), *_]), *_]:
            return True
        case [ast.Constant(), *_]:
            return True
        case _:
            return False


def without_hint(text: str, errors: dict[str, type[HeadraceError]]) -> Iterator[int]:
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in errors and needs_one(errors[name], node):
            yield node.lineno


def test_every_error_says_what_to_do_next() -> None:
    for module in ("loading.spool", "loading.commits", "loading.checked", "server.problems"):
        import_module(f"headrace.{module}")  # They have errors of their own.
    errors = kinds()
    defined = {
        node.name
        for file in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and any(getattr(base, "id", "") in errors for base in node.bases)
    }
    assert defined <= set(errors), "import the module of a new kind of error above"
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in sorted(ROOT.rglob("*.py"))
        for line in without_hint(file.read_text(encoding="utf-8"), errors)
    ]
    assert found == []


def test_what_is_found() -> None:
    errors = kinds()

    def lines(text: str) -> list[int]:
        return list(without_hint(text, errors))

    assert lines("raise NotFound('There is no table.')\nraise errors.NotFound(f'No {name}.', position=p)") == [1, 2]
    assert lines("raise NotFound('There is no table.', hint='Make one.')") == []
    assert lines("raise QueryFailed(message)\nraise QueryFailed(f'{message} [X]')\nraise Cancelled('No.')") == []
    assert lines("raise Bug('Oops.')\nraise ValueError('no')") == []


def test_a_usual_hint() -> None:
    assert Bug("Oops.").hint == Bug.usual_hint
    assert Bug("Oops.", hint="Look at the log.").hint == "Look at the log."
    assert HeadraceError("Oops.").hint is None
