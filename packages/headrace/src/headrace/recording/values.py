"""Python values in JSON: what JSON has no word for is an object with one field that names its type.

Values are data only. A value of any other type (a function, a class, an object of this program) does not travel.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Protocol

from headrace.errors import NotAllowed, UserError
from headrace.recording.rows import Row
from headrace.recording.types import type_text

_MAX_DEPTH = 50
_MAX_DIGITS = 100
"""Of a whole or decimal number; Spark's own limit is 38."""

Decoder = Callable[[Any], Any]
"""The node at a place."""


class IsNode(Protocol):
    def parts(self) -> Iterator[Any]: ...


class DataType:
    """A type by its SQL text, where PySpark wants a type and not a text."""

    def __init__(self, text: str) -> None:
        self.text = text


WRITTEN_BY = "Plans are written by headrace's own client."


def bad_plan(why: str) -> UserError:
    return UserError(f"This is no plan of a DataFrame: {why}.", hint=WRITTEN_BY)


def is_node(value: Any) -> bool:
    # By its shape, not its class: `tree` is made of this module.
    return hasattr(type(value), "parts") and hasattr(type(value), "kind")


def nodes_in(value: Any) -> Iterator[Any]:
    """The nodes inside a value."""
    if is_node(value):
        yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from nodes_in(key)
            yield from nodes_in(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from nodes_in(each)


def to_plain(value: Any, place: Callable[[Any], int]) -> Any:
    """A value as JSON; `place` tells where a node stands."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if is_node(value):
        return {"node": place(value)}
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": str(float(value))}
    if isinstance(value, Row):
        return {"row": [list(value.__fields__), [to_plain(each, place) for each in value]]}
    if isinstance(value, tuple):
        return {"tuple": [to_plain(each, place) for each in value]}
    if isinstance(value, list):
        return [to_plain(each, place) for each in value]
    if isinstance(value, Mapping):
        return {"dict": [[to_plain(key, place), to_plain(each, place)] for key, each in value.items()]}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, datetime):
        return {"timestamp": value.isoformat()}
    if isinstance(value, date):
        return {"date": value.isoformat()}
    if isinstance(value, time):
        return {"time": value.isoformat()}
    if isinstance(value, timedelta):
        return {"duration": [value.days, value.seconds, value.microseconds]}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": base64.b64encode(bytes(value)).decode("ascii")}
    if isinstance(value, DataType):
        return {"type": value.text}
    raise TypeError(f"{value!r} is no value of a plan")


def recorded(value: Any) -> Any:
    """A value that somebody gave to a method, as a plan holds it: columns and DataFrames become their nodes."""
    if value is None or isinstance(value, (bool, str, bytes, Decimal, DataType)) or is_node(value):
        return value
    if isinstance(value, Row):
        return Row.of(value.__fields__, (recorded(each) for each in value))
    node = getattr(type(value), "_recorded_node", None)
    if node is not None:
        return node(value)
    if isinstance(value, Enum):
        return recorded(value.value)
    if isinstance(value, (int, float, time, timedelta, bytearray)):
        return value
    if isinstance(value, datetime):
        # PySpark takes a time without a zone as one of this machine's; the server may stand elsewhere.
        return value if value.tzinfo is not None else value.astimezone()
    if isinstance(value, date):
        return value
    origin = type(value).__module__.partition(".")[0]
    if origin == "pyspark":
        return _of_pyspark(value)
    if isinstance(value, Mapping):
        return {recorded(key): recorded(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return tuple(recorded(each) for each in value)
    if isinstance(value, (list, set, frozenset)):
        return [recorded(each) for each in value]
    if origin == "numpy" and hasattr(value, "tolist"):
        return recorded(value.tolist())
    if origin == "headrace" and type(value).__name__ == "DataFrame":
        raise NotAllowed(
            "A DataFrame of a lake in this process cannot be used in one of a server.",
            hint="Write it to a table, or give create_dataframe(df.to_arrow()).",
        )
    raise NotAllowed(
        f"A value of the type {type(value).__name__} cannot be sent to a server.",
        hint="Columns of headrace.functions, numbers, texts, times, lists and dicts can.",
    )


def _of_pyspark(value: Any) -> Any:
    names: tuple[str, ...] | None = getattr(value, "__fields__", None)
    if names is not None and isinstance(value, tuple):
        return Row.of(names, (recorded(each) for each in value))
    if hasattr(value, "jsonValue"):
        return DataType(type_text(value.jsonValue()))
    raise NotAllowed(
        f"This {type(value).__name__} was made by PySpark itself, which is not what a session over a URL works with.",
        hint="Write `from headrace import functions as F` instead of `from pyspark.sql import functions as F`, and "
        "`from headrace.session import Window`. Where a lake is open in the same process, import them from "
        "headrace.recording instead.",
    )


def from_plain(value: Any, node: Decoder, depth: int = 0) -> Any:
    """The value that JSON describes; what describes none is refused."""
    if depth > _MAX_DEPTH:
        raise bad_plan(f"a value is nested more than {_MAX_DEPTH} deep")
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, int):
        if abs(value) >= 10**_MAX_DIGITS:
            raise bad_plan(f"a number has more than {_MAX_DIGITS} digits")
        return value
    if isinstance(value, list):
        return [from_plain(each, node, depth + 1) for each in value]
    if not isinstance(value, dict) or len(value) != 1:
        raise bad_plan("a value that is an object must have one field, which tells its type")
    ((kind, content),) = value.items()
    if kind == "node":
        return node(content)
    if kind == "tuple" and isinstance(content, list):
        return tuple(from_plain(each, node, depth + 1) for each in content)
    if kind == "dict" and isinstance(content, list):
        return dict(_pair(each, node, depth + 1) for each in content)
    if kind == "row":
        return _row(content, node, depth + 1)
    if kind == "duration" and _is_duration(content):
        return timedelta(*content)
    if isinstance(content, str) and kind in _TEXTS:
        try:
            return _TEXTS[kind](whole_text(content))
        except (ValueError, OverflowError, InvalidOperation, binascii.Error):
            pass
    raise bad_plan(f"{str(kind)[:50]!r} with this content is no value")


def whole_text(text: str) -> str:
    """JSON can write half a character (a lone surrogate), which no other place can hold."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise bad_plan("a text has half a character") from None
    return text


def _pair(pair: Any, node: Decoder, depth: int) -> tuple[Any, Any]:
    if not isinstance(pair, list) or len(pair) != 2:
        raise bad_plan("a dict is a list of pairs")
    key, value = (from_plain(each, node, depth) for each in pair)
    if not isinstance(key, (str, int, float, bool, Decimal, date, time, bytes, type(None))):
        raise bad_plan("the key of a dict must be a plain value")
    return key, value


def _row(content: Any, node: Decoder, depth: int) -> Row:
    if not (isinstance(content, list) and len(content) == 2 and all(isinstance(each, list) for each in content)):
        raise bad_plan("a row has a list of names and a list of values")
    names, values = content
    if len(names) != len(values) or not all(isinstance(name, str) for name in names):
        raise bad_plan("a row has a name for each value")
    return Row.of(map(whole_text, names), (from_plain(each, node, depth) for each in values))


def _is_duration(content: Any) -> bool:
    return (
        isinstance(content, list)
        and len(content) == 3
        and all(type(each) is int and abs(each) < 10**8 for each in content)
    )


def _float(text: str) -> float:
    if text not in ("nan", "inf", "-inf"):
        raise ValueError
    return float(text)


def _decimal(text: str) -> Decimal:
    if len(text) > _MAX_DIGITS:
        raise ValueError
    found = Decimal(text)
    if found.is_finite() and abs(found.adjusted()) > _MAX_DIGITS:
        raise ValueError  # 1e999999999 is short to write, and long in memory.
    return found


def _type(text: str) -> DataType:
    if not text or len(text) > 100_000:
        raise ValueError
    return DataType(text)


_TEXTS: dict[str, Callable[[str], Any]] = {
    "float": _float,
    "decimal": _decimal,
    "timestamp": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "type": _type,
}
