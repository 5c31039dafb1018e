"""What can be done with values of a Spark type, given as DDL text."""

from __future__ import annotations

import re

_INCOMPARABLE = re.compile(r"\b(MAP<|VARIANT|GEOMETRY|GEOGRAPHY)", re.I)
_UNSTORABLE = re.compile(r"\b(INTERVAL|VOID|TIME\()", re.I)


def comparable(type_text: str) -> bool:
    """Whether values of the type have a hash and an equality.

    >>> comparable("array<int>"), comparable("MAP<INT, INT>")
    (True, False)
    """
    return _INCOMPARABLE.search(type_text) is None


def storable(type_text: str) -> bool:
    """Whether a table can hold values of the type, if only in a hidden column.

    >>> storable("DATE"), storable("INTERVAL DAY")
    (True, False)
    """
    return _UNSTORABLE.search(type_text) is None
