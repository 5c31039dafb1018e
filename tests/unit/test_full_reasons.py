"""The documented reasons for FULL refreshes are those that the code can give, and all of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import headrace

PACKAGE = Path(headrace.__file__).parent
DOCS = Path(__file__).parents[2] / "docs"
GAP = "\0"
"""Stands for what is filled in."""


def texts(node: ast.expr, known: dict[str, list[str]]) -> list[str]:
    """What an expression can be, as far as it is written out; `known` are the module's own dictionaries."""
    match node:
        case ast.Constant(value=str() as text):
            return [text]
        case ast.JoinedStr(values=parts):
            return ["".join(part.value if isinstance(part, ast.Constant) else GAP for part in parts)]
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="get"), args=[_, default]):
            return known[name] + texts(default, known)
        case ast.Subscript(value=ast.Name(id=name)):
            return known[name]
    raise AssertionError(f"line {node.lineno}: a reason that is not written out")


def constants(tree: ast.Module) -> dict[str, str]:
    return {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def dictionaries(tree: ast.Module) -> dict[str, list[str]]:
    names = constants(tree)
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and isinstance(node.targets[0], ast.Name):
            values = node.value.values
            found[node.targets[0].id] = [
                names[each.id] if isinstance(each, ast.Name) else each.value
                for each in values
                if isinstance(each, ast.Name | ast.Constant)
            ]
    return found


def in_code() -> Iterator[str]:
    for file in sorted((PACKAGE / "plan").glob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        known, names = dictionaries(tree), constants(tree)
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id="NoRule"), args=[ast.Name(id=name)]):
                    yield from [names[name]] if name in names else ()
                case ast.Call(func=ast.Name(id="NoRule"), args=[reason]):
                    yield from texts(reason, known)
                case ast.Return(value=ast.Tuple(elts=[ast.Constant(value=None), ast.JoinedStr() as reason])):
                    yield from texts(reason, known)
    maintainable = ast.parse((PACKAGE / "ivm" / "maintainable.py").read_text("utf-8"))
    for node in ast.walk(maintainable):
        if isinstance(node, ast.JoinedStr):
            yield from texts(node, {})


def documented() -> set[str]:
    page = (DOCS / "operators" / "README.md").read_text("utf-8")
    table = page.split("| in the query | reason |")[1].split("\n\n")[0]
    return {reason for line in table.splitlines()[2:] for reason in re.findall("`([^`]+)`", line.split(" | ")[-1])}


def pattern(reason: str) -> re.Pattern[str]:
    return re.compile(".+".join(map(re.escape, reason.split(GAP))))


def test_every_reason_is_documented() -> None:
    page = documented()
    missing = [reason for reason in in_code() if not any(pattern(reason).fullmatch(each) for each in page)]
    assert missing == []


def test_every_documented_reason_can_be_given() -> None:
    patterns = [pattern(reason) for reason in in_code() if reason.strip(GAP)]
    stale = [reason for reason in documented() if not any(each.fullmatch(reason) for each in patterns)]
    assert stale == []


def test_reasons_of_single_refreshes_are_documented() -> None:
    """Those of the planner, and of computations that cannot be certain."""
    page = (DOCS / "history.md").read_text("utf-8").replace("…", GAP)
    missing = []
    for file in (PACKAGE / "refresh" / "planner.py", *sorted((PACKAGE / "ivm").rglob("*.py"))):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("full", "Uncertain"):
                reason = node.args[0]
                if isinstance(reason, ast.Constant | ast.JoinedStr):
                    fixed = max(texts(reason, {})[0].split(GAP), key=len).strip()
                    missing += [fixed] if fixed not in page else []
    assert missing == []
