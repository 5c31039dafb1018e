"""The server's log: one line for each event, on the process' error output.

A server in the background has that output in `<lake>/logs/server.log`. What Spark has to say is in a file of its own.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator

_FORM = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class OneLine(logging.Formatter):
    """A name that somebody sent cannot begin a line of its own, nor move the cursor of a terminal. The trace of an
    unexpected error does follow in further lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return printable(super().formatMessage(record))


def printable(text: str) -> str:
    r"""The text with escapes for what does not print.

    >>> printable("é\n\x1b[2J")
    'é\\n\\x1b[2J'
    """
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


@contextlib.contextmanager
def to_stderr() -> Iterator[None]:
    """Meanwhile, write what Headrace tells and what others warn of to the error output."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine(_FORM))
    root, ours = logging.getLogger(), logging.getLogger("headrace")
    before = ours.level
    root.addHandler(handler)
    ours.setLevel(logging.INFO)
    try:
        yield
    finally:
        ours.setLevel(before)
        root.removeHandler(handler)
