"""One value from outside as a value of a column's type, or the reason why it is none.

The rule: a value is taken when it can mean only one thing and nothing of it is lost. A number may also stand in a text,
as this server itself writes large ones. What is a matter of taste (which unit a number of seconds has, how to round,
whether 1 is true) is refused.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any
from zoneinfo import ZoneInfo

from headrace.loading.checked import shown
from headrace.loading.types import WHOLE, Array, Map, Scalar, Struct, Type, sql_name

Reader = Callable[[Any], Any]
"""Takes a value of JSON, or a text, and gives what Arrow keeps. Raises Bad."""

FIRST_MICROSECOND = -62_135_596_800_000_000
LAST_MICROSECOND = 253_402_300_799_999_999
"""The years 1 to 9999, counted from 1970 in UTC."""

_LONGEST_NUMBER = 1000
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_EXACT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_DAY = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_MOMENT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2})(?::([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?)?(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_EPOCH = date(1970, 1, 1).toordinal()
_ALL_DIGITS = Context(prec=100)


class Number(str):
    """The digits of a number in JSON: no reader of ours loses any of them."""

    __slots__ = ()


class Bad(Exception):
    """Why a value is none of its type, and where in the column's value that is."""

    def __init__(self, kind: Type, value: Any, reason: str, where: str = "") -> None:
        super().__init__(reason)
        self.kind, self.value, self.reason, self.where = kind, value, reason, where

    def inside(self, place: str) -> Bad:
        return Bad(self.kind, self.value, self.reason, f"{place}{self.where}")

    def told(self, column: str) -> str:
        """For people: the column, the value and the type."""
        return f"Column {column}{self.where}: {shown(self.value)} is no {sql_name(self.kind)}: {self.reason}."


def reader(kind: Type, zone: ZoneInfo) -> Reader:
    """For values of JSON; NULL is for the caller. `zone` is that of a TIMESTAMP that names none."""
    if isinstance(kind, Scalar):
        return _scalar(kind, zone)
    if isinstance(kind, Array):
        return _array(kind, zone)
    if isinstance(kind, Map):
        return _map(kind, zone)
    if isinstance(kind, Struct):
        return _struct(kind, zone)

    def refuse(value: Any) -> Any:
        raise Bad(kind, value, "values of this type can only be written with SQL")

    return refuse


def text_reader(kind: Type, zone: ZoneInfo) -> Reader:
    """For texts, as CSV has them. What has parts is written in JSON."""
    if isinstance(kind, Scalar):
        return _spelt_boolean(kind) if kind.kind == "boolean" else _scalar(kind, zone)
    read = reader(kind, zone)

    def parse(text: str) -> Any:
        try:
            value = decoded(text)
        except ValueError as error:
            raise Bad(kind, text, f"it is no valid JSON ({error})") from None
        if value is None:
            raise Bad(kind, text, "it is null; leave the field empty for NULL")
        return read(value)

    return parse


def decoded(text: str) -> Any:
    """JSON, with numbers as their digits. Raises ValueError with a reason in few words."""
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at character {error.pos + 1}") from None


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"the key {shown(name)} is given twice")
            seen.add(name)
    return found


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON; write it as a text")


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_int=Number, parse_float=Number, parse_constant=_constant)


# ---------------------------------------------------------------------- types without parts


def _scalar(kind: Scalar, zone: ZoneInfo) -> Reader:
    if kind.kind in WHOLE:
        return _whole(kind)
    if kind.kind == "timestamp":
        return lambda value: _moment(kind, value, zone)
    if kind.kind == "timestamp_ntz":
        return lambda value: _moment(kind, value, None)
    readers: dict[str, Callable[[Scalar], Reader]] = {
        "boolean": _boolean, "float": _floating, "double": _floating, "decimal": _decimal, "string": _text,
        "binary": _bytes, "date": _day,
    }  # fmt: skip
    return readers[kind.kind](kind)


def _boolean(kind: Scalar) -> Reader:
    def read(value: Any) -> bool:
        if value is True or value is False:
            return bool(value)
        raise Bad(kind, value, "it must be true or false")

    return read


def _spelt_boolean(kind: Scalar) -> Reader:
    def read(text: str) -> bool:
        word = text.lower()
        if word not in ("true", "false"):
            raise Bad(kind, text, "it must be true or false")
        return word == "true"

    return read


def _digits(kind: Scalar, value: Any) -> str:
    """The text of a number."""
    if not isinstance(value, str):
        raise Bad(kind, value, "it must be a number")
    if len(value) > _LONGEST_NUMBER:
        raise Bad(kind, value, f"it has more than {_LONGEST_NUMBER} characters")
    return value


def _whole(kind: Scalar) -> Reader:
    bits = WHOLE[kind.kind]
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    beyond = f"it must be between {low} and {high}"

    def read(value: Any) -> int:
        text = _digits(kind, value)
        if _WHOLE.fullmatch(text):
            if len(text) > 40:
                raise Bad(kind, value, beyond)
            number = int(text)
        elif _NUMBER.fullmatch(text):
            number = from_exact(text, value)
        else:
            raise Bad(kind, value, "it must be a whole number")
        if not low <= number <= high:
            raise Bad(kind, value, beyond)
        return number

    def from_exact(text: str, value: Any) -> int:
        """1.0 and 1e3 are whole."""
        exact = _exact(text)
        if exact is None or exact.adjusted() > 40:
            raise Bad(kind, value, beyond)
        if exact.adjusted() < -1000 or exact != exact.to_integral_value():
            raise Bad(kind, value, "it must be a whole number")
        return int(exact)

    return read


def _exact(text: str) -> Decimal | None:
    """None for an exponent that is beyond everything."""
    try:
        found = Decimal(text)
    except ArithmeticError:
        return None
    return found if found.is_finite() else None


def _floating(kind: Scalar) -> Reader:
    def read(value: Any) -> float:
        text = _digits(kind, value)
        if not _NUMBER.fullmatch(text):
            if text in _SPECIAL:
                return _SPECIAL[text]
            raise Bad(kind, value, "it must be a number")
        number = float(text)
        if math.isinf(number) or (kind.kind == "float" and not _fits_single(number)):
            raise Bad(kind, value, "it is too large")
        return number

    return read


def _fits_single(number: float) -> bool:
    try:
        return not math.isinf(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return False


def _decimal(kind: Scalar) -> Reader:
    before, unit = kind.precision - kind.scale, Decimal(1).scaleb(-kind.scale)

    def read(value: Any) -> Decimal:
        text = _digits(kind, value)
        if not _EXACT.fullmatch(text):
            raise Bad(kind, value, "it must be a number")
        exact = _exact(text)
        if exact is None:
            raise Bad(kind, value, "its exponent is too large")
        if exact == 0:
            return Decimal(0)
        if exact.adjusted() >= before:
            raise Bad(kind, value, f"it has more than {before} digits before the point")
        significant = len("".join(map(str, exact.as_tuple().digits)).rstrip("0"))
        if exact.adjusted() - significant + 1 < -kind.scale:
            raise Bad(kind, value, f"it has more than {kind.scale} digits after the point")
        return exact.quantize(unit, context=_ALL_DIGITS)

    return read


def _text(kind: Scalar) -> Reader:
    def read(value: Any) -> str:
        if not isinstance(value, str) or isinstance(value, Number):
            raise Bad(kind, value, "it must be a text, in quotes")
        if not value.isascii() and not _is_sound(value):
            raise Bad(kind, value, "half of a surrogate pair is no character")
        if kind.longest is not None:
            if len(value) > kind.longest:
                raise Bad(kind, value, f"it has {len(value)} characters")
            return value.ljust(kind.longest) if kind.padded else value
        return value

    return read


def _is_sound(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _bytes(kind: Scalar) -> Reader:
    def read(value: Any) -> bytes:
        if isinstance(value, str) and not isinstance(value, Number) and value.isascii():
            try:
                return base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError):
                pass
        raise Bad(kind, value, "it must be a text in base64, with its padding")

    return read


def _day(kind: Scalar) -> Reader:
    def read(value: Any) -> int:
        if isinstance(value, str) and not isinstance(value, Number):
            found = _DAY.fullmatch(value)
            if found:
                try:
                    return date(int(found[1]), int(found[2]), int(found[3])).toordinal() - _EPOCH
                except ValueError:
                    raise Bad(kind, value, "there is no such day") from None
        raise Bad(kind, value, "it must be a text such as 2026-01-31")

    return read


def _moment(kind: Scalar, value: Any, zone: ZoneInfo | None) -> int:
    """Microseconds since 1970: in UTC, or without a zone as they stand."""
    if isinstance(value, Number):
        raise Bad(kind, value, "a number does not tell its unit; write 2026-01-31T10:00:00Z")
    found = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise Bad(kind, value, "it must be a text such as 2026-01-31T10:00:00Z")
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    fraction = (found[7] or "").ljust(9, "0")
    if fraction[6:] != "000":
        raise Bad(kind, value, "it has more than 6 digits after the second")
    try:
        local = datetime(year, month, day, hour, minute, second, int(fraction[:6]))  # noqa: DTZ001
    except ValueError:
        raise Bad(kind, value, "there is no such time") from None
    since = local - datetime(1970, 1, 1)  # noqa: DTZ001
    count = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if zone is None:
        if found[8]:
            raise Bad(kind, value, "it names a time zone, and the column has none")
        return count
    count -= _offset(kind, value, found[8], local, zone) // timedelta(microseconds=1)
    if not FIRST_MICROSECOND <= count <= LAST_MICROSECOND:
        raise Bad(kind, value, "in UTC it is outside the years 1 to 9999")
    return count


def _offset(kind: Scalar, value: Any, written: str | None, local: datetime, zone: ZoneInfo) -> timedelta:
    """How far the time is ahead of UTC."""
    if written == "Z":
        return timedelta(0)
    if written:
        hours, minutes = int(written[1:3]), int(written[-2:]) if len(written) > 3 else 0
        if hours > 23 or minutes > 59:
            raise Bad(kind, value, "there is no such offset from UTC")
        return timedelta(hours=hours, minutes=minutes) * (-1 if written[0] == "-" else 1)
    try:
        offsets = {local.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta(0) for fold in (0, 1)}
    except OverflowError:
        raise Bad(kind, value, "in UTC it is outside the years 1 to 9999") from None
    if len(offsets) > 1:
        raise Bad(
            kind, value, f"it does not exist in the time zone {zone.key}, or exists twice; write its offset from UTC"
        )
    return offsets.pop()


# ---------------------------------------------------------------------- types with parts


def _array(kind: Array, zone: ZoneInfo) -> Reader:
    read_one = reader(kind.element, zone)

    def read(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise Bad(kind, value, "it must be an array: [ … ]")
        return [_part(kind.element, kind.nulls, read_one, item, f"[{place}]") for place, item in enumerate(value)]

    return read


def _map(kind: Map, zone: ZoneInfo) -> Reader:
    read_key, read_value = _key_reader(kind, zone), reader(kind.value, zone)

    def read(value: Any) -> list[tuple[Any, Any]]:
        if not isinstance(value, dict):
            raise Bad(kind, value, "it must be an object: { … }")
        found: dict[Any, Any] = {}
        for name, item in value.items():
            try:
                key = read_key(name)
            except Bad as bad:
                raise bad.inside(" (a key)") from None
            if key in found:
                raise Bad(kind, value, f"it has the key {shown(name)} twice")
            found[key] = _part(kind.value, kind.nulls, read_value, item, f"[{shown(name)}]")
        return list(found.items())

    return read


def _key_reader(kind: Map, zone: ZoneInfo) -> Reader:
    """The keys of an object are texts."""
    if isinstance(kind.key, Scalar):
        return text_reader(kind.key, zone)

    def refuse(value: Any) -> Any:
        raise Bad(kind, value, "keys with parts cannot be written in JSON; send Arrow")

    return refuse


def _struct(kind: Struct, zone: ZoneInfo) -> Reader:
    readers = {each.name.lower(): (each, reader(each.type, zone)) for each in kind.fields}

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Bad(kind, value, "it must be an object: { … }")
        found: dict[str, Any] = {}
        for name, item in value.items():
            known = readers.get(name.lower())
            if known is None:
                raise Bad(kind, value, f"it has no field {shown(name)}")
            field, read_one = known
            if field.name in found:
                raise Bad(kind, value, f"the field {field.name} is given twice")
            found[field.name] = _part(field.type, field.nullable, read_one, item, f".{field.name}")
        for field, _ in readers.values():
            if field.name not in found and not field.nullable:
                raise Bad(field.type, None, "it must not be NULL", f".{field.name}")
        return found

    return read


def _part(kind: Type, nullable: bool, read: Reader, item: Any, place: str) -> Any:
    if item is None:
        if not nullable:
            raise Bad(kind, None, "it must not be NULL", place)
        return None
    try:
        return read(item)
    except Bad as bad:
        raise bad.inside(place) from None
