"""Long lists page by page: each page is read when it is asked for, so memory holds one, however long the list is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Select, or_

from headrace.catalog.models import moment

Given = TypeVar("Given")
Place = tuple[datetime, str]


def newest_first(
    wanted: Select[Any],
    columns: tuple[Any, Any],
    read: Callable[[Select[Any]], list[Given]],
    place: Callable[[Given], Place],
    size: int,
) -> Iterator[list[Given]]:
    """What `wanted` finds, by the columns for time and id. At least one page, which may be empty. What is written
    meanwhile is in later pages, where it belongs there."""
    at, name = columns
    ordered = wanted.order_by(at.desc(), name.desc()).limit(size)
    page = read(ordered)
    yield page
    while len(page) == size:
        last, last_name = place(page[-1])
        # The first condition is what an index can begin with.
        page = read(ordered.where(at <= moment(last), or_(at < moment(last), name < last_name)))
        yield page
