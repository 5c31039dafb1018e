"""Rows as PySpark's `collect()` gives them, out of an Arrow table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    import pandas


class Row(tuple[Any, ...]):
    """A tuple whose values have names: row.id, row["id"], row[0], row.asDict(). Equal to a tuple of the same values."""

    __fields__: tuple[str, ...]

    def __new__(cls, **values: Any) -> Row:
        return cls.of(tuple(values), values.values())

    @classmethod
    def of(cls, names: Iterable[str], values: Iterable[Any]) -> Row:
        row = super().__new__(cls, values)
        row.__fields__ = tuple(names)
        return row

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") and name in self.__fields__:
            return self[self.__fields__.index(name)]
        raise AttributeError(f"A row has no value {name!r}; it has {', '.join(self.__fields__)}.")

    def __getitem__(self, item: Any) -> Any:
        if not isinstance(item, str):
            return super().__getitem__(item)
        if item not in self.__fields__:
            raise KeyError(item)
        return super().__getitem__(self.__fields__.index(item))

    def __contains__(self, item: object) -> bool:
        return item in self.__fields__

    def asDict(self, recursive: bool = False) -> dict[str, Any]:  # noqa: N802 - PySpark's name
        values = (_as_dicts(each) for each in self) if recursive else iter(self)
        return dict(zip(self.__fields__, values, strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        return _row, (self.__fields__, tuple(self))

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in zip(self.__fields__, self, strict=True))})"


def _row(names: tuple[str, ...], values: tuple[Any, ...]) -> Row:
    return Row.of(names, values)


def _as_dicts(value: Any) -> Any:
    if isinstance(value, Row):
        return value.asDict(recursive=True)
    if isinstance(value, list):
        return [_as_dicts(each) for each in value]
    if isinstance(value, dict):
        return {key: _as_dicts(each) for key, each in value.items()}
    return value


def rows_of(table: pa.Table) -> list[Row]:
    """The rows as Python values: structs are rows, maps are dicts, times are in the session's zone, unmarked."""
    names = tuple(table.column_names)
    columns = [values_of(column) for column in table.columns]
    return [Row.of(names, values) for values in zip(*columns, strict=True)] if columns else []


def values_of(column: pa.ChunkedArray) -> Iterator[Any]:
    return (_value(each, column.type) for each in column.to_pylist())


def _value(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_timestamp(kind):
        return value.replace(tzinfo=None) if isinstance(value, datetime) else value
    if pa.types.is_struct(kind):
        fields = [kind.field(place) for place in range(kind.num_fields)]
        return Row.of((each.name for each in fields), (_value(value[each.name], each.type) for each in fields))
    if pa.types.is_map(kind):
        return {_value(key, kind.key_type): _value(each, kind.item_type) for key, each in value}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_value(each, kind.value_type) for each in value]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return bytearray(value)
    return value


def pandas_of(table: pa.Table) -> pandas.DataFrame:
    """As PySpark's toPandas(): times in the session's zone without saying so, nested values as in `rows_of`."""
    found = table.to_pandas(date_as_object=True)
    for place, kind in enumerate(table.schema.types):
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            found.isetitem(place, found.iloc[:, place].dt.tz_localize(None))
        elif pa.types.is_nested(kind):
            values = list(values_of(table.column(place)))
            found.isetitem(place, _objects(values))
    return found


def _objects(values: list[Any]) -> pandas.Series[Any]:
    import pandas

    return pandas.Series(values, dtype=object)
