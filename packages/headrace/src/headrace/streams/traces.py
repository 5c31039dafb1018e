"""A file in the lake for each stream, with the name of its view and the number of its last move.

The offsets are in the operations database alone. The traces tell whether that database is the one that made the moves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headrace.catalog.records import TableStream


@dataclass(frozen=True)
class Trace:
    stream_id: str
    view: str
    last_reading: int


class Traces:
    def __init__(self, folder: Path, home: str) -> None:
        self._folder = folder
        self._home = home

    def leave(self, streams: Iterable[TableStream]) -> None:
        self._folder.mkdir(exist_ok=True)
        for stream in streams:
            text = f"{stream.table_name.spark(self._home)}\n{stream.last_reading}\n"
            (self._folder / stream.id).write_text(text, encoding="utf-8")

    def remove(self, stream_id: str) -> None:
        (self._folder / stream_id).unlink(missing_ok=True)

    def all(self) -> list[Trace]:
        """Those of all streams that this lake ever knew and did not drop."""
        found = []
        for path in sorted(self._folder.glob("*")):
            if re.fullmatch(r"[0-9a-f]{32}", path.name):
                view, _, number = path.read_text(encoding="utf-8").strip().partition("\n")
                found.append(Trace(path.name, view, int(number) if number.isdigit() else 0))
        return found
