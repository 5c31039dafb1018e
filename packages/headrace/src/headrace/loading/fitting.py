"""From rows as they were sent to rows as the table has them now, as texts of SQL.

Usually nothing is to be done. But while rows waited, a column may have come, gone or changed its type; and only Spark
can say whether a row meets a CHECK constraint. Rows that do not fit become rejects here, with their reason, because a
commit that one row can stop would stop all rows after it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.errors import SyntaxFault
from headrace.loading.shapes import Shape
from headrace.loading.spool import Spooled
from headrace.loading.types import Column, Map, Other, Scalar, parsed, parts, sql_name
from headrace.names import quote, quote_text
from headrace.sql.tokens import scan

ERROR, TEXT, LOAD, NUMBER = "__hr_error", "__hr_row", "__hr_load", "__hr_number"
"""Columns beside the table's own."""


Error = tuple[str, str]
"""A condition, and what to say of a row for which it holds."""


@dataclass(frozen=True)
class Fit:
    """How the rows of one file become rows of the table.

    `values` reads from a row of the file (`load`, `number`, `row`) and gives columns of the table; `computed` reads
    from these, and is for a session that gives NULL where others raise. `written` names those that are handed to Delta,
    which fills in the others itself. `errors` are conditions over the file's row, `unmet` such over the table's
    columns.
    """

    values: tuple[tuple[str, str], ...]
    written: tuple[str, ...]
    computed: tuple[tuple[str, str], ...] = ()
    errors: tuple[Error, ...] = ()
    unmet: tuple[Error, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether every row fits."""
        return not self.errors and not self.unmet


def first_error(errors: Sequence[Error]) -> str:
    """An expression that gives the reason of the first condition that holds, or NULL."""
    cases = " ".join(f"WHEN {condition} THEN {quote_text(text)}" for condition, text in errors)
    return f"CASE {cases} END" if cases else "CAST(NULL AS STRING)"


def fit(spooled: Spooled, shape: Shape) -> Fit:
    """For rows with these columns and a table of this shape."""
    given = {name.lower(): (name, declared, nullable) for name, declared, nullable in spooled.columns}
    values: list[tuple[str, str]] = []
    written: list[str] = []
    errors: list[Error] = []
    for column in shape.columns:
        found = given.pop(column.name.lower(), None)
        if column.role == "computed":
            if found is not None:
                errors.append(_not_null(found[0], f"Column {column.name} is computed by the table now."))
            continue
        value, problems = _missing(column) if found is None else _value(column, *found)
        errors += problems
        if value is not None:
            values.append((value, column.name))
            written.append(column.name)
    errors += [_not_null(name, f"There is no column {name} any more.") for name, _, _ in given.values()]
    computed, unmet = _computed(shape, written)
    return Fit(tuple(values), tuple(written), computed, tuple(errors), unmet)


def _computed(shape: Shape, written: Sequence[str]) -> tuple[tuple[tuple[str, str], ...], tuple[Error, ...]]:
    """What Delta computes and checks, and would fail at. What needs a value that only Delta has, such as the next
    number of an identity column, is left to it."""
    unknown = {column.name.lower() for column in shape.columns} - {name.lower() for name in written}
    computed: list[tuple[str, str]] = []
    unmet: list[Error] = []
    for column in shape.columns:
        # One may not be made of another.
        if column.role == "computed" and column.expression is not None and not unknown & _names(column.expression):
            value = f"CAST(({column.expression}) AS {_spark_type(column)})"
            computed.append((value, column.name))
            unmet += _not_computed(column, value)
    unknown -= {name.lower() for _, name in computed}
    unmet += [
        (f"NOT coalesce({_is_true(text)}, false)", f"The row does not meet the constraint {name}: {text}.")
        for name, text in shape.constraints.items()
        if not unknown & _names(text)
    ]
    return (tuple(computed), tuple(unmet)) if unmet else ((), ())


def _not_computed(column: Column, value: str) -> list[Error]:
    errors = []
    if not any(isinstance(part, (Map, Other)) for part in parts(column.type)):  # These have no hash.
        reason = f"Column {column.name}: it cannot be computed from the row: {column.expression}."
        errors.append((f"{_unless_it_raises(f'CAST(xxhash64({value}) AS STRING)')} IS NULL", reason))
    if not column.nullable:
        reason = f"Column {column.name}: it is {column.sql} NOT NULL, and is computed to NULL from the row."
        errors.append((f"{quote(column.name)} IS NULL", reason))
    return errors


def _unless_it_raises(text: str) -> str:
    """The bytes of a text; NULL also where to compute it raises an error, such as a division by zero. Spark has no
    function that is for this alone; this one takes every error of its argument for its own."""
    return f"try_to_binary({text}, 'utf-8')"


def _is_true(condition: str) -> str:
    """NULL where it is NULL or raises an error."""
    return f"{_unless_it_raises(f'CAST(({condition}) AS STRING)')} = X'{b'true'.hex()}'"


def _names(text: str) -> set[str]:
    """In lower case, the columns that an expression may name: no functions, and no parts of others."""
    try:
        tokens = scan(text)
    except SyntaxFault:
        return set()  # Spark took it, so this does not happen.
    found = set()
    for place, token in enumerate(tokens):
        after = tokens[place + 1].text if place + 1 < len(tokens) else ""
        if token.is_name and after != "(" and not (place and tokens[place - 1].text == "."):
            found.add(token.value.lower())
    return found


def _given(name: str) -> str:
    return f"`row`.{quote(name)}"


def _not_null(name: str, text: str) -> Error:
    """A value that no column can take is an error; NULL is none."""
    return f"{_given(name)} IS NOT NULL", text


def _missing(column: Column) -> tuple[str | None, list[Error]]:
    """A column that the rows do not have. None for one that Delta fills in itself."""
    if column.role == "default":
        filled = f"CAST(({column.expression}) AS {_spark_type(column)})"
        return None if column.expression is None else filled, []
    empty = f"CAST(NULL AS {_spark_type(column)})"
    if column.nullable:
        return empty, []
    return empty, [("true", f"Column {column.name}: it is {column.sql} NOT NULL now, and the row does not give it.")]


def _value(column: Column, name: str, declared: str, nullable: bool) -> tuple[str, list[Error]]:
    value, errors = _given(name), []
    if json.loads(declared) != json.loads(column.declared):
        before = parsed(json.loads(declared))
        if isinstance(before, Scalar) and isinstance(column.type, Scalar):
            value = f"try_cast({_given(name)} AS {_spark_type(column)})"
        else:
            value = f"CAST(NULL AS {_spark_type(column)})"
        changed = f"Column {column.name} was {sql_name(before)} and is {column.sql} now."
        errors.append((f"{_given(name)} IS NOT NULL AND {value} IS NULL", changed))
    if nullable and not column.nullable:
        errors.append((f"{value} IS NULL", f"Column {column.name}: it is {column.sql} NOT NULL now."))
    return value, errors


def _spark_type(column: Column) -> str:
    """As Spark's parser reads it: names of fields in backquotes."""
    return spark_type(json.loads(column.declared))


def spark_type(declared: object) -> str:
    """The text of a type in Delta's JSON, for CAST.

    >>> spark_type({"type": "struct", "fields": [{"name": "a b", "type": "long"}]})
    'STRUCT<`a b`: BIGINT>'
    """
    if isinstance(declared, Mapping):
        kind = declared["type"]
        if kind == "array":
            return f"ARRAY<{spark_type(declared['elementType'])}>"
        if kind == "map":
            return f"MAP<{spark_type(declared['keyType'])}, {spark_type(declared['valueType'])}>"
        if kind == "struct":
            fields = (f"{quote(str(f['name']))}: {spark_type(f['type'])}" for f in declared["fields"])
            return f"STRUCT<{', '.join(fields)}>"
        return str(kind)
    return sql_name(parsed(declared))
