"""Telling a watching person what is going on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace import running


@dataclass(frozen=True)
class ProgressEvent:
    text: str
    fraction: float | None = None


class Progress:
    """Hands events to whoever listens; without listeners it costs nothing."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[ProgressEvent], None]] = []

    def listen(self, listener: Callable[[ProgressEvent], None]) -> None:
        self._listeners.append(listener)

    def tell(self, text: str, fraction: float | None = None) -> None:
        running.tell(text, fraction)
        for listener in self._listeners:
            listener(ProgressEvent(text, fraction))
