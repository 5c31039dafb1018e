"""Columns with Spark's types."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from dbt.adapters.base.column import Column

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_QUOTED = re.compile(r"`(?:[^`]|``)+`")
_INTEGERS = ("tinyint", "smallint", "int", "integer", "bigint")


@dataclass
class HeadraceColumn(Column):
    """The type is kept as Spark writes it, with all its parameters."""

    TYPE_LABELS: ClassVar[dict[str, str]] = {
        "STRING": "string",
        "TEXT": "string",
        "VARCHAR": "string",
        "CHAR": "string",
        "CHARACTER VARYING": "string",
        "INTEGER": "int",
    }

    @property
    def quoted(self) -> str:
        return quote(self.column)

    @property
    def data_type(self) -> str:
        return self.translate_type(self.dtype)

    def is_string(self) -> bool:
        return self.dtype.lower() == "string" or self.dtype.lower().startswith(("varchar", "char"))

    def is_integer(self) -> bool:
        return self.dtype.lower() in _INTEGERS

    def is_float(self) -> bool:
        return self.dtype.lower() in ("float", "double")

    def is_numeric(self) -> bool:
        return self.dtype.lower().startswith("decimal")

    def string_size(self) -> int:
        """Texts have no length of their own."""
        return 0

    def can_expand_to(self, other_column: Column) -> bool:
        return False

    @classmethod
    def string_type(cls, size: int) -> str:
        return "string"

    @classmethod
    def numeric_type(cls, dtype: str, precision: object, scale: object) -> str:
        if precision is None or scale is None:
            return "decimal(38,6)"
        return f"decimal({precision},{scale})"

    @classmethod
    def from_description(cls, name: str, raw_data_type: str) -> HeadraceColumn:
        match = _DECIMAL.fullmatch(raw_data_type)
        precision, scale = (int(match[1]), int(match[2])) if match else (None, None)
        return cls(name, raw_data_type, None, precision, scale)


def column_of(name: str, columns: Iterable[Column]) -> Column | None:
    """Which of the columns a config means: by its name as it is, or in back quotes; whatever the case.

    >>> columns = [HeadraceColumn.from_description(name, "int") for name in ("id", "order-id", "odd`one")]
    >>> [column_of(name, columns).quoted for name in ("ID", "order-id", "`odd``one`")]
    ['`id`', '`order-id`', '`odd``one`']
    >>> column_of("date_trunc('day', at)", columns)
    """
    return next((each for each in columns if each.name.lower() == bare(name).lower()), None)


def bare(name: str) -> str:
    """The name of a column as a config has it, without quotes.

    >>> bare("day"), bare("`odd``one`"), bare(" a b ")
    ('day', 'odd`one', 'a b')
    """
    plain = name.strip()
    return plain[1:-1].replace("``", "`") if _QUOTED.fullmatch(plain) else plain


def is_column_name(text: str) -> bool:
    """Whether it can be nothing but the name of a column.

    >>> [is_column_name(text) for text in ("id", "größe", "`a b`", "a b", "upper(id)")]
    [True, True, True, False, False]
    """
    return re.fullmatch(r"\w+", text.strip()) is not None or _QUOTED.fullmatch(text.strip()) is not None


def quote(identifier: str) -> str:
    """
    >>> quote("id"), quote("odd`name")
    ('`id`', '`odd``name`')
    """
    return "`" + identifier.replace("`", "``") + "`"
