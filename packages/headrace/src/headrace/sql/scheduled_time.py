"""SCHEDULED_TIME() in the statements of a task: the time that a run stands for, which in a backfill is long past."""

from __future__ import annotations

from datetime import datetime, timezone

from headrace.errors import SyntaxFault
from headrace.sql.tokens import position_at, scan

_NAME = "SCHEDULED_TIME"


def with_scheduled_time(text: str, tick: datetime) -> str:
    """Put the time for every SCHEDULED_TIME(), as a literal that means the same instant in every time zone.

    >>> tick = datetime(2025, 3, 30, 1, 0, tzinfo=timezone.utc)
    >>> with_scheduled_time("SELECT 'SCHEDULED_TIME()', scheduled_time( ) - INTERVAL 1 HOUR", tick)
    "SELECT 'SCHEDULED_TIME()', TIMESTAMP '2025-03-30 01:00:00+00:00' - INTERVAL 1 HOUR"
    """
    literal = f"TIMESTAMP '{tick.astimezone(timezone.utc).isoformat(sep=' ')}'"
    tokens = scan(text)
    pieces: list[str] = []
    done = 0
    for index, token in enumerate(tokens):
        following = [each.text for each in tokens[index + 1 : index + 3]]
        # A function of a schema, `s.scheduled_time()`, is somebody else's.
        if token.upper != _NAME or following[:1] != ["("] or (index and tokens[index - 1].text == "."):
            continue
        if following[1:] != [")"]:
            raise SyntaxFault(
                f"{_NAME} takes no arguments.",
                hint=f"Write {_NAME}().",
                position=position_at(text, tokens[min(index + 2, len(tokens) - 1)].start),
            )
        pieces += [text[done : token.start], literal]
        done = tokens[index + 2].end
    return "".join(pieces) + text[done:]
