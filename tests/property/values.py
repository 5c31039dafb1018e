"""Values of every type that can be a key, as SQL: few of each, NULL among them, so that groups, joins and duplicates
happen.

Sums of floats must not come out near zero from large terms: VERIFY compares them relative to their size. So no float is
negative.
"""

from __future__ import annotations

from random import Random

VALUES: dict[str, tuple[str, ...]] = {
    "INT": ("NULL", "0", "1", "2", "-3"),
    "BIGINT": ("NULL", "0L", "7L", "9000000000L"),
    "SMALLINT": ("NULL", "1S", "2S", "-32768S"),
    "DECIMAL(8,2)": ("NULL", "0.00", "1.25", "-2.50", "99.99"),
    "DOUBLE": ("NULL", "0.0D", "double('-0.0')", "0.5D", "0.1D", "1e10D", "double('NaN')"),
    "STRING": ("NULL", "''", "'a'", "'b'", "'It''s'", r"'back\\slash $x'"),
    "BOOLEAN": ("NULL", "true", "false"),
    "DATE": ("NULL", "DATE '2024-01-01'", "DATE '2024-02-29'", "DATE '2024-03-01'", "DATE '0001-01-01'"),
    "TIMESTAMP": ("NULL", "TIMESTAMP '2024-01-01 00:00:00'", "TIMESTAMP '2024-03-31 02:30:00.123456'"),
    "TIMESTAMP_NTZ": ("NULL", "TIMESTAMP_NTZ '2024-01-01 00:00:00'", "TIMESTAMP_NTZ '1899-12-31 23:59:59.999999'"),
    "BINARY": ("NULL", "X''", "X'00'", "X'61FF'"),
    "ARRAY<INT>": ("NULL", "CAST(array() AS ARRAY<INT>)", "array(1)", "array(1, NULL)", "array(2, 1)"),
    "STRUCT<a: INT, b: STRING>": (
        "NULL",
        "named_struct('a', 1, 'b', 'x')",
        "named_struct('a', CAST(NULL AS INT), 'b', 'x')",
    ),
}
WHOLE = ("INT", "BIGINT", "SMALLINT")
NUMBERS = (*WHOLE, "DECIMAL(8,2)", "DECIMAL", "DOUBLE")
DAY = "2024-02-29"
"""The first day of an example; the others follow it."""

_FAMILIES = {"BIGINT": "INT", "SMALLINT": "INT", "DECIMAL(8,2)": "INT", "DECIMAL": "INT"}


def family(kind: str) -> str:
    """Kinds of one family are compared with each other; "DECIMAL" is one of any precision."""
    return _FAMILIES.get(kind, kind)


def has_literals(kind: str) -> bool:
    return kind in VALUES or kind == "DECIMAL"


def literal(rng: Random, kind: str) -> str:
    return rng.choice(VALUES["DECIMAL(8,2)" if kind == "DECIMAL" else kind])


def known(rng: Random, kind: str) -> str:
    """A literal that is not NULL."""
    return rng.choice(VALUES["DECIMAL(8,2)" if kind == "DECIMAL" else kind][1:])
