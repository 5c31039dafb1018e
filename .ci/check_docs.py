"""Check that every link in the documents leads somewhere: to a file, and to a heading in it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)


def documents() -> Iterator[Path]:
    yield from sorted(ROOT.glob("*.md"))
    for folder in ("docs", "examples", "benchmarks", "changes", "packages"):
        yield from sorted(ROOT.glob(f"{folder}/**/*.md"))


def headings(text: str) -> set[str]:
    """The anchors that headings get: lower case, no punctuation, spaces as hyphens."""
    titles = re.findall(r"^#+\s+(.+?)\s*#*$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(document: Path) -> Iterator[str]:
    text = FENCE.sub("", document.read_text("utf-8"))
    for plain, image in LINK.findall(text):
        target = plain or image
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        file = (document.parent / path).resolve() if path else document
        if not file.exists():
            yield f"{document.relative_to(ROOT)}: {target} does not exist"
        elif anchor and file.suffix == ".md" and anchor not in headings(file.read_text("utf-8")):
            yield f"{document.relative_to(ROOT)}: {target} has no such heading"


def main() -> int:
    found = list(documents())
    broken = [problem for document in found for problem in broken_links(document)]
    for problem in broken:
        print(problem)
    print(f"{len(found)} documents, {len(broken)} broken links")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
